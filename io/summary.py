"""What an import says: what each column became and why, and what its owner should look at."""

from __future__ import annotations

from dataclasses import dataclass

from mpibayes.io.rows import KINDS
from mpibayes.io.table import Table
from mpibayes.text import counted, visible

LISTED = 500  # columns that are printed, at most


@dataclass(frozen=True)
class ColumnSummary:
    """One column of the source: what became of it. `n_levels` is 0 for real, count and ignored columns."""

    name: str
    kind: str
    n_levels: int
    levels: tuple[str, ...]
    n_missing: int
    reason: str
    mean: float | None = None
    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True)
class ImportSummary:
    table: Table
    rows: int
    columns: tuple[ColumnSummary, ...]
    warnings: tuple[str, ...]
    seconds: float
    reading: str  # how the source was read, in words


def summary_lines(summary: ImportSummary) -> list[str]:
    """The summary as plain lines."""
    table = summary.table
    used = [c for c in summary.columns if c.kind != "ignored"]
    n_kinds = [(kind, sum(c.kind == kind for c in used)) for kind in KINDS]
    parts = ", ".join(f"{n} {kind}" for kind, n in n_kinds if n)
    lines = [
        f"{visible(table.path)}: {counted(summary.rows, 'row')}, {len(used)} of {len(summary.columns)} columns "
        f"({parts}), {summary.seconds:.1f} s",
        f"read as {summary.reading}",
    ]
    names = [visible(c.name) for c in summary.columns]
    width = max(map(len, names))
    lines += [
        f"  {name:<{width}}  {c.kind:<11}  {visible(_content(c))}{_missing(c, summary.rows)}"
        for name, c in zip(names, summary.columns, strict=True)
    ]
    return lines + [f"warning: {visible(w)}" for w in summary.warnings]


def _content(c: ColumnSummary) -> str:
    if c.kind == "ignored":
        return c.reason
    if c.n_levels:
        shown = ", ".join(v if len(v) <= 24 else v[:23] + "…" for v in c.levels[:4])
        return f"{counted(c.n_levels, 'level')}: {shown}" + (", ..." if c.n_levels > 4 else "")
    return f"{c.minimum:.6g} to {c.maximum:.6g}, mean {c.mean:.6g}"


def _missing(c: ColumnSummary, rows: int) -> str:
    if not c.n_missing or c.kind == "ignored":
        return ""
    return f"; {c.n_missing:,} missing ({100 * c.n_missing / rows:.2g} %)"


def print_summary(summary: ImportSummary, console) -> None:
    """The summary as a table on a rich console."""
    from rich.table import Table as Grid

    from mpibayes.terminal import Text

    head, reading = summary_lines(summary)[:2]
    console.print(Text(head))
    console.print(Text(reading, style="dim"))
    grid = Grid(box=None, pad_edge=False, header_style="bold")
    for title in ("column", "kind", "content", "missing", "why"):
        grid.add_column(title, justify="right" if title == "missing" else "left", overflow="fold")
    for c in summary.columns[:LISTED]:
        ignored = c.kind == "ignored"
        content = "" if ignored else _content(c)
        share = f"{100 * c.n_missing / summary.rows:.2g} %" if c.n_missing else ""
        grid.add_row(Text(c.name), c.kind, Text(content), share, Text(c.reason), style="dim" if ignored else "")
    console.print(grid)
    if len(summary.columns) > LISTED:
        console.print(Text(f"and {len(summary.columns) - LISTED:,} more columns; --write-schema lists all"))
    for warning in summary.warnings:
        console.print(Text(f"warning: {warning}", style="yellow"))
