"""A report as a document: a verdict, sections of typed parts, figures, and numbers for programs.

A family makes one, once. Renderers that know no family show it: `text.py` as report.txt and on the terminal, `page/` as
report.html; its `numbers` are summary.json. Parts are texts (strings, or `mpibayes.terminal.Text`), `Facts`, `Table`,
small tables made by `tables.plain_table`, `WideTable`, `Matrix`, `Stops`, `Traces`, `Figure` and `Link`. Numbers are
unrounded, NaN if there is none; texts are as in the table.
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
SOUND = {  # headlines of verdicts
    GOOD: "No problems found", DOUBT: "Read this with care", BAD: "Do not use this result yet",
}  # fmt: skip
ASKED = (  # questions that a verdict answers, with the field that answers each
    ("What was found", "found"), ("Do the chains agree?", "chains"), ("What to do next", "next"),
    ("Warnings", "warnings"),
)  # fmt: skip
Command = tuple[str, str]  # what it does, and the shell command, on a line of its own wherever it is shown


@dataclass(frozen=True)
class Verdict:
    """The opening of a report, in sentences: what was found, whether the chains agree, what to do next, and warnings.

    sound: GOOD if no problem was found; DOUBT; or BAD if the chains contradict each other. approximation: caveat of an
    approximation, "" for draws of the posterior. commands: next steps; sentences contain none.
    headline: replaces the text of SOUND.
    """

    found: Sequence[str]
    chains: Sequence[str]
    next: Sequence[str]
    sound: str = DOUBT
    approximation: str = ""
    commands: Sequence[Command] = ()
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

    On paper numbers have `digits` decimals, texts are shortened by `brief`, and columns of one `group` stay together if
    the table is wider than the paper.
    """

    heading: str
    kind: str = "text"
    about: str = ""  # explanation
    on: str = BOTH
    digits: int | None = None
    brief: Callable[[str], str] | None = None
    group: int = 0

    def cell(self, x: Any) -> Any:
        """Cell as it appears on paper."""
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
    """A number and its text on paper, with as many digits as its uncertainty allows."""

    text: str

    def __new__(cls, x: float, text: str) -> Rounded:
        made = super().__new__(cls, x)
        made.text = text
        return made


class Styled(str):
    """A text and its replacement on paper."""

    text: Any

    def __new__(cls, x: str, text: Any) -> Styled:
        made = super().__new__(cls, x)
        made.text = text
        return made


@dataclass(frozen=True)
class Levels:
    """Distribution of a categorical column: overall (L,) over all rows, p (K, L) in each group of rows, of the named
    levels; the remainder is the other levels'. apart (K,) nats: distance of a group from all rows."""

    name: str
    levels: Sequence[str]
    overall: np.ndarray
    p: np.ndarray
    apart: np.ndarray
    missing: np.ndarray | None = None  # (K,) shares, if any cells are missing
    missing_overall: float = 0.0
    ordered: bool = False  # the levels are on a scale, in ascending order


@dataclass(frozen=True)
class Numbers:
    """Distribution of a numeric column: means and standard deviations, (K,), in each group of rows; overall: in all
    rows. log: True if they are of logarithms."""

    name: str
    overall: tuple[float, float]
    mean: np.ndarray
    sd: np.ndarray
    apart: np.ndarray
    missing: np.ndarray | None = None
    missing_overall: float = 0.0
    log: bool = False
    unit: str = ""  # unit of dates
    step: float = 0.0  # of dates, in days


@dataclass(frozen=True)
class Details:
    """All columns of the first K rows of a `Table`, compared with the whole. apart: description of the columns'
    `apart`; whole: description of the overall numbers."""

    columns: Sequence[Levels | Numbers]
    apart: str
    whole: str = "all rows"
    here: str = "here"


@dataclass(frozen=True)
class Table:
    """A table that the page sorts and searches, with `most` lines on paper (0: all). Cells have the types of their
    fields' kinds; None: empty.

    noun: name of a row. titles: headings of each row's details. caption: text below the table, or a function of the
    number of rows shown. more: text after the number of rows that paper omits.
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
        """Fields and rows for a medium, PAGE or PAPER."""
        at = [i for i, f in enumerate(self.fields) if f.on in (BOTH, where)]
        return [self.fields[i] for i in at], [[row[i] for i in at] for row in self.rows]

    def words(self, shown: int) -> str:
        """Caption if `shown` rows are shown."""
        if callable(self.caption):
            return self.caption(shown)
        left = len(self.rows) - shown
        return "; ".join([f"{left:,} {self.more}"] * (left > 0) + [self.caption] * bool(self.caption))

    def brief(self, most: int, headings: Sequence[str], title: str = "") -> Table:
        """First `most` lines of the fields with these headings, for the terminal, without styles. title: heading of the
        last field."""
        names = [f.heading for f in self.fields]
        at = [names.index(heading) for heading in headings]
        fields = [replace(self.fields[i], on=BOTH) for i in at]
        fields[-1] = replace(fields[-1], heading=title or fields[-1].heading)
        rows = [[str(row[i]) if isinstance(row[i], Styled) else row[i] for i in at] for row in self.rows]
        return Table(self.noun, fields, rows, caption=self.caption if callable(self.caption) else "", most=most)

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        """Render the table for paper."""
        from mpibayes.hpc.report.wide_table import of_fields

        fields, rows = self.on(PAPER)
        rows = rows[: self.most or None]
        yield from of_fields(fields, rows, self.words(len(rows)))


@dataclass(frozen=True)
class Stops:
    """Tables of which a slider shows one, each below its words; `first`: index of the table shown first.

    label: the quantity that the slider sets; names: of its stops. marks: "good", "doubt" or "bad" for each stop.
    """

    label: str
    names: Sequence[str]
    words: Sequence[str]
    tables: Sequence[Table]
    marks: Sequence[str]
    first: int = 0


@dataclass(frozen=True)
class Matrix:
    """A share (C, C), symmetric, for each pair of names, in groups that end at `ends`; words: what it is a share of."""

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
    """A picture of the report, the name of its file, and words that replace it where it cannot be shown."""

    name: str
    picture: Picture
    words: str = ""


def drawn(figures: Sequence[Figure], *names: str) -> list[Figure]:
    """Return the figures with these names, as far as they exist."""
    return [figure for name in names for figure in figures if figure.name == name]


@dataclass(frozen=True)
class Facts:
    """A title, and lines of a term and its text."""

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
    """A link to a file beside the page, by its path from there; words: the link's text."""

    words: str
    path: str


@dataclass(frozen=True)
class Only:
    """A block of parts for one medium alone, PAGE or PAPER."""

    on: str
    parts: Sequence[Any]


def on_page(*parts: Any) -> Only:
    return Only(PAGE, parts)


def on_paper(*parts: Any) -> Only:
    return Only(PAPER, parts)


OFF_PAPER = (Stops, Matrix, Traces, Figure, Link)  # parts that only the page can show


@dataclass(frozen=True)
class Section:
    """A part of the report with its own heading on the page; `name` is its anchor in the address. Its parts are blocks,
    separated by an empty line on paper: a part, a list of parts, or parts of one medium. on: as in `Field`."""

    name: str
    title: str
    parts: Sequence[Any] = field(default_factory=tuple)
    on: str = BOTH

    def blocks(self, where: str) -> list[list[Any]]:
        """Blocks of a medium, PAGE or PAPER, none of them empty."""
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

    chains: chains of the run, with their traces read; if they have not reached their end, the report begins with the
    message `early`. sections: in the order of the page; paper has the ones in PAPER_FIRST first. top: small tables of
    the results, for the terminal. numbers: summary.json, to which it adds the names of the figures. files: further
    texts by name. findings: groups of rows and columns, None for a model that groups none. subject: subject of the
    verdict, by default the run directories; "" if its headline names it. beside: other reports, by their folder below
    this one's. linked: (column, parent) links inside clusters that most draws have, strongest first.
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
        """PNG pictures by name."""
        return {figure.name: figure.picture for figure in self.figures}

    def add(self, section: Section, before: Sequence[str] = (), *figures: Figure) -> None:
        """Insert a section, ending with these figures, before the first section named in `before`; at the end if there
        is none."""
        at = next((i for i, s in enumerate(self.sections) if s.name in before), len(self.sections))
        self.sections.insert(at, replace(section, parts=[*section.parts, *figures]))
        self.figures = [*self.figures, *figures]
        self.numbers["pictures"] = list(self.pictures)


def early_look(chains: Sequence[Chain]) -> str:
    """Describe the progress of chains that have not reached their end; "" if all have."""
    if not any(chain.early for chain in chains):
        return ""
    most = "at most " if any(c.config.run.judged for c in chains) else ""
    planned = span([c.config.run.cycles for c in chains], "cycle")
    return f"An early look: {span([c.last for c in chains])} of {most}{planned}."


PAPER_FIRST = ("about", "chains")  # sections that come before the results on paper


def on_paper_in_order(sections: Sequence[Section]) -> list[Section]:
    """Sections in their order on paper."""
    first = [section for name in PAPER_FIRST for section in sections if section.name == name]
    return [*first, *(section for section in sections if section.name not in PAPER_FIRST)]
