"""Seconds per effective draw of Firefly and of HMC on all rows, predicted from the bright count.

Both are HMC in whitened coordinates on one core. The constants were measured with tuned bounds, 1,000 to 400,000 rows
and 11 to 96 coefficients, for all three likelihoods (AVX-512, two shared cores). There the ratio of medians was right
to a factor of two; with a handful of coefficients Firefly is several times faster than predicted.
"""

from __future__ import annotations

from dataclasses import dataclass

CLASS_S = 8e-9  # a row's likelihood and gradient: exponentials, per class
CELL_S = 0.28e-9  # plus this per predictor and class, in rows padded to multiples of 8
QUADRATIC_S = 0.5e-9  # bounds and whitening per evaluation, per squared number of coefficients
FETCH_S = 60e-9  # cache miss for a row that a sweep of z looks at
CYCLE_S = 1e-6  # the rest of a cycle
SHARD_S = 2e-6  # plus this per shard
FULL_CYCLES = 0.4  # cycles of HMC on all rows per effective draw of the median coefficient: draws are antithetic
# Firefly's z moves slowly where many rows are bright: 4 to 7 cycles at 5 to 18 bright rows, 24 at 300
FIREFLY_CYCLES = (3.0, 1.3)  # a constant, and a coefficient of the root of the bright count
WORTH_IT = 1.5  # below this ratio the simpler sampler is advised


@dataclass(frozen=True)
class Cost:
    """Cost of Firefly and of HMC on all rows. firefly_s, full_s: seconds per effective draw of the median coefficient,
    on one core; firefly_cycle_s, full_cycle_s: seconds per cycle."""

    firefly_s: float
    full_s: float
    firefly_cycle_s: float
    full_cycle_s: float

    @property
    def speed_up(self) -> float:
        return self.full_s / self.firefly_s

    @property
    def advises_full(self) -> bool:
        """True if HMC on all rows is about as fast as Firefly or faster."""
        return self.speed_up < WORTH_IT


def cost(
    n_rows: int,
    n_bright: float,
    n_predictors: int,
    n_classes: int = 1,
    leapfrog_steps: int = 4,
    q_factor: float = 3.0,
    n_shards: int = 1,
) -> Cost:
    """Return the expected cost with n_bright bright rows. q_factor: q as a multiple of the bright share."""
    width, n_evaluations = -(-n_predictors // 8) * 8, leapfrog_steps + 1
    row_s = n_classes * (CLASS_S + CELL_S * width)
    quadratic_s = QUADRATIC_S * (n_classes * n_predictors) ** 2
    looked_at = min(q_factor * n_bright, n_rows)
    cycle_s = (
        n_evaluations * (n_bright * row_s + quadratic_s) + looked_at * (row_s + FETCH_S) + CYCLE_S + SHARD_S * n_shards
    )
    constant, slope = FIREFLY_CYCLES
    full_cycle_s = n_evaluations * (n_rows * row_s + quadratic_s)
    return Cost((constant + slope * n_bright**0.5) * cycle_s, FULL_CYCLES * full_cycle_s, cycle_s, full_cycle_s)
