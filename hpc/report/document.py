"""A report besides its tables on paper: a verdict, and sections whose long tables a reader sorts and searches.

A family makes them of what it has computed for its text. Their parts are those of the text (rich's texts and tables,
`tables.Facts`, `wide_table.WideTable`), and these, which have no place on paper. The page knows no family.
Numbers are as they are, NaN where there is none; texts are as the table has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mpibayes.hpc.posterior.chains import Chain
from mpibayes.hpc.report.drawing import Picture
from mpibayes.hpc.scalar import Scalar

GOOD, DOUBT, BAD = "good", "doubt", "bad"
SOUND = {  # what is said of a verdict
    GOOD: "No problems found", DOUBT: "Read this with care", BAD: "Do not use this result yet",
}  # fmt: skip
ASKED = (  # what a verdict answers, and where
    ("What was found", "found"), ("Do the chains agree?", "chains"), ("What to do next", "next"),
    ("Warnings", "warnings"),
)  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """The opening of a report, in sentences: what was found, whether the chains agree, what to do next, and warnings.

    sound: GOOD, if no problem was found; DOUBT; or BAD, if the chains contradict each other.
    approximation: what is to be said of one, "" of draws of the posterior. commands: what to do next in the words of a
    shell, each after what it does. headline: what is said of the verdict, if not what SOUND has.
    """

    found: Sequence[str]
    chains: Sequence[str]
    next: Sequence[str]
    sound: str = DOUBT
    approximation: str = ""
    commands: Sequence[tuple[str, str]] = ()
    headline: str = ""
    warnings: Sequence[str] = ()

    def __str__(self) -> str:
        """Verdict in one line."""
        return self.headline or SOUND[self.sound].replace("result", "approximation" if self.approximation else "result")


@dataclass(frozen=True)
class Field:
    """A column of a `Browse`. kind: "text"; "whole", "number" and "share" (of 1), which are right-aligned and sorted as
    numbers; or "interval", whose cells are (low, middle, high)."""

    heading: str
    kind: str = "text"
    about: str = ""  # in words


@dataclass(frozen=True)
class Levels:
    """Distribution of a categorical column: overall (L,) over all rows, p (K, L) in each group of rows, of the
    levels that are named; what they leave is the others'. apart (K,) nats: how far a group is from all rows."""

    name: str
    levels: Sequence[str]
    overall: np.ndarray
    p: np.ndarray
    apart: np.ndarray
    missing: np.ndarray | None = None  # (K,) shares, where some cells are
    missing_overall: float = 0.0
    ordered: bool = False  # the levels are on a scale, from the least on


@dataclass(frozen=True)
class Numbers:
    """Distribution of a numeric column: means and standard deviations, (K,), in each group of rows; overall: of all
    rows. log: they are of logarithms."""

    name: str
    overall: tuple[float, float]
    mean: np.ndarray
    sd: np.ndarray
    apart: np.ndarray
    missing: np.ndarray | None = None
    missing_overall: float = 0.0
    log: bool = False
    unit: str = ""  # of dates


@dataclass(frozen=True)
class Details:
    """All columns of the first K rows of a `Browse`, against the whole. apart: what `apart` of the columns measures,
    in words; whole: what the overall numbers are of."""

    columns: Sequence[Levels | Numbers]
    apart: str
    whole: str = "all rows"
    here: str = "here"


@dataclass(frozen=True)
class Browse:
    """A table to sort and to search. The cells of a row are as the kinds of the fields have them; None: there is none.

    noun: what a row is. titles: what the details of each row are headed by.
    """

    noun: str
    fields: Sequence[Field]
    rows: Sequence[Sequence[Any]]
    details: Details | None = None
    titles: Sequence[str] = ()
    caption: str = ""


@dataclass(frozen=True)
class Stops:
    """Tables of which a slider shows one, each below its words; `first`: the place of the one that is shown first.

    label: what the slider sets; names: of its stops. marks: of each stop "good", "doubt" or "bad".
    """

    label: str
    names: Sequence[str]
    words: Sequence[str]
    tables: Sequence[Browse]
    marks: Sequence[str]
    first: int = 0


@dataclass(frozen=True)
class Matrix:
    """A share (C, C), symmetric, of each pair of names, in groups that end at `ends`, with `words` for what it is."""

    names: Sequence[str]
    share: np.ndarray
    ends: Sequence[int]
    words: str
    group: str = "view"


@dataclass(frozen=True)
class Traces:
    """The scalars that have a title, over the cycles of each chain."""

    chains: Sequence[Chain]
    scalars: Sequence[Scalar]


@dataclass(frozen=True)
class Shown:
    """A picture of the report, with words that stand for it where it cannot be seen."""

    name: str
    picture: Picture
    words: str


def pictured(pictures: Mapping[str, Picture], words: Mapping[str, str], *names: str) -> list[Shown]:
    """The pictures of these names that the report has, with their words."""
    return [Shown(name, pictures[name], words[name]) for name in names if name in pictures]


@dataclass(frozen=True)
class Link:
    """A link to a file beside the page, by its path from there; words: what it is."""

    words: str
    path: str


@dataclass(frozen=True)
class Section:
    """A part of the page with its own heading; `name` is its place in the address."""

    name: str
    title: str
    parts: Sequence[Any] = field(default_factory=tuple)
