"""Numbers drawn for completed and synthetic tables, kept near the range of the table's values.

A cluster in which no cell of a column was observed has the prior predictive law: a t distribution with few degrees of
freedom. If parameters are drawn first, all its rows are far out together, and one such cluster can move the mean of a
column by many standard errors. So a number beyond the column's range by more than half the range's length is redrawn
from its cluster's law within the range.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibayes.hpc.components.single import one_uniform
from mpibayes.hpc.parallel.streams import Stream
from mpibayes.io import recording
from mpibayes.io.rows import Column

BEYOND = 0.5  # tolerance beyond the range, as a share of its length


def drawn_again(
    law: Any,
    place: int | np.ndarray,
    column: Column,
    y: np.ndarray,
    clusters: np.ndarray,
    stream: Stream,
    ids: np.ndarray,
) -> np.ndarray:
    """Redraw the numbers y (n,) on the model's scale that are out of reach, within the range. place: of the column, or
    of each row's column, in its kind's `law`. clusters, ids (n,): of the rows; stream: of the redrawn numbers."""
    least, most = ends(column)
    far = np.flatnonzero((y < least) | (y > most))
    if len(far):
        of, y = np.broadcast_to(place, y.shape)[far], y.copy()
        u = one_uniform(stream, stream.sub, of, ids[far])
        y[far] = law.within(of, clusters[far], *(np.full(len(far), end) for end in range_of(column)), u)
    return y


def ends(column: Column) -> tuple[float, float]:
    """Return the least and greatest number within reach, on the model's scale; infinite for a constant column."""
    low, high = range_of(column)
    beyond = BEYOND * (high - low)
    return (low - beyond, high + beyond) if beyond > 0.0 else (-np.inf, np.inf)


def range_of(column: Column) -> tuple[float, float]:
    """Return the least and greatest value in the table on the model's scale; a least value without logarithm is
    replaced by the reflection of the greatest in the mean."""
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = recording.coordinate(column, np.array([column.minimum, column.maximum]))
    has_least = np.isfinite(low) and not (column.log and column.minimum <= 0.0)  # a shape makes its number finite
    return float(low) if has_least else float(2.0 * column.center - high), float(high)
