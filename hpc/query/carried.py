"""Dependence that is in the table but not in the run.

In a draw, columns of different views are independent, and columns of one view are independent within its clusters
unless they are linked. So an answer may say that one column is uninformative about another, although the table plainly
shows the opposite. Questions about two columns compare their mutual information in the run with that in training rows,
in the same cells; `hpc/synthetic/pairs.py` checks all pairs, by simulated rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.parallel.agreement import agree
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.dependence import CELLS, information
from mpibayes.io.rows import Column
from mpibayes.text import counted

ROWS = 10_000  # training rows, about
SHUFFLES = 8
LEAST, ERRORS = 0.01, 4.0  # nats, and standard errors, by which the information in the table must exceed the run's
NAMED = 4  # columns in a note


@dataclass(frozen=True)
class InTable:
    """Mutual information of a column with others in the training rows, less that of shuffled rows, (B,) in nats; its
    standard error, (B,); and that of shuffled rows, (B,), for a test at ERRORS of them. NaN for times to an event,
    which are partly known."""

    information: np.ndarray
    error: np.ndarray
    chance: np.ndarray

    def more(self, run: np.ndarray) -> np.ndarray:
        """Places of the columns about which the table certainly has more information than the run, most first. The
        error is that of rows with the run's information: its square grows with the information itself."""
        with np.errstate(invalid="ignore", divide="ignore"):
            of_run = np.sqrt(np.clip(run / self.information, 0.0, 1.0)) * self.error
            clear = self.information - run >= np.maximum(LEAST, ERRORS * np.hypot(of_run, self.chance))
        places = np.flatnonzero(clear)
        return places[np.argsort((run - self.information)[places], kind="stable")]


def in_table(asking: Asking, name: str, others: Sequence[str]) -> InTable | None:
    """Look at a column and others in the training rows, in the cells of `information`; None if the model does not
    compare pairs with the table. Collective."""
    if "pairs" in asking.asked.cannot or asking.weighted:  # answers about a population are not about its rows
        return None
    rows = agree(asking.comm, lambda: asking.sample(ROWS), "read rows that show what the run does not carry")
    supports = asking.supports([name, *others], CELLS)
    stream, result = np.random.default_rng(0), np.full((3, len(others)), np.nan)

    def cells(column: Column) -> tuple[np.ndarray, np.ndarray]:
        x = getattr(rows, column.block)[:, column.index]
        return supports[column.name].place(x), ~column.is_missing(x)

    (column,) = asking.named([name])
    if column.kind == "survival":
        return InTable(*result)
    own, known = cells(column)
    for i, other in enumerate(asking.named(others)):
        if other.kind == "survival":
            continue
        of_other, there = cells(other)
        at = np.flatnonzero(known & there)
        if len(at) > 1:
            sizes = len(supports[name]), len(supports[other.name])
            result[:, i] = _of_pair(own[at], of_other[at], sizes, stream)
    return InTable(*result)


def _of_pair(a: np.ndarray, b: np.ndarray, sizes: tuple[int, int], stream: np.random.Generator) -> tuple[float, ...]:
    """Mutual information of two columns of cells (n,), less its mean over shuffles; its standard error; and that of
    shuffled cells. 2 n times their information is about chi-square, which is skewed, so that this error is the quantile
    where a normal law has ERRORS deviations (Wilson & Hilferty), over ERRORS."""
    value, spread = _information(a, b, sizes)
    shuffled = [_information(stream.permutation(a), b, sizes)[0] for _ in range(SHUFFLES)]
    n, n_a, n_b = len(a), len(np.unique(a)), len(np.unique(b))
    half = 0.5 * max((n_a - 1) * (n_b - 1), 1)  # of the degrees of freedom
    sd = half**0.5 / n if 5 * n_a * n_b <= n else float(np.std(shuffled, ddof=1))
    beyond = sd * half**0.5 * ((1.0 - 1.0 / (9.0 * half) + ERRORS / (3.0 * half**0.5)) ** 3 - 1.0)
    return value - float(np.mean(shuffled)), spread / n**0.5, beyond / ERRORS


def _information(a: np.ndarray, b: np.ndarray, sizes: tuple[int, int]) -> tuple[float, float]:
    """Mutual information of cells, and the standard deviation over rows of its terms."""
    table = np.bincount(a * sizes[1] + b, minlength=sizes[0] * sizes[1]).reshape(sizes)
    i, j = np.nonzero(table)
    p = table[i, j] / len(a)
    terms = np.log(p) - np.log(table.sum(axis=1)[i] / len(a)) - np.log(table.sum(axis=0)[j] / len(a))
    value = float(p @ terms)
    return value, float(np.sqrt(max(p @ terms**2 - value**2, 0.0)))


def remarks(name: str, others: Sequence[str], table: InTable | None, run: np.ndarray, effect: str) -> list[str]:
    """Name the other columns that are more informative about a column in the table than in the run, (B,) nats. effect:
    on the answer."""
    if table is None or not len(more := table.more(run)):
        return []
    named = [f"{others[i]} ({table.information[i]:.3f} nats, {run[i]:.3f} here)" for i in more[:NAMED]]
    rest = f" and {counted(len(more) - NAMED, 'more column')}" if len(more) > NAMED else ""
    return [
        f"in the table {name} depends more than in this run on {', '.join(named)}{rest}: {effect}. All such "
        "pairs: mpibayes query RUN pairs; what carries them: docs/query.md"
    ]


def given(asking: Asking, name: str, others: Sequence[str]) -> list[str]:
    """Name the columns of a condition on which the answer about a column depends too little."""
    columns = {column.name for column in asking.columns} - set(asking.asked.apart)  # without an outcome
    others = [other for other in others if other in columns - {name}]
    table = in_table(asking, name, others) if others and name in columns else None
    if table is None or not np.isfinite(table.information).any():
        return []
    run = np.maximum(information(asking, [name], others).information[0], 0.0)
    return remarks(name, others, table, run, "the answer is too close to that without conditions")
