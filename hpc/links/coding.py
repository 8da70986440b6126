"""Cells of linked columns as the kernels read them: codes that combine the parent's context and the column's level.

A column with levels whose parent has U contexts has U (V + 1) codes: u (V + 1) + v for level v where the parent is in
context u, and the last one where its own cell is missing. Two parents of U and U' contexts have U U' together. The
sampler imputes missing cells of the parent (`gaps`).
Columns of more than 256 codes are stored with the 16-bit ones. A numeric column that depends on a column with levels
has a column of cells for each context, missing in rows of other contexts. A real column in a line with its parent is
stored in `vectors`, behind a copy of the parent's cells (docs/math.md 1.10).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import prod

import numpy as np

from mpibayes.hpc.data.bins import MOST_CONTEXTS, N_BINS
from mpibayes.hpc.links.bins import contexts_in, n_contexts, which_of
from mpibayes.hpc.links.forest import ROOT, log_prior
from mpibayes.io.rows import CODES, STORED, Column, Rows

NUMBERS = "reals", "tallies"
MOST_CODES = 65_536  # largest number of codes of a column in the contexts of its parent


def parents_of(columns: Sequence[Column], parent_of: Mapping[str, str]) -> np.ndarray:
    """Index in `columns` of each column's parent, (C,) int64, ROOT for none. parent_of: child name to parent name."""
    place = {column.name: i for i, column in enumerate(columns)}
    return np.array([place[parent_of[c.name]] if c.name in parent_of else ROOT for c in columns], np.int64)


def may_lean(child: Column, parent: Column) -> bool:
    """True if `child` may depend on `parent`."""
    both, n = bool(child.levels) and bool(parent.levels), min(len(parent.levels), MOST_CONTEXTS)
    return both and n * (len(child.levels) + 1) <= MOST_CODES


def widest_links(columns: Sequence[Column], links: str | Mapping[str, str]) -> list[Column]:
    """Return the columns with the most contexts that links can give them: those of the named parent, or if links are
    learned, of the widest column that each could depend on."""
    sizes = {c.name: min(len(c.levels), MOST_CONTEXTS) for c in columns if c.levels}
    sizes |= {
        c.name: n_contexts(c) if c.cuts else N_BINS + len(c.atoms) for c in columns if c.kind in ("real", "count")
    }

    def contexts(column: Column) -> int:
        if isinstance(links, str):
            others = [n for name, n in sizes.items() if name != column.name] if links == "forest" else []
        else:
            above = [links[column.name], *filter(None, [column.second])] if column.name in links else []
            others = [min(prod(sizes[name] for name in above), MOST_CONTEXTS)] if above else []
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
    """Name of the array that stores a column with `n_contexts` contexts."""
    return STORED[column.kind][0 if n_contexts * (len(column.levels) + 1) <= 256 else -1]


def number_in(rows: Rows, column: Column, at: np.ndarray | slice = slice(None)) -> np.ndarray:
    """Cells of a numeric column in coded rows `at`, (n,), NaN where missing."""
    cells = getattr(rows, column.block)[at, column.index : column.index + column.contexts]
    if column.contexts == 1:
        return cells[:, 0]
    return np.take_along_axis(cells, np.argmax(~np.isnan(cells), axis=1)[:, None], axis=1)[:, 0]


class Coding:
    """The columns of a model under a forest of links. A number in a line is never a parent by its bins.

    plain: the columns without links, in the table's order. parents (C,) int64: index in `plain` of each column's
    parent, ROOT for none. contexts: the context of each level of every column that may be a parent, by name.
    """

    def __init__(self, plain: Sequence[Column], parents: np.ndarray, contexts: Mapping[str, np.ndarray]):
        self.plain, self.parents, self.contexts = tuple(plain), np.asarray(parents, np.int64), contexts
        self.columns = self._coded()

    def with_parents(self, parents: np.ndarray) -> Coding:
        """Return a coding of the same columns under another forest."""
        return Coding(self.plain, parents, self.contexts)

    @property
    def linked(self) -> bool:
        """True if any column has a parent."""
        return bool((self.parents != ROOT).any())

    @cached_property
    def parent_of(self) -> dict[str, str]:
        """Parent name of each column that has a parent."""
        pairs = zip(self.plain, self.parents.tolist())
        return {column.name: self.plain[parent].name for column, parent in pairs if parent != ROOT}

    @cached_property
    def order(self) -> list[int]:
        """Indices of all columns, parents before children."""
        result = [c for c, parent in enumerate(self.parents.tolist()) if parent == ROOT]
        done: set[int] = set()
        for place in result:  # grows while we iterate
            done.add(place)
            result += [child for child in self.children_of.get(place, ()) if done.issuperset(self.above(child))]
        return result

    @cached_property
    def second(self) -> dict[int, int]:
        """Index of the second parent of each column that has two, by its index."""
        place = {column.name: c for c, column in enumerate(self.plain)}
        two = [c for c in np.flatnonzero(self.parents != ROOT).tolist() if self.plain[c].second]
        return {c: place[self.plain[c].second] for c in two}

    def above(self, place: int) -> list[int]:
        """Indices of the parents of a column (by index): none, one or two."""
        first = int(self.parents[place])
        return [] if first == ROOT else [first, *([self.second[place]] if place in self.second else [])]

    @cached_property
    def children_of(self) -> dict[int, list[int]]:
        """Indices of the columns that depend on each column that any depends on."""
        result: dict[int, list[int]] = {}
        for child in range(len(self.plain)):
            for parent in self.above(child):
                result.setdefault(parent, []).append(child)
        return result

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Names of each child and parent, both parents of a column with two."""
        return [(self.plain[c].name, self.plain[p].name) for c in range(len(self.plain)) for p in self.above(c)]

    def _coded(self) -> tuple[Column, ...]:
        """Return the columns with their contexts and the positions of their cells."""
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
        for c in sorted(of_numbers, key=lambda c: contexts[c] > 1):  # stable sort: columns in contexts come last
            block = self.plain[c].block
            result[c] = replace(self.plain[c], contexts=contexts[c], index=taken[block])
            taken[block] += contexts[c]
        return tuple(result)

    def n_contexts_of(self, place: int) -> int:
        """Number of contexts that a column (by index) has through its parents."""
        return 1 if place in self.in_lines else prod(map(self._n_contexts, self.above(place)))

    def _n_contexts(self, parent: int) -> int:
        return int(self.contexts[self.plain[parent].name].max()) + 1

    def crossed(self, place: int, contexts: Sequence[np.ndarray]) -> np.ndarray:
        """Context of a column (by index), (n,), given each parent's, -1 for none; -1 if any parent has none."""
        result = contexts[0]
        for parent, context in zip(self.above(place)[1:], contexts[1:]):
            either = (result < 0) | (context < 0)
            result = np.where(either, -1, result * self._n_contexts(parent) + context)
        return result

    def context_of(self, place: int, rows: Rows) -> np.ndarray:
        """Context of a column (by index) that has parents in plain rows, (n,); -1 where a parent's cell is missing."""
        return self.crossed(place, [self.context(parent, rows) for parent in self.above(place)])

    def coded(self, rows: Rows) -> Rows:
        """Return plain rows in coded form. A child whose parent's cell is missing becomes missing (see
        `lacks_a_parent`)."""
        return self._arranged(rows, self.plain, self.columns, self._code) if self.linked else rows

    def decoded(self, rows: Rows) -> Rows:
        """Invert `coded`."""
        return self._arranged(rows, self.columns, self.plain, self._level) if self.linked else rows

    def _arranged(self, rows: Rows, before: Sequence[Column], after: Sequence[Column], cells) -> Rows:
        """Return rows in which the function `cells` has recoded every column with levels."""
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
        """Numeric cells of plain rows in coded form: one column per context."""
        result = {}
        for block in NUMBERS:
            columns = [(c, old, new) for c, (old, new) in enumerate(self._pairs) if new.block == block]
            cells = result[block] = np.full((len(rows), sum(new.contexts for _, _, new in columns)), np.nan)
            for c, old, new in columns:
                x = getattr(rows, block)[:, old.index]
                if c not in self.in_contexts:
                    cells[:, new.index] = x
                    continue
                context = self.context_of(c, rows)
                there = np.flatnonzero(context >= 0)
                cells[there, new.index + context[there]] = x[there]
        return result

    def _together(self, rows: Rows) -> dict[str, np.ndarray]:
        """Numeric cells of coded rows in plain form."""
        result = {}
        for block in NUMBERS:
            columns = [(old, new) for old, new in self._pairs if old.block == block]
            cells = result[block] = np.empty((len(rows), len(columns)))
            for old, new in columns:
                cells[:, old.index] = number_in(rows, new)
        return result

    def _in_vectors(self, rows: Rows) -> Rows:
        """Move the columns in lines of plain rows into `vectors`, each behind its parent."""
        at = [self.plain[c].index for child in self.in_lines for c in (int(self.parents[child]), child)]
        alone = sorted((new.index, old.index) for old, new in self._pairs if new.block == "reals")
        return replace(
            rows, reals=np.ascontiguousarray(rows.reals[:, [old for _, old in alone]]),
            vectors=np.concatenate([rows.vectors, rows.reals[:, at]], axis=1),
            widths=np.append(rows.widths, np.full(len(self.in_lines), 2)),
        )  # fmt: skip

    def _out_of_vectors(self, rows: Rows) -> Rows:
        """Drop the vectors of columns in lines."""
        n = len(self.in_lines)
        vectors = np.ascontiguousarray(rows.vectors[:, : rows.vectors.shape[1] - 2 * n])
        return replace(rows, vectors=vectors, widths=rows.widths[: len(rows.widths) - n])

    @cached_property
    def in_lines(self) -> list[int]:
        """Indices of the columns that depend on their parent in a line."""
        return [c for c in self._numbers_below if not self.plain[self.parents[c]].levels]

    @cached_property
    def in_contexts(self) -> list[int]:
        """Indices of the numeric columns whose parent has levels."""
        return [c for c in self._numbers_below if self.plain[self.parents[c]].levels]

    @property
    def _numbers_below(self) -> list[int]:
        """Indices of the numeric columns that have a parent."""
        return [c for c in np.flatnonzero(self.parents != ROOT).tolist() if not self.plain[c].levels]

    @cached_property
    def children(self) -> list[int]:
        """Indices of the numeric columns that may depend on a column with levels."""
        return [c for c, column in enumerate(self.plain) if column.child]

    @cached_property
    def leaning(self) -> list[int]:
        """Indices of the numeric columns that may have a parent."""
        return sorted({*self.lines, *self.children})

    @property
    def _pairs(self):
        return zip(self.plain, self.columns)

    @cached_property
    def lines(self) -> list[int]:
        """Indices of the columns that may be linked in lines."""
        return [c for c, column in enumerate(self.plain) if column.line]

    @cached_property
    def of_levels(self) -> np.ndarray:
        """`parents` of the columns with levels, ROOT for other columns."""
        return np.where([bool(column.levels) for column in self.plain], self.parents, ROOT)

    @cached_property
    def of_contexts(self) -> np.ndarray:
        """`parents` of the columns whose parents give them contexts, ROOT for other columns."""
        return np.where(np.isin(np.arange(len(self.plain)), self.in_lines), ROOT, self.parents)

    def _code(self, rows: Rows, place: int, level: np.ndarray) -> np.ndarray:
        column = self.columns[place]
        if self.parents[place] == ROOT:
            return level
        n, context = len(column.levels), self.context_of(place, rows)
        code = context * np.int64(n + 1) + level
        return np.where((level == n) | (context < 0), column.blank, code)

    def context(self, parent: int, rows: Rows) -> np.ndarray:
        """Context of a parent (by index) in plain rows, (n,); -1 where its cell is missing."""
        of = self.plain[parent]
        if not of.levels:
            which = self.which(parent)
            return contexts_in(of, None if which == ROOT else self.plain[which], rows)
        return np.append(self.contexts[of.name], -1)[getattr(rows, of.block)[:, of.index]]

    def number_context(self, parent: int, rows: Rows) -> np.ndarray:
        """Context of a numeric parent (by index) in coded rows, (n,); -1 where its cell is missing."""
        which = self.which(parent)
        return contexts_in(self.columns[parent], None if which == ROOT else self.columns[which], rows)

    @cached_property
    def numbers(self) -> list[int]:
        """Indices of the numeric columns that may be parents."""
        return [i for i, column in enumerate(self.plain) if not column.levels and column.name in self.contexts]

    def which(self, number: int) -> int:
        """Index of the column that records which atom a numeric column (by index) is; ROOT for none."""
        place = which_of(self.plain, self.plain[number])
        return ROOT if place is None else place

    @property
    def n_nodes(self) -> int:
        """Number of columns that may be parents or children."""
        return len(self.levelled) + len(self.numbers) + len(self.leaning)

    @cached_property
    def log_prior(self) -> float:
        """Log prior probability of the forest."""
        return log_prior(self.parents, self.n_nodes)

    @cached_property
    def levelled(self) -> list[Column]:
        """Columns with levels that may be linked."""
        return [column for column in self.plain if column.levels] if self.contexts else []

    def _level(self, rows: Rows, place: int, code: np.ndarray) -> np.ndarray:
        return code % np.int64(len(self.columns[place].levels) + 1)

    def lacks_a_parent(self, rows: Rows) -> np.ndarray:
        """Mask of the plain rows in which a cell is present and its parent's is missing, bool (n,)."""
        lacks = np.zeros(len(rows), bool)
        for child, parent in enumerate(self.of_contexts.tolist()):
            if parent != ROOT:
                c, missing = self.plain[child], self.context_of(child, rows) < 0
                if missing.any():
                    lacks |= missing & ~c.is_missing(getattr(rows, c.block)[:, c.index])
        return lacks
