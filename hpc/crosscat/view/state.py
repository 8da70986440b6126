"""State that ranks exchange in a cycle: the partition, and the draws given it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.kinds import KINDS
from mpibayes.hpc.components.product import Dealing, Parameters
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.packed import concatenated, places, put_rows


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
    met: np.ndarray | None = None,
) -> tuple[Weights, Hyper, Parameters]:
    """Share all draws with every rank, in one message.

    n_kept: K1, number of instantiated clusters; n_tails: number of tail weights. weights: on root. columns, parameters:
    hyperparameters and parameters of this rank's columns. met: see `Categorical.met`; other level rows are 0.
    """
    if comm.size == 1:
        return weights, Hyper(weights.concentration, weights.discount, **columns), parameters
    process = np.zeros((0, 3 + n_kept + n_tails))
    if weights is not None:
        first = weights.concentration, weights.discount, weights.tail_concentration
        process = np.concatenate([first, weights.log_weight, weights.log_tail_weight])[None]
    sent = [(process, np.minimum(np.arange(comm.size + 1), 1))]  # arrays of this rank, and the first row of each rank
    index = places(met)
    present = [(kind, starts) for kind, starts in zip(KINDS, dealing.starts) if starts["column"][-1]]
    for kind, starts in present:
        sent.append((columns[kind.hyper].reshape(-1, math.prod(kind.hyper_form)), starts["column"]))
        for array in kind.parameters:
            mine, at = getattr(parameters, array.name), starts[array.axis]
            if array.axis == "level" and index is not None:
                of = np.searchsorted(index, at)
                mine, at = mine.take(index[of[comm.rank] : of[comm.rank + 1]] - at[comm.rank], axis=0), of
            sent.append((mine, at))
    found = iter(concatenated(comm, sent))
    concentration, discount, tail_concentration, *log_weights = next(found)[0].tolist()
    log_weight, log_tail_weight = np.split(np.array(log_weights), [n_kept])
    hyper, result = dict(columns), dict(vars(parameters))
    for kind, starts in present:
        hyper[kind.hyper] = next(found).reshape(-1, *kind.hyper_form)
        for array in kind.parameters:
            whole = next(found)
            if array.axis == "level" and index is not None:
                every = np.zeros((int(starts["level"][-1]), whole.shape[1]), whole.dtype)
                put_rows(every, index, whole)
                whole = every
            result[array.name] = whole
    weights = Weights(concentration, discount, log_weight, log_tail_weight, tail_concentration)
    return weights, Hyper(concentration, discount, **hyper), Parameters(**result)
