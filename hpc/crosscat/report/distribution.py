"""Distribution of a column alone in its view: its clusters are a histogram, so it is shown as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mpibayes.io.clock import around
from mpibayes.io.order import order_of
from mpibayes.io.recording import ANOTHER, unshaped
from mpibayes.io.rows import Column
from mpibayes.io.spells import PARTS, boundaries, life_table
from mpibayes.text import factor, number, percent, spread

BARS = "\N{LOWER ONE EIGHTH BLOCK}▂▃▄▅▆▇█"
BINS = 16
NAMED = 5  # levels named, the most common first
ON_A_SCALE = 24  # most ordered levels that are all named


def in_words(columns: Sequence[Column], cells: Mapping[str, np.ndarray]) -> str:
    """Describe the distribution. cells: as sampled, by the columns that make up the table's column (atoms and rest);
    the atoms come first."""
    ordered = sorted(columns, key=lambda c: not c.levels)
    words = [_one(c, cells[c.name]) for c in ordered]
    return words[0] if len(words) == 1 else "; in other cells ".join(words)


def _one(c: Column, x: np.ndarray) -> str:
    return _levels(c, x) if c.levels else _times(c, x) if c.kind == "survival" else _numbers(c, x)


def _times(c: Column, x: np.ndarray) -> str:
    """Describe the share of rows with the event, and the shares without it by some times."""
    x = x[~np.isnan(x)]
    counts = np.bincount(np.searchsorted(boundaries(), x), minlength=2 * PARTS)[:, None]
    left = 1.0 - np.cumsum(life_table(counts)[:, 0])
    later = ", ".join(f"{percent(left[i])} beyond {c.ends[i]:,.6g}" for i in range(0, len(c.ends), 2))
    share = percent(float((x > 0).mean()) if len(x) else 0.0)
    return f"the event occurred in {share}" + (f"; {later}" if later else "")


def _levels(c: Column, codes: np.ndarray) -> str:
    counts = np.bincount(codes.astype(np.int64), minlength=len(c.levels) + 1)[: len(c.levels)]
    shares = counts / max(counts.sum(), 1)
    order = order_of(c)
    order = order if 0 < len(order) <= ON_A_SCALE else np.argsort(-shares, kind="stable")[:NAMED]
    order = sorted(order, key=lambda i: c.levels[i] == ANOTHER)  # sorted is stable
    words = ", ".join(f"{c.levels[i]} ({percent(shares[i])})" for i in order)
    left = len(c.levels) - len(order)
    return words + (f", and {left:,} more" if left else "")


def _numbers(c: Column, x: np.ndarray) -> str:
    """Describe mean and deviation, a histogram between the 1 and 99 % points, and the 5, 50 and 95 % points."""
    x = unshaped(c, x[~np.isnan(x)])
    if not len(x):
        return "all cells are missing"
    mean, sd = float(x.mean()), float(x.std())
    words = around(mean, sd, c.unit, c.resolution) if c.unit else factor(mean, sd) if c.log else spread(mean, sd)
    low, high = np.quantile(x, (0.01, 0.99))
    if not high > low:
        return words
    counts = np.histogram(np.clip(x, low, high), BINS, (low, high))[0]
    bars = "".join(BARS[int(np.ceil(7 * n / counts.max()))] for n in counts)
    if c.unit:
        return f"{words} {bars}"
    points = np.quantile(x, (0.05, 0.5, 0.95))
    points = np.exp(points) if c.log else points
    if c.resolution:  # cells are drawn within the steps of recorded values
        points = np.round(points / c.resolution) * c.resolution
    least, half, most = map(number, points)
    return f"{words} {bars} (median {half}, 90 % from {least} to {most})"
