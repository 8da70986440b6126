"""Too little memory, in words: what was asked for, what the process has, and what the limit is."""

from __future__ import annotations

import errno
import os
import resource
from contextlib import suppress

# Addresses of the libraries that some command or other loads, and of their threads: with 500 MiB an import and its
# report end well. With less, libraries end the process themselves, or wait for ever for memory that never comes.
FEWEST_MB = 640
SIGNS = (
    "failed to map segment", "cannot allocate memory", "can't start new thread", "memory allocation failed",
    "failed to launch worker thread",
)  # fmt: skip


def lack_of_memory(error: BaseException) -> str:
    """The message for an error that means that memory is short; "" for any other error."""
    text = str(error)
    short = isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM
    if not short and not (isinstance(error, ImportError | OSError | RuntimeError) and _has_sign(text)):
        return ""
    return f"not enough memory{f' ({text})' if text else ''}: {_held()}. Free some, raise the limit, or use more nodes"


def limit_too_low() -> str:
    """The message where the limit on addresses is below what the program needs to begin; "" elsewhere."""
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
    """Say how much memory the process has, and may have at most."""
    words = "this process could get no more"
    with suppress(OSError, ValueError, IndexError):
        with open("/proc/self/statm") as file:
            held = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        words = f"this process has {held / 1e9:,.2f} GB of addresses"
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return words if limit == resource.RLIM_INFINITY else f"{words} of the {limit / 1e9:,.2f} GB that ulimit -v allows"
