"""What the Firefly benchmarks measure with: effective sample sizes, and the posterior in plain NumPy.

`spectral_ess` is `effectiveSize` of R's coda (Plummer et al. 2006), n var(x) / spectrum0.ar(x), which Maclaurin & Adams
(2014) used.
`bulk_ess` is ArviZ's (Vehtari et al. 2021): rank-normalised, of the two halves of the chain; the stricter one.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from firefly_tables import NU, Regression
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.special import gammaln, logsumexp

# --- effective samples -----------------------------------------------------------------------------------------------


def autocovariances(x: np.ndarray, n_lags: int) -> np.ndarray:
    """(n_lags + 1, P) autocovariances of the columns of x (n, P), divided by n."""
    n = len(x)
    size = 1 << (2 * n - 1).bit_length()
    out = np.empty((n_lags + 1, x.shape[1]))
    for j in range(x.shape[1]):
        power = np.abs(np.fft.rfft(x[:, j] - x[:, j].mean(), size)) ** 2
        out[:, j] = np.fft.irfft(power, size)[: n_lags + 1] / n
    return out


def spectral_ess(x: np.ndarray) -> np.ndarray:
    """Effective samples (P,) of the columns of x (n, P), by the spectral density at 0 of an autoregression.

    Yule-Walker fits of orders 0 to 10 log10 n, the one of least AIC, as `ar` in R. A column that never moves has 0.
    """
    x = np.asarray(x, float)
    n, p = x.shape
    order = min(n - 1, int(10 * np.log10(n)))
    r = autocovariances(x, order)
    moved = r[0] > 0
    r = np.where(moved, r, np.eye(order + 1)[:, :1])
    error = r[0].copy()
    phi = np.zeros((order + 1, p))
    best_aic = n * np.log(error)
    best = error * n / (n - 1)  # of the spectrum at 0: variance of the innovations / (1 - sum of coefficients)^2
    for k in range(1, order + 1):  # Levinson and Durbin
        reflection = (r[k] - (phi[1:k] * r[1:k][::-1]).sum(0)) / error
        phi[1:k] -= reflection * phi[1:k][::-1]
        phi[k] = reflection
        error = error * (1 - reflection**2)
        aic = n * np.log(error) + 2 * k
        spectrum = error * n / (n - (k + 1)) / (1 - phi.sum(0)) ** 2
        best, best_aic = np.where(aic < best_aic, spectrum, best), np.minimum(aic, best_aic)
    return np.where(moved, n * (r[0] * n / (n - 1)) / best, 0.0)


def bulk_ess(x: np.ndarray) -> np.ndarray:
    """Bulk effective samples (P,) of the columns of x (n, P); NaN for a column that never moves."""
    import arviz

    return np.array([float(arviz.ess(column[None], method="bulk")) for column in np.ascontiguousarray(x.T, float)])


def read_results(path: Path, numbers: Sequence[str]) -> list[dict]:
    """Lines of a CSV file of results, [] where there is none; the columns `numbers` as floats."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    return [line | {name: float(line[name] or "nan") for name in numbers} for line in lines]


# --- the posterior, in NumPy -----------------------------------------------------------------------------------------


def log_likelihood(
    table: Regression, x: np.ndarray, y: np.ndarray, theta: np.ndarray, scale: float = 1.0, gradient: bool = True
) -> tuple[float, np.ndarray | None]:
    """Sum over rows and its gradient (P,). theta (P,), for softmax (K, D) in row order; scale of the t errors."""
    if table.likelihood == "logistic":
        s = x @ theta
        value = (0.5 * y * s - 0.5 * np.abs(s) - np.log1p(np.exp(-np.abs(s)))).sum()
        weight = 0.5 * y - 0.5 * np.tanh(0.5 * s)
    elif table.likelihood == "softmax":
        eta = x @ theta.reshape(table.n_classes, -1).T
        log_sum = logsumexp(eta, axis=1)
        rows, classes = np.arange(len(y)), y.astype(int)
        value = (eta[rows, classes] - log_sum).sum()
        weight = -np.exp(eta - log_sum[:, None])
        weight[rows, classes] += 1
    else:
        r = (y - x @ theta) / scale
        constant = gammaln((NU + 1) / 2) - gammaln(NU / 2) - 0.5 * np.log(NU * np.pi) - np.log(scale)
        value = len(y) * constant - (NU + 1) / 2 * np.log1p(r**2 / NU).sum()
        weight = (NU + 1) * r / (NU + r**2) / scale
    return float(value), (x.T @ weight).T.ravel() if gradient else None


def log_prior(prior: str, scale: float, theta: np.ndarray) -> float:
    """Normalised log density of theta (..., P), independent coefficients."""
    if prior == "gaussian":
        return (-0.5 * (theta / scale) ** 2 - np.log(scale) - 0.5 * np.log(2 * np.pi)).sum(-1)
    return (-np.abs(theta) / scale - np.log(2 * scale)).sum(-1)


def posterior_mode(
    table: Regression, rows: tuple, prior: str, prior_scale: float, scale: float = 1.0, start: np.ndarray | None = None
) -> np.ndarray:
    """Maximum of the posterior (P,) by L-BFGS; |t| of the Laplace prior is sqrt(t^2 + 1e-6).

    The search is in coordinates in which the predictors are not correlated: descriptors of molecules nearly all are.
    """
    x, y = rows
    turn = np.linalg.cholesky(x.T @ x / len(x) + 1e-4 * np.eye(x.shape[1]))
    shape = table.n_classes, table.n_predictors

    def objective(u: np.ndarray) -> tuple[float, np.ndarray]:
        theta = solve_triangular(turn.T, u.reshape(shape).T).T.ravel()
        value, gradient = log_likelihood(table, x, y, theta, scale)
        if prior == "gaussian":
            value, gradient = value - 0.5 * (theta @ theta) / prior_scale**2, gradient - theta / prior_scale**2
        else:
            smooth = np.sqrt(theta**2 + 1e-6)
            value, gradient = value - smooth.sum() / prior_scale, gradient - theta / smooth / prior_scale
        return -value / len(y), -solve_triangular(turn, gradient.reshape(shape).T, lower=True).T.ravel() / len(y)

    start = np.zeros(shape) if start is None else start.reshape(shape)
    options = {"maxiter": 2000, "maxcor": 20, "ftol": 1e-13, "gtol": 1e-8}
    result = minimize(objective, (start @ turn).ravel(), jac=True, method="L-BFGS-B", options=options)
    return solve_triangular(turn.T, result.x.reshape(shape).T).T.ravel()


def chosen_scales(
    table: Regression, prior: str, widths: tuple[float, ...], errors: tuple[float, ...] = (1.0,)
) -> tuple[float, float, dict]:
    """Scale of the prior and scale of the errors that predict the held-out rows best, given the mode on the others.

    The errors' scale first, under the prior in the middle; then the prior's. Returns (prior scale, error scale,
    {(prior scale, error scale): log density a held-out row}).
    """
    x, y = table.part(0, table.n_training)
    x = x.astype(float)
    x_heldout, y_heldout = table.heldout[0].astype(float), table.heldout[1]
    score, theta = {}, None

    def attempt(width: float, error: float) -> None:
        nonlocal theta
        theta = posterior_mode(table, (x, y), prior, width, error, theta)
        score[width, error] = log_likelihood(table, x_heldout, y_heldout, theta, error, False)[0] / len(y_heldout)

    for error in errors:
        attempt(widths[len(widths) // 2], error)
    best = max(score, key=score.get)[1]
    for width in widths:
        attempt(width, best)
    width, error = max(score, key=score.get)
    return width, error, score
