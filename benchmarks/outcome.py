"""A mixture with an outcome on made tables: do intervals of its coefficients cover the truth, and what does it cost?

    python benchmarks/outcome.py coverage [--tables 200] [--rows 2000] [--cycles 400] [--confounded] [--apart] [--keep]
    python benchmarks/outcome.py speed [--rows 100000] [--cycles 150] [--steps 1 5] [--keep]
    python benchmarks/outcome.py counts [--rows 10000] [--cycles 300] [--keep]
    python benchmarks/outcome.py table [--rows 1296463] [--cycles 400]; mpibayes run run.toml -o people --ranks 2

A table has 33 clusters, whose sizes fall as (k + 1)^-0.7, 31 columns of 0 and 1, of which seven in ten differ between
clusters, and three covariates, whose means differ between clusters but for the second. Log odds are theta_k ~ N(-0.8,
1.2^2) and 0.6 w_0 - 0.4 w_1 + 0.8 w_2. Confounded: the mean of the first goes with the cluster's log odds, which the
model does not know, so that its coefficient has a part of them where clusters are small or uncertain.

coverage: a run of the default settings on each of many tables, all of whose truth but the coefficients is drawn anew,
and how often the 90 % interval of a coefficient has the truth. Beside it the intervals of a logistic regression on the
true clusters. --apart: covariates are no columns of the mixture. The error of "all" is of independent intervals.

speed: CPU time of a cycle with and without the outcome, from the true clusters, of a draw of all coefficients, and
effective draws of the covariates' coefficients a CPU second, by Hamiltonian and by Firefly Monte Carlo; and of squares
about their means, the least of the coefficients, which intervals go by.

counts: a Poisson outcome with skewed covariates, exp(s w_0) and exp(s w_1) in standard deviations: acceptance of its
trajectories and effective draws of coefficients, in the true clusters, in the metric of each row's own count and in
that of its cluster's mean.

table: writes t.h5, with confounded covariates, and run.toml, of two chains, into the working directory.

--keep writes into benchmarks/results.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from machine import keep, markdown

from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.registry import family_of
from mpibayes.hpc.run.examine import examine
from mpibayes.io.table import table_from_arrays, write_table

CLUSTERS, COLUMNS = 33, 31
BETA = np.array([0.6, -0.4, 0.8])
RATES, SKEWS = np.array([0.3, -0.2, 0.4]), (0.5, 1.0, 1.5)
INTERVAL = 0.05, 0.95
COVARIATES = "w0", "w1", "w2"
WARM = 20  # cycles from the true clusters before any is timed
RUN = """
[data]
table = "t.h5"
heldout = "none"
[model]
family = "mixture"
[run]
seed = 1
cycles = {cycles}
burn_in = {burn_in}
{more}"""
OUTCOME = '[outcome]\ncolumn = "y"\ncovariates = ["w0", "w1", "w2"]\nstandardise = false\n'


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def made(n: int, seed: int, confounded: bool) -> tuple[np.ndarray, ...]:
    """Cells (n, 31), covariates (n, 3), outcome and cluster (n,) of a table, and log odds of the clusters (33,)."""
    g = np.random.default_rng(seed)
    share = np.arange(1.0, CLUSTERS + 1.0) ** -0.7
    chance = np.where(
        g.random((CLUSTERS, COLUMNS)) < 0.7, g.beta(0.5, 1.5, (CLUSTERS, COLUMNS)), g.beta(0.6, 1.8, COLUMNS)
    )
    effect = g.standard_normal(CLUSTERS)
    mean = 0.5 * (effect if confounded else g.standard_normal(CLUSTERS))
    mean, odds = mean + 0.3 * g.standard_normal(CLUSTERS), 0.7 * g.standard_normal(CLUSTERS)
    z = g.choice(CLUSTERS, n, p=share / share.sum())
    x = g.random((n, COLUMNS)) < chance.clip(0.002, 0.998)[z]
    w = np.stack([mean[z] + g.standard_normal(n), g.standard_normal(n), g.random(n) < sigmoid(odds[z])], axis=1)
    theta = -0.8 + 1.2 * effect
    y = g.random(n) < sigmoid(theta[z] + w @ BETA)
    return x.astype(int), w, y.astype(int), z, theta


def write(
    folder: Path, cells: tuple[np.ndarray, ...], cycles: int, outcome: bool = True, more: str = "", kind="boolean"
) -> Path:
    """Write t.h5 and run.toml, of the default settings; return the latter. kind: of the outcome's column."""
    x, w, y, *_ = cells
    binary = ["0", "1"]
    columns = [(f"x{j}", "boolean", of, binary) for j, of in enumerate(x.T)]
    columns += [(name, "real", w[:, j], None) for j, name in enumerate(COVARIATES[:2])]
    columns += [(COVARIATES[2], "boolean", w[:, 2].astype(int), binary)]
    columns += [("y", kind, y, binary if kind == "boolean" else None)]
    write_table(folder / "t.h5", *table_from_arrays(columns), overwrite=True)
    more = (OUTCOME if outcome else "[columns.y]\nuse = false\n") + more
    (folder / "run.toml").write_text(RUN.format(cycles=cycles, burn_in=cycles // 3, more=more))
    return folder / "run.toml"


def chain(folder: Path, cells: tuple[np.ndarray, ...], cycles: int, *how, **keys):
    """A chain of the default settings on a table, before its start; as `write`."""
    result = examine(write(folder, cells, cycles, *how, **keys))
    return family_of(result.config.kind)(serial(), result.config, result.data).chain(result.config, 0)


def regression(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and standard errors of a logistic regression with a ridge that hardly matters."""
    beta, ridge = np.zeros(x.shape[1]), 0.1
    for _ in range(30):
        p = sigmoid(x @ beta)
        information = (x * (p * (1 - p))[:, None]).T @ x + ridge * np.eye(len(beta))
        beta = beta + np.linalg.solve(information, x.T @ (y - p) - ridge * beta)
    return beta, np.sqrt(np.diag(np.linalg.inv(information)))


def coverage(given: argparse.Namespace) -> Iterator[tuple[dict, dict]]:
    """The result after every ten tables."""
    more = "".join(f"[columns.{name}]\nuse = false\n" for name in COVARIATES) if given.apart else ""
    inside, of_truth, means, widths, clusters = [], [], [], [], []
    for seed in range(given.tables):
        cells = made(given.rows, seed, given.confounded)
        with tempfile.TemporaryDirectory() as folder:
            run = chain(Path(folder), cells, given.cycles, more=more)
        run.start()
        draws, k = [], []
        for i in range(given.cycles):
            values = run.advance((0, 0, 0), 1).values
            if i >= given.cycles // 3:
                draws.append(run.mixture.outcome.beta.copy())
                k.append(values["n_clusters"][0])
        low, high = np.quantile(draws, INTERVAL, axis=0)
        inside.append((low < BETA) & (high > BETA))
        widths.append(high - low)
        means.append(np.mean(draws, axis=0))
        clusters.append(np.mean(k))
        fit, error = regression(np.concatenate([np.eye(CLUSTERS)[cells[3]], cells[1]], axis=1), cells[2])
        of_truth.append(np.abs(fit[-3:] - BETA) < 1.645 * error[-3:])
        if (seed + 1) % 10 and seed + 1 < given.tables:
            continue
        apart = ", which are no columns of the mixture" if given.apart else ""
        which = "confounded covariates" if given.confounded else "covariates"
        title = f"Intervals of {which}{apart}: {seed + 1} tables of {given.rows:,} rows, {given.cycles} cycles"
        head, lines = covered(inside, of_truth, means, widths)
        note = f"{np.mean(clusters):.1f} clusters on average, of {CLUSTERS}; {time.process_time():.0f} CPU seconds."
        yield {"title": title, "head": head, "lines": lines, "note": note}, {"inside": inside, "means": means}


def covered(inside, of_truth, means, widths) -> tuple[list[str], list[list[str]]]:
    """Head and lines of a table; each argument has three numbers of every made table."""
    n, share, true = len(inside), np.mean(inside, axis=0), np.mean(of_truth, axis=0)
    bias, width = np.mean(means, axis=0) - BETA, np.mean(widths, axis=0)
    spread, lines = np.std(means, axis=0), []
    for j, name in enumerate(COVARIATES):
        error = np.sqrt(share[j] * (1.0 - share[j]) / n)
        of = f"{share[j]:.1%} ± {error:.1%}", f"{true[j]:.1%}", f"{bias[j]:+.3f}", f"{spread[j]:.3f}", f"{width[j]:.3f}"
        lines.append([name, *of])
    lines.append(["all", f"{share.mean():.1%} ± {np.sqrt(share.mean() * (1 - share.mean()) / (3 * n)):.1%}",
                  f"{true.mean():.1%}", "", "", ""])  # fmt: skip
    head = ["coefficient", "intervals with the truth", "by true clusters", "bias", "sd of means", "width"]
    return head, lines


def speed(given: argparse.Namespace) -> Iterator[tuple[dict, dict]]:
    import arviz

    cells, chains = made(given.rows, 0, True), []
    kinds = [("", 0), ("hmc", 1), *(("firefly", steps) for steps in given.steps)]
    for kind, steps in kinds:
        more = f'kernel = "{kind}"\nsteps = {steps}\n' if kind else ""
        with tempfile.TemporaryDirectory() as folder:
            chains.append(chain(Path(folder), cells, 3, bool(kind), more + "[sampler]\nsplit_merge = 0\n").mixture)
        chains[-1].start(cells[3].astype(np.int32))
        if kind == "firefly":
            chains[-1].outcome.fireflies.after = WARM
        for _ in range(WARM):  # labels follow the outcome from the second on
            chains[-1].cycle()
    cycle_s, draw_s = np.empty((given.cycles, len(kinds))), np.zeros((given.cycles, len(kinds)))
    draws = np.empty((given.cycles, len(kinds), len(BETA)))
    for i in range(given.cycles):
        for j in np.roll(range(len(kinds)), i):
            began = time.process_time()
            chains[j].cycle()
            cycle_s[i, j] = time.process_time() - began
            if (outcome := chains[j].outcome) is None:
                continue
            draws[i, j], theta, beta, law = outcome.beta, outcome.theta, outcome.beta, outcome.law
            began = time.process_time()
            outcome.draw(chains[j].view.z, 1_000_000 + i)
            draw_s[i, j] = time.process_time() - began
            outcome.theta, outcome.beta, outcome.law = theta, beta, law
    whole, drawn, lines = 1e3 * np.median(cycle_s, axis=0), 1e3 * np.median(draw_s, axis=0), []
    for j, (kind, steps) in enumerate(kinds):
        second = 1e-3 * whole[j] * given.cycles
        effective = [float(arviz.ess(of)) / second if kind else 0.0 for of in draws[:, j].T]
        squares = min(float(arviz.ess((of - of.mean()) ** 2)) / second if kind else 0.0 for of in draws[:, j].T)
        lines.append([kind or "no outcome", steps or "", len(chains[j].view.sizes()), f"{whole[j]:.1f}",
                      f"{drawn[j]:.1f}", f"{(whole[j] - drawn[j]) / whole[0]:.2f}", f"{drawn[j] / whole[j]:.0%}",
                      *(f"{of:.1f}" if kind else "" for of in (*effective, squares))])  # fmt: skip
    head = ["kernel", "steps", "K", "cycle, ms", "draw of coefficients, ms", "visit with / without",
            "share of the draw", *(f"{name}, effective draws a second" for name in COVARIATES),
            "of squares, the least"]  # fmt: skip
    title = f"A cycle with an outcome and without, {given.rows:,} rows: medians of {given.cycles}, by turns"
    yield {"title": title, "head": head, "lines": lines, "note": ""}, {"seconds": cycle_s, "draws": draws}


def of_counts(n: int, seed: int, skew: float) -> tuple[np.ndarray, ...]:
    """Cells, covariates, counts and clusters of a table, as those of `made`."""
    x, w, _, z, theta = made(n, seed, False)
    w[:, :2] = np.exp(skew * w[:, :2])
    w[:, :2] = (w[:, :2] - w[:, :2].mean(axis=0)) / w[:, :2].std(axis=0)
    rate = np.exp(0.7 * theta[z] + w @ RATES)
    return x, w, np.random.default_rng(1_000 + seed).poisson(rate), z


def counts(given: argparse.Namespace) -> Iterator[tuple[dict, dict]]:
    import arviz

    from mpibayes.hpc.outcome.likelihoods import Poisson

    lines, kept = [], []
    kinds = {"own counts": True, "means": False}
    for skew in SKEWS:
        cells, chains = of_counts(given.rows, 0, skew), []
        for Poisson.weighs_rows in kinds.values():
            with tempfile.TemporaryDirectory() as folder:
                chains.append(chain(Path(folder), cells, 3, more="[sampler]\nsplit_merge = 0\n", kind="count").mixture)
            chains[-1].start(cells[3].astype(np.int32))
            chains[-1].outcome.start(chains[-1].view.z, len(chains[-1].view.sizes()))
        accepted = np.empty((len(kinds), given.cycles))
        draws, seconds = np.empty((len(kinds), given.cycles, len(BETA))), np.zeros(len(kinds))
        for i in range(-WARM, given.cycles):
            for j in np.roll(range(len(kinds)), i):
                Poisson.weighs_rows = [*kinds.values()][j]
                began = time.process_time()
                chains[j].outcome.draw(chains[j].view.z, WARM + i)
                if i >= 0:
                    seconds[j] += time.process_time() - began
                    accepted[j, i], draws[j, i] = chains[j].outcome.accepted, chains[j].outcome.beta
        for j, kind in enumerate(kinds):
            effective = [float(arviz.ess(of)) / given.cycles for of in draws[j].T]
            squares = min(float(arviz.ess((of - of.mean()) ** 2)) / given.cycles for of in draws[j].T)
            lines.append([skew, f"{cells[1][:, :2].max():.0f}", cells[2].max(), kind, f"{accepted[j].mean():.2f}",
                          *(f"{of:.2f}" for of in (*effective, squares)),
                          *(f"{at:.3f} ± {sd:.3f}" for at, sd in zip(draws[j].mean(axis=0), draws[j].std(axis=0))),
                          f"{1e3 * seconds[j] / given.cycles:.0f}"])  # fmt: skip
            kept.append({"skew": skew, "metric": kind, "accepted": accepted[j], "draws": draws[j]})
        head = ["s", "largest covariate, sd", "largest count", "metric", "accepted",
                *(f"{name}, effective draws a draw" for name in COVARIATES), "of squares, the least",
                *(f"{name} (true: {of})" for name, of in zip(COVARIATES, RATES)), "a draw, ms"]  # fmt: skip
        title = f"A Poisson outcome with skewed covariates, {given.rows:,} rows, true clusters: {given.cycles} draws"
        yield {"title": title, "head": head, "lines": lines, "note": ""}, {"runs": kept}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, rows, cycles in (("coverage", 2_000, 400), ("speed", 100_000, 150), ("counts", 10_000, 300),
                               ("table", 1_296_463, 400)):  # fmt: skip
        of = verbs.add_parser(verb)
        of.add_argument("--rows", type=int, default=rows)
        of.add_argument("--cycles", type=int, default=cycles)
        of.add_argument("--keep", action="store_true")
    verbs.choices["speed"].add_argument("--steps", type=int, nargs="+", default=[1, 5])
    verbs.choices["coverage"].add_argument("--tables", type=int, default=200)
    for switch in ("confounded", "apart"):
        verbs.choices["coverage"].add_argument(f"--{switch}", action="store_true")
    given = parser.parse_args()
    if given.verb == "table":
        run = write(Path(), made(given.rows, 0, True), given.cycles)
        run.write_text(run.read_text().replace("[run]\n", "[run]\nchains = 2\nshards = 4\n"))
        return
    kind = "_confounded" if given.verb == "coverage" and given.confounded else ""
    measure, title = {
        "coverage": (coverage, "intervals"), "speed": (speed, "a cycle"), "counts": (counts, "counts"),
    }[given.verb]  # fmt: skip
    for table, measured in measure(given):
        print(table["title"], markdown(table["head"], table["lines"]), table["note"], sep="\n\n", flush=True)
        if given.keep:
            command = "python benchmarks/outcome.py " + " ".join(sys.argv[1:])
            of = f"An outcome: {title}{kind.replace('_', ', ')}"
            keep(f"outcome_{given.verb}{kind}", of, command, [table], **measured)


if __name__ == "__main__":
    main()
