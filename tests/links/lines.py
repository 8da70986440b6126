"""Exact posterior of a tiny table of real columns that may depend on each other linearly, and the program's sampler on
it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from unittest import mock

import numpy as np
from scipy.special import gammaln, logsumexp

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.lines import gaps
from mpibayes.hpc.links.lines import Lines
from mpibayes.io.table import table_from_arrays
from mpibayes.kernels.mixture import updates
from tests.exact.compare import Verdict
from tests.exact.enumerate import log_eppf, partitions
from tests.exact.production import STRIDE, place
from tests.links.enumerate import forests, log_prior
from tests.links.judged import judge_states
from tests.links.states import by_appearance


def log_regression(y, design, precision, center, nu, variance) -> float:
    """Log density of y under y ~ N(design b, s2), b ~ N(center, s2 / precision), s2 ~ Inv-chi2(nu, variance): a
    multivariate t (Gelman et al. 2013, section 14.8), computed without any posterior."""
    n, off = len(y), y - design @ center
    matrix = variance * (np.eye(n) + (design / precision) @ design.T)
    norm = off @ np.linalg.solve(matrix, off)
    constant = gammaln(0.5 * (nu + n)) - gammaln(0.5 * nu) - 0.5 * n * np.log(nu * np.pi)
    return float(constant - 0.5 * np.linalg.slogdet(matrix)[1] - 0.5 * (nu + n) * np.log1p(norm / nu))


class LinePosterior:
    """x (N, D): real cells, none missing. kappa, nu: of every column; means, variances: grids of every column; a column
    that depends on another uses only the second, with its own mean for the first."""

    def __init__(self, x, kappa: float, nu: float, means, variances, concentration: float, discount: float):
        self.x, self.kappa, self.nu, self.means, self.variances = np.array(x), kappa, nu, means, variances
        self.process = concentration, discount
        n, self.d = self.x.shape
        self.center, self.square = np.nanmean(self.x, axis=0), np.nanvar(self.x, axis=0)
        self.partitions, self.forests = partitions(n), forests(self.d)
        self.number = {
            (tuple(z), f): i for i, (z, f) in enumerate((z, f) for z in self.partitions.tolist() for f in self.forests)
        }
        eppf = np.array([log_eppf(np.bincount(z), concentration, discount) for z in self.partitions])
        log_p = eppf[:, None] + np.array([log_prior(f) for f in self.forests]) + self._log_evidences()
        self.p = np.exp(log_p - logsumexp(log_p))  # (partitions, forests)

    def _log_evidences(self) -> np.ndarray:
        """Log evidence of each partition and forest."""
        self.each = [  # by partition, column, parent + 1: (means or 1, variances)
            [[self._each(z, c, p) for p in range(-1, self.d)] for c in range(self.d)] for z in self.partitions
        ]
        mean = np.array([[[logsumexp(of) - np.log(of.size) for of in row] for row in part] for part in self.each])
        return np.stack([mean[:, range(self.d), np.array(f) + 1].sum(axis=1) for f in self.forests], axis=1)

    def _each(self, z: np.ndarray, c: int, parent: int) -> np.ndarray:
        if c == parent:
            return np.full((1, 1), -np.inf)
        means = self.means if parent == -1 and len(self.means) > 1 else [self.mean_of(c)]
        return np.array([[self._log_evidence(z, c, parent, m, v) for v in self.variances] for m in means])

    def mean_of(self, c: int) -> float:
        return self.means[0] if len(self.means) == 1 else float(self.center[c])

    def _log_evidence(self, z, c: int, parent: int, mean: float, variance: float) -> float:
        return sum(self._of_rows(self.x[z == k], c, parent, mean, variance) for k in np.unique(z))

    def _of_rows(self, x: np.ndarray, c: int, parent: int, mean: float, variance: float) -> float:
        """Log evidence of a column in a cluster of these rows."""
        design, precision = np.ones((len(x), 1)), np.array([self.kappa])
        if parent != -1:
            design = np.column_stack([design, x[:, parent] - self.center[parent]])
            precision = np.append(precision, self.kappa**2 * self.square[parent])
        center = np.append(mean, np.zeros(len(precision) - 1))
        return log_regression(x[:, c], design, precision, center, self.nu, variance)

    def _at_points(self, rows: tuple[int, ...], c: int, parent: int, mean: float, variance: float) -> np.ndarray:
        """Log evidence at each of `points` as the value of the missing cell, in `row` and `column`."""
        x, result = self.x[list(rows)], []
        if self.row not in rows or self.column not in (c, parent):
            return np.full(len(self.points), self._of_rows(x, c, parent, mean, variance))
        for point in self.points:
            x[rows.index(self.row), self.column] = point
            result.append(self._of_rows(x, c, parent, mean, variance))
        return np.array(result)

    @property
    def table(self) -> np.ndarray:
        """Cells of all columns."""
        return self.x

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

    def cell(self, i: int, generator: np.random.Generator) -> float | None:
        """The missing cell, drawn given state number i; None if there is none."""
        return None


class HolePosterior(LinePosterior):
    """Posterior of a table with one missing cell, which is summed over on a grid, and given hyperparameters. beside
    (N,): one more column, outside all lines."""

    def __init__(self, x, kappa: float, nu: float, mean: float, variance: float, concentration: float, beside):
        self.beside = np.array(beside)
        super().__init__(x, kappa, nu, [mean], [variance], concentration, 0.0)

    @property
    def table(self) -> np.ndarray:
        return np.column_stack([self.x, self.beside])

    def _log_evidences(self) -> np.ndarray:
        ((self.row, self.column),) = np.argwhere(np.isnan(self.x))
        t = np.linspace(-7.0, 7.0, 281)
        self.points = self.center[self.column] + np.sqrt(self.square[self.column]) * np.sinh(t)
        width, (mean,), (variance,) = np.log(np.cosh(t)), self.means, self.variances

        @functools.cache
        def of_rows(rows: tuple[int, ...], c: int, parent: int) -> np.ndarray:
            return self._at_points(rows, c, parent, mean, variance)

        def of(z, forest) -> np.ndarray:
            clusters = [tuple(np.flatnonzero(z == k).tolist()) for k in np.unique(z)]
            others = [self._of_rows(self.beside[list(rows), None], 0, -1, mean, variance) for rows in clusters]
            each = [of_rows(rows, c, parent) for rows in clusters for c, parent in enumerate(forest)]
            return sum(each) + sum(others) + width

        log = np.array([[of(z, forest) for forest in self.forests] for z in self.partitions])
        total = logsumexp(log, axis=2)
        self.of_points = np.exp(log - total[:, :, None])  # (partitions, forests, points)
        return total

    def hyper(self, i: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
        of = np.array([self.means[0], self.kappa, self.nu, self.variances[0]])
        return {f"x{c}": of for c in range(self.d + 1)}

    def cell(self, i: int, generator: np.random.Generator) -> float:
        b, f = divmod(i, len(self.forests))
        return float(np.interp(generator.random(), self._below(self.of_points[b, f]), self.points))

    def quantiles(self, p: Sequence[float]) -> np.ndarray:
        """Quantiles of the missing cell."""
        return np.interp(p, self._below((self.p[:, :, None] * self.of_points).sum(axis=(0, 1))), self.points)

    @staticmethod
    def _below(p: np.ndarray) -> np.ndarray:
        return p.cumsum() - 0.5 * p


def sampler(comm, law: LinePosterior, n_shards: int, seed: int, **settings) -> Mixture:
    """The program's mixture of the law's table, with links drawn in every cycle."""
    columns, rows = table_from_arrays([(f"x{c}", "real", x, ()) for c, x in enumerate(law.table.T)])
    columns = [replace(column, line=c < law.d) for c, column in enumerate(columns)]
    prior = {"mean": list(law.means), "kappa": law.kappa, "nu": law.nu, "variance": list(law.variances)}
    settings = {"links": "forest", "link_moves": 1, "split_merge": 0, **settings}
    return Mixture(
        comm, columns, lambda start, stop: rows.take(np.arange(start, stop)), len(rows),
        Settings(
            seed=seed, shards=n_shards, concentration=law.process[0], discount=law.process[1],
            priors={c.name: prior for c in columns}, **settings,
        ),
    )  # fmt: skip


def replicates(
    mixture: Mixture, law: LinePosterior, n_replicates: int, cycles: int, seed: int
) -> Iterator[tuple[list, list] | None]:
    """Yield, from each exact start, numbers of states (cycles,), and any missing cells (cycles, holes), on root; None
    elsewhere."""
    generator = np.random.Generator(np.random.Philox(seed))
    starts = generator.choice(law.p.size, size=n_replicates, p=law.p.ravel())
    for r, start in enumerate(starts.tolist()):
        _, labels, parents = law.state(start)
        mixture.linking.link(np.append(parents, np.full(len(mixture.columns) - law.d, -1)))
        hyper = mixture.view.components.hyper(*law.process, law.hyper(start, generator))
        if (x := law.cell(start, generator)) is not None:
            for i, holes in enumerate(mixture.linking.numbers.holes):
                mixture.linking.put_numbers(i, np.full(len(holes.rows), x))
        place(mixture, np.array(labels), r * STRIDE, hyper)
        seen, filled = [], []
        for _ in range(cycles):
            mixture.cycle()
            labels, values = mixture.view.labels(), mixture.linking.gap_numbers()
            if mixture.comm.rank == 0:
                z = by_appearance(labels)
                seen.append(law.number[z, tuple(mixture.linking.coding.parents[: law.d].tolist())])
                filled.append(values)
        yield (seen, filled) if mixture.comm.rank == 0 else None


def verdict(records: list, law: LinePosterior, level: float) -> Verdict:
    """Judge states, and the frequency of a missing cell below its quantiles; one that no link needs is drawn given its
    state, of which it is no part."""
    states, cells = (np.array(part) for part in zip(*records, strict=True))
    below, generator = [], np.random.default_rng(len(states))
    if isinstance(law, HolePosterior):
        points, none = (0.1, 0.25, 0.5, 0.75, 0.9), np.isnan(cells[:, :, 0])
        cells[none, 0] = [law.cell(i, generator) for i in states[none].tolist()]
        below = [(str(p), (cells[:, :, 0] < q).mean(axis=1), p) for p, q in zip(points, law.quantiles(points))]
    return judge_states(law, states, level, law.d - 1, below)


# ---- wrong twins -----------------------------------------------------------------------------------------------------


def scored_more(more):
    """Add some terms to the evidence of a column in lines, for every point, parent and cluster."""
    right = updates.line_marginals

    def marginals(points, square, middle, mean, n, u, *moments):
        kappa, nu, _ = points.T[:, :, None, None]
        terms = more(kappa, nu, *(np.asarray(a)[None, :, None] for a in (square, middle)), n, u, moments[1])
        pair = right(points, square, middle, mean, n, u, *moments)
        return pair[0] + terms.sum(axis=2), pair[1] + terms.sum(axis=(0, 1))

    return mock.patch.object(updates, "line_marginals", marginals)


def parents_scored_twice():
    """Wrong: the evidence of a column is that of the pair, including its parent's own part."""

    def of_parents(kappa, nu, square, middle, n, u, uu):
        spread = kappa**2 * square + uu + n * kappa / (kappa + n) * np.where(n > 0, u - middle, 0.0) ** 2
        own = 0.5 * (nu - 1.0) * np.log(kappa**2 * square) - 0.5 * (nu - 1.0 + n) * np.log(spread)
        own = own + gammaln(0.5 * (nu - 1.0 + n)) - gammaln(0.5 * (nu - 1.0))
        return own + 0.5 * np.log(kappa / (kappa + n)) - 0.5 * n * np.log(np.pi)

    return scored_more(of_parents)


def slopes_without_a_prior():
    """Wrong: the evidence of a column omits the prior density of its slope."""

    def without(kappa, nu, square, middle, n, u, uu):
        return np.broadcast_to(-0.5 * np.log(kappa**2 * square), (len(kappa), square.shape[1], len(n)))

    return scored_more(without)


@contextlib.contextmanager
def sums_for_averages():
    """Wrong: scores are sums, not averages, over integrated grids, which are larger if a column has no parent."""

    def under(self):
        score = np.array([logsumexp(of, axis=0) for of in self._under_parents])
        np.fill_diagonal(score, -np.inf)
        return score

    def alone(self):
        return np.array([logsumexp(of) for of in self._without])

    with mock.patch.object(Lines, "under", property(under)), mock.patch.object(Lines, "alone", property(alone)):
        yield


@contextlib.contextmanager
def cells_by_the_parent_alone():
    """Wrong: missing cells are drawn without the columns that depend on them."""
    right = gaps.Tree.passed_up

    def alone(self, lines):
        total, shift, precision = right(self, lines)
        return total, *({c: np.zeros_like(x) for c, x in of.items()} for of in (shift, precision))

    with mock.patch.object(gaps.Tree, "passed_up", alone):
        yield


@contextlib.contextmanager
def needed_cells_forgotten():
    """Wrong: cells that links need are forgotten after each draw of links, with the cells that depend on them."""

    def forget(self, shard, coding, rows):
        for j, c in self.within(coding, every=True):
            gaps._put(coding, rows, c, self.holes[shard].of_column(j), np.nan)

    with mock.patch.object(gaps.LineGaps, "forget", forget):
        yield


@contextlib.contextmanager
def labels_by_other_columns_alone():
    """Wrong: rows that lack a cell take labels regardless of their numbers."""
    right = gaps.Tree.passed_up

    def flat(self, lines):
        total, *rest = right(self, lines)
        return np.zeros_like(total), *rest

    with mock.patch.object(gaps.Tree, "passed_up", flat):
        yield
