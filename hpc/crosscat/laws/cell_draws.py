"""Draws of cells from the clusters of a view, for missing cells and synthetic rows, given the known cells.

The cells of a row are drawn together, given its cluster. Either each cell has the predictive law of its cluster, with
parameters integrated out, or parameters are drawn once for all cells, so that the variation between copies of a table
reflects the uncertainty of estimates.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, cast

import numpy as np

from mpibayes.hpc.components.grid import pick_on_grid
from mpibayes.hpc.components.single import one_uniform
from mpibayes.hpc.components.statistics import empty, join
from mpibayes.hpc.crosscat.laws import reach
from mpibayes.hpc.crosscat.laws.blocks import BlockLaw, JointLaw
from mpibayes.hpc.crosscat.laws.branches import branches_of
from mpibayes.hpc.crosscat.laws.view_law import ViewLaw
from mpibayes.hpc.crosscat.laws.within import draw_within, number_within
from mpibayes.hpc.crosscat.lines.law import LineLaw, line_laws
from mpibayes.hpc.data.events import Known
from mpibayes.hpc.links import bins
from mpibayes.hpc.links.law import TreeLaw
from mpibayes.hpc.links.linked import Branch
from mpibayes.hpc.parallel.streams import Stream
from mpibayes.io import recording
from mpibayes.io.rows import Column

CLUSTER = 2**31  # sub-stream of a row's cluster, apart from those of the kinds of columns


class CellDraws:
    """Draws from the clusters of `view`. parameters: stream of the parameters, which all cells of a cluster then share;
    None: parameters are integrated out for each cell. more: number of empty clusters appended."""

    def __init__(self, view: ViewLaw, parameters: Stream | None = None, more: int = 0):
        self.view, self.more, self._shared = view, more, parameters is not None
        self._drawn: dict[str, Any] = {}
        s, self._lines = view.statistics, view.all_lines
        statistics = join([s, empty(s, more)]) if more else s
        if more and view.all_lines:
            assert view.coding is not None
            self._lines = line_laws(view.components, view.hyper, statistics, view.coding, view.key)
        if parameters is not None:
            for kind in view.components.kinds:
                if len(kind):
                    self._drawn[kind.name] = kind.drawn(
                        getattr(view.hyper, kind.hyper), statistics.of(kind), parameters
                    )

    def clusters(self, known: Known, stream: Stream, ids: np.ndarray) -> np.ndarray:
        """Draw the cluster of each row given its known cells, (n,). ids (n,): of the rows, in the stream."""
        return pick_on_grid(self.view.scores(known), replace(stream, sub=CLUSTER).uniforms(ids))

    def cells(
        self, names: Collection[str], known: Known, cluster: np.ndarray, stream: Stream, ids: np.ndarray,
        without: Mapping[str, np.ndarray] | None = None,
    ) -> dict[str, np.ndarray]:  # fmt: skip
        """Return recorded values (n,) of columns, level codes or numbers: the known ones, or draws given the row's
        cluster (n,) and its known cells. without: by column, a mask of its atoms; masked atoms are replaced by draws of
        other numbers."""
        result: dict[str, np.ndarray] = {}
        without = without or {}
        for block in self.view.blocks:
            inside = {name for name in block.names if name in names}
            if inside:
                result |= self._in_block(block, known, inside, cluster, stream, ids, without)
        for name in sorted(set(names).difference(result)):
            result[name] = self.single(name, known, cluster, stream, ids, without)
        return result

    def single(
        self, name: str, known: Known, cluster: np.ndarray, stream: Stream, ids: np.ndarray,
        without: Mapping[str, np.ndarray],
    ) -> np.ndarray:  # fmt: skip
        """Return recorded values (n,) of a column that depends on no other within clusters; arguments as in `cells`."""
        x = self._single(name, cluster, stream, ids, without.get(name))
        if name in known.of:
            given = draw_within(self.view, *known.of[name], cluster, stream, ids, self._law)
            x = np.where(np.isnan(given), x, given)
        return x

    def _single(
        self, name: str, cluster: np.ndarray, stream: Stream, ids: np.ndarray, without: np.ndarray | None
    ) -> np.ndarray:
        """Draw recorded values (n,) of a column outside blocks from each row's cluster."""
        _, which = self.view.columns_of(name)
        code = None if which is None else self._column(which, cluster, stream, ids)
        if code is not None and without is not None:
            code = _none_of(without, code.astype(np.intp))
        x, (kind, c) = self._column(name, cluster, stream, ids), self.view.place[name]
        column = kind.members(c)[0]
        return recording.recorded(column, code, x) if column.kind == "real" else x

    def _column(self, name: str, cluster: np.ndarray, stream: Stream, ids: np.ndarray) -> np.ndarray:
        """Draw values (n,) of a column of the model: codes, or numbers in the model's units."""
        (kind, c), none = self.view.place[name], np.zeros(0, np.intp)
        law = self._law(kind)
        x: np.ndarray = law.draw(c, np.zeros((len(ids), 0)), none, np.zeros(1, np.intp), cluster, stream, ids)[:, 0]
        if kind.name in self._drawn and kind.name == "normal":
            again = replace(stream, sub=kind.substreams[1])
            x = reach.drawn_again(law, c, kind.members(c)[0], x, cluster, again, ids)
        return x

    def _law(self, kind: Any) -> Any:
        return self._drawn.get(kind.name) or self.view.law(kind)

    def _masses(self, column: Column) -> np.ndarray:
        """Return the probabilities of a numeric column's bins in every cluster, (B, K + 1)."""
        kind, c = self.view.place[column.name]
        return bins.masses(column, self._law(kind), c)

    def _in_block(
        self, block: JointLaw, known: Known, names: set[str], cluster: np.ndarray, stream: Stream, ids: np.ndarray,
        without: Mapping[str, np.ndarray],
    ) -> dict[str, np.ndarray]:  # fmt: skip
        """Return recorded values (n,) of the named columns of a block: the known ones, or draws given them."""
        outcome = self.view.outcome
        if outcome is not None and outcome.names == block.names:
            return outcome.drawn(self, known, names, cluster, stream, ids, without)
        if isinstance(block, TreeLaw):
            return self._in_tree(block, known, names, cluster, stream, ids, without)
        if isinstance(block, LineLaw):
            same = next(laws[0] for _, laws in self._lines if laws[0].names == block.names)
            bounded = same.columns if self._shared else ()
            return reach.rows_within(same.drawn, bounded, known, names, cluster, stream, ids)
        kind, b = self.view.components.multinormal, self.view.blocks.index(block)
        columns = {c.name: c for c in kind.members(b)}

        def draw(*of: Any) -> dict[str, np.ndarray]:
            drawn = cast(BlockLaw, block).draw(self._law(kind), b, *of)
            return {name: recording.recorded(columns[name], None, x) for name, x in drawn.items()}

        bounded = kind.members(b) if self._shared else ()
        return reach.rows_within(draw, bounded, known, names, cluster, stream, ids)

    def _in_tree(
        self,
        tree: TreeLaw,
        known: Known,
        names: set[str],
        cluster: np.ndarray,
        stream: Stream,
        ids: np.ndarray,
        without: Mapping[str, np.ndarray],
    ) -> dict[str, np.ndarray]:
        codes, result = self.in_tree(tree, known, names, cluster, stream, ids)
        for name, code in codes.items():
            number = tree.number(name)
            if number is not None:
                result[name] = self._number(number, code, known, cluster, stream, ids, without.get(name))
                continue
            result[name] = code.astype(np.float64)
            if self.view.columns_of(name)[1] is not None:
                if name in without:
                    code = _none_of(without[name], code)
                kind, c = self.view.place[name]
                x = self._column(name, cluster, stream, ids)
                result[name] = recording.recorded(kind.members(c)[0], code, x)
                if name in known.of:
                    column = known.of[name][0].column
                    given = number_within(self.view, *known.of[name], cluster, stream, ids)
                    result[name] = np.where((code == len(column.atoms)) & ~np.isnan(given), given, result[name])
        return result

    def in_tree(
        self, tree: TreeLaw, known: Known, names: Collection[str], cluster: np.ndarray, stream: Stream, ids: np.ndarray
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """See `TreeLaw.draw`."""
        drawn = self._drawn.get("categorical")
        tables = tree.tables if drawn is None else tree.drawn_tables(drawn, self._masses)
        return tree.draw(tables, known, names, cluster, stream, ids, self._branches(tree))

    @property
    def levels(self) -> Any:
        """Law of the columns with levels, whose parameters are drawn; None without such columns."""
        return self._drawn.get("categorical")

    def with_levels(self, theta: np.ndarray) -> CellDraws:
        """Return a copy with other level probabilities (L, K + 1)."""
        law, result = copy(self.levels), copy(self)
        law.theta = theta
        result._drawn = {**self._drawn, "categorical": law}
        return result

    def _branches(self, tree: TreeLaw) -> list[Branch]:
        """Return the numeric columns below a tree, with the parameters that cells share."""
        coding = self.view.coding
        if not tree.branches or coding is None:
            return []
        of = self.view.components, self._law, self._lines
        return branches_of(tree.linked, coding, *of, self._shared)

    def _number(
        self,
        column: Column,
        code: np.ndarray,
        known: Known,
        cluster: np.ndarray,
        stream: Stream,
        ids: np.ndarray,
        without: np.ndarray | None,
    ) -> np.ndarray:
        """Return recorded values (n,) of a numeric column that others depend on, given each row's atom or bin. without:
        mask of its atoms."""
        n_atoms, ends = len(column.atoms), bins.bounds(column)
        low, high = (np.append(np.full(n_atoms, np.nan), end)[code] for end in ends)
        if without is not None:  # the number is drawn from all bins
            left_out = np.append(without, np.zeros(len(ends[0]), bool))[code]
            low, high = np.where(left_out, ends[0][0], low), np.where(left_out, ends[1][-1], high)
            code = np.where(left_out, n_atoms, code)
        number = np.flatnonzero(code >= n_atoms)
        kind, c = self.view.place[column.name]
        given = np.full(len(code), np.nan)
        if column.name in known.of:
            events, which = known.of[column.name]
            subset = np.flatnonzero((which < len(events)) & (code >= n_atoms))
            low[subset], high[subset] = (
                np.fmax(low[subset], events.low[which[subset]]),
                np.fmin(high[subset], events.high[which[subset]]),
            )
            if events.sets is None:  # a known value, unless the event is unbounded
                first, last = events.low[which[subset]], events.high[which[subset]]
                given[subset] = np.where(np.isfinite(first) & np.isfinite(last), 0.5 * (first + last), np.nan)
        x = np.zeros(len(code))
        if len(number):
            u = one_uniform(stream, kind.substreams[0], c, ids[number])
            y = [low[number], high[number]]
            if column.kind == "real":
                with np.errstate(divide="ignore", invalid="ignore"):
                    y = [recording.coordinate(column, np.maximum(end, 0.0) if column.log else end) for end in y]
                if kind.name in self._drawn:
                    y = [np.clip(end, *reach.range_of(kind.members(c)[0])) for end in y]
            x[number] = self._law(kind).within(c, cluster[number], *y, u)
        if column.kind == "real":
            x = recording.recorded(column, np.minimum(code, n_atoms) if n_atoms else None, x)
        return np.where(np.isnan(given), x, given)


def _none_of(without: np.ndarray, code: np.ndarray) -> np.ndarray:
    """Replace the codes (n,) of masked atoms by the code of no atom."""
    return np.where(np.append(without, False)[code], len(without), code)
