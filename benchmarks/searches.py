"""Regret of choosing one of several searches for views by unseen rows, and by the log joint.

    python benchmarks/searches.py TABLE.h5 [--searches 8] [--rows 3000] [--cycles 30] [--no-probe]
    python benchmarks/searches.py TABLE.h5 --chains 4 [--searches 8] [--rows 3000] [--cycles 30]

The table's rows are dealt to 80 % training, 10 % judges and 10 % verification. Each search goes on for some cycles on
all training rows, and its state is scored on the verifying rows: nats a row, collapsed. Regret: the best such score
minus that of the search that a criterion chooses, on average over choices of 1, 2, 4 ... of the searches.

--chains: instead, so many chains, each from the best of its own searches, as runs start: CPU seconds of the searches,
held-out score after the cycles (a mean of four states, three cycles apart), and how far the chains' views agree.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
from scorer import adjusted_rand

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.law import Density
from mpibayes.hpc.crosscat.laws.view_density import ViewDensity, densities
from mpibayes.hpc.crosscat.start import strategy, views
from mpibayes.hpc.crosscat.start.combined import combined
from mpibayes.hpc.crosscat.start.searches import best_search
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.parallel.comm import serial
from mpibayes.io.rows import Rows
from mpibayes.io.table import Table

CHOICES = 400
LAST = 2, 5, 8, 11  # cycles before the end whose states are scored


def score(chain: Mixture, rows: Rows) -> float:
    """Mean log density of a state, nats a row."""
    parts = [ViewDensity(v.components, v.hyper, v.partition.statistics) for v in chain.views]
    return float(Density(parts, chain.places).log_density(rows).mean())


def regret(criterion: np.ndarray, final: np.ndarray, size: int) -> float:
    """Mean regret of the best of `size` random searches by a criterion."""
    rng = np.random.default_rng(0)
    picks = [rng.choice(len(final), size, replace=False) for _ in range(CHOICES)]
    return float(np.mean([final.max() - final[pick[np.argmax(criterion[pick])]] for pick in picks]))


def chains(data: Data, given: argparse.Namespace) -> None:
    """See the module."""
    scores, homes = [], []
    for seed in range(1, given.chains + 1):
        settings = Settings(seed=seed, view_concentration="learn", links="lines")
        chain = Mixture(serial(), data.columns, data.rows_of, data.n_rows, settings)
        began = time.process_time()
        plan = given.rows, strategy.INITIAL_VIEWS, given.searches
        of = serial(), data, views.settings_of_search(chain), 0
        best, _ = combined(*of, given.rows, best_search(*of, *plan))
        seconds, states = time.process_time() - began, []
        views.follow(chain, best)
        held = data.heldout_of(0, len(data.heldout))
        for left in range(given.cycles - 1, -1, -1):
            chain.cycle()
            if left in LAST:
                density = Density(densities(chain.views, chain.linking.codings), chain.places)
                states.append(density.log_density(held).mean())
        home = {name: v for v, view in enumerate(chain.views) for name in view.columns}
        scores.append(np.mean(states))
        homes.append(np.array([home[c.name] for c in chain.columns]))
        print(f"{seconds:.1f} s, {len(chain.views)} views, end {scores[-1]:.3f}", flush=True)
    agree = [adjusted_rand(a, b) for a, b in combinations(homes, 2)]
    print(f"mean {np.mean(scores):.3f}, apart {np.ptp(scores):.3f}, views agree by {np.mean(agree):.2f}")


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("table", type=Path)
    words.add_argument("--searches", type=int, default=8)
    words.add_argument("--rows", type=int, default=strategy.ROWS_OF_EACH)
    words.add_argument("--cycles", type=int, default=30)
    words.add_argument("--no-probe", action="store_true", help="judge trials by the evidence alone")
    words.add_argument("--chains", type=int, help="chains from the best of their searches, instead")
    given = words.parse_args()

    data = Data(Table.open(given.table), (), 0.1, latent=True)
    if given.chains:
        chains(data, given)
        return
    order = np.random.default_rng(7).permutation(data.n_rows)
    n = data.n_rows // 9
    judges, verifying = data.rows_at(np.sort(order[:n])), data.heldout_of(0, len(data.heldout))
    training = data.rows_at(np.sort(order[n:]))
    lines = []
    for number in range(given.searches):
        settings = Settings(seed=500 + number, shards=1, view_concentration="learn")
        dealt, n_probe = np.random.default_rng(1000 + number).permutation(len(training)), 0
        if not given.no_probe:
            n_probe = strategy.n_probes(len(training), given.rows)
        n_own = min(given.rows, len(training) - n_probe)
        part, probed = training.take(np.sort(dealt[:n_own])), training.take(dealt[n_own : n_own + n_probe])
        began = time.process_time()
        search = views.searched(
            data.columns, part, settings, 0, strategy.INITIAL_VIEWS, probe=probed if n_probe else None
        )
        seconds = time.process_time() - began
        criteria = score(search, judges), sum(view.log_joint() for view in search.views)
        settings = replace(settings, shards=None)
        chain = Mixture(
            serial(), data.columns, lambda a, b: training.take(slice(a, b)), len(training), settings
        )  # fmt: skip
        views.follow(chain, views.found_by(search))
        for _ in range(given.cycles):
            chain.cycle()
        lines.append([*criteria, score(chain, verifying)])
        print(
            f"{seconds:.1f} s, {len(search.views)} views, judges {criteria[0]:.3f}, end {lines[-1][-1]:.3f}", flush=True
        )
    by_judges, by_joint, final = np.array(lines).T
    sizes = [2**i for i in range(10) if 2**i <= given.searches]
    for name, criterion in (("judges", by_judges), ("log joint", by_joint)):
        print(f"regret by {name}:", ", ".join(f"{size}: {regret(criterion, final, size):.3f}" for size in sizes))
    print(f"end: mean {final.mean():.3f}, worst {final.min():.3f}, best {final.max():.3f}")
    print(f"{(final > final.max() - 0.05).sum()} of {len(final)} within 0.05 of the best")


if __name__ == "__main__":
    main()
