"""The section of a report about the import of its table: columns that were left out, and questions to their owner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mpibayes.hpc.report.document import Document, Section, on_page, on_paper
from mpibayes.io.import_notes import ImportNotes

TITLE = "The table: what the import left out, and asks"
TITLES = "Left out", "Questions and warnings"
BEFORE = "chains", "about"
MOST = 12  # lines on the page
ADVICE = (
    "To answer, import the file again with the option that a line names, and run on that table; --keep COLUMN imports "
    "a column that was left out."
)


def add_import_notes(made: Document, source: Mapping[str, Any]) -> None:
    """Add the notes in a table's record of its source to a report, if there are any."""
    notes = ImportNotes.stored(source)
    left_out, asked = notes.without(brief=True), notes.questions(brief=True)
    if not left_out and not asked:
        return
    room = max(MOST // 2, MOST - len(asked))  # for columns; questions have the rest
    shown = left_out[:room], asked[: MOST - len(left_out[:room])]
    rest = len(left_out) + len(asked) - sum(map(len, shown))
    more = [f"{rest:,} more in report.txt"] * bool(rest)
    page = [part for title, lines in zip(TITLES, shown) if lines for part in _on_page(title, lines)]
    full = zip(TITLES, (notes.without(brief=False), notes.questions(brief=False)))
    paper = [part for title, lines in full if lines for part in _on_paper(title, lines)]
    parts = [on_page(*page, *more, ADVICE), on_paper(*_on_paper(TITLE, ()), *paper, ADVICE)]
    made.add(Section("table", TITLE, parts), BEFORE)
    made.numbers["import"] = {**notes.store(), "absent": list(notes.absences)}


def _on_page(title: str, lines: Sequence[str]) -> list[Any]:
    from rich.columns import Columns

    return [*_on_paper(title, ()), Columns(lines)]


def _on_paper(title: str, lines: Sequence[str]) -> list[Any]:
    from mpibayes.terminal import Text

    return [Text(title, style="bold"), *(f"- {line}" for line in lines)]
