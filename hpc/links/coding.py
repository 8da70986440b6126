"""Cells of linked columns as the kernels read them: codes of the parent's context and the column's own level.

A column with levels that leans on a parent of U contexts has U (V + 1) codes: u (V + 1) + v for its level v where the
parent is in context u, and the last one where its own cell is missing. The sampler gives cells of the parent that are
missing levels (`gaps`). Columns of more than 256 codes lie among the 16-bit ones. A number that leans on a column with
levels has a column of cells for each context, in which the rows of other contexts lack theirs. A real column in a line
with its parent lies among the vectors, behind a copy of the parent's cells (docs/math.md 1.10).
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

NUMBERS = "reals", "tallies"
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

    def child(column: Column) -> Column:
        named = [links[column.name]] if not isinstance(links, str) and column.name in links else []
        above = [c.name for c in columns if c.levels] if links == "forest" else named
        return replace(column, contexts=max((sizes[name] for name in above), default=1))

    return [linked(c) if c.levels else child(c) if c.child else c for c in columns]


def _block(column: Column, n_contexts: int) -> str:
    """The array that has the cells of a column with so many contexts."""
    return STORED[column.kind][0 if n_contexts * (len(column.levels) + 1) <= 256 else -1]


def number_in(rows: Rows, column: Column, at: np.ndarray | slice = slice(None)) -> np.ndarray:
    """Cells of a column of numbers in some coded rows, (n,), NaN where they are missing."""
    cells = getattr(rows, column.block)[at, column.index : column.index + column.contexts]
    if column.contexts == 1:
        return cells[:, 0]
    return np.take_along_axis(cells, np.argmax(~np.isnan(cells), axis=1)[:, None], axis=1)[:, 0]


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
        taken = dict.fromkeys((*CODES, *NUMBERS), 0)
        first = sum(column.block == "vectors" for column in self.plain)
        result, contexts = list(self.plain), [self.n_contexts_of(c) for c in range(len(self.plain))]
        for c, column in enumerate(self.plain):
            n, parent = contexts[c], int(self.parents[c])
            if column.levels:
                block = _block(column, n)
                result[c] = replace(column, contexts=n, block=block, index=taken[block])
                taken[block] += 1
            elif c in self.in_lines:
                result[c] = replace(column, leans_on=self.plain[parent], block="vectors", index=first + 1)
                first += 2
        of_numbers = [c for c, column in enumerate(self.plain) if column.block in NUMBERS and c not in self.in_lines]
        for c in sorted(of_numbers, key=lambda c: contexts[c] > 1):  # a stable order: those in contexts come last
            block = self.plain[c].block
            result[c] = replace(self.plain[c], contexts=contexts[c], index=taken[block])
            taken[block] += contexts[c]
        return tuple(result)

    def n_contexts_of(self, place: int) -> int:
        """Contexts that a column, by its place, has by its parent."""
        parent = int(self.parents[place])
        if parent == ROOT or place in self.in_lines:
            return 1
        return int(self.contexts[self.plain[parent].name].max()) + 1

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
        forth = after is self.columns
        numbers = self._apart(rows) if forth and self.in_contexts else {}
        if not forth and (self.in_lines or self.in_contexts):
            numbers = self._together(rows)
        if self.in_lines:
            rows = self._in_vectors(rows) if forth else self._out_of_vectors(rows)
        return replace(rows, **codes, **numbers)

    def _apart(self, rows: Rows) -> dict[str, np.ndarray]:
        """Cells of numbers of plain rows, those of columns in contexts apart."""
        result = {}
        for block in NUMBERS:
            columns = [(c, old, new) for c, (old, new) in enumerate(self._pairs) if new.block == block]
            cells = result[block] = np.full((len(rows), sum(new.contexts for _, _, new in columns)), np.nan)
            for c, old, new in columns:
                x = getattr(rows, block)[:, old.index]
                if c not in self.in_contexts:
                    cells[:, new.index] = x
                    continue
                context = self.context(int(self.parents[c]), rows)
                there = np.flatnonzero(context >= 0)
                cells[there, new.index + context[there]] = x[there]
        return result

    def _together(self, rows: Rows) -> dict[str, np.ndarray]:
        """Cells of numbers of coded rows, as plain rows have them."""
        result = {}
        for block in NUMBERS:
            columns = [(old, new) for old, new in self._pairs if old.block == block]
            cells = result[block] = np.empty((len(rows), len(columns)))
            for old, new in columns:
                cells[:, old.index] = number_in(rows, new)
        return result

    def _in_vectors(self, rows: Rows) -> Rows:
        """Rows with the columns in lines, plain ones, put into `vectors`, each behind its parent."""
        at = [self.plain[c].index for child in self.in_lines for c in (int(self.parents[child]), child)]
        alone = sorted((new.index, old.index) for old, new in self._pairs if new.block == "reals")
        return replace(
            rows, reals=np.ascontiguousarray(rows.reals[:, [old for _, old in alone]]),
            vectors=np.concatenate([rows.vectors, rows.reals[:, at]], axis=1),
            widths=np.append(rows.widths, np.full(len(self.in_lines), 2)),
        )  # fmt: skip

    def _out_of_vectors(self, rows: Rows) -> Rows:
        """Rows without the vectors of columns in lines."""
        n = len(self.in_lines)
        vectors = np.ascontiguousarray(rows.vectors[:, : rows.vectors.shape[1] - 2 * n])
        return replace(rows, vectors=vectors, widths=rows.widths[: len(rows.widths) - n])

    @cached_property
    def in_lines(self) -> list[int]:
        """Places of the columns that lean on others in a line."""
        return [c for c in self._numbers_below if not self.plain[self.parents[c]].levels]

    @cached_property
    def in_contexts(self) -> list[int]:
        """Places of the columns of numbers that lean on others with levels."""
        return [c for c in self._numbers_below if self.plain[self.parents[c]].levels]

    @property
    def _numbers_below(self) -> list[int]:
        """Places of the columns of numbers that lean on others."""
        return [c for c in np.flatnonzero(self.parents != ROOT).tolist() if not self.plain[c].levels]

    @cached_property
    def children(self) -> list[int]:
        """Places of the columns of numbers that may lean on others with levels."""
        return [c for c, column in enumerate(self.plain) if column.child]

    @cached_property
    def leaning(self) -> list[int]:
        """Places of the columns of numbers that may lean on others."""
        return sorted({*self.lines, *self.children})

    @property
    def _pairs(self):
        return zip(self.plain, self.columns)

    @cached_property
    def lines(self) -> list[int]:
        """Places of the columns that may lean on each other in a line."""
        return [c for c, column in enumerate(self.plain) if column.line]

    @cached_property
    def of_levels(self) -> np.ndarray:
        """`parents` of the columns with levels, ROOT for the others."""
        return np.where([bool(column.levels) for column in self.plain], self.parents, ROOT)

    @cached_property
    def of_contexts(self) -> np.ndarray:
        """`parents` of the columns whose parents give them contexts, ROOT for the others."""
        return np.where(np.isin(np.arange(len(self.plain)), self.in_lines), ROOT, self.parents)

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
        return len(self.levelled) + len(self.numbers) + len(self.leaning)

    @cached_property
    def levelled(self) -> list[Column]:
        """The columns with levels that may be linked."""
        return [column for column in self.plain if column.levels] if self.contexts else []

    def _level(self, rows: Rows, place: int, code: np.ndarray) -> np.ndarray:
        return code % np.int64(len(self.columns[place].levels) + 1)

    def lacks_a_parent(self, rows: Rows) -> np.ndarray:
        """Mask of the rows, plain, in which a cell is there and its parent's is not, bool (n,)."""
        lacks = np.zeros(len(rows), bool)
        for child, parent in enumerate(self.of_contexts.tolist()):
            if parent != ROOT:
                c, missing = self.plain[child], self.context(parent, rows) < 0
                if missing.any():
                    lacks |= missing & ~c.is_missing(getattr(rows, c.block)[:, c.index])
        return lacks
