"""Averages of an outcome's likelihood over the coefficients of a new cluster are right if it is much narrower than
their prior, and if the outcome is far away."""

import itertools

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from mpibayes.hpc.data.events import Events
from mpibayes.hpc.outcome.asked import Coder
from mpibayes.hpc.outcome.likelihoods import LIKELIHOODS
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.io.rows import Column

X = np.linspace(-50.0, 50.0, 1_000_001)
CASES = [
    *(("normal", y, 1.0, 4.0, scale) for y in (-0.7, 6.0) for scale in (0.01, 1.0)),
    *(("student-t", *of) for of in itertools.product((0.02, -5.0, 40.0), (1.0, 3.0), (2.0, 4.0, 1e5), (0.01, 1.0))),
    *(("poisson", y, sd, 4.0, 1.0) for y in (0.0, 3.0, 1e4) for sd in (0.1, 1.0, 3.0)),
    *(("logistic", y, sd, 4.0, 1.0) for y in (-1.0, 1.0) for sd in (0.5, 10.0)),
]


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
    assert found == pytest.approx(exact, abs=2e-3) and found.sum() == pytest.approx(1.0)
    assert of.log_averages(np.array([2.0]), at, spread, 4.0, 1.0) == pytest.approx(np.log(found[2:]))
    eta = np.tile(at, (N, 1))
    p = of.expectation(eta[0])
    y = of.drawn(eta, NU, SCALE, Stream(3, Purpose.OUTCOME_CELLS, 0), np.arange(N))
    share = np.bincount(y.astype(int), minlength=3) / N
    assert np.abs(share - p).max() < 4.0 * np.sqrt(0.25 / N)
    events = np.array([1.0, 2.0, 5.0, 7.0])  # the first level, the second, the first or third, all
    log_p = of.log_between(eta[:4], events, events, NU, SCALE)
    assert np.exp(log_p) == pytest.approx([p[0], p[1], p[0] + p[2], 1.0])


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
