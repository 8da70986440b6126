"""Summaries, predictive distributions and scores, against their definitions."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, log_softmax, softmax

from mpibayes.hpc.posterior.chains import family_in
from mpibayes.hpc.regression.design import Built, Design
from mpibayes.hpc.regression.draws import Posterior
from mpibayes.hpc.regression.law import Average
from mpibayes.hpc.regression.likelihoods import Logistic, Softmax, StudentT
from mpibayes.hpc.regression.prior import Prior
from mpibayes.hpc.regression.report import coefficients as coef
from mpibayes.hpc.regression.report.figures import autocorrelation
from mpibayes.hpc.regression.report.importance_check import affordable, importance_check
from mpibayes.hpc.regression.report.scoring import score
from mpibayes.hpc.regression.settings import Settings
from mpibayes.io.table import table_from_arrays
from tests.regression.report.runs import PREDICTORS, RESPONSE, customers


def design_of(likelihood, holes=False, **more):
    columns, rows = table_from_arrays(customers(holes=holes))
    settings = Settings(likelihood, RESPONSE[likelihood], PREDICTORS, **more)
    return Design.of(settings, columns), columns, rows


def test_a_summary_is_that_of_arviz():
    import arviz

    g = np.random.default_rng(1)
    draws = g.normal([0.0, 3.0, -1.0], [1.0, 0.1, 2.0], (2, 400, 3))
    draws[:, :, 2] = 0.5  # stands still
    s = coef.summarise(list(draws))
    for j in range(2):
        assert s.ess_bulk[j] == arviz.ess(draws[:, :, j], method="bulk")
        assert s.ess_tail[j] == arviz.ess(draws[:, :, j], method="tail")
        assert s.r_hat[j] == arviz.rhat(draws[:, :, j])
    assert np.isnan(s.ess_bulk[2]) and s.sd[2] == 0
    flat = draws.reshape(-1, 3)
    assert np.allclose(s.mean, flat.mean(axis=0)) and np.allclose(s.quantiles[1], np.median(flat, axis=0))
    assert s.away_from_zero.tolist() == [False, True, True]


def test_chains_of_different_lengths_and_few_draws():
    g = np.random.default_rng(2)
    s = coef.summarise([g.normal(size=(30, 2)), g.normal(size=(50, 2))])
    assert np.isfinite(s.ess_bulk).all() and np.isfinite(s.r_hat).all()
    few = coef.summarise([g.normal(size=(5, 2))])
    assert np.isnan(few.ess_bulk).all() and np.isfinite(few.mean).all()


@pytest.mark.parametrize("likelihood", ["logistic", "student-t"])
@pytest.mark.parametrize("missing", ["error", "indicator"])
def test_coefficients_in_the_tables_units_give_the_same_predictor(likelihood, missing):
    """x theta of the standardised design is that of the plain one, with the coefficients in the table's units."""
    design, _, rows = design_of(likelihood, holes=missing == "indicator", missing=missing)
    plain, *_ = design_of(likelihood, holes=missing == "indicator", missing=missing, standardise=False)
    theta = np.random.default_rng(3).normal(size=(1, design.n_predictors))
    x, raw = (d.build(rows, response=False).x[:, : d.n_predictors].astype(float) for d in (design, plain))
    eta = design.center + design.scale * (x @ theta[0])
    assert np.allclose(raw @ coef.in_original_units(theta, design)[0], eta, rtol=1e-4, atol=1e-3 * design.scale)
    assert np.array_equal(coef.in_original_units(theta, plain), theta)


def test_units_are_those_of_the_columns():
    design, columns, _ = design_of("logistic")
    scale = {c.name: c.scale for c in columns}
    reported = dict(zip(design.names, coef.units(design)))
    assert reported["age"] == scale["age"] and np.isnan(reported["(intercept)"]) and np.isnan(reported["smoker[yes]"])


def test_centred_coefficients_do_not_see_a_common_shift():
    theta = np.random.default_rng(4).normal(size=(20, 3, 5))
    shift = np.random.default_rng(5).normal(size=(20, 1, 5))
    assert np.allclose(coef.centred(theta + shift), coef.centred(theta))
    assert np.allclose(coef.centred(theta).sum(axis=1), 0)
    assert coef.centred(theta[:, :1]) is not None and np.array_equal(coef.centred(theta[:, :1]), theta[:, :1])


def test_the_important_ones_come_first():
    design, *_ = design_of("logistic")
    d = design.n_predictors
    mean, sd = np.zeros(d), np.ones(d)
    mean[3], mean[2], sd[2] = 2.0, 3.0, 9.0
    nothing = np.full(d, np.nan)
    s = coef.Summary(mean, sd, np.zeros((3, d)), nothing, nothing, nothing)
    assert coef.by_importance(s, design)[:3].tolist() == [0, 3, 2]


# --- predictive distributions -----------------------------------------------------------------------------------------

X = np.random.default_rng(6).normal(size=(40, 8)).astype(np.float32)


def average(likelihood, k=1, s=30, d=6):
    theta = np.random.default_rng(7).normal(size=(s, k, d))
    return Average(likelihood(d, k, 4.0, 0.7), theta)


def test_probabilities_of_two_classes():
    p = average(Logistic)
    eta = X[:, :6].astype(float) @ p.theta[:, 0].T
    assert np.allclose(p.linear(X)[..., 0], eta)
    reported = p.likelihood.probabilities(p.linear(X))
    assert np.allclose(reported[..., 1], expit(eta)) and np.allclose(reported.sum(axis=2), 1.0)
    y = np.where(np.arange(40) % 2, 1.0, -1.0)
    expected = np.log(np.where(y > 0, expit(eta).mean(axis=1), expit(-eta).mean(axis=1)))
    assert np.allclose(p.log_density(p.linear(X), y), expected)


def test_probabilities_of_three_classes():
    p = average(Softmax, k=3)
    eta = np.einsum("nd,skd->nsk", X[:, :6].astype(float), p.theta)
    assert np.allclose(p.likelihood.probabilities(p.linear(X)), softmax(eta, axis=2))
    y = (np.arange(40) % 3).astype(float)
    chosen = log_softmax(eta, axis=2)[np.arange(40), :, y.astype(int)]
    assert np.allclose(p.log_density(p.linear(X), y), np.log(np.exp(chosen).mean(axis=1)))


def test_a_mixture_of_t_distributions():
    p = average(StudentT)
    eta = p.linear(X)
    each = stats.t(4.0, loc=eta[..., 0], scale=0.7)
    y = np.linspace(-3, 3, 40)
    assert np.allclose(p.likelihood.cdf(eta, y), each.cdf(y[:, None]).mean(axis=1))
    assert np.allclose(p.log_density(eta, y), np.log(each.pdf(y[:, None]).mean(axis=1)))
    mean, sd = p.likelihood.moments(eta)
    assert np.allclose(mean, eta[..., 0].mean(axis=1))
    assert np.allclose(sd**2, eta[..., 0].var(axis=1) + 0.49 * 2.0)
    for level in (0.05, 0.5, 0.95, 1e-6):
        assert np.allclose(p.likelihood.cdf(eta, p.likelihood.quantile(eta, level)), level, rtol=1e-6)


def test_quantiles_of_draws_that_are_far_apart():
    """Newton's method alone would leave for infinity from between two narrow peaks."""
    likelihood = StudentT(1, 1, 3.0, 1e-3)
    p = Average(likelihood, np.array([[[-50.0]], [[70.0]], [[70.5]]]))
    eta = p.linear(np.ones((1, 8), np.float32))
    for level in (0.05, 0.33, 0.34, 0.5, 0.9):
        assert p.likelihood.cdf(eta, p.likelihood.quantile(eta, level)) == pytest.approx(level, abs=1e-6)
    assert np.isinf(StudentT(1, 1, 2.0, 1.0).moments(eta)[1]).all()


# --- scores -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [1, 4])
def test_scores_of_classes(pieces, monkeypatch):
    monkeypatch.setattr("mpibayes.hpc.regression.law.CELLS", 1000)
    design, _, rows = design_of("softmax")
    built = design.build(rows)
    g = np.random.default_rng(8)
    p = Average(Softmax(design.n_predictors, 3), g.normal(size=(20, 3, design.n_predictors)))
    parts = [Built(x, y, None) for x, y in zip(np.array_split(built.x, pieces), np.array_split(built.y, pieces))]
    s = score(parts, p, p.theta.mean(axis=0), design)
    mean = p.likelihood.probabilities(p.linear(built.x)).mean(axis=1)
    true = built.y.astype(int)
    assert s.n_rows == len(true) and s.n_draws == 20
    assert s.correct.value == pytest.approx((mean.argmax(axis=1) == true).mean())
    log_density = np.log(mean[np.arange(len(true)), true])
    assert s.log_density.value == pytest.approx(log_density.mean())
    assert s.log_density.error == pytest.approx(log_density.std(ddof=1) / np.sqrt(len(true)))
    assert s.by_class.tolist() == np.bincount(true).tolist() and s.by_frequency == s.by_class.max() / len(true)
    assert np.allclose(s.counts.sum(axis=1), len(true)) and np.allclose(s.seen.sum(axis=1), s.by_class)
    assert np.allclose(s.predicted.sum(axis=1), mean.sum(axis=0))


def test_scores_of_numbers_are_in_the_tables_units():
    design, columns, rows = design_of("student-t")
    built = design.build(rows)
    p = Average(StudentT(design.n_predictors, 1, 4.0, 0.4), np.zeros((5, 1, design.n_predictors)))
    s = score([built], p, np.zeros((1, design.n_predictors)), design)
    price = rows.reals[:, next(c.index for c in columns if c.name == "price")]
    assert s.rmse == pytest.approx(price.std(), rel=1e-5) and s.rmse_of_mean == pytest.approx(price.std(), rel=1e-5)
    assert s.absolute.value == pytest.approx(np.abs(price - price.mean()).mean(), rel=1e-5)
    each = stats.t(4.0, price.mean(), 0.4 * design.scale)
    assert s.log_density.value == pytest.approx(each.logpdf(price).mean(), rel=1e-6)
    assert s.at_mean.value == pytest.approx(s.log_density.value)
    inside = (each.cdf(price) >= 0.05) & (each.cdf(price) <= 0.95)
    assert s.covered.value == pytest.approx(inside.mean()) and s.places.sum() == len(price)


def test_nothing_to_score():
    design, *_ = design_of("softmax")
    p = Average(Softmax(design.n_predictors, 3), np.zeros((2, 3, design.n_predictors)))
    assert score([], p, p.theta[0], design) is None


# --- the check by importance sampling ---------------------------------------------------------------------------------


@pytest.mark.thorough
def test_importance_sampling_finds_a_wrong_chain(runs):
    assert family_in(runs["student-t"]) == "regression"
    run = Posterior([runs["student-t"]])
    run.read_traces()
    (draws,) = run.coefficients()
    draws = draws[:, 0]
    blocks = [(b.x, b.y) for b in run.blocks()]
    prior = Prior.of("gaussian", 2.5, run.design.n_parameters)

    def checked(theta):
        return importance_check(blocks, run.likelihood, prior, coef.summarise([theta]), 1000)

    sound = checked(draws)
    assert sound.trusted and sound.agrees and sound.n_effective > 500
    shifted = checked(draws + 0.5 * draws.std(axis=0) * (np.arange(draws.shape[1]) == 2))
    assert shifted.trusted and not shifted.agrees and shifted.mean_at == 2
    wide = checked(draws.mean(axis=0) + 1.5 * (draws - draws.mean(axis=0)))
    assert not wide.agrees and wide.sd_gap > wide.by_chance


def test_what_importance_sampling_costs():
    assert affordable(12_000, 56) == 1000 and affordable(1_000_000, 56) == 400
    assert affordable(10_000_000, 8) == 0 and affordable(1_500_000, 400) == 0


def test_autocorrelation_of_what_moves_and_what_does_not():
    x = np.random.default_rng(9).normal(size=4000)
    y = np.zeros(4000)
    for i in range(1, 4000):
        y[i] = 0.8 * y[i - 1] + x[i]
    assert autocorrelation(y)[:3] == pytest.approx([1.0, 0.8, 0.64], abs=0.05)
    assert autocorrelation(np.full(10, 2.0)).tolist() == [1.0, 0, 0, 0, 0]
