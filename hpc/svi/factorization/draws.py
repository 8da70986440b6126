"""Kept states of a factorization, like those of `hpc.svi.draws`, and its users on demand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.posterior.chains import KeptChains
from mpibayes.hpc.svi.draws import last_of
from mpibayes.hpc.svi.factorization.family import kind_of
from mpibayes.hpc.svi.factorization.model import Factorization, Fixed, State
from mpibayes.hpc.svi.factorization.predictive import Law
from mpibayes.hpc.svi.factorization.ratings import Ratings, split
from mpibayes.hpc.svi.likelihood import arrays_of


@dataclass(frozen=True)
class Kept:
    """A kept state: the number of its chain, its cycle, and its bound in nats."""

    chain: int
    cycle: int
    q: State
    bound: float


class Posterior(KeptChains):
    """Chains of a factorization of one table. model: without what only training needs."""

    def __init__(self, run_dirs: Sequence[str | Path], burn_in: int | None = None, table: str | Path | None = None):
        super().__init__(run_dirs, burn_in, table)
        self.config = self.chains[0].config
        kind, j = kind_of(self.config), self.table.n_columns
        self.model = Factorization(kind.rank, kind.biased, j, Fixed(1.0, 1.0), kind.learn, 0.0, np.ones(j, bool))

    def last(self) -> list[Kept]:
        """The last kept state of each chain that has one. ConfigError where none has."""
        return [self._kept(*draw) for draw in last_of(self.chains)]

    def best(self) -> Kept:
        """The kept state with the highest bound; the first one on ties."""
        return max(self.last(), key=lambda kept: kept.bound)

    def draws(self, most: int) -> Iterator:
        """Refused. Raises ConfigError."""
        raise ConfigError(f"{self.chains[0].home}: a factorization has no draws that could be asked")

    def law(self, kept: Kept) -> Law:
        return Law.of(self.model, kept.q)

    def ratings(self, numbers: np.ndarray) -> tuple[Ratings, Ratings]:
        """Training and held-out ratings of the users with these numbers (ascending)."""
        train, out = split(self.data.at(numbers), numbers, self.table.n_columns, self.config.data.heldout)
        return Ratings.of(train), Ratings.of(out)

    def _kept(self, chain: int, cycle: int, arrays: dict) -> Kept:
        names = arrays_of(self.model.first())
        q = State(**{name: np.ascontiguousarray(arrays[name]) for name in names})
        return Kept(chain, cycle, q, float(arrays["bound"]))
