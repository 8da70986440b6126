"""Settings of a Firefly chain, and the intervals that follow from them and from the forecast of bright rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.regression.cost import cost
from mpibayes.hpc.regression.problem import Problem

PROPOSED = 3.0  # dark rows that a sweep looks at per bright row
REFRESH_SHARE = 0.15  # forecast share of the time spent on steps on all rows
IN_BURN_IN = 20  # least number of these steps in burn-in
POSTERIOR_SHARE = 0.1  # share of the rows looked at that `log_posterior` may take


@dataclass(frozen=True)
class Settings:
    """Settings of a chain, besides the problem; section [firefly] of a configuration.

    burn_in: cycles in which step sizes and q are adapted. posterior_every: cycles between two sums over all rows for
    log_posterior; refresh: cycles between two steps on all rows; 0: none, None: chosen by cost. gather_limit: most
    bright rows sent to all ranks. wide: factor by which the spread of the first theta exceeds Laplace's approximation.
    thin: log_posterior is computed in cycles that are multiples of it.
    """

    seed: int = 0
    bounds: str = "tuned"
    theta_update: str = "hmc"
    z_update: str = "implicit"
    q: float | str = "auto"
    xi: float | None = None  # point where untuned bounds touch; None: the likelihood's default
    whiten: bool = True
    step_size: float | str = "auto"
    leapfrog_steps: int = 4
    init: str = "laplace"
    burn_in: int = 1000
    posterior_every: int | None = 0
    refresh: int | None = 0
    gather_limit: int = 1_000
    thin: int = 1
    wide: float = 1.0

    @property
    def firefly(self) -> bool:
        """True if there are bounds; without them every row is evaluated."""
        return self.bounds != "none"

    def summed_every(self, n_rows: int, predicted: float) -> int:
        """Return the cycles between two sums over all rows; 0: none. predicted: number of bright rows."""
        if not self.firefly or self.posterior_every == 0:
            return 0
        if self.posterior_every is not None:
            return self.posterior_every
        looked_at = (PROPOSED + 1.0 + self.leapfrog_steps) * max(predicted, 1.0)
        every = max(1, int(np.ceil(n_rows / (POSTERIOR_SHARE * looked_at))))
        every = min(every, max(100, self.burn_in // 4))  # ensure some values
        return -(-every // self.thin) * self.thin

    def refreshed_every(self, p: Problem, predicted: float, cycles: int) -> int:
        """Return the cycles between two steps on all rows; 0: none. predicted: number of bright rows; cycles: done."""
        if not self.firefly or self.refresh is not None:
            return (self.refresh or 0) if self.firefly else 0
        if self.theta_update != "hmc" or not self.whiten:
            return 0  # the sampler as published
        m = p.likelihood
        expected = cost(p.n_rows, predicted, m.n_predictors, m.n_classes, self.leapfrog_steps, PROPOSED, p.n_shards)
        every = max(2, int(np.ceil(expected.full_cycle_s / (REFRESH_SHARE * expected.firefly_cycle_s))))
        # burn-in needs some of these steps: their step size is adapted there, and they move the chain to the bulk
        return min(every, max(2, self.burn_in // IN_BURN_IN)) if cycles < self.burn_in else every
