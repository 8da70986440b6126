"""Check of the chain against Laplace importance sampling, about a mode found anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.regression.likelihoods import Likelihood
from mpibayes.hpc.regression.mode.fit import fit
from mpibayes.hpc.regression.mode.importance import importance_sample
from mpibayes.hpc.regression.prior import Prior
from mpibayes.hpc.regression.report.coefficients import Summary, centred

DRAWS, FEWEST = 1000, 200
LOOKS = 400_000_000  # most rows times draws: some ten seconds
NUMBERS = 200_000_000  # most numbers of the rows in memory: 800 MB
TRUSTED = 0.5  # Pareto k up to which the weighted draws are compared with the chain
NEARLY_ALL = 0.95
FEWEST_EFFECTIVE = 100  # least effective draws of every coefficient: with fewer the chain's own errors are unknown
BY_CHANCE = 1e-3  # probability of calling sound chains wrong


@dataclass(frozen=True)
class ImportanceCheck:
    """n_draws and n_effective: draws, and their Kish effective number. pareto_k: of the weights' tail. mean_gap,
    sd_gap: largest difference from the chain's means and standard deviations, in standard errors, and its index in
    (P,). by_chance: a largest difference that sound chains exceed with probability BY_CHANCE. chain_effective:
    effective draws of the chain's worst coefficient."""

    n_draws: int
    n_effective: float
    pareto_k: float
    mean_gap: float
    mean_at: int
    sd_gap: float
    sd_at: int
    by_chance: float
    log_evidence: float
    chain_effective: float

    @property
    def possible(self) -> bool:
        """True if the chain has enough effective draws for a comparison."""
        return self.chain_effective >= FEWEST_EFFECTIVE

    @property
    def trusted(self) -> bool:
        return self.pareto_k <= TRUSTED or self.n_effective >= NEARLY_ALL * self.n_draws  # no tail worth fitting

    @property
    def agrees(self) -> bool:
        return not self.possible or max(self.mean_gap, self.sd_gap) <= self.by_chance


def affordable(n_rows: int, width: int) -> int:
    """Affordable draws for this many rows; 0 if it would take too long, or too much memory."""
    n = min(DRAWS, LOOKS // max(n_rows, 1))
    return n if n >= FEWEST and n_rows * width <= NUMBERS else 0


def importance_check(
    blocks: Sequence[tuple[np.ndarray, np.ndarray]], likelihood: Likelihood, prior: Prior, chain: Summary, n_draws: int
) -> ImportanceCheck:
    """Compare the chain with importance sampling. blocks: (x, y) of all training rows. chain: summary of the
    coefficients (P,), with several classes minus their mean.

    Raises NumericalError without a mode.
    """
    m = likelihood
    rows = [(i, m.rows(x, y)) for i, (x, y) in enumerate(blocks)]
    fitted = fit(serial(), rows, len(rows), prior, likelihood=m)
    w = importance_sample(serial(), rows, len(rows), fitted, prior, n_draws)
    theta = centred(w.draws.reshape(n_draws, m.n_classes, -1)).reshape(n_draws, -1)
    mean, mean_error = weighted_mean(theta, w.weight)
    variance, variance_error = weighted_mean((theta - mean) ** 2, w.weight)
    sd, sd_error = np.sqrt(variance), variance_error / (2.0 * np.sqrt(variance))
    # for a normal sample of size n, the mean has an error of sd / sqrt(n), the standard deviation of sd / sqrt(2 n)
    gap = np.abs(chain.mean - mean) / np.hypot(chain.sd / np.sqrt(chain.ess_bulk), mean_error)
    fewer = np.minimum(chain.ess_bulk, chain.ess_tail)
    sd_gap = np.abs(chain.sd - sd) / np.hypot(chain.sd / np.sqrt(2.0 * fewer), sd_error)
    by_chance = float(-ndtri(BY_CHANCE / (4.0 * len(mean))))
    return ImportanceCheck(
        n_draws, w.n_effective, w.pareto_k, float(gap.max()), int(gap.argmax()), float(sd_gap.max()),
        int(sd_gap.argmax()), by_chance, w.log_evidence, float(np.min(fewer)),
    )  # fmt: skip


def weighted_mean(x: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean of x (J, P) with weights (J,) that sum to 1, and its standard error by the delta method (Geweke 1989)."""
    mean = (weight[:, None] * x).sum(axis=0)
    return mean, np.sqrt((weight[:, None] ** 2 * (x - mean) ** 2).sum(axis=0))
