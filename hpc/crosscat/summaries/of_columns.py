"""A subset of a run's columns, and a draw restricted to one view and these columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.crosscat.columns.cells import places, renumbered
from mpibayes.hpc.crosscat.summaries.tallies import Tallies
from mpibayes.hpc.data.rows import take_columns
from mpibayes.hpc.links.coding import Coding, parents_of
from mpibayes.hpc.links.forest import ROOT
from mpibayes.hpc.links.gaps import NO_CELLS, Cells
from mpibayes.io.rows import Column, Rows

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.draws import Draw, Posterior


@dataclass(frozen=True)
class ViewDraw:
    """One view of a draw. labels: int64 (N,), 0..K-1, none empty; cells: missing cells that are part of the draw."""

    cycle: int
    labels: np.ndarray
    hyper: Hyper
    cells: Cells = NO_CELLS


class OfColumns(Tallies):
    """A subset of a run's columns, by the table's names, with all columns made from each.

    places: of these columns in each array of the run's rows (see `data.rows.take_columns`). parents: of all the run's
    columns, see `Draw`; `coding` has the links of these columns.
    """

    def __init__(
        self, run: Posterior, names: Sequence[str], given: Mapping, joint: Mapping[str, Mapping],
        parents: np.ndarray | None = None,
    ):  # fmt: skip
        self.run, self.names, self.n_rows = run, tuple(names), run.n_rows
        chosen_names = set(names)
        chosen = [c for c in run.columns if (c.part_of or c.name) in chosen_names]
        self.all = len(chosen) == len(run.columns)
        self.columns: Sequence[Column] = run.columns if self.all else renumbered(chosen)
        blocks = {name: of for name, of in joint.items() if set(of["columns"]) <= chosen_names}
        self.coding = self._coding(chosen, parents)
        self.components, self.places = Components(self.coding.columns, given, blocks), places(chosen, joint)
        place = {name: i for kind in run.components.kinds for i, name in enumerate(_names(kind))}
        self._hyper = {  # by kind, places of these columns' hyperparameters among those of all columns
            kind.name: np.array([place[name] for name in _names(kind)], np.intp)
            for kind in self.components.kinds
            if not self.coding.in_lines
        }

    def _coding(self, chosen: Sequence[Column], parents: np.ndarray | None) -> Coding:
        """Return the links between the chosen columns, whose parents are chosen, too."""
        if parents is None or not (parents != ROOT).any():
            return Coding(self.columns, np.full(len(chosen), ROOT), {})
        all_names, names = [c.name for c in self.run.columns], {c.name for c in chosen}
        parent_of = {name: all_names[p] for name, p in zip(all_names, parents.tolist()) if p != ROOT and name in names}
        return Coding(self.columns, parents_of(self.columns, parent_of), self.run.contexts)

    def take(self, rows: Rows) -> Rows:
        """Take these columns from rows of all the run's columns."""
        return rows if self.all else take_columns(rows, self.places)

    def coded(self, rows: Rows) -> Rows:
        return self.coding.coded(rows)

    def slices(self) -> Iterator[tuple[int, Rows]]:
        return ((start, self.take(rows)) for start, rows in self.run.slices())

    def seen_by(self, draw: Draw, view: int) -> ViewDraw:
        """Return one view of a draw, with these columns' hyperparameters."""
        alpha, d = draw.process[view]
        if self.coding.in_lines:
            hyper = self.components.hyper(alpha, d, self.run.components.by_column(draw.hyper))
        else:
            hyper = replace(draw.hyper.take(self._hyper), concentration=alpha, discount=d)
        return ViewDraw(draw.cycle, draw.labels[view], hyper)

    def nearest_view(self, draw: Draw) -> int:
        """Return the view of a draw that has most of these columns; the first on a tie."""
        if len(draw.labels) == 1:
            return 0
        names = set(self.names)
        mine = [v for c, v in zip(self.run.data.stored, draw.view_of.tolist()) if c.name in names]
        return int(np.bincount(mine, minlength=len(draw.labels)).argmax())

    def is_view(self, draw: Draw) -> bool:
        """True if these columns, and no others, are a view of a draw."""
        return set(self.run.names_in(draw, self.nearest_view(draw))) == set(self.names)

    def states(self, requested: Sequence[tuple[int, int]] | None = None) -> Iterator[tuple[int, ViewDraw]]:
        """Yield (number of the chain, `nearest_view` of the draw); see `Posterior.states`."""
        return ((i, self.seen_by(draw, self.nearest_view(draw))) for i, draw in self.run.states(requested))


def _names(kind) -> list[str]:
    """Return the names of a kind's columns, or of the first column of each of its blocks."""
    return [kind.members(c)[0].name for c in range(len(kind))]
