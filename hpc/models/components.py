"""All columns of a view: the four kinds of component behind one face."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mpibayes.hpc.models.categorical import Categorical
from mpibayes.hpc.models.normal import Normal
from mpibayes.hpc.models.normal import log_marginal_cells as log_marginal_reals
from mpibayes.hpc.models.poisson import Poisson
from mpibayes.hpc.models.poisson import log_marginal_cells as log_marginal_counts
from mpibayes.hpc.models.statistics import Statistics
from mpibayes.hpc.models.vector import Block, Vectors
from mpibayes.hpc.streams import Purpose, generator

BLOCKS = ("codes8", "codes16", "reals", "tallies", "vectors")
CATEGORICAL, REAL, COUNT = range(3)  # sub-streams, one a kind
VECTORS = 1 << 32  # and from here on one a block of columns


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


class Components:
    """The columns of a view, by kind and in block order.

    `columns`: mpibayes.io.table.Column of every used column. `priors`: what is given by column name, see the kinds.
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

    def start(self, concentration: float, discount: float) -> Hyper:
        kinds = (self.categorical, self.normal, self.poisson, self.vectors)
        return Hyper(concentration, discount, *(kind.start() for kind in kinds))

    def prior(self, hyper: Hyper) -> Prior:
        return Prior(
            self.categorical.offsets, self.categorical.pseudo_counts(hyper.dirichlet), hyper.normal, hyper.gamma,
            self.vectors.widths, hyper.wishart, self.vectors.mean, self.vectors.spread(hyper.wishart),
        )  # fmt: skip

    def log_marginal(self, hyper: Hyper, s: Statistics) -> float:
        """Log marginal likelihood of all columns given the partition; counts without the 1 / x!."""
        return float(
            self.categorical.log_marginal(hyper.dirichlet, s.levels).sum()
            + self.normal.log_marginal(hyper.normal, s.real_n, s.real_mean, s.real_scatter).sum()
            + self.poisson.log_marginal(hyper.gamma, s.tally_n, s.tally_sum).sum()
            + self.vectors.log_marginal(hyper.wishart, s).sum()
        )

    def log_marginal_clusters(self, hyper: Hyper, s: Statistics) -> np.ndarray:
        """Log marginal likelihood of every cluster, summed over columns, (K,); counts without the 1 / x!."""
        return (
            self.categorical.log_marginal_clusters(hyper.dirichlet, s.levels)
            + log_marginal_reals(hyper.normal, s.real_n, s.real_mean, s.real_scatter).sum(axis=0)
            + log_marginal_counts(hyper.gamma, s.tally_n, s.tally_sum).sum(axis=0)
            + self.vectors.log_marginal(hyper.wishart, s)
        )

    def update(self, hyper: Hyper, s: Statistics, seed: int, cycle: int, chain: int) -> Hyper:
        """Component hyperparameters drawn given the partition, parameters integrated out (MATH 2.4)."""

        def stream(kind):
            return generator(seed, Purpose.COMPONENTS, cycle, kind, chain)

        return replace(
            hyper,
            dirichlet=self.categorical.update(hyper.dirichlet, s.levels, stream(CATEGORICAL)),
            normal=self.normal.update(hyper.normal, s.real_n, s.real_mean, s.real_scatter, stream(REAL)),
            gamma=self.poisson.update(hyper.gamma, s.tally_n, s.tally_sum, stream(COUNT)),
            wishart=self.vectors.update(hyper.wishart, s, lambda b: stream(VECTORS + b)),
        )

    def draw(self, hyper: Hyper, s: Statistics, seed: int, cycle: int, chain: int) -> Parameters:
        """Component parameters of every cluster given all its rows (MATH 2.1, step 4)."""

        def stream(kind):
            return generator(seed, Purpose.PARAMETERS, cycle, kind, chain)

        return Parameters(
            self.categorical.draw(hyper.dirichlet, s.levels, stream(CATEGORICAL)),
            *self.normal.draw(hyper.normal, s.real_n, s.real_mean, s.real_scatter, stream(REAL)),
            *self.poisson.draw(hyper.gamma, s.tally_n, s.tally_sum, stream(COUNT)),
            *self.vectors.draw(hyper.wishart, s, lambda b: stream(VECTORS + b)),
        )
