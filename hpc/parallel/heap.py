"""The C library's heap: freed memory goes back to the system, so that a rank's peak is what it holds at once."""

from __future__ import annotations

import contextlib
import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
LARGE = SPARE = 4 << 20  # bytes from which a block gets its own pages; free bytes kept (fewer cost more time)


def return_what_is_freed() -> None:
    """Fix glibc's thresholds, which else grow with the first large block freed. Without glibc nothing happens."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, LARGE)
        mallopt(M_TRIM_THRESHOLD, SPARE)


def give_back() -> None:
    """Return all free pages to the system, also those between blocks in use (under 1 ms)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
