"""A mixture with times to an event as its outcome, on made tables: do 90 % intervals of hazard ratios cover the truth,
and what does a cycle cost beside one with counts?

    python benchmarks/outcome_times.py coverage [--tables 100] [--rows 2000] [--cycles 300] [--shape 1.5] [--keep]
    python benchmarks/outcome_times.py speed [--rows 100000] [--cycles 100] [--keep]
    python benchmarks/outcome_times.py cells [--rows 20000] [--cycles 25] [--keep]

A table has 8 clusters of equal size, 20 columns of 0 and 1 that differ between them, and two covariates that do not.
Times have the hazard of a Weibull law of this shape (1: constant) times exp(theta_k + 0.6 w_0 - 0.4 w_1), with theta_k
~ N(0, 1); a third or so is censored, uniformly. Counts have the mean exp((theta_k + 0.6 w_0 - 0.4 w_1) / 2).

coverage: a run of the default settings on each of many tables; beside it the regression with piecewise constant hazards
on the true clusters (`hpc.outcome.plain`).

speed: CPU time of a cycle, from the true clusters, with times and with counts by turns.

cells: CPU time of a cycle without moves, each from the true clusters, of a mixture without an outcome: 16 columns of
times beside 16 of five levels, 33 clusters.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from machine import keep, markdown

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.outcome.plain import fit
from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.registry import family_of
from mpibayes.hpc.run.examine import examine
from mpibayes.io.table import table_from_arrays, write_table

CLUSTERS, COLUMNS, BETA = 8, 20, np.array([0.6, -0.4])
WARM = 20
RUN = """
[data]
table = "t.h5"
heldout = "none"
[model]
family = "mixture"
[columns.{other}]
use = false
[outcome]
column = "{column}"
covariates = ["w0", "w1"]
standardise = false
[run]
seed = 1
cycles = {cycles}
burn_in = {burn_in}
"""


def made(n: int, seed: int, shape: float) -> tuple[np.ndarray, ...]:
    """Cells (n, 20), covariates (n, 2), times, counts and clusters (n,) of a table."""
    g = np.random.default_rng(seed)
    z, chance, theta = g.integers(CLUSTERS, size=n), g.beta(0.5, 0.5, (CLUSTERS, COLUMNS)), g.normal(size=CLUSTERS)
    x, w = (g.random((n, COLUMNS)) < chance[z]).astype(int), g.normal(size=(n, 2))
    eta = theta[z] + w @ BETA
    event, end = 100.0 * (g.exponential(size=n) * np.exp(-eta)) ** (1.0 / shape), g.uniform(20.0, 300.0, size=n)
    return x, w, np.where(event <= end, event, -end), g.poisson(np.exp(0.5 * eta)).astype(float), z


def chain(cells: tuple[np.ndarray, ...], cycles: int, column: str):
    """A chain of the default settings, before its start."""
    x, w, times, counts, _ = cells
    columns = [(f"x{j}", "boolean", of, ["0", "1"]) for j, of in enumerate(x.T)]
    columns += [(f"w{j}", "real", of, None) for j, of in enumerate(w.T)]
    columns += [("t", "survival", times, None), ("n", "count", counts, None)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_table(folder / "t.h5", *table_from_arrays(columns))
        of = {"column": column, "other": "n" if column == "t" else "t", "cycles": cycles, "burn_in": cycles // 3}
        (folder / "run.toml").write_text(RUN.format(**of))
        result = examine(folder / "run.toml")
        return family_of(result.config.kind)(serial(), result.config, result.data).chain(result.config, 0)


def coverage(given: argparse.Namespace) -> tuple[dict, dict]:
    inside, of_truth, means, widths = [], [], [], []
    for seed in range(given.tables):
        cells = made(given.rows, seed, given.shape)
        run = chain(cells, given.cycles, "t")
        run.start()
        draws = []
        for i in range(given.cycles):
            run.advance((0, 0, 0), 1)
            if i >= given.cycles // 3:
                draws.append(run.mixture.outcome.beta.copy())
        low, high = np.quantile(draws, (0.05, 0.95), axis=0)
        inside.append((low < BETA) & (high > BETA))
        widths.append(high - low)
        means.append(np.mean(draws, axis=0))
        x = np.concatenate([np.ones((given.rows, 1)), np.eye(CLUSTERS)[cells[4]][:, 1:], cells[1]], axis=1)
        plain = fit(run.mixture.outcome.law.baseline, x, cells[2], 0.0)
        of_truth.append(np.abs(plain.coefficients[-2:] - BETA) < 1.645 * plain.errors[-2:])
    share, lines = np.mean(inside, axis=0), []
    for j, name in enumerate(("w0", "w1")):
        error = np.sqrt(share[j] * (1.0 - share[j]) / given.tables)
        lines.append([name, f"{share[j]:.1%} ± {error:.1%}", f"{np.mean(of_truth, axis=0)[j]:.1%}",
                      f"{np.mean(means, axis=0)[j] - BETA[j]:+.3f}", f"{np.std(means, axis=0)[j]:.3f}",
                      f"{np.mean(widths, axis=0)[j]:.3f}"])  # fmt: skip
    head = ["coefficient", "intervals with the truth", "by true clusters", "bias", "sd of means", "width"]
    title = (
        f"Intervals of log hazard ratios, Weibull shape {given.shape:g}: {given.tables} tables of {given.rows:,} rows"
    )
    note = f"{given.cycles} cycles each; {time.process_time():.0f} CPU seconds."
    return {"title": title, "head": head, "lines": lines, "note": note}, {"inside": inside, "means": means}


def speed(given: argparse.Namespace) -> tuple[dict, dict]:
    cells, kinds = made(given.rows, 0, 1.5), {"times": "t", "counts": "n"}
    chains: list[Mixture] = [chain(cells, 3, column).mixture for column in kinds.values()]
    for mixture in chains:
        mixture.start(cells[4].astype(np.int32))
    took = np.zeros((given.cycles + WARM, len(chains)))
    for i in range(len(took)):
        for j, mixture in enumerate(chains):
            began = time.process_time()
            mixture.cycle()
            took[i, j] = time.process_time() - began
    ms = 1e3 * np.median(took[WARM:], axis=0)
    lines = [[name, len(mixture.view.sizes()), f"{each:.1f}"] for name, mixture, each in zip(kinds, chains, ms)]
    title = (
        f"A cycle with times and with counts as the outcome, {given.rows:,} rows: medians of {given.cycles}, by turns"
    )
    return {"title": title, "head": ["outcome", "K", "cycle, ms"], "lines": lines, "note": ""}, {"seconds": took}


def kind_of_cells(kind: str, z: np.ndarray) -> Mixture:
    """A chain on 16 columns of one kind."""
    g, n, columns = np.random.default_rng(1), len(z), []
    for j in range(16):
        if kind == "levels":
            below = g.dirichlet(np.ones(5), z.max() + 1).cumsum(axis=1)[z]
            cells = (g.random((n, 1)) > below).sum(axis=1).clip(max=4)
            columns.append((f"c{j}", "categorical", cells, list("abcde")))
        else:
            event = np.ceil(100.0 * g.exponential(1.0 / g.gamma(2.0, 0.5, z.max() + 1)[z]))
            end = np.ceil(100.0 * g.exponential(size=n))
            columns.append((f"t{j}", "survival", np.where(event <= end, event, -end), None))
    columns, rows = table_from_arrays(columns)
    settings = Settings(seed=1, shards=2, split_merge=0)
    return Mixture(serial(), columns, lambda a, b: rows.take(slice(a, b)), n, settings)


def cells(given: argparse.Namespace) -> tuple[dict, dict]:
    kinds = "levels", "times"
    z = np.random.default_rng(2).integers(33, size=given.rows)
    chains = [kind_of_cells(kind, z) for kind in kinds]
    took = np.zeros((given.cycles, len(kinds)))
    for i in range(given.cycles):
        for j, mixture in enumerate(chains):
            mixture.start(z)
            began = time.process_time()
            mixture.cycle()
            took[i, j] = time.process_time() - began
    ms = 1e3 * np.median(took, axis=0)
    lines = [[kind, f"{each:.2f}"] for kind, each in zip(kinds, ms)]
    title = f"A cycle of 16 columns, {given.rows:,} rows, 33 clusters: medians of {given.cycles}, by turns"
    note = f"Times take {ms[1] / ms[0]:.2f} times as long."
    return {"title": title, "head": ["cells", "cycle, ms"], "lines": lines, "note": note}, {"seconds": took}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, rows, cycles in (("coverage", 2_000, 300), ("speed", 100_000, 100), ("cells", 20_000, 25)):
        of = verbs.add_parser(verb)
        of.add_argument("--rows", type=int, default=rows)
        of.add_argument("--cycles", type=int, default=cycles)
        of.add_argument("--keep", action="store_true")
    verbs.choices["coverage"].add_argument("--tables", type=int, default=100)
    verbs.choices["coverage"].add_argument("--shape", type=float, default=1.5)
    given = parser.parse_args()
    table, measured = {"coverage": coverage, "speed": speed, "cells": cells}[given.verb](given)
    print(table["title"], markdown(table["head"], table["lines"]), table["note"], sep="\n\n", flush=True)
    if given.keep:
        command = "python benchmarks/outcome_times.py " + " ".join(sys.argv[1:])
        of = {"coverage": "An outcome of times: intervals", "speed": "An outcome of times: a cycle"}
        of = of.get(given.verb, "Columns of times")
        keep(f"outcome_times_{given.verb}", of, command, [table], **measured)


if __name__ == "__main__":
    main()
