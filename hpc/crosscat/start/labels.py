"""Labels that a user gives a chain to start from."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.crosscat.draws import last_draw
from mpibayes.io.files import chain_directories, open_regular, read_regular, reading, reason
from mpibayes.text import counted


def given_labels(path: Path, n_training: int) -> np.ndarray:
    """One label a training row, int64: the last line of a text file, or the last kept draw of a run directory."""
    labels = _labels_in(path)
    if len(labels) != n_training:
        raise ConfigError(
            f"sampler.init_labels: {path} has {counted(len(labels), 'label')}, expected {n_training}, one a training "
            "row (rows that are held out have none)"
        )
    return np.unique(labels, return_inverse=True)[1]


def _labels_in(path: Path) -> np.ndarray:
    with reading(path, ConfigError):
        directory = path.is_dir()
    if directory:
        draw = last_draw(chain_directories(path)[0])
        if draw is None:
            raise ConfigError(f"sampler.init_labels: {path} has kept no draw of its labels")
        return draw.labels
    try:
        if path.suffix == ".npy":
            with open_regular(path) as file:
                return np.load(file, allow_pickle=False).astype(np.int64, casting="same_kind").ravel()
        lines = [line for line in read_regular(path).decode().splitlines() if line.strip()]
        return np.array(lines[-1].split(), np.int64)
    except OSError as error:
        raise ConfigError(f"sampler.init_labels: {path}: cannot be read: {reason(error)}") from None
    except (IndexError, ValueError, OverflowError, TypeError):
        raise ConfigError(
            f"sampler.init_labels: {path}: expected a line of whole numbers separated by blanks, one a training row, "
            "a .npy array of them, or a run directory"
        ) from None
