"""When a chain's rows were all in: cycles before that are no draws of the posterior."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mpibayes.hpc.scalar import ACTIVE_ROWS


def cycle_of_all_rows(trace: Mapping[str, np.ndarray], n_rows: int) -> int:
    """The first recorded cycle after which every row is active; 0 where all are from the start, the last if none is."""
    (growing,) = np.nonzero(trace.get(ACTIVE_ROWS, np.zeros(0)) < n_rows)
    return int(trace["cycle"][min(growing[-1] + 1, len(trace["cycle"]) - 1)]) if len(growing) else 0
