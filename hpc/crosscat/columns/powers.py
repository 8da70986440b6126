"""Draw the view of a column while row labels adapt to it, by annealing powers of its likelihood (docs/math.md 2.15).

In the present view a path takes the column's likelihood from power 1 to 0 in LEVELS steps; in every other view, and in
an auxiliary one from the prior, from 0 to 1. Between two steps the rows of the view are swept with the column at the
present power. The steps' log ratios add up to the work W of a path, and the view is drawn in proportion to its prior
weight times exp(-W) or exp(W) (Neal 2001; Nilmeier et al. 2011). The view that the column leaves and the one that it
joins keep the labels at the end of their paths; all other views keep their old labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.hpc.components.grid import draw_on_grid
from mpibayes.hpc.components.product import Parameters
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat import host
from mpibayes.hpc.crosscat.columns.bodies import Bodies
from mpibayes.hpc.crosscat.columns.following import Following
from mpibayes.hpc.crosscat.columns.scan import Present, Rowwise, auxiliaries, of_views
from mpibayes.hpc.crosscat.view import sync
from mpibayes.hpc.crosscat.view.pruning import Pruning
from mpibayes.hpc.parallel.streams import Purpose, Stream, generator, in_lane

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.chain import Mixture
    from mpibayes.hpc.outcome.outcome import Outcome

LEVELS = 10  # steps of a path
LANES = 1 << 28  # first random-number lane of the sweeps
AUXILIARY = 1 << 19  # number of the auxiliary view, beyond the numbers that a scan uses


def due(chain: Mixture) -> bool:
    """True if this cycle ends with a draw: depends on the cycle's number, once all rows are active."""
    every = chain.settings.column_powers
    return every > 0 and chain.cycles % every == 0 and chain.settings.likelihood and not chain.growing


def draw(chain: Mixture) -> tuple[list[int], list[Rowwise]] | None:
    """Draw the view of a random body. Return the partition of each body, and the partitions, as `scan.scan` does, or
    None if it stays, as the outcome's host does. Collective."""
    bodies, stream = Bodies(chain), generator(purpose=Purpose.POWERS, **chain.key)
    body = int(stream.integers(len(bodies.names)))
    return None if body == bodies.host else draw_one(chain, bodies, body, stream)


def draw_one(
    chain: Mixture, bodies: Bodies, body: int, stream: np.random.Generator
) -> tuple[list[int], list[Rowwise]] | None:
    """Draw the view of the given body; otherwise as `draw`."""
    partitions = of_views(chain.views)
    present = int(bodies.where[body])
    if np.count_nonzero(bodies.where == present) > 1:  # else its emptied view serves as the auxiliary one
        first = chain.views[0]
        partitions += auxiliaries(chain.comm, first.law, Present.of(first), chain.key, [AUXILIARY])
    log_weight, outcomes = np.empty(len(partitions)), host.by_view(chain)
    if bodies.host >= 0:
        chain.outcome.begin()  # its global coefficients were drawn after the sweeps
    for p, of in enumerate(partitions):
        others = chain.views[p].columns if p < len(chain.views) else ()
        outcome = outcomes[p] if p < len(chain.views) else None
        path = Path(chain, of, {*others, *bodies.names[body]}, bodies.names[body], LANES + p, outcome)
        log_weight[p] = path.run(leaving=p == present) + bodies.log_prior(_moved(bodies.where, body, p))
        partitions[p] = path.end()
    chosen = int(chain.comm.share(draw_on_grid(log_weight, stream) if chain.comm.rank == 0 else 0))
    if chosen == present:
        return None
    as_they_were = of_views(chain.views)
    result = [of if p in (present, chosen) else was for p, (of, was) in enumerate(zip(partitions, as_they_were))]
    return _moved(bodies.where, body, chosen).tolist(), [*result, *partitions[len(result) :]]


def _moved(where: np.ndarray, body: int, view: int) -> np.ndarray:
    result = where.copy()
    result[body] = view
    return result


class Path:
    """The rows of a partition while a body's likelihood is raised to power 1 or lowered to 0. names: the partition's
    columns, including the body's. outcome: the chain's, if labels of this partition depend on it; clusters keep their
    coefficients. levels: steps. Methods are collective."""

    def __init__(
        self, chain: Mixture, start: Rowwise, names: set[str], body: Sequence[str], lane: int,
        outcome: Outcome | None = None, levels: int | None = None,
    ):  # fmt: skip
        self.chain, self.comm, self.start, self.lane = chain, chain.comm, start, lane
        self.levels = levels or LEVELS
        self.components, self.hyper, cells = chain.of_columns(names, chain.held_with(names))
        self.hyper = replace(self.hyper, concentration=start.process[0], discount=start.process[1])
        self.shards = [replace(shard, rows=cells(i)) for i, shard in enumerate(chain.shards)]
        self.z = [z.astype(np.int32) for z in start.z]
        self.body = [
            (place, c) for place, kind in enumerate(self.components.kinds) for c in range(len(kind))
            if kind.members(c)[0].name in body
        ]  # fmt: skip
        self.following = Following(self.comm, self.components, self.hyper, outcome)
        self.moments = sync.Moments(self.components)
        self.pruning = Pruning(self.shards, self.components.categorical.offsets)
        self.counts = sync.counted(self.components, self._labelled(), start.n_labels)
        sync.add_up(self.comm, [self.counts])

    def _labelled(self) -> list[tuple]:
        return [(shard.rows, z) for shard, z in zip(self.shards, self.z)]

    def run(self, leaving: bool) -> float:
        """Follow the path; return the term of its view's log weight that comes from the work, on root."""
        powers = np.linspace(0.0, 1.0, self.levels + 1)
        powers, work = powers[::-1] if leaving else powers, 0.0
        for level, (before, power) in enumerate(pairwise(powers), 1):
            statistics = self._statistics()
            work += self._log_marginal(statistics, power) - self._log_marginal(statistics, before)
            if level < self.levels:
                self._sweep(statistics, power, level)
        return -work if leaving else work

    def end(self) -> Rowwise:
        """Return the partition at the end of the path."""
        kind = np.min_scalar_type(-1 - self.start.n_labels)
        return replace(self.start, z=[z.astype(kind) for z in self.z])

    def _statistics(self) -> Statistics:
        n_labels, n_shards = self.start.n_labels, self.chain.n_shards
        each = [self.moments.of(rows, z, n_labels) for rows, z in self._labelled()]
        merged = sync.merge_moments_up(self.comm, [self.moments], [each], [n_labels], n_shards, everywhere=True)
        return self.moments.statistics(self.counts, merged[0])

    def _log_marginal(self, statistics: Statistics, power: float) -> float:
        """Return the log marginal likelihood of the body at a power."""
        each = ((self.components.kinds[place], c) for place, c in self.body)
        return sum(kind.log_marginal_at(getattr(self.hyper, kind.hyper), statistics.of(kind), c, power)
                   for kind, c in each)  # fmt: skip

    def _sweep(self, statistics: Statistics, power: float, level: int) -> None:
        """Draw the label of every row except the anchors, with the body at a power."""
        key = {**self.chain.key, "chain": in_lane(self.chain.chain, self.lane + (level << 20))}
        drawn = self._parameters(statistics, power, key)
        of = self.shards, self.z, statistics, self.start.process[1], key, drawn, self.pruning
        self.z, changes = self.following.sweep(*of)
        self.counts = sync.Counts(*(a + b for a, b in zip(self.counts, changes)))

    def _parameters(self, statistics: Statistics, power: float, key) -> Parameters:
        """Draw the parameters of this rank's columns, with the body at the power."""
        result, part = self.following.parameters(statistics, key), self.following.dealing.part(self.comm.rank)
        stream = Stream(purpose=Purpose.PARAMETERS, **key)
        for place, c in self.body:
            if not part[place].start <= c < part[place].stop:
                continue
            kind = self.components.kinds[place]
            drawn = kind.draw_at(getattr(self.hyper, kind.hyper), statistics.of(kind), c, power, stream)
            for array, rows in zip(kind.parameters, drawn):
                first, end = kind.cuts[array.axis][[c, c + 1]] - kind.cuts[array.axis][part[place].start]
                getattr(result, array.name)[first:end] = rows
        return result
