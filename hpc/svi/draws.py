"""Kept states of chains of variational inference.

A kept state holds the arrays of q by name (`gaussian.State`) and its bound over all rows. These are stages of a search,
not draws: the result of a run is the last state of its best chain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.data.cells import Cells
from mpibayes.hpc.posterior.chains import KeptChains
from mpibayes.hpc.svi import keys
from mpibayes.hpc.svi.gaussian import State
from mpibayes.hpc.svi.law import Law, Students
from mpibayes.hpc.svi.likelihood import arrays_of, likelihood_of
from mpibayes.io.draws import iterate_draws, last_draw


@dataclass(frozen=True)
class Kept:
    """A kept state: the number of its chain, its cycle, and its bound in nats."""

    chain: int
    cycle: int
    q: State
    bound: float


class Approximation(KeptChains):
    """Chains of variational inference on one table. Their kept states are not draws."""

    no_questions: str = (
        "queries are answered from draws of a posterior, and this approximation has none; `mpibayes predict` has the "
        "log densities of new rows, their components and missing cells"
    )

    def __init__(self, run_dirs: Sequence[str | Path], burn_in: int | None = None, table: str | Path | None = None):
        super().__init__(run_dirs, burn_in, table)
        self.config = self.chains[0].config

    def state(self, arrays: Mapping[str, np.ndarray]) -> State:
        """Rebuild a state from the arrays of a kept state."""
        raise NotImplementedError

    def last(self) -> list[Kept]:
        """Return the last kept state of each chain that has one. Raises ConfigError if none has."""
        drawn = [(i, last_draw(chain.folder)) for i, chain in enumerate(self.chains)]
        last = [self._kept(i, *draw) for i, draw in drawn if draw is not None]
        if not last:
            raise ConfigError(f"{self.chains[0].home}: no state was kept yet; continue the run, or lower output.kept")
        return last

    def best(self) -> Kept:
        """Return the kept state with the highest bound; the first one on ties."""
        return max(self.last(), key=lambda kept: kept.bound)

    def place(self, kept: Kept) -> str:
        """Describe the cycle and the bound of a kept state in words."""
        return f"cycle {kept.cycle:,} of {self.chains[kept.chain].folder}, bound {kept.bound:,.1f}"

    def _kept(self, chain: int, cycle: int, arrays: Mapping[str, np.ndarray]) -> Kept:
        return Kept(chain, cycle, self.state(arrays), float(arrays["bound"]))


class Posterior(Approximation):
    """Chains of a finite mixture."""

    def __init__(self, run_dirs: Sequence[str | Path], burn_in: int | None = None, table: str | Path | None = None):
        super().__init__(run_dirs, burn_in, table)
        self.cells = Cells(self.data.columns, self.config.of(keys.Model).standardise)
        self.model = likelihood_of(self.config, len(self.cells))

    def state(self, arrays: Mapping[str, np.ndarray]) -> State:
        return State(**{name: arrays[name] for name in arrays_of(self.model.first())})

    def states(self, chain: int) -> Iterator[Kept]:
        """Yield all kept states of a chain."""
        for cycle, arrays in iterate_draws(self.chains[chain].folder):
            yield self._kept(chain, cycle, arrays)

    def law(self, kept: Kept) -> Law:
        """Convert a kept state to a distribution over rows."""
        return Law(self.cells, Students.of(kept.q))

    def draws(self, most: int) -> Iterator[Law]:
        """Yield the best state alone, whatever `most` is."""
        yield self.law(self.best())
