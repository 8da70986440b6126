"""Averages of an outcome's likelihood over the coefficients of a new cluster are right where it is much narrower than
the law of these, and where the outcome is far away."""

import itertools

import numpy as np
import pytest
from scipy.special import logsumexp

from mpibayes.hpc.outcome.likelihoods import LIKELIHOODS

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
