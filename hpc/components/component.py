"""Interface of the kinds of columns: common methods, and names for their arrays.

A kind is one file of this folder, and its place in `KINDS` (kinds.py). An object of it stands for all columns of the
kind in a view, in order; several columns that are modelled jointly count as one. Its methods take the hyperparameters
and the statistics of its own columns alone, as arrays whose first axis runs over columns (or over the several entries
of a column), and whose last axis runs over clusters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from mpibayes.hpc.parallel.streams import Stream
from mpibayes.io.rows import Column, Rows


class Array(NamedTuple):
    """An array of a kind, by the name that the kernels know. Its last axis runs over clusters."""

    name: str
    axis: str = "column"  # what its rows are: a key of its kind's `cuts`
    dtype: type = np.float64
    wire: type = np.int32  # of a kind that is `exact`: the integers that ranks add up; int32 holds counts of rows

    def zeros(self, kind: Component, n_clusters: int) -> np.ndarray:
        return np.zeros((kind.cuts[self.axis][-1], n_clusters), self.dtype)


class PriorKey(NamedTuple):
    """A key of the prior that a column is given: a number, one for each of the column's levels, or a grid's points."""

    name: str
    least: float = math.ulp(0.0)  # any above 0
    most: float = 1e300
    by_level: bool = False
    grid: bool = False


class Law(Protocol):
    """The cells of a further row in each of K clusters, and last in a new one, (..., K + 1).

    `column`: number of a column of the kind. It has one cell in a row, or one for each of its members; those of m rows
    are known at the members `seen`, x (m, len(seen)), and not at those `lacking`.
    """

    n_bytes: int

    def log_density(self, column: int, x: np.ndarray, seen: np.ndarray) -> np.ndarray:
        """Log density of the cells that are there, where others lack, (m, K + 1)."""

    def averages(self, column: int, x, seen: np.ndarray, lacking: np.ndarray, weight: np.ndarray) -> list[np.ndarray]:
        """Sums over the clusters, weighted by `weight` (m, K + 1), for each lacking cell given those seen: of the
        probabilities of its levels (m, V), or of the first two moments about the column's center (m, 2)."""

    def draw(
        self, column: int, x, seen: np.ndarray, lacking: np.ndarray, clusters: np.ndarray, stream: Stream, ids
    ) -> np.ndarray:
        """The lacking cells, (m, len(lacking)), given those seen and the row's cluster (m,). ids (m,): a draw is named
        by the stream, a row's id below 2^32, and the column."""


class Component(Protocol):
    """A kind of column: a likelihood and its conjugate prior.

    `hyper` and `s` are of all columns of the kind: its array in `Hyper`, and its arrays in `Statistics`, a tuple.
    `columns` is a slice: those that are meant.
    """

    name: str  # attribute of `Components`, and key where arrays are kept by kind
    stored: tuple[str, ...]  # the arrays of `io.table.Rows` that hold its cells, in the order of the columns
    prior_forms: tuple[tuple[PriorKey, ...], ...]  # of the prior that a column may be given, the keys of each form
    hyper: str  # name of its hyperparameters
    hyper_form: tuple[int, ...]  # form of those of a column
    hyper_names: tuple[str, ...]  # of those of a column; none: there is one, without a form
    statistics: tuple[Array, ...]
    parameters: tuple[Array, ...]  # of clusters, where they are drawn
    odds: tuple[str, type]  # of the sides of a split: name and type of its array in `Odds`
    exact: bool  # whether statistics are whole numbers, so that those of a part can be subtracted from the whole
    measured: bool  # whether its cells are measurements with moments, which launches of splits go by
    substreams: Sequence[int]  # its `sub` in the streams it is given; no other kind has one of them

    columns: Sequence[Column]
    cuts: Mapping[str, np.ndarray]  # by axis: the first row of every column, and the number of rows, (C + 1,) int64
    cost: np.ndarray  # (C,) about what the update of each column takes
    odds_form: tuple[int, ...]  # form of its part of `Odds` in one group

    def __init__(self, columns: Sequence[Column], priors: Mapping, joint: Mapping): ...

    def __len__(self) -> int: ...

    def members(self, column: int) -> Sequence[Column]:
        """The table's columns that make one up: itself, or those of a block."""

    def start(self) -> np.ndarray:
        """Initial hyperparameters, (C, *hyper_form)."""

    def prior(self, hyper: np.ndarray) -> dict[str, np.ndarray]:
        """The prior as the kernels read it, by the names they know."""

    def log_base(self, rows: Rows) -> float:
        """Part of the log likelihood of some rows that depends on their cells alone and is left out elsewhere: -log x!
        of counts, and the widths of the cells that recorded numbers stand for."""

    def merge(self, a: tuple, b: tuple) -> tuple[np.ndarray, ...]:
        """Statistics of the rows of `a` and `b` together, cluster by cluster; one of them may have a single cluster."""

    def log_marginal(self, hyper: np.ndarray, s: tuple, columns: slice) -> np.ndarray:
        """Log marginal likelihood of each of `columns`, summed over clusters."""

    def log_marginal_at(self, hyper: np.ndarray, s: tuple, column: int, power: float) -> float:
        """Log marginal likelihood of one column where its likelihood counts by a power from 0 to 1: the log integral
        of the likelihood to the power over the prior, summed over clusters."""

    def draw_at(self, hyper: np.ndarray, s: tuple, column: int, power: float, stream: Stream) -> tuple[np.ndarray, ...]:
        """`parameters` of one column in every cluster, drawn where its likelihood counts by a power, which the scores
        made of them have, too."""

    def log_marginal_clusters(self, hyper: np.ndarray, s: tuple) -> np.ndarray:
        """Log marginal likelihood of every cluster, summed over all columns, (K,)."""

    def cell_moments(self, s: tuple) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Count, mean and scatter of each of `columns` by itself, (columns, K) each; for kinds that are `measured`."""

    def side_odds(self, hyper: np.ndarray, s: tuple) -> np.ndarray:
        """Coefficients from which kernels/mixture/split.pyx computes a row's log odds between clusters 1, 3, 5, ... and
        0, 2, 4, ... of `s`: posterior means plugged in, (K / 2, *odds_form)."""

    def predictive(self, hyper: np.ndarray, s: tuple) -> Law:
        """The law of a further row's cells, with parameters integrated out."""

    def drawn(self, hyper: np.ndarray, s: tuple, stream: Stream) -> Law:
        """The law of the cells of all further rows, which share the parameters of each of the K clusters, drawn given
        its rows (docs/math.md 2.1, step 4); a new cluster's are integrated out. Its `draw` alone is for use."""

    def update(self, hyper: np.ndarray, s: tuple, columns: slice, stream: Stream) -> np.ndarray:
        """Hyperparameters of `columns`, drawn given the partition (docs/math.md 2.4)."""

    def draw(self, hyper: np.ndarray, s: tuple, columns: slice, stream: Stream) -> tuple[np.ndarray, ...]:
        """`parameters` of `columns` in every cluster, drawn given its rows (docs/math.md 2.1, step 4)."""
