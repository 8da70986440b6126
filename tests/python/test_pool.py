"""Rubin's rules: against published worked examples, formulas in another form, and intervals that have to cover."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import mpibayes as mb
from mpibayes.errors import ConfigError


def by_hand(q, u, dfcom):
    """Barnard & Rubin (1999) in the form of their equations, number by number."""
    m = len(q)
    mean, between = sum(q) / m, sum((x - sum(q) / m) ** 2 for x in q) / (m - 1)
    within = sum(u) / m
    total = within + between + between / m
    gamma = (between + between / m) / total
    old = (m - 1) / gamma**2
    observed = (dfcom + 1) / (dfcom + 3) * dfcom * (1 - gamma)
    df = old * observed / (old + observed)
    r = (between + between / m) / within
    return mean, total**0.5, df, (r + 2 / (df + 3)) / (r + 1)


@pytest.mark.parametrize("dfcom", [5.0, 24.0, 1e6])
def test_the_rules_are_those_of_the_papers(dfcom):
    q, u = [1.2, 0.4, 2.1, 1.7], [0.5, 0.7, 0.6, 0.4]
    pooled = mb.pool(q, u, dfcom=dfcom)
    assert (pooled.estimate, pooled.se, pooled.df, pooled.fmi) == pytest.approx(by_hand(q, u, dfcom))
    assert pooled.high - pooled.low == pytest.approx(2 * stats.t.ppf(0.975, pooled.df) * pooled.se)


# Means and standard errors of five imputations of 31 people, and what is published of them pooled: estimate, between,
# within and total variance, degrees of freedom (SAS/STAT User's Guide, the MIANALYZE procedure, first example; EDF=30).
FITNESS = {
    "Oxygen": (
        [47.0120, 47.2407, 47.4995, 47.1485, 47.0042],
        [0.95984, 0.93540, 1.00766, 0.95439, 0.96528],
        (47.180993, 0.041478, 0.930853, 0.980626, 26.298),
    ),
    "RunPulse": (
        [171.216, 171.244, 171.909, 171.146, 172.072],
        [1.59910, 1.75638, 1.85795, 1.75011, 1.84807],
        (171.517500, 0.191086, 3.114442, 3.343744, 25.463),
    ),
}


def test_a_published_example():
    q, errors, published = zip(*FITNESS.values())
    pooled = mb.pool(np.transpose(q), np.transpose(errors) ** 2, n=31)
    result = [pooled.estimate, pooled.between, pooled.within, pooled.se**2, pooled.df]
    assert np.transpose(result) == pytest.approx(np.array(published), rel=5e-4)


def test_pool_scalar_of_mice():
    """The example of its help page, as mice 3.15.0 answers it: n = 25, k = 2 are 23 degrees of freedom."""
    pooled = mb.pool([-1.5457, -1.428], [0.9723**2, 1.041**2], dfcom=23)
    assert (pooled.se**2, pooled.df, pooled.fmi) == pytest.approx((1.02491411, 20.9702548, 0.0927283145))


def test_rubin_1987_without_complete_degrees_of_freedom():
    """Rubin (1987), equation 3.1.6: nu = (M - 1) (1 + 1 / r)^2."""
    q, u = np.array([10.0, 14.0, 9.0]), np.array([4.0, 5.0, 3.0])
    r = (1 + 1 / 3) * q.var(ddof=1) / u.mean()
    assert mb.pool(q, u).df == pytest.approx(2 * (1 + 1 / r) ** 2)


def test_n_stands_for_one_parameter_less():
    assert mb.pool([1.0, 2.0], [1.0, 1.0], n=25).df == mb.pool([1.0, 2.0], [1.0, 1.0], dfcom=24).df
    assert mb.pool([1.0, 2.0], [1.0, 1.0], n=25).df < mb.pool([1.0, 2.0], [1.0, 1.0]).df


def test_copies_that_agree_leave_the_complete_data():
    pooled = mb.pool([2.0, 2.0, 2.0], [0.25, 0.25, 0.25], dfcom=20)
    assert pooled.se == 0.5 and pooled.df == pytest.approx(21 / 23 * 20) and pooled.between == 0.0
    assert mb.pool([2.0, 2.0], [0.0, 0.0]).se == 0.0


def model(params, covariance, df=97.0):
    pandas = pytest.importorskip("pandas")
    return SimpleNamespace(params=pandas.Series(params), cov_params=lambda: covariance, df_resid=df)


def test_models_that_were_fitted():
    fits = [model({"const": a, "x": b}, np.diag([0.1, 0.2])) for a, b in ((1.0, 3.0), (1.2, 2.0), (0.9, 2.5))]
    pooled = mb.pool(fits)
    assert pooled["term"].tolist() == ["const", "x"]
    again = mb.pool([[1.0, 3.0], [1.2, 2.0], [0.9, 2.5]], [[0.1, 0.2]] * 3, dfcom=97.0)
    for name in ("estimate", "se", "df", "low", "high", "fmi"):
        assert pooled[name] == pytest.approx(again[name])
    assert "fmi" in repr(pooled) and pooled.to_pandas().shape == (2, 7)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (([1.0], [1.0]), "1 copy: one says nothing"),
        (([1.0, 2.0], [1.0, -1.0]), "below 0"),
        (([1.0, 2.0], [1.0]), "do not fit"),
        (([1.0, np.nan], [1.0, 1.0]), "not finite"),
        ((["a", "b"], [1.0, 1.0]), "not numbers"),
        (([1.0, 2.0],), "no fitted model"),
        (([1.0, 2.0], [1.0, 1.0], 1), "n = 1"),
        (([1.0, 2.0], [1.0, 1.0], None, 0), "dfcom = 0"),
        (([model({"x": 1.0}, [[1.0]]), model({"y": 1.0}, [[1.0]])],), "different terms"),
        ((3.0, 1.0), "not numbers"),
    ],
)
def test_mistakes_are_told(arguments, words):
    with pytest.raises(ConfigError, match=words):
        mb.pool(*arguments)


def coverage(seed, repeats=2000, n=60, observed=30, copies=20, proper=True):
    """Frequency with which 95 % intervals of a mean cover, on normal data with cells missing at random, filled in from
    the exact posterior under the usual flat prior."""
    g, hits = np.random.default_rng(seed), 0
    for _ in range(repeats):
        x = g.normal(size=observed)
        variance, mean = np.full(copies, x.var(ddof=1)), np.full(copies, x.mean())
        if proper:
            variance = (observed - 1) * variance / g.chisquare(observed - 1, copies)
            mean = g.normal(mean, np.sqrt(variance / observed))
        drawn = g.normal(mean[:, None], np.sqrt(variance)[:, None], (copies, n - observed))
        full = np.hstack([np.tile(x, (copies, 1)), drawn])
        pooled = mb.pool(full.mean(axis=1), full.var(axis=1, ddof=1) / n, n=n)
        hits += pooled.low < 0.0 < pooled.high
    return hits / repeats


@pytest.mark.thorough
def test_intervals_cover():
    """Within 1.5 points of 95 %, of which 2,000 repeats have a standard error of 0.5: a sound program fails about once
    in 300 seeds. With cells drawn under one mean and variance they cover less often."""
    assert abs(coverage(3) - 0.95) < 0.015
    assert coverage(3, proper=False) < 0.935


def test_the_rule_for_synthetic_tables_adds_up():
    """Raab, Nowok & Dibben (2016): T = v (k/n + (1 + k/n) / M); with k = n and one table 3 v, with many v."""
    q, u = [1.0, 3.0, 2.0, 2.0], [0.2, 0.3, 0.25, 0.25]
    pooled = mb.pool(q, u, n=100, k=50, synthetic=True)
    assert pooled.estimate == 2.0 and pooled.se**2 == pytest.approx(0.25 * (0.5 + 1.5 / 4))
    assert pooled.df == 99 and np.isnan(pooled.fmi) and pooled.within == 0.25
    assert mb.pool([1.0], [0.25], n=100, synthetic=True).se ** 2 == pytest.approx(0.75)
    assert mb.pool([1.0] * 1000, [0.25] * 1000, n=100, synthetic=True).se ** 2 == pytest.approx(0.25 * 1.002)
    table = mb.pool([[1.0, 2.0]] * 2, [[0.1, 0.1]] * 2, n=10, synthetic=True)
    assert "synthetic tables" in table.title and "fmi" not in table.names and len(table) == 2


@pytest.mark.parametrize(
    "more, words",
    [
        ({}, "give n, the number of rows"),
        ({"n": 100, "k": 0}, "k = 0"),
        ({"n": 1}, "n = 1"),
        ({"n": 100, "k": 10, "synthetic": False}, "give synthetic=True"),
    ],
)
def test_mistakes_about_synthetic_tables_are_told(more, words):
    with pytest.raises(ConfigError, match=words):
        mb.pool([1.0, 2.0], [1.0, 1.0], **{"synthetic": True, **more})


def synthetic_coverage(rule, seed=4, repeats=3000, n=60, tables=5, k=90):
    """Frequency with which 95 % intervals of a mean cover, from synthetic tables of normal data, each from its own draw
    of the exact posterior under the usual flat prior."""
    g, hits = np.random.default_rng(seed), 0
    for _ in range(repeats):
        x = g.normal(size=n)
        variance = (n - 1) * x.var(ddof=1) / g.chisquare(n - 1, tables)
        mean = g.normal(x.mean(), np.sqrt(variance / n))
        drawn = g.normal(mean[:, None], np.sqrt(variance)[:, None], (tables, k))
        pooled = mb.pool(drawn.mean(axis=1), drawn.var(axis=1, ddof=1) / k, n, **rule(k))
        hits += pooled.low < 0.0 < pooled.high
    return hits / repeats


def test_intervals_from_synthetic_tables_cover():
    """Within 1.6 points of 95 %, of which 3,000 repeats have a standard error of 0.4: a sound program fails about once
    in 10,000 seeds. Rubin's rule for completed copies gives intervals that are much too wide."""
    assert abs(synthetic_coverage(lambda k: {"k": k, "synthetic": True}) - 0.95) < 0.016
    assert synthetic_coverage(lambda k: {}) > 0.97
    assert synthetic_coverage(lambda k: {"k": k // 3, "synthetic": True}) < 0.9
