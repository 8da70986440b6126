"""What a mixture's run left behind, opened for reading: its chains, its training rows and its kept draws.

A kept draw is the labels of the training rows and the hyperparameters they were drawn under: labels (D, N), then
concentration and discount (D,), dirichlet (D, C), normal (D, R, 4), gamma (D, Q, 2) and wishart (D, B, 3), as
`io/draws.py` stores them. Everything else about its clusters is computed again from the table, read in slices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mpibayes.errors import DataError
from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.normal import Normal, merge_moments
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.keys import Model, priors
from mpibayes.hpc.crosscat.predictive import Predictive, ViewPredictive
from mpibayes.hpc.posterior.chains import KeptChains, evenly
from mpibayes.io import checkpoint
from mpibayes.io import draws as stored
from mpibayes.io.draws import FOLDER, DrawWriter
from mpibayes.io.files import Guard, unguarded
from mpibayes.io.rows import Rows
from mpibayes.io.segments import read_blocks

SLICE_ROWS = 65_536


@dataclass(frozen=True)
class Draw:
    """One kept draw."""

    cycle: int
    labels: np.ndarray  # int64 (N,), clusters as numbered in the run
    hyper: Hyper


def writer(folder: str | Path, run: str = "", guard: Guard = unguarded) -> DrawWriter:
    """Keeps draws: `append(cycle, labels=, concentration=, ...)`. run, guard: see `io.segments.Segments`."""
    return DrawWriter(folder, run, guard, whole=("labels",))


def iterate_draws(run_dir: str | Path, start_cycle: int = 0) -> Iterator[Draw]:
    """The kept draws of one chain with cycle >= start_cycle, one at a time. Raises CheckpointError."""
    return (_draw(*draw) for draw in stored.iterate_draws(run_dir, start_cycle))


def last_draw(run_dir: str | Path) -> Draw | None:
    """The last kept draw of one chain; None when there is none."""
    draw = stored.last_draw(run_dir)
    return None if draw is None else _draw(*draw)


def _draw(cycle: int, arrays: Mapping[str, np.ndarray]) -> Draw:
    given = dict(arrays)
    labels, alpha, d = (given.pop(name) for name in ("labels", "concentration", "discount"))
    return Draw(cycle, labels.astype(np.int64), Hyper(float(alpha), float(d), **given))


class Posterior(KeptChains):
    """Chains of one mixture on one table."""

    def __init__(self, run_dirs: Sequence[str | Path], burn_in: int | None = None, table: str | Path | None = None):
        super().__init__(run_dirs, burn_in, table)
        config = self.chains[0].config
        self.likelihood = config.of(Model).likelihood
        self.columns = self.data.columns if self.likelihood else ()
        self.components = Components(self.columns, priors(config), config.joint if self.likelihood else {})

    def slices(self) -> Iterator[tuple[int, Rows]]:
        """(first training row, Rows of the used columns), in order."""
        for start in range(0, self.n_rows, SLICE_ROWS):
            rows = self.data.rows_of(start, min(start + SLICE_ROWS, self.n_rows))
            if not self.likelihood:
                rows = rows.only(())
            yield start, rows

    def kept(self) -> list[tuple[int, int]]:
        """(number of the chain, cycle) of every kept draw after burn-in, chain by chain."""
        return [
            (i, int(cycle))
            for i, chain in enumerate(self.chains)
            for block in read_blocks(chain.folder / FOLDER, (), chain.burn_in, checkpoint.kept(chain.folder, FOLDER))
            for cycle in block["cycle"]
        ]

    def draws(self, most: int) -> Iterator[Predictive]:
        """At most so many kept draws, evenly spaced, as distributions over rows; their clusters take one pass over the
        table."""
        states = [draw for _, draw in self.states(evenly(self.kept(), most))]
        for draw, s in zip(states, self.statistics([draw.labels for draw in states]), strict=True):
            yield Predictive([ViewPredictive(self.components, draw.hyper, s)])

    def states(self, wanted: Sequence[tuple[int, int]] | None = None) -> Iterator[tuple[int, Draw]]:
        """(number of the chain, labels and hyperparameters) of the kept draws after burn-in, of `wanted` alone when
        given; one at a time.

        Labels are 0..K-1, none of them empty.
        """
        chosen = None if wanted is None else set(wanted)
        for i, chain in enumerate(self.chains):
            if chosen is not None and not any(c == i for c, _ in chosen):
                continue
            for draw in iterate_draws(chain.folder, chain.burn_in + 1):
                if chosen is None or (i, draw.cycle) in chosen:
                    if len(draw.labels) != self.n_rows:
                        raise DataError(
                            f"{chain.folder}: cycle {draw.cycle} has {len(draw.labels):,} labels for {self.n_rows:,} "
                            "training rows"
                        )
                    yield i, _without_gaps(draw)

    def statistics(self, partitions: Sequence[np.ndarray]) -> list[Statistics]:
        """Statistics of the clusters of each partition, (N,) labels 0..K-1, in one pass over the table."""
        from mpibayes.kernels import mixture as kernels

        offsets = self.components.categorical.offsets
        clusters = [int(z.max()) + 1 for z in partitions]
        totals: list[Statistics | None] = [None] * len(partitions)
        for start, rows in self.slices():
            for i, z in enumerate(partitions):
                part_z = np.ascontiguousarray(z[start : start + len(rows)], np.int32)
                part = Statistics(*kernels.accumulate(rows, part_z, clusters[i], offsets))
                totals[i] = part if totals[i] is None else self.components.union(totals[i], part)
        return totals

    def sample(self, most: int) -> Rows:
        """About `most` training rows, evenly spaced."""
        step = max(1, self.n_rows // most)
        return Rows.concatenate(
            self.columns, [r.take(np.arange(-start % step, len(r), step)) for start, r in self.slices()]
        )

    def histograms(self, z: np.ndarray, cuts: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Cells of the real and count columns by interval and cluster of the partition z, (len(cuts) + 1, K) int64,
        by name."""
        k = int(z.max()) + 1
        counts = {name: np.zeros((len(at) + 1, k), np.int64) for name, at in cuts.items()}
        numeric = [c for c in self.columns if c.name in cuts]
        for start, rows in self.slices() if numeric else ():
            part_z = z[start : start + len(rows)]
            for c in numeric:
                x = getattr(rows, c.block)[:, c.index]
                seen = ~np.isnan(x)
                cell = np.searchsorted(cuts[c.name], x[seen]) * k + part_z[seen]
                counts[c.name] += np.bincount(cell, minlength=counts[c.name].size).reshape(-1, k)
        return counts

    def moments(self, z: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Mean and sum of squares about it, (K,) each, of the observed cells of real and count columns in each
        cluster of z."""
        from mpibayes.kernels import mixture as kernels

        # counts are summarised here as real numbers: their squares are no statistic of the model, but of interest to
        # a reader
        numeric = [c for c in self.columns if not c.levels]
        k, total = int(z.max()) + 1, None
        for start, rows in self.slices() if numeric else ():
            n = len(rows)
            x = np.column_stack([getattr(rows, c.block)[:, c.index] for c in numeric])
            plain = replace(Rows.empty((), n), reals=np.ascontiguousarray(x))
            part_z = np.ascontiguousarray(z[start : start + n], np.int32)
            part = Statistics(*kernels.accumulate(plain, part_z, k, np.zeros(1, np.int64))).of(Normal)
            total = part if total is None else merge_moments(total, part)
        return {c.name: (total[1][i], total[2][i]) for i, c in enumerate(numeric)}


def _without_gaps(draw: Draw) -> Draw:
    used = np.bincount(draw.labels) > 0
    if used.all():
        return draw
    return replace(draw, labels=(np.cumsum(used) - 1)[draw.labels])
