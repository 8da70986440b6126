"""Initial labels given by a user: for all rows of a chain, or from an earlier run with a subset of them.

If rows were appended to the table since the earlier run, that run has labels for the old rows only. New rows are idle
at first, and the first cycle seats them. Whatever the start, the chain targets the posterior given all its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.crosscat.draws import last_draw
from mpibayes.hpc.crosscat.start.subsample import IDLE
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.run.earlier import places_before
from mpibayes.hpc.run.identity import RESOLVED, read_provenance, read_resolved
from mpibayes.io.files import chain_directories, open_regular, read_regular, reading, reason
from mpibayes.text import counted


@dataclass(frozen=True)
class Given:
    """labels: of each view, int64 (N,), IDLE for rows without a label. view_of: view of each used column of the table.
    n_new: number of rows without a label."""

    labels: Sequence[np.ndarray]
    view_of: np.ndarray
    n_new: int = 0


def grown_labels(path: Path, data: Data, seed: int, number: int, several: bool) -> Given | None:
    """Return the labels of a run on the table before rows were appended: the last kept draw of its chain `number`,
    counted from 0, modulo its number of chains; None if `path` is no such run.

    Raises ConfigError if they do not fit. The seed must differ from the run's: it keys the random numbers, and those
    that led to the labels must not be drawn again.
    """
    home = next((folder for folder in (path, path.parent) if (folder / RESOLVED).exists()), None)
    before = None if home is None else data.table.before_growth(read_provenance(home)["fingerprint"])
    if before is None or before.n_rows == data.table.n_rows:
        return None
    if read_resolved(home)["run"]["seed"] == seed:
        raise ConfigError(
            f"run.seed: is {seed}, as in {home}, whose clusters this run starts from; give it another one, such as "
            f"--set run.seed={seed + 1}, so that no random number is used twice"
        )
    folders = chain_directories(path)
    return labels_of_chain(folders[number % len(folders)], data, several)


def labels_of_chain(folder: Path, data: Data, several: bool) -> Given:
    """Return the labels of the last kept draw in the directory of a chain with fewer rows of the table. Raises
    ConfigError if there is no draw, or no row in common."""
    draw = last_draw(folder)
    if draw is None:
        raise ConfigError(f"sampler.init_labels: {folder} has kept no draw of its labels")
    place, n_rows = places_before(folder, data), len(draw.labels[0])
    given = _fitting(Given(draw.labels, draw.view_of), folder, n_rows, len(data.stored), several)
    if not (place >= 0).any() or place.max() >= n_rows:
        raise ConfigError(f"sampler.init_labels: {folder} was trained on none of the rows that this run is trained on")
    labels = [np.where(place < 0, IDLE, z[place]) for z in given.labels]
    return Given(labels, given.view_of, int((place < 0).sum()))


def given_labels(path: Path, n_training: int, n_columns: int, several: bool) -> Given:
    """Read the last line of a text file, in the form of `export --to labels`, or the last kept draw of a run directory:
    one label per training row, or the view of each used column and then each view's labels. Labels are renumbered.

    several: allow several views.
    """
    return _fitting(_given_in(path), path, n_training, n_columns, several)


def _fitting(given: Given, path: Path, n_training: int, n_columns: int, several: bool) -> Given:
    """Return the given labels, with labels and views renumbered. Raises ConfigError if they do not fit."""
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
