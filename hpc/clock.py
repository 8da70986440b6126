"""When to stop: signals, the time limit, and how long a cycle and a checkpoint have taken so far."""

from __future__ import annotations

import os
import signal
import time

SIGNALS = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)


class Clock:
    """Seconds since the run started, and whether it should stop.

    Signal handlers only set a flag; ranks agree on it between cycles. A second Ctrl-C ends the process at once.
    """

    def __init__(self, max_time_s: float | None):
        self.max_time_s = max_time_s
        self.signalled: str | None = None
        self._started = time.monotonic()
        self._slowest_cycle = 0.0
        self._last_checkpoint = 0.0

    def watch_signals(self) -> None:
        for number in SIGNALS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number, frame) -> None:
        if number == signal.SIGINT and self.signalled == "SIGINT":
            os._exit(130)
        self.signalled = signal.Signals(number).name

    def elapsed(self) -> float:
        return time.monotonic() - self._started

    def cycle_took(self, seconds: float) -> None:
        self._slowest_cycle = max(self._slowest_cycle, seconds)

    def checkpoint_took(self, seconds: float) -> None:
        self._last_checkpoint = seconds

    def out_of_time(self) -> bool:
        """Whether two more cycles (the one that spreads the word is the last) might leave no time for a checkpoint."""
        if self.max_time_s is None:
            return False
        return self.max_time_s - self.elapsed() < 2.0 * (2.0 * self._slowest_cycle + self._last_checkpoint)
