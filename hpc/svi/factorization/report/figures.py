"""Pictures of a factorization, as bytes of PNG files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.hpc.posterior.chains import Chain
from mpibayes.hpc.report.drawing import (
    chain_colour,
    note,
    plot,
    shortened,
    styled,
)  # fmt: skip
from mpibayes.hpc.svi.factorization.report.summarise import extremes
from mpibayes.hpc.svi.report.figures import courses

NAMED = 5  # items named at each end of a factor
LETTERS = 26


@styled
def scores(chains: Sequence[Chain], best: int):
    """Plot the RMSE of held-out ratings over the cycles, and over the seconds, of every chain."""
    return courses(chains, best, "rmse", "RMSE of held-out ratings")[0]


@styled
def factors(values: np.ndarray, ratings: np.ndarray, names: Sequence[str]):
    """Plot items (J, 2) by two factors, larger with more ratings, named at the ends."""
    figure = plot(8.0, 6.4)
    axes = figure.subplots()
    size = 4.0 + 60.0 * ratings / max(1, ratings.max())
    axes.axhline(0.0, color="0.85", linewidth=0.8, zorder=0)
    axes.axvline(0.0, color="0.85", linewidth=0.8, zorder=0)
    axes.scatter(values[:, 0], values[:, 1], s=size, color=chain_colour(0), alpha=0.35, linewidths=0)
    ends = np.concatenate([np.concatenate(extremes(values[:, k], NAMED)) for k in range(2)])
    for j in np.unique(ends).tolist():
        note(axes, shortened(names[j], LETTERS), values[j], (3, 3), fontsize=7)
    axes.set_xlabel("factor 1, effect on a rating of a user one standard deviation from the mean")
    axes.set_ylabel("factor 2")
    axes.set_title("Items on the two strongest factors")
    return figure
