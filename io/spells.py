"""Cells of a survival column: how long a row was observed, and whether the event occurred.

As text `306` is an event at 306, and `1010+`, R's notation, means that it had not come by 1010: the row is censored. In
a table a cell is one number, negative if censored; 0 is an event at time 0, and the number next to 0 a row that was
never observed. A run uses times in whole ticks, so that their sums are exact in any order, and cuts the time axis into
parts (docs/math.md 1.11): in its memory a cell is also one number, which encodes the part in which the row was last
observed and the ticks spent there (kernels/mixture/spell_cell.h).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mpibayes.io.rows import Column

PARTS, SHIFT = 8, 27  # parts of the time axis; bits of the ticks within one
FINE = 20  # a tick is about 2^-20 of the last end
FAR = 64.0  # times the last end; if the greatest time is beyond, ticks are longer, to make room for it
AT_ONCE = -5e-324  # censored at 0


def stored(times: np.ndarray, censored: np.ndarray) -> np.ndarray:
    """Cells of a table, (n,) float64, from non-negative times; NaN is missing."""
    return np.where(censored, np.minimum(-times, AT_ONCE), times + 0.0)


def bounds(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds on the event time of stored cells (n,): equal for an event, infinite above for a censored row."""
    time = np.abs(x)
    return time, np.where(x < 0.0, np.inf, time)


def text(x: float) -> str:
    """Format a stored cell for people.

    >>> text(306.0), text(-1010.0), text(AT_ONCE)
    ('306', '1010+', '0+')
    """
    return f"{0.0 if x == AT_ONCE else abs(x):.15g}" + ("+" if x < 0.0 else "")


def ends_of(events: np.ndarray) -> tuple[float, ...]:
    """Ends of all parts but the last: quantiles of the event times (n,), at most PARTS - 1, ascending."""
    if not len(events):
        return ()
    levels = np.arange(1, PARTS) / PARTS
    ends = np.unique(np.quantile(events, levels, method="inverted_cdf"))
    return tuple(float(end) for end in ends if end > ends[-1] * 2.0**-FINE)


def tick(column: Column) -> float:
    """Length of a tick, a power of two, in the column's unit of time."""
    last = max(column.ends[-1] if column.ends else 0.0, column.maximum / FAR)
    return 2.0 ** (math.ceil(math.log2(last or 1.0)) - FINE)


def ends_in_ticks(column: Column) -> np.ndarray:
    """Ends of the parts in ticks, (E + 1,) float64, starting with 0."""
    return np.round(np.array([0.0, *column.ends]) / tick(column))


def coded(column: Column, x: np.ndarray) -> np.ndarray:
    """Cells in memory from stored ones. Part p runs from its start, exclusive except for 0, to its end. Ticks beyond
    the capacity, which is at least twice the table's greatest time, are clipped to it."""
    ends = ends_in_ticks(column)
    ticks = np.round(np.abs(np.nan_to_num(x)) / tick(column))
    part = np.searchsorted(ends[1:], ticks, side="left")
    within = np.minimum(ticks - ends[part], 2.0**SHIFT - 1.0)
    code = (part + 1.0) * 2.0**SHIFT + within
    return np.where(np.isnan(x), np.nan, np.where(x < 0.0, -code, code))


def decoded(cells: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Part, event (1) or censored (0), and ticks in the part, from cells in memory that are not missing (n,)."""
    code = np.abs(cells).astype(np.int64)
    return (code >> SHIFT) - 1, (cells > 0.0).astype(np.int64), (code & ((1 << SHIFT) - 1)).astype(np.float64)


def recorded(column: Column, cells: np.ndarray) -> np.ndarray:
    """Stored cells from cells in memory, in whole ticks, (n,)."""
    there = np.flatnonzero(~np.isnan(cells))
    part, event, within = decoded(cells[there])
    out = np.full(len(cells), np.nan)
    out[there] = stored((ends_in_ticks(column)[part] + within) * tick(column), event == 0)
    return out


def boundaries() -> np.ndarray:
    """Cut points of the cells in memory between rows censored in part PARTS - 1, .., 0 and events in part 0, .., PARTS
    - 1."""
    after = (np.arange(2, PARTS + 1) << SHIFT) - 0.5
    return np.concatenate([-after[::-1], [0.0], after])


def life_table(counts: np.ndarray) -> np.ndarray:
    """Probability of the event in each part of the time axis, (PARTS, K), the last including all later times: the
    actuarial estimate from numbers of cells between `boundaries`, (2 PARTS, K); a row censored in a part was at risk
    for half of it."""
    censored, events = counts[PARTS - 1 :: -1], counts[PARTS:]
    risk = np.cumsum((censored + events)[::-1], axis=0)[::-1] - 0.5 * censored
    hazard = np.divide(events, risk, out=np.zeros(events.shape), where=risk > 0.0)
    hazard[-1] = 1.0
    left = np.cumprod(1.0 - hazard, axis=0)
    return np.vstack([np.ones((1, counts.shape[1])), left[:-1]]) * hazard


def log_ticks(column: Column, cells: np.ndarray) -> np.ndarray:
    """Logs of the factors that convert a density per tick to the column's unit, 1 / tick for events, (n,)."""
    return np.where(cells > 0.0, -math.log(tick(column)), 0.0)


def wrong_ends(ends: Sequence[float]) -> bool:
    """True if given ends are invalid: expected up to PARTS - 1 numbers above 0, ascending."""
    far = all(a < b for a, b in zip((0.0, *ends), ends))
    return not (1 <= len(ends) < PARTS and far and ends[-1] < 1e15 and ends[0] > ends[-1] * 2.0**-FINE)
