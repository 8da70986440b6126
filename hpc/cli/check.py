"""`mpibayes check`: is the configuration right, and what will the run cost: memory a rank, seconds a cycle, disk.

Needs no MPI. Time is measured by some cycles of the sampler itself; memory is a model whose constants were measured.
What belongs to one kind of model is in its family's `check.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mpibayes.hpc.registry import check_of
from mpibayes.hpc.run.examine import Found, examine
from mpibayes.hpc.run.ranks import choose
from mpibayes.text import visible


def check(config_path: str | Path, overrides: Sequence[str] = (), ranks: int | None = None) -> None:
    """Check a configuration and its table and print what a run of it on `ranks` ranks takes; None: on as many as it
    starts itself on this machine.

    Raises ConfigError or DataError with all that is wrong.
    """
    examined = examine(config_path, overrides)
    first = [("warning", note) for note in examined.config.notes]
    if ranks is None:
        ranks, note = choose(examined.config, examined.data)
        started = note if ranks == 1 else f"{ranks} ranks, which `mpibayes run` starts itself here (run.ranks)"
        first += [("started as", started.removeprefix("note: "))] if started else []
    for title, text in [*first, *check_of(examined.config.kind).findings(examined, ranks)]:
        print(f"{title + ':' if title else '':<16}{visible(text)}")


def memory(found: Found, ranks: int) -> dict[str, int]:
    """Resident bytes at the peak of the busiest of so many ranks, by part; predicted without running the sampler."""
    return check_of(found.config.kind).memory(found, ranks)
