"""Summary of an import: the kind of each column with the reason, and warnings for its owner."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mpibayes.io.clock import as_text
from mpibayes.io.measured import AS_IT_IS, Recording
from mpibayes.io.rows import KINDS
from mpibayes.io.table import Table
from mpibayes.text import counted, enumerated, percent, visible

WIDE = 60  # number of columns above which only the unusual ones are named
UNUSUAL = 30  # unusual columns named, at most
NAMED = 5  # columns named in a line about several


@dataclass(frozen=True)
class ColumnSummary:
    """Outcome for one column of the source. `n_levels` is 0 for real, count and ignored columns; statistics of columns
    without values are None."""

    name: str
    kind: str
    n_levels: int
    levels: tuple[str, ...]
    n_missing: int
    reason: str
    mean: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    warned: bool = False
    recording: Recording = AS_IT_IS
    unit: str = ""
    ordered: bool = False  # levels are listed from least to greatest


@dataclass(frozen=True)
class ImportSummary:
    table: Table
    rows: int
    columns: tuple[ColumnSummary, ...]
    warnings: tuple[str, ...]
    seconds: float
    reading: str  # dialect of the source, in words
    written: bool = True  # False for a dry run, see `ingest.look_at`
    notes: tuple[str, ...] = ()  # decisions about several columns, each with the option that changes it
    sha256: tuple[str, ...] = ()  # of the content of each source, if requested


def summary_lines(summary: ImportSummary, verbose: bool = False) -> list[str]:
    """The summary as plain lines: the table, how the source was read, the columns, and the warnings."""
    columns = [
        f"  {visible(c.name)}  {c.kind}  {visible(_content(c))}{_missing(c, summary.rows)}"
        for c in listed(summary, verbose)
    ]
    wide = [f"  {visible(line)}" for line in by_kind(summary)] if is_wide(summary, verbose) else []
    more = [f"note: {visible(note)}" for note in summary.notes]
    return [*_head(summary), *wide, *columns, *more, *(f"warning: {visible(w)}" for w in warnings(summary, verbose))]


def _head(summary: ImportSummary) -> tuple[str, str]:
    used = [c for c in summary.columns if c.kind != "ignored"]
    n_kinds = [(kind, sum(c.kind == kind for c in used)) for kind in KINDS]
    parts = ", ".join(f"{n} {kind}" for kind, n in n_kinds if n)
    name = visible(summary.table.path if summary.written else ", ".join(summary.table.source["files"]))
    return (
        f"{name}: {counted(summary.rows, 'row')}, {len(used)} of {len(summary.columns)} columns ({parts}), "
        f"{summary.seconds:.1f} s" + ("" if summary.written else "; no table was written"),
        f"read as {summary.reading}",
    )


def is_wide(summary: ImportSummary, verbose: bool) -> bool:
    """True if the columns are summarised by kind."""
    return len(summary.columns) > WIDE and not verbose


def listed(summary: ImportSummary, verbose: bool) -> Sequence[ColumnSummary]:
    """Columns that are named: in a wide table, the used ones with warnings or atoms."""
    if not is_wide(summary, verbose):
        return summary.columns
    used = [c for c in summary.columns if c.kind != "ignored"]
    return sorted((c for c in used if c.warned or c.recording.atoms), key=lambda c: not c.warned)[:UNUSUAL]


def by_kind(summary: ImportSummary) -> Iterator[str]:
    """Yield a line per kind, and one per reason for leaving columns out."""
    for kind in KINDS:
        of_kind = [c for c in summary.columns if c.kind == kind]
        if of_kind:
            names = f" ({', '.join(c.name for c in of_kind)})" if len(of_kind) <= NAMED else ""
            yield f"{counted(len(of_kind), f'{kind} column')}{names}: {'; '.join(_in_all(of_kind))}"
    reasons: dict[str, list[str]] = {}
    for c in summary.columns:
        if c.kind == "ignored":
            reasons.setdefault(re.split("[:(]", c.reason)[0].strip(), []).append(c.name)
    for reason, names in reasons.items():
        yield f"{counted(len(names), 'column')} left out, {reason}: {first_of(names)}"


def _in_all(columns: Sequence[ColumnSummary]) -> Iterator[str]:
    """Yield common properties of the columns of one kind."""
    levels = sorted(c.n_levels for c in columns)
    if levels[-1]:
        yield counted(levels[0], "level") if levels[0] == levels[-1] else f"{levels[0]} to {levels[-1]:,} levels"
    else:
        known = [c for c in columns if c.minimum is not None]
        if numbers := [c for c in known if not c.unit]:
            yield f"values from {min(c.minimum for c in numbers):.6g} to {max(c.maximum for c in numbers):.6g}"
        if dates := len(known) - len(numbers):
            yield f"{dates:,} of dates or times"
        if not known:
            yield "no values"
    steps = [c.recording.resolution for c in columns if c.recording.resolution and not c.unit]
    if steps:
        usual = max(set(steps), key=steps.count)
        yield f"{steps.count(usual):,} in steps of {usual:.6g}"
        if len(steps) > steps.count(usual):
            yield f"{len(steps) - steps.count(usual):,} in other steps"
    for what, n in (
        ("with values of their own", sum(bool(c.recording.atoms) for c in columns)),
        ("in order", sum(c.ordered for c in columns)),
        ("on a log scale", sum(c.recording.log for c in columns)),
        ("with missing cells", sum(c.n_missing > 0 for c in columns)),
    ):
        if n:
            yield f"{n:,} {what}"


def named(names: Sequence[str], most: int = NAMED) -> str:
    """Join the first names, in quotes, and the number of further ones.

    >>> named(["a", "b", "c"]), named(list("abcdefgh"))
    ("'a', 'b' and 'c'", "'a', 'b', 'c', 'd', 'e' and 3 more")
    """
    return enumerated([f"'{name}'" for name in names[:most]] + [f"{len(names) - most:,} more"] * (len(names) > most))


def first_of(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")


def warnings(summary: ImportSummary, verbose: bool = False) -> list[str]:
    """Warnings; of those that say the same about many columns, only the first."""
    return list(summary.warnings if verbose else first_ones(summary.warnings, "; --verbose lists them"))


def first_ones(warnings: Iterable[str], more: str = "", most: int = NAMED) -> Iterator[str]:
    """Yield warnings; of those that say the same about more than `most` columns, only the first, which ends with
    `more`."""
    alike: dict[str, list[str]] = {}
    for warning in warnings:
        alike.setdefault(re.sub(r"'[^']*'|\d[\d.,]*|--(drop|keep|kind|missing) \S+", "", warning), []).append(warning)
    for names in alike.values():
        if len(names) <= most:
            yield from names
        else:
            yield f"{names[0]} (and {counted(len(names) - 1, 'more column')} likewise{more})"


def _content(c: ColumnSummary) -> str:
    if c.kind == "ignored":
        return c.reason
    if c.n_levels:
        between = " < " if c.ordered else ", "
        shown = between.join(v if len(v) <= 24 else v[:23] + "…" for v in c.levels[:4])
        return f"{counted(c.n_levels, 'level')}: {shown}" + (f"{between}..." if c.n_levels > 4 else "")
    if c.minimum is None:
        return "no values"
    if c.unit:
        return f"{as_text(c.minimum, c.unit)} to {as_text(c.maximum, c.unit)}"
    return f"{c.minimum:.6g} to {c.maximum:.6g}, mean {c.mean:.6g}"


def _missing(c: ColumnSummary, rows: int) -> str:
    if not c.n_missing or c.kind == "ignored":
        return ""
    return f"; {c.n_missing:,} missing ({percent(c.n_missing / rows)})"


def print_summary(summary: ImportSummary, console, verbose: bool = False) -> None:
    """Print the summary on a rich console, the columns as a table; verbose: all columns of a wide table, all
    warnings."""
    from rich.table import Table as Grid

    from mpibayes.terminal import Text

    head, reading = _head(summary)
    console.print(Text(head))
    console.print(Text(reading, style="dim"))
    columns, wide = listed(summary, verbose), is_wide(summary, verbose)
    for line in by_kind(summary) if wide else ():
        console.print(Text(f"  {line}"))
    if wide:
        these = "; the unusual ones:" if columns else ""
        console.print(Text(f"--verbose lists all {len(summary.columns):,} columns{these}", style="dim"))
    grid = Grid(box=None, pad_edge=False, header_style="bold")
    for title in ("column", "kind", "content", "missing", "why"):
        grid.add_column(title, justify="right" if title == "missing" else "left", overflow="fold")
    for c in columns:
        ignored = c.kind == "ignored"
        content = "" if ignored else _content(c)
        share = percent(c.n_missing / summary.rows) if c.n_missing else ""
        style = "dim" if ignored else ""
        grid.add_row(Text(c.name), "left out" if ignored else c.kind, Text(content), share, Text(c.reason), style=style)
    if columns:
        console.print(grid)
    for note in summary.notes:
        console.print(Text(f"note: {note}"))
    for warning in warnings(summary, verbose):
        console.print(Text(f"warning: {warning}", style="yellow"))
