"""A report as a document: a verdict, sections of typed parts, figures, and numbers for programs.

A family makes one, once. Renderers show it: `text.py` as report.txt and on the terminal, `page/` as report.html; its
`numbers` are summary.json. They know no family. Parts are texts (strings, or `mpibayes.terminal.Text`), `Facts`,
`Table`, small tables that `tables.plain_table` makes, `WideTable`, `Matrix`, `Stops`, `Traces`, `Figure` and `Link`.
Numbers are as they are, NaN where there is none; texts are as the table has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mpibayes.hpc.posterior.chains import Chain
from mpibayes.hpc.report.drawing import Picture
from mpibayes.hpc.report.findings import Findings
from mpibayes.hpc.scalar import Scalar
from mpibayes.text import number, percent, span

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


BOTH, PAGE, PAPER = "both", "page", "paper"


@dataclass(frozen=True)
class Field:
    """A column of a `Table`. kind: "text"; "whole", "number" and "share" (of 1), which are right-aligned and sorted as
    numbers; or "interval", whose cells are (low, middle, high). on: BOTH, or PAGE or PAPER alone.

    On paper numbers have so many `digits`, texts are as `brief` has them, and columns of one `group` stay together
    where the table is wider than the paper.
    """

    heading: str
    kind: str = "text"
    about: str = ""  # in words
    on: str = BOTH
    digits: int | None = None
    brief: Callable[[str], str] | None = None
    group: int = 0

    def cell(self, x: Any) -> Any:
        """A cell on paper."""
        from mpibayes.terminal import Text

        if isinstance(x, (Rounded, Styled)):
            return x.text
        if self.kind == "text":
            return Text("" if x is None else x if self.brief is None else self.brief(x))
        if x is None or not np.isfinite(x):
            return "-"
        if self.kind == "whole":
            return f"{x:,}"
        if self.digits is not None:
            return f"{x:,.{self.digits}f}"
        return percent(x) if self.kind == "share" else number(x)


class Rounded(float):
    """A number with its text on paper, of as many digits as its uncertainty allows."""

    text: str

    def __new__(cls, x: float, text: str) -> Rounded:
        made = super().__new__(cls, x)
        made.text = text
        return made


class Styled(str):
    """A text with what paper has in its place."""

    text: Any

    def __new__(cls, x: str, text: Any) -> Styled:
        made = super().__new__(cls, x)
        made.text = text
        return made


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
    """All columns of the first K rows of a `Table`, against the whole. apart: what `apart` of the columns measures,
    in words; whole: what the overall numbers are of."""

    columns: Sequence[Levels | Numbers]
    apart: str
    whole: str = "all rows"
    here: str = "here"


@dataclass(frozen=True)
class Table:
    """A table that the page sorts and searches, and that has `most` lines on paper (0: all). The cells of a row are as
    the kinds of the fields have them; None: there is none.

    noun: what a row is. titles: what the details of each row are headed by. caption: words below it, or of how many of
    its rows are shown. more: after the number of rows that paper leaves out.
    """

    noun: str
    fields: Sequence[Field]
    rows: Sequence[Sequence[Any]]
    details: Details | None = None
    titles: Sequence[str] = ()
    caption: str | Callable[[int], str] = ""
    most: int = 0
    more: str = "more"

    def on(self, where: str) -> tuple[list[Field], list[list[Any]]]:
        """The fields and the rows of a medium, PAGE or PAPER."""
        at = [i for i, f in enumerate(self.fields) if f.on in (BOTH, where)]
        return [self.fields[i] for i in at], [[row[i] for i in at] for row in self.rows]

    def words(self, shown: int) -> str:
        """The caption where so many rows are shown."""
        if callable(self.caption):
            return self.caption(shown)
        left = len(self.rows) - shown
        return "; ".join([f"{left:,} {self.more}"] * (left > 0) + [self.caption] * bool(self.caption))

    def brief(self, most: int, headings: Sequence[str], title: str = "") -> Table:
        """So many lines of the fields with these headings, for the terminal, without styles. title: heading of the last
        of them."""
        names = [f.heading for f in self.fields]
        at = [names.index(heading) for heading in headings]
        fields = [replace(self.fields[i], on=BOTH) for i in at]
        fields[-1] = replace(fields[-1], heading=title or fields[-1].heading)
        rows = [[str(row[i]) if isinstance(row[i], Styled) else row[i] for i in at] for row in self.rows]
        return Table(self.noun, fields, rows, caption=self.caption if callable(self.caption) else "", most=most)

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        """The table on paper."""
        from mpibayes.hpc.report.wide_table import of_fields

        fields, rows = self.on(PAPER)
        rows = rows[: self.most or None]
        yield from of_fields(fields, rows, self.words(len(rows)))


@dataclass(frozen=True)
class Stops:
    """Tables of which a slider shows one, each below its words; `first`: the place of the one that is shown first.

    label: what the slider sets; names: of its stops. marks: of each stop "good", "doubt" or "bad".
    """

    label: str
    names: Sequence[str]
    words: Sequence[str]
    tables: Sequence[Table]
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
class Figure:
    """A picture of the report by the name of its file, with words that stand for it where it cannot be seen."""

    name: str
    picture: Picture
    words: str = ""


def drawn(figures: Sequence[Figure], *names: str) -> list[Figure]:
    """The figures of these names, those that there are."""
    return [figure for name in names for figure in figures if figure.name == name]


@dataclass(frozen=True)
class Facts:
    """A title, and lines of a word and what it says."""

    title: str
    lines: Sequence[tuple[str, str]]

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        from rich.table import Table as Grid

        from mpibayes.terminal import Text

        grid = Grid.grid(padding=(0, 2))
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column(overflow="fold")
        for key, value in self.lines:
            grid.add_row(Text(key), Text(value))
        yield Text(self.title, style="bold")
        yield grid


@dataclass(frozen=True)
class Link:
    """A link to a file beside the page, by its path from there; words: what it is."""

    words: str
    path: str


@dataclass(frozen=True)
class Only:
    """Parts that one medium has alone, PAGE or PAPER, as a block."""

    on: str
    parts: Sequence[Any]


def on_page(*parts: Any) -> Only:
    return Only(PAGE, parts)


def on_paper(*parts: Any) -> Only:
    return Only(PAPER, parts)


OFF_PAPER = (Stops, Matrix, Traces, Figure, Link)  # parts that only the page can show


@dataclass(frozen=True)
class Section:
    """A part of the report with its own heading on the page; `name` is its place in the address. Its parts are blocks,
    between which paper has an empty line: a part, a list of parts, or parts of one medium. on: as of a `Field`."""

    name: str
    title: str
    parts: Sequence[Any] = field(default_factory=tuple)
    on: str = BOTH

    def blocks(self, where: str) -> list[list[Any]]:
        """The blocks of a medium, PAGE or PAPER, none of them empty."""
        blocks = [_of_medium(block, where) for block in self.parts] if self.on in (BOTH, where) else []
        return [block for block in blocks if block]


def _of_medium(block: Any, where: str) -> list[Any]:
    if isinstance(block, Only):
        return list(block.parts) if block.on == where else []
    if isinstance(block, list):
        return [part for inner in block for part in _of_medium(inner, where)]
    return [] if where == PAPER and isinstance(block, OFF_PAPER) else [block]


@dataclass
class Document:
    """A report before it is written.

    chains: those of the run, whose traces were read; where they are short of their end, the report begins with
    `early`, which says so. sections: in the order of the page; paper has those of PAPER_FIRST before the others. top:
    small tables of what was found, for the terminal. numbers: summary.json, to which it adds the names of the
    figures. files: further texts by name. findings: how
    rows and columns are grouped, None of a model that groups none. subject: what the verdict is about, by default the
    run directories; "" where its headline names it. beside: other reports, by the folder below this one's that they
    lie in. linked: columns of the table and those that they lean on inside clusters, in most draws, the pairs first
    that say most.
    """

    chains: Sequence[Chain]
    verdict: Verdict
    sections: list[Section]
    numbers: dict[str, Any]
    top: Sequence[Any] = ()
    figures: Sequence[Figure] = ()
    files: dict[str, str] = field(default_factory=dict)
    findings: Findings | None = None
    subject: str | None = None
    beside: Mapping[str, Document] = field(default_factory=dict)
    linked: Sequence[tuple[str, str]] = ()

    def __post_init__(self) -> None:
        self.numbers["pictures"] = list(self.pictures)
        self.early = early_look(self.chains)
        if self.early:
            self.verdict = replace(self.verdict, found=[self.early, *self.verdict.found])

    @property
    def pictures(self) -> dict[str, Picture]:
        """PNG by name."""
        return {figure.name: figure.picture for figure in self.figures}

    def add(self, section: Section, before: Sequence[str] = (), *figures: Figure) -> None:
        """Add a section, with figures that it ends with, before the first that has one of these names; at the end where
        there is none."""
        at = next((i for i, s in enumerate(self.sections) if s.name in before), len(self.sections))
        self.sections.insert(at, replace(section, parts=[*section.parts, *figures]))
        self.figures = [*self.figures, *figures]
        self.numbers["pictures"] = list(self.pictures)


def early_look(chains: Sequence[Chain]) -> str:
    """Say how far chains are that have not reached their end; "" where all have."""
    if not any(chain.early for chain in chains):
        return ""
    most = "at most " if any(c.config.run.judged for c in chains) else ""
    planned = span([c.config.run.cycles for c in chains], "cycle")
    return f"An early look: {span([c.last for c in chains])} of {most}{planned}."


PAPER_FIRST = ("about", "chains")  # sections that paper has before the results


def on_paper_in_order(sections: Sequence[Section]) -> list[Section]:
    """The sections as paper has them."""
    first = [section for name in PAPER_FIRST for section in sections if section.name == name]
    return [*first, *(section for section in sections if section.name not in PAPER_FIRST)]
