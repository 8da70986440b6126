"""A shard's part of a cycle (docs/math.md 2.1, step 6; 2.3): L sweeps over its rows without communication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.hpc.components.product import Components, Prior
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.view.pruning import Pruning
from mpibayes.hpc.crosscat.view.state import Shared
from mpibayes.hpc.crosscat.view.sync import COUNTS, Changes, Counts
from mpibayes.hpc.parallel.shards import Shard
from mpibayes.kernels import mixture as kernels
from mpibayes.kernels.mixture import pruning as pruned
from mpibayes.kernels.mixture.counts import recount

if TYPE_CHECKING:
    from mpibayes.hpc.outcome.outcome import Outcome

WIDTH = 16  # clusters in a tile of the kernels; arrays over clusters are padded to a multiple of it

NO_ORDER = np.zeros(0, np.int64)  # order of no instantiated clusters


def padded(n: int) -> int:
    return -(-n // WIDTH) * WIDTH


def local_order(free: np.ndarray, anchor: np.ndarray) -> np.ndarray:
    """Sort the instantiated clusters into the shard's order: free ones first, then by ascending anchor priority.

    A row's allowed clusters are then a prefix, since it may enter those whose anchor's priority is below its own.
    """
    return np.lexsort((anchor, ~free))


def instantiated(shared: Shared, order: np.ndarray, n_free: int, met: np.ndarray | None = None) -> kernels.Instantiated:
    """Return the shared draw in a shard's order, as the kernels read it. met: see `Categorical.met`."""
    columns = {name: array for name, array in vars(shared.parameters).items() if len(array)}
    of = {"anchors": shared.anchor[order[n_free:]], "log_weight": shared.weights.log_weight[order]}
    return kernels.Instantiated(n=len(order), free=n_free, order=order, met=met, **of, **columns)


@dataclass
class Step:
    """A view's cycle: the input common to all shards, and this rank's results.

    private (K,) bool, kept: mask of the clusters on entry that are collapsed, by label, and the others, (K1,); owner
    (K,): of each; statistics: of these clusters, if one shard has all rows, else None. collapsed: shards with a tail.
    pruning: of the view's cells on this rank. outcome: outcome model with a regression in each cluster, if labels
    depend on one.
    """

    shared: Shared
    private: np.ndarray
    kept: np.ndarray
    owner: np.ndarray
    statistics: Statistics | None
    prior: Prior
    components: Components
    collapsed: Sequence[int]
    sweeps: int
    key: Mapping[str, int]
    pruning: Pruning
    outcome: Outcome | None = None

    def __post_init__(self):
        self.changes = Changes(self.components, len(self.kept))
        self.opened = dict.fromkeys(self.collapsed, 0)  # clusters in each shard's tail after its sweeps
        self.moved = 0  # rows that changed clusters, in all sweeps

    @cached_property
    def free_of_owners(self) -> tuple[np.ndarray, kernels.Instantiated]:
        """Order and draw for a shard that owns no instantiated cluster, as most shards."""
        order = local_order(np.zeros(len(self.kept), bool), self.shared.anchor)
        return order, instantiated(self.shared, order, 0, self.prior.met)

    @cached_property
    def similar(self) -> np.ndarray:
        """Instantiated clusters in the order for bounds, (K1,)."""
        return self.pruning.similar(self.shared)

    @cached_property
    def bounds(self) -> pruned.Bounds | None:
        """Bounds for `free_of_owners`; None if full sweeps are cheaper."""
        if not self.pruning.worthwhile(len(self.kept), self.sweeps * self.pruning.rows_but_for(self.collapsed)):
            return None
        return self.pruning.bounds(self.similar, *self.free_of_owners, self.prior)

    def survivors(self, shard: Shard, z: np.ndarray, order: np.ndarray, draw: kernels.Instantiated):
        """Return the clusters' scores that survive pruning, for a shard with a tail and labels z in its order; None if
        full sweeps are cheaper."""
        if not self.pruning.worthwhile(len(order), self.sweeps * len(shard)):
            return None
        bounds = self.pruning.bounds(self.similar, order, draw, self.prior)
        if bounds is None:
            return None
        seed, cycle, chain = self.key["seed"], self.key["cycle"], self.key["chain"]
        of = shard.rows, z, shard.start, seed, cycle, chain, draw, bounds
        return pruned.survivors(*of, self.pruning.bins(shard), self.prior)

    def anchors(self, shard: Shard, z: np.ndarray) -> np.ndarray:
        """Return a mask of the anchors among the rows of a shard with labels z, (n,) bool; anchors stay in their
        clusters, and active."""
        anchor = np.full(len(self.private), kernels.UNANCHORED, np.uint64)
        anchor[self.kept] = np.where(self.owner[self.kept] == shard.index, kernels.UNANCHORED, self.shared.anchor)
        return (z >= 0) & (kernels.priorities(shard.start, len(shard), **self.key) == anchor[np.maximum(z, 0)])

    def has_room(self, shard: Shard) -> bool:
        """True if an unassigned row of the shard can join a cluster."""
        return shard.index in self.opened or len(self.kept) > 0

    def run(self, shard: Shard, before: np.ndarray, steps=None) -> np.ndarray:
        """Run the sweeps over a shard with labels `before`; return the new labels. Raises FloatingPointError if a row
        has no finite score.

        steps: (remove, assign) lists to follow instead (start/subsample.py). On return the instantiated clusters are
        0..K1-1 in their old order, and the shard's own follow as K1, K1 + 1, ... in slot order. In between, the kernels
        use the shard's order: with clusters 0..3, where 1 is private here, and anchors that put 3 before 0 before 2,
        `to_local` is [1, 16, 2, 0], and `to_next` maps back: 0 -> 2, 1 -> 0, 2 -> 1, 16 -> 3.
        """
        if self.statistics is not None and self.outcome is None:
            return self._run_alone(shard, before, steps)
        n_1, has_tail = len(self.kept), shard.index in self.opened
        free = self.owner[self.kept] == shard.index
        if not n_1:  # one shard has all clusters
            order, draw = np.zeros(0, np.int64), None
        elif not free.any():
            order, draw = self.free_of_owners
        elif free.all():  # in the same order
            order, draw = self.free_of_owners[0], self.free_of_owners[1].all_free()
        else:
            order = local_order(free, self.shared.anchor)
            draw = instantiated(self.shared, order, int(free.sum()), self.prior.met)
        base = padded(n_1)
        to_local = np.full(len(self.private), -1, np.int32)
        to_local[self.kept[order]] = np.arange(n_1)
        mine, tail = np.zeros(0, np.int64), None
        if has_tail:
            mine = np.flatnonzero(self.private & (self.owner == shard.index))
            to_local[mine] = base + np.arange(len(mine))
            tail = self._tail(shard, before, mine)
        z = _renamed(before, to_local)
        response = None if self.outcome is None else self.outcome.response(shard.index, self.kept[order], mine)
        self.moved += self._sweep(shard, z, order, draw, tail, steps, response)

        occupied = np.flatnonzero(tail.size[: tail.n_slots]) if tail is not None else np.zeros(0, np.int64)
        if response is not None and has_tail:
            self.outcome.take(response, occupied)
        to_next = np.full(base + (tail.n_slots if tail is not None else 0), -1, np.int32)
        to_next[:n_1] = order
        to_next[base + occupied] = n_1 + np.arange(len(occupied))
        z = _renamed(z, to_next)
        self._count(shard, before, z, tail, occupied)
        if has_tail:
            self.opened[shard.index] = len(occupied)
        return z

    def _run_alone(self, shard: Shard, before: np.ndarray, steps) -> np.ndarray:
        """Run the sweeps where one shard has all rows: it owns all clusters, and labels equal slots."""
        tail, z = self._tail(shard, before, self.owner), before.copy()
        self.moved += self._sweep(shard, z, NO_ORDER, None, tail, steps, None)
        (occupied,) = tail.size[: tail.n_slots].nonzero()
        if len(occupied) < tail.n_slots:
            to_next = np.full(tail.n_slots, -1, np.int32)
            to_next[occupied] = np.arange(len(occupied))
            z = _renamed(z, to_next)
        self._count(shard, before, z, tail, occupied)
        self.opened[shard.index] = len(occupied)
        return z

    def _tail(self, shard: Shard, z: np.ndarray, mine: np.ndarray) -> kernels.Tail:
        weights = self.shared.weights
        log_weight = float(weights.log_tail_weight[shard.index if len(weights.log_tail_weight) > 1 else 0])
        concentration, discount = weights.tail_concentration, weights.discount
        statistics = self.statistics
        if statistics is None:
            slot = np.full(len(self.private), -1, np.int32)
            slot[mine] = np.arange(len(mine))
            statistics = Statistics(*kernels.accumulate(shard.rows, z, len(mine), self.prior.offsets, relabel=slot))
        capacity = padded(len(statistics.size) + 1)
        return kernels.Tail(self.prior, concentration, discount, log_weight, capacity=capacity, statistics=statistics)

    def _sweep(self, shard: Shard, z: np.ndarray, order: np.ndarray, draw, tail, steps, response) -> int:
        seed, cycle, chain = self.key["seed"], self.key["cycle"], self.key["chain"]
        rows = shard.rows, z, shard.start, seed, cycle
        if response is not None:
            return self._sweep_with(response, rows, (chain, draw, tail, self.prior), steps)
        if steps is not None:
            return kernels.sweep(*rows, 0, chain, draw, tail, self.prior, False, *steps)
        if tail is None and draw is not None and draw is self.free_of_owners[1] and self.bounds is not None:
            more = chain, draw, self.bounds, self.pruning.bins(shard), self.prior
            return sum(pruned.sweep(*rows, sweep, *more) for sweep in range(self.sweeps))
        known = self.survivors(shard, z, order, draw) if draw is not None and tail is not None else None
        more = chain, draw, tail, self.prior
        return sum(kernels.sweep(*rows, sweep, *more, survivors=known) for sweep in range(self.sweeps))

    def _sweep_with(self, response, rows, more, steps) -> int:
        """Run the sweeps with an outcome: every row is scored under every cluster."""
        moved, (_, _, tail, _) = 0, more
        for sweep in range(self.sweeps if steps is None else 1):
            if tail is not None:
                self.outcome.renew(response, rows[2], self.key, sweep)
            moved += kernels.sweep(*rows, sweep, *more, False, *(steps or ()), response=response)
        return moved

    def _count(self, shard: Shard, before: np.ndarray, z: np.ndarray, tail, occupied: np.ndarray) -> None:
        """Apply the changed rows to the counts of instantiated clusters; the tail counts its own clusters."""
        n_1, changes = len(self.kept), self.changes
        if n_1:
            name = np.full(len(self.private), -1, np.int32)
            name[self.kept] = np.arange(n_1)
            before, z = _renamed(before, name), np.where(z < n_1, z, -1)
            changed = int(np.count_nonzero(before != z))
            changes.bound += changed
            if changed:
                recount(shard.rows, before, z, n_1, self.prior.offsets, changes.kept)
        if len(occupied):
            counts = changes.tails[shard.index] = Counts(*[getattr(tail, of.name).take(occupied, -1) for of in COUNTS])
            changes.bound += int(counts.size.sum())


def _renamed(z: np.ndarray, name: np.ndarray) -> np.ndarray:
    """Return name[z]; idle rows keep their labels."""
    return np.where(z >= 0, name[np.maximum(z, 0)], z) if z.min(initial=0) < 0 else name.take(z)
