"""Multiple imputation of census records beside mice, miceforest and single values.

The population is of records of the American Community Survey (acs.py) or, with --cps FILE, of the Current Population
Survey (cps.py). Samples are drawn from it with replacement, 30 % of the cells of some columns are taken out at random
given two complete ones (sex and log density; children and log property tax), and filled in again. Intervals of 95 %
should have the population's shares of levels, of pairs of levels, means, and the slopes of a linear and a logistic
regression 95 times in 100; squared errors are in variances of the complete sample. A worst bias is of the share or
slope that completion moves most, on average over samples, in standard errors of the complete sample. The width is the
intervals' standard error over the root mean squared error: more than 1 where intervals are too wide.

    MPIBAYES_DATA=/folder/of/tables python benchmarks/imputation.py --samples 4 --methods mixture,crosscat,single,mice
    ... --cps cps.csv.gz --rows 10000 --methods links-learned,miceforest --peers ENVIRONMENT/bin/python

Methods "links", "named" and "explained" are mixtures with learned links, with six that are named, and with two more, of
industry with sex and of tenure with the density, since sex and density say which cells are missing; "gaps" links each
column with gaps to one of these; "crossed" gives each a second parent that says which of its cells are missing, sex or
the fifth of the density, and "crossed+age" links the age with the marital status, too; "binned" is "crossed+age" with
the density itself, by its bins, for its fifths; "banded" has bands of the age as a further column, on which most others
depend, and "reversed" has tenure with them, and the fifth of the density below tenure; "tied" is "reversed" with the
marital status on the tenure in place of the sex; "links-learned" and so on have learned bases; "mixture-calibrated",
"links-learned-calibrated" and so on calibrate the copies; "mixture-posterior" and so on have the posterior of what is
estimated: it is computed from a synthetic table of each of 20 draws, without Rubin's rules. "mice" is R's with trees
(package rpart), "mice-default" with its default methods (package nnet); the package miceforest (with lightgbm 4.5) is
in the Python of --peers. --rule none takes cells out completely at random; --population mixture has rows of a mixture
in place of the records. --keep FILE keeps what was made of each sample, and goes on from there: from lines of equal
--seed, --rule and --chains.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import acs
import cps
import numpy as np
import pandas as pd
from acs import ACS, LEVELS, Levels, Study
from cps import CPS
from scipy.special import stdtrit

import mpibayes as mb

RUN = """
[data]
table = "t.h5"
[model]
family = "{family}"
links = {links}
link_base = "{base}"
[run]
chains = {chains}
cycles = {cycles}
until = "cycles"
burn_in = {burn_in}
seed = {seed}
[output]
labels = 5
"""
SHARES = "margins", "strong pairs", "other pairs"
NUMBERS = "means", "linear", "logistic"  # estimates that come with their variances
GROUPS = *SHARES, *NUMBERS
CALIBRATED = "-calibrated"  # at the end of a method: `complete --calibrate`
POSTERIOR = "-posterior"  # likewise: synthetic tables in place of copies
TABLES, ROWS = 20, 20_000  # of these
BANDS = [-1, 15, 30, 45, 62, 200]  # of the age, column AGEB
MICE = """
suppressMessages(library(mice))
d <- read.csv("t.csv", na.strings = "", stringsAsFactors = TRUE)
long <- complete(mice(d, m = {copies}, {method}printFlag = FALSE, seed = {seed}), "long")
write.csv(long, "long.csv", row.names = FALSE)
"""
MICEFOREST = """
import miceforest as mf
import pandas as pd
d = pd.read_csv("t.csv")
for c in d.select_dtypes("object"):
    d[c] = d[c].astype("category")
kernel = mf.ImputationKernel(d, num_datasets={copies}, mean_match_strategy="fast", random_state={seed})
kernel.mice(5)
long = [kernel.complete_data(dataset=i).assign(**{{".imp": i + 1}}) for i in range({copies})]
pd.concat(long).to_csv("long.csv", index=False)
"""


def with_gaps(study: Study, table: pd.DataFrame, g: np.random.Generator, rule: str, share: float = 0.3) -> pd.DataFrame:
    """Each cell of columns with gaps is missing with a probability that is `share` on average and depends on the two
    drivers alone, or on nothing."""
    one, other = study.drivers(table).T
    x = 0.8 * one + 0.5 * (other - other.mean()) / other.std()
    x = x if rule == "drivers" else np.zeros(len(table))
    low, high = -10.0, 10.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if (1 / (1 + np.exp(-middle - x))).mean() < share else (low, middle)
    result = table.copy()
    for name in study.gaps:
        result[name] = result[name].mask(g.random(len(table)) < 1 / (1 + np.exp(-low - x)))
    return result


def estimates(study: Study, table: pd.DataFrame) -> dict[str, np.ndarray]:
    """Shares by group of questions; means and the slopes of two regressions, and their variances."""
    names = [f"v{v}" for v in range(LEVELS)]
    one = {c: np.stack([(table[c] == v).to_numpy() for v in names]).astype(float) for c in study.categories}
    pairs = list(itertools.combinations(study.categories, 2))
    strong = {frozenset(pair) for pair in study.strong}
    n = len(table)

    def joint(of):
        return np.concatenate([(one[a] @ one[b].T).ravel() / n for a, b in of])

    return {
        "margins": np.concatenate([x.mean(axis=1) for x in one.values()]),
        "strong pairs": joint([p for p in pairs if frozenset(p) in strong]),
        "other pairs": joint([p for p in pairs if frozenset(p) not in strong]),
        "means": table[study.numbers].mean().to_numpy(),
        "means variance": table[study.numbers].var().to_numpy() / n,
        **slopes(study, table),
    }


def slopes(study: Study, table: pd.DataFrame) -> dict[str, np.ndarray]:
    """Slopes, without the intercept, and their variances: least squares, and maximum likelihood by Newton's method."""
    first = table[study.numbers[0]].to_numpy(float) / 10.0
    base = [np.ones(len(table)), *study.drivers(table).T]

    def with_levels(of: Levels, *more) -> np.ndarray:
        dummies = [(table[c] == f"v{v}").to_numpy(float) for c, levels in of.items() for v in levels]
        return np.column_stack([*base, *dummies, *more])

    x = with_levels(study.linear)
    inverse = np.linalg.inv(x.T @ x)
    b = inverse @ (x.T @ first)
    variance = ((first - x @ b) ** 2).sum() / (len(x) - x.shape[1]) * np.diag(inverse)
    x, y = with_levels(study.logistic, first), (table[study.response] == "v1").to_numpy(float)
    a = np.zeros(x.shape[1])
    for _ in range(25):
        p = 1.0 / (1.0 + np.exp(-x @ a))
        inverse = np.linalg.inv((x * (p * (1.0 - p))[:, None]).T @ x)
        a += inverse @ (x.T @ (y - p))
    return {
        "linear": b[1:], "linear variance": variance[1:], "logistic": a[1:], "logistic variance": np.diag(inverse)[1:],
    }  # fmt: skip


def by_mpibayes(study: Study, place: Path, method: str, args, seed: int) -> list[pd.DataFrame]:
    from mpibayes.hpc.results.complete import complete
    from mpibayes.terminal import Console

    name, calibrate = method.removesuffix(CALIBRATED).removesuffix(POSTERIOR), method.endswith(CALIBRATED)
    posterior = method.endswith(POSTERIOR)
    method, _, base = name.partition("-")
    family, links = ("mixture", study.links[method]) if method in study.links else (method, "none")
    of_model = {"family": family, "links": json.dumps(links), "base": base or "uniform"}
    of_run = {"chains": args.chains, "cycles": args.cycles, "burn_in": args.cycles // 3, "seed": seed}
    text = RUN.format(**of_model, **of_run)
    table = pd.read_csv(place / "t.csv")
    if '"FIFTH"' in text:  # the density by levels
        fifth = pd.qcut(table["DENSITY"], 5, labels=False, duplicates="drop")
        table["FIFTH"] = fifth.map(lambda i: f"f{i}")
        text += "[columns.DENSITY]\nuse = false\n"
    if '"AGEB"' in text:
        table["AGEB"] = pd.cut(table[study.numbers[0]], BANDS).cat.codes.map(lambda i: f"a{i}" if i >= 0 else "")
    table.to_csv(place / "t.csv", index=False)
    (place / "run.toml").write_text(text)
    command = [sys.executable, "-m", "mpibayes"]
    more = []
    if method == "binned":  # 20 densities, as a number without atoms
        (place / "schema.toml").write_text('[columns.DENSITY]\nkind = "real"\natoms = []\n')
        more = ["--schema", "schema.toml"]
    for words in (["import", "t.csv", "t.h5", *more], ["run", "run.toml", "-o", "run"]):
        subprocess.run([*command, *words], cwd=place, check=True, stdout=subprocess.DEVNULL)
    if posterior:
        tables = ["--rows", str(ROWS), "--copies", str(TABLES), "--missing", "none", "-o", "synthetic"]
        subprocess.run([*command, "synthesize", "run", *tables], cwd=place, check=True, stderr=subprocess.DEVNULL)
        return [pd.read_csv(place / "synthetic" / f"synthetic-{i}.csv") for i in range(1, 1 + TABLES)]
    with open(os.devnull, "w") as nowhere:
        more = {"copies": args.copies, "calibrate": calibrate, "console": Console(file=nowhere)}
        done = complete(place / "run", None, place / "copies", **more)
    return [pd.read_csv(path) for path in done.paths]


def by_mice(place: Path, method: str, args, seed: int) -> list[pd.DataFrame]:
    method = "" if method == "mice-default" else 'method = "cart", '
    (place / "mice.R").write_text(MICE.format(copies=args.copies, method=method, seed=seed))
    subprocess.run(["Rscript", "mice.R"], cwd=place, check=True, stdout=subprocess.DEVNULL)
    return copies_of(place)


def by_miceforest(place: Path, args, seed: int) -> list[pd.DataFrame]:
    program = MICEFOREST.format(copies=args.copies, seed=seed)
    subprocess.run([args.peers, "-c", program], cwd=place, check=True, stdout=subprocess.DEVNULL)
    return copies_of(place)


def copies_of(place: Path) -> list[pd.DataFrame]:
    return [part for _, part in pd.read_csv(place / "long.csv").groupby(".imp")]


def by_single(study: Study, table: pd.DataFrame) -> list[pd.DataFrame]:
    """The mode of a column, or its mean, in each gap; taken as if it had been observed."""
    filled = {c: table[c].fillna(table[c].mean() if c in study.numbers else table[c].mode()[0]) for c in table}
    return [pd.DataFrame(filled)] * 2


def judge(
    copies: list[dict], sample: dict, truth: dict, n: int, posterior: bool = False
) -> dict[str, dict[str, list[float]]]:
    """For each question of a group, shares of at least 20 rows: whether the interval of all copies covers the
    truth, the squared error in variances of the complete sample, the distance from that sample's estimate in
    standard errors, and that of the interval in them.

    posterior: the copies are synthetic tables of ROWS rows, each of a draw of what is estimated."""
    out = {}
    for group in GROUPS:
        t, of_numbers = truth[group], group in NUMBERS
        here = np.full(len(t), True) if of_numbers else n * t * (1.0 - t) > 20.0
        t, q = t[here], np.array([copy[group][here] for copy in copies])
        if of_numbers:
            u, part = np.array([copy[f"{group} variance"] for copy in copies]), truth[f"{group} variance"]
            part = part * truth["n"] / n
        else:
            u, part = q * (1.0 - q) / n, t * (1.0 - t) / n
        p = of_posterior(q, u if of_numbers else u * n / ROWS, truth["n"]) if posterior else mb.pool(q, u, n=n)
        figures = {
            "covers": (p.low < t) & (t < p.high), "se": p.se / np.sqrt(part), "error": (p.estimate - t) ** 2 / part,
            "shift": (p.estimate - sample[group][here]) / np.sqrt(part),
        }  # fmt: skip
        out[group] = {name: [round(float(x), 3) for x in of] for name, of in figures.items()}
    return out


def of_posterior(q: np.ndarray, u: np.ndarray, n: int) -> SimpleNamespace:
    """Intervals of the estimates q (M, p) of M synthetic tables: their variance, less what their rows add to the draw
    of the parameters, with that of a population of n rows about its parameters."""
    m = len(q)
    total = (1.0 + 1.0 / m) * q.var(axis=0, ddof=1) - u.mean(axis=0) * (1.0 - ROWS / n)
    estimate, se = q.mean(axis=0), np.sqrt(np.maximum(total, 0.0))
    half = stdtrit(m - 1, 0.975) * se
    return SimpleNamespace(estimate=estimate, se=se, low=estimate - half, high=estimate + half)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--copies", type=int, default=10)
    parser.add_argument("--cycles", type=int, default=150)
    parser.add_argument("--chains", type=int, default=1, help="of each run, among which the copies are divided")
    parser.add_argument("--methods", default="mixture,crosscat,single")
    parser.add_argument("--population", choices=["acs", "mixture"], default="acs")
    parser.add_argument("--rule", choices=["drivers", "none"], default="drivers")
    parser.add_argument("--cps", type=Path, default=None, help="cps.csv.gz of the package taxcalc")
    parser.add_argument("--peers", default=sys.executable, help="a Python with the package miceforest")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=None)
    args = parser.parse_args()
    settings = {name: getattr(args, name) for name in ("seed", "rule", "chains")}
    kept = [json.loads(line) for line in args.keep.open()] if args.keep and args.keep.exists() else []
    lines = [line for line in kept if settings.items() <= line.items()]
    done = {(line["sample"], line["method"]) for line in lines}
    study = ACS if args.cps is None else CPS
    whole = (
        cps.population(args.cps) if args.cps
        else acs.mixture_population() if args.population == "mixture"
        else acs.population(Path(os.environ["MPIBAYES_DATA"]))
    )  # fmt: skip
    truth = {**estimates(study, whole), "n": len(whole)}
    methods = ["complete", *args.methods.split(",")]
    for sample in range(args.samples):
        g = np.random.default_rng([args.seed, sample])
        table = whole.iloc[g.integers(0, len(whole), args.rows)].reset_index(drop=True)
        gappy = with_gaps(study, table, g, args.rule)
        for method in methods:
            if (sample, method) in done:
                continue
            with tempfile.TemporaryDirectory() as folder:
                place, before = Path(folder), cpu()
                gappy.to_csv(place / "t.csv", index=False)
                copies = (
                    [table] * 2 if method == "complete"
                    else by_single(study, gappy) if method == "single"
                    else by_miceforest(place, args, 1 + sample) if method == "miceforest"
                    else by_mice(place, method, args, 1 + sample) if method.startswith("mice")
                    else by_mpibayes(study, place, method, args, 1 + sample)
                )  # fmt: skip
                line = {**settings, "sample": sample, "method": method, "seconds": round(cpu() - before, 1)}
            of_copies, of_table = [estimates(study, c) for c in copies], estimates(study, table)
            lines.append(line | judge(of_copies, of_table, truth, args.rows, method.endswith(POSTERIOR)))
            if args.keep:
                with args.keep.open("a") as file:
                    print(json.dumps(lines[-1]), file=file)
    print(f"{args.rows:,} rows, {args.copies} copies, {args.chains} chains of {args.cycles} cycles")
    print("coverage of 95 % intervals, % (standard error over samples) / mean squared error / worst bias / width")
    for method in methods:
        print(summary(method, [line for line in lines if line["method"] == method]), flush=True)


def summary(method: str, lines: list[dict]) -> str:
    words = [f"{method:9s}{len(lines):3d} samples"]
    for group in GROUPS:
        covers, error, shift = (
            np.array([line[group][name] for line in lines]) for name in ("covers", "error", "shift")
        )
        chance = covers.mean(axis=1).std(ddof=1) / np.sqrt(len(lines)) if len(lines) > 1 else np.nan
        worst = np.abs(shift.mean(axis=0)).max()
        width = np.mean([np.square(line[group].get("se", np.nan)) for line in lines]) / error.mean()
        figures = f"{error.mean():.2f} / {worst:.1f} / {width**0.5:.2f}"
        words.append(f"{group}: {100 * covers.mean():.1f} ({100 * chance:.1f}) / {figures}")
    return "  ".join([*words, f"CPU s: {np.mean([line['seconds'] for line in lines]):.0f}"])


def cpu() -> float:
    """Seconds of this process and of those that it waited for."""
    return sum(
        r.ru_utime + r.ru_stime for r in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


if __name__ == "__main__":
    main()
