"""Predictions of a regression for new rows, averaged over draws of its coefficients.

Columns written, empty if a row cannot be predicted (missing predictors under missing = "drop"):

    row          number in the new file, from 1
    logistic, softmax
      class, probability   the most probable class, and its probability
      p_<class>  probability; p_<class>_q05, p_<class>_q95: its 5 and 95 % quantiles over the draws. logistic: for
                 the second class alone
    student-t
      mean, sd   of the predictive distribution, in the table's units (sd: infinite up to 2 degrees of freedom)
      q05, q50, q95   its quantiles
    log_density  log predictive density of the response, if the file has it
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mpibayes.hpc.data.rows import used_columns
from mpibayes.hpc.family import Predictions, Request
from mpibayes.hpc.posterior.forecast import OF_TYPED, RowForecast
from mpibayes.hpc.regression.design import Design
from mpibayes.hpc.regression.draws import Posterior
from mpibayes.hpc.regression.law import Average
from mpibayes.io.recode import lacking_columns
from mpibayes.io.recording import recorded
from mpibayes.io.rows import Rows
from mpibayes.text import counted

DRAWS = 200


PREDICTED = (
    "--probabilities and --impute are for runs of mixtures; a regression always writes class probabilities, or the "
    "distribution of the response, and --complete fills that in"
)


class Forecast(RowForecast):
    """See `hpc.family.Forecast`."""

    cannot = OF_TYPED | dict.fromkeys(("probabilities", "impute"), PREDICTED)

    def __init__(self, run: Posterior, request: Request):
        super().__init__(run, request)
        run.read_traces()
        run.require_draws()
        self._average = Average.of(run.draws(request.draws or DRAWS))
        self.n_draws, self.batch = len(self._average.theta), self._average.batch
        self._n_kept = run.n_draws
        self._design, columns = needed(run.design, run.data.columns)
        self.like = run.table.having(columns)
        response = self._design.response
        # without predictors no row is usable, unless missing cells have a coefficient
        self.may_lack = {response, *(t.column.name for t in self._design.terms if t.indicator)}
        self._scored = response not in lacking_columns(self.like, request.source, self.may_lack)

    def prepare(self) -> str:
        words = f"{self.n_draws} of {self._n_kept:,} draws of {counted(self._design.n_parameters, 'coefficient')}"
        return words if self._scored else f"{words}; without {self._design.response} nothing is scored"

    def __call__(self, rows: Rows, first_row: int) -> Predictions:
        import pyarrow as pa

        n, design = len(rows), self._design
        built = design.build(rows, first_row, response=False)
        places = np.arange(n) if built.kept is None else built.kept
        eta = self._average.linear(built.x)
        columns = {"row": pa.array(np.arange(first_row + 1, first_row + n + 1))}
        predictions = self._average.likelihood.predictions(eta, design.classes, design.center, design.scale)
        columns |= {name: _spread(values, places, n) for name, values in predictions.items()}
        log_density = np.zeros(0)
        y, blank = design.response_of(rows)
        if self._scored:
            seen = ~blank[places]
            log_density = self._average.log_density(eta[seen], y[places[seen]]) - np.log(design.scale)
            columns["log_density"] = _spread(log_density, places[seen], n)
        at = np.flatnonzero(blank[places])
        value, spread, name = self._filled({name: values[at] for name, values in _arrays(predictions).items()})
        beside = np.full(n, np.nan)
        beside[places[at]] = spread
        return Predictions(columns, log_density, {design.response: (places[at], value)}, {name: beside})

    def _filled(self, predictions: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, str]:
        """Return the filled-in response: values, a measure of their certainty, and the name of that measure."""
        column = self._design.response_column
        if "class" in predictions:
            number = {level: i for i, level in enumerate(column.levels)}
            codes = np.array([number[level] for level in predictions["class"]], np.int64)
            return codes, predictions["probability"], f"{column.name}_p"
        value = recorded(replace(column, atoms=(), log=False), None, predictions["mean"])
        value = np.maximum(np.round(value), 0.0) if column.kind == "count" else value
        return value, predictions["sd"], f"{column.name}_sd"


def _arrays(predictions: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.asarray(values) for name, values in predictions.items()}


def needed(design: Design, columns) -> tuple[Design, tuple]:
    """Restrict the design to the columns read from the new file: its predictors and the response."""
    names = {t.column.name for t in design.terms} | {design.response}
    kept, _ = used_columns(columns, [c.name for c in columns if c.name not in names])
    placed = {c.name: c for c in kept}
    terms = tuple(replace(t, column=placed[t.column.name]) for t in design.terms)
    return replace(design, terms=terms, response_column=placed[design.response]), kept


def _spread(values: Any, places: np.ndarray, n: int) -> Any:
    """Return a column of n cells with the given values at `places` and other cells empty."""
    import pyarrow as pa

    values = values if isinstance(values, pa.Array) else pa.array(values)
    if len(places) == n:
        return values
    index = np.zeros(n, np.int64)
    index[places] = np.arange(len(places))
    blank = np.ones(n, bool)
    blank[places] = False
    return values.take(pa.array(index, mask=blank))
