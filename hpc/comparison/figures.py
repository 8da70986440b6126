"""Pictures of comparisons: differences of the scores, row by row; and the surprise of rows that were added later."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.hpc.comparison.paired import ERRORS, Difference
from mpibayes.hpc.report.drawing import FAINT, INK, chain_colour, cut, plot, styled
from mpibayes.text import visible

MOST_PARTS = 24  # parts shown, the last ones
TAIL = 0.01  # share of the rows on each side beyond the axis


@styled
def differences(d: np.ndarray, of: Difference, first: str, second: str):
    """Histogram of the differences; d (n,): score under the first run minus that under the second."""
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


@styled
def surprises(of_old: str, old: np.ndarray, parts: Sequence[tuple[str, np.ndarray]]):
    """Boxes of the surprise of old rows and of each part, (n,) nats each: quartiles, middle 90 %, means; a line at the
    old median."""
    lots = [(f"before: {of_old}", old), *parts[-MOST_PARTS:]]
    figure = plot(8.0, 1.4 + 0.38 * len(lots))
    axes = figure.subplots()
    for i, (_, x) in enumerate(lots):
        low, first, middle, third, high = np.quantile(x, (0.05, 0.25, 0.5, 0.75, 0.95))
        colour = chain_colour(5 if i == 0 else 1)
        axes.plot([low, high], [i, i], color=colour, linewidth=1.4)
        axes.barh(i, third - first, left=first, height=0.5, color=colour, alpha=0.6)
        axes.plot([middle, middle], [i - 0.25, i + 0.25], color=INK, linewidth=1.4)
        axes.plot(x.mean(), i, "o", markersize=4, color=INK)
    axes.axvline(float(np.median(old)), color=FAINT, linewidth=1.0)
    axes.set_yticks(range(len(lots)), [cut(visible(name), 40) for name, _ in lots])
    axes.invert_yaxis()
    axes.set_title("Surprise of the appended rows under the earlier run")
    axes.set_xlabel("nats a row: middle half and 90 % of the rows; a line at the median, a dot at the mean")
    axes.grid(axis="y", visible=False)
    return figure


@styled
def in_columns(columns: Sequence[tuple[str, float, float]], of_old: str):
    """Bars of the excess surprise of new rows over old ones, by column: (name, nats per cell, standard error)."""
    figure = plot(8.0, 1.4 + 0.32 * len(columns))
    axes = figure.subplots()
    for i, (_, more, error) in enumerate(columns):
        axes.barh(i, more, height=0.6, color=chain_colour(1 if more > 0 else 5), alpha=0.7)
        axes.plot([more - ERRORS * error, more + ERRORS * error], [i, i], color=INK, linewidth=1.2)
    axes.axvline(0.0, color=FAINT, linewidth=1.0)
    axes.set_yticks(range(len(columns)), [cut(visible(name), 40) for name, *_ in columns])
    axes.invert_yaxis()
    axes.set_title("Columns in which the appended rows surprise the earlier run more, or less")
    axes.set_xlabel(f"nats a cell, given the rest of its row, beyond those of the {of_old} before; lines: two errors")
    axes.grid(axis="y", visible=False)
    return figure
