"""Copies in a table: columns that are functions of each other in every row, such as a number and its logarithm, or a
name and its code; and dummy variables beside their category. A model would count them twice, and find clusters that are
slices of one number or the category's levels. So all but one are left out by default, with a note.

`redundant` proposes groups from a sample; here all rows decide.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from mpibayes.io.infer import Decision
from mpibayes.io.profile import Profile
from mpibayes.io.redundant import FEW_VALUES, MANY_DUMMIES
from mpibayes.io.rows import CODES, Column
from mpibayes.io.table import Table
from mpibayes.text import option


class Copied(Exception):
    """A written table must be written again without these columns; see `copies` and `dummies`."""

    def __init__(self, copies: dict[str, str], dummies: dict[str, str]):
        super().__init__()
        self.copies, self.dummies = copies, dummies
        self.columns = {*copies, *dummies}


def copies(table: Table, groups: Sequence[Sequence[str]], kept: Collection[str]) -> dict[str, str]:
    """Columns to leave out, each with the column it copies. groups: names of columns that appear to be functions of
    each other; kept: columns that always stay. In each group the column with most distinct values stays, since others
    may be rounded; among equals the plainest name (`wage`, not `logwage`), or the first."""
    columns, result = {c.name: c for c in table.columns}, {}
    for group in groups:
        cells = _cells(table, [columns[name] for name in group])
        different = {name: len(np.unique(cells[name])) for name in group}
        stays = _plainest([name for name in group if different[name] == max(different.values())])
        for name in group:
            if name != stays and name not in kept and same(columns[name], cells[name], columns[stays], cells[stays]):
                result[name] = stays
    return result


def dummies(table: Table, proposed: Sequence[tuple[str, Sequence[str]]], kept: Collection[str]) -> dict[str, str]:
    """Dummy variables to leave out, each with its category. proposed: categories with the columns that appear to
    indicate one of their values each; kept: columns that always stay. Fewer than MANY_DUMMIES stay, since they may be
    the facts of which the category was made."""
    columns, result = {c.name: c for c in table.columns}, {}
    for category, names in proposed:
        cells = _cells(table, [columns[name] for name in (category, *names)])
        found = [name for name in names if _indicates(cells[name], cells[category])]
        if len(found) >= MANY_DUMMIES and category not in result:
            result |= {name: category for name in found if name not in kept}
    return result


def _indicates(x: np.ndarray, codes: np.ndarray) -> bool:
    """True if a column of two values says whether a category has one of its values."""
    return any(_one_to_one(x, codes == value) for value in np.unique(codes))


def without_copies(profiles: Sequence[Profile], decisions: Sequence[Decision], left_out: Copied) -> list[Decision]:
    """The decisions, with copies and dummy variables left out."""
    result = list(decisions)
    for i, p in enumerate(profiles):
        if p.name in left_out.dummies:
            of = left_out.dummies[p.name]
            result[i] = Decision(
                "ignored",
                reason=f"dummy variable of another column: says whether '{of}' has one of its values",
                warning=f"column '{p.name}': is left out, as it says whether '{of}' has one of its values, and '{of}' "
                f"would count again; {option('keep', p.name)} keeps both",
            )
        elif p.name in left_out.copies:
            of = left_out.copies[p.name]
            result[i] = Decision(
                "ignored",
                reason=f"copy of another column: '{of}' says the same in every row",
                warning=f"column '{p.name}': is left out, as it says the same as '{of}' in every row and would count "
                f"twice; {option('keep', p.name)} keeps both, {option('drop', of)} keeps it instead of '{of}'",
            )
    return result


def same(a: Column, x: np.ndarray, b: Column, y: np.ndarray) -> bool:
    """True if each of two columns is a function of the other in all rows. For numbers with many values it has to be
    monotone, up to rounding: equal values of one may differ in the other."""
    if a.block in CODES or b.block in CODES:
        return _one_to_one(x, y)
    observed = ~np.isnan(x)
    if not np.array_equal(observed, ~np.isnan(y)):
        return False
    x, y = x[observed], y[observed]
    return _rises(x, y) or _rises(x, -y) or (len(np.unique(x)) <= FEW_VALUES and _one_to_one(x, y))


def _rises(x: np.ndarray, y: np.ndarray) -> bool:
    return bool(np.all(np.diff(y[np.lexsort((y, x))]) >= 0))


def _one_to_one(x: np.ndarray, y: np.ndarray) -> bool:
    (i, n), (j, m) = (_numbered(cells) for cells in (x, y))
    return n == m == len(np.unique(i * m + j))


def _numbered(cells: np.ndarray) -> tuple[np.ndarray, int]:
    values, code = np.unique(cells, return_inverse=True)
    return code.astype(np.int64), len(values)


def _plainest(group: Sequence[str]) -> str:
    """Name contained in all other names, or the first."""
    inside = (name for name in group if all(name.lower() in other.lower() for other in group))
    return next(inside, group[0])


def _cells(table: Table, columns: Sequence[Column]) -> dict[str, np.ndarray]:
    """All cells of a few columns."""
    parts: dict[str, list[np.ndarray]] = {c.name: [] for c in columns}
    for rows in table.slices():
        for c in columns:
            parts[c.name].append(getattr(rows, c.block)[:, c.index].copy())
    return {name: np.concatenate(of) for name, of in parts.items()}
