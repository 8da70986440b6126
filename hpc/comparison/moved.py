"""Differences between two samples of rows of a table, such as old and new ones: in the distribution of each column, and
in the shares of clusters. A difference is reported if its p-value is below 1 %, over all comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc, ndtr

from mpibayes.io.clock import as_text
from mpibayes.io.rows import Column, Rows
from mpibayes.text import enumerated, number, percent

CHANCE = 0.01
BINS = 10  # equally filled bins of a numeric column
FEWEST = 5.0  # least expected rows in a cell of a test; rarer cells are pooled
NAMED = 3  # most levels named per column


@dataclass(frozen=True)
class Moved:
    """A column whose distribution differs. distance: total variation, for numbers between tenths of all rows. new:
    levels that the old rows did not have."""

    name: str
    distance: float
    words: str
    new: Sequence[str] = ()


@dataclass(frozen=True)
class Share:
    """A cluster, or a group of clusters, with its shares of the old and of the new rows. view: 0 for a mixture. groups:
    number of groups, 0 for a cluster."""

    view: int
    label: int
    before: float
    now: float
    rows: int  # number of new rows
    groups: int = 0

    @property
    def is_new(self) -> bool:
        return self.before < 0.1 * self.now


def moved_columns(columns: Sequence[Column], before: Rows, now: Rows) -> list[Moved]:
    """Columns whose cells differ between two samples of rows, largest difference first."""
    result = []
    for column in columns:
        a, b = (getattr(rows, column.block)[:, column.index] for rows in (before, now))
        cells, words, new = (_levels if column.levels else _numbers)(column, a, b)
        if p_value(*cells) < CHANCE / len(columns):
            p, q = (n / n.sum() for n in cells)
            result.append(Moved(column.name, 0.5 * float(np.abs(p - q).sum()), words, new))
    return sorted(result, key=lambda m: -m.distance)


def moved_shares(labels: np.ndarray, new: np.ndarray, view: int, groups: int = 0) -> list[Share]:
    """Clusters, by labels (N,) from 0, whose share among the new rows (mask) differs from that among the others."""
    k = int(labels.max()) + 1
    a, b = np.bincount(labels[~new], minlength=k), np.bincount(labels[new], minlength=k)
    n, m = max(a.sum(), 1), max(b.sum(), 1)
    pooled = (a + b) / (n + m)
    error = np.sqrt(pooled * (1.0 - pooled) * (1.0 / n + 1.0 / m))
    gap = b / m - a / n
    z = np.divide(np.abs(gap), error, out=np.zeros(k), where=error > 0)
    clear = (2.0 * ndtr(-z) < CHANCE / k) & (a + b >= FEWEST)
    order = sorted(np.flatnonzero(clear).tolist(), key=lambda i: -abs(gap[i]))
    return [Share(view, i, float(a[i] / n), float(b[i] / m), int(b[i]), groups) for i in order]


def p_value(a: np.ndarray, b: np.ndarray) -> float:
    """p-value of Pearson's test that two arrays of counts (K,) have the same distribution; rare cells are pooled."""
    total = a + b
    share = b.sum() / max(total.sum(), 1)
    rare = total * min(share, 1.0 - share) < FEWEST
    if rare.any():
        a, b = (np.append(n[~rare], n[rare].sum()) for n in (a, b))
        total = a + b
    a, b, total = a[total > 0], b[total > 0], total[total > 0]
    if len(total) < 2 or not (a.sum() and b.sum()):
        return 1.0
    expected = total * share
    statistic = ((b - expected) ** 2 / (expected * (1.0 - share))).sum()
    return float(chdtrc(len(total) - 1, statistic))


def _levels(column: Column, a: np.ndarray, b: np.ndarray):
    k = len(column.levels) + 1
    cells = np.bincount(a, minlength=k), np.bincount(b, minlength=k)
    p, q = (n / max(n.sum(), 1) for n in cells)
    names = [*column.levels, "missing"]
    order = sorted(range(k), key=lambda i: -abs(q[i] - p[i]))
    new = [names[i] for i in np.flatnonzero((cells[0][:-1] == 0) & (cells[1][:-1] > 0))]
    words = ", ".join(f"{names[i]} {percent(p[i])} → {percent(q[i])}" for i in order[:NAMED] if p[i] != q[i])
    return cells, words, new


def _numbers(column: Column, a: np.ndarray, b: np.ndarray):
    x, y = a[~np.isnan(a)], b[~np.isnan(b)]
    both = np.concatenate([x, y])
    edges = np.unique(np.quantile(both, np.arange(1, BINS) / BINS)) if len(both) else np.zeros(0)
    cells = tuple(
        np.append(np.bincount(np.searchsorted(edges, seen), minlength=len(edges) + 1), len(of) - len(seen))
        for seen, of in ((x, a), (y, b))
    )
    words = []
    if len(x) and len(y):
        middle, tails = ((np.median(x), np.median(y)), (np.quantile(x, 0.9), np.quantile(y, 0.9)))
        words = [f"median {_said(column, middle[0])} → {_said(column, middle[1])}"]
        if middle[0] == middle[1] or tails[0] != tails[1]:
            words.append(f"90 % point {_said(column, tails[0])} → {_said(column, tails[1])}")
    gone = [1.0 - len(seen) / max(len(of), 1) for seen, of in ((x, a), (y, b))]
    if abs(gone[0] - gone[1]) > 0.005:
        words.append(f"missing {percent(gone[0])} → {percent(gone[1])}")
    return cells, ", ".join(words), ()


def _said(column: Column, value: float) -> str:
    return as_text(float(value), column.unit) if column.unit else number(float(value))


def share_in_words(share: Share, name: str = "") -> str:
    """Describe a share: "cluster 3 of view 2 (age 60 to 80) grew from 2 % to 9 %"."""
    what = f"group {share.label + 1} of {share.groups}" if share.groups else f"cluster {share.label + 1}"
    of = [what, *([f"of view {share.view}"] if share.view else [])]
    named = f" ({name})" if name else ""
    verb = "is new:" if share.is_new else "grew from" if share.now > share.before else "shrank from"
    return f"{' '.join(of)}{named} {verb} {percent(share.before)} to {percent(share.now)}"


def new_in_words(new: Sequence[str]) -> str:
    """List new levels, at most NAMED of them by name."""
    subset = [repr(v) for v in new[:NAMED]]
    return enumerated([*subset, f"{len(new) - NAMED:,} more"] if len(new) > NAMED else subset)
