"""Pictures of variational inference, as bytes of PNG files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpibayes.hpc.posterior.chains import Chain
from mpibayes.hpc.report.document import Figure
from mpibayes.hpc.report.drawing import (
    CHAINS,
    chain_colour,
    legend,
    plain,
    plot,
    seconds_at,
    shortened,
    styled,
    thinned,
    thousands,
)  # fmt: skip
from mpibayes.hpc.svi.report.summarise import ComponentLine

SHOWN_COMPONENTS = 30
NAME_LETTERS = 40
SKIPPED = 40  # the first 1/40 of the bound's course is not shown: it would flatten the rest
FEW = 40  # most points of a line that get marks
RADIUS = 2.0  # of ellipses, in standard deviations


def bound(p: Any) -> Figure:
    """Figure of the bound, for a summary of any likelihood."""
    return Figure("bound.png", bounds(p.run.chains, p.best.chain), "The bound over cycles and seconds")


@styled
def bounds(chains: Sequence[Chain], best: int):
    """Plot the bound over the cycles, and over the seconds, of every chain."""
    figure, left, every = courses(chains, best, "bound", "Lower bound of log p(table), nats")
    later, top = min(float(b[-(-len(b) // SKIPPED) :].min(initial=b[-1])) for b in every), max(b.max() for b in every)
    margin = 0.05 * (top - later) or 1.0
    left.set_ylim(later - margin, top + margin)
    left.yaxis.set_major_formatter(plain())
    return figure


def courses(chains: Sequence[Chain], best: int, name: str, title: str) -> tuple[Any, Any, list[np.ndarray]]:
    """Plot a scalar over the cycles, and over the seconds, of every chain; return the figure, its first axes, and the
    values."""
    figure = plot(10.0, 3.6)
    left, right = figure.subplots(1, 2, sharey=True)
    every = []
    for i, chain in enumerate(chains):
        known = np.flatnonzero(np.isfinite(chain.trace[name]))
        known = known[thinned(len(known))]
        cycle, values = chain.trace["cycle"][known], chain.trace[name][known]
        every.append(values)
        look = {"color": chain_colour(i), "linewidth": 1.6 if i == best else 0.9, "zorder": 3 if i == best else 2}
        look |= {"marker": "."} if len(values) < FEW else {}
        left.plot(cycle, values, **look)
        right.plot(seconds_at(chain, cycle), values, **look)
    left.set_title(title)
    left.set_xlabel("cycle")
    right.set_xlabel("seconds")
    left.xaxis.set_major_formatter(thousands())
    legend(figure, chains, [])
    return figure, left, every


@styled
def scatter(x: np.ndarray, labels: np.ndarray, components: Sequence[ComponentLine], pair: tuple[int, int], names):
    """Plot rows (n, D) in two columns, in their components' colours, with an ellipse of 2 standard deviations for
    each."""
    from matplotlib.patches import Ellipse

    i, j = pair
    figure = plot(6.4, 5.2)
    axes = figure.subplots()
    colours = np.array([CHAINS[k % len(CHAINS)] for k in range(max(labels) + 1)])
    axes.scatter(x[:, i], x[:, j], s=5, c=colours[labels], alpha=0.5, linewidths=0)
    for c in [c for c in components if c.rows][:SHOWN_COMPONENTS]:
        if not np.isfinite(c.sd).all():
            continue
        covariance = c.correlation[np.ix_(pair, pair)] * np.outer(c.sd[list(pair)], c.sd[list(pair)])
        size, axis = np.linalg.eigh(covariance)
        angle = np.degrees(np.arctan2(axis[1, 1], axis[0, 1]))
        wide, high = 2.0 * RADIUS * np.sqrt(np.maximum(size[::-1], 0.0))
        colour = CHAINS[(c.number - 1) % len(CHAINS)]
        axes.add_patch(
            Ellipse(c.mean[list(pair)], wide, high, angle=angle, fill=False, edgecolor=colour, linewidth=1.5)
        )
        axes.annotate(str(c.number), c.mean[list(pair)], ha="center", va="center", fontsize=9, fontweight="bold")
    axes.set_xlabel(shortened(names[i], NAME_LETTERS))
    axes.set_ylabel(shortened(names[j], NAME_LETTERS))
    axes.set_title(f"Components within {RADIUS:g} standard deviations")
    return figure
