"""Variational inference on any number of ranks: steps, each from sums over the rows of a batch (docs/math.md 8).

A cycle takes a step with the sums computed under the current state, then computes those for the next, so that the bound
reported with a state is that state's. The rows of the batch and their noise are keyed by the cycle, sums are added in
the order of the shards, and root alone takes the step: the bits do not depend on the ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mpibayes.hpc.parallel import shards as cut
from mpibayes.hpc.parallel.agreement import agree, broadcast_arrays, on_root
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.reduce import shard_sum
from mpibayes.hpc.parallel.streams import Purpose, Stream, generator
from mpibayes.hpc.svi.likelihood import Likelihood, arrays_of
from mpibayes.hpc.svi.noise import Noise
from mpibayes.hpc.svi.schedule import Constant, Schedule, batch
from mpibayes.hpc.svi.step import Step

SEEDING = 10_000  # rows from which the first state is found
WHOLE_STEP, NO_NOISE = Constant(1.0), Noise("none")
CHOICE, CENTERS = range(2)  # streams of Purpose.FIRST_MEANS


@dataclass(frozen=True)
class Settings:
    """Settings of a chain, besides the model and the data.

    batch, effective: sizes; None for all rows, and for no noise. tolerance: see `Ascent.still`.
    """

    seed: int = 0
    shards: cut.Setting = None
    batch: Schedule | None = None
    rate: Schedule = WHOLE_STEP
    noise: Noise = NO_NOISE
    effective: Schedule | None = None
    guard: bool = True
    tolerance: float = 1e-10

    @property
    def plain(self) -> bool:
        """True if every step is one of batch variational inference, which raises the bound."""
        return self.batch is None and self.rate == WHOLE_STEP and self.noise.kind == "none"


@dataclass
class Found:
    """Results of a pass over a batch. total: its sums. noise: the noise to add to them, or None. bound: the bound of
    the state before the step, estimated from the batch. All but n_batch on root alone."""

    n_batch: int
    total: np.ndarray
    noise: np.ndarray | None
    bound: float


class Ascent:
    """One chain. Every method is collective.

    cells_of(start, stop): float64 (rows, D), called for the shards of this rank. sample_of(places): the same for rows
    by position, ascending; called on root.
    """

    def __init__(
        self,
        comm: Communicator,
        model: Likelihood,
        cells_of: Callable[[int, int], np.ndarray],
        sample_of: Callable[[np.ndarray], np.ndarray],
        n_rows: int,
        settings: Settings,
        chain: int = 0,
    ):
        self.comm, self.model, self.settings, self.chain = comm, model, settings, chain
        self.n_rows, self._sample_of = n_rows, sample_of
        self.cycles = self.guarded = 0  # guarded: parts held back in the last cycle
        self.starts = cut.starts(settings.shards, n_rows)
        self.n_shards = len(self.starts) - 1
        self.shards = cut.of_rank(self.n_shards, comm.size, comm.rank)
        self.rows = agree(comm, lambda: [self._load(cells_of, i) for i in self.shards], "read its rows of the table")
        self.q: Any = model.first()
        self.bound = np.nan  # on root: the bound of q over all rows, if known
        self.gain = np.inf  # relative gain of the last cycle
        self.broken = False  # True once the state is out of its domain: only without a guard

    def _load(self, cells_of, i: int) -> np.ndarray:
        return np.ascontiguousarray(cells_of(int(self.starts[i]), int(self.starts[i + 1])), np.float64)

    def start(self) -> None:
        """Start from the state that a sample of the rows suggests."""
        key = {"seed": self.settings.seed, "chain": self.chain, "purpose": Purpose.FIRST_MEANS}

        def seeded():
            n = min(self.n_rows, SEEDING)
            places = np.sort(generator(sub=CHOICE, **key).choice(self.n_rows, n, replace=False))
            return self.model.seeded(self._sample_of(places), self.n_rows, generator(sub=CENTERS, **key))

        self.place(on_root(self.comm, seeded, share=False, what="read a sample of the table"))

    def place(self, q: Any, cycles: int = 0, gain: float = np.inf, guarded: int = 0) -> None:
        """Set the chain's state, which only root needs to provide."""
        self.q = self._everywhere(q)
        self.cycles, self.gain, self.guarded = cycles, gain, guarded
        self._look()

    def cycle(self) -> None:
        """Take one step; none if the chain has converged or left its domain."""
        before, t = self.bound, self.cycles + 1
        if self.still() or self.broken:
            self.cycles, self.guarded = t, 0
            return
        q, batch, settings = None, self._found, self.settings
        count = np.zeros(1, np.int64)
        if self.comm.rank == 0:
            step = Step(min(1.0, settings.rate.at(t)), self.n_rows / batch.n_batch, settings.guard)
            q, count[0] = self.model.step(self.q, batch.total, batch.noise, step)
        self.comm.broadcast(count)
        self.q, self.cycles, self.guarded = self._everywhere(q), t, int(count[0])
        self.broken = not settings.guard and not self.q.sound()
        if self.broken:
            return
        self._look()
        if settings.plain:
            gain = np.array([(self.bound - before) / max(1.0, abs(before)) if self.comm.rank == 0 else 0.0])
            self.comm.broadcast(gain)
            self.gain = float(gain[0])

    def still(self) -> bool:
        """True if the last cycle's relative gain is below the tolerance, so that further batch steps change nothing."""
        return self.settings.plain and abs(self.gain) < self.settings.tolerance

    def rate(self) -> float:
        """The step size of the last cycle."""
        return min(1.0, self.settings.rate.at(max(1, self.cycles)))

    def evaluate(self) -> float:
        """Bound of the current state over all rows, on root."""
        if self._found.n_batch < self.n_rows:
            self.bound = self._pass([None] * len(self.rows), None, 1.0)[1]
        return self.bound

    # --- inside -------------------------------------------------------------------------------------------------------

    def _everywhere(self, q: Any) -> Any:
        """Broadcast root's state to all ranks."""
        arrays = broadcast_arrays(self.comm, arrays_of(q) if self.comm.rank == 0 else None)
        return replace(self.q, **arrays)

    def _look(self) -> None:
        """Compute the sums of the next step from its batch; if this is all rows, the bound as well."""
        settings, t = self.settings, self.cycles + 1
        key = {"seed": settings.seed, "cycle": t, "chain": self.chain}
        n_batch, chosen = batch(settings.batch, self.starts, self.shards, **key)
        numbers = self._numbers(chosen, n_batch, t)
        sums, bound, of_numbers = self._pass(chosen, numbers, self.n_rows / n_batch)
        noise = None
        if numbers is not None and self.comm.rank == 0:
            noise = self._deviation(sums, of_numbers, n_batch, t)
        self._found = Found(n_batch, sums[0], noise, bound)
        self.bound = bound if n_batch == self.n_rows else np.nan
        self.bound_of_batch = bound

    def _numbers(self, chosen: list[np.ndarray | None], n_batch: int, t: int) -> list[Any] | None:
        """Random numbers of the noise for the chosen rows of this rank's shards; None without noise."""
        settings, effective = self.settings, self.settings.effective.at(t) if self.settings.effective else np.inf
        if not settings.noise.at_work(n_batch, effective):
            return None
        ids = [
            self.starts[i] + (np.arange(len(x)) if rows is None else rows)
            for i, x, rows in zip(self.shards, self.rows, chosen)
        ]
        return settings.noise.numbers(self.comm, ids, n_batch, effective, self.noise_stream(t))

    def noise_stream(self, t: int) -> Stream:
        """Random stream for the noise of cycle t."""
        return Stream(self.settings.seed, Purpose.STATISTICS_NOISE, t, self.chain)

    def _deviation(self, sums: np.ndarray, of_numbers: float, n_batch: int, t: int) -> np.ndarray:
        """Noise to add to the sums of the batch, on root."""
        return self.settings.noise.deviation(sums[0], sums[1], of_numbers, n_batch)

    def _pass(
        self, chosen: list[np.ndarray | None], numbers: list[np.ndarray] | None, scale: float
    ) -> tuple[np.ndarray, float, float]:
        """Return, on root, sums over the chosen rows of all shards (1 or 2, *form), the bound with the rows' part times
        `scale`, and the sum of the rows' random numbers."""
        many, parts = 1 if numbers is None else 2, []
        for i, (x, rows) in enumerate(zip(self.rows, chosen)):
            each = None if numbers is None else numbers[i]
            part = np.zeros(many * int(np.prod(self.model.form)) + 2)
            sums = part[:-2].reshape(many, *self.model.form)
            part[-2] = self.model.accumulate(self.q, x, rows, each, sums)
            part[-1] = 0.0 if each is None else each.sum()
            parts.append(part)
        length = many * int(np.prod(self.model.form)) + 2
        total = shard_sum(self.comm, parts, (length,), self.n_shards)
        bound = scale * float(total[-2]) + self.model.bound(self.q) if self.comm.rank == 0 else np.nan
        return total[:-2].reshape(many, *self.model.form), bound, float(total[-1])
