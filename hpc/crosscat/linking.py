"""Links of a chain: the forest of its columns, the missing cells of parents, and draws of both (docs/links.md).

The chain calls for draws in the cycles where they are due (docs/math.md 2.14); the chain itself owns the assignment of
columns to views, and the views' cells and counts.
"""

from __future__ import annotations

import weakref
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.hpc.components.categorical import Categorical
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.crosscat.columns.cells import renumbered
from mpibayes.hpc.crosscat.lines.evidence import number_evidence
from mpibayes.hpc.crosscat.lines.gaps import LOG_2PI, LineGaps
from mpibayes.hpc.crosscat.view import sync
from mpibayes.hpc.crosscat.view.view import View
from mpibayes.hpc.links import moves
from mpibayes.hpc.links.base import Bases, Integrated, apart, bases_given, flat, learns_base, tables_given, with_learned
from mpibayes.hpc.links.coding import Coding, parents_of
from mpibayes.hpc.links.contexts import contexts_of
from mpibayes.hpc.links.forest import ROOT
from mpibayes.hpc.links.gaps import Density, Gaps, masks_of
from mpibayes.hpc.links.scores import link_tables
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.io.rows import Rows

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.chain import Mixture

MOST_SETS = 32  # of columns, of which the coding and the components are kept


class Linking:
    """The links of all columns of a chain. On creation the chain's shards must have the cells of all columns as in the
    table; they are then coded. Methods are collective unless noted.
    """

    def __init__(self, chain: Mixture):
        self.chain = weakref.proxy(chain)  # a chain that has ended is freed at once, with its rows
        linked = chain.settings.links != "none" and chain.settings.likelihood
        self.numbers = LineGaps(
            chain.columns if linked else (), [shard.rows for shard in chain.shards], chain.law is not None
        )
        self._codings: dict[frozenset[str], Coding] = {}  # of sets of columns under the present links
        self._unlinked: dict[frozenset[str], Components] = {}  # of sets of columns without links
        self.gaps = self._first()
        self.tables: dict[str, np.ndarray] = {}  # tables for the last draw of the bases; none before the first cycle
        self.bases: dict[str, np.ndarray] = {}  # by column that learns one, see links/base.py

    @property
    def coding(self) -> Coding:
        """The columns under the present links. Not collective."""
        return self.gaps.coding

    def _first(self) -> Gaps:
        """Make the initial links, the given ones or none, and code the rows by them."""
        chain, s = self.chain, self.chain.settings
        none = np.full(len(chain.columns), ROOT)
        if s.links == "none" or not s.likelihood:
            return Gaps(Coding(chain.columns, none, {}), [{} for _ in chain.shards])
        contexts, masks = {}, [{} for _ in chain.shards]
        if s.links != "lines":
            contexts = s.contexts or contexts_of(chain.columns, (shard.rows for shard in chain.shards), chain.comm)
        if chain.law is not None:  # in views a parent has no missing cells
            contexts = {
                c.name: of for c in chain.columns if (of := contexts.get(c.name)) is not None and not c.n_missing
            }
        elif s.links != "lines":
            masks = [masks_of(chain.columns, shard.rows) for shard in chain.shards]
        given = {} if isinstance(s.links, str) else s.links
        coding = Coding(chain.columns, parents_of(chain.columns, given), contexts)
        gaps, shards = Gaps(coding, masks), list(chain.shards)
        for i, shard in enumerate(shards):
            rows = shard.rows.take(slice(None)) if gaps.at[i] or self.numbers.columns else shard.rows
            gaps.start(i, rows, shard.start, chain.key)
            self.numbers.start(i, rows, coding, shard.start, chain.key)
            shards[i] = replace(shard, rows=coding.coded(rows))
        chain.shards = shards
        return gaps

    def coding_of(self, names: Collection[str]) -> Coding:
        """Return the coding of rows with only these columns, whose parents are all among them. Not collective."""
        if len(names) == len(self.chain.columns):
            return self.coding
        which = frozenset(names)
        if which not in self._codings:
            if len(self._codings) >= MOST_SETS:
                self._codings.clear()
            plain = renumbered(self.chain.plain(which))
            self._codings[which] = Coding(plain, parents_of(plain, self.coding.parent_of), self.coding.contexts)
        return self._codings[which]

    def unlinked(self, names: Collection[str]) -> Components:
        """The columns of this set that may be linked, or have no levels, as they are without links. Not collective."""
        which = frozenset(names)
        if which not in self._unlinked:
            if len(self._unlinked) >= MOST_SETS:
                self._unlinked.clear()
            of = self.coding_of(which)
            plain = [*of.levelled, *(column for column in of.plain if not column.levels)]
            self._unlinked[which] = Components(plain, self.chain.priors)
        return self._unlinked[which]

    @property
    def codings(self) -> list[Coding]:
        """Links of each view. Not collective."""
        return [self.coding_of(view.columns) for view in self.chain.views]

    def link(
        self, parents: np.ndarray, rows: Sequence[Rows] | None = None, hyper: Mapping[str, np.ndarray] | None = None,
        bases: Bases | None = None,
    ) -> None:  # fmt: skip
        """Give the columns other parents in their views, (C,) as in `Coding`. The rest of the state is kept, except the
        cluster counts of views that change.

        rows: for a single view, the rows of each shard of this rank, without links and with missing cells filled;
        None: unchanged. hyper, bases: new hyperparameters and bases of columns, by name.
        """
        chain = self.chain
        for view in chain.views if hyper else ():
            of_column = view.components.by_column(view.hyper) | dict(hyper or {})
            view.hyper = view.components.hyper(view.hyper.concentration, view.hyper.discount, of_column)
        if np.array_equal(parents, self.coding.parents):
            return
        other = {c.name for c, new, old in zip(chain.columns, parents, self.coding.parents) if new != old}
        before, views = self.codings, chain.views
        changed = [v for v, view in enumerate(views) if other & set(view.columns)]
        self.gaps, self._codings = Gaps(self.coding.with_parents(parents), self.gaps.masks), {}
        self.bases = {name: base for name, base in self.bases.items() if name not in other} | dict(bases or {})
        chain.views = [view for v, view in enumerate(views) if v not in changed]  # others have components of old links
        new = {v: self._linked(views[v], before[v], v, rows, hyper or {}) for v in changed}
        chain.views = [new.get(v, view) for v, view in enumerate(views)]

    def _linked(
        self, view: View, before: Coding, lane: int, rows: Sequence[Rows] | None, hyper: Mapping[str, np.ndarray]
    ) -> View:
        """Return a view under the present links, with its state under the links `before`."""
        after, coded = self.coding_of(view.columns), []
        for i, shard in enumerate(view.shards):
            plain = before.decoded(shard.rows) if rows is None else rows[i]
            self.gaps.start(i, plain, shard.start, self.chain.key)
            self.numbers.start(i, plain, after, shard.start, self.chain.key)
            coded.append(after.coded(plain))
            view.shards[i] = replace(shard, rows=shard.rows.only(()))
        made = self.chain.view_of_columns(view.columns, coded, lane)
        of_column, process = view.components.by_column(view.hyper) | dict(hyper), view.hyper
        labels = {shard.index: z for shard, z in zip(view.shards, view.z)}
        under = made.components.hyper(process.concentration, process.discount, of_column)
        made.resume(labels.__getitem__, view.n_labels, under)
        return made

    def link_and_count(
        self, parents: np.ndarray, rows: Sequence[Rows] | None = None, hyper: Mapping[str, np.ndarray] | None = None,
        bases: Bases | None = None,
    ) -> None:  # fmt: skip
        """Call `link`, and count the clusters of the views that change."""
        before = self.chain.views
        self.link(parents, rows, hyper, bases)
        changed = [view for view in self.chain.views if view not in before]
        if changed:
            sync.count(self.chain.comm, changed)
            self.chain.summarise()

    def observed(self, components: Components, rows: Sequence[Rows]) -> list[Rows] | None:
        """Return the coded rows of each shard without the numeric missing cells that are part of the state, or None if
        there are none. Not collective."""
        if not self.numbers.columns:
            return None
        columns = [column for kind in components.kinds for c in range(len(kind)) for column in kind.members(c)]
        return [self.numbers.blanked(i, columns, part) for i, part in enumerate(rows)]

    def fill_gaps(self) -> None:
        """Draw the missing cells that are part of the state, given this cycle's labels and counts."""
        if self.gaps.columns:
            view, comm = self.chain.view, self.chain.comm
            self.gaps.draw(comm, *self._of_gaps(view), self._densities(view) if self.gaps.numbers else {})
            if any(self.coding.plain[c].kind == "count" for c in self.gaps.numbers):
                sync.count(comm, [view])
            if self.gaps.numbers:  # their contexts have changed
                view.pruning.renew()
        every, views, codings = self._due, self.chain.views, self.codings if self.numbers.columns else []
        if not any(self.numbers.within(coding, every) for coding in codings):
            return
        for view, coding, s in zip(views, codings, sync.statistics_of(self.chain.comm, views)):
            if self.numbers.within(coding, every):
                first, key = [shard.start for shard in view.shards], view.key(self.chain.cycles)
                of = view.components, view.hyper, s, coding, view.labelled(), first, key
                view.relabel(self.numbers.draw(self.chain.comm, *of, every))
                view.pruning.renew()

    def _densities(self, view: View) -> dict[int, Density]:
        """Return the densities of numeric columns whose parents have missing cells, with parameters drawn given the
        clusters' rows; the same on every rank."""
        (statistics,) = sync.statistics_of(self.chain.comm, [view])
        stream = Stream(purpose=Purpose.FILLED_PARAMETERS, **view.key(self.chain.cycles))
        result: dict[int, Density] = {}
        for place in self.gaps.numbers:
            kind, c = view.components.kind_of(self.coding.plain[place].name)
            drawn = kind.draw(getattr(view.hyper, kind.hyper), statistics.of(kind), slice(c, c + 1), stream)
            result[place] = partial(kind.log_terms, drawn)
        return result

    def gap_levels(self) -> np.ndarray | None:
        """Return the levels of parents' missing cells, column by column, parents first, each in row order, uint16 (G,)
        on root, None elsewhere."""
        shards = self.chain.view.shards if self.gaps.columns else ()
        mine = [self.gaps.levels(i, shard.rows) for i, shard in enumerate(shards)]
        return self._gathered(mine, [c for c in self.coding.order if c in self.gaps.columns], np.uint16)

    def gap_numbers(self) -> np.ndarray | None:
        """Return the values of missing cells of numeric columns that may be in lines, column by column, each in row
        order, float64 (F,) on root, None elsewhere."""
        mine = [self._numbers_of(i) for i in range(len(self.chain.shards))] if self.numbers.columns else []
        return self._gathered(mine, range(len(self.numbers.columns)), np.float64)

    def _numbers_of(self, shard: int) -> dict[int, np.ndarray]:
        views = zip(self.chain.views, self.codings)
        each = [self.numbers.values(shard, coding, view.shards[shard].rows) for view, coding in views]
        return {j: x for of in each for j, x in of.items()}

    def numbers_of(self, shard: int) -> np.ndarray:
        """Return the values of `gap_numbers` in one of this rank's shards, column by column. Not collective."""
        of = self._numbers_of(shard)
        return np.concatenate([of[j] for j in sorted(of)])

    def put_numbers(self, shard: int, values: np.ndarray) -> None:
        """Set the values returned by `numbers_of`. Not collective."""
        sizes = self.numbers.holes[shard].lacks.sum(axis=0)
        of = dict(enumerate(np.split(values, sizes.cumsum()[:-1])))
        for view, coding in zip(self.chain.views, self.codings):
            self.numbers.put(shard, coding, view.shards[shard].rows, of)

    def _gathered(self, mine: Sequence[Mapping[int, np.ndarray]], order: Sequence[int], dtype: type):
        """Gather the values of columns from all shards on root, one column after another; None elsewhere."""
        comm = self.chain.comm
        if not order:
            return np.zeros(0, dtype) if comm.rank == 0 else None
        parts = [[np.zeros(0, dtype), *(of[c] for of in mine if c in of)] for c in order]
        columns = [np.concatenate(part).astype(dtype) for part in parts]
        lengths = np.array(comm.collect([len(column) for column in columns]))  # (ranks, columns)
        whole = comm.gather_to_root(np.concatenate(columns), lengths.sum(axis=1).tolist())
        if whole is None:
            return None
        pieces = np.split(whole, lengths.ravel().cumsum()[:-1])
        return np.concatenate([piece for c in range(len(order)) for piece in pieces[c :: len(order)]])

    def _of_gaps(self, view: View) -> tuple:
        first = [shard.start for shard in view.shards]
        counts = view.components.categorical, view.hyper.dirichlet, view.counts.levels
        return *counts, view.labelled(), first, view.key(self.chain.cycles)

    # --- bases -------------------------------------------------------------------------------------------------------

    @property
    def priors(self) -> Mapping[str, Mapping]:
        """Priors of the columns under the links. Not collective."""
        return with_learned(self.chain.priors, self.bases)

    def draw_bases(self) -> None:
        """Draw the bases of linked columns given labels, cells and hyperparameters. Not collective, the same on every
        rank."""
        chain = self.chain
        if not chain.settings.learns_bases:
            return
        self.tables = {}
        for view in chain.views:
            kind, levels = view.components.categorical, view.counts.levels
            beta = kind.pseudo_counts(view.hyper.dirichlet)
            for column, first, end in zip(kind.columns, kind.offsets[:-1].tolist(), kind.offsets[1:].tolist()):
                if learns_base(column, chain.priors):
                    shape = column.contexts, len(column.levels) + 1
                    stream = Stream(purpose=Purpose.TABLES, sub=zlib.crc32(column.name.encode()), **chain.key)
                    of = levels[first:end].reshape(*shape, -1), beta[first:end].reshape(shape)
                    self.tables[column.name] = tables_given(*of, stream)
        self._rebase()

    def resume_bases(self, tables: np.ndarray, cycles: int) -> None:
        """Restore the bases drawn after `cycles` cycles, from their tables. Not collective."""
        self.tables = apart(tables, self.coding.columns, self.chain.priors)
        self._rebase(cycles)

    def flat_tables(self) -> np.ndarray:
        """Return all tables, one column after another, int64. Not collective."""
        return flat(self.tables, self.coding.columns)

    def _rebase(self, cycles: int | None = None) -> None:
        chain = self.chain
        key = chain.key if cycles is None else {**chain.key, "cycle": cycles}
        self.bases = bases_given(self.tables, self.coding.columns, chain.priors, key)
        chain.rebase(self.bases)

    # --- draws of the links ------------------------------------------------------------------------------------------

    @property
    def _due(self) -> bool:
        """True if links are drawn at the end of this cycle."""
        return self.chain.settings.learns_links and moves.due(self.chain.settings.link_moves, self.chain.cycles)

    def draw(self) -> None:
        """Draw the links of each view, if that is due."""
        chain, parents = self.chain, self.coding.parents.copy()
        if not self._due:
            return
        place = {column.name: i for i, column in enumerate(chain.columns)}
        rows, of_numbers, tables = None, {}, {}
        for view, coding in zip(chain.views, self.codings):
            if coding.n_nodes > 1 and (coding.lines or coding.levelled):
                at = np.array([place[column.name] for column in coding.plain])
                plain = self.unlinked(view.columns)
                hyper = plain.hyper(1.0, 0.0, view.components.by_column(view.hyper))
                rows = self._completed(view, coding)
                of = plain.categorical, hyper.dirichlet, list(zip(rows, view.z)), view.n_labels, view.key(chain.cycles)
                labelled = list(zip(rows, view.z))
                given = chain.priors, plain, hyper, labelled, view.n_labels, chain.n_shards
                numbers = number_evidence(chain.comm, coding, *given)
                weights = self._integrated(coding, *of[:2], view.key(chain.cycles))
                drawn, hyper_of = moves.draw_links(chain.comm, coding, *of, numbers, weights)
                parents[at] = np.where(drawn == ROOT, ROOT, at[drawn])
                of_numbers |= hyper_of
                if weights is not None:
                    tables |= self._tables_of(coding.with_parents(drawn), *of[:-1], weights)
        bases = bases_given(tables, chain.columns, chain.priors, chain.key, with_links=True)
        self.link_and_count(parents, rows if chain.law is None else None, of_numbers, bases)
        if self.numbers.columns and chain.law is None:  # cells that were drawn for this
            for i, shard in enumerate(chain.view.shards):
                self.numbers.forget(i, self.coding, shard.rows)
            chain.view.pruning.renew()
            chain.summarise()

    def _integrated(
        self, coding: Coding, kind: Categorical, multiplier: np.ndarray, key: Mapping[str, int]
    ) -> Integrated | None:
        """Return the weights of links with bases integrated out; None if bases are not learned."""
        if not self.chain.settings.learns_bases:
            return None
        numbers = [coding.plain[c].name for c in coding.numbers]
        present = {
            child: (parent, self.bases[child]) for child, parent in coding.parent_of.items() if child in self.bases
        }
        fixed = ["dirichlet" in self.chain.priors.get(column.name, {}) for column in kind.columns]
        names = [*(column.name for column in kind.columns), *numbers]
        return Integrated(kind, multiplier, fixed, names, present, key)

    def _tables_of(self, after: Coding, kind: Categorical, multiplier, labelled, k: int, bases: Integrated) -> dict:
        """Draw the tables of the columns whose parents changed, by name. Collective."""
        place = {name: j for j, name in enumerate(bases.parents)}
        before, now = self.coding.parent_of, after.parent_of
        children = {column.name for column in kind.columns}
        new = {child: now[child] for child in now if now[child] != before.get(child) and child in children}
        links = {place[c]: place[p] for c, p in new.items() if not bases.fixed[place[c]]}
        tables = link_tables(self.chain.comm, after, kind, multiplier, labelled, k, bases, links)
        return {kind.columns[child].name: of for child, of in tables.items()}

    def _completed(self, view: View, coding: Coding) -> list[Rows]:
        """Return the rows of a view's shards without links, with the missing cells of possible parents filled."""
        if self.chain.law is not None:
            return [coding.decoded(shard.rows) for shard in view.shards]
        return list(self.gaps.completed(*self._of_gaps(view)))

    def log_filled(self) -> float:
        """Return about the log density of the missing numbers of a mixture that have values now: of normal draws with
        the moments of their columns. The links decide how many there are, and the log joint must not depend on the unit
        of each. Not collective."""
        if not self.numbers.columns or self.chain.law is not None:
            return 0.0
        filled = [self.coding.plain[c] for _, c in self.numbers.within(self.coding)]
        return -sum(column.n_missing * (0.5 + 0.5 * LOG_2PI + float(np.log(column.scale))) for column in filled)

    def log_prior(self) -> float:
        """Return the log prior probability of the links given the views; 0 if not learned. Not collective."""
        if not self.chain.settings.learns_links:
            return 0.0
        return sum(coding.log_prior for coding in self.codings)
