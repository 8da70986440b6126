"""The estimators: they keep scikit-learn's rules, and say what the runs below them say."""

import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest

import mpibayes as mb

pytest.importorskip("sklearn")

from sklearn.utils.estimator_checks import parametrize_with_checks

from mpibayes.sklearn import BayesianClassifier, Mixture, Oddity, RobustRegressor


def two_groups(n=100, seed=0):
    g = np.random.default_rng(seed)
    return np.concatenate([g.normal(-4, 1, n), g.normal(3, 0.5, n)])[:, None]


@pytest.fixture(scope="module")
def mixture():
    return Mixture(cycles=200, random_state=0).fit(two_groups())


# Short chains: the checks are of the rules, not of the posterior. None is expected to fail.
@pytest.mark.thorough
@parametrize_with_checks(
    [
        Mixture(cycles=6, draws=3),
        Oddity(cycles=6, draws=3),
        BayesianClassifier(cycles=200),
        RobustRegressor(cycles=200),
    ]
)
def test_the_rules_of_scikit_learn(estimator, check):
    check(estimator)


def test_a_density_integrates_to_one_and_rows_are_drawn_from_it(mixture):
    """20,000 draws: a sound program fails once in a million seeds (5 standard errors of a share)."""
    grid = np.linspace(-60.0, 60.0, 12_001)
    density = np.exp(mixture.score_samples(grid[:, None]))
    assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-3)
    below, n = np.trapezoid(np.where(grid < 0, density, 0.0), grid), 20_000
    assert abs((mixture.sample(n, random_state=1) < 0).mean() - below) < 5 * np.sqrt(below * (1 - below) / n) + 1e-3


def test_clusters_are_those_of_the_groups(mixture):
    assert mixture.n_clusters_ == 2 and len(set(mixture.labels_[:100])) == 1 and set(mixture.labels_) == {0, 1}
    p = mixture.predict_proba([[-4.0], [3.0], [500.0], [np.nan]])
    assert np.allclose(p.sum(axis=1), 1.0) and p.shape == (4, 3)
    assert mixture.predict([[500.0]]) == -1  # of a cluster that was not there
    assert np.allclose(p[3, :2], 0.5, atol=0.05)  # nothing is known of it


def test_an_estimator_is_its_pickle(mixture):
    there = pickle.loads(pickle.dumps(mixture))
    x = two_groups(20, seed=3)
    assert np.array_equal(there.score_samples(x), mixture.score_samples(x))
    assert np.array_equal(there.sample(5, 1), mixture.sample(5, 1))


def test_temporary_folders_go_with_the_estimator():
    before = set(Path(tempfile.gettempdir()).glob("mpibayes-*"))
    fitted = RobustRegressor(cycles=50, random_state=0).fit(np.arange(20.0)[:, None], np.sin(np.arange(20.0)))
    folder = fitted.fitted_._folder
    assert folder not in before and (folder / "run" / "trace.h5").exists()
    del fitted
    assert not folder.exists()


def test_coefficients_are_in_the_units_of_the_data():
    """The prediction is linear in X, by the coefficients but for Monte Carlo error; outliers move it little."""
    g = np.random.default_rng(1)
    x = g.normal([5.0, -2.0], [3.0, 0.1], (300, 2))
    y = 7.0 + x @ [2.0, -30.0] + 0.5 * g.normal(size=300)
    y[::10] += 100.0
    fitted = RobustRegressor(cycles=1000, random_state=0, draws=1000).fit(x, y)
    assert fitted.coef_ == pytest.approx([2.0, -30.0], rel=0.05)
    assert fitted.predict(x) == pytest.approx(x @ fitted.coef_ + fitted.intercept_, abs=0.02)
    mean, sd = fitted.predict(x, return_std=True)
    assert sd.shape == mean.shape == (300,) and (sd > 0).all()
    # the same without outliers; least squares, which minds them, would be far off
    plain = np.linalg.lstsq(np.column_stack([np.ones(300), x]), y, rcond=None)[0]
    assert abs(plain[0] + plain[1:] @ [5.0, -2.0] - 77.0) > 5.0 > 20 * abs(fitted.predict([[5.0, -2.0]])[0] - 77.0)


def test_classes_are_told_as_by_the_mode():
    """Compare with the most probable coefficients under the same prior, from scikit-learn's own logistic regression."""
    from sklearn.linear_model import LogisticRegression

    g = np.random.default_rng(2)
    x = g.normal(size=(600, 2))
    y = np.where(g.random(600) < 1 / (1 + np.exp(-(1.0 + x @ [2.0, -1.0]))), "yes", "no")
    fitted = BayesianClassifier(cycles=1000, random_state=0).fit(x, y)
    mode = LogisticRegression(C=2.5**2).fit(x, y)
    assert list(fitted.classes_) == ["no", "yes"] and fitted.coef_ == pytest.approx(mode.coef_, rel=0.1)
    assert fitted.predict_proba(x) == pytest.approx(mode.predict_proba(x), abs=0.03)
    three = np.where(x[:, 0] > 0.8, "high", y)
    fitted = BayesianClassifier(cycles=400, random_state=0).fit(x, three)
    assert fitted.predict_proba(x).shape == (600, 3) and fitted.score(x, three) > 0.8


def test_what_cannot_be_fitted():
    with pytest.raises(ValueError, match="one class"):
        BayesianClassifier().fit([[1.0], [2.0]], ["a", "a"])
    with pytest.raises(ValueError, match="y is constant"):
        RobustRegressor().fit([[1.0], [2.0]], [3.0, 3.0])
    with pytest.raises(ValueError, match="no cell"):
        Mixture().fit(np.full((3, 2), np.nan))
    with pytest.raises(mb.ConfigError) as caught:
        Mixture(config={"run.cycels": 3}).fit(two_groups(5))
    assert "run.cycels" in str(caught.value) and tempfile.gettempdir() not in str(caught.value)


@pytest.mark.thorough
def test_categories_missing_cells_and_covariances(tmp_path):
    g = np.random.default_rng(4)
    x = np.column_stack([np.repeat([0.0, 7.0], 60), g.normal(np.repeat([-5.0, 5.0], 60)), g.normal(size=120)])
    x[g.random(x.shape) < 0.1] = np.nan
    fitted = Mixture(categorical=[0], cycles=100, random_state=0, directory=tmp_path / "m").fit(x)
    assert fitted.predict_proba([[0.0, np.nan, np.nan]]).max() > 0.9
    assert set(fitted.sample(50)[:, 0]) <= {0.0, 7.0}
    assert fitted.score_samples([[3.0, 0.0, 0.0]]) == fitted.score_samples([[np.nan, 0.0, 0.0]])  # no such level
    assert mb.open(tmp_path / "m" / "run").columns["x0"] == "categorical"
    z = g.multivariate_normal([0, 3], [[1, 0.9], [0.9, 1]], 400)
    full, diagonal = (Mixture(covariance=c, cycles=100, random_state=0).fit(z[:300]) for c in ("full", "diag"))
    assert full.score(z[300:]) > diagonal.score(z[300:]) and np.corrcoef(full.sample(2000).T)[0, 1] > 0.8
