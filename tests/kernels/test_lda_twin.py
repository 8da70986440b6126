"""The local step of latent Dirichlet allocation agrees with its plain twin, on every instruction set alike."""

import hashlib
import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
from scipy.special import digamma, gammaln

from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.kernels.common.machine import ISA
from mpibayes.kernels.svi import lda, lda_twin

WIDTHS = ("baseline", "avx2", "avx512")
UNIT = 2.0**-36
KEY = (3, 5, 1, 100)  # seed, cycle, chain, number of the first document


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
    room = lda.Room(k, len(lam), texts.longest, most=texts.most)
    room.weigh(lam, scale_of(lam, local != "vb"), None, local != "vb")
    alpha = rng.gamma(1.0, 0.3, k).astype(np.float32)
    gamma = rng.gamma(2.0, 1.0, (len(starts) - 1, k)).astype(np.float32)
    first = gamma.copy()
    sums, numbered = lda.table_of(len(lam), k, np.float64), lda.table_of(len(lam), k, np.float64)
    done = room(texts, rows, numbers, alpha, local, cold, most, tolerance, gamma, sums, numbered, UNIT, KEY)
    return (starts, words, counts, room.weight[:, :k], alpha, first), gamma, sums, numbered, done


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("local", ["vb", "linear", "cvb0"])
@pytest.mark.parametrize("k", [1, 2, 7, 16, 33])
@pytest.mark.parametrize("cold", [True, False])
def test_twins(local, k, cold):
    (starts, words, counts, weight, alpha, first), gamma, sums, numbered, _done = passed(local, k, cold, tolerance=1e-9)
    args = starts, words, counts, weight, alpha.astype(float), local, None if cold else first, 50, 1e-9
    expected, result, _ = lda_twin.local_steps(*args)
    np.testing.assert_allclose(gamma, expected, rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(sums[:, :k], result, rtol=2e-4, atol=2e-4)
    assert (sums[:, k:] == 0).all() and (numbered == 0).all()
    np.testing.assert_allclose(sums.sum(), counts.sum(), rtol=1e-6)


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("k", [1, 2, 7, 16, 33])
@pytest.mark.parametrize("sweeps", [1, 6])
def test_a_sampler_and_its_twin_draw_the_same(k, sweeps):
    (starts, words, counts, weight, alpha, _), gamma, sums, numbered, done = passed("gibbs", k, most=sweeps)
    total = np.zeros_like(sums)
    for i, (a, b) in enumerate(itertools.pairwise(starts)):
        stream = Stream(*KEY[:1], Purpose.TOPICS, *KEY[1:3], sub=KEY[3] + i)
        uniforms = stream.uniforms(np.arange(sweeps * int(counts[a:b].sum())))
        part, share = lda_twin.sampled_step(words[a:b], counts[a:b], weight, alpha, uniforms, sweeps)
        np.testing.assert_allclose(gamma[i], part, rtol=1e-4, atol=1e-5)
        np.add.at(total[:, :k], words[a:b], counts[a:b, None] * share)
    np.testing.assert_allclose(sums, total, rtol=1e-4, atol=1e-5)
    assert (numbered == 0).all() and done == sweeps * (np.diff(starts) > 0).sum()


def exactly(tokens, weight, alpha):
    """Mean of gamma given a document's words, over all topics that these may have."""
    k, total, mean = len(alpha), 0.0, 0.0
    for z in itertools.product(range(k), repeat=len(tokens)):
        count = np.bincount(z, minlength=k)
        p = np.exp((gammaln(alpha + count) - gammaln(alpha)).sum()) * np.prod(weight[tokens, list(z)])
        total, mean = total + p, mean + p * count
    return alpha + mean / total


@pytest.mark.quick("0")
@pytest.mark.parametrize("seed", range(4))
def test_a_sampler_has_the_posterior_of_a_small_document(seed):
    """Two thirds of 60 sweeps of 20,000 copies, each with its own stream: |z| < 5 of each topic's mean gamma, by chance
    beyond that in one of 500,000 tests. Wrong: what the other local steps find; and, with the twin, a word's own topic
    left in while it is drawn anew."""
    weight = np.float32(np.random.default_rng(3).gamma(0.7, 1.0, (4, 3))).astype(float)
    alpha = np.float32([0.1, 0.3, 0.6]).astype(float)
    words, counts = np.array([0, 1, 3], np.int32), np.array([2, 1, 1], np.float32)
    mean, n = exactly([0, 0, 1, 3], weight, alpha), 20_000
    texts = lda.Documents(np.arange(n + 1) * 3, np.tile(words, n), np.tile(counts, n), 4)
    room = lda.Room(3, 4, 3, most=4)
    room.weigh(weight, np.float32([1.0] * 3 + [0.0] * 13), None, True)
    result = {}
    for local in lda.LOCAL:
        gamma, most = np.zeros((n, 3), np.float32), 60 if local == "gibbs" else 300
        key = (seed, 1, 0, 0)
        room(texts, None, None, np.float32(alpha), local, True, most, 1e-6, gamma, None, None, UNIT, key)
        result[local] = gamma.astype(float)
    error = result["gibbs"].std(axis=0) / n**0.5
    away = {local: np.abs((gamma.mean(axis=0) - mean) / error).max() for local, gamma in result.items()}
    assert away.pop("gibbs") < 5.0 and min(away.values()) > 25.0, away
    for left_in in (False, True):
        draws = np.random.default_rng(seed).random((250, 4 * 15))
        part = np.array([lda_twin.sampled_step(words, counts, weight, alpha, u, 15, left_in)[0] for u in draws])
        z = np.abs((part.mean(axis=0) - mean) / (part.std(axis=0) / 250**0.5)).max()
        assert z > 15.0 if left_in else z < 5.0, (left_in, z)


def test_a_document_draws_by_its_number():
    """Shards with the numbers of their first documents have the bits of all together; with none they have not."""
    (starts, words, counts, _, alpha, _), gamma, _, _, _ = passed("gibbs", 7)
    lam = problem(k=7)[-1]
    for first, right in ((KEY[3] + 25, True), (KEY[3], False)):
        a = starts[25]
        texts = lda.Documents(starts[25:] - a, words[a:], counts[a:], 80)
        room, part = lda.Room(7, 80, texts.longest, most=texts.most), np.zeros((15, 7), np.float32)
        room.weigh(lam, scale_of(lam, True), None, True)
        room(texts, None, None, alpha, "gibbs", True, 50, 1e-3, part, None, None, UNIT, (*KEY[:3], first))
        assert (part.tobytes() == gamma[25:].tobytes()) == right


def test_words_without_a_weight():
    """A word whose topics all underflow in float32 gets any topic, and counts for none."""
    texts = lda.Documents(np.array([0, 2]), np.array([0, 1], np.int32), np.array([3.0, 2.0], np.float32), 2)
    room, gamma, sums = lda.Room(5, 2, 2, most=5), np.zeros((1, 5), np.float32), lda.table_of(2, 5, np.float64)
    room.weigh(np.array([[1e-300] * 5, [1.0] * 5]), scale_of(np.ones((2, 5)), True), None, True)
    room(texts, None, None, np.full(5, 0.1, np.float32), "gibbs", True, 9, 0.1, gamma, sums, None, UNIT, KEY)
    assert (sums[0] == 0).all() and sums[1].sum() == pytest.approx(2.0) and gamma.sum() == pytest.approx(2.5)


def test_exp_digamma():
    x = np.concatenate([10.0 ** np.linspace(-1, 7, 500)])
    np.testing.assert_allclose(lda_twin.exp_digamma(x), np.exp(digamma(x)), rtol=3e-9)
    lam = np.ascontiguousarray(x[:, None] * np.ones((1, 2)))
    lam[:, 1] = 1.0  # weights are relative within a word
    room = lda.Room(2, len(lam), 1)
    room.weigh(lam, np.array([1.0, 1.0] + [0.0] * 14, np.float32), None, False)
    result = room.weight[:, 0].astype(float) / room.weight[:, 1]
    np.testing.assert_allclose(result, np.exp(digamma(x) - digamma(1.0)), rtol=3e-6)


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
    for local in ("vb", "cvb0", "gibbs"):
        _, gamma, sums, numbered, _ = passed(local, 7, numbers=numbers)
        total, other = np.zeros_like(sums), np.zeros_like(sums)
        for i in np.random.default_rng(4).permutation(40):
            _, part, plain, each, _ = passed(local, 7, rows=np.array([i]), numbers=numbers[i : i + 1])
            total, other = total + plain, other + each
            np.testing.assert_array_equal(part[i], gamma[i])
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


def test_bad_arguments_of_a_sampler():
    _, starts, words, counts, _lam = problem()
    texts, halves = (lda.Documents(starts, words, x, 80) for x in (counts, counts + np.float32(0.5)))
    assert texts.whole and not halves.whole
    assert texts.most == max(counts[a:b].sum() for a, b in itertools.pairwise(starts))
    gamma, alpha = np.ones((40, 7), np.float32), np.ones(7, np.float32)
    for text, most, sweeps, key in (
        (texts, texts.most, 3, None), (texts, texts.most - 1, 3, KEY), (halves, 9999, 3, KEY), (texts, 9999, 0, KEY),
    ):  # fmt: skip
        room = lda.Room(7, 80, texts.longest, most=most)
        with pytest.raises(ValueError, match="gibbs: expected a key, whole counts, a sweep or more"):
            room(text, None, None, alpha, "gibbs", True, sweeps, 0.1, gamma, None, None, 1.0, key)


def digest():
    content = hashlib.sha256()
    for local in ("vb", "linear", "cvb0", "gibbs"):
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
