"""The annealed subsample of a chain: the number of active rows of every shard in a cycle, and which rows come and go.

A schedule over the same kernels (Obermeyer, Glidden & Jonas 2014, section 2; docs/math.md 3.1, 3.3). Labels show which
rows are active, so only the plan is kept between cycles, and it follows from the settings, unless it follows the clock
("seconds").
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
MEASURED = 4  # last cycles that predict the cost of the next one, if the plan follows the clock


@dataclass(frozen=True)
class Annealing:
    """Growth of the subsample. schedule: "linear", "geometric", "seconds", or knots ((passes, fraction), ...).

    passes: assignments per row during growth. start_rows: rows of the first subsample. seconds: duration of growth, for
    "seconds".
    """

    schedule: str | tuple[tuple[float, float], ...] = "linear"
    passes: float = 10.0
    start_rows: int = 1000
    seconds: float | None = None


def planned_cycles(settings: Annealing, n_rows: int) -> int | None:
    """Return the number of cycles until every row is active; None if the plan follows the clock."""
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
        """Resume the plan followed so far; a plan by the clock resumes at the time its last fraction implies."""
        if self.by_clock and len(plan):
            self.plan, self._before = list(plan), plan[-1] * self.settings.seconds
            self._began = self.clock()

    def fraction(self, cycle: int) -> float:
        """Return the active fraction in a cycle. Collective if the plan follows the clock."""
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
        """Return the number of active rows of every shard, (S,) int64."""
        return annealing.shard_targets(fraction, self.sizes)

    def steps(self, shard: Shard, z: np.ndarray, target: int, cycle: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (remove, assign) of one sweep: growth to `target` rows, and a replacement for every row now active.

        If all rows are to be active, each is assigned once and none leaves.
        """
        if target == len(shard) and cycle > 0:
            return all_rows(z)
        n_active = int((z > IDLE).sum())
        n_grow = max(0, target - n_active)
        return visits(z, n_grow, n_active, cycle=cycle, sweep=0, shard=shard.index, **self.key)


def all_rows(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (remove, assign) of a sweep over all rows of a shard with labels z, which activates idle rows."""
    row = np.arange(len(z), dtype=np.int32)
    return np.where(z > IDLE, row, -1).astype(np.int32), row
