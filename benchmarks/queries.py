"""CPU seconds of queries, and whether their probabilities are right on rows that were not trained on.

    python benchmarks/queries.py RUN NEW.csv --target income --given age,education,... [--coverage age,weeks_worked]
        [--reliability income,sex] [--draws 100] [--rows 5000]

RUN: a mixture or a cross-categorization. NEW.csv: rows of the same source that RUN has not seen. Speed: the conditional
of the target given the other columns, for 10,000 rows (those of NEW.csv, again and again) over 100 draws; dependence of
all columns. Calibration: of numbers, how many of the new values are in intervals of 50, 80 and 95 %; of columns with
levels, the shares of all of these in bins of their probability; both given all other cells of the row.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np

from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.dependence import information
from mpibayes.hpc.query.new_rows import rows_of

ROWS = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("rows")
    parser.add_argument("--target", required=True)
    parser.add_argument("--given", required=True)
    parser.add_argument("--coverage", default="")
    parser.add_argument("--reliability", default="", help="columns with levels; the target by default")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--rows", dest="most", type=int, default=5_000)
    parser.add_argument("--no-speed", action="store_true")
    given = parser.parse_args()
    started = time.process_time()
    asking = Asking(given.run, given.draws)
    new = rows_of(asking, given.rows).whole(asking)
    new = replace(new, rows=new.rows.take(slice(0, given.most)))
    print(f"opened, {asking.averages.n_draws} draws, {len(new.rows):,} rows: {time.process_time() - started:.2f} s")
    if not given.no_speed:
        speed(asking, new, given.target, given.given.split(","))
    for name in filter(None, given.coverage.split(",")):
        coverage(asking, new, name)
    for name in filter(None, (given.reliability or given.target).split(",")):
        reliability(asking, new, name)


def speed(asking: Asking, new, target: str, names: list[str]) -> None:
    started = time.process_time()
    draws = asking.draws({target, *names})
    clusters = np.mean([len(view.log_weight) for draw in draws for view in draw.views])
    print(
        f"clusters of {len(names) + 1} columns added up: {time.process_time() - started:.2f} s ({clusters:.0f} a view)"
    )
    known = asking.known(new.rows.take(np.arange(ROWS) % len(new.rows)), names)
    started = time.process_time()
    for _ in asking.distributions(target, known, 256):
        pass
    print(f"{target} given {len(names)} columns, {ROWS:,} rows: {time.process_time() - started:.2f} s")
    every = [c.name for c in asking.columns]
    started = time.process_time()
    information(asking, every, every)
    print(f"dependence of {len(every)} columns: {time.process_time() - started:.2f} s")


def predicted(asking: Asking, new, name: str):
    """(recorded values, distributions) of the rows that have the cell, given all else."""
    column = asking.conditions.column(name)
    x = getattr(new.rows, column.block)[:, column.index]
    there = np.flatnonzero(~column.is_missing(x))
    known = asking.known(new.rows).without([name]).take(there)
    for rows, d in asking.distributions(name, known, 256):
        yield x[there[rows]], d


def coverage(asking: Asking, new, name: str) -> None:
    """Places of the values in their distributions, uniform within what a cell of these has: exact for discrete ones."""
    g, places = np.random.default_rng(1), []
    for x, d in predicted(asking, new, name):
        below, at = np.cumsum(d.p, axis=1), d.support.place(x)
        rows = np.arange(len(x))
        places.append(below[rows, at] - g.random(len(x)) * d.p[rows, at])
    u = np.concatenate(places)
    shares = [np.mean(np.abs(u - 0.5) <= 0.5 * share) for share in (0.5, 0.8, 0.95)]
    print(f"{name}: in intervals of 50, 80, 95 %: " + ", ".join(f"{s:.1%}" for s in shares) + f" of {len(u):,}")


def reliability(asking: Asking, new, name: str) -> None:
    """Of all levels together, the share that is there in bins of probability; and how far off that is on average."""
    p, true = [], []
    for x, d in predicted(asking, new, name):
        p.append(d.p.ravel())
        true.append((x[:, None] == np.arange(len(d.support))).ravel())
    p, true = np.concatenate(p), np.concatenate(true)
    cuts = np.array([0.0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.99, 1.0 + 1e-9])
    at, off, most = np.searchsorted(cuts, p, side="right") - 1, 0.0, 0.0
    for i in np.unique(at):
        here = at == i
        gap = true[here].mean() - p[here].mean()
        sd = np.sqrt(p[here].mean() * (1 - p[here].mean()) / here.sum())
        off += abs(gap) * here.mean()
        if here.sum() >= 100:
            most = max(most, abs(gap))
        print(f"{name}: p about {p[here].mean():.3f}, share {true[here].mean():.3f} ± {sd:.3f} of {here.sum():,}")
    print(f"{name}: off by {off:.2%} on average over cells, by {most:.2%} in the worst bin of 100 or more")


if __name__ == "__main__":
    main()
