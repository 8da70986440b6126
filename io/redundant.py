"""Redundancy in a table: columns that are functions of each other, and rows that are equal.

A mixture treats the columns of a row as independent within a cluster, and rows as independent given their clusters. So
redundant information is counted twice, and clusters become narrower and more numerous than expected. The import leaves
out exact copies and dummy variables beside their category (`copies`), and warns of the rest.

Columns are compared on a sample of rows: numbers by rank correlation; categories, and numbers of few values, by a
one-to-one match of their values. Values that are all or nearly all distinct match in any two columns and prove nothing:
a match counts if shuffled columns would hardly ever show it. Equal rows are counted among all rows by hash: of very
many rows, those with a small hash are kept, and so all or none of the equal ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from math import lgamma

import numpy as np

from mpibayes.io.rows import CODES, Column, Rows
from mpibayes.io.summary import named
from mpibayes.text import counted, percent

SAMPLE_ROWS, SAMPLE_CELLS = 2_000, 2_000_000
FEWEST_ROWS = 40  # fewer rows say little about the rest
FEWEST_VALUES = 15  # of a numeric column to be compared by ranks
RARE = 10  # cells needed apart from the commonest value
FUNCTION = 0.9999  # rank correlation, up or down
MANY_DUMMIES = 3  # columns that make a category; two are as likely to be the facts of which a category was made
FEW_VALUES = 100  # below which numbers are compared like categories
BY_CHANCE = 1e-6  # largest probability that any two independent columns of a table map one to one
STRAY = 0.01  # that any column of a table joins dummy variables with which it has nothing to do
MOST_HASHES = 1 << 17
EQUAL_ROWS = 0.05
NAMED = 8
MOST_COLUMNS = 5_000  # numeric columns compared by ranks, each with each


class Redundancy:
    """Checks rows as they are written, in order, in constant memory. `warnings` reports the result.

    columns: of the table; n_rows: number of rows to come.
    """

    def __init__(self, columns: Sequence[Column], n_rows: int):
        self._columns = columns
        n_sample = min(n_rows, SAMPLE_ROWS, max(FEWEST_ROWS, SAMPLE_CELLS // max(len(columns), 1)))
        self._sampled = np.unique(np.linspace(0, n_rows - 1, n_sample).astype(np.int64))
        self._sample: list[Rows] = []
        self._n_seen = 0
        self._equal = _EqualRows()

    def add(self, rows: Rows) -> None:
        first, last = np.searchsorted(self._sampled, (self._n_seen, self._n_seen + len(rows)))
        if last > first:
            self._sample.append(rows.take(self._sampled[first:last] - self._n_seen))
        self._n_seen += len(rows)
        self._equal.add(rows)

    @cached_property
    def sample(self) -> Rows:
        """Rows looked at, once all were added."""
        return Rows.concatenate(self._columns, self._sample)

    @cached_property
    def groups(self) -> list[list[str]]:
        """Columns that appear to be functions of each other, once all rows were added."""
        return [] if len(self.sample) < FEWEST_ROWS else list(functions(self._columns, self.sample))

    @cached_property
    def dummies(self) -> list[tuple[str, list[str]]]:
        """Categories with the columns that appear to indicate one of their values each, once all rows were added."""
        return [] if len(self.sample) < FEWEST_ROWS else list(_indicators(self._columns, self.sample))

    def warnings(self) -> Iterator[str]:
        """Yield a line for each group of columns, and one for equal rows."""
        sample = self.sample
        if len(sample) < FEWEST_ROWS:
            return
        for group in self.groups:
            others = "other" if len(group) == 2 else "others"
            yield (
                f"columns {named(group, NAMED)} say the same: each is a function of the {others} in "
                f"the {counted(len(sample), 'row')} looked at; keep one and --drop the {others}, or it counts several "
                "times and clusters get narrow"
            )
        for name, indicators in self.dummies:
            yield (
                f"column {named([name], NAMED)} is there again in {named(indicators, NAMED)}: each of them says "
                "whether a row has one of its values; --drop them, or it counts several times and clusters get narrow"
            )
        of_known = {dummy for _, indicators in self.dummies for dummy in indicators}
        for names, every_row in _exclusive([c for c in self._columns if c.name not in of_known], sample):
            has = "each row has exactly one" if every_row else "no row has more than one"
            yield (
                f"columns {named(names, NAMED)}: {has} of them, as if they were one category in {len(names)} columns; "
                "so it counts several times, and views and groups may show little else: better write it as one column"
            )
        share = self._equal.share()
        if share > EQUAL_ROWS and any(c.kind == "real" for c in self._columns) and not self._by_chance(sample):
            yield (
                f"{percent(share)} of the rows are equal to another one in all columns that are kept, which makes "
                "narrow clusters; if they are copies, remove them from the file"
            )

    def _by_chance(self, sample: Rows) -> bool:
        """True if independent columns would give as many equal rows."""
        alike = 0.0  # log probability that two rows are equal
        for column in self._columns:
            _, cells = np.unique(cells_of(column, sample), return_counts=True)
            alike += np.log(np.square(cells / len(sample)).sum())
        return bool(self._n_seen * np.exp(alike) > EQUAL_ROWS)


def cells_of(column: Column, rows: Rows) -> np.ndarray:
    return getattr(rows, column.block)[:, column.index]


# --- columns ----------------------------------------------------------------------------------------------------------


def functions(columns: Sequence[Column], sample: Rows) -> Iterator[list[str]]:
    """Yield groups of names of columns that are functions of each other, in order."""
    parent = list(range(len(columns)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = i = parent[parent[i]]
        return i

    ranks, ranked, alike = [], [], {}
    least_evidence = 2.0 * np.log(len(columns)) - np.log(BY_CHANCE)
    for i, column in enumerate(columns):
        x = cells_of(column, sample)
        values, first, code, cells = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
        if len(x) - cells.max() < RARE:
            continue
        few = column.block in CODES or len(values) <= FEW_VALUES
        if few and _log_arrangements(cells) > least_evidence:
            order = np.empty(len(values), np.int32)  # codes in order of first occurrence
            order[np.argsort(first)] = np.arange(len(values), dtype=np.int32)
            same = alike.setdefault(hashlib.sha256(order[code].tobytes()).digest(), i)
            parent[root(i)] = root(same)
        if column.block not in CODES and len(values) >= FEWEST_VALUES and len(ranks) < MOST_COLUMNS:
            rank = (np.cumsum(cells) - 0.5 * cells)[code]
            rank = np.where(np.isnan(x), np.nan, rank)
            rank = np.nan_to_num(rank - np.nanmean(rank))
            ranks.append((rank / np.linalg.norm(rank)).astype(np.float32))
            ranked.append(i)
    if len(ranked) > 1:
        matrix = np.array(ranks)
        for start in range(0, len(matrix), 512):
            rho = np.abs(matrix[start : start + 512] @ matrix.T)
            for i, j in zip(*np.nonzero(rho > FUNCTION)):
                parent[root(ranked[start + i])] = root(ranked[j])
    groups: dict[int, list[str]] = {}
    for i, column in enumerate(columns):
        groups.setdefault(root(i), []).append(column.name)
    yield from (group for group in groups.values() if len(group) > 1)


def _indicators(columns: Sequence[Column], sample: Rows) -> Iterator[tuple[str, list[str]]]:
    """Yield a category's name, and the names of two-valued columns that each indicate one of its values (dummy
    variables), for all its values or all but one, if they are common enough to decide."""
    halves: dict[bytes, list[str]] = {}
    categories: list[tuple[Column, np.ndarray]] = []
    for column in columns:
        values, code = np.unique(cells_of(column, sample), return_inverse=True)
        if len(values) == 2:
            halves.setdefault(_half(code == 1), []).append(column.name)
        elif column.block in CODES and 2 < len(values) <= FEW_VALUES:
            categories.append((column, cells_of(column, sample)))
    if not halves:
        return
    least_evidence = 2.0 * np.log(len(columns)) + np.log(FEW_VALUES) - np.log(BY_CHANCE)
    for column, codes in categories:
        result, common = [], 0
        for value, cells in enumerate(np.bincount(codes, minlength=len(column.levels))[: len(column.levels)]):
            sizes = np.array([cells, len(codes) - cells])
            if sizes.min() >= RARE and _log_arrangements(sizes) > least_evidence:
                common += 1
                result.append(halves.get(_half(codes == value), []))
        indicators = [name for names in result for name in names]
        if len(indicators) > 1 and sum(map(bool, result)) >= common - 1:
            yield column.name, indicators


def _exclusive(columns: Sequence[Column], sample: Rows) -> Iterator[tuple[list[str], bool]]:
    """Yield the names of at least MANY_DUMMIES columns of which no row has more than one, as dummy variables of a
    category that is no column itself, and whether each row has one; if chance would hardly keep them apart."""
    booleans = [c for c in columns if c.kind == "boolean" and np.isin(cells_of(c, sample), (0, 1)).all()][:MOST_COLUMNS]
    yes = {c.name: there for c in booleans if (there := cells_of(c, sample) == 1).sum() >= RARE}
    cells = {name: int(there.sum()) for name, there in yes.items()}
    least_evidence = 2.0 * np.log(len(columns)) - np.log(BY_CHANCE)
    waiting = sorted(set(yes) - _coarser(yes, least_evidence), key=lambda name: (-cells[name], name))
    while waiting:
        first, *others = waiting
        group, one, evidence = [first], yes[first].copy(), 0.0
        for name in others:
            expected = cells[name] * one.mean()  # rows in common by chance: none with probability exp(-expected)
            if expected > np.log(len(columns)) - np.log(STRAY) and not (one & yes[name]).any():
                group.append(name)
                one |= yes[name]
                evidence += expected
        found = len(group) >= MANY_DUMMIES and evidence > least_evidence
        if found:
            yield [c.name for c in booleans if c.name in group], bool(one.all())
        waiting = [name for name in others if not (found and name in group)]


def _coarser(yes: dict[str, np.ndarray], least_evidence: float) -> set[str]:
    """Names of columns that are true wherever another one is, and more often: of several levels of a category."""
    if not yes:
        return set()
    there = np.array(list(yes.values()), np.float32)
    without = there @ (1.0 - there).T  # rows that have the first, not the second
    cells = there.sum(1)
    inside = (without == 0) & (cells[:, None] < cells) & (cells[:, None] * (1.0 - there).mean(1) > least_evidence)
    return {name for name, of_another in zip(yes, inside.any(0), strict=True) if of_another}


def _half(there: np.ndarray) -> bytes:
    """Division of the rows in two, regardless of which part is named."""
    return np.packbits(there ^ there[0]).tobytes()


def _log_arrangements(cells: np.ndarray) -> float:
    """Log of the number of ways to divide rows into groups of these sizes: a shuffled column matches another division
    with one over this probability."""
    _, of_each_size = np.unique(cells, return_counts=True)
    same = sum(lgamma(n + 1) for n in [*cells.tolist(), *of_each_size.tolist()])
    return lgamma(int(cells.sum()) + 1) - same


# --- rows -------------------------------------------------------------------------------------------------------------


class _EqualRows:
    """Hashes of rows, with the number of rows of each."""

    def __init__(self):
        self._hashes, self._cells = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        self._waiting: list[np.ndarray] = []
        self._n_waiting = 0
        self._limit = np.uint64(2**64 - 1)

    def add(self, rows: Rows) -> None:
        hashes = row_hash(rows)
        self._waiting.append(hashes[hashes <= self._limit])
        self._n_waiting += len(self._waiting[-1])
        if self._n_waiting > MOST_HASHES:
            self._merge()

    def _merge(self) -> None:
        hashes, place = np.unique(np.concatenate([self._hashes, *self._waiting]), return_inverse=True)
        new = np.ones(self._n_waiting, np.int64)
        self._cells = np.bincount(place, np.concatenate([self._cells, new]), len(hashes)).astype(np.int64)
        self._hashes, self._waiting, self._n_waiting = hashes, [], 0
        while len(self._hashes) > MOST_HASHES:
            self._limit >>= np.uint64(1)
            keep = self._hashes <= self._limit
            self._hashes, self._cells = self._hashes[keep], self._cells[keep]

    def share(self) -> float:
        """Share of the rows that equal another row."""
        self._merge()
        return float(self._cells[self._cells > 1].sum() / max(self._cells.sum(), 1))


def row_hash(rows: Rows) -> np.ndarray:
    """64-bit hash of each row, uint64 (n,): multiples of the cells' bits, summed, and mixed as in splitmix64."""
    h = np.zeros(len(rows), np.uint64)
    factors = np.random.Philox(1)  # the same in every process
    for block in ("codes8", "codes16", "reals", "tallies"):
        cells = getattr(rows, block)
        if cells.shape[1]:
            bits = cells.astype(np.uint64) if block in CODES else (cells + 0.0).view(np.uint64)
            bits = bits ^ (bits >> np.uint64(32))  # the lower half of a number is often zero
            h += bits @ (factors.random_raw(cells.shape[1]) | np.uint64(1))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        h = (h ^ (h >> np.uint64(shift))) * np.uint64(factor)
    return h ^ (h >> np.uint64(31))
