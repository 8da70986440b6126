"""Pictures of a regression's posterior, as bytes of PNG files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.hpc.posterior.chains import Chain
from mpibayes.hpc.regression.report.coefficients import Summary
from mpibayes.hpc.regression.report.scoring import BINS, ClassScores, NumberScores
from mpibayes.hpc.regression.scalars import SCALARS
from mpibayes.hpc.report.drawing import (
    FAINT,
    INK,
    chain_colour,
    in_lines,
    legend,
    phases,
    plot,
    styled,
    thinned,
    thousands,
    trace_panels,
)  # fmt: skip
from mpibayes.hpc.scalar import named

FEWEST = 20  # fewest values of the log posterior that make a curve; otherwise log p(theta, z) is shown
SHOWN = 30  # most coefficients in the forest; a third of them with several classes
NAME_LETTERS = 40  # per line
LINE = 0.16  # inches per line of a name
KEY_LETTERS = 24  # of a class, per line
TITLE_LETTERS = 50
AXIS_LETTERS = 80
CLASSES = 8  # most classes in the calibration, most frequent first
LEAST_CELL = 10  # least number of rows in a point of the calibration


@styled
def trace(chains: Sequence[Chain], n_rows: int):
    """Plot log posterior and bright rows over the cycles of every chain, and their distributions after burn-in."""
    seen = min(np.isfinite(c.trace["log_posterior"]).sum() for c in chains)
    keys = ["log_posterior" if seen >= FEWEST else "lp"]
    if any(np.ptp(c.trace["n_bright"]) > 0 for c in chains):
        keys.append("n_bright")
    figure, axes = trace_panels(chains, [named(SCALARS)[key] for key in keys])
    if "n_bright" in keys:
        _share_axis(axes[keys.index("n_bright"), 1], n_rows)
    for left in axes[:, 0]:
        shown = phases(left, chains)
    legend(figure, chains, shown)
    return figure


def _share_axis(axes, n_rows: int) -> None:
    share = axes.secondary_yaxis("right", functions=(lambda y: 100.0 * y / n_rows, lambda p: p * n_rows / 100.0))
    share.set_ylabel("% of the rows", fontsize=8)
    share.tick_params(labelsize=8)
    share.yaxis.set_major_formatter(lambda p, _: f"{p:g}")


@styled
def forest(summary: Summary, names: Sequence[str], classes: Sequence[str], title: str, words: str):
    """Plot mean and 5 to 95 % interval of the coefficients that stand out most. summary: of flattened (K, D). names
    (D,): "" for those not to show. classes: () if there is one row of coefficients."""
    k = max(1, len(classes))
    stands = np.where([bool(n) for n in names], summary.standing_out.reshape(k, -1).max(axis=0), -1.0)
    most = SHOWN if k == 1 else max(6, SHOWN // 2)
    chosen = [j for j in np.argsort(-stands, kind="stable")[:most] if stands[j] >= 0]
    mean, low, high = (a.reshape(k, -1)[:, chosen] for a in (summary.mean, summary.quantiles[0], summary.quantiles[2]))
    by_size = np.argsort(-mean[0] if k == 1 else -np.abs(mean).max(axis=0), kind="stable")
    labels = [in_lines(names[chosen[j]], NAME_LETTERS) for j in by_size]
    least = 0.24 if k == 1 else 0.10 + 0.12 * k
    tall = np.array([max(least, 0.08 + LINE * len(label.split("\n"))) for label in labels])  # inches per row
    middle = np.cumsum(tall) - tall / 2
    letters = max([len(line) for label in labels for line in label.split("\n")], default=4)
    keys = [in_lines(name, KEY_LETTERS) for name in classes]
    lines = 1 + max([key.count("\n") for key in keys], default=0)
    figure = plot(5.6 + 0.07 * letters, 1.4 + tall.sum() + (0.3 + LINE * (lines - 1) if k > 1 else 0))
    axes = figure.subplots()
    axes.axvline(0.0, color=INK, linewidth=0.9, zorder=1)
    for row, place in enumerate(by_size):
        for c in range(k):
            y = middle[row] + (0.0 if k == 1 else 0.75 * least * (c - (k - 1) / 2) / k)
            away = low[c, place] > 0 or high[c, place] < 0
            ink = chain_colour(c) if k > 1 else chain_colour(0) if away else "#8a929c"
            axes.plot([low[c, place], high[c, place]], [y, y], color=ink, linewidth=2.0, solid_capstyle="butt")
            axes.plot(mean[c, place], y, "o", color=ink, markersize=4.2, markeredgecolor="white", markeredgewidth=0.5)
    axes.set(ylim=(tall.sum() + 0.02, -0.02), yticks=middle)
    axes.set_yticklabels(labels)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.set_title(title, loc="left")
    everyone = sum(map(bool, names))
    if len(chosen) < everyone:
        left_out = f"{len(chosen)} of {everyone:,}, those that stand out most"
        axes.set_title(left_out, loc="right", fontsize=8, fontweight="normal", color=FAINT)
    axes.set_xlabel(in_lines(words, AXIS_LETTERS), fontsize=8, color=FAINT)
    if k > 1:
        from matplotlib.lines import Line2D

        shown = [Line2D([], [], color=chain_colour(c), linewidth=2.0, label=key) for c, key in enumerate(keys)]
        figure.legend(handles=shown, loc="outside lower center", ncols=min(k, 5), fontsize=8)
    return figure


@styled
def mixing(draws: Sequence[np.ndarray], chains: Sequence[Chain], names: Sequence[str], ess: Sequence[float]):
    """Plot the coefficients that mix worst: their draws after burn-in over the cycles, and autocorrelations.

    draws: (n, M) of each chain, for the M coefficients named.
    """
    titles = [in_lines(name, TITLE_LETTERS) for name in names]
    figure = plot(10.0, 1.75 * len(names) + 0.9 + 0.17 * sum(title.count("\n") for title in titles))
    axes = figure.subplots(len(names), 2, width_ratios=(3, 1.5), squeeze=False, sharex="col")
    longest = 0
    for m, (title, effective) in enumerate(zip(titles, ess)):
        left, right = axes[m]
        for i, (d, c) in enumerate(zip(draws, chains)):
            cycle = c.trace["cycle"][c.trace["cycle"] > c.burn_in]
            few = thinned(len(cycle))
            left.plot(cycle[few], d[few, m], color=chain_colour(i), linewidth=0.6, alpha=0.8)
            rho = autocorrelation(d[:, m])
            longest = max(longest, int(np.argmax(rho < 0.02)) or len(rho) - 1)
            right.plot(rho, color=chain_colour(i), linewidth=1.4)
        words = f"{effective:,.0f} effective draws" if np.isfinite(effective) else "too few draws to judge"
        left.set_title(title)
        left.set_title(words, loc="right", fontsize=8, fontweight="normal", color=FAINT)
        left.margins(x=0.0)
        right.axhline(0.0, color=FAINT, linewidth=0.8)
        right.set_ylim(-0.1, 1.02)
    axes[0, 1].set_title("autocorrelation")
    axes[-1, 1].set_xlim(0, max(5, int(1.3 * longest)))
    axes[-1, 1].set_xlabel("lag, kept cycles")
    axes[-1, 0].set_xlabel("cycle")
    axes[-1, 0].xaxis.set_major_formatter(thousands())
    legend(figure, chains, [])
    return figure


def autocorrelation(x: np.ndarray) -> np.ndarray:
    """Autocorrelation at lags 0 to n / 2; 1 and then 0 for a constant series."""
    x = x - x.mean()
    n = len(x)
    power = np.abs(np.fft.rfft(x, 2 * n)) ** 2
    c = np.fft.irfft(power)[: max(2, n // 2)]
    return c / c[0] if c[0] > 0 else np.eye(1, len(c))[0]


@styled
def calibration(scores: ClassScores, classes: Sequence[str]):
    """Plot the calibration on held-out rows: frequency of a class given its predicted probability, and the number of
    such predictions.

    Points have bars of two binomial standard errors. Of two classes only the second is shown.
    """
    figure = plot(6.4, 6.4)
    top, below = figure.subplots(2, 1, sharex=True, height_ratios=(3.2, 1))
    keys = top.plot([0, 1], [0, 1], color=FAINT, linewidth=1.0, linestyle=(0, (4, 2)), label="perfectly calibrated")
    order = [1] if len(classes) == 2 else list(np.argsort(-scores.by_class, kind="stable")[:CLASSES])
    edges = np.linspace(0, 1, BINS + 1)
    for c in order:
        n, ink = scores.counts[c], chain_colour(c if len(order) > 1 else 0)
        enough = n >= min(LEAST_CELL, max(1, scores.n_rows // BINS))
        p, share = scores.predicted[c][enough] / n[enough], scores.seen[c][enough] / n[enough]
        error = 2.0 * np.sqrt(np.maximum(p * (1 - p), 1e-12) / n[enough])
        look = {"color": ink, "linewidth": 1.3, "markersize": 4.5, "elinewidth": 0.9, "capsize": 2}
        keys.append(top.errorbar(p, share, yerr=error, fmt="o-", label=in_lines(classes[c], TITLE_LETTERS), **look))
        style = "stepfilled" if len(order) == 1 else "step"
        alpha = 0.75 if len(order) == 1 else 1.0
        below.hist(edges[:-1], bins=edges, weights=100.0 * n / n.sum(), histtype=style, alpha=alpha,
                   color=ink, linewidth=1.2)  # fmt: skip
    top.set(xlim=(0, 1), ylim=(-0.02, 1.02))
    top.set_ylabel("share of these rows that are of the class")
    top.set_title(f"Calibration on {scores.n_rows:,} held-out rows")
    top.legend(handles=keys, loc="upper left", fontsize=8)  # all of them, even a class called "_"
    below.set_xlabel("predicted probability, averaged over draws")
    below.set_ylabel("% of the rows")
    return figure


@styled
def places(scores: NumberScores, response: str):
    """Plot the positions of held-out responses in their predictive distributions; flat if these are right."""
    figure = plot(6.8, 3.9)
    axes = figure.subplots()
    n = scores.n_rows
    edges = np.linspace(0, 1, BINS + 1)
    expected, spread = 100.0 / BINS, 200.0 * np.sqrt((1 - 1 / BINS) / BINS / n)
    axes.axhspan(expected - spread, expected + spread, color="#eceef1", zorder=0, label="two standard errors")
    axes.hist(edges[:-1], bins=edges, weights=100.0 * scores.places / n, color=chain_colour(0), alpha=0.8, rwidth=0.92)
    axes.axhline(expected, color=INK, linewidth=1.0, linestyle=(0, (4, 2)), label="exact calibration")
    axes.set(xlim=(0, 1))
    axes.set_xlabel(in_lines(f"place of {response} in its predictive distribution", AXIS_LETTERS))
    axes.set_ylabel("% of the rows")
    axes.set_title(f"Calibration on {n:,} held-out rows")
    axes.set_title(
        f"{100 * scores.covered.value:.1f} % between 5 % and 95 %", loc="right", fontsize=8, fontweight="normal",
        color=FAINT,
    )  # fmt: skip
    axes.margins(y=0.18)
    axes.legend(loc="upper center", ncols=2, fontsize=8)
    return figure
