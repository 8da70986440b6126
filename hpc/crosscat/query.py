"""What the kept draws of a mixture, or of a cross-categorization, are asked (`hpc.family.Asked`; docs/math.md 2.12).

A draw is a product of views, a view a mixture over its columns. What is known of a row weighs a view's clusters, w_k
times the probability of it in each; views that have no column of the question are left out. Draws are built from the
labels that were kept and from passes over the table, which look at the columns in question alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.components.grid import pick_on_grid
from mpibayes.hpc.components.masses import log_negative_binomial, log_t
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.draws import Draw, OfColumns, Posterior, ViewDraw
from mpibayes.hpc.data.events import Events, Known
from mpibayes.hpc.parallel.streams import Stream, in_lane
from mpibayes.hpc.posterior.chains import evenly
from mpibayes.io import recording
from mpibayes.io.rows import Column, Rows
from mpibayes.io.table import Table

DRAWS = 100
LABEL_BYTES = 256 << 20  # labels of draws whose clusters are added up in one pass over the table
AT_ONCE = 512  # rows whose scores are added up while they are in the processor's cache
LEAST = -600.0  # a log probability whose inverse is a number
EVERY = slice(None)
CLUSTER = 2**31  # sub-stream of a row's cluster, apart from those of the kinds of columns


def ask(run: Posterior, draws: int | None) -> Asked:
    """See `hpc.family.Queries`."""
    return Asked(run, draws)


class Asked:
    """See `hpc.family.Asked`."""

    cannot: Mapping[str, str] = {}
    answers = None
    shares = "probability of sharing a cluster in the view of a column"

    def __init__(self, run: Posterior, draws: int | None):
        if not run.likelihood:
            raise ConfigError(
                f"{run.chains[0].home}: sampled the prior (model.likelihood = false), which says nothing about rows"
            )
        run.read_traces()  # which also tell what belongs to the burn-in
        self.n_kept = len(run.require_kept())
        self.run, self._wanted = run, evenly(run.kept(), draws or DRAWS)
        self.columns, table = run.data.stored, run.table
        self.like = Table(table.path, table.n_rows, self.columns, table.fingerprint, table.source)
        self.chain_of = np.array([chain for chain, _ in self._wanted])
        joint = {member.name for member in run.components.multinormal.columns}
        self.refused = dict.fromkeys(joint, "is modelled jointly with others, in a block")
        self.n_rows = run.n_rows

    def draws(self, names: Collection[str], some: slice = EVERY) -> list[DrawLaw]:
        """The kept draws, or some of them, as laws of some columns."""
        return [law for group in self._groups(names, some) for law in self._laws(group, names)]

    def labelled(self, names: Collection[str], places: np.ndarray | None = None) -> Iterator[DrawLaw]:
        """The same one by one, with the clusters of training rows: of all, or of those at some places, ascending."""
        for group in self._groups(names):
            yield from self._laws(group, names, slice(None) if places is None else places)

    def left_out(self, known: Known, places: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Of training rows by their places, ascending, each left out of every draw by itself: log probability of what
        is known of them, (n,), and the inverse of that of each column's given the others, (n, C), NaN: not known."""
        from mpibayes.hpc.crosscat.left_out import LeftOut

        rows = self.modelled(places)
        for law in self.labelled(known.of, places):
            views = [LeftOut(view, self.run.of(view.order).take(rows), known) for view in law.views]
            log_p, weights = zip(*(view.given() for view in views))
            inverse = np.empty((known.n_rows, len(known.of)))
            for c, name in enumerate(known.of):
                i, _ = law.view_of(name)
                inverse[:, c] = views[i].inverse(name, weights[i])
            yield sum(log_p), inverse

    def views(self, names: Sequence[str]) -> np.ndarray:
        """Which view each of some columns is in, in every draw, (D, C)."""
        place = {c.name: i for i, c in enumerate(self.columns)}
        at = [place[name] for name in names]
        found = {}
        for chain, draw in self.run.states(self._wanted):
            one = len(draw.labels) == 1
            found[chain, draw.cycle] = np.zeros(len(at), np.int64) if one else draw.view_of[at]
        return np.array([found[key] for key in self._wanted])

    def partition(self) -> list[np.ndarray]:
        """Of each view of the report, the cluster of every training row as it is numbered there, int64 (N,)."""
        from mpibayes.hpc.crosscat.exports import clusters

        return [labels for labels, _ in clusters(self.run).views]

    def training_numbers(self) -> np.ndarray:
        """Of the training rows, in the table, from 0, int64 (N,)."""
        rows = self.run.data.training_rows
        return np.arange(self.n_rows) if rows is None else rows

    def recorded(self, numbers: np.ndarray) -> Rows:
        """Rows of the table by their numbers, ascending, as they are recorded; `columns` alone."""
        return self.run.data.recorded_at(numbers)

    def modelled(self, places: np.ndarray) -> Rows:
        """Training rows by their places among them, ascending, as they are modelled."""
        return self.run.data.rows_at(places)

    # --- from labels to laws -----------------------------------------------------------------------------------------

    def _views_with(self, draw: Draw, names: set[str]) -> list[tuple[int, list[str]]]:
        """The views of a draw with some of these columns, and which."""
        found = ((v, [n for n in self.run.names_in(draw, v) if n in names]) for v in range(len(draw.labels)))
        return [(v, own) for v, own in found if own]

    def _groups(self, names: Collection[str], some: slice = EVERY) -> Iterator[list[Draw]]:
        """The draws, with labels of the views that matter alone, as many as one pass over the table takes."""
        group, held, wanted = [], 0, set(names)
        for _, draw in self.run.states(self._wanted[some]):
            need = {v for v, _ in self._views_with(draw, wanted)}
            labels = [_small(z) if v in need else z[:0] for v, z in enumerate(draw.labels)]
            held += sum(z.nbytes for z in labels)
            group.append(replace(draw, labels=labels))
            if held > LABEL_BYTES:
                yield group
                group, held = [], 0
        if group:
            yield group

    def _laws(self, group: Sequence[Draw], names: Collection[str], rows=None) -> Iterator[DrawLaw]:
        wanted, pairs, of = set(names), [], []
        for draw in group:
            own = []
            for v, columns in self._views_with(draw, wanted):
                part = self.run.of(columns)
                own.append((v, part, part.seen_by(draw, v)))
                pairs.append((part, draw.labels[v]))
            of.append(own)
        statistics = iter(self.run.statistics_of(pairs))
        which = self.run.data.latent.which
        for own in of:
            views = [ViewLaw(v, part, state, next(statistics), which) for v, part, state in own]
            for view, (_, _, state) in zip(views, own):
                view.labels = None if rows is None else state.labels[rows]
            yield DrawLaw(views)


def _small(z: np.ndarray) -> np.ndarray:
    return z.astype(np.min_scalar_type(int(z.max())))


class DrawLaw:
    """One draw as a law of some columns: its views with any of them; views are independent."""

    def __init__(self, views: Sequence[ViewLaw]):
        self.views = views

    @property
    def width(self) -> int:
        """Numbers of a row's state."""
        return sum(len(view.log_weight) for view in self.views)

    def given(self, known: Known) -> tuple[np.ndarray, list[np.ndarray]]:
        """Log probability of what is known of each row, (n,), and, given it, that of each view's clusters, and last of
        a new one, (n, K + 1) each."""
        log_p, weights = np.zeros(known.n_rows), []
        for view in self.views:
            total, weight = view.weighted(known)
            log_p += total
            weights.append(weight)
        return log_p, weights

    def log_given(self, wanted: Known, weights: Sequence[np.ndarray]) -> np.ndarray:
        """Log probability of what is wanted of each row, (n,), by weights of clusters given something else."""
        log_p = np.zeros(wanted.n_rows)
        for view, weight in zip(self.views, weights):
            if any(name in view.names for name in wanted.of):
                log_p += view.weighted(wanted, weight)[0]
        return log_p

    def inverses(self, known: Known, weights: Sequence[np.ndarray]) -> np.ndarray:
        """1 / p(what is known of a column | of the others), (n, C), by weights given all of it; NaN: not known."""
        inverse = np.empty((known.n_rows, len(known.of)))
        for c, (name, of) in enumerate(known.of.items()):
            i, view = self.view_of(name)
            inverse[:, c] = view.inverse(*of, weights[i])
        return inverse

    def opens(self, weights: Sequence[np.ndarray]) -> np.ndarray:
        """Probability of a new cluster in some view, (n,), by weights of clusters."""
        return 1.0 - np.prod([1.0 - weight[:, -1] for weight in weights], axis=0)

    def shared(self, names: Sequence[str], place: int | None, known: Known) -> np.ndarray:
        """Probability that each of the labelled rows (N,) is in the cluster of one of them, by its place, or of a row
        of which this is known: averaged over some columns, in the view of each."""
        share: np.ndarray | float = 0.0
        for view in self.views:
            n = sum(name in view.names for name in names)
            if n and place is not None:
                share = share + n * (view.labels == view.labels[place])
            elif n:
                weight = view.weighted(known.repeat(1))[1][0]
                share = share + n * weight[view.labels]
        return share / len(names)

    def masses(self, events: Events) -> np.ndarray:
        """Probability of each event of a column in the clusters of its view, (K + 1, U)."""
        return np.ascontiguousarray(np.exp(self.view_of(events.column.name)[1].log_masses(events)).T)

    def weight(self, name: str) -> np.ndarray:
        """Of the clusters of a column's view, and of a new one, (K + 1,)."""
        return np.exp(self.view_of(name)[1].log_weight)

    def averaged(self, name: str, weights: Sequence[np.ndarray], masses: np.ndarray) -> np.ndarray:
        """Probabilities (n, U) of a column's events by weights of clusters, `masses` being its own."""
        return weights[self.view_of(name)[0]] @ masses

    def view_of(self, name: str) -> tuple[int, ViewLaw]:
        """Which of `views` has a column, and that view."""
        return next((i, view) for i, view in enumerate(self.views) if name in view.names)

    def simulate(
        self, known: Known, wanted: Collection[str], stream: Stream, ids: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Recorded values (n,) of each column wanted, level codes or numbers: one of what is known, or drawn given what
        is known of other columns. ids (n,): of the rows, in the stream."""
        drawn = {}
        for view in self.views:
            if view.names & set(wanted):
                lane = replace(stream, chain=in_lane(stream.chain, view.number))
                drawn |= view.simulate(known, view.names & set(wanted), lane, ids)
        return drawn


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

    number: of the view in the draw. labels (m,): of the training rows that were asked for.
    """

    def __init__(
        self, number: int, own: OfColumns, state: ViewDraw, statistics: Statistics, which: Mapping[str, Column]
    ):
        self.number, self.order, self.names, self.labels = number, own.names, set(own.names), None
        self.hyper, self.statistics, self.components = state.hyper, statistics, own.components
        alpha, d, size = state.hyper.concentration, state.hyper.discount, statistics.size
        with np.errstate(divide="ignore"):
            self.log_weight = np.log(np.append(size - d, alpha + len(size) * d)) - np.log(size.sum() + alpha)
        self._which = {name: column.name for name, column in which.items()}
        self.place = {kind.members(c)[0].name: (kind, c) for kind in own.components.kinds for c in range(len(kind))}

    def scores(self, known: Known, prior: np.ndarray | None = None) -> np.ndarray:
        """Log of w_k times the probability of what is known of each row, (n, K + 1). prior: other weights."""
        total = np.empty((known.n_rows, len(self.log_weight)))
        self._scored(self._tables(known), slice(None), prior, total)
        return total

    def weighted(self, known: Known, prior: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Log probability of what is known of each row, (n,), and the shares of the clusters in it, (n, K + 1)."""
        tables, n = self._tables(known), known.n_rows
        log_p, weight = np.empty(n), np.empty((n, len(self.log_weight)))
        for rows in (slice(i, i + AT_ONCE) for i in range(0, n, AT_ONCE)):
            self._scored(tables, rows, prior, weight[rows])
            log_p[rows], _ = normalised(weight[rows])
        return log_p, weight

    def _tables(self, known: Known) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of each column that something is known of: log probabilities of its events, and of nothing, (U + 1, K + 1),
        and which of them each row has."""
        found = []
        for name, (events, which) in known.of.items():
            if name in self.names:
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

    def inverse(self, events: Events, which: np.ndarray, weight: np.ndarray, own=None) -> np.ndarray:
        """1 / p(a row's event | all else that is known of it), (n,), by the weights of clusters given all (n, K + 1);
        NaN where nothing is known. own: where the events' log probabilities are others, and these."""
        table = self.log_masses(events)
        log = np.append(table, np.zeros((1, table.shape[1])), axis=0)[which]
        if own is not None:
            log[own[0]] = own[1]
        found = (weight * np.exp(-np.maximum(log, LEAST))).sum(axis=1)
        return np.where(which < len(events), found, np.nan)

    def _log_levels(self, name: str, events: Events) -> np.ndarray:
        """Of a categorical column, or of the atoms of another one."""
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
        """Of every level, and 0 where missing cells are counted, (L,)."""
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

    def below(self, column: Column, x: float) -> np.ndarray:
        """Probability that a number of the column is none above x, in every cluster, (K + 1,)."""
        bounds = np.array([[-np.inf]]), np.array([[x]])
        return (
            np.exp(self._log_numbers(column, *bounds))[0]
            if x > -1.0 or column.kind != "count"
            else np.zeros(len(self.log_weight))
        )

    def column_number(self, name: str) -> int:
        """Of a column, among those here."""
        return self.order.index(name)

    def simulate(self, known: Known, wanted: set[str], stream: Stream, ids: np.ndarray) -> dict[str, np.ndarray]:
        """See `DrawLaw.simulate`."""
        from mpibayes.hpc.crosscat.within import draw_within

        none = np.zeros(0, np.intp)
        cluster = pick_on_grid(self.scores(known), replace(stream, sub=CLUSTER).uniforms(ids))
        parts = {}
        for name in sorted(wanted | {self._which[name] for name in wanted & self._which.keys()}):
            kind, c = self.place[name]
            x = self.law(kind).draw(c, np.zeros((len(ids), 0)), none, np.zeros(1, np.intp), cluster, stream, ids)
            parts[name] = kind.members(c)[0], x[:, 0]
        found = {}
        for name in sorted(wanted):
            column, x = parts[name]
            own = self._which.get(name)
            if column.kind == "real":
                x = recording.recorded(column, None if own is None else parts[own][1], x)
            if name in known.of:
                given = draw_within(self, *known.of[name], cluster, stream, ids)
                x = np.where(np.isnan(given), x, given)
            found[name] = x
        return found

    def columns_of(self, name: str) -> tuple[str, str | None]:
        """What a column of the table is modelled by: a column by its name, and that of its atoms."""
        return name, self._which.get(name)


def log_real(column: Column, location, scale, nu, low, high) -> np.ndarray:
    """Log probability that a recorded number of a column is from low to high under t distributions of the model's
    scale; where low == high, its density. Arguments broadcast."""
    if not column.log:
        return log_t(location, scale, nu, low, high)
    with np.errstate(divide="ignore", invalid="ignore"):
        first, last = np.log(np.maximum(low, 0.0)), np.log(high)
        found = log_t(location, scale, nu, first, last)
        return np.where(low == high, found - last, found)
