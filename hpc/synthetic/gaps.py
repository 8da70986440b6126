"""Missing cells of synthetic rows.

The model treats cells as missing at random and has no distribution of which are missing, so a synthetic row copies this
from the training rows: in each view, the set of missing cells of a training row of its own cluster, or of any training
row if it is in a new cluster. Sets stay together within a view, and depend on clusters as in the table. Cells that the
table never has (`io/absent.py`) follow their rule instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from mpibayes.hpc.law import Part
from mpibayes.hpc.parallel.streams import Purpose, Stream, in_lane
from mpibayes.hpc.synthetic.training import Training
from mpibayes.io.rows import Column

GAPS = 2**31 + 8  # sub-stream of a row's missing cells, separate from those of clusters and cells


class Gaps:
    """Missing cells of one synthetic table. least: sets of missing cells of a view found in fewer training rows are not
    used."""

    def __init__(self, training: Training, columns: Sequence[Column], seed: int, table: int, least: int = 1):
        self._training, self._least = training, least
        self._columns = {c.name: c for c in columns}
        self._stream = Stream(seed, Purpose.TABLE_ROWS, cycle=table, sub=GAPS)
        self._donors: list[_Donors | None] | None = None

    def mask(self, ids: np.ndarray, parts: Sequence[Part], cells: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Masks of the missing cells (n,) of the columns that have some."""
        if self._donors is None:
            self._donors = [self._of(part) for part in parts]
        result = {}
        for i, (part, donors) in enumerate(zip(parts, self._donors)):
            if donors is not None:
                u = replace(self._stream, chain=in_lane(0, i)).uniforms(ids)
                result |= donors.masks(np.minimum(part.clusters, part.n_clusters), u)
        lacking = {}
        for a in self._training.absences:
            met = a.met(self._columns[a.where], cells[a.where]) & ~result.get(a.where, False)
            lacking[a.column] = lacking.get(a.column, False) | met
        return result | {name: met | result.get(name, False) for name, met in lacking.items()}

    def _of(self, part: Part) -> _Donors | None:
        place = {name: i for i, name in enumerate(self._training.names)}
        names = [name for name in part.names if self._training.masks[:, place[name]].any()]
        if not names:
            return None
        masks = self._training.masks[:, [place[name] for name in names]]
        sets, of = np.unique(masks, axis=0, return_inverse=True)
        return _Donors(names, sets, of.ravel()[self._training.pattern], part, self._least)


class _Donors:
    """Sets of missing cells of the training rows in each cluster, followed by those of all training rows. names: of the
    columns; sets (Q, names) bool; row (N,): set of each training row."""

    def __init__(self, names: Sequence[str], sets: np.ndarray, row: np.ndarray, part: Part, least: int):
        self._names, self._sets = names, sets
        often = np.bincount(row, minlength=len(sets)) >= least
        n, k, here = len(sets), part.n_clusters, often[row]
        keys, times = np.unique(part.labels[here].astype(np.int64) * n + row[here], return_counts=True)
        every = np.bincount(row[here], minlength=n)
        self._set = np.append(keys % n, np.flatnonzero(every))
        of = np.append(keys // n, np.full(np.count_nonzero(every), k))
        self._below = np.cumsum(np.append(times, every[every > 0]))
        at = np.searchsorted(of, np.arange(k + 2))
        edges = np.append(0, self._below)[at]
        self._first, self._rows = edges[:-1], np.diff(edges)

    def masks(self, cluster: np.ndarray, u: np.ndarray) -> dict[str, np.ndarray]:
        """Masks (n,), by column, of the missing cells of rows in these clusters, from uniform numbers (n,)."""
        last = len(self._rows) - 1
        if not self._rows[last]:
            return {name: np.zeros(len(u), bool) for name in self._names}
        cluster = np.where(self._rows[cluster] > 0, cluster, last)
        row = self._first[cluster] + np.floor(u * self._rows[cluster]).astype(np.int64)
        result = self._sets[self._set[np.searchsorted(self._below, row, side="right")]]
        return {name: result[:, i] for i, name in enumerate(self._names)}
