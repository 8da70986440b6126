"""The annealed subsample of a chain: how many rows every shard has active in a cycle, and which come and go.

A schedule over the same kernels (Obermeyer, Glidden & Jonas 2014, section 2; docs/math.md 3.1, 3.3). Labels alone say
which rows are active, so nothing is kept between cycles but the plan, and that follows from the settings, except where
it follows the clock ("seconds").
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.crosscat.start import schedule as annealing
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.shards import Shard
from mpibayes.kernels.mixture.visits import visits

IDLE = -2
MEASURED = 4  # cycles whose cost says what the next one takes, where the clock decides


@dataclass(frozen=True)
class Annealing:
    """Growth of the subsample. `schedule`: "linear", "geometric", "seconds", or knots ((passes, fraction), ...).

    passes: assignments per row that the growth may cost. start_rows: rows of the first subsample. seconds: for
    "seconds".
    """

    schedule: str | tuple[tuple[float, float], ...] = "linear"
    passes: float = 10.0
    start_rows: int = 1000
    seconds: float | None = None


def planned_cycles(settings: Annealing, n_rows: int) -> int | None:
    """Cycles until every row is active; None where the clock decides."""
    return None if settings.schedule == "seconds" else len(_plan(settings, n_rows))


def _plan(settings: Annealing, n_rows: int) -> list[float]:
    start_rows = min(settings.start_rows, n_rows)
    return annealing.plan(settings.schedule, n_rows, start_rows, settings.passes).tolist()


class Growth:
    """The growing subsample of one chain, on all ranks. `plan`: active fraction of every growth cycle known so far."""

    def __init__(
        self,
        comm: Communicator,
        settings: Annealing,
        sizes: np.ndarray,
        seed: int,
        chain: int,
    ):
        """sizes (S,): rows of each shard."""
        self.comm, self.settings, self.sizes = comm, settings, sizes
        self.key = {"seed": seed, "chain": chain}
        self.n_rows = int(sizes.sum())
        self.first = min(settings.start_rows, self.n_rows) / self.n_rows
        self.by_clock = settings.schedule == "seconds"
        self.plan = [] if self.by_clock else _plan(settings, self.n_rows)
        self.clock = time.monotonic  # in seconds; a benchmark may count CPU time instead
        self._began, self._before = self.clock(), 0.0
        self._cycles_s: list[float] = []  # seconds at which this process began its growth cycles

    def resume(self, plan: Sequence[float]) -> None:
        """Go on with the plan that was followed so far; one by the clock goes on from where it stands in its time."""
        if self.by_clock and len(plan):
            self.plan, self._before = list(plan), plan[-1] * self.settings.seconds
            self._began = self.clock()

    def fraction(self, cycle: int) -> float:
        """Active fraction in a cycle; collective where the clock decides."""
        if self.by_clock and len(self.plan) < cycle:
            now = np.zeros(1)
            self._cycles_s.append(self.clock())
            if self.comm.rank == 0:
                took = np.diff(self._cycles_s[-1 - MEASURED :])
                done = self.plan[len(self.plan) - len(took) :]
                spent = self._before + self._cycles_s[-1] - self._began
                now[0] = annealing.next_fraction_seconds(
                    spent, self.settings.seconds, self.plan[-1] if self.plan else self.first, done, took.tolist()
                )
            self.comm.broadcast(now)
            self.plan.append(float(now[0]))
        return self.plan[cycle - 1] if cycle <= len(self.plan) else 1.0

    def targets(self, fraction: float) -> np.ndarray:
        """Active rows of every shard, (S,) int64."""
        return annealing.shard_targets(fraction, self.sizes)

    def steps(self, shard: Shard, z: np.ndarray, target: int, cycle: int) -> tuple[np.ndarray, np.ndarray]:
        """(remove, assign) of one sweep: growth to `target` rows, and a churning step for every row now active.

        Where all rows are to be active each of them is named once: nobody leaves, so that nobody can be left over.
        """
        if target == len(shard) and cycle > 0:
            return all_rows(z)
        n_active = int((z > IDLE).sum())
        n_grow = max(0, target - n_active)
        return visits(z, n_grow, n_active, cycle=cycle, sweep=0, shard=shard.index, **self.key)


def all_rows(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(remove, assign) of a sweep over all rows of a shard with labels z, in which idle ones come in."""
    row = np.arange(len(z), dtype=np.int32)
    return np.where(z > IDLE, row, -1).astype(np.int32), row
