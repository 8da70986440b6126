"""The first labels of a view's rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.start.subsample import IDLE
from mpibayes.hpc.parallel.agreement import broadcast_arrays
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.kernels import mixture as kernels
from mpibayes.kernels.mixture.restaurant import restaurant


def start(view, how: str | np.ndarray, n_clusters: int, chosen: Sequence[np.ndarray]) -> None:
    """Label the `chosen` rows of each of this rank's shards. Collective.

    how: "one" cluster, "random" (n_clusters uniformly), "overdispersed" (random, their number log-uniform, at most
    256), "prior" (a draw of the Pitman-Yor process), "sequential", or an array of labels of all rows. Sequential: shard
    0 is seated row by row by the collapsed predictive; then every other shard starts from the clusters of shard 0,
    independently, and may open more.
    """
    if isinstance(how, str) and how == "sequential":
        _seat(view, chosen)
    else:
        _deal(view, how, n_clusters, chosen)


def _deal(view, how: str | np.ndarray, n_clusters: int, chosen: Sequence[np.ndarray]) -> None:
    """Label rows independently of their cells."""
    seed, given = view.settings.seed, not isinstance(how, str)
    if not given and how == "overdispersed":
        u = generator(seed, Purpose.START, 0, view.n_shards, view.lane).random()
        how, n_clusters = "random", int(np.exp(u * np.log(max(1, min(256, view.n_rows // 8)) + 1)))
    dealt = None
    if not given and how == "prior":  # the same on every rank
        key = {"seed": seed, "purpose": Purpose.RESTAURANT, "cycle": 0, "chain": view.lane, "sub": 0}
        dealt = restaurant(view.n_rows, view.hyper.concentration, view.hyper.discount, **key)
    everyone = how if given else dealt
    view.n_labels = {"one": 1, "random": n_clusters}[how] if everyone is None else int(everyone.max()) + 1
    for shard, z, rows in zip(view.shards, view.z, chosen):
        if everyone is not None:
            z[rows] = everyone[shard.start + rows]
        else:
            stream = generator(seed, Purpose.START, 0, shard.index, view.lane)
            z[rows] = stream.integers(view.n_labels, size=len(rows))


def _seat(view, chosen: Sequence[np.ndarray]) -> None:
    """Seat rows one by one: shard 0 first, then the other shards in parallel."""
    prior = view.components.prior(view.hyper)
    first, n_first = {}, np.zeros(1, np.int64)
    opened = np.zeros(view.n_shards, np.int64)
    for turn in (0, 1):
        for shard, z, rows in zip(view.shards, view.z, chosen):
            if (shard.index > 0) == turn:
                opened[shard.index] = _seat_shard(view, shard, z, rows, prior, first) - n_first[0]
        if not turn:
            if view.comm.rank == 0:
                n_first[0] = view.z[0].max() + 1
                rows = view.shards[0].rows
                first = vars(Statistics(*kernels.accumulate(rows, view.z[0], int(n_first[0]), prior.offsets)))
            first = broadcast_arrays(view.comm, first)
            view.comm.broadcast(n_first)
            opened[0] = 0
    view.comm.sum_everywhere(opened)
    view.renumber(int(n_first[0]), dict(enumerate(opened.tolist())))


def _seat_shard(view, shard, z: np.ndarray, rows: np.ndarray, prior, first) -> int:
    """Seat the rows of one shard beside clusters with statistics `first`, if any; return the number of clusters."""
    tail = kernels.Tail(prior, view.hyper.concentration, view.hyper.discount, 0.0)
    if first:
        tail.load(Statistics(**first))
    z[:] = IDLE
    nobody = np.full(len(rows), -1, np.int32)
    seed = view.settings.seed
    kernels.sweep(shard.rows, z, shard.start, seed, 0, 0, view.lane, None, tail, prior, False, nobody, rows)
    return tail.n_slots
