"""Splits and merges of views (docs/math.md 2.10): many columns change views at once; their partitions of the rows are
drawn anew or kept.

Gibbs draws of single columns seldom join two equivalent views, since every column prefers the partition that its own
cells shaped; and they hardly ever open a view once rows have settled, since a partition from the prior scores badly. A
move draws a partition given the cells (proposal.py), and its probability enters the acceptance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.hpc.crosscat.columns import alike, sides
from mpibayes.hpc.crosscat.columns.bodies import Bodies
from mpibayes.hpc.crosscat.columns.proposal import Drawn, Proposal, side_by_side
from mpibayes.hpc.crosscat.columns.scan import Rowwise, of_views
from mpibayes.hpc.parallel.streams import Purpose, Stream, generator, in_lane

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.chain import Mixture

LAUNCHES = 1 << 20  # first random-number lane of the launches


class Move:
    """The number-th move of a cycle. Every method is collective; root computes what depends on cells, and shares it.

    Linked columns move together, with their links: `units` are the chain's bodies here. The view of an outcome keeps
    its rows' partition and its host: other moves of it are rejected, splits and merges alike.
    """

    def __init__(self, chain: Mixture, number: int):
        self.chain, self.comm, self.number, self.views = chain, chain.comm, number, chain.views
        self.key = {"seed": chain.settings.seed, "cycle": chain.cycles, "chain": chain.chain}
        self.stream = generator(purpose=Purpose.VIEW_MOVES, sub=number, **self.key)
        self.bodies = Bodies(chain)
        self.units, self.where, self.host = self.bodies.names, self.bodies.where, self.bodies.host
        self.fixed = int(self.where[self.host]) if self.host >= 0 else -1  # view of the outcome

    def run(self) -> tuple[list[int], list[Rowwise]] | None:
        """Return the accepted proposal: the partition of each unit, and the partitions, as `columns.scan.scan` does; or
        None."""
        split, self.anew, log_u = self.stream.random() < 0.5, self.stream.random() < 0.5, np.log(self.stream.random())
        return self._split(log_u) if split else self._merge(log_u)

    def _split(self, log_u: float):
        chosen = self._choose()
        if chosen is None:
            return None
        view, ways = chosen
        if self.anew and view == self.fixed:
            return None
        part, old = np.flatnonzero(self.where == view), self.views[view]
        a, b, log_q_sides = self._cut(part)
        if self.host in b:
            return None
        cut = self.where.copy()
        cut[b] = len(self.views)
        log_r = self._log_choices(self.where, cut, len(a), len(b), ways, old.n_labels) - log_q_sides
        roles = {1: b, 0: a} if self.anew else {1: b}
        new = [self._proposal(units, role) for role, units in roles.items()]
        drawn = dict(zip(roles, side_by_side(new)))
        log_r += sum(self._log_weight(of.subject, drawn[role]) for of, role in zip(new, roles))
        if self.anew:
            whole = self._proposal(part, 2)
            log_r -= self._log_target(whole.subject, old.z, old.n_labels)
        else:
            log_r -= new[0].subject.log_likelihood(old.z, old.n_labels)
        after = [view.z for view in self.views]
        after[view] = drawn[0].z if self.anew else old.z
        log_r += self._log_pair([*after, drawn[1].z], view, len(after))
        if not self._agreed(log_u < log_r):
            return None
        if self.anew and not self._agreed(log_u < log_r + whole.log_q(old.z)):
            return None
        return self._accepted({s: (units, drawn[s]) for s, units in ((0, a), (1, b)) if s in drawn})

    def _merge(self, log_u: float):
        if len(self.views) < 2:
            return None
        pair, log_pair = self._pair(self.stream.random())
        sizes = np.array([(self.where == v).sum() for v in pair])
        share = sizes[0] ** 2 / (sizes**2).sum()
        view_a, view_b = pair if self.stream.random() < share else pair[::-1]
        if view_b == self.fixed or (self.anew and view_a == self.fixed):
            return None
        a, b = (np.flatnonzero(self.where == v) for v in (view_a, view_b))
        part = np.sort(np.concatenate([a, b]))
        old_a, old_b = self.views[view_a], self.views[view_b]
        log_r = log_pair
        of_b = self._proposal(b, 1)
        log_r += self._log_target(of_b.subject, old_b.z, old_b.n_labels)
        asked = [(of_b, old_b)]  # proposals, and the old partitions that the reverse split would have to draw
        if self.anew:
            of_a, whole = self._proposal(a, 0), self._proposal(part, 2)
            asked.append((of_a, old_a))
            log_r += self._log_target(of_a.subject, old_a.z, old_a.n_labels)
            drawn = whole.draw()
            log_r -= self._log_weight(whole.subject, drawn)
        else:
            log_r -= of_b.subject.log_likelihood(old_a.z, old_a.n_labels)
        n_labels = drawn.n_labels if self.anew else old_a.n_labels
        whole_where = np.where(self.where == view_b, view_a, self.where)
        whole_where -= whole_where > view_b
        sizes, clusters = np.bincount(whole_where), np.array([view.n_labels for view in self.views])
        clusters[view_a] = n_labels
        clusters = np.delete(clusters, view_b)
        ways = int(((sizes - 1) * clusters).sum())
        log_r += self._log_choices(whole_where, self.where, len(a), len(b), ways, n_labels)
        # the remaining terms are probabilities, which only lower the ratio: most merges are rejected before them
        if not self._agreed(log_u < -log_r):
            return None
        side = np.isin(part, b)
        f, g = (int(np.searchsorted(part, units[int(self.stream.integers(len(units)))])) for units in (a, b))
        log_r -= self._sides(part, f, g, side)[1]
        for proposal, old in asked:
            if not self._agreed(log_u < -log_r):
                return None
            log_r -= proposal.log_q(old.z)
        if not self._agreed(log_u < -log_r):
            return None
        if self.anew:
            return self._accepted({2: (part, drawn)})
        chosen = self.where.copy()
        chosen[part] = view_a
        return chosen.tolist(), of_views(self.views)

    # --- choices -----------------------------------------------------------------------------------------------------

    def _choose(self) -> tuple[int, int] | None:
        """Draw the view to split; return it and `ways` (see `_log_choices`), or None if every view has one unit."""
        sizes, clusters = np.bincount(self.where), np.array([view.n_labels for view in self.views])
        ways = np.cumsum((sizes - 1) * clusters)
        if ways[-1] == 0:
            return None
        return int(np.searchsorted(ways, int(self.stream.integers(ways[-1])), side="right")), int(ways[-1])

    def _cut(self, mine: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Draw two sides of the units `mine`; return the units on each, and log q of the sides on root."""
        f, g = self.stream.choice(len(mine), 2, replace=False).tolist()
        side, log_q = self._sides(mine, f, g, None)
        return mine[~side], mine[side], log_q

    # --- parts of the ratio ------------------------------------------------------------------------------------------

    def _log_choices(self, whole: np.ndarray, cut: np.ndarray, n_a: int, n_b: int, ways: int, n_labels: int) -> float:
        """Return the log ratio for a split into views of n_a and n_b units: prior of the views after it over the prior
        before, times the probability that the merge, given this pair, chooses these units, over the probability that
        the split chooses the view and the units.

        whole, cut: view of each unit before and after. n_labels: clusters of the view. A view is chosen with weight
        n_labels times (its units less one); `ways` is the sum of these weights."""
        n = n_a + n_b
        log_prior = self._log_law(cut) - self._log_law(whole)
        a_is_a = n_a**2 / (n_a**2 + n_b**2)
        return log_prior + float(np.log(ways / n_labels * n * a_is_a / (n_a * n_b)))

    def _log_law(self, where: np.ndarray) -> float:
        return self.bodies.log_prior(where)

    def _pair(self, u: float) -> tuple[tuple[int, int], float]:
        """Draw the views to merge; return them, and the log probability of this choice on root."""
        labels, pair, log_p = self._sampled_labels([view.z for view in self.views]), None, 0.0
        if labels is not None:
            log_p = alike.log_probabilities(labels)
            pair = alike.draw(log_p, u)
            log_p = float(log_p[pair])
        return self.comm.share(pair), log_p

    def _log_pair(self, views: Sequence[Sequence[np.ndarray]], a: int, b: int) -> float:
        """Return the log probability, on root, that a merge chooses views a and b. views: labels of each shard."""
        labels = self._sampled_labels(views)
        return 0.0 if labels is None else float(alike.log_probabilities(labels)[a, b])

    def _sampled_labels(self, views: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray] | None:
        """Return the labels of some keyed rows in each of these partitions, on root."""
        stream = Stream(purpose=Purpose.ALIKE_VIEWS, sub=self.number, **self.key)
        share, shards = alike.ROWS / self.chain.n_rows, self.chain.shards
        chosen = [np.flatnonzero(stream.uniforms(s.start + np.arange(len(s))) < share) for s in shards]
        mine = [np.array([z[i][at] for z in views], np.int32).T for i, at in enumerate(chosen)]
        mine = np.ascontiguousarray(np.concatenate([np.zeros((0, len(views)), np.int32), *mine]))
        result = self.comm.gather_to_root(mine, self.comm.collect(len(mine)))
        return None if self.comm.rank else list(result.T)

    def _log_target(self, subject, z, n_labels: int) -> float:
        """Return log p(z) p(cells | z) on root, concentration and discount of the partition integrated out."""
        log_likelihood = subject.log_likelihood(z, n_labels)
        return self.views[0].law.log_prior(self._sizes(z, n_labels)) + log_likelihood

    def _sizes(self, z, n_labels: int) -> np.ndarray:
        """Return the number of rows of each cluster over all ranks."""
        counts = sum((np.bincount(part[part >= 0], minlength=n_labels) for part in z), np.zeros(n_labels, np.int64))
        self.comm.sum_everywhere(counts)
        return counts

    def _log_weight(self, subject, drawn) -> float:
        return self._log_target(subject, drawn.z, drawn.n_labels) - drawn.log_q

    def _agreed(self, mine: bool) -> bool:
        """Return root's decision on every rank."""
        return bool(self.comm.share(mine))

    def _proposal(self, units: np.ndarray, role: int) -> Proposal:
        names = [name for u in units.tolist() for name in self.units[u]]
        sub = 4 * self.number + role
        return Proposal(self.chain.subject(names), self.key, in_lane(self.chain.chain, LAUNCHES + sub), sub)

    def _sides(self, mine: np.ndarray, f: int, g: int, given: np.ndarray | None) -> tuple[np.ndarray, float]:
        """Return the sides of the units `mine`, drawn unless given, and their log q on root. f, g: places in `mine` of
        the two units to be separated."""
        units, u = [self.units[i] for i in mine.tolist()], self.stream.random(len(mine))
        names = [name for unit in units for name in unit]
        subject = self.chain.subject(names)
        stream = Stream(purpose=Purpose.SIDES_OF_COLUMNS, sub=self.number, **self.key)
        share = sides.ROWS / subject.n_active
        near = [stream.uniforms(s.start + np.arange(len(s))) < share for s in subject.shards]
        chosen = [np.flatnonzero(at & subject.active(i)) for i, at in enumerate(near)]
        rows, side, log_q = subject.to_root(chosen), given, 0.0
        if rows is not None:
            number = {name: i for i, unit in enumerate(units) for name in unit}
            unit_of = [number[name] for name in subject.components.by_column(subject.hyper)]
            held = self.chain.held(names, [rows])

            def cut(chosen: np.ndarray) -> sides.Part:
                subset = [name for i in chosen.tolist() for name in units[i]]
                components, hyper, cells = self.chain.of_columns(subset, [held])
                return sides.Part(components, hyper, cells(0))

            key = {**self.key, "chain": in_lane(self.chain.chain, LAUNCHES + 4 * self.number + 3)}
            whole = sides.Part(subject.components, subject.hyper, rows)
            p = sides.probability(sides.log_odds(whole, unit_of, cut, f, g, key))
            side = sides.draw(p, f, g, u) if given is None else given
            log_q = sides.log_q(p, f, g, side)
        return self.comm.share(side), log_q

    # --- acceptance --------------------------------------------------------------------------------------------------

    def _accepted(self, drawn: Mapping[int, tuple[np.ndarray, Drawn]]) -> tuple[list[int], list[Rowwise]]:
        """Return the result of `run` for an accepted move. drawn: by role, units and the partition drawn for them."""
        chosen, partitions = self.where.copy(), of_views(self.views)
        for role, (units, of) in drawn.items():
            chosen[units] = len(partitions)
            partitions.append(self._rowwise(of.z, of.n_labels, role))
        return chosen.tolist(), partitions

    def _rowwise(self, z, n_labels: int, role: int) -> Rowwise:
        """Return a drawn partition with concentration and discount drawn given it."""
        law = self.views[0].law
        stream = generator(purpose=Purpose.PROCESS, sub=(1 << 20) + 4 * self.number + role, **self.key)
        process = self.comm.share(law.draw(self._sizes(z, n_labels), law.start()[0], stream))
        return Rowwise(z, n_labels, process)
