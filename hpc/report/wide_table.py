"""A table of many columns, split into as many parts as a narrow terminal needs: nothing is cut off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mpibayes.hpc.report.document import Field
from mpibayes.hpc.report.tables import plain_table
from mpibayes.text import visible

LEAST_NAME = 24  # letters per line, at least, for names that fold
MOST_LETTERS = 300  # letters of a name, at most
GAP = 2  # between columns


@dataclass(frozen=True)
class Group:
    """Columns that stay together: headings, and the cells of each row."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def width(self) -> int:
        columns = zip(*(self.headings, *self.rows))
        return sum(GAP + max(map(len, column)) for column in columns)


@dataclass(frozen=True)
class WideTable:
    """Rows by name. Groups of columns that do not fit beside the previous ones continue below, with the names again;
    names fold."""

    names: Sequence[str]
    groups: Sequence[Group]
    of: str = ""  # heading of the names

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        names = [name if len(name) <= MOST_LETTERS else name[: MOST_LETTERS - 1] + "…" for name in self.names]
        least = min(LEAST_NAME, max(len(visible(name)) for name in (self.of, *names)))
        for i, groups in enumerate(self._parts(options.max_width - least)):
            if i:
                yield ""
            yield _table(self.of, names, groups)

    def _parts(self, room: int) -> list[list[Group]]:
        parts: list[list[Group]] = []
        for group in self.groups:
            if parts and sum(g.width for g in (*parts[-1], group)) <= room:
                parts[-1].append(group)
            else:
                parts.append([group])
        return parts


def chain_table(columns: Mapping[str, Sequence[str]]) -> WideTable:
    """A line per chain. columns: cells by heading, the chains' names first; "sd" stays with the column before it."""
    (of, names), *others = columns.items()
    groups: list[Group] = []
    for heading, cells in others:
        one = Group((heading,), [(cell,) for cell in cells])
        if heading == "sd":
            mean = groups.pop()
            one = Group((*mean.headings, heading), [(*row, cell) for row, cell in zip(mean.rows, cells)])
        groups.append(one)
    return WideTable(names, groups, of)


def of_fields(fields: Sequence[Field], rows: Sequence[Sequence[Any]], caption: str) -> list[Any]:
    """Lay out a `document.Table` on paper: leading texts, numbers, other texts; as a `WideTable` if its fields have
    groups."""
    from mpibayes.terminal import Text

    below = [Text(caption, style="dim")] * bool(caption)
    cells = [[field.cell(x) for x in column] for field, column in zip(fields, zip(*rows))] or [[] for _ in fields]
    if any(field.group for field in fields):
        grouped: dict[int, list[int]] = {}
        for i, field in enumerate(fields[1:], 1):
            grouped.setdefault(field.group, []).append(i)
        groups = [
            Group([fields[i].heading for i in at], list(zip(*(map(str, cells[i]) for i in at))))
            for at in grouped.values()
        ]
        return [WideTable([str(cell) for cell in cells[0]], groups, fields[0].heading), *below]
    texts = [field.kind == "text" for field in fields]
    first = texts.index(False) if False in texts else len(fields)
    order = sorted(range(len(fields)), key=lambda i: texts[i] and i >= first)
    table = plain_table(*(fields[i].heading for i in order))
    for column, i in zip(table.columns, order):
        column.justify, column.no_wrap = "left" if texts[i] else "right", not texts[i]
    for line in zip(*(cells[i] for i in order)):
        table.add_row(*line)
    return [table, *below]


def _table(of: str, names: Sequence[str], groups: Sequence[Group]) -> Any:
    from mpibayes.terminal import Text

    table = plain_table(of, *(heading for group in groups for heading in group.headings))
    for name, *cells in zip(names, *(group.rows for group in groups)):
        table.add_row(Text(name), *(cell for row in cells for cell in row))
    return table
