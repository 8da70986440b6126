"""The signals that ask a run to stop, noted from the program's first line on.

A rank that left by itself while the others start would leave them waiting in MPI's initialization, and a killed rank
could not vote. So a process of several only notes a signal until the run can act on it (`hpc/run/clock.py`).
"""

from __future__ import annotations

import signal

SIGNALS = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)

_noted: list[str] = []


def note() -> None:
    """From now on, only record these signals."""
    for number in SIGNALS:
        signal.signal(number, lambda number, frame: _noted.append(signal.Signals(number).name))


def noted() -> str | None:
    """The first signal noted since the last call, if any."""
    first = _noted[0] if _noted else None
    _noted.clear()
    return first


def act() -> None:
    """Let signals end the process again, as they do by default; so do those noted meanwhile."""
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    if missed := noted():
        signal.raise_signal(signal.Signals[missed])
