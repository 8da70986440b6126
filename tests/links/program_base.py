"""The exact posterior of a tiny table with links whose bases are learned, by sums over tables in place of integrals,
the program's sampler of it, and wrong versions of the program's code."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from unittest import mock

import numpy as np
from scipy.special import gammaln, logsumexp

from mpibayes.hpc.components.categorical import GRID
from mpibayes.hpc.crosscat import linking
from mpibayes.hpc.links import base
from mpibayes.hpc.parallel.comm import serial
from mpibayes.kernels.mixture import updates
from tests.exact.compare import Verdict
from tests.exact.production import place
from tests.links import program, program_views
from tests.links.enumerate import LinkedPosterior, _normalised, forests, log_prior
from tests.links.enumerate_views import ViewsPosterior
from tests.links.judged import judge_states
from tests.links.states import by_appearance


@cache
def log_stirling(n: int, t: int) -> float:
    """Unsigned Stirling numbers of the first kind."""
    if n == t:
        return 0.0
    if t < 1 or t > n:
        return -np.inf
    return float(np.logaddexp(log_stirling(n - 1, t - 1), np.log(n - 1) + log_stirling(n - 1, t)))


def tables_of(counts: np.ndarray) -> list[tuple[int, ...]]:
    """All combinations of numbers of tables for the cells of each cluster and level, (K, V) flattened."""
    return list(itertools.product(*(range(min(1, n), n + 1) for n in counts.ravel().tolist())))


def log_dirichlet_multinomial(n: np.ndarray, a: float) -> float:
    v = len(n)
    return float(gammaln(v * a) - gammaln(v * a + n.sum()) + (gammaln(a + n) - gammaln(a)).sum())


def counts_in(x: np.ndarray, contexts: np.ndarray, z: np.ndarray, n_levels: int, n_contexts: int) -> list[np.ndarray]:
    """Counts (K, V) of a column's cells by cluster, in each context."""
    return [
        np.array([np.bincount(x[(contexts == u) & (z == k)], minlength=n_levels) for k in np.unique(z[contexts == u])])
        .reshape(-1, n_levels).astype(int)
        for u in range(n_contexts)
    ]  # fmt: skip


def over_tables(counts: np.ndarray, beta: float) -> tuple[np.ndarray, np.ndarray]:
    """All numbers of tables, summed over clusters, for counts (K, V) in a context: (T, V), and the log probability of
    cells and tables at each concentration of the base, (T, G)."""
    v, tables, log_p = counts.shape[1], [], []
    m = v * beta
    fixed = (gammaln(m) - gammaln(m + counts.sum(axis=1))).sum()
    for each in tables_of(counts):
        t = np.array(each, int).reshape(counts.shape).sum(axis=0)
        of = fixed + sum(log_stirling(n, s) + s * np.log(m) for n, s in zip(counts.ravel().tolist(), each))
        tables.append(t)
        log_p.append([of + log_dirichlet_multinomial(t, c) for c in GRID])
    return np.array(tables), np.array(log_p)


def by_concentration(contexts: list[np.ndarray], beta: float) -> tuple[np.ndarray, np.ndarray]:
    """Log evidence of counts in some contexts at each concentration of the base (G,), and the mean there of the base of
    level 0 in the first context."""
    each = [over_tables(counts, beta) for counts in contexts]
    tables, log_p = each[0]
    mean = (tables[:, :1] + GRID) / (tables.sum(axis=1, keepdims=True) + tables.shape[1] * GRID)
    share = np.exp(log_p - logsumexp(log_p, axis=0))
    return sum(logsumexp(of, axis=0) for _, of in each), (share * mean).sum(axis=0)


def drawn_tables(contexts: list[np.ndarray], beta: float, generator) -> np.ndarray:
    """Draw tables (U, V) given counts in some contexts."""
    at = generator.choice(len(GRID), p=_normalised(by_concentration(contexts, beta)[0]))
    each = [over_tables(counts, beta) for counts in contexts]
    return np.array([t[generator.choice(len(t), p=_normalised(log_p[:, at]))] for t, log_p in each])


class BasedPosterior(LinkedPosterior):
    """Children of a parent have, in each context, p0 ~ Dirichlet(c), c on the program's grid and shared by all
    contexts, and theta of a cluster ~ Dirichlet(beta V p0). p0 is summed over tables (Antoniak 1974)."""

    def _log_evidence(self, cells, z, child, parent, beta) -> float:
        if parent in (-1, child):
            return super()._log_evidence(cells, z, child, parent, beta)
        return float(logsumexp(by_concentration(self.counts(cells, z, child, parent), beta)[0]) - np.log(len(GRID)))

    def counts(self, cells, z, child: int, parent: int) -> list[np.ndarray]:
        return counts_in(cells[:, child], cells[:, parent], np.array(z), self.n_levels[child], self.n_levels[parent])

    def draw(self, i: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        self.filled, betas = super().draw(i, generator)
        return self.filled, betas

    def mean_of_base(self, child: int, parent: int) -> float:
        """E of p0 of level 0 in context 0, times the indicator of the link."""
        result = 0.0
        for b, z in enumerate(self.partitions):
            of = [by_concentration(self.counts(self.cells, z, child, parent), beta) for beta in self.betas]
            score, mean = (np.concatenate(part) for part in zip(*of))
            p = sum(self.p[b, f] for f, forest in enumerate(self.forests) if forest[child] == parent)
            result += p * float(_normalised(score) @ mean)
        return result


def put(mixture, law: BasedPosterior, state: int, cycles: int, generator) -> None:
    """Put the chain at a state of the law, with pseudo-counts and tables drawn given it."""
    program.put(mixture, law, state, cycles, generator)
    view, (_, forest) = mixture.view, law.state(state)
    beta = {c.name: b for c, b in zip(view.components.categorical.columns, view.hyper.dirichlet.tolist())}
    counts = {c: law.counts(law.filled, law.state(state)[0], c, p) for c, p in enumerate(forest) if p != -1}
    parts = [drawn_tables(of, beta[f"c{c}"], generator).ravel() for c, of in counts.items()]
    mixture.linking.resume_bases(np.concatenate([*parts, np.zeros(0, np.int64)]), cycles)


def replicates(
    mixture, law: BasedPosterior, n_replicates: int, cycles: int, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray] | None]:
    """Yield, from each exact start, numbers of states (cycles,), and p0 of level 0 in context 0 by child and parent, 0
    without the link, (cycles, D, D), on root; None elsewhere."""
    generator, d = np.random.Generator(np.random.Philox(seed)), len(law.n_levels)
    starts = generator.choice(law.p.size, size=n_replicates, p=law.p.ravel())
    for r, start in enumerate(starts):
        states, bases = np.zeros(cycles, np.int64), np.zeros((cycles, d, d))
        put(mixture, law, int(start), r * program.STRIDE, generator)
        for t in range(cycles):
            mixture.cycle()
            labels = mixture.view.labels()
            if mixture.comm.rank == 0:
                z = by_appearance(labels)
                forest = tuple(mixture.linking.coding.parents.tolist())
                states[t] = law.number[z, forest]
                for c, p in enumerate(forest):
                    if p != -1:
                        bases[t, c, p] = mixture.linking.bases[f"c{c}"][0, 0] / law.n_levels[c]
        yield (states, bases) if mixture.comm.rank == 0 else None


def verdict(records: list, law: BasedPosterior, level: float) -> Verdict:
    """Judge states, but for the number of links, and each base."""
    states, bases = (np.array(part) for part in zip(*records, strict=True))
    d = law.cells.shape[1]
    links = [(c, p) for c in range(d) for p in range(d) if p != c and not law.holes]
    based = [(f"base {(c, p)}", bases[:, :, c, p].mean(axis=1), law.mean_of_base(c, p)) for c, p in links]
    return judge_states(law, states, level, more=based)


class BasedViews(ViewsPosterior):
    """The same posterior in views; see `BasedPosterior`."""

    def _log_evidence(self, z, child: int, parent: int, beta: float) -> float:
        if parent in (-1, child):
            return super()._log_evidence(z, child, parent, beta)
        return float(logsumexp(by_concentration(self.counts(z, child, parent), beta)[0]) - np.log(len(GRID)))

    def counts(self, z, child: int, parent: int) -> list[np.ndarray]:
        (x, v), (contexts, u) = self.columns[child], self.columns[parent]
        return counts_in(np.array(x), np.array(contexts), np.array(z), v, u)


def put_in_views(mixture, law: BasedViews, s: int, cycles: int, generator, right=program_views.put) -> None:
    """Put the chain at a state of the law in views, with pseudo-counts and tables drawn given it."""
    betas = law.draw_hyper(s, generator)
    with mock.patch.object(law, "draw_hyper", lambda s, generator: betas):
        right(mixture, law, s, cycles, generator)
    contexts = {c: law.counts(law.partitions[law.by[s, c]], c, p) for c, p in enumerate(law.parents[s]) if p != -1}
    parts = [drawn_tables(of, betas[c], generator).ravel() for c, of in contexts.items()]
    mixture.linking.resume_bases(np.concatenate([*parts, np.zeros(0, np.int64)]), cycles)


# ---- rows that stay in their clusters --------------------------------------------------------------------------------


def log_rising(log_a: np.ndarray, n: int) -> np.ndarray:
    """log of Gamma(a + n) / Gamma(a), however small a is."""
    return log_a + gammaln(np.exp(log_a) + n) - gammaln(np.exp(log_a) + 1.0) if n else np.zeros_like(log_a)


def by_quadrature(counts: np.ndarray, beta: float) -> tuple[np.ndarray, np.ndarray]:
    """Log evidence (G,) of counts (K, 2) of two levels in a context, at each concentration of the base, and the base's
    first two moments there, (2, G); integrals over its log odds, on a grid of hyperbolic sines."""
    s = np.linspace(-9.0, 9.0, 6001)
    odds, log_step = np.sinh(s), np.log(np.cosh(s) * (s[1] - s[0]))
    log_p = np.array([-np.logaddexp(0.0, -odds), -np.logaddexp(0.0, odds)])
    fit = sum(
        gammaln(2 * beta) - gammaln(2 * beta + n.sum())
        + sum(log_rising(np.log(2 * beta) + of, int(m)) for of, m in zip(log_p, n))
        for n in counts
    )  # fmt: skip
    c = GRID[:, None]
    each = fit + c * log_p.sum(axis=0) + gammaln(2 * c) - 2 * gammaln(c) + log_step
    total = logsumexp(each, axis=1)
    return total, np.array([np.exp(logsumexp(each + power * log_p[0], axis=1) - total) for power in (1, 2)])


class GivenRows:
    """Law of the links of columns of two levels, and of bases, given the labels of the rows: for each pair of child and
    parent the probability of the link, and this times the moments of the child's base in the first context."""

    of, process = None, (1.0, 0.0)

    def __init__(self, cells: np.ndarray, z: np.ndarray, beta: float):
        self.cells, self.z, self.n_levels, self.betas = cells, z, [2] * cells.shape[1], (beta,)
        d = cells.shape[1]
        score, moments = np.zeros((d, d + 1)), np.zeros((2, d, d))
        for c in range(d):
            score[c, -1] = sum(log_dirichlet_multinomial(n, beta) for n in self._counts(c, np.zeros(len(z), int))[0])
            for j in (j for j in range(d) if j != c):
                each = [by_quadrature(n, beta) for n in self._counts(c, cells[:, j])]
                of_c = sum(total for total, _ in each)
                score[c, j] = logsumexp(of_c) - np.log(len(GRID))
                moments[:, c, j] = each[0][1] @ _normalised(of_c)
        every = forests(d)
        p = _normalised(np.array([log_prior(f) + score[range(d), f].sum() for f in every]))
        link = np.array([[sum(p[[f[c] == j for f in every]]) for j in range(d)] for c in range(d)])
        self.expected = np.array([link, *(moments * link)])

    def _counts(self, child: int, context: np.ndarray) -> list[np.ndarray]:
        return counts_in(self.cells[:, child], context, self.z, 2, int(context.max()) + 1)

    def seen(self, seed: int, n: int, refresh: bool) -> np.ndarray:
        """The chain's values of `expected` in each of n draws of links, (n, 3, D, D). refresh: bases are redrawn after
        each draw, as in a cycle."""
        mixture = program.sampler(serial(), self, 2, seed, link_base="learned")
        place(mixture, self.z, 0, replace(mixture.view.hyper, dirichlet=np.full(len(self.n_levels), *self.betas)))
        out = np.zeros((n, *self.expected.shape))
        for i in range(n):
            mixture.cycles += 1
            mixture.linking.draw()
            if refresh:
                mixture.linking.draw_bases()
            for c, j in enumerate(mixture.linking.coding.parents.tolist()):
                if j != -1:
                    out[i, :, c, j] = (0.5 * mixture.linking.bases[f"c{c}"][0, 0]) ** np.arange(3)
        return out


# ---- wrong twins -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def counts_for_tables():
    """Wrong: bases are drawn from the counts of cells, as if each cell had a table."""

    def plain(counts, beta, stream):
        return (counts * (beta > 0)[:, :, None]).sum(axis=2)

    with mock.patch.object(linking, "tables_given", plain):
        yield


@contextlib.contextmanager
def without_the_second_factor():
    """Wrong: weights of links are the evidence at the proposed base, as if it were known."""

    def at_proposed(self, child, parent, counts):
        levels, offsets = counts.reshape(-1, counts.shape[2]), np.arange(len(counts) + 1) * counts.shape[1]
        beta = self.multiplier[child] * self._drawn(child, parent, counts)[1].ravel()
        return float(updates.log_marginals(levels, beta, offsets, 0, len(counts))[0].sum())

    with mock.patch.object(base.Integrated, "log_weight", at_proposed):
        yield


@contextlib.contextmanager
def bases_of_the_parent_before():
    """Wrong: a column that gets another parent with as many contexts keeps its base under the previous one."""
    right = linking.Linking.link

    def stale(self, parents, rows=None, hyper=None, bases=None):
        before = {name: self.bases.get(name, base) for name, base in (bases or {}).items()}
        kept = {
            name: before[name] if before[name].shape == base.shape else base for name, base in (bases or {}).items()
        }
        right(self, parents, rows, hyper, kept)

    with mock.patch.object(linking.Linking, "link", stale):
        yield
