"""The display on a terminal while a run works: cycles done, time left, and the course of its scalars so far.

It adapts to the width: on a narrow terminal the plots go, then the pace. Plots are of block letters; a start far below
the later values is cut off, or it would flatten them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mpibayes.hpc.scalar import ACTIVE_ROWS, NATS, Scalar, shown
from mpibayes.text import duration, rate, visible

BLOCKS = " ▁▂▃▄▅▆▇█"
MOST_PAST = 400  # values kept per scalar
MOST_PLOT = 64  # letters
LEAST_PLOT = 12
TALL = 3  # lines of the score's plot
ROOMY = 20  # lines of a terminal from which the score's plot is tall
NARROW = 64  # letters of a terminal below which the pace is left out
VERY_NARROW = 40  # letters below which the share of the cycles is left out
MOST_SCALARS = 5


@dataclass
class Past:
    """Past values of scalars, evenly thinned as a run gets long."""

    values: dict[str, list[float]] = field(default_factory=dict)
    _every: int = 1
    _count: int = 0

    def add(self, values: Mapping[str, Any]) -> None:
        """Add the values after one or more cycles. A scalar that was not computed keeps its last value."""
        self._count += 1
        if self._count % self._every:
            return
        for name, value in values.items():
            if isinstance(value, int | float) and math.isfinite(value):
                self.values.setdefault(name, []).append(float(value))
        if max(map(len, self.values.values()), default=0) > MOST_PAST:
            self.values = {name: past[1::2] for name, past in self.values.items()}
            self._every *= 2


def plot(values: Sequence[float], width: int, height: int = 1) -> list[str]:
    """Lines of block letters, the newest value on the right.

    >>> plot([0, 1, 2, 3, 4, 5, 6, 7], 8)
    ['▁▂▃▄▅▆▇█']
    >>> plot([0, 15, 7], 3, 2)
    [' █ ', '▁██']
    """
    if not values:
        return [""] * height
    n = min(width, len(values))
    subset = [values[round((i + 1) * len(values) / n) - 1] for i in range(n)]
    later = subset[len(subset) // 2 :]
    low, high = min(later), max(subset)
    low = max(min(subset), low - 1.5 * max(max(later) - low, 1e-12 * abs(high)))
    levels, reach = 8 * height, high - low
    heights = [1 + (levels - 1) * min(1.0, max(0.0, (v - low) / reach)) if reach > 0 else levels / 2 for v in subset]
    return [
        "".join(BLOCKS[max(0, min(8, int(h + 0.5) - 8 * (height - 1 - line)))] for h in heights)
        for line in range(height)
    ]


def panel(status: Mapping[str, Any], scalars: Sequence[Scalar], which: str = "", past: Past | None = None) -> Panel:
    """Display of a chain's progress. status: as in status.json; which: the chain's title; past: of its scalars."""
    return Panel(status, scalars, which.strip(), past or Past())


@dataclass(frozen=True)
class Panel:
    """See `panel`."""

    status: Mapping[str, Any]
    scalars: Sequence[Scalar]
    which: str
    past: Past

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        width = options.max_width
        yield self._bar(width)
        if width >= NARROW:
            yield self._pace(width)
        yield from self._values(width, console.height >= ROOMY, options.encoding.lower().startswith("utf"))

    def _bar(self, width: int) -> Any:
        """The chain, its cycles, a bar if there is room, and the time left."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        done, all_ = self.status["cycle"], self.status["cycles"]
        share = f"{100.0 * done / all_:.0f} %" if all_ else ""
        cells: list[Any] = [Text(visible(self.which), style="bold")] if self.which else []
        cells.append(Text(f"{done:,} of {all_:,} cycles" if width >= NARROW else f"{done:,}/{all_:,}"))
        words = f"{duration(self.status.get('eta_s'))} left"
        left = Text(f"{share}  {words}" if width >= VERY_NARROW else words, style="bold cyan")
        room = min(40, width - sum(len(cell) + 2 for cell in (*cells, left)))
        if room >= LEAST_PLOT:
            cells.append(ProgressBar(total=max(all_, 1), completed=done, width=room))
        grid = Table.grid(padding=(0, 2, 0, 0))
        for _ in (*cells, left):
            grid.add_column(no_wrap=True)
        grid.add_row(*cells, left)
        return grid

    def _pace(self, width: int) -> Any:
        from rich.text import Text

        s = self.status
        words = [f"{s['seconds_per_cycle']:.3g} s a cycle"] if s.get("seconds_per_cycle") is not None else []
        words += [rate(s["rows_per_second"])] if s.get("rows_per_second") is not None else []
        words += [f"at work for {duration(s['elapsed_s'])}"] if s.get("elapsed_s") is not None else []
        active, rows = s.get(ACTIVE_ROWS), s.get("rows")
        if active is not None and rows and active < rows:
            words.insert(0, f"{int(active):,} of {rows:,} rows are in")
        return Text(", ".join(words), style="dim", no_wrap=True, overflow="ellipsis")

    def _values(self, width: int, roomy: bool, plots: bool) -> Iterator[Any]:
        """A line per scalar: its name, its value, and its plot; the first score's plot is taller."""
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2, 0, 0))
        for justify in ("left", "right", "left"):
            grid.add_column(justify=justify, no_wrap=True)
        known = [s for s in shown(self.scalars) if self._shows(s)][:MOST_SCALARS]
        names = [s.status or s.label or s.title for s in known]
        numbers = [format(int(self.status[s.name]) if s.whole else self.status[s.name], _form(s)) for s in known]
        room = width - max(map(len, names), default=0) - max(map(len, numbers), default=0) - 5
        score = next((s for s in known if s.form is NATS), None)
        for s, name, value in zip(known, names, numbers):
            past = self.past.values.get(s.name, [])
            tall = TALL if s is score and roomy else 1
            moved = len(past) > 1 and min(past) < max(past)
            lines = plot(past, min(room, MOST_PLOT), tall) if plots and room >= LEAST_PLOT and moved else [""]
            words = [("", "")] * (len(lines) - 1)
            for (left, right), line in zip([*words, (name, value)], lines):
                grid.add_row(Text(left, style="dim"), Text(right, style="bold"), Text(line, style="cyan"))
        yield grid

    def _shows(self, s: Scalar) -> bool:
        value = self.status.get(s.name)
        number = isinstance(value, int | float) and math.isfinite(value)
        return number and not s.of and s.name != ACTIVE_ROWS and bool(s.title)


def _form(s: Scalar) -> str:
    return f",{s.form.status}" if s.form.status[0] != "," else s.form.status
