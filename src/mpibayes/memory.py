"""Messages about insufficient memory: what was requested, what the process has, and the limit."""

from __future__ import annotations

import errno
import os
import resource
from contextlib import suppress

# Addresses needed by the libraries of the commands, and by their threads: with 500 MiB an import and its report
# succeed. With less, libraries end the process themselves, or wait forever for memory.
FEWEST_MB = 640
SIGNS = (
    "failed to map segment", "cannot allocate memory", "can't start new thread", "memory allocation failed",
    "failed to launch worker thread",
)  # fmt: skip


def lack_of_memory(error: BaseException) -> str:
    """Message for an error caused by insufficient memory; "" for any other error."""
    text = str(error)
    short = isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM
    if not short and not (isinstance(error, ImportError | OSError | RuntimeError) and _has_sign(text)):
        return ""
    return f"not enough memory{f' ({text})' if text else ''}: {_held()}. Free some, raise the limit, or use more nodes"


def limit_too_low() -> str:
    """Message if the limit on addresses is below the minimum for the program to start; otherwise ""."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY or limit >= FEWEST_MB << 20:
        return ""
    return (
        f"not enough memory: ulimit -v allows {limit / (1 << 20):,.0f} MB of addresses, and the program's libraries "
        f"take up to {FEWEST_MB} MB, the data not counted: raise the limit, for example ulimit -v 4000000"
    )


def _has_sign(text: str) -> bool:
    return any(sign in text.lower() for sign in SIGNS)


def _held() -> str:
    """Describe the memory that the process has, and its limit."""
    words = "this process could get no more"
    with suppress(OSError, ValueError, IndexError):
        with open("/proc/self/statm") as file:
            held = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        words = f"this process has {held / 1e9:,.2f} GB of addresses"
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return words if limit == resource.RLIM_INFINITY else f"{words} of the {limit / 1e9:,.2f} GB that ulimit -v allows"
