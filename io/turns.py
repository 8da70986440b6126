"""One change of a table at a time: who appends rows or replaces a table waits for those who do so in the same folder.

The folder itself is locked, so that no file is left and a process that dies holds nothing. Where a file system has no
such locks there are none: names that exist are never written over by an append, so the first to end counts.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def in_turn(table: Path) -> Iterator[float]:
    """Hold the right to change tables in the folder of one; the seconds that it was waited for."""
    began = time.monotonic()
    try:
        folder = os.open(table.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # whoever writes there says why
        yield 0.0
        return
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield time.monotonic() - began
    finally:
        os.close(folder)
