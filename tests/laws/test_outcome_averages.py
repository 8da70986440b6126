"""Averages of an outcome's likelihood over the coefficients of a new cluster are right if it is much narrower than
their prior, and if the outcome is far away."""

import itertools

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from mpibayes.hpc.data.events import Events
from mpibayes.hpc.outcome.answers import Answers
from mpibayes.hpc.outcome.asked import AskedOutcome, Coder
from mpibayes.hpc.outcome.law import Law
from mpibayes.hpc.outcome.levels import averages, normal_points
from mpibayes.hpc.outcome.likelihoods import LIKELIHOODS
from mpibayes.hpc.outcome.state import State
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.io.rows import Column

X = np.linspace(-50.0, 50.0, 1_000_001)
CASES = [
    *(("normal", y, 1.0, 4.0, scale) for y in (-0.7, 6.0) for scale in (0.01, 1.0)),
    *(("student-t", *of) for of in itertools.product((0.02, -5.0, 40.0), (1.0, 3.0), (2.0, 4.0, 1e5), (0.01, 1.0))),
    *(("poisson", y, sd, 4.0, 1.0) for y in (0.0, 3.0, 1e4) for sd in (0.1, 1.0, 3.0)),
    *(("logistic", y, sd, 4.0, 1.0) for y in (-1.0, 1.0) for sd in (0.5, 10.0)),
]


@pytest.mark.quick(every=4)
@pytest.mark.parametrize(("name", "y", "sd", "nu", "scale"), CASES)
def test_averages_are_integrals(name, y, sd, nu, scale):
    likelihood, at = LIKELIHOODS[name], 0.3 + (np.log(1e4) if y == 1e4 else 0.0)
    terms = likelihood.log_density(at + sd * X, np.float64(y), nu, scale) - 0.5 * X * X
    exact = logsumexp(terms) + np.log((X[1] - X[0]) / np.sqrt(2.0 * np.pi))
    (found,) = likelihood.log_averages(np.array([y]), np.array([at]), np.array([sd]), nu, scale)
    assert found == pytest.approx(exact, abs=1e-3 if name == "logistic" else 1e-7)


@pytest.mark.parametrize("sd", [0.5, 2.0])
def test_averages_of_levels(sd):
    """Against a trapezoid rule in two dimensions; they add up to 1, and draws and events have these probabilities."""
    of, at, spread = LIKELIHOODS["softmax"], np.array([[0.3, -1.0]]), np.array([[sd, 0.7 * sd]])
    x = np.linspace(-8.0, 8.0, 201)
    grid = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1)
    weight = np.exp(-0.5 * (grid**2).sum(axis=-1))
    p = of.expectation(at[0] + spread[0] * grid)
    exact = (p * weight[:, :, None]).sum(axis=(0, 1)) / weight.sum()
    (found,) = of.average_expectations(at, spread)
    assert found == pytest.approx(exact, abs=5e-6) and found.sum() == pytest.approx(1.0)
    assert of.log_averages(np.array([2.0]), at, spread, 4.0, 1.0) == pytest.approx(np.log(found[2:]))
    eta = np.tile(at, (N, 1))
    p = of.expectation(eta[0])
    y = of.drawn(eta, NU, SCALE, Stream(3, Purpose.OUTCOME_CELLS, 0), np.arange(N))
    share = np.bincount(y.astype(int), minlength=3) / N
    assert np.abs(share - p).max() < 4.0 * np.sqrt(0.25 / N)
    events = np.array([1.0, 2.0, 5.0, 7.0])  # the first level, the second, the first or third, all
    log_p = of.log_between(eta[:4], events, events, NU, SCALE)
    assert np.exp(log_p) == pytest.approx([p[0], p[1], p[0] + p[2], 1.0])


DRAWS, MOST_Z = 1_000_000, 4.5  # a right program is rejected with probability 7e-6 for each level


def by_lattice(at, spread):
    """Wrong: an average over 256 evenly spread points."""
    points = normal_points(256, np.full(at.shape[1], 0.5))
    return LIKELIHOODS["softmax"].expectation(at + spread * points[:, None]).mean(axis=0)


@pytest.mark.parametrize("n_levels", [5, 21])
def test_averages_of_many_levels(n_levels):
    """Against a million draws of the coefficients."""
    g = np.random.default_rng(n_levels)
    at, spread = g.normal(size=(1, n_levels - 1)), g.uniform(0.3, 3.0, (1, n_levels - 1))
    total = square = 0.0
    for _ in range(100):
        p = LIKELIHOODS["softmax"].expectation(at + spread * g.normal(size=(DRAWS // 100, n_levels - 1)))
        total, square = total + p.sum(axis=0), square + (p * p).sum(axis=0)
    error = np.sqrt((square / DRAWS - (total / DRAWS) ** 2) / DRAWS)

    def z(of):
        return np.abs(of(at, spread)[0] - total / DRAWS) / error

    assert z(averages).max() < MOST_Z
    assert z(by_lattice).max() > 2.0 * MOST_Z


@pytest.mark.parametrize(("at", "sd"), [(0.3, 1e-3), (0.3, 2.0), (-30.0, 1.0), (30.0, 2.0), (1.0, 20.0)])
def test_averages_of_a_level(at, sd):
    """Both probabilities are accurate, however small, for any sd; levels alike have equal shares."""
    p = LIKELIHOODS["softmax"].expectation((at + sd * X)[:, None])
    weight = np.exp(-0.5 * X * X)
    found = averages(np.array([[at]]), np.array([[sd]]))[0]
    assert found == pytest.approx(weight @ p / weight.sum(), rel=2e-4)
    alike = averages(np.full((1, 3), at), np.full((1, 3), sd))[0]
    assert alike[1:] == pytest.approx(np.full(3, alike[1:].mean()), rel=1e-6)
    wide = averages(np.array([[50.0 * at]]), np.array([[50.0 * max(sd, 1.0)]]))[0]
    assert wide[1] == pytest.approx(stats.norm.cdf(at / max(sd, 1.0)), abs=1e-3)


def test_averages_do_not_depend_on_other_rows():
    g = np.random.default_rng(5)
    at, spread = g.normal(size=(3000, 3)), g.uniform(0.0, 2.0, (3000, 3))
    spread[0], spread[1] = 0.5, np.nextafter(0.5, 1.0)  # of two grades
    at[1] = at[0]
    whole = averages(at, spread)
    assert np.array_equal(whole[7:9], averages(at[7:9], spread[7:9]))
    assert whole[0] == pytest.approx(whole[1], abs=5e-6)


def test_a_new_cluster_has_average_probabilities():
    """In answers and in predictions, of single levels and of several; slopes add to the variance. Where predictors are
    drawn, points of shifted lattices have the averages as their mean over draws."""
    law = Law(LIKELIHOODS["softmax"], np.array([0.2, 0.5, -0.4, 0.1]), np.array([1.0, 2.0, 1.5, 0.5]),
              np.ones(2), np.zeros(4), n_eta=2)  # fmt: skip
    state = State(law, np.zeros((1, 4)), np.array([0.7, -0.3]))
    column = Column("y", "categorical", "codes", 0, levels=("a", "b", "c"))
    asked = AskedOutcome(Coder(column, law.likelihood, None, None, 0.0, 1.0), state)
    u, w = np.array([[0.0], [1.3]], np.float32), np.array([[1.0], [-2.0]], np.float32)
    sd = np.sqrt([[1.0, 2.25], [1.0 + 4.0 * 1.69, 2.25 + 0.25 * 1.69]])
    p = averages(np.array([[0.2 + 0.7, -0.4 - 0.3], [0.2 + 0.65 - 1.4, -0.4 + 0.13 + 0.6]]), sd)
    assert state.expectations(Answers(np.full(2, np.nan), u, w))[:, -1] == pytest.approx(p, abs=1e-7)
    events = np.array([1.0, 2.0, 6.0, 7.0])
    exact = np.log(np.column_stack([p[:, 0], p[:, 1], p[:, 1] + p[:, 2], np.ones(2)]))
    at = Answers(np.zeros(0), u[:, None], w[:, None])
    assert asked.log_between(1, at, events, events) == pytest.approx(exact, abs=1e-7)
    drawn = []
    for cycle in range(400):
        points = asked.normals(64, Stream(2, Purpose.OUTCOME_PREDICTORS, cycle))[None, :, None]
        each = Answers(np.zeros(0), u[:, None, None], w[:, None, None])
        drawn.append(np.exp(asked.log_between(1, each, events, events, points)).mean(axis=1))
    error = np.std(drawn, axis=0) / 20.0 + 1e-9
    assert (np.abs(np.mean(drawn, axis=0) - np.exp(exact)) < MOST_Z * error).all()
    assert (np.std(drawn, axis=0)[:, :3] < 0.03).all()


ETA, NU, SCALE, N = 0.7, 5.0, 0.6, 20_000
LAWS = {
    "normal": stats.norm(ETA, SCALE), "student-t": stats.t(NU, ETA, SCALE), "poisson": stats.poisson(np.exp(ETA)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAWS)
def test_ranges_and_draws_are_of_the_law(name):
    """Probabilities of ranges, and draws by Kolmogorov's distance, 1.95 / sqrt(n) at 0.1 %, match the law."""
    of, law = LIKELIHOODS[name], LAWS[name]
    low, high = np.array([-np.inf, 1.0, 4.0, 2.0]), np.array([0.0, 3.0, np.inf, 2.0])
    before = low - 1.0 if name == "poisson" else low
    exact = np.log(law.cdf(high) - law.cdf(before) + 1e-300)
    exact[3] = law.logpmf(2.0) if name == "poisson" else law.logpdf(2.0)
    assert of.log_between(np.full(4, ETA), low, high, NU, SCALE) == pytest.approx(exact, abs=1e-6)
    y = of.drawn(np.full(N, ETA), NU, SCALE, Stream(3, Purpose.OUTCOME_CELLS, 0), np.arange(N))
    below = np.array([np.mean(y <= x) for x in np.arange(-2.0, 8.0)])
    assert np.abs(below - law.cdf(np.arange(-2.0, 8.0))).max() < 1.95 / N**0.5


@pytest.mark.parametrize("name", LAWS)
def test_counts_have_all_the_probability(name):
    """Probabilities of 0, of 1 to 3 and of more add up to 1; and draws are counts."""
    column, none = Column("visits", "count", "tallies", 0), None
    coder = Coder(column, LIKELIHOODS[name], none, none, *((1.5, 2.0) if name != "poisson" else (0.0, 1.0)))
    events = Events(column, np.full(3, -1), None, np.array([0.0, 1.0, 4.0]), np.array([0.0, 3.0, np.inf]))
    log_p = coder.likelihood.log_between(np.full(3, ETA), *coder.bounds(events), NU, SCALE)
    assert np.exp(log_p).sum() == pytest.approx(1.0, abs=1e-4)
    x = coder.recorded(np.array([-2.0, -0.2, 0.0, 0.3, 2.0]) if name != "poisson" else np.arange(5.0))
    assert (x >= 0.0).all() and (x == np.round(x)).all()
