"""Log odds between the two sides of a cluster that is to be split, for many clusters at once (docs/split_merge.md)."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np

from mpibayes.hpc.components import normal as reals
from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.multinormal import Multinormal, n_pairs
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.statistics import Statistics, join


@dataclass
class Odds:
    """Log odds of side 1 in every group, as kernels/mixture/split.pyx reads them.

    A row's log odds: prior + sum of table at its level rows + sum over reals of real[0] - real[2] (x - real[1])^2
    + real[4] (x - real[3])^2 + sum over counts of x count[0] - count[1] + sum over blocks of what
    kernels/mixture/vector_odds.h makes of vector.
    """

    prior: np.ndarray  # (G,) float64
    table: np.ndarray  # (G, L) float32
    real: np.ndarray  # (G, R, 5) float64
    count: np.ndarray  # (G, Q, 2) float64
    vector: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))  # (G, see vector_odds.h) float64


def odds_of_predictive(components: Components, hyper: Hyper, sides: Statistics) -> Odds:
    """Log odds of clusters 1, 3, 5, ... of `sides` against 0, 2, 4, ...: posterior means plugged in."""
    table = components.categorical.log_predictive_table(hyper.dirichlet, sides.levels)
    location, kappa, nu, spread = reals.posterior(hyper.normal, sides.real_n, sides.real_mean, sides.real_scatter)
    rate = (hyper.gamma[:, 0, None] + sides.tally_sum) / (hyper.gamma[:, 1, None] + sides.tally_n)
    vector = []
    for wishart, (block, *moments) in zip(hyper.wishart, components.multinormal.parts(sides.of(Multinormal))):
        p = block.posterior(wishart, *moments)
        widen = np.sqrt((p.kappa + 1.0) / (p.kappa * (p.nu - block.width + 1.0)))
        vector.append((p.location, p.lower * widen[:, None, None]))
    return _odds(log_ratio(sides), table, location, spread * (kappa + 1.0) / (nu * kappa), rate, vector)


def vector_length(widths: np.ndarray) -> int:
    """Numbers in `Odds.vector` of one group."""
    return int((1 + 2 * (widths + n_pairs(widths))).sum())


def log_ratio(sides: Statistics) -> np.ndarray:
    return np.log(sides.size[1::2] / sides.size[0::2])


def _odds(prior: np.ndarray, table: np.ndarray, location, variance, rate, vectors) -> Odds:
    """vectors: of each block the location (2 G, D), and the lower triangle L (2 G, D, D) of the matrix L L'."""
    half, log_rate = 0.5 / variance, np.log(rate)
    level = 0.5 * np.log(half[:, 1::2] / half[:, 0::2])
    real = [level, location[:, 1::2], half[:, 1::2], location[:, 0::2], half[:, 0::2]]
    count = [log_rate[:, 1::2] - log_rate[:, 0::2], rate[:, 1::2] - rate[:, 0::2]]
    return Odds(
        prior,
        np.ascontiguousarray((table[:, 1::2] - table[:, 0::2]).T, np.float32),
        np.ascontiguousarray(np.stack(real).transpose(2, 1, 0)),
        np.ascontiguousarray(np.stack(count).transpose(2, 1, 0)),
        np.concatenate([np.zeros((len(prior), 0)), *(_vector(*v) for v in vectors)], axis=1),
    )


def _vector(location: np.ndarray, lower: np.ndarray) -> np.ndarray:
    """One block's numbers in every group, (G, 1 + 2 (D + pairs))."""
    width = location.shape[-1]
    factor = np.linalg.solve(lower, np.broadcast_to(np.eye(width), lower.shape))
    log_diagonal = np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
    i, j = np.tril_indices(width)
    sides = np.concatenate([location, factor[:, i, j]], axis=1)
    level = (log_diagonal[1::2] - log_diagonal[0::2])[:, None]
    return np.concatenate([level, sides[1::2], sides[0::2]], axis=1)


def both_sides(whole: Statistics, one: Statistics) -> Statistics:
    """Statistics of sides 0 and 1 of every group, as clusters 2 g and 2 g + 1, from those of its rows and of side 1.

    For tables without real columns, single or in blocks, whose moments would lose digits.
    """
    zero = Statistics(*(getattr(whole, f.name) - getattr(one, f.name) for f in fields(Statistics)))
    return join([zero, one]).take(np.arange(2 * len(one)).reshape(2, -1).T.ravel())
