"""Surprising cells and rows: the surprisal, -log p, of cells given the rest of their row, and of rows.

A training row is left out of the draws that it contributed to (docs/math.md 2.12): 1 / p is the average of 1 / p_d. For
a new row, draws are weighted by p_d(row), under which the average of 1 / p_d(cell | rest) is 1 / p(cell | rest), too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.data.events import Events, Known, known_of
from mpibayes.hpc.parallel.together import dealt
from mpibayes.hpc.query import average
from mpibayes.hpc.query.answer import Answer
from mpibayes.hpc.query.asking import BLOCK, BYTES, Asking
from mpibayes.hpc.query.conditions import rounded, written
from mpibayes.hpc.query.logp import few
from mpibayes.hpc.query.new_rows import NewRows
from mpibayes.hpc.query.question import Question, RowsQuestion
from mpibayes.text import counted

MOST = 20_000  # training rows examined
PATTERNS = 50  # patterns of present columns for which training rows are scored
OF_TABLE = "surprisal of the table"  # verb
REFERENCE = 1_000  # training rows that new rows are compared with


class Surprise:
    """Surprisals of rows. known: their cells (n rows); numbers (n,): from 1; places (n,): among the training rows, None
    for new rows."""

    def __init__(self, asking: Asking, known: Known, numbers: np.ndarray, places: np.ndarray | None):
        self._asking, self.known, self.numbers, self._places = asking, known, numbers, places

    def passes(self, rows: slice) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield for each draw: log p_d of some rows, (m,), and 1 / p_d of their cells given the others, (m, C)."""
        known = self.known.block(rows)
        if self._places is not None:
            yield from self._asking.clusters(OF_TABLE).left_out(known, self._places[rows])
            return
        for draw in self._asking.joint_draws(self.known.of):
            given = draw.given(known)
            yield given.log_p, given.inverses()

    def of(self, rows: slice) -> tuple[np.ndarray, ...]:
        """Surprisal of rows (m,) and of their cells (m, C), NaN if a cell is missing; their errors; and the effective
        number of draws (m,)."""
        units = log_units(self.known.block(rows))
        log_p, inverse = (np.array(a) for a in zip(*self.passes(rows)))
        averages = self._asking.averages
        even = np.full(log_p.shape, 1.0 / len(log_p))
        if self._places is None:
            w = average.weights(log_p)
            of_rows, row_error = average.log_average(log_p, even, averages)
            of_rows = -of_rows
            effective = average.effective(w)
        else:
            w = even
            of_rows, row_error = average.log_average(-log_p, even, averages)
            effective = average.effective(average.weights(-log_p))
        mean = (w[:, :, None] * inverse).sum(axis=0)
        error = averages.error(w[:, :, None] * (inverse - mean)) / mean
        return of_rows - units.sum(axis=1), np.log(mean) - units, row_error, error, effective

    def whole(self) -> tuple[np.ndarray, ...]:
        """`of` of all rows; ranks share the work. Collective."""
        blocks = self.blocks()
        parts = dealt(self._asking.comm, len(blocks), lambda i: self.of(blocks[i]))
        return tuple(np.concatenate(a) for a in zip(*parts))

    def blocks(self) -> list[slice]:
        width = 8 * self._asking.averages.n_draws * (len(self.known.of) + 2)
        return list(average.in_blocks(self.known.n_rows, max(16, BYTES // width)))


def log_units(known: Known, steps: bool = False) -> np.ndarray:
    """Log of the unit of comparison of numbers, (n, C), 0 for all other cells: a standard deviation of the column, of
    its logarithm on a log scale. steps: include numbers recorded in steps, in units of a step."""
    return np.column_stack([_log_units(e, steps)[which] for e, which in known.of.values()])


def _log_units(events: Events, steps: bool) -> np.ndarray:
    """`log_units` of each event of a column, and of a missing cell at the end, (U + 1,)."""
    column, units = events.column, np.zeros(len(events) + 1)
    if column.kind not in ("real", "survival") or (column.resolution and not steps):
        return units
    number = np.flatnonzero(np.isfinite(events.low) & np.isfinite(events.high))  # the rest are atoms or censored
    middle = 0.5 * (events.low[number] + events.high[number])
    deviation = column.rest_scale * middle if column.log else np.full(len(number), column.scale)
    if column.resolution:  # a step wider than the deviation makes a probability that needs no unit
        deviation = np.maximum(deviation / column.resolution, 1.0)
    units[number] = np.log(deviation)
    return units


def of_table(asking: Asking, names: Sequence[str], most: int) -> Surprise:
    """About `most` training rows, evenly spaced."""
    places = asking.sample_places(most)
    numbers = asking.asked.training_numbers()[places]
    known = known_of(asking.asked.recorded(numbers), asking.named(names))
    return Surprise(asking, known, numbers + 1, places)


@dataclass(frozen=True, eq=False)
class Surprisal(Question):
    """The `top` most surprising cells, or rows (`by`), of the training table, or of `rows`. columns: those that count.
    most: training rows examined, approximately."""

    columns: Sequence[str] = ()
    by: str = "cells"
    top: int = 20
    most: int = MOST

    def __post_init__(self) -> None:
        if self.by not in ("cells", "rows"):
            raise ConfigError(f"by = {self.by!r}: expected 'cells' or 'rows'")

    def answer(self, asking: Asking, rows: NewRows | None = None) -> Answer:
        asking.require(OF_TABLE if rows is None else "surprisal")
        names = asking.conditions.names(self.columns) or [c.name for c in asking.columns]
        if rows is None:
            joint = [n for n in names if n in asking.in_blocks]
            if joint and self.columns:
                raise ConfigError(
                    f"column '{joint[0]}' is in a block, from which no training row can be left out; name --rows"
                )
            names = [n for n in names if n not in joint]
            if not names:
                raise ConfigError(
                    "all columns are in blocks, from which no training row can be left out; name --rows FILE"
                )
            surprise, of = of_table(asking, names, self.most), "the table"
        else:
            rows = rows.whole(asking)
            there = [n for n in names if n not in rows.lacking]
            known = asking.known(rows.rows, there)
            surprise, of = Surprise(asking, known, np.arange(1, known.n_rows + 1), None), rows.path.name
            asking.draws(known.of)
        of_rows, cells, row_error, error, effective = surprise.whole()
        n = len(of_rows)
        remarks = [f"{counted(n, 'row')} scored, of {of}", *(rows.notes if rows else ())]
        if rows is not None or self.by == "rows":  # left-out cells weight all draws equally
            remarks += few(effective, asking)
        if rows is None and n < asking.asked.n_rows:
            remarks[0] += f", of {asking.asked.n_rows:,}, evenly spaced; --most N scores more"
        if rows is None and (others := asking.asked.like.n_rows - asking.asked.n_rows):
            remarks.append(f"{counted(others, 'row')} held out: not scored; ask about them with --rows")
        if self.by == "rows":
            order = np.argsort(-of_rows, kind="stable")[: self.top]
            lines = {"row": surprise.numbers[order], "surprisal": of_rows[order], "surprisal_error": row_error[order]}
            worst = np.nan_to_num(cells[order], nan=-np.inf).argmax(axis=1)
            lines["oddest_cell"] = np.array([_cell(surprise.known, r, c) for r, c in zip(order, worst)], object)
            return Answer(
                f"The most surprising rows of {of}", {**lines, "draws": effective[order]}, remarks, shown=self.top
            )
        flat = np.where(np.isnan(cells), -np.inf, cells).ravel()
        order = np.argsort(-flat, kind="stable")[: min(self.top, int(np.isfinite(flat).sum()))]
        at, c = np.divmod(order, cells.shape[1])
        in_order = list(surprise.known.of)
        lines = {
            "row": surprise.numbers[at],
            "column": np.array([in_order[i] for i in c], object),
            "value": np.array([_value(surprise.known, r, i) for r, i in zip(at, c)], object),
            "surprisal": cells[at, c],
            "surprisal_error": error[at, c],
            "expected": np.array([_expected(asking, surprise.known, r, in_order[i]) for r, i in zip(at, c)], object),
        }
        return Answer(f"The most surprising cells of {of}, given the rest of their row", lines, remarks, shown=self.top)


def _value(known: Known, row: int, c: int) -> str:
    """Format a cell for people."""
    events, which = list(known.of.values())[c]
    u, column = which[row], events.column
    if u == len(events):
        return ""
    if events.codes[u] >= 0:
        return column.levels[events.codes[u]] if column.levels else written(column, column.atoms[events.codes[u]])
    return written(column, 0.5 * (events.low[u] + events.high[u]))


def _cell(known: Known, row: int, c: int) -> str:
    return f"{list(known.of)[c]}={_value(known, row, c)}"


def _expected(asking: Asking, known: Known, row: int, name: str) -> str:
    """The most probable level, or the middle half of a number, given the rest of a row."""
    rest = known.without([name]).take(np.array([row]))
    (d,) = (d for _, d in asking.distributions(name, rest, 256))
    if d.support.column.levels:
        best = int(d.p[0].argmax())
        return f"{d.support.column.levels[best]} ({d.p[0, best]:.0%})"
    text = [rounded(d.support.column, d.support.quantile(d.p, q)[0]) for q in (0.25, 0.75)]
    return text[0] if text[0] == text[1] else f"{text[0]} to {text[1]}"


# --- new rows against the table ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Novelty(RowsQuestion):
    """Novelty of each of `rows`: its surprisal, the share of training rows less surprising in the same columns, and the
    probability that it opens a new cluster in some view."""

    columns: Sequence[str] = ()
    top: int = 20

    def answer_rows(self, asking: Asking, rows: NewRows) -> Answer:
        asking.require("novelty")
        compared = OF_TABLE not in asking.asked.cannot
        names = [n for n in asking.conditions.names(self.columns) or rows.there(asking) if n not in rows.lacking]
        known = asking.known(rows.whole(asking).rows, names)
        asking.draws(names)
        log_p, error, effective = asking.log_p(known, Known(known.n_rows, {}))
        unlikely = -log_p - log_units(known).sum(axis=1)
        new = _opens(asking, known)
        seen = np.column_stack([which < len(e) for e, which in known.of.values()])
        kinds, of, sizes = np.unique(seen, axis=0, return_inverse=True, return_counts=True)
        rank = np.full(known.n_rows, np.nan)
        for kind in np.argsort(-sizes, kind="stable")[:PATTERNS]:
            seen_names = [name for name, there in zip(known.of, kinds[kind]) if there]
            if seen_names and compared and asking.in_blocks.isdisjoint(seen_names):
                reference = np.sort(_reference(asking, seen_names))
                at = of.ravel() == kind
                rank[at] = np.searchsorted(reference, unlikely[at]) / len(reference)
        order = np.argsort(-np.where(np.isnan(rank), -1.0, rank) - 1e-9 * unlikely, kind="stable")
        lines = {
            "row": order + 1,
            "novelty": rank[order],
            "surprisal": unlikely[order],
            "surprisal_error": error[order],
            "p_new": new[order],
            "draws": effective[order],
        }
        remarks = [
            "novelty: share of training rows that are less surprising in the columns that the row has; p_new: "
            "probability of a cluster of its own in some view",
            *rows.notes,
            *few(effective, asking),
        ]
        if not compared:
            remarks.insert(1, f"no novelty: {asking.asked.cannot['surprisal of the table']}")
        elif np.isnan(rank).any():
            remarks.insert(1, f"{counted(int(np.isnan(rank).sum()), 'row')} of rare sets of columns have no novelty")
        return Answer(f"Rows of {rows.path.name}, the most novel first", lines, remarks, shown=self.top)


def _reference(asking: Asking, names: Sequence[str]) -> np.ndarray:
    """Surprisals, in `names`, of training rows that have these cells, each left out by itself."""
    surprise = of_table(asking, names, REFERENCE)
    each = np.array([log_p for log_p, _ in surprise.passes(slice(None))])
    whole = np.all([which < len(e) for e, which in surprise.known.of.values()], axis=0)
    log, _ = average.log_average(-each, np.full(each.shape, 1.0 / len(each)), asking.averages)
    log -= log_units(surprise.known).sum(axis=1)
    result: np.ndarray = log[whole] if whole.any() else log
    return result


def _opens(asking: Asking, known: Known) -> np.ndarray:
    """Probability that each row opens a new cluster in at least one view, (n,)."""
    draws = asking.joint_draws(known.of)
    blocks = list(average.in_blocks(known.n_rows, BLOCK))

    def work(i: int) -> np.ndarray:
        rows = known.block(blocks[i])
        log_p, new = np.zeros((len(draws), rows.n_rows)), np.zeros((len(draws), rows.n_rows))
        for d, draw in enumerate(draws):
            given = draw.given(rows)
            log_p[d], new[d] = given.log_p, given.opens()
        p: np.ndarray = (average.weights(log_p) * new).sum(axis=0)
        return p

    return np.concatenate(dealt(asking.comm, len(blocks), work))
