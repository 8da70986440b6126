"""Log density, clusters and missing cells of new rows of a mixture or cross-categorization, averaged over kept draws.

In draw d, with clusters k (docs/math.md 2.6), p_d(x) = sum_k p_d(x, k), where p_d(x, k) = w_dk f(x | rows of k) for
each cluster and a new one, over the observed cells of x. Averages weight the draws by p_d(x), as the posterior given x:

    log_density  log of mean_d p_d(x)
    P(c | x)     sum_d p_d(x) P_d(c | x) / sum_d p_d(x)        P_d(r | x) = sum_k p_d(k | x) n_rk / n_k
    P(v | x)     sum_d sum_k p_d(x, k) f(v | rows of k) / sum_d p_d(x)

Clusters c are the clusters r of the representative partition (as in `report`), or a new one. n_rk of the n_k training
rows in cluster k of the draw are in cluster r of the representative partition, so the numbering of a draw's clusters
does not matter.

A block of columns that are modelled jointly may be partly missing in a new row: its observed cells are scored by their
joint marginal, and the missing ones are predicted given them.

With several views, p_d(x) is the product over them, and the rest holds in each: a representative view is matched with
the view of a draw that has most of its columns.

The statistics of all draws are built once; new rows then stream through in batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpibayes.hpc.crosscat.draws import Draw, Posterior, narrow
from mpibayes.hpc.crosscat.law import Law
from mpibayes.hpc.crosscat.laws.view_density import Pattern, ViewDensity, is_missing, patterns
from mpibayes.hpc.crosscat.summaries.partitions import contingency
from mpibayes.hpc.crosscat.summaries.representative import Representative
from mpibayes.hpc.outcome.answers import Answers
from mpibayes.io.recording import number as number_at
from mpibayes.io.recording import recorded
from mpibayes.io.rows import Column, Rows

BATCH_CELLS = 4_000_000  # rows of a batch times clusters, so that a batch takes some tens of MiB


@dataclass
class Imputed:
    """Missing cells of one column. rows (m,): their rows; value (m,): level code or mean; spread (m,): probability or
    sd; fill (m,): level code or recorded value to put in the cell."""

    rows: np.ndarray
    value: np.ndarray
    spread: np.ndarray
    fill: np.ndarray


@dataclass
class InView:
    """Clusters of n rows in one view: p_new (n,) of a new cluster, p (n, R) of each representative cluster; see the
    module."""

    p_new: np.ndarray
    p: np.ndarray

    def cluster(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the most probable cluster of each row, from 1, 0 for a new one, and its probability."""
        best = self.p.argmax(axis=1)
        p_best = self.p[np.arange(len(best)), best]
        new = self.p_new > p_best
        return np.where(new, 0, best + 1), np.where(new, self.p_new, p_best)


@dataclass
class Result:
    """Predictions for n rows: log_density, log_density_sd (n,); see the module. outcome: its expectations in each
    draw, (D, n, E), see `Outcomes.predictions`, and the draws' weights, (D, n)."""

    log_density: np.ndarray
    log_density_sd: np.ndarray
    views: list[InView]
    imputed: dict[str, Imputed]
    outcome: tuple[np.ndarray, np.ndarray]


@dataclass
class Cells:
    """Cells of a batch in a view's columns. partly: partly missing blocks; lacking: missing cells to predict, each with
    the column of its atoms if only the rest is predicted."""

    rows: Rows
    partly: list[Pattern]
    lacking: list[tuple[Pattern, Column | None]]


class Predictor:
    """Averages over kept draws; call it with Rows of the run's used columns.

    requested: (chain, cycle) of the draws. views: the representative views. impute: True to predict missing cells.
    """

    def __init__(
        self,
        run: Posterior,
        requested: Sequence[tuple[int, int]],
        views: Sequence[Representative],
        impute: bool = False,
    ):
        self.representatives, self.impute = views, impute
        self._which = run.data.latent.which
        parts = {column.name for column in self._which.values()}
        self.columns = [c for c in run.columns if c.name not in parts]
        # labels in the smallest type: they are all in memory, since the table is read once for all draws
        drawn = [replace(d, labels=[narrow(z) for z in d.labels]) for _, d in run.states(requested)]
        self.draws: list[Law] = []
        # for each draw and representative view: the matched view of the draw, and n_rk / n_k, (K, R) float32
        self._membership: list[list[tuple[int, np.ndarray]]] = []
        for draw, law in zip(drawn, run.laws(drawn), strict=True):
            for view in law.views:
                view.prepare(impute)
            self.draws.append(law)
            self._membership.append([_membership(r, draw) for r in views])
        self._states = [] if run.outcomes is None else [run.outcomes.state(draw) for draw in drawn]
        self._outcome_views = [draw.outcome_view for draw in drawn]
        self._n_expected = 0 if run.outcomes is None else run.outcomes.n_expected
        self.n_draws = len(self.draws)
        most = max(view.tail.n_slots for draw in self.draws for view in draw.views)
        most += max(len(r.sizes) for r in views)
        kinds = run.components.kinds
        widest = max((len(kind.members(c)) for kind in kinds for c in range(len(kind))), default=1)
        self.batch = max(256, BATCH_CELLS // ((most + 1) * widest))

    @property
    def n_bytes(self) -> int:
        """Memory of all draws' statistics."""
        shares = sum(share.nbytes for of in self._membership for _, share in of)
        return shares + sum(view.n_bytes for draw in self.draws for view in draw.views)

    def __call__(self, rows: Rows, answers: Answers | None = None) -> Result:
        """Predict the rows. answers: the predictors of their outcomes, if the run has one."""
        n = len(rows)
        expected = np.zeros((self.n_draws, n, self._n_expected))
        holes = self._holes(rows) if self.impute else {}
        known: dict[int, Cells] = {}  # by a view's components
        sums = [(np.zeros((n, len(r.sizes))), np.zeros(n)) for r in self.representatives]
        overall = np.zeros(n)
        cells = {name: np.zeros((len(at), self._width(name))) for name, at in holes.items()}
        largest = np.full(n, -np.inf)  # running maximum of log p_d(x): sums are kept relative to it
        log_density = np.zeros((self.n_draws, n))
        for d, draw in enumerate(self.draws):
            weights = []
            for v, view in enumerate(draw.views):
                key = id(view.components)
                if key not in known:
                    known[key] = self._cells(view, draw.rows_of(v, rows), holes)
                terms = view.log_terms(known[key].rows, known[key].partly)
                top = terms.max(axis=1)
                weight = np.exp(terms - top[:, None])
                total = weight.sum(axis=1)
                log_density[d] += top + np.log(total)
                weights.append(weight / total[:, None])
            if answers is not None:
                weight = weights[self._outcome_views[d]]
                each = self._states[d].expectations(answers).reshape(*weight.shape, -1)
                expected[d] = (weight[:, :, None] * each).sum(axis=1)
            above = np.maximum(largest, log_density[d])
            fade, gain = np.exp(largest - above), np.exp(log_density[d] - above)
            largest = above
            for weight in weights:
                weight *= gain[:, None]
            for (p, new), (v, membership) in zip(sums, self._membership[d]):
                p *= fade[:, None]
                p += weights[v][:, :-1] @ membership
                new *= fade
                new += weights[v][:, -1]
            overall *= fade
            overall += gain
            for name, at in holes.items():
                cells[name] *= fade[at, None]
            for view, weight in zip(draw.views, weights):
                for p, which in known[id(view.components)].lacking:
                    part = known[id(view.components)].rows
                    share = 1.0 if which is None else view.share_of_rest(which, part, p.rows)
                    averages = view.averages(p, weight[p.rows] * share, part)
                    for i, column in p.members():
                        name, first = self._home(column)
                        at = np.searchsorted(holes[name], p.rows)
                        cells[name][at, first : first + averages[i].shape[1]] += averages[i]
        spread = log_density.std(axis=0, ddof=1) if self.n_draws > 1 else np.full(n, np.nan)
        imputed = {name: self._imputed(name, at, cells[name] / overall[at, None]) for name, at in holes.items()}
        views = [InView(new / overall, p / overall[:, None]) for p, new in sums]
        outcome = expected, np.exp(log_density - largest)
        return Result(largest + np.log(overall / self.n_draws), spread, views, imputed, outcome)

    def _cells(self, view: ViewDensity, rows: Rows, holes: dict[str, np.ndarray]) -> Cells:
        """Prepare a batch for a view. rows: of the view's columns."""
        partly = list(patterns(view.components, rows, partly=True))
        return Cells(rows, partly, list(self._lacking(view, rows, holes)) if self.impute else [])

    def _lacking(
        self, view: ViewDensity, rows: Rows, holes: dict[str, np.ndarray]
    ) -> Iterator[tuple[Pattern, Column | None]]:
        """Yield the cells to predict, each with the column of its atoms or None. For a column with atoms, the rest is
        predicted where the cell is missing, but not where it is an atom."""
        columns = {column.name: column for column in view.components.categorical.columns}
        for p in view.patterns(rows):
            which = self._which.get(p.kind.members(p.column)[0].name)
            if which is not None:
                which, name = columns[which.name], p.kind.members(p.column)[0].name
                known = np.isin(p.rows, holes.get(name, ()))
                p = replace(p, rows=p.rows[known], x=p.x[known])
            if len(p.rows):
                yield p, which

    def _home(self, column: Column) -> tuple[str, int]:
        """Return the table's column that contains a column, and the place of its averages among those of the former."""
        return next(((name, 2) for name, part in self._which.items() if part.name == column.name), (column.name, 0))

    def _holes(self, rows: Rows) -> dict[str, np.ndarray]:
        """Return the rows with a missing cell, by column; columns without any are left out."""
        holes = {}
        for c in self.columns:
            at = np.flatnonzero(is_missing(rows, self._which.get(c.name, c)))
            if len(at):
                holes[c.name] = at
        return holes

    def _width(self, name: str) -> int:
        column = next(c for c in self.columns if c.name == name)
        return len(column.levels) or 2 + (len(column.atoms) + 1 if name in self._which else 0)

    def _imputed(self, name: str, at: np.ndarray, average: np.ndarray) -> Imputed:
        column = next(c for c in self.columns if c.name == name)
        if column.levels:
            best = average.argmax(axis=1)
            return Imputed(at, best, average[np.arange(len(at)), best], best)
        return Imputed(at, *_mean_and_sd(column, average), _as_recorded(column, average))


def _membership(r: Representative, draw: Draw) -> tuple[int, np.ndarray]:
    v = r.of.nearest_view(draw)
    together = contingency(r.labels, draw.labels[v].astype(np.int64))
    return v, np.ascontiguousarray((together / together.sum(axis=0)).T, np.float32)


def _mean_and_sd(column: Column, average: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means and standard deviations from averages (m, 2) of x - center and its square. With atoms the averages
    are (m, 2 + atoms + 1): the first two are of the rest alone, times its probability, which comes last, after the
    atoms'.

    On a log scale or in transformed coordinates, where a t has no mean: return the number at the mean of the rest (on a
    log scale the geometric mean), and the distance from it to the number one deviation beyond.
    """
    mean, square, *p = average.T
    if column.log or column.shape is not None:
        share = np.maximum(p[-1], 1e-300) if p else 1.0
        y = mean / share
        sd = np.sqrt(np.maximum(square / share - y**2, 0.0))
        value = number_at(column, y + column.center)
        step = number_at(column, y + column.center + sd) - value if column.shape is not None else value * np.expm1(sd)
        mean, square = (value - column.center) * share, ((value - column.center) ** 2 + step**2) * share
    for atom, of_atom in zip(column.atoms if p else (), p):
        mean, square = mean + (atom - column.center) * of_atom, square + (atom - column.center) ** 2 * of_atom
    return mean + column.center, np.sqrt(np.maximum(square - mean**2, 0.0))


def _as_recorded(column: Column, average: np.ndarray) -> np.ndarray:
    """Return point predictions from the averages for `_mean_and_sd`: the most probable atom if it is more probable than
    the rest, else the mean of the rest (geometric on a log scale; in coordinates the number at their mean), at the
    column's resolution."""
    mean, _, *p = average.T
    code = np.argmax(p, axis=0) if p else None
    y = (mean / np.maximum(p[-1], 1e-300) if p else mean) + column.center
    if column.kind == "count":
        return np.maximum(np.round(y), 0.0)
    return recorded(column if p else replace(column, atoms=()), code, y)
