"""Style of our pictures, and their common parts: chains by colour, phases, a second axis in seconds. They take chains
with their traces, or plain arrays; matplotlib is imported when a picture is asked for."""

from __future__ import annotations

import functools
import importlib.util
import io
import os
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.posterior.chains import Chain
from mpibayes.hpc.scalar import Scalar
from mpibayes.text import visible

DPI = 150
POINTS = 4000  # of a line: more cannot be distinguished
MOST_BARS = 40
MOST_LETTERS = 300  # of a name; what is longer is no name
INK, FAINT, GRID = "#22272e", "#6b7280", "#e5e7eb"
# neighbours differ in lightness too, for paper without colours
CHAINS = ("#17406f", "#e8833a", "#2f957a", "#c2c94a", "#7b3f8c", "#63b3d6", "#a8324a", "#8a929c")
STYLE: dict[Any, Any] = {
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
    "text.parse_math": False,  # a name may have dollars
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.edgecolor": "none",
    "legend.framealpha": 0.7,
    "hatch.linewidth": 0.6,
    "svg.fonttype": "none",  # letters stay letters, which can be searched and are small
    "svg.hashsalt": "mpibayes",  # the same picture has the same names in it
}


def plot(width: float, height: float, **more: Any) -> Any:
    """A figure in our style. No display, no global state: figures are made without pyplot."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white", **more)
    FigureCanvasAgg(figure)
    return figure


class Picture(bytes):
    """The bytes of a PNG file; `svg` is the same picture as text, for the page."""

    svg: str = ""


def png(figure: Any) -> Picture:
    """The figure, laid out once, as PNG and as SVG. savefig would lay it out, and draw it, twice for each."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    image, text, engine, dpi = io.BytesIO(), io.StringIO(), figure.get_layout_engine(), figure.dpi
    try:
        figure.dpi = DPI
        FigureCanvasAgg(figure).print_png(image)
        figure.set_layout_engine("none")  # axes stay where they are
        FigureCanvasSVG(figure).print_svg(text, metadata={"Date": None, "Creator": None})
    finally:
        figure.dpi = dpi
        figure.set_layout_engine(engine)
        FigureCanvasAgg(figure)
    picture = Picture(image.getvalue())
    picture.svg = text.getvalue()
    return picture


def require_extra(*modules: str) -> None:
    """Raises ConfigError when a library of the `report` extra is not installed; else makes sure that matplotlib, which
    all of them need, can be imported."""
    lacking = [name for name in modules if importlib.util.find_spec(name) is None]
    if lacking:
        raise ConfigError(f"the report needs {' and '.join(lacking)}: pip install '.[report]' in the program's folder")
    load_matplotlib()


def load_matplotlib() -> None:
    """Import matplotlib for the first time, whatever MPLBACKEND says: pictures are drawn without a backend, and one
    that does not exist would keep matplotlib from being imported."""
    if "matplotlib" in sys.modules:
        return
    backend = os.environ.pop("MPLBACKEND", None)
    try:
        import matplotlib
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend
    if backend:
        with suppress(ValueError):
            matplotlib.rcParams["backend"] = backend  # as matplotlib itself would have done


def styled(draw: Callable[..., Any]) -> Callable[..., Picture]:
    """The picture that a function draws, in our style, as PNG."""

    @functools.wraps(draw)
    def styled(*args: Any, **kwargs: Any) -> Picture:
        import matplotlib

        with matplotlib.rc_context(STYLE):
            return png(draw(*args, **kwargs))

    return styled


def styled_figure(draw: Callable[..., Any]) -> Callable[..., Any]:
    """A styled matplotlib Figure, which a notebook shows."""

    @functools.wraps(draw)
    def styled(*args: Any, **kwargs: Any) -> Any:
        import matplotlib

        with matplotlib.rc_context(STYLE):
            figure = draw(*args, **kwargs)
        figure._repr_png_ = functools.partial(png, figure)  # no pyplot, hence none of its backends, shows it
        return figure

    return styled


def legend(figure: Any, chains: Sequence[Chain], keys: Sequence[Any]) -> None:
    """Chains by colour, where there are several, and what else needs a name: below the panels, over no curve."""
    from matplotlib.lines import Line2D

    several = [
        Line2D([], [], color=chain_colour(i), linewidth=2.0, label=visible(c.name)) for i, c in enumerate(chains)
    ]
    keys = [*(several if len(chains) > 1 else ()), *keys]
    if not keys:
        return
    n_lines = -(-len(keys) // 7)
    figure.legend(handles=keys, loc="outside lower center", ncols=-(-len(keys) // n_lines), fontsize=8)


def clock(axes: Any, chains: Sequence[Chain]) -> None:
    """A second axis below: seconds of the chains, on average; it goes on beyond the end, where ticks are looked for."""
    cycle = np.unique(np.concatenate([[0], *(c.trace["cycle"] for c in chains)]))
    cycle = np.append(cycle, 2 * cycle[-1])
    second = np.mean([seconds_at(c, cycle) for c in chains], axis=0)
    if second[-1] <= 0:
        return
    second += np.linspace(0, 1e-9, len(second)) * second[-1]  # an axis needs a function that can be inverted
    both = (lambda x: np.interp(x, cycle, second), lambda x: np.interp(x, second, cycle))
    below = axes.secondary_xaxis(-0.27, functions=both)
    below.set_xlabel("seconds" if len(chains) == 1 else "seconds, mean of the chains")
    below.xaxis.set_major_formatter(plain())


def seconds_at(chain: Chain, cycle: Any) -> Any:
    """Seconds until these cycles; beyond the chain's end at its mean pace."""
    known, seconds = chain.trace["cycle"], chain.seconds
    beyond = np.maximum(cycle - known[-1], 0) * seconds[-1] / known[-1]
    return np.interp(cycle, [0, *known], [0.0, *seconds]) + beyond


def phases(axes: Any, chains: Sequence[Chain], seconds: bool = False) -> list[Any]:
    """Growth phase and burn-in in the background where all chains have the same; else lines in each chain's colour
    where they end. Returns what a legend shows of them."""
    from matplotlib.lines import Line2D

    looks = {
        "growth": {"facecolor": "#f6e7c8", "hatch": "////", "edgecolor": "#e9d5a3"},
        "burn_in": {"facecolor": "#eceef1"},
    }
    ends = {name: [min(getattr(c, name), c.trace["cycle"][-1]) for c in chains] for name in looks}
    if seconds:
        ends = {name: [seconds_at(c, n) for c, n in zip(chains, at)] for name, at in ends.items()}
    start, keys = 0, []
    for (name, look), style in zip(looks.items(), ((0, (1, 1.5)), (0, (4, 2)))):
        words = name.replace("_", "-")
        if len(set(ends[name])) > 1:
            for i, at in enumerate(ends[name]):
                if at > 0:
                    axes.axvline(at, color=chain_colour(i), linewidth=1.0, linestyle=style, zorder=0.5)
            keys.append(Line2D([], [], color=INK, linewidth=1.0, linestyle=style, label=f"end of {words}"))
        elif ends[name][0] > start:
            span = axes.axvspan(start, ends[name][0], **look, linewidth=0, zorder=0, label=words)
            start = ends[name][0]
            keys.append(span)
    return keys


def trace_panels(chains: Sequence[Chain], scalars: Sequence[Scalar], extra: int = 0) -> tuple[Any, Any]:
    """A figure with a row of panels for each scalar, and `extra` empty ones below: its axes are (rows, 2), on the left
    over the cycles, on the right how the draws are distributed."""
    n = len(scalars) + extra
    figure = plot(10.0, 2.7 * n + 0.7)
    axes = figure.subplots(n, 2, sharey="row", width_ratios=(5, 1), squeeze=False)
    for left in axes[1:, 0]:
        left.sharex(axes[0, 0])
    for left in axes[:-1, 0]:
        left.tick_params(labelbottom=False)
    for row, scalar in zip(axes, scalars):
        value_panel(chains, scalar, *row)
    axes[0, 0].set_xlim(0, max(c.trace["cycle"][-1] for c in chains))
    axes[-1, 0].set_xlabel("cycle")
    axes[-1, 0].xaxis.set_major_formatter(thousands())
    clock(axes[-1, 0], chains)
    return figure, axes


def value_panel(chains: Sequence[Chain], scalar: Scalar, left: Any, right: Any) -> None:
    """One scalar over the cycles, and its distribution after burn-in. A density of a part of the rows is left out:
    it is not comparable with that of all."""
    every, later = [], []
    for i, c in enumerate(chains):
        seen = np.isfinite(c.trace[scalar.name]) & (scalar.whole | (c.trace["cycle"] >= c.growth))
        cycle, value = c.trace["cycle"][seen], c.trace[scalar.name][seen]
        every.append(value)
        later.append(value[cycle > c.burn_in])
        few = thinned(len(value))
        look = {"marker": "."} if len(value) < 200 and not scalar.whole else {}
        style = "steps-post" if scalar.whole else "default"
        left.plot(cycle[few], value[few], color=chain_colour(i), linewidth=0.9, drawstyle=style, **look)
    everything = np.concatenate(later)
    if not len(everything):
        everything = np.concatenate(every)
    left.set_title(titled(scalar))
    # a start far away must not flatten what the chain does later
    limit(left, every, everything, scalar.whole)
    for axis in (left, right):
        axis.yaxis.set_major_formatter(plain())
    if scalar.whole:
        left.yaxis.get_major_locator().set_params(integer=True)
    _distribution(right, later, everything, scalar.whole)


def _distribution(axes: Any, later: Sequence[np.ndarray], everything: np.ndarray, whole: bool) -> None:
    """Histogram of each chain's draws, in per cent of them."""
    look: dict[str, Any] = {"histtype": "step" if len(later) > 1 else "stepfilled"}
    low, high = float(everything.min()), float(everything.max())
    bins = np.linspace(low, high, int(np.clip(2.0 * np.sqrt(min(map(len, later))), 8, 30)) + 1) if high > low else 3
    if whole:
        step = -(-int(high - low + 1) // MOST_BARS)
        bins = np.arange(low - 0.5, high + step, step)
        look = {"rwidth": 0.6} if len(later) == 1 and step == 1 else look
    for i, v in enumerate(later):
        if len(v):
            weights = np.full(len(v), 100.0 / len(v))
            look |= {"color": chain_colour(i), "alpha": 0.87, "linewidth": 1.1}
            axes.hist(v, bins=bins, weights=weights, orientation="horizontal", **look)
    axes.tick_params(labelleft=False, left=False)
    axes.locator_params(axis="x", nbins=3)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g} %")
    axes.set_title("draws after burn-in", fontweight="normal", fontsize=9, color=FAINT)
    axes.grid(axis="x", visible=False)


def titled(scalar: Scalar) -> str:
    """The title of what shows a scalar, with its unit."""
    return f"{scalar.title}, {scalar.unit}" if scalar.unit else scalar.title


def thinned(n: int) -> np.ndarray:
    """Places of at most POINTS of n, evenly spaced."""
    return np.arange(n) if n <= POINTS else np.linspace(0, n - 1, POINTS).round().astype(np.int64)


def note(axes: Any, text: str, at: Any, shift: Any, coordinates: str = "data", **look: Any) -> None:
    look = {"fontsize": 8, "color": FAINT, "va": "center"} | look
    axes.annotate(text, at, xycoords=coordinates, xytext=shift, textcoords="offset points", **look)


def limit(axes: Any, values: Sequence[np.ndarray], later: np.ndarray, whole: bool, digits: int = 0) -> None:
    """Axis limits from the draws after burn-in, widened towards the beginning of the chains, which may lie far
    outside; of whole numbers on both sides, else below: nothing that is better is left out."""
    low, high = float(later.min()), float(later.max())
    pad = max(high - low, 1.0 if whole else 1e-9 * abs(high) + 1e-9)
    every = np.concatenate(values)
    least, most = float(every.min()), float(every.max())
    bottom = least if least >= low - 1.5 * pad else low - 0.4 * pad
    top = most if most <= high + 1.5 * pad or not whole else high + 0.4 * pad
    margin = 0.04 * (top - bottom) or 0.5
    axes.set_ylim(bottom - margin, top + margin)
    cut = [f"down to {least:,.{digits}f}"] * (bottom > least) + [f"up to {most:,.{digits}f}"] * (top < most)
    if cut:
        words = f"(cut off: burn-in, {' and '.join(cut)})"
        axes.set_title(words, loc="right", fontsize=8, fontweight="normal", color=FAINT)


def cut(text: str, most: int = MOST_LETTERS) -> str:
    """A text, or its beginning with an ellipsis."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def shortened(text: str, most: int) -> str:
    """Someone else's text as it can be seen, or its beginning with an ellipsis."""
    return cut(visible(text), most)


def in_lines(text: str, width: int) -> str:
    """Someone else's text as it can be seen, in lines of so many letters."""
    return "\n".join(textwrap.wrap(shortened(text, MOST_LETTERS), width)) or text


def chain_colour(i: int) -> str:
    return CHAINS[i % len(CHAINS)]


def plain() -> Any:
    """Numbers in full, as many digits as distinguish the ticks, in groups of three: no offset to be added in one's
    head."""
    from matplotlib.ticker import ScalarFormatter

    class Plain(ScalarFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            whole, point, rest = super().__call__(x, pos).partition(".")
            return re.sub(r"(?<=\d)(?=(\d{3})+$)", ",", whole) + point + rest

    formatter = Plain(useOffset=False)
    formatter.set_scientific(False)
    return formatter


def thousands() -> Any:
    from matplotlib.ticker import FuncFormatter

    return FuncFormatter(lambda v, _: f"{v:,.0f}" if abs(v) >= 1000 else f"{v:g}")


def logarithmic(axis: Any, words: Callable[..., str]) -> None:
    """Ticks of a logarithmic axis in these words, those between powers of ten where there is room: what matplotlib
    writes there is in its own mathematical notation."""
    from matplotlib.ticker import FuncFormatter, LogFormatter

    class Between(LogFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return words(x, pos) if super().__call__(x, pos) else ""

    axis.set_major_formatter(FuncFormatter(words))
    axis.set_minor_formatter(Between())
