"""Picture of cluster profiles: clusters in the columns that distinguish them."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpibayes.hpc.crosscat.report import ordered
from mpibayes.hpc.crosscat.report.profiles import ColumnProfile
from mpibayes.hpc.crosscat.report.traits import MIN_DIVERGENCE
from mpibayes.hpc.report.drawing import FAINT, INK, MOST_LETTERS, cut, plot, shortened, styled
from mpibayes.io.clock import around
from mpibayes.text import percent, visible

EMPTY = "#f4f5f7"
LEVEL_LETTERS = 15  # per line of a level's name
ATOMS = re.compile(r" \(.* or another value\)'*$")  # see `io.recording.levels`
LATER = re.compile(r"(?<=\w[-/])(?=\w)|(?<=[a-z])(?=[A-Z])")  # where a long word may break
LEVEL_LINES = 8  # more than real names of levels need
NAME_LETTERS = 30  # per line of a column's name, above
NAME_BESIDE = 32  # per line of a cluster's name


@styled
def heat_map(
    columns: Sequence[ColumnProfile],
    sizes: np.ndarray,
    names: Sequence[str],
    n_rows: int,
    title: str,
    n_clusters: int,
    of: Sequence[ColumnProfile],
):
    """Draw profiles of the largest clusters (rows) in `columns`, those of all columns `of` that distinguish them best.

    sizes (K',), names: of the clusters to show, the largest first, of `n_clusters`. Real and count columns show the
    standardised mean; other columns their most over-represented level, or run of ordered levels, and its probability,
    coloured by its excess over the probability among all rows.
    """
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    # colours soft enough for dark text on all of them
    looks = (Normalize(-3.0, 3.0), colormaps["RdBu_r"].resampled(256)), (Normalize(0.0, 1.35), colormaps["GnBu"])
    numeric, levels = ([c for c in columns if (c.p is None) is is_numeric] for is_numeric in (True, False))
    shown = numeric + levels
    least = MIN_DIVERGENCE if len(of) > 1 else 0.0  # as in names: the clusters of a single column are ranges
    cells = {(j, k): _cell(c, k, *looks, least) for j, c in enumerate(shown) for k in range(len(sizes))}
    heads = [_head(c.name) for c in shown]
    beside = [
        textwrap.wrap(shortened(name, MOST_LETTERS).replace(" %", "\N{NO-BREAK SPACE}%"), NAME_BESIDE) for name in names
    ]
    most = [max([len(beside[k]), *(len(cells[j, k][1]) for j in range(len(shown)))]) for k in range(len(sizes))]
    wide, tall = 0.88, [max(0.46, 0.1 + 0.135 * n) for n in most]  # inches, as heights are in the axes
    top = np.cumsum([0.0, *tall])
    gap = 0.35 if numeric and levels else 0.0
    longest = 0.058 * max(len(line) for lines in heads for line in lines) + 0.1 * max(map(len, heads))
    head = 0.3 + 0.65 * longest  # at an angle of 40 degrees
    left, bottom = 1.25, 1.05 if gap else 0.65
    across, down = wide * (len(shown) + gap), top[-1]
    right = max(0.77 * longest - 0.2, 0.25 + 0.071 * max((len(line) for lines in beside for line in lines), default=0))
    width, height = max(left + across + right, 7.5), 0.55 + head + down + bottom
    figure = plot(width, height)
    figure.set_layout_engine("none")
    axes = figure.add_axes((left / width, bottom / height, across / width, down / height))
    axes.set(xlim=(0, len(shown) + gap), ylim=(down, 0))
    axes.axis("off")
    middle = (top[:-1] + top[1:]) / 2.0
    for j, c in enumerate(shown):
        x = j + (gap if c.p is not None else 0.0)
        look = {"rotation": 40, "rotation_mode": "anchor", "ha": "left", "va": "bottom", "fontsize": 8.4}
        axes.text(x + 0.42, -0.06, "\n".join(heads[j]), linespacing=1.0, **look)
        for k in range(len(sizes)):
            colour, lines = cells[j, k]
            axes.add_patch(rectangle(x, top[k], colour, tall[k], 0.017))
            look = {"color": INK if brightness(colour) > 0.5 else "white", "ha": "center", "va": "center"}
            size = 8.2 if len(lines) == 1 else 7.0
            axes.text(x + 0.5, middle[k], "\n".join(lines), fontsize=size, linespacing=1.12, **look)
    for k, size in enumerate(sizes):
        axes.text(-0.75, middle[k], f"{k + 1}", ha="right", va="center", fontsize=9, fontweight="bold")
        axes.text(-0.1, middle[k], percent(size / n_rows), ha="right", va="center", fontsize=8, color=FAINT)
        axes.text(len(shown) + gap + 0.12, middle[k], "\n".join(beside[k]), va="center", fontsize=8, color=INK)
    for x, word in ((-0.75, "cluster"), (-0.1, "rows")):
        axes.text(x, -0.08, word, ha="right", va="bottom", fontsize=8, color=FAINT)
    figure.text(0.18 / width, 1 - 0.2 / height, title, fontsize=11, fontweight="bold", va="center")
    telling = {
        c.title for c in of if np.any(c.divergence[: len(sizes)] >= MIN_DIVERGENCE)
    }  # of a column with atoms, one part
    n_shown, n_columns = len({c.title for c in shown}), len({c.title for c in of})
    alike = n_columns - len(telling)
    words = (
        f"{_of(len(sizes), n_clusters)} cluster{'s' * (n_clusters != 1)}{', the largest' * (len(sizes) < n_clusters)}; "
        f"{_of(n_shown, n_columns)} column{'s' * (n_columns != 1)}"
        + ", those that separate these clusters" * (n_shown < n_columns)
        + (f" ({alike:,} much the same in all)" if alike else "")
    )
    figure.text(0.18 / width, 1 - 0.42 / height, words, fontsize=8, va="center", color=FAINT)
    _keys(figure, (width, height), [look if kind else None for look, kind in zip(looks, (numeric, levels))])
    return figure


def _of(shown: int, n: int) -> str:
    """Format a count out of a total: all 7, 7 of 12, or 1."""
    return f"{shown:,} of {n:,}" if shown < n else f"all {n:,}" if n > 1 else f"{n}"


def _cell(c: ColumnProfile, k: int, means, levels, least: float = MIN_DIVERGENCE) -> tuple[Any, list[str]]:
    """Return colour and lines of text of one cell. A cell less than `least` nats from all rows stays empty."""
    if c.divergence[k] < least or (c.missing[k] > 0.5 and c.missing_divergence[k] < MIN_DIVERGENCE):
        return EMPTY, []
    if c.missing[k] > 0.5:
        return "#c9ccd3", ["missing", percent(c.missing[k])]
    if c.p is None:
        norm, colours = means
        sd = c.overall[1]
        z = (c.mean[k] - c.overall[0]) / sd if sd > 0 else 0.0
        mean = math.exp(min(c.mean[k], 600.0)) if c.log else c.mean[k]
        spread = c.sd[k] if np.isfinite(c.sd[k]) else sd  # 1.3 kg is not 0 among tons, but 1e-17 is
        small = not c.log and abs(mean) < max(min(spread, sd) / 200.0, 1e-9 * sd)
        if c.unit:
            text = around(c.mean[k], c.sd[k], c.unit, c.step).partition(" ± ")[0]
        else:
            text = "0" if small else _brief(mean)
        return colours(norm(np.clip(z, -2.0, 2.0))), text.split(" ")
    norm, colours = levels
    p = c.p[:, k]
    if c.order:
        first, last = ordered.telling_run(p[list(c.order)], c.overall[list(c.order)])
        run = list(c.order[first : last + 1])
        name = ordered.named([c.levels[v] for v in run])
    else:
        run = [int(np.argmax(p * np.log(p / c.overall)))]
        name = c.levels[run[0]]
    share = p[run].sum()
    return colours(norm(max(share - c.overall[run].sum(), 0.0))), [*_wrapped(name), percent(share)]


def _head(name: str) -> list[str]:
    """Break a column's name into at most three lines: more would touch the next column's. A list of many atoms in the
    name is left out."""
    name = visible(name)
    if len(name) > NAME_LETTERS:
        name = cut(ATOMS.sub(" (which value)", name))
    return textwrap.wrap(name, max(NAME_LETTERS, len(name) // 3 + 8)) or [""]


def _wrapped(text: str) -> list[str]:
    """Break a level's name into lines of LEVEL_LETTERS."""
    words = (LATER.sub(" ", word) if len(word) > LEVEL_LETTERS else word for word in visible(text).split(" "))
    lines = textwrap.wrap(" ".join(words), LEVEL_LETTERS, break_on_hyphens=False) or ['""']
    rest = "".join(lines[LEVEL_LINES - 1 :])
    return lines if len(lines) <= LEVEL_LINES else [*lines[: LEVEL_LINES - 1], shortened(rest, LEVEL_LETTERS)]


def brightness(colour) -> float:
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(colour)
    return 0.30 * red + 0.59 * green + 0.11 * blue


def rectangle(x: float, y: float, colour, height: float = 1.0, margin: float = 0.04):
    from matplotlib.patches import Rectangle

    return Rectangle((x + 0.02, y + margin), 0.96, height - 2.0 * margin, facecolor=colour, edgecolor="none")


def _keys(figure, place, looks) -> None:
    """Draw the colour scales below the map. looks: None for a scale that is not needed."""
    width, height = place
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    keys = (
        ((-2, "≤ −2"), (0, "0"), (2, "≥ 2")), "mean of the cluster in standard deviations from the overall mean",
    ), (
        ((0, "0"), (0.5, "50"), (1, "100 %")), "how much more frequent the level shown is than among all rows",
    )  # fmt: skip
    needed = [(look, *key) for look, key in zip(looks, keys) if look is not None]
    for i, ((norm, colours), ticks, label) in enumerate(needed):
        y, (low, high) = 0.32 + 0.4 * (len(needed) - 1 - i), (ticks[0][0], ticks[-1][0])
        bar = figure.add_axes((0.35 / width, y / height, 1.5 / width, 0.13 / height))
        shades = ListedColormap([colours(norm(v)) for v in np.linspace(low, high, 128)])
        key = figure.colorbar(ScalarMappable(Normalize(low, high), shades), cax=bar, orientation="horizontal")
        key.outline.set_visible(False)
        key.set_ticks([t for t, _ in ticks], labels=[text for _, text in ticks])
        key.ax.tick_params(labelsize=7, length=2)
        key.ax.grid(visible=False)
        words = f"{label}; empty: not clearly unlike all rows"
        figure.text(1.97 / width, (y + 0.065) / height, words, fontsize=7.5, va="center", color=FAINT)


def _brief(x: float) -> str:
    """Format a number for a cell of the heat map: at most six letters."""
    if not np.isfinite(x):
        return ""
    size = abs(x)
    if 1e6 <= size < 9.995e8:
        return f"{x / 1e6:.3g}M"
    if size >= 1e6 or 0 < size < 5e-3:
        return f"{x:.1e}".replace("e+0", "e").replace("e-0", "e-")
    if size >= 9999.5:
        return f"{x / 1000:.1f}k" if size < 1e5 else f"{x / 1000:.0f}k"
    return f"{x:.0f}" if size >= 99.5 else f"{x:.1f}" if size >= 9.95 else f"{x:.2g}"
