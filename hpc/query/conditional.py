"""The distribution of a column given others, as a table and a picture; missing cells, by their distributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from mpibayes.hpc.parallel.agreement import on_root
from mpibayes.hpc.query import carried, histogram
from mpibayes.hpc.query.absent import NeverThere
from mpibayes.hpc.query.answer import Answer
from mpibayes.hpc.query.asking import Asking, Distributions
from mpibayes.hpc.query.conditions import Item, rounded, written
from mpibayes.hpc.query.logp import apart, described, few, words
from mpibayes.hpc.query.new_rows import NewRows
from mpibayes.hpc.query.question import Question, RowsQuestion
from mpibayes.hpc.query.support import CELLS, Support, never_negative, tails
from mpibayes.hpc.query.training import weighted_apart
from mpibayes.io.clock import around
from mpibayes.io.order import order_of
from mpibayes.io.rows import Column
from mpibayes.text import counted, number

LINES = 24  # intervals of a numeric column in a table
BRIEF = 12  # lines on the terminal, at most
LEVELS = 20  # most levels of a column that get a column each in a file of rows
SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
LOW, HIGH = 0.1, 0.9  # of an imputed number


@dataclass(frozen=True, eq=False)
class Conditional(Question):
    """Distribution of a column: a table for one described row, or a line per row of a file."""

    column: str
    given: Sequence[Item] = ()
    KNOWS_OUTCOME = True

    @property
    def pictured(self) -> bool:
        return self.rows is None

    def answer(self, asking: Asking, rows: NewRows | None = None) -> Answer:
        column, name = asking.conditions.column(self.column), self.column
        if rows is not None:
            return _of_rows(asking, column, self.given, rows)
        known = described(asking, self.given, "--given", None)
        apart([name], known)
        asking.draws({name, *known.of})
        (fine,) = (d for _, d in asking.distributions(name, known, CELLS))
        (coarse,) = (d for _, d in asking.distributions(name, known, LINES))
        columns = _lines_of(column, coarse.support.words, coarse.p[0], coarse.error[0])
        order = order_of(column)
        if column.levels:
            at = np.array(order or np.argsort(-coarse.p[0], kind="stable"))
            columns = {key: values[at] for key, values in columns.items()}
        facts, brief = ([], None) if column.levels else (_facts(fine), histogram.brief(name, fine, BRIEF))
        title = f"{name} given {words(known) or 'nothing'}"

        def picture() -> Any:
            from mpibayes.hpc.query.figures import distribution

            return distribution(title, coarse if column.levels else fine, asking.averages.n_draws, facts)

        remarks = few(coarse.effective, asking)
        below = {} if column.levels else {"the distribution": fine.support.below_zero(fine.p[0])}
        never = NeverThere(asking)
        never.look([name], known)
        remarks = [f"{remarks[0]} ({coarse.effective[0]:.0f})", *remarks[1:], *tails(below, "values"), *never.remarks()]
        remarks += carried.given(asking, name, list(known.of))
        remarks += on_root(asking.comm, lambda: weighted_apart(asking, column, known, coarse.p[0]))
        shown = max(BRIEF, min(len(order), LEVELS))
        return Answer(
            title, columns, remarks, bars="p", shown=shown, brief=brief and _lines_of(column, *brief), picture=picture,
            facts=facts,
        )  # fmt: skip


def _lines_of(column: Column, words: Any, p: np.ndarray, error: np.ndarray) -> dict[str, np.ndarray]:
    """Lines of a table; lines that read alike (an atom, and the interval recorded as it) are merged. Times to an event
    have the probability of a later event, too."""
    name, words = column.name, np.array(words, object)
    if column.kind == "survival":
        return {name: words, "p": p, "p_error": error, "beyond": np.append(np.cumsum(p[::-1])[::-1][1:], 0.0)}
    seen, of = np.unique(words.astype(str), return_inverse=True)
    if len(seen) == len(words):
        return {name: words, "p": p, "p_error": error}
    first = np.sort(np.unique(of, return_index=True)[1])
    total = np.bincount(of, p)
    spread = np.sqrt(np.bincount(of, error**2))
    return {name: words[first], "p": total[of[first]], "p_error": spread[of[first]]}


def _facts(d: Distributions) -> list[tuple[str, str]]:
    """Mean with its error, and standard deviation, from the cells' middles if they are defined; median and
    intervals."""
    column, x = d.support.column, d.support.values()
    facts = [("median", _value(d, 0.5)), ("50 %", _span(d, 0.25)), ("90 %", _span(d, 0.05)), ("95 %", _span(d, 0.025))]
    if column.log or column.kind == "survival":  # the mean depends on values far beyond the data
        return facts
    mean, error = (float(a[0, 0]) for a in d.sums.result(x[:, None]))
    sd = float(np.sqrt((d.p[0] * (x - mean) ** 2).sum()))
    if column.unit:
        return [("mean", around(mean, sd, column.unit, column.resolution)), *facts]
    digits = 2 if not error > 0.0 else max(0, 1 - int(np.floor(np.log10(error))))
    return [("mean", f"{mean:,.{min(digits, 9)}f} (error {number(error)})"), ("sd", f"{sd:.3g}"), *facts]


def _value(d: Distributions, share: float) -> str:
    return rounded(d.support.column, float(d.support.quantile(d.p, share)[0]))


def _span(d: Distributions, outside: float) -> str:
    return f"{_value(d, outside)} to {_value(d, 1.0 - outside)}"


def _of_rows(asking: Asking, column: Column, given: Sequence[Item], rows: NewRows) -> Answer:
    """One line per row: the most probable level and probabilities, or quantiles and the probabilities of atoms."""
    name, parts, never = column.name, [], NeverThere(asking)
    for batch in rows.batches():
        if given:
            known = described(asking, given, "--given", batch)
            apart([name], known)
        else:
            known = asking.known(batch.rows, [n for n in batch.there(asking) if n != name])
        title = f"{name} given {words(known) or 'nothing'}"
        known = known.repeat(len(batch.rows))
        never.look([name], known)
        parts += asking.of_distributions(name, known, CELLS, lambda _, d: _lines(column, d))
    columns = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    columns = {"row": np.arange(1, len(columns["draws"]) + 1), **columns}
    remarks = [*rows.notes, *few(columns["draws"], asking), *never.remarks(len(columns["draws"]))]
    return Answer(title, columns, remarks)


def _lines(column: Column, d: Distributions) -> dict[str, np.ndarray]:
    if column.levels:
        best = d.p.argmax(axis=1)
        at = np.arange(len(best)), best
        columns = {
            column.name: values(column, np.where(np.isnan(d.p[at]), np.nan, best)),
            "p": d.p[at],
            "p_error": d.error[at],
        }
        if len(column.levels) <= LEVELS:
            columns |= {f"p_{level}": d.p[:, v] for v, level in enumerate(column.levels)}
        return {**columns, "draws": d.effective}
    columns = {f"q{round(100 * q):02d}": values(column, d.support.quantile(d.p, q)) for q in SHARES}
    e = d.support.events
    columns |= {f"p_{written(column, column.atoms[code])}": d.p[:, u] for u, code in enumerate(e.codes) if code >= 0}
    return {**columns, "draws": d.effective}


def values(column: Column, x: np.ndarray) -> np.ndarray:
    """Format recorded values for a column of an answer: levels and dates as text."""
    if column.levels or column.unit:
        return np.array([None if np.isnan(v) else written(column, v) for v in np.asarray(x, float)], object)
    return x.astype(float)


# --- missing cells ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Impute(RowsQuestion):
    """Each missing cell of the columns `of`, all by default, given the other cells of its row."""

    of: Sequence[str] = ()
    KNOWS_OUTCOME = True

    def answer_rows(self, asking: Asking, rows: NewRows) -> Answer:
        names, parts, n = asking.conditions.names(self.of) or asking.answerable, [], 0
        never = NeverThere(asking)
        for batch in rows.batches():
            known = asking.known(batch.rows)
            asking.draws(known.of)
            for column in asking.named(names):
                blank = np.flatnonzero(column.is_missing(getattr(batch.rows, column.block)[:, column.index]))
                never.look([column.name], known, blank)
                given = known.without([column.name]).take(blank)
                made = partial(_cells_of, column, n + blank)
                parts += asking.of_distributions(column.name, given, CELLS, made)
            n += len(batch.rows)
        title = f"Missing cells of {rows.path.name}"
        if not parts:
            nothing = _cells(asking.named(names)[0], np.zeros(0, np.intp), None)
            remark = f"none of {counted(n, 'row')} lacks a cell of {', '.join(names[:6])}"
            return Answer(title, nothing, [*rows.notes, remark])
        columns = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        order = np.lexsort((np.arange(len(columns["row"])), columns["row"]))
        columns = {key: a[order] for key, a in columns.items()}
        remarks = [
            f"{counted(len(order), 'cell')} of {counted(n, 'row')}; p: of the level, or of a value that is an atom; "
            f"low, high: {LOW:.0%} and {HIGH:.0%} of a number, whose value is the median",
            "averages over draws are predictions; to analyse a table with gaps, draw copies: mpibayes complete",
            *rows.notes,
            *few(columns["draws"], asking),
            *tails(_low(asking, columns), "intervals that begin"),
            *never.remarks(n),
        ]
        return Answer(title, columns, remarks)


def _low(asking: Asking, columns: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Share of imputed cells whose interval begins below 0, for each column that is never negative in the table."""
    shares = {}
    for column in asking.columns:
        if never_negative(column) and (here := columns["column"] == column.name).any():
            shares[column.name] = float(np.mean([low.startswith("-") for low in columns["low"][here]]))
    return shares


def _cells_of(column: Column, rows: np.ndarray, at: slice, d: Distributions) -> dict[str, np.ndarray]:
    return _cells(column, rows[at], d)


def _cells(column: Column, rows: np.ndarray, d: Distributions | None) -> dict[str, np.ndarray]:
    """Output columns for a column's missing cells in `rows`; d: their distributions, None if there are none."""
    if d is not None and np.isnan(d.p[:, 0]).any():
        there = ~np.isnan(d.p[:, 0])
        rows, d = rows[there], replace(d, p=d.p[there], error=d.error[there], effective=d.effective[there])
    n, at, nothing = len(rows), np.arange(len(rows)), np.full(len(rows), np.nan)
    if d is None:
        value = p = error = low = high = nothing
    elif column.levels:
        best = d.p.argmax(axis=1)
        value, p, error, low, high = best.astype(float), d.p[at, best], d.error[at, best], nothing, nothing
    else:
        value, low, high = (d.support.quantile(d.p, q) for q in (0.5, LOW, HIGH))
        p, error = _of_atom(d.support, d, value)
    text = [written(column, v) for v in value]
    return {
        "row": rows + 1,
        "column": np.full(n, column.name, object),
        "value": np.array(text, object),
        "p": p,
        "p_error": error,
        "low": _texts(column, low),
        "high": _texts(column, high),
        "draws": nothing if d is None else d.effective,
    }


def _of_atom(support: Support, d: Distributions, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Probability of each value and its error, if the value is an atom; otherwise NaN."""
    p, error = np.full(len(value), np.nan), np.full(len(value), np.nan)
    for u, code in enumerate(support.events.codes):
        if code >= 0:
            here = value == support.column.atoms[code]
            p[here], error[here] = d.p[here, u], d.error[here, u]
    return p, error


def _texts(column: Column, x: np.ndarray) -> np.ndarray:
    return np.array([None if np.isnan(v) else written(column, v) for v in x], object)
