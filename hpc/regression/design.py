"""Map from the columns of a table to the matrix of predictors and the response.

A numeric column is one predictor, standardised by the mean and standard deviation of the whole table if settings say
so, hence the same for training, held-out and new rows. A categorical or boolean column is a 0/1 predictor for every
level but the first. Under missing = "indicator" a column with missing cells adds a 0/1 predictor for missing, and its
other predictors then take the column's mean or first level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.errors import DataError
from mpibayes.hpc.regression.likelihoods import LIKELIHOODS
from mpibayes.hpc.regression.likelihoods.likelihood import LANES, NUMERIC, Likelihood
from mpibayes.hpc.regression.settings import Settings
from mpibayes.io.rows import Column, Rows
from mpibayes.text import counted

INTERCEPT = "(intercept)"
MAX_PARAMETERS = 4096  # the covariance of the coefficients is dense: 128 MiB, and half a minute per factorisation
SHOWN = 5  # most items of a kind listed one by one


@dataclass(frozen=True)
class Term:
    """One column of the table and the position of its predictors: `first`, then n_levels - 1 or 1, then the
    indicator."""

    column: Column
    first: int
    indicator: bool

    @property
    def numeric(self) -> bool:
        return self.column.kind in NUMERIC

    @property
    def width(self) -> int:
        """Number of predictors, including the indicator."""
        return (1 if self.numeric else len(self.column.levels) - 1) + self.indicator

    @property
    def names(self) -> list[str]:
        name = self.column.name
        names = [name] if self.numeric else [f"{name}[{level}]" for level in self.column.levels[1:]]
        return [*names, f"{name}[missing]"] if self.indicator else names

    @property
    def references(self) -> list[str]:
        """Reference level of each predictor; "" if it has none."""
        levels = [""] if self.numeric else [self.column.levels[0]] * (len(self.column.levels) - 1)
        return levels + [""] * self.indicator


@dataclass
class Built:
    """Rows converted for the regression.

    x (n, W) float32, zeros beyond the D predictors. y (n,) float64: the response as its likelihood encodes it, NaN if
    not requested. kept: positions (n,) int64 of these rows among the rows given, None = all of them.
    """

    x: np.ndarray
    y: np.ndarray
    kept: np.ndarray | None


@dataclass(frozen=True)
class Design:
    """Map from rows of one table to predictors and a response.

    likelihood: its class. center, scale: y = (encoded response - center) / scale; 0 and 1 unless standardised.
    """

    likelihood: type[Likelihood]
    response_column: Column
    terms: tuple[Term, ...]
    intercept: bool
    standardise: bool
    missing: str

    @classmethod
    def of(cls, settings: Settings, columns: Sequence[Column]) -> Design:
        """Build the design from a table's used columns, which include those named in the settings
        (`rules.against_table`).

        Raises DataError with every problem visible in the column headers.
        """
        by_name = {c.name: c for c in columns}
        problems, likelihood = [], LIKELIHOODS[settings.likelihood]
        response = by_name[settings.response]
        names = settings.predictors
        if names is None:
            names = tuple(name for name in by_name if name != settings.response)
        predictors = [by_name[name] for name in names]
        if not predictors and not settings.intercept:
            problems.append("no predictors and no intercept: there is nothing to estimate")
        for column in predictors:
            problems += _predictor_problems(column)
        if settings.missing == "error":
            problems += _missing_problems([response, *predictors])
        terms, first = [], int(settings.intercept)
        for column in predictors:
            terms.append(Term(column, first, settings.missing == "indicator" and column.n_missing > 0))
            first += terms[-1].width
        n_classes = likelihood.n_classes_of(response.levels)
        if first * n_classes > MAX_PARAMETERS:
            problems.append(_too_many(first, n_classes, terms))
        if problems:
            raise DataError("the table does not fit the regression", problems)
        return cls(likelihood, response, tuple(terms), settings.intercept, settings.standardise, settings.missing)

    @property
    def names(self) -> list[str]:
        """Names of the D predictors."""
        return [INTERCEPT] * self.intercept + [name for term in self.terms for name in term.names]

    @property
    def references(self) -> list[str]:
        """Reference level of each of the D predictors; "" if it has none."""
        return [""] * self.intercept + [level for term in self.terms for level in term.references]

    @property
    def reference_levels(self) -> dict[str, str]:
        """Level without a predictor, by categorical column."""
        return {t.column.name: t.column.levels[0] for t in self.terms if not t.numeric}

    @property
    def reference_class(self) -> str | None:
        """Class that the others are compared with; None if all classes have coefficients, or there are no classes."""
        return self.classes[0] if self.likelihood.odds else None

    @property
    def intercepts(self) -> np.ndarray:
        """Mask of the intercepts among the coefficients, (P,) bool."""
        return np.arange(self.n_parameters) % self.n_predictors < int(self.intercept)

    @property
    def n_predictors(self) -> int:
        return self.intercept + sum(term.width for term in self.terms)

    @property
    def width(self) -> int:
        """Numbers in a row of x, W."""
        return -(-self.n_predictors // LANES) * LANES

    @property
    def response(self) -> str:
        return self.response_column.name

    @property
    def classes(self) -> tuple[str, ...]:
        """Levels of the response, () for a real one; logistic: the second level is y = 1."""
        return tuple(self.response_column.levels)

    @property
    def n_classes(self) -> int:
        """Number of rows of coefficients, K."""
        return self.likelihood.n_classes_of(self.classes)

    @property
    def n_parameters(self) -> int:
        return self.n_classes * self.n_predictors

    @property
    def standardised_response(self) -> bool:
        """True if y is in standard deviations of the response about its mean."""
        return self.standardise and self.likelihood.has_scale

    @property
    def center(self) -> float:
        return self.response_column.center if self.standardised_response else 0.0

    @property
    def scale(self) -> float:
        return self.response_column.scale if self.standardised_response else 1.0

    def build(self, rows: Rows, first_row: int | np.ndarray = 0, response: bool = True) -> Built:
        """Build predictors and response of `rows`, numbered in their table from `first_row`, or by an array, from 0.

        response: False for new rows, whose response may be missing. Raises DataError for missing and infinite cells, by
        column, with the first row (counted from 1, as in the messages of the import).
        """
        n = len(rows)
        x = np.zeros((n, self.width), np.float32)
        if self.intercept:
            x[:, 0] = 1.0
        y, dropped = self.response_of(rows) if response else (np.full(n, np.nan), np.zeros(n, bool))
        missing, infinite = [], _cells(np.isinf(y), self.response, "infinite or too large value", first_row)
        if self.missing == "error":
            missing = _cells(dropped, self.response, "missing cell", first_row)
        for term in self.terms:
            empty = blank_cells(rows, term.column)
            self._fill(x, term, _cells_of(rows, term.column), empty)
            if self.missing == "drop":
                dropped |= empty
            elif not term.indicator:
                missing += _cells(empty, term.column.name, "missing cell", first_row)
            if term.numeric:
                bad = ~np.isfinite(x[:, term.first])
                infinite += _cells(bad, term.column.name, "infinite or too large value", first_row)
        if missing or infinite:
            raise DataError("rows that the regression cannot use", [*missing, *infinite, *self._advice(missing)])
        if not dropped.any():
            return Built(x, y, None)
        kept = np.flatnonzero(~dropped)
        return Built(x[kept], y[kept], kept)

    def _advice(self, missing: list[str]) -> list[str]:
        if not missing:
            return ["fix these cells, or leave the columns out"]
        if self.missing == "indicator":
            return ["these columns had no missing cells in the table of the run: fill the cells, or leave the rows out"]
        return ['fill the missing cells, set missing = "drop" or "indicator", or leave the columns out']

    def response_of(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Return y, and the mask of rows without a response."""
        cells, blank = _cells_of(rows, self.response_column), blank_cells(rows, self.response_column)
        return np.where(blank, 0.0, (self.likelihood.encode(cells) - self.center) / self.scale), blank

    def recorded(self, y: np.ndarray) -> np.ndarray:
        """Convert responses y (m,) to the table's form: level codes, or numbers."""
        return self.likelihood.decode(self.center + self.scale * y)

    def _fill(self, x: np.ndarray, term: Term, cells: np.ndarray, empty: np.ndarray) -> None:
        """Write a term's predictors into x. empty: mask of the missing cells."""
        column = term.column
        if term.numeric:
            value = np.where(empty, column.center, cells)
            with np.errstate(over="ignore", invalid="ignore"):  # checked afterwards
                x[:, term.first] = (value - column.center) / column.scale if self.standardise else value
        else:
            row = np.flatnonzero((cells > 0) & ~empty)
            x[row, term.first - 1 + cells[row].astype(np.int64)] = 1.0
        if term.indicator:
            x[:, term.first + term.width - 1] = empty


def blank_cells(rows: Rows, column: Column) -> np.ndarray:
    """Mask of the missing cells of a column, (n,) bool."""
    cells = _cells_of(rows, column)
    return column.is_missing(cells)


def _cells_of(rows: Rows, column: Column) -> np.ndarray:
    return getattr(rows, column.block)[:, column.index]


def _predictor_problems(column: Column) -> list[str]:
    constant = column.minimum == column.maximum if column.kind in NUMERIC else len(column.levels) < 2
    if not constant:
        return []
    value = f"{column.minimum:g}" if column.kind in NUMERIC else repr("".join(column.levels))
    return [f"predictor '{column.name}' is constant ({value}); leave it out"]


def _missing_problems(columns: Sequence[Column]) -> list[str]:
    blank = [c for c in columns if c.n_missing]
    if not blank:
        return []
    each = ", ".join(f"'{c.name}': {c.n_missing:,}" for c in blank[: 4 * SHOWN])
    more = f" and {counted(len(blank) - 4 * SHOWN, 'more column')}" if len(blank) > 4 * SHOWN else ""
    return [f'missing cells ({each}{more}); set missing = "drop" or "indicator", or leave these columns out']


def _too_many(n_predictors: int, n_classes: int, terms: Sequence[Term]) -> str:
    widest = sorted(terms, key=lambda t: -t.width)[:SHOWN]
    each = ", ".join(f"'{t.column.name}': {t.width:,}" for t in widest)
    classes = f" for each of {n_classes:,} classes" if n_classes > 1 else ""
    return (
        f"{n_predictors:,} predictors{classes}; at most {MAX_PARAMETERS:,} coefficients in all are possible, since "
        f"their covariance is dense. Most predictors come from {each}: leave some out"
    )


def _cells(where: np.ndarray, column: str, what: str, first_row: int | np.ndarray) -> list[str]:
    n = int(where.sum())
    if not n:
        return []
    place = int(np.argmax(where))
    row = 1 + int(first_row + place if np.ndim(first_row) == 0 else first_row[place])
    return [f"'{column}': {n:,} {what}{'s' * (n > 1)}, the first in row {row:,}"]
