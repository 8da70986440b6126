"""Limits that a container, a batch system or the login session sets for this process through Linux control groups."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
MEMORY_NOW = Path("/proc/meminfo")


def _folders(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control group and its ancestors, in version 2 and in version 1's
    `controller`. A container may not see its ancestors under these names; its own group is then the root."""
    with contextlib.suppress(OSError, ValueError):
        for line in OWN.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            base = ROOT / controller if controllers else ROOT
            group = base / path.lstrip("/")
            yield from (place for place in (group, *group.parents) if place.is_relative_to(base))


def _number(place: Path) -> int | None:
    """The number in a file; None if it holds the word "max" or cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        return int(place.read_text())
    return None


def quota() -> float | None:
    """Return how many processors this process may keep busy, fractions included; None if there is no limit."""
    limits = []
    for folder in _folders("cpu"):
        with contextlib.suppress(OSError, ValueError):
            most, period = (folder / "cpu.max").read_text().split()
            limits += [] if most == "max" else [int(most) / int(period)]
        most, period = (_number(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        limits += [most / period] if most and period and most > 0 else []
    return min(limits, default=None)


def free_memory() -> int | None:
    """Return how many more bytes this process and its children may use, or None if that is unknown."""
    free = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        line = next(line for line in MEMORY_NOW.read_text().splitlines() if line.startswith("MemAvailable:"))
        free.append(int(line.split()[1]) << 10)
    for folder in _folders("memory"):
        for limit, now, cache in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            most, used = _number(folder / limit), _number(folder / now)
            if most is not None and used is not None:
                free.append(max(0, most - used + _of_cache(folder / "memory.stat", cache)))
    return min(free, default=None)


def _of_cache(place: Path, name: str) -> int:
    """Bytes of cached files that the kernel can reclaim from the group."""
    with contextlib.suppress(OSError, ValueError):
        for line in place.read_text().splitlines():
            if line.split()[0] == name:
                return int(line.split()[1])
    return 0
