"""Laws every component obeys, from any state: chain rule, order, merging, removing, normalisation, posterior draws.

States are random mixed tables with missing cells and skewed cluster sizes (hypothesis, derandomised in conftest).
"""

from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.special import gammaln

from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.normal import Normal, merge_moments
from mpibayes.hpc.components.poisson import PoissonLaw
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.io.table import table_from_arrays
from mpibayes.kernels import mixture as kernels
from mpibayes.kernels.mixture import twin

PRIORS = {
    "c": {"dirichlet": [0.3, 1.7, 0.6]},
    "b": {"dirichlet": [2.0, 0.2]},
    "x": {"mean": 0.7, "kappa": 0.3, "nu": 1.6, "variance": 0.8},
    "n": {"shape": 0.7, "rate": 0.25},
}


def mixed_table(seed: int, n_rows: int, missing: float):
    """A random table of every kind with missing cells: (components, hyper, rows)."""
    g = np.random.Generator(np.random.Philox(seed))
    hole = g.random((4, n_rows)) < missing
    columns, rows = table_from_arrays(
        [
            ("c", "categorical", np.where(hole[0], -1, g.integers(3, size=n_rows)), ("p", "q", "r")),
            ("b", "boolean", np.where(hole[1], -1, g.integers(2, size=n_rows)), ("no", "yes")),
            ("x", "real", np.where(hole[2], np.nan, g.standard_t(2, size=n_rows) * 10.0 ** g.integers(-1, 3)), None),
            ("n", "count", np.where(hole[3], np.nan, g.negative_binomial(0.5, 0.05, size=n_rows)), None),
        ]
    )
    components = Components(columns, PRIORS)
    return components, components.start(1.0, 0.0), rows


def statistics(components, rows, z, k) -> Statistics:
    return Statistics(*kernels.accumulate(rows, np.asarray(z, np.int32), k, components.categorical.offsets))


def predictive(components, hyper, s: Statistics, rows) -> np.ndarray:
    """log f(x | cluster) for every row and cluster, last column f_H, by the kernel; (n, K + 1)."""
    tail = kernels.Tail(components.prior(hyper), 1.0, 0.0, 0.0, capacity=16 * (len(s) // 16 + 1))
    tail.load(s)
    log_weight = np.log(np.append(s.size, 1.0)) - np.log(s.size.sum() + 1.0)
    return kernels.log_predictive_clusters(rows, tail) - log_weight


def log_marginal(components, hyper, s) -> float:
    """Log marginal likelihood of all columns; counts without the 1 / x!."""
    return float(sum(kind.sum() for kind in components.log_marginal(hyper, s, components.everything)))


STATES = {"seed": st.integers(0, 10**6), "n_rows": st.integers(2, 40), "missing": st.sampled_from([0.0, 0.2, 0.9])}


@given(**STATES)
@settings(max_examples=40)
def test_chain_rule(seed, n_rows, missing):
    """log f(C + x) - log f(C) is the kernel's predictive, for every cluster and a new one (counts: up to log x!)."""
    components, hyper, rows = mixed_table(seed, n_rows, missing)
    g = np.random.Generator(np.random.Philox(seed + 1))
    k = int(g.integers(1, 4))
    z = np.concatenate([np.arange(k), g.integers(k, size=max(0, n_rows - 1 - k))])[: n_rows - 1]
    z = np.unique(z, return_inverse=True)[1]
    k = z.max() + 1
    before, last = rows.take(np.arange(n_rows - 1)), rows.take(np.array([n_rows - 1]))
    s = statistics(components, before, z, k)
    base = log_marginal(components, hyper, s)
    score = predictive(components, hyper, s, last)[0]
    factorial = gammaln(np.nan_to_num(last.tallies) + 1).sum()
    for cluster in range(k + 1):
        after = statistics(components, rows, np.append(z, cluster), k + 1)
        grown = log_marginal(components, hyper, after) - base - factorial
        assert score[cluster] == pytest.approx(grown, abs=2e-4, rel=1e-5), (seed, cluster)


@given(**STATES)
@settings(max_examples=40)
def test_order_of_rows_does_not_matter(seed, n_rows, missing):
    components, hyper, rows = mixed_table(seed, n_rows, missing)
    order = np.random.Generator(np.random.Philox(seed)).permutation(n_rows)
    z = np.arange(n_rows) % 2
    one = log_marginal(components, hyper, statistics(components, rows, z, 2))
    other = log_marginal(components, hyper, statistics(components, rows.take(order), z[order], 2))
    assert one == pytest.approx(other, rel=1e-10)


@given(**STATES, parts=st.integers(1, 5))
@settings(max_examples=40)
def test_merging_parts_agrees_with_the_whole(seed, n_rows, missing, parts):
    """Moments of shards, merged in order, are those of all rows; empty shards and clusters included."""
    components, _, rows = mixed_table(seed, n_rows, missing)
    g = np.random.Generator(np.random.Philox(seed))
    z, cut = g.integers(3, size=n_rows), np.sort(g.integers(n_rows + 1, size=parts - 1))
    whole = statistics(components, rows, z, 4)
    pieces = [statistics(components, rows.take(part), z[part], 4) for part in np.split(np.arange(n_rows), cut)]
    for name in ("size", "levels", "tally_n", "tally_sum"):
        np.testing.assert_array_equal(sum(getattr(p, name) for p in pieces), getattr(whole, name))
    n, mean, scatter = reduce(merge_moments, [p.of(Normal) for p in pieces])
    np.testing.assert_array_equal(n, whole.real_n)
    np.testing.assert_allclose(mean, whole.real_mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(scatter, whole.real_scatter, rtol=1e-8, atol=1e-8)


@given(**STATES)
@settings(max_examples=25)
def test_removing_undoes_adding(seed, n_rows, missing):
    """A cluster after a random walk of adding and removing rows predicts like a freshly filled one."""
    components, hyper, rows = mixed_table(seed, n_rows, missing)
    prior = components.prior(hyper)
    g = np.random.Generator(np.random.Philox(seed))
    cluster, members = twin.Cluster(prior), set()
    row = [twin.Row(rows, i) for i in range(n_rows)]
    for i in g.integers(n_rows, size=200):
        i = int(i)
        if i in members:
            cluster.remove(row[i])
            members.remove(i)
        else:
            cluster.add(row[i])
            members.add(i)
    fresh = twin.Cluster(prior)
    for i in sorted(members):
        fresh.add(row[i])
    np.testing.assert_array_equal(cluster.levels, fresh.levels)
    assert cluster.size == len(members)
    for i in range(n_rows):
        assert cluster.log_predictive(row[i]) == pytest.approx(fresh.log_predictive(row[i]), abs=1e-6)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_predictives_are_distributions(seed):
    """Each kind's predictive sums or integrates to one, given any cluster, and a missing cell has factor one."""
    components, hyper, rows = mixed_table(seed, 30, 0.3)
    s = statistics(components, rows, np.arange(30) % 3, 3)
    none = rows.take(np.array([0]))
    none.codes8[:] = [[3, 2]]
    none.reals[:] = none.tallies[:] = np.nan
    np.testing.assert_allclose(predictive(components, hyper, s, none), 0.0, atol=1e-5)

    def scores(block, column, values):
        copies = none.take(np.zeros(len(values), int))
        getattr(copies, block)[:, column] = values
        return np.exp(predictive(components, hyper, s, copies))

    np.testing.assert_allclose(scores("codes8", 0, [0, 1, 2]).sum(axis=0), 1.0, atol=1e-5)
    np.testing.assert_allclose(scores("codes8", 1, [0, 1]).sum(axis=0), 1.0, atol=1e-5)
    # The tail of the counts is geometric; that of a new cluster is ((b + 1)/b)^-x with b = 0.25.
    np.testing.assert_allclose(scores("tallies", 0, np.arange(4000.0)).sum(axis=0), 1.0, atol=1e-6)
    for k in range(4):
        total = integrate.quad(lambda u, k=k: scores("reals", 0, [np.sinh(u)])[0, k] * np.cosh(u), -30, 30, limit=400)[
            0
        ]
        assert total == pytest.approx(1.0, abs=1e-4)


def mean_of_drawn_densities(components, hyper, s, row, draws):
    """Monte-Carlo mean, and its standard error, of f(x | theta) over posterior draws, for every cluster (K,)."""
    offsets = components.categorical.offsets
    out = np.empty((draws, len(s)))
    for t in range(draws):
        p = components.draw(hyper, s, components.everything, {"seed": 5, "cycle": t, "chain": 0})
        score = sum(p.table[offsets[c] + v] for c, v in enumerate(row.codes8[0])).astype(float)
        score += p.constant[0] - p.half_precision[0] * (row.reals[0, 0] - p.location[0]) ** 2
        x = row.tallies[0, 0]
        out[t] = np.exp(score + x * p.log_rate[0] - p.rate[0] - gammaln(x + 1))
    return out.mean(axis=0), out.std(axis=0, ddof=1) / np.sqrt(draws)


def test_drawn_parameters_average_to_the_predictive():
    """E f(x | theta) over theta | C is f(x | C): |z| < 4.9 for 9 pairs (false alarm 1e-5); not so under another."""
    components, hyper, rows = mixed_table(11, 24, 0.25)
    s = statistics(components, rows, np.arange(24) % 3, 3)
    wrong = Hyper(1.0, 0.0, 3.0 * hyper.dirichlet, hyper.normal * [1, 1, 3, 1], hyper.gamma * [2.0, 1.0])
    worst = worst_wrong = 0.0
    for code, x, n in ((0, 1.0, 1.0), (1, -0.5, 0.0), (2, 0.2, 4.0)):
        row = rows.take(np.array([0]))
        row.codes8[:], row.reals[:], row.tallies[:] = [[code, code % 2]], x, n
        mean, error = mean_of_drawn_densities(components, hyper, s, row, 3000)
        worst = max(worst, np.abs((mean - np.exp(predictive(components, hyper, s, row)[0, :3])) / error).max())
        other = np.exp(predictive(components, wrong, s, row)[0, :3])
        worst_wrong = max(worst_wrong, np.abs((mean - other) / error).max())
    assert worst < 4.9
    assert worst_wrong > 8.0


def test_drawn_parameters_have_their_posteriors():
    """Variances, means, rates and probabilities of clusters of 0, 1, 2 and 5 rows, against the conjugate posteriors by
    Kolmogorov and Smirnov (16 tests, false alarm 2e-5 in all).

    Laws that are wrong by one degree of freedom, the kappa of the prior, one row or one level are rejected.
    """
    components, hyper, rows = mixed_table(12, 8, 0.0)
    z = np.array([1, 2, 2, 3, 3, 3, 3, 3])
    s = statistics(components, rows, z, 4)
    drawn = [components.draw(hyper, s, components.everything, {"seed": 6, "cycle": t, "chain": 0}) for t in range(4000)]
    location, precision, rate, share = (
        np.array(of)
        for of in (
            [p.location[0] for p in drawn],
            [2.0 * p.half_precision[0] for p in drawn],
            [p.rate[0] for p in drawn],
            [np.exp(p.table[0].astype(float)) for p in drawn],
        )
    )
    m0, kappa0, nu0, variance0 = hyper.normal[0]
    shape0, rate0 = hyper.gamma[0]
    right, wrong = [], []
    for k in range(4):
        x, counts, first = rows.reals[z == k, 0], rows.tallies[z == k, 0], (rows.codes8[z == k, 0] == 0).sum()
        n = len(x)
        kappa, nu = kappa0 + n, nu0 + n
        center = (kappa0 * m0 + x.sum()) / kappa
        spread = nu0 * variance0 + (x**2).sum() + kappa0 * m0**2 - kappa * center**2
        errors, shape = (location[:, k] - center) * np.sqrt(precision[:, k]), shape0 + counts.sum()
        a, rest = first + PRIORS["c"]["dirichlet"][0], n - first + sum(PRIORS["c"]["dirichlet"][1:])
        cases = [
            (precision[:, k] * spread, stats.chi2(nu), stats.chi2(nu - 1)),
            (errors * np.sqrt(kappa), stats.norm(), stats.norm(0, np.sqrt(kappa / kappa0))),
            (rate[:, k], stats.gamma(shape, scale=1 / (rate0 + n)), stats.gamma(shape, scale=1 / (rate0 + n - 1))),
            (share[:, k], stats.beta(a, rest), stats.beta(a + 1, rest)),
        ]
        for sample, law, other in cases:
            right.append(stats.kstest(sample, law.cdf).pvalue)
            if n:
                wrong.append(stats.kstest(sample, other.cdf).pvalue)
    assert min(right) > 1e-6, right
    assert max(wrong) < 1e-6, wrong


def test_poisson_distributions_have_the_bits_of_scipy():
    """At every size of rate, at both ends of probability, at steps, and beyond the support."""
    g = np.random.default_rng(7)
    n = 20_000
    rates, u = np.exp(g.uniform(-12, 12, n)), np.append(g.random(n - 4), [0.0, 1.0, 1e-300, 1 - 1e-16])
    x = np.append(np.floor(rates * g.lognormal(0, 0.5, n))[:-4] + g.choice([-1, 0, 0.5], n - 4), [-1, 0, np.inf, 1e300])
    ours, theirs = PoissonLaw(rates), stats.poisson(rates)
    for name, at in (("cdf", x), ("sf", x), ("ppf", u), ("ppf", theirs.cdf(x)), ("isf", u), ("isf", theirs.sf(x))):
        np.testing.assert_array_equal(getattr(ours, name)(at), getattr(theirs, name)(at), err_msg=name)
