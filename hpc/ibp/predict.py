"""Predictions of an Indian buffet process for new rows: log density, features and missing cells.

Averages over kept draws d weigh them as the posterior does once a row x is known, by p_d(x). Features are those of the
representative draw, as in the report; in another draw they are its features that match (`matching.py`).

Columns written:

    row           number in the new file, from 1
    log_density   log of mean_d p_d(x) of the observed cells; log_density_sd: of log p_d(x) over draws
    features      numbers of the features that it has with probability above 1/2, "1 3", or "-" for none
    n_features    mean number of features, those without a match too
    --probabilities: p_<k> of each feature, and fitted_<name>, the mean of each cell had it not been seen
    --impute: imputed_<name>, imputed_<name>_sd, mean and standard deviation of missing cells, else empty
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibayes.hpc.family import Predictions, Request
from mpibayes.hpc.ibp.draws import Posterior
from mpibayes.hpc.ibp.features import ENUMERATED
from mpibayes.hpc.ibp.law import Law
from mpibayes.hpc.ibp.matching import match, representative
from mpibayes.hpc.posterior.asked import require_likelihood
from mpibayes.hpc.posterior.chains import evenly
from mpibayes.hpc.posterior.forecast import RowForecast, filled, imputed
from mpibayes.io.rows import Rows
from mpibayes.text import counted

DRAWS = 50


class Forecast(RowForecast):
    """See `hpc.family.Forecast`."""

    def __init__(self, run: Posterior, request: Request):
        require_likelihood(run, "new rows")
        run.read_traces()  # also finds the burn-in
        self.kept = run.require_kept()
        super().__init__(run, request)

    def prepare(self) -> str:
        run, keys = self._run, evenly(self.kept, self._request.draws or DRAWS)
        reference = representative(run, self.kept)
        self._k = len(reference.draw)
        self._of = []  # each draw with the indices of its features that match the representative ones, -1 for none
        for _, draw in run.states(keys):
            self._of.append((Law(run.cells, draw.new_row()), match(reference.draw, draw).place))
        self.n_draws = len(self._of)
        many = max(len(draw.features.probability) for draw, _ in self._of)
        words = f"{self.n_draws} of {counted(len(self.kept), 'kept draw')}, {counted(self._k, 'feature')} "
        words += f"(cycle {reference.draw.cycle})"
        if many > ENUMERATED:
            words += f"; up to {many} features in a draw: densities are sums near the best combination, from below"
        return words

    def __call__(self, rows: Rows, first_row: int) -> Predictions:
        n, d, k = len(rows), len(self._run.cells), self._k
        asked = self._request
        cells = asked.probabilities or asked.impute or asked.complete
        total, logs = np.full(n, -np.inf), np.empty((self.n_draws, n))
        p, count = np.zeros((n, k)), np.zeros(n)
        mean, square = np.zeros((n, d)), np.zeros((n, d))
        for s, (draw, place) in enumerate(self._of):
            predicted = draw.moments(rows) if cells else draw.members(rows)
            logs[s], features = predicted[0], predicted[1]
            new = np.logaddexp(total, logs[s])
            old, now = np.exp(total - new), np.exp(logs[s] - new)  # weights of the previous draws, and of this one
            total = new
            matched = np.where(place >= 0, features[:, place], 0.0) if features.shape[1] else np.zeros((n, k))
            p = old[:, None] * p + now[:, None] * matched
            count = old * count + now * features.sum(axis=1)
            if cells:
                mean = old[:, None] * mean + now[:, None] * predicted[2]
                square = old[:, None] * square + now[:, None] * predicted[3]
        density = total - np.log(self.n_draws)
        sd = np.sqrt(np.maximum(square - mean**2, 0.0))
        missing = np.isnan(self._run.cells.of(rows))
        columns = self._columns(missing, first_row, density, logs, p, count, mean, sd)
        if not asked.complete:
            return Predictions(columns, density, {}, {})
        return Predictions(columns, density, filled(self._run.cells, rows, missing, mean), {"n_features": count})

    def _columns(self, missing, first_row, density, logs, p, count, mean, sd) -> dict[str, Any]:
        cells, n = self._run.cells, len(missing)
        names = [" ".join(str(k + 1) for k in np.flatnonzero(row > 0.5)) or "-" for row in p]
        columns: dict[str, Any] = {
            "row": np.arange(first_row + 1, first_row + n + 1),
            "log_density": density,
            "log_density_sd": logs.std(axis=0, ddof=1) if self.n_draws > 1 else np.zeros(n),
            "features": names,
            "n_features": count,
        }
        if self._request.probabilities:
            columns |= {f"p_{k + 1}": p[:, k] for k in range(self._k)}
            columns |= {f"fitted_{c.name}": cells.in_units(d, mean[:, d]) for d, c in enumerate(cells.columns)}
        if self._request.impute:
            columns |= imputed(cells, missing, mean, sd)
        return columns
