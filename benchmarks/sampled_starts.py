"""Starts of a mixture on large tables: one cluster, random clusters, and the clusters of a sample of the rows.

    python benchmarks/sampled_starts.py [TABLE.h5] [--rows 1000000] [--seconds 60] [--seeds 1 2] [--keep]

Without a table: the made one of benchmarks/outcome.py (33 clusters, 34 columns) without its outcome, and the true
clusters as one more start. A line for each start and seed at several CPU seconds, those of the start included: K, log
joint and held-out score (5 % of the rows, of one state), in nats a row. Scoring is not counted.

--keep writes into benchmarks/results.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from machine import keep, markdown
from outcome import COVARIATES, made

from mpibayes.hpc.crosscat.law import Density
from mpibayes.hpc.crosscat.laws.view_density import densities
from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.registry import family_of
from mpibayes.hpc.run.examine import examine
from mpibayes.io.table import table_from_arrays, write_table

STARTS = {"one cluster": "one", "random clusters": "overdispersed", "a sample": "auto"}
TRUTH = "the true clusters"
RUN = """
[data]
table = "{table}"
heldout = 0.05
[model]
family = "mixture"
[run]
seed = {seed}
[sampler]
init = "{init}"
"""


def make_table(folder: Path, n_rows: int) -> tuple[Path, np.ndarray]:
    """Write the made table; return its path and the true clusters."""
    x, w, _, z, _ = made(n_rows, 0, False)
    columns = [(f"x{j}", "boolean", of, ["0", "1"]) for j, of in enumerate(x.T)]
    columns += [(name, "real", w[:, j], None) for j, name in enumerate(COVARIATES[:2])]
    columns += [(COVARIATES[2], "boolean", w[:, 2].astype(int), ["0", "1"])]
    write_table(folder / "made.h5", *table_from_arrays(columns), overwrite=True)
    return folder / "made.h5", z.astype(np.int32)


def lines_of(table: Path, start: str, truth: np.ndarray | None, seed: int, moments: np.ndarray) -> list[list]:
    """Run a chain; return a line for each of the moments, in CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.toml"
        path.write_text(RUN.format(table=table.resolve(), seed=seed, init=STARTS.get(start, "one")))
        result = examine(path)
        chain = family_of(result.config.kind)(serial(), result.config, result.data).chain(result.config, 0)
    mixture, held, lines = chain.mixture, result.data.heldout_of(0, len(result.data.heldout)), []
    spent, began = 0.0, time.process_time()
    if truth is None:
        with contextlib.redirect_stdout(io.StringIO()):
            chain.start()
    else:
        mixture.start(truth[result.data.training_rows])
    for moment in moments:
        while True:
            info = mixture.cycle()
            spent, began = spent + time.process_time() - began, time.process_time()
            if spent >= moment:
                break
        density = Density(densities(mixture.views, mixture.linking.codings), mixture.places)
        score = density.log_density(held).mean()
        joint = info.log_joint / mixture.n_rows
        lines.append([start, seed, f"{spent:.0f}", info.cycle, info.n_clusters, f"{joint:.4f}", f"{score:.4f}"])
        began = time.process_time()
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, nargs="?")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    head = ["start", "seed", "CPU s", "cycles", "K", "log joint", "held-out"]
    with tempfile.TemporaryDirectory() as folder:
        table, truth = (given.table, None) if given.table else make_table(Path(folder), given.rows)
        name = table.stem if given.table else f"{given.rows:,} made rows, 33 clusters"
        print(f"{name}\n\n{markdown(head, []).rstrip()}", flush=True)
        lines = []
        for start in (*STARTS, TRUTH)[: 3 if truth is None else 4]:
            for seed in given.seeds:
                of = lines_of(
                    table, start, truth if start == TRUTH else None, seed, given.seconds / 4 ** np.arange(2, -1, -1)
                )
                lines += of
                print(*(f"| {' | '.join(map(str, line))} |" for line in of), sep="\n", flush=True)
    if given.keep:
        result = {"title": name, "head": head, "lines": lines, "note": ""}
        of = table.stem if given.table else f"made_{given.rows}"
        command = "python benchmarks/sampled_starts.py " + " ".join(sys.argv[1:])
        keep(f"sampled_starts_{of}", f"Starts of a mixture: {name}", command, [result])


if __name__ == "__main__":
    main()
