"""Similarity of rows: the probability that two rows share a cluster, in the view of a column chosen at random among
`columns`. Rows are compared with one target; no pairs are stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.data.events import Known, everyone
from mpibayes.hpc.query import average
from mpibayes.hpc.query.answer import Answer
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.conditional import values
from mpibayes.hpc.query.conditions import Item
from mpibayes.hpc.query.logp import few, words
from mpibayes.hpc.query.new_rows import NewRows
from mpibayes.hpc.query.question import Question
from mpibayes.io.rows import Column, Rows

SHOWN = 4  # columns whose cells are shown beside a row


@dataclass(frozen=True, eq=False)
class Similarity(Question):
    """Training rows by their similarity to a row of the table, given by number from 1, or to a described one.

    columns: those whose views count, all by default. top: number of most similar rows shown; or only the rows `to`.
    """

    row: int | None = None
    like: Sequence[Item] = ()
    columns: Sequence[str] = ()
    top: int = 10
    to: Sequence[int] = ()

    def answer(self, asking: Asking, rows: NewRows | None = None) -> Answer:
        asked = asking.joint("similarity")
        if (self.row is None) == (not self.like):
            raise ConfigError("name one row: --row NUMBER of the table, or conditions with --like COLUMN=VALUE")
        names = asking.conditions.names(self.columns) or [c.name for c in asking.columns]
        numbers = asking.asked.training_numbers()
        place, known, title = _target(asking, self.row, self.like, numbers)
        share, sums, effective = _shared(asking, names, place, known)
        if self.to:
            order = np.array([_place(numbers, number, "--to") for number in self.to])
        else:
            others = np.arange(len(share)) if place is None else np.delete(np.arange(len(share)), place)
            order = others[np.argsort(-share[others], kind="stable")[: self.top]]
        error = average.Averages.error_of_sums(*(s[:, order] for s in sums))
        lines = {"row": numbers[order] + 1, "similarity": share[order], "similarity_error": error}
        beside = list(known.of) if place is None else names
        recorded = asking.asked.recorded(np.sort(numbers[order]))
        back = np.argsort(np.argsort(numbers[order]))
        for column in asking.named(beside):
            lines[column.name] = values(column, _cells(recorded, column)[back])
        short = ["row", "similarity", "similarity_error", *beside[:SHOWN]]
        of = "" if not self.columns else f", by the views of {', '.join(names)}"
        remarks = [asked.shares + of, *few(effective, asking)]
        return Answer(f"Rows like {title}", lines, remarks, short=short, shown=max(self.top, len(self.to)))


def _cells(rows: Rows, column: Column) -> np.ndarray:
    x: np.ndarray = getattr(rows, column.block)[:, column.index].astype(float)
    return np.where(x == len(column.levels), np.nan, x) if column.levels else x


def _place(numbers: np.ndarray, number: int, option: str) -> int:
    """Place of a table row among the training rows. Raises ConfigError if it is not a training row."""
    at = int(np.searchsorted(numbers, number - 1))
    if at == len(numbers) or numbers[at] != number - 1:
        raise ConfigError(f"{option} {number}: no training row; expected the number of one in the table, from 1")
    return at


def _target(
    asking: Asking, row: int | None, like: Sequence[Item], numbers: np.ndarray
) -> tuple[int | None, Known, str]:
    """Place of a training row, or the known cells of another row; and its name."""
    if row is None:
        known = everyone(asking.conditions.read(like, "--like"))
        return None, known, words(known)
    if not 1 <= row <= asking.asked.like.n_rows:
        raise ConfigError(f"--row {row}: expected a row of the table, 1 to {asking.asked.like.n_rows:,}")
    if row - 1 in numbers:
        return _place(numbers, row, "--row"), Known(1, {}), f"row {row}"
    known = asking.known(asking.asked.recorded(np.array([row - 1])))
    return None, known, f"row {row}, which was not trained on"


def _shared(
    asking: Asking, names: Sequence[str], place: int | None, known: Known
) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """Similarity of each training row (N,), residuals summed over batches and chains, (b, N) each, and the effective
    number of draws (1,)."""
    together = {*names, *known.of}
    log_p = np.zeros((asking.averages.n_draws, 1))
    if known.of:
        log_p[:, 0] = [draw.given(known).log_p[0] for draw in asking.draws(together)]
    w = average.weights(log_p)
    starts = asking.averages.batches, asking.averages.chains
    sums = [np.zeros((len(s), asking.asked.n_rows), np.float32) for s in starts]
    weights = [np.add.reduceat(w[:, 0], s) for s in starts]
    for d, draw in enumerate(asking.joint("similarity").labelled(together)):
        share = draw.shared(names, place, known)
        for s, total in zip(starts, sums):
            total[int(np.searchsorted(s, d, side="right")) - 1] += w[d, 0] * share
    mean = sums[0].sum(axis=0, dtype=np.float64)
    return mean, [s - wt[:, None] * mean for s, wt in zip(sums, weights)], average.effective(w)
