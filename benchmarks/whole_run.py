"""A real `mpibayes run` on one rank: its memory, what it imports, and the time to the first line of the trace.

The run is a process of its own. It notes, at its end, its own high-water mark, the modules it has loaded and when its
first line of the trace came; nothing else of it is changed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from mpibayes.io.table import table_from_arrays, write_table

NEVER = ("scipy.stats", "pyarrow", "arviz", "matplotlib")  # what a run has no use for
CHILD = """
import json, re, sys, time
started, config, folder, note = float(sys.argv[1]), *sys.argv[2:]
from mpibayes.hpc.run import chain_run
from mpibayes.hpc.run import loop as run
first = {}
extend = chain_run.TraceWriter.extend
def noted(self, cycles, values):
    extend(self, cycles, values)
    first.setdefault("wall", time.time() - started)
    first.setdefault("cpu", time.process_time())
chain_run.TraceWriter.extend = noted
code = run.main(config, folder)
peak = int(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1]) / 1024
json.dump({"code": code, "peak_mib": peak, "cpu": time.process_time(), "first": first, "modules": sorted(sys.modules)},
          open(note, "w"))
"""


def digits(path: Path, rows: int, columns: int, clusters: int, seed: int = 1) -> Path:
    """A typed table of categorical columns of 2 to 18 levels in `clusters` clusters, imported."""
    rng = np.random.default_rng(seed)
    levels, z, cells = rng.integers(2, 19, columns), rng.integers(clusters, size=rows), []
    for c, v in enumerate(levels):
        cumulative = rng.dirichlet(np.full(v, 0.7), clusters).cumsum(axis=1)
        codes = np.empty(rows, np.int8)
        for start in range(0, rows, 100_000):
            part = slice(start, start + 100_000)
            u = rng.random(len(z[part]))
            codes[part] = (u[:, None] > cumulative[z[part]]).sum(axis=1).clip(0, v - 1)
        cells.append((f"c{c}", "categorical", codes, [str(i) for i in range(v)]))
    columns, rows = table_from_arrays(cells)
    write_table(path, columns, rows)
    return path


def run(table: Path, folder: Path, cycles: int) -> dict:
    """What the process noted."""
    config, note = folder / f"{table.stem}.toml", folder / f"{table.stem}.note.json"
    config.write_text(f'[data]\ntable = "{table}"\n[model]\nfamily = "mixture"\n[run]\nseed = 1\ncycles = {cycles}\n')
    where = folder / f"{table.stem}.{time.monotonic_ns()}"
    command = [sys.executable, "-c", CHILD, str(time.time()), str(config), str(where), str(note)]
    one_core = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MPIBAYES_RANKS": "1"}
    subprocess.run(command, check=True, capture_output=True, env=os.environ | one_core)
    return json.loads(note.read_text())


def measured(folder: Path, rows: int, columns: int, cycles: int, repeats: int) -> dict:
    """Memory of a run of rows x columns beside one of 100 rows, MiB and bytes a row; seconds to the first draw."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(  # in a process of its own, so that this one stays small
        [sys.executable, __file__, str(folder), str(rows), str(columns)], check=True
    )
    small = [run(folder / "small.h5", folder, cycles) for _ in range(repeats)]
    large = [run(folder / "large.h5", folder, cycles) for _ in range(repeats)]
    start, peak = (float(np.median([r["peak_mib"] for r in runs])) for runs in (small, large))
    loaded = {name for name in NEVER if any(name in r["modules"] for r in small + large)}
    return {
        "rows": rows, "columns": columns, "start_mib": start, "peak_mib": peak,
        "bytes_per_row": (peak - start) * 2**20 / rows,
        "first_draw_wall_s": [r["first"]["wall"] for r in large],
        "first_draw_cpu_s": [r["first"]["cpu"] for r in large],
        "imported_though_useless": sorted(loaded),
    }  # fmt: skip


if __name__ == "__main__":
    out, n, c = Path(sys.argv[1]), *map(int, sys.argv[2:])
    digits(out / "small.h5", 100, c, 2)
    digits(out / "large.h5", n, c, 64)
