"""Questions to the kept draws of a mixture, or of a cross-categorization (`hpc.family.Asked`; docs/math.md 2.12).

A draw is a product of views, a view a mixture over its columns. The known cells of a row reweight a view's clusters:
w_k times the probability of these cells in each; views that have no column of the question are left out. Draws are
built from the kept labels and from passes over the table that read only the columns in question.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.draws import Draw, OfColumns, Posterior, ViewDraw
from mpibayes.hpc.crosscat.keys import Model
from mpibayes.hpc.crosscat.population import mean_weights
from mpibayes.hpc.crosscat.view_law import ViewLaw
from mpibayes.hpc.data.events import Events, Known
from mpibayes.hpc.links.coding import may_lean
from mpibayes.hpc.parallel.streams import Stream, in_lane
from mpibayes.hpc.posterior.chains import evenly
from mpibayes.io.rows import Rows

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.completion import Completion
    from mpibayes.hpc.crosscat.synthesis import Synthesis

DRAWS = 100
LABEL_BYTES = 256 << 20  # labels of draws whose clusters are added up in one pass over the table
EVERY = slice(None)


def ask(run: Posterior, draws: int | None) -> Asked:
    """See `hpc.family.Queries`."""
    return Asked(run, draws)


class Asked:
    """See `hpc.family.Asked`."""

    refused: Mapping[str, str] = {}
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
        table, stored = run.table, run.data.stored
        self.like = table.having(stored)
        blocks = run.chains[0].config.joint
        self.linked = run.chains[0].config.of(Model).links != "none"
        self.link_keys = {} if self.linked else {"links": "forest"}
        self.joint = {name: block for block, of in blocks.items() for name in of["columns"]}
        self.columns = [replace(c, atoms=(), log=False) if c.name in self.joint else c for c in stored]
        free = (c for c in stored if c.kind == "real" and c.name not in self.joint)
        self.joinable = [c.name for c in free if not c.atoms and not c.n_missing]  # blocks have no atoms, and all cells
        self.chain_of = np.array([chain for chain, _ in self._wanted])
        self.n_rows = run.n_rows
        self.weights: np.ndarray | None = None

    def may_lean(self, child: str, parent: str) -> bool:
        """See `hpc.family.Asked`."""
        of_child, of_parent = ([c for c in self.run.columns if name in (c.name, c.part_of)] for name in (child, parent))
        return any(may_lean(c, p) for c in of_child for p in of_parent)

    def draws(self, names: Collection[str], some: slice = EVERY) -> list[DrawLaw]:
        """The kept draws, or some of them, as laws of some columns."""
        names = self._whole(names)
        return [law for group in self._groups(names, some) for law in self._laws(group, names)]

    def _whole(self, names: Collection[str]) -> set[str]:
        """Names completed by all columns of the blocks that some of them are in."""
        blocks = {self.joint[name] for name in names if name in self.joint}
        return {*names, *(name for name, block in self.joint.items() if block in blocks)}

    def labelled(
        self, names: Collection[str], places: np.ndarray | None = None, some: slice = EVERY
    ) -> Iterator[DrawLaw]:
        """Draws one by one, with the clusters of training rows: of all, or of those at `places`, ascending."""
        names = self._whole(names)
        for group in self._groups(names, some):
            yield from self._laws(group, names, slice(None) if places is None else places)

    def completions(self, seed: int, some: slice = EVERY) -> Iterator[Completion]:
        """See `hpc.family.Asked`."""
        from mpibayes.hpc.crosscat.completion import Completion

        copies = range(1, 1 + len(self._wanted))[some]
        laws = self.labelled([c.name for c in self.columns], some=some)
        return (Completion(law, seed, copy) for copy, law in zip(copies, laws, strict=True))

    def syntheses(
        self, seed: int, n: int, without: Mapping[str, np.ndarray], some: slice = EVERY
    ) -> Iterator[Synthesis]:
        """See `hpc.family.Asked`."""
        from mpibayes.hpc.crosscat.synthesis import Synthesis

        tables = range(1, 1 + len(self._wanted))[some]
        laws = self.labelled([c.name for c in self.columns], some=some)
        return (Synthesis(law, seed, table, n, without) for table, law in zip(tables, laws, strict=True))

    def left_out(self, known: Known, places: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Leave-one-out log probabilities of the training rows at `places` (ascending) in every draw: of the known
        cells, (n,), and the inverse of the probability of each column's cell given the others, (n, C), NaN where it is
        not known."""
        from mpibayes.hpc.crosscat.left_out import LeftOut

        rows = self.modelled(places)
        for law in self.labelled(known.of, places):
            views = [LeftOut(view, self._of_view(view, rows, places), known) for view in law.views]
            log_p, weights = zip(*(view.given() for view in views))
            inverse = np.empty((known.n_rows, len(known.of)))
            for c, name in enumerate(known.of):
                i, _ = law.view_of(name)
                inverse[:, c] = views[i].inverse(name, weights[i])
            yield sum(log_p), inverse

    def _of_view(self, view: ViewLaw, rows: Rows, places: np.ndarray) -> Rows:
        """Take a view's columns of training rows, with the missing cells that are part of the draw."""
        of = self.run.of(view.order)
        return view.needed.filled(of.columns, of.take(rows), places)

    def views(self, names: Sequence[str]) -> np.ndarray:
        """View of each of these columns in every draw, (D, C)."""
        place = {c.name: i for i, c in enumerate(self.columns)}
        at = [place[name] for name in names]
        found = {}
        for chain, draw in self.run.states(self._wanted):
            one = len(draw.labels) == 1
            found[chain, draw.cycle] = np.zeros(len(at), np.int64) if one else draw.view_of[at]
        return np.array([found[key] for key in self._wanted])

    def partition(self) -> list[np.ndarray]:
        """Cluster of every training row in each view of the report, numbered as there, int64 (N,)."""
        from mpibayes.hpc.crosscat.representative import representatives

        return [r.labels + 1 for r in representatives(self.run, self.run.kept()).views]

    def cluster_group(self, number: int, n: int | None, view: int) -> tuple[np.ndarray, int]:
        """See `hpc.family.Asked`."""
        from mpibayes.hpc.crosscat.levels.grouped import group_of
        from mpibayes.hpc.crosscat.representative import representatives

        kept = self.run.kept()
        places, n = group_of(self.run, kept, representatives(self.run, kept).views, number, n, view)
        return self.training_numbers()[places], n

    def training_numbers(self) -> np.ndarray:
        """Row numbers of the training rows in the table, from 0, int64 (N,)."""
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
        """The views of a draw with some of these columns, and which, with those that they lean on."""
        names = self.run.ancestors(names, draw)
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
        wanted, of = set(names), []
        for draw in group:
            cells, own = self.run.cells(draw), []
            for v, columns in self._views_with(draw, wanted):
                part = self.run.of(columns, draw)
                own.append((v, part, replace(part.seen_by(draw, v), cells=cells)))
            of.append(own)
        statistics = iter(self.run.statistics_of([(part, state) for own in of for _, part, state in own]))
        which = self.run.data.latent.which
        for own in of:
            views = [self._view_law(v, part, state, next(statistics), which) for v, part, state in own]
            for view, (_, _, state) in zip(views, own):
                view.labels = None if rows is None else state.labels[rows]
            yield DrawLaw(views)

    def _view_law(self, v: int, part: OfColumns, state: ViewDraw, statistics: Statistics, which: Mapping) -> ViewLaw:
        mean = None if self.weights is None else mean_weights(state.labels, self.weights, statistics.size)
        return ViewLaw(v, part, state, statistics, which, mean)


def _small(z: np.ndarray) -> np.ndarray:
    return z.astype(np.min_scalar_type(int(z.max())))


class Given(NamedTuple):
    """Clusters of a view given the known cells of rows: weight (n, K + 1), the probabilities of its clusters, a new one
    last; known: the known cells of columns that depend on each other even within a cluster, in blocks or by links."""

    weight: np.ndarray
    known: Known


class DrawLaw:
    """One draw as a law of some columns: its views with any of them; views are independent."""

    def __init__(self, views: Sequence[ViewLaw]):
        self.views = views

    @property
    def width(self) -> int:
        """Numbers of a row's state."""
        return sum(len(view.log_weight) for view in self.views)

    def given(self, known: Known) -> tuple[np.ndarray, list[Given]]:
        """Log probability of what is known of each row, (n,), and what each view makes of it."""
        log_p, state = np.zeros(known.n_rows), []
        for view in self.views:
            total, weight = view.weighted(known)
            log_p += total
            state.append(Given(weight, known.only(view.in_blocks)))
        return log_p, state

    def log_given(self, wanted: Known, state: Sequence[Given]) -> np.ndarray:
        """Log probability of what is wanted of each row, (n,), given what that state knows."""
        log_p = np.zeros(wanted.n_rows)
        for view, (weight, known) in zip(self.views, state):
            if any(name in view.names for name in wanted.of):
                log_p += view.weighted(wanted, weight, known)[0]
        return log_p

    def inverses(self, known: Known, state: Sequence[Given]) -> np.ndarray:
        """1 / p(what is known of a column | of the others), (n, C), by what is given all of it; NaN: not known."""
        inverse = np.empty((known.n_rows, len(known.of)))
        for c, (name, of) in enumerate(known.of.items()):
            i, view = self.view_of(name)
            inverse[:, c] = view.inverse(*of, state[i].weight, None, state[i].known)
        return inverse

    def opens(self, state: Sequence[Given]) -> np.ndarray:
        """Probability of a new cluster in some view, (n,)."""
        return 1.0 - np.prod([1.0 - weight[:, -1] for weight, _ in state], axis=0)

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

    def linked_pairs(
        self, a: Sequence[str], b: Sequence[str], events: Mapping[str, Events]
    ) -> Iterator[tuple[str, str, np.ndarray, float]]:
        """Yield (x, y, table, inside) for the pairs of two columns, one of a and one of b, that depend on each other by
        links: the probabilities of their events together, (U, U'), and their information within clusters."""
        for weight, tree in ((np.exp(view.log_weight), tree) for view in self.views for tree in view.trees):
            for x in (x for x in a if x in tree.names):
                others = {y: events[y] for y in b if y in tree.names and y != x}
                pairs = tree.joint(events[x], others, weight) if others else ()
                yield from ((x, y, *both) for y, *both in pairs)

    def weight(self, name: str) -> np.ndarray:
        """Weights of the clusters of a column's view, and of a new one, (K + 1,)."""
        return np.exp(self.view_of(name)[1].log_weight)

    def averaged(self, events: Events, state: Sequence[Given], masses: np.ndarray) -> np.ndarray:
        """Probabilities (n, U) of a column's events given what that state knows, `masses` being theirs."""
        i, view = self.view_of(events.column.name)
        weight, known = state[i]
        block = view.block_of(events.column.name)
        if block is not None and block.knows(known):
            return block.averaged(events, weight, known)
        return weight @ masses

    def view_of(self, name: str) -> tuple[int, ViewLaw]:
        """Find the view of a column: its number in `views`, and the view."""
        return next((i, view) for i, view in enumerate(self.views) if name in view.names)

    def simulate(self, known: Known, wanted: Collection[str], stream: Stream, ids: np.ndarray) -> dict[str, np.ndarray]:
        """Recorded values (n,) of each column wanted, level codes or numbers: one of what is known, or drawn given what
        is known of other columns. ids (n,): of the rows, in the stream."""
        drawn = {}
        for view in self.views:
            if view.names & set(wanted):
                lane = replace(stream, chain=in_lane(stream.chain, view.number))
                drawn |= view.simulate(known, view.names & set(wanted), lane, ids)
        return drawn
