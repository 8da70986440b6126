"""What a run says while it works: a greppable line now and then in a batch log, or a live display on a terminal.

A line has a fixed order of fields, so that `grep cycle= run.log | cut -d' ' -f2-4` works:

    2026-01-05T12:00:07 cycle=1200/5000 K=37 logp=-1.23450e+07 alpha=1.84 d=0 moved=3.1% moves=3/41 heldout=-20.1730
        0.082s/cycle 2.2Mrows/s eta=5m12s    (all on one line)

A regression's line has bright=57 (rows), accept=0.71 and lp (log p(theta, z)) in place of K, moved and logp, and its
rate in cycles a second, since few rows are looked at.

`moved`: share of the visited rows that changed cluster in the last cycle, those that came in among them. `moves`: split
and merge moves since the last line, accepted/tried. While an annealed chain grows, the rows that are in follow K:
rows=12.3k/180k, and eta is not told before the cycles have shown what a row costs.

The first lines come after 1, 2, 4, ... seconds, so that one sees that it works; then there is one a minute. All lines
are also appended to `logs/run.log` in the run's directory.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, TextIO

from mpibayes.hpc.parallel.launcher import launched
from mpibayes.io.files import make_directory, open_regular
from mpibayes.text import count, duration, rate, visible

EVERY_S = 60.0
SMOOTHING = 0.1  # weight of the newest cycle in running means
OF_REGRESSIONS = ("lp", "log_posterior", "acceptance_rate", "step_size", "n_bright")
SPREAD = 0.3  # of the active rows over recent cycles, relative: with less, what a row costs cannot be told


def line(status: Mapping[str, Any]) -> str:
    """The fields of a status (as in status.json) in their fixed order; what is not known is left out."""
    parts = [f"cycle={status['cycle']}/{status['cycles']}"]
    for name, key, form in (
        ("K", "n_clusters", "d"),
        ("bright", "n_bright", "d"),
        ("lp", "lp", ".5e"),
        ("accept", "acceptance_rate", ".2f"),
        ("logp", "log_joint", ".5e"),
        ("alpha", "concentration", ".3g"),
        ("d", "discount", ".3g"),
        ("moved", "moved_fraction", ".1%"),
        ("heldout", "heldout_lpd", ".4f"),
    ):
        value = status.get(key)
        if value is not None and math.isfinite(value):
            parts.append(f"{name}={format(int(value) if form == 'd' else value, form)}")
        if name == "K" and _growing(status):
            parts.append(f"rows={count(status['active_rows'])}/{count(status['rows'])}")
        if name == "moved" and status.get("moves_tried"):
            parts.append(f"moves={status['moves']}/{status['moves_tried']}")
    if status.get("seconds_per_cycle") is not None:
        parts += [f"{status['seconds_per_cycle']:.3g}s/cycle"]
        parts += [rate(status["rows_per_second"])] if status.get("rows_per_second") is not None else []
        parts += [f"eta={duration(status.get('eta_s'))}"]
    return " ".join(parts)


def _growing(status: Mapping[str, Any]) -> bool:
    active, rows = status.get("active_rows"), status.get("rows")
    return active is not None and rows is not None and active < rows


@dataclass(frozen=True)
class Pace:
    """Running means over the cycles: active rows, seconds, and the products that a straight line through them needs.

    A cycle has a part that no row pays for, so a cycle over few rows does not tell what one over all will take.
    """

    rows: float
    seconds: float
    rows_squared: float
    rows_seconds: float

    @classmethod
    def of(cls, rows: float, seconds: float) -> Pace:
        return cls(rows, seconds, rows * rows, rows * seconds)

    def then(self, latest: Pace) -> Pace:
        return Pace(*((1 - SMOOTHING) * a + SMOOTHING * b for a, b in zip(astuple(self), astuple(latest))))

    def full_cycle(self, n_rows: int, active_rows: float) -> float | None:
        """Seconds of a cycle over all rows; None while too few sizes were seen. More rows never take less, nor more
        than in proportion."""
        variance = self.rows_squared - self.rows**2
        if active_rows < n_rows and variance < (SPREAD * self.rows) ** 2:
            return None
        slope = (self.rows_seconds - self.rows * self.seconds) / variance if variance > 0 else 0.0
        return self.seconds + min(max(slope, 0.0), self.seconds / self.rows) * (n_rows - self.rows)


class Progress:
    """Progress of one chain, on root: `update` after every cycle, `note` for words, `close` at the end.

    `cycle` is where the chain stands now (0, or a checkpoint's), `cycles` its end, `n_rows` the rows of a sweep.
    """

    def __init__(
        self,
        folder: str | Path,
        cycle: int,
        cycles: int,
        n_rows: int,
        stream: TextIO | None = None,
        clock=time.monotonic,
    ):
        self.cycle, self.cycles, self.n_rows = cycle, cycles, n_rows
        self._stream, self._clock = stream or sys.stdout, clock
        self._started = clock()
        self._next, self._gap = self._started + 1.0, 1.0
        self._pace: Pace | None = None
        self._moves = {"moves": 0, "moves_tried": 0}  # since the last line
        self._values: dict[str, float] = {}
        self._file = None
        with contextlib.suppress(OSError):  # the log is a convenience: a full disk speaks up at the checkpoint
            logs = Path(folder) / "logs"
            make_directory(logs)
            self._file = open_regular(logs / "run.log", "a", encoding="utf-8", buffering=1)
        self._live = _live_display(self._stream)

    def update(self, values: Mapping[str, float], n_cycles: int = 1) -> None:
        """After n_cycles cycles: the scalars of the last (cycle, n_clusters, log_joint, ...) and seconds, of each."""
        self.cycle = int(values["cycle"])
        latest = Pace.of(values.get("active_rows") or self.n_rows, values["seconds"])
        self._pace = latest if self._pace is None else self._pace.then(latest)
        for kind, name in (("moves", "{}s"), ("moves_tried", "{}s_tried")):
            self._moves[kind] += sum(int(values.get(name.format(move), 0)) for move in ("split", "merge"))
        # A scalar that was not computed in this cycle (NaN) keeps its last value.
        self._values.update({name: value for name, value in values.items() if math.isfinite(value)})
        now = self._clock()
        if self._live is not None:
            self._live.update(_panel(self.status()))
        if now >= self._next or self.cycle >= self.cycles:
            self._say(line(self.status() | self._moves), to_stream=self._live is None)
            self._moves = dict.fromkeys(self._moves, 0)
            self._gap = min(2 * self._gap, EVERY_S)
            self._next = now + self._gap

    def status(self, values: Mapping[str, float] | None = None) -> dict[str, Any]:
        """The numbers of status.json that are known now; `values` as in `update`, where they are newer."""
        known = {**self._values, **{k: v for k, v in (values or {}).items() if math.isfinite(v)}}
        pace = self._pace
        full = None if pace is None else pace.full_cycle(self.n_rows, known.get("active_rows") or self.n_rows)
        return {
            "cycle": self.cycle,
            "cycles": self.cycles,
            **{
                name: known.get(name)
                for name in ("log_joint", "concentration", "discount", "entropy", "moved_fraction", "heldout_lpd")
            },
            **{name: None if name not in known else int(known[name]) for name in ("n_clusters", "active_rows")},
            **{name: known[name] for name in OF_REGRESSIONS if name in known},
            "rows": self.n_rows,
            "seconds_per_cycle": None if pace is None else pace.seconds,
            "rows_per_second": None if "lp" in known or pace is None or not pace.seconds else pace.rows / pace.seconds,
            "eta_s": None if full is None else full * max(0, self.cycles - self.cycle),
            "elapsed_s": self._clock() - self._started,
        }

    def note(self, text: str) -> None:
        """Words for the user, with the time."""
        self._say(text)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def _say(self, text: str, to_stream: bool = True) -> None:
        text = visible(text)
        stamped = f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text}"
        with contextlib.suppress(OSError):  # neither may a full disk or a closed pipe behind stdout end a run
            if to_stream and self._live is not None:
                self._live.console.print(text, highlight=False)
            elif to_stream:
                print(stamped, file=self._stream, flush=True)
        if self._file is not None:
            try:
                self._file.write(stamped + "\n")
            except OSError:
                self._file = None


def _live_display(stream: TextIO):
    """A display that is redrawn in place, where the stream is a terminal; else None, and rich is not even imported."""
    if not stream.isatty() or launched():  # Open MPI gives its ranks a terminal of its own making, and logs it
        return None
    from rich.live import Live

    from mpibayes.terminal import Console

    live = Live(console=Console(file=stream), refresh_per_second=4, transient=True)
    live.start()
    return live


def _panel(status: Mapping[str, Any]):
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    bar = ProgressBar(total=status["cycles"], completed=status["cycle"], width=40)
    return Group(Text(line(status)), bar)
