"""The kernels of this checkout and of another in turns: CPU time here over CPU time there, median of pairs.

    python benchmarks/side_by_side.py OTHER [--rounds 3] [--pairs 3] [--turns 3] [--only TEXT]

OTHER is a checkout of another commit with its kernels built. The cases are those of kernels.py (its `Ours`, without
floor, NumPy and runs) and Firefly on 20,000 and 100,000 synthetic rows (firefly_speed.py). Each checkout has a process
of its own with one thread, and they work by turns; a figure of the loops is the least of `turns`, so that what else the
machine does counts little. Every round has new processes: where the memory of one happens to lie is worth some percent.
Exits with 1 where a median is above LIMIT. About five minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parents[1]
LIMIT = 1.03
ROWS = 20_000
FIREFLY = (20_000, 100_000)
DRAWS = 4_000


def work() -> None:
    """Answer requests: the name of a case prepares it; "turn" times a turn of it, in ns a row."""
    import kernels

    cases, ours = {case.name: case for case in kernels.CASES}, None
    for line in sys.stdin:
        if line == "turn\n":
            print(ours.turn()[0], flush=True)
            continue
        if ours is not None:
            ours.watch.close()
        case = cases[line.strip()]
        ours = kernels.Ours(case, kernels.made(case, ROWS if case.collapsed else 2 * ROWS))
        print("ready", flush=True)


class Checkout:
    """One of the two: its worker, and its Firefly."""

    def __init__(self, root: Path):
        self.benchmarks = root / "benchmarks"
        paths = [str(root / "src"), str(self.benchmarks)]
        self.environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        self.environment |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        command = [sys.executable, "-P", "-c", f"import runpy; runpy.run_path({__file__!r})['work']()"]
        self.worker = subprocess.Popen(
            command, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, request: str) -> str:
        self.worker.stdin.write(request + "\n")
        self.worker.stdin.flush()
        answer = self.worker.stdout.readline().strip()
        if not answer:
            sys.exit(f"{self.benchmarks}: the worker has ended")
        return answer

    def loops(self, turns: int) -> float:
        return min(float(self.ask("turn")) for _ in range(turns))

    def firefly(self, rows: int) -> float:
        """CPU seconds of DRAWS cycles, in a process of its own."""
        with tempfile.TemporaryDirectory() as out:
            command = [sys.executable, self.benchmarks / "firefly_speed.py", "--one", str(rows), "--part", "cost"]
            command += ["--draws", str(DRAWS), "--burn-in", "500", "--seed", "1", "--ranks", "1", "--shards", "0"]
            command += ["--out", out]
            done = subprocess.run(command, env=self.environment, stdout=subprocess.PIPE, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1])["seconds"]


def ratios(time, pairs: int) -> list[float]:
    """Here / there of each pair; which of the two comes first changes from pair to pair."""
    result = []
    for i in range(pairs):
        taken = {who: time(who) for who in ((0, 1) if i % 2 else (1, 0))}
        result.append(taken[0] / taken[1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=3, help="of each round")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", default="", help="cases with this text in their name")
    options = parser.parse_args()
    sys.path.insert(0, str(HERE / "src"))
    import kernels

    result: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        both = [Checkout(HERE), Checkout(options.other.resolve())]
        for name in (case.name for case in kernels.CASES if options.only in case.name):
            for checkout in both:
                checkout.ask(name)
            result.setdefault(name, []).extend(ratios(lambda i: both[i].loops(options.turns), options.pairs))  # noqa: B023
        for rows in FIREFLY:
            if options.only in (name := f"firefly, {rows:,} rows"):
                time = lambda i, rows=rows: both[i].firefly(rows)  # noqa: B023, E731
                result.setdefault(name, []).extend(ratios(time, options.pairs))
        for checkout in both:
            checkout.worker.communicate()
    slower = []
    for name, values in result.items():
        print(f"{name}: {np.median(values):.3f} ({min(values):.3f} to {max(values):.3f})")
        slower += [name] if np.median(values) > LIMIT else []
    sys.exit(f"slower by more than {LIMIT - 1:.0%}: {', '.join(slower)}" if slower else 0)


if __name__ == "__main__":
    main()
