"""Tables of patterns: each row is a distinct combination of levels, with a column for its number of cases, as written
by R's as.data.frame(table), SQL's GROUP BY and pandas' value_counts. Read as data, each pattern would be one case.

A column of integers is taken for such a count by its name, if the other columns' values recur and no two rows are equal
in all of them: because every combination is present, or although chance would make some rows equal, or because its name
hardly means anything else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mpibayes.errors import DataError
from mpibayes.io.infer import Decision
from mpibayes.io.profile import Profile
from mpibayes.io.redundant import row_hash
from mpibayes.io.rows import LEVELLED, NUMERIC, Column, Rows
from mpibayes.text import option

CLEAR = re.compile(r"_?freq(s|uency|uencies|uenz)?_?|h(ä|ae)ufigkeit|effectifs?|frecuencia|count\(.*\)", re.IGNORECASE)
LIKELY = re.compile(r"counts?|cnt|n|n_?obs|0|anzahl|cases", re.IGNORECASE)
SHARES = re.compile(r"(row|col|cum)?_?\.?(percent|pct|prop|proportion|share)s?", re.IGNORECASE)  # of the count
MOST_ROWS = 1 << 17
EQUAL_BY_CHANCE = 3.0  # expected pairs of equal rows if the columns were independent


def count_column(profiles: Sequence[Profile], decisions: Sequence[Decision], kept: set[str]) -> str | None:
    """Column that may give the number of cases of each row; the rows decide whether it does (`Patterns`)."""
    named = [p for p in profiles if p.kind is None and p.name not in kept and _is_count(p)]
    if len(named) > 1:
        named = [p for p in named if CLEAR.fullmatch(p.name)]
    if len(named) != 1 or not 1 < named[0].n_observed <= MOST_ROWS:
        return None
    others = []
    for p, d in zip(profiles, decisions, strict=True):
        text_names_the_rows = d.kind == "ignored" and p.kind is None and d.reason.startswith("identifier: text")
        if text_names_the_rows and not p.unnamed:
            return None
        if p is not named[0] and d.kind in (*LEVELLED, *NUMERIC) and not SHARES.fullmatch(p.name):
            others.append((p, d))
    alone = len(others) == 1 and (others[0][1].kind in LEVELLED or CLEAR.fullmatch(named[0].name) is not None)
    recur = all(2 * p.n_distinct <= p.n_observed for p, _ in others)
    return named[0].name if others and (alone or recur) else None


def _is_count(p: Profile) -> bool:
    name = CLEAR.fullmatch(p.name) or LIKELY.fullmatch(p.name)
    whole = p.n_numbers == p.n_observed and p.all_integer and not p.n_missing
    return name is not None and whole and p.minimum >= 0 and p.maximum > 1


class Patterns:
    """Checks rows as they are written, in order. count: name of the column that may count."""

    def __init__(self, columns: Sequence[Column], count: str | None):
        self._count = next((c for c in columns if c.name == count), None)
        self._others = [c for c in columns if c.name != count and not SHARES.fullmatch(c.name)]
        self._hashes: list[np.ndarray] = []
        self._cells: list[Rows] = []
        self._total = 0.0

    def add(self, rows: Rows) -> None:
        if self._count is None:
            return
        rows = rows.take(slice(None))
        counts = getattr(rows, self._count.block)[:, self._count.index]
        levels = np.array([float(v) for v in self._count.levels]) if self._count.levels else None
        self._total += float((counts if levels is None else levels[counts]).sum())
        for block in ("codes8", "codes16", "reals", "tallies"):
            used = {c.index for c in self._others if c.block == block}
            array = getattr(rows, block)
            array[:, [i for i in range(array.shape[1]) if i not in used]] = 0
        self._hashes.append(row_hash(rows))
        self._cells.append(rows)

    def require_none(self, path: Path) -> None:
        """Raise DataError, with possible remedies, if the rows are patterns."""
        if self._count is None:
            return
        hashes = np.concatenate(self._hashes)
        if len(np.unique(hashes)) < len(hashes) or not self._is_clear(len(hashes)):
            return
        name, n = self._count.name, len(hashes)
        raise DataError(
            f"{path}: column '{name}' looks like the number of cases that each row stands for: the {n:,} rows are all "
            f"different without it, and it adds up to {self._total:,.0f}. Say what it is; nothing was written",
            [
                f"{self._total:,.0f} cases: import it with {option('count', name)}",
                f"{n:,} cases, of which it is a number like any other: import it with {option('kind', f'{name}=real')}",
                f"{n:,} cases, and it is of no use: import it with {option('kind', f'{name}=ignored')}",
            ],
        )

    def _is_clear(self, n: int) -> bool:
        combinations, alike = 1.0, 1.0  # alike: probability that two rows are equal if columns are independent
        for column in self._others:
            parts = [getattr(rows, column.block)[:, column.index] for rows in self._cells]
            _, cells = np.unique(np.concatenate(parts), return_counts=True)
            combinations *= len(cells)
            alike *= float(np.square(cells / n).sum())
        levels = all(c.kind in LEVELLED for c in self._others)
        clear = CLEAR.fullmatch(self._count.name) is not None
        return combinations == n or 0.5 * n * (n - 1) * alike >= EQUAL_BY_CHANCE or (clear and levels)
