"""The draw of a forest against all forests of a few columns, and at scores that differ by thousands of nats."""

import itertools
from unittest import mock

import numpy as np
import pytest
from scipy.stats import chisquare

from mpibayes.hpc.links import forest
from mpibayes.hpc.links.forest import ROOT, draw_forest, log_prior


def forests(d):
    for parents in itertools.product(range(-1, d), repeat=d):
        ok = True
        for c in range(d):
            seen, at = set(), c
            while at != ROOT and at not in seen:
                seen.add(at)
                at = parents[at]
            if at != ROOT:
                ok = False
                break
        if ok:
            yield parents


def log_weight(parents, score, alone):
    return sum(alone[c] if p == ROOT else score[c, p] for c, p in enumerate(parents))


def test_prior_adds_up():
    for d in (1, 2, 3, 4):
        assert np.exp([log_prior(np.array(f)) for f in forests(d)]).sum() == pytest.approx(1)


def p_value(score, alone, g, n=2000):
    """Chi-squared test of n draws against the weights of all forests."""
    d, every = len(alone), list(forests(len(alone)))
    p = np.exp([log_weight(f, score, alone) for f in every])
    p /= p.sum()
    number = {f: i for i, f in enumerate(every)}
    counts = np.zeros(len(every))
    for _ in range(n):
        counts[number[tuple(draw_forest(score, alone, g.random(d), g.permutation(d)).tolist())]] += 1
    few = p * n < 5
    a, b = np.append(counts[~few], counts[few].sum()), np.append(n * p[~few], n * p[few].sum())
    a, b = a[b > 0.0], b[b > 0.0]
    return chisquare(a, b, sum_check=False).pvalue


@pytest.mark.quick("2-1.0", "3-1.0")
@pytest.mark.parametrize("d, scale", [(2, 1.0), (3, 1.0), (4, 1.5), (4, 0.0)])
def test_forests_have_their_weights(d, scale):
    g = np.random.default_rng(d)
    score, alone = scale * g.normal(size=(d, d)), scale * g.normal(size=d)
    assert p_value(score, alone, g) > 1e-4


def test_columns_that_surely_have_no_parent_may_be_parents():
    g = np.random.default_rng(8)
    score, alone = g.normal(size=(4, 4)), g.normal(size=4)
    alone[[1, 2]] += 60.0
    score[:, 2] += 1.0
    assert p_value(score, alone, g) > 1e-4
    with mock.patch.object(forest, "NEGLIGIBLE", 1.0):  # links of the others are left out, too
        assert p_value(score, alone, g) < 1e-9


def test_extreme_scores():
    g = np.random.default_rng(7)
    d = 12
    score, alone = 3000 * g.normal(size=(d, d)), 3000 * g.normal(size=d)
    parents = draw_forest(score, alone, g.random(d), g.permutation(d))
    assert tuple(parents.tolist()) and all(p != c for c, p in enumerate(parents))
    # maximum arborescence has nearly all of the weight: any single change that is a forest is no better
    best = log_weight(parents.tolist(), score, alone)
    for c in range(d):
        for j in range(-1, d):
            q = parents.tolist()
            q[c] = j
            at, seen = c, set()
            ok = j != c
            for s in range(d):
                at, seen = s, set()
                while at != ROOT and at not in seen:
                    seen.add(at)
                    at = q[at]
                if at != ROOT:
                    ok = False
            if ok:
                assert log_weight(q, score, alone) <= best + 1e-9
