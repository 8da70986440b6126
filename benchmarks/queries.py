"""CPU seconds of queries, and whether their probabilities are right on rows that were not trained on.

    python benchmarks/queries.py RUN NEW.csv --target income --given age,education,... [--coverage age,weeks_worked]

RUN: a mixture or a cross-categorization. NEW.csv: rows of the same source that RUN has not seen. Speed: the conditional
of the target given the other columns, for 10,000 rows (those of NEW.csv, again and again) over 100 draws; dependence of
all columns. Calibration: of numbers, how many of the new values are in intervals of 50, 80 and 95 %; of the target, the
shares of its levels in bins of their probability; both given all other cells of the row.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from mpibayes.hpc.data.events import missing
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.dependence import information
from mpibayes.hpc.query.new_rows import read

ROWS = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("rows")
    parser.add_argument("--target", required=True)
    parser.add_argument("--given", required=True)
    parser.add_argument("--coverage", default="")
    given = parser.parse_args()
    started = time.process_time()
    asking = Asking(given.run, 100)
    new = read(asking, given.rows)
    print(f"opened, {asking.averages.n_draws} draws, {len(new.rows):,} rows: {time.process_time() - started:.2f} s")
    names = given.given.split(",")
    started = time.process_time()
    draws = asking.draws({given.target, *names})
    clusters = np.mean([len(view.log_weight) for draw in draws for view in draw.views])
    print(
        f"clusters of {len(names) + 1} columns added up: {time.process_time() - started:.2f} s ({clusters:.0f} a view)"
    )
    known = asking.known(new.rows.take(np.arange(ROWS) % len(new.rows)), names)
    started = time.process_time()
    for _ in asking.distributions(given.target, known, 256):
        pass
    print(f"{given.target} given {len(names)} columns, {ROWS:,} rows: {time.process_time() - started:.2f} s")
    every = [c.name for c in asking.columns]
    started = time.process_time()
    information(asking, every, every)
    print(f"dependence of {len(every)} columns: {time.process_time() - started:.2f} s")
    for name in filter(None, given.coverage.split(",")):
        coverage(asking, new, name)
    reliability(asking, new, given.target)


def predicted(asking: Asking, new, name: str):
    """(recorded values, distributions) of the rows that have the cell, given all else."""
    column = asking.conditions.column(name)
    x = getattr(new.rows, column.block)[:, column.index]
    there = np.flatnonzero(~missing(column, x))
    known = asking.known(new.rows).without([name]).take(there)
    for rows, d in asking.distributions(name, known, 256):
        yield x[there[rows]], d


def coverage(asking: Asking, new, name: str) -> None:
    """Places of the values in their distributions, uniform within what a cell of these has: exact for discrete ones."""
    g, places = np.random.default_rng(1), []
    for x, d in predicted(asking, new, name):
        e, below = d.support.events, np.cumsum(d.p, axis=1)
        atoms = np.array([*e.column.atoms, np.nan])[e.codes]
        with np.errstate(invalid="ignore"):
            inside = np.where(np.isnan(e.low), atoms == x[:, None], (e.low <= x[:, None]) & (x[:, None] < e.high))
        is_atom = np.isin(x, e.column.atoms)
        inside &= np.isnan(e.low) == is_atom[:, None]
        at = inside.argmax(axis=1)
        rows = np.arange(len(x))
        places.append(below[rows, at] - g.random(len(x)) * d.p[rows, at])
    u = np.concatenate(places)
    shares = [np.mean(np.abs(u - 0.5) <= 0.5 * share) for share in (0.5, 0.8, 0.95)]
    print(f"{name}: in intervals of 50, 80, 95 %: " + ", ".join(f"{s:.1%}" for s in shares) + f" of {len(u):,}")


def reliability(asking: Asking, new, name: str) -> None:
    """The share of rows with the last level, in bins of its probability."""
    p, true = [], []
    for x, d in predicted(asking, new, name):
        p.append(d.p[:, -1])
        true.append(x == len(d.support) - 1)
    p, true = np.concatenate(p), np.concatenate(true)
    cuts = np.array([0.0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0])
    at = np.searchsorted(cuts, p, side="right") - 1
    for i in np.unique(at):
        here = at == i
        sd = np.sqrt(true[here].mean() * (1 - true[here].mean()) / here.sum())
        print(f"{name}: p about {p[here].mean():.3f}, share {true[here].mean():.3f} ± {sd:.3f} of {here.sum():,}")


if __name__ == "__main__":
    main()
