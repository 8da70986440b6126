"""Bounds over cycles from many starts: the mean and a standard error on both sides of it."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

COLOURS = ("#4477aa", "#cc6677", "#228833", "#aa8800")


def draw(path, panels, label):
    """panels: {title: {way: (cycles (T,), bounds (starts, T))}}. label: of the bounds."""
    n = len(panels)
    figure, axes = plt.subplots(1, n, figsize=(0.5 + 4.5 * n, 3.4), layout="constrained", squeeze=False)
    for axis, (title, ways) in zip(axes[0], panels.items()):
        early, top = -np.inf, -np.inf
        for colour, (way, (t, bounds)) in zip(COLOURS, ways.items()):
            mean, error = bounds.mean(axis=0), bounds.std(axis=0, ddof=1) / np.sqrt(len(bounds))
            axis.plot(t, mean, color=colour, lw=1.4, label=way)
            axis.fill_between(t, mean - error, mean + error, color=colour, alpha=0.2, lw=0)
            early, top = max(early, mean[len(mean) // 15]), max(top, mean.max())
        # What is below where the best way was early is out of sight.
        axis.set(title=title, xlabel="cycle", ylabel=label, ylim=(early, top + 0.05 * (top - early)))
        axis.legend(fontsize=7, frameon=False, loc="lower right")
    figure.savefig(path, dpi=110)
