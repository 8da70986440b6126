"""A finished or running mixture or cross-categorization, opened for reading: its chains, its training rows and its kept
draws.

A kept draw has the labels of the training rows and the hyperparameters under which they were drawn, as `io/draws.py`
stores it: dirichlet (D, C), normal (D, R, 4), gamma (D, Q, 2) and wishart (D, B, 3) of all columns in table order. For
a mixture: labels (D, N), concentration and discount (D,). If columns are linked: `links` (D, C), the place of each
modelled column's parent among them, -1 for none; `gaps` (D, G), the levels of missing cells that other columns depend
on (`links/gaps.py`), column by column, padded with zeros; and `numbers` (D, F), the values of missing cells of numeric
columns that may be in lines, NaN where no link needs them (`lines/gaps.py`). With an outcome: outcome_theta (D, K, p)
of the clusters, padded with zeros, outcome_beta (D, B), and outcome_law (D, 2 p + 1). With several views: labels (D, V,
N), concentration and discount (D, V), padded with zeros beyond the draw's last view, `views` (D, C), the view of each
used column of the table, and outcome_view (D,). Everything else about clusters is recomputed from the table, read in
slices.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mpibayes.errors import DataError
from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat import host
from mpibayes.hpc.crosscat.bases import with_bases
from mpibayes.hpc.crosscat.keys import Model, priors
from mpibayes.hpc.crosscat.law import Law
from mpibayes.hpc.crosscat.laws.population import mean_weights
from mpibayes.hpc.crosscat.laws.view_law import ViewLaw
from mpibayes.hpc.crosscat.lines.gaps import lacking
from mpibayes.hpc.crosscat.scalars import BY_FAMILY
from mpibayes.hpc.crosscat.summaries.of_columns import OfColumns, ViewDraw
from mpibayes.hpc.crosscat.summaries.tallies import Tallies, Total
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.links.base import apart, bases_given, with_learned
from mpibayes.hpc.links.coding import Coding
from mpibayes.hpc.links.contexts import contexts_of
from mpibayes.hpc.links.forest import ROOT
from mpibayes.hpc.links.gaps import NO_CELLS, Cells, Gaps, Masks, masks_of
from mpibayes.hpc.outcome import kept as outcomes
from mpibayes.hpc.outcome.keys import Outcome
from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.posterior.chains import KeptChains, evenly
from mpibayes.io import draws as stored
from mpibayes.io.draws import DrawWriter
from mpibayes.io.files import Guard, unguarded
from mpibayes.io.rows import Rows

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.chain import Mixture
    from mpibayes.hpc.crosscat.summaries.outcomes import Outcomes

SLICE_ROWS = 65_536
LABEL_BYTES = 256 << 20  # bytes of labels of the draws whose statistics are computed in one pass over the table
MOST_SELECTED = 1_000  # most sets of columns, with their links, that are cached for the next question
MOST_WITH_BASES = 32  # the same limit where each draw has different bases
ROOM = 4  # draws are stored with room for a multiple of this number of views, so that the room seldom has to grow


@dataclass(frozen=True)
class Draw:
    """One kept draw, of one view or of several.

    hyper: of all columns; its concentration and discount are the first view's. labels: of each view, int64 (N,),
    clusters as numbered in the run. process: concentration and discount of each view. view_of: view of each used column
    of the table. parents: place of each modelled column's parent among them, -1 for none, int64 (C,); None in a run
    without links. gaps (G,): levels of missing cells that other columns depend on, as stored. numbers (F,): values of
    missing cells of numeric columns that may be in lines.
    outcome: coefficients, in the form for `outcome.state.State`; None without an outcome. outcome_view: that of it.
    tables (T,): tables of the bases of linked columns, see `links.base.flat`; None if bases are not learned.
    chain: number of its chain in the posterior.
    """

    cycle: int
    hyper: Hyper
    labels: Sequence[np.ndarray]
    process: Sequence[tuple[float, float]]
    view_of: np.ndarray
    parents: np.ndarray | None = None
    gaps: np.ndarray | None = None
    numbers: np.ndarray | None = None
    outcome: Mapping[str, np.ndarray] | None = None
    outcome_view: int = 0
    tables: np.ndarray | None = None
    chain: int = 0


def writer(folder: str | Path, run: str = "", guard: Guard = unguarded) -> DrawWriter:
    """Open a writer of draws: `append(cycle, labels=, concentration=, ...)`. run, guard: see `io.segments.Segments`."""
    return DrawWriter(folder, run, guard, whole=("labels", "views", "gaps", "tables", outcomes.VIEW))


def of_chain(mixture: Mixture, several: bool) -> dict[str, np.ndarray]:
    """Return the arrays of the chain's state as a kept draw, on root. several: True if there may be several views.
    Collective."""
    if not several:
        labels, view, gaps = mixture.view.labels(), mixture.view, mixture.linking.gap_levels()
        values = mixture.linking.gap_numbers()
        if mixture.settings.links == "none" or labels is None:
            more = outcomes.arrays_of(mixture.outcome)
            return {} if labels is None else {"labels": labels, **vars(view.hyper), **more}
        process, of_column = (view.hyper.concentration, view.hyper.discount), view.components.by_column(view.hyper)
        hyper = mixture.components.hyper(*process, of_column)
        more = {"gaps": gaps, **({"numbers": values} if values.size else {})}
        return {"labels": labels, **vars(hyper), **_links_of(mixture), **more}
    kind = np.min_scalar_type(max(view.n_labels - 1 for view in mixture.views))
    room, root, values = -(-len(mixture.views) // ROOM) * ROOM, mixture.comm.rank == 0, mixture.linking.gap_numbers()
    most, process = np.zeros((room, mixture.n_rows) if root else 0, kind), np.zeros((2, room))
    for v, view in enumerate(mixture.views):
        labels = view.labels()
        if root:
            most[v], process[:, v] = labels, (view.hyper.concentration, view.hyper.discount)
    if not root:
        return {}
    home = {name: v for v, view in enumerate(mixture.views) for name in view.columns}
    views = np.array([home[c.name] for c in mixture.columns if not c.part_of], np.int64)
    by_column = {name: of for view in mixture.views for name, of in view.components.by_column(view.hyper).items()}
    hyper = vars(mixture.components.hyper(0.0, 0.0, by_column))
    links = {} if mixture.settings.links == "none" else _links_of(mixture)
    links |= {"numbers": values} if values.size else {}
    links |= outcomes.arrays_of(mixture.outcome, host.view_of(mixture))
    return {**hyper, "labels": most, "concentration": process[0], "discount": process[1], "views": views, **links}


def _links_of(mixture: Mixture) -> dict[str, np.ndarray]:
    tables = {"tables": mixture.linking.flat_tables()} if mixture.settings.learns_bases else {}
    return {"links": mixture.linking.coding.parents, **tables}


def iterate_draws(run_dir: str | Path, start_cycle: int = 0) -> Iterator[Draw]:
    """Yield the kept draws of one chain with cycle >= start_cycle. Raises CheckpointError."""
    return (_draw(*draw) for draw in stored.iterate_draws(run_dir, start_cycle))


def last_draw(run_dir: str | Path) -> Draw | None:
    """Return the last kept draw of one chain, or None if there is none."""
    draw = stored.last_draw(run_dir)
    return None if draw is None else _draw(*draw)


def _draw(cycle: int, arrays: Mapping[str, np.ndarray]) -> Draw:
    given = dict(arrays)
    outcome, outcome_view = outcomes.taken(given)
    labels, alpha, d = (given.pop(name) for name in ("labels", "concentration", "discount"))
    views, parents = given.pop("views", np.zeros(0)).astype(np.int64), given.pop("links", None)
    parents, gaps = None if parents is None else parents.astype(np.int64), given.pop("gaps", None)
    n_views = int(views.max(initial=0)) + 1
    alpha, d = np.atleast_1d(alpha)[:n_views].tolist(), np.atleast_1d(d)[:n_views].tolist()
    labels = list(np.atleast_2d(labels)[:n_views].astype(np.int64))
    more = {name: given.pop(name, None) for name in ("numbers", "tables")}
    more |= {"outcome": outcome, "outcome_view": outcome_view}
    return Draw(cycle, Hyper(alpha[0], d[0], **given), labels, list(zip(alpha, d)), views, parents, gaps, **more)


class Posterior(KeptChains, Tallies):
    """Chains of one mixture or cross-categorization on one table."""

    data: Data
    weighable = grouped = True

    def __init__(self, run_dirs: Sequence[str | Path], burn_in: int | None = None, table: str | Path | None = None):
        super().__init__(run_dirs, burn_in, table)
        config = self.chains[0].config
        model = config.of(Model)
        self.likelihood, self.several = model.likelihood, model.has_views
        self.scalars = BY_FAMILY[model.family]
        self.columns = self.data.columns if self.likelihood else ()
        self._joint = config.joint if self.likelihood else {}
        self._of_columns: dict[tuple, OfColumns] = {}

    @cached_property
    def _priors(self) -> dict[str, Any]:
        rows = (rows for _, rows in self.slices())
        return with_bases(priors(self.chains[0].config), self.columns, rows, serial())

    @cached_property
    def components(self) -> Components:
        return Components(self.columns, self._priors, self._joint)

    def slices(self) -> Iterator[tuple[int, Rows]]:
        """Yield (first training row, Rows of the used columns), in order."""
        for start in range(0, self.n_rows, SLICE_ROWS):
            rows = self.data.rows_of(start, min(start + SLICE_ROWS, self.n_rows))
            if not self.likelihood:
                rows = rows.only(())
            yield start, rows

    @cached_property
    def outcomes(self) -> Outcomes | None:
        """The outcome in the kept draws; None without one."""
        if self.chains[0].config.of(Outcome).column is None:
            return None
        from mpibayes.hpc.crosscat.summaries.outcomes import Outcomes

        return Outcomes(self)

    @property
    def modelled(self) -> tuple[str, ...]:
        return super().modelled if self.likelihood else ()

    def contradicted(self) -> bool:
        from mpibayes.hpc.crosscat.report.summarise import contradicted

        return contradicted(self)

    def states(self, requested: Sequence[tuple[int, int]] | None = None) -> Iterator[tuple[int, Draw]]:
        """Yield (number of the chain, draw) for the kept draws after burn-in, or for `requested` only.

        Labels of each view are 0..K-1, none empty.
        """
        chosen = None if requested is None else set(requested)
        for i, chain in enumerate(self.chains):
            cycles = None if chosen is None else [cycle for c, cycle in chosen if c == i]
            if cycles == []:
                continue
            for draw in iterate_draws(chain.folder, chain.burn_in + 1 if cycles is None else min(cycles)):
                if cycles is not None and draw.cycle > max(cycles):
                    break
                if chosen is None or (i, draw.cycle) in chosen:
                    if len(draw.labels[0]) != self.n_rows:
                        raise DataError(
                            f"{chain.folder}: cycle {draw.cycle} has {len(draw.labels[0]):,} labels for "
                            f"{self.n_rows:,} training rows"
                        )
                    yield i, replace(draw, labels=[without_gaps(z) for z in draw.labels], chain=i)

    # --- views -------------------------------------------------------------------------------------------------------

    def of(self, names: Sequence[str], draw: Draw | None = None) -> OfColumns:
        """Select used columns of the table, under the links of a draw (names must include all `ancestors`) or without
        links."""
        parents = None if draw is None or draw.parents is None or not self.likelihood else draw.parents
        bases = {} if parents is None or draw.tables is None else self._bases(draw)
        key = tuple(names), None if parents is None else parents.tobytes(), draw.tables.tobytes() if bases else b""
        if key not in self._of_columns:
            if len(self._of_columns) >= (MOST_WITH_BASES if bases else MOST_SELECTED):
                self._of_columns.clear()
            self._of_columns[key] = OfColumns(self, names, with_learned(self._priors, bases), self._joint, parents)
        return self._of_columns[key]

    def _bases(self, draw: Draw) -> dict[str, np.ndarray]:
        """Draw the bases of the linked columns given the tables of a draw."""
        columns = Coding(self.columns, draw.parents, self.contexts).columns
        tables = apart(draw.tables, columns, self._priors)
        seed = int.from_bytes(hashlib.sha256(draw.tables.astype(np.int64).tobytes()).digest()[:7], "little")
        return bases_given(tables, columns, self._priors, {"seed": seed, "cycle": draw.cycle})

    @cached_property
    def contexts(self) -> dict[str, np.ndarray]:
        """Context of each level of the possible parents, by column name."""
        return contexts_of(self.columns, (rows for _, rows in self.slices()), serial())

    @cached_property
    def _masks(self) -> Masks:
        """Missing cells of the training rows."""
        parts = [masks_of(self.columns, rows) for _, rows in self.slices()]
        return {c: np.concatenate([part[c] for part in parts]) for c in (parts[0] if parts else ())}

    @cached_property
    def _holes(self) -> dict[str, np.ndarray]:
        """Training rows with a missing cell, by name, of the numeric columns that may be in lines."""
        columns, parts = lacking(self.columns), []
        for start, rows in self.slices():
            parts.append([start + np.flatnonzero(np.isnan(rows.reals[:, c.index])) for c in columns])
        return {c.name: np.concatenate(of) for c, of in zip(columns, zip(*parts))}

    def cells(self, draw: Draw) -> Cells:
        """Return the missing cells that are part of a draw."""
        if draw.parents is None or not self.likelihood:
            return NO_CELLS
        of = {}
        if draw.gaps is not None and draw.gaps.size:
            coding = Coding(self.columns, draw.parents, self.contexts)
            of |= Cells.of_draw(Gaps(coding, [self._masks]), draw.gaps).of
        if draw.numbers is not None:
            at = self._holes
            pieces = np.split(draw.numbers, np.cumsum([len(rows) for rows in at.values()]))
            of |= {name: (rows, values) for (name, rows), values in zip(at.items(), pieces)}
        return Cells(of) if of else NO_CELLS

    def ancestors(self, names: Collection[str], draw: Draw) -> set[str]:
        """Return the named columns and all their ancestors under the links of a draw."""
        if draw.parents is None:
            return set(names)
        whole = [c.part_of or c.name for c in self.columns]
        result, new = set(names), set(names)
        while new:
            above = {whole[p] for name, p in zip(whole, draw.parents.tolist()) if p != ROOT and name in new}
            new = {*above, *(c.second for c in self.columns if c.second and c.name in new)} - result
            result |= new
        return result

    @property
    def whole(self) -> OfColumns:
        """All used columns of the table."""
        return self.of([c.name for c in self.data.stored])

    def names_in(self, draw: Draw, view: int) -> list[str]:
        """Return the table's columns in a view of a draw, in table order."""
        names = [c.name for c in self.data.stored]
        return names if len(draw.labels) == 1 else [n for n, v in zip(names, draw.view_of.tolist()) if v == view]

    def views_with(self, draw: Draw, names: Collection[str] | None = None) -> list[tuple[int, list[str]]]:
        """Return the views of a draw that have any of the named columns (default: all columns) or their ancestors, each
        with these columns."""
        chosen = None if names is None else self.ancestors(names, draw)
        if chosen is not None and self.outcomes is not None and self.outcomes.name in chosen:
            chosen |= self.outcomes.neighbours(draw)
        of = ((v, self.names_in(draw, v)) for v in range(len(draw.labels)))
        views = [(v, [n for n in mine if chosen is None or n in chosen]) for v, mine in of]
        return [(v, mine) for v, mine in views if mine]

    def draws(self, most: int) -> Iterator[Law]:
        """Yield at most `most` kept draws, evenly spaced, as laws of all columns."""
        return (law for group in self.groups(evenly(self.kept(), most)) for law in self.laws(group))

    def groups(
        self, requested: Sequence[tuple[int, int]], names: Collection[str] | None = None
    ) -> Iterator[list[Draw]]:  # fmt: skip
        """Yield groups of kept draws, each for one pass over the table, with labels only of the views that have any of
        the named columns."""
        group, held = [], 0
        for _, draw in self.states(requested):
            need = {v for v, _ in self.views_with(draw, names)}
            labels = [narrow(z) if v in need else z[:0] for v, z in enumerate(draw.labels)]
            held += sum(z.nbytes for z in labels)
            group.append(replace(draw, labels=labels))
            if held > LABEL_BYTES:
                yield group
                group, held = [], 0
        if group:
            yield group

    def laws(
        self, draws: Sequence[Draw], names: Collection[str] | None = None, weights: np.ndarray | None = None,
        labelled: slice | np.ndarray | None = None,
    ) -> Iterator[Law]:  # fmt: skip
        """Yield draws as laws of the named columns (default: all), in one pass over the table. weights (N,): survey
        weights of the training rows, for clusters of a population. labelled: training rows whose labels to include."""
        of = []
        for draw in draws:
            cells, views = self.cells(draw), []
            for v, mine in self.views_with(draw, names):
                columns = self.of(mine, draw)
                views.append((v, columns, replace(columns.seen_by(draw, v), cells=cells)))
            of.append(views)
        statistics = iter(self.statistics_of([(columns, state) for views in of for _, columns, state in views]))
        for draw, views in zip(draws, of, strict=True):
            made = []
            for v, columns, state in views:
                s = next(statistics)
                mean = None if weights is None else mean_weights(state.labels, weights, s.size)
                which = self.data.latent.which
                made.append(
                    ViewLaw(
                        columns.components, state.hyper, s, columns.coding, v, columns.names, which, state.cells, mean
                    )
                )
                made[-1].labels = None if labelled is None else state.labels[labelled]
                made[-1].key = {"cycle": draw.cycle, "chain": draw.chain}
            whole = len(views) == 1 and views[0][1].all
            yield Law(made, None if whole else [columns.places for _, columns, _ in views])

    def statistics_of(self, states: Sequence[tuple[OfColumns, ViewDraw]]) -> list[Statistics]:
        """Compute the statistics of the clusters of each draw and its columns, in one pass over the table."""
        totals = [Total(columns.components, state.labels) for columns, state in states]
        for start, rows in self.slices():
            coded: dict[tuple[int, int], Rows] = {}  # rows coded under columns and cells
            places = np.arange(start, start + len(rows))
            for (columns, state), total in zip(states, totals):
                key = id(columns), id(state.cells)
                if key not in coded:
                    if state.cells is not NO_CELLS:
                        coded.clear()  # cells differ between draws
                    plain = columns.take(rows)
                    coded[key] = columns.coded(state.cells.filled(columns.columns, plain, places))
                total.add(coded[key], start)
        return [total.statistics for total in totals]


def without_gaps(z: np.ndarray) -> np.ndarray:
    """Renumber a partition to labels 0..K-1, none empty."""
    used = np.bincount(z) > 0
    return z if used.all() else (np.cumsum(used) - 1)[z]


def narrow(z: np.ndarray) -> np.ndarray:
    """Convert labels to the smallest sufficient integer type."""
    return z.astype(np.min_scalar_type(int(z.max())))
