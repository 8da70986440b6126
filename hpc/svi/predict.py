"""Predictions of variational inference for new rows, under the best chain's last state: log density, component, missing
cells.

Columns written:

    row           number in the new file, from 1
    log_density   of the observed cells
    cluster       the most probable component, numbered as in the report; p_cluster: how probable it is
    --probabilities: p_<k> of each component
    --impute: imputed_<name>, imputed_<name>_sd, mean and standard deviation of missing cells, else empty
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import logsumexp

from mpibayes.hpc.family import Predictions
from mpibayes.hpc.svi.draws import Posterior
from mpibayes.hpc.svi.predictive import responsibilities
from mpibayes.io.rows import Rows
from mpibayes.text import counted

BATCH = 4096


class Forecast:
    """See `hpc.family.Forecast`."""

    def __init__(
        self, run: Posterior, source: Path, draws: int | None, probabilities: bool, impute: bool, complete: bool,
        groups: int | None = None,
    ):  # fmt: skip
        run.refuse_groups(groups)
        self._run, self._best = run, run.best()
        self._probabilities, self._impute, self._complete = probabilities, impute, complete
        table = run.table
        self.like = table.having(run.data.stored)
        self.may_lack = {c.name for c in self.like.columns}
        self.batch, self.n_draws = BATCH, 1

    def prepare(self) -> str:
        self._law, best = self._best.law(), self._best
        words = f"an approximation of {counted(len(self._law.weight), 'component')}: cycle {best.cycle:,} of "
        return words + f"{self._run.chains[best.chain].folder}, bound {best.bound:,.1f}"

    def __call__(self, rows: Rows, first_row: int) -> Predictions:
        import pyarrow as pa

        cells, law, n = self._run.cells, self._law, len(rows)
        x = cells.of(rows)
        missing = np.isnan(x)
        log = law.log_joint(x)
        p = responsibilities(log)
        density = logsumexp(log, axis=1) - np.where(missing, 0.0, cells.log_scale).sum(axis=1)
        beside = {"cluster": p.argmax(axis=1) + 1, "p_cluster": p.max(axis=1)}
        columns: dict[str, Any] = {"row": np.arange(first_row + 1, first_row + n + 1), "log_density": density, **beside}
        if self._probabilities:
            columns |= {f"p_{k + 1}": p[:, k] for k in range(p.shape[1])}
        filled: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        if self._impute or self._complete:
            mean, sd = law.moments(x)
            whole = rows.take(slice(None))
            for d, c in enumerate(cells.columns):
                if self._impute:
                    for name, values in ("", cells.in_units(d, mean[:, d])), ("_sd", sd[:, d] * cells.scale[d]):
                        columns[f"imputed_{c.name}{name}"] = pa.array(values, mask=~missing[:, d])
                if self._complete:
                    at = np.flatnonzero(missing[:, d])
                    cells.put(whole, d, at, mean[at, d])
                    filled[c.name] = at, getattr(whole, c.block)[at, c.index]
        return Predictions(columns, density, filled, beside if self._complete else {})
