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

from pathlib import Path
from typing import Any

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.family import Predictions
from mpibayes.hpc.ibp.draws import Posterior
from mpibayes.hpc.ibp.matching import match, representative
from mpibayes.hpc.ibp.predictive import ENUMERATED, Predictive
from mpibayes.hpc.posterior.chains import evenly
from mpibayes.io.rows import Rows
from mpibayes.text import counted

DRAWS = 50
BATCH = 4096


class Forecast:
    """See `hpc.family.Forecast`."""

    def __init__(
        self, run: Posterior, source: Path, draws: int | None, probabilities: bool, impute: bool, complete: bool,
        groups: int | None = None,
    ):  # fmt: skip
        run.refuse_groups(groups)
        folder = run.chains[0].home
        if not run.likelihood:
            raise ConfigError(
                f"{folder}: sampled the prior (model.likelihood = false), which says nothing about new rows"
            )
        run.read_traces()  # which also tell what belongs to the burn-in
        self.kept = run.require_kept()
        self._run, self._draws = run, draws or DRAWS
        self._probabilities, self._impute, self._complete = probabilities, impute, complete
        table = run.table
        self.like = table.having(run.data.stored)
        self.may_lack = {c.name for c in self.like.columns}
        self.batch = BATCH

    def prepare(self) -> str:
        run, keys = self._run, evenly(self.kept, self._draws)
        reference = representative(run, self.kept)
        self._k = len(reference.draw)
        self._of = []  # each draw, and the places of its features that match the representative ones, -1 for none
        for _, draw in run.states(keys):
            self._of.append((Predictive(run.cells, draw.law()), match(reference.draw, draw).place))
        self.n_draws = len(self._of)
        many = max(len(draw.law.probability) for draw, _ in self._of)
        words = f"{self.n_draws} of {counted(len(self.kept), 'kept draw')}, {counted(self._k, 'feature')} "
        words += f"(cycle {reference.draw.cycle})"
        if many > ENUMERATED:
            words += f"; up to {many} features in a draw: densities are sums near the best combination, from below"
        return words

    def __call__(self, rows: Rows, first_row: int) -> Predictions:
        n, d, k = len(rows), len(self._run.cells), self._k
        cells = self._probabilities or self._impute or self._complete
        total, logs = np.full(n, -np.inf), np.empty((self.n_draws, n))
        p, count = np.zeros((n, k)), np.zeros(n)
        mean, square = np.zeros((n, d)), np.zeros((n, d))
        for s, (draw, place) in enumerate(self._of):
            predicted = draw.moments(rows) if cells else draw.features(rows)
            logs[s], features = predicted[0], predicted[1]
            new = np.logaddexp(total, logs[s])
            old, now = np.exp(total - new), np.exp(logs[s] - new)  # shares of the draws so far, and of this one
            total = new
            matched = np.where(place >= 0, features[:, place], 0.0) if features.shape[1] else np.zeros((n, k))
            p = old[:, None] * p + now[:, None] * matched
            count = old * count + now * features.sum(axis=1)
            if cells:
                mean = old[:, None] * mean + now[:, None] * predicted[2]
                square = old[:, None] * square + now[:, None] * predicted[3]
        density = total - np.log(self.n_draws)
        sd = np.sqrt(np.maximum(square - mean**2, 0.0))
        columns = self._columns(rows, first_row, density, logs, p, count, mean, sd)
        filled, beside = self._filled(rows, mean) if self._complete else {}, {}
        if self._complete:
            beside = {"n_features": count}
        return Predictions(columns, density, filled, beside)

    def _columns(self, rows, first_row, density, logs, p, count, mean, sd) -> dict[str, Any]:
        import pyarrow as pa

        cells, n = self._run.cells, len(rows)
        names = [" ".join(str(k + 1) for k in np.flatnonzero(row > 0.5)) or "-" for row in p]
        columns: dict[str, Any] = {
            "row": np.arange(first_row + 1, first_row + n + 1),
            "log_density": density,
            "log_density_sd": logs.std(axis=0, ddof=1) if self.n_draws > 1 else np.zeros(n),
            "features": names,
            "n_features": count,
        }
        if self._probabilities:
            columns |= {f"p_{k + 1}": p[:, k] for k in range(self._k)}
            columns |= {f"fitted_{c.name}": cells.in_units(d, mean[:, d]) for d, c in enumerate(cells.columns)}
        if self._impute:
            missing = np.isnan(cells.of(rows))
            for d, c in enumerate(cells.columns):
                for name, values in ("", cells.in_units(d, mean[:, d])), ("_sd", sd[:, d] * cells.scale[d]):
                    columns[f"imputed_{c.name}{name}"] = pa.array(values, mask=~missing[:, d])
        return columns

    def _filled(self, rows: Rows, mean: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Missing cells with their means; those of counts are whole numbers."""
        cells, filled = self._run.cells, rows.take(slice(None))
        missing = np.isnan(cells.of(rows))
        by_column = {}
        for d, c in enumerate(cells.columns):
            at = np.flatnonzero(missing[:, d])
            cells.put(filled, d, at, mean[at, d])
            by_column[c.name] = at, getattr(filled, c.block)[at, c.index]
        return by_column
