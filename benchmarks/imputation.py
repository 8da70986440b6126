"""Multiple imputation of census records beside mice with trees and beside single values.

The population is the 2018 and 2019 national extracts of the American Community Survey that SDNist hands out: the age,
the density, and 14 columns of at most 7 levels. Samples are drawn from it with replacement, 30 % of the cells of eight
columns are taken out at random given sex and log density, and filled in again. Intervals of 95 % should have the
population's shares of levels, of pairs of levels, the mean age, and the slopes of a linear and a logistic regression 95
times in 100; squared errors are in variances of the complete sample. A worst bias is of the share or slope that
completion moves most, on average over samples, in standard errors of the complete sample.

    MPIBAYES_DATA=/folder/of/tables python benchmarks/imputation.py --samples 4 --methods mixture,crosscat,single,mice

Methods "links", "named" and "explained" are mixtures with learned links, with six that are named, and with two more, of
industry with sex and of tenure with the density, since sex and density say which cells are missing; "gaps" links each
column with gaps to one of these; "crossed" gives each a second parent that says which of its cells are missing, sex or
the fifth of the density, and "crossed+age" links the age with the marital status, too; "binned" is "crossed+age" with
the density itself, by its bins, for its fifths; "banded" has bands of the age as a further column, on which most others
depend; "links-learned" and so on have learned bases. The folder has
acs_pums_nist/national2018.90pct.csv.xz and the same of 2019. mice is R's, with its package rpart. --rule none takes
cells out completely at random; --population mixture has rows of a mixture in place of the records. --keep FILE keeps
what was made of each sample, and goes on from there.
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

import numpy as np
import pandas as pd

import mpibayes as mb

LEVELS = 7
CATEGORIES = [
    "SEX", "MSP", "HISP", "RAC1P", "NOC", "NPF", "HOUSING_TYPE", "OWN_RENT", "INDP_CAT", "EDU", "INC", "POV", "DREM",
    "DPHY",
]  # fmt: skip
GAPS = ["AGEP", "MSP", "OWN_RENT", "EDU", "INC", "POV", "DPHY", "INDP_CAT"]
STRONG = [
    ("INC", "POV"), ("OWN_RENT", "POV"), ("INC", "INDP_CAT"), ("EDU", "INC"), ("MSP", "OWN_RENT"), ("MSP", "DPHY"),
]  # fmt: skip
RUN = """
[data]
table = "t.h5"
[model]
family = "{family}"
links = {links}
link_base = "{base}"
[run]
cycles = {cycles}
burn_in = {burn_in}
seed = {seed}
[output]
labels = 5
"""
SHARES = "margins", "strong pairs", "other pairs"
NUMBERS = "age", "linear", "logistic"  # estimates that come with their variances
GROUPS = *SHARES, *NUMBERS
# Levels by frequency that have dummy variables in a linear regression of the age, and in a logistic one of walking with
# difficulty, which has the age besides; both have the sex and the log density.
LINEAR = {"OWN_RENT": (1,), "MSP": (1, 2), "DPHY": (1,), "EDU": (1, 2, 3), "POV": (1, 2, 3, 4)}
LOGISTIC = {"POV": (1, 2, 3, 4), "MSP": (1, 3, 4)}
NAMED = [("POV", "INC"), ("OWN_RENT", "POV"), ("INC", "INDP_CAT"), ("MSP", "OWN_RENT"), ("DPHY", "MSP"), ("EDU", "INC")]
EXPLAINING = [("INDP_CAT", "SEX"), ("DENSITY", "OWN_RENT")]  # pairs of gaps with what says where they are
ALL_GAPS = [(name, "SEX" if name in ("INDP_CAT", "MSP") else "DENSITY") for name in GAPS[1:]]
CROSSED = [
    ("POV", "INC", "FIFTH"), ("OWN_RENT", "POV", "FIFTH"), ("INC", "INDP_CAT", "SEX"), ("MSP", "OWN_RENT", "SEX"),
    ("DPHY", "MSP", "SEX"), ("EDU", "INC", "FIFTH"), ("INDP_CAT", "SEX", "FIFTH"),
]  # fmt: skip
BANDED = [
    ("AGEP", "AGEB"), ("MSP", "AGEB", "SEX"), ("INDP_CAT", "AGEB", "SEX"), ("INC", "INDP_CAT", "SEX"),
    ("EDU", "INC", "AGEB"), ("POV", "INC", "FIFTH"), ("OWN_RENT", "POV", "FIFTH"), ("DPHY", "POV", "AGEB"),
]  # fmt: skip
BANDS = [-1, 15, 30, 45, 62, 200]  # of the age, column AGEB
LINKS = {
    "links": "forest",
    "named": NAMED,
    "explained": [*NAMED, *EXPLAINING],
    "gaps": ALL_GAPS,
    "crossed": CROSSED,
    "crossed+age": [*CROSSED, ("AGEP", "MSP")],
    "binned": [*([n if n != "FIFTH" else "DENSITY" for n in link] for link in CROSSED), ("AGEP", "MSP")],
    "banded": BANDED,
}  # by the method; fmt: skip
MICE = """
suppressMessages(library(mice))
d <- read.csv("t.csv", na.strings = "", stringsAsFactors = TRUE)
long <- complete(mice(d, m = {copies}, method = "cart", printFlag = FALSE, seed = {seed}), "long")
write.csv(long, "long.csv", row.names = FALSE)
"""


def population(folder: Path) -> pd.DataFrame:
    """AGEP and DENSITY as numbers, the other columns as codes 0..6; N, which says that a question does not apply, is a
    level."""
    parts = [
        pd.read_csv(folder / "acs_pums_nist" / f"national{year}.90pct.csv.xz", dtype=str, keep_default_na=False)
        for year in (2018, 2019)
    ]
    raw = pd.concat(parts, ignore_index=True)
    raw["INC"] = [x if x == "N" else str(int(x) // 2) for x in raw["PINCP_DECILE"]]
    raw["POV"] = [x if x == "N" else str(min(int(float(x)) // 100, 4)) for x in raw["POVPIP"]]
    table = pd.DataFrame({"AGEP": raw["AGEP"].astype(int), "DENSITY": raw["DENSITY"].astype(float)})
    for name in CATEGORIES:
        order = raw[name].value_counts().index
        code = raw[name].map({level: min(i, LEVELS - 1) for i, level in enumerate(order)})
        table[name] = code.map(lambda v: f"v{v}")
    return table


def mixture_population(n: int = 50_000, n_clusters: int = 8) -> pd.DataFrame:
    """Rows of a mixture whose columns, of the same names and kinds, are independent in each of its clusters."""
    g = np.random.default_rng(39)
    z = g.choice(n_clusters, size=n, p=g.dirichlet(np.full(n_clusters, 4.0)))
    age = g.normal(np.linspace(10, 80, n_clusters)[g.permutation(n_clusters)][z], 6.0).round()

    def codes(levels: int) -> np.ndarray:
        p = g.dirichlet(np.full(levels, 0.7), size=n_clusters).cumsum(axis=1)
        return (g.random(n)[:, None] > p[z, :-1]).sum(axis=1)

    table = pd.DataFrame({"AGEP": age, "DENSITY": np.geomspace(10.0, 50_000.0, 20).round(1)[codes(20)]})
    for name in CATEGORIES:
        table[name] = [f"v{v}" for v in codes(2 if name == "SEX" else 5)]
    return table


def with_gaps(
    table: pd.DataFrame, g: np.random.Generator, rule: str = "sex-density", share: float = 0.3
) -> pd.DataFrame:
    """Each cell of GAPS is missing with a probability that is `share` on average and depends on SEX and DENSITY alone,
    or on nothing."""
    density = np.log(table["DENSITY"].to_numpy() + 1.0)
    x = 0.8 * (table["SEX"] == "v1").to_numpy() + 0.5 * (density - density.mean()) / density.std()
    x = x if rule == "sex-density" else np.zeros(len(table))
    low, high = -10.0, 10.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if (1 / (1 + np.exp(-middle - x))).mean() < share else (low, middle)
    result = table.copy()
    for name in GAPS:
        result[name] = result[name].mask(g.random(len(table)) < 1 / (1 + np.exp(-low - x)))
    return result


def estimates(table: pd.DataFrame) -> dict[str, np.ndarray]:
    """Shares by group of questions; the mean of the age and the slopes of two regressions, and their variances."""
    names = [f"v{v}" for v in range(LEVELS)]
    one = {c: np.stack([(table[c] == v).to_numpy() for v in names]).astype(float) for c in GAPS[1:]}
    pairs = list(itertools.combinations(GAPS[1:], 2))
    strong = {frozenset(pair) for pair in STRONG}
    n = len(table)

    def joint(of):
        return np.concatenate([(one[a] @ one[b].T).ravel() / n for a, b in of])

    return {
        "margins": np.concatenate([one[c].mean(axis=1) for c in GAPS[1:]]),
        "strong pairs": joint([p for p in pairs if frozenset(p) in strong]),
        "other pairs": joint([p for p in pairs if frozenset(p) not in strong]),
        "age": np.array([table["AGEP"].mean()]),
        "age variance": np.array([table["AGEP"].var() / n]),
        **slopes(table),
    }


def slopes(table: pd.DataFrame) -> dict[str, np.ndarray]:
    """Slopes, without the intercept, and their variances: least squares, and maximum likelihood by Newton's method."""
    sex, age = (table["SEX"] == "v1").to_numpy(float), table["AGEP"].to_numpy(float) / 10.0
    base = [np.ones(len(table)), sex, np.log(table["DENSITY"].to_numpy() + 1.0)]

    def with_levels(of: dict[str, tuple[int, ...]], *more) -> np.ndarray:
        dummies = [(table[c] == f"v{v}").to_numpy(float) for c, levels in of.items() for v in levels]
        return np.column_stack([*base, *dummies, *more])

    x = with_levels(LINEAR)
    inverse = np.linalg.inv(x.T @ x)
    b = inverse @ (x.T @ age)
    variance = ((age - x @ b) ** 2).sum() / (len(x) - x.shape[1]) * np.diag(inverse)
    x, y = with_levels(LOGISTIC, age), (table["DPHY"] == "v1").to_numpy(float)
    a = np.zeros(x.shape[1])
    for _ in range(25):
        p = 1.0 / (1.0 + np.exp(-x @ a))
        inverse = np.linalg.inv((x * (p * (1.0 - p))[:, None]).T @ x)
        a += inverse @ (x.T @ (y - p))
    return {
        "linear": b[1:], "linear variance": variance[1:], "logistic": a[1:], "logistic variance": np.diag(inverse)[1:],
    }  # fmt: skip


def by_mpibayes(place: Path, method: str, args, seed: int) -> list[pd.DataFrame]:
    from mpibayes.hpc.results.complete import complete
    from mpibayes.terminal import Console

    method, _, base = method.partition("-")
    family, links = ("mixture", LINKS[method]) if method in LINKS else (method, "none")
    of_model = {"family": family, "links": json.dumps(links), "base": base or "uniform"}
    text = RUN.format(**of_model, cycles=args.cycles, burn_in=args.cycles // 3, seed=seed)
    if method.startswith(("crossed", "banded")):  # the density by levels
        table = pd.read_csv(place / "t.csv")
        fifth = pd.qcut(table["DENSITY"], 5, labels=False, duplicates="drop")
        table["FIFTH"] = fifth.map(lambda i: f"f{i}")
        if method.startswith("banded"):
            table["AGEB"] = pd.cut(table["AGEP"], BANDS).cat.codes.map(lambda i: f"a{i}" if i >= 0 else "")
        table.to_csv(place / "t.csv", index=False)
        text += "[columns.DENSITY]\nuse = false\n"
    (place / "run.toml").write_text(text)
    command = [sys.executable, "-m", "mpibayes"]
    more = []
    if method == "binned":  # 20 densities, as a number without atoms
        (place / "schema.toml").write_text('[columns.DENSITY]\nkind = "real"\natoms = []\n')
        more = ["--schema", "schema.toml"]
    for words in (["import", "t.csv", "t.h5", *more], ["run", "run.toml", "-o", "run"]):
        subprocess.run([*command, *words], cwd=place, check=True, stdout=subprocess.DEVNULL)
    with open(os.devnull, "w") as nowhere:
        done = complete(place / "run", None, place / "copies", copies=args.copies, console=Console(file=nowhere))
    return [pd.read_csv(path) for path in done.paths]


def by_mice(place: Path, args, seed: int) -> list[pd.DataFrame]:
    (place / "mice.R").write_text(MICE.format(copies=args.copies, seed=seed))
    subprocess.run(["Rscript", "mice.R"], cwd=place, check=True, stdout=subprocess.DEVNULL)
    return [part for _, part in pd.read_csv(place / "long.csv").groupby(".imp")]


def by_single(table: pd.DataFrame) -> list[pd.DataFrame]:
    """The mode of a column, or its mean, in each gap; taken as if it had been observed."""
    filled = {c: table[c].fillna(table[c].mode()[0] if c != "AGEP" else table[c].mean()) for c in table}
    return [pd.DataFrame(filled)] * 2


def judge(copies: list[dict], sample: dict, truth: dict, n: int) -> dict[str, dict[str, list[float]]]:
    """For each question of a group, shares of at least 20 rows: whether the interval of all copies covers the
    truth, the squared error in variances of the complete sample, and the distance from that sample's estimate in
    standard errors."""
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
        p = mb.pool(q, u, n=n)
        figures = {
            "covers": (p.low < t) & (t < p.high), "error": (p.estimate - t) ** 2 / part,
            "shift": (p.estimate - sample[group][here]) / np.sqrt(part),
        }  # fmt: skip
        out[group] = {name: [round(float(x), 3) for x in of] for name, of in figures.items()}
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--copies", type=int, default=10)
    parser.add_argument("--cycles", type=int, default=150)
    parser.add_argument("--methods", default="mixture,crosscat,single")
    parser.add_argument("--population", choices=["acs", "mixture"], default="acs")
    parser.add_argument("--rule", choices=["sex-density", "none"], default="sex-density")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=None)
    args = parser.parse_args()
    lines = [json.loads(line) for line in args.keep.open()] if args.keep and args.keep.exists() else []
    done = {(line["sample"], line["method"]) for line in lines}
    whole = mixture_population() if args.population == "mixture" else population(Path(os.environ["MPIBAYES_DATA"]))
    truth = {**estimates(whole), "n": len(whole)}
    methods = ["complete", *args.methods.split(",")]
    for sample in range(args.samples):
        g = np.random.default_rng([args.seed, sample])
        table = whole.iloc[g.integers(0, len(whole), args.rows)].reset_index(drop=True)
        gappy = with_gaps(table, g, args.rule)
        for method in methods:
            if (sample, method) in done:
                continue
            with tempfile.TemporaryDirectory() as folder:
                place, before = Path(folder), cpu()
                gappy.to_csv(place / "t.csv", index=False)
                copies = (
                    [table] * 2 if method == "complete"
                    else by_single(gappy) if method == "single"
                    else by_mice(place, args, 1 + sample) if method == "mice"
                    else by_mpibayes(place, method, args, 1 + sample)
                )  # fmt: skip
                line = {"sample": sample, "method": method, "seconds": round(cpu() - before, 1)}
            lines.append(line | judge([estimates(c) for c in copies], estimates(table), truth, args.rows))
            if args.keep:
                with args.keep.open("a") as file:
                    print(json.dumps(lines[-1]), file=file)
    print(f"{args.rows:,} rows, {args.copies} copies, {args.cycles} cycles")
    print("coverage of 95 % intervals, % (standard error over samples) / mean squared error / worst bias")
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
        words.append(f"{group}: {100 * covers.mean():.1f} ({100 * chance:.1f}) / {error.mean():.2f} / {worst:.1f}")
    return "  ".join([*words, f"CPU s: {np.mean([line['seconds'] for line in lines]):.0f}"])


def cpu() -> float:
    """Seconds of this process and of those that it waited for."""
    return sum(
        r.ru_utime + r.ru_stime for r in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


if __name__ == "__main__":
    main()
