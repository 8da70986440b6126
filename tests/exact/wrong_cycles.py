"""Wrong versions of the cycle of a mixture, and the program on the kernels' plain twins.

Each context replaces one function of the program and restores it; each breaks one rule of the cycle, so that the test
that accepts the program must reject the broken version.
"""

from __future__ import annotations

import contextlib
from unittest import mock

import numpy as np

from mpibayes.hpc.crosscat.view import sweep as shard_step
from mpibayes.hpc.crosscat.view import update as global_update
from mpibayes.hpc.parallel import collapse
from mpibayes.kernels import mixture as kernels
from mpibayes.kernels.mixture import twin, updates


def no_anchors():
    """Wrong: rows off the owner may enter every instantiated cluster and none has to stay."""

    def zero(z, row0, seed, cycle, chain, owned, n_clusters):
        return np.zeros(n_clusters, np.uint64)  # below every priority, and no row's own

    return mock.patch.object(kernels, "anchors", zero)


def nothing_private():
    """Wrong: all occupied clusters are instantiated, also those private to the collapsed shard."""
    return mock.patch.object(collapse, "private_clusters", lambda size, owned: size == 0)


class _PlainTail(twin.Tail):
    """The kernels' plain twin, with the kernels' slot counts."""

    @property
    def size(self):
        return np.array([s.size for s in self.slots], dtype=np.int64)

    @property
    def levels(self):
        return np.array([s.levels for s in self.slots], dtype=np.int32).reshape(len(self.slots), -1).T

    @property
    def tally_n(self):
        return self._tallies(0).astype(np.int64)

    @property
    def tally_sum(self):
        return self._tallies(1)

    def _tallies(self, field):
        result = [[tally[field] for tally in s.tallies] for s in self.slots]
        return np.array(result, dtype=np.float64).reshape(len(self.slots), -1).T


class _TailOverRows(_PlainTail):
    """The same with the tail's weights over N instead of M + alpha + K1 d."""

    n_all = 0

    def log_weights(self, row):
        known, new = super().log_weights(row)
        m = self.n_rows
        right = np.log(m + self.concentration) if m else np.log(self.concentration)
        shift = right - np.log(self.n_all)
        return [k + shift for k in known], new + shift


@contextlib.contextmanager
def plain_kernels(tail=_PlainTail):
    """The program on the kernels' plain Python twins."""
    with (
        mock.patch.object(kernels, "Tail", tail),
        mock.patch.object(kernels, "Instantiated", twin.Instantiated),
        mock.patch.object(kernels, "sweep", twin.sweep),
    ):
        yield


def tail_over_rows(n_rows: int):
    """Wrong: the collapsed tail is normalised by the number of all rows."""
    return plain_kernels(type("TailOver", (_TailOverRows,), {"n_all": n_rows}))


def heavy_new_cluster():
    """Wrong: beside an empty tail a new cluster has exp(1/2) times its weight."""
    right, make = shard_step.Step._tail, kernels.Tail

    def heavier(prior, concentration, discount, log_weight, **more):
        return make(prior, concentration, discount, log_weight + 0.5, **more)

    def _tail(self, shard, z, mine):
        with mock.patch.object(kernels, "Tail", make if len(mine) else heavier):
            return right(self, shard, z, mine)

    return mock.patch.object(shard_step.Step, "_tail", _tail)


def hypers_after_weights():
    """Wrong: (alpha, d) is drawn from p(. | z) after w, keeping w_*."""
    right = global_update.Update.run

    def run(self, comm, hyper, partition, private, kept, key, learn=True, met=None):
        new = self.draw_process(hyper, partition, key)  # from a stream with a key: the same on every rank
        old = mock.patch.object(global_update.Update, "draw_process", lambda *_: (hyper.concentration, hyper.discount))
        with old:
            shared = right(self, comm, hyper, partition, private, kept, key, learn, met)
        concentration, discount = shared.hyper.concentration, shared.hyper.discount = new
        shared.weights.concentration, shared.weights.discount = new
        shared.weights.tail_concentration = concentration + len(shared.weights.log_weight) * discount
        return shared

    return mock.patch.object(global_update.Update, "run", run)


def scored_without_base():
    """Wrong: multipliers of pseudo-counts are scored as if all levels had the same base."""
    right = updates.grid_scores
    return mock.patch.object(updates, "grid_scores", lambda *of: right(*of[:4]))
