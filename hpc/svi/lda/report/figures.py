"""Pictures of topics, as bytes of PNG files."""

from __future__ import annotations

import numpy as np

from mpibayes.hpc.report.drawing import CHAINS, plot, shortened, styled
from mpibayes.hpc.svi.lda.report.summarise import RunSummary

SHOWN, ACROSS = 12, 4  # topics, largest first
WORDS = 8
LETTERS = 16


@styled
def topics(p: RunSummary):
    """Plot the first words of the largest topics, with their probabilities."""
    shown = p.topics[:SHOWN]
    down = -(-len(shown) // ACROSS)
    figure = plot(11.0, 0.6 + 1.9 * down)
    panels = np.atleast_2d(figure.subplots(down, ACROSS, squeeze=False))
    for axes, t in zip(panels.flat, shown):
        words = t.words[:WORDS][::-1]
        bars = p.probability[words, t.number - 1]
        axes.barh(np.arange(len(words)), bars, color=CHAINS[(t.number - 1) % len(CHAINS)])
        axes.set_yticks(np.arange(len(words)), [shortened(p.vocabulary[i], LETTERS) for i in words], fontsize=8)
        axes.set_title(f"{t.number}: {t.share:.1%} of words", fontsize=9)
        axes.tick_params(axis="x", labelsize=7)
    for axes in panels.flat[len(shown) :]:
        axes.set_axis_off()
    return figure
