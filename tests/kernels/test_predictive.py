"""Predictives obey the chain rule: their product over rows, in any order, is the marginal likelihood in closed form."""

from decimal import Decimal, getcontext

import numpy as np
import pytest
from scipy.special import gammaln

from mpibayes.kernels import mixture
from mpibayes.kernels.mixture import twin

from .tables import Prior, Rows, Statistics, random_table


def log_marginal(rows, prior):
    """log f of all rows in one cluster, docs/math.md 1."""
    total = 0.0
    codes = np.concatenate([rows.codes8, rows.codes16], axis=1).astype(int)
    for c in range(codes.shape[1]):
        beta = prior.dirichlet[prior.offsets[c] : prior.offsets[c + 1] - 1]
        n = np.bincount(codes[:, c], minlength=len(beta) + 1)[: len(beta)]
        total += gammaln(beta.sum()) - gammaln(beta.sum() + n.sum()) + (gammaln(beta + n) - gammaln(beta)).sum()
    for r, (mean0, kappa0, nu0, variance0) in enumerate(prior.normal):
        x = rows.reals[:, r][~np.isnan(rows.reals[:, r])]
        n, mean = len(x), x.mean() if len(x) else 0.0
        kappa, nu = kappa0 + n, nu0 + n
        square = nu0 * variance0 + ((x - mean) ** 2).sum() + n * kappa0 / kappa * (mean0 - mean) ** 2
        total += (
            gammaln(nu / 2)
            - gammaln(nu0 / 2)
            + 0.5 * np.log(kappa0 / kappa)
            - n / 2 * np.log(np.pi)
            + nu0 / 2 * np.log(nu0 * variance0)
            - nu / 2 * np.log(square)
        )
    for q, (a, b) in enumerate(prior.gamma):
        x = rows.tallies[:, q][~np.isnan(rows.tallies[:, q])]
        total += (
            a * np.log(b)
            - gammaln(a)
            + gammaln(a + x.sum())
            - (a + x.sum()) * np.log(b + len(x))
            - gammaln(x + 1).sum()
        )
    return total


def log_chain(rows, prior, concentration=0.7, discount=0.2):
    """sum over i of log f(row i | rows before it), taken from log_predictive_clusters."""
    total = 0.0
    for i in range(len(rows)):
        before = rows.take(slice(0, i))
        tail = mixture.Tail(prior, concentration, discount, 0.0)
        tail.load(Statistics(*mixture.accumulate(before, np.zeros(i, dtype=np.int32), 1, prior.offsets)))
        terms = mixture.log_predictive_clusters(rows.take(slice(i, i + 1)), tail)[0]
        if i == 0:
            assert len(terms) == 1
            total += terms[0]
        else:
            total += terms[0] - np.log(i - discount) + np.log(i + concentration)
            empty = mixture.Tail(prior, 1.0, 0.0, 0.0)
            alone = mixture.log_predictive_clusters(rows.take(slice(i, i + 1)), empty)[0, 0]
            opening = np.log(concentration + discount) - np.log(i + concentration)
            assert terms[1] == pytest.approx(alone + opening, abs=1e-5)
        assert mixture.log_predictive(rows.take(slice(i, i + 1)), tail)[0] == pytest.approx(
            np.logaddexp.reduce(terms), abs=1e-6
        )
    return total


@pytest.mark.parametrize(
    "kind",
    [
        {"levels8": (2, 3, 40), "levels16": (260,)},
        {"n_reals": 3},
        {"n_tallies": 3},
        {"levels8": (2, 5), "levels16": (260,), "n_reals": 2, "n_tallies": 2},
    ],
)
def test_chain_rule(kind):
    rng = np.random.default_rng(21)
    rows, prior = random_table(rng, 40, **kind)
    expected = log_marginal(rows, prior)
    for order in (np.arange(40), rng.permutation(40)):
        assert log_chain(rows.take(order), prior) == pytest.approx(expected, abs=40 * 1e-5)


@pytest.mark.parametrize("n_reals", [1, 10, 41, 70])
@pytest.mark.parametrize("away", [1.0, 1e6, 1e40])
def test_columns_with_different_powers_of_two_as_nu(n_reals, away):
    """Near and far rows, few and many columns: products of densities' factors, with and without room to spare."""
    rng = np.random.default_rng([22, n_reals])
    rows, prior = random_table(rng, 90, n_reals=n_reals, missing=0.0, powers=True)
    z = rng.integers(20, size=90).astype(np.int32)
    result, expected = [], []
    for kernels in (mixture, twin):
        tail = kernels.Tail(prior, 1.0, 0.0, 0.0)
        tail.load(Statistics(*mixture.accumulate(rows, z, 20, prior.offsets)))
        for s in (slice(0, 6), slice(6, 13)):
            part = rows.take(np.arange(13))
            part.reals[::2] *= away
            part = part.take(s)
            (result if kernels is mixture else expected).append(kernels.log_predictive_clusters(part, tail))
    result, expected = np.concatenate(result), np.concatenate(expected)
    np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-10)
    wrong = prior.normal.copy()
    wrong[0, 2] = 64.0 if wrong[0, 2] < 64 else 32.0
    prior.normal = wrong
    tail = twin.Tail(prior, 1.0, 0.0, 0.0)
    tail.load(Statistics(*mixture.accumulate(rows, z, 20, prior.offsets)))
    assert not np.allclose(result[6:], twin.log_predictive_clusters(part, tail), rtol=1e-9)


def one_column(reals=(), tallies=(), normal=(), gamma=()):
    n = max(len(reals), len(tallies))
    rows = Rows(
        np.zeros((n, 0), np.uint8),
        np.zeros((n, 0), np.uint16),
        np.array(reals, float).reshape(n, len(normal)),
        np.array(tallies, float).reshape(n, len(gamma)),
    )
    return rows, Prior(
        np.zeros(1, np.int64),
        np.zeros(0),
        np.array(normal, float).reshape(-1, 4),
        np.array(gamma, float).reshape(-1, 2),
    )


def exact_log_gamma(y):
    """log Gamma in 60 digits, by Stirling's series above 60 and the recurrence below."""
    product = Decimal(1)
    while y < 60:
        product, y = product * y, y + 1
    two_pi = 2 * Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
    bernoulli = [(1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510), (43867, 798)]
    series = sum(Decimal(a) / b / ((2 * k + 1) * (2 * k + 2)) / y ** (2 * k + 1) for k, (a, b) in enumerate(bernoulli))
    return (y - Decimal("0.5")) * y.ln() - y + two_pi.ln() / 2 + series - product.ln()


def test_counts_from_zero_to_billions():
    """Absolute error below 1e-5 where the terms of the textbook formula are near 1e13."""
    getcontext().prec = 60
    shape, rate = 0.3, 1e-4
    for total, n in [(0, 0), (3, 2), (10**9, 1), (10**12, 10**3), (10**15, 10**6), (2 * 10**9, 10**9)]:
        statistics = Statistics(
            np.array([max(n, 1)]),
            np.zeros((0, 1), np.int32),
            *np.zeros((3, 0, 1)),
            np.array([[n]]),
            np.array([[float(total)]]),
        )
        x = np.array([0, 1, 2, 15, 16, 17, 100, 10**4, 999_999_999, 10**9, 1_000_100_000, 5 * 10**9], dtype=float)
        rows, prior = one_column(tallies=x, gamma=[(shape, rate)])
        tail = mixture.Tail(prior, 1.0, 0.0, 0.0)
        tail.load(statistics)
        ours = mixture.log_predictive_clusters(rows, tail)[:, 0] - np.log(max(n, 1)) + np.log(max(n, 1) + 1.0)
        a, b = Decimal(shape) + total, Decimal(rate) + n
        for value, got in zip(x, ours, strict=True):
            v = Decimal(value)
            expected = (
                exact_log_gamma(a + v)
                - exact_log_gamma(a)
                - exact_log_gamma(v + 1)
                + a * (b / (b + 1)).ln()
                - v * (b + 1).ln()
            )
            assert got == pytest.approx(float(expected), abs=1e-5, rel=2e-12), (total, n, value)


def test_reals_far_from_zero():
    """Clusters of sd 1e-3 at 1e8: the square is that of a difference, so 8 digits are lost to the data's own rounding
    only."""
    rng = np.random.default_rng(22)
    x = 1e8 + np.round(rng.normal(0, 2.0**-10, size=50) * 2**26) / 2**26  # exact in float64
    normal = (1e8, 0.1, 2.0, 1e-6)
    rows, prior = one_column(reals=x, normal=[normal])
    near, prior_near = one_column(reals=x - 1e8, normal=[(0.0, *normal[1:])])
    assert log_chain(rows, prior) == pytest.approx(log_chain(near, prior_near), abs=1e-4)
    assert log_chain(near, prior_near) == pytest.approx(log_marginal(near, prior_near), abs=1e-8)


def test_huge_and_constant_columns():
    """1e200 ends alone and spoils no other cluster; a constant column has scatter exactly 0."""
    x = np.array([5.0] * 9 + [1e200])
    normal = [(0, 0.1, 2, 1), (7.0, 0.1, 2, 1e-12)]
    rows, prior = one_column(reals=np.column_stack([x, np.full(10, 7.0)]), normal=normal)
    tail, z = mixture.Tail(prior, 1.0, 0.0, 0.0), np.full(10, -1, dtype=np.int32)
    for cycle in range(20):
        mixture.sweep(rows, z, 0, 4, cycle, 0, 0, None, tail, prior)
        assert (z == z[9]).sum() == 1
        others = tail.size > 0
        others[z[9]] = False
        assert np.all(tail.real_scatter[:, others] == 0) and np.all(tail.real_mean[:, others] == [[5.0], [7.0]])
    assert np.isfinite(mixture.log_predictive(rows, tail)).all()


def test_most_levels_a_column_can_have():
    levels = 65_535
    rng = np.random.default_rng(23)
    codes = rng.integers(0, levels + 1, size=(200, 1)).astype(np.uint16)
    codes[:4, 0] = 0, levels - 1, levels, levels - 1
    rows = Rows(np.zeros((200, 0), np.uint8), codes, np.zeros((200, 0)), np.zeros((200, 0)))
    beta = np.full(levels + 1, 0.01)
    beta[-1] = 0
    prior = Prior(np.array([0, levels + 1]), beta, np.zeros((0, 4)), np.zeros((0, 2)))
    tail, z = mixture.Tail(prior, 1.0, 0.0, 0.0), np.full(200, -1, dtype=np.int32)
    for cycle in range(3):
        mixture.sweep(rows, z, 0, 4, cycle, 0, 0, None, tail, prior)
    expected = mixture.accumulate(rows, z, tail.capacity, prior.offsets)
    assert np.array_equal(tail.levels, expected[1])
    terms = mixture.log_predictive_clusters(rows.take(slice(1, 3)), tail)
    k = int(z[0])
    seen = tail.levels[levels - 1, k] + 0.01
    observed = tail.size[k] - tail.levels[levels, k] + 0.01 * levels
    weight = np.log(tail.size[k]) - np.log(201)
    assert terms[0, k] == pytest.approx(weight + np.log(seen / observed), abs=1e-5)
    assert terms[1, k] == pytest.approx(weight, abs=1e-5)


def test_scores_do_not_drift():
    """After many moves the incremental tables equal those of a tail loaded afresh, to 1e-5."""
    rng = np.random.default_rng(24)
    rows, prior = random_table(rng, 150, levels8=(2, 3, 4, 9, 20) * 8, missing=0.3)
    tail, z = mixture.Tail(prior, 3.0, 0.0, 0.0), np.full(150, -1, dtype=np.int32)
    moved = sum(mixture.sweep(rows, z, 0, 5, cycle, 0, 0, None, tail, prior) for cycle in range(60))
    assert moved > 150
    fresh = mixture.Tail(prior, 3.0, 0.0, 0.0)
    fresh.load(Statistics(*mixture.accumulate(rows, z, tail.n_slots, prior.offsets)))
    one, other = (mixture.log_predictive_clusters(rows, t) for t in (tail, fresh))
    common = min(one.shape[1], other.shape[1]) - 1
    np.testing.assert_allclose(one[:, :common], other[:, :common], atol=3e-5)


@pytest.mark.parametrize("n_columns", [1, 3, 8, 21])
def test_columns_are_taken_as_the_twin_takes_them(n_columns):
    rng = np.random.default_rng(n_columns)
    terms, u = rng.normal(0, 30, (200, n_columns)), rng.random(200)
    terms[:, -1] -= 2000.0
    terms[::7, 0] = -np.inf if n_columns > 1 else 0.0
    for given in (None, rng.integers(1 if n_columns > 1 else 0, n_columns, 200).astype(np.int32)):
        (ours, log_q), (theirs, twins_log_q) = (of.take(terms, u, given) for of in (mixture, twin))
        assert ours.tolist() == theirs.tolist()
        assert log_q == pytest.approx(twins_log_q, rel=1e-13)


def test_taken_columns_have_the_frequencies_of_their_weights():
    rng = np.random.default_rng(5)
    p = np.array([0.05, 0.25, 0.0, 0.4, 0.3])
    with np.errstate(divide="ignore"):
        terms = np.tile(np.log(p) + 700.0, (20_000, 1))
    chosen, log_q = mixture.take(terms, rng.random(len(terms)))
    count = np.bincount(chosen, minlength=5)
    assert count[2] == 0
    square = ((count - len(terms) * p) ** 2 / np.where(p > 0, len(terms) * p, 1.0)).sum()
    assert square < 18.5  # chi-square, 3 degrees of freedom: false alarms 3.5e-4
    assert log_q == pytest.approx(np.log(p[chosen]).sum())
