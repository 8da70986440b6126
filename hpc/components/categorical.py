"""Categorical and Boolean columns: Dirichlet prior, level probabilities integrated out or drawn (docs/math.md 1.3).

A column's pseudo-counts are a multiplier times its base: ones, or for a column of many levels their frequencies
(hpc/crosscat/bases.py). The multiplier is learned on a grid unless the prior is given. Arrays are [level row][cluster];
the last level row of a column counts its missing cells and has pseudo-count 0.

A column with a parent has separate probabilities in each context of the parent (docs/links.md), with the same
pseudo-counts: its level rows are those of one context after another, each ending in a row with pseudo-count 0; the very
last row counts missing cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from mpibayes.hpc.components.component import Array, PriorKey
from mpibayes.hpc.components.grid import as_grid, pick_on_grid
from mpibayes.hpc.components.single import OneByOne, one_uniform
from mpibayes.hpc.parallel.streams import Stream, cells
from mpibayes.io.rows import Column, Rows
from mpibayes.kernels.common.functions import gammaln
from mpibayes.kernels.mixture import updates

GRID = 2.0 ** np.arange(-6.0, 4.5, 0.5)  # mean pseudo-count per level
EVERY_POINT = tuple(GRID)
START = 0.5


@lru_cache(maxsize=64)
def _table(points: tuple[float, ...]) -> updates.Grid:
    """Scorer of a grid of multipliers; cached, so that equal grids share one object."""
    return updates.Grid(np.array(points))


def _first(grid: np.ndarray) -> float:
    """The initial multiplier of a column."""
    return START if grid is GRID else float(grid[np.argmin(np.abs(np.log(grid / START)))])


def _scorer(grid: np.ndarray) -> updates.Grid | None:
    """Scorer of a grid; None of one point, which is fixed."""
    if len(grid) == 1:
        return None
    return _table(EVERY_POINT if grid is GRID else tuple(grid))


class Levels:
    """Law of categorical columns (see `Law`): probabilities theta (L, K + 1) float32 of all levels."""

    def __init__(self, kind: Categorical, beta: np.ndarray, levels: np.ndarray):
        self.offsets = kind.offsets
        k = levels.shape[1]
        self.theta = np.zeros((self.offsets[-1], k + 1), np.float32)
        for first, end in pairwise(kind.groups.tolist()):
            rows = slice(first, end - 1)
            count = np.repeat(beta[rows, None], k + 1, axis=1)
            count[:, :k] += levels[rows]
            self.theta[rows] = count / count.sum(axis=0)
        self.n_bytes = self.theta.nbytes
        self._contexts = kind.contexts

    def _rows(self, column: int) -> slice:
        return slice(self.offsets[column], self.offsets[column + 1] - 1)

    def log_density(self, column, x, seen):
        raise NotImplementedError("a single cell is there or not")

    def probabilities(self, column: int) -> np.ndarray:
        """Probabilities of a column's levels in every cluster, (V, K + 1)."""
        return self.theta[self._rows(column)]

    def in_contexts(self, column: int) -> np.ndarray:
        """Probabilities of a column's levels in every context of its parent and every cluster, (U, V, K + 1)."""
        part = self.theta[self.offsets[column] : self.offsets[column + 1]]
        return part.reshape(self._contexts[column], -1, part.shape[1])[:, :-1]

    def averages(self, column, x, seen, lacking, weight) -> list[np.ndarray]:
        return [weight @ self.probabilities(column).T]

    def draw(self, column, x, seen, lacking, clusters, stream: Stream, ids) -> np.ndarray:
        u = one_uniform(stream, Categorical.substreams[0], column, ids)
        cumulative = self.theta[self._rows(column)][:, clusters].astype(np.float64).cumsum(axis=0)
        return (cumulative[:-1] <= u * cumulative[-1]).sum(axis=0)[:, None]


class Categorical(OneByOne):
    """All categorical columns of a view. A column's prior: {"dirichlet": [V_c]} (fixed), or {"grid": multipliers,
    "base": [V_c]}, both keys optional. A base may differ by context, [U_c, V_c + 1], with 0 behind the levels.

    `n_levels` (C,): levels of each column; `contexts` (C,): contexts of its parent, 1 without one; `offsets` (C + 1,):
    first level row of each; `groups` (contexts of all columns + 1,): first level row of each context, `group_of` (C +
    1,): first context of each column.
    """

    name, hyper, hyper_form = "categorical", "dirichlet", ()
    hyper_names = ()
    stored = "codes8", "codes16"
    prior_forms = (PriorKey("dirichlet", least=1e-30, by_level=True),), (PriorKey("grid", least=1e-30, grid=True),)
    statistics = (Array("levels", "level", np.int32),)
    parameters = (Array("table", "level", np.float32),)
    odds = "table", np.float32
    exact, measured = True, False
    substreams = (0,)

    def __init__(self, columns: Sequence[Column], priors: Mapping, joint: Mapping):
        self.columns = tuple(columns)
        self.n_levels = np.array([len(c.levels) for c in columns], np.int64)
        self.contexts = np.array([c.contexts for c in columns], np.int64)
        self.group_of = np.concatenate([[0], np.cumsum(self.contexts)]).astype(np.int64)
        rows_of_group = np.repeat(self.n_levels + 1, self.contexts)
        self.groups = np.concatenate([[0], np.cumsum(rows_of_group)]).astype(np.int64)
        self.offsets = self.groups[self.group_of]
        self.missing_rows = self.offsets[1:] - 1
        self.column_of_row = np.repeat(np.arange(len(self.n_levels)), np.diff(self.offsets))
        self._group_of_row = np.repeat(np.arange(len(rows_of_group)), rows_of_group)
        self.base = np.ones(self.offsets[-1])
        self.base[self.groups[1:] - 1] = 0.0
        self.grids = []
        for c, column in enumerate(columns):
            prior = priors.get(column.name)
            if not prior:
                self.grids.append(GRID)
                continue
            base = np.asarray(prior.get("dirichlet", prior.get("base", 1.0)))
            if base.ndim < 2:
                base = np.tile(np.append(np.ones(self.n_levels[c]) * base, 0.0), self.contexts[c])
            self.base[self.offsets[c] : self.offsets[c + 1]] = base.ravel()
            self.grids.append(np.ones(1) if "dirichlet" in prior else as_grid(prior.get("grid", GRID)))
        self._start = np.array([_first(grid) for grid in self.grids])
        self._tables = [_scorer(grid) for grid in self.grids]
        self._even = self._evenly()
        self._pseudo = b"no multiplier", self.base  # last result of `pseudo_counts`, and its argument
        self._known: dict[tuple[int, int], list[tuple]] = {}  # cache of `_learned`
        self.cuts = {"column": np.arange(len(self) + 1), "level": self.offsets}
        self.cost = np.diff(self.offsets) + 1.0
        self.odds_form = (int(self.offsets[-1]),)

    def _evenly(self) -> np.ndarray:
        """Mask of the columns with equal pseudo-counts for all levels, (C,)."""
        return np.logical_and.reduceat((self.base == 1.0) | (self.base == 0.0), self.offsets[:-1])

    def rebase(self, bases: Mapping[str, np.ndarray]) -> None:
        """Replace the bases of columns, given by name, one per context."""
        for c, column in enumerate(self.columns):
            if column.name in bases:
                self.base[self.offsets[c] : self.offsets[c + 1]] = bases[column.name].ravel()
        self._even, self._known, self._pseudo = self._evenly(), {}, (b"no multiplier", self.base)

    def prior(self, multiplier: np.ndarray) -> dict[str, np.ndarray]:
        return {"offsets": self.offsets, "contexts": self.contexts, "dirichlet": self.pseudo_counts(multiplier)}

    def log_base(self, rows: Rows) -> float:
        return 0.0

    def merge(self, a: tuple, b: tuple) -> tuple[np.ndarray]:
        return (a[0] + b[0],)

    def pseudo_counts(self, multiplier: np.ndarray) -> np.ndarray:
        """Return the Dirichlet parameters by level row, (L,); 0 in missing rows."""
        key = multiplier.tobytes()
        if self._pseudo[0] != key:
            result = self.base * multiplier[self.column_of_row]
            result.flags.writeable = False
            self._pseudo = key, result
        return self._pseudo[1]

    def observed(self, levels: np.ndarray) -> np.ndarray:
        """Count the observed cells of every column and cluster, (C, K), from `levels` (L, K)."""
        if not len(self.n_levels):
            return np.zeros((0, levels.shape[1]), np.int64)
        return np.add.reduceat(levels, self.offsets[:-1], axis=0, dtype=np.int64) - levels[self.missing_rows]

    @property
    def linked(self) -> bool:
        """True if any column has a parent."""
        return len(self.groups) > len(self.offsets)

    def _over_contexts(self, values: np.ndarray, columns: slice) -> np.ndarray:
        """Sum `values`, one per context of `columns`, over contexts: (columns, ...)."""
        first = self.group_of[columns.start : columns.stop] - self.group_of[columns.start]
        return np.add.reduceat(values, first, axis=0) if self.linked and len(first) else values

    def log_marginal(self, multiplier: np.ndarray, s: tuple, columns: slice) -> np.ndarray:
        (levels,), beta = s, self.pseudo_counts(multiplier)
        first, last = self.group_of[[columns.start, columns.stop]].tolist()
        return self._over_contexts(updates.log_marginals(levels, beta, self.groups, first, last)[0], columns)

    def _at_power(self, multiplier: np.ndarray, s: tuple, column: int, power: float) -> Iterator[tuple]:
        """Yield for each context of a column its level rows without missing cells, their pseudo-counts (V, 1), and the
        pseudo-counts plus `power` times the counts (V, K)."""
        (levels,), beta = s, self.pseudo_counts(multiplier)[:, None]
        for group in range(self.group_of[column], self.group_of[column + 1]):
            rows = slice(self.groups[group], self.groups[group + 1] - 1)
            yield rows, beta[rows], beta[rows] + power * levels[rows]

    def log_marginal_at(self, multiplier: np.ndarray, s: tuple, column: int, power: float) -> float:
        total = 0.0
        for _, beta, counts in self._at_power(multiplier, s, column, power):
            cells = (gammaln(counts) - gammaln(beta)).sum()
            total += cells - (gammaln(counts.sum(axis=0)) - gammaln(beta.sum())).sum()
        return float(total)

    def draw_at(self, multiplier: np.ndarray, s: tuple, column: int, power: float, stream: Stream):
        first, end = self.offsets[[column, column + 1]].tolist()
        table = np.zeros((end - first, s[0].shape[1]), np.float32)
        for rows, _, counts in self._at_power(multiplier, s, column, power):
            log_gamma = self._own(stream).log_gammas(counts, cells(rows.start, *counts.shape))
            table[rows.start - first : rows.stop - first] = power * (log_gamma - np.logaddexp.reduce(log_gamma, axis=0))
        return (table,)

    def log_marginal_clusters(self, multiplier: np.ndarray, s: tuple) -> np.ndarray:
        (levels,), beta = s, self.pseudo_counts(multiplier)
        return updates.log_marginals(np.ascontiguousarray(levels), beta, self.groups, 0, len(self.groups) - 1)[1]

    def log_marginal_unions(self, multiplier: np.ndarray, s: tuple, clusters: Sequence[int]) -> np.ndarray:
        """Log marginal likelihood of the union of each of `clusters` (N,) with every cluster, (N, K)."""
        levels, beta = np.ascontiguousarray(s[0]), self.pseudo_counts(multiplier)
        return updates.log_marginals_of_unions(levels, beta, self.groups, clusters)

    def cell_moments(self, s: tuple):
        raise NotImplementedError("the cells are counted as they are")

    def side_odds(self, multiplier: np.ndarray, s: tuple) -> np.ndarray:
        """Log odds of every level; 0 in missing rows."""
        table = self.log_predictive_table(multiplier, *s)
        return np.ascontiguousarray((table[:, 1::2] - table[:, 0::2]).T, np.float32)

    def side_odds_met(self, multiplier: np.ndarray, s: tuple, met: np.ndarray) -> np.ndarray:
        """Log odds of the levels that are met; 0 in other rows, and in missing rows."""
        out = np.zeros((s[0].shape[1] // 2, len(met)), np.float32)
        at, ends = np.flatnonzero(met.view(np.bool_)), self.groups[1:] - 1
        if not len(at):
            return out
        group, beta, counts = self._group_of_row[at], self.pseudo_counts(multiplier), s[0].take(at, 0)
        missing = ends[group] == at
        counts[missing] = 0
        first = np.flatnonzero(np.diff(group, prepend=-1))
        observed = np.add.reduceat(counts, first, axis=0, dtype=np.int64)
        total = np.add.reduceat(beta, self.groups[:-1])[group[first], None] + observed
        log_total = np.repeat(np.log(total), np.diff(first, append=len(at)), axis=0)
        counted = beta[at, None] + counts
        counted[missing] = 1.0
        table = np.log(counted) - log_total
        table[missing] = 0.0
        out[:, at] = (table[:, 1::2] - table[:, 0::2]).T
        return out

    def predictive(self, multiplier: np.ndarray, s: tuple) -> Levels:
        return Levels(self, self.pseudo_counts(multiplier), *s)

    def drawn(self, multiplier: np.ndarray, s: tuple, stream: Stream) -> Levels:
        law = self.predictive(multiplier, s)
        law.theta[:, :-1] = np.exp(self.draw(multiplier, s, slice(0, len(self)), stream)[0])
        return law

    def log_predictive_table(self, multiplier: np.ndarray, levels: np.ndarray) -> np.ndarray:
        """Log predictive probability of every level in every cluster, (L, K); 0 in missing rows."""
        beta = self.pseudo_counts(multiplier)[:, None]
        if not len(self.n_levels):
            return np.zeros(levels.shape)
        ends = self.groups[1:] - 1
        observed = np.add.reduceat(levels, self.groups[:-1], axis=0, dtype=np.int64) - levels[ends]
        total = np.add.reduceat(beta, self.groups[:-1], axis=0) + observed
        counted = beta + levels
        counted[ends] = 1.0
        table = np.log(counted) - np.log(total)[self._group_of_row]
        table[ends] = 0.0
        return table

    def update(self, multiplier: np.ndarray, s: tuple, columns: slice, stream: Stream) -> np.ndarray:
        """Draw multipliers from their grids; columns that share a grid are scored together."""
        (levels,), multiplier, stream = s, multiplier.copy(), self._own(stream)
        for table, even, subset, groups in self._learned(columns.start, columns.stop):
            score = updates.grid_scores(levels, self.groups, groups, table, None if even else self.base)
            if len(groups) > len(subset):
                score = np.add.reduceat(score, np.cumsum(self.contexts[subset]) - self.contexts[subset], axis=0)
            multiplier[subset] = table.points[pick_on_grid(score, stream.uniforms(subset))]
        return multiplier[columns]

    def _learned(self, start: int, stop: int) -> list[tuple]:
        """Group the columns start..stop-1 whose multipliers are learned by grid: (scorer, True if all levels share a
        pseudo-count, columns, their contexts)."""
        if (start, stop) not in self._known:
            learned: dict[tuple, list] = {}
            for c in range(start, stop):
                if self._tables[c] is not None:
                    learned.setdefault((id(self._tables[c]), bool(self._even[c])), []).append(c)
            self._known[start, stop] = [
                (self._tables[of[0]], even, np.array(of),
                 np.concatenate([np.arange(self.group_of[c], self.group_of[c + 1]) for c in of]))
                for (_, even), of in learned.items()
            ]  # fmt: skip
        return self._known[start, stop]

    def met(self, levels: np.ndarray) -> np.ndarray | None:
        """Return 1 for the level rows that any counted row has, else 0, uint8 (L,); None without links, where most
        are."""
        return updates.met(levels) if self.linked else None

    def draw(self, multiplier: np.ndarray, s: tuple, columns: slice, stream: Stream) -> tuple[np.ndarray]:
        """Draw log level probabilities, float32 (level rows of `columns`, K); 0 in missing rows."""
        return (self.draw_given(self.pseudo_counts(multiplier), *s, columns, stream),)

    def draw_given(
        self, beta: np.ndarray, levels: np.ndarray, columns: slice, stream: Stream, met: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the `draw` given all pseudo-counts (L,) and counts (L, K). met: see `met`; of the levels that are not
        only the total probability is drawn (see `updates.draw_levels`)."""
        first, last = self.group_of[[columns.start, columns.stop]].tolist()
        return updates.draw_levels(levels, beta, self.groups, first, last, met, **vars(self._own(stream)))

    def _own(self, stream: Stream) -> Stream:
        return stream.at(self.substreams[0])
