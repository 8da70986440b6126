"""The factorisation whose bits do not depend on threads, and the search for collinear predictors."""

import os
import sys

import numpy as np
import pytest

from mpibayes.hpc.regression.mode.collinear import combinations
from mpibayes.hpc.regression.mode.linear_algebra import cholesky, inverse, inverse_factor, solve
from tests.conftest import launch


def definite(p: int) -> np.ndarray:
    x = np.random.default_rng(p).normal(size=(p + 20, p))
    return x.T @ x


@pytest.mark.parametrize("p", [1, 2, 31, 32, 33, 64, 100])
def test_against_numpy(p):
    a = definite(p)
    factor = cholesky(a)
    np.testing.assert_allclose(factor, np.linalg.cholesky(a), atol=1e-12)
    np.testing.assert_allclose(inverse_factor(factor) @ factor, np.eye(p), atol=1e-12)
    np.testing.assert_allclose(inverse(a) @ a, np.eye(p), atol=1e-11)
    assert np.array_equal(inverse(a), inverse(a).T)
    b = np.arange(1.0, p + 1)
    np.testing.assert_allclose(a @ solve(factor, b), b, atol=1e-10)


@pytest.mark.parametrize("p", [2, 40])
def test_what_is_not_definite(p):
    x = np.random.default_rng(0).normal(size=(p - 1, p))
    assert cholesky(x.T @ x) is None and inverse(x.T @ x) is None
    assert cholesky(np.diag([1.0, -1.0])) is None
    assert cholesky(np.full((p, p), np.nan)) is None


def test_same_bits_on_any_number_of_threads():
    """A library's own Cholesky factor differs between one thread and two at this size, on most machines."""
    code = (
        "import hashlib, numpy as np\n"
        "from mpibayes.hpc.regression.mode.linear_algebra import cholesky, inverse\n"
        "x = np.random.default_rng(1).normal(size=(300, 280))\n"
        "a = np.einsum('ki,kj->ij', x, x)\n"
        "print(hashlib.sha256(cholesky(a).tobytes() + inverse(a).tobytes()).hexdigest())"
    )
    reported = {
        launch([sys.executable, "-c", code], env={"OPENBLAS_NUM_THREADS": n, "OMP_NUM_THREADS": n}).stdout
        for n in (1, 2, os.cpu_count() or 4)
    }
    assert len(reported) == 1 and reported != {""}


def test_combinations_are_named():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(500, 4))
    x[:, 0] = 1.0
    table = np.column_stack([x, 2 * x[:, 1] - 0.5 * x[:, 2] + 3, rng.normal(size=500), x[:, 3], np.zeros(500)])
    table = table.astype(np.float32).astype(np.float64)
    result = combinations(table.T @ table, ["one", "a", "b", "c", "sum", "free", "twin", "nil"])
    assert result == [
        "'sum' is a combination of 3 'one', 2 'a', -0.5 'b'",
        "'twin' is a combination of 1 'c'",
        "'nil' is zero in every row",
    ]


@pytest.mark.parametrize("noise, collinear", [(1e-3, False), (1e-7, True)])
def test_almost_collinear(noise, collinear):
    """Columns on any scale: what counts is how far one is from the others, relative to its own size."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(1000, 5)) * 10.0 ** np.arange(-6, 9, 3)
    x = np.column_stack([x, x[:, 1] * (1 + noise * rng.normal(size=1000))])
    assert bool(combinations(x.T @ x)) == collinear
