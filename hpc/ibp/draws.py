"""A run of an Indian buffet process, opened for reading: its chains and its kept draws.

A kept draw, as `io/draws.py` stores it: features (R, B) uint8, each feature's rows as bits, the first row in the
highest bit of the first byte; count: the number K of features, followed by zeros that leave room; n_rows N; alpha, c,
feature_sd, noise_sd (D,) and cells (R, D), sums over the rows of each feature, with missing cells as drawn. Features
are in no order. Without a likelihood there are no columns, and neither noise_sd nor cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.errors import DataError
from mpibayes.hpc.data.cells import Cells
from mpibayes.hpc.ibp import keys
from mpibayes.hpc.ibp.features import Features
from mpibayes.hpc.ibp.law import Law
from mpibayes.hpc.ibp.state import WORD, Hyper
from mpibayes.hpc.parallel import shards as cut
from mpibayes.hpc.posterior.chains import KeptChains, evenly
from mpibayes.io import draws as stored
from mpibayes.io.draws import DrawWriter
from mpibayes.io.files import Guard, unguarded

if TYPE_CHECKING:
    from mpibayes.hpc.ibp.chain import Buffet

ROOM = 4  # R is a multiple of this, so that few draws need more room than those before


@dataclass(frozen=True)
class Draw:
    """One kept draw. features: uint8 (K, B), rows as bits. cells: (K, D); see the module."""

    cycle: int
    n_rows: int
    features: np.ndarray
    hyper: Hyper
    cells: np.ndarray

    def __len__(self) -> int:
        return len(self.features)

    @cached_property
    def together(self) -> np.ndarray:
        """Number of rows that have both features of each pair, (K, K) int64."""
        return shared_rows(self.features, self.features)

    @property
    def owned(self) -> np.ndarray:
        """Number of rows that have each feature, (K,) int64."""
        return np.diag(self.together)

    def rows(self) -> np.ndarray:
        """Features of each row, bool (N, K)."""
        return np.unpackbits(self.features, axis=1, count=self.n_rows).astype(bool).T

    def new_row(self) -> Features:
        """Predictive distribution of a new row."""
        return Features.of(self.together, self.cells, self.n_rows, self.hyper)


def shared_rows(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Number of rows that have both a feature of `a` and one of `b`, int64 (K, L); rows as bits, uint8 (K, B) and (L,
    B)."""
    return np.array(
        [np.bitwise_count(one[None] & b).sum(axis=1, dtype=np.int64) for one in a], np.int64
    ).reshape(len(a), len(b))  # fmt: skip


def common(hyper: Hyper) -> float:
    """Noise standard deviation over all columns, the root of their mean variance; NaN without columns."""
    return float(np.sqrt(np.mean(hyper.noise_sd**2))) if len(hyper.noise_sd) else np.nan


def writer(folder: str | Path, run: str = "", guard: Guard = unguarded) -> DrawWriter:
    """Return a writer of draws: `append(cycle, features=, ...)`. run, guard: see `io.segments.Segments`."""
    return DrawWriter(folder, run, guard, whole=("features", "count", "n_rows"))


def of_chain(buffet: Buffet) -> dict[str, np.ndarray]:
    """Return the arrays of a kept draw of the chain's state, on root. Collective."""
    there = np.flatnonzero(buffet.totals.owned > 0)
    packed = _gathered(buffet, buffet.slots[there])
    if buffet.comm.rank != 0:
        return {}
    k, hyper = len(there), buffet.hyper
    room = max(ROOM, -(-k // ROOM) * ROOM)
    features = np.zeros((room, packed.shape[1]), np.uint8)
    features[:k] = packed
    draw = {
        "features": features, "count": np.int64(k), "n_rows": np.int64(buffet.n_rows),
        "alpha": np.float64(hyper.alpha), "c": np.float64(hyper.c), "feature_sd": np.float64(hyper.feature_sd),
    }  # fmt: skip
    if buffet.n_columns:
        cells = np.zeros((room, buffet.n_columns))
        cells[:k] = buffet.totals.cells[there]
        draw |= {"noise_sd": hyper.noise_sd, "cells": cells}
    return draw


def _gathered(buffet: Buffet, slots: np.ndarray) -> np.ndarray | None:
    """Gather the features of these slots as bits of all rows, uint8 (K, ceil(N / 8)), on root. Collective.

    Eight features are sent at a time, one byte per row.
    """
    comm, n = buffet.comm, buffet.n_rows
    of_ranks = [cut.of_rank(buffet.n_shards, comm.size, rank) for rank in range(comm.size)]
    lengths = [int(buffet.starts[shards.stop] - buffet.starts[shards.start]) for shards in of_ranks]
    packed = np.zeros((len(slots), -(-n // 8)), np.uint8)
    for first in range(0, len(slots), 8):
        few = slots[first : first + 8].tolist()
        mine = np.zeros(lengths[comm.rank], np.uint8)
        at = 0
        for z in (shard.rows.z for shard in buffet.shards):
            for j, slot in enumerate(few):
                bit = z[:, slot // WORD] >> np.uint64(slot % WORD) & np.uint64(1)
                mine[at : at + len(z)] |= bit.astype(np.uint8) << np.uint8(j)
            at += len(z)
        everyone = comm.gather_to_root(mine, lengths)
        if comm.rank == 0:
            for j in range(len(few)):
                packed[first + j] = np.packbits(everyone >> np.uint8(j) & np.uint8(1))
    return packed if comm.rank == 0 else None


def last_draw(run_dir: str | Path, noise: str = "shared") -> Draw:
    """Return the last kept draw of a chain that has any; see `iterate_draws`."""
    cycle, _ = stored.last_draw(run_dir)
    return next(iterate_draws(run_dir, cycle, noise))


def iterate_draws(run_dir: str | Path, start_cycle: int = 0, noise: str = "shared") -> Iterator[Draw]:
    """Yield the kept draws of one chain with cycle >= start_cycle. noise: as configured. Raises CheckpointError."""
    for cycle, arrays in stored.iterate_draws(run_dir, start_cycle):
        k = int(arrays["count"])
        alpha, c, feature_sd = (float(arrays[name]) for name in ("alpha", "c", "feature_sd"))
        noise_sd, cells = arrays.get("noise_sd", np.zeros(0)), arrays.get("cells", np.zeros((k, 0)))
        hyper = Hyper(alpha, c, noise_sd, feature_sd, noise)
        yield Draw(cycle, int(arrays["n_rows"]), arrays["features"][:k].astype(np.uint8), hyper, cells[:k])


class Posterior(KeptChains):
    """Chains of one Indian buffet process on one table."""

    drawn = "features"

    def __init__(self, run_dirs: Sequence[str | Path], burn_in: int | None = None, table: str | Path | None = None):
        super().__init__(run_dirs, burn_in, table)
        config = self.chains[0].config
        model = config.of(keys.Model)
        self.likelihood, self.standardise, self.noise = model.likelihood, model.standardise, model.noise
        self.cells = Cells(self.data.columns if model.likelihood else (), model.standardise)

    @property
    def modelled(self) -> tuple[str, ...]:
        return super().modelled if self.likelihood else ()

    def contradicted(self) -> bool:
        from mpibayes.hpc.ibp.report.report import contradicted
        from mpibayes.hpc.posterior.scalars import summary_of

        self.read_traces()
        self.require_draws()
        return contradicted(len(self.chains), summary_of([c.later()["log_joint"] for c in self.chains]).r_hat)

    def states(self, requested: Sequence[tuple[int, int]] | None = None) -> Iterator[tuple[int, Draw]]:
        """Yield (chain number, draw) for each draw kept after burn-in, or for `requested` alone."""
        chosen = None if requested is None else set(requested)
        for i, chain in enumerate(self.chains):
            if chosen is not None and not any(c == i for c, _ in chosen):
                continue
            for draw in iterate_draws(chain.folder, chain.burn_in + 1, self.noise):
                if chosen is None or (i, draw.cycle) in chosen:
                    if draw.n_rows != self.n_rows:
                        raise DataError(
                            f"{chain.folder}: cycle {draw.cycle} has features of {draw.n_rows:,} rows, and there are "
                            f"{self.n_rows:,} training rows"
                        )
                    yield i, draw

    def draws(self, most: int) -> Iterator[Law]:
        """Yield at most `most` kept draws, evenly spaced, as laws of all columns."""
        for _, draw in self.states(evenly(self.kept(), most)):
            yield Law(self.cells, draw.new_row())
