"""Predictions of a mixture or cross-categorization for a file of new rows, as columns of `mpibayes predict`.

`predictor` has the averages over kept draws.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibayes.hpc.crosscat.draws import Posterior
from mpibayes.hpc.crosscat.levels.grouped import grouped
from mpibayes.hpc.crosscat.summaries.predictor import Imputed, Predictor, Result
from mpibayes.hpc.crosscat.summaries.representative import representatives
from mpibayes.hpc.data.latent import OF_NEW_ROWS
from mpibayes.hpc.family import Predictions, Request
from mpibayes.hpc.posterior.asked import require_likelihood
from mpibayes.hpc.posterior.chains import evenly
from mpibayes.hpc.posterior.forecast import RowForecast
from mpibayes.io.rows import Rows
from mpibayes.text import counted, enumerated

DRAWS = 50


class Forecast(RowForecast):
    """See `hpc.family.Forecast`."""

    def __init__(self, run: Posterior, request: Request):
        """Groups of clusters: see `levels.grouped`."""
        require_likelihood(run, "new rows")
        run.read_traces()  # needed for the length of the burn-in
        self.kept = run.require_kept()
        super().__init__(run, request)
        self._outcomes = run.outcomes
        if self._outcomes is not None:
            self.like = run.table.having(self._outcomes.all_columns)
            self.may_lack = {c.name for c in self.like.columns} - set(self._outcomes.columns.keys.predictors)

    def prepare(self) -> str:
        kept, reference = self.kept, representatives(self._run, self.kept)
        chosen = evenly(kept, self._request.draws or DRAWS)
        other = [None] * len(reference.views)
        if self._request.groups is not None:
            other = grouped(self._run, kept, reference.views, self._request.groups)
        every = [*reference.views, *(r for r in other if r is not None)]
        self._grouped = [v for v, r in enumerate(other) if r is not None]  # views that have groups
        self._predictor = p = Predictor(self._run, chosen, every, self._request.impute or self._request.complete)
        self.batch, self.n_draws = p.batch, p.n_draws
        numbers = [str(len(r.sizes)) for r in reference.views]
        clusters = enumerated(numbers)
        clusters = f"{clusters} cluster{'s' * (clusters != '1')}"
        if self._run.several:
            clusters = f"{counted(len(numbers), 'view')} with {clusters}"
        return (
            f"{p.n_draws} of {counted(len(kept), 'kept draw')}, {clusters} (cycle {reference.cycle}); their statistics "
            f"take {p.n_bytes / 2**20:,.1f} MiB"
        )

    def __call__(self, rows: Rows, first_row: int) -> Predictions:
        import pyarrow as pa

        answers = None
        if self._outcomes is not None:
            rows, answers = self._outcomes.apart(rows, first_row)
        rows = self._run.data.as_modelled(rows, first_row + np.arange(len(rows)), OF_NEW_ROWS)
        result = self._predictor(rows, answers)
        n_views = len(result.views) - len(self._grouped)
        in_groups, result.views = result.views[n_views:], result.views[:n_views]
        p, cells = self._predictor, result.imputed if self._request.complete else {}
        beside = {}
        for number, view in zip(_numbers(result), result.views):
            beside |= dict(zip((f"cluster{number}", f"p_cluster{number}"), view.cluster()))
        columns = _columns(p, rows, result, first_row, self._request.probabilities, self._request.impute)
        ends = _numbers(result)
        for v, view in zip(self._grouped, in_groups):
            best = view.p.argmax(axis=1)
            columns[f"group{ends[v]}"] = pa.array(best + 1)
            columns[f"p_group{ends[v]}"] = pa.array(_short(view.p[np.arange(len(best)), best]))
        if self._outcomes is not None:
            columns |= {name: pa.array(x) for name, x in self._outcomes.predictions(*result.outcome).items()}
        return Predictions(
            columns,
            result.log_density,
            {name: (cell.rows, cell.fill) for name, cell in cells.items()},
            beside,
        )


def _columns(
    predictor: Predictor, rows: Rows, result: Result, start: int, probabilities: bool, impute: bool
) -> dict[str, Any]:
    """Return named pyarrow arrays of one batch."""
    import pyarrow as pa

    n = len(rows)
    spread = result.log_density_sd
    columns = {
        "row": np.arange(start + 1, start + n + 1),
        "log_density": result.log_density,
        "log_density_sd": pa.array(_short(spread), mask=np.isnan(spread)),
    }
    for number, view in zip(_numbers(result), result.views):
        cluster, p_cluster = view.cluster()
        columns |= {
            f"cluster{number}": cluster,
            f"p_cluster{number}": _short(p_cluster),
            f"p_new{number}": _short(view.p_new),
        }
        if probabilities:
            columns |= {f"p{number}_{r + 1}": _short(view.p[:, r]) for r in range(view.p.shape[1])}
    if impute:
        for c in predictor.columns:
            cell = result.imputed.get(c.name)
            columns |= _imputed_columns(c, n, cell)
    return {
        name: value if isinstance(value, pa.Array | pa.DictionaryArray) else pa.array(value)
        for name, value in columns.items()
    }


def _numbers(result: Result) -> list[str]:
    """Return the suffix of the output columns of each view."""
    return [f"_{v}" for v in range(1, 1 + len(result.views))] if len(result.views) > 1 else [""]


def _short(x: np.ndarray) -> np.ndarray:
    """Convert probabilities to single precision: seven digits are enough, and the file is half as long."""
    return x.astype(np.float32)


def _imputed_columns(column, n: int, cell: Imputed | None) -> dict[str, Any]:
    import pyarrow as pa

    observed = np.ones(n, bool)
    value, spread = np.zeros(n), np.zeros(n)
    if cell is not None:
        observed[cell.rows] = False
        value[cell.rows], spread[cell.rows] = cell.value, cell.spread
    if not column.levels:
        return {
            f"imputed_{column.name}": pa.array(value, mask=observed),
            f"imputed_{column.name}_sd": pa.array(spread, mask=observed),
        }
    codes = pa.array(value.astype(np.int32), mask=observed)
    levels = pa.array(column.levels, pa.string()).take(codes)
    return {f"imputed_{column.name}": levels, f"imputed_{column.name}_p": pa.array(_short(spread), mask=observed)}
