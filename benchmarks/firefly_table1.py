"""Table 1 and Figure 4 of Maclaurin & Adams (2014): regular MCMC, untuned Firefly and Firefly tuned at the mode.

    python benchmarks/firefly_table1.py --data FOLDER --out DIR [--quick] [--only mnist ...] [--seeds 5]

FOLDER is described in firefly_tables.py. Every chain is a process of its own with one thread, and its result a line of
DIR/results.csv, written as it comes; what is there is not computed again. DIR/table1.md has the table with the paper's
figures beside ours, DIR/figure4.png log posterior and likelihood queries against iterations from starts in the prior.
About 15 minutes of one core; `--quick` takes two and has mnist and cifar only.

As in the paper: mnist by random-walk Metropolis (accepting 0.234), cifar by Langevin steps (0.57), molecules by slice
sampling along a random direction; nothing is whitened; brightness by the implicit update, on mnist with q = 0.1
(untuned) and 0.01 (tuned), elsewhere, where the paper gives no number, with the typical fraction of bright rows. The
scale of the prior, and of the t errors, predicts held-out rows best. The bounds of untuned Firefly touch at xi = 1.5
(logistic), equal classes (softmax), residual 0 (t). The last line of each table is this program's default: four
leapfrog steps in whitened coordinates. `components` is a table whose predictors are replaced by their principal
components, all of variance 1: the descriptors themselves are so collinear that no unwhitened update mixes.

Chains start at a draw of Laplace's approximation, adapt step sizes in a burn-in that does not count, and are then left
alone. Effective samples are coda's (spectral density of an autoregression, as in the paper) and ArviZ's bulk ones.
Speed-up: effective samples a query, and a CPU second, over those of regular MCMC.
"""

from __future__ import annotations

import argparse
import csv
import functools
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from firefly_measures import (
    bulk_ess,
    chosen_scales,
    log_likelihood,
    log_prior,
    posterior_mode,
    read_results,
    spectral_ess,
)  # fmt: skip
from firefly_tables import NU, Regression, components, opv, table
from machine import markdown

ALGORITHMS = ("regular", "untuned", "tuned", "default")
TITLES = {
    "regular": "regular MCMC", "untuned": "untuned Firefly", "tuned": "tuned Firefly", "default": "our default",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """An experiment. iterations: of each algorithm, besides a burn-in; figure: iterations of Figure 4, 0: none."""

    name: str
    title: str
    update: str
    prior: str
    iterations: dict[str, int]
    figure: int = 0
    q: tuple[float | None, float | None] = (None, None)  # untuned, tuned; None: the fraction of bright rows
    paper: tuple = ()  # (queries, effective samples a 1,000 iterations, speed-up) of regular, untuned, tuned


def lengths(*n: int) -> dict[str, int]:
    return dict(zip(ALGORITHMS, n, strict=True))


MNIST = ((12_214, 3.7, 1), (6_252, 1.3, 0.7), (207, 1.4, 22))
CIFAR = ((18_000, 8.0, 1), (8_058, 4.2, 1.2), (654, 3.3, 11))
OPV = ((18_182_764, 1.3, 1), (2_753_428, 1.1, 5.7), (575_528, 1.2, 29))
CASES = (
    Case("mnist", "MNIST 7 against 9, logistic, random walk", "random-walk", "gaussian",
         lengths(100_000, 100_000, 400_000, 50_000), 10_000, (0.1, 0.01), MNIST),
    Case("cifar", "three classes of CIFAR-10, softmax, Langevin", "mala", "gaussian",
         lengths(10_000, 10_000, 60_000, 10_000), 1_000, paper=CIFAR),
    Case("qm9", "QM9, robust regression, slice", "slice", "laplace",
         lengths(4_000, 6_000, 200_000, 100_000), 2_000),
    Case("qm9 components", "QM9, principal components, robust regression, slice", "slice", "laplace",
         lengths(4_000, 6_000, 200_000, 100_000)),
    Case("opv", "1.8 million simulated molecules, robust regression, slice", "slice", "laplace",
         lengths(400, 800, 100_000, 50_000), paper=OPV),
    Case("opv components", "1.8 million simulated molecules, principal components, slice", "slice", "laplace",
         lengths(400, 800, 100_000, 50_000), paper=OPV),
)  # fmt: skip
QUICK = tuple(
    replace(case, iterations={a: n // 20 for a, n in case.iterations.items()}, figure=case.figure // 20)
    for case in CASES[:2]
)
WIDTHS = {"gaussian": (0.05, 0.1, 0.2, 0.5, 1.0, 2.0), "laplace": (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)}
ERRORS = (0.15, 0.2, 0.25, 0.3, 0.35, 0.4)  # scales of the t errors that are tried, standard deviations of the response
BULK = 25_000  # draws at most, evenly spaced, for the bulk effective samples
FIELDS = (
    "case", "algorithm", "seed", "iterations", "q", "queries_theta", "queries_z", "bright", "acceptance", "step",
    "spectral_min", "spectral_median", "spectral_mean", "bulk_min", "bulk_median", "seconds", "start_seconds",
)  # fmt: skip


@dataclass(frozen=True)
class Task:
    """A chain; where figure > 0 one of Figure 4, from the prior, with so many iterations."""

    case: Case
    algorithm: str
    seed: int
    figure: int = 0


# --- tables and scales -----------------------------------------------------------------------------------------------


@functools.cache
def regression(name: str, data: str | None, out: Path) -> Regression:
    """Table of a case."""
    if name.endswith(" components"):
        return components(regression(name.removesuffix(" components"), data, out))
    if name == "opv":  # coefficients and errors as fitted on QM9
        qm9 = regression("qm9", data, out)
        width, error = scales("qm9", "laplace", data, out)
        path = out / "opv_truth.npy"
        if not path.exists():
            x, y = qm9.all()
            np.save(path, posterior_mode(qm9, (x.astype(float), y), "laplace", width, error))
        return opv(qm9, np.load(path), error)
    return table(name, data, out)


def scales(name: str, prior: str, data: str | None, out: Path) -> tuple[float, float]:
    """Scale of the prior and of the errors, chosen once; those of opv and of components are those of qm9."""
    name = name.removesuffix(" components").replace("opv", "qm9")
    path = out / "scales.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    if name not in known:
        result = regression(name, data, out)
        errors = ERRORS if result.likelihood == "student-t" else (1.0,)
        width, error, score = chosen_scales(result, prior, WIDTHS[prior], errors)
        tried = {f"{w:g}, {e:g}": s for (w, e), s in score.items()}
        known[name] = {"prior": width, "error": error, "log density a held-out row": tried}
        path.write_text(json.dumps(known, indent=1))
    return known[name]["prior"], known[name]["error"]


# --- one chain -------------------------------------------------------------------------------------------------------


def firefly(task: Task, data: str | None, out: Path, q: float | None, burn_in: int):
    """The chain of a task, not yet started, and its table and scales."""
    from mpibayes.hpc.parallel.comm import serial
    from mpibayes.hpc.regression.firefly import Firefly
    from mpibayes.hpc.regression.firefly_settings import Settings
    from mpibayes.hpc.regression.problem import Problem

    result = regression(task.case.name, data, out)
    width, error = scales(task.case.name, task.case.prior, data, out)
    comm = serial()
    problem = Problem(
        comm, result.likelihood, result.rows, result.n_rows, 1, n_predictors=result.n_predictors,
        n_classes=result.n_classes, prior=task.case.prior, prior_scale=width, nu=NU, scale=error,
    )  # fmt: skip
    how = {"init": "prior" if task.figure else "laplace", "burn_in": burn_in}
    if task.algorithm != "default":
        how |= {"theta_update": task.case.update, "whiten": False, "z_update": "implicit"}
        how |= {"bounds": {"regular": "none"}.get(task.algorithm, task.algorithm)}
        how |= {"q": q or "auto", "xi": 1.5 if result.likelihood == "logistic" else 0.0}
    return Firefly(comm, problem, Settings(seed=task.seed, **how), chain=0), result, width, error


def fraction(task: Task, data: str | None, out: Path) -> float | None:
    """q: as the paper's, or the fraction of rows that are bright after a few iterations, two digits."""
    if task.algorithm not in ("untuned", "tuned"):
        return None
    given = task.case.q[task.algorithm == "tuned"]
    if given:
        return given
    chain, result, *_ = firefly(Task(task.case, task.algorithm, 0), data, out, None, 50)
    chain.start()
    return float(f"{max(chain.advance(100)['n_bright'][50:].mean() / result.n_rows, 1e-5):.2g}")


def run(task: Task, data: str | None, out: Path) -> dict:
    """A line of results."""
    q = fraction(task, data, out)
    n = task.case.iterations[task.algorithm]
    burn_in = max(n // 5, 100)
    chain, *_ = firefly(task, data, out, q, burn_in)
    began = time.process_time()
    chain.start()
    chain.advance(burn_in)
    started = time.process_time()
    reported = chain.advance(n)
    seconds = time.process_time() - started
    theta = reported["theta"].reshape(n, -1)
    spectral, bulk = spectral_ess(theta), bulk_ess(theta[:: -(-n // BULK)])
    return {
        "case": task.case.name, "algorithm": task.algorithm, "seed": task.seed, "iterations": n, "q": q or "",
        "queries_theta": reported["queries_theta"].mean(), "queries_z": reported["queries_z"].mean(),
        "bright": reported["n_bright"].mean(), "acceptance": reported["acceptance_rate"].mean(),
        "step": reported["step_size"][-1],
        "spectral_min": spectral.min(), "spectral_median": np.median(spectral), "spectral_mean": spectral.mean(),
        "bulk_min": bulk.min(), "bulk_median": np.median(bulk), "seconds": seconds, "start_seconds": started - began,
    }  # fmt: skip


def course(task: Task, data: str | None, out: Path) -> None:
    """A chain of Figure 4: DIR/courses/CASE.ALGORITHM.SEED.npz, iteration (T,), log posterior (T,), queries (T,)."""
    n = task.figure
    chain, result, width, error = firefly(task, data, out, fraction(task, data, out), n)
    chain.start()
    reported = chain.advance(n)
    marks = np.unique(np.geomspace(1, n, 50).astype(int))
    x, y = result.all()
    x = x.astype(float)
    level = np.array([
        log_likelihood(result, x, y, theta, error, False)[0] + log_prior(task.case.prior, width, theta)
        for theta in reported["theta"].reshape(n, -1)[marks - 1]
    ])  # fmt: skip
    total = np.concatenate([[0], np.cumsum(reported["queries_theta"] - reported["n_bright"] + reported["queries_z"])])
    before = np.concatenate([[0], marks[:-1]])
    queries = (total[marks] - total[before]) / (marks - before)
    path = where(task, out)
    path.parent.mkdir(exist_ok=True)
    np.savez(path, iteration=marks, log_posterior=level, queries=queries)


def where(task: Task, out: Path) -> Path:
    return out / "courses" / f"{task.case.name}.{task.algorithm}.{task.seed}.{task.figure}.npz"


def work(given: tuple[Task, str | None, Path]) -> dict | None:
    """In a process of its own."""
    return course(*given) if given[0].figure else run(*given)


# --- all of them -----------------------------------------------------------------------------------------------------


def tasks(cases: tuple[Case, ...], n_seeds: int, done: set[tuple], out: Path) -> list[Task]:
    """What is to be computed."""
    todo = [Task(case, a, 1) for case in cases for a in ALGORITHMS if (case.name, a, case.iterations[a]) not in done]
    for case in cases:
        requested = [
            Task(case, a, s, case.figure) for a in ALGORITHMS[:3] for s in range(1, n_seeds + 1) if case.figure
        ]
        todo += [t for t in requested if not where(t, out).exists()]
    return todo


def read(path: Path) -> list[dict]:
    """The results there are."""
    return [line | {"iterations": int(line["iterations"])} for line in read_results(path, FIELDS[4:])]


def compute(todo: list[Task], data: str | None, out: Path, jobs: int) -> None:
    """Results to the file, as they come."""
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")  # of the new processes
    for case in {t.case.name: t.case for t in todo}.values():  # once, and not by several processes
        regression(case.name, data, out)
        scales(case.name, case.prior, data, out)
    path = out / "results.csv"
    new = not path.exists()
    spawn = multiprocessing.get_context("spawn")
    with path.open("a", newline="") as file, spawn.Pool(jobs, maxtasksperchild=1) as pool:
        lines = csv.DictWriter(file, FIELDS)
        if new:
            lines.writeheader()
        for i, line in enumerate(pool.imap(work, [(t, data, out) for t in todo], chunksize=1)):
            reported = f"{time.strftime('%H:%M')} {i + 1}/{len(todo)} {todo[i].case.name}, {todo[i].algorithm}"
            if line:
                lines.writerow(line)
                file.flush()
                ess = f"{line['spectral_min']:.0f} / {line['spectral_median']:.0f} effective samples"
                reported += f": {line['iterations']:,} iterations, {line['seconds']:.0f} s, {ess}"
            print(reported, flush=True)


# --- what came out ---------------------------------------------------------------------------------------------------

RESOLVED = 50  # effective samples, below which their own estimate means little
HEAD = (
    "algorithm", "queries an iteration (theta + z)", "bright", "q", "accepted",
    "eff. samples per 1,000 (min / median / mean)", "bulk (min / median)", "us an iteration",
    "speed-up by queries", "by CPU s", "paper: queries", "eff.", "speed-up",
)  # fmt: skip


def report(results: list[dict], cases: tuple[Case, ...]) -> str:
    """A table for each case. Speed-ups are of the median coefficient and, in brackets, of the slowest.

    An asterisk marks a chain too short to tell: fewer than RESOLVED effective samples of its slowest coefficient.
    """
    parts = []
    for case in cases:
        lines = {r["algorithm"]: r for r in results if r["case"] == case.name
                 and r["iterations"] == case.iterations[r["algorithm"]]}  # fmt: skip
        if not lines:
            continue
        rows = []
        for algorithm, r in lines.items():
            n = r["iterations"]
            few = "*" if r["spectral_min"] < RESOLVED else ""
            cells = [
                TITLES[algorithm],
                f"{queries(r):,.0f} ({queries(r) - r['queries_z']:,.0f} + {r['queries_z']:,.0f})",
            ]
            cells += [f"{r['bright']:,.0f}", f"{r['q']:g}" if r["q"] == r["q"] else "", f"{r['acceptance']:.2f}"]
            spectral = [1e3 * r[f"spectral_{what}"] / n for what in ("min", "median", "mean")]
            cells += [f"{spectral[0]:.2g}{few} / {spectral[1]:.3g} / {spectral[2]:.3g}"]
            cells += [f"{1e3 * r['bulk_min'] / n:.2g} / {1e3 * r['bulk_median'] / n:.3g}"]
            cells += [f"{1e6 * r['seconds'] / n:.3g}", gain(r, lines.get("regular"), queries)]
            cells += [gain(r, lines.get("regular"), lambda r: r["seconds"] / r["iterations"])]
            number = ALGORITHMS.index(algorithm)
            cells += [f"{v:,}" for v in case.paper[number]] if number < len(case.paper) else ["", "", ""]
            rows.append(cells)
        parts += [f"**{case.title}**", "", markdown(HEAD, rows), ""]
    return "\n".join(parts)


def queries(r: dict) -> float:
    """Likelihood queries an iteration as the paper counts them: the kernels look at the current state once more."""
    return r["queries_theta"] - r["bright"] + r["queries_z"]


def gain(r: dict, base: dict | None, cost: Callable[[dict], float]) -> str:
    """Effective samples for the cost of an iteration over those of `base`: median (least) of the coefficients."""
    if base is None:
        return ""

    def rate(line: dict, what: str) -> float:
        return line[f"spectral_{what}"] / line["iterations"] / cost(line)

    median, least = (rate(r, what) / rate(base, what) for what in ("median", "min"))
    return f"{median:.3g} ({least:.3g})"


NOTES = """Where these figures and the paper's differ:

- Effective samples. The paper says neither how long its chains were nor whether it gives a mean over coefficients, to
  which a few loose ones add most. Short chains flatter: what moves more slowly than the chain is long goes unseen.
  Where one has an asterisk, a speed-up is a rough figure. Collinear descriptors (qm9, opv) never resolve without
  whitening; their principal components do.
- Queries count likelihoods at proposed states and in brightness updates. The kernels look once more at the current
  state, which costs regular random-walk and Langevin chains up to twice the CPU time that they need.
- Tuned bounds on molecules. About a dozen rows are bright, however many there are, where the bounds touch at the mode.
  The paper's 575,528 queries would take a touching point whose predictions are off by half the scale of the errors
  (it was found by stochastic gradients), or a q far above the fraction of bright rows; the paper gives neither.
- CPU seconds gain less than queries where few rows are bright: an iteration also costs the bounds' quadratic form.
- The features of cifar, the molecules and the scales are not the paper's.
"""

COLOURS = {"regular": "#1f5599", "untuned": "#2f8566", "tuned": "#ec8a45"}  # the paper's


def figure(cases: tuple[Case, ...], out: Path) -> None:
    """Above the log posterior, below the queries; mean over seeds and one standard deviation."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    cases = tuple(c for c in cases if c.figure and list((out / "courses").glob(f"{c.name}.*.{c.figure}.npz")))
    if not cases:
        return
    panels, axes = plt.subplots(2, len(cases), figsize=(4.2 * len(cases), 5.4), layout="constrained", squeeze=False)
    for column, case in enumerate(cases):
        top = []
        for algorithm, colour in COLOURS.items():
            runs = [np.load(p) for p in sorted((out / "courses").glob(f"{case.name}.{algorithm}.*.{case.figure}.npz"))]
            if not runs:
                continue
            iteration = runs[0]["iteration"]
            for axis, what in zip(axes[:, column], ("log_posterior", "queries"), strict=True):
                values = np.stack([r[what] for r in runs])
                mean, spread = values.mean(0), values.std(0)
                axis.plot(iteration, mean, color=colour, label=TITLES[algorithm], linewidth=1.4)
                axis.fill_between(iteration, mean - spread, mean + spread, color=colour, alpha=0.2, linewidth=0)
                axis.set_xscale("log")
                axis.grid(alpha=0.3)
            top.append(np.stack([r["log_posterior"] for r in runs]))
        best = np.concatenate([t[:, -1] for t in top]).max()
        middle = np.concatenate([t[:, len(t[0]) // 3] for t in top]).min()
        axes[0, column].set_title(case.title, fontsize=9)
        axes[0, column].set(ylim=(middle, best + 0.05 * (best - middle)))
        axes[1, column].set(yscale="log", xlabel="iteration")
    axes[0, 0].set_ylabel("log posterior")
    axes[1, 0].set_ylabel("likelihood queries an iteration")
    axes[1, 0].legend(frameon=False)
    panels.savefig(out / "figure4.png", dpi=130)
    plt.close(panels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of public tables (default: $MPIBAYES_DATA)")
    parser.add_argument("--out", type=Path, default=Path("firefly_table1"))
    parser.add_argument("--only", nargs="+", choices=[c.name for c in CASES], help="these cases")
    parser.add_argument("--seeds", type=int, default=5, help="chains of each line of Figure 4")
    parser.add_argument("--jobs", type=int, default=1, help="chains at once, one thread each")
    parser.add_argument("--quick", action="store_true", help="two cases, a twentieth of the iterations")
    parser.add_argument("--report", action="store_true", help="table and figure of what there is; run nothing")
    given = parser.parse_args()
    cases = tuple(c for c in (QUICK if given.quick else CASES) if c.name in (given.only or [c.name]))
    given.out.mkdir(parents=True, exist_ok=True)
    if not given.report:
        done = {(r["case"], r["algorithm"], r["iterations"]) for r in read(given.out / "results.csv")}
        compute(tasks(cases, given.seeds, done, given.out), given.data, given.out, given.jobs)
    (given.out / "table1.md").write_text(report(read(given.out / "results.csv"), cases) + "\n" + NOTES)
    figure(cases, given.out)
    print((given.out / "table1.md").read_text())
    print(f"results.csv, table1.md and figure4.png are in {given.out}")


if __name__ == "__main__":
    main()
