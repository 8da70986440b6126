"""The local step of latent Dirichlet allocation agrees with its plain twin, on every instruction set alike."""

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
from scipy.special import digamma

from mpibayes.kernels.common.machine import ISA
from mpibayes.kernels.svi import lda, lda_twin

WIDTHS = ("baseline", "avx2", "avx512")
UNIT = 2.0**-36


def problem(d=40, v=80, k=7, seed=0, length=30):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, min(v, length), d)
    lengths[0] = 0
    starts = np.concatenate([[0], np.cumsum(lengths)])
    words = np.concatenate([np.sort(rng.choice(v, n, replace=False)) for n in lengths]).astype(np.int32)
    counts = rng.integers(1, 9, len(words)).astype(np.float32)
    return rng, starts, words, counts, rng.gamma(0.3, 3.0, (v, k)) + 0.01


def scale_of(lam, linear=False):
    total = np.log(lam.sum(axis=0)) if linear else digamma(lam.sum(axis=0))
    out = np.zeros(lda.padded(lam.shape[1]), np.float32)
    out[: len(total)] = np.exp(total.min() - total)
    return out


def passed(local, k, cold=True, rows=None, numbers=None, most=50, tolerance=1e-3, seed=0):
    rng, starts, words, counts, lam = problem(k=k, seed=seed)
    texts = lda.Documents(starts, words, counts, len(lam))
    room = lda.Room(k, len(lam), texts.longest)
    room.weigh(lam, scale_of(lam, local != "vb"), None, local != "vb")
    alpha = rng.gamma(1.0, 0.3, k).astype(np.float32)
    gamma = rng.gamma(2.0, 1.0, (len(starts) - 1, k)).astype(np.float32)
    first = gamma.copy()
    sums, numbered = lda.table_of(len(lam), k, np.float64), lda.table_of(len(lam), k, np.float64)
    done = room(texts, rows, numbers, alpha, local, cold, most, tolerance, gamma, sums, numbered, UNIT)
    return (starts, words, counts, room.weight[:, :k], alpha, first), gamma, sums, numbered, done


@pytest.mark.parametrize("local", ["vb", "linear", "cvb0"])
@pytest.mark.parametrize("k", [1, 2, 7, 16, 33])
@pytest.mark.parametrize("cold", [True, False])
def test_twins(local, k, cold):
    (starts, words, counts, weight, alpha, first), gamma, sums, numbered, _done = passed(local, k, cold, tolerance=1e-9)
    args = starts, words, counts, weight, alpha.astype(float), local, None if cold else first, 50, 1e-9
    expected, found, _ = lda_twin.local_steps(*args)
    np.testing.assert_allclose(gamma, expected, rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(sums[:, :k], found, rtol=2e-4, atol=2e-4)
    assert (sums[:, k:] == 0).all() and (numbered == 0).all()
    np.testing.assert_allclose(sums.sum(), counts.sum(), rtol=1e-6)


def test_exp_digamma():
    x = np.concatenate([10.0 ** np.linspace(-1, 7, 500)])
    np.testing.assert_allclose(lda_twin.exp_digamma(x), np.exp(digamma(x)), rtol=3e-9)
    lam = np.ascontiguousarray(x[:, None] * np.ones((1, 2)))
    lam[:, 1] = 1.0  # weights are relative within a word
    room = lda.Room(2, len(lam), 1)
    room.weigh(lam, np.array([1.0, 1.0] + [0.0] * 14, np.float32), None, False)
    found = room.weight[:, 0].astype(float) / room.weight[:, 1]
    np.testing.assert_allclose(found, np.exp(digamma(x) - digamma(1.0)), rtol=3e-6)


def test_iterations_are_the_twins():
    """The rule to stop is the same: a summed change of tolerance (length + 1)."""
    for local in ("vb", "linear", "cvb0"):
        (starts, words, counts, weight, alpha, _), _, _, _, done = passed(local, 7, tolerance=0.01)
        args = starts, words, counts, weight, alpha.astype(float), local, None, 50, 0.01
        assert abs(done - lda_twin.local_steps(*args)[2]) <= 1


def test_sums_do_not_depend_on_their_order():
    """Documents one by one, in another order, and times a number, to the last bit."""
    numbers = np.random.default_rng(3).normal(size=40)
    _, gamma, sums, numbered, _ = passed("vb", 7, numbers=numbers)
    for local in ("vb", "cvb0"):
        _, gamma, sums, numbered, _ = passed(local, 7, numbers=numbers)
        total, other = np.zeros_like(sums), np.zeros_like(sums)
        for i in np.random.default_rng(4).permutation(40):
            _, own, plain, each, _ = passed(local, 7, rows=np.array([i]), numbers=numbers[i : i + 1])
            total, other = total + plain, other + each
            np.testing.assert_array_equal(own[i], gamma[i])
        np.testing.assert_array_equal(total, sums)
        np.testing.assert_array_equal(other, numbered)
        assert (sums / UNIT == np.floor(sums / UNIT)).all()


def test_bad_arguments():
    _, starts, words, counts, _lam = problem()
    with pytest.raises(ValueError, match="word"):
        lda.Documents(starts, np.full_like(words, 80), counts, 80)
    with pytest.raises(ValueError, match="disagree"):
        lda.Documents(starts, words[:-1], counts, 80)
    texts = lda.Documents(starts, words, counts, 80)
    room = lda.Room(7, 80, texts.longest, shares=False)
    gamma, alpha = np.ones((40, 7), np.float32), np.ones(7, np.float32)
    for change in ({"local": "cvb0"}, {"rows": np.array([40])}, {"numbers": np.ones(3)}, {"gamma": gamma[:3]}):
        given = {"rows": None, "numbers": None, "local": "vb", "gamma": gamma} | change
        with pytest.raises(ValueError):
            room(
                texts,
                given["rows"],
                given["numbers"],
                alpha,
                given["local"],
                True,
                9,
                0.1,
                given["gamma"],
                None,
                None,
                1.0,
            )


def digest():
    content = hashlib.sha256()
    for local in ("vb", "linear", "cvb0"):
        for k in (3, 40):
            _, gamma, sums, numbered, _ = passed(local, k, numbers=np.linspace(-2, 2, 40))
            theta, beta = (lda.table_of(n, k, np.float64) for n in (40, 80))
            theta[:, :k], beta[:, :k] = gamma, sums[:, :k] + 0.1
            _, starts, words, counts, _ = problem(k=k)
            log = lda.log_probability(lda.Documents(starts, words, counts, 80), theta, beta)
            for array in (gamma, sums, numbered, np.array([log])):
                content.update(array.tobytes())
    return content.hexdigest()


@pytest.mark.skipif("MPIBAYES_ISA" in os.environ, reason="an instruction set is forced")
def test_every_width_gives_the_same_bits():
    program = "from tests.kernels.test_lda_twin import ISA, digest; print(ISA, digest())"
    for isa in WIDTHS[: WIDTHS.index(ISA)]:
        environment = {**os.environ, "MPIBAYES_ISA": isa, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.stdout.split() == [isa, digest()], done.stderr
