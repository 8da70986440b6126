"""Kept states of latent Dirichlet allocation, like those of `hpc.svi.draws`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.posterior.chains import KeptChains
from mpibayes.hpc.svi.draws import last_of
from mpibayes.hpc.svi.lda import keys
from mpibayes.hpc.svi.lda.family import settings_of
from mpibayes.hpc.svi.lda.local import SAMPLED
from mpibayes.hpc.svi.lda.model import State
from mpibayes.hpc.svi.lda.predictive import Law


@dataclass(frozen=True)
class Kept:
    """A kept state: the number of its chain, its cycle, and its bound in nats."""

    chain: int
    cycle: int
    q: State
    bound: float


class Posterior(KeptChains):
    """Chains of latent Dirichlet allocation on one table."""

    def __init__(self, run_dirs: Sequence[str | Path], burn_in: int | None = None, table: str | Path | None = None):
        super().__init__(run_dirs, burn_in, table)
        self.config = self.chains[0].config

    @property
    def eta(self) -> float:
        return self.config.of(keys.Model).eta

    def last(self) -> list[Kept]:
        """The last kept state of each chain that has one. ConfigError where none has."""
        return [
            Kept(chain, cycle, State(*(np.ascontiguousarray(arrays[name]) for name in ("lam", "alpha"))),
                 float(arrays["bound"]))
            for chain, cycle, arrays in last_of(self.chains)
        ]  # fmt: skip

    def best(self) -> Kept:
        """The kept state with the highest bound; the first one on ties."""
        return max(self.last(), key=lambda kept: kept.bound)

    def draws(self, most: int) -> Iterator:
        """Refused. Raises ConfigError."""
        raise ConfigError(f"{self.chains[0].home}: topics have no draws that could be asked")

    def law(self, kept: Kept) -> Law:
        """The topics, and how they are found in documents: as in the run, by cvb0 where that sampled them."""
        kind = settings_of(self.config).then
        return Law.of(kept.q, self.eta, "cvb0" if kind == SAMPLED else kind)
