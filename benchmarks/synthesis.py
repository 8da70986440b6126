"""Synthetic census records by several programs, with their utility and risk at equal numbers of rows.

The table is the 2018 and 2019 national extract of the American Community Survey that SDNist hands out: the age, the
density, and 14 columns of at most 7 levels, the rest lumped (see acs.py). Some rows are held out; each method
makes as many rows as it is trained on, and `mpibayes synthesize --judge` has the measures. The methods: mixture and
crosscat, and with learned links mixture-links and crosscat-links, with learned bases mixture-links-learned; margins,
each column shuffled by itself; mice, R's mice with its package rpart as a synthesizer, columns one after another, each
by a tree given those before it (as synthpop does); ctgan and tvae, of the package ctgan, which the Python of --peers
has, with its defaults but for --epochs, the density with its 20 values as a category; real, training rows themselves.
Seconds are from the raw file to the synthetic one.

    MPIBAYES_DATA=/folder/of/tables python benchmarks/synthesis.py --rows 25000 --methods mixture,crosscat,margins,mice
    ... python benchmarks/synthesis.py --methods mixture,tvae,ctgan --peers ENVIRONMENT/bin/python --keep FILE

That folder has acs_pums_nist/national2018.90pct.csv.xz and the same of 2019. --keep FILE adds the
measures to it, a line a method.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from acs import population

from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.synthetic.judge import Judge, roles
from mpibayes.hpc.synthetic.rare import Merging
from mpibayes.hpc.synthetic.training import cells_of
from mpibayes.io.recode import read_like

RUN = """
[data]
table = "t.h5"
heldout = {heldout}
[model]
family = "{family}"
links = "{links}"
link_base = "{base}"
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
KEY, TARGET = ["AGEP", "SEX", "RAC1P", "HOUSING_TYPE"], "INC"


def by_mpibayes(place: Path, method: str, args) -> Path:
    family, links = method.split("-")[0], "forest" if "-links" in method else "none"
    base = "learned" if method.endswith("-learned") else "uniform"
    (place / f"{method}.toml").write_text(
        RUN.format(family=family, links=links, base=base, cycles=args.cycles, heldout=args.heldout, seed=args.seed)
    )
    command = [sys.executable, "-m", "mpibayes"]
    subprocess.run([*command, "run", f"{method}.toml", "-o", method], cwd=place, check=True, stdout=subprocess.DEVNULL)
    words = ["synthesize", method, "--copies", "1", "-o", f"{method}-tables"]
    subprocess.run([*command, *words], cwd=place, check=True, stderr=subprocess.DEVNULL)
    return place / f"{method}-tables" / "synthetic-1.csv"


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
    name, numbers = NETWORKS[method], ["AGEP"]
    training.to_csv(place / "train.csv", index=False)
    program = NETWORK.format(
        name=name, epochs=args.epochs, seed=args.seed, discrete=[c for c in training if c not in numbers]
    )
    subprocess.run([args.peers, "-c", program], cwd=place, check=True)
    return place / f"{name}.csv"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=25_000, help="of the table, those held out with them")
    parser.add_argument("--heldout", type=float, default=0.2)
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--methods", default="mixture,crosscat,margins")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=300, help="of ctgan and tvae")
    parser.add_argument("--peers", default=sys.executable, help="a Python with the package ctgan")
    parser.add_argument("--keep", type=Path, default=None)
    args = parser.parse_args()
    whole = population(Path(os.environ["MPIBAYES_DATA"]))
    table = whole.iloc[np.random.default_rng(args.seed).permutation(len(whole))[: args.rows]].reset_index(drop=True)
    with tempfile.TemporaryDirectory() as folder:
        place, results = Path(folder), {}
        table.to_csv(place / "t.csv", index=False)
        imports, before = [sys.executable, "-m", "mpibayes", "import", "t.csv", "t.h5"], cpu()
        subprocess.run(imports, cwd=place, check=True, stdout=subprocess.DEVNULL)
        importing = cpu() - before
        asking = judge = None
        for method in ["mixture", *(m for m in args.methods.split(",") if m != "mixture")]:
            before = cpu()
            training = None if asking is None else table.iloc[asking.asked.training_numbers()]
            path = (
                by_margins(place, training, args) if method == "margins"
                else by_mice(place, training, args) if method == "mice"
                else by_network(place, training, method, args) if method in NETWORKS
                else by_mpibayes(place, method, args)
            )  # fmt: skip
            ours = method.split("-")[0] in ("mixture", "crosscat")
            seconds = cpu() - before + importing * ours
            if asking is None:
                asking = Asking(place / "mixture")
                judge = Judge(asking, Merging(), roles(asking, TARGET, KEY), args.rows, args.seed)
            rows = read_like(asking.asked.like, path).take(np.random.default_rng(2).permutation(judge.n))
            results[method] = judge({c.name: cells_of(rows, c) for c in asking.columns}), seconds
            print(method, f"{seconds:.0f} CPU s, area {results[method][0]['area'][0]:.3f}", flush=True)
            if args.keep:
                with args.keep.open("a") as file:
                    line = {"method": method, "cycles": args.cycles, "seconds": round(seconds, 1)}
                    print(json.dumps(line | results[method][0]), file=file)
    measures = next(iter(results.values()))[0]
    print(f"{judge.n:,} rows of each; {args.rows - asking.asked.n_rows:,} held out; {args.cycles} cycles")
    print(f"{'':22s}" + "".join(f"{m:>15s}" for m in [*results, "real"]))
    for name, (_, real) in measures.items():
        print(f"{name:22s}" + "".join(f"{of[name][0]:15.4f}" for of, _ in results.values()) + f"{real:15.4f}")
        if name in ("closest training row", "disclosed"):
            print(f"{'  of held-out rows':22s}" + "".join(f"{of[name][1]:15.4f}" for of, _ in results.values()))


def cpu() -> float:
    """Seconds of this process and of those that it waited for."""
    return sum(
        r.ru_utime + r.ru_stime for r in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


if __name__ == "__main__":
    main()
