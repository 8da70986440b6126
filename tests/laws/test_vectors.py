"""Laws of blocks of real columns with a full covariance: chain rule, ratio identity, normal columns, draws, merging."""

from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mpibayes.hpc.components import normal
from mpibayes.hpc.components.block import Block
from mpibayes.hpc.components.predictive import cholesky
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.data.rows import Carve, in_blocks
from mpibayes.io.table import table_from_arrays
from mpibayes.kernels import mixture as kernels
from mpibayes.kernels.mixture import updates
from tests.exact import wrong_vectors

PRIOR = {"kappa": 0.3, "variance": 0.4}


def joint_table(seed: int, n_rows: int, widths, missing: float = 0.0):
    """Random blocks of correlated columns: (components, hyper, rows)."""
    g = np.random.Generator(np.random.Philox(seed))
    given_columns, blocks = [], {}
    for b, width in enumerate(widths):
        mix = g.normal(size=(width, width)) + np.eye(width)
        x = g.standard_t(3, size=(n_rows, width)) @ mix * 10.0 ** g.integers(-2, 3) + g.normal(size=width)
        x[g.random(n_rows) < missing] = np.nan
        names = [f"x{b}{d}" for d in range(width)]
        given_columns += [(name, "real", x[:, d], None) for d, name in enumerate(names)]
        blocks[f"b{b}"] = {"columns": names, "prior": {**PRIOR, "nu": width + 0.7}}
    columns, rows = table_from_arrays(given_columns)
    components = Components(in_blocks(columns, blocks), {}, blocks)
    return components, components.start(1.0, 0.0), Carve(columns, blocks)(rows)


def statistics(rows, z, k) -> Statistics:
    return Statistics(*kernels.accumulate(rows, np.asarray(z, np.int32), k, np.zeros(1, np.int64)))


def log_marginal(components, hyper, s) -> float:
    return float(sum(kind.sum() for kind in components.log_marginal(hyper, s, components.everything)))


def predictive(components, hyper, s, rows):
    """log f(x | cluster), last column f_H, by the kernel; (n, K + 1)."""
    tail = kernels.Tail(components.prior(hyper), 1.0, 0.0, 0.0, capacity=16 * (len(s) // 16 + 1))
    tail.load(s)
    with np.errstate(divide="ignore"):
        log_weight = np.log(np.append(s.size, 1.0)) - np.log(s.size.sum() + 1.0)
    return kernels.log_predictive_clusters(rows, tail) - log_weight


STATES = {
    "seed": st.integers(0, 10**6),
    "n_rows": st.integers(2, 30),
    "widths": st.lists(st.integers(1, 7), min_size=1, max_size=3),
    "missing": st.sampled_from([0.0, 0.3]),
}


@given(**STATES)
@settings(max_examples=30)
def test_chain_rule_in_any_order(seed, n_rows, widths, missing):
    """The marginal likelihood is the product of the kernel's predictives, in any order of the rows."""
    components, hyper, rows = joint_table(seed, n_rows, widths, missing)
    whole = log_marginal(components, hyper, statistics(rows, np.zeros(n_rows), 1))
    g = np.random.Generator(np.random.Philox(seed))
    for order in (np.arange(n_rows), g.permutation(n_rows)):
        total, shuffled = 0.0, rows.take(order)
        for i in range(n_rows):
            before = statistics(shuffled.take(np.arange(i)), np.zeros(i), 1)
            total += predictive(components, hyper, before, shuffled.take(np.array([i])))[0, 0 if i else -1]
        assert total == pytest.approx(whole, rel=1e-9, abs=1e-7), seed


def ratio_identity(block: Block, x: np.ndarray, g) -> tuple[float, float]:
    """log f(C) by the program, and log p(x | theta) + log p(theta) - log p(theta | C) at any theta, by SciPy."""
    d, n = block.width, len(x)
    wishart = np.array([PRIOR["kappa"], d + 0.7, PRIOR["variance"]])
    mean = x.mean(axis=0)
    scatter = ((x - mean).T @ (x - mean))[np.tril_indices(d)]
    result = block.log_marginal_cells(wishart, np.array([n]), mean[:, None], scatter[:, None])[0]
    precision = np.reshape(stats.wishart(d + 3, np.eye(d) / np.var(x)).rvs(random_state=g), (d, d))
    mu = g.normal(size=d)

    def log_prior(location, kappa, nu, matrix):
        covariance = np.linalg.inv(kappa * precision)
        gaussian = stats.multivariate_normal.logpdf(mu, location, covariance)
        return gaussian + stats.wishart.logpdf(precision, nu, np.linalg.inv(matrix))

    kappa, nu, spread = wishart[0], wishart[1], np.diag(wishart[1] * wishart[2] * block.square)
    off = mean - block.mean
    matrix = spread + (x - mean).T @ (x - mean) + n * kappa / (kappa + n) * np.outer(off, off)
    after = log_prior((kappa * block.mean + n * mean) / (kappa + n), kappa + n, nu + n, matrix)
    rows = stats.multivariate_normal.logpdf(x, mu, np.linalg.inv(precision)).sum()
    return float(result), float(rows + log_prior(block.mean, kappa, nu, spread) - after)


WRONG = [
    wrong_vectors.one_degree_short,
    wrong_vectors.one_degree_long,
    wrong_vectors.without_kappa,
    wrong_vectors.scatter_about_the_prior,
    wrong_vectors.columns_apart,
]


@pytest.mark.parametrize("width", [1, 2, 5])
def test_marginal_likelihood_is_the_ratio_of_densities(width):
    g = np.random.default_rng(width)
    x = g.normal(size=(9, width)) @ (g.normal(size=(width, width)) + np.eye(width))
    block = Block("b", [f"x{d}" for d in range(width)], g.normal(size=width), 0.5 + g.random(width))
    result, expected = ratio_identity(block, x, g)
    assert result == pytest.approx(expected, abs=1e-8)
    for wrong in WRONG[: 4 if width == 1 else 5]:
        with wrong():
            result, expected = ratio_identity(block, x, g)
        assert abs(result - expected) > 1e-3, wrong.__name__


def test_one_column_is_a_normal_column():
    """D = 1: marginal likelihoods, predictives and draws are those of kappa, nu, variance scale^2."""
    components, hyper, rows = joint_table(5, 20, [1])
    s = statistics(rows, np.arange(20) % 3, 3)
    (block,) = components.multinormal.blocks
    kappa, nu, variance = hyper.wishart[0]
    single = np.array([[block.mean[0], kappa, nu, variance * block.square[0]]])
    moments = s.vector_n, s.vector_mean, s.vector_scatter
    ours = block.log_marginal_cells(hyper.wishart[0], s.vector_n[0], s.vector_mean, s.vector_scatter)
    np.testing.assert_allclose(ours, updates.number_marginals(moments, single, 0, 1)[1], rtol=1e-12)
    columns, plain_rows = table_from_arrays([("x", "real", rows.vectors[:, 0], None)])
    plain = Components(columns, {"x": dict(zip(normal.NAMES, single[0]))})
    plain_s = statistics(plain_rows, np.arange(20) % 3, 3)
    other = predictive(plain, plain.start(1.0, 0.0), plain_s, plain_rows)
    np.testing.assert_allclose(predictive(components, hyper, s, rows), other, rtol=1e-12, atol=1e-12)
    draws = [components.draw(hyper, s, components.everything, {"seed": 1, "cycle": t, "chain": 0}) for t in range(2000)]
    precision = np.array([d.vector_factor[0] for d in draws]) ** 2
    location, kappa_n, nu_n, spread = normal.posterior(single, *moments)
    for k in range(3):
        assert stats.kstest(precision[:, k] * spread[0, k], "chi2", (nu_n[0, k],)).pvalue > 1e-5
        off = np.array([d.vector_location[0, k] for d in draws]) - location[0, k]
        assert stats.kstest(off * np.sqrt(precision[:, k] * kappa_n[0, k]), "norm").pvalue > 1e-5


def drawn_to_predictive(components, hyper, s, rows, draws=3000):
    """z of the Monte-Carlo mean of f(x | theta) over draws of theta against f(x | C), (rows, K)."""
    n, d, k = len(rows), rows.vectors.shape[1], len(s)
    density = np.empty((draws, n, k))
    i, j = np.tril_indices(d)
    for t in range(draws):
        p = components.draw(hyper, s, components.everything, {"seed": 5, "cycle": t, "chain": 0})
        factor = np.zeros((k, d, d))
        factor[:, i, j] = p.vector_factor.T
        y = np.einsum("kij,nkj->nki", factor, rows.vectors[:, None, :] - p.vector_location.T)
        density[t] = np.exp(p.vector_constant[0] - 0.5 * (y**2).sum(axis=-1))
    error = density.std(axis=0, ddof=1) / np.sqrt(draws)
    return (density.mean(axis=0) - np.exp(predictive(components, hyper, s, rows)[:, :k])) / error


@pytest.mark.thorough
def test_drawn_parameters_average_to_the_predictive():
    """E f(x | theta) over theta | C is f(x | C): |z| < 5.1 for 24 pairs (false alarm 1e-5); wrong draws are
    detected."""
    components, hyper, rows = joint_table(12, 24, [3])
    s = statistics(rows, np.arange(24) % 3, 3)
    subset = rows.take(np.arange(8))
    assert np.abs(drawn_to_predictive(components, hyper, s, subset)).max() < 5.1
    for wrong in WRONG:
        with wrong():
            assert np.abs(drawn_to_predictive(components, hyper, s, subset)).max() > 6.0, wrong.__name__


def test_predictive_integrates_to_one():
    components, hyper, rows = joint_table(13, 12, [2])
    s = statistics(rows, np.arange(12) % 2, 2)
    (block,) = components.multinormal.blocks
    u = np.linspace(-14.0, 14.0, 801)
    grid = block.mean + np.sqrt(block.square) * np.stack(np.meshgrid(np.sinh(u), np.sinh(u)), axis=-1)
    many = rows.take(np.zeros(u.size**2, int))
    many.vectors[:] = grid.reshape(-1, 2)
    jacobian = np.outer(np.cosh(u), np.cosh(u)).ravel() * np.sqrt(block.square.prod())
    total = (np.exp(predictive(components, hyper, s, many)) * jacobian[:, None]).sum(axis=0) * (u[1] - u[0]) ** 2
    np.testing.assert_allclose(total, 1.0, atol=2e-3)


@given(**STATES, parts=st.integers(1, 5))
@settings(max_examples=30)
def test_merging_parts_agrees_with_the_whole(seed, n_rows, widths, missing, parts):
    components, _, rows = joint_table(seed, n_rows, widths, missing)
    g = np.random.Generator(np.random.Philox(seed))
    z, cut = g.integers(3, size=n_rows), np.sort(g.integers(n_rows + 1, size=parts - 1))
    whole = statistics(rows, z, 4)
    pieces = [statistics(rows.take(part), z[part], 4) for part in np.split(np.arange(n_rows), cut)]
    names = ("vector_n", "vector_mean", "vector_scatter")
    merged = reduce(components.multinormal.merge, [p.of(components.multinormal) for p in pieces])
    for name, ours in zip(names, merged):
        np.testing.assert_allclose(ours, getattr(whole, name), rtol=1e-8, atol=1e-8, err_msg=name)
    one, two = whole.take(np.array([0, 1])), whole.take(np.array([2, 3]))
    joined = components.union(one, two)
    both = statistics(rows, z % 2, 2)
    for name in names:
        np.testing.assert_allclose(getattr(joined, name), getattr(both, name), rtol=1e-8, atol=1e-8, err_msg=name)


def test_a_row_far_from_its_cluster_is_scored_without_it():
    """If a row accounts for nearly all the spread of its cluster, the shortcut cancels and is not taken: with a
    concentration that makes staying and leaving equally probable the row stays half of the time (level 1e-5)."""
    for far in (1.0, 1e2, 1e4, 1e6):
        components, hyper, rows = joint_table(14, 12, [4])
        rows.vectors[3] += far * np.sqrt(components.multinormal.blocks[0].square)
        prior, others, one = components.prior(hyper), np.delete(np.arange(12), 3), np.array([3], np.int32)
        s = statistics(rows.take(others), np.zeros(11), 1)
        stays, leaves = predictive(components, hyper, s, rows.take(one))[0] + np.log([11.0, 1.0])
        tail, stayed = kernels.Tail(prior, np.exp(stays - leaves), 0.0, 0.0), 0
        for cycle in range(2000):
            z = np.zeros(12, np.int32)
            tail.load(statistics(rows, z, 1))
            kernels.sweep(rows, z, 0, 9, cycle, 0, 0, None, tail, prior, remove=one, assign=one)
            stayed += z[3] == 0
        assert abs(stayed - 1000) < 4.42 * np.sqrt(500.0), far


def test_repeated_columns_do_not_break_the_sampler():
    """A repeated column makes every scatter singular; only the prior keeps S_n regular."""
    g = np.random.default_rng(3)
    x = g.normal(size=200)
    columns, rows = table_from_arrays([("a", "real", x, None), ("b", "real", x, None), ("c", "real", 1e3 * x, None)])
    blocks = {"g": {"columns": ("a", "b", "c"), "prior": {"kappa": 0.1, "nu": 4.0, "variance": 1e-20}}}
    components = Components(in_blocks(columns, blocks), {}, blocks)
    hyper, rows = components.start(1.0, 0.0), Carve(columns, blocks)(rows)
    s = statistics(rows, np.arange(200) % 2, 2)
    assert np.isfinite(log_marginal(components, hyper, s))
    draw = components.draw(hyper, s, components.everything, {"seed": 1, "cycle": 1, "chain": 0})
    assert np.isfinite(draw.vector_factor).all() and np.isfinite(draw.vector_location).all()
    assert np.isfinite(predictive(components, hyper, s, rows)).all()


def test_pivots_are_put_right_matrix_by_matrix():
    """Collinear columns under a prior as narrow as rounding: finite factors of that matrix, whatever the others are."""
    g = np.random.default_rng(5)
    x, y = g.normal(size=(600, 1)) * g.normal(size=12), g.normal(size=(600, 12))
    for variance in (1e-4, 1e-14, 1e-20):
        least = np.full(12, 13.0 * variance)
        both = np.stack([a.T @ a + np.diag(least) for a in (x, y)])
        lower = cholesky(both, np.broadcast_to(least, (2, 12)))
        np.testing.assert_allclose(lower @ lower.swapaxes(1, 2), both, rtol=1e-9, atol=1e-9)
        assert (np.diagonal(lower, axis1=1, axis2=2) ** 2 >= least * (1 - 1e-12)).all()
        assert cholesky(both[1:], least[None]).tobytes() == lower[1].tobytes()
