"""Held-out cells: cells of the training rows that the sampler treats as missing, and their scores (docs/math.md 7.11).

A draw predicts a cell with loadings integrated out, given the features of all rows and all other cells of the column,
missing ones as drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.data.cells import Cells
from mpibayes.hpc.data.rows import Data, heldout_cells
from mpibayes.hpc.ibp.chain import Buffet
from mpibayes.hpc.ibp.features import Features
from mpibayes.hpc.ibp.heldout import by_shard
from mpibayes.hpc.ibp.state import WORD
from mpibayes.hpc.parallel.comm import Communicator


@dataclass
class Withheld:
    """Withheld cells of one shard. rows (m,): the rows that have any. at, column, value (n,): each cell's index in
    `rows`, its column, and its value. log_sum, mean_sum (n,): log of the sum of its densities over averaged draws, and
    the sum of its predictive means."""

    rows: np.ndarray
    at: np.ndarray
    column: np.ndarray
    value: np.ndarray
    log_sum: np.ndarray
    mean_sum: np.ndarray


class HeldOutCells:
    """Scores of withheld cells, a fraction of all. `parts`: one per shard, once the chain has read its rows."""

    def __init__(self, comm: Communicator, data: Data, cells: Cells, fraction: float):
        self.comm, self.data, self.cells, self.fraction = comm, data, cells, fraction
        self.parts: list[Withheld] = []
        self.n_draws = 0

    def hide(self, start: int, x: np.ndarray) -> np.ndarray:
        """Return cells (n, D) of training rows start.. with NaN for the withheld ones, and record these as the next
        shard's."""
        hidden = mask(self.data, self.cells, self.fraction, start, x)
        row, column = np.nonzero(hidden)
        rows, at = np.unique(row, return_inverse=True)
        n = len(row)
        self.parts.append(Withheld(rows, at, column, x[row, column], np.full(n, -np.inf), np.zeros(n)))
        return np.where(hidden, np.nan, x)

    def count(self) -> None:
        """Count the held-out cells on all ranks. Collective."""
        total = np.array([sum(len(part.value) for part in self.parts)])
        self.comm.sum_everywhere(total)
        self.n_cells = int(total[0])

    def score(self, buffet: Buffet, law: Features, average: bool) -> tuple[float, float, float]:
        """Mean log density of a cell, in the table's units, under the current draw and under the average of the draws
        so far; and the root mean squared error of the averaged means, in standard deviations of the columns.

        Collective; valid on root. law: of the draw, known to all ranks. average: True if it joins the average.
        """
        self.n_draws += average
        sums = np.zeros((len(self.parts), 3))
        unit = self.cells.scale / np.array([c.scale for c in self.cells.columns])
        for line, shard, part in zip(sums, buffet.shards, self.parts):
            mean, sd = predicted(buffet, law, shard, part)
            log = -0.5 * np.log(2.0 * np.pi) - np.log(sd) - 0.5 * ((part.value - mean) / sd) ** 2
            log -= self.cells.log_scale[part.column]
            if average:
                part.log_sum, part.mean_sum = np.logaddexp(part.log_sum, log), part.mean_sum + mean
            error = (part.mean_sum / max(1, self.n_draws) - part.value) * unit[part.column]
            line[:] = log.sum(), part.log_sum.sum(), (error**2).sum()
        everyone = by_shard(self.comm, sums, buffet.n_shards)
        if self.comm.rank != 0:
            return np.nan, np.nan, np.nan
        now, averaged, square = (sum(everyone[:, j].tolist()) / max(1, self.n_cells) for j in range(3))
        return (now, averaged - np.log(self.n_draws), np.sqrt(square)) if self.n_draws else (now, np.nan, np.nan)


def mask(data: Data, cells: Cells, fraction: float, start: int, x: np.ndarray) -> np.ndarray:
    """Mask of the withheld cells among the observed ones of training rows start.., bool (n, D)."""
    numbers = data.numbers_of(start, start + len(x))
    return heldout_cells([c.name for c in cells.columns], numbers, fraction) & ~np.isnan(x)


def predicted(buffet: Buffet, law: Features, shard, part: Withheld) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation (n,) of each cell given all others, in the model's units.

    The law's loadings are given all cells, including the drawn value of this one, whose contribution is removed.
    """
    slots = buffet.slots[buffet.totals.owned > 0]
    z = shard.rows.z
    has = [(z[part.rows, i // WORD] >> np.uint64(i % WORD) & np.uint64(1)).astype(np.float64) for i in slots.tolist()]
    has = np.array(has).reshape(len(slots), len(part.rows))
    leverage = (np.einsum("kl,ln->kn", law.spread, has) * has).sum(axis=0)[part.at]
    mean = np.zeros(len(part.at))
    for owners, loadings in zip(has, law.means):
        mean += owners[part.at] * loadings[part.column]
    drawn = shard.rows.x[part.rows[part.at], part.column]
    rest = 1.0 - leverage
    return mean - leverage / rest * (drawn - mean), law.noise_sd[part.column] / np.sqrt(rest)
