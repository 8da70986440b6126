"""Style of the pictures, and their common parts: chains by colour, phases, a second axis in seconds. The functions take
chains with their traces, or plain arrays; matplotlib is imported when a picture is requested."""

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
POINTS = 4000  # points of a line: more cannot be distinguished
MOST_BARS = 40
MOST_LETTERS = 300  # letters of a name, at most
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
    "svg.fonttype": "none",  # text stays text: searchable and small
    "svg.hashsalt": "mpibayes",  # identifiers in the SVG are reproducible
}


def plot(width: float, height: float, **more: Any) -> Any:
    """Make an empty figure in this program's style. No display, no global state: figures are made without pyplot."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white", **more)
    FigureCanvasAgg(figure)
    return figure


class Picture(bytes):
    """The bytes of a PNG file; `svg` is the same picture as text, for the page."""

    svg: str = ""


def png(figure: Any) -> Picture:
    """Render the figure, laid out once, as PNG and as SVG; savefig would lay it out and draw it twice for each."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    image, text, engine, dpi = io.BytesIO(), io.StringIO(), figure.get_layout_engine(), figure.dpi
    try:
        figure.dpi = DPI
        FigureCanvasAgg(figure).print_png(image)
        figure.set_layout_engine("none")  # keep the axes in place
        FigureCanvasSVG(figure).print_svg(text, metadata={"Date": None, "Creator": None})
    finally:
        figure.dpi = dpi
        figure.set_layout_engine(engine)
        FigureCanvasAgg(figure)
    picture = Picture(image.getvalue())
    picture.svg = text.getvalue()
    return picture


def require_extra(*modules: str) -> None:
    """Raise ConfigError if a library of the `report` extra is not installed; else import matplotlib, which all of them
    need."""
    lacking = [name for name in modules if importlib.util.find_spec(name) is None]
    if lacking:
        raise ConfigError(f"the report needs {' and '.join(lacking)}: pip install '.[report]' in the program's folder")
    load_matplotlib()


def load_matplotlib() -> None:
    """Import matplotlib for the first time, whatever MPLBACKEND says: pictures are drawn without a backend, and an
    unknown one would make the import fail."""
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
            matplotlib.rcParams["backend"] = backend  # as matplotlib itself would


def styled(draw: Callable[..., Any]) -> Callable[..., Picture]:
    """Wrap a drawing function: the picture in this program's style, as PNG."""

    @functools.wraps(draw)
    def styled(*args: Any, **kwargs: Any) -> Picture:
        return drawn(draw, *args, **kwargs)

    return styled


def drawn(draw: Callable[..., Any], *args: Any, **kwargs: Any) -> Picture:
    """Return the picture of draw(...) in this program's style."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        return png(draw(*args, **kwargs))


def styled_figure(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a drawing function: a styled matplotlib Figure, which a notebook shows."""

    @functools.wraps(draw)
    def styled(*args: Any, **kwargs: Any) -> Any:
        import matplotlib

        with matplotlib.rc_context(STYLE):
            figure = draw(*args, **kwargs)
        figure._repr_png_ = functools.partial(png, figure)  # no pyplot, hence none of its backends, shows it
        return figure

    return styled


def legend(figure: Any, chains: Sequence[Chain], keys: Sequence[Any]) -> None:
    """Draw a legend below the panels, over no curve: chains by colour, if there are several, then `keys`."""
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
    """Add a second axis below: mean seconds of the chains; it extends beyond their end, where ticks are computed."""
    cycle = np.unique(np.concatenate([[0], *(c.trace["cycle"] for c in chains)]))
    cycle = np.append(cycle, 2 * cycle[-1])
    second = np.mean([seconds_at(c, cycle) for c in chains], axis=0)
    if second[-1] <= 0:
        return
    second += np.linspace(0, 1e-9, len(second)) * second[-1]  # the axis function has to be invertible
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
    """Shade growth phase and burn-in if all chains share them; else draw a line in each chain's colour where they end.
    Returns their legend entries."""
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
    """Make a figure with a row of panels per scalar, and `extra` empty rows below: axes (rows, 2), on the left the
    trace over the cycles, on the right the distribution of the draws."""
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
    """Plot one scalar over the cycles, and its distribution after burn-in. A density of part of the rows is omitted: it
    is not comparable with that of all rows."""
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
    # a distant start must not flatten the later values
    limit(left, every, everything, scalar.whole)
    for axis in (left, right):
        axis.yaxis.set_major_formatter(plain())
    if scalar.whole:
        left.yaxis.get_major_locator().set_params(integer=True)
    _distribution(right, later, everything, scalar.whole)


def _distribution(axes: Any, later: Sequence[np.ndarray], everything: np.ndarray, whole: bool) -> None:
    """Draw a histogram of each chain's draws, in per cent."""
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
    """Title of a plot of a scalar, with its unit."""
    return f"{scalar.title}, {scalar.unit}" if scalar.unit else scalar.title


def thinned(n: int) -> np.ndarray:
    """Evenly spaced indices, at most POINTS of n."""
    return np.arange(n) if n <= POINTS else np.linspace(0, n - 1, POINTS).round().astype(np.int64)


def note(axes: Any, text: str, at: Any, shift: Any, coordinates: str = "data", **look: Any) -> None:
    look = {"fontsize": 8, "color": FAINT, "va": "center"} | look
    axes.annotate(text, at, xycoords=coordinates, xytext=shift, textcoords="offset points", **look)


def limit(axes: Any, values: Sequence[np.ndarray], later: np.ndarray, whole: bool, digits: int = 0) -> None:
    """Set axis limits from the draws after burn-in, widened to earlier values unless these are far away. Whole numbers
    are cut off on both sides, others below only: no better value is left out."""
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
    """Shorten a text with an ellipsis."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def shortened(text: str, most: int) -> str:
    """Shorten a text from outside the program, with unprintable characters made visible."""
    return cut(visible(text), most)


def in_lines(text: str, width: int) -> str:
    """Wrap a text from outside the program, with unprintable characters made visible, at `width` letters."""
    return "\n".join(textwrap.wrap(shortened(text, MOST_LETTERS), width)) or text


def chain_colour(i: int) -> str:
    return CHAINS[i % len(CHAINS)]


def plain() -> Any:
    """Formatter of numbers in full, in groups of three digits, with as many as distinguish the ticks, and no offset to
    add."""
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
    """Label the ticks of a logarithmic axis with `words`, including those between powers of ten if there is room, in
    place of matplotlib's mathematical notation."""
    from matplotlib.ticker import FuncFormatter, LogFormatter

    class Between(LogFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return words(x, pos) if super().__call__(x, pos) else ""

    axis.set_major_formatter(FuncFormatter(words))
    axis.set_minor_formatter(Between())
