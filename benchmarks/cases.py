"""A table of patterns with their numbers of cases (`import --count`), from the file to the report: processor seconds,
wall and memory of each step.

    python -m benchmarks.cases [--cases 1e8] [--patterns 30000] [--cycles 20] [--ranks 2] [--folder /tmp]
        [--steps import,run,report] [--set KEY=VALUE ...]

The patterns are the most probable ones of a mixture of 12 clusters over ten categories of three or four levels; their
counts are a multinomial draw. One chain of a mixture, all other settings as by default.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

LEVELS = (3,) * 8 + (4,) * 2
CLUSTERS = 12
COLUMN = "Freq"


def simulate(path: Path, cases: int, n_patterns: int, seed: int = 1) -> None:
    """Write a CSV of patterns and their counts, each at least 1."""
    g = np.random.default_rng(seed)
    shares = g.dirichlet(np.full(CLUSTERS, 3.0))
    tables = [g.dirichlet(np.full(n, 0.7), CLUSTERS) for n in LEVELS]
    pattern = np.stack(np.unravel_index(np.arange(np.prod(LEVELS)), LEVELS), axis=1)
    p = np.exp(np.log(shares) + sum(np.log(table[:, pattern[:, c]]).T for c, table in enumerate(tables))).sum(axis=1)
    chosen = np.sort(np.argsort(-p)[:n_patterns])
    counts = 1 + g.multinomial(cases - len(chosen), p[chosen] / p[chosen].sum())
    with path.open("w") as file:
        print(*(f"c{i}" for i in range(len(LEVELS))), COLUMN, sep=",", file=file)
        for row, count in zip(pattern[chosen].tolist(), counts.tolist()):
            print(*("abcd"[level] for level in row), count, sep=",", file=file)


def measured(name: str, command: list[str], folder: Path) -> None:
    """Run a command in a folder and print what it took; memory is that of its largest process."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - began
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{name}: {cpu:.1f} s CPU, {wall:.1f} s wall, {after.ru_maxrss / 1024:.0f} MiB at most so far", flush=True)
    for line in done.stdout.splitlines():
        if re.search(r"cycle=|starts:", line):
            print("   ", line)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=float, default=1e8)
    parser.add_argument("--patterns", type=int, default=30_000)
    parser.add_argument("--cycles", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--steps", default="import,run,report")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="cases-"))
    folder.mkdir(exist_ok=True)
    os.environ["MPIBAYES_RANKS"] = str(asked.ranks)
    settings = ['model.family="mixture"', "run.chains=1", f"run.cycles={asked.cycles}", 'run.until="cycles"']
    program, ranks = [sys.executable, "-m", "mpibayes"], ["mpirun", "-n", str(asked.ranks)] if asked.ranks > 1 else []
    steps = asked.steps.split(",")
    if "import" in steps:
        simulate(folder / "patterns.csv", int(asked.cases), asked.patterns)
        measured("import", [*program, "import", "patterns.csv", "cases.h5", "--count", COLUMN, "--force"], folder)
        print(f"    table: {(folder / 'cases.h5').stat().st_size / 1e6:.0f} MB", flush=True)
    if "run" in steps:
        each = [word for of in (*settings, *asked.settings) for word in ("--set", of)]
        measured("run", [*ranks, *program, "run", "cases.h5", "-o", "run", *each], folder)
    if "report" in steps:
        measured("report", [*program, "report", "run"], folder)


if __name__ == "__main__":
    main()
