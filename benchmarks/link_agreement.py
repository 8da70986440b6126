"""Agreement of two chains of a mixture with links and without, at the same CPU seconds.

    python benchmarks/link_agreement.py FILE.h5 ... --out OUT [--seconds 80] [--seed 1] [--links none forest]

FILE.h5: imported tables; "forest with bases": link_base = "learned". Two runs of one chain each are stopped after these
CPU seconds; the draws of the second half count. Reported are the adjusted Rand index between the chains' draws (5 of
each), and between those of one chain; the index at 2, 4 and 8 groups of each chain's own tree over its clusters
(hpc/crosscat/levels); and the undirected links of each chain's last draw, and how many they have in common.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mpibayes.hpc.crosscat.draws import Posterior
from mpibayes.hpc.crosscat.levels.level import _together
from mpibayes.hpc.crosscat.levels.of_run import MOST_DRAWS, ViewLevels, levels_of_views
from mpibayes.hpc.crosscat.levels.votes import cut_into, vote
from mpibayes.hpc.links.forest import ROOT
from mpibayes.hpc.posterior.chains import evenly
from mpibayes.hpc.posterior.similarity import similarity, similarity_of

GROUPS = 2, 4, 8
KEYS = "model.family=mixture", "run.cycles=1000000", "run.until=cycles", "run.chains=1", "output.labels=5"


def run(table: Path, links: str, seconds: float, seed: int, folder: Path) -> Path:
    """Run a chain until it has had `seconds` CPU seconds, and stop it as a user would."""
    links, _, bases = links.partition(" with ")
    base = ["model.link_base=learned"] if bases else []
    keys = [word for of in (*KEYS, f"model.links={links}", *base, f"run.seed={seed}") for word in ("--set", of)]
    process = subprocess.Popen(
        [sys.executable, "-m", "mpibayes", "run", str(table), "-o", str(folder), *keys], stdout=subprocess.DEVNULL
    )
    while process.poll() is None and spent(process.pid) < seconds:
        time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    process.wait()
    return folder


def spent(process: int) -> float:
    """CPU seconds of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def agreement(folders: Sequence[Path]) -> dict:
    """Compare the chains of two runs."""
    whole = Posterior(folders)
    whole.read_traces()
    last = [chain.last for chain in whole.chains]
    of = Posterior(folders, burn_in=min(last) // 2)
    kept = of.require_kept()
    pairs = [pair for i in (0, 1) for pair in evenly([pair for pair in kept if pair[0] == i], MOST_DRAWS)]
    draws = list(of.states(pairs))
    labels = [[draw.labels[0] for chain, draw in draws if chain == i] for i in (0, 1)]
    last_draw = [[draw for chain, draw in draws if chain == i][-1] for i in (0, 1)]
    links = [_links(draw.parents) for draw in last_draw]
    clusters = [float(np.mean([z.max() + 1 for z in its])) for its in labels]
    (levels,) = levels_of_views(of, [(of.whole, int(max(clusters)))], kept)
    within = [similarity(its[i], its[j])[0] for its in labels for i in range(len(its)) for j in range(i)]
    return {
        "cycles": last,
        "clusters": clusters,
        "ari": float(np.mean([similarity(a, b)[0] for a in labels[0] for b in labels[1]])),
        "ari_within": float(np.mean(within)),
        "ari_at": {n: _own_trees(levels, n) for n in GROUPS},
        "n_links": [len(its) for its in links],
        "common": len(links[0] & links[1]),
    }


def _links(parents: np.ndarray | None) -> set[frozenset[int]]:
    pairs = enumerate([] if parents is None else parents.tolist())
    return {frozenset((child, parent)) for child, parent in pairs if parent != ROOT}


def _own_trees(levels: ViewLevels, n: int) -> float | None:
    """Adjusted Rand index of the n groups of each chain's own tree; None if one has no such level."""
    p = levels.patterns
    cut = [(cut_into(n, tree, leaves, p.rows), leaves) for tree, leaves in levels.chain_trees]
    if any(branch is None for branch, _ in cut):
        return None
    a, b = (vote(branch, leaves) for branch, leaves in cut)
    return float(similarity_of(_together(a, b, p.rows))[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=80.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--links", nargs="*", default=("none", "forest"))
    given = parser.parse_args()
    for path in given.files:
        for links in given.links:
            with tempfile.TemporaryDirectory() as folder:
                seeds = given.seed, given.seed + 1
                where = [run(path, links, given.seconds, seed, Path(folder) / str(seed)) for seed in seeds]
                line = {"table": path.stem, "links": links, "seed": given.seed, "seconds": given.seconds}
                line = json.dumps(line | agreement(where))
            print(line, flush=True)
            with given.out.open("a") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
