"""Numeric columns that may depend on columns with levels (docs/links.md): chosen at the first start of a run, and
stored with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mpibayes.hpc.data.rows import Data
from mpibayes.io.rows import Column


def why_no_child(column: Column) -> str:
    """Reason why a numeric column cannot depend on one with levels; "" if it can."""
    if column.kind not in ("real", "count"):
        return f"is {column.kind}, which cannot depend on another column"
    return "has recurring values (atoms)" if column.atoms else ""


def child_columns(data: Data, links: str | Mapping[str, str], binned: Collection[str] = ()) -> tuple[str, ...]:
    """Names of the numeric columns that may depend on columns with levels: real ones that can and are in no block, or
    those named with such a parent. links: see `view.Settings`. binned: columns that are parents by bins."""
    apart = {*binned, *(c.name for c in data.columns if c.block == "vectors")}
    fit = [c for c in data.stored if not c.levels and c.name not in apart and not why_no_child(c)]
    with_levels = {c.name for c in data.stored if c.levels}
    if not isinstance(links, str):
        return tuple(c.name for c in fit if links.get(c.name) in with_levels)
    return tuple(c.name for c in fit if c.kind == "real") if with_levels else ()
