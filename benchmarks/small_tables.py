"""CPU time of a cycle on small tables, and where it goes; beside lace where an environment has it.

    python benchmarks/small_tables.py TABLE.h5 ... [--families mixture crosscat] [--first 100] [--cycles 64]
                                      [--repeats 3] [--only NAME ...] [--python lace/bin/python] [--against OTHER]
                                      [--profile] [--keep]

TABLE: tables of any size; cells_4x3 and views_10k (10,000 x 40, four views) are made here. A chain with the default
settings starts as `mpibayes run` starts it and makes `first` cycles. From that state on, `cycles` more are timed,
`repeats` times, by turns with OTHER, another checkout with its kernels built: CPU time of a cycle on average with all
its moves, of the median one, and of one without moves, the least of the repeats, so that what else the machine does
counts little; effective draws of the log joint and of K a CPU second. `state` is a checksum of the last state, the same
for two versions that draw the same. lace: one state, rows and columns, on the same cells, CPU time of an iteration.
"""

from __future__ import annotations

import argparse
import cProfile
import hashlib
import json
import os
import pickle
import pstats
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

LACE = """
import sys, time
import numpy as np
import polars
from lace import Engine
source, first, cycles = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
frame = polars.read_csv(source, infer_schema_length=None)
engine = Engine.from_df(frame.with_columns(polars.col("ID").cast(polars.String)), n_states=1, rng_seed=1)
engine.update(first, quiet=True)
began = time.process_time()
engine.update(cycles, quiet=True)
print(1e3 * (time.process_time() - began) / cycles)
"""
MADE = ("cells_4x3", "views_10k")
QUIET = {
    "mixture": ("sampler.split_merge=0",),
    "crosscat": ("sampler.split_merge=0", "sampler.column_moves=0", "sampler.view_moves=0"),
}


def cells(name: str) -> list[tuple]:
    """The columns of a table that is made: (name, kind, values, levels)."""
    g = np.random.default_rng(1)
    if name == "cells_4x3":
        made = [("a", g.integers(2, size=4), ["x", "y"]), ("b", g.integers(3, size=4), ["x", "y", "z"])]
        columns = [(column, "categorical", codes, levels) for column, codes, levels in made]
        return [*columns, ("c", "real", g.normal(size=4), None)]
    columns, levels = [], [str(v) for v in range(5)]
    for view in range(4):
        z, chances = g.integers(6, size=10_000), g.dirichlet(np.full(5, 0.5), (10, 6))
        for i, of_cluster in enumerate(chances):
            codes = (g.random(10_000)[:, None] > of_cluster.cumsum(axis=1)[z]).sum(axis=1).clip(0, 4)
            columns.append((f"v{view}_{i}", "categorical", codes, levels))
    return columns


def written(name: str, folder: Path) -> Path:
    """A table that is made, as a file."""
    from mpibayes.io.table import table_from_arrays, write_table

    columns, rows = table_from_arrays(cells(name))
    write_table(folder / f"{name}.h5", columns, rows, overwrite=True)
    return folder / f"{name}.h5"


def chain(table: Path, family: str, folder: Path, *changes: str):
    """A chain of a run with the default settings, before its start."""
    from mpibayes.hpc.parallel.comm import serial
    from mpibayes.hpc.registry import family_of
    from mpibayes.hpc.run.examine import examine

    text = f'[data]\ntable = "{table.resolve()}"\n[model]\nfamily = "{family}"\n[run]\nseed = 1\ncycles = 100000\n'
    (folder / "run.toml").write_text(text)
    result = examine(folder / "run.toml", changes)
    return family_of(result.config.kind)(serial(), result.config, result.data).chain(result.config, 0)


def prepare(table: Path, family: str, first: int, state: Path) -> None:
    """Start a chain, and keep its state after its first cycles."""
    with tempfile.TemporaryDirectory() as folder:
        started = chain(table, family, Path(folder))
        started.start()
        for _ in range(first):
            started.advance((0, 0, 0), 1)
        shards, shared = started.state()
        state.write_bytes(pickle.dumps((shards, {**shared, "cycles": started.cycles})))


def measure(table: Path, family: str, state: Path, cycles: int, profile: bool) -> dict:
    """Figures of a chain from a state on; see above."""
    with tempfile.TemporaryDirectory() as folder:
        timed = chain(table, family, Path(folder))
        shards, shared = pickle.loads(state.read_bytes())
        timed.restore(shared, shards)
        seconds, joint, clusters = np.empty(cycles), np.empty(cycles), np.empty(cycles)
        watch = cProfile.Profile(time.process_time) if profile else None
        if watch:
            watch.enable()
        for i in range(cycles):
            began = time.process_time()
            values = timed.advance((0, 0, 0), 1).values
            seconds[i] = time.process_time() - began
            joint[i], clusters[i] = values["log_joint"][0], values["n_clusters"][0]
        if watch:
            watch.disable()
            pstats.Stats(watch).sort_stats("tottime").print_stats(45)
            pstats.Stats(watch).sort_stats("cumtime").print_stats(70)
        quiet = chain(table, family, Path(folder), *QUIET[family])
        shards, shared = timed.state()
        quiet.restore({**shared, "cycles": timed.cycles}, shards)
        began = time.process_time()
        for _ in range(cycles):
            quiet.advance((0, 0, 0), 1)
        without = (time.process_time() - began) / cycles
    return {
        "table": table.stem, "family": family, "rows": timed.n_rows, "columns": len(timed.data.stored),
        "views": len(timed.mixture.views), "clusters": clusters[-1], "ms": 1e3 * seconds.mean(),
        "ms_median": 1e3 * np.median(seconds), "ms_without_moves": 1e3 * without,
        "ess_log_joint_s": effective(joint) / seconds.sum(), "ess_k_s": effective(clusters) / seconds.sum(),
        "state": checksum(shards, shared),
    }  # fmt: skip


def checksum(shards, shared) -> str:
    """Of the labels and hyperparameters of all views."""
    result = hashlib.sha256()
    for i, arrays in sorted(shards.items()):
        for name, array in sorted(arrays.items()):
            result.update(f"{i} {name}".encode() + np.ascontiguousarray(array).tobytes())
    for name, value in sorted(shared.items()):
        result.update(name.encode() + (value.tobytes() if isinstance(value, np.ndarray) else str(value).encode()))
    return result.hexdigest()[:12]


def effective(x: np.ndarray) -> float:
    """Effective draws of a chain, by ArviZ; NaN where nothing moved or ArviZ is not there."""
    try:
        import arviz
    except ImportError:
        return np.nan
    return float(arviz.ess(x)) if np.ptp(x) > 0 else np.nan


def as_text(table) -> dict[str, list[str]]:
    """The cells of an opened table, by column, as lace reads them: levels as text that no one takes for numbers."""
    rows, frame = table.read(0, table.n_rows), {"ID": [f"r{i}" for i in range(table.n_rows)]}
    for column in table.columns:
        x = getattr(rows, column.block)[:, column.index].tolist()
        if column.levels:
            frame[column.name] = [f"is {v}" if v < len(column.levels) else "" for v in x]
        else:
            frame[column.name] = ["" if np.isnan(v) else repr(v) for v in x]
    return frame


def lace(python: str, table: Path, first: int, cycles: int, folder: Path) -> float:
    """CPU time of an iteration of lace in ms."""
    from mpibayes.io.table import Table

    frame, source = as_text(Table.open(table)), folder / "lace.csv"
    source.write_text("\n".join([",".join(frame), *map(",".join, zip(*frame.values()))]) + "\n")
    command = [python, "-c", LACE, str(source), str(first), str(cycles)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(f"{table.stem}: lace failed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return np.nan
    return float(done.stdout.split()[-1])


def in_checkout(root: Path, given: argparse.Namespace, table: Path, family: str, state: Path) -> dict:
    """What `measure` finds with the program of a checkout; or makes the state, where there is none."""
    environment = os.environ | {"PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, __file__, str(table.resolve()), "--families", family, "--first", str(given.first)]
    command += ["--cycles", str(given.cycles), "--state", str(state)] + ["--profile"] * given.profile
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    *printed, last = done.stdout.strip().splitlines()
    if given.profile:
        print("\n".join(printed))
    return json.loads(last)


def least(runs: list[dict]) -> dict:
    """The repeat with the least CPU time, and with every figure of time the least of all."""
    best = min(runs, key=lambda run: run["ms"])
    of_time = {name: min(run[name] for run in runs) for name in best if name.startswith("ms")}
    return best | of_time | {"every_ms": [run["ms"] for run in runs]}


def as_table(title: str, results: list[dict]) -> dict:
    head = ["table", "family", "rows x columns", "views", "K", "ms a cycle", "median", "without moves",
            "effective log joint / s", "K / s", "lace, ms", "state"]  # fmt: skip
    lines = [
        [
            r["table"], r["family"], f"{r['rows']:,} x {r['columns']}", r["views"], f"{r['clusters']:.0f}",
            *(f"{r[name]:.3g}" for name in ("ms", "ms_median", "ms_without_moves", "ess_log_joint_s", "ess_k_s")),
            f"{r['lace_ms']:.3g}" if r.get("lace_ms") else "-", r["state"],
        ]
        for r in results
    ]  # fmt: skip
    return {"title": title, "head": head, "lines": lines}


def main() -> None:
    from machine import keep, markdown

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", type=Path)
    parser.add_argument("--families", nargs="*", default=["mixture", "crosscat"])
    parser.add_argument("--first", type=int, default=100)
    parser.add_argument("--cycles", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="names of tables")
    parser.add_argument("--python", help="interpreter of an environment with lace")
    parser.add_argument("--against", type=Path, help="another checkout, with its kernels built")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--state", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--keep", action="store_true", help="keep the results in benchmarks/results")
    given = parser.parse_args()
    if given.state:  # in a process of its own
        table, family, state = given.tables[0], given.families[0], given.state
        if not state.exists():
            prepare(table, family, given.first, state)
            print("{}")
        else:
            print(json.dumps(measure(table, family, state, given.cycles, given.profile)))
        return
    root = Path(__file__).resolve().parents[1]
    checkouts = ([("before", given.against)] if given.against else []) + [("now", root)]
    results: dict[str, list[dict]] = {name: [] for name, _ in checkouts}
    with tempfile.TemporaryDirectory() as folder:
        tables = [*given.tables, *(written(name, Path(folder)) for name in MADE)]
        for table in (t for t in tables if not given.only or t.stem in given.only):
            beside = lace(given.python, table, given.first, given.cycles, Path(folder)) if given.python else None
            for family in given.families:
                state, runs = Path(folder) / f"{table.stem}.{family}.state", {name: [] for name, _ in checkouts}
                in_checkout(checkouts[0][1], given, table, family, state)
                for _ in range(given.repeats):
                    for name, where in checkouts:
                        runs[name].append(in_checkout(where, given, table, family, state))
                for name, of in runs.items():
                    results[name].append(least(of) | ({"lace_ms": beside} if beside else {}))
                    print(name, json.dumps(results[name][-1]), flush=True)
    shown = [as_table(name, of) for name, of in results.items()]
    for table in shown:
        print(f"\n## {table['title']}\n\n{markdown(table['head'], table['lines'])}")
    if given.keep:
        command = "python benchmarks/small_tables.py TABLE.h5 ..." + " --against OTHER" * bool(given.against)
        keep("small_tables", "Cycles on small tables", command, shown, runs=[r for of in results.values() for r in of])


if __name__ == "__main__":
    main()
