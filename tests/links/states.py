"""States of chains in tests of linked columns: partitions by first appearance, and the same on any number of ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from mpibayes.hpc.parallel.comm import serial, world


def by_appearance(labels: np.ndarray) -> tuple[int, ...]:
    """Labels of rows, numbered by first appearance."""
    names: dict[int, int] = {}
    return tuple(names.setdefault(k, len(names)) for k in labels.tolist())


def require_the_same_on_ranks(history: Callable[..., Sequence[np.ndarray] | None], cases: Iterable[tuple]) -> None:
    """Compare the arrays history(comm, *case), root's alone, of all ranks together with those of one. Collective."""
    comm = world()
    for case in cases:
        together = _digest(history(comm, *case))
        alone = _digest(history(serial(), *case)) if comm.rank == 0 else None
        assert comm.share(together) == comm.share(alone), case


def _digest(arrays: Sequence[np.ndarray] | None) -> str | None:
    return None if arrays is None else hashlib.sha256(b"".join(a.tobytes() for a in arrays)).hexdigest()
