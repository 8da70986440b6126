"""The picture of a comparison: differences of the scores, row by row."""

from __future__ import annotations

import numpy as np

from mpibayes.hpc.comparison.paired import ERRORS, Difference
from mpibayes.hpc.report.drawing import FAINT, INK, chain_colour, cut, plot, styled
from mpibayes.text import visible

TAIL = 0.01  # share of the rows on each side beyond the axis


@styled
def differences(d: np.ndarray, of: Difference, first: str, second: str):
    """Histogram of the differences; d (n,): score under the first run less that under the second."""
    figure = plot(8.0, 3.2)
    axes = figure.subplots()
    low, high = np.quantile(d, (TAIL, 1.0 - TAIL)) if len(d) > 200 else (d.min(), d.max())
    pad = 0.05 * max(high - low, 1e-9)
    edges = np.linspace(min(low, 0.0) - pad, max(high, 0.0) + pad, int(np.clip(2 * np.sqrt(len(d)), 10, 60)) + 1)
    axes.hist(np.clip(d, edges[0], edges[-1]), bins=edges, color=chain_colour(5), edgecolor="white", linewidth=0.4)
    axes.axvline(0.0, color=FAINT, linewidth=1.0)
    band = ERRORS * of.error
    axes.axvspan(of.mean - band, of.mean + band, color=chain_colour(1), alpha=0.3, linewidth=0)
    axes.axvline(of.mean, color=chain_colour(1), linewidth=1.6)
    axes.set_title("Held-out rows by the difference of their scores")
    axes.set_xlabel(f"nats: to the right {cut(visible(first), 40)} is better, to the left {cut(visible(second), 40)}")
    axes.set_ylabel("rows", color=INK)
    axes.grid(axis="x", visible=False)
    return figure
