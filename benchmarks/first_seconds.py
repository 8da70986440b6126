"""Held-out scores after the first CPU seconds from a raw file on, beside lace where an environment has it.

    python benchmarks/first_seconds.py TABLE.csv ... [--seconds 1 2 4 10] [--seeds 1 2 3] [--python lace/bin/python]

A tenth of the rows is held out. Ours: import, start and cycles of one chain with the default settings, in one process
whose CPU seconds all count, those of the interpreter as well, as in an installation, whose byte code is compiled; until
the last of several searches for views is over and the first cycle done, the score is that of the run's first look, a
few cycles of one view ("look"). lace: one state of the same training rows; its clock starts with the loaded package.
Scores are of the last state of each, in nats a row, and of the average density of the states in the second half of the
time: of ours all, of lace six. Densities of numbers are turned into probabilities of cells of the columns' resolution,
as ours are. A '-' is a program without a result.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from small_tables import as_text

HELDOUT = 0.1
PARTS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of the time, at which the states of lace are that are averaged
LACE = """
import json, sys, time
import numpy as np
import polars
from lace import Engine
folder, seconds, seed, PARTS = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
new = polars.read_csv(folder + "/new.csv", infer_schema_length=None).drop("ID")
logs = json.load(open(folder + "/logs.json"))
began = time.process_time()
train = polars.read_csv(folder + "/train.csv", infer_schema_length=None)
engine = Engine.from_df(train.with_columns(polars.col("ID").cast(polars.String)), n_states=1, rng_seed=seed)
spent, steps = time.process_time() - began, 1
rows = [{name: [value] for name, value in row.items() if value is not None} for row in new.iter_rows(named=True)]
known = {}
for until in sorted({part * second for second in seconds for part in PARTS}):
    while spent < until:
        began = time.process_time()
        engine.update(steps, quiet=True)
        took = time.process_time() - began
        spent, steps = spent + took, min(64, 2 * steps) if took < 0.05 else steps
    scores = np.full(len(rows), np.nan)
    for i, cells in enumerate(rows):
        try:
            density = float(np.ravel(engine.logp(polars.DataFrame(cells)))[0])
        except BaseException:  # a level that no training row has
            continue
        scores[i] = density + sum(logs.get(name, 0.0) for name in cells)
    known[until] = scores
    if until in seconds:
        half = [known[part * until] for part in PARTS]
        averaged = np.logaddexp.reduce(half, axis=0) - np.log(len(half))
        print(json.dumps([float(np.nanmean(scores)), float(np.nanmean(averaged))]), flush=True)
"""


def ours(source: Path, seconds: list[float], seed: int, folder: Path) -> tuple[list, list[bool]]:
    """Scores of a chain at these CPU seconds, of the last state and of the average, and whether each is of a first
    look; called in a process of its own."""
    gc.disable()  # as the command does until its modules are loaded
    from mpibayes.io.arrow import keep_pandas_out

    keep_pandas_out()  # as well
    from mpibayes.hpc.crosscat import heldout
    from mpibayes.hpc.crosscat.start import first_look
    from mpibayes.hpc.parallel.comm import serial
    from mpibayes.hpc.registry import family_of
    from mpibayes.hpc.run.examine import examine
    from mpibayes.io.ingest import import_table

    import_table(source, out=folder / "t.h5")
    text = f'[data]\ntable = "t.h5"\nheldout = {HELDOUT}\n[run]\nseed = {seed}\ncycles = 100000\n'
    (folder / "run.toml").write_text(text)
    result = examine(folder / "run.toml", [])
    family = family_of(result.config.kind)
    gc.freeze()
    gc.enable()
    chain = family(serial(), result.config, result.data).chain(result.config, 0)
    spent, scores, look, rows = [], [], first_look.scores, [[]]

    class Noted(heldout.Density):
        def log_density(self, block):
            rows[-1].append(super().log_density(block))
            return rows[-1][-1]

    def noted(*of):
        for cycles, score in look(*of):
            rows.append([])
            scores.append(score)
            spent.append(time.process_time())
            yield cycles, score

    first_look.scores, heldout.Density = noted, Noted
    chain.start()
    looks = len(scores)
    while time.process_time() < seconds[-1]:
        rows.append([])
        scores.append(float(chain.advance((0, 0, 0), 1).values["heldout_lpd"][0]))
        spent.append(time.process_time())
    done, result = np.searchsorted(spent, seconds, side="right"), []
    for second, n in zip(seconds, done):
        half = [np.concatenate(rows[i + 1]) for i in range(looks, n) if spent[i] >= 0.5 * second]
        averaged = float((np.logaddexp.reduce(half, axis=0) - np.log(len(half))).mean()) if half else None
        result.append([scores[n - 1], averaged or scores[n - 1]] if n else None)
    return result, [bool(0 < n <= looks) for n in done]


def cells(table: Path, folder: Path) -> None:
    """Write training and held-out rows as lace reads them, and logs of the columns' resolutions."""
    from mpibayes.hpc.data.rows import heldout_rows
    from mpibayes.io.table import Table

    opened = Table.open(table)
    frame, held = as_text(opened), np.zeros(opened.n_rows, bool)
    held[heldout_rows(opened.n_rows, HELDOUT)] = True
    lines = list(map(",".join, zip(*frame.values())))
    for name, of in (("train", ~held), ("new", held)):
        chosen = [lines[i] for i in np.flatnonzero(of)]
        (folder / f"{name}.csv").write_text("\n".join([",".join(frame), *chosen]) + "\n")
    logs = {c.name: float(np.log(c.resolution)) for c in opened.columns if c.resolution > 0}
    (folder / "logs.json").write_text(json.dumps(logs))


def lace(python: str, seconds: list[float], seed: int, folder: Path) -> list:
    """Scores of lace at these CPU seconds, of the last state and of the average."""
    command = [python, "-c", LACE, str(folder), json.dumps(seconds), str(seed), json.dumps(PARTS)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    scores = [json.loads(line) for line in done.stdout.splitlines()]
    return scores + [None] * (len(seconds) - len(scores))


def mean(scores: list[list], looks: list[list[bool]] | None = None) -> list[str]:
    """Means over seeds of the last state's score and of the average's, '-' where one has none, marked where one is of
    a first look."""
    means = ["-" if None in of else "{:.2f} {:.2f}".format(*np.mean(of, axis=0)) for of in zip(*scores)]
    return [m + " (look)" * any(of) for m, of in zip(means, zip(*looks))] if looks else means


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--seconds", nargs="+", type=float, default=[1.0, 2.0, 4.0, 10.0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--python", help="interpreter of an environment with lace")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.alone:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(ours(given.tables[0], given.seconds, given.seeds[0], Path(folder))))
        return
    print(
        "table, program: last state's and averaged scores after "
        + ", ".join(f"{s:g}" for s in given.seconds)
        + " CPU seconds"
    )
    with tempfile.TemporaryDirectory() as code:
        environment = os.environ | {"PYTHONPYCACHEPREFIX": code}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        in_child(given.tables[0], [0.01], 1, environment)  # compiles
        for source in given.tables:
            beside_each(source, given, environment)


def in_child(source: Path, seconds: list[float], seed: int, environment: dict) -> list:
    """What `ours` returns, in a process of its own."""
    command = [sys.executable, __file__, str(source), "--alone", "--seeds", str(seed), "--seconds", *map(str, seconds)]
    done = subprocess.run(
        command, env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def beside_each(source: Path, given: argparse.Namespace, environment: dict) -> None:
    """Print the scores of both programs on a table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results = [in_child(source, given.seconds, seed, environment) for seed in given.seeds]
        print(f"{source.stem}, ours:", *mean(*zip(*results)), sep=" | ", flush=True)
        if given.python:
            command = [sys.executable, "-m", "mpibayes", "import", str(source), str(folder / "t.h5")]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            cells(folder / "t.h5", folder)
            beside = [lace(given.python, given.seconds, seed, folder) for seed in given.seeds]
            print(f"{source.stem}, lace:", *mean(beside), sep=" | ", flush=True)


if __name__ == "__main__":
    main()
