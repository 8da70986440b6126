"""Summaries of the coefficients' posterior: pure functions of draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.posterior.scalars import MOST_R_HAT, quiet_arviz
from mpibayes.hpc.regression.design import INTERCEPT, Design

LEVELS = (0.05, 0.5, 0.95)
FEWEST = 8  # fewest draws of a chain that can be judged


@dataclass(frozen=True)
class Summary:
    """Summary of P quantities over all chains: mean, sd (P,), quantiles (3, P) at LEVELS; ess_bulk, ess_tail, r_hat
    (P,) as in ArviZ, NaN if there are too few draws or the quantity is constant; r_hat is at most MOST_R_HAT."""

    mean: np.ndarray
    sd: np.ndarray
    quantiles: np.ndarray
    ess_bulk: np.ndarray
    ess_tail: np.ndarray
    r_hat: np.ndarray

    def __len__(self) -> int:
        return len(self.mean)

    @property
    def standing_out(self) -> np.ndarray:
        """Distance of the mean from 0 in posterior standard deviations, (P,)."""
        return np.abs(self.mean) / np.where(self.sd > 0, self.sd, np.finfo(float).tiny)

    @property
    def away_from_zero(self) -> np.ndarray:
        """Mask of the coefficients whose 5 to 95 % interval excludes 0, (P,) bool."""
        return (self.quantiles[0] > 0) | (self.quantiles[2] < 0)


def summarise(chains: Sequence[np.ndarray], judged: bool = True) -> Summary:
    """Summarise draws (n, P) of each chain. ESS and R-hat use the last draws of each chain, equally many. judged: False
    to skip these, which take most of the time."""
    draws = np.concatenate(chains)
    mean, quantiles = draws.mean(axis=0), np.quantile(draws, LEVELS, axis=0)
    sd = draws.std(axis=0, ddof=1) if len(draws) > 1 else np.full(len(mean), np.nan)
    n = min(len(c) for c in chains)
    together = np.stack([c[len(c) - n :] for c in chains])
    moving = np.ptp(draws, axis=0) > 0
    sd[~moving] = 0.0  # removes rounding
    diagnostics = np.full((3, len(mean)), np.nan)
    if judged and n >= FEWEST:
        for j in np.flatnonzero(moving):
            diagnostics[:, j] = diagnose(together[:, :, j])
    return Summary(mean, sd, quantiles, *diagnostics)


def diagnose(draws: np.ndarray) -> tuple[float, float, float]:
    """Effective sample size of the bulk and of the tails, and R-hat, of draws (C, n); for one chain from its halves."""
    arviz = quiet_arviz()
    halves = draws if len(draws) > 1 else draws[:, draws.shape[1] % 2 :].reshape(2, -1)
    with np.errstate(divide="ignore", invalid="ignore"):  # a chain, or half, that never moved
        r_hat = min(float(arviz.rhat(halves)), MOST_R_HAT)
        return float(arviz.ess(draws, method="bulk")), float(arviz.ess(draws, method="tail")), r_hat


def centred(theta: np.ndarray) -> np.ndarray:
    """Coefficients of the classes minus their mean over classes, (..., K, D), which adding a vector to all of them does
    not change; theta itself if there is one class."""
    return theta if theta.shape[-2] == 1 else theta - theta.mean(axis=-2, keepdims=True)


def original_units(design: Design) -> np.ndarray:
    """Matrix T (D + 1, D): [theta, 1] T are the coefficients of predictors, and response, in the table's units.

    With x = (v - c) / s, and y = (w - c_y) / s_y: w = c_y + s_y sum_j theta_j x_j.
    """
    d = design.n_predictors
    t = np.zeros((d + 1, d))
    t[np.arange(d), np.arange(d)] = design.scale
    intercept = 0 if design.intercept else None
    if intercept is not None:
        t[d, intercept] = design.center
    for term in design.terms:
        if term.numeric and design.standardise:
            t[term.first, term.first] /= term.column.scale
            if intercept is not None:
                t[term.first, intercept] = -design.scale * term.column.center / term.column.scale
    return t


def in_original_units(theta: np.ndarray, design: Design) -> np.ndarray:
    """Convert draws (..., D) to the table's own units (dropping the constant that a standardised design without an
    intercept has there)."""
    t = original_units(design)
    return theta @ t[:-1] + t[-1]


def units(design: Design) -> np.ndarray:
    """Size of one unit of each predictor in the table's own units, (D,); NaN if the column is not numeric."""
    width = np.full(design.n_predictors, np.nan)
    for term in design.terms:
        if term.numeric:
            width[term.first] = term.column.scale if design.standardise else 1.0
    return width


def by_importance(summary: Summary, design: Design) -> np.ndarray:
    """Indices of the flattened coefficients (K, D), intercepts first, then those that stand out most."""
    later = np.tile([name != INTERCEPT for name in design.names], design.n_classes)
    return np.lexsort((-np.nan_to_num(summary.standing_out), later))
