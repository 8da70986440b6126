"""What the ranks tell each other in a cycle: the partition, and what is drawn given it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.components.product import Dealing, Hyper, Parameters
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.parallel.comm import Communicator


@dataclass
class Partition:
    """The partition of a view as the coming cycle needs it; the same on every rank."""

    size: np.ndarray  # (K,) int64, rows of each cluster
    owner: np.ndarray  # (K,) int64, the shard that owns it in the coming cycle
    owned: np.ndarray  # (K,) int64, its rows there
    statistics: Statistics  # of all rows
    anchor: np.ndarray  # (K,) uint64, least priority among the rows off the owner; 2^64 - 1 where there are none


@dataclass
class Weights:
    """What root draws of the Pitman-Yor process."""

    concentration: float
    discount: float
    log_weight: np.ndarray  # (K1,) float64, of the instantiated clusters
    log_tail_weight: np.ndarray  # float64, total weight of a collapsed tail: of each shard's (S,), or the only one (1,)
    tail_concentration: float


@dataclass
class Shared:
    """What every rank needs for a cycle: hyperparameters, and weights and parameters of the instantiated clusters."""

    hyper: Hyper
    anchor: np.ndarray  # (K1,) uint64, anchor priorities of the instantiated clusters
    weights: Weights
    parameters: Parameters


def exchange(
    comm: Communicator,
    dealing: Dealing,
    n_kept: int,
    n_tails: int,
    weights: Weights | None,
    columns: Mapping[str, np.ndarray],
    parameters: Parameters,
) -> tuple[Weights, Hyper, Parameters]:
    """Everybody's draws on every rank: a broadcast, and one message a rank for each kind of column.

    n_kept: K1, instantiated clusters; n_tails: how many tails have a weight of their own. weights: root's. columns,
    parameters: hyperparameters and parameters of this rank's columns.
    """
    if comm.size == 1:
        return weights, Hyper(weights.concentration, weights.discount, **columns), parameters
    process = np.empty(3 + n_kept + n_tails)
    if weights is not None:
        process[:3] = weights.concentration, weights.discount, weights.tail_concentration
        process[3:] = np.concatenate([weights.log_weight, weights.log_tail_weight])
    comm.broadcast(process)
    concentration, discount, tail_concentration = process[:3].tolist()
    log_weight, log_tail_weight = np.split(process[3:], [n_kept])

    def whole(mine, starts, *form, dtype=np.float64):
        out = np.empty((int(starts[-1]), *form), dtype)
        out[starts[comm.rank] : starts[comm.rank + 1]] = mine
        comm.share_rows(out, starts)
        return out

    def side_by_side(widths, arrays, starts):
        out = whole(np.concatenate(arrays, axis=1), starts, sum(widths))
        return [np.ascontiguousarray(a) for a in np.split(out, np.cumsum(widths)[:-1], axis=1)]

    p = parameters
    dirichlet = whole(columns["dirichlet"], dealing.categorical)
    table = whole(p.table, dealing.level_rows, n_kept, dtype=np.float32)
    real = columns["normal"], p.location, p.half_precision, p.constant
    normal, *real = side_by_side([4, n_kept, n_kept, n_kept], real, dealing.real)
    gamma, *rates = side_by_side([2, n_kept, n_kept], (columns["gamma"], p.log_rate, p.rate), dealing.count)
    wishart, constant = side_by_side([3, n_kept], (columns["wishart"], p.vector_constant), dealing.vector)
    location = whole(p.vector_location, dealing.vector_columns, n_kept)
    factor = whole(p.vector_factor, dealing.vector_pairs, n_kept)
    weights = Weights(concentration, discount, log_weight, log_tail_weight, tail_concentration)
    hyper = Hyper(concentration, discount, dirichlet, normal, gamma, wishart)
    return weights, hyper, Parameters(table, *real, *rates, location, factor, constant)
