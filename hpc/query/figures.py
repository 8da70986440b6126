"""Pictures of answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mpibayes.hpc.query.asking import Distributions
from mpibayes.hpc.query.support import Support
from mpibayes.hpc.report.drawing import CHAINS, FAINT, plot, shortened
from mpibayes.hpc.report.drawing import styled_figure as styled
from mpibayes.io.order import order_of
from mpibayes.text import counted

BARS = 40  # most levels drawn
LETTERS = 40
IN_A_PANEL = 18  # most cells of a column drawn, the most probable ones


@styled
def distribution(title: str, d: Distributions, n_draws: int, facts: Sequence[tuple[str, str]] = ()) -> Any:
    """Draw the distribution of a column: bars with errors for levels; for numbers a density, and bars for atoms. facts:
    text below the title."""
    column, p, error, e = d.support.column, d.p[0], d.error[0], d.support.events
    if column.levels:
        most = np.argsort(-p, kind="stable")[:BARS]
        order = np.array([v for v in order_of(column) if v in most] or most)[::-1]
        figure = plot(6.5, 1.2 + 0.22 * len(order))
        axes = figure.add_subplot()
        axes.barh(np.arange(len(order)), p[order], xerr=error[order], color=CHAINS[0], ecolor=FAINT)
        axes.set_yticks(np.arange(len(order)), [shortened(column.levels[i], LETTERS) for i in order])
        axes.set_xlabel("probability")
    elif column.kind == "survival":
        figure = plot(6.5, 3.6)
        axes = figure.add_subplot()
        axes.plot(np.append(0.0, e.high[:-1]), 1.0 - np.append(0.0, np.cumsum(p)[:-1]), color=CHAINS[0])
        axes.set(xlabel=shortened(column.name, 100), ylabel="probability that the event comes later", ylim=(0.0, 1.0))
    else:
        figure = plot(6.5, 3.6)
        axes = figure.add_subplot()
        bounded = np.isfinite(e.low) & np.isfinite(e.high) & (e.high > e.low) & ((e.low > 0.0) | (not column.log))
        width = e.high + (column.kind == "count") - e.low
        axes.bar(e.low[bounded], p[bounded] / width[bounded], width[bounded], align="edge", color=CHAINS[0])
        axes.set_ylabel("probability per unit")
        for code, u in ((c, u) for u, c in enumerate(e.codes) if c >= 0):
            atom = column.atoms[code]
            axes.axvline(atom, color=CHAINS[1], linewidth=1.5, label=f"{atom:g}: {p[u]:.1%}")
        if column.atoms:
            axes.legend(title="values of their own")
        low, high = (float(d.support.quantile(d.p, q)[0]) for q in (0.005, 0.995))
        if high > low:
            axes.set_xlim(low - 0.05 * (high - low), high + 0.05 * (high - low))
        axes.set_xlabel(shortened(column.name, 100) + (f" ({column.unit})" if column.unit else ""))
    axes.set_title(f"{shortened(title, 80)}\n", fontsize=10)
    text = "   ".join(f"{name} {value}" for name, value in facts)
    axes.text(0.0, 1.02, text, transform=axes.transAxes, fontsize=7, color=FAINT)
    figure.text(0.99, 0.01, f"averaged over {counted(n_draws, 'draw')}", ha="right", fontsize=7, color=FAINT)
    return figure


@styled
def pairs(names: Sequence[str], information: np.ndarray, n_draws: int) -> Any:
    """Draw the mutual information of each pair of columns as the absolute correlation of two normals that have as
    much."""
    strength = np.sqrt(1.0 - np.exp(-2.0 * np.maximum(information, 0.0)))
    np.fill_diagonal(strength, 1.0)
    side = min(12.0, 2.5 + 0.2 * len(names))
    figure = plot(side + 1.0, side)
    axes = figure.add_subplot()
    image = axes.imshow(strength, cmap="Blues", vmin=0.0, vmax=1.0)
    axes.grid(visible=False)
    ticks, labels = np.arange(len(names)), [shortened(n, 30) for n in names]
    axes.set_yticks(ticks, labels, fontsize=7)
    axes.set_xticks(ticks, labels, fontsize=7, rotation=90)
    figure.colorbar(image, shrink=0.6, label="correlation of two normals with this information")
    axes.set_title(f"Columns that depend on each other, {counted(n_draws, 'draw')}")
    return figure


@styled
def side_by_side(
    sides: Sequence[tuple[str, dict[str, np.ndarray]]], cells: Mapping[str, Support], divergence: np.ndarray
) -> Any:
    """Draw the distributions of columns in two groups, a panel per column: bars for levels, steps for numbers."""
    figure = plot(9.0, 0.8 + 2.6 * ((len(cells) + 1) // 2))
    for i, ((name, support), apart) in enumerate(zip(cells.items(), divergence)):
        axes = figure.add_subplot((len(cells) + 1) // 2, 2, i + 1)
        total = np.sum([of[name] for _, of in sides], axis=0)
        order = np.sort(np.argsort(-total, kind="stable")[:IN_A_PANEL])
        place, width = np.arange(len(order)), 0.8 / len(sides)
        for g, (title, of) in enumerate(sides):
            axes.bar(place + (g - 0.5) * width, of[name][order], width, color=CHAINS[g], label=shortened(title, 50))
        labels = [shortened(support.words[u], 14) for u in order]
        axes.set_xticks(place, labels, fontsize=6, rotation=90)
        axes.set_title(f"{shortened(name, 40)}  ({apart:.3f} nats)", fontsize=9)
    figure.axes[0].legend(fontsize=7)
    return figure
