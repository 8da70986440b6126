"""The decision to stop: on signals, or when the time limit or the end of the batch job is too near for more cycles."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from datetime import datetime
from types import FrameType

from mpibayes.hpc.run import signals
from mpibayes.text import whole_number

BATCH_MARGIN_S = 15.0  # a batch system checks its clock only now and then, then kills jobs past their end


class Clock:
    """Seconds since the run started, and whether it should stop. heard(): why other ranks have stopped, if they have.

    Signal handlers only set a flag; ranks agree on it between cycles. A second Ctrl-C ends the process at once, by the
    signal itself: a launcher then ends the other ranks, which it need not do when one leaves with an exit code.
    """

    def __init__(self, max_time_s: float | None):
        self.max_time_s = max_time_s
        self.signalled: str | None = None
        self.heard: Callable[[], str | None] = lambda: None
        self._started = time.monotonic()
        self._job_ends: float | None = None  # on the same clock
        self.slowest_cycle = 0.0
        self._last_checkpoint = 0.0

    def watch_signals(self) -> None:
        """Obey signals from now on, and one that arrived while the program started."""
        for number in signals.SIGNALS:
            signal.signal(number, self._on_signal)
        self.signalled = self.signalled or signals.noted()

    @staticmethod
    def leave() -> None:
        """Ignore SIGTERM while leaving: root's exit code is the job's. On seeing it srun sends SIGTERM to ranks that
        are slower to leave, and would report their death by it (143) instead."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def watch_job(self) -> None:
        """Obey the end of the batch job that this process is part of, if the batch system gives one."""
        left = job_time_left()
        self._job_ends = None if left is None else time.monotonic() + left - BATCH_MARGIN_S

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.signalled == "SIGINT":
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)
        self.signalled = signal.Signals(number).name

    def elapsed(self) -> float:
        return time.monotonic() - self._started

    def cycle_took(self, seconds: float) -> None:
        self.slowest_cycle = max(self.slowest_cycle, seconds)

    def checkpoint_took(self, seconds: float) -> None:
        self._last_checkpoint = seconds

    def stop_reason(self) -> str | None:
        """Reason why this process should stop now: a signal, other ranks, or too little time left; None to continue."""
        return self.signalled or self.heard() or self.out_of_time()

    def out_of_time(self) -> str | None:
        """Return the limit that is near: two more cycles (the last spreads the vote) and a checkpoint must fit
        twice."""
        margin = 2.0 * (2.0 * self.slowest_cycle + self._last_checkpoint)
        if self.max_time_s is not None and self.max_time_s - self.elapsed() < margin:
            return "time limit"
        if self._job_ends is not None and self._job_ends - time.monotonic() < margin:
            return "end of the batch job"
        return None


def job_time_left() -> float | None:
    """Seconds until SLURM ends this process's job; None outside of a job, or if no end is known."""
    number = os.environ.get("SLURM_JOB_ID", "")
    if not number:
        return None
    end = whole_number(os.environ.get("SLURM_JOB_END_TIME", ""))
    left = _ask_slurm(number) if end is None else end - time.time()
    return left if left > 0 else None  # a shell may keep the variables of a job that is over


def _ask_slurm(job: str) -> float:
    """Seconds until a job's end; 0 if unknown."""
    command = ["scontrol", "-o", "show", "job", job]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
        result = re.search(r"\bEndTime=(\d{4}-\S+)", answer)
        return datetime.fromisoformat(result[1]).timestamp() - time.time() if result else 0.0
    except (OSError, subprocess.SubprocessError, ValueError):
        return 0.0
