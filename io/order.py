"""Ordered categories: a few integers, such as Likert items, or bands of numbers, such as ages or incomes.

A column is ordered if its levels, at least three, are all integers (also written 3.0) or all bands (`18-24`, `under
18`, `65+`, `$10,000 to $20,000`) that do not overlap. Many integers, integers written with a leading zero, and
columns named as codes (`zip`, `type`) or places (`precinct`, `region`) are nominal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from mpibayes.io.rows import Column

FEWEST, MOST_INTEGERS = 3, 20
PLACE = r"cent(er|re)|clinic|country|county|district|hospital|precinct|province|region|sector|station"
CODED = re.compile(
    r"(code|recode|codes|type|class|category|group|zip|zipcode|(^|[^a-z])(id|ids|nbr|key|plot|site|state|ward|zone)"
    rf"|{PLACE})$",
    re.I,
)
INTEGER = re.compile(r"^-?(0|[1-9]\d{0,3})(\.0)?$")  # 3.0 is how pandas writes a 3 in a column with missing cells
NUMBER = r"[$€£]?\s*(\d[\d,]*(?:\.\d+)?)\s*(?:k|%|years?|yrs?)?"
BELOW = re.compile(rf"^(?:<|<=|≤|lt|under|below|up to|less than|at most)\s*{NUMBER}$", re.I)
MORE = r"(?:\+|plus|(?:and|or) (?:over|more|older|above))"
ABOVE = re.compile(rf"^(?:(?:>|>=|≥|gt|over|above|more than|at least)\s*{NUMBER}|{NUMBER}\s*{MORE})$", re.I)
BETWEEN = re.compile(rf"^[\[(]?{NUMBER}\s*(?:-|\u2013|to|,\s)\s*{NUMBER}[\])]?$", re.I)


def order_of(column: Column) -> tuple[int, ...]:
    """Order of a column's levels from least to greatest, as places in its levels; () if it has none.

    The import's record decides; if the table has none, as in older versions, `in_order` does.
    """
    if column.ordered is None:
        return in_order(column.name, column.levels)
    return tuple(range(len(column.levels))) if column.ordered and len(column.levels) >= FEWEST else ()


def in_order(name: str, levels: Sequence[str]) -> tuple[int, ...]:
    """Order of levels from least to greatest, as places in `levels`; () if they have none.

    >>> in_order("q05", ["1.0", "2.0", "3.0"]), in_order("age", ["18-29", "30-44", "45+", "<18"])
    ((0, 1, 2), (3, 0, 1, 2))
    >>> in_order("zip", ["1", "2", "3"]), in_order("colour", ["blue", "green", "red"])
    ((), ())
    """
    if len(levels) < FEWEST or CODED.search(name):
        return ()
    if all(INTEGER.match(level) for level in levels):
        order = sorted(range(len(levels)), key=lambda i: float(levels[i]))
        span = float(levels[order[-1]]) - float(levels[order[0]])
        return tuple(order) if len(levels) <= MOST_INTEGERS and span < 2 * len(levels) else ()
    bands = [_band(level) for level in levels]
    if any(band is None for band in bands):
        return ()
    order = sorted(range(len(levels)), key=lambda i: bands[i])
    apart = all(bands[a][1] <= bands[b][0] for a, b in pairwise(order))
    return tuple(order) if apart else ()


def _band(level: str) -> tuple[float, float] | None:
    """Range of a level; None if it is not a band."""
    level = level.strip()
    if INTEGER.match(level):  # among bands: 0, 1-2, 3+
        return float(level), float(level)
    if match := BELOW.match(level):
        return float("-inf"), _value(match)
    if match := ABOVE.match(level):
        return _value(match), float("inf")
    if match := BETWEEN.match(level):
        low, high = (float(text.replace(",", "")) for text in match.groups())
        return (low, high) if low < high else None
    return None


def _value(match: re.Match[str]) -> float:
    return float(next(text for text in match.groups() if text).replace(",", ""))
