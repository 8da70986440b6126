"""Kept states of a factorization, like those of `hpc.svi.draws`, and its users on demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from mpibayes.hpc.svi.draws import Approximation, Kept
from mpibayes.hpc.svi.factorization.family import kind_of
from mpibayes.hpc.svi.factorization.law import Law
from mpibayes.hpc.svi.factorization.model import Factorization, Fixed, State
from mpibayes.hpc.svi.factorization.ratings import Ratings, split
from mpibayes.hpc.svi.likelihood import arrays_of


class Posterior(Approximation):
    """Chains of a factorization of one table. model: without the parts that only training needs."""

    no_questions = (
        "queries are about columns of rows, and a factorization has users and items; `mpibayes predict` has the "
        "ratings of pairs, and recommendations"
    )

    def __init__(self, run_dirs: Sequence[str | Path], burn_in: int | None = None, table: str | Path | None = None):
        super().__init__(run_dirs, burn_in, table)
        kind, j = kind_of(self.config), self.table.n_columns
        self.model = Factorization(kind.rank, kind.biased, j, Fixed(1.0, 1.0), kind.learn, 0.0, np.ones(j, bool))

    def state(self, arrays: Mapping[str, np.ndarray]) -> State:
        return State(**{name: np.ascontiguousarray(arrays[name]) for name in arrays_of(self.model.first())})

    def law(self, kept: Kept) -> Law:
        return Law.of(self.model, kept.q)

    def ratings(self, numbers: np.ndarray) -> tuple[Ratings, Ratings]:
        """Training and held-out ratings of the users with these numbers (ascending)."""
        train, out = split(self.data.at(numbers), numbers, self.table.n_columns, self.config.data.heldout)
        return Ratings.of(train), Ratings.of(out)
