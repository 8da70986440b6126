"""Tables of several parts: later rows are in files beside the first, `people.part-2.h5` beside `people.h5`.

Each part is a typed table by itself, sealed, and never changed. It names the fingerprint of the table that it
continues, so that a part of another table, or a missing previous part, is noticed. Row numbers continue from part to
part. Levels that occur only in later rows follow the earlier ones: codes of levels never change.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mpibayes.errors import DataError
from mpibayes.io.files import reading
from mpibayes.io.piece import Piece
from mpibayes.io.rows import BLOCKS, Column, Rows, place_columns


def part_path(table: Path, number: int) -> Path:
    """Name of part `number` of a table; part 1 is the file of the table's own name.

    >>> part_path(Path("people.h5"), 2).name
    'people.part-2.h5'
    """
    return table if number == 1 else table.with_name(f"{table.stem}.part-{number}{table.suffix}")


def table_of_part(path: Path) -> Path | None:
    """Table that a file is a part of, by its name; None if it has no such name."""
    name = re.fullmatch(r"(.+)\.part-[1-9]\d*", path.stem)
    return path.with_name(name[1] + path.suffix) if name else None


def later_parts(table: Path) -> list[tuple[int, Path]]:
    """Files with the name of a later part of a table, in order of number."""
    like = re.compile(re.escape(table.stem) + r"\.part-([1-9]\d*)" + re.escape(table.suffix))
    with reading(table):
        names = [path.name for path in table.parent.iterdir()]
    result = ((int(match[1]), table.with_name(match[0])) for match in map(like.fullmatch, names) if match)
    return sorted((number, path) for number, path in result if number > 1)


def pieces_of(table: Path) -> list[Piece]:
    """Open the files of a table in the order of their rows. Raises DataError if one is missing, or of another table."""
    pieces = [Piece.open(table)]
    if pieces[0].follows:  # a part, read as a table of only its rows
        return pieces
    for number, path in later_parts(table):
        piece = Piece.open(path)
        if not piece.follows:  # an independent table with such a name
            continue
        if number != len(pieces) + 1:
            lacks = part_path(table, len(pieces) + 1)
            raise DataError(f"{table}: its part {lacks.name} is not there, but {path.name} is; put it back")
        if piece.follows != fingerprints(pieces)[-1]:
            raise DataError(
                f"{path}: its rows come after another table than {table}, which was imported again or changed since; "
                "move it away, and append its rows anew"
            )
        if wrong := _differences(pieces[-1].columns, piece.columns):
            raise DataError(f"{path}: does not fit {table}; put the files back as they were", wrong)
        pieces.append(piece)
    return pieces


def fingerprints(pieces: Sequence[Piece]) -> list[str]:
    """Fingerprints of the table after the first of these files, after the first two, and so on."""
    every = [pieces[0].fingerprint]
    for piece in pieces[1:]:
        every.append(hashlib.sha256(f"{every[-1]} {piece.fingerprint}".encode()).hexdigest())
    return every


def _differences(old: Sequence[Column], new: Sequence[Column]) -> list[str]:
    """Describe how a part's columns differ from those of the previous part, other than by levels at the end."""
    problems = []
    if [c.name for c in old] != [c.name for c in new]:
        return ["other columns, or in another order"]
    for a, b in zip(old, new):
        if (a.kind, a.resolution, a.atoms, a.log, a.unit) != (b.kind, b.resolution, b.atoms, b.log, b.unit):
            problems.append(f"column '{a.name}': of another kind, or recorded otherwise")
        elif b.levels[: len(a.levels)] != a.levels or a.ordered != b.ordered:
            problems.append(f"column '{a.name}': other levels, or in another order")
    return problems


# --- the columns of all parts together --------------------------------------------------------------------------------


def joined_columns(pieces: Sequence[Piece]) -> tuple[Column, ...]:
    """Columns of all rows: the levels of the last part, and the statistics of all parts."""
    columns, n = pieces[0].columns, pieces[0].n_rows
    for piece in pieces[1:]:
        columns = tuple(_joined(a, n, b, piece.n_rows) for a, b in zip(columns, piece.columns, strict=True))
        n += piece.n_rows
    return columns


def joined_source(pieces: Sequence[Piece]) -> dict[str, Any]:
    """Record of the source: that of the first part, with the files of all."""
    files = [name for piece in pieces for name in piece.source.get("files", ())]
    return dict(pieces[0].source) | ({"files": files} if files else {})


def _joined(a: Column, n: int, b: Column, m: int) -> Column:
    """Column `b` of m rows with the statistics of the n rows of `a` added (Chan, Golub & LeVeque 1979)."""
    column = replace(b, n_missing=a.n_missing + b.n_missing, n_rest=-1)
    if b.levels:
        return column
    seen_a, seen_b = n - a.n_missing, m - b.n_missing
    if seen_a and seen_b:
        limits = {"minimum": min(a.minimum, b.minimum), "maximum": max(a.maximum, b.maximum)}
    else:
        limits = {"minimum": (b if seen_b else a).minimum, "maximum": (b if seen_b else a).maximum}
    center, scale = _moments((seen_a, a.center, _spread(a.scale)), (seen_b, b.center, _spread(b.scale)))
    column = replace(column, center=center, scale=scale, **limits)
    if b.kind == "survival":  # the time axis is that of the first part
        return replace(column, rest_scale=a.rest_scale, ends=a.ends)
    if b.kind != "real":
        return column
    if not (b.atoms or b.log):
        rest = center, scale
    else:
        rests = [_rests(c, seen) for c, seen in ((a, seen_a), (b, seen_b))]
        rest = _moments(*((k, c.rest_center, _spread(_without_steps(c))) for k, c in zip(rests, (a, b))))
        column = replace(column, n_rest=sum(rests))
    return replace(column, rest_center=rest[0], rest_scale=math.hypot(rest[1], _steps(b)))


def _moments(*of: tuple[int, float, float]) -> tuple[float, float]:
    """Mean and standard deviation of two groups together, each (count, mean, deviation); 1 for a deviation of 0."""
    (n, mean, deviation), (m, other, its_deviation) = of
    if n + m == 0:
        return 0.0, 1.0
    shift = other - mean
    scatter = n * deviation**2 + m * its_deviation**2 + shift**2 * n * m / (n + m)
    scale = math.sqrt(scatter / (n + m))
    return mean + shift * m / (n + m), scale if scale > 0 else 1.0


def _spread(scale: float) -> float:
    """Standard deviation behind a header's scale, which is 1 if all numbers are equal."""
    return 0.0 if scale == 1.0 else scale


def _steps(column: Column) -> float:
    """Standard deviation of latent numbers within their cells, as in `summarise`."""
    return 0.0 if column.log else column.resolution / math.sqrt(12.0)


def _without_steps(column: Column) -> float:
    """Standard deviation of the rests as recorded."""
    if column.rest_scale == math.hypot(1.0, _steps(column)):
        return 1.0
    return math.sqrt(max(column.rest_scale**2 - _steps(column) ** 2, 0.0))


def _rests(column: Column, seen: int) -> int:
    """Number of cells that are not atoms; if a file did not record it, of all cells that are present."""
    return seen if column.n_rest < 0 else column.n_rest


# --- rows ---------------------------------------------------------------------------------------------------------


def in_columns(rows: Rows, theirs: Sequence[Column], ours: Sequence[Column]) -> Rows:
    """Code the rows of a part with all of the table's levels: `theirs` are the part's columns, `ours` the table's."""
    if all((a.block, a.index, a.levels) == (b.block, b.index, b.levels) for a, b in zip(theirs, ours, strict=True)):
        return rows
    result = Rows.empty(ours, len(rows))
    for a, b in zip(theirs, ours):
        cells = getattr(rows, a.block)[:, a.index]
        if a.levels != b.levels:
            missing = cells == a.blank
            cells = cells.astype(BLOCKS[b.block])  # first widen: a byte has no room for the new code
            cells[missing] = b.blank
        getattr(result, b.block)[:, b.index] = cells
    return result


def with_levels(columns: Sequence[Column], new: dict[str, Sequence[str]]) -> tuple[Column, ...]:
    """Add levels at the end of columns, by name; columns are placed anew, since a byte holds at most 255 levels."""
    longer = [replace(c, levels=(*c.levels, *new.get(c.name, ()))) for c in columns]
    placed = place_columns((c.name, c.kind, c.levels) for c in longer)
    return tuple(replace(c, block=p.block, index=p.index) for c, p in zip(longer, placed, strict=True))
