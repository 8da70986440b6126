"""One change of a table at a time: processes that append rows to or replace a table wait for others in the same folder.

The folder itself is locked, so that no lock file remains and a process that dies holds nothing. Where a file system
lacks such locks there are none: an append never overwrites an existing name, so the first to finish counts.
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
    """Hold the right to change tables in the folder of `table`; yield the seconds waited for it."""
    began = time.monotonic()
    try:
        folder = os.open(table.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # the writer will report the reason
        yield 0.0
        return
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield time.monotonic() - began
    finally:
        os.close(folder)
