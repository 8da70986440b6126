"""One draw of a regression as a law of its response: `simulate` has the law that `log_density` says."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from mpibayes.errors import ConfigError
from mpibayes.hpc.data.events import known_of
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.hpc.posterior.asked import plain
from mpibayes.hpc.regression.design import Design
from mpibayes.hpc.regression.law import Average, Law
from mpibayes.hpc.regression.likelihoods import LIKELIHOODS, Logistic, Softmax, StudentT
from mpibayes.hpc.regression.settings import Settings
from mpibayes.io.table import table_from_arrays

FALSE_ALARM = 1e-6  # of each test of a law; wrong laws are rejected at a thousandth of it
ROWS, COPIES = 5, 4000
STREAM = Stream(11, Purpose.CELLS, 0)
RESPONSE = {"logistic": "sick", "softmax": "job", "student-t": "cost"}


def patients(holes=False):
    """(columns, rows) of 60 patients."""
    g = np.random.default_rng(3)
    age, smoker = g.normal(50, 9, 60), g.integers(0, 2, 60)
    if holes:
        age[:4], smoker[4] = np.nan, -1
    return table_from_arrays(
        [
            ("age", "real", age, None),
            ("smoker", "boolean", smoker, ["no", "yes"]),
            ("sick", "boolean", g.integers(0, 2, 60), ["no", "yes"]),
            ("job", "categorical", g.integers(0, 3, 60), ["cook", "smith", "vet"]),
            ("cost", "real", 200 + 30 * g.standard_t(4, 60), None),
        ]
    )


def one_draw(name, kind=None, holes=False, **more):
    """(a law, the rows of the table); kind: of another likelihood than the name says."""
    columns, rows = patients(holes)
    design = Design.of(Settings(name, RESPONSE[name], ("age", "smoker"), **more), columns)
    likelihood = (kind or design.likelihood)(design.n_predictors, design.n_classes, 4.0, 0.6)
    theta = np.random.default_rng(4).normal(size=(design.n_classes, design.n_predictors))
    return Law(design, likelihood, theta, [plain(c) for c in columns]), rows


def cells(rows, column):
    return getattr(rows, column.block)[:, column.index]


def simulated(draw: Law, rows, name, first=0):
    """Values of a column given what the rows have."""
    return draw.simulate(known_of(rows, draw.columns), {name}, STREAM, first + np.arange(len(rows)))[name]


def p_value(draw: Law, rows) -> float:
    """p-value of simulated responses of a few rows, each simulated many times, under exp(log_density) of every
    response."""
    column = draw.design.response_column
    given = rows.take(np.repeat(np.arange(ROWS), COPIES))
    cells(given, column)[:] = len(column.levels) or np.nan
    drawn = simulated(draw, given, column.name).reshape(ROWS, COPIES)
    if column.levels:
        support = np.arange(len(column.levels))
    else:
        support = np.linspace(column.center - 80 * column.scale, column.center + 80 * column.scale, 20_001)
    each = rows.take(np.repeat(np.arange(ROWS), len(support)))
    cells(each, column)[:] = np.tile(support, ROWS)
    density = np.exp(draw.log_density(each)).reshape(ROWS, len(support))
    if column.levels:
        np.testing.assert_allclose(density.sum(axis=1), 1.0, rtol=1e-12)
        seen = (drawn[:, :, None] == support).sum(axis=1)
        chi2 = ((seen - COPIES * density) ** 2 / (COPIES * density)).sum()
        return stats.chi2.sf(chi2, ROWS * (len(support) - 1))
    steps = 0.5 * (density[:, 1:] + density[:, :-1]) * np.diff(support)
    below = np.concatenate([np.zeros((ROWS, 1)), np.cumsum(steps, axis=1)], axis=1)
    np.testing.assert_allclose(below[:, -1], 1.0, atol=1e-5)
    place = np.concatenate([np.interp(y, support, b) for y, b in zip(drawn, below)])
    return stats.kstest(place, "uniform").pvalue


@pytest.mark.parametrize("standardise", [True, False])
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_simulate_has_the_law_that_log_density_says(name, standardise):
    draw, rows = one_draw(name, standardise=standardise)
    if not standardise:
        draw.theta[:] *= 0.02
    assert p_value(draw, rows) > FALSE_ALARM


class OfTheOtherSign(Logistic):
    def draw(self, eta, u):
        return -super().draw(eta, u)


class TooFlat(Softmax):
    def draw(self, eta, u):
        return super().draw(0.8 * eta, u)


class Normal(StudentT):
    def draw(self, eta, u):
        return stats.norm.ppf(u, eta[:, 0], self.scale)


@pytest.mark.parametrize("wrong", [OfTheOtherSign, TooFlat, Normal])
def test_another_law_is_rejected(wrong):
    assert p_value(*one_draw(wrong.name, wrong)) < FALSE_ALARM / 1000


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_the_average_is_that_of_the_draws(name):
    draw, rows = one_draw(name)
    draws = [Law(draw.design, draw.likelihood, draw.theta * size) for size in (1.0, 0.4, -0.3)]
    average, built = Average.of(draws), draw.design.build(rows)
    result = average.log_density(average.linear(built.x), built.y) - np.log(draw.design.scale)
    each = np.array([d.log_density(rows) for d in draws])
    np.testing.assert_allclose(result, logsumexp(each, axis=0) - np.log(3), rtol=1e-12)


def test_missing_cells():
    draw, rows = one_draw("logistic", holes=True, missing="drop")
    column = draw.design.response_column
    cells(rows, column)[10] = len(column.levels)
    density = draw.log_density(rows)
    assert np.isnan(density[:5]).all() and density[10] == 0.0 and (np.delete(density[5:], 5) < 0).all()
    drawn = simulated(draw, rows, column.name)
    assert drawn[10] < 2
    assert np.array_equal(np.delete(drawn, 10), np.delete(cells(rows, column), 10))  # what was given stays as it was
    cells(rows, column)[:] = 2
    drawn = simulated(draw, rows, column.name)
    assert np.isnan(drawn[:5]).all() and (drawn[5:] < 2).all()
    assert np.array_equal(simulated(draw, rows.take(slice(20, None)), column.name, 20), drawn[20:])


def test_predictors_have_no_distribution():
    draw, rows = one_draw("student-t", holes=True, missing="indicator")
    known = known_of(rows, draw.columns)
    given = draw.given(known.without(["cost"]))
    with pytest.raises(ConfigError, match="column 'age' is a predictor"):
        given.log_density(known.only(["age"]))
    with pytest.raises(ConfigError, match="column 'age' is a predictor"):
        draw.masses(known.of["age"][0])
    np.testing.assert_array_equal(simulated(draw, rows, "age"), rows.reals[:, draw.design.terms[0].column.index])
