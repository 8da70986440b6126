"""Interface of the kinds of columns: common methods, and names for their arrays.

A kind is one file of this folder, listed in `KINDS` (kinds.py). One object handles all columns of the kind in a view,
in order; columns modelled jointly count as one. Methods take the hyperparameters and statistics of the kind's own
columns, as arrays whose first axis runs over columns (or over the several entries of a column), and whose last axis
runs over clusters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from mpibayes.hpc.parallel.streams import Stream
from mpibayes.io.rows import Column, Rows


class Array(NamedTuple):
    """An array of a kind, under the name that the kernels use. Its last axis runs over clusters."""

    name: str
    axis: str = "column"  # axis of its rows: a key of the kind's `cuts`
    dtype: type = np.float64
    wire: type = np.int32  # integer type summed over ranks if the kind is `exact`; int32 holds counts of rows

    def zeros(self, kind: Component, n_clusters: int) -> np.ndarray:
        return np.zeros((kind.cuts[self.axis][-1], n_clusters), self.dtype)


class PriorKey(NamedTuple):
    """A key of a column's prior: a number, one for each of the column's levels, or the points of a grid."""

    name: str
    least: float = math.ulp(0.0)  # smallest value: any above 0
    most: float = 1e300
    by_level: bool = False
    grid: bool = False


class Law(Protocol):
    """Law of a further row's cells in each of K clusters, and last in a new one, (..., K + 1).

    `column`: index of a column of the kind. It has one cell in a row, or one for each of its members; in m rows the
    members `seen` are known, x (m, len(seen)), and the members `lacking` are not.
    """

    n_bytes: int

    def log_density(self, column: int, x: np.ndarray, seen: np.ndarray) -> np.ndarray:
        """Log density of the cells seen, with the lacking cells integrated out, (m, K + 1)."""

    def averages(self, column: int, x, seen: np.ndarray, lacking: np.ndarray, weight: np.ndarray) -> list[np.ndarray]:
        """For each lacking cell given the cells seen, sum over the clusters, weighted by `weight` (m, K + 1), the
        probabilities of its levels (m, V), or its first two moments about the column's center (m, 2)."""

    def draw(
        self, column: int, x, seen: np.ndarray, lacking: np.ndarray, clusters: np.ndarray, stream: Stream, ids
    ) -> np.ndarray:
        """Draw the lacking cells, (m, len(lacking)), given the cells seen and the row's cluster (m,). ids (m,): row ids
        below 2^32; stream, id and column name a draw."""


class Component(Protocol):
    """A kind of column: a likelihood and its conjugate prior.

    `hyper` and `s` cover all columns of the kind: its array in `Hyper`, and its arrays in `Statistics`, a tuple.
    `columns` is a slice that selects the columns to work on.
    """

    name: str  # attribute of `Components`, and key where arrays are kept by kind
    stored: tuple[str, ...]  # the arrays of `io.table.Rows` with its cells, in the order of the columns
    prior_forms: tuple[tuple[PriorKey, ...], ...]  # forms of a column's prior: the keys of each
    hyper: str  # name of its hyperparameters
    hyper_form: tuple[int, ...]  # shape of a column's hyperparameters
    hyper_names: tuple[str, ...]  # names of a column's hyperparameters; empty if there is one, without a shape
    statistics: tuple[Array, ...]
    parameters: tuple[Array, ...]  # parameters of clusters, where they are drawn
    odds: tuple[str, type]  # odds of the sides of a split: name and type of its array in `Odds`
    exact: bool  # True if statistics are integers, so that a part can be subtracted from the whole
    measured: bool  # True if its cells have moments, which guide the launch of splits
    substreams: Sequence[int]  # its `sub` numbers in the streams it is given, disjoint from other kinds'

    columns: Sequence[Column]
    cuts: Mapping[str, np.ndarray]  # by axis: the first row of every column, and the number of rows, (C + 1,) int64
    cost: np.ndarray  # (C,) approximate cost of updating each column
    odds_form: tuple[int, ...]  # shape of its part of `Odds` in one group

    def __init__(self, columns: Sequence[Column], priors: Mapping, joint: Mapping): ...

    def __len__(self) -> int: ...

    def members(self, column: int) -> Sequence[Column]:
        """The table's columns that make up a column: itself, or those of a block."""

    def start(self) -> np.ndarray:
        """Initial hyperparameters, (C, *hyper_form)."""

    def prior(self, hyper: np.ndarray) -> dict[str, np.ndarray]:
        """The prior as the kernels read it, under the names they use."""

    def log_base(self, rows: Rows) -> float:
        """Part of the log likelihood of rows that depends on their cells alone and is left out elsewhere: -log x! of
        counts, and the widths of the intervals that recorded numbers represent."""

    def merge(self, a: tuple, b: tuple) -> tuple[np.ndarray, ...]:
        """Statistics of the union of `a` and `b`, cluster by cluster; one of them may have a single cluster."""

    def log_marginal(self, hyper: np.ndarray, s: tuple, columns: slice) -> np.ndarray:
        """Log marginal likelihood of each of `columns`, summed over clusters."""

    def log_marginal_at(self, hyper: np.ndarray, s: tuple, column: int, power: float) -> float:
        """Log marginal likelihood of one column at a power from 0 to 1: the log integral over the prior of the
        likelihood to that power, summed over clusters."""

    def draw_at(self, hyper: np.ndarray, s: tuple, column: int, power: float, stream: Stream) -> tuple[np.ndarray, ...]:
        """Draw `parameters` of one column in every cluster from the posterior with the likelihood at a power; scores
        made from them include the power."""

    def log_marginal_clusters(self, hyper: np.ndarray, s: tuple) -> np.ndarray:
        """Log marginal likelihood of every cluster, summed over all columns, (K,)."""

    def cell_moments(self, s: tuple) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Count, mean and scatter of each of `columns` by itself, (columns, K) each; for kinds that are `measured`."""

    def side_odds(self, hyper: np.ndarray, s: tuple) -> np.ndarray:
        """Coefficients from which kernels/mixture/split.pyx computes a row's log odds between clusters 1, 3, 5, ... and
        0, 2, 4, ... of `s`, with posterior means plugged in, (K / 2, *odds_form)."""

    def predictive(self, hyper: np.ndarray, s: tuple) -> Law:
        """Law of a further row's cells, with parameters integrated out."""

    def drawn(self, hyper: np.ndarray, s: tuple, stream: Stream) -> Law:
        """Law of the cells of further rows that share each cluster's parameters, drawn given its rows (docs/math.md
        2.1, step 4); a new cluster's are integrated out. Only its method `draw` may be used."""

    def update(self, hyper: np.ndarray, s: tuple, columns: slice, stream: Stream) -> np.ndarray:
        """Draw the hyperparameters of `columns` given the partition (docs/math.md 2.4)."""

    def draw(self, hyper: np.ndarray, s: tuple, columns: slice, stream: Stream) -> tuple[np.ndarray, ...]:
        """Draw `parameters` of `columns` in every cluster given its rows (docs/math.md 2.1, step 4)."""
