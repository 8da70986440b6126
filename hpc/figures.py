"""Pictures of a posterior, as bytes of PNG files. Each function takes plain arrays; matplotlib is imported when one
is asked for."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpibayes.hpc.summary import TELLING, ColumnProfile, percent

DPI = 150
INK, FAINT, GRID = "#22272e", "#6b7280", "#e5e7eb"
EMPTY = "#f4f5f7"
CHAINS = ("#2563a8", "#d1603d", "#3b8f5a", "#8456a8", "#b58900", "#4aa3a2", "#a8324a", "#5c6773")
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
    "legend.frameon": False,
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
def trace(traces: Sequence[dict[str, np.ndarray]], names: Sequence[str], burn_ins: Sequence[int]):
    """Log joint and number of clusters over the cycles of every chain, and their distribution after burn-in."""
    figure = _plot(10.0, 5.6)
    axes = figure.subplots(2, 2, sharex="col", sharey="row", width_ratios=(5, 1))
    for row, (key, title) in enumerate((("log_joint", "Log joint probability"), ("n_clusters", "Number of clusters"))):
        left, right = axes[row]
        values = [t[key] for t in traces]
        later = [v[t["cycle"] > b] for t, v, b in zip(traces, values, burn_ins, strict=True)]
        for i, (t, v) in enumerate(zip(traces, values, strict=True)):
            left.plot(
                t["cycle"],
                v,
                color=_colour(i),
                linewidth=1.0,
                label=names[i],
                drawstyle="steps-post" if row else "default",
            )
        everything = np.concatenate([v for v in later if len(v)] or values)
        _shade_burn_in(left, burn_ins, traces)
        left.set_title(title)
        if key == "n_clusters":
            # a start with hundreds of clusters must not flatten what the chain does later
            _limit(left, values, everything, whole=True)
            bins = np.arange(everything.min() - 0.5, everything.max() + 1.5)
            if len(bins) > 60:
                bins = 40
            left.set_xlabel("cycle")
            right.set_xlabel("share of draws")
        else:
            _limit(left, values, everything, whole=False)
            bins = np.linspace(everything.min(), everything.max(), 31) if np.ptp(everything) > 0 else 3
            left.yaxis.set_major_formatter(_thousands())
        for i, v in enumerate(later):
            if len(v):
                weights = np.full(len(v), 1.0 / len(v))
                shape = "step" if len(traces) > 1 else "stepfilled"
                look = {"color": _colour(i), "alpha": 0.87, "histtype": shape, "linewidth": 1.1}
                right.hist(v, bins=bins, weights=weights, orientation="horizontal", **look)
        right.tick_params(labelleft=False, left=False)
        right.set_title("after burn-in", fontweight="normal", fontsize=9, color=FAINT)
        right.grid(axis="x", visible=False)
        right.locator_params(axis="x", nbins=3)
    axes[0, 0].set_xlim(0, max(t["cycle"][-1] for t in traces))
    if len(traces) > 1:
        axes[0, 0].legend(loc="lower right", ncols=min(len(traces), 4), fontsize=8)
    return figure


def _shade_burn_in(axes, burn_ins, traces) -> None:
    end = min(max(burn_ins), max(t["cycle"][-1] for t in traces))
    if end <= 0:
        return
    axes.axvspan(0, end, color="#9ca3af", alpha=0.18, linewidth=0)
    axes.annotate(
        "burn-in", (end, 1), xycoords=("data", "axes fraction"), xytext=(-4, -4), textcoords="offset points",
        ha="right", va="top",
        fontsize=8, color=FAINT,
    )  # fmt: skip


def _limit(axes, values, later, whole: bool, digits: int = 0) -> None:
    """Axis limits from the draws after burn-in, widened towards the beginning of the chains, which may lie far
    outside."""
    low, high = float(later.min()), float(later.max())
    pad = max(high - low, 1.0 if whole else 1e-9 * abs(high) + 1e-9)
    every = np.concatenate(values)
    bottom, top = max(low - 0.4 * pad, every.min()), min(high + 0.4 * pad, every.max())
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
def held_out(traces: Sequence[dict[str, np.ndarray]], names: Sequence[str], burn_ins: Sequence[int]):
    """Held-out log predictive density a row: of each draw, and of the average over the draws so far."""
    figure = _plot(10.0, 3.6)
    axes = figure.subplots()
    later, every = [], []
    for i, (t, b) in enumerate(zip(traces, burn_ins, strict=True)):
        seen = np.isfinite(t["heldout_lpd"])
        cycle, value = t["cycle"][seen], t["heldout_lpd"][seen]
        several = f"{names[i]}, " if len(traces) > 1 else ""
        axes.plot(cycle, value, color=_colour(i), linewidth=0.8, alpha=0.55, label=f"{several}each draw")
        later.append(value[cycle > b])
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
    _shade_burn_in(axes, burn_ins, traces)
    kept = np.concatenate(later)
    _limit(axes, every, kept if len(kept) else np.concatenate(every), whole=False, digits=1)
    if len(kept):
        bottom, top = axes.get_ylim()
        axes.set_ylim(bottom, max(top, kept.max() + 0.05 * (kept.max() - bottom)))
    axes.set_xlim(0, max(t["cycle"][-1] for t in traces))
    axes.set_xlabel("cycle")
    axes.set_ylabel("nats a row")
    axes.set_title("Held-out log predictive density (higher is better)")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 0.08), fontsize=8, ncols=min(len(traces), 3))
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

    return FuncFormatter(lambda v, _: f"{v:,.0f}" if abs(v) >= 1 else f"{v:g}")
