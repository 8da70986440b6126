"""Numbers drawn for completed and synthetic tables, within the range of the table's values.

A new number is outside the range of n exchangeable ones with probability 2 / (n + 1) at most. Normals fitted to ages,
waiting times or percentages have more there, and a cluster in which no cell of a column was observed has the prior
predictive law, a t distribution with few degrees of freedom: one such cluster can move the mean of a column by many
standard errors. So no number is drawn outside the range, in particular none below 0 in a column without negative ones.

Truncation alone would move the means of clusters near an end inwards, and with them completed means and their variation
between copies. So a cluster whose mean is within the range keeps it: among all laws in the range with this mean, the
one of least divergence from the cluster's normal is that normal with another mean, truncated. Other clusters are
truncated. All of this is on the model's scale; counts are as drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mpibayes.hpc.components.boxes import LOG_2PI, in_interval, log_interval
from mpibayes.hpc.components.single import one_uniform
from mpibayes.hpc.data.events import Known
from mpibayes.hpc.parallel.streams import Stream
from mpibayes.io import recording
from mpibayes.io.rows import Column

HALF = 0.4999  # of a step: less than half, so that rounding stays within the range
SLIGHT = 1e-6  # probability outside the range up to which a cluster's law is only truncated
FARTHEST, HALVINGS = 1e3, 60  # search of a mean, in deviations
TRIES = 50  # draws of a row with several columns that depend on each other


def drawn_again(
    law: Any,
    place: int | np.ndarray,
    column: Column,
    y: np.ndarray,
    clusters: np.ndarray,
    stream: Stream,
    ids: np.ndarray,
) -> np.ndarray:
    """Redraw the numbers y (n,) on the model's scale that are out of range, or whose clusters' laws extend beyond it.
    place: of the column, or of each row's column, in its kind's `law`. clusters, ids (n,): of the rows; stream: of the
    redrawn numbers."""
    low, high = range_of(column)
    of, y = np.broadcast_to(place, y.shape), y.copy()
    location, scale, nu = (a[of, clusters] for a in (law.location, law.scale, law.nu))
    keeps = np.isinf(nu) & (low < location) & (location < high) & (scale < high - low)
    keeps &= log_interval((low - location) / scale, (high - location) / scale) < -SLIGHT
    cut = np.flatnonzero(~keeps & ((y < low) | (y > high)))
    y[cut] = law.within(of[cut], clusters[cut], *(np.full(len(cut), end) for end in (low, high)),
                        one_uniform(stream, stream.sub, of[cut], ids[cut]))  # fmt: skip
    at = np.flatnonzero(keeps)
    if len(at):
        cell = of[at] * law.location.shape[1] + clusters[at]
        _, first, which = np.unique(cell, return_index=True, return_inverse=True)
        mean = _before_truncation(location[at[first]], scale[at[first]], low, high)[which.ravel()]
        y[at] = in_interval(mean, scale[at] ** 2, low, high, one_uniform(stream, stream.sub, of[at], ids[at]))
    return np.clip(y, low, high)


def _before_truncation(mean: np.ndarray, scale: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return the means of normals (n,) that have means `mean` when truncated to the range, by bisection."""
    least, most = mean - FARTHEST * scale, mean + FARTHEST * scale
    for _ in range(HALVINGS):
        middle = 0.5 * (least + most)
        a, b = (low - middle) / scale, (high - middle) / scale
        log_mass = log_interval(a, b) + 0.5 * LOG_2PI
        truncated = middle + scale * (np.exp(-0.5 * a * a - log_mass) - np.exp(-0.5 * b * b - log_mass))
        least, most = np.where(truncated < mean, middle, least), np.where(truncated < mean, most, middle)
    return 0.5 * (least + most)


def range_of(column: Column) -> tuple[float, float]:
    """Return the ends of the column's range on the model's scale, with the cells of its least and greatest value. The
    least positive number of a column with zeros and a logarithm is not known: on the model's scale it is taken to be
    below the mean by twice what the greatest is above it, but for half a step at least."""
    half = HALF * column.resolution
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high, step = recording.coordinate(column, np.array([column.minimum - half, column.maximum + half, half]))
    if column.log and column.minimum <= 0.5 * column.resolution:
        low = 3.0 * column.center - 2.0 * high
        low = max(low, step) if half else low
    return float(low), float(high)


def rows_within(
    draw: Callable[..., dict[str, np.ndarray]],
    columns: Sequence[Column],
    known: Known,
    names: set[str],
    cluster: np.ndarray,
    stream: Stream,
    ids: np.ndarray,
) -> dict[str, np.ndarray]:
    """Draw rows of columns that depend on each other, again until all drawn numbers are within their ranges: from the
    joint law, truncated. After TRIES draws of a row, numbers that are not are set to the nearest end. draw: returns
    recorded values, given the arguments after `columns`."""
    result = draw(known, names, cluster, stream, ids)
    ends = {c.name: recorded_range(c) for c in columns if c.name in result}
    drawn = {name: np.full(len(ids), True) for name in ends}
    for name in drawn.keys() & known.of.keys():
        events, which = known.of[name]
        drawn[name] = which == len(events)
    for attempt in range(1, TRIES):
        out = np.zeros(len(ids), bool)
        for name, (low, high) in ends.items():
            out |= drawn[name] & ((result[name] < low) | (result[name] > high))
        at = np.flatnonzero(out)
        if not len(at):
            return result
        again = draw(known.take(at), names, cluster[at], replace(stream, chain=stream.chain + attempt), ids[at])
        for name, x in again.items():
            result[name][at] = x
    return result | {name: np.where(drawn[name], np.clip(result[name], *ends[name]), result[name]) for name in ends}


def recorded_range(column: Column) -> tuple[float, float]:
    """Return the least and greatest number to draw, as recorded."""
    if column.log and column.minimum <= 0.5 * column.resolution:
        return float(recording.recorded(column, None, np.array([range_of(column)[0]]))[0]), column.maximum
    return column.minimum, column.maximum
