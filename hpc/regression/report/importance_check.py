"""The chain checked against Laplace importance sampling, about a mode that is found anew."""

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
LOOKS = 400_000_000  # rows times draws, at most: some ten seconds
NUMBERS = 200_000_000  # of the rows in memory, at most: 800 MB
TRUSTED = 0.5  # Pareto k up to which the weighted draws are compared with the chain
NEARLY_ALL = 0.95
FEWEST_EFFECTIVE = 100  # draws of the chain's least effective coefficient: with fewer its own errors are not known
BY_CHANCE = 1e-3  # probability that sound chains are called wrong


@dataclass(frozen=True)
class ImportanceCheck:
    """n_draws, of which n_effective (Kish) count; pareto_k of the weights' tail. mean_gap, sd_gap: the largest
    difference from the chain's means and standard deviations, in standard errors, and where (place in (P,));
    by_chance: a largest difference that sound chains exceed with probability BY_CHANCE. chain_effective: draws of the
    chain's least effective coefficient."""

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
        return self.pareto_k <= TRUSTED or self.n_effective >= NEARLY_ALL * self.n_draws  # no tail worth a shape

    @property
    def agrees(self) -> bool:
        return not self.possible or max(self.mean_gap, self.sd_gap) <= self.by_chance


def affordable(n_rows: int, width: int) -> int:
    """Draws that this many rows allow; 0 where it would take too long, or too much memory."""
    n = min(DRAWS, LOOKS // max(n_rows, 1))
    return n if n >= FEWEST and n_rows * width <= NUMBERS else 0


def importance_check(
    blocks: Sequence[tuple[np.ndarray, np.ndarray]], likelihood: Likelihood, prior: Prior, chain: Summary, n_draws: int
) -> ImportanceCheck:
    """blocks: (x, y) of all training rows; chain: summary of the coefficients (P,), of several classes less their mean.

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
    # of a normal sample of n, the mean has an error of sd / sqrt(n), the standard deviation of sd / sqrt(2 n)
    gap = np.abs(chain.mean - mean) / np.hypot(chain.sd / np.sqrt(chain.ess_bulk), mean_error)
    fewer = np.minimum(chain.ess_bulk, chain.ess_tail)
    sd_gap = np.abs(chain.sd - sd) / np.hypot(chain.sd / np.sqrt(2.0 * fewer), sd_error)
    by_chance = float(-ndtri(BY_CHANCE / (4.0 * len(mean))))
    return ImportanceCheck(
        n_draws, w.n_effective, w.pareto_k, float(gap.max()), int(gap.argmax()), float(sd_gap.max()),
        int(sd_gap.argmax()), by_chance, w.log_evidence, float(np.min(fewer)),
    )  # fmt: skip


def weighted_mean(x: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean of x (J, P), whose weights (J,) add up to 1, and its standard error by the delta method (Geweke 1989)."""
    mean = (weight[:, None] * x).sum(axis=0)
    return mean, np.sqrt((weight[:, None] ** 2 * (x - mean) ** 2).sum(axis=0))
