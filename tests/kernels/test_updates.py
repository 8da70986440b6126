"""Kernels of the global update: what they draw, what they sum, and that a draw depends on its id alone."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from mpibayes.hpc.components.grid import Grids
from mpibayes.kernels.mixture import twin_updates as twin
from mpibayes.kernels.mixture import updates

KEY = {"seed": 2**63 + 5, "purpose": 5, "sub": 3, "cycle": 7, "chain": 2}
SHAPES = (0.003, 0.2, 0.9, 1.0, 1.5, 7.0, 300.0, 1e6)


def columns(rng, n_clusters, top):
    """levels (L, K), pseudo-counts and offsets of four columns; some cells are empty, and so is a cluster."""
    offsets = np.array([0, 3, 5, 14, 18])
    levels = (rng.gamma(0.4, size=(18, n_clusters)) * top).astype(np.int32)
    levels[:, n_clusters // 2] = 0
    beta = np.exp(rng.normal(size=18))
    beta[offsets[1:] - 1] = 0.0
    return levels, beta, offsets


def test_draws_are_those_of_the_twin():
    rng = np.random.default_rng(1)
    shape, ids = np.exp(rng.normal(0, 4, 150)), rng.integers(2**62, size=150)
    np.testing.assert_allclose(updates.log_gammas(shape, ids, **KEY), twin.log_gammas(shape, ids, **KEY), rtol=1e-9)
    np.testing.assert_allclose(updates.normals(ids, **KEY), twin.normals(ids, **KEY), atol=1e-13)
    levels, beta, offsets = columns(rng, 11, 40)
    drawn = updates.draw_levels(levels, beta, offsets, 1, 4, **KEY)
    np.testing.assert_allclose(drawn, twin.draw_levels(levels, beta, offsets, 1, 4, **KEY), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n_clusters", [3, 8, 11])
def test_levels_that_no_row_has_share_their_total(n_clusters):
    levels, beta, offsets = columns(np.random.default_rng(6), n_clusters, 40)
    levels[offsets[1] : offsets[1] + 2] = levels[offsets[2] : offsets[3]] = 0  # some of a column, all of another
    met = updates.met(levels)
    assert np.array_equal(met, (levels > 0).any(axis=1))
    drawn = updates.draw_levels(levels, beta, offsets, 0, 4, met, **KEY)
    np.testing.assert_allclose(drawn, twin.draw_levels(levels, beta, offsets, 0, 4, met, **KEY), rtol=1e-5, atol=1e-6)
    part, seen = np.exp(drawn[offsets[1] : offsets[2] - 1].astype(float)), met[offsets[1] : offsets[2] - 1] == 1
    assert not seen[:2].any() and (part[seen].sum(axis=0) < 1.0).all()
    assert not drawn[offsets[1] : offsets[1] + 2].any() and not drawn[offsets[2] : offsets[3]].any()
    with pytest.raises(ValueError, match="do not fit together"):
        updates.draw_levels(levels, beta, offsets, 0, 4, met[1:], **KEY)


def test_a_level_has_its_law_beside_the_total_of_others():
    """A level of 2 cells has Beta(2.4, 1.7) where two of the other three are drawn as a total; not if these are left
    out."""
    levels, offsets = np.zeros((5, 5000), np.int32), np.array([0, 5])
    levels[0], levels[1] = 2, 1
    beta, met = np.array([0.4, 0.4, 0.2, 0.1, 0.0]), np.array([1, 1, 0, 0, 0], np.uint8)
    law = stats.beta(2.4, 1.7).cdf
    drawn = np.exp(updates.draw_levels(levels, beta, offsets, 0, 1, met, **KEY).astype(float))
    assert stats.kstest(drawn[0], law).pvalue > 1e-4  # the rate of false alarms, for any seed
    assert stats.kstest(1.0 - drawn[:2].sum(axis=0), stats.beta(0.3, 3.8).cdf).pvalue > 1e-4
    alone = np.where(met == 1, beta, 0.0) + 1e-30 * (np.arange(5) < 4)
    wrong = np.exp(updates.draw_levels(levels, alone, offsets, 0, 1, met, **KEY).astype(float))
    assert stats.kstest(wrong[0], law).pvalue < 1e-4


def test_tables_are_those_of_the_twin_and_have_their_law():
    rng = np.random.default_rng(2)
    levels = rng.poisson(rng.choice([0, 0.5, 5, 300, 3000], size=(40, 1)), size=(40, 7)).astype(np.int32)
    beta = rng.choice([0.0, 1e-12, 0.01, 0.3, 2.0, 30.0, 500.0], size=40)
    assert np.array_equal(updates.draw_tables(levels, beta, **KEY), twin.draw_tables(levels, beta, **KEY))
    for n, a in ((3, 0.7), (60, 0.4), (300, 2.0), (2000, 0.05)):
        p = np.ones(1)
        for i in range(n):
            p = np.convolve(p, [i / (a + i), a / (a + i)])[:40]
        drawn = updates.draw_tables(np.full((20_000, 1), n, np.int32), np.full(20_000, a), **KEY)
        seen, often = np.bincount(drawn, minlength=len(p))[: len(p)], p > 1e-3
        assert stats.chisquare(seen[often], p[often] / p[often].sum() * seen[often].sum()).pvalue > 1e-5, (n, a)


@pytest.mark.parametrize("top", [3, 50, 10**6])
def test_sums_are_those_of_the_twin(top):
    levels, beta, offsets = columns(np.random.default_rng(top), 21, top)
    for first, last in ((0, 4), (1, 3), (2, 2)):
        for ours, right in zip(
            updates.log_marginals(levels, beta, offsets, first, last),
            twin.log_marginals(levels, beta, offsets, first, last),
            strict=True,
        ):
            np.testing.assert_allclose(ours, right, rtol=1e-12, atol=1e-8)
    clusters = [3, 20, 3, 0]
    unions = updates.log_marginals_of_unions(levels, beta, offsets, clusters)
    np.testing.assert_allclose(unions, twin.log_marginals_of_unions(levels, beta, offsets, clusters), atol=1e-8)
    for k, ours in zip(clusters, unions):  # the same bits as those of clusters that are joined
        assert np.array_equal(ours, updates.log_marginals(levels + levels[:, [k]], beta, offsets, 0, 4)[1])
    points = [0.02, 0.5, 1.0, 8.0, 16.0, 0.3, 0.4, 2.0, 3.0]
    ours = updates.grid_scores(levels, offsets, [3, 0], updates.Grid(points))
    np.testing.assert_allclose(ours, twin.grid_scores(levels, offsets, [3, 0], points), rtol=1e-12, atol=1e-7)
    base = np.exp(np.random.default_rng(7).normal(0, 2, len(levels)))
    ours = updates.grid_scores(levels, offsets, [3, 0], updates.Grid(points), base)
    np.testing.assert_allclose(ours, twin.grid_scores(levels, offsets, [3, 0], points, base), rtol=1e-12, atol=1e-7)
    labels, spreads = [0, 10, 20], [0.5, 0.05, 1.0]  # cluster 10 is empty
    ours = updates.Shares(spreads).log_sums(levels, offsets, labels)
    np.testing.assert_allclose(ours, twin.log_sums_of_shares(levels, offsets, labels, spreads), rtol=1e-11, atol=1e-7)


@pytest.mark.parametrize("scale", [1.0, 30.0, 3000.0])
def test_products_in_logarithms_are_those_of_the_twin(scale):
    rng = np.random.default_rng(8)
    a, b = scale * rng.normal(size=(13, 19)), scale * rng.normal(size=(19, 21))
    a[3], a[:, 2], b[:, 5] = -np.inf, -np.inf, -np.inf
    np.testing.assert_allclose(updates.log_product(a, b), twin.log_product(a, b), rtol=1e-14, atol=1e-14)
    assert updates.log_product(a[:, :0], b[:0]).shape == (13, 21)


def numbers(rng, n_columns, n_clusters, real):
    """Statistics and hyperparameters of real or of count columns; a cluster is empty, and others have one cell."""
    n = rng.integers(0, 30, size=(n_columns, n_clusters))
    n[:, 0], n[:, -1] = 0, 1
    scale = np.exp(rng.normal(0, 4, size=(n_columns, 1)))
    if not real:
        return (n, rng.poisson(scale * n).astype(float)), np.exp(rng.normal(0, 2, size=(n_columns, 2)))
    hyper = np.exp(rng.normal(0, 2, size=(n_columns, 4)))
    hyper[:, 0] = rng.normal(size=n_columns)
    mean = np.where(n > 0, scale * rng.normal(size=n.shape), 0.0)
    return (n, mean, np.where(n > 1, scale**2 * rng.gamma(1.0 + n), 0.0)), hyper


@pytest.mark.parametrize("real", [True, False])
@pytest.mark.parametrize("n_clusters", [2, 8, 21])
def test_numbers_are_those_of_the_twin(real, n_clusters):
    rng = np.random.default_rng(n_clusters)
    statistics, hyper = numbers(rng, 5, n_clusters, real)
    for first, last in ((0, 5), (1, 3), (2, 2)):
        for ours, right in zip(
            updates.number_marginals(statistics, hyper, first, last),
            twin.number_marginals(statistics, hyper, first, last),
            strict=True,
        ):
            np.testing.assert_allclose(ours, right, rtol=1e-11, atol=1e-9)
    alone = statistics[0].copy(), *statistics[1:]
    assert updates.number_marginals(alone, hyper, 0, 5)[1][0] == 0.0  # an empty cluster says nothing, to the bit
    grids = [Grids([np.exp(rng.normal(size=2 + (c + f) % 12)) for c in range(5)]) for f in range(hyper.shape[1])]
    u, right = rng.random((3, hyper.shape[1])), hyper.copy()
    twin.draw_numbers(statistics, right, 1, 4, grids, u)
    ours = hyper.copy()
    updates.draw_numbers(statistics, ours, 1, 4, grids, u)
    assert ours.tobytes() == right.tobytes() and (ours[1:4] != hyper[1:4]).all()
    pieces = hyper.copy()
    for c in (3, 1, 2):
        updates.draw_numbers(statistics, pieces, c, c + 1, grids, u[c - 1 : c])
    assert pieces.tobytes() == ours.tobytes()


def test_numbers_at_the_ends_of_their_range():
    """Tiny and huge variances, where logarithms of subnormal numbers are; weights that are no numbers are refused."""
    n, mean, scatter = np.array([[3, 4]]), np.array([[1e-158, 3e-158]]), np.array([[1e-316, 0.0]])
    hyper = np.array([[0.0, 0.1, 2.0, 1e-318]])
    right = twin.number_marginals((n, mean, scatter), hyper, 0, 1)[1]
    np.testing.assert_allclose(updates.number_marginals((n, mean, scatter), hyper, 0, 1)[1], right, rtol=1e-6)
    grids = [Grids([np.array([1.0, 2.0])])] * 4
    one = np.ones((1, 4))
    for wrong in (np.nan, 1e200):
        with pytest.raises(FloatingPointError, match="not a number"):
            updates.draw_numbers((n, np.array([[wrong, 0.0]]), scatter), one.copy(), 0, 1, grids, 0.5 * one)
    with pytest.raises(ValueError, match="different forms"):
        updates.number_marginals((n, mean[:, :1], scatter), one, 0, 1)
    with pytest.raises(ValueError, match="do not fit together"):
        updates.number_marginals((n, mean, scatter), one, 0, 2)
    with pytest.raises(ValueError, match="do not fit together"):
        updates.draw_numbers((n, mean, scatter), one, 0, 1, grids[:3], 0.5 * one)


@pytest.mark.parametrize("shape", SHAPES)
def test_gamma_draws_have_their_law(shape):
    """Kolmogorov's test of 10^5 draws rejects a right law once in 10^6; it rejects a shape 5 percent larger."""
    n, power = 100_000, min(shape, 1.0)
    drawn = np.exp(power * updates.log_gammas(np.full(n, shape), np.arange(n), **KEY))  # a power does not underflow

    def law(a):
        def cdf(y):
            log_x = np.log(y) / power  # far down the density is that of x^(a - 1) / Gamma(a)
            near = stats.gamma.cdf(np.exp(np.maximum(log_x, -400.0)), a)
            return np.where(log_x < -400.0, np.exp(np.minimum(a * log_x, 0.0) - gammaln(a + 1.0)), near)

        return cdf

    assert stats.kstest(drawn, law(shape)).pvalue > 1e-6
    assert stats.kstest(drawn, law(1.05 * shape)).pvalue < 1e-6


def test_normal_draws_have_their_law():
    """False alarms: once in 10^6. With a deviation of 1.05 instead of 1 they are rejected."""
    drawn = updates.normals(np.arange(200_000), **KEY)
    assert stats.kstest(drawn, "norm").pvalue > 1e-6
    assert stats.kstest(drawn, stats.norm(scale=1.05).cdf).pvalue < 1e-6
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 5 / np.sqrt(len(drawn))  # 6e-7


def test_a_draw_depends_on_its_id_alone():
    rng = np.random.default_rng(3)
    shape, ids = np.exp(rng.normal(size=100)), rng.integers(2**40, size=100)
    whole, order = updates.log_gammas(shape, ids, **KEY), rng.permutation(100)[:37]
    assert updates.log_gammas(shape[order], ids[order], **KEY).tobytes() == whole[order].tobytes()
    assert not np.isin(updates.log_gammas(shape, ids, **{**KEY, "cycle": 8}), whole).any()
    levels, beta, offsets = columns(rng, 19, 100)
    everything = updates.draw_levels(levels, beta, offsets, 0, 4, **KEY)
    pieces = [updates.draw_levels(levels, beta, offsets, c, c + 1, **KEY) for c in range(4)]
    assert np.concatenate(pieces).tobytes() == everything.tobytes()


def test_tiny_shapes_do_not_underflow():
    drawn = updates.log_gammas(np.full(1000, 1e-4), np.arange(1000), **KEY)
    assert np.isfinite(drawn).all() and drawn.min() < -10_000
    levels, offsets = np.zeros((4, 3), np.int32), np.array([0, 4])
    table = updates.draw_levels(levels, np.array([1e-4, 1e-4, 1e-4, 0.0]), offsets, 0, 1, **KEY)
    np.testing.assert_allclose(np.exp(table[:3].astype(float)).sum(axis=0), 1.0, rtol=1e-6)


def test_what_does_not_fit_is_refused():
    levels, beta, offsets = columns(np.random.default_rng(4), 5, 9)
    with pytest.raises(ValueError, match="do not fit together"):
        updates.draw_levels(levels, beta[:-1], offsets, 0, 4, **KEY)
    with pytest.raises(ValueError, match="do not fit together"):
        updates.log_marginals(levels, beta, offsets, 0, 5)
    with pytest.raises(ValueError, match="do not fit together"):
        updates.Shares([0.5]).log_sums(levels, offsets, [5])
    with pytest.raises(ValueError, match="levels and base do not fit"):
        updates.grid_scores(levels, offsets, [0], updates.Grid([1.0]), np.ones(3))
    with pytest.raises(ValueError, match="there is no column 4"):
        updates.grid_scores(levels, offsets, [4], updates.Grid([1.0]))
    with pytest.raises(ValueError, match="3 ids for 4 draws"):
        updates.log_gammas(np.ones(4), np.arange(3), **KEY)


@pytest.mark.parametrize("n_clusters", [1, 8, 21])
def test_lines_are_those_of_the_twin(n_clusters):
    """Points that have a kappa or nu in common with the one before, and clusters without a cell."""
    rng = np.random.default_rng(n_clusters)
    n, x, xx = rng.integers(0, 40, n_clusters), rng.normal(size=n_clusters), rng.gamma(5.0, size=n_clusters)
    u, uu = rng.normal(size=(3, n_clusters)), rng.gamma(5.0, size=(3, n_clusters))
    ux = rng.uniform(-0.9, 0.9, size=u.shape) * np.sqrt(uu * xx)
    for a in (x, xx, u, uu, ux):
        a[..., n == 0] = 0.0
    points = np.array([[0.5, 2.0, 3.0], [0.5, 2.0, 0.1], [0.5, 7.0, 0.1], [2.0, 7.0, 0.1], [2.0, 1.0, 9.0]])
    arguments = points, np.array([1.0, 4.0, 0.3]), np.array([0.0, 2.0, -1.0]), 0.7, n, u, x, uu, ux, xx
    for ours, right in zip(updates.line_marginals(*arguments), twin.line_marginals(*arguments), strict=True):
        np.testing.assert_allclose(ours, right, rtol=1e-11, atol=1e-9)
    assert (updates.line_marginals(*arguments)[1][n == 0] == 0.0).all()
    with pytest.raises(ValueError, match="do not fit together"):
        updates.line_marginals(*arguments[:-1], xx[1:])


def test_hyperparameters_of_a_line_are_drawn_as_by_plain_python():
    g, k = np.random.default_rng(4), 9
    n, (u, x), (uu, ux, xx) = g.integers(0, 30, k).astype(float), g.normal(size=(2, k)), g.gamma(5.0, size=(3, k))
    moments = n, u, x, uu, 0.1 * ux, xx
    grids = [np.geomspace(0.01, 1.0, 5), np.array([4.0]), np.geomspace(0.1, 10.0, 7)]
    for _ in range(30):
        uniforms, right = g.random(2), [0.1, 4.0, 1.0]
        for f, uniform in ((0, uniforms[0]), (2, uniforms[1])):
            points = np.array([[*right[:f], point, *right[f + 1 :]] for point in grids[f]])
            score = twin.line_marginals(points, [2.0], [0.3], -0.2, n, u[None], x, uu[None], 0.1 * ux[None], xx)[0]
            p = np.exp(score[:, 0] - score.max()).cumsum()
            right[f] = grids[f][(p[:-1] <= uniform * p[-1]).sum()]
        hyper = np.array([0.1, 4.0, 1.0])
        updates.draw_line(hyper, grids, (2.0, 0.3), -0.2, *moments, uniforms)
        assert hyper.tolist() == right
    with pytest.raises(ValueError, match="do not fit together"):
        updates.draw_line(hyper, grids, (2.0, 0.3), -0.2, *moments[:-1], xx[1:], uniforms)
    with pytest.raises(FloatingPointError, match="not a number"):
        updates.draw_line(hyper, grids, (2.0, 0.3), np.nan, *moments, uniforms)
