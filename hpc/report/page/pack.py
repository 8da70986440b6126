"""Compact JSON for the parts of a page that its script shows: long tables, columns of clusters, matrices and traces.

Shares are 16 bits each and distances thousandths of a nat, in base64. A page that would be too large omits the least
informative levels of categorical columns, then the details of the last rows, then cycles of the traces.
"""

from __future__ import annotations

import base64
import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from mpibayes.hpc.report.document import PAGE, Details, Levels, Matrix, Numbers, Stops, Table, Traces
from mpibayes.hpc.scalar import shown
from mpibayes.io.clock import around
from mpibayes.text import visible

MOST_ROWS = 20_000  # rows of a table
MOST_PAIRS = 300_000  # (row, column) pairs with details
MOST_STOP_PAIRS = 30_000  # the same for all tables of a slider
MOST_SHARES = 1_200_000  # shares of levels in these details
MOST_NAMES = 1000  # names of a matrix
MOST_LEVELS = 24  # named levels of a column
MOST_POINTS = 1500  # points of a line
LETTERS = 300  # letters of a name
WHOLE = 65_535
NATS = 1000.0  # units per nat


def packed(part: Table | Matrix | Stops | Traces) -> dict[str, Any]:
    """Data of a part for the page's script, in plain types; NaN becomes None."""
    if isinstance(part, Table):
        return _browse(part)
    if isinstance(part, Matrix):
        return _matrix(part)
    return _stops(part) if isinstance(part, Stops) else _traces(part)


def printable(text: object) -> str:
    """A text from outside the program with unprintable characters made visible, at most LETTERS long."""
    text = visible(text)
    return text if len(text) <= LETTERS else text[: LETTERS - 1] + "…"


def brief(x: Any) -> Any:
    """Round a number to five figures; None if it is not finite; texts are shortened; lists item by item."""
    if x is None or isinstance(x, str):
        return x if x is None else printable(x)
    if isinstance(x, (list, tuple)):
        return [brief(y) for y in x]
    if isinstance(x, (int, np.integer)):
        return int(x)
    return float(f"{x:.5g}") if math.isfinite(x) else None


def _browse(b: Table) -> dict[str, Any]:
    fields, rows = b.on(PAGE)
    rows = [[brief(x) for x in row] for row in rows[:MOST_ROWS]]
    left_out = f"{len(b.rows) - len(rows):,} more are not shown" if len(b.rows) > len(rows) else ""
    caption = b.words(len(b.rows))
    return {
        "part": "browse", "noun": b.noun, "rows": rows, "caption": "; ".join(w for w in (caption, left_out) if w),
        "fields": [[f.heading, f.kind, f.about] for f in fields],
        "details": None if b.details is None else _details(b.details),
        "titles": [printable(t) for t in b.titles[: len(rows)]],
    }  # fmt: skip


def _details(d: Details) -> dict[str, Any]:
    n = len(d.columns[0].apart) if d.columns else 0
    n = min(n, max(1, MOST_PAIRS // max(len(d.columns), 1)))
    levels = [c for c in d.columns if isinstance(c, Levels)]
    most, at = MOST_LEVELS, [len(c.levels) for c in levels]
    while most > 1 and n * sum(min(each, most) for each in at) > MOST_SHARES:
        most -= 1
    columns = [_levels(c, n, most) if isinstance(c, Levels) else _numbers(c, n) for c in d.columns]
    return {"n": n, "apart": d.apart, "whole": d.whole, "here": d.here, "columns": columns}


def _levels(c: Levels, n: int, most: int) -> dict[str, Any]:
    p = c.p[:n]
    at = np.arange(len(c.levels))
    if len(at) > most:  # keep levels whose share in some group differs most from that in all rows
        at = np.sort(np.argsort(-np.abs(p - c.overall).max(axis=0), kind="stable")[:most])
    named = [printable(c.levels[i]) for i in at.tolist()]
    return {
        "name": printable(c.name), "levels": named, "more": len(c.levels) - len(at),
        "overall": brief(c.overall[at].tolist()), "p": _shares(p[:, at]), "ordered": c.ordered, **_common(c, n),
    }  # fmt: skip


def _numbers(c: Numbers, n: int) -> dict[str, Any]:
    made = {
        "name": printable(c.name), "mean": brief(c.mean[:n].tolist()), "sd": brief(c.sd[:n].tolist()),
        "overall": brief([float(x) for x in c.overall]), "log": c.log, **_common(c, n),
    }  # fmt: skip
    if c.unit:
        means, sds = [c.overall[0], *c.mean[:n]], [c.overall[1], *c.sd[:n]]
        made["words"] = [around(m, s, c.unit, c.step) for m, s in zip(means, sds)]
    return made


def _common(c: Levels | Numbers, n: int) -> dict[str, Any]:
    apart = np.clip(np.nan_to_num(c.apart[:n]) * NATS, 0, WHOLE)
    made: dict[str, Any] = {"apart": _sixteen(apart)}
    if c.missing is not None and c.missing_overall > 0:
        made |= {"missing": _shares(c.missing[:n]), "missing_overall": brief(float(c.missing_overall))}
    return made


def _shares(p: np.ndarray) -> str:
    return _sixteen(np.clip(np.nan_to_num(p), 0.0, 1.0) * WHOLE)


def _sixteen(x: np.ndarray) -> str:
    """Encode as 16-bit little-endian integers in base64, row by row."""
    return base64.b64encode(np.ascontiguousarray(np.rint(x).astype("<u2")).tobytes()).decode()


def _stops(s: Stops) -> dict[str, Any]:
    """Pack a slider's tables; the first ones keep their details, at most MOST_STOP_PAIRS pairs in all."""
    left, tables = MOST_STOP_PAIRS, []
    for table in s.tables:
        columns = table.details.columns if table.details else ()
        pairs = sum(len(column.apart) for column in columns)
        tables.append(table if pairs <= left else replace(table, details=None))
        left -= pairs if pairs <= left else 0
    stops = [
        {"name": printable(name), "words": printable(words), "mark": mark, "table": _browse(table)}
        for name, words, mark, table in zip(s.names, s.words, s.marks, tables, strict=True)
    ]
    return {"part": "stops", "label": s.label, "first": s.first, "stops": stops}


def _matrix(m: Matrix) -> dict[str, Any]:
    """Pack the lower triangle without the diagonal, row by row, a byte per share."""
    n = min(len(m.names), MOST_NAMES)
    i, j = np.tril_indices(n, -1)
    share = np.rint(m.share[i, j] * 255).astype(np.uint8)
    return {
        "part": "matrix", "names": [printable(name) for name in m.names[:n]], "share": base64.b64encode(share).decode(),
        "ends": [int(e) for e in m.ends if e < n] + [n], "words": m.words, "group": m.group,
        "left_out": len(m.names) - n,
    }  # fmt: skip


def _traces(t: Traces) -> dict[str, Any]:
    panels = []
    for s in (s for s in shown(t.scalars) if s.title):
        lines = [_line(c, s) for c in t.chains]
        if any(len(line["x"]) for line in lines):
            panels.append({"title": f"{s.title}, {s.unit}" if s.unit else s.title, "whole": s.whole, "lines": lines})
    chains = [{"name": printable(c.name), "burn_in": c.burn_in, "growth": c.growth} for c in t.chains]
    return {"part": "traces", "chains": chains, "panels": panels}


def _line(chain: Any, s: Any) -> dict[str, Any]:
    """Finite values of a trace; of a long one, the minimum and the maximum of each stretch."""
    value = chain.trace.get(s.name, np.zeros(0))
    seen = np.isfinite(value)
    if len(value) and not s.whole:  # a density of part of the rows is not comparable with that of all
        seen &= chain.trace["cycle"] >= chain.growth
    x, y = (chain.trace["cycle"][seen], value[seen]) if len(value) else (value, value)
    if len(x) > MOST_POINTS:
        edges = np.linspace(0, len(x), MOST_POINTS // 2 + 1).astype(int)
        pairs = [sorted((a + int(y[a:b].argmin()), a + int(y[a:b].argmax()))) for a, b in pairwise(edges)]
        at = np.unique(np.concatenate([[0, len(x) - 1], *pairs]).astype(int))
        x, y = x[at], y[at]
    return {"x": [int(v) for v in x], "y": [float(f"{v:.7g}") for v in y]}
