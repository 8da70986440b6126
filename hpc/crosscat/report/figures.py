"""Pictures of a posterior as bytes of PNG files, from chains with their traces or from plain arrays; matplotlib is
imported when a picture is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mpibayes.hpc.crosscat.report.agreement import ChainSummary
from mpibayes.hpc.crosscat.report.heat_map import EMPTY, brightness, rectangle
from mpibayes.hpc.crosscat.sampler_keys import Anneal
from mpibayes.hpc.crosscat.scalars import SCALARS
from mpibayes.hpc.posterior.chains import Chain
from mpibayes.hpc.report.drawing import (
    FAINT,
    INK,
    chain_colour,
    legend,
    limit,
    logarithmic,
    note,
    phases,
    plain,
    plot,
    styled,
    thousands,
    titled,
    trace_panels,
)
from mpibayes.hpc.scalar import Scalar, named
from mpibayes.text import took, visible

BARS = 200  # most clusters drawn as separate bars; more are drawn as one shape


@styled
def trace(chains: Sequence[Chain], settled: Sequence[tuple[int, float] | None], scalars: Sequence[Scalar] = SCALARS):
    """Draw the log joint, numbers of views and clusters and accepted moves over the cycles of every chain, and the
    distribution of all but the moves after burn-in.

    settled: (cycle, seconds) of each chain after which its clusters had settled; None if they have not. Without moves
    their panel is left out.
    """
    moving = [any(np.nansum(c.trace.get(name, 0)) for name in ("splits_tried", "merges_tried")) for c in chains]
    of = named(scalars)
    drawn = [of[name] for name in ("log_joint", "n_views", "n_clusters") if name in of]
    figure, axes = trace_panels(chains, drawn, extra=any(moving))
    for i, (c, at) in enumerate(zip(chains, settled)):
        if at is not None:
            height = np.interp(at[0], c.trace["cycle"], c.trace["log_joint"])
            _mark_settled(axes[0, 0], (at[0], height), chain_colour(i))
    if any(moving):
        _move_panel(chains, *axes[-1])
    for left in axes[:, 0]:
        keys = phases(left, chains)
    legend(figure, chains, [*keys, *_settled_key(settled)])
    return figure


def _mark_settled(axes, at: tuple[float, float], colour: str) -> None:
    axes.plot(*at, "v", markersize=7, markeredgecolor="white", color=colour, clip_on=False, zorder=5)


def _settled_key(settled: Sequence[tuple[int, float] | None]) -> list[Any]:
    from matplotlib.lines import Line2D

    if not any(settled):
        return []
    words = f"settled: cycle {settled[0][0]:,}, {took(settled[0][1])}" if len(settled) == 1 else "settled"
    ink = chain_colour(0) if len(settled) == 1 else INK
    return [Line2D([], [], color=ink, marker="v", markersize=7, markeredgecolor="white", linewidth=0, label=words)]


def _move_panel(chains: Sequence[Chain], left, right) -> None:
    """Draw the accepted splits and merges so far, of clusters and, if there are any, of views."""
    from matplotlib.lines import Line2D

    looks = {"splits": "-", "merges": (0, (4, 2)), "view_moves": (0, (1, 1.5))}
    words = {"view_moves": "moves of views"}
    looks = {name: style for name, style in looks.items() if any(name in c.trace for c in chains)}
    for i, c in enumerate(chains):
        for name, style in looks.items():
            if name in c.trace:
                total = np.nancumsum(c.trace[name])
                look = {"color": chain_colour(i), "linewidth": 1.4, "linestyle": style, "drawstyle": "steps-post"}
                left.plot(c.trace["cycle"], total, **look)
    left.set_title("Accepted moves, accumulated")
    left.set_ylim(bottom=0)
    left.yaxis.set_major_formatter(plain())
    left.yaxis.get_major_locator().set_params(integer=True)
    right.axis("off")
    ink = chain_colour(0) if len(chains) == 1 else INK
    look = {"color": ink, "linewidth": 1.4}
    keys = [Line2D([], [], linestyle=style, label=words.get(name, name), **look) for name, style in looks.items()]
    right.legend(handles=keys, loc="upper left", handlelength=2.6, borderaxespad=0)


@styled
def annealing(chains: Sequence[Chain], settled: Sequence[tuple[int, float] | None], n_rows: int):
    """Draw the growth phase and its sequel against cycles and seconds: active rows, clusters, log joint per row.

    The log joint is divided by the active rows, to compare few rows with many, and shown as the shortfall from the best
    draws on a logarithmic scale: on a linear one everything after the growth is a flat line.
    """
    figure = plot(10.0, 7.8)
    axes = figure.subplots(3, 2, sharex="col", sharey="row")
    end = max(c.trace["cycle"][-1] for c in chains)
    last = int(max(max(2 * c.growth, 1.2 * at[0] if at else end) for c, at in zip(chains, settled)))
    last = last if last < end / 3 else end  # only the beginning of a long run
    later = [c.later()["log_joint"] / n_rows for c in chains]
    best = max(np.quantile(v, 0.95) for v in later)
    finest = max(min(float(np.ptp(np.quantile(v, (0.05, 0.95)))) for v in later), 1e-9 * abs(best) + 1e-300)
    for i, (c, at) in enumerate(zip(chains, settled)):
        t = c.trace
        active = t.get("active_rows", np.full(len(t["cycle"]), n_rows))
        lacking = np.maximum(best - t["log_joint"] / active, finest)
        keep = t["cycle"] <= last
        for j, x in enumerate((t["cycle"], c.seconds)):
            for row, v in enumerate((active, t["n_clusters"], lacking)):
                style = "default" if row == 2 else "steps-post"
                axes[row, j].plot(x[keep], v[keep], color=chain_colour(i), linewidth=1.3, drawstyle=style)
            if at is not None and at[0] <= last:
                _mark_settled(axes[2, j], (at[j], np.interp(at[0], t["cycle"], lacking)), chain_colour(i))
    axes[2, 0].set_xlim(0, last)
    axes[2, 1].set_xlim(0, max(np.interp(last, c.trace["cycle"], c.seconds) for c in chains) or 1.0)
    keys = {}
    for j in (0, 1):
        for axis in axes[:, j]:
            keys |= {key.get_label(): key for key in phases(axis, chains, seconds=j == 1)}
        axes[0, j].axhline(n_rows, color=FAINT, linewidth=0.8, zorder=1)
    note(axes[0, 0], f"all {n_rows:,} rows", (1, n_rows), (-4, 7), ("axes fraction", "data"), ha="right")
    titles = ("Active rows", "Number of clusters", "Log joint per active row: nats below the best draws")
    for left, title in zip(axes[:, 0], titles):
        left.set_title(title)
    for axis, words in ((axes[0, 1], _schedule(chains)), (axes[2, 1], "logarithmic, down to the draws' spread")):
        axis.set_title(words, loc="right", fontsize=8, fontweight="normal", color=FAINT)
    axes[0, 0].set_ylim(0, 1.16 * n_rows)
    axes[0, 0].yaxis.set_major_formatter(plain())
    axes[1, 0].set_ylim(bottom=0)
    axes[1, 0].yaxis.get_major_locator().set_params(integer=True)
    axes[2, 0].set_yscale("log")
    logarithmic(axes[2, 0].yaxis, thousands())
    axes[2, 0].invert_yaxis()
    axes[2, 0].set_xlabel("cycle" if last == end else f"cycle (the first {last:,} of {end:,})")
    axes[2, 1].set_xlabel("seconds")
    legend(figure, chains, [*keys.values(), *_settled_key(settled)])
    return figure


def _schedule(chains: Sequence[Chain]) -> str:
    """Name the schedule by which rows were added, if it was the same in all chains."""
    plans = {(a.schedule, a.passes) for a in (c.config.of(Anneal) for c in chains if c.growth)}
    schedule, passes = plans.pop()
    if plans or not isinstance(schedule, str) or schedule == "seconds":
        return ""
    bent = ", hence curved over cycles and seconds" if schedule == "linear" else ""
    return f"{schedule} in the {passes:g} pass{'es' * (passes != 1)} over all rows that growth costs{bent}"


@styled
def chains_compared(
    summaries: Sequence[ChainSummary],
    ari: np.ndarray,
    vi: np.ndarray,
    scalars: Sequence[Scalar] = SCALARS,
    title: str = "Same clustering?",
):
    """Draw the chains' agreement on the clustering or on views (C, C), the diagonal comparing the two halves of a
    chain; and, in the same rows, each chain's log joint, held-out score, numbers of views and clusters, and entropy:
    mean and 5 to 95 % of its draws."""
    from matplotlib import colormaps

    n = len(summaries)
    keys = [s for s in scalars if s.title and all(s.name in c.scalars for c in summaries)]
    side = max(0.42, min(0.85, 6.0 / n)) * n
    names = [visible(c.name) for c in summaries]
    short = names
    if max(map(len, names)) > 8 or n > 7:
        short = [str(i + 1) for i in range(n)]
        names = [f"{name}   {number}" for name, number in zip(names, short)]
    left, gap, wide, top, bottom = 0.35 + 0.075 * max(map(len, names)), 0.45, 1.6, 0.42, 0.87
    width, height = left + side + len(keys) * (gap + wide) + 0.2, top + side + bottom
    figure = plot(width, height)
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
            colour = colormaps["GnBu"](0.85 * max(ari[i, j], 0.0) ** 4) if np.isfinite(ari[i, j]) else EMPTY
            matrix.add_patch(rectangle(j, i, colour))
            ink = INK if brightness(colour) > 0.5 else "white"
            if n <= 12 and np.isfinite(ari[i, j]):
                matrix.text(j + 0.5, i + 0.44, f"{ari[i, j]:.2f}", ha="center", va="center", fontsize=9.5, color=ink)
                matrix.text(j + 0.5, i + 0.74, f"{vi[i, j]:.2f}", ha="center", va="center", fontsize=6.5, color=ink)
        outline = rectangle(i, i, "none")
        outline.set(edgecolor=INK, linewidth=1.4)
        matrix.add_patch(outline)
    matrix.set_title(title)
    x = left + side
    for key in keys:
        axes = place(x + gap, wide)
        x += gap + wide
        for i, c in enumerate(summaries):
            s = c.scalars[key.name]
            axes.plot([s.low, s.high], [i + 0.5] * 2, color=chain_colour(i), linewidth=2.2, solid_capstyle="butt")
            axes.plot(
                s.mean,
                i + 0.5,
                "o",
                color=chain_colour(i),
                markersize=6.5,
                markeredgecolor="white",
                markeredgewidth=0.7,
            )
        axes.set(ylim=(n, 0), yticks=np.arange(n) + 0.5, yticklabels=[])
        axes.set_title(titled(key))
        axes.tick_params(axis="y", length=0)
        axes.tick_params(axis="x", labelsize=8)
        axes.margins(x=0.12)
        axes.locator_params(axis="x", nbins=3)
        axes.xaxis.set_major_formatter(plain())
        axes.spines["left"].set_visible(False)
    words = (
        "adjusted Rand index, below it the variation of information in nats; outlined: the two halves of one chain",
        "draws after burn-in: a dot at their mean, a bar from 5 to 95 % of them",
    )
    for at, line in zip((0.27, 0.11), words):
        figure.text(0.12 / width, at / height, line, fontsize=7.5, color=FAINT)
    return figure


@styled
def cluster_sizes(views: Mapping[str, np.ndarray], n_rows: int):
    """Draw the posterior of the ordered cluster sizes: mean with 5-95 % interval. views: sizes (D, most) by title."""
    summed = {title: _sizes(ordered) for title, ordered in views.items()}
    widest, many = max(len(mean) for mean, *_ in summed.values()), len(summed) > 1
    width = max(6.5, min(12.0, 2.0 + 0.28 * widest * (2 if many else 1)))
    figure = plot(width, 3.0 * -(-len(summed) // 2) + 0.4 if many else 4.2)
    panels = figure.subplots(-(-len(summed) // 2), 2, squeeze=False).ravel() if many else [figure.subplots()]
    for axes in panels[len(summed) :]:
        axes.axis("off")
    for i, (axes, (title, (mean, low, high))) in enumerate(zip(panels, summed.items())):
        _size_panel(axes, mean, low, high, n_rows)
        axes.set_title(title)
        if not many:
            axes.legend(loc="upper right")
        if not many or i >= len(summed) - 2:
            axes.set_xlabel("clusters of a draw, the largest first")
    if many:
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    return figure


def _sizes(ordered: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return means, 5 and 95 % points of the sizes, of as many clusters as an average draw has."""
    low, high = np.quantile(ordered, (0.05, 0.95), axis=0)
    mean = ordered.mean(axis=0)
    shown = int(np.count_nonzero(mean >= 0.5)) or 1
    return mean[:shown], low[:shown], high[:shown]


def _size_panel(axes, mean: np.ndarray, low: np.ndarray, high: np.ndarray, n_rows: int) -> None:
    rank = np.arange(1, len(mean) + 1)
    label = "5 % to 95 % of the draws"
    if len(rank) > BARS:  # separate bars would be thinner than a dot
        axes.fill_between(rank, mean, 0.7, step="mid", color="#9dbfe0", label="posterior mean")
        axes.vlines(rank, low, np.maximum(high, low), color="#1f4e79", linewidth=0.5, label=label)
    else:
        axes.bar(rank, mean, color="#9dbfe0", width=0.72, label="posterior mean")
        reach = (np.maximum(mean - low, 0), np.maximum(high - mean, 0))
        look = {"fmt": "none", "ecolor": "#1f4e79", "elinewidth": 1.2, "capsize": 2.2}
        axes.errorbar(rank, mean, yerr=reach, label=label, **look)
    axes.set_yscale("log")
    axes.set_ylim(0.7, max(2.0, 1.8 * float(high.max())))
    axes.set_xlim(0.3, len(mean) + 0.7)
    logarithmic(axes.yaxis, thousands())
    axes.grid(axis="x", visible=False)
    axes.set_ylabel("rows (logarithmic)")
    axes.xaxis.get_major_locator().set_params(integer=True)
    share = axes.secondary_yaxis("right", functions=(lambda y: 100.0 * y / n_rows, lambda p: p * n_rows / 100.0))
    share.set_ylabel("% of the rows")
    logarithmic(share.yaxis, lambda p, _: f"{p:g}")


@styled
def held_out(chains: Sequence[Chain]):
    """Draw the held-out log predictive density per row: of each draw, and of the average over the draws so far."""
    from matplotlib.lines import Line2D

    figure = plot(10.0, 3.9)
    axes = figure.subplots()
    looks = {
        "heldout_lpd": {"linewidth": 0.8, "alpha": 0.55, "label": "each draw"},
        "heldout_lpd_averaged": {"linewidth": 2.0, "label": "averaged over the draws so far"},
    }
    every, later = [], []
    for i, c in enumerate(chains):
        for name, look in looks.items():
            value = c.trace.get(name, np.full(len(c.trace["cycle"]), np.nan))
            seen = np.isfinite(value)
            axes.plot(c.trace["cycle"][seen], value[seen], color=chain_colour(i), **look)
            every.append(value[seen])
            later.append(value[seen & (c.trace["cycle"] > c.burn_in)])
    kept = np.concatenate(later)
    limit(axes, every, kept if len(kept) else np.concatenate(every), whole=False, digits=1)
    axes.set_xlim(0, max(c.trace["cycle"][-1] for c in chains))
    axes.set_xlabel("cycle")
    axes.set_ylabel("nats a row")
    axes.yaxis.set_major_formatter(plain())
    axes.set_title("Held-out log predictive density (higher is better)")
    ink = chain_colour(0) if len(chains) == 1 else INK
    legend(figure, chains, [*(Line2D([], [], color=ink, **look) for look in looks.values()), *phases(axes, chains)])
    return figure
