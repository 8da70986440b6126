"""A report as text: report.txt, and its opening on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import StringIO
from typing import Any

from mpibayes.hpc.report.document import ASKED, BAD, DOUBT, GOOD, PAPER, Document, on_paper_in_order
from mpibayes.hpc.report.tables import commands_in_words

WIDTH = 118  # of report.txt


def parts(document: Document) -> Iterator[Any]:
    """The parts of the text in order, "" between blocks."""
    from mpibayes.terminal import Text

    blocks = [[Text(document.early, style="bold")]] if document.early else []
    blocks += [block for section in on_paper_in_order(document.sections) for block in section.blocks(PAPER)]
    for i, block in enumerate(blocks):
        yield from [*[""] * bool(i), *block]


def opening(document: Document) -> list[Any]:
    """The verdict, and small tables of the largest results: a screen or two."""
    from rich.table import Table

    from mpibayes.terminal import Text

    v, homes = document.verdict, dict.fromkeys(str(c.home) for c in document.chains)
    style = {GOOD: "bold green", DOUBT: "bold yellow", BAD: "bold red"}[v.sound]
    subject, line = ", ".join(homes) if document.subject is None else document.subject, str(v)
    text = Text(f"{subject}: ").append(f"{line[:1].lower()}{line[1:]}", style=style) if subject else Text(line, style)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", width=max(len(question) for question, _ in ASKED))
    grid.add_column(overflow="fold")
    if v.approximation:
        grid.add_row("An approximation", Text(v.approximation, style="yellow"))
    for question, name in ASKED:
        for i, sentence in enumerate(getattr(v, name)):
            grid.add_row("" if i else question, Text(sentence))
    shown: list[Any] = [text, grid, *commands_in_words(v.commands)]
    for part in document.top:
        shown += ["", part]
    return shown


def print_parts(console: Any, shown: Sequence[Any]) -> None:
    """Print the parts; one that must not be wrapped, such as a command, stays a whole line whatever the width."""
    for part in shown:
        console.print(part, soft_wrap=bool(getattr(part, "no_wrap", False)))


def text_of(document: Document) -> str:
    """The report as it is in report.txt."""
    from mpibayes.terminal import Console

    text = StringIO()
    paper = Console(file=text, width=WIDTH, color_system=None, force_terminal=False, legacy_windows=False)
    print_parts(paper, list(parts(document)))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"
