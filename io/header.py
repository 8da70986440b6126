"""Distinguish a first row of column names from a row of data."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

MISSING = ("", "?", "NA", "N/A", "NaN", "nan", "null")


def is_header(rows: list[list[str]], expected: Sequence[str] = ()) -> bool:
    """True if the first row holds names: if most expected names are in it, and not if one of its fields is a number.

    Otherwise true if a column is numeric below a first field that is not, or if no first field recurs in its column; in
    a file of text alone, a first row whose fields never recur is taken for a header.
    """
    first, rest = [c.strip() for c in rows[0]], rows[1:]
    if expected and len(set(first) & set(expected)) * 2 >= len(set(expected)):
        return True
    below = [[r[i].strip() for r in rest if len(r) > i] for i in range(len(first))]
    blank = sum(not c and any(cells) for c, cells in zip(first, below, strict=True))
    if blank > 1 or (any(_is_number(c) for c in first) and not _are_years(first, below)):
        return False
    below = [[c for c in cells if c not in MISSING] for cells in below]
    if any(cells and all(_is_number(c) for c in cells) for cells in below):
        return True
    return not any(c in cells for c, cells in zip(first, below, strict=True))


def _are_years(first: list[str], below: list[list[str]]) -> bool:
    """True if all numbers of a first row are years in order, beside a name that does not recur."""
    years = [c for c in first if _is_number(c)]
    names = [c and c not in cells for c, cells in zip(first, below, strict=True) if not _is_number(c)]
    if len(years) < 2 or not any(names) or not all(re.match(r"^(19|20)\d\d$", year) for year in years):
        return False
    return all(int(b) - int(a) == int(years[1]) - int(years[0]) != 0 for a, b in itertools.pairwise(years))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text and text.lower() not in ("nan", "inf", "infinity", "-inf", "-infinity")
