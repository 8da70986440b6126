"""What the ranks tell each other in a cycle: the summary of the partition, and what is drawn given it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.comm import Communicator
from mpibayes.hpc.models.components import Hyper, Parameters, Part
from mpibayes.hpc.models.statistics import Statistics


@dataclass
class Summary:
    """The partition as the coming cycle needs it; the same on every rank."""

    size: np.ndarray  # (K,) int64, rows of each cluster
    owned: np.ndarray  # (K,) int64, those on the shard that owns the cluster in the coming cycle
    statistics: Statistics  # of all rows
    anchor: np.ndarray  # (K,) uint64, least priority among the rows off the owner; 2^64 - 1 where there are none


@dataclass
class Weights:
    """What root draws of the Pitman-Yor process."""

    concentration: float
    discount: float
    log_weight: np.ndarray  # (K1,) float64, of the instantiated clusters
    log_tail_weight: np.ndarray  # (S,) float64, total weight of each shard's collapsed tail
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
    parts: Sequence[Part],
    offsets: np.ndarray,
    n_kept: int,
    n_shards: int,
    weights: Weights | None,
    columns: Mapping[str, np.ndarray],
    parameters: Parameters,
) -> tuple[Weights, Hyper, Parameters]:
    """Everybody's draws on every rank, in one message a rank: all ranks can tell the form of all of them.

    parts: columns of each rank; offsets (C + 1,): level rows of all categorical columns. n_kept: K1, instantiated
    clusters. weights: root's. columns, parameters: hyperparameters and parameters of this rank's columns.
    """
    mine = {**(vars(weights) if weights is not None else {}), **columns, **vars(parameters)}
    forms = [_form(part, offsets, n_kept, n_shards, rank == 0) for rank, part in enumerate(parts)]
    if comm.size == 1:
        pieces = [mine]
    else:
        lengths = [sum(_bytes(shape, dtype) for _, shape, dtype in form) for form in forms]
        block = np.zeros(lengths[comm.rank], np.uint8)
        for name, view in _views(block, forms[comm.rank]).items():
            view[...] = mine[name]
        everyone = np.split(comm.gather_everywhere(block, lengths), np.cumsum(lengths)[:-1])
        pieces = [_views(block, form) for block, form in zip(everyone, forms)]

    def whole(name):
        return np.concatenate([piece[name] for piece in pieces]) if len(pieces) > 1 else pieces[0][name]

    root = pieces[0]
    scalars = {name: float(root[name]) for name in ("concentration", "discount", "tail_concentration")}
    weights = Weights(log_weight=root["log_weight"], log_tail_weight=root["log_tail_weight"], **scalars)
    hyper = Hyper(scalars["concentration"], scalars["discount"], *(whole(name) for name in columns))
    return weights, hyper, Parameters(**{name: whole(name) for name in vars(parameters)})


def _form(part: Part, offsets: np.ndarray, n_kept: int, n_shards: int, root: bool) -> list[tuple]:
    """(name, shape, dtype) of all arrays that a rank tells the others."""
    (c0, c1), real, count = part.categorical, part.real[1] - part.real[0], part.count[1] - part.count[0]
    form = []
    if root:
        form += [(name, (), np.float64) for name in ("concentration", "discount", "tail_concentration")]
        form += [("log_weight", (n_kept,), np.float64), ("log_tail_weight", (n_shards,), np.float64)]
    form += [
        ("dirichlet", (c1 - c0,), np.float64),
        ("normal", (real, 4), np.float64),
        ("gamma", (count, 2), np.float64),
    ]
    form += [(name, (real, n_kept), np.float64) for name in ("location", "half_precision", "constant")]
    form += [(name, (count, n_kept), np.float64) for name in ("log_rate", "rate")]
    return [*form, ("table", (int(offsets[c1] - offsets[c0]), n_kept), np.float32)]  # last: all before it is aligned


def _bytes(shape: tuple[int, ...], dtype) -> int:
    """Of an array, rounded up so that what follows it is aligned."""
    return -(-int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize // 8) * 8


def _views(block: np.ndarray, form) -> dict[str, np.ndarray]:
    """The arrays of a form, side by side in a block of bytes."""
    views, start = {}, 0
    for name, shape, dtype in form:
        n = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        views[name] = block[start : start + n].view(dtype).reshape(shape)
        start += _bytes(shape, dtype)
    return views
