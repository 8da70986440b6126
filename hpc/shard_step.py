"""One shard's part of a cycle (MATH 2.1, step 6; 2.2): L sweeps over its rows without communication."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from mpibayes.hpc.models.components import Parameters, Prior
from mpibayes.hpc.models.statistics import Statistics
from mpibayes.hpc.shards import Shard
from mpibayes.hpc.state import Shared
from mpibayes.kernels import mixture as kernels

WIDTH = 16  # clusters in a tile of the kernels; arrays over clusters are padded to a multiple of it


def padded(n: int) -> int:
    return -(-n // WIDTH) * WIDTH


def free_clusters(owner: np.ndarray, shard: int) -> np.ndarray:
    """Which instantiated clusters every row of a shard may enter and leave: those the shard owns (K1,) bool."""
    return owner == shard


def local_order(free: np.ndarray, anchor: np.ndarray) -> np.ndarray:
    """Instantiated clusters in the shard's order: free ones first, then by ascending anchor priority.

    A row's allowed clusters are then a prefix, since it may enter those whose anchor's priority is below its own.
    """
    return np.lexsort((anchor, ~free))


def instantiated(shared: Shared, order: np.ndarray, n_free: int) -> kernels.Instantiated:
    """The shared draw in a shard's order, padded for the kernels."""
    n = len(order)

    def padded_columns(array):
        out = np.zeros((array.shape[0], padded(n)), array.dtype)
        np.take(array, order, axis=1, out=out[:, :n]) if n else None
        return out

    columns = {f.name: padded_columns(getattr(shared.parameters, f.name)) for f in fields(Parameters)}
    return kernels.Instantiated(
        n=n, free=n_free, anchors=shared.anchor[order[n_free:]], log_weight=shared.log_weight[order], **columns
    )


def sweep_shard(
    shard: Shard, shared: Shared, private, owner, has_tail: bool, prior: Prior, *, sweeps: int, seed, cycle, chain,
    steps=None,
) -> tuple[int, int]:  # fmt: skip
    """Run the sweeps and leave new labels in `shard.z`. steps: (remove, assign) lists to follow instead (growth.py).

    private (K,) bool and owner (K,) are of the clusters that `shard.z` names on entry. On return the instantiated ones
    are 0..K1-1 in the order they had, and the shard's own clusters follow as K1, K1 + 1, ... in slot order. In between,
    the kernels want the shard's order: with clusters 0..3, of which 1 is private here, and anchors that put 3 before 0
    before 2, `to_local` is [1, 16, 2, 0], and `to_next` maps back: 0 -> 2, 1 -> 0, 2 -> 1, 16 -> 3.

    Returns (clusters in the shard's tail, rows moved in all sweeps).
    """
    kept = np.flatnonzero(~private)
    n_1 = len(kept)
    free = free_clusters(owner[kept], shard.index)
    order = local_order(free, shared.anchor)
    draw = instantiated(shared, order, int(free.sum()))
    base = padded(n_1)

    to_local = np.full(len(private), -1, np.int32)
    to_local[kept[order]] = np.arange(n_1)
    tail = None
    if has_tail:
        mine = np.flatnonzero(private & (owner == shard.index))
        to_local[mine] = base + np.arange(len(mine))
        tail = kernels.Tail(
            prior,
            shared.tail_concentration,
            shared.hyper.discount,
            float(shared.log_tail_weight[shard.index]),
            capacity=padded(len(mine) + 1),
        )
        slot = np.full(len(private), -1, np.int32)
        slot[mine] = np.arange(len(mine))
        tail.load(Statistics(*kernels.accumulate(shard.rows, shard.z, len(mine), prior.offsets, relabel=slot)))
    shard.z = _renamed(shard.z, to_local)
    key, moved = (seed, cycle), 0
    if steps is not None:
        moved = kernels.sweep(shard.rows, shard.z, shard.start, *key, 0, chain, draw, tail, prior, False, *steps)
    for sweep in range(sweeps if steps is None else 0):
        moved += kernels.sweep(shard.rows, shard.z, shard.start, *key, sweep, chain, draw, tail, prior)

    occupied = np.flatnonzero(tail.size[: tail.n_slots]) if tail is not None else np.zeros(0, np.int64)
    to_next = np.full(base + (tail.n_slots if tail is not None else 0), -1, np.int32)
    to_next[:n_1] = order
    to_next[base + occupied] = n_1 + np.arange(len(occupied))
    shard.z = _renamed(shard.z, to_next)
    return len(occupied), moved


def _renamed(z: np.ndarray, name: np.ndarray) -> np.ndarray:
    """name[z], with idle rows left as they are."""
    return np.where(z >= 0, name[np.maximum(z, 0)], z) if (z < 0).any() else name[z]
