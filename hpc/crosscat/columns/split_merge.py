"""Views that split in two, and pairs of views that merge (docs/math.md 2.10): columns go over in a body, with rows'
partitions for them that are drawn anew, or kept.

Gibbs draws of single columns seldom join two views that say the same, since every column prefers the partition that its
own cells shaped; and hardly ever open a view once rows have settled, since a partition from the prior scores badly. A
move draws a partition from the cells (proposal.py), and its probability enters the acceptance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mpibayes.hpc.crosscat.columns import sides
from mpibayes.hpc.crosscat.columns.proposal import Proposal
from mpibayes.hpc.crosscat.columns.scan import Rowwise, of_views
from mpibayes.hpc.crosscat.pitman_yor import log_eppf
from mpibayes.hpc.parallel.streams import Purpose, Stream, generator, in_lane

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.chain import Mixture

LAUNCHES = 1 << 20  # the first of the lanes that launches draw from


class Move:
    """The number-th move of a cycle. Every method is collective; what depends on cells is root's, and shared."""

    def __init__(self, chain: Mixture, number: int):
        self.chain, self.comm, self.number, self.views = chain, chain.comm, number, chain.views
        self.key = {"seed": chain.settings.seed, "cycle": chain.cycles, "chain": chain.chain}
        self.stream = generator(purpose=Purpose.VIEW_MOVES, sub=number, **self.key)
        self.where = np.array(chain.view_of_unit)

    def run(self) -> tuple[list[int], list[Rowwise]] | None:
        """What is accepted: the partition of each unit, and the partitions, as `columns.scan.scan` has them."""
        split, self.anew, log_u = self.stream.random() < 0.5, self.stream.random() < 0.5, np.log(self.stream.random())
        return self._split(log_u) if split else self._merge(log_u)

    def _split(self, log_u: float):
        view = int(self.stream.integers(len(self.views)))
        own = np.flatnonzero(self.where == view)
        if len(own) < 2:
            return None
        f, g = self.stream.choice(len(own), 2, replace=False).tolist()
        side, log_q_sides = self._sides(own, f, g, None)
        a, b = own[~side], own[side]
        old = self.views[view]
        cut = self.where.copy()
        cut[b] = len(self.views)
        log_r = self._log_choices(np.bincount(self.where), np.bincount(cut), len(a), len(b)) - log_q_sides
        new_b = self._proposal(b, 1)
        drawn = {1: new_b.draw()}
        log_r += self._log_weight(new_b.subject, drawn[1])
        if self.anew:
            new_a, whole = self._proposal(a, 0), self._proposal(own, 2)
            drawn[0] = new_a.draw()
            log_r += self._log_weight(new_a.subject, drawn[0])
            log_r -= self._log_target(whole.subject, old.z, old.n_labels) - whole.log_q(old.z)
        else:
            log_r -= new_b.subject.log_likelihood(old.z, old.n_labels)
        if not self._accepted(log_u < log_r):
            return None
        chosen, partitions = self.where.copy(), of_views(self.views)
        for s, units in ((0, a), (1, b)):
            if s in drawn:
                chosen[units] = len(partitions)
                partitions.append(self._rowwise(drawn[s].z, drawn[s].n_labels, s))
        return chosen.tolist(), partitions

    def _merge(self, log_u: float):
        n_views = len(self.views)
        if n_views < 2:
            return None
        pair = self.stream.choice(n_views, 2, replace=False)
        sizes = np.array([(self.where == v).sum() for v in pair.tolist()])
        share = sizes[0] ** 2 / (sizes**2).sum()
        view_a, view_b = pair.tolist() if self.stream.random() < share else pair[::-1].tolist()
        a, b = (np.flatnonzero(self.where == v) for v in (view_a, view_b))
        own = np.sort(np.concatenate([a, b]))
        side = np.isin(own, b)
        f, g = (int(np.flatnonzero(own == units[int(self.stream.integers(len(units)))])[0]) for units in (a, b))
        _, log_q_sides = self._sides(own, f, g, side)
        old_a, old_b = self.views[view_a], self.views[view_b]
        whole_sizes = np.bincount(np.where(self.where == view_b, view_a, self.where))
        whole_sizes = whole_sizes[whole_sizes > 0]
        log_r = self._log_choices(whole_sizes, np.bincount(self.where), len(a), len(b)) - log_q_sides
        of_b = self._proposal(b, 1)
        log_r += self._log_target(of_b.subject, old_b.z, old_b.n_labels) - of_b.log_q(old_b.z)
        if self.anew:
            of_a, whole = self._proposal(a, 0), self._proposal(own, 2)
            log_r += self._log_target(of_a.subject, old_a.z, old_a.n_labels) - of_a.log_q(old_a.z)
            drawn = whole.draw()
            log_r -= self._log_weight(whole.subject, drawn)
        else:
            log_r -= of_b.subject.log_likelihood(old_a.z, old_a.n_labels)
        if not self._accepted(log_u < -log_r):
            return None
        chosen, partitions = self.where.copy(), of_views(self.views)
        chosen[own] = len(partitions) if self.anew else view_a
        if self.anew:
            partitions.append(self._rowwise(drawn.z, drawn.n_labels, 2))
        return chosen.tolist(), partitions

    # --- parts of the ratio ------------------------------------------------------------------------------------------

    def _log_choices(self, whole: np.ndarray, cut: np.ndarray, n_a: int, n_b: int) -> float:
        """Of a split into views of n_a and n_b units: the law of the views after it over that before, and how often the
        merge chooses these views and units over the split. whole, cut: units of each view before and after."""
        n, n_views = n_a + n_b, len(whole)
        log_prior = float(log_eppf(cut, *self.chain.process) - log_eppf(whole, *self.chain.process))
        a_is_a = n_a**2 / (n_a**2 + n_b**2)
        return log_prior + float(np.log(n * (n - 1) * 2.0 * a_is_a / ((n_views + 1) * n_a * n_b)))

    def _log_target(self, subject, z, n_labels: int) -> float:
        """Log of p(z) p(cells | z) on root, concentration and discount of the rows integrated out."""
        log_likelihood = subject.log_likelihood(z, n_labels)
        return self.views[0].law.log_prior(self._sizes(z, n_labels)) + log_likelihood

    def _sizes(self, z, n_labels: int) -> np.ndarray:
        """Rows of each cluster over all ranks."""
        counts = sum((np.bincount(own, minlength=n_labels) for own in z), np.zeros(n_labels, np.int64))
        self.comm.sum_everywhere(counts)
        return counts

    def _log_weight(self, subject, drawn) -> float:
        return self._log_target(subject, drawn.z, drawn.n_labels) - drawn.log_q

    def _accepted(self, mine: bool) -> bool:
        """Root's decision."""
        return bool(self.comm.share(mine))

    def _proposal(self, units: np.ndarray, role: int) -> Proposal:
        names = [name for u in units.tolist() for name in self.chain.units[u]]
        sub = 4 * self.number + role
        return Proposal(self.chain.subject(names), self.key, in_lane(self.chain.chain, LAUNCHES + sub), sub)

    def _sides(self, own: np.ndarray, f: int, g: int, given: np.ndarray | None) -> tuple[np.ndarray, float]:
        """Sides of the units `own`, and on root log q of them; f and g are places in `own`."""
        units, u = [self.chain.units[i] for i in own.tolist()], self.stream.random(len(own))
        names = [name for unit in units for name in unit]
        subject = self.chain.subject(names)
        stream = Stream(purpose=Purpose.SIDES_OF_COLUMNS, sub=self.number, **self.key)
        share = sides.ROWS / self.chain.n_rows
        chosen = [np.flatnonzero(stream.uniforms(s.start + np.arange(len(s))) < share) for s in subject.shards]
        rows, side, log_q = subject.to_root(chosen), given, 0.0
        if rows is not None:
            number = {name: i for i, unit in enumerate(units) for name in unit}
            unit_of = [number[name] for name in subject.components.by_column(subject.hyper)]
            held = self.chain.held(names, [rows])

            def cut(chosen: np.ndarray) -> sides.Part:
                some = [name for i in chosen.tolist() for name in units[i]]
                components, hyper, (cells,) = self.chain.of_columns(some, [held])
                return sides.Part(components, hyper, cells)

            key = {**self.key, "chain": in_lane(self.chain.chain, LAUNCHES + 4 * self.number + 3)}
            whole = sides.Part(subject.components, subject.hyper, rows)
            p = sides.probability(sides.log_odds(whole, unit_of, cut, f, g, key))
            side = sides.draw(p, f, g, u) if given is None else given
            log_q = sides.log_q(p, f, g, side)
        return self.comm.share(side), log_q

    # --- what is accepted --------------------------------------------------------------------------------------------

    def _rowwise(self, z, n_labels: int, role: int) -> Rowwise:
        """A partition that was drawn, with concentration and discount given it."""
        law = self.views[0].law
        stream = generator(purpose=Purpose.PROCESS, sub=(1 << 20) + 4 * self.number + role, **self.key)
        process = self.comm.share(law.draw(self._sizes(z, n_labels), law.start()[0], stream))
        return Rowwise(z, n_labels, process)
