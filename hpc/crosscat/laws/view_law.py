"""A view of a draw as a law of its columns, for questions (docs/math.md 2.12): K clusters and a new one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.laws.blocks import BlockLaw, JointLaw
from mpibayes.hpc.crosscat.laws.population import log_cluster_weights
from mpibayes.hpc.crosscat.laws.view_density import ViewDensity
from mpibayes.hpc.crosscat.lines.law import LineLaw
from mpibayes.hpc.data.events import Events, Known
from mpibayes.hpc.links.coding import Coding
from mpibayes.hpc.links.gaps import NO_CELLS, Cells
from mpibayes.io.rows import Column

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.laws.outcome_law import OutcomeLaw

AT_ONCE = 512  # rows whose scores are summed while they are in the processor's cache
LEAST = -600.0  # least log probability, so that its inverse is finite
Scores = dict[int, np.ndarray]


def normalised(log: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the log of the sums of exp(log) over the last axis, and the shares of the terms; log is overwritten. Where
    all terms are -inf, the log is -inf and shares are equal."""
    top = log.max(axis=-1)
    log -= np.where(np.isfinite(top), top, 0.0)[..., None]
    np.exp(log, out=log)
    total = log.sum(axis=-1)
    with np.errstate(divide="ignore"):
        log_total = top + np.log(np.where(np.isfinite(top), total, 1.0))
    subset = total > 0.0
    log /= np.where(subset, total, 1.0)[..., None]
    if not subset.all():
        log[~subset] = 1.0 / log.shape[-1]
    return log_total, log


class ViewLaw(ViewDensity):
    """A view of a draw as a law of some of its columns.

    number: of the view in the draw. names: the table's columns, in order; labels (m,): of the requested training rows.
    needed: missing cells that are part of the draw. which: by numeric column, the column of its atoms.
    mean_weight (K,): mean survey weight of the clusters' rows, for clusters of a population.
    """

    labels: np.ndarray  # set with the labels of requested rows
    outcome: OutcomeLaw | None = None  # of the rows, if it can be queried

    def __init__(
        self, components: Components, hyper: Hyper, statistics: Statistics, coding: Coding | None = None,
        number: int = 0, names: Sequence[str] = (), which: Mapping[str, Column] | None = None, needed: Cells = NO_CELLS,
        mean_weight: np.ndarray | None = None,
    ):  # fmt: skip
        super().__init__(components, hyper, statistics, coding)
        self.number, self.order, self.needed, self._mean_weight = number, names, needed, mean_weight
        self.names = set(names)
        self._which = {name: column.name for name, column in (which or {}).items()}

    @cached_property
    def log_weight(self) -> np.ndarray:
        """Log weights of the clusters, and of a new one, (K + 1,)."""
        alpha, d = self.hyper.concentration, self.hyper.discount
        return log_cluster_weights(self.statistics.size, alpha, d, self._mean_weight)

    def scores(self, known: Known, prior: np.ndarray | None = None, whole: Scores | None = None) -> np.ndarray:
        """Return log w_k plus the log probability of each row's known cells, (n, K + 1). prior: other weights. whole:
        see `_whole`."""
        total = np.empty((known.n_rows, len(self.log_weight)))
        self._scored(self._tables(known, None, whole), slice(None), prior, total)
        return total

    def weighted(
        self, known: Known, prior: np.ndarray | None = None, given: Known | None = None, whole: Scores | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the log probability of each row's known cells, (n,), and the probabilities of its clusters,
        (n, K + 1). given: cells of columns dependent within clusters on which the prior weights are conditioned.
        whole: without `given`, see `_whole`."""
        tables, n = self._tables(known, given, whole), known.n_rows
        log_p, weight = np.empty(n), np.empty((n, len(self.log_weight)))
        for rows in (slice(i, i + AT_ONCE) for i in range(0, n, AT_ONCE)):
            self._scored(tables, rows, prior, weight[rows])
            log_p[rows], _ = normalised(weight[rows])
        return log_p, weight

    @cached_property
    def blocks(self) -> list[JointLaw]:
        """Joint laws of columns that are dependent within clusters: blocks in order, trees of numeric columns in lines,
        other trees, and last an outcome with its predictors."""
        kind = self.components.multinormal
        laws = self.law(kind).blocks if len(kind) else ()
        joint = [BlockLaw([c.name for c in kind.members(b)], law) for b, law in enumerate(laws)]
        return [*joint, *self.lines, *self.trees, *([] if self.outcome is None else [self.outcome])]

    def explain(self, outcome: OutcomeLaw) -> None:
        """Add the rows' outcome to the columns."""
        self.outcome, self.names = outcome, self.names | {outcome.name}

    def with_lines(self, lines: list[tuple[int, list[LineLaw]]]) -> ViewLaw:
        """Return a copy with other laws of its trees of lines."""
        made = copy(self)
        for name in ("trees", "blocks", "in_blocks"):
            made.__dict__.pop(name, None)
        made.all_lines = lines
        return made

    @cached_property
    def in_blocks(self) -> list[str]:
        """Names of the columns in `blocks`, and of those outside the view on which the outcome depends."""
        return [*(name for block in self.blocks for name in block.names), *self.outside]

    @property
    def outside(self) -> list[str]:
        """Predictors of the outcome in other views."""
        return [] if self.outcome is None else self.outcome.outside

    def block_of(self, name: str) -> JointLaw | None:
        """Return the block or tree of a column, or None."""
        return next((block for block in self.blocks if name in block.names), None)

    def _whole(self, block: JointLaw, known: Known, whole: Scores | None) -> np.ndarray:
        """Return the score of all that is known of a block, (n, K + 1), read-only; whole keeps it, for callers that ask
        again about the same rows."""
        if whole is None:
            return block.score(known)
        if id(block) not in whole:
            whole[id(block)] = block.score(known)
        return whole[id(block)]

    def _tables(
        self, known: Known, given: Known | None = None, whole: Scores | None = None
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return log probability tables of the known cells. For each column outside blocks: log probabilities of its
        events, and of no event, (U + 1, K + 1), and the event of each row; for each block: one entry per row."""
        blocks, single = [b for b in self.blocks if b.knows(known)], self.names.difference(self.in_blocks)
        every = np.arange(known.n_rows)
        result = [(self._whole(b, known, whole) if given is None else b.given(known, given), every) for b in blocks]
        for name, (events, which) in known.of.items():
            if name in single:
                table = self.log_masses(events)
                result.append((np.append(table, np.zeros((1, table.shape[1])), axis=0), which))
        return result

    def _scored(self, tables, rows: slice, prior: np.ndarray | None, total: np.ndarray) -> None:
        """Write the log weights of the given rows into `total`."""
        with np.errstate(divide="ignore"):
            total[:] = self.log_weight if prior is None else np.log(prior[rows])
        for table, which in tables:
            total += table.take(which[rows], axis=0)

    def log_masses(self, events: Events) -> np.ndarray:
        """Return the log probability of each event in every cluster, a new one last, (U, K + 1)."""
        column = events.column
        block = self.block_of(column.name)
        if block is not None:
            return block.log_masses(events)
        if column.levels:
            return self._log_levels(column.name, events)
        rest = np.full((len(events), len(self.log_weight)), -np.inf)
        there = ~np.isnan(events.low)
        if there.any():
            rest[there] = self.log_numbers(column, events.low[there, None], events.high[there, None])
        if not column.atoms:
            return rest
        atoms = self._which[column.name]
        rest += self._log_levels(atoms, Events(column, np.array([len(column.atoms)])))
        return np.logaddexp(rest, self._log_levels(atoms, events))

    def inverse(
        self, events: Events, which: np.ndarray, weight: np.ndarray, mine=None, given: Known | None = None,
        whole: Scores | None = None,
    ) -> np.ndarray:  # fmt: skip
        """Return 1 / p(a row's event | its other known cells), (n,), NaN if the cell is unknown. weight (n, K + 1): of
        clusters given all known cells. mine: places of log probabilities to replace, and the replacements. given: known
        cells of columns in blocks; whole: see `_whole`."""
        block = self.block_of(events.column.name)
        if block is not None:
            log = self._whole(block, given, whole).copy()
            rest = given.only(block.names).without([events.column.name])
            if block.knows(rest):
                before = block.score(rest)
                possible = np.isfinite(before)
                log = np.where(possible, log - np.where(possible, before, 0.0), 0.0)
        else:
            table = self.log_masses(events)
            log = np.append(table, np.zeros((1, table.shape[1])), axis=0)[which]
        if mine is not None:
            log[mine[0]] = mine[1]
        result = (weight * np.exp(-np.maximum(log, LEAST))).sum(axis=1)
        return np.where(which < len(events), result, np.nan)

    def _log_levels(self, name: str, events: Events) -> np.ndarray:
        """Return log probabilities of events of a categorical column, or of another column's atoms."""
        kind, c = self.place[name]
        total, rows = self.level_totals[c], slice(kind.offsets[c], kind.missing_rows[c])
        beta, levels = self.pseudo_counts[rows, None], self.statistics.levels[rows]
        if events.sets is None:
            subset = events.codes >= 0
            counts = np.zeros((len(events), len(self.log_weight)))
            counts[subset, :-1] = levels[events.codes[subset]]
            counts[subset] += beta[events.codes[subset]]
        else:
            sets = events.sets
            more = beta.shape[0] - sets.shape[1]  # sets of atoms have no entry for the rest
            sets = np.pad(sets, ((0, 0), (0, more))).astype(np.float64)
            counts = sets @ np.column_stack([levels + beta, beta])
        with np.errstate(divide="ignore"):
            return np.log(counts) - np.log(total)

    @cached_property
    def pseudo_counts(self) -> np.ndarray:
        """Pseudo-counts of every level, and 0 for missing cells, (L,)."""
        return self.components.categorical.pseudo_counts(self.hyper.dirichlet)

    @cached_property
    def level_totals(self) -> np.ndarray:
        """Number of observed cells plus pseudo-counts of each categorical column, (C, K + 1)."""
        kind = self.components.categorical
        if not len(kind):
            return np.zeros((0, len(self.log_weight)))
        prior = np.add.reduceat(self.pseudo_counts, kind.offsets[:-1])[:, None]
        return np.column_stack([kind.observed(self.statistics.levels) + prior, prior])

    def below(self, column: Column, x: float) -> np.ndarray:
        """Return the probability that a number of the column is at most x, in every cluster, (K + 1,)."""
        bounds = np.array([[-np.inf]]), np.array([[x]])
        return (
            np.exp(self.log_numbers(column, *bounds))[0]
            if x > -1.0 or column.kind != "count"
            else np.zeros(len(self.log_weight))
        )

    def column_number(self, name: str) -> int:
        """Return the place of a column in this view."""
        return self.order.index(name)

    def columns_of(self, name: str) -> tuple[str, str | None]:
        """Return the names of the columns that model a column of the table: itself, and the column of its atoms or
        None."""
        return name, self._which.get(name)
