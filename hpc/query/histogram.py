"""Short histogram of a numeric column: cells merged into intervals of about equal width, with round ends if possible;
one line for each tail; atoms by themselves."""

from __future__ import annotations

import numpy as np

from mpibayes.hpc.data.events import Events
from mpibayes.hpc.query.asking import Distributions
from mpibayes.hpc.query.conditions import in_words

OUT = 0.025  # share of the distribution beyond the intervals, at each end, approximately
NICE = (1.0, 2.0, 2.5, 5.0, 10.0)


def brief(name: str, d: Distributions, most: int) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Histogram of one row in about `most` lines or fewer: words, probabilities and their errors."""
    support = d.support
    words, p = support.words, d.p[0]
    if len(set(words)) <= most:
        return words, p, d.error[0]
    for n in range(most, 0, -1):
        group = _groups(d, words, n)
        if group[-1] < most or n == 1:
            break
    by = (group[:, None] == np.arange(group[-1] + 1)).astype(float)
    total, error = d.sums.result(by)
    return [_words(support.events, words, np.flatnonzero(group == g)) for g in range(group[-1] + 1)], total[0], error[0]


def _groups(d: Distributions, words: list[str], n: int) -> np.ndarray:
    """Line of the histogram for each cell, (U,) ascending, with at most n intervals of equal width."""
    column, x, codes = d.support.column, d.support.values(), d.support.events.codes
    rest = np.where(codes < 0, d.p, 0.0)
    low, high = (float(d.support.quantile(rest if rest.any() else d.p, q)[0]) for q in (OUT, 1.0 - OUT))
    low, high = min(low, float(x.max())), min(high, float(x.max()))  # times not reached
    if column.log:
        x = np.log(np.maximum(x, 1e-300))
        low, high = (float(np.log(max(end, 1e-300))) for end in (low, high))
    step, start = (high - low) / n or 1.0, low
    if not column.log and not column.unit:
        size = 10.0 ** np.floor(np.log10(step))
        step = next(nice * size for nice in NICE if nice * size >= step * (1.0 - 1e-9))
        step = max(step, column.resolution, 1.0 if column.kind == "count" else 0.0)
        start = np.floor(low / step) * step
    last = int(np.floor((high - start) / step + 1e-9))
    place = np.clip(np.floor((x - start) / step + 1e-9), -1, last + 1)
    atoms = {words[u] for u in np.flatnonzero(codes >= 0)}  # with the interval that reads alike
    lines = [word if word in atoms else k for word, k in zip(words, place.tolist())]
    return np.cumsum([i > 0 and line != lines[i - 1] for i, line in enumerate(lines)])


def _words(e: Events, words: list[str], cells: np.ndarray) -> str:
    """A line's values: an atom, or an interval from the first cell to the last."""
    atoms = cells[e.codes[cells] >= 0]
    if len(atoms):
        return words[int(atoms[0])]
    return in_words(Events(e.column, e.codes[cells[:1]], None, e.low[cells[:1]], e.high[cells[-1:]]))
