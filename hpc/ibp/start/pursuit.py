"""The features of a row given loadings and weights: of all flips the best one, again and again (docs/math.md 7.9).

Sweeps that visit features in a given order leave many rows with the wrong ones: of two features that are alike, the
first takes what the second is. Rows hardly ever get out of that one flip at a time.
"""

from __future__ import annotations

import numpy as np

BLOCK = 4096  # rows at a time
MOST_FLIPS = 3  # of each feature, on average


def pursue(x: np.ndarray, loadings: np.ndarray, weights: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """bool (n, K): which features each row has, none at first; no single flip makes it more probable.

    x: (n, D). loadings: float64 (K, D). weights (K,): in (0, 1). noise (D,): standard deviations.
    """
    scaled = loadings / noise
    gram = scaled @ scaled.T
    odds = np.log(weights) - np.log1p(-weights) - 0.5 * np.diag(gram)
    k = len(scaled)
    return np.concatenate(
        [_block((x[i : i + BLOCK] / noise) @ scaled.T + odds, gram, MOST_FLIPS * k) for i in range(0, len(x), BLOCK)]
        or [np.zeros((0, k), bool)]
    )


def _block(gain: np.ndarray, gram: np.ndarray, most: int) -> np.ndarray:
    """gain (n, K): of giving a row each feature; it is changed in place."""
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
        change = sign[:, None] * gram[best]
        change[np.arange(len(active)), best] = 0.0
        gain[active] -= change
    return has
