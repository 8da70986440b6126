"""Numbers drawn for completed and synthetic tables, kept within reach of those that the table has.

A cluster in which no cell of a column was observed has the prior's law of it: a t distribution with few degrees of
freedom. Where parameters are drawn first, all its rows are then far out together, and one such cluster can move the
mean of a column by many standard errors. So a number farther beyond the column's range than half the length of that
range is drawn again from its cluster's law within the range.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibayes.hpc.components.single import one_uniform
from mpibayes.hpc.parallel.streams import Stream
from mpibayes.io import recording
from mpibayes.io.rows import Column

BEYOND = 0.5  # of the range's length


def drawn_again(
    law: Any,
    place: int | np.ndarray,
    column: Column,
    y: np.ndarray,
    clusters: np.ndarray,
    stream: Stream,
    ids: np.ndarray,
) -> np.ndarray:
    """Numbers (n,) on the model's scale, those out of reach in the range. law, place: of the column among those of its
    kind, or of each row's. clusters, ids (n,): of the rows; stream: of the numbers that are drawn again."""
    least, most = ends(column)
    far = np.flatnonzero((y < least) | (y > most))
    if len(far):
        of, y = np.broadcast_to(place, y.shape)[far], y.copy()
        u = one_uniform(stream, stream.sub, of, ids[far])
        y[far] = law.within(of, clusters[far], *(np.full(len(far), end) for end in range_of(column)), u)
    return y


def ends(column: Column) -> tuple[float, float]:
    """The least and the greatest number within reach, on the model's scale; of a constant column any number is."""
    low, high = range_of(column)
    beyond = BEYOND * (high - low)
    return (low - beyond, high + beyond) if beyond > 0.0 else (-np.inf, np.inf)


def range_of(column: Column) -> tuple[float, float]:
    """The least and the greatest value of the table on the model's scale; where the least has no logarithm, as far
    below the mean as the greatest is above it."""
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = recording.coordinate(column, np.array([column.minimum, column.maximum]))
    return float(low) if np.isfinite(low) else float(2.0 * column.center - high), float(high)
