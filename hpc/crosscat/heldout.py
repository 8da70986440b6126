"""Held-out log predictive density, for each draw and averaged over draws (docs/math.md 2.6).

    p(x) = sum_k (m_k - d) / (N + alpha) f(x | rows of k) + (alpha + K d) / (N + alpha) f_H(x)

All clusters, private or instantiated, are collapsed here: weights and parameters are integrated out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.hpc.crosscat.law import Density
from mpibayes.hpc.crosscat.laws.view_density import densities
from mpibayes.hpc.crosscat.view.view import View
from mpibayes.hpc.data.rows import HeldOutRows
from mpibayes.hpc.links.coding import Coding
from mpibayes.hpc.outcome.answers import Answers
from mpibayes.hpc.parallel import shards
from mpibayes.hpc.parallel.comm import Communicator

if TYPE_CHECKING:
    from mpibayes.hpc.outcome.outcome import Outcome


class HeldOut:
    """Scores of the held-out rows. `log_sums[i]` (rows of block i,): log of the sum of p(x) over averaged draws."""

    def __init__(self, comm: Communicator, rows: HeldOutRows, answers: Mapping[int, Answers] | None = None):
        """answers: the rows' outcomes by block, if there is one; scores then include it."""
        self.comm, self.rows, self.answers = comm, rows, answers
        self.n_draws = 0
        self.log_sums = {i: np.full(len(block), -np.inf) for i, block in rows.blocks.items()}

    def score(
        self,
        views: Sequence[View],
        places: Sequence[Mapping] | None,
        average: bool,
        codings: Sequence[Coding] | None = None,
        outcome: Outcome | None = None,
        view: int = 0,
    ) -> tuple[float, float]:
        """Return the mean log density per held-out row under the present draw, and under the average of draws so far.

        Collective; valid on root. places: see `Density`. average: True to include this draw in the average.
        codings: links of each view. outcome: of the chain; view: the view that has it.
        """
        parts = densities(views, codings or [None] * len(views), self.n_draws)
        draw = Density(parts, places)
        self.n_draws += average
        sums = np.zeros((len(self.rows.blocks), 2))
        for row, (i, block) in enumerate(sorted(self.rows.blocks.items())):
            if outcome is not None and self.answers is not None:
                terms = parts[view].log_terms(draw.rows_of(view, block))
                log_density = outcome.now.log_density(terms, self.answers[i])
                log_density += draw.log_density_without(view, block)
            else:
                log_density = draw.log_density(block)
            if average:
                self.log_sums[i] = np.logaddexp(self.log_sums[i], log_density)
            sums[row] = log_density.sum(), self.log_sums[i].sum()
        n_blocks, ranks = views[0].n_shards, self.comm.size
        everyone = self.comm.gather_to_root(sums, [len(shards.of_rank(n_blocks, ranks, r)) for r in range(ranks)])
        if self.comm.rank != 0:
            return np.nan, np.nan
        now, averaged = (sum(everyone[:, j].tolist()) / self.rows.n_rows for j in (0, 1))
        return now, averaged - np.log(self.n_draws) if self.n_draws else np.nan
