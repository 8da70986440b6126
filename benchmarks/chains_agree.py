"""Do default chains of a table agree, on columns, log joint, clusters and each view's largest cluster?

    python benchmarks/chains_agree.py TABLE.h5 [--seeds 1 2] [--seconds 300] [--keep FOLDER]
    python benchmarks/chains_agree.py income_20k --data FOLDER ...
    python benchmarks/chains_agree.py weak_views --rows 2500 --set sampler.init_rows=0 sampler.group_moves=2 ...

weak_views: three views of eight columns of six weak clusters, and two columns of noise, made; the index of each chain's
columns with the true views is printed, too. --set: keys that differ from their defaults.

One chain a seed, in turn, each for so many CPU seconds after its start; the second half of the shortest counts. Prints
the adjusted Rand index of the columns of each pair of chains, then R-hat and effective draws (bulk) of the log joint,
of K, and, for each view that all chains have throughout, of its log joint, its number of clusters and the size of its
largest. --keep: each chain's trace by view, FOLDER/SEED.json; seeds that are there are not run again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
from machine import markdown
from public_tables import folder
from scorer import adjusted_rand
from tables import PUBLIC, discrete

from mpibayes.hpc.convergence import bulk_ess, r_hat
from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.registry import family_of
from mpibayes.hpc.run.examine import examine
from mpibayes.io.rows import Rows, place_columns
from mpibayes.io.table import write_table

RUN = '[data]\ntable = "{table}"\n[model]\nfamily = "crosscat"\n[run]\nchains = 1\n'
VIEWS, COLUMNS, NOISE, LEVELS, CLUSTERS = 3, 8, 2, 5, 6  # of the made table
PARTS = {"log joint": 1, "clusters": 2, "largest": 3}  # places in a view's line


def weak_views(path: Path, n_rows: int, seed: int) -> None:
    """Write the made table; column `q17` is in view 1, `noise0` in none."""
    stream, names, cells = np.random.default_rng(seed), [], []
    for view in range(VIEWS):
        z = stream.choice(CLUSTERS, n_rows, p=stream.dirichlet(np.full(CLUSTERS, 4.0)))
        for column in range(COLUMNS):
            below = stream.dirichlet(np.full(LEVELS, 2.0), CLUSTERS).cumsum(axis=1)[z]
            cells.append(np.minimum((stream.random(n_rows)[:, None] > below).sum(axis=1), LEVELS - 1))
            names.append(f"q{view}{column}")
    for column in range(NOISE):
        cells.append(stream.integers(LEVELS, size=n_rows))
        names.append(f"noise{column}")
    columns = place_columns((name, "categorical", tuple("abcde")) for name in names)
    rows = Rows.missing(columns, n_rows)
    rows.codes8[:] = np.column_stack(cells)
    write_table(path, columns, rows)


def chain(table: Path, seed: int, seconds: float, place: Path, changed: Sequence[str] = ()) -> dict:
    """Trace of a default chain: CPU seconds of its start and of the cycles; of each cycle the log joint, K, and each
    view's columns, log joint, number of clusters and largest cluster."""
    config = place / f"{seed}.toml"
    config.write_text(RUN.format(table=table.resolve()))
    of = examine(config, [f"run.seed={seed}", *changed])
    family, decided = family_of(of.config.kind), of.config
    for section, values in family.decided(of.config, of.data.n_rows).items():
        decided = decided.changed(section, **values)
    result = family(serial(), decided, of.data).chain(decided, 0)
    began = time.process_time()
    result.start()
    start, began, cycles = time.process_time() - began, time.process_time(), []
    while time.process_time() - began < seconds:
        values = result.advance((0,), 1).values
        views = [
            [sorted(view.columns), view.log_joint(), view.n_labels, int(view.sizes().max())]
            for view in result.mixture.views
        ]
        cycles.append([float(values["log_joint"][0]), int(values["n_clusters"][0]), views])
    return {"start_s": start, "cycles_s": time.process_time() - began, "cycles": cycles}


def compared(chains: list[dict]) -> list[list[str]]:
    """Lines of the table: what, R-hat, effective draws, and each chain's mean and standard deviation."""
    n = min(len(of["cycles"]) for of in chains)
    late = [of["cycles"][n // 2 : n] for of in chains]
    series = {"log joint": [[c[0] for c in of] for of in late], "K": [[c[1] for c in of] for of in late]}
    by_view = [[{tuple(view[0]): view for view in c[2]} for c in of] for of in late]
    common = set.intersection(*(set(c) for of in by_view for c in of))
    for names in sorted(common, key=lambda names: (-len(names), names)):
        for what, at in PARTS.items():
            series[f"{what} of {', '.join(names[:3])}, {len(names)} columns"] = [
                [c[names][at] for c in of] for of in by_view
            ]
    lines = []
    for what, of in series.items():
        x = np.array(of, float)
        each = [f"{of.mean():,.0f} ± {of.std():,.1f}" for of in x]
        lines.append([what, f"{r_hat(x):.2f}", f"{bulk_ess(x):.0f}", *each])
    return lines


def columns_of(of: dict) -> np.ndarray:
    """View of each column in the last cycle, columns by name."""
    views = of["cycles"][-1][2]
    return np.array([v for _, v in sorted((name, v) for v, view in enumerate(views) for name in view[0])])


def _true_index(of: dict) -> str:
    """Index of the columns' views with the true ones in the last cycle, and the first cycle from which it is 1."""
    each = []
    for _, _, views in of["cycles"]:
        view = {name: v for v, part in enumerate(views) for name in part[0]}
        names = sorted(name for name in view if name.startswith("q"))
        each.append(adjusted_rand(np.array([view[n] for n in names]), np.array([int(n[1]) for n in names])))
    wrong = [i for i, index in enumerate(each) if index < 1.0]
    since = f", 1 from cycle {wrong[-1] + 2 if wrong else 1}" if each[-1] == 1.0 else ""
    return f", true views {each[-1]:.2f}{since}"


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("table")
    words.add_argument("--data", help="folder of public tables (public_tables.py)")
    words.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    words.add_argument("--seconds", type=float, default=300.0)
    words.add_argument("--keep", type=Path)
    words.add_argument("--set", nargs="+", default=[], help="SECTION.KEY=VALUE ...")
    words.add_argument("--rows", type=int, default=2500, help="of weak_views")
    words.add_argument("--table-seed", type=int, default=1, help="of weak_views")
    given = words.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place, table, chains = Path(temporary), Path(given.table), []
        if given.table in PUBLIC:
            table = place / "table.h5"
            write_table(table, *discrete(given.table, folder(given.data)).table())
        elif given.table == "weak_views":
            table = place / "table.h5"
            weak_views(table, given.rows, given.table_seed)
        for seed in given.seeds:
            kept = given.keep / f"{seed}.json" if given.keep else None
            if kept and kept.exists():
                chains.append(json.loads(kept.read_text()))
            else:
                chains.append(chain(table, seed, given.seconds, place, given.set))
                if kept:
                    kept.parent.mkdir(parents=True, exist_ok=True)
                    kept.write_text(json.dumps(chains[-1]))
            of = chains[-1]
            n, views = len(of["cycles"]), of["cycles"][-1][2]
            index = _true_index(of) if given.table == "weak_views" else ""
            print(f"seed {seed}: start {of['start_s']:.1f} s, {n} cycles of {1e3 * of['cycles_s'] / n:.0f} ms, "
                  f"{len(views)} views{index}", flush=True)  # fmt: skip
    for (a, one), (b, two) in combinations(zip(given.seeds, chains), 2):
        print(f"columns of seeds {a} and {b}: {adjusted_rand(columns_of(one), columns_of(two)):.3f}")
    if len(chains) > 1:
        head = ["", "R-hat", "effective draws", *(f"seed {seed}" for seed in given.seeds)]
        print(markdown(head, compared(chains)))


if __name__ == "__main__":
    main()
