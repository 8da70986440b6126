"""What the ranks tell each other in a cycle: the summary that goes up to root, and what root sends back down."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from mpibayes.hpc.comm import Communicator
from mpibayes.hpc.models.components import Hyper, Parameters
from mpibayes.hpc.models.statistics import Statistics
from mpibayes.hpc.models.vector import n_pairs


@dataclass
class Summary:
    """The partition as the coming cycle needs it. `size` and `owned` on every rank, the rest on root alone."""

    size: np.ndarray  # (K,) int64, rows of each cluster
    owned: np.ndarray  # (K,) int64, those on the shard that owns the cluster in the coming cycle
    statistics: Statistics | None  # of all rows
    anchor: np.ndarray | None  # (K,) uint64, least priority among the rows off the owner; 2^64 - 1 where there are none


@dataclass
class Shared:
    """What every rank needs for a cycle: hyperparameters, and weights and parameters of the instantiated clusters."""

    hyper: Hyper
    anchor: np.ndarray  # (K1,) uint64, anchor priorities of the instantiated clusters
    log_weight: np.ndarray  # (K1,) float64
    log_tail_weight: np.ndarray  # (S,) float64, total weight of each shard's collapsed tail
    tail_concentration: float
    parameters: Parameters


def broadcast(
    comm: Communicator, shared: Shared | None, like: Hyper, n_level_rows: int, n_kept: int, n_shards: int, widths=()
) -> Shared:
    """Root's `shared` on every rank, in one message: all ranks can tell its form.

    like: hyperparameters of the right shapes. n_level_rows: L. n_kept: K1, the instantiated clusters. widths: columns
    of each block.
    """
    if comm.size == 1:
        return shared
    real, count = (len(like.normal), n_kept), (len(like.gamma), n_kept)
    form = [("anchor", (n_kept,), np.uint64), ("log_weight", (n_kept,), np.float64)]
    form += [("log_tail_weight", (n_shards,), np.float64), ("tail_concentration", (), np.float64)]
    form += [(f.name, np.shape(getattr(like, f.name)), np.float64) for f in fields(Hyper)]
    form += [(name, real, np.float64) for name in ("location", "half_precision", "constant")]
    form += [(name, count, np.float64) for name in ("log_rate", "rate")]
    widths = np.asarray(widths, np.int64)
    rows = {"vector_location": widths, "vector_factor": n_pairs(widths), "vector_constant": np.ones_like(widths)}
    form += [(name, (int(n.sum()), n_kept), np.float64) for name, n in rows.items()]
    form += [("table", (n_level_rows, n_kept), np.float32)]  # last, so that all before it is aligned
    sizes = [int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize for _, shape, dtype in form]
    block = np.empty(sum(sizes), np.uint8)
    views, start = {}, 0
    for (name, shape, dtype), size in zip(form, sizes):
        views[name] = block[start : start + size].view(dtype).reshape(shape)
        start += size
    if comm.rank == 0:
        for name, array in {**vars(shared), **vars(shared.hyper), **vars(shared.parameters)}.items():
            if name in views:
                views[name][...] = array
    comm.broadcast(block)
    if comm.rank == 0:
        return shared
    values = {name: view if view.ndim else view.item() for name, view in views.items()}
    hyper = Hyper(**{f.name: values.pop(f.name) for f in fields(Hyper)})
    parameters = Parameters(**{f.name: values.pop(f.name) for f in fields(Parameters)})
    return Shared(hyper=hyper, parameters=parameters, **values)
