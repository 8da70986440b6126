"""How a cycle's cost grows with rows, clusters, columns, levels and ranks.

    python benchmarks/scaling.py case --rows 500000 --clusters 64            one case, printed
    mpirun -n 2 python benchmarks/scaling.py case --rows 500000 --clusters 64
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from phases import PHASES, Stopwatch

from mpibayes.hpc import comm as communicators
from mpibayes.hpc import shards as cut
from mpibayes.hpc.mixture import Mixture, Settings
from mpibayes.hpc.simulate import Shape, Truth, categorical_columns, census

LATE = 1000  # the cycle from which a case goes on: moves are then as rare as they become
WARM_UP = 2


def truth_of(args) -> Truth:
    if args.levels == "census":
        pool = census()
        columns = [(f"{pool[i % len(pool)][0]}_{i}", pool[i % len(pool)][1]) for i in range(args.columns)]
    else:
        v = int(args.levels)
        columns = categorical_columns(args.columns, v, v, 1)
    return Truth(Shape(columns, args.reals, args.counts, args.clusters, separation=args.separation), seed=1)


def peak_bytes() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def run_case(args) -> dict | None:
    """Time `--cycles` cycles from the true labels; the figures of all ranks, on root."""
    comm = communicators.world()
    watch = Stopwatch()
    truth = truth_of(args)
    idle = peak_bytes()
    moves = None if args.moves < 0 else args.moves
    settings = Settings(seed=1, shards=args.shards or None, split_merge=moves, concentration=1.0)
    mixture = Mixture(comm, truth.columns, truth.rows, args.rows, settings)
    bounds = cut.bounds(args.rows, mixture.n_shards)
    mixture.resume(LATE, lambda i: truth.labels(int(bounds[i]), int(bounds[i + 1])), args.clusters, mixture.hyper)
    for _ in range(WARM_UP):
        mixture.cycle()
    watch.wrap()
    watch.watch(comm)
    watch.lap()
    laps, moved, n_clusters = [], [], 0
    for _ in range(args.cycles):
        info = mixture.cycle()
        laps.append(watch.lap())
        moved.append(info.moved_fraction)
        n_clusters = info.n_clusters
    mine = {
        "phases": {p: [[lap.get(p, (0.0, 0.0))[i] for lap in laps] for i in (0, 1)] for p in PHASES},
        "idle_bytes": idle,
        "peak_bytes": peak_bytes(),
        "bytes": {name: n / args.cycles for name, n in watch.bytes.items() if n},
        "shards": len(mixture.shards),
    }
    everyone = comm.collect(mine)
    if comm.rank:
        return None
    wall = np.array([[sum(lap) for lap in zip(*(r["phases"][p][0] for p in PHASES))] for r in everyone])
    return {
        "rows": args.rows, "columns": args.columns, "level_rows": int(mixture.components.shape[0]),
        "reals": args.reals, "counts": args.counts, "clusters": args.clusters, "clusters_at_end": n_clusters,
        "levels": args.levels, "ranks": comm.size, "shards": mixture.n_shards, "moves": args.moves,
        "cycle_s": float(np.median(wall.max(axis=0))), "cycle_min_s": float(wall.max(axis=0).min()),
        "moved": float(np.mean(moved)), "absent": watch.absent, "ranks_detail": everyone,
    }  # fmt: skip


def show(case: dict) -> None:
    first = case["ranks_detail"][0]
    print(
        f"N={case['rows']:,} C={case['columns']} L={case['level_rows']} K={case['clusters_at_end']} S={case['shards']} "
        f"ranks={case['ranks']}: {case['cycle_s'] * 1e3:.2f} ms a cycle (min {case['cycle_min_s'] * 1e3:.2f}), "
        f"moved {case['moved']:.3f}"
    )
    for phase in PHASES:
        cells = []
        for rank in case["ranks_detail"]:
            wall, cpu = (np.array(x) * 1e3 for x in rank["phases"][phase])
            cells.append(f"{np.median(wall):9.3f} wall {np.median(cpu):9.3f} cpu {wall.mean():9.3f} mean")
        print(f"  {phase:16s}", " | ".join(cells))
    print("  bytes a cycle", first["bytes"], "peak MiB", first["peak_bytes"] >> 20, "idle", first["idle_bytes"] >> 20)
    if case["absent"]:
        print("  not found:", case["absent"])


def add_case_options(parser) -> None:
    parser.add_argument("--rows", type=float, default=500_000)
    parser.add_argument("--clusters", type=int, default=64)
    parser.add_argument("--columns", type=int, default=68)
    parser.add_argument("--levels", default="census", help="of every column, or the census's pattern")
    parser.add_argument("--reals", type=int, default=0)
    parser.add_argument("--counts", type=int, default=0)
    parser.add_argument("--separation", type=float, default=0.3, help="of the clusters, see mpibayes simulate -h")
    parser.add_argument("--shards", type=int, default=0, help="0: the default for the rows")
    parser.add_argument("--moves", type=int, default=0, help="cycles between rounds, 0 none, -1 the default")
    parser.add_argument("--cycles", type=int, default=8)
    parser.add_argument("--json", action="store_true")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = parser.add_subparsers(dest="command", required=True)
    add_case_options(sub.add_parser("case"))
    args = parser.parse_args()
    args.rows = int(args.rows)
    case = run_case(args)
    if case is not None:
        print(json.dumps(case)) if args.json else show(case)


if __name__ == "__main__":
    main()
