"""A chain: views of the same rows, and the cycle that updates them together.

One cycle leaves the posterior of labels and hyperparameters invariant for any number of shards, dealt to ranks in any
way (docs/math.md 2.1; 2.3 with `opening` "all"). Columns stay in their views, unless the assignment to views has a
prior: then cycles end with moves in which columns change views (columns/).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property

import numpy as np

from mpibayes.errors import DataError, NumericalError
from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.crosscat import host, stray_rows
from mpibayes.hpc.crosscat.bases import with_bases
from mpibayes.hpc.crosscat.columns import round as of_columns
from mpibayes.hpc.crosscat.columns.cells import Gather, Held, joined, places, renumbered, units
from mpibayes.hpc.crosscat.columns.split_merge import Move
from mpibayes.hpc.crosscat.columns.subject import Subject
from mpibayes.hpc.crosscat.cycle_info import CycleInfo
from mpibayes.hpc.crosscat.linking import Linking
from mpibayes.hpc.crosscat.moves import round as moves
from mpibayes.hpc.crosscat.moves.ledger import Tally
from mpibayes.hpc.crosscat.start import seating
from mpibayes.hpc.crosscat.start.subsample import IDLE, Growth, all_rows
from mpibayes.hpc.crosscat.view import sync
from mpibayes.hpc.crosscat.view.pitman_yor import PitmanYor, log_eppf
from mpibayes.hpc.crosscat.view.view import Settings, View
from mpibayes.hpc.parallel import shards
from mpibayes.hpc.parallel.agreement import agree
from mpibayes.hpc.parallel.comm import Communicator

KNOWN = 128, 2**14  # sets of columns whose components are cached: the first, or the second over the number of columns


class Mixture:
    """One chain. Every public method is collective: all ranks call it, in the same order.

    The sum of a count column must be below 2^53, so that it is exact (`config/against_table.py` checks this).

    columns: the used columns of the table. rows_of(start, stop): returns training rows as mpibayes.io.rows.Rows with
    exactly these columns; called only for the shards of this rank. An MpibayesError that it raises on one rank is
    raised on all. views: names of the columns of each view; by default one view has them all.
    """

    move_of_views, scored = Move, True  # scored: cycles return entropy and log joint

    def __init__(
        self,
        comm: Communicator,
        columns: Sequence,
        rows_of: Callable[[int, int], object],
        n_rows: int,
        settings: Settings,
        chain: int = 0,
        views: Sequence[Sequence[str]] | None = None,
    ):
        self.comm, self.columns, self.settings, self.chain, self.n_rows = comm, columns, settings, chain, n_rows
        if n_rows >= 2**31:
            raise DataError(f"{n_rows:,} rows: a chain can have {2**31 - 1:,} at most")
        if settings.opening == "all" and np.any(PitmanYor.of(settings.concentration, settings.discount).discounts != 0):
            raise ValueError('opening "all" is exact for discount 0 alone')
        self.cut = shards.starts(settings.shards, n_rows)
        self.n_shards = len(self.cut) - 1
        self.shards = agree(comm, lambda: self._load(rows_of), "read its rows of the table")
        self.growth, self.outcome, self.host = None, None, host.NOBODY
        if settings.annealing is not None:
            self.growth = Growth(comm, settings.annealing, np.diff(self.cut), settings.seed, chain)
        self.cycles = 0
        self.strays = np.zeros(0, np.int64)  # rows that are swept again after every cycle (stray_rows.py)
        self.units = units(columns, settings.blocks)  # with given links a tree is a unit
        if settings.likelihood and not isinstance(settings.links, str):
            seconds = ((column.name, column.second) for column in columns if column.second)
            self.units = joined(self.units, (*settings.links.items(), *seconds))
        self.law = None
        if settings.view_concentration is not None:
            self.law = PitmanYor.of(settings.view_concentration, settings.view_discount)
            if settings.view_moves and PitmanYor.of(settings.concentration, settings.discount).gamma is not None:
                raise ValueError("moves of views integrate the rows' concentration out on a grid: it has a gamma prior")
        self.process = self.law.start() if self.law else (1.0, 0.0)  # concentration and discount of the views
        looked_at = columns if settings.likelihood else ()
        self.priors = with_bases(settings.priors, looked_at, (shard.rows for shard in self.shards), comm)
        self.linking = Linking(self)
        self._known: dict[tuple, Components] = {}  # by columns and links: moves need the same ones repeatedly
        names, self.views = [[column.name for column in columns]], []
        self.views = [self.view_of_columns(names[0], [shard.rows for shard in self.shards], 0)]
        self.shards = [replace(shard, rows=shard.rows.only(())) for shard in self.shards]  # views have the cells
        self.arrange(views or names)

    def _load(self, rows_of) -> list[shards.Shard]:
        """Load this rank's shards with all columns, or with none if the likelihood is switched off."""
        cut, loaded = self.cut.tolist(), []
        for i in shards.of_rank(self.n_shards, self.comm.size, self.comm.rank):
            rows = rows_of(cut[i], cut[i + 1])
            loaded.append(shards.Shard(i, cut[i], rows if self.settings.likelihood else rows.only(())))
        return loaded

    @property
    def key(self) -> dict[str, int]:
        return {"seed": self.settings.seed, "cycle": self.cycles, "chain": self.chain}

    def arrange(self, views: Sequence[Sequence[str]]) -> None:
        """Assign the columns to views, by name. New views have no state: `start` or `resume` follows. Collective."""
        if sorted(name for names in views for name in names) != sorted(column.name for column in self.columns):
            raise ValueError("every column has to be in one view, and in no other")
        for names in self.units:
            if not any(set(names) <= set(view) for view in views):
                raise ValueError(f"columns {', '.join(names)} have to be in one view")
        if [tuple(names) for names in views] != [view.columns for view in self.views]:
            cells = self.take_cells(self.views, views)
            self.views = [self.view_of_columns(*of, lane) for lane, of in enumerate(zip(views, cells))]

    def take_cells(self, views: Sequence[View], requested: Sequence[Collection[str]]) -> list[list]:
        """Take the cells of several sets of columns from the views that have them, for this rank's shards; shard by
        shard, so that at most one shard's cells are in memory twice."""
        result: list[list] = [[] for _ in requested]
        for i in range(len(self.shards)):
            held = [self.held(view.columns, [view.shards[i].rows]) for view in views]
            for part, names in zip(result, requested):
                part.append(self._cells(names, held)(0))
            for view in views:
                view.shards[i] = replace(view.shards[i], rows=view.shards[i].rows.only(()))
        return result

    def _held(self) -> list[Held]:
        """Return the cells of all views."""
        return [self.held(view.columns, [shard.rows for shard in view.shards]) for view in self.views]

    def held(self, names: Collection[str], rows: Sequence) -> Held:
        """Return the named columns with their cells `rows`."""
        return Held(self._modelled(names), rows)

    def held_with(self, names: Collection[str]) -> list[Held]:
        """Return the cells of the views that have at least one of the named columns."""
        requested = set(names)
        return [of for of, view in zip(self._held(), self.views) if requested & set(view.columns)]

    def plain(self, names: Collection[str]) -> list:
        """Return the named columns without links; none if the likelihood is switched off."""
        requested = set(names)
        return [c for c in self.columns if c.name in requested] if self.settings.likelihood else []

    def _modelled(self, names: Collection[str]) -> list:
        """Return the named columns under the links; none if the likelihood is switched off."""
        requested = set(names)
        return [c for c in self.linking.coding.columns if c.name in requested] if self.settings.likelihood else []

    def view_of_columns(self, names: Sequence[str], rows: Sequence, lane: int) -> View:
        part = [replace(shard, rows=cells) for shard, cells in zip(self.shards, rows)]
        of = self._components(names), part, self.n_rows, self.n_shards, self.settings, self.chain, lane
        return View(self.comm, names, *of, self.linking.observed(of[0], rows))

    def _components(self, names: Collection[str]) -> Components:
        s, which = self.settings, frozenset(names)
        for view in self.views:
            if which == set(view.columns):
                return view.components
        key = which, frozenset(of for of in self.linking.coding.parent_of.items() if of[0] in which)
        if key not in self._known:
            blocks = {b: of for b, of in s.blocks.items() if which.issuperset(of["columns"])}
            columns = renumbered(self._modelled(which))  # none if the likelihood is off
            if len(self._known) >= max(KNOWN[0], KNOWN[1] // len(self.columns)):
                del self._known[next(iter(self._known))]  # the least recently used
            self._known[key] = Components(columns, self.linking.priors, blocks if s.likelihood else {})
        result = self._known[key] = self._known.pop(key)
        return result

    def rebase(self, bases: Mapping[str, np.ndarray]) -> None:
        """Replace the bases of linked columns (`links.base`). Not collective."""
        self._known.clear()
        for view in self.views:
            view.components.categorical.rebase(bases)

    def _cells(self, names: Collection[str], held: Sequence[Held]) -> Gather:
        return Gather(self._modelled(names), held, self.settings.blocks)

    def of_columns(self, names: Collection[str], held: Sequence[Held]) -> tuple[Components, Hyper, Gather]:
        """Return the named columns' components, hyperparameters and cells, gathered from `held`."""
        components = self._components(names)
        with_some = (view for view in self.views if not components.names.isdisjoint(view.columns))
        of_column = {name: of for view in with_some for name, of in view.components.by_column(view.hyper).items()}
        return components, components.hyper(1.0, 0.0, of_column), self._cells(names, held)

    def subject(self, names: Collection[str]) -> Subject:
        """Return the named columns as a subject of moves."""
        of = self.of_columns(names, self.held_with(names))
        return Subject(self.comm, *of, self.shards, self.views[0].z, self.n_active, self.n_shards)

    @cached_property
    def components(self) -> Components:
        """Components of all columns, regardless of views."""
        s = self.settings
        return Components(self.columns, self.priors, s.blocks) if s.likelihood else Components([])

    @property
    def places(self) -> list[dict[str, np.ndarray]] | None:
        """Places of each view's columns in rows of all columns; None for a single view (see `Density`)."""
        if len(self.views) == 1:
            return None
        return [places(self.plain(view.columns), self.settings.blocks) for view in self.views]

    @property
    def view_of_unit(self) -> list[int]:
        """Number of the view of each unit of columns."""
        return self.view_of(self.units)

    def view_of(self, groups: Sequence[Sequence[str]]) -> list[int]:
        """Return the number of the view of each group of columns."""
        where = {name: v for v, view in enumerate(self.views) for name in view.columns}
        return [where[names[0]] for names in groups]

    @property
    def bodies(self) -> list[tuple[str, ...]]:
        """Groups of columns that move together in splits and merges of views: units, joined where they are linked."""
        return joined(self.units, self.linking.coding.pairs) if self.linking.coding.linked else self.units

    @property
    def view(self) -> View:
        """The only view of a chain with one view."""
        (view,) = self.views
        return view

    # --- the cycle ---------------------------------------------------------------------------------------------------

    def cycle(self, word: Sequence[int] = ()) -> CycleInfo:
        """Run one exact cycle: the global update, sweeps on every shard without communication, one sync.

        word: small integers of the caller to sum over ranks; the sums are returned as `CycleInfo.word`.
        """
        s, cycle, comm = self.settings, self.cycles + 1, self.comm
        steps = [view.begin(cycle, learn=self.cycles % s.hyper_every == 0) for view in self.views]
        host.begin(self, steps)
        target = self._targets(cycle) if self.growing else None
        trouble, failed = "", 0
        for i, shard in enumerate(self.shards):
            visits = None if target is None else self._visits(i, shard, steps, int(target[shard.index]))
            try:
                for view, step in zip(self.views, steps):
                    view.z[i] = step.run(view.shards[i], view.z[i], visits)
            except FloatingPointError as error:
                trouble, failed = str(error), 1
        news = [np.array([*step.opened.values(), step.moved, step.changes.bound], np.int64) for step in steps]
        message = np.concatenate([*news, [failed], np.asarray(word, np.int64)])
        comm.sum_everywhere(message)
        *news, (failed, *word) = sync.apart(message, [*map(len, news), 1 + len(word)])
        if failed:
            raise NumericalError(f"cycle {cycle}: a row cannot be scored", [t for t in comm.collect(trouble) if t])
        self._sync(steps, news)
        self.cycles = cycle
        host.follow(self, steps)
        self.linking.fill_gaps()
        self.summarise()
        tally = self._split_and_merge()
        stray_rows.follow(self)
        host.draw(self)
        moved = sum(int(part[-2]) for part in news) / len(self.views)
        of_views = of_columns.move(self) if self.law is not None else {}
        host.wait(self)
        self.linking.draw()
        self.linking.draw_bases()
        info = self._info(moved / (self.n_active * (s.sweeps_per_cycle if target is None else 1)), tally, of_views)
        info.word = [int(w) for w in word]
        return info

    def _targets(self, cycle: int) -> np.ndarray:
        """Return the number of active rows of every shard in a cycle, (S,) int64. Without a plan it is all rows: rows
        without a label at the start are added at once. Collective if the clock decides."""
        if self.growth is None:
            return np.diff(self.cut)
        return self.growth.targets(self.growth.fraction(cycle))

    def _visits(self, i: int, shard: shards.Shard, steps: Sequence, target: int) -> tuple[np.ndarray, ...] | None:
        """Return (remove, assign) for all views on the i-th of this rank's shards, so that a row is active in all views
        or in none; None for a plain sweep over a shard whose rows are and stay active.

        A row that may not leave in one view stays in all: its removal is skipped. If one view has no cluster for new
        rows, no view changes.
        """
        z = self.views[0].z[i]
        if self.growth is None and (z > IDLE).all():
            return None
        remove, assign = all_rows(z) if self.growth is None else self.growth.steps(shard, z, target, self.cycles + 1)
        if not all(step.has_room(shard) for step in steps):
            return remove[:0], assign[:0]
        stays = np.zeros(len(shard), bool)
        for view, step in zip(self.views, steps):
            stays |= step.anchors(shard, view.z[i])
        nobody = (remove != assign) & (remove >= 0) & stays[remove]
        return np.where(nobody, -1, remove).astype(np.int32), np.where(nobody, -1, assign).astype(np.int32)

    def _sync(self, steps: Sequence, news: Sequence[np.ndarray]) -> None:
        """Number the clusters of the tails, and update the counts."""
        before, changes = [view.counts for view in self.views], []
        for view, step, (*opened, _, _) in zip(self.views, steps, news):
            first = view.renumber(len(step.kept), dict(zip(step.opened, opened)))
            view.counts = step.changes.after(first, view.n_labels)
        changes = [view.counts for view in self.views]
        sync.carry(self.comm, before, steps, changes, max(int(part[-1]) for part in news))

    def summarise(self, views: Sequence[View] | None = None) -> None:
        """Compute the summaries of the labels for the coming cycle."""
        sync.summarise(self.comm, views or self.views, self.cycles + 1)

    def _count(self) -> None:
        """Recount clusters and compute the summaries, after labels changed other than by a cycle."""
        sync.count(self.comm, self.views)
        self.summarise()

    def _split_and_merge(self) -> Tally:
        tally, every = Tally(), self.settings.split_merge
        outcomes = host.by_view(self)
        n_views = len(self.views)
        due = [v for v in range(n_views) if moves.due(every, self.cycles, self.n_cells, v, n_views)]
        done = [self.views[v].split_and_merge(self.cycles, outcomes[v]) for v in due]
        changed = [self.views[v] for v, (_, moved) in zip(due, done) if moved]
        if changed:
            sync.count(self.comm, changed)
            self.summarise(changed)
        for part, _ in done:
            tally = Tally(*(getattr(tally, f.name) + getattr(part, f.name) for f in fields(Tally)))
        return tally

    def _info(self, moved: float, tally: Tally, of_views: Mapping[str, int] | None = None) -> CycleInfo:
        sizes = [view.sizes() for view in self.views]
        info = CycleInfo(
            self.cycles, sum(map(len, sizes)), moved, active_rows=self.n_active, n_views=len(sizes), **vars(tally),
            **(of_views or {}),
        )  # fmt: skip
        log_joints = [view.log_joint() for view in self.views] if self.scored else []
        if log_joints and self.comm.rank == 0:
            shares = [size / self.n_active for size in sizes]
            info.entropy = -sum(float((share * np.log(share)).sum()) for share in shares)
            info.log_joint = sum(log_joints) + self.linking.log_prior() - self.linking.log_filled()
            if self.outcome is not None and self.cycles > self.outcome.entry:
                info.log_joint += self.outcome.log_joint() + float(host.log_prior(self)[host.view_of(self)])
            if self.law is not None:
                info.view_concentration, info.view_discount = self.process
                info.log_joint += float(log_eppf(np.bincount(self.view_of_unit), *self.process))
            if len(self.views) == 1:
                info.concentration, info.discount = self.view.hyper.concentration, self.view.hyper.discount
        return info

    @property
    def n_cells(self) -> int:
        """Number of cells of the training rows, on which it depends how often moves are worth their cost."""
        return self.n_rows * len(self.columns)

    @property
    def n_active(self) -> int:
        """Number of active rows: all rows, unless the chain is being annealed."""
        return int(self.views[0].partition.size.sum())

    @property
    def growing(self) -> bool:
        """True while rows are idle, so that the chain's state is not a draw from the posterior."""
        return self.n_active < self.n_rows

    @property
    def plan(self) -> list[float]:
        """Active fraction of every growth cycle known so far; for a checkpoint."""
        return [] if self.growth is None else self.growth.plan

    # --- how a chain starts ------------------------------------------------------------------------------------------

    def start(self, how: str | np.ndarray | Sequence[np.ndarray], n_clusters: int = 64) -> None:
        """Set the initial labels of all rows, or of the first subsample if the chain is annealed; see seating.start.
        how: for all views, or a sequence with one per view. Given labels may be IDLE, in all views alike: the first
        cycle seats these rows."""
        chosen = self.first_rows()
        each = [how] * len(self.views) if isinstance(how, str | np.ndarray) else how
        for view, part in zip(self.views, each, strict=True):
            seating.start(view, part, n_clusters, chosen)
        self.cycles = 0
        self._count()
        host.at_first(self)

    def first_rows(self) -> Sequence[np.ndarray]:
        """Return the initial rows of each shard, in the order of their seating; make all other rows idle."""
        if self.growth is None:
            return shards.AllRows(self.shards)
        for view in self.views:
            for z in view.z:
                z[:] = IDLE
        target = self.growth.targets(self.growth.first)
        views = zip(self.shards, self.views[0].z)
        return [self.growth.steps(shard, z, int(target[shard.index]), 0)[1] for shard, z in views]

    def resume(self, cycles: int, plan: Sequence[float] = (), process: tuple[float, float] | None = None) -> None:
        """Continue after `cycles` cycles; the views must have their states. plan: active fractions so far. process:
        concentration and discount of the views; None: unchanged."""
        if self.growth is not None:
            self.growth.resume(plan)
        self.process = process or self.process
        self.cycles = cycles
        self._count()
