"""Dependence of columns: share of kept draws in which each pair shares a view, as numbers and a picture.

Columns are those of the table, in the order of the representative views, the most certain first in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.report.drawing import FAINT, INK, plot, shortened, styled
from mpibayes.text import counted

SURE = 0.9  # share of the draws, together or apart, from which a pair is certain
NAMED = 100  # most columns with names in the picture
NAME_LETTERS = 32
MARGIN, LETTER = 0.04, 0.085  # inches for the number of a view: margin, and per letter


@dataclass(frozen=True)
class Dependence:
    """Columns in views. names (C,); share (C, C): of n_draws draws, with the pair in one view; alone (C,): of draws,
    with the column alone in a view; ends (V,): end index of each representative view."""

    names: Sequence[str]
    share: np.ndarray
    alone: np.ndarray
    ends: np.ndarray
    n_draws: int

    def of(self, view: int) -> slice:
        """Return the slice of a view's columns."""
        return slice(self.ends[view - 1] if view else 0, self.ends[view])

    def view_of(self, column: int) -> int:
        return int(np.searchsorted(self.ends, column, side="right"))

    def with_others(self, view: int) -> np.ndarray:
        """Return each column's mean share of draws with the other columns of a view; NaN for a single column."""
        return _with_others(self.share[self.of(view), self.of(view)])

    def together(self, view: int) -> float:
        """Return the mean share over a view's pairs of columns; NaN for a single column."""
        return float(self.with_others(view).mean())

    @property
    def sure(self) -> list[list[str]]:
        """Sets of two or more columns that are pairwise together in at least SURE of the draws."""
        sets: list[list[int]] = []
        for c in range(len(self.share)):
            home = next((of for of in sets if (self.share[c, of] >= SURE).all()), None)
            if home is None:
                sets.append([c])
            else:
                home.append(c)
        return [[self.names[c] for c in of] for of in sets if len(of) > 1]

    @property
    def uncertain(self) -> list[tuple[int, int]]:
        """Uncertain pairs of columns, shares nearest to one half first."""
        i, j = np.tril_indices(len(self.share), -1)
        p = self.share[i, j]
        open_ones = np.flatnonzero((p > 1.0 - SURE) & (p < SURE))
        order = open_ones[np.argsort(np.round(np.abs(p[open_ones] - 0.5), 12), kind="stable")]
        return list(zip(j[order].tolist(), i[order].tolist()))


def dependence(partitions: np.ndarray, names: Sequence[str], views: Sequence[Sequence[str]]) -> Dependence:
    """Compute the dependence from draws' partitions of the columns (D, C), in the order of `names`. views: names in
    each representative view."""
    share, alone = np.zeros((len(names), len(names))), np.zeros(len(names))
    for z in partitions:
        share += z[:, None] == z
        alone += np.bincount(z)[z] == 1
    share, alone = share / len(partitions), alone / len(partitions)
    place, order = {name: i for i, name in enumerate(names)}, []
    for view in views:
        members = np.array([place[name] for name in view])
        surest = np.argsort(-np.round(_with_others(share[np.ix_(members, members)]), 12), kind="stable")
        order += members[surest].tolist()
    ends = np.cumsum([len(view) for view in views])
    return Dependence([names[i] for i in order], share[np.ix_(order, order)], alone[order], ends, len(partitions))


def _with_others(share: np.ndarray) -> np.ndarray:
    """Return the mean of each row without its diagonal, which is 1."""
    n = len(share)
    return (share.sum(axis=1) - 1.0) / (n - 1) if n > 1 else np.full(1, np.nan)


@styled
def dependence_map(d: Dependence):
    """Draw each pair's share of the draws as a shade, with lines between the views, numbered as in the text."""
    n, named = len(d.names), len(d.names) <= NAMED
    side = float(np.clip(0.135 * n, 3.2, 10.0))  # inches
    size = min(8.0, 62.0 * side / n)
    names = [shortened(name, NAME_LETTERS) for name in d.names] if named else []
    numbers = _numbers(d.ends, side / n)
    beside = 6.0 + 6.5 * max((len(words) for words, _ in numbers), default=0)  # points
    left = 0.3 + beside / 72.0 + 0.0088 * size * max(map(len, names), default=0)
    top, right, bottom = 0.95, 0.3, 0.75
    width, height = max(left + side + right, 6.2), top + side + bottom
    figure = plot(width, height)
    figure.set_layout_engine("none")
    axes = figure.add_axes((left / width, bottom / height, side / width, side / height))
    image = axes.imshow(d.share, cmap="Blues", vmin=0.0, vmax=1.0, extent=(0, n, n, 0))
    axes.grid(visible=False)
    axes.set(xticks=[], yticks=np.arange(n) + 0.5 if named else [])
    if named:
        axes.set_yticklabels(names, fontsize=size)
        axes.tick_params(axis="y", length=0, pad=beside)
    for spine in axes.spines.values():
        spine.set(visible=True, color=INK, linewidth=0.7)
    for end in d.ends[:-1]:
        for line in (axes.axhline, axes.axvline):
            line(end, color=INK, linewidth=0.7)
    for words, middle in numbers:
        look = {"fontsize": 8.5, "fontweight": "bold", "color": INK, "annotation_clip": False}
        axes.annotate(words, (middle, 0), (0, 3), textcoords="offset points", ha="center", va="bottom", **look)
        axes.annotate(words, (0, middle), (-4, 0), textcoords="offset points", ha="right", va="center", **look)
    words = f"{counted(n, 'column')} in {counted(len(d.ends), 'view')}, numbered as in the report"
    figure.text(
        0.18 / width, 1 - 0.22 / height, "Which columns share a view", fontsize=11, fontweight="bold", va="center"
    )
    figure.text(0.18 / width, 1 - 0.46 / height, words, fontsize=8, va="center", color=FAINT)
    bar = figure.add_axes((0.35 / width, 0.36 / height, 1.5 / width, 0.13 / height))
    key = figure.colorbar(image, cax=bar, orientation="horizontal")
    key.outline.set(edgecolor=FAINT, linewidth=0.5)
    key.set_ticks([0, 0.5, 1], labels=["0", "50", "100 %"])
    key.ax.tick_params(labelsize=7, length=2)
    key.ax.grid(visible=False)
    words = f"of {counted(d.n_draws, 'draw')}: those in which the two are in one view"
    figure.text(2.05 / width, 0.425 / height, words, fontsize=7.5, va="center", color=FAINT)
    return figure


def _numbers(ends: np.ndarray, inch: float) -> list[tuple[str, float]]:
    """Return labels with views' numbers, and the positions of their middles; narrow neighbours share a label ("5 to
    9"). inch: width of a column. Views come by size, so later ones are no wider."""
    numbers, first, low = [], 1, 0
    for view, high in enumerate(ends.tolist(), 1):
        words = f"{view}" if view == first else f"{first}\N{EN DASH}{view}"
        if (high - low) * inch >= MARGIN + LETTER * len(words):
            numbers.append((words, (low + high) / 2.0))
            first, low = view + 1, high
    return numbers
