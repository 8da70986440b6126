"""Hyperparameters and loadings given the features of all rows, on root (docs/math.md 7.1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg.lapack import dtrtrs
from scipy.special import digamma, gammaln, logsumexp

from mpibayes.hpc.ibp.state import Gamma, Hyper, InverseGamma, Settings, Totals


def harmonic(n: int, c: float) -> float:
    """H = sum over rows of c / (c + i - 1): expected number of features per unit of mass."""
    return float(c * (digamma(c + n) - digamma(c)))


def log_prior(owned: np.ndarray, n: int, alpha: float, c: float) -> float:
    """Log probability of features in a given order, owned by these numbers of rows; weights integrated out."""
    m = owned[owned > 0]
    each = np.log(alpha * c) + gammaln(m) + gammaln(n - m + c) - gammaln(n + c)
    return float(each.sum() - gammaln(len(m) + 1.0) - alpha * harmonic(n, c))


def log_likelihood(totals: Totals, n: int, hyper: Hyper) -> float:
    """Log density of all cells, with loadings integrated out."""
    k, (variance, ratio) = len(totals.owned), _scales(hyper)
    log_det, fit = 0.0, 0.0
    if k:
        low = np.linalg.cholesky(totals.together + np.eye(k) / ratio)
        log_det = 2.0 * np.log(np.diag(low)).sum() + k * np.log(ratio)
        fit = (dtrtrs(low, totals.cells, lower=1)[0] ** 2).sum(axis=0)
    d = len(variance)
    each = -0.5 * n * np.log(2.0 * np.pi * variance) - 0.5 * (totals.squares - fit) / variance
    return float(each.sum() - 0.5 * d * log_det)


def _scales(hyper: Hyper) -> tuple[np.ndarray, float]:
    """Return the noise variance of each column, and the variance of a loading relative to it."""
    return hyper.noise_sd**2, prior_variance(hyper)


def prior_variance(hyper: Hyper) -> float:
    """Prior variance of a loading relative to its column's noise variance: one number for all columns (docs/math.md
    7.4)."""
    shared = hyper.noise == "shared" and len(hyper.noise_sd)  # without a likelihood there are no columns
    return float(hyper.feature_sd**2 / (hyper.noise_sd[0] ** 2 if shared else 1.0))


def weight_shapes(owned: np.ndarray, n: int, c: float) -> tuple[np.ndarray, np.ndarray]:
    """Two parameters of the Beta law of each instantiated feature's weight, given its number of rows."""
    return owned, n - owned + c


def loadings(totals: Totals, hyper: Hyper, stream: np.random.Generator) -> np.ndarray:
    """Draw the loadings A, (K, D), given the rows."""
    k, d = totals.cells.shape
    normals = stream.standard_normal((k, d))
    if k == 0 or d == 0:
        return normals
    variance, ratio = _scales(hyper)
    low = np.linalg.cholesky(totals.together + np.eye(k) / ratio)
    half = dtrtrs(low, totals.cells, lower=1)[0]
    return dtrtrs(low, half + normals * np.sqrt(variance), lower=1, trans=1)[0]


def learn(
    settings: Settings, totals: Totals, n: int, hyper: Hyper, law: np.random.Generator, scale: np.random.Generator
) -> tuple[Hyper, np.ndarray]:
    """Draw hyperparameters and loadings, one after another given the features: c, alpha, A, noise, sd of the loadings.

    c and alpha are drawn with the weights integrated out, so the weights come after. The variances are drawn given A,
    which stays fixed: two Gibbs steps. totals.owned must not contain 0 (docs/math.md 7.4).
    """
    owned, k = totals.owned, len(totals.owned)
    c, alpha = settings.c, settings.alpha
    if isinstance(c, Sequence):
        logs = np.array([_log_of_c(settings, owned, n, float(value), hyper.alpha) for value in c])
        c = float(law.choice(np.asarray(c, np.float64), p=np.exp(logs - logsumexp(logs))))
    if isinstance(alpha, Gamma):
        alpha = float(law.gamma(alpha.shape + k) / (alpha.rate + harmonic(n, c)))
    hyper = Hyper(alpha, c, hyper.noise_sd, hyper.feature_sd, hyper.noise)
    a = loadings(totals, hyper, scale)
    d = a.shape[1]
    if isinstance(settings.noise_sd, InverseGamma):
        left = totals.squares - 2.0 * (a * totals.cells).sum(axis=0) + np.einsum("kd,kl,ld->d", a, totals.together, a)
        left = np.maximum(left, 0.0)
        prior = settings.noise_sd
        if settings.noise == "shared":
            drawn = (prior.scale + 0.5 * left.sum()) / scale.gamma(prior.shape + 0.5 * n * d)
            hyper.noise_sd = np.full(d, np.sqrt(drawn))
        else:  # loadings are in units of the noise, and so inform it too
            left = left + (a**2).sum(axis=0) / hyper.feature_sd**2
            drawn = (prior.scale + 0.5 * left) / scale.gamma(prior.shape + 0.5 * (n + k), size=d)
            hyper.noise_sd = np.sqrt(drawn)
    if isinstance(settings.feature_sd, InverseGamma):
        prior = settings.feature_sd
        unit = 1.0 if settings.noise == "shared" else hyper.noise_sd
        drawn = (prior.scale + 0.5 * ((a / unit) ** 2).sum()) / scale.gamma(prior.shape + 0.5 * k * d)
        hyper.feature_sd = float(np.sqrt(drawn))
    return hyper, a


def _log_of_c(settings: Settings, owned: np.ndarray, n: int, c: float, alpha: float) -> float:
    """Log of p(c | features) up to a constant, with a learned mass integrated out."""
    m, k, h = owned, len(owned), harmonic(n, c)
    each = np.log(c) + gammaln(m) + gammaln(n - m + c) - gammaln(n + c)
    if isinstance(settings.alpha, Gamma):
        return float(each.sum() - (settings.alpha.shape + k) * np.log(settings.alpha.rate + h))
    return float(each.sum() - alpha * h)
