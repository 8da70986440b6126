"""`mpibayes.pool`: one answer from the analyses of several completed copies of a table, by Rubin's rules, or of several
synthetic tables.

For a quantity with estimates q_1 ... q_M and variances u_1 ... u_M (Rubin 1987, section 3.1)

    q = mean q_m    U = mean u_m    B = sum (q_m - q)^2 / (M - 1)    T = U + (1 + 1/M) B

Degrees of freedom follow Barnard & Rubin (1999), with nu_com those of the complete data:

    lambda = (1 + 1/M) B / T    nu_old = (M - 1) / lambda^2
    nu_obs = (nu_com + 1) / (nu_com + 3) nu_com (1 - lambda)    nu = 1 / (1/nu_old + 1/nu_obs)

and the fraction of missing information is (r + 2 / (nu + 3)) / (1 + r), where r = (1 + 1/M) B / U.

For synthetic tables of k rows, each from its own draw of the parameters given n training rows (Raab, Nowok & Dibben
2016), with U the mean variance that treats the k rows as data:

    T = U (k/n + (1 + k/n) / M)

The sampling of the n rows, shared by all tables, contributes U k/n; in each table separately, the draw of the
parameters contributes as much, and the sampling of k rows U.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import stdtrit

from mpibayes.errors import ConfigError
from mpibayes.hpc.python.result import Result
from mpibayes.hpc.query.answer import Answer
from mpibayes.text import counted

EXPECTED = "expected an estimate of each copy and its variance, or a list of fitted models with params and cov_params()"


class Pooled(Result):
    """Pooled estimates, one line each; prints as a table, and has a `.frame`.

    estimate, se, df, low, high, fmi: its columns, (p,), or numbers if the estimates are numbers; se: standard error,
    df: degrees of freedom, low and high: the interval, fmi: fraction of missing information, NaN for synthetic tables.
    within, between: the mean variance U, and B.
    """

    def __init__(
        self, names: Sequence[str], values: dict[str, np.ndarray], n_copies: int, level: float, single: bool,
        what: str = "copies",
    ):  # fmt: skip
        numbers = {key: float(a[0]) if single else a for key, a in values.items()}
        self.estimate, self.se, self.df, self.low, self.high, self.fmi, self.within, self.between = numbers.values()
        shown = {key: values[key] for key in ("estimate", "se", "df", "low", "high", "fmi")}
        if np.isnan(shown["fmi"]).all():
            del shown["fmi"]
        title = f"Estimates of {n_copies} {what}, pooled; low to high: {100 * level:g} %"
        super().__init__(Answer(title, {"term": np.array(names, object), **shown}))


def pool(
    estimates: Any, variances: Any = None, n: int | None = None, dfcom: float | None = None, *, level: float = 0.95,
    synthetic: bool = False, k: int | None = None,
) -> Pooled:  # fmt: skip
    """Pool the results of one analysis on each of M completed copies (see the module for the rules).

    estimates: M numbers, or M vectors (M, p). variances: their squared standard errors, (M,) or (M, p), or covariance
    matrices (M, p, p). Or only estimates: M fitted models of statsmodels, or others with `params` and `cov_params()`.
    n: rows of a copy; dfcom: degrees of freedom of the complete data, by default n - 1, or a model's `df_resid`, else
    infinite. level: of the interval.

    synthetic: the copies are synthetic tables of k rows, by default n, and n is the number of training rows of the run.
    The rule holds for complete tables and analyses for which the model is adequate; not with merged levels (`rare`).
    One table suffices then.

    >>> pooled = pool([1.0, 3.0], [0.5, 0.5])
    >>> pooled.estimate, round(pooled.se, 3)
    (2.0, 1.871)

    Raises ConfigError.
    """
    if not 0.0 < level < 1.0:
        raise ConfigError(f"level = {level}: expected a number between 0 and 1")
    names: Sequence[str] | None
    if variances is None:
        estimates, variances, names, result = _of_models(estimates)
        dfcom = result if dfcom is None and n is None else dfcom
    else:
        names = _names(estimates)
    q, u = _numbers(estimates, "estimates"), _numbers(variances, "variances")
    if u.ndim == 3 and u.shape[1] == u.shape[2]:
        u = np.diagonal(u, axis1=1, axis2=2)
    single = q.ndim == 1
    if q.ndim > 2 or q.shape != u.shape:
        raise ConfigError(f"estimates of shape {q.shape} and variances of shape {u.shape} do not fit; {EXPECTED}")
    if len(q) < (1 if synthetic else 2):
        raise ConfigError(f"{counted(len(q), 'copy', 'copies')}: one says nothing about missing cells; pool 2 or more")
    if (u < 0.0).any():
        raise ConfigError("variances: one is below 0; expected squares of standard errors")
    q, u = (a[:, None] if single else a for a in (q, u))
    ratio = _ratio(n, k) if synthetic else None
    if k is not None and not synthetic:
        raise ConfigError(f"k = {k}: the rows of a synthetic table; give synthetic=True, too")
    nu_com = _complete(n, dfcom)
    if names is None or len(names) != q.shape[1]:
        names = ["estimate"] if single else [f"estimate {i}" for i in range(1, q.shape[1] + 1)]
    if ratio is not None:
        return Pooled(names, _of_synthetic(q, u, ratio, nu_com, level), len(q), level, single, "synthetic tables")
    return Pooled(names, _rules(q, u, nu_com, level), len(q), level, single)


def _rules(q: np.ndarray, u: np.ndarray, nu_com: float, level: float) -> dict[str, np.ndarray]:
    """Pool q, u (M, p) by Rubin's rules."""
    m, mean, within, between = len(q), q.mean(axis=0), u.mean(axis=0), q.var(axis=0, ddof=1)
    extra = (1.0 + 1.0 / m) * between
    total = within + extra
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(total > 0.0, extra / total, 0.0)
        observed = np.inf if np.isinf(nu_com) else (nu_com + 1.0) / (nu_com + 3.0) * nu_com * (1.0 - share)
        df = 1.0 / (share**2 / (m - 1.0) + 1.0 / observed)
        r = np.where(within > 0.0, extra / within, np.inf)
        fmi = np.where(np.isinf(r), 1.0, (r + 2.0 / (df + 3.0)) / (1.0 + r))
    se = np.sqrt(total)
    half = stdtrit(df, 0.5 + 0.5 * level) * se
    return {
        "estimate": mean, "se": se, "df": df, "low": mean - half, "high": mean + half, "fmi": fmi, "within": within,
        "between": between,
    }  # fmt: skip


def _of_synthetic(q: np.ndarray, u: np.ndarray, ratio: float, df: float, level: float) -> dict[str, np.ndarray]:
    """Pool q, u (M, p) of synthetic tables; ratio: k / n."""
    m, mean, within = len(q), q.mean(axis=0), u.mean(axis=0)
    se = np.sqrt(within * (ratio + (1.0 + ratio) / m))
    half = stdtrit(df, 0.5 + 0.5 * level) * se
    between = q.var(axis=0, ddof=1) if m > 1 else np.full(len(mean), np.nan)
    return {
        "estimate": mean, "se": se, "df": np.full(len(mean), df), "low": mean - half, "high": mean + half,
        "fmi": np.full(len(mean), np.nan), "within": within, "between": between,
    }  # fmt: skip


def _ratio(n: int | None, k: int | None) -> float:
    """Rows of a synthetic table per training row."""
    if n is None:
        raise ConfigError("synthetic tables: give n, the number of rows that the run was trained on")
    for name, value in (("n", n), ("k", k)):
        if value is not None and value < 2:
            raise ConfigError(f"{name} = {value}: expected a number of rows, 2 or more")
    return 1.0 if k is None else k / n


def _complete(n: int | None, dfcom: float | None) -> float:
    """Degrees of freedom of the complete data."""
    if dfcom is None:
        if n is None:
            return np.inf
        if n < 2:
            raise ConfigError(f"n = {n}: expected the number of rows of a copy, 2 or more")
        return float(n - 1)
    if not dfcom > 0.0:
        raise ConfigError(f"dfcom = {dfcom}: expected a number above 0")
    return float(dfcom)


def _numbers(values: Any, what: str) -> np.ndarray:
    try:
        result = np.array([np.asarray(value, float) for value in values], float)
    except (TypeError, ValueError):
        raise ConfigError(f"{what}: not numbers, or not as many of each copy; {EXPECTED}") from None
    if not np.isfinite(result).all():
        raise ConfigError(f"{what}: some are not finite; look at the analysis of each copy")
    return result


def _names(estimates: Any) -> list[str] | None:
    """Names of the estimates, if those of a copy are a pandas Series."""
    first = next(iter(estimates), None) if hasattr(estimates, "__iter__") else None
    index = getattr(first, "index", None)
    return None if index is None or callable(index) else [str(name) for name in index]


def _of_models(models: Any) -> tuple[list[Any], list[Any], list[str] | None, float | None]:
    """Estimates, covariance matrices, names, and degrees of freedom of fitted models."""
    models = list(models) if hasattr(models, "__iter__") else [models]
    for model in models:
        if not hasattr(model, "params") or not callable(getattr(model, "cov_params", None)):
            raise ConfigError(f"{type(model).__name__}: no fitted model, and no variances were given; {EXPECTED}")
    names = _names([model.params for model in models]) if models else None
    if any(_names([model.params]) != names for model in models):
        raise ConfigError("the models have different terms: fit the same one to each copy")
    if names is None and models:
        names = getattr(getattr(models[0], "model", None), "exog_names", None)
    df = [float(model.df_resid) for model in models if getattr(model, "df_resid", None) is not None]
    covariances = [np.asarray(model.cov_params()) for model in models]
    return [np.asarray(model.params) for model in models], covariances, names, min(df) if df else None
