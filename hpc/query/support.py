"""Possible values of a column, cut into cells, so that its distribution is a table.

The cells of a column with levels are its levels. Those of a numeric column are its atoms and the intervals between
them: one per recorded value if there are few, otherwise intervals with about equally many training rows; and some
beyond the least and the greatest value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.data import events
from mpibayes.hpc.data.events import Events
from mpibayes.hpc.query.conditions import in_words
from mpibayes.io.rows import Column, Rows
from mpibayes.text import counted, percent

CELLS = 256  # intervals of a numeric column
LEAST_TAIL = 0.001  # a smaller share below 0 is not reported
TAILS = (0.1, 0.3, 1.0, 3.0)  # ends of the outer intervals, in units of the column's standard deviation


def never_negative(column: Column) -> bool:
    """True if a column modelled by normals, whose tails extend below 0, has no training cell below 0."""
    return column.kind == "real" and not column.log and not column.unit and column.minimum >= 0.0


def tails(shares: Mapping[str, float], what: str) -> list[str]:
    """Note on the share of `what` below 0 in columns that are never negative, by column name."""
    parts = [f"{percent(share)} of {name}" for name, share in shares.items() if share >= LEAST_TAIL]
    if not parts:
        return []
    listed = ", ".join(parts[:3]) + (f" and {counted(len(parts) - 3, 'more column')}" if len(parts) > 3 else "")
    return [f"{what} below 0, where the table has no value: {listed}; they are tails of normal distributions"]


@dataclass(frozen=True)
class Support:
    """Cells of a column, in order: disjoint, and together containing every value."""

    events: Events

    @property
    def column(self) -> Column:
        return self.events.column

    @property
    def words(self) -> list[str]:
        return [in_words(self.events, i) for i in range(len(self.events))]

    def __len__(self) -> int:
        return len(self.events)

    def values(self) -> np.ndarray:
        """Recorded value in the middle of each cell, (U,)."""
        column, e = self.column, self.events
        if column.levels:
            return np.arange(len(e), dtype=float)
        low, high = np.where(np.isfinite(e.low), e.low, e.high), np.where(np.isfinite(e.high), e.high, e.low)
        middle = 0.5 * (low + high)
        if column.log:
            with np.errstate(invalid="ignore", divide="ignore"):
                middle = np.where(low > 0.0, np.sqrt(np.maximum(low, 0.0) * high), middle)
        atoms = np.array([*column.atoms, np.nan])
        values: np.ndarray = np.where(np.isnan(e.low), atoms[e.codes], _stepped(column, middle))
        return values

    def place(self, x: np.ndarray) -> np.ndarray:
        """Cell of each recorded value, (n,) intp; the last cell if the value is missing or in no cell."""
        column, e = self.column, self.events
        cell = np.full(len(x), len(e) - 1, np.intp)
        if column.levels:
            cell[:] = np.minimum(x, len(e) - 1)
            return cell
        numbers = np.flatnonzero(~np.isnan(e.low))
        at = np.searchsorted(e.low[numbers], x, side="right") - 1
        cell[:] = numbers[np.maximum(at, 0)]
        for u in np.flatnonzero(e.codes >= 0):
            cell[x == column.atoms[e.codes[u]]] = u
        return np.where(np.isnan(x), len(e) - 1, cell)

    def below_zero(self, p: np.ndarray) -> float:
        """Share of one distribution (U,) below 0 if no training cell is, see `never_negative`; otherwise 0."""
        e = self.events
        return float(p[(e.codes < 0) & (e.high <= 0.0)].sum()) if never_negative(self.column) else 0.0

    def quantile(self, p: np.ndarray, share: float) -> np.ndarray:
        """Recorded value below which about this share of each distribution p (n, U) lies, (n,); NaN if p is."""
        value = self._quantile(p, share)
        return np.where(np.isnan(p[:, 0]), np.nan, value)

    def _quantile(self, p: np.ndarray, share: float) -> np.ndarray:
        below = np.cumsum(p, axis=1)
        below /= below[:, -1:]
        at = np.minimum((below < share).sum(axis=1), len(self) - 1)
        rows = np.arange(len(p))
        before = np.where(at > 0, below[rows, at - 1], 0.0)
        part = np.clip((share - before) / np.maximum(below[rows, at] - before, 1e-300), 0.0, 1.0)
        low, high = self.events.low[at], self.events.high[at]
        single = ~np.isfinite(low) | ~np.isfinite(high)
        value: np.ndarray
        with np.errstate(invalid="ignore", divide="ignore"):
            if self.column.kind == "survival":  # beyond all times of the table the value is unknown
                value = np.where(np.isfinite(high), low + part * (high - low), np.inf)
            elif self.column.kind == "count":
                inside = np.floor(low + part * (high - low + 1.0))
                value = np.where(single, self.values()[at], np.minimum(inside, high))
            else:
                value = np.where(single, self.values()[at], _stepped(self.column, low + part * (high - low)))
        return value


def support(column: Column, values: np.ndarray, most: int = CELLS) -> Support:
    """Return the support of a column. values: recorded values of some training rows, without missing ones."""
    if column.levels:
        return Support(events.of_values(column, np.arange(len(column.levels))))
    rest = values[~np.isin(values, column.atoms)]
    if column.kind == "count":
        first = np.unique(np.concatenate([[0.0], _few(rest, most)]))
        beyond = first[-1] + np.unique(np.ceil(np.array(TAILS) * max(column.scale, 1.0)))
        first = np.concatenate([first, beyond])
        return Support(Events(column, np.full(len(first), -1), None, first, np.append(first[1:] - 1.0, np.inf)))
    edges = _edges(column, rest, most)
    atoms = np.array(column.atoms)
    low, high = edges[:-1], edges[1:]
    codes = np.concatenate([np.arange(len(atoms)), np.full(len(low), -1)])
    order = np.argsort(np.concatenate([atoms, np.where(np.isfinite(low), 0.5 * (low + high), -np.inf)]), kind="stable")
    blank = np.full(len(atoms), np.nan)
    lows, highs = np.concatenate([blank, low]), np.concatenate([blank, high])
    return Support(Events(column, codes[order], None, lows[order], highs[order]))


def _few(values: np.ndarray, most: int) -> np.ndarray:
    """All distinct values, or about `most` of them with equally many values between them, ascending."""
    different = np.unique(values)
    if len(different) <= most:
        return different
    return np.unique(np.quantile(values, np.linspace(0.0, 1.0, most), method="nearest"))


def _edges(column: Column, values: np.ndarray, most: int) -> np.ndarray:
    if not len(values):
        values = np.array([np.exp(column.center) if column.log else column.center])
    few, half = _few(values, most), 0.5 * column.resolution
    if column.resolution and len(few) < len(np.unique(values)):
        edges = np.append(few[0] - half, few + half)
    elif column.resolution:
        edges = np.concatenate([few - half, few + half])
    else:
        edges = np.concatenate([few[:1], 0.5 * (few[1:] + few[:-1]), few[-1:]])
    sd = column.rest_scale if column.atoms or column.log else column.scale
    steps = np.array(TAILS if most >= CELLS else ()) * sd
    if column.log:
        tails = [few[0] * np.exp(-steps), few[-1] * np.exp(steps)]
        ends = [half, np.inf]  # values below count as the least value with a logarithm
    else:
        tails, ends = [few[0] - half - steps, few[-1] + half + steps], [-np.inf, np.inf]
    if column.kind == "survival":
        tails, ends = [], [0.0, np.inf]
    atoms = np.array(column.atoms)
    cuts = [atoms - half, atoms + half]
    edges = np.unique(_grid(column, np.concatenate([edges, *tails, *cuts])))
    inside = (edges > ends[0]) & (edges < ends[1])
    return np.concatenate([[0.0] if column.log else ends[:1], edges[inside], ends[1:]])


def _grid(column: Column, edges: np.ndarray) -> np.ndarray:
    """Move edges between recorded values if these have a step; removes rounding errors."""
    if not column.resolution:
        return edges
    return (np.round(edges / column.resolution - 0.5) + 0.5) * column.resolution


def _stepped(column: Column, x: np.ndarray) -> np.ndarray:
    """Round to the column's resolution."""
    if not column.resolution:
        return x
    return np.round(x / column.resolution) * column.resolution + 0.0  # no -0


def supports(columns: Sequence[Column], rows: Rows | None, most: int = CELLS) -> dict[str, Support]:
    """Support of each column, from recorded rows, which columns with levels do not need."""
    cells = {c.name: np.zeros(0) if c.levels else getattr(rows, c.block)[:, c.index] for c in columns}
    cells = {c.name: np.abs(cells[c.name]) if c.kind == "survival" else cells[c.name] for c in columns}
    return {c.name: support(c, x[~np.isnan(x)], most) for c, x in zip(columns, cells.values())}
