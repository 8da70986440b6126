"""Survey weights: a column of the source says how much of a population each row of a sample represents. They are kept
beside the rows of the table, not as a column: a fit uses the rows as they are, and answers may be weighted."""

from __future__ import annotations

import numpy as np

from mpibayes.errors import ConfigError, DataError
from mpibayes.io.cells import Batch, Place
from mpibayes.io.encode import parse
from mpibayes.io.forms import Form
from mpibayes.io.infer import KEY_NAME
from mpibayes.io.rows import MAX_REAL
from mpibayes.io.source import TextSource
from mpibayes.text import counted

REASON = "weight of each row, kept for answers about the population"
FEW = 3  # with so few rows, weights 1, 2, 3 need not be row numbers


class SurveyWeights:
    """Weights in a column of a source, read batch by batch. Raises ConfigError if there is no such column, or if the
    rows of the source represent several (`repeated`)."""

    def __init__(self, source: TextSource, name: str):
        self.name, self._source, self.at = name, source, source.position_of("weight", name)
        self.form: Form | None = None
        self.n_rows = self.n_zero = 0
        self._low, self._high, self._whole, self._counts_rows = np.inf, -np.inf, True, True
        self._total = self._squares = self._last = 0.0
        if source.count == name:
            raise ConfigError(f"column '{name}': counts equal rows, or is the weight of each; name it once")
        if source.count is not None:
            raise ConfigError(
                f"count and weight: a row that stands for many ('{source.count}') has no weight of its own ('{name}'); "
                "name one of them, or write the cases out, each with its weight"
            )

    def of(self, batch: Batch) -> np.ndarray:
        """Weights of the rows of a batch, (n,) float64. Raises DataError for the first invalid one, with its row."""
        cells = batch.columns[self.at]
        values, _ = parse("real", None, cells.texts, np.zeros(len(cells.texts), bool), self.form)
        weights = values[cells.codes]
        wrong = ~((weights >= 0.0) & (weights <= MAX_REAL))
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            (where,) = self._source.describe([Place(batch.path, batch.row(first))])
            text = cells.texts[int(cells.codes[first])].as_py()
            raise DataError(
                f"{where}, column '{self.name}': found {text[:60]!r}, expected the weight of the row, a number from 0 "
                "on; leave out rows without a weight, or give those that stand for nobody a weight of 0"
            )
        return weights

    def look(self, batch: Batch) -> None:
        """Update the statistics with the weights of a batch; see `of`."""
        weights = self.of(batch)
        if not len(weights):
            return
        steps = np.diff(weights, prepend=self._last if self.n_rows else weights[0] - 1.0)
        self._counts_rows &= bool((steps == 1.0).all())
        self._whole &= bool((weights == np.floor(weights)).all())
        self._low, self._high = min(self._low, float(weights.min())), max(self._high, float(weights.max()))
        self._total, self._squares = self._total + float(weights.sum()), self._squares + float((weights**2).sum())
        self._last, self.n_rows = float(weights[-1]), self.n_rows + len(weights)
        self.n_zero += int((weights == 0.0).sum())

    def require(self) -> None:
        """Raise DataError if the column, once read, proves not to hold weights."""
        path, name = self._source.paths[0], self.name
        if self._high == 0.0:
            raise DataError(f"{path}: column '{name}': all weights are 0; expected some rows that stand for somebody")
        counts_rows = self._counts_rows and self.n_rows > FEW
        if self._whole and (counts_rows or (KEY_NAME.search(name) and self._low < self._high)):
            why = "counts the rows" if counts_rows else "is called an identifier, and has whole numbers"
            raise DataError(f"{path}: column '{name}': {why}; expected the weight of each row, as of a survey")

    def notes(self) -> list[str]:
        """Notes for the user on the weights read."""
        name, n = self.name, self.n_rows
        if self._low == self._high:
            return [f"column '{name}': all weights are {self._low:.6g}: weighted answers are those of the rows"]
        kish = self._total**2 / self._squares
        notes = [
            f"column '{name}': weights from {self._low:.6g} to {self._high:.6g}, mean {self._total / n:.6g}; for "
            f"shares of the population the {n:,} rows are worth about {kish:,.0f} of equal weight. The model is fitted "
            "to the rows as they are"
        ]
        if self.n_zero:
            notes.append(f"column '{name}': {counted(self.n_zero, 'row')} of weight 0: fitted, but stand for nobody")
        return notes
