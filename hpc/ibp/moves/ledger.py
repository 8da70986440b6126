"""State shared by the moves of a round: sums over the current features, and the rows' bits on all ranks.

Features are ordered by their prints (kernels/ibp/moves.pyx), which are functions of their owners. So any quantity
computed for a state has the same bits however the state was reached, as both directions of a move require (docs/math.md
7.5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.hpc.ibp import update
from mpibayes.hpc.ibp.state import Totals
from mpibayes.hpc.parallel.reduce import shard_sum
from mpibayes.hpc.parallel.streams import Purpose, Stream, generator
from mpibayes.kernels.ibp import moves as kernels

if TYPE_CHECKING:
    from mpibayes.hpc.ibp.chain import Buffet

KINDS = ("births", "deaths", "splits", "merges", "folds", "unfolds")


def log_sum(x: np.ndarray) -> float:
    """Log of the sum of exp(x) over a few numbers; -inf if all are."""
    most = x.max()
    return float(most + np.log(np.exp(x - most).sum())) if np.isfinite(most) else -np.inf


@dataclass(frozen=True)
class Columns:
    """Features, by increasing print. slots, prints (K,) and together (K, K) are int64, on every rank; cells (K, D) are
    on root."""

    slots: np.ndarray
    prints: np.ndarray
    together: np.ndarray
    cells: np.ndarray

    @property
    def owned(self) -> np.ndarray:
        """Number of rows that have each feature, (K,) int64."""
        return np.diag(self.together)

    def __len__(self) -> int:
        return len(self.slots)

    def place(self, slots: Sequence[int]) -> np.ndarray:
        """Indices of these slots, (J,) int64."""
        places = {slot: i for i, slot in enumerate(self.slots.tolist())}
        return np.array([places[int(slot)] for slot in slots], np.int64)

    def take(self, at: np.ndarray) -> Columns:
        return Columns(self.slots[at], self.prints[at], self.together[np.ix_(at, at)], self.cells[at])

    def without(self, slots: Sequence[int]) -> Columns:
        return self.take(np.setdiff1d(np.arange(len(self)), self.place(slots)))


class Ledger:
    """The features of a chain during a round of moves. The rows' bits, `z` of each shard, are changed in place.

    Every method that reads rows is collective.
    """

    def __init__(self, chain: Buffet):
        self.chain, self.comm, self.n_rows = chain, chain.comm, chain.n_rows
        self.n_columns, self.hyper, self.n_shards = chain.n_columns, chain.hyper, chain.n_shards
        self.shards, self.starts = chain.shards, chain.starts
        self.root = self.comm.rank == 0
        self.squares = chain.totals.squares
        self.prior_variance = update.prior_variance(self.hyper) if self.n_columns else 1.0
        self.changed = False
        self.tried, self.accepted = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0)
        nothing = np.zeros(0, np.int64)
        empty = Columns(nothing, nothing, np.zeros((0, 0), np.int64), np.zeros((0, self.n_columns)))
        self.columns = self.with_fresh(empty, chain.slots[chain.totals.owned > 0])

    # --- draws -------------------------------------------------------------------------------------------------------

    def key(self, purpose: Purpose, move: int) -> dict:
        chain = self.chain
        return {
            "seed": chain.settings.seed,
            "purpose": purpose,
            "cycle": chain.cycles,
            "chain": chain.chain,
            "sub": move,
        }

    def choices(self, move: int) -> np.random.Generator:
        """Generator for the choices of a move; the same on every rank."""
        return generator(**self.key(Purpose.FEATURE_MOVES, move))

    def uniforms(self, shard, purpose: Purpose, move: int, rows: np.ndarray | None = None) -> np.ndarray:
        """Uniform in [0, 1) for each row of a shard, or for `rows` alone, keyed by the row's number."""
        rows = np.arange(len(shard.rows)) if rows is None else rows
        return Stream(**self.key(purpose, move)).uniforms(rows + self.starts[shard.index])

    # --- sums --------------------------------------------------------------------------------------------------------

    def with_fresh(self, columns: Columns, slots: Sequence[int]) -> Columns:
        """Return `columns` with further slots, whose sums are computed from the rows."""
        slots = np.asarray(slots, np.int64)
        every, d = np.concatenate([columns.slots, slots]), self.n_columns
        k, j = len(columns), len(slots)
        if j == 0:
            return columns
        integers, cells = np.zeros((j, k + j + 1), np.int64), []
        for shard in self.shards:
            z, x = shard.rows.z, shard.rows.x
            counts, sums = kernels.tally(z, x, slots, every)
            integers[:, :-1] += counts
            integers[:, -1] += kernels.prints(z, slots, int(self.starts[shard.index]))
            cells.append(sums)
        self.comm.sum_everywhere(integers)
        together = np.zeros((k + j, k + j), np.int64)
        together[:k, :k] = columns.together
        together[k:], together[:, k:] = integers[:, :-1], integers[:, :-1].T
        fresh = shard_sum(self.comm, cells, (j, d), self.n_shards)
        prints = np.concatenate([columns.prints, integers[:, -1]])
        order = np.argsort(prints, kind="stable")
        return Columns(every, prints, together, np.concatenate([columns.cells, fresh])).take(order)

    def tally_patterns(self, patterns: Sequence[np.ndarray], n_patterns: int, slots: np.ndarray):
        """Return (sizes, counts, cells) as kernels.moves.tally_patterns, over all rows; cells (P, D) on root alone."""
        integers, cells = np.zeros((n_patterns, len(slots) + 1), np.int64), []
        for shard, pattern in zip(self.shards, patterns):
            sizes, counts, sums = kernels.tally_patterns(shard.rows.z, shard.rows.x, pattern, n_patterns, slots)
            integers[:, 0] += sizes
            integers[:, 1:] += counts
            cells.append(sums)
        self.comm.sum_everywhere(integers)
        total = shard_sum(self.comm, cells, (n_patterns, self.n_columns), self.n_shards)
        return integers[:, 0], integers[:, 1:], total

    def total(self, parts: Sequence[np.ndarray], n: int) -> np.ndarray:
        """Sum one float64 (n,) per shard, in the order of the shards, on root."""
        return shard_sum(self.comm, list(parts), (n,), self.n_shards)

    # --- the target --------------------------------------------------------------------------------------------------

    def log_target(self, owned: np.ndarray, together: np.ndarray, cells: np.ndarray) -> float:
        """Log of pi of an ordered list of features up to a constant, on root; -inf if one has no rows."""
        if len(owned) and owned.min() == 0:
            return -np.inf
        prior = update.log_prior(owned, self.n_rows, self.hyper.alpha, self.hyper.c)
        if not self.n_columns:
            return prior
        return prior + update.log_likelihood(Totals(owned, together, cells, self.squares), self.n_rows, self.hyper)

    def log_target_of(self, columns: Columns) -> float:
        return self.log_target(columns.owned, columns.together, columns.cells)

    def means(self, columns: Columns) -> np.ndarray:
        """Posterior means of the loadings, float64 (K, D), in units of the noise, on root."""
        if len(columns) == 0:
            return np.zeros((0, self.n_columns))
        spread = columns.together + np.eye(len(columns)) / self.prior_variance
        return np.linalg.solve(spread, columns.cells / self.hyper.noise_sd)

    # --- rows --------------------------------------------------------------------------------------------------------

    def patterns(self, slots: Sequence[int]) -> list[np.ndarray]:
        """Bit patterns of the rows of each shard here, uint8 (n,): bit j is set if the row has slots[j]."""
        return [kernels.patterns(shard.rows.z, np.asarray(slots, np.int64)) for shard in self.shards]

    def write(self, slots: Sequence[int], patterns: Sequence[np.ndarray]) -> None:
        for shard, pattern in zip(self.shards, patterns):
            kernels.write(shard.rows.z, np.asarray(slots, np.int64), pattern)

    def clear(self, slots: Sequence[int]) -> None:
        self.write(slots, [np.zeros(len(shard.rows), np.uint8) for shard in self.shards])

    def free_slots(self, n: int) -> np.ndarray:
        """The n lowest unused slots, (n,) int64; extends the rows' words to hold them."""
        return self.chain.free_slots(n, self.columns.slots)

    # --- decisions ---------------------------------------------------------------------------------------------------

    def decide(self, kind: str, log_ratio: float, stream: np.random.Generator) -> bool:
        """Accept or reject by root's ratio; the same on every rank."""
        answer = np.array([self.root and bool(np.log(stream.random()) < log_ratio)], np.int64)
        self.comm.broadcast(answer)
        self.tried[kind] += 1
        self.accepted[kind] += int(answer[0])
        return bool(answer[0])

    def become(self, columns: Columns) -> None:
        self.columns, self.changed = columns, True

    def close(self) -> None:
        """Hand the features back to the chain. Those without rows are dropped."""
        if self.changed:
            self.chain.slots = np.sort(self.columns.slots)
            self.chain.summarise()
