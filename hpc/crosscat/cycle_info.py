"""The scalars of a cycle of a chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass
class CycleInfo:
    """Scalars of the state at the end of a cycle, summed over views; valid on root, unless noted.

    concentration, discount: of a chain of one view. columns_moved: units that changed views in the scan.
    """

    cycle: int  # on every rank
    n_clusters: int  # on every rank
    moved_fraction: float  # on every rank
    log_joint: float = np.nan
    entropy: float = np.nan
    concentration: float = np.nan
    discount: float = np.nan
    active_rows: int = 0  # on every rank
    splits_tried: int = 0
    splits: int = 0
    merges_tried: int = 0
    merges: int = 0
    n_views: int = 1  # on every rank
    view_concentration: float = np.nan
    view_discount: float = np.nan
    columns_moved: int = 0  # on every rank, like all below
    view_moves_tried: int = 0
    view_moves: int = 0
    word: Sequence[int] = ()
