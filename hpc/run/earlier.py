"""Matching of a chain's rows to those of an earlier chain on the same table with fewer rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.run.directory import TRAINING_ROWS
from mpibayes.hpc.run.identity import RESOLVED, read_provenance
from mpibayes.io.files import open_regular, reading


def places_before(folder: Path, data: Data) -> np.ndarray:
    """Place of each training row among the rows of the chain in `folder`, int64 (N,), -1 if that chain did not have it.
    Raises ConfigError if that chain is of another table."""
    home = folder if (folder / RESOLVED).exists() else folder.parent
    before = data.table.before_growth(read_provenance(home)["fingerprint"])
    if before is None:
        raise ConfigError(f"{home}: is not a run of {data.table.path} as it was before rows were appended")
    numbers = np.arange(before.n_rows)
    if (folder / TRAINING_ROWS).exists():
        with reading(folder / TRAINING_ROWS, ConfigError), open_regular(folder / TRAINING_ROWS) as file:
            numbers = np.load(file, allow_pickle=False)
    if numbers.max(initial=-1) >= before.n_rows:
        raise ConfigError(
            f"{folder}: has rows that {data.table.path} did not have before rows were appended; it is another run"
        )
    place = np.full(data.table.n_rows, -1)
    place[numbers] = np.arange(len(numbers))
    places: np.ndarray = place[data.numbers_of(0, data.n_rows)]
    return places
