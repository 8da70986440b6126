"""A start looks at the cells that a row has: what is missing is not taken for 0."""

import itertools

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from mpibayes.hpc.ibp.start.pursuit import pursue
from mpibayes.hpc.ibp.start.seating import Seated, seat
from mpibayes.hpc.ibp.state import Hyper

RATIO = 1.7


def rows(n=9, k=3, d=5, seed=3):
    """(cells, features): columns 1 and 3 lack the same cells, row 4 has none."""
    g = np.random.default_rng(seed)
    z = (g.random((n, k)) < 0.5).astype(float)
    x = z @ g.standard_normal((k, d)) + g.standard_normal((n, d))
    x[g.random((n, d)) < 0.3] = np.nan
    x[:, 3] = np.where(np.isnan(x[:, 1]), np.nan, x[:, 3])
    x[:, 1] = np.where(np.isnan(x[:, 3]), np.nan, x[:, 1])
    x[4] = np.nan
    return x, z


def seated(x, z):
    result = Seated(x, RATIO)
    result.open(z.shape[1])
    for row, has in zip(x, z):
        result.add(row, has)
    return result


def test_loadings_given_seated_rows():
    """Missing cells of a column depend on its own rows alone; columns that lack the same cells share a covariance."""
    x, z = rows()
    result = seated(x, z)
    assert len(result.spread) == 4 and result.group[1] == result.group[3]
    for d in range(5):
        on = ~np.isnan(x[:, d])
        spread = np.linalg.inv(z[on].T @ z[on] + np.eye(3) / RATIO)
        np.testing.assert_allclose(result.spread[result.group[d]], spread, atol=1e-10)
        np.testing.assert_allclose(result.mean[:, d], spread @ z[on].T @ x[on, d], atol=1e-10)


def test_density_of_the_next_row():
    """Differences between features are those of the cells that it has, given the rows before it."""
    x, z = rows()
    result = seated(x[:-1], z[:-1])
    result.group = Seated(x[:-1], RATIO).group
    row = np.array([0.4, -1.0, np.nan, 0.7, np.nan])
    expected, logs = [], []
    for has in itertools.product((0.0, 1.0), repeat=3):
        look, total = result.look(row), 0.0
        for k in np.flatnonzero(has):
            look.flip(k, 1.0)
        logs.append(look.log_density((look.left, look.variance)))
        for d in np.flatnonzero(~np.isnan(row)):
            on = np.append(~np.isnan(x[:-1, d]), True)
            every = np.vstack([z[:-1], has])[on]
            values = np.append(x[:-1, d], row[d])[on]
            joint = multivariate_normal(np.zeros(on.sum()), np.eye(on.sum()) + RATIO * every @ every.T)
            total += joint.logpdf(values)
        expected.append(total)
    np.testing.assert_allclose(np.diff(logs), np.diff(expected), atol=1e-9)


def test_a_column_without_cells_says_nothing():
    """The other columns' loadings have the same bits as if it were not there."""
    g = np.random.default_rng(5)
    x = (g.random((150, 2)) < 0.5) @ np.kron(np.eye(2), np.full((1, 4), 2.0)) + 0.5 * g.standard_normal((150, 8))
    hyper = Hyper(1.0, 1.0, np.full(8, 0.5), 1.5, "shared")
    wide = Hyper(1.0, 1.0, np.full(9, 0.5), 1.5, "shared")
    loadings, weights = seat(x, hyper, 1, 0)
    more, same = seat(np.column_stack([x, np.full(150, np.nan)]), wide, 1, 0)
    assert np.array_equal(more[:, :8], loadings) and np.array_equal(weights, same) and not more[:, 8].any()
    holes = np.where(g.random(x.shape) < 0.3, np.nan, x)
    result, shares = seat(holes, hyper, 1, 0)
    apart = [
        np.abs(result[shares > 0.2] - truth).max(axis=1).min() for truth in np.kron(np.eye(2), np.full((1, 4), 2.0))
    ]
    assert max(apart) < 0.5


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_no_flip_is_better(missing):
    """The features of every row are at a peak of the density of its cells."""
    g = np.random.default_rng(6)
    loadings, weights, noise = g.standard_normal((4, 6)), np.full(4, 0.3), np.linspace(0.4, 0.9, 6)
    x = (g.random((60, 4)) < 0.3) @ loadings + noise * g.standard_normal((60, 6))
    x[g.random(x.shape) < missing] = np.nan
    result = pursue(x, loadings, weights, noise)

    def value(row, has):
        left = (row - has @ loadings) / noise
        return -0.5 * np.nansum(left**2) + has @ np.log(weights / (1.0 - weights))

    flips = np.eye(4, dtype=bool)
    assert all(value(row, has) >= value(row, has ^ flip) - 1e-9 for row, has in zip(x, result) for flip in flips)
    assert result.any(axis=0).all()
