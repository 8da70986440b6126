"""Real columns that may be linked in lines (docs/links.md): chosen at the first start of a run, and stored with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mpibayes.hpc.data.rows import Data
from mpibayes.io.rows import Column

MOST_MISSING = 0.2  # largest share of missing cells: they are drawn in every cycle, and mix slowly


def why_no_line(column: Column) -> str:
    """Reason why a numeric column can be neither child nor parent in a line; "" if it can."""
    if column.kind != "real":
        return f"is {column.kind}, and only real columns can be in lines"
    return "has recurring values (atoms)" if column.atoms else ""


def line_columns(data: Data, links: str | Mapping[str, str], binned: Collection[str] = ()) -> tuple[str, ...]:
    """Names of the real columns that may be linked in lines: all that can, have few missing cells and are in no block,
    or those named with a numeric parent. links: see `view.Settings`. binned: columns that are parents by bins."""
    apart = {*binned, *(c.name for c in data.columns if c.block == "vectors")}
    fit = {c.name: c for c in data.stored if not c.levels and c.name not in apart and not why_no_line(c)}
    if isinstance(links, str):
        most = MOST_MISSING * data.table.n_rows
        fit = {name: c for name, c in fit.items() if c.n_missing <= most}
    else:
        pairs = [pair for pair in links.items() if pair[0] in fit and pair[1] in fit]
        fit = {name: c for name, c in fit.items() if any(name in pair for pair in pairs)}
    return tuple(fit) if len(fit) > 1 else ()
