"""Exact posterior of a tiny table whose numbers may depend on columns with levels, by enumerating partitions and
forests, and the program's sampler on it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from unittest import mock

import numpy as np
from scipy.special import gammaln, logsumexp

from mpibayes.hpc.components import grid
from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.linking import Linking
from mpibayes.hpc.links import children
from mpibayes.hpc.links.coding import Coding
from mpibayes.hpc.links.forest import ROOT
from mpibayes.io.table import table_from_arrays
from tests.exact.compare import Verdict
from tests.exact.enumerate import log_eppf, partitions
from tests.exact.production import STRIDE, place
from tests.links.enumerate import forests, log_prior
from tests.links.judged import judge_states, levels_of_cells
from tests.links.lines import log_regression
from tests.links.states import by_appearance


@dataclass(frozen=True)
class Number:
    """x (N,), NaN if missing; kind "real" or "count"; prior: grids of its hyperparameters, with one point for kappa and
    nu; line: True if it may be in lines."""

    x: np.ndarray
    prior: dict[str, list[float]]
    kind: str = "real"
    line: bool = False

    @property
    def points(self) -> list[tuple[float, ...]]:
        return list(itertools.product(*self.prior.values()))

    def log_evidence(self, group: np.ndarray, point: tuple[float, ...], above: np.ndarray | None) -> float:
        """Log marginal likelihood with separate parameters in each group; above: the parent in a line."""
        total = 0.0
        for g in np.unique(group):
            at = (group == g) & ~np.isnan(self.x)
            x, n = self.x[at], int(at.sum())
            if self.kind == "count":
                a, b = point
                total += gammaln(a + x.sum()) - gammaln(a) + a * np.log(b) - (a + x.sum()) * np.log(b + n)
                continue
            mean, kappa, nu, variance = point
            design, precision, center = np.ones((n, 1)), np.array([kappa]), np.array([mean])
            if above is not None:
                design = np.column_stack([design, above[at] - above.mean()])
                precision, center = np.append(precision, kappa**2 * above.var()), np.append(self.x.mean(), 0.0)
            total += log_regression(x, design, precision, center, nu, variance) if n else 0.0
        return float(total)


class ChildPosterior:
    """cells (N, D) of columns with levels, -1 if missing, with Dirichlet(beta); followed by numbers."""

    def __init__(self, cells, n_levels, beta: float, numbers, concentration: float, discount: float):
        self.cells, self.n_levels, self.beta, self.numbers = np.array(cells), list(n_levels), beta, list(numbers)
        self.process, self.d = (concentration, discount), len(n_levels)
        self.n_columns = self.d + len(self.numbers)
        self.partitions = partitions(len(self.cells))
        self.forests = [f for f in forests(self.n_columns) if all(map(self._may, range(self.n_columns), f))]
        self.holes = [tuple(at) for at in np.argwhere(self.cells < 0).tolist()]
        self.tables = []
        for levels in itertools.product(*(range(self.n_levels[c]) for _, c in self.holes)):
            self.tables.append(self.cells.copy())
            for (i, c), v in zip(self.holes, levels):
                self.tables[-1][i, c] = v
        eppf = np.array([log_eppf(np.bincount(z), concentration, discount) for z in self.partitions])
        self.each = {  # by table, partition, column and parent: log evidence at each point of its hyperparameters
            (t, b, c, p): self._evidence(x, z, c, p)
            for t, x in enumerate(self.tables) for b, z in enumerate(self.partitions)
            for c in range(self.n_columns) for p in range(-1, self.n_columns) if self._may(c, p)
        }  # fmt: skip
        self.log_each = np.array([
            [[eppf[b] + log_prior(f) + sum(logsumexp(self.each[t, b, c, p]) - np.log(len(self.each[t, b, c, p]))
                                           for c, p in enumerate(f)) for f in self.forests]
             for b in range(len(self.partitions))]
            for t in range(len(self.tables))
        ])  # fmt: skip
        log_p = logsumexp(self.log_each, axis=0)
        self.log_evidence = float(logsumexp(log_p))
        self.p = np.exp(log_p - self.log_evidence)
        states = itertools.product(self.partitions.tolist(), self.forests)
        self.number = {(tuple(z), f): i for i, (z, f) in enumerate(states)}

    def _may(self, c: int, parent: int) -> bool:
        if parent == -1 or c == parent:
            return parent == -1
        if parent < self.d:
            return True
        return c >= self.d and self.numbers[c - self.d].line and self.numbers[parent - self.d].line

    def _evidence(self, x: np.ndarray, z: np.ndarray, c: int, parent: int) -> np.ndarray:
        group = z * 100 + x[:, parent] if 0 <= parent < self.d else z
        if c < self.d:
            counts = [np.bincount(x[group == g, c], minlength=self.n_levels[c]) for g in np.unique(group)]
            of = [gammaln(len(n) * self.beta) - gammaln(len(n) * self.beta + n.sum())
                  + (gammaln(self.beta + n) - gammaln(self.beta)).sum() for n in counts]  # fmt: skip
            return np.array([sum(of)])
        above = self.numbers[parent - self.d].x if parent >= self.d else None
        points = self.numbers[c - self.d].points
        return np.array([self.numbers[c - self.d].log_evidence(group, point, above) for point in points])

    def needed(self, forest: tuple[int, ...], row: int, column: int) -> bool:
        """True if a cell of the row that depends on this missing one is present, or is missing and itself needed."""
        return any(
            self.needed(forest, row, c) if c < self.d and self.cells[row, c] < 0
            else c < self.d or not np.isnan(self.numbers[c - self.d].x[row])
            for c, parent in enumerate(forest) if parent == column
        )  # fmt: skip

    def p_of_cell(self, row: int, column: int, level: int) -> float:
        """Probability that a missing cell is needed and has a level."""
        of_level = [t for t, x in enumerate(self.tables) if x[row, column] == level]
        p = np.exp(self.log_each[of_level] - self.log_evidence).sum(axis=0)
        return float(p[:, [self.needed(f, row, column) for f in self.forests]].sum())

    def state(self, i: int):
        b, f = divmod(i, len(self.forests))
        return b, f

    def draw(self, i: int, generator: np.random.Generator) -> tuple[np.ndarray, dict[str, tuple]]:
        """Draw cells (N, D), and the hyperparameters of each number by name, given state number i."""
        b, f = self.state(i)
        t = generator.choice(len(self.tables), p=_normalised(self.log_each[:, b, f]))
        hyper = {}
        for j, number in enumerate(self.numbers):
            of = self.each[t, b, self.d + j, self.forests[f][self.d + j]]
            hyper[f"x{j}"] = np.array(number.points[generator.choice(len(of), p=_normalised(of))])
        return self.tables[t], hyper


def _normalised(log_p: np.ndarray) -> np.ndarray:
    return np.exp(log_p - logsumexp(log_p))


def sampler(comm, law: ChildPosterior, n_shards: int, seed: int, **settings) -> Mixture:
    """The program's mixture of the law's table, with links drawn in every cycle."""
    given = [(f"c{c}", "categorical", law.cells[:, c], tuple(f"v{v}" for v in range(n)))
             for c, n in enumerate(law.n_levels)]  # fmt: skip
    given += [(f"x{j}", number.kind, number.x, ()) for j, number in enumerate(law.numbers)]
    columns, rows = table_from_arrays(given)
    line = {f"x{j}" for j, number in enumerate(law.numbers) if number.line}
    columns = [replace(column, child=not column.levels, line=column.name in line) for column in columns]
    priors = {f"c{c}": {"grid": (law.beta,)} for c in range(law.d)}
    priors |= {f"x{j}": number.prior for j, number in enumerate(law.numbers)}
    settings = {"links": "forest", "link_moves": 1, "split_merge": 0, **settings}
    return Mixture(
        comm, columns, lambda start, stop: rows.take(np.arange(start, stop)), len(rows),
        Settings(
            seed=seed, shards=n_shards, concentration=law.process[0], discount=law.process[1], priors=priors,
            **settings,
        ),
    )  # fmt: skip


def replicates(
    mixture: Mixture, law: ChildPosterior, n_replicates: int, cycles: int, seed: int
) -> Iterator[tuple[list, list] | None]:
    """Yield, from each exact start, numbers of states (cycles,), and levels of needed missing cells, -1 for others
    (cycles, holes), on root; None elsewhere."""
    generator = np.random.Generator(np.random.Philox(seed))
    starts = generator.choice(law.p.size, size=n_replicates, p=law.p.ravel())
    for r, start in enumerate(starts.tolist()):
        b, f = law.state(start)
        mixture.linking.link(np.array(law.forests[f]))
        cells, hyper = law.draw(start, generator)
        view, gaps = mixture.view, mixture.linking.gaps
        for i, shard in enumerate(view.shards):
            levels = [cells[shard.start + at, c] for c, at in gaps.at[i].items()]
            gaps.put(i, shard.rows, np.concatenate([*levels, np.zeros(0, np.intp)]))
        of_column = view.components.by_column(view.hyper) | hyper
        place(mixture, law.partitions[b], r * STRIDE, view.components.hyper(*law.process, of_column))
        seen, filled = [], []
        for _ in range(cycles):
            mixture.cycle()
            labels, levels = mixture.view.labels(), mixture.linking.gap_levels()
            if mixture.comm.rank == 0:
                z = by_appearance(labels)
                forest = tuple(mixture.linking.coding.parents.tolist())
                seen.append(law.number[z, forest])
                order = [c for c in mixture.linking.coding.order if c < law.d]
                needed = [h for c in order for h in law.holes if h[1] == c and law.needed(forest, *h)]
                level = dict(zip(needed, levels.tolist(), strict=True))
                filled.append([level.get(h, -1) for h in law.holes])
        yield (seen, filled) if mixture.comm.rank == 0 else None


def verdict(records: list, law: ChildPosterior, level: float) -> Verdict:
    """Judge states, and each level of a missing cell."""
    states, cells = (np.array(part) for part in zip(*records, strict=True))
    return judge_states(law, states, level, law.n_columns - 1, levels_of_cells(law, cells))


# ---- wrong twins -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def contexts_of_other_rows():
    """Wrong: labels treat a number as one in the context of the previous row."""
    right = Coding._apart

    def rolled(self, rows):
        result = right(self, rows)
        for c in self.in_contexts:
            column = self.columns[c]
            at = slice(column.index, column.index + column.contexts)
            cells = result[column.block][:, at]
            x, u = np.nansum(cells, axis=1), np.roll(np.argmax(~np.isnan(cells), axis=1), 1)
            gone = np.isnan(cells).all(axis=1)
            result[column.block][:, at] = np.nan
            result[column.block][np.arange(len(x)), column.index + u] = np.where(gone, np.nan, x)
        return result

    with mock.patch.object(Coding, "_apart", rolled):
        yield


@contextlib.contextmanager
def hyperparameters_as_they_are():
    """Wrong: links are scored at a column's current hyperparameters, which are not redrawn with them."""
    right, at = grid.at_points, {}

    def of_present(s, points):
        log = right(s, points)
        at.setdefault(len(points), 0)
        return np.where(np.arange(len(log)) == 0, log + np.log(len(log)), -np.inf)

    with mock.patch.object(children, "at_points", of_present):
        yield


@contextlib.contextmanager
def sums_for_averages():
    """Wrong: scores are sums, not averages, over the grids, except for columns without a parent."""
    right = children.Children.under

    def sums(self, parent, columns):
        score = right(self, parent, columns)
        return score if parent == ROOT else score + [np.log(len(self._points[c])) for c in columns]

    with mock.patch.object(children.Children, "under", sums):
        yield


@contextlib.contextmanager
def gaps_without_numbers():
    """Wrong: missing cells are drawn without the numbers that depend on them."""

    def none(self, view):
        return {c: lambda x, k, n=n: np.zeros((len(x), n)) for c, n in
                ((c, self.coding.columns[c].contexts) for c in self.gaps.numbers)}  # fmt: skip

    with mock.patch.object(Linking, "_densities", none):
        yield
