"""Columns of a check-all-that-apply question: a cell has the column's only text, or is blank.

Blank means that the option was not checked, so the column is boolean and no cell of it is missing. Few blank cells
among many are more likely missing, and a year or a date is not an option: such a column is left out, with a question.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

TRUTH = (("0", "1"), ("false", "true"), ("no", "yes"), ("f", "t"), ("n", "y"))
FEWEST_CELLS = 2  # with the text, and blank
FEWEST_NUMBERS = 5  # with a number above 1: fewer may be equal by chance, as in the last column of a wide table
LEAST_SHARE = 0.05  # of the cells that are blank
OPTION = re.compile(r"0*[1-9]\d?(\.0+)?")  # number of an option; not a year
NOTHING_THERE = ("NA", "NaN", "nan", "null")  # written by programs for an empty cell; "?" means unknown


def texts_of_no(gaps: Mapping[str, int]) -> tuple[str, ...]:
    """Text of missing cells that may mean no: the empty one; if no cell is empty, the one that a program writes
    instead. gaps: cells by text, without the user's missing markers."""
    if gaps.get(""):
        return ("",)
    return tuple(gaps) if len(gaps) == 1 and set(gaps) <= set(NOTHING_THERE) else ()


def is_checked(text: str, is_number: bool, n_checked: int, n_blank: int) -> bool:
    """True if a column of one text and blank cells is a yes/no column."""
    if says_no(text) or (is_number and not OPTION.fullmatch(text)):
        return False
    fewest = FEWEST_NUMBERS if is_number and float(text) != 1.0 else FEWEST_CELLS
    return n_checked >= fewest and n_blank >= max(FEWEST_CELLS, LEAST_SHARE * (n_checked + n_blank))


def says_no(text: str) -> bool:
    """True if a text itself means no."""
    return text.lower() in [no for no, _ in TRUTH]


def levels_of(text: str) -> tuple[str, str]:
    """The levels of such a column, no first.

    >>> levels_of("Y"), levels_of("Email")
    (('N', 'Y'), ('not Email', 'Email'))
    """
    opposite = {yes: no for no, yes in TRUTH}.get(text.lower())
    if opposite is None:
        return f"not {text}", text
    if text.isupper():
        return opposite.upper(), text
    return (opposite.capitalize() if text[0].isupper() else opposite), text


def with_level(texts: pa.StringArray, no: tuple[str, ...], level: str) -> pa.StringArray:
    """Replace texts that mean no by the level."""
    return pc.if_else(pc.is_in(texts, value_set=pa.array(no, pa.string())), pa.scalar(level, pa.string()), texts)
