"""A view of a draw as a law of its columns, as questions see it (docs/math.md 2.12): K clusters and a new one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from mpibayes.hpc.components.component import Law
from mpibayes.hpc.components.grid import pick_on_grid
from mpibayes.hpc.components.masses import log_negative_binomial, log_t
from mpibayes.hpc.components.single import one_uniform
from mpibayes.hpc.components.statistics import Statistics, empty, join
from mpibayes.hpc.crosscat.blocks import BlockLaw, JointLaw
from mpibayes.hpc.crosscat.draws import OfColumns, ViewDraw
from mpibayes.hpc.crosscat.population import log_cluster_weights
from mpibayes.hpc.data.events import Events, Known
from mpibayes.hpc.links import bins
from mpibayes.hpc.links import law as links
from mpibayes.hpc.links.law import TreeLaw
from mpibayes.hpc.parallel.streams import Stream
from mpibayes.io import recording
from mpibayes.io.rows import Column

AT_ONCE = 512  # rows whose scores are added up while they are in the processor's cache
LEAST = -600.0  # a log probability whose inverse is a number
CLUSTER = 2**31  # sub-stream of a row's cluster, apart from those of the kinds of columns


def normalised(log: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log of the sums of exp(log) over the last axis, and shares of them; log is overwritten. Where all is impossible
    the log is -inf and shares are even."""
    top = log.max(axis=-1)
    log -= np.where(np.isfinite(top), top, 0.0)[..., None]
    np.exp(log, out=log)
    total = log.sum(axis=-1)
    with np.errstate(divide="ignore"):
        log_total = top + np.log(np.where(np.isfinite(top), total, 1.0))
    some = total > 0.0
    log /= np.where(some, total, 1.0)[..., None]
    if not some.all():
        log[~some] = 1.0 / log.shape[-1]
    return log_total, log


class ViewLaw:
    """A view of a draw: K clusters and a new one, with statistics of some of its columns.

    number: of the view in the draw. labels (m,): of the training rows that were asked for. mean_weight (K,): survey
    weight of the clusters' rows, where clusters are those of a population.
    """

    def __init__(
        self, number: int, own: OfColumns, state: ViewDraw, statistics: Statistics, which: Mapping[str, Column],
        mean_weight: np.ndarray | None = None,
    ):  # fmt: skip
        self.number, self.order, self.names, self.labels = number, own.names, set(own.names), None
        self.hyper, self.statistics, self.components = state.hyper, statistics, own.components
        self.coding, self.needed = own.coding, state.cells
        alpha, d = state.hyper.concentration, state.hyper.discount
        self.log_weight = log_cluster_weights(statistics.size, alpha, d, mean_weight)
        self._which = {name: column.name for name, column in which.items()}
        self._drawn: dict[str, Law] = {}
        self.place = {kind.members(c)[0].name: (kind, c) for kind in own.components.kinds for c in range(len(kind))}

    def scores(self, known: Known, prior: np.ndarray | None = None) -> np.ndarray:
        """Log of w_k times the probability of what is known of each row, (n, K + 1). prior: other weights."""
        total = np.empty((known.n_rows, len(self.log_weight)))
        self._scored(self._tables(known), slice(None), prior, total)
        return total

    def weighted(
        self, known: Known, prior: np.ndarray | None = None, given: Known | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Log probability of what is known of each row, (n,), and the shares of the clusters in it, (n, K + 1). given:
        what the prior weights know of columns that depend on each other within clusters."""
        tables, n = self._tables(known, given), known.n_rows
        log_p, weight = np.empty(n), np.empty((n, len(self.log_weight)))
        for rows in (slice(i, i + AT_ONCE) for i in range(0, n, AT_ONCE)):
            self._scored(tables, rows, prior, weight[rows])
            log_p[rows], _ = normalised(weight[rows])
        return log_p, weight

    @cached_property
    def blocks(self) -> list[JointLaw]:
        """Columns that depend on each other within clusters: blocks in order, then trees of linked columns."""
        kind = self.components.multinormal
        laws = self.law(kind).blocks if len(kind) else ()
        return [*(BlockLaw([c.name for c in kind.members(b)], law) for b, law in enumerate(laws)), *self.trees]

    @cached_property
    def trees(self) -> list[TreeLaw]:
        """The trees of linked columns."""
        kind, levels = self.components.categorical, self.statistics.levels
        trees = links.linked(self.coding, kind) if self.coding.linked else ()
        tables = [links.counted(kind, self.hyper.dirichlet, levels, tree, self._masses) for tree in trees]
        return [TreeLaw(tree, of, self._log_rests) for tree, of in zip(trees, tables)]

    def _masses(self, column: Column) -> np.ndarray:
        """Probabilities of a number's bins in every cluster, (B, K + 1)."""
        kind, c = self.place[column.name]
        return bins.masses(column, self.law(kind), c)

    def _masses_of_draws(self, column: Column) -> np.ndarray:
        """The same under parameters that were drawn."""
        kind, c = self.place[column.name]
        return bins.masses(column, self._law_of_draws(kind), c)

    def _log_rests(self, events: Events) -> np.ndarray:
        """Log probability of the numbers of a column's events, given that they are no atoms, (U, K + 1)."""
        return self._log_numbers(events.column, events.low[:, None], events.high[:, None])

    @cached_property
    def in_blocks(self) -> list[str]:
        """Names of these columns."""
        return [name for block in self.blocks for name in block.names]

    def block_of(self, name: str) -> JointLaw | None:
        """The block, or tree, that a column is in."""
        return next((block for block in self.blocks if name in block.names), None)

    def _tables(self, known: Known, given: Known | None = None) -> list[tuple[np.ndarray, np.ndarray]]:
        """Log probability tables of the known cells. For each column outside blocks: log probabilities of its events,
        and of no event, (U + 1, K + 1), and the event of each row; for each block: those of each row."""
        blocks, single = [b for b in self.blocks if b.knows(known)], self.names.difference(self.in_blocks)
        found = [(b.given(known, given), np.arange(known.n_rows)) for b in blocks]
        for name, (events, which) in known.of.items():
            if name in single:
                table = self.log_masses(events)
                found.append((np.append(table, np.zeros((1, table.shape[1])), axis=0), which))
        return found

    def _scored(self, tables, rows: slice, prior: np.ndarray | None, total: np.ndarray) -> None:
        """Log weights of some rows, into `total`."""
        with np.errstate(divide="ignore"):
            total[:] = self.log_weight if prior is None else np.log(prior[rows])
        for table, which in tables:
            total += table.take(which[rows], axis=0)

    def log_masses(self, events: Events) -> np.ndarray:
        """Log probability of each event in every cluster, and last in a new one, (U, K + 1)."""
        column = events.column
        block = self.block_of(column.name)
        if block is not None:
            return block.log_masses(events)
        if column.levels:
            return self._log_levels(column.name, events)
        rest = np.full((len(events), len(self.log_weight)), -np.inf)
        there = ~np.isnan(events.low)
        if there.any():
            rest[there] = self._log_numbers(column, events.low[there, None], events.high[there, None])
        if not column.atoms:
            return rest
        atoms = self._which[column.name]
        rest += self._log_levels(atoms, Events(column, np.array([len(column.atoms)])))
        return np.logaddexp(rest, self._log_levels(atoms, events))

    def inverse(
        self, events: Events, which: np.ndarray, weight: np.ndarray, own=None, given: Known | None = None
    ) -> np.ndarray:
        """1 / p(a row's event | all else that is known of it), (n,), by the weights of clusters given all (n, K + 1);
        NaN where nothing is known. own: where the events' log probabilities are others, and these. given: what is
        known of columns in blocks."""
        block = self.block_of(events.column.name)
        if block is not None:
            name = events.column.name
            log = block.given(given.only([name]), given.only(block.names).without([name]))
        else:
            table = self.log_masses(events)
            log = np.append(table, np.zeros((1, table.shape[1])), axis=0)[which]
        if own is not None:
            log[own[0]] = own[1]
        found = (weight * np.exp(-np.maximum(log, LEAST))).sum(axis=1)
        return np.where(which < len(events), found, np.nan)

    def _log_levels(self, name: str, events: Events) -> np.ndarray:
        """Log probabilities of events of a categorical column, or of the atoms of another one."""
        kind, c = self.place[name]
        total, rows = self.level_totals[c], slice(kind.offsets[c], kind.missing_rows[c])
        beta, levels = self.pseudo_counts[rows, None], self.statistics.levels[rows]
        if events.sets is None:
            some = events.codes >= 0
            counts = np.zeros((len(events), len(self.log_weight)))
            counts[some, :-1] = levels[events.codes[some]]
            counts[some] += beta[events.codes[some]]
        else:
            sets = events.sets
            more = beta.shape[0] - sets.shape[1]  # an event of atoms says nothing of what is no atom
            sets = np.pad(sets, ((0, 0), (0, more))).astype(np.float64)
            counts = sets @ np.column_stack([levels + beta, beta])
        with np.errstate(divide="ignore"):
            return np.log(counts) - np.log(total)

    @cached_property
    def pseudo_counts(self) -> np.ndarray:
        """Pseudo-counts of every level, and 0 where missing cells are counted, (L,)."""
        return self.components.categorical.pseudo_counts(self.hyper.dirichlet)

    @cached_property
    def level_totals(self) -> np.ndarray:
        """Observed cells and pseudo-counts of each categorical column, (C, K + 1)."""
        kind = self.components.categorical
        if not len(kind):
            return np.zeros((0, len(self.log_weight)))
        prior = np.add.reduceat(self.pseudo_counts, kind.offsets[:-1])[:, None]
        return np.column_stack([kind.observed(self.statistics.levels) + prior, prior])

    def _log_numbers(self, column: Column, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        kind, c = self.place[column.name]
        law = self.law(kind)
        if column.kind == "count":
            return log_negative_binomial(law.shape[c], law.rate[c], low, high)
        return log_real(column, law.location[c], law.scale[c], law.nu[c], low, high)

    def law(self, kind):
        """The predictive law of a kind's columns, see `components.component.Law`."""
        if kind.name not in self._laws:
            self._laws[kind.name] = kind.predictive(getattr(self.hyper, kind.hyper), self.statistics.of(kind))
        return self._laws[kind.name]

    @cached_property
    def _laws(self) -> dict:
        return {}

    def draw_parameters(self, stream: Stream, more: int = 0) -> None:
        """Draw the parameters of all clusters, which all cells that are drawn from here on share: until then, each of
        them has its own. more: clusters without rows that are added behind the others."""
        statistics = join([self.statistics, empty(self.statistics, more)]) if more else self.statistics
        for kind in self.components.kinds:
            if len(kind):
                hyper, s = getattr(self.hyper, kind.hyper), statistics.of(kind)
                self._drawn[kind.name] = kind.drawn(hyper, s, stream)

    def _law_of_draws(self, kind) -> Law:
        return self._drawn.get(kind.name) or self.law(kind)

    def clusters(self, known: Known, stream: Stream, ids: np.ndarray) -> np.ndarray:
        """A cluster of each row, drawn given what is known of it, (n,). ids (n,): of the rows, in the stream."""
        return pick_on_grid(self.scores(known), replace(stream, sub=CLUSTER).uniforms(ids))

    def cells(
        self, name: str, cluster: np.ndarray, stream: Stream, ids: np.ndarray, without: np.ndarray | None = None
    ) -> np.ndarray:
        """Recorded values (n,) of a column that is in no block, each drawn from the row's cluster (n,). without: mask
        of the column's atoms, in whose place come numbers that are no atoms."""
        which = self._which.get(name)
        code = None if which is None else self._cells(which, cluster, stream, ids)
        if code is not None and without is not None:
            code = np.where(np.append(without, False)[code.astype(np.intp)], len(without), code)
        x, (kind, c) = self._cells(name, cluster, stream, ids), self.place[name]
        column = kind.members(c)[0]
        return recording.recorded(column, code, x) if column.kind == "real" else x

    def _cells(self, name: str, cluster: np.ndarray, stream: Stream, ids: np.ndarray) -> np.ndarray:
        (kind, c), none = self.place[name], np.zeros(0, np.intp)
        law = self._law_of_draws(kind)
        return law.draw(c, np.zeros((len(ids), 0)), none, np.zeros(1, np.intp), cluster, stream, ids)[:, 0]

    def in_block(
        self, block: JointLaw, known: Known, wanted: set[str], cluster: np.ndarray, stream: Stream, ids: np.ndarray,
        without: Mapping[str, np.ndarray] | None = None,
    ) -> dict[str, np.ndarray]:  # fmt: skip
        """Recorded values (n,) of the columns `wanted` of a block, of what is known of them or drawn given it. without:
        see `cells`, by column."""
        if isinstance(block, TreeLaw):
            return self._in_tree(block, known, wanted, cluster, stream, ids, without or {})
        kind, b = self.components.multinormal, self.blocks.index(block)
        drawn = block.draw(self._law_of_draws(kind), b, known, wanted, cluster, stream, ids)
        columns = {c.name: c for c in kind.members(b)}
        return {name: recording.recorded(columns[name], None, x) for name, x in drawn.items()}

    def _in_tree(self, tree: TreeLaw, known: Known, wanted, cluster, stream: Stream, ids, without) -> dict:
        from mpibayes.hpc.crosscat.within import number_within

        drawn = self._drawn.get("categorical")
        tables = tree.tables if drawn is None else tree.drawn_tables(drawn, self._masses_of_draws)
        found = {}
        for name, code in tree.draw(tables, known, wanted, cluster, stream, ids).items():
            number = tree.number(name)
            if number is not None:
                found[name] = self._number(number, code, known, cluster, stream, ids, without.get(name))
                continue
            found[name] = code.astype(np.float64)
            if name in self._which:
                if name in without:
                    code = np.where(np.append(without[name], False)[code], len(without[name]), code)
                kind, c = self.place[name]
                x = self._cells(name, cluster, stream, ids)
                found[name] = recording.recorded(kind.members(c)[0], code, x)
                if name in known.of:
                    column, given = known.of[name][0].column, number_within(self, *known.of[name], cluster, stream, ids)
                    found[name] = np.where((code == len(column.atoms)) & ~np.isnan(given), given, found[name])
        return found

    def _number(
        self, column: Column, code: np.ndarray, known: Known, cluster, stream: Stream, ids, without
    ) -> np.ndarray:
        """Recorded values (n,) of a number that others lean on, by the atom or the bin of each. without: see
        `cells`."""
        n_atoms, ends = len(column.atoms), bins.bounds(column)
        low, high = (np.append(np.full(n_atoms, np.nan), end)[code] for end in ends)
        if without is not None:  # the number is drawn from all bins
            left_out = np.append(without, np.zeros(len(ends[0]), bool))[code]
            low, high = np.where(left_out, ends[0][0], low), np.where(left_out, ends[1][-1], high)
            code = np.where(left_out, n_atoms, code)
        number = np.flatnonzero(code >= n_atoms)
        kind, c = self.place[column.name]
        given = np.full(len(code), np.nan)
        if column.name in known.of:
            events, which = known.of[column.name]
            some = np.flatnonzero((which < len(events)) & (code >= n_atoms))
            low[some], high[some] = (
                np.fmax(low[some], events.low[which[some]]),
                np.fmin(high[some], events.high[which[some]]),
            )
            if events.sets is None:  # a value, unless all that is known is that there is one
                first, last = events.low[which[some]], events.high[which[some]]
                given[some] = np.where(np.isfinite(first) & np.isfinite(last), 0.5 * (first + last), np.nan)
        x = np.zeros(len(code))
        if len(number):
            u = one_uniform(stream, kind.substreams[0], c, ids[number])
            y = low[number], high[number]
            if column.kind == "real":
                with np.errstate(divide="ignore", invalid="ignore"):
                    y = [recording.coordinate(column, np.maximum(end, 0.0) if column.log else end) for end in y]
            x[number] = self._law_of_draws(kind).within(c, cluster[number], *y, u)
        if column.kind == "real":
            x = recording.recorded(column, np.minimum(code, n_atoms) if n_atoms else None, x)
        return np.where(np.isnan(given), x, given)

    def below(self, column: Column, x: float) -> np.ndarray:
        """Probability that a number of the column is none above x, in every cluster, (K + 1,)."""
        bounds = np.array([[-np.inf]]), np.array([[x]])
        return (
            np.exp(self._log_numbers(column, *bounds))[0]
            if x > -1.0 or column.kind != "count"
            else np.zeros(len(self.log_weight))
        )

    def column_number(self, name: str) -> int:
        """Number of a column in this view."""
        return self.order.index(name)

    def simulate(self, known: Known, wanted: set[str], stream: Stream, ids: np.ndarray) -> dict[str, np.ndarray]:
        """See `DrawLaw.simulate`."""
        from mpibayes.hpc.crosscat.within import draw_within

        cluster, found = self.clusters(known, stream, ids), {}
        for block in self.blocks:
            if wanted.intersection(block.names):
                found |= self.in_block(block, known, wanted, cluster, stream, ids)
        for name in sorted(wanted.difference(found)):
            found[name] = self.cells(name, cluster, stream, ids)
            if name in known.of:
                given = draw_within(self, *known.of[name], cluster, stream, ids)
                found[name] = np.where(np.isnan(given), found[name], given)
        return found

    def columns_of(self, name: str) -> tuple[str, str | None]:
        """Columns that model a column of the table: its own name, and the column of its atoms, or None."""
        return name, self._which.get(name)


def log_real(column: Column, location, scale, nu, low, high) -> np.ndarray:
    """Log probability that a recorded number of a column is from low to high under t distributions of the model's
    scale; where low == high, its density. Arguments broadcast."""
    if not column.log and column.shape is None:
        return log_t(location, scale, nu, low, high)
    with np.errstate(divide="ignore", invalid="ignore"):
        low_, high_ = (np.maximum(low, 0.0), high) if column.log else (low, high)
        first, last = recording.coordinate(column, low_), recording.coordinate(column, high_)
        found = log_t(location, scale, nu, first, last)
        return np.where(low == high, found + recording.log_slope(column, last), found)
