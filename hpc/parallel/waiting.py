"""A line on stderr when a step takes long, so that a slow file system does not look like a hang.

    with announce("rank 3 (node7) to write its part of checkpoint 000000120"):
        ...                     # prints nothing unless this takes longer than AFTER_S

prints `2026-01-05T12:00:07 waiting 30 s for rank 3 (node7) to write its part of checkpoint 000000120` to stderr,
again after 60, 120, 240, ... seconds, and once more when the wait is over. One thread watches; entering costs
microseconds. Where Python's threads cannot run, as while MPI starts, `watched` watches from a child process.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mpibayes.hpc.parallel.launcher import ranks_missing_here
from mpibayes.text import visible

AFTER_S = 30.0
MISSING_S = 3.0  # a launcher may still be starting the ranks of this host


@dataclass
class _Wait:
    what: str | Callable[[], str]
    started: float
    due: float  # seconds after `started` at which the next line is due
    reported: str = ""

    def look(self, now: float) -> None:
        if now - self.started >= self.due:
            self.due *= 2
            self.reported = self.what() if callable(self.what) else self.what
            _say(f"waiting {now - self.started:.0f} s for {self.reported}")


_waits: list[_Wait] = []
_watcher: threading.Thread | None = None
os.register_at_fork(after_in_child=_waits.clear)  # the parent reports them


@contextlib.contextmanager
def announce(what: str | Callable[[], str], after_s: float | None = None, loud: bool = True) -> Iterator[None]:
    """Report a wait for `what` if the block takes longer than `after_s` (AFTER_S); only root is `loud`.

    what: a text, or a function that makes it on demand, in another thread.
    """
    if not loud:
        yield
        return
    wait = _Wait(what, time.monotonic(), AFTER_S if after_s is None else after_s)
    _waits.append(wait)
    _watch()
    try:
        yield
    finally:
        _waits.remove(wait)
        if wait.reported:
            _say(f"waited {time.monotonic() - wait.started:.0f} s for {wait.reported}; going on")


@contextlib.contextmanager
def watched(what: str, limit_s: float, advice: str, loud: bool = True) -> Iterator[None]:
    """`announce` with a time limit, for a block that holds Python's lock; past the limit this process ends, with
    advice.

    It also ends if another rank on this host has left: a rank that ended before MPI started never comes, and not every
    launcher ends the other ranks. A child process watches; it ends with the block, or with this process.
    """
    parent = os.getpid()
    ended, going_on = os.pipe()  # closes on our side even if we die
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        try:
            os.close(going_on)
            _watch_from_outside(ended, parent, _Wait(what, time.monotonic(), AFTER_S), limit_s, advice, loud)
        finally:
            os._exit(0)
    os.close(ended)
    try:
        yield
    finally:
        os.close(going_on)
        with contextlib.suppress(ChildProcessError):  # the caller may have SIGCHLD ignored
            os.waitpid(child, 0)


def _watch_from_outside(ended: int, parent: int, wait: _Wait, limit_s: float, advice: str, loud: bool) -> None:
    complete = wait.started
    while True:
        soon = min(1.0, AFTER_S / 4)
        if select.select([ended], [], [], soon)[0]:
            return
        if loud:
            wait.look(time.monotonic())
        now = time.monotonic()
        if not ranks_missing_here(parent):
            complete = now
        problem = ""
        if now - wait.started > limit_s:
            problem = f"waited {limit_s:.0f} s in vain for {wait.what}"
        elif now - complete > MISSING_S:
            problem = f"a rank on {socket.gethostname()} has left, so nobody need wait for {wait.what}"
        if problem:
            _say(f"mpibayes: error: {problem}; {advice}")
            os.kill(parent, signal.SIGKILL)  # a signal makes every launcher end the other ranks
            return


def _watch() -> None:
    global _watcher
    if _watcher is None or not _watcher.is_alive():  # a fork leaves threads behind
        _watcher = threading.Thread(target=_look, name="waiting", daemon=True)
        _watcher.start()


def _look() -> None:
    while True:
        time.sleep(min(1.0, AFTER_S / 4))
        for wait in _waits[-1:]:  # the innermost wait is the most specific
            wait.look(time.monotonic())


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # a closed standard error does not end a run
        print(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {visible(text)}", file=sys.stderr, flush=True)
