"""Labels that a user gives a chain to start from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.crosscat.draws import last_draw
from mpibayes.io.files import chain_directories, open_regular, read_regular, reading, reason
from mpibayes.text import counted


@dataclass(frozen=True)
class Given:
    """labels: of each view, int64 (N,). view_of: the number of the view of each used column of the table."""

    labels: Sequence[np.ndarray]
    view_of: np.ndarray


def given_labels(path: Path, n_training: int, n_columns: int, several: bool) -> Given:
    """The last line of a text file, in the form of `export --to labels`, or the last kept draw of a run directory: one
    label a training row, or the view of each used column and then each view's labels. Labels are renumbered.

    several: there may be several views.
    """
    given = _given_in(path)
    problems = [
        f"{path} has {counted(len(z), 'label')}, expected {n_training}, one a training row (rows that are held out "
        "have none)"
        for z in given.labels
        if len(z) != n_training
    ][:1]
    view_of = given.view_of if len(given.view_of) else np.zeros(n_columns, np.int64)
    views, number = np.unique(view_of, return_inverse=True)
    if len(given.labels) > 1 and not several:
        problems = [f"{path} has {len(given.labels)} views, and a mixture has one"]
    elif len(view_of) != n_columns:
        problems.append(f"{path} has the views of {len(view_of)} columns, expected {n_columns}, one a used column")
    elif len(views) != len(given.labels):
        problems.append(f"{path} has the labels of {len(given.labels)} views, and its columns are in {len(views)}")
    if problems:
        raise ConfigError(f"sampler.init_labels: {problems[0]}")
    return Given([np.unique(z, return_inverse=True)[1] for z in given.labels], number)


def _given_in(path: Path) -> Given:
    with reading(path, ConfigError):
        directory = path.is_dir()
    if directory:
        draw = last_draw(chain_directories(path)[0])
        if draw is None:
            raise ConfigError(f"sampler.init_labels: {path} has kept no draw of its labels")
        return Given(draw.labels, draw.view_of)
    try:
        if path.suffix == ".npy":
            with open_regular(path) as file:
                labels = np.load(file, allow_pickle=False).astype(np.int64, casting="same_kind").ravel()
            return Given([labels], np.zeros(0, np.int64))
        lines = [line for line in read_regular(path).decode().splitlines() if line.strip()]
        parts = [np.array(part.split(), np.int64) for part in lines[-1].split("|")]
        return Given(parts, np.zeros(0, np.int64)) if len(parts) == 1 else Given(parts[1:], parts[0])
    except OSError as error:
        raise ConfigError(f"sampler.init_labels: {path}: cannot be read: {reason(error)}") from None
    except (IndexError, ValueError, OverflowError, TypeError):
        raise ConfigError(
            f"sampler.init_labels: {path}: expected a line of whole numbers separated by blanks, one a training row, "
            "a .npy array of them, or a run directory"
        ) from None
