"""Kept states of chains of variational inference.

A kept state holds the arrays of q by name (`gaussian.State`) and its bound over all rows. These are stages of a search,
not draws: the result of a run is the last state of its best chain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mpibayes.errors import ConfigError
from mpibayes.hpc.data.cells import Cells
from mpibayes.hpc.posterior.chains import Chain, KeptChains
from mpibayes.hpc.svi import keys
from mpibayes.hpc.svi.gaussian import State
from mpibayes.hpc.svi.likelihood import arrays_of, likelihood_of
from mpibayes.hpc.svi.predictive import Law, Predictive
from mpibayes.io.draws import iterate_draws, last_draw


@dataclass(frozen=True)
class Kept:
    """A kept state: the number of its chain, its cycle, and its bound in nats."""

    chain: int
    cycle: int
    q: State
    bound: float

    def law(self) -> Law:
        return Law.of(self.q)


def last_of(chains: Sequence[Chain]) -> list[tuple[int, int, dict]]:
    """(number of the chain, cycle, arrays) of the last kept state of each chain that has one. ConfigError where none
    has."""
    drawn = [(i, last_draw(chain.folder)) for i, chain in enumerate(chains)]
    last = [(i, *draw) for i, draw in drawn if draw is not None]
    if not last:
        raise ConfigError(f"{chains[0].home}: no state was kept yet; let the run go on, or lower output.kept")
    return last


class Posterior(KeptChains):
    """Chains of variational inference on one table."""

    def __init__(self, run_dirs: Sequence[str | Path], burn_in: int | None = None, table: str | Path | None = None):
        super().__init__(run_dirs, burn_in, table)
        self.config = self.chains[0].config
        self.cells = Cells(self.data.columns, self.config.of(keys.Model).standardise)
        self.model = likelihood_of(self.config, len(self.cells))

    def last(self) -> list[Kept]:
        """The last kept state of each chain that has one. ConfigError where none has."""
        return [self._kept(*draw) for draw in last_of(self.chains)]

    def best(self) -> Kept:
        """The kept state with the highest bound; the first one on ties."""
        return max(self.last(), key=lambda kept: kept.bound)

    def states(self, chain: int) -> Iterator[Kept]:
        """All kept states of a chain, one at a time."""
        for cycle, arrays in iterate_draws(self.chains[chain].folder):
            yield self._kept(chain, cycle, arrays)

    def draws(self, most: int) -> Iterator[Predictive]:
        """The best state, as a distribution over rows; one, whatever `most` is."""
        yield Predictive(self.cells, self.best().law())

    def _kept(self, chain: int, cycle: int, arrays: dict) -> Kept:
        names = arrays_of(self.model.first())
        return Kept(chain, cycle, State(**{name: arrays[name] for name in names}), float(arrays["bound"]))
