"""The density of a new row is what a sum over everything that it can be comes to, and its simulations have it."""

import itertools

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import kstest, poisson

from mpibayes.hpc.data.cells import Cells
from mpibayes.hpc.data.events import known_of
from mpibayes.hpc.ibp import features, update
from mpibayes.hpc.ibp.features import Features
from mpibayes.hpc.ibp.law import Law
from mpibayes.hpc.ibp.state import Hyper, Totals
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.io.table import table_from_arrays

STREAM = Stream(7, Purpose.NEW_CELLS, 0)


def totals(z, x):
    return Totals(z.sum(axis=0), z.T @ z, z.T @ x, (x**2).sum(axis=0))


def problem(n=12, k=3, d=4, seed=1, noise=None, feature_sd=1.3):
    """Features, cells and hyperparameters of n rows; every feature has rows."""
    rng = np.random.default_rng(seed)
    z = (rng.random((n, k)) < 0.4).astype(np.int64)
    z[rng.integers(n, size=k), np.arange(k)] = 1
    of = "shared" if noise is None else "column"
    hyper = Hyper(1.7, 1.4, np.full(d, 0.5) if noise is None else noise, feature_sd, of)
    x = z @ rng.normal(size=(k, d)) + 0.5 * rng.normal(size=(n, d))
    return z, x, hyper, rng


def law_of(z, x, hyper):
    t = totals(z, x)
    return Features.of(t.together, t.cells, len(z), hyper)


def by_brute_force(z, x, hyper, row, most=25):
    """log p(row | z, x): of all tables with one row more, by the likelihood of whole tables."""
    n, seen = len(z), np.flatnonzero(~np.isnan(row))
    part = Hyper(hyper.alpha, hyper.c, hyper.noise_sd[seen], hyper.feature_sd, hyper.noise)
    before = update.log_likelihood(totals(z, x[:, seen]), n, part)
    p = z.sum(axis=0) / (n + hyper.c)
    mine = hyper.alpha * hyper.c / (n + hyper.c)
    logs = []
    for new in itertools.product((0, 1), repeat=z.shape[1]):
        for kappa in range(most):
            wide = np.zeros((n + 1, z.shape[1] + kappa), np.int64)
            wide[:n, : z.shape[1]], wide[n] = z, [*new, *[1] * kappa]
            now = update.log_likelihood(totals(wide, np.vstack([x[:, seen], row[seen]])), n + 1, part)
            prior = np.log(np.where(new, p, 1 - p)).sum() + poisson.logpmf(kappa, mine)
            logs.append(prior + now - before)
    return logsumexp(logs)


@pytest.mark.parametrize("noise", [None, np.array([0.3, 0.5, 0.8, 2.0])])
def test_density_of_a_row(noise):
    """Rows near and far, with cells missing or all of them; one noise or one a column."""
    z, x, hyper, rng = problem(noise=noise)
    rows = np.vstack([x[3] + 0.1, 9.0 * rng.normal(size=(2, 4)), rng.normal(size=(4, 4))])
    rows[3, 1] = rows[4, [0, 2]] = rows[5] = np.nan
    result, neglected = law_of(z, x, hyper).log_density(rows)
    expected = [by_brute_force(z, x, hyper, row) for row in rows if not np.isnan(row).all()]
    np.testing.assert_allclose(np.delete(result, 5), expected, rtol=1e-10, atol=1e-10)
    assert result[5] == pytest.approx(0.0, abs=1e-12) and not neglected.any()


def test_density_without_features():
    _, x, hyper, _ = problem()
    none = np.zeros((12, 0), np.int64)
    row = np.array([0.3, 5.0, -1.0, 0.0])
    assert law_of(none, x, hyper).log_density(row[None])[0] == pytest.approx(by_brute_force(none, x, hyper, row))


def test_many_features_are_summed_near_the_best(monkeypatch):
    """Fewer combinations than there are, from below, and about how much was lost; all of them without the limit.

    Rows far from what features explain lose more than is said: combinations of several flips count there.
    """
    z, x, hyper, rng = problem(n=60, k=12, d=30, seed=3)
    law = law_of(z, x, hyper)
    near = (rng.random((40, 12)) < 0.4) @ law.means + 0.5 * rng.normal(size=(40, 30))
    rows = np.vstack([near, 3.0 * rng.normal(size=(10, 30))])
    rows[::3, 2] = np.nan
    monkeypatch.setattr(features, "FREE", 8)
    result, neglected = law.log_density(rows)
    monkeypatch.setattr(features, "ENUMERATED", 12)
    whole, nothing = law.log_density(rows)
    assert not nothing.any() and (neglected > 0).any()
    assert (result <= whole + 1e-9).all()
    lost = -np.expm1(result - whole)
    assert (lost[:40] < 1e-3).all() and (lost < 0.3).all()
    assert (lost[:40] <= 4.0 * neglected[:40] + 1e-7).mean() > 0.8
    monkeypatch.setattr(features, "ENUMERATED", 10)
    monkeypatch.setattr(features, "FREE", 12)
    np.testing.assert_allclose(law.log_density(rows)[0], whole, rtol=0, atol=1e-6)


def test_a_row_does_not_depend_on_those_beside_it():
    z, x, hyper, rng = problem(n=60, k=12, d=30, seed=3)
    law, rows = law_of(z, x, hyper), rng.normal(size=(9, 30))
    whole = law.log_density(rows)[0]
    assert [law.log_density(row[None])[0][0] for row in rows] == whole.tolist()


def table(x):
    columns, rows = table_from_arrays([(f"x{d}", "real", x[:, d], None) for d in range(x.shape[1])])
    return columns, rows


def test_density_is_in_the_tables_units():
    z, x, hyper, _ = problem()
    raw = 20.0 + 3.0 * x
    columns, rows = table(raw)
    cells = Cells(columns, True)
    y = cells.of(rows)
    assert np.allclose(y.mean(axis=0), 0.0) and np.allclose(y.std(axis=0), 1.0)
    mine = Law(cells, law_of(z, y, hyper))
    expected = mine.features.log_density(y)[0] - np.log(raw.std(axis=0)).sum()
    np.testing.assert_allclose(mine.log_density(rows), expected)


def test_simulated_cells_have_the_distribution_of_the_density():
    """Test the probability integral transform given the other cells: one cell's distribution function by quadrature."""
    z, x, hyper, _ = problem(k=4)
    columns, _ = table(x)
    mine = Law(Cells(columns, False), law_of(z, x, hyper))
    n = 3000
    given = np.tile(x[2] + 0.2, (n, 1))
    given[:, 1] = np.nan
    _, rows = table(given)
    drawn = mine.simulate(known_of(rows, columns), {"x1"}, STREAM, np.arange(n))["x1"]
    grid = np.linspace(-15, 15, 6001)
    filled = np.tile(given[0], (len(grid), 1))
    filled[:, 1] = grid
    density = np.exp(mine.features.log_density(filled)[0] - mine.features.log_density(given[:1])[0])
    assert density.sum() * (grid[1] - grid[0]) == pytest.approx(1.0, abs=1e-6)
    below = np.cumsum(density) * (grid[1] - grid[0])
    assert kstest(np.interp(drawn, grid, below), "uniform").pvalue > 1e-3
    again = mine.simulate(known_of(rows.take(slice(5, 8)), columns), {"x1"}, STREAM, np.arange(5, 8))["x1"]
    assert again.tolist() == drawn[5:8].tolist()


def test_moments_are_those_of_simulated_cells(monkeypatch):
    """Compare with enumeration, and near the best combination."""
    z, x, hyper, _ = problem(n=40, k=4, d=5)
    columns, _ = table(x)
    mine = Law(Cells(columns, False), law_of(z, x, hyper))
    given = x[7] + 0.3
    given[[1, 3]] = np.nan
    n = 20_000
    _, rows = table(np.tile(given, (n, 1)))
    made = mine.simulate(known_of(rows, columns), {"x1", "x3"}, STREAM, np.arange(n))
    drawn = np.column_stack([made["x1"], made["x3"]])
    for enumerated in (10, 2):
        monkeypatch.setattr(features, "ENUMERATED", enumerated)
        density, p, mean, square = mine.moments(rows.take(slice(2)))
        np.testing.assert_allclose(density, mine.log_density(rows.take(slice(2))), atol=1e-7)
        np.testing.assert_allclose(p, mine.members(rows.take(slice(2)))[1], atol=1e-7)
        error = drawn.std(axis=0) / np.sqrt(n)
        assert (np.abs(drawn.mean(axis=0) - mean[1, [1, 3]]) < 4.5 * error).all()
        spread = (drawn**2).std(axis=0) / np.sqrt(n)
        assert (np.abs((drawn**2).mean(axis=0) - square[1, [1, 3]]) < 4.5 * spread).all()


def test_features_given_the_cells():
    """p(z_k | x) by the densities of rows that surely have it, or not: Bayes by hand on all combinations."""
    z, x, hyper, _ = problem()
    columns, rows = table(x[:5])
    mine = Law(Cells(columns, False), law_of(z, x, hyper))
    density, p = mine.members(rows)
    np.testing.assert_allclose(density, mine.log_density(rows))
    for n in range(5):
        with_it, all_of_it = np.zeros(3), 0.0
        for result in mine.features.found(x[n : n + 1]):
            for _, _, log in result.terms:
                weight = np.exp(log[0])
                all_of_it += weight.sum()
                for pattern, w in enumerate(weight):
                    with_it += w * np.array([pattern >> k & 1 for k in range(3)])
        np.testing.assert_allclose(p[n], with_it / all_of_it, rtol=1e-9)
