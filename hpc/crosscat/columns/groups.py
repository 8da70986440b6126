"""A group of columns goes to another view or to a new one, and rows follow (docs/math.md 2.18).

The group leaves its view, and enters another, by powers of its likelihood (powers.py). A new view's rows are built up
batch by batch; a view that the group leaves empty is taken down in the same way (buildup.py). The logarithms of the
paths' weights add up to the log ratio of the move.

A group is chosen by the cells: columns that depend on a random one are likely to go along, and the views of columns
that depend on it are likely targets. Dependence is measured given the cells alone, so it is the same for the reverse
move; probabilities of choices enter the ratio.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.hpc.crosscat import host
from mpibayes.hpc.crosscat.columns import sides
from mpibayes.hpc.crosscat.columns.bodies import Bodies
from mpibayes.hpc.crosscat.columns.buildup import Buildup
from mpibayes.hpc.crosscat.columns.powers import Path
from mpibayes.hpc.crosscat.columns.scan import Rowwise, of_views
from mpibayes.hpc.crosscat.columns.values import by_value
from mpibayes.hpc.parallel.streams import Purpose, Stream, generator

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.chain import Mixture

LANES = 1 << 29  # first random-number lane of the paths, one of each kind
NEAR = 1, 2, 3, 4, 6, 8, 12  # columns that are likely to go, one of these numbers
GOES, STAYS = 0.9, 0.03  # probability that such a column goes, and any other
WHOLE = 0.5  # probability that all columns of the view go
NEW = 0.3  # probability of a new view, where columns stay
FLOOR = 0.2  # nats added to a column's dependence, so that every view may be chosen
NOWHERE = 3.0  # nats: weight of no move at all, which saves one where no other view depends on the column
STEPS, OFTEN = (10, 30, 100), (0.5, 0.3, 0.2)  # steps of the paths by powers, and how often


def draw(p: np.ndarray, stream: np.random.Generator) -> int:
    """Draw a place with probabilities p; -1 with what they lack of 1."""
    u = stream.random()
    return next((i for i, below in enumerate(np.cumsum(p).tolist()) if u < below), -1)


class Group:
    """A cycle's move. Every method is collective."""

    def __init__(self, chain: Mixture):
        self.chain, self.comm, self.bodies = chain, chain.comm, Bodies(chain)
        self.where = self.bodies.where
        self.stream = generator(purpose=Purpose.GROUPS, **chain.key)
        self.free = np.arange(len(self.where)) != self.bodies.host  # the outcome's host stays

    def run(self) -> tuple[list[int], list[Rowwise]] | None:
        """Return the accepted proposal: the partition of each body, and the partitions, as `scan.scan` does; or
        None."""
        log_u = np.log(self.stream.random())
        free = np.flatnonzero(self.free)
        if not len(free):
            return None
        one = int(free[int(self.stream.integers(len(free)))])
        near = self._near(one)
        group, target = near.draw(self.where, self.stream)
        if target < 0:
            return None
        levels = STEPS[draw(np.array(OFTEN), self.stream)]
        source, after = int(self.where[one]), np.where(group, target, self.where)
        log_r = self.bodies.log_prior(after) - self.bodies.log_prior(self.where)
        log_r += near.log_q(after, group, source) - near.log_q(self.where, group, target)
        partitions = of_views(self.chain.views)
        if self.bodies.host >= 0:
            self.chain.outcome.begin()  # its global coefficients were drawn after the sweeps
        names = [name for u in np.flatnonzero(group).tolist() for name in self.bodies.names[u]]
        if (after == source).any():
            log_w, partitions[source] = self._path(partitions, source, names, levels, leaving=True)
        else:
            log_w = Buildup(self.chain, self.chain.subject(names), LANES + 1).down(partitions[source].z)
        log_r -= log_w
        if target < len(partitions):
            log_w, partitions[target] = self._path(partitions, target, names, levels, leaving=False)
        else:
            new = Buildup(self.chain, self.chain.subject(names), LANES + 1)
            log_w = new.up()
            partitions.append(new.end())
        accepted = self.comm.share(bool(log_u < log_r + log_w))
        return (after.tolist(), partitions) if accepted else None

    def _path(
        self, partitions: Sequence[Rowwise], view: int, names: Sequence[str], levels: int, leaving: bool
    ) -> tuple[float, Rowwise]:
        """Take the named columns out of a view, or into it, by powers. Return the term of the log ratio with the
        columns in the view that comes from the path's work, and the partition at the path's end."""
        columns, outcome = {*self.chain.views[view].columns, *names}, host.by_view(self.chain)[view]
        path = Path(self.chain, partitions[view], columns, names, LANES + 2 * leaving, outcome, levels)
        return path.run(leaving), path.end()

    def _near(self, one: int) -> Near:
        """Measure how the bodies depend on one of them, on keyed rows; the same on every rank."""
        names = self.bodies.names
        subject = self.chain.subject([name for body in names for name in body])
        keyed = Stream(purpose=Purpose.GROUP_ROWS, **self.chain.key)
        share = sides.ROWS / subject.n_active
        near = [keyed.uniforms(s.start + np.arange(len(s))) < share for s in subject.shards]
        rows = subject.to_root([np.flatnonzero(at & subject.active(i)) for i, at in enumerate(near)])
        score, stream = None, generator(purpose=Purpose.GROUP_ROWS, sub=1, **self.chain.key)
        if rows is not None:
            body_of = {name: u for u, body in enumerate(names) for name in body}
            unit_of = [body_of[name] for name in subject.components.by_column(subject.hyper)]
            held = self.chain.held([name for body in names for name in body], [rows])
            of_one = self.chain.of_columns(names[one], [held])[2](0)
            z = by_value(of_one, stream) if len(rows) else np.zeros(0, np.int32)
            whole = sides.Part(subject.components, subject.hyper, rows)
            score = sides.scores(whole, unit_of, z) - sides.scores(whole, unit_of, stream.permutation(z))
        return Near(one, self.comm.share(score), self.free, NEAR[int(self.stream.integers(len(NEAR)))])


class Near:
    """Law of the group that goes with a body, and of its target, given an assignment of the bodies to views.

    score (U,): nats by which bodies depend on it; free (U,) bool: False for a body that stays; n: bodies, with it, that
    are likely to go."""

    def __init__(self, one: int, score: np.ndarray, free: np.ndarray, n: int):
        self.one, self.free = one, free
        self.weight = FLOOR + np.maximum(score, 0.0)
        score = np.where(free, score, -np.inf)
        score[one] = np.inf
        self.p = np.full(len(score), STAYS)
        self.p[np.argsort(-score, kind="stable")[:n]] = GOES

    def draw(self, where: np.ndarray, stream: np.random.Generator) -> tuple[np.ndarray, int]:
        """Draw a group, (U,) bool, and its target; the number of views stands for a new one, -1 for none."""
        mine = (where == where[self.one]) & self.free
        group = mine.copy() if stream.random() < WHOLE else mine & (stream.random(len(where)) < self.p)
        group[self.one] = True
        return group, draw(self._targets(where, group), stream)

    def log_q(self, where: np.ndarray, group: np.ndarray, target: int) -> float:
        """Return the log probability of a group and its target; one that is no view stands for a new one."""
        mine = (where == where[self.one]) & self.free
        coins = np.where(group, self.p, 1.0 - self.p)[mine & (np.arange(len(mine)) != self.one)]
        log_q = np.log(1.0 - WHOLE) + np.log(coins).sum()
        if (group == mine).all():
            log_q = np.logaddexp(log_q, np.log(WHOLE))
        p = self._targets(where, group)
        return float(log_q + np.log(p[target if (where == target).any() else -1]))

    def _targets(self, where: np.ndarray, group: np.ndarray) -> np.ndarray:
        """Return the probability of each view, and last of a new one."""
        source = where[self.one]
        weight = np.bincount(where, self.weight)
        weight[source] = 0.0
        new = NEW * bool(((where == source) & ~group).any())
        return np.append((1.0 - new) * weight / (NOWHERE + weight.sum()), new)
