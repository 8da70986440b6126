"""The exact posterior of a tiny table with links whose bases are learned, by sums over tables in place of integrals over
bases; the program's sampler of it, and wrong versions of its own code."""

from __future__ import annotations

import contextlib
import itertools
from functools import lru_cache
from unittest import mock

import numpy as np
from scipy.special import gammaln, logsumexp

from mpibayes.hpc.components.categorical import GRID
from mpibayes.hpc.crosscat import linking
from mpibayes.hpc.links import base
from mpibayes.kernels.mixture import updates
from tests.exact.compare import Verdict, judge
from tests.links import program
from tests.links.enumerate import LinkedPosterior, _normalised


@lru_cache(maxsize=None)
def log_stirling(n: int, t: int) -> float:
    """Unsigned Stirling numbers of the first kind."""
    if n == t:
        return 0.0
    if t < 1 or t > n:
        return -np.inf
    return float(np.logaddexp(log_stirling(n - 1, t - 1), np.log(n - 1) + log_stirling(n - 1, t)))


def tables_of(counts: np.ndarray) -> list[tuple[int, ...]]:
    """All numbers of tables of the cells of each cluster and level, (K, V) flat."""
    return list(itertools.product(*(range(min(1, n), n + 1) for n in counts.ravel().tolist())))


def log_dirichlet_multinomial(n: np.ndarray, a: float) -> float:
    v = len(n)
    return float(gammaln(v * a) - gammaln(v * a + n.sum()) + (gammaln(a + n) - gammaln(a)).sum())


class BasedPosterior(LinkedPosterior):
    """Children of a parent have, in each context, p0 ~ Dirichlet(c), c on the program's grid for all contexts
    together, and theta of a cluster ~ Dirichlet(beta V p0). With p0 summed over tables (Antoniak 1974)."""

    def _log_evidence(self, cells, z, child, parent, beta) -> float:
        if parent in (-1, child):
            return super()._log_evidence(cells, z, child, parent, beta)
        return float(logsumexp(self.by_concentration(cells, z, child, parent, beta)[0]) - np.log(len(GRID)))

    def by_concentration(self, cells, z, child, parent, beta) -> tuple[np.ndarray, np.ndarray]:
        """Log evidence at each concentration (G,), and there the mean of p0 of level 0 in context 0."""
        v, total, mean = self.n_levels[child], np.zeros(len(GRID)), np.zeros(len(GRID))
        for u in range(self.n_levels[parent]):
            x, k = cells[cells[:, parent] == u, child], z[cells[:, parent] == u]
            counts = np.array([np.bincount(x[k == i], minlength=v) for i in np.unique(k)]).reshape(-1, v)
            m, each, means = v * beta, [], []
            fixed = (gammaln(m) - gammaln(m + counts.sum(axis=1))).sum()
            for tables in tables_of(counts):
                pairs = zip(counts.ravel().tolist(), tables)
                t = np.array(tables).reshape(counts.shape).sum(axis=0)
                of = fixed + sum(log_stirling(n, s) + s * np.log(m) for n, s in pairs)
                each.append([of + log_dirichlet_multinomial(t, c) for c in GRID])
                means.append((t[0] + GRID) / (t.sum() + v * GRID))
            log_p = np.array(each)
            total += logsumexp(log_p, axis=0)
            if u == 0:
                mean = (np.exp(log_p - logsumexp(log_p, axis=0)) * np.array(means)).sum(axis=0)
        return total, mean

    def mean_of_base(self, child: int, parent: int) -> float:
        """E of p0 of level 0 in context 0, times whether the link is there."""
        result = 0.0
        for b, z in enumerate(self.partitions):
            of = [self.by_concentration(self.cells, z, child, parent, beta) for beta in self.betas]
            score, mean = (np.concatenate(part) for part in zip(*of))
            p = sum(self.p[b, f] for f, forest in enumerate(self.forests) if forest[child] == parent)
            result += p * float(_normalised(score) @ mean)
        return result

    def drawn_tables(self, i: int, child: int, beta: float, generator) -> np.ndarray:
        """Tables (U, V) of a child in state i, drawn."""
        z, forest = self.state(i)
        z, parent, v = np.array(z), forest[child], self.n_levels[child]
        score, _ = self.by_concentration(self.cells, z, child, parent, beta)
        c, result = generator.choice(GRID, p=_normalised(score)), []
        for u in range(self.n_levels[parent]):
            x, k = self.cells[self.cells[:, parent] == u, child], z[self.cells[:, parent] == u]
            counts = np.array([np.bincount(x[k == j], minlength=v) for j in np.unique(k)]).reshape(-1, v)
            every = [np.array(t).reshape(counts.shape) for t in tables_of(counts)]
            log_p = [
                sum(log_stirling(n, s) + s * np.log(v * beta) for n, s in zip(counts.ravel().tolist(), t.ravel()))
                + log_dirichlet_multinomial(t.sum(axis=0), c)
                for t in every
            ]
            result.append(every[generator.choice(len(every), p=_normalised(np.array(log_p)))].sum(axis=0))
        return np.array(result)


def put(mixture, law: BasedPosterior, state: int, cycles: int, generator) -> None:
    """Put the chain at a state of the law, with pseudo-counts and tables drawn given it."""
    program.put(mixture, law, state, cycles, generator)
    view, (_, forest) = mixture.view, law.state(state)
    beta = {c.name: b for c, b in zip(view.components.categorical.columns, view.hyper.dirichlet.tolist())}
    parts = [law.drawn_tables(state, c, beta[f"c{c}"], generator).ravel() for c, p in enumerate(forest) if p != -1]
    mixture.linking.resume_bases(np.concatenate([*parts, np.zeros(0, np.int64)]), cycles)


def history(mixture, law: BasedPosterior, n_replicates: int, cycles: int, seed: int):
    """From exact starts, numbers of states (replicates, cycles), and p0 of level 0 in context 0 of each child, 0 without
    a parent, (replicates, cycles, D, D): by child and parent; on root."""
    generator, d = np.random.Generator(np.random.Philox(seed)), len(law.n_levels)
    starts = generator.choice(law.p.size, size=n_replicates, p=law.p.ravel())
    states, bases = np.zeros((n_replicates, cycles), np.int64), np.zeros((n_replicates, cycles, d, d))
    for r, start in enumerate(starts):
        put(mixture, law, int(start), r * program.STRIDE, generator)
        for t in range(cycles):
            mixture.cycle()
            labels, names = mixture.view.labels(), {}
            if mixture.comm.rank == 0:
                z = tuple(names.setdefault(k, len(names)) for k in labels.tolist())
                forest = tuple(mixture.linking.coding.parents.tolist())
                states[r, t] = law.number[z, forest]
                for c, p in enumerate(forest):
                    if p != -1:
                        bases[r, t, c, p] = mixture.linking.bases[f"c{c}"][0, 0] / law.n_levels[c]
    return (states, bases) if mixture.comm.rank == 0 else None


def verdict(history, law: BasedPosterior, level: float) -> Verdict:
    """Judge the states at the end, and time averages: pairs of rows together, each link, and each base."""
    states, bases = history
    n, d = law.cells.shape
    pairs = [(i, j) for i in range(n) for j in range(i)]
    links = [(c, p) for c in range(d) for p in range(d) if p != c]
    z, f = law.partitions, np.array(law.forests)
    rows = [np.repeat(z[:, i] == z[:, j], len(f)) for i, j in pairs]
    events = np.array(rows + [np.tile(f[:, c] == p, len(z)) for c, p in links], float)
    names = [f"rows {p}" for p in pairs] + [f"link {p}" for p in links] + [f"base {p}" for p in links]
    of_bases = np.stack([bases[:, :, c, p].mean(axis=1) for c, p in links], axis=1)
    means = np.concatenate([events[:, states].mean(axis=2).T, of_bases], axis=1)
    expected = np.append(events @ law.p.ravel(), [law.mean_of_base(c, p) for c, p in links])
    return judge(states[:, -1], law.p.ravel(), names, means, expected, level)


# ---- wrong twins -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def counts_for_tables():
    """Bases are drawn by the cells as they are counted, each of which has a table of its own."""

    def plain(counts, beta, stream):
        return (counts * (beta > 0)[:, :, None]).sum(axis=2)

    with mock.patch.object(linking, "tables_given", plain):
        yield


@contextlib.contextmanager
def without_the_second_factor():
    """Weights of links are the evidence at the proposed base, as if that were known."""

    def at_proposed(self, child, parent, counts):
        levels, offsets = counts.reshape(-1, counts.shape[2]), np.arange(len(counts) + 1) * counts.shape[1]
        beta = self.multiplier[child] * self._drawn(child, parent, counts)[1].ravel()
        return float(updates.log_marginals(levels, beta, offsets, 0, len(counts))[0].sum())

    with mock.patch.object(base.Integrated, "log_weight", at_proposed):
        yield


@contextlib.contextmanager
def present_tables_as_of_others():
    """Tables of present links are proposed, too, as if their bases were not part of the state."""
    right = base.Integrated._drawn

    def afresh(self, child, parent, counts):
        present, self._present = self._present, {}
        result = right(self, child, parent, counts)
        self._present = present
        return result

    with mock.patch.object(base.Integrated, "_drawn", afresh):
        yield


@contextlib.contextmanager
def bases_of_the_parent_before():
    """A column that finds another parent, with as many contexts, keeps the base that it had under the one before."""
    right = linking.Linking.link

    def stale(self, parents, rows=None, hyper=None, bases=None):
        before = {name: self.bases.get(name, base) for name, base in (bases or {}).items()}
        kept = {name: before[name] if before[name].shape == base.shape else base for name, base in (bases or {}).items()}
        right(self, parents, rows, hyper, kept)

    with mock.patch.object(linking.Linking, "link", stale):
        yield
