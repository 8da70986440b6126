"""CPU seconds and peak memory from a raw file with gaps to completed copies and a synthetic table, on one core.

The file has rows of a mixture of 12 clusters: of ten columns seven have 2 to 12 levels and three are numbers with one
decimal; every third column or so lacks a tenth of its cells. With --mice, R's mice with trees (package rpart) makes one
copy of the same file; it makes several one after another, so ten take ten times as long.

    python benchmarks/completion_speed.py --rows 1000000 --columns 40 --cycles 120
    python benchmarks/completion_speed.py --rows 10000 --columns 24 --cycles 400 --chains 2 --mice
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

CLUSTERS = 12
RUN = '[data]\ntable = "t.h5"\n[model]\nfamily = "mixture"\n[run]\nuntil = "cycles"\ncycles = {}\nchains = {}\n'
MICE = """
suppressMessages(library(mice))
d <- read.csv("t.csv", na.strings = "", stringsAsFactors = TRUE)
write.csv(complete(mice(d, m = 1, method = "cart", printFlag = FALSE, seed = 1)), "mice.csv", row.names = FALSE)
"""


def write_table(path: Path, n: int, n_columns: int) -> None:
    g, columns = np.random.default_rng(39), {}
    z = g.choice(CLUSTERS, n, p=g.dirichlet(np.full(CLUSTERS, 3.0)))
    for j in range(n_columns):
        if j % 10 < 7:
            levels = int(g.integers(2, 13))
            p, u = g.dirichlet(np.full(levels, 0.7), CLUSTERS).cumsum(axis=1), g.random(n)
            codes = sum((u > p[z, level]).astype(np.int8) for level in range(levels - 1))
            x = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array([f"v{i}" for i in range(levels)])).cast(
                pa.string()
            )
        else:
            x = pa.array(g.normal(g.normal(50, 15, CLUSTERS)[z], g.uniform(2, 8, CLUSTERS)[z]).round(1))
        if j % 8 in (1, 4, 7):
            x = pc.if_else(pa.array(g.random(n) < 0.1), pa.scalar(None, x.type), x)
        columns[f"c{j}"] = x
    pa.csv.write_csv(pa.table(columns), path, pa.csv.WriteOptions(quoting_style="none"))


def timed(name: str, command: list[str], place: Path) -> float:
    """Run a command; print and return its CPU seconds, and print its peak memory."""
    child = subprocess.Popen(command, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)}: failed")
    seconds = used.ru_utime + used.ru_stime
    print(f"{name:22s}{seconds:8.1f} CPU s{used.ru_maxrss / 1024:8.0f} MiB", flush=True)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=40)
    parser.add_argument("--cycles", type=int, default=120)
    parser.add_argument("--chains", type=int, default=1)
    parser.add_argument("--copies", type=int, default=10)
    parser.add_argument("--mice", action="store_true")
    args = parser.parse_args()
    program, rows, copies = [sys.executable, "-m", "mpibayes"], str(args.rows), str(args.copies)
    os.environ["MPIBAYES_RANKS"] = os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_table(place / "t.csv", args.rows, args.columns)
        (place / "run.toml").write_text(RUN.format(args.cycles, args.chains))
        total = timed("import", [*program, "import", "t.csv", "t.h5"], place)
        total += timed("run", [*program, "run", "run.toml", "-o", "run"], place)
        total += timed("complete", [*program, "complete", "run", "--copies", copies, "-o", "copies"], place)
        print(f"{'together':22s}{total:8.1f} CPU s")
        timed(
            "synthesize, one table", [*program, "synthesize", "run", "--rows", rows, "--copies", "1", "-o", "s"], place
        )
        if args.mice:
            (place / "mice.R").write_text(MICE)
            timed("mice, one copy", ["Rscript", "mice.R"], place)


if __name__ == "__main__":
    main()
