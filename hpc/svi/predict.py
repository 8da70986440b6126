"""Predictions of variational inference for new rows, under the best chain's last state: log density, component, missing
cells.

Columns written:

    row           number in the new file, from 1
    log_density   of the observed cells
    cluster       the most probable component, numbered as in the report; p_cluster: its probability
    --probabilities: p_<k> of each component
    --impute: imputed_<name>, imputed_<name>_sd, mean and standard deviation of missing cells, else empty
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibayes.hpc.family import Predictions, Request
from mpibayes.hpc.posterior.forecast import RowForecast, filled, imputed
from mpibayes.hpc.svi.draws import Posterior
from mpibayes.io.rows import Rows
from mpibayes.text import counted


class Forecast(RowForecast):
    """See `hpc.family.Forecast`."""

    def __init__(self, run: Posterior, request: Request):
        self._best = run.best()
        super().__init__(run, request)

    def prepare(self) -> str:
        self._law = self._run.law(self._best)
        components = counted(len(self._law.students.weight), "component")
        return f"an approximation of {components}: {self._run.place(self._best)}"

    def __call__(self, rows: Rows, first_row: int) -> Predictions:
        cells, asked, n = self._run.cells, self._request, len(rows)
        density, p = self._law.members(rows)
        beside = {"cluster": p.argmax(axis=1) + 1, "p_cluster": p.max(axis=1)}
        columns: dict[str, Any] = {"row": np.arange(first_row + 1, first_row + n + 1), "log_density": density, **beside}
        if asked.probabilities:
            columns |= {f"p_{k + 1}": p[:, k] for k in range(p.shape[1])}
        if not (asked.impute or asked.complete):
            return Predictions(columns, density, {}, {})
        x = cells.of(rows)
        missing, (mean, sd) = np.isnan(x), self._law.students.moments(x)
        if asked.impute:
            columns |= imputed(cells, missing, mean, sd)
        if not asked.complete:
            return Predictions(columns, density, {}, {})
        return Predictions(columns, density, filled(cells, rows, missing, mean), beside)
