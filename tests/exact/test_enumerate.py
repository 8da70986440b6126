"""The enumeration agrees with published numbers to every printed digit, and with itself where two roads lead there."""

import numpy as np
import pytest

from tests.exact.enumerate import (
    CASES,
    Grids,
    Posterior,
    draw_prior_partition,
    expected_clusters,
    log_law_of_clusters,
    log_marginal_of_subsets,
    partitions,
)

PUBLIC = {
    "cat6": (
        -12.704238,
        (0.061268, 0.334405, 0.394766, 0.175241, 0.032254, 0.002067),
        {
            (0, 1): 0.724302, (2, 3): 0.608611, (0, 4): 0.541955, (0, 5): 0.440706,
            (2, 5): 0.377835, (4, 5): 0.315378, (0, 2): 0.228621, (2, 4): 0.203569,
        },
        {"001100": 0.083392, "001101": 0.071479, "000000": 0.061268},
    ),
    "cat6py": (
        -12.606384,
        (0.042415, 0.171402, 0.293110, 0.287226, 0.162463, 0.043384),
        {(0, 1): 0.592711, (2, 3): 0.440441, (4, 5): 0.219300},
        {},
    ),
    "nix5": (
        -12.003300,
        (0.068938, 0.384068, 0.411575, 0.124421, 0.010998),
        {
            (0, 1): 0.728379, (3, 4): 0.736623, (2, 3): 0.432927,
            (2, 4): 0.407869, (0, 2): 0.274869, (0, 4): 0.139869,
        },
        {"00111": 0.185955, "00122": 0.179468, "00011": 0.094810},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLIC)
def test_public_numbers(name):
    log_evidence, p_clusters, pairs, top = PUBLIC[name]
    posterior = Posterior(CASES[name])
    assert posterior.log_evidence == pytest.approx(log_evidence, abs=5.1e-7)
    np.testing.assert_allclose(posterior.p_clusters(), p_clusters, atol=5.1e-7)
    for (i, j), p in pairs.items():
        assert posterior.together(i, j) == pytest.approx(p, abs=5.1e-7)
    strings = ["".join(map(str, s)) for s in posterior.partitions]
    for rank, (text, p) in enumerate(top.items()):
        best = np.argsort(-posterior.p)[rank]
        assert strings[best] == text
        assert posterior.p[best] == pytest.approx(p, abs=5.1e-7)


def test_public_marginal_likelihoods():
    for name, everything, first in (("cat6", -13.704980, -2.590267), ("nix5", -13.334881, -2.415538)):
        case = CASES[name]
        total = sum(log_marginal_of_subsets(c, case.priors[c[0]]) for c in case.columns)
        assert total[-1] == pytest.approx(everything, abs=5.1e-7)
        assert total[1] == pytest.approx(first, abs=5.1e-7)


def test_evidence_by_another_road():
    """log p(X) computed row by row over a growing set of partitions (chain rule of EPPF and likelihood together)."""
    for case in CASES.values():
        tables = sum(log_marginal_of_subsets(c, case.priors[c[0]]) for c in case.columns)
        states = {(1,): tables[1]}
        for n in range(1, case.n_rows):
            grown = {}
            for blocks, log_p in states.items():
                total = np.log(n + case.concentration)
                for i, mask in enumerate(blocks):
                    size = bin(mask).count("1")
                    wider = mask | 1 << n
                    key = (*blocks[:i], wider, *blocks[i + 1 :])
                    grown[key] = log_p + np.log(size - case.discount) - total + tables[wider] - tables[mask]
                new = np.log(case.concentration + len(blocks) * case.discount) - total
                grown[(*blocks, 1 << n)] = log_p + new + tables[1 << n]
            states = grown
        assert np.logaddexp.reduce(list(states.values())) == pytest.approx(Posterior(case).log_evidence, abs=1e-10)


def test_a_cell_that_is_missing_does_not_count():
    """Removing the row of miss6 that is missing altogether from every column leaves the law of the other rows
    unchanged."""
    case = CASES["miss6"]
    keep = [0, 1, 2, 3, 5]
    smaller = case.with_(columns=tuple((n, k, tuple(v[i] for i in keep), lv) for n, k, v, lv in case.columns))
    whole, part = Posterior(case), Posterior(smaller)
    marginal = np.bincount(part.index(whole.partitions[:, keep]), weights=whole.p)
    np.testing.assert_allclose(marginal, part.p, atol=1e-12)
    assert whole.log_evidence == pytest.approx(part.log_evidence, abs=1e-10)


def test_grids_are_averages_of_single_points():
    case = CASES["cat6"]
    points = ((0.3, 0.0), (1.0, 0.2), (-0.1, 0.5))
    priors = (case.priors["a"], {"dirichlet": (2.0, 2.0, 4.0)})
    joint = Posterior(case, Grids((points, np.log([0.5, 0.25, 0.25])), {"a": (priors, np.log([0.9, 0.1]))}))
    total, by_point, by_prior = np.zeros(len(joint.p)), [], np.zeros((2, len(joint.p)))
    for (alpha, d), w in zip(points, (0.5, 0.25, 0.25)):
        by_point.append(np.zeros(len(joint.p)))
        for h, (prior, v) in enumerate(zip(priors, (0.9, 0.1))):
            single = Posterior(case.with_(concentration=alpha, discount=d, priors={**case.priors, "a": prior}))
            mass = w * v * np.exp(single.log_evidence) * single.p
            total += mass
            by_point[-1] += mass
            by_prior[h] += mass
    evidence = total.sum()
    assert joint.log_evidence == pytest.approx(np.log(evidence), abs=1e-10)
    np.testing.assert_allclose(joint.p, total / evidence, atol=1e-12)
    np.testing.assert_allclose(joint.process, np.array(by_point) / evidence, atol=1e-12)
    np.testing.assert_allclose(joint.columns["a"], by_prior / evidence, atol=1e-12)


@pytest.mark.parametrize("alpha, d", [(2.0, 0.0), (0.5, 0.4), (-0.2, 0.5)])
def test_law_of_the_number_of_clusters(alpha, d):
    """Against enumeration at N = 6, and the mean against its recursion and closed form at N = 60 and 2000."""
    from math import exp, lgamma

    case = CASES["cat6"].with_(concentration=alpha, discount=d)
    np.testing.assert_allclose(
        np.exp(log_law_of_clusters(6, alpha, d)), Posterior(case, likelihood=False).p_clusters(), atol=1e-12
    )
    for n in (60, 2000):
        p = np.exp(log_law_of_clusters(n, alpha, d))
        assert p.sum() == pytest.approx(1.0, abs=1e-9)
        mean = p @ np.arange(1, n + 1)
        assert mean == pytest.approx(expected_clusters(n, alpha, d), rel=1e-9)
        if d == 0.0:
            closed = sum(alpha / (alpha + i) for i in range(n))
        else:
            ratio = exp(lgamma(n + alpha + d) - lgamma(n + alpha))
            closed = ratio * exp(lgamma(alpha + 1) - lgamma(alpha + d)) / d - alpha / d
        assert mean == pytest.approx(closed, rel=1e-8)
    if (alpha, d) == (2.0, 0.0):
        assert expected_clusters(60, alpha, d) == pytest.approx(7.3925, abs=5e-5)


def test_prior_draws_have_the_prior_law():
    """False-alarm rate 1e-4: chi-square of 4,000 restaurant draws against the EPPF."""
    from tests.exact.compare import chi_square, seed

    generator = np.random.Generator(np.random.Philox(seed(4)))
    case = CASES["cat6neg"]
    posterior = Posterior(case, likelihood=False)
    draws = [draw_prior_partition(6, case.concentration, case.discount, generator) for _ in range(4000)]
    index = posterior.index(np.array(draws))
    assert chi_square(index, posterior.p) > 1e-4, f"seed {seed(4)}"
    wrong = Posterior(case.with_(concentration=0.3), likelihood=False)
    assert chi_square(index, wrong.p) < 1e-4


def test_bell_numbers():
    assert [len(partitions(n)) for n in range(1, 8)] == [1, 2, 5, 15, 52, 203, 877]
