"""Base of predictions of new rows (`hpc.family.Forecast`), and their columns of missing cells."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from mpibayes.hpc.data.cells import Cells
from mpibayes.hpc.family import Request
from mpibayes.io.rows import Rows
from mpibayes.io.table import Table

RATINGS = '--top and --user are for ratings (model.likelihood = "factorization")'
TYPED = "--complete, --probabilities and --impute are for typed tables"
OF_TYPED = dict.fromkeys(("top", "users"), RATINGS)
OF_SPARSE = dict.fromkeys(("probabilities", "impute", "complete"), TYPED)
BATCH = 4096


class RowForecast:
    """Predictions from all columns that a run uses; a new row may lack any of them. run: opened for reading."""

    cannot: Mapping[str, str] = OF_TYPED
    batch = BATCH
    n_draws = 1

    def __init__(self, run: Any, request: Request):
        self._run, self._request = run, request
        self.like: Table = run.table.having(run.data.stored)
        self.may_lack: Collection[str] = {c.name for c in self.like.columns}


def imputed(cells: Cells, missing: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> dict[str, Any]:
    """Output columns imputed_<name> and imputed_<name>_sd, empty where a cell is present. missing, mean, sd (n, D), in
    the model's units."""
    import pyarrow as pa

    columns = {}
    for d, c in enumerate(cells.columns):
        for name, values in ("", cells.in_units(d, mean[:, d])), ("_sd", sd[:, d] * cells.scale[d]):
            columns[f"imputed_{c.name}{name}"] = pa.array(values, mask=~missing[:, d])
    return columns


def filled(cells: Cells, rows: Rows, missing: np.ndarray, mean: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Missing cells and their means, by column; counts are whole numbers."""
    whole, by_column = rows.take(slice(None)), {}
    for d, c in enumerate(cells.columns):
        at = np.flatnonzero(missing[:, d])
        cells.put(whole, d, at, mean[at, d])
        by_column[c.name] = at, getattr(whole, c.block)[at, c.index]
    return by_column
