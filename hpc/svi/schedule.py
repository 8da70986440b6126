"""Schedules over the iterations t = 1, 2, ...: the step size, the batch, the effective batch; the rows of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mpibayes.hpc.parallel.streams import Purpose, generator


class Schedule(Protocol):
    def at(self, t: int) -> float:
        """Value in iteration t, counted from 1."""


@dataclass(frozen=True)
class Constant:
    value: float

    def at(self, t: int) -> float:
        return self.value


@dataclass(frozen=True)
class Decay:
    """(t + delay)^-decay, the step size of Robbins & Monro (1951) for a decay in (0.5, 1]."""

    delay: float
    decay: float

    def at(self, t: int) -> float:
        return (t + self.delay) ** -self.decay


@dataclass(frozen=True)
class Growing:
    """by times t: the effective batch size of Paisley, Fazelnia & Barr's factorization has by = 50."""

    by: float

    def at(self, t: int) -> float:
        return self.by * t


def batch(
    size: Schedule | None, starts: np.ndarray, shards: Sequence[int], *, seed: int, cycle: int, chain: int
) -> tuple[int, list[np.ndarray | None]]:
    """Return the number of rows in a cycle's batch, and their positions in each of `shards`, None for all rows. starts:
    first row of every shard, then the number of rows."""
    n_rows = int(starts[-1])
    n_batch = n_rows if size is None else int(np.clip(size.at(cycle), 1, n_rows))
    if n_batch == n_rows:
        return n_rows, [None] * len(shards)
    stream = generator(seed=seed, purpose=Purpose.BATCH, cycle=cycle, chain=chain)
    every = np.sort(stream.choice(n_rows, n_batch, replace=False))
    cuts = np.searchsorted(every, starts)
    return n_batch, [every[cuts[i] : cuts[i + 1]] - starts[i] for i in shards]
