"""CPU time of a cycle on small tables in two checkouts, a few cycles of each by turns, so that both are slowed alike.

    python benchmarks/by_turns.py OTHER TABLE.h5 ... [--families mixture crosscat] [--cycles 16] [--turns 12] [--keep]

OTHER: another checkout with its kernels built, here "before". A process for each starts from one state after 100 cycles
and makes the same `cycles` in each turn. The median over turns, and that of the ratio within a turn; "same state": both
end with the same labels and hyperparameters. The first turn is left out.
"""

from __future__ import annotations

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from small_tables import chain, checksum, prepare


def worker(table: Path, family: str, state: Path) -> None:
    """Make as many cycles from a state as a line of the input says; answer with their CPU time in ms and a checksum."""
    with tempfile.TemporaryDirectory() as folder:
        timed = chain(table, family, Path(folder))
        print("ready", flush=True)
        for line in sys.stdin:
            shards, shared = pickle.loads(state.read_bytes())
            timed.restore(shared, shards)
            began = time.process_time()
            for _ in range(int(line)):
                timed.advance((0, 0, 0), 1)
            print(1e3 * (time.process_time() - began) / int(line), checksum(*timed.state()), flush=True)


def compare(other: Path, table: Path, family: str, state: Path, cycles: int, turns: int) -> list[str]:
    """A line of the result."""
    command = [sys.executable, __file__, str(other), str(table), "--families", family, "--state", str(state)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    here, pair, ms, states = Path(__file__).resolve().parents[1], [], [], set()
    for root in (other.resolve(), here):
        pair.append(subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(root / "src")}, **pipes))
    for process in pair:
        while process.stdout.readline().strip() != "ready":
            pass
    for turn in range(turns + 1):
        ms.append([0.0, 0.0])
        for i in (0, 1) if turn % 2 else (1, 0):
            print(cycles, file=pair[i].stdin, flush=True)
            took, ended = pair[i].stdout.readline().split()
            ms[-1][i] = float(took)
            states.add(ended)
    for process in pair:
        process.stdin.close()
        process.wait()
    before, now = np.array(ms[1:]).T
    same = "yes" if len(states) == 1 else "no"
    return [table.stem, family, *(f"{np.median(x):.3g}" for x in (before, now, now / before)), same]


def main() -> None:
    from machine import keep, markdown

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path)
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--families", nargs="*", default=["mixture", "crosscat"])
    parser.add_argument("--cycles", type=int, default=16)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--state", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--keep", action="store_true", help="keep the results in benchmarks/results")
    given = parser.parse_args()
    if given.state:  # in a process of its own
        worker(given.tables[0], given.families[0], given.state)
        return
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for table in given.tables:
            for family in given.families:
                state = Path(folder) / f"{table.stem}.{family}"
                prepare(table, family, 100, state)
                lines.append(compare(given.other, table, family, state, given.cycles, given.turns))
                print(lines[-1], flush=True)
    head = ["table", "family", "ms a cycle before", "now", "ratio", "same state"]
    print(markdown(head, lines))
    if given.keep:
        shown = [{"title": "Two checkouts by turns", "head": head, "lines": lines}]
        keep("by_turns", "Cycles on small tables, by turns", "python benchmarks/by_turns.py OTHER TABLE.h5 ...", shown)


if __name__ == "__main__":
    main()
