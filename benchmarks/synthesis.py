"""Synthetic census records by several programs, with their utility and risk at equal numbers of rows.

The table is the 2018 and 2019 national extract of the American Community Survey that SDNist hands out: the age, the
density, and 14 columns of at most 7 levels, the rest lumped (see acs.py); with --cps cps.csv.gz, tax filers of the
Current Population Survey (see cps.py). Some rows are held out; each method makes as many rows as it is trained on, and
`mpibayes synthesize --judge` has the measures. The methods: mixture and crosscat, and with learned links mixture-links
and crosscat-links, with learned bases mixture-links-learned; margins, each column shuffled by itself; mice, R's mice
with its package rpart as a synthesizer, columns one after another, each by a tree given those before it (as synthpop
does); ctgan and tvae, of the package ctgan, which the Python of --peers has, with its defaults but for --epochs, the
density with its 20 values as a category; others, real rows besides, eight tables of all that are left, for the risk
that real rows have by chance. "mixture-named-learned" starts from 512 clusters and has links by name: those that a run
with learned ones had, with a second parent for the pair of columns that its tables missed most beside the training
rows, density and tenure (--clusters 256: from others). Seconds are from the raw file to the synthetic ones.
--bins 5 adds the three-way error by coarser bins: numbers and the density in 5 bins of equal frequency.
--runs 4 --tables 4 judge four tables, from one draw each, of four runs of other seeds, and give means with their
standard errors over the runs.

    MPIBAYES_DATA=/folder/of/tables python benchmarks/synthesis.py --rows 25000 --methods mixture,crosscat,margins,mice
    ... python benchmarks/synthesis.py --methods mixture,tvae,ctgan --peers ENVIRONMENT/bin/python --keep FILE
    python benchmarks/synthesis.py --cps cps.csv.gz --methods mixture,mice --keep FILE

That folder has acs_pums_nist/national2018.90pct.csv.xz and the same of 2019. --keep FILE adds the
measures to it, a line a method.
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

import acs
import cps
import numpy as np
import pandas as pd

from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.synthetic.judge import Judge, roles
from mpibayes.hpc.synthetic.rare import Merging
from mpibayes.hpc.synthetic.training import cells_of
from mpibayes.hpc.synthetic.utility import variation
from mpibayes.io.recode import read_like

RUN = """
[data]
table = "t.h5"
heldout = {heldout}
[model]
family = "{family}"
links = {links}
link_base = "{base}"
[sampler]
init_clusters = {clusters}
[run]
cycles = {cycles}
until = "cycles"
seed = {seed}
"""
MICE = """
suppressMessages(library(mice))
d <- read.csv("train.csv", stringsAsFactors = TRUE)
n <- nrow(d)
set.seed({seed})
s <- d
s[, 1] <- sample(d[, 1])
for (j in 2:ncol(d)) {{
  x <- rbind(d[, 1:(j - 1), drop = FALSE], s[, 1:(j - 1), drop = FALSE])
  y <- c(as.vector(d[, j]), rep(NA, n))
  if (is.factor(d[, j])) y <- factor(y, levels = levels(d[, j]))
  s[, j] <- mice.impute.cart(y, c(rep(TRUE, n), rep(FALSE, n)), x)
}}
write.csv(s, "mice.csv", row.names = FALSE)
"""
NETWORK = """
import pandas as pd
from ctgan import {name}
d = pd.read_csv("train.csv")
model = {name}(epochs={epochs})
model.set_random_state({seed})
model.fit(d, {discrete})
model.sample(len(d)).to_csv("{name}.csv", index=False)
"""
NETWORKS = {"ctgan": "CTGAN", "tvae": "TVAE"}
NAMED = [
    ("DENSITY", "RAC1P", "OWN_RENT"),
    ("SEX", "INDP_CAT"),
    ("HISP", "HOUSING_TYPE"),
    ("RAC1P", "HISP"),
    ("NOC", "NPF"),
    ("NPF", "MSP"),
    ("HOUSING_TYPE", "NOC"),
    ("OWN_RENT", "HOUSING_TYPE"),
    ("INDP_CAT", "HOUSING_TYPE"),
    ("EDU", "HOUSING_TYPE"),
    ("INC", "HOUSING_TYPE"),
    ("POV", "INC"),
    ("DREM", "DPHY"),
    ("DPHY", "HOUSING_TYPE"),
]  # of ACS; fmt: skip
TARGET = "INC"
KEYS = {"acs": ["AGEP", "SEX", "RAC1P", "HOUSING_TYPE"], "cps": ["AGE", "MARS", "SIZE", "REGION"]}
NUMBERS = {"acs": ["AGEP"], "cps": ["AGE", "WAGES", "HOMETAX", "STATETAX"]}  # for networks; others are categories


def by_mpibayes(place: Path, method: str, args, seed: int) -> list[Path]:
    named, family = "-named" in method, method.split("-")[0]
    links = NAMED if named else "forest" if "-links" in method else "none"
    base = "learned" if method.endswith("-learned") else "uniform"
    name = f"{method}-{seed}"
    (place / f"{name}.toml").write_text(
        RUN.format(
            family=family, links=json.dumps(links), base=base, clusters=args.clusters if named else '"auto"',
            cycles=args.cycles, heldout=args.heldout, seed=seed,
        )
    )  # fmt: skip
    command = [sys.executable, "-m", "mpibayes"]
    subprocess.run([*command, "run", f"{name}.toml", "-o", name], cwd=place, check=True, stdout=subprocess.DEVNULL)
    words = ["synthesize", name, "--copies", str(args.tables), "--seed", str(seed), "-o", f"{name}-tables"]
    subprocess.run([*command, *words], cwd=place, check=True, stderr=subprocess.DEVNULL)
    return [place / f"{name}-tables" / f"synthetic-{i}.csv" for i in range(1, args.tables + 1)]


def by_others(place: Path, others: pd.DataFrame, args) -> list[Path]:
    """Write real rows that no model and no judge has seen, in eight tables."""
    parts = np.array_split(np.random.default_rng(args.seed).permutation(len(others)), 8)
    paths = [place / f"others-{i}.csv" for i in range(len(parts))]
    for path, part in zip(paths, parts):
        others.iloc[part].to_csv(path, index=False)
    return paths


def by_margins(place: Path, training: pd.DataFrame, args) -> Path:
    g = np.random.default_rng(args.seed)
    shuffled = pd.DataFrame({name: g.permutation(x) for name, x in training.items()})
    shuffled.to_csv(place / "margins.csv", index=False)
    return place / "margins.csv"


def by_mice(place: Path, training: pd.DataFrame, args) -> Path:
    training.to_csv(place / "train.csv", index=False)
    (place / "mice.R").write_text(MICE.format(seed=args.seed))
    subprocess.run(["Rscript", "mice.R"], cwd=place, check=True, stdout=subprocess.DEVNULL)
    return place / "mice.csv"


def by_network(place: Path, training: pd.DataFrame, method: str, args) -> Path:
    name, numbers = NETWORKS[method], NUMBERS["cps" if args.cps else "acs"]
    training.to_csv(place / "train.csv", index=False)
    program = NETWORK.format(
        name=name, epochs=args.epochs, seed=args.seed, discrete=[c for c in training if c not in numbers]
    )
    subprocess.run([args.peers, "-c", program], cwd=place, check=True)
    return place / f"{name}.csv"


class Coarse:
    """The three-way error of a table beside the held-out rows, by n bins of numbers."""

    def __init__(self, training: pd.DataFrame, held_out: pd.DataFrame, n: int):
        shares = np.linspace(0.0, 1.0, n + 1)[1:-1]
        numbers = training.select_dtypes("number")
        self._edges = {name: np.unique(np.quantile(x, shares)) for name, x in numbers.items()}
        self._held_out = self._bins(held_out)

    def _bins(self, table: pd.DataFrame) -> np.ndarray:
        return np.column_stack(
            [
                np.searchsorted(self._edges[name], x, side="right") if name in self._edges else x.str[1:].astype(int)
                for name, x in table.items()
            ]
        )

    def __call__(self, table: pd.DataFrame) -> float:
        rows = self._bins(table)
        sizes = 1 + np.maximum(rows.max(axis=0), self._held_out.max(axis=0))
        return variation(rows, self._held_out, sizes, list(itertools.combinations(range(len(sizes)), 3)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=25_000, help="of the table, those held out with them")
    parser.add_argument("--heldout", type=float, default=0.2)
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--methods", default="mixture,crosscat,margins")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1, help="of mixture and so on, seeds from --seed on")
    parser.add_argument("--tables", type=int, default=1, help="of each run")
    parser.add_argument("--clusters", type=int, default=512, help="from which mixture-named-learned starts")
    parser.add_argument("--epochs", type=int, default=300, help="of ctgan and tvae")
    parser.add_argument("--bins", type=int, default=0, help="of numbers, for a further three-way error")
    parser.add_argument("--cps", type=Path, default=None, help="cps.csv.gz of the package taxcalc")
    parser.add_argument("--peers", default=sys.executable, help="a Python with the package ctgan")
    parser.add_argument("--keep", type=Path, default=None)
    args = parser.parse_args()
    survey = "cps" if args.cps else "acs"
    whole = cps.population(args.cps) if args.cps else acs.population(Path(os.environ["MPIBAYES_DATA"]))
    order = np.random.default_rng(args.seed).permutation(len(whole))
    table = whole.iloc[order[: args.rows]].reset_index(drop=True)
    with tempfile.TemporaryDirectory() as folder:
        place, results = Path(folder), {}
        table.to_csv(place / "t.csv", index=False)
        imports, before = [sys.executable, "-m", "mpibayes", "import", "t.csv", "t.h5"], cpu()
        subprocess.run(imports, cwd=place, check=True, stdout=subprocess.DEVNULL)
        importing = cpu() - before
        asking = judge = coarse = None
        methods = ["mixture", *(m for m in args.methods.split(",") if m != "mixture")]
        for method, run in ((m, r) for m in methods for r in range(args.runs if ours(m) else 1)):
            before = cpu()
            training = None if asking is None else table.iloc[asking.asked.training_numbers()]
            paths = (
                [by_margins(place, training, args)] if method == "margins"
                else by_others(place, whole.iloc[order[args.rows :]], args) if method == "others"
                else [by_mice(place, training, args)] if method == "mice"
                else [by_network(place, training, method, args)] if method in NETWORKS
                else by_mpibayes(place, method, args, args.seed + run)
            )  # fmt: skip
            seconds = cpu() - before + importing * ours(method)
            if asking is None:
                asking = Asking(place / f"mixture-{args.seed}")
                training = table.iloc[asking.asked.training_numbers()]
                coarse = Coarse(training, table.drop(training.index), args.bins) if args.bins else None
                judge = Judge(asking, Merging(), roles(asking, TARGET, KEYS[survey]), args.rows, args.seed)
            judged = []
            for path in paths:
                rows = read_like(asking.asked.like, path)
                rows = rows.take(np.random.default_rng(2).permutation(min(judge.n, len(rows))))
                judged.append(judge({c.name: cells_of(rows, c) for c in asking.columns}))
                if coarse:
                    judged[-1]["three-way, coarse"] = coarse(pd.read_csv(path)[list(table)]), coarse(training)
            measures = {name: np.mean([of[name] for of in judged], axis=0).tolist() for name in judged[0]}
            results.setdefault(method, []).extend(judged if method == "others" else [measures])
            areas = ", ".join(f"{of['area'][0]:.3f}" for of in judged)
            print(method, f"{seconds:.0f} CPU s, area {areas}", flush=True)
            if args.keep:
                with args.keep.open("a") as file:
                    line = {"method": method, "cycles": args.cycles, "seconds": round(seconds, 1)}
                    line |= {"seed": args.seed + run, "tables": args.tables} if args.runs * args.tables > 1 else {}
                    print(json.dumps(line | measures), file=file)
    measures = results["mixture"][0]
    print(f"{judge.n:,} rows of each; {args.rows - asking.asked.n_rows:,} held out; {args.cycles} cycles")
    print(f"{'':22s}" + "".join(f"{m:>15s}" for m in [*results, "real"]))
    for name, (_, real) in measures.items():
        each = {method: np.array([of[name] for of in runs]) for method, runs in results.items()}
        print(f"{name:22s}" + "".join(f"{x[:, 0].mean():15.4f}" for x in each.values()) + f"{real:15.4f}")
        several = args.runs > 1 or "others" in each
        if several:
            print_errors([x[:, 0] for x in each.values()])
        if name in ("closest training row", "disclosed"):
            print(f"{'  of held-out rows':22s}" + "".join(f"{x[:, 1].mean():15.4f}" for x in each.values()))
            apart = [x[:, 1] - x[:, 0] for x in each.values()]
            print(f"{'  difference':22s}" + "".join(f"{x.mean():15.4f}" for x in apart))
            if several:
                print_errors(apart)


def print_errors(of_methods: list[np.ndarray]) -> None:
    """Print the standard errors of means over runs."""
    error = [x.std(ddof=1) / np.sqrt(len(x)) if len(x) > 1 else np.nan for x in of_methods]
    print(f"{'  standard error':22s}" + "".join(f"{x:15.4f}" for x in error))


def ours(method: str) -> bool:
    return method.split("-")[0] in ("mixture", "crosscat")


def cpu() -> float:
    """Seconds of this process and of those that it waited for."""
    return sum(
        r.ru_utime + r.ru_stime for r in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


if __name__ == "__main__":
    main()
