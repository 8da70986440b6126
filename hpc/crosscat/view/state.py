"""State that ranks exchange in a cycle: the partition, and the draws given it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.components.component import Array
from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.kinds import KINDS
from mpibayes.hpc.components.product import Dealing, Parameters
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.parallel.comm import Communicator


@dataclass
class Partition:
    """The partition of a view, with the summaries for the coming cycle; the same on every rank."""

    size: np.ndarray  # (K,) int64, rows of each cluster
    owner: np.ndarray  # (K,) int64, shard that owns the cluster in the coming cycle
    owned: np.ndarray  # (K,) int64, rows of the cluster in its owner
    statistics: Statistics  # of all rows
    anchor: np.ndarray  # (K,) uint64, least priority among the rows outside the owner; 2^64 - 1 if there are none


@dataclass
class Weights:
    """Root's draws of the Pitman-Yor process."""

    concentration: float
    discount: float
    log_weight: np.ndarray  # (K1,) float64, of the instantiated clusters
    log_tail_weight: np.ndarray  # float64, total weight of each shard's collapsed tail (S,), or of the only one (1,)
    tail_concentration: float


@dataclass
class Shared:
    """State that all ranks share in a cycle: hyperparameters, and weights and parameters of instantiated clusters."""

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
    """Share all draws with every rank: a broadcast, and one message per rank for each kind of column.

    n_kept: K1, number of instantiated clusters; n_tails: number of tail weights. weights: on root. columns, parameters:
    hyperparameters and parameters of this rank's columns.
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

    def whole(mine: np.ndarray, starts: np.ndarray) -> np.ndarray:
        out = np.empty((int(starts[-1]), mine.shape[1]), mine.dtype)
        out[starts[comm.rank] : starts[comm.rank + 1]] = mine
        comm.share_rows(out, starts)
        return out

    hyper, result = {}, {}
    for kind, starts in zip(KINDS, dealing.starts):
        mine = {array.name: getattr(parameters, array.name) for array in kind.parameters}
        mine[kind.hyper] = columns[kind.hyper].reshape(-1, math.prod(kind.hyper_form))
        alike = {}  # arrays whose rows share a message
        for array in (Array(kind.hyper), *kind.parameters):
            alike.setdefault((array.axis, array.dtype), []).append(array.name)
        for (axis, _), names in alike.items():
            out = whole(np.concatenate([mine[name] for name in names], axis=1), starts[axis])
            parts = np.split(out, np.cumsum([mine[name].shape[1] for name in names])[:-1], axis=1)
            result.update((name, np.ascontiguousarray(part)) for name, part in zip(names, parts))
        hyper[kind.hyper] = result.pop(kind.hyper).reshape(-1, *kind.hyper_form)
    weights = Weights(concentration, discount, log_weight, log_tail_weight, tail_concentration)
    return weights, Hyper(concentration, discount, **hyper), Parameters(**result)
