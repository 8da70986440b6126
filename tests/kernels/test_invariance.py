"""One sweep leaves the posterior of a tiny table as it was.

A partition is drawn from the enumerated posterior, one sweep is applied, and the law of the result is compared with the
posterior by a chi-square test over all 203 partitions of six rows (those expected fewer than 5 times are pooled). The
draws are independent, so the false-alarm rate is the stated level, 1e-4 a test. Data: cat6 and cat6py of
docs/math.md 6.1. So do the steps of a list of visits while every row is in the subsample.
"""

import os
from math import lgamma, log

import numpy as np
import pytest
from scipy.stats import chi2

from mpibayes.kernels import mixture
from mpibayes.kernels.mixture.visits import visits

from .tables import Prior, Rows, Statistics

LEVEL = 1e-4
SEED = int(os.environ.get("MPIBAYES_TEST_SEED", "20"))
X = [(0, 0), (0, 0), (1, 1), (1, 1), (2, 0), (0, 1)]
BETA = [(0.5, 0.5, 1.0), (0.3, 0.7)]
ROWS = Rows(np.array(X, np.uint8), np.zeros((6, 0), np.uint16), np.zeros((6, 0)), np.zeros((6, 0)))
PRIOR = Prior(np.array([0, 4, 7]), np.array([0.5, 0.5, 1.0, 0, 0.3, 0.7, 0]), np.zeros((0, 4)), np.zeros((0, 2)))


def partitions(n):
    """Restricted growth strings."""
    if n == 0:
        return [()]
    return [(*p, k) for p in partitions(n - 1) for k in range(max(p, default=-1) + 2)]


def log_joint(z, alpha, d):
    """log EPPF + log marginal likelihoods, docs/math.md 1."""
    total = -sum(log(alpha + i) for i in range(1, len(z)))
    for k in range(max(z) + 1):
        rows = [X[i] for i in range(len(z)) if z[i] == k]
        total += (log(alpha + k * d) if k else 0) + lgamma(len(rows) - d) - lgamma(1 - d)
        for c, beta in enumerate(BETA):
            total += lgamma(sum(beta)) - lgamma(sum(beta) + len(rows))
            for v, b in enumerate(beta):
                total += lgamma(b + sum(x[c] == v for x in rows)) - lgamma(b)
    return total


def posterior(alpha, d):
    states = partitions(6)
    scores = np.array([log_joint(z, alpha, d) for z in states])
    return states, np.exp(scores - np.logaddexp.reduce(scores))


def canonical(z):
    seen = {}
    return tuple(seen.setdefault(k, len(seen)) for k in z)


def p_value(counts, probabilities):
    expected = probabilities * counts.sum()
    small = expected < 5
    observed = np.append(counts[~small], counts[small].sum())
    expected = np.append(expected[~small], expected[small].sum())
    return chi2.sf(((observed - expected) ** 2 / expected).sum(), len(observed) - 1)


def gibbs_sweep(z, tail, cycle):
    mixture.sweep(ROWS, z, 0, SEED, cycle, 0, 0, None, tail, PRIOR)


def unseated_rows(z, tail, cycle):
    """A wrong variant: a row is seated without first being taken out of the counts."""
    z[:] = -1
    gibbs_sweep(z, tail, cycle)


def random_scan(z, tail, cycle):
    """Six steps of a list of visits; with no idle row each is a Gibbs step of a random row."""
    remove, assign = visits(z, 0, 6, SEED, cycle, 0, 0, 0)
    assert np.array_equal(remove, assign)
    mixture.sweep(ROWS, z, 0, SEED, cycle, 0, 0, None, tail, PRIOR, remove=remove, assign=assign)


def four_at_a_time(z, tail, cycle):
    """A wrong variant: four rows are taken out together, then seated one after the other."""
    four = np.random.default_rng([SEED, cycle]).permuted(np.tile(np.arange(6), (3, 1)), axis=1)[:, :4]
    nobody = np.full((3, 4), -1)
    remove = np.hstack([four, nobody]).ravel().astype(np.int32)
    assign = np.hstack([nobody, four]).ravel().astype(np.int32)
    mixture.sweep(ROWS, z, 0, SEED, cycle, 0, 0, None, tail, PRIOR, remove=remove, assign=assign)
    assert (z >= 0).all()


# Right and wrong ones go in pairs: rows that are not unseated are rejected with p = 1e-37 at 10,000 draws.
DRAWS = {gibbs_sweep: 10_000, unseated_rows: 10_000, random_scan: 25_000, four_at_a_time: 25_000}


def law_after(kernel, alpha, d, n):
    """Frequencies of the partitions after `kernel(labels, tail, cycle)`."""
    states, p = posterior(alpha, d)
    number = {z: i for i, z in enumerate(states)}
    starts = np.random.default_rng(SEED).choice(len(states), size=n, p=p)
    counts = np.zeros(len(states))
    loaded = [Statistics(*mixture.accumulate(ROWS, np.array(z, np.int32), 6, PRIOR.offsets)) for z in states]
    for cycle, start in enumerate(starts):
        tail = mixture.Tail(PRIOR, alpha, d, 0.0)
        tail.load(loaded[start])
        z = np.array(states[start], np.int32)
        kernel(z, tail, cycle)
        counts[number[canonical(z.tolist())]] += 1
    return counts, p


@pytest.mark.quick("0.5-0.4--12.606384-p_clusters1-gibbs_sweep")
@pytest.mark.parametrize("kernel", [gibbs_sweep, random_scan])
@pytest.mark.parametrize(
    "alpha, d, log_evidence, p_clusters",
    [
        (1.0, 0.0, -12.704238, [0.061268, 0.334405, 0.394766, 0.175241, 0.032254, 0.002067]),
        (0.5, 0.4, -12.606384, [0.042415, 0.171402, 0.293110, 0.287226, 0.162463, 0.043384]),
    ],
)
def test_posterior_is_invariant(kernel, alpha, d, log_evidence, p_clusters):
    states, p = posterior(alpha, d)
    assert np.logaddexp.reduce([log_joint(z, alpha, d) for z in states]) == pytest.approx(log_evidence, abs=1e-6)
    assert np.bincount([max(z) for z in states], weights=p) == pytest.approx(p_clusters, abs=1e-6)
    counts, p = law_after(kernel, alpha, d, DRAWS[kernel])
    assert p_value(counts, p) > LEVEL, f"seed {SEED}"


@pytest.mark.quick("unseated_rows")
@pytest.mark.parametrize("kernel", [unseated_rows, four_at_a_time])
def test_wrong_variant_is_rejected(kernel):
    counts, p = law_after(kernel, 1.0, 0.0, DRAWS[kernel])
    assert p_value(counts, p) < LEVEL


def test_draw_has_the_stated_probabilities():
    """200,000 equal rows over 40 instantiated clusters with weights from 0.2 to 1e-6; level 1e-4."""
    n, k = 200_000, 40
    weight = np.exp(np.random.default_rng(3).uniform(-12, 0, size=k))
    weight /= weight.sum()
    rows = Rows(*(np.zeros((n, 0), t) for t in (np.uint8, np.uint16, float, float)))
    prior = Prior(np.zeros(1, np.int64), np.zeros(0), np.zeros((0, 4)), np.zeros((0, 2)))
    held = mixture.Instantiated(k, log_weight=np.log(weight) - 500.0)
    z = np.full(n, -1, dtype=np.int32)
    mixture.sweep(rows, z, 0, SEED, 0, 0, 0, held, None, prior)
    assert p_value(np.bincount(z, minlength=k).astype(float), weight) > LEVEL, f"seed {SEED}"
