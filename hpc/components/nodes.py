"""Gauss-Legendre nodes in cells of normal variables, more in wider cells (docs/math.md 2.12)."""

from __future__ import annotations

from functools import cache

import numpy as np

# nodes per cell, and the widest cell for each number, in conditional deviations: error 1e-4 for one node, else 2e-5
NODES = np.array([1, 2, 3, 4, 6, 8, 12, 24, 48, 96, 192])
WIDEST = np.array([0.05, 0.35, 1.0, 2.0, 3.6, 5.5, 10.0, 20.0, 40.0, 80.0])
A_PANEL = 12  # most nodes in one panel of a cell


def width_level(width: np.ndarray) -> np.ndarray:
    """Return the index into NODES for cells of these widths in deviations."""
    return np.searchsorted(WIDEST, width)


def nodes_in(low: np.ndarray, high: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the n Gauss-Legendre nodes in intervals (P,), and their log weights, (P, n) each."""
    (place, log_weight), size = _rule(n), (high - low)[:, None]
    with np.errstate(divide="ignore"):
        return low[:, None] + size * place, np.log(size) + log_weight


@cache
def _rule(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes in the unit interval and their log weights."""
    per = min(n, A_PANEL)
    x, w = np.polynomial.legendre.leggauss(per)
    panels = n // per
    place = ((np.arange(panels)[:, None] + 0.5 * (x + 1.0)) / panels).ravel()
    return place, np.log(np.tile(0.5 * w / panels, panels))


def log_sum(log: np.ndarray) -> np.ndarray:
    """Return the log of the sum of exp(log) over the last axis."""
    if log.shape[-1] == 1:
        return log[..., 0]
    top = log.max(axis=-1)
    base = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return base + np.log(np.exp(log - base[..., None]).sum(axis=-1))
