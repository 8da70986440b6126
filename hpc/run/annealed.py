"""First cycle with all rows active: earlier cycles are not draws of the posterior."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mpibayes.hpc.scalar import ACTIVE_ROWS


def cycle_of_all_rows(trace: Mapping[str, np.ndarray], n_rows: int) -> int:
    """First recorded cycle after which every row is active; 0 if all are from the start, the last cycle if none is."""
    (growing,) = np.nonzero(trace.get(ACTIVE_ROWS, np.zeros(0)) < n_rows)
    return int(trace["cycle"][min(growing[-1] + 1, len(trace["cycle"]) - 1)]) if len(growing) else 0
