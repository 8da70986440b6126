"""Pictures of a posterior, as bytes of PNG files. They take chains with their traces, or plain arrays; matplotlib is
imported when one is asked for."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpibayes.hpc.chains import Course
from mpibayes.hpc.kept_draws import Chain
from mpibayes.hpc.summary import TELLING, ColumnProfile, percent, took

DPI = 150
INK, FAINT, GRID = "#22272e", "#6b7280", "#e5e7eb"
EMPTY = "#f4f5f7"
# neighbours differ in lightness too, for paper without colours
CHAINS = ("#17406f", "#e8833a", "#2f957a", "#c2c94a", "#7b3f8c", "#63b3d6", "#a8324a", "#8a929c")
MANY_CLUSTERS, MANY_COLUMNS = 20, 30  # of the heat map
LEVEL_LETTERS = 14  # of a line of a level's name in the heat map
NAME_LETTERS = 28  # of a column's name there
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "text.color": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.edgecolor": "none",
    "legend.framealpha": 0.7,
    "hatch.linewidth": 0.6,
}


def _plot(width: float, height: float, **more):
    """A figure in our style. No display, no global state: figures are made without pyplot."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white", **more)
    FigureCanvasAgg(figure)
    return figure


def _png(figure) -> bytes:
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=DPI)
    return image.getvalue()


def _styled(draw):
    def styled(*args, **kwargs) -> bytes:
        import matplotlib

        with matplotlib.rc_context(STYLE):
            return _png(draw(*args, **kwargs))

    styled.__doc__ = draw.__doc__
    return styled


@_styled
def trace(chains: Sequence[Chain], settled: Sequence[tuple[int, float]]):
    """Log joint, number of clusters and accepted moves over the cycles of every chain, and how the first two are
    distributed after burn-in.

    settled: cycle, and seconds, in which each chain's log joint is first as high as in the end. Without moves there is
    no panel of them.
    """
    moving = [any(np.nansum(c.trace.get(name, 0)) for name in ("splits_tried", "merges_tried")) for c in chains]
    n_panels = 3 if any(moving) else 2
    figure = _plot(10.0, 2.7 * n_panels + 0.5)
    axes = figure.subplots(n_panels, 2, sharex="col", sharey="row", width_ratios=(5, 1))
    _value_panel(chains, "log_joint", *axes[0])
    _value_panel(chains, "n_clusters", *axes[1])
    for i, (c, (cycle, seconds)) in enumerate(zip(chains, settled)):
        at = (cycle, np.interp(cycle, c.trace["cycle"], c.trace["log_joint"]))
        words = f"settled: cycle {cycle:,}, {took(seconds)}" if len(chains) == 1 else ""
        _mark_settled(axes[0, 0], at, _colour(i), words)
    if n_panels == 3:
        _move_panel(chains, *axes[2])
    for left in axes[:, 0]:
        _shade(left, chains, words=left is axes[0, 0])
    axes[-1, 0].set_xlabel("cycle")
    axes[0, 0].set_xlim(0, max(c.trace["cycle"][-1] for c in chains))
    _clock(axes[-1, 0], chains)
    if len(chains) > 1:
        axes[0, 0].legend(loc="lower right", ncols=min(len(chains), 4), fontsize=8)
    return figure


def _mark_settled(axes, at: tuple[float, float], colour: str, words: str) -> None:
    axes.plot(*at, "v", markersize=7, markeredgecolor="white", color=colour, clip_on=False, zorder=5)
    if words:
        behind = {"facecolor": "white", "edgecolor": "none", "alpha": 0.6, "pad": 1.0}
        left = at[0] > 0.7 * axes.dataLim.x1  # no room on the right
        _note(axes, words, at, (-8 if left else 8, -16), color=INK, ha="right" if left else "left", bbox=behind)


def _value_panel(chains: Sequence[Chain], key: str, left, right) -> None:
    """One scalar over the cycles, and its distribution after burn-in. What the log joint is of a part of the rows is
    left out."""
    whole = key == "n_clusters"
    values = [np.where(whole | (c.trace["cycle"] >= c.growth), c.trace[key], np.nan) for c in chains]
    later = [v[c.trace["cycle"] > c.burn_in] for c, v in zip(chains, values)]
    for i, (c, v) in enumerate(zip(chains, values)):
        style = "steps-post" if whole else "default"
        left.plot(c.trace["cycle"], v, color=_colour(i), linewidth=1.0, label=c.name, drawstyle=style)
    everything = np.concatenate(later)
    left.set_title("Number of clusters" if whole else "Log joint probability")
    # a start with hundreds of clusters must not flatten what the chain does later
    _limit(left, [v[np.isfinite(v)] for v in values], everything, whole)
    if whole:
        bins = np.arange(everything.min() - 0.5, everything.max() + 1.5)
        if len(bins) > 60:
            bins = 40
        left.yaxis.get_major_locator().set_params(integer=True)
    else:
        bins = np.linspace(everything.min(), everything.max(), 31) if np.ptp(everything) > 0 else 3
        left.yaxis.set_major_formatter(_thousands())
    for i, v in enumerate(later):
        shape = "step" if len(chains) > 1 else "stepfilled"
        look = {"color": _colour(i), "alpha": 0.87, "histtype": shape, "linewidth": 1.1}
        right.hist(v, bins=bins, weights=np.full(len(v), 1.0 / len(v)), orientation="horizontal", **look)
    right.tick_params(labelleft=False, left=False, labelbottom=False, bottom=False)
    right.set_title("after burn-in", fontweight="normal", fontsize=9, color=FAINT)
    right.grid(axis="x", visible=False)


def _move_panel(chains: Sequence[Chain], left, right) -> None:
    """Accepted splits and merges so far."""
    from matplotlib.lines import Line2D

    looks = {"splits": "-", "merges": (0, (4, 2))}
    for i, c in enumerate(chains):
        for name, style in looks.items():
            if name in c.trace:
                total = np.nancumsum(c.trace[name])
                look = {"color": _colour(i), "linewidth": 1.4, "linestyle": style, "drawstyle": "steps-post"}
                left.plot(c.trace["cycle"], total, **look)
    left.set_title("Accepted moves, accumulated")
    left.set_ylim(bottom=0)
    left.yaxis.set_major_formatter(_thousands())
    left.yaxis.get_major_locator().set_params(integer=True)
    right.axis("off")
    ink = _colour(0) if len(chains) == 1 else INK
    keys = [Line2D([], [], color=ink, linewidth=1.4, linestyle=style, label=name) for name, style in looks.items()]
    right.legend(handles=keys, loc="upper left", handlelength=2.6, borderaxespad=0)


def _clock(axes, chains: Sequence[Chain]) -> None:
    """A second axis below: seconds of the chains, on average."""
    cycle = np.unique(np.concatenate([[0], *(c.trace["cycle"] for c in chains)]))
    second = np.mean([_seconds_at(c, cycle) for c in chains], axis=0)
    if second[-1] <= 0:
        return
    second += np.linspace(0, 1e-9, len(second)) * second[-1]  # an axis needs a function that can be inverted
    both = (lambda x: np.interp(x, cycle, second), lambda x: np.interp(x, second, cycle))
    below = axes.secondary_xaxis(-0.27, functions=both)
    below.set_xlabel("seconds" if len(chains) == 1 else "seconds, mean of the chains")
    below.xaxis.set_major_formatter(_thousands())


def _seconds_at(chain: Chain, cycle: np.ndarray) -> np.ndarray:
    """Seconds until these cycles; beyond the chain's end at its mean pace."""
    known, seconds = chain.trace["cycle"], chain.seconds
    beyond = np.maximum(cycle - known[-1], 0) * seconds[-1] / known[-1]
    return np.interp(cycle, [0, *known], [0.0, *seconds]) + beyond


def _shade(axes, chains: Sequence[Chain], words: bool = True, seconds: bool = False) -> None:
    """Growth phase and burn-in in the background, to the end of the longest; only the growth is hatched."""
    ends = []
    for name in ("growth", "burn_in"):
        within = [min(getattr(c, name), c.trace["cycle"][-1]) for c in chains]
        at = [float(_seconds_at(c, np.array([n]))[0]) if seconds else n for c, n in zip(chains, within)]
        ends.append(max(at))
    start = 0
    looks = {
        "growth": {"facecolor": "#f6e7c8", "hatch": "////", "edgecolor": "#e9d5a3"},
        "burn-in": {"facecolor": "#eceef1"},
    }
    for (name, look), end in zip(looks.items(), ends):
        if end > start:
            axes.axvspan(start, end, **look, linewidth=0, zorder=0)
            if words:  # above what is drawn
                bottom, top = axes.get_ylim()
                axes.set_ylim(bottom, max(top, bottom + 1.1 * (axes.dataLim.y1 - bottom)))
                _note(
                    axes,
                    name,
                    (min(end, axes.get_xlim()[1]), 1),
                    (-4, -4),
                    ("data", "axes fraction"),
                    ha="right",
                    va="top",
                )
            start = end


def _note(axes, text: str, at, shift, coordinates="data", **look) -> None:
    look = {"fontsize": 8, "color": FAINT, "va": "center"} | look
    axes.annotate(text, at, xycoords=coordinates, xytext=shift, textcoords="offset points", **look)


@_styled
def annealing(chains: Sequence[Chain], settled: Sequence[tuple[int, float]], n_rows: int):
    """The growth phase and what follows, against cycles and against seconds: active rows, clusters, log joint a row.

    The log joint is divided by the active rows, for that of few rows is not comparable with that of many. Chains
    without a growth phase are left out.
    """
    figure = _plot(10.0, 7.4)
    axes = figure.subplots(3, 2, sharex="col", sharey="row")
    grown = [c for c in chains if c.growth]
    shown = [max(2 * c.growth, 1.2 * at) for c, (at, _) in zip(chains, settled) if c.growth]
    last = max(min(some, c.trace["cycle"][-1]) for c, some in zip(grown, shown))
    level = np.concatenate([c.later()["log_joint"] for c in grown]) / n_rows
    for axis in axes[2]:
        axis.axhspan(*np.quantile(level, (0.05, 0.95)), color=INK, alpha=0.25, linewidth=0)
    for i, c in enumerate(chains):
        if not c.growth:
            continue
        t = c.trace
        keep = t["cycle"] <= last
        values = (t["active_rows"], t["n_clusters"], t["log_joint"] / t["active_rows"])
        for j, x in enumerate((t["cycle"], c.seconds)):
            for row, v in enumerate(values):
                style = "default" if row == 2 else "steps-post"
                axes[row, j].plot(x[keep], v[keep], color=_colour(i), linewidth=1.3, drawstyle=style, label=c.name)
            if settled[i][0] <= last:
                at = (settled[i][j], np.interp(settled[i][0], t["cycle"], values[2]))
                words = f"settled: cycle {settled[i][0]:,}" if j == 0 else f"settled: {took(settled[i][1])}"
                _mark_settled(axes[2, j], at, _colour(i), words if len(chains) == 1 else "")
    axes[2, 0].set_xlim(0, last)
    axes[2, 1].set_xlim(0, max(_seconds_at(c, np.array([last]))[0] for c in grown) or 1.0)
    for j, start in enumerate(axes[0]):
        for axis in axes[:, j]:
            _shade(axis, grown, words=axis is start, seconds=j == 1)
        start.axhline(n_rows, color=FAINT, linewidth=0.8)
    for left, title in zip(axes[:, 0], ("Active rows", "Number of clusters", "Log joint probability per active row")):
        left.set_title(title)
    axes[2, 1].set_title(
        "grey: 5 to 95 % of the draws after burn-in", loc="right", fontsize=8, fontweight="normal", color=FAINT
    )
    axes[0, 0].set_ylim(0, 1.16 * n_rows)
    axes[0, 0].yaxis.set_major_formatter(_thousands())
    axes[1, 0].set_ylim(bottom=0)
    axes[1, 0].yaxis.get_major_locator().set_params(integer=True)
    axes[2, 0].set_xlabel("cycle")
    axes[2, 1].set_xlabel("seconds")
    if len(chains) > 1:
        axes[0, 0].legend(loc="center left", bbox_to_anchor=(0, 0.6), fontsize=8)
    return figure


@_styled
def chains_compared(courses: Sequence[Course], ari: np.ndarray, vi: np.ndarray):
    """Which chains found the same clustering (C, C), the diagonal being the two halves of a chain; and, on the same
    lines, where each chain is in log joint, held-out score, clusters and entropy: mean and 5 to 95 % of its draws."""
    from matplotlib import colormaps

    n = len(courses)
    titles = {"log_joint": "Log joint", "heldout_lpd": "Held-out", "n_clusters": "Clusters", "entropy": "Entropy"}
    keys = [key for key in titles if all(key in c.scalars for c in courses)]
    side = max(0.42, min(0.85, 6.0 / n)) * n
    names = [_short(c.name, NAME_LETTERS) for c in courses]
    short = names
    if max(map(len, names)) > 8 or n > 7:
        short = [str(i + 1) for i in range(n)]
        names = [f"{name}   {number}" for name, number in zip(names, short)]
    left, gap, wide, top, bottom = 0.35 + 0.075 * max(map(len, names)), 0.45, 1.6, 0.42, 0.72
    width, height = left + side + len(keys) * (gap + wide) + 0.2, top + side + bottom
    figure = _plot(width, height)
    figure.set_layout_engine("none")

    def place(x, w):
        return figure.add_axes((x / width, bottom / height, w / width, side / height))

    matrix = place(left, side)
    matrix.set(xlim=(0, n), ylim=(n, 0), xticks=np.arange(n) + 0.5, yticks=np.arange(n) + 0.5)
    matrix.set_yticklabels(names)
    matrix.set_xticklabels(short)
    matrix.tick_params(length=0)
    matrix.grid(visible=False)
    for spine in matrix.spines.values():
        spine.set_visible(False)
    for i in range(n):
        for j in range(n):
            colour = colormaps["GnBu"](0.85 * max(ari[i, j], 0.0)) if np.isfinite(ari[i, j]) else EMPTY
            matrix.add_patch(_rectangle(j, i, colour))
            ink = INK if _brightness(colour) > 0.5 else "white"
            if n <= 12 and np.isfinite(ari[i, j]):
                matrix.text(j + 0.5, i + 0.44, f"{ari[i, j]:.2f}", ha="center", va="center", fontsize=9.5, color=ink)
                matrix.text(j + 0.5, i + 0.74, f"{vi[i, j]:.2f}", ha="center", va="center", fontsize=6.5, color=ink)
        outline = _rectangle(i, i, "none")
        outline.set(edgecolor=INK, linewidth=1.4)
        matrix.add_patch(outline)
    matrix.set_title("Same clustering?")
    x = left + side
    for key in keys:
        axes = place(x + gap, wide)
        x += gap + wide
        for i, c in enumerate(courses):
            s = c.scalars[key]
            axes.plot([s.low, s.high], [i + 0.5] * 2, color=_colour(i), linewidth=2.2, solid_capstyle="butt")
            axes.plot(
                s.mean, i + 0.5, "o", color=_colour(i), markersize=6.5, markeredgecolor="white", markeredgewidth=0.7
            )
        axes.set(ylim=(n, 0), yticks=np.arange(n) + 0.5, yticklabels=[])
        axes.set_title(titles[key])
        axes.tick_params(axis="y", length=0)
        axes.tick_params(axis="x", labelsize=8)
        axes.margins(x=0.12)
        axes.locator_params(axis="x", nbins=3)
        axes.xaxis.set_major_formatter(_thousands())
        axes.spines["left"].set_visible(False)
    words = "adjusted Rand index, below it the variation of information in nats; outlined: the two halves of one chain"
    figure.text(0.12 / width, 0.14 / height, words, fontsize=7.5, color=FAINT)
    return figure


def _limit(axes, values, later, whole: bool, digits: int = 0) -> None:
    """Axis limits from the draws after burn-in, widened towards the beginning of the chains, which may lie far
    outside."""
    low, high = float(later.min()), float(later.max())
    pad = max(high - low, 1.0 if whole else 1e-9 * abs(high) + 1e-9)
    every = np.concatenate(values)
    bottom = every.min() if every.min() >= low - 1.5 * pad else low - 0.4 * pad
    top = every.max() if every.max() <= high + 1.5 * pad else high + 0.4 * pad
    cut = bottom > every.min() or top < every.max()
    margin = 0.04 * (top - bottom) or 0.5
    axes.set_ylim(bottom - margin, top + margin)
    if cut:
        from_ = every.min() if bottom > every.min() else every.max()
        axes.set_title(
            f"(the start reaches {from_:,.{digits}f})", loc="right", fontsize=8, fontweight="normal", color=FAINT
        )


@_styled
def cluster_sizes(ordered: np.ndarray, n_rows: int):
    """Posterior of the ordered cluster sizes: mean with 5-95 % interval; ordered (D, most) rows."""
    low, high = np.quantile(ordered, (0.05, 0.95), axis=0)
    mean = ordered.mean(axis=0)
    shown = int(np.count_nonzero(mean >= 0.5)) or 1
    low, high, mean = low[:shown], high[:shown], mean[:shown]
    rank = np.arange(1, shown + 1)
    figure = _plot(max(6.5, min(12.0, 2.0 + 0.28 * shown)), 4.2)
    axes = figure.subplots()
    axes.bar(rank, mean, color="#9dbfe0", width=0.72, label="posterior mean")
    reach = (np.maximum(mean - low, 0), np.maximum(high - mean, 0))
    look = {"fmt": "none", "ecolor": "#1f4e79", "elinewidth": 1.2, "capsize": 2.2}
    axes.errorbar(rank, mean, yerr=reach, label="5 % to 95 % of the draws", **look)
    axes.set_yscale("log")
    axes.set_ylim(0.7, max(2.0, 1.8 * float(high.max())))
    axes.set_xlim(0.3, shown + 0.7)
    axes.yaxis.set_major_formatter(_thousands())
    axes.grid(axis="x", visible=False)
    axes.set_xlabel("rank of the cluster in its draw, the largest first")
    axes.set_ylabel("rows (logarithmic)")
    axes.set_title(f"Cluster sizes over {len(ordered)} kept draws of {n_rows:,} rows")
    axes.legend(loc="upper right")
    axes.xaxis.get_major_locator().set_params(integer=True)
    share = axes.secondary_yaxis("right", functions=(lambda y: 100.0 * y / n_rows, lambda p: p * n_rows / 100.0))
    share.set_ylabel("% of the rows")
    share.yaxis.set_major_formatter(lambda p, _: f"{p:g}")
    return figure


@_styled
def held_out(chains: Sequence[Chain]):
    """Held-out log predictive density a row: of each draw, and of the average over the draws so far."""
    figure = _plot(10.0, 3.6)
    axes = figure.subplots()
    later, every = [], []
    for i, c in enumerate(chains):
        t = c.trace
        seen = np.isfinite(t["heldout_lpd"])
        cycle, value = t["cycle"][seen], t["heldout_lpd"][seen]
        several = f"{c.name}, " if len(chains) > 1 else ""
        axes.plot(cycle, value, color=_colour(i), linewidth=0.8, alpha=0.55, label=f"{several}each draw")
        later.append(value[cycle > c.burn_in])
        every.append(value)
        averaged = t.get("heldout_lpd_averaged")
        if averaged is not None and np.isfinite(averaged).any():
            good = np.isfinite(averaged)
            axes.plot(
                t["cycle"][good],
                averaged[good],
                color=_colour(i),
                linewidth=2.0,
                label=f"{several}averaged over the draws so far",
            )
            later.append(averaged[good])
    _shade(axes, chains)
    kept = np.concatenate(later)
    _limit(axes, every, kept if len(kept) else np.concatenate(every), whole=False, digits=1)
    if len(kept):
        bottom, top = axes.get_ylim()
        axes.set_ylim(bottom, max(top, kept.max() + 0.05 * (kept.max() - bottom)))
    axes.set_xlim(0, max(c.trace["cycle"][-1] for c in chains))
    axes.set_xlabel("cycle")
    axes.set_ylabel("nats a row")
    axes.set_title("Held-out log predictive density (higher is better)")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 0.08), fontsize=8, ncols=min(len(chains), 3))
    return figure


@_styled
def heat_map(columns: Sequence[ColumnProfile], sizes: np.ndarray, n_rows: int, title: str):
    """Profiles of the largest clusters (rows) in the columns that tell clusters apart best.

    `sizes` (K',) rows of the clusters that `columns` show, the largest first; at most MANY_CLUSTERS x MANY_COLUMNS
    cells. Real and count columns: standardised mean. The others: their most over-represented level and its
    probability, the colour being by how much that exceeds the probability among all rows.
    """
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    n_clusters = min(len(sizes), MANY_CLUSTERS)
    best = sorted(columns, key=lambda c: -c.information)[:MANY_COLUMNS]
    numeric = [c for c in best if c.p is None]
    shown = numeric + [c for c in best if c.p is not None]
    # colours soft enough for dark text on all of them
    warm = colormaps["RdBu_r"].resampled(256)
    high = colormaps["GnBu"].resampled(256)
    mean_of, level_of = Normalize(-3.0, 3.0), Normalize(0.0, 1.35)
    wide, tall = 0.76, 0.42
    gap = 0.35 if numeric and len(numeric) < len(shown) else 0.0
    longest = max(len(_short(c.name, NAME_LETTERS)) for c in shown)
    left, right, top, bottom = 1.25, 0.15 + 0.055 * longest, 0.62 + 0.055 * longest, 0.85
    across, down = wide * (len(shown) + gap), tall * n_clusters
    width, height = max(left + across + right, 7.5), top + down + bottom
    figure = _plot(width, height)
    figure.set_layout_engine("none")
    axes = figure.add_axes((left / width, bottom / height, across / width, down / height))
    axes.set_xlim(0, len(shown) + gap)
    axes.set_ylim(n_clusters, 0)
    axes.axis("off")
    for j, c in enumerate(shown):
        x = j + (gap if c.p is not None else 0.0)
        axes.text(
            x + 0.42,
            -0.15,
            _short(c.name, NAME_LETTERS),
            rotation=40,
            ha="left",
            va="bottom",
            fontsize=8.4,
            rotation_mode="anchor",
        )
        for k in range(n_clusters):
            colour, lines = _cell(c, k, (mean_of, warm), (level_of, high))
            axes.add_patch(_rectangle(x, k, colour))
            ink = INK if _brightness(colour) > 0.5 else "white"
            if len(lines) == 1:
                axes.text(x + 0.5, k + 0.5, lines[0], ha="center", va="center", fontsize=7.2, color=ink)
            elif lines:
                axes.text(
                    x + 0.5,
                    k + 0.5,
                    "\n".join(lines),
                    ha="center",
                    va="center",
                    fontsize=5.7,
                    color=ink,
                    linespacing=1.12,
                )
    for k in range(n_clusters):
        axes.text(-0.75, k + 0.5, f"{k + 1}", ha="right", va="center", fontsize=9, fontweight="bold")
        axes.text(-0.1, k + 0.5, percent(sizes[k] / n_rows), ha="right", va="center", fontsize=8, color=FAINT)
    figure.text(0.18 / width, 1 - 0.24 / height, title, fontsize=11, fontweight="bold", va="center")
    axes.text(-0.75, -0.18, "cluster", ha="right", va="bottom", fontsize=8, color=FAINT)
    axes.text(-0.1, -0.18, "rows", ha="right", va="bottom", fontsize=8, color=FAINT)
    _keys(figure, (left, width, height), numeric, len(numeric) < len(shown), (mean_of, warm), (level_of, high))
    return figure


def _cell(c: ColumnProfile, k: int, means, levels) -> tuple[Any, list[str]]:
    """Colour and lines of text of one cell. A cell much like all rows stays empty where its text would be a level."""
    like_all = c.divergence[k] < TELLING
    if c.missing[k] > 0.5:
        if c.missing_divergence[k] < TELLING:
            return EMPTY, []
        return "#c9ccd3", ["missing", percent(c.missing[k])]
    if c.p is None:
        norm, colours = means
        sd = c.overall[1]
        z = (c.mean[k] - c.overall[0]) / sd if sd > 0 else 0.0
        small = abs(c.mean[k]) < sd / 200.0
        return colours(norm(np.clip(z, -2.0, 2.0))), ["0" if small else _brief(c.mean[k])]
    norm, colours = levels
    if like_all:
        return EMPTY, []
    p = c.p[:, k]
    v = int(np.argmax(p * np.log(p / c.overall)))
    return colours(norm(max(p[v] - c.overall[v], 0.0))), [*_wrapped(c.levels[v]), percent(p[v])]


def _wrapped(text: str) -> list[str]:
    """A level's name on at most two lines of LEVEL_LETTERS."""
    if len(text) <= LEVEL_LETTERS:
        return [text or '""']
    lines = textwrap.wrap(text, LEVEL_LETTERS, break_on_hyphens=False)
    return lines if len(lines) == 2 else [lines[0], _short(" ".join(lines[1:]), LEVEL_LETTERS)]


def _brightness(colour) -> float:
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(colour)
    return 0.30 * red + 0.59 * green + 0.11 * blue


def _rectangle(x: float, y: float, colour):
    from matplotlib.patches import Rectangle

    return Rectangle((x + 0.02, y + 0.04), 0.96, 0.92, facecolor=colour, edgecolor="none")


def _keys(figure, place, numeric, categorical, means, levels) -> None:
    """The two colour scales, below the map."""
    left, width, height = place
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    x = left
    keys = (
        (
            numeric, means, -2, 2, ((-2, "≤ −2"), (0, "0"), (2, "≥ 2")),
            "mean of the cluster in standard deviations from the overall mean",
        ),
        (
            categorical, levels, 0, 1, ((0, "0"), (0.5, "50"), (1, "100 %")),
            "how much more frequent than among all rows the level shown is; empty: much like all rows",
        ),
    )  # fmt: skip
    for wanted, (norm, colours), low, high, ticks, label in keys:
        if not wanted:
            continue
        bar = figure.add_axes((x / width, 0.50 / height, 1.5 / width, 0.13 / height))
        shades = ListedColormap([colours(norm(v)) for v in np.linspace(low, high, 128)])
        key = figure.colorbar(ScalarMappable(Normalize(low, high), shades), cax=bar, orientation="horizontal")
        key.outline.set_visible(False)
        key.set_ticks([t for t, _ in ticks], labels=[text for _, text in ticks])
        key.ax.tick_params(labelsize=7, length=2)
        key.ax.grid(visible=False)
        words = (
            label
            if width > 14
            else label.replace(" of the cluster in standard deviations from the overall mean", ", standardised").split(
                "; empty"
            )[0]
        )
        figure.text((x + 1.62) / width, 0.565 / height, words, fontsize=7.5, va="center", color=FAINT)
        x += 1.9 + 0.062 * len(words)


def _brief(x: float) -> str:
    """A number in a cell of the heat map: at most six letters."""
    if not np.isfinite(x):
        return ""
    size = abs(x)
    if size >= 1e6 or 0 < size < 5e-3:
        return f"{x:.1e}".replace("e+0", "e").replace("e-0", "e-")
    if size >= 1000:
        return f"{x / 1000:.1f}k" if size < 1e5 else f"{x / 1000:.0f}k"
    return f"{x:.0f}" if size >= 99.5 else f"{x:.1f}" if size >= 9.95 else f"{x:.2g}"


def _short(text: str, most: int) -> str:
    """The text, or its beginning with an ellipsis."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def _colour(i: int) -> str:
    return CHAINS[i % len(CHAINS)]


def _thousands():
    from matplotlib.ticker import FuncFormatter

    return FuncFormatter(lambda v, _: f"{v:,.0f}" if abs(v) >= 1000 else f"{v:g}")
