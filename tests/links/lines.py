"""Exact posterior of a tiny table of real columns that may lean on each other in lines, and the program's sampler on
it."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from unittest import mock

import numpy as np
from scipy.special import gammaln, logsumexp

from mpibayes.hpc.components import line
from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.links.lines import Lines
from mpibayes.io.table import table_from_arrays
from tests.exact.compare import Verdict, judge
from tests.exact.enumerate import log_eppf, partitions
from tests.exact.production import STRIDE, place
from tests.links.enumerate import forests, log_prior


def log_regression(y, design, precision, center, nu, variance) -> float:
    """Log density of y under y ~ N(design b, s2), b ~ N(center, s2 / precision), s2 ~ Inv-chi2(nu, variance): a
    multivariate t (Gelman et al. 2013, section 14.8), without the posterior of anything."""
    n, off = len(y), y - design @ center
    matrix = variance * (np.eye(n) + (design / precision) @ design.T)
    norm = off @ np.linalg.solve(matrix, off)
    constant = gammaln(0.5 * (nu + n)) - gammaln(0.5 * nu) - 0.5 * n * np.log(nu * np.pi)
    return float(constant - 0.5 * np.linalg.slogdet(matrix)[1] - 0.5 * (nu + n) * np.log1p(norm / nu))


class LinePosterior:
    """x (N, D): real cells, all there. kappa, nu: of every column; means, variances: grids of every column, of which a
    column that leans on another one has the second alone, and its own mean for the first."""

    def __init__(self, x, kappa: float, nu: float, means, variances, concentration: float, discount: float):
        self.x, self.kappa, self.nu, self.means, self.variances = np.array(x), kappa, nu, means, variances
        self.process = concentration, discount
        n, self.d = self.x.shape
        self.partitions, self.forests = partitions(n), forests(self.d)
        eppf = np.array([log_eppf(np.bincount(z), concentration, discount) for z in self.partitions])
        self.each = [  # by partition, column, parent + 1: (means or 1, variances)
            [[self._each(z, c, p) for p in range(-1, self.d)] for c in range(self.d)] for z in self.partitions
        ]
        mean = np.array([[[logsumexp(of) - np.log(of.size) for of in row] for row in part] for part in self.each])
        total = np.stack([mean[:, range(self.d), np.array(f) + 1].sum(axis=1) for f in self.forests], axis=1)
        log_p = eppf[:, None] + np.array([log_prior(f) for f in self.forests]) + total
        self.p = np.exp(log_p - logsumexp(log_p))  # (partitions, forests)
        self.number = {
            (tuple(z), f): i for i, (z, f) in enumerate((z, f) for z in self.partitions.tolist() for f in self.forests)
        }

    def _each(self, z: np.ndarray, c: int, parent: int) -> np.ndarray:
        if c == parent:
            return np.full((1, 1), -np.inf)
        means = self.means if parent == -1 and len(self.means) > 1 else [self.mean_of(c)]
        return np.array([[self._log_evidence(z, c, parent, m, v) for v in self.variances] for m in means])

    def mean_of(self, c: int) -> float:
        return self.means[0] if len(self.means) == 1 else float(self.x[:, c].mean())

    def _log_evidence(self, z, c: int, parent: int, mean: float, variance: float) -> float:
        total = 0.0
        for k in np.unique(z):
            y, design, precision = self.x[z == k, c], np.ones(((z == k).sum(), 1)), np.array([self.kappa])
            if parent != -1:
                u = self.x[:, parent]
                design = np.column_stack([design, u[z == k] - u.mean()])
                precision = np.append(precision, self.kappa**2 * u.var())
            center = np.append(mean, np.zeros(len(precision) - 1))
            total += log_regression(y, design, precision, center, self.nu, variance)
        return total

    def state(self, i: int):
        b, f = divmod(i, len(self.forests))
        return b, self.partitions[b], self.forests[f]

    def hyper(self, i: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Hyperparameters of every column, drawn given state number i."""
        b, _, forest = self.state(i)
        result = {}
        for c, parent in enumerate(forest):
            of = self.each[b][c][parent + 1]
            m, v = divmod(generator.choice(of.size, p=np.exp(of - logsumexp(of)).ravel()), of.shape[1])
            mean = self.means[m] if parent == -1 else self.mean_of(c)
            result[f"x{c}"] = np.array([mean, self.kappa, self.nu, self.variances[v]])
        return result


def sampler(comm, law: LinePosterior, n_shards: int, seed: int, **settings) -> Mixture:
    """The program's mixture of the law's table, whose links are drawn in every cycle."""
    columns, rows = table_from_arrays([(f"x{c}", "real", law.x[:, c], ()) for c in range(law.d)])
    columns = [replace(column, line=True) for column in columns]
    prior = {"mean": list(law.means), "kappa": law.kappa, "nu": law.nu, "variance": list(law.variances)}
    settings = {"links": "forest", "link_moves": 1, "split_merge": 0, **settings}
    return Mixture(
        comm, columns, lambda start, stop: rows.take(np.arange(start, stop)), len(rows),
        Settings(
            seed=seed, shards=n_shards, concentration=law.process[0], discount=law.process[1],
            priors={c.name: prior for c in columns}, **settings,
        ),
    )  # fmt: skip


def history(mixture: Mixture, law: LinePosterior, n_replicates: int, cycles: int, seed: int) -> np.ndarray | None:
    """From exact starts, numbers of states (replicates, cycles) on root; None elsewhere."""
    generator = np.random.Generator(np.random.Philox(seed))
    starts, out = generator.choice(law.p.size, size=n_replicates, p=law.p.ravel()), []
    for r, start in enumerate(starts.tolist()):
        _, labels, parents = law.state(start)
        mixture.linking.link(np.array(parents))
        hyper = mixture.view.components.hyper(*law.process, law.hyper(start, generator))
        place(mixture, np.array(labels), r * STRIDE, hyper)
        seen = []
        for _ in range(cycles):
            mixture.cycle()
            labels = mixture.view.labels()
            if mixture.comm.rank == 0:
                names = {}
                z = tuple(names.setdefault(k, len(names)) for k in labels.tolist())
                seen.append(law.number[z, tuple(mixture.linking.coding.parents.tolist())])
        out.append(seen)
    return np.array(out) if mixture.comm.rank == 0 else None


def verdict(result: np.ndarray, law: LinePosterior, level: float) -> Verdict:
    """Judge the states at the end, and time averages: pairs of rows together, each link, and each number of links."""
    n, z, f = len(law.x), law.partitions, np.array(law.forests)
    pairs, links = [(i, j) for i in range(n) for j in range(i)], [(c, p) for c in range(law.d) for p in range(law.d)]
    events = {f"rows {p}": np.repeat(z[:, p[0]] == z[:, p[1]], len(f)) for p in pairs}
    events |= {f"link {of}": np.tile(f[:, of[0]] == of[1], len(z)) for of in links if of[0] != of[1]}
    events |= {f"{e} links": np.tile((f != -1).sum(axis=1) == e, len(z)) for e in range(law.d)}
    each = np.array(list(events.values()), float)
    means, expected = each[:, result].mean(axis=2).T, each @ law.p.ravel()
    return judge(result[:, -1], law.p.ravel(), list(events), means, expected, level)


# ---- wrong twins -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def parents_scored_twice():
    """The evidence of a column is that of the pair, its parent's own part left in."""
    right = line.log_evidence

    def of_pair(kappa0, nu0, variance, square, middle, mean0, n, u, x, uu, ux, xx):
        spread = kappa0**2 * square + uu + n * kappa0 / (kappa0 + n) * np.where(n > 0, u - middle, 0.0) ** 2
        own = 0.5 * (nu0 - 1.0) * np.log(kappa0**2 * square) - 0.5 * (nu0 - 1.0 + n) * np.log(spread)
        own = own + gammaln(0.5 * (nu0 - 1.0 + n)) - gammaln(0.5 * (nu0 - 1.0))
        own = own + 0.5 * np.log(kappa0 / (kappa0 + n)) - 0.5 * n * np.log(np.pi)
        return right(kappa0, nu0, variance, square, middle, mean0, n, u, x, uu, ux, xx) + own

    with mock.patch.object(line, "log_evidence", of_pair):
        yield


@contextlib.contextmanager
def slopes_without_a_prior():
    """The evidence of a column leaves out the prior density of its slope."""
    right = line.log_evidence

    def without(kappa0, nu0, variance, square, *rest):
        return right(kappa0, nu0, variance, square, *rest) - 0.5 * np.log(kappa0**2 * square)

    with mock.patch.object(line, "log_evidence", without):
        yield


@contextlib.contextmanager
def sums_for_averages():
    """Scores are sums over the grids that are summed out, which are larger where a column has no parent."""

    def sums(self):
        score = np.array([logsumexp(of, axis=0) for of in self._under_parents])
        np.fill_diagonal(score, -np.inf)
        return score, np.array([logsumexp(of) for of in self._without])

    with mock.patch.object(Lines, "scores", sums):
        yield
