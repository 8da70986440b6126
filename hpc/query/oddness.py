"""Oddness of rows: the surprisal of each row given all other rows, and that of its cells given the rest of the row.

A training row contributes to every draw, which would make it look familiar, so it is left out, as in `surprisal`. Rows
are recognised by their cells: a row equal to a training row gets its score. Numbers are scored per standard deviation
of their column, however finely they were recorded, and a missing cell as an average cell of its column, so that rows
with gaps are comparable with rows without.
"""

from __future__ import annotations

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.surprisal import Surprise, log_units, of_table
from mpibayes.io.rows import BLOCKS, Rows


class Oddness:
    """Oddness under the kept draws of a run.

    names: of its C columns. rows (N,): surprisals of the training rows in nats, each left out. cells (N, C): surprisal
    of each cell given the rest of its row, minus the column's `average` (C,); 0 if the cell is missing.
    Collective. Raises ConfigError if training rows cannot be left out.
    """

    def __init__(self, asking: Asking):
        asking.require("surprisal of the table")
        if asking.in_blocks:
            raise ConfigError(f"column '{min(asking.in_blocks)}' is in a block, from which no row can be left out")
        self._asking, self.names = asking, [c.name for c in asking.columns]
        rows, cells = _surprisals(of_table(asking, self.names, asking.asked.n_rows))
        n_seen = np.maximum((~np.isnan(cells)).sum(axis=0), 1)
        self.average = np.nansum(cells, axis=0) / n_seen
        self.rows, self.cells = self._filled(rows, cells)
        self.new_level = np.log(asking.asked.n_rows + 1.0)
        known = self._keys(asking.asked.recorded(asking.asked.training_numbers()))
        self._place = {key: place for place, key in reversed(list(enumerate(known)))}

    def of(self, rows: Rows, new_levels: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """`rows` (n,) and `cells` (n, C) for other recorded rows. new_levels (n, C) bool: cells read as missing because
        the table lacks their level; their surprisal is log(N + 1), since none of N rows had it. Collective."""
        scores, cells = np.empty(len(rows)), np.empty((len(rows), len(self.names)))
        if new_levels is None:
            new_levels = np.zeros(cells.shape, bool)
        place = np.array([self._place.get(key, -1) for key in self._keys(rows)], np.intp)
        place[new_levels.any(axis=1)] = -1
        there, others = place >= 0, np.flatnonzero(place < 0)
        scores[there], cells[there] = self.rows[place[there]], self.cells[place[there]]
        if len(others):
            known = self._asking.known(rows.take(others), self.names)
            self._asking.draws(known.of)
            new = _surprisals(Surprise(self._asking, known, others + 1, None))
            scores[others], cells[others] = self._filled(*new)
        excess = np.where(new_levels, self.new_level - self.average, 0.0)
        return scores + excess.sum(axis=1), cells + excess

    def _filled(self, rows: np.ndarray, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Surprisals with missing cells counted as average cells."""
        gaps = np.isnan(cells)
        return rows + np.where(gaps, self.average, 0.0).sum(axis=1), np.where(gaps, 0.0, cells - self.average)

    @staticmethod
    def _keys(rows: Rows) -> list[bytes]:
        """Recorded rows as bytes, equal if all cells are equal."""
        parts = []
        for name in BLOCKS:
            cells = np.ascontiguousarray(getattr(rows, name))
            if cells.dtype.kind == "f":
                cells = np.where(np.isnan(cells), np.nan, cells + 0.0)  # one NaN, one zero
            parts.append(cells.view(np.uint8).reshape(len(rows), -1) if cells.size else np.zeros((len(rows), 0), "u1"))
        return [row.tobytes() for row in np.concatenate(parts, axis=1)]


def _surprisals(surprise: Surprise) -> tuple[np.ndarray, np.ndarray]:
    """Surprisals of rows (n,), and of their cells (n, C), NaN if missing; numbers per standard deviation."""
    rows, cells, *_ = surprise.whole()
    steps = log_units(surprise.known, steps=True) - log_units(surprise.known)
    return rows - np.where(np.isnan(cells), 0.0, steps).sum(axis=1), cells - steps
