"""Features of rows given loadings and weights, by making the best flip repeatedly (docs/math.md 7.9).

Sweeps that visit features in a fixed order leave many rows with the wrong ones: of two similar features, the first
takes the rows of the second, and rows rarely recover from that by single flips.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

BLOCK = 4096  # rows at a time
MOST_FLIPS = 3  # of each feature, on average


def pursue(x: np.ndarray, loadings: np.ndarray, weights: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Return the features of each row, bool (n, K), starting from none; no single flip makes a row more probable.

    x: (n, D), NaN for a missing cell. loadings: float64 (K, D). weights (K,): in (0, 1). noise (D,): standard
    deviations.
    """
    scaled, odds = loadings / noise, np.log(weights) - np.log1p(-weights)
    has = np.zeros((len(x), len(scaled)), bool)
    gram = scaled @ scaled.T
    for start in range(0, len(x), BLOCK):
        part, of = x[start : start + BLOCK] / noise, has[start : start + BLOCK]
        seen = ~np.isnan(part)
        whole = seen.all(axis=1)
        gain = part[whole] @ scaled.T + odds - 0.5 * np.diag(gram)
        of[whole] = _block(gain, lambda at, k: gram[k], MOST_FLIPS * len(scaled))
        cells = seen[~whole].astype(np.float64)
        gain = np.nan_to_num(part[~whole]) @ scaled.T + odds - 0.5 * cells @ (scaled**2).T
        of[~whole] = _block(gain, lambda at, k, cells=cells: cells[at] * scaled[k] @ scaled.T, MOST_FLIPS * len(scaled))
    return has


def _block(gain: np.ndarray, overlap: Callable[[np.ndarray, np.ndarray], np.ndarray], most: int) -> np.ndarray:
    """Flip features of a block of rows. gain (n, K): of giving a row each feature; changed in place. overlap(rows (m,),
    features (m,)): products of a feature's loadings with those of all, over the observed cells of the row, (m, K)."""
    has, active = np.zeros(gain.shape, bool), np.arange(len(gain))
    for _ in range(most):
        mine = has[active]
        of_flip = np.where(mine, -gain[active], gain[active])
        best = of_flip.argmax(axis=1)
        better = of_flip[np.arange(len(active)), best] > 0.0
        active, best = active[better], best[better]
        if len(active) == 0:
            break
        sign = np.where(has[active, best], -1.0, 1.0)
        has[active, best] = sign > 0.0
        change = sign[:, None] * overlap(active, best)
        change[np.arange(len(active)), best] = 0.0
        gain[active] -= change
    return has
