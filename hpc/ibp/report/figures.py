"""Pictures of the posterior of an Indian buffet process, as bytes of PNG files."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np

from mpibayes.hpc.ibp.report.summarise import FeatureLine
from mpibayes.hpc.ibp.scalars import SCALARS
from mpibayes.hpc.posterior.chains import Chain
from mpibayes.hpc.report.drawing import legend, phases, plot, shortened, styled, trace_panels
from mpibayes.hpc.scalar import named
from mpibayes.text import percent

SHOWN = 40  # most features
ACROSS = 8  # pictures per line
NAME_LETTERS = 24
TITLE_LETTERS = 18  # of the list of a row's features, above its picture
MOST_NAMED = 60  # most columns named below profiles


@styled
def trace(chains: Sequence[Chain]):
    """Plot log joint, numbers of features, features of a row, and held-out scores over the cycles of every chain."""
    names = ["log_joint", "n_features", "common_features", "features_of_row"]
    if all(np.array_equal(c.trace["n_features"], c.trace["common_features"]) for c in chains):
        names.remove("common_features")
    for name in ("heldout_lpd", "heldout_cell_lpd"):
        if all(np.isfinite(c.trace[name]).any() for c in chains):
            names.append(name)
    figure, axes = trace_panels(chains, [named(SCALARS)[name] for name in names])
    for left in axes[:, 0]:
        shown = phases(left, chains)
    legend(figure, chains, shown)
    return figure


@styled
def pictures(features: Sequence[FeatureLine], image: tuple[int, int]):
    """Plot the loadings of each feature as a picture, all on one scale."""
    features = features[:SHOWN]
    most = max(float(np.abs(f.loadings).max()) for f in features) or 1.0
    lines, across = -(-len(features) // ACROSS), min(ACROSS, len(features))
    figure = plot(1.35 * max(across, 3) + 0.9, 1.65 * lines + 0.7)
    axes = figure.subplots(lines, across, squeeze=False)
    for place in axes.flat:
        place.axis("off")
    for place, f in zip(axes.flat, features):
        shown = place.imshow(f.loadings.reshape(image), cmap="RdBu_r", vmin=-most, vmax=most, interpolation="nearest")
        place.set_title(f"{f.number}: {percent(f.share)}", fontsize=8.5, loc="center")
    figure.colorbar(shown, ax=axes, shrink=0.8, aspect=25)
    figure.suptitle("Features: number, share of the rows, and loadings in the table's units", fontsize=9.5)
    return figure


@styled
def profiles(features: Sequence[FeatureLine], names: Sequence[str], scale: np.ndarray):
    """Plot the loadings of each feature by column, in standard deviations of the column, all on one scale."""
    features = features[:SHOWN]
    loadings = np.array([f.loadings / scale for f in features])
    most = float(np.abs(loadings).max()) or 1.0
    wide = float(np.clip(0.22 * len(names), 3.5, 14.0))
    figure = plot(wide + 1.8, 0.3 * len(features) + 1.6)
    axes = figure.subplots()
    shown = axes.imshow(loadings, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto", interpolation="nearest")
    axes.set_yticks(range(len(features)), [f"{f.number}: {percent(f.share)}" for f in features])
    if len(names) <= MOST_NAMED:
        named_ = [shortened(name, NAME_LETTERS) for name in names]
        axes.set_xticks(range(len(names)), named_, rotation=60, ha="right", fontsize=7.5)
    axes.set_title("Features: share of the rows, and loadings in standard deviations of the column")
    axes.grid(visible=False)
    figure.colorbar(shown, ax=axes, shrink=0.8)
    return figure


@styled
def rebuilt(rows: np.ndarray, fitted: np.ndarray, titles: Sequence[str], image: tuple[int, int]):
    """Plot rows (n, D) as pictures, and below them their reconstruction from their features."""
    n = len(rows)
    low, high = np.nanquantile(rows, (0.01, 0.99))
    figure = plot(1.35 * max(n, 3) + 0.6, 3.6)
    axes = figure.subplots(2, n, squeeze=False)
    for line, x in zip(axes, (rows, fitted)):
        for place, row in zip(line, x):
            place.imshow(row.reshape(image), cmap="Greys", vmin=low, vmax=high, interpolation="nearest")
            place.axis("off")
    for place, title in zip(axes[0], titles):
        row, has = title.split(": ", 1)
        place.set_title(f"{row}\n{textwrap.shorten(has, TITLE_LETTERS, placeholder=' …')}", fontsize=8, loc="center")
    figure.suptitle("Rows with the numbers of their features, and below them the sum of these", fontsize=9.5)
    return figure
