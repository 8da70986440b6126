"""What every kind of column has: the same methods, and names for its arrays.

A kind is one file of this folder, and its place in `KINDS` (kinds.py). An object of it stands for all columns of the
kind in a view, in order; several columns that are modelled jointly count as one. Its methods take the hyperparameters
and the statistics of its own columns alone, as arrays whose first axis runs over columns, or over what a column has
several of, and whose last axis runs over clusters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from mpibayes.hpc.parallel.streams import Stream
from mpibayes.io.table import Column


class Array(NamedTuple):
    """An array of a kind, by the name that the kernels know. Its last axis runs over clusters."""

    name: str
    axis: str = "column"  # what its rows are: a key of its kind's `cuts`
    dtype: type = np.float64


class Component(Protocol):
    """A kind of column: a likelihood and its conjugate prior.

    `hyper` and `s` are of all columns of the kind: its array in `Hyper`, and its arrays in `Statistics`, a tuple.
    `columns` is a slice: those that are meant.
    """

    name: str  # attribute of `Components`, and key where arrays are kept by kind
    stored: tuple[str, ...]  # the arrays of `io.table.Rows` that hold its cells, in the order of the columns
    hyper: str  # name of its hyperparameters
    hyper_form: tuple[int, ...]  # form of those of a column
    statistics: tuple[Array, ...]
    parameters: tuple[Array, ...]  # of clusters, where they are drawn
    exact: bool  # whether statistics are whole numbers, so that those of a part can be subtracted from the whole
    substreams: Sequence[int]  # its `sub` in the streams it is given; no other kind has one of them

    columns: Sequence[Column]
    cuts: Mapping[str, np.ndarray]  # by axis: the first row of every column, and the number of rows, (C + 1,) int64
    cost: np.ndarray  # (C,) about what the update of each column takes

    def __init__(self, columns: Sequence[Column], priors: Mapping, joint: Mapping): ...

    def __len__(self) -> int: ...

    def start(self) -> np.ndarray:
        """Initial hyperparameters, (C, *hyper_form)."""

    def prior(self, hyper: np.ndarray) -> dict[str, np.ndarray]:
        """The prior as the kernels read it, by the names they know."""

    def merge(self, a: tuple, b: tuple) -> tuple[np.ndarray, ...]:
        """Statistics of the rows of `a` and `b` together, cluster by cluster; one of them may have a single cluster."""

    def log_marginal(self, hyper: np.ndarray, s: tuple, columns: slice) -> np.ndarray:
        """Log marginal likelihood of each of `columns`, summed over clusters."""

    def log_marginal_clusters(self, hyper: np.ndarray, s: tuple) -> np.ndarray:
        """Log marginal likelihood of every cluster, summed over all columns, (K,)."""

    def update(self, hyper: np.ndarray, s: tuple, columns: slice, stream: Stream) -> np.ndarray:
        """Hyperparameters of `columns`, drawn given the partition (docs/math.md 2.4)."""

    def draw(self, hyper: np.ndarray, s: tuple, columns: slice, stream: Stream) -> tuple[np.ndarray, ...]:
        """`parameters` of `columns` in every cluster, drawn given its rows (docs/math.md 2.1, step 4)."""
