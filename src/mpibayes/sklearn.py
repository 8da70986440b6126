"""Estimators for scikit-learn: a mixture with an unknown number of clusters, a finder of odd rows (`Oddity`), a
classifier and a robust regressor.

    from mpibayes.sklearn import Mixture

    mixture = Mixture(cycles=500, random_state=0).fit(x)
    mixture.predict(x), mixture.score(x_new)

Each fits a chain of a few seconds in this process, with the samplers of `mpibayes run`, and predicts by averages over
kept draws. They suit tables that take a minute in a notebook; `mpibayes.fit` is for larger ones, with all types of
columns. Needs the extra `sklearn`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from sklearn.base import ClassifierMixin, DensityMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from mpibayes.hpc.python.estimator import InProcessEstimator
from mpibayes.hpc.python.in_process import Columns, Fitted
from mpibayes.hpc.python.oddity import Oddity

__all__ = ["BayesianClassifier", "Mixture", "Oddity", "RobustRegressor"]

RESPONSE = "y"
EXACT = 1e-3  # scale of the t distribution, in deviations of y, if the predictors determine y exactly: it has no mode


def _exact(x: np.ndarray, y: np.ndarray) -> bool:
    """True if y is a linear function of x up to rounding, on enough rows to decide."""
    if len(x) < x.shape[1] + 3:
        return False
    design = np.column_stack([np.ones(len(x)), x - x.mean(axis=0)])
    residual = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    return bool(np.abs(residual).max() <= 1e-6 * np.std(y))


class Mixture(DensityMixin, InProcessEstimator):  # type: ignore[misc, unused-ignore]
    """Dirichlet process mixture: an inferred number of clusters, for numbers and categories with missing cells.

    Parameters
    ----------
    categorical : which columns are categories, as indices; the others are numbers. NaN is a missing cell in both.
    covariance : "diag", columns independent within a cluster; "full", numbers with one covariance per cluster (2 to 64
        columns, all or none of them missing in a row).
    cycles, chains : length of a chain, whose first half is left out; number of independent chains.
    draws : maximal number of kept draws to average over.
    config : further keys of the configuration, {"model.discount": "learn"}.
    directory : where the run is kept, to continue it and for `mpibayes.open`; by default in a temporary place.
    random_state : int, RandomState or None.

    Attributes
    ----------
    labels_ : (n,) int64, `predict` of the training rows.
    n_clusters_ : clusters of the partition that represents the posterior (`mpibayes report`).
    n_features_in_, feature_names_in_ : as in every estimator.

    Source: docs/math.md 2.1 and 2.6.
    """

    def __init__(
        self,
        *,
        categorical: Sequence[int] = (),
        covariance: Literal["diag", "full"] = "diag",
        cycles: int = 500,
        chains: int = 1,
        draws: int = 50,
        config: Mapping[str, Any] | None = None,
        directory: Any = None,
        random_state: Any = None,
    ) -> None:
        self.categorical = categorical
        self.covariance = covariance
        super().__init__(cycles, chains, draws, config, directory, random_state)

    def fit(self, X: Any, y: Any = None) -> Mixture:
        """Fit to X (n, features): numbers; in categorical columns each distinct number is a level. y is ignored."""
        x = self._checked(X, reset=True)
        of_levels = {range(x.shape[1])[i] for i in self.categorical}
        self._levels = {i: np.unique(x[~np.isnan(x[:, i]), i]) for i in sorted(of_levels)}
        names = self._columns(x)
        # a column without cells is uninformative, and tables cannot have one
        self._used = [i for i in range(x.shape[1]) if not np.isnan(x[:, i]).all()]
        if not self._used:
            raise ValueError("X has no cell that is not missing")
        cells = self._cells(x)
        columns: Columns = [
            (names[i], "categorical" if i in of_levels else "real", cells[names[i]], self._names_of(i))
            for i in self._used
        ]
        settings = self._settings(
            model={"family": "mixture"}, run={"burn_in": self.cycles // 2}, output={"labels": self._thin()}
        )
        reals = [names[i] for i in self._used if i not in of_levels]
        if self.covariance == "full" and len(reals) > 1:
            settings["blocks.all"] = {"columns": reals}
        elif self.covariance not in ("diag", "full"):
            raise ValueError(f"covariance={self.covariance!r}: expected 'diag' or 'full'")
        self.fitted_ = Fitted(columns, settings, self.draws, self.directory, probabilities=True)
        self.labels_ = self._most_probable(self._shares(x))
        self.n_clusters_ = self._n_clusters
        return self

    def _thin(self) -> int:
        """Cycles between two kept draws, so that no more are kept than used."""
        return max(1, self.cycles // 2 * self.chains // max(1, self.draws))

    def _checked(self, X: Any, reset: bool) -> np.ndarray:
        return np.asarray(
            validate_data(
                self, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=1 + reset
            )
        )

    def _names_of(self, i: int) -> list[str] | None:
        return [f"{v:.17g}" for v in self._levels[i]] if i in self._levels else None

    def _cells(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """Cells by column, with level codes for categories; a level not seen in training is missing."""
        cells = {}
        for i, name in enumerate(self._columns(x)):
            cells[name] = x[:, i]
            if i in self._levels:
                levels = self._levels[i]
                code = np.minimum(np.searchsorted(levels, x[:, i]), max(len(levels) - 1, 0))
                cells[name] = np.where(levels[code] == x[:, i], code, -1) if len(levels) else np.full(len(x), -1)
        return cells

    def _predicted(self, x: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
        return self.fitted_.predict(self._cells(x), len(x))

    def _shares(self, x: np.ndarray) -> np.ndarray:
        predicted, _ = self._predicted(x)
        self._n_clusters = sum(name.startswith("p_") and name[2:].isdigit() for name in predicted)
        return np.column_stack([*(predicted[f"p_{k + 1}"] for k in range(self._n_clusters)), predicted["p_new"]])

    def predict(self, X: Any) -> np.ndarray:
        """Most probable cluster of each row, (n,) int64: 0 to n_clusters_ - 1, -1 for a new cluster."""
        return self._most_probable(self.predict_proba(X))

    def _most_probable(self, shares: np.ndarray) -> np.ndarray:
        best = shares.argmax(axis=1)
        return np.where(best == shares.shape[1] - 1, -1, best)

    def fit_predict(self, X: Any, y: Any = None) -> np.ndarray:
        """Fit, and return the clusters of the same rows."""
        return self.fit(X).predict(X)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each cluster, followed by that of a new one, (n, n_clusters_ + 1)."""
        check_is_fitted(self)
        return np.asarray(self._shares(self._checked(X, reset=False)), np.float64)

    def score_samples(self, X: Any) -> np.ndarray:
        """Log density of each row's observed cells in nats, (n,), in the units of the columns."""
        check_is_fitted(self)
        return self._predicted(self._checked(X, reset=False))[1]

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log density of the rows."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draw rows (n_samples, features) from the posterior predictive distribution; random_state: by default the
        estimator's."""
        check_is_fitted(self)
        if n_samples < 1:
            raise ValueError(f"n_samples={n_samples}: expected 1 or more")
        state = self.random_state if random_state is None else random_state
        drawn = self.fitted_.simulate(n_samples, int(check_random_state(state).randint(2**31 - 1)))
        sample = np.full((n_samples, self.n_features_in_), np.nan)
        for i, name in enumerate(self._columns(sample)):
            if name in drawn:
                sample[:, i] = self._levels[i][drawn[name].astype(np.int64)] if i in self._levels else drawn[name]
        return sample

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


class _Regression(InProcessEstimator):
    """Regression of one column on all others, by Firefly Monte Carlo."""

    prior: str
    prior_scale: float | None

    def _fit(self, x: np.ndarray, response: tuple[str, str, np.ndarray, Sequence[str] | None], likelihood: str,
             **more: Any) -> None:  # fmt: skip
        names = self._columns(x)
        # a constant predictor adds nothing to the intercept
        self._used = [i for i in range(x.shape[1]) if x[:, i].min() < x[:, i].max()]
        columns: Columns = [*((names[i], "real", x[:, i], None) for i in self._used), response]
        regression = {"response": RESPONSE, "prior": self.prior, "prior_scale": self.prior_scale, **more}
        settings = self._settings(
            model={"family": "regression", "likelihood": likelihood},
            run={"burn_in": self.cycles // 2},
            regression={name: value for name, value in regression.items() if value is not None},
        )
        self.fitted_ = Fitted(columns, settings, self.draws, self.directory)

    def _predicted(self, X: Any) -> dict[str, np.ndarray]:
        check_is_fitted(self)
        x = np.asarray(validate_data(self, X, reset=False, dtype=np.float64))
        return self.fitted_.predict(dict(zip(self._columns(x), x.T)), len(x))[0]

    def _coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        """Posterior means of the coefficients (K, features) and intercepts (K,), in the units of X and y."""
        run = self.fitted_.posterior
        theta = np.concatenate(run.coefficients()).mean(axis=0) * run.design.scale  # (K, D), the intercept first
        terms = [term.column for term in run.design.terms]
        center, scale = (np.array([getattr(c, name) for c in terms]) for name in ("center", "scale"))
        slopes = np.zeros((len(theta), self.n_features_in_))
        slopes[:, self._used] = theta[:, 1:] / scale
        return slopes, theta[:, 0] + run.design.center - (theta[:, 1:] / scale) @ center


class BayesianClassifier(ClassifierMixin, _Regression):  # type: ignore[misc, unused-ignore]
    """Logistic regression of two classes, softmax regression of more, by Firefly Monte Carlo.

    Parameters
    ----------
    prior, prior_scale : "gaussian" or "laplace", and its scale, in standard deviations of the predictors.
    cycles, chains, draws, config, directory, random_state : as in `Mixture`; half of the cycles are left out.

    Attributes
    ----------
    classes_ : (K,). coef_, intercept_ : posterior means, (1 or K, features) and (1 or K,), in the units of X.
    n_features_in_, feature_names_in_ : as in every estimator.

    Source: docs/firefly.md.
    """

    def __init__(
        self,
        *,
        prior: Literal["gaussian", "laplace"] = "gaussian",
        prior_scale: float | None = 2.5,
        cycles: int = 2000,
        chains: int = 1,
        draws: int = 200,
        config: Mapping[str, Any] | None = None,
        directory: Any = None,
        random_state: Any = None,
    ) -> None:
        self.prior = prior
        self.prior_scale = prior_scale
        super().__init__(cycles, chains, draws, config, directory, random_state)

    def fit(self, X: Any, y: Any) -> BayesianClassifier:
        """Fit to X (n, features), y (n,) with at least two classes."""
        x, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        n = len(self.classes_)
        if n < 2:
            raise ValueError(f"y has one class, {self.classes_[0]!r}; a classifier needs two or more")
        response = (RESPONSE, "categorical", codes, [str(k) for k in range(n)])
        self._fit(np.asarray(x), response, "logistic" if n == 2 else "softmax")
        self.coef_, self.intercept_ = self._coefficients()
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class, averaged over draws, (n, K)."""
        predicted = self._predicted(X)
        if len(self.classes_) == 2:
            p = np.asarray(predicted["p_1"], np.float64)
            return np.column_stack([1.0 - p, p])
        p = np.column_stack([predicted[f"p_{k}"] for k in range(len(self.classes_))]).astype(np.float64)
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def predict(self, X: Any) -> np.ndarray:
        """Most probable class of each row, (n,)."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])


class RobustRegressor(RegressorMixin, _Regression):  # type: ignore[misc, unused-ignore]
    """Linear regression with Student t errors, robust to outliers, by Firefly Monte Carlo.

    Parameters
    ----------
    prior, prior_scale : "gaussian" or "laplace", and its scale, in standard deviations of predictors and response.
    degrees_of_freedom : of the t distribution; if small, outliers count little.
    scale : of the t distribution, in standard deviations of y; "auto": the most probable, which needs more rows than
        columns.
    cycles, chains, draws, config, directory, random_state : as in `Mixture`; half of the cycles are left out.

    Attributes
    ----------
    coef_, intercept_ : posterior means, (features,) and a number, in the units of X and y.
    n_features_in_, feature_names_in_ : as in every estimator.

    Source: docs/firefly.md.
    """

    def __init__(
        self,
        *,
        prior: Literal["gaussian", "laplace"] = "gaussian",
        prior_scale: float | None = 2.5,
        degrees_of_freedom: float = 4.0,
        scale: float | Literal["auto"] = "auto",
        cycles: int = 2000,
        chains: int = 1,
        draws: int = 200,
        config: Mapping[str, Any] | None = None,
        directory: Any = None,
        random_state: Any = None,
    ) -> None:
        self.prior = prior
        self.prior_scale = prior_scale
        self.degrees_of_freedom = degrees_of_freedom
        self.scale = scale
        super().__init__(cycles, chains, draws, config, directory, random_state)

    def fit(self, X: Any, y: Any) -> RobustRegressor:
        """Fit to X (n, features), y (n,) of numbers that are not all equal."""
        x, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2, y_numeric=True)
        y = np.asarray(y, np.float64)
        if y.min() == y.max():
            raise ValueError(f"y is constant ({y[0]:g}): there is nothing to regress")
        scale = EXACT if self.scale == "auto" and _exact(x, y) else self.scale
        more = {"degrees_of_freedom": self.degrees_of_freedom, "scale": scale}
        self._fit(np.asarray(x), (RESPONSE, "real", y, None), "student-t", **more)
        slopes, intercepts = self._coefficients()
        self.coef_, self.intercept_ = slopes[0], float(intercepts[0])
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Mean of the predictive distribution of each row, (n,); with return_std, its standard deviation, too."""
        predicted = self._predicted(X)
        mean = np.asarray(predicted["mean"], np.float64)
        return (mean, np.asarray(predicted["sd"], np.float64)) if return_std else mean
