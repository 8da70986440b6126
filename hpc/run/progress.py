"""Progress of a run: a greppable line now and then in a batch log, or a live display on a terminal.

A line has a fixed order of fields, so that `grep cycle= run.log | cut -d' ' -f2-4` works:

    2026-01-05T12:00:07 cycle=1200/5000 K=37 logp=-1.23450e+07 alpha=1.84 d=0 moved=3.1% moves=3/41 heldout=-20.1730
        0.082s/cycle 2.2Mrows/s eta=5m12s    (all on one line)

The fields between cycle and s/cycle are the family's (`Scalar.log`), here a mixture's. `moved`: share of the visited
rows that changed cluster in the last cycle, including newly active rows. `moves`: split and merge moves since the last
line, accepted/tried. While an annealed chain grows, the number of active rows follows K: rows=12.3k/180k, and there is
no eta until the cycles have shown the cost of a row. A family whose cycles visit few rows has no rate in rows. With
several chains a line ends with the chain's number, chain=2.

The first lines appear after 1, 2, 4, ... seconds, to show that it works; then there is one a minute. All lines are also
appended to `logs/run.log` in the run's directory.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from mpibayes.hpc.parallel.launcher import launched
from mpibayes.hpc.run import output
from mpibayes.hpc.run.live import Past, panel
from mpibayes.hpc.scalar import ACTIVE_ROWS, LOOKED_ROWS, Scalar, shown
from mpibayes.io.files import open_regular
from mpibayes.text import count, duration, rate, visible

if TYPE_CHECKING:
    from rich.live import Live

EVERY_S = 60.0
SMOOTHING = 0.1  # weight of the newest cycle in running means
SPREAD = 0.3  # least relative sd of active rows over recent cycles that shows the cost of a row


Counts = Mapping[str, Sequence[int]]  # by their name in the log: successes and tries since the last line


def line(status: Mapping[str, Any], scalars: Sequence[Scalar], counts: Counts) -> str:
    """Fields of a status (as in status.json) in their fixed order; unknown ones are omitted."""
    fields = {"cycle": f"{status['cycle']}/{status['cycles']}"}
    for s in shown(scalars):
        value: float | None = status.get(s.name)
        if s.of:
            done, tried = counts.get(s.log, (0, 0))
            fields |= {s.log: f"{done}/{tried}"} if tried else {}
        elif s.name == ACTIVE_ROWS:
            rows = status.get("rows")
            if value is not None and rows is not None and value < rows:
                fields[s.log] = f"{count(value)}/{count(rows)}"
        elif s.log and value is not None and math.isfinite(value):
            fields[s.log] = format(int(value) if s.whole else value, s.form.log)
    parts = [f"{name}={text}" for name, text in fields.items()]
    if status.get("seconds_per_cycle") is not None:
        parts += [f"{status['seconds_per_cycle']:.3g}s/cycle"]
        parts += [rate(status["rows_per_second"])] if status.get("rows_per_second") is not None else []
        parts += [f"eta={duration(status.get('eta_s'))}"]
    return " ".join(parts)


@dataclass(frozen=True)
class Pace:
    """Running means over the cycles: active rows, seconds, and the products needed to fit a straight line to them.

    Part of a cycle's cost does not depend on rows, so a cycle over few rows does not show the time of one over all.
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
        """Seconds of a cycle over all rows; None until enough sizes have been seen. More rows never take less, nor more
        than in proportion."""
        variance = self.rows_squared - self.rows**2
        if active_rows < n_rows and variance < (SPREAD * self.rows) ** 2:
            return None
        slope = (self.rows_seconds - self.rows * self.seconds) / variance if variance > 0 else 0.0
        return self.seconds + min(max(slope, 0.0), self.seconds / self.rows) * (n_rows - self.rows)


class Progress:
    """Progress of one chain, on root: `update` after every cycle, `note` for messages, `close` at the end.

    `cycle`: present cycle (0, or a checkpoint's); `cycles`: last cycle; `n_rows`: rows of a sweep; `scalars`: scalars
    of the trace; `number`: the chain's number, from 1, if there are several, of `chains`; `values`: last values of the
    scalars of a resumed chain.
    """

    def __init__(
        self,
        folder: str | Path,
        cycle: int,
        cycles: int,
        n_rows: int,
        scalars: Sequence[Scalar],
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        number: int | None = None,
        values: Mapping[str, float] | None = None,
        chains: int | None = None,
    ):
        self.cycle, self.cycles, self.n_rows, self.scalars = cycle, cycles, n_rows, scalars
        self._which = "" if number is None else f" chain={number}"
        self._title = "" if number is None else f"chain {number}" + (f" of {chains}" if chains else "")
        self._stream, self._clock = stream or sys.stdout, clock
        self._started = clock()
        self._next, self._gap = self._started + 1.0, 1.0
        self._pace: Pace | None = None
        self._counts: dict[str, list[int]] = {}
        self._count_anew()
        self._values = dict(values or {})
        self._file = None
        with contextlib.suppress(OSError):  # the log is a convenience: the checkpoint reports a full disk
            logs = Path(folder) / "logs"
            logs.mkdir(exist_ok=True)  # not `parents`: a directory that was moved away is not made anew
            self._file = open_regular(logs / "run.log", "a", encoding="utf-8", buffering=1)
        self._live = _live_display(self._stream)
        self._past = Past()
        self._rests = False

    def update(self, values: Mapping[str, float], n_cycles: int = 1) -> None:
        """Record `n_cycles` cycles. values: scalars of the last one, with `cycle`, and `seconds` of each."""
        self.cycle = int(values["cycle"])
        looked = values.get(ACTIVE_ROWS) or values.get(LOOKED_ROWS) or self.n_rows
        latest = Pace.of(looked, values["seconds"])
        self._pace = latest if self._pace is None else self._pace.then(latest)
        for s in self.scalars:
            if s.of:
                self._counts[s.log][0] += int(values.get(s.name, 0))
                self._counts[s.log][1] += int(values.get(s.of, 0))
        # A scalar that was not computed in this cycle (NaN) keeps its last value.
        self._values.update({name: value for name, value in values.items() if math.isfinite(value)})
        self._past.add(values)
        now = self._clock()
        if self._rests:
            self._live, self._rests = _live_display(self._stream), False
        if self._live is not None:
            self._live.update(panel(self.status(), self.scalars, self._title, self._past))
        if now >= self._next or self.cycle >= self.cycles:
            self._say(line(self.status(), self.scalars, self._counts) + self._which, to_stream=self._live is None)
            self._count_anew()
            self._gap = min(2 * self._gap, EVERY_S)
            self._next = now + self._gap

    def _count_anew(self) -> None:
        self._counts = {s.log: [0, 0] for s in self.scalars if s.of}

    def status(self, values: Mapping[str, float] | None = None) -> dict[str, Any]:
        """Fields of status.json that are known now; `values` as in `update`, where they are newer."""
        known = {**self._values, **{k: v for k, v in (values or {}).items() if math.isfinite(v)}}
        pace = self._pace
        full = None if pace is None else pace.full_cycle(self.n_rows, known.get(ACTIVE_ROWS) or self.n_rows)
        visits_rows = any(s.name in (ACTIVE_ROWS, LOOKED_ROWS) for s in self.scalars)
        return {
            "cycle": self.cycle,
            "cycles": self.cycles,
            **{s.name: _number(s, known.get(s.name)) for s in shown(self.scalars) if not s.of},
            "rows": self.n_rows,
            "seconds_per_cycle": None if pace is None else pace.seconds,
            "rows_per_second": pace.rows / pace.seconds if visits_rows and pace is not None and pace.seconds else None,
            "eta_s": None if full is None else full * max(0, self.cycles - self.cycle),
            "elapsed_s": self._clock() - self._started,
        }

    def note(self, text: str) -> None:
        """Print a message for the user, with the time."""
        self._say(text)

    def rest(self) -> None:
        """Leave the terminal to another chain until the next cycle."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        self._rests = True

    def close(self) -> None:
        self.rest()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _say(self, text: str, to_stream: bool = True) -> None:
        text, stamped = visible(text), _stamped(text)
        with contextlib.suppress(OSError):  # a full disk or a closed pipe behind stdout must not end a run
            if to_stream and self._live is not None:
                self._live.console.print(text, highlight=False)
            elif to_stream:
                output.write(stamped, self._stream)
        if self._file is not None:
            try:
                self._file.write(stamped + "\n")
            except OSError:
                self._file = None


def say(text: str) -> None:
    """Print a line with the time on standard output, before any chain has its `Progress`."""
    output.write(_stamped(text), sys.stdout)


def _stamped(text: str) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {visible(text)}"


def _number(scalar: Scalar, value: float | None) -> float | int | None:
    return int(value) if scalar.whole and value is not None else value


def _live_display(stream: TextIO) -> Live | None:
    """Start a display redrawn in place if the stream is a terminal; else return None without importing rich."""
    if not stream.isatty() or launched():  # Open MPI gives its ranks a terminal of its own, and logs it
        return None
    from rich.live import Live

    from mpibayes.terminal import Console

    live = Live(console=Console(file=stream), refresh_per_second=4, transient=True)
    live.start()
    return live
