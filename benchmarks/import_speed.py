"""How fast `mpibayes import` is, and how much memory it takes: processor seconds on one core and peak resident memory.

    python benchmarks/import_speed.py [--rows 1000000] [--folder /tmp] [FILE ...]

Without FILE, a table of single-digit categorical columns is made (68 columns, the shape of the 1990 US census table
that loom's import is quoted for). Each import runs in a process of its own, pinned to one core where the system can.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from machine import peak_mib

COLUMNS = 68


def write_digits(path: Path, rows: int, seed: int = 1) -> None:
    """A CSV of skewed single digits with a header."""
    rng = np.random.default_rng(seed)
    with path.open("wb") as file:
        file.write(",".join(f"v{i}" for i in range(1, COLUMNS + 1)).encode() + b"\n")
        for start in range(0, rows, 50_000):
            n = min(50_000, rows - start)
            text = np.full((n, 2 * COLUMNS), ord(","), np.uint8)
            text[:, ::2] = ord("0") + np.floor(10 * rng.random((n, COLUMNS)) ** 2).astype(np.uint8)
            text[:, -1] = ord("\n")
            file.write(text.tobytes())


def measure(path: Path, out: Path) -> None:
    """Imports one file in this process and prints what it took."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    from mpibayes.io.ingest import import_table

    wall, cpu = time.perf_counter(), time.process_time()
    summary = import_table(path, out)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    cells = summary.rows * len(summary.columns)
    print(
        f"{path.name}: {summary.rows:,} x {len(summary.columns)}: {cpu:.2f} s processor, {wall:.2f} s wall, "
        f"{1e9 * cpu / cells:.0f} ns a cell, peak {peak_mib():.0f} MiB, table {out.stat().st_size / 1e6:.0f} MB",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--one", type=Path, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measure(*options.one)
        return
    print(f"{platform.machine()}, Python {platform.python_version()}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        files = options.files
        if not files:
            files = [Path(folder) / f"digits_{options.rows}.csv"]
            write_digits(files[0], options.rows)
        for i, file in enumerate(files):
            out = Path(folder) / f"{i}.h5"
            subprocess.run([sys.executable, __file__, "--one", str(file), str(out)], check=True)


if __name__ == "__main__":
    main()
