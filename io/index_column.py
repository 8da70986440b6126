"""The column in which pandas, R and their readers write row numbers or names, which are not data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpibayes.io.profile import Profile

UNNAMED = re.compile(r"Unnamed: \d+(_level_\d+)?(\.\d+)*|\.\.\.\d+|__index_level_\d+__|_c0")
USUAL = re.compile(r"X(\.?\d+)?|V1|(?i:index|level_0|row\.?_?names?|rn)")  # for a first column
FEWEST_ROWS = 5


def is_unnamed(position: int, names: Sequence[str]) -> bool:
    """True if the column at `position` has no name: its header is blank, or a reader derived it from a blank one."""
    blank = names[position] == f"column_{position + 1}"  # its name in `dialect`
    headless = blank and all(name == f"column_{i}" for i, name in enumerate(names, 1))
    return (blank and not headless) or UNNAMED.fullmatch(names[position]) is not None


def has_index_name(position: int, names: Sequence[str]) -> bool:
    """True if a column has the name and position of an index; X beside Y is a coordinate."""
    return position == 0 and USUAL.fullmatch(names[0]) is not None and not (names[0] == "X" and "Y" in names)


def is_index(p: Profile) -> bool:
    """True if a column's cells, all distinct, number or name the rows: integers in order, with or without gaps; in any
    order, or texts, if the column has no name, as after a shuffle."""
    if p.n_missing or p.n_observed < FEWEST_ROWS or not p.all_different:
        return False
    if p.n_numbers == p.n_observed and p.all_integer:
        return (p.ascending and (p.unnamed or p.usual_index)) or (p.unnamed and p.minimum >= 0)
    return p.unnamed and p.n_numbers == 0
