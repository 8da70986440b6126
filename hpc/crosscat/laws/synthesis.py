"""A synthetic table from one kept draw (docs/math.md 2.12).

Given the clusters of the training rows in a view, with sizes n_1 ... n_K, the weights of these clusters and the total
weight of all new ones are Dirichlet(n_1 - d, ..., n_K - d, alpha + K d), and the rows in new clusters are seated by a
Pitman-Yor process with concentration alpha + K d (Pitman 1996). Weights and parameters are drawn once for all rows of
the table: rows are independent given the parameters, as in Raab, Nowok & Dibben (2016). Averaged over draws, single
rows and sets of rows have their closed-form predictive distributions. For a population, the drawn weights are
multiplied by the factors by which survey weights change their means (`population.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from mpibayes.hpc.crosscat.law import Law
from mpibayes.hpc.crosscat.laws.cell_draws import CLUSTER, CellDraws
from mpibayes.hpc.crosscat.laws.population import log_cluster_weights
from mpibayes.hpc.crosscat.laws.view_law import ViewLaw
from mpibayes.hpc.data.events import Known
from mpibayes.hpc.law import Part
from mpibayes.hpc.parallel.streams import Purpose, Stream, generator, in_lane

WEIGHTS, SEATS = CLUSTER + 1, CLUSTER + 2  # sub-streams, distinct from those of the kinds of columns
PIECE = 65_536  # rows whose clusters are drawn at a time


class Synthesis:
    """See `hpc.law.Synthesis`. law: of all columns, with the labels of all training rows; seed, table: key of the
    streams; n: number of rows; without: see `CellDraws.cells`."""

    def __init__(self, law: Law, seed: int, table: int, n: int, without: Mapping[str, np.ndarray]):
        self._without = without
        self._views = [_View(view, seed, table, n) for view in law.views]

    def parts(self, ids: np.ndarray) -> list[Part]:
        return [Part(view.names, len(view.law.statistics), view.law.labels, view.clusters(ids)) for view in self._views]

    def cells(self, ids: np.ndarray, parts: Sequence[Part]) -> dict[str, np.ndarray]:
        drawn: dict[str, np.ndarray] = {}
        clusters = {id(view.law): part.clusters for view, part in zip(self._views, parts, strict=True)}
        for view in sorted(self._views, key=lambda view: view.law.outcome is not None):  # see `law.outcome_last`
            drawn |= view.cells(ids, clusters[id(view.law)], self._without, drawn)
        return drawn


class _View:
    """A view's clusters with their weights and parameters, and the new clusters of the table's rows."""

    def __init__(self, law: ViewLaw, seed: int, table: int, n: int):
        self.law, self.names = law, sorted(law.names)
        lane = in_lane(0, law.number)
        self._stream = Stream(seed, Purpose.TABLE_ROWS, cycle=table, chain=lane)
        parameters = replace(self._stream, purpose=Purpose.TABLE_PARAMETERS)
        alpha, d, size = law.hyper.concentration, law.hyper.discount, law.statistics.size
        rest = alpha + len(size) * d
        log_weight = replace(parameters, sub=WEIGHTS).log_dirichlet(np.append(size - d, rest))
        log_weight += law.log_weight - log_cluster_weights(size, alpha, d)  # 0 unless rows have survey weights
        below = np.cumsum(np.exp(log_weight))
        self._below = below[:-1] / below[-1]  # of clusters with training rows; new clusters beyond
        self._new = self._in_new_clusters(n)
        g = generator(seed, Purpose.TABLE_ROWS, cycle=table, sub=SEATS, chain=lane)
        self._seats = seated(len(self._new), rest, d, g)
        self._draws = CellDraws(law, parameters, more=int(self._seats.max(initial=-1)) + 1)

    def _uniforms(self, ids: np.ndarray) -> np.ndarray:
        return replace(self._stream, sub=CLUSTER).uniforms(ids)

    def _in_new_clusters(self, n: int) -> np.ndarray:
        """Return the numbers of the rows in new clusters, ascending."""
        pieces = (np.arange(i, min(i + PIECE, n)) for i in range(0, n, PIECE))
        return np.concatenate([ids[self._uniforms(ids) >= self._below[-1]] for ids in pieces])

    def clusters(self, ids: np.ndarray) -> np.ndarray:
        result = np.searchsorted(self._below, self._uniforms(ids), side="right")
        new = np.flatnonzero(result == len(self._below))
        result[new] += self._seats[np.searchsorted(self._new, ids[new])]
        return result

    def cells(
        self, ids: np.ndarray, clusters: np.ndarray, without: Mapping[str, np.ndarray], drawn: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        known = Known(len(ids), {})
        if self.law.outcome is not None:
            known = self.law.outcome.beside(known, drawn)
        return self._draws.cells(self.names, known, clusters, self._stream, ids, without)


def seated(n: int, concentration: float, discount: float, g: np.random.Generator) -> np.ndarray:
    """Draw the tables of n customers of a Pitman-Yor process, numbered from 0 by first customer, int64 (n,). A customer
    at an old table picks an earlier one and sits there, with a rejection step for the discount."""
    at = np.zeros(n, np.int64)
    sizes: list[int] = []
    for i in range(n):
        table = len(sizes)
        if g.random() * (concentration + i) >= concentration + discount * len(sizes):
            table = at[g.integers(i)]
            while g.random() * sizes[table] < discount:
                table = at[g.integers(i)]
        if table == len(sizes):
            sizes.append(0)
        at[i] = table
        sizes[table] += 1
    return at
