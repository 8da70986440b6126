"""Rows that come later: what an append costs, and how soon a run that starts from another one's clusters is settled.

    python -m benchmarks.append [--rows 20000] [--new 2000] [--columns 30] [--clusters 20] [--cycles 40]

Made tables of categories. Prints CPU seconds of an import and of an append, and of a run from scratch on all rows and
of one from the clusters of the first rows, held-out scores by cycle. One process, one chain.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from mpibayes.hpc.run.loop import in_process
from mpibayes.io.append import append_rows
from mpibayes.io.ingest import import_table
from mpibayes.io.trace import read_trace

CONFIG = """
[data]
table = "table.h5"
heldout = 0.1
[model]
family = "mixture"
[run]
seed = {seed}
cycles = {cycles}
until = "cycles"
[output]
labels = 10
{start}
"""


def write(path: Path, n: int, columns: int, clusters: int, seed: int) -> None:
    """A file of rows with categories of four levels, each cluster with probabilities of its own."""
    tables, g = np.random.default_rng(0), np.random.default_rng(seed)
    p = tables.dirichlet(np.full(4, 0.5), (clusters, columns)).cumsum(-1)
    levels = (g.random((n, columns, 1)) > p[g.integers(0, clusters, n)]).sum(-1).clip(0, 3)
    names = ",".join(f"c{i}" for i in range(columns))
    path.write_text("\n".join([names, *(",".join("abcd"[v] for v in row) for row in levels)]) + "\n")


def cpu(work, *given) -> float:
    start = time.process_time()
    work(*given)
    return time.process_time() - start


def fit(name: str, seed: int, cycles: int, start: str = "") -> None:
    Path(f"{name}.toml").write_text(CONFIG.format(seed=seed, cycles=cycles, start=start))
    seconds = cpu(in_process, f"{name}.toml", name)
    trace = read_trace(name)
    scores, clusters = trace["heldout_lpd"], trace["n_clusters"]
    shown = [i for i in (0, 1, 2, 4, 7, 11, 19, 29, 39) if i < cycles]
    print(f"{name}: {seconds:.1f} s CPU; held-out score (clusters) after cycles")
    print("   ", ", ".join(f"{i + 1}: {scores[i]:.3f} ({clusters[i]:.0f})" for i in shown), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("rows", 20_000), ("new", 2000), ("columns", 30), ("clusters", 20), ("cycles", 40)):
        parser.add_argument(f"--{name}", type=int, default=value)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for n, source, seed in ((asked.rows, "first.csv", 1), (asked.new, "new.csv", 2)):
            write(Path(source), n, asked.columns, asked.clusters, seed)
        print(f"import of {asked.rows:,} rows: {cpu(import_table, 'first.csv', 'table.h5'):.2f} s CPU")
        fit("before", 1, asked.cycles)
        print(f"append of {asked.new:,} rows: {cpu(append_rows, 'new.csv', 'table.h5'):.2f} s CPU", end=", ")
        print(f"{os.path.getsize('table.part-2.h5'):,} bytes")
        fit("scratch", 2, asked.cycles)
        fit("grown", 3, asked.cycles, '[sampler]\ninit = "labels"\ninit_labels = "before"')


if __name__ == "__main__":
    main()
