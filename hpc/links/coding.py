"""Cells of linked columns as the kernels read them: codes of the parent's context and the column's own level.

A column with levels that leans on a parent of U contexts has U (V + 1) codes: u (V + 1) + v for its level v where the
parent is in context u, and the last one where its own cell is missing. The sampler gives cells of the parent that are
missing levels (`gaps`). Columns of more than 256 codes lie among the 16-bit ones. A real column in a line with its
parent lies among the vectors, behind a copy of the parent's cells (docs/math.md 1.10).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from mpibayes.hpc.data.bins import N_BINS
from mpibayes.hpc.links.bins import contexts_in, n_contexts, which_of
from mpibayes.hpc.links.contexts import MOST_CONTEXTS
from mpibayes.hpc.links.forest import ROOT
from mpibayes.io.rows import CODES, STORED, Column, Rows

MOST_CODES = 65_536  # of a column with the contexts of its parent


def parents_of(columns: Sequence[Column], parent_of: Mapping[str, str]) -> np.ndarray:
    """The place among `columns` of each column's parent, (C,) int64, ROOT for none; parent_of: by name."""
    place = {column.name: i for i, column in enumerate(columns)}
    return np.array([place[parent_of[c.name]] if c.name in parent_of else ROOT for c in columns], np.int64)


def may_lean(child: Column, parent: Column) -> bool:
    """True if a column can lean on another one."""
    both, n = bool(child.levels) and bool(parent.levels), min(len(parent.levels), MOST_CONTEXTS)
    return both and n * (len(child.levels) + 1) <= MOST_CODES


def widest_links(columns: Sequence[Column], links: str | Mapping[str, str]) -> list[Column]:
    """The columns with as many contexts as links may give them: those of their parents by name, or where links are
    learned of the widest column that each could lean on."""
    sizes = {c.name: min(len(c.levels), MOST_CONTEXTS) for c in columns if c.levels}
    sizes |= {
        c.name: n_contexts(c) if c.cuts else N_BINS + len(c.atoms) for c in columns if c.kind in ("real", "count")
    }

    def contexts(column: Column) -> int:
        if isinstance(links, str):
            others = [n for name, n in sizes.items() if name != column.name] if links == "forest" else []
        else:
            others = [sizes[links[column.name]]] if column.name in links else []
        return max((n for n in others if n * (len(column.levels) + 1) <= MOST_CODES), default=1)

    def linked(column: Column) -> Column:
        n = contexts(column)
        return replace(column, contexts=n, block=_block(column, n))

    return [linked(c) if c.levels else c for c in columns]


def _block(column: Column, n_contexts: int) -> str:
    """The array that has the cells of a column with so many contexts."""
    return STORED[column.kind][0 if n_contexts * (len(column.levels) + 1) <= 256 else -1]


class Coding:
    """The columns of a model under a forest of links. No number that is in a line is a parent by its bins.

    plain: the columns without links, in the table's order. parents (C,) int64: the place in `plain` of each column's
    parent, ROOT for none. contexts: of each column that may be a parent, by name, the context of each of its levels.
    """

    def __init__(self, plain: Sequence[Column], parents: np.ndarray, contexts: Mapping[str, np.ndarray]):
        self.plain, self.parents, self.contexts = tuple(plain), np.asarray(parents, np.int64), contexts
        self.columns = self._coded()

    def with_parents(self, parents: np.ndarray) -> Coding:
        """The same columns under another forest."""
        return Coding(self.plain, parents, self.contexts)

    @property
    def linked(self) -> bool:
        """True if there is a link."""
        return bool((self.parents != ROOT).any())

    @cached_property
    def parent_of(self) -> dict[str, str]:
        """The parent of each column that has one, by name."""
        pairs = zip(self.plain, self.parents.tolist())
        return {column.name: self.plain[parent].name for column, parent in pairs if parent != ROOT}

    @cached_property
    def order(self) -> list[int]:
        """The places of all columns, parents before the columns that lean on them."""
        result = [c for c, parent in enumerate(self.parents.tolist()) if parent == ROOT]
        for place in result:  # which grows
            result += np.flatnonzero(self.parents == place).tolist()
        return result

    def _coded(self) -> tuple[Column, ...]:
        """The columns with their contexts, and with the places of their cells."""
        if not self.linked:
            return self.plain
        taken = dict.fromkeys((*CODES, "reals"), 0)
        first = sum(column.block == "vectors" for column in self.plain)
        result = []
        for column, parent in zip(self.plain, self.parents.tolist()):
            if not column.levels:
                if column.block == "reals" and parent != ROOT:
                    place = {"block": "vectors", "index": first + 1}
                    result.append(replace(column, leans_on=self.plain[parent], **place))
                    first += 2
                elif column.block == "reals":
                    result.append(replace(column, index=taken["reals"]))
                    taken["reals"] += 1
                else:
                    result.append(column)
                continue
            n = 1 if parent == ROOT else int(self.contexts[self.plain[parent].name].max()) + 1
            block = _block(column, n)
            result.append(replace(column, contexts=n, block=block, index=taken[block]))
            taken[block] += 1
        return tuple(result)

    def coded(self, rows: Rows) -> Rows:
        """Rows of the plain columns, coded. A child whose parent's cell is missing becomes missing (see
        `lacks_a_parent`)."""
        return self._arranged(rows, self.plain, self.columns, self._code) if self.linked else rows

    def decoded(self, rows: Rows) -> Rows:
        """The inverse of `coded`."""
        return self._arranged(rows, self.columns, self.plain, self._level) if self.linked else rows

    def _arranged(self, rows: Rows, before: Sequence[Column], after: Sequence[Column], cells) -> Rows:
        """Rows with the cells of all columns with levels anew, each made by `cells`."""
        width = {block: sum(c.block == block for c in after) for block in CODES}
        codes = {block: np.empty((len(rows), n), CODES[block]) for block, n in width.items()}
        for place, (old, new) in enumerate(zip(before, after)):
            if new.levels:
                codes[new.block][:, new.index] = cells(rows, place, getattr(rows, old.block)[:, old.index])
        rows = replace(rows, **codes)
        if not self.in_lines:
            return rows
        return self._in_vectors(rows) if after is self.columns else self._in_reals(rows)

    def _in_vectors(self, rows: Rows) -> Rows:
        """Rows with the columns in lines, plain ones, put into `vectors`, each behind its parent."""
        at = [self.plain[c].index for child in self.in_lines for c in (int(self.parents[child]), child)]
        alone = [old.index for old, new in zip(self.plain, self.columns) if new.block == "reals"]
        return replace(
            rows, reals=np.ascontiguousarray(rows.reals[:, alone]),
            vectors=np.concatenate([rows.vectors, rows.reals[:, at]], axis=1),
            widths=np.append(rows.widths, np.full(len(self.in_lines), 2)),
        )  # fmt: skip

    def _in_reals(self, rows: Rows) -> Rows:
        """The inverse of `_in_vectors`."""
        n = len(self.in_lines)
        reals = np.empty((len(rows), rows.reals.shape[1] + n))
        for old, new in zip(self.columns, self.plain):
            if new.block == "reals":
                reals[:, new.index] = getattr(rows, old.block)[:, old.index]
        vectors = np.ascontiguousarray(rows.vectors[:, : rows.vectors.shape[1] - 2 * n])
        return replace(rows, reals=reals, vectors=vectors, widths=rows.widths[: len(rows.widths) - n])

    @cached_property
    def in_lines(self) -> list[int]:
        """Places of the columns that lean on others in a line."""
        return [c for c, parent in enumerate(self.parents.tolist()) if parent != ROOT and not self.plain[c].levels]

    @cached_property
    def lines(self) -> list[int]:
        """Places of the columns that may lean on each other in a line."""
        return [c for c, column in enumerate(self.plain) if column.line]

    @cached_property
    def of_levels(self) -> np.ndarray:
        """`parents` of the columns with levels, ROOT for the others."""
        return np.where([bool(column.levels) for column in self.plain], self.parents, ROOT)

    def _code(self, rows: Rows, place: int, level: np.ndarray) -> np.ndarray:
        parent, column = int(self.parents[place]), self.columns[place]
        if parent == ROOT:
            return level
        n = len(column.levels)
        context = self.context(parent, rows)
        code = context * np.int64(n + 1) + level
        return np.where((level == n) | (context < 0), column.blank, code)

    def context(self, parent: int, rows: Rows) -> np.ndarray:
        """Context of a parent, by its place, in plain rows, (n,); -1 where its cell is missing."""
        of = self.plain[parent]
        if not of.levels:
            which = self.which(parent)
            return contexts_in(of, None if which == ROOT else self.plain[which], rows)
        return np.append(self.contexts[of.name], -1)[getattr(rows, of.block)[:, of.index]]

    def number_context(self, parent: int, rows: Rows) -> np.ndarray:
        """The same of a number in coded rows."""
        which = self.which(parent)
        return contexts_in(self.columns[parent], None if which == ROOT else self.columns[which], rows)

    @cached_property
    def numbers(self) -> list[int]:
        """Places of the columns of numbers that others may lean on."""
        return [i for i, column in enumerate(self.plain) if not column.levels and column.name in self.contexts]

    def which(self, number: int) -> int:
        """The place of the column that says which atom a number is, by its place; ROOT for none."""
        place = which_of(self.plain, self.plain[number])
        return ROOT if place is None else place

    @property
    def n_nodes(self) -> int:
        """Columns that may lean on others, or others on them."""
        return len(self.levelled) + len(self.numbers) + len(self.lines)

    @cached_property
    def levelled(self) -> list[Column]:
        """The columns with levels that may be linked."""
        return [column for column in self.plain if column.levels] if self.contexts else []

    def _level(self, rows: Rows, place: int, code: np.ndarray) -> np.ndarray:
        return code % np.int64(len(self.columns[place].levels) + 1)

    def lacks_a_parent(self, rows: Rows) -> np.ndarray:
        """Mask of the rows, plain, in which a cell is there and its parent's is not, bool (n,)."""
        lacks = np.zeros(len(rows), bool)
        for child, parent in enumerate(self.of_levels.tolist()):
            if parent != ROOT:
                c, missing = self.plain[child], self.context(parent, rows) < 0
                if missing.any():
                    lacks |= missing & ~c.is_missing(getattr(rows, c.block)[:, c.index])
        return lacks
