"""All columns of a view: the four kinds of component behind one face."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mpibayes.hpc.components.categorical import Categorical
from mpibayes.hpc.components.multinormal import Block, Vectors, n_pairs
from mpibayes.hpc.components.normal import Normal
from mpibayes.hpc.components.normal import log_marginal_cells as log_marginal_reals
from mpibayes.hpc.components.poisson import Poisson
from mpibayes.hpc.components.poisson import log_marginal_cells as log_marginal_counts
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.parallel.streams import Purpose, Stream, generator

BLOCKS = ("codes8", "codes16", "reals", "tallies", "vectors")
CATEGORICAL, REAL, COUNT, REAL_MEAN = range(4)  # sub-streams
VECTORS = 4  # and from here on one a block of columns; all below 2^32, where the attempts of a draw are counted
HANDS = 32  # ranks that update columns, at most


@dataclass
class Hyper:
    """All hyperparameters of a view. With the labels they are the whole state of a chain."""

    concentration: float
    discount: float
    dirichlet: np.ndarray  # (C,) multiplier of each categorical column's base pseudo-counts
    normal: np.ndarray  # (R, 4) mean, kappa, nu, variance
    gamma: np.ndarray  # (Q, 2) shape, rate
    wishart: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))  # (B, 3) kappa, nu, variance


@dataclass
class Prior:
    """The component hyperparameters as the kernels read them."""

    offsets: np.ndarray  # (C + 1,) int64, first level row of each categorical column
    dirichlet: np.ndarray  # (L,) float64 pseudo-counts, 0 in missing rows
    normal: np.ndarray  # (R, 4) float64
    gamma: np.ndarray  # (Q, 2) float64
    widths: np.ndarray  # (B,) int64, columns of each block
    wishart: np.ndarray  # (B, 3) float64
    vector_mean: np.ndarray  # (columns of all blocks,) float64
    vector_spread: np.ndarray  # (columns of all blocks,) float64, diagonals of S_0


@dataclass
class Parameters:
    """Component parameters of K clusters, as the kernels read them; see each kind's `draw`."""

    table: np.ndarray  # (L, K) float32
    location: np.ndarray  # (R, K) float64
    half_precision: np.ndarray
    constant: np.ndarray
    log_rate: np.ndarray  # (Q, K) float64
    rate: np.ndarray
    vector_location: np.ndarray  # (columns of all blocks, K) float64
    vector_factor: np.ndarray  # (their pairs of columns, K) float64
    vector_constant: np.ndarray  # (B, K) float64


class Part(NamedTuple):
    """Columns of each kind, and blocks of columns, first..last-1 in their order: what one rank updates, or all."""

    categorical: tuple[int, int]
    real: tuple[int, int]
    count: tuple[int, int]
    vector: tuple[int, int]


class Dealing(NamedTuple):
    """Which rank updates which columns: rank r has those from starts[r] to starts[r + 1] - 1; (ranks + 1,) int64."""

    categorical: np.ndarray
    level_rows: np.ndarray  # of the categorical columns
    real: np.ndarray
    count: np.ndarray
    vector: np.ndarray  # blocks of columns,
    vector_columns: np.ndarray  # the columns of the blocks,
    vector_pairs: np.ndarray  # and the pairs of columns of each

    def part(self, rank: int) -> Part:
        kinds = self.categorical, self.real, self.count, self.vector
        return Part(*((int(starts[rank]), int(starts[rank + 1])) for starts in kinds))


class Components:
    """The columns of a view, by kind and in block order.

    `columns`: mpibayes.io.rows.Column of every used column. `priors`: what is given by column name, see the kinds.
    `blocks`: {"columns": names, "prior": what is given} of each block by name, in the order of the rows' `vectors`,
    where their columns lie (data.in_blocks).
    """

    def __init__(
        self,
        columns: Sequence,
        priors: Mapping[str, Mapping] | None = None,
        blocks: Mapping[str, Mapping] | None = None,
    ):
        priors = priors or {}
        kinds = {b: sorted((c for c in columns if c.block == b), key=lambda c: c.index) for b in BLOCKS}
        self.categorical_columns = kinds["codes8"] + kinds["codes16"]
        self.real_columns = kinds["reals"]
        self.count_columns = kinds["tallies"]
        self.vector_columns = kinds["vectors"]

        def given(of):
            return [priors.get(c.name) for c in of]

        self.categorical = Categorical(
            [len(c.levels) for c in self.categorical_columns], given(self.categorical_columns)
        )
        real = self.real_columns
        self.normal = Normal([c.center for c in real], [c.scale for c in real], given(real))
        self.poisson = Poisson([c.center for c in self.count_columns], given(self.count_columns))
        self.vectors = Vectors([self._block(name, **block) for name, block in (blocks or {}).items()])

    def _block(self, name: str, columns: Sequence[str], prior: Mapping | None = None) -> Block:
        by_name = {c.name: c for c in self.vector_columns}
        own = [by_name[c] for c in columns]
        return Block(name, columns, [c.center for c in own], [c.scale for c in own], prior)

    @property
    def shape(self) -> tuple[int, int, int, np.ndarray]:
        """(L, R, Q, widths): level rows, real columns, count columns, and the columns of each block, int64."""
        return int(self.categorical.offsets[-1]), len(self.real_columns), len(self.count_columns), self.vectors.widths

    @property
    def has_moments(self) -> bool:
        """Whether there are real columns, single or in blocks."""
        return bool(self.real_columns or self.vector_columns)

    @property
    def row_bytes(self) -> int:
        """Of a row that is copied, about: its cells and 80 bytes of labels, ids and random words."""
        n_wide = sum(c.block == "codes16" for c in self.categorical_columns)
        numeric = len(self.real_columns) + len(self.count_columns) + len(self.vector_columns)
        return len(self.categorical_columns) + n_wide + 8 * numeric + 80

    def start(self, concentration: float, discount: float) -> Hyper:
        kinds = (self.categorical, self.normal, self.poisson, self.vectors)
        return Hyper(concentration, discount, *(kind.start() for kind in kinds))

    def prior(self, hyper: Hyper) -> Prior:
        return Prior(
            self.categorical.offsets, self.categorical.pseudo_counts(hyper.dirichlet), hyper.normal, hyper.gamma,
            self.vectors.widths, hyper.wishart, self.vectors.mean, self.vectors.spread(hyper.wishart),
        )  # fmt: skip

    @property
    def everything(self) -> Part:
        n_levels, n_real, n_count = len(self.categorical.n_levels), len(self.real_columns), len(self.count_columns)
        return Part((0, n_levels), (0, n_real), (0, n_count), (0, len(self.vectors)))

    def deal(self, n_ranks: int) -> Dealing:
        """The columns dealt to ranks, about evenly by what their update costs; a rank's are consecutive.

        To 32 ranks at most, far apart: beyond that the widest column sets the pace, and more messages would only cost.
        """
        everything, hands = self.everything, min(n_ranks, HANDS)
        single, widths = np.full(everything.real[1] + everything.count[1], 8.0), self.vectors.widths
        cost = np.concatenate([self.categorical.n_levels + 2.0, single, 8.0 * widths + 0.2 * widths**3])
        middle = np.cumsum(cost) - 0.5 * cost
        rank = (middle * (hands / max(cost.sum(), 1.0))).astype(np.int64) * n_ranks // hands
        cuts = np.cumsum([0, *(last for _, last in everything)])
        starts = [np.searchsorted(rank[a:b], np.arange(n_ranks + 1)) for a, b in pairwise(cuts)]
        categorical, real, count, vector = starts
        columns, pairs = (np.concatenate([[0], np.cumsum(n)])[vector] for n in (widths, n_pairs(widths)))
        return Dealing(categorical, self.categorical.offsets[categorical], real, count, vector, columns, pairs)

    def log_marginal(self, hyper: Hyper, s: Statistics, part: Part) -> list[np.ndarray]:
        """Log marginal likelihood of the columns of a part given the partition, an array a kind; without the 1 / x!."""
        r, q = slice(*part.real), slice(*part.count)
        return [
            self.categorical.log_marginal(hyper.dirichlet, s.levels, *part.categorical),
            self.normal.log_marginal(hyper.normal[r], s.real_n[r], s.real_mean[r], s.real_scatter[r]),
            self.poisson.log_marginal(hyper.gamma[q], s.tally_n[q], s.tally_sum[q]),
            self.vectors.log_marginal(hyper.wishart, s, *part.vector),
        ]

    def log_marginal_clusters(self, hyper: Hyper, s: Statistics) -> np.ndarray:
        """Log marginal likelihood of every cluster, summed over columns, (K,); counts without the 1 / x!."""
        return (
            self.categorical.log_marginal_clusters(hyper.dirichlet, s.levels)
            + log_marginal_reals(hyper.normal, s.real_n, s.real_mean, s.real_scatter).sum(axis=0)
            + log_marginal_counts(hyper.gamma, s.tally_n, s.tally_sum).sum(axis=0)
            + self.vectors.log_marginal_clusters(hyper.wishart, s)
        )

    def update(self, hyper: Hyper, s: Statistics, part: Part, key: Mapping[str, int]) -> dict[str, np.ndarray]:
        """Hyperparameters of a part's columns, drawn given the partition, parameters integrated out (docs/math.md 2.4).

        hyper and s are of all columns; the result has Hyper's names and the part's rows alone.
        """

        def stream(kind):
            return Stream(purpose=Purpose.COMPONENTS, sub=kind, **key)

        def by_block(b):
            return generator(purpose=Purpose.COMPONENTS, sub=VECTORS + b, **key)

        moments = s.real_n, s.real_mean, s.real_scatter
        return {
            "dirichlet": self.categorical.update(hyper.dirichlet, s.levels, stream(CATEGORICAL), *part.categorical),
            "normal": self.normal.update(hyper.normal, *moments, stream(REAL), *part.real),
            "gamma": self.poisson.update(hyper.gamma, s.tally_n, s.tally_sum, stream(COUNT), *part.count),
            "wishart": self.vectors.update(hyper.wishart, s, by_block, *part.vector),
        }

    def draw(self, hyper: Hyper, s: Statistics, part: Part, key: Mapping[str, int]) -> Parameters:
        """Component parameters of a part's columns in every cluster, given all its rows (docs/math.md 2.1, step 4).

        hyper and s are of all columns; of `hyper` only the part's rows matter. The result has the part's rows.
        """

        def stream(kind):
            return Stream(purpose=Purpose.PARAMETERS, sub=kind, **key)

        def by_block(b):
            return generator(purpose=Purpose.PARAMETERS, sub=VECTORS + b, **key)

        r, q = slice(*part.real), slice(*part.count)
        moments = s.real_n[r], s.real_mean[r], s.real_scatter[r]
        return Parameters(
            self.categorical.draw(hyper.dirichlet, s.levels, stream(CATEGORICAL), *part.categorical),
            *self.normal.draw(hyper.normal[r], *moments, stream(REAL), stream(REAL_MEAN), part.real[0]),
            *self.poisson.draw(hyper.gamma[q], s.tally_n[q], s.tally_sum[q], stream(COUNT), part.count[0]),
            *self.vectors.draw(hyper.wishart, s, by_block, *part.vector),
        )
