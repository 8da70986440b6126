"""Noise of steps and the guard that holds it back, with wrong twins that these tests reject."""

import numpy as np
import pytest

from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.hpc.svi.gaussian import Gaussian, Prior
from mpibayes.hpc.svi.noise import Noise
from mpibayes.hpc.svi.schedule import Constant, Decay, Growing
from mpibayes.hpc.svi.step import KEPT, Step, share_of_matrices, share_of_numbers
from tests.svi.cases import clouds, looked

N, M, CYCLES = 12, 4, 20_000
FAR = 5.0  # standard errors: a right program fails one of the 5 comparisons with probability 3e-6


class NotCentred(Noise):
    """Wrong: the mean of the e_n is left in."""

    def deviation(self, total, weighted, numbers, n_batch):
        return weighted


def deviations(noise):
    """Deviations of the mean of a batch of statistics (N, 2), by cycle, (CYCLES, 2); and the statistics."""
    t = np.random.default_rng(4).normal(size=(N, 2)) + np.array([2.0, -1.0])
    result = np.empty((CYCLES, 2))
    for cycle in range(CYCLES):
        stream = Stream(7, Purpose.STATISTICS_NOISE, cycle)
        (numbers,) = noise.numbers(serial(), [np.arange(N)], N, M, stream)
        result[cycle] = noise.deviation(t.sum(axis=0), numbers @ t, numbers.sum(), N) / N
    return result, t


def off(noise):
    """Largest distance, in standard errors, of two means and three covariances from their targets."""
    result, t = deviations(noise)
    requested = (1.0 / M - 1.0 / N) * np.cov(t.T, bias=True)
    errors = [result.mean(axis=0) / (result.std(axis=0) / np.sqrt(CYCLES))]
    i, j = np.tril_indices(2)
    products = result[:, i] * result[:, j]
    errors.append((products.mean(axis=0) - requested[i, j]) / (products.std(axis=0) / np.sqrt(CYCLES)))
    return float(np.abs(np.concatenate(errors)).max())


@pytest.mark.parametrize("kind", ["svi+", "positive"])
def test_moments_of_noise(kind):
    assert off(Noise(kind)) < FAR


def test_noise_that_is_not_centred_is_seen():
    assert off(NotCentred("svi+")) > 5 * FAR


@pytest.mark.parametrize("kind", ["svi+", "positive"])
def test_weights_sum_to_the_batch(kind):
    """A statistic that is the same in all rows has no noise, however the rows are cut into shards."""
    stream, noise = Stream(3, Purpose.STATISTICS_NOISE, 1), Noise(kind)
    whole = noise.numbers(serial(), [np.arange(50)], 50, 1.01, stream)[0]
    parts = noise.numbers(serial(), [np.arange(20), np.arange(20, 50)], 50, 1.01, stream)
    assert np.array_equal(np.concatenate(parts), whole)
    assert abs(noise.deviation(np.array([50.0]), np.array([whole.sum()]), whole.sum(), 50)[0]) < 1e-12
    assert kind == "svi+" or (whole >= 0).all()


def test_no_noise_where_the_batch_is_no_larger():
    assert not Noise("svi+").at_work(50, 50) and Noise("svi+").at_work(50, 49.0) and not Noise("none").at_work(50, 1)


def test_schedules():
    assert [Constant(0.5).at(t) for t in (1, 9)] == [0.5, 0.5] and Growing(50.0).at(3) == 150.0
    assert Decay(1.0, 0.5).at(3) == 0.5


# --- the guard --------------------------------------------------------------------------------------------------------


def adversarial(rng, n, d):
    """Positive definite matrices of all sizes and shapes, and noise that may be far larger, often aimed at the cone's
    border."""
    basis = np.linalg.qr(rng.normal(size=(n, d, d)))[0]
    sizes = 10.0 ** rng.uniform(-3, 3, size=(n, 1)) * 10.0 ** rng.uniform(-2, 2, size=(n, d))
    sure = np.einsum("nij,nj,nkj->nik", basis, sizes, basis)
    noise = rng.normal(size=(n, d, d)) * 10.0 ** rng.uniform(-4, 6, size=(n, 1, 1))
    noise = 0.5 * (noise + noise.swapaxes(1, 2))
    aimed = rng.random(n) < 0.5
    noise[aimed] = -sure[aimed] * 10.0 ** rng.uniform(-1, 4, size=(aimed.sum(), 1, 1))
    return sure, noise


def left_in(sure, after, slack=1e-9):
    """True where the remainder of each is KEPT of it, up to rounding: the least eigenvalue in its own units."""
    inverse = np.linalg.inv(np.linalg.cholesky(sure))
    inside = inverse @ after @ inverse.swapaxes(1, 2)
    return np.linalg.eigvalsh(0.5 * (inside + inside.swapaxes(1, 2)))[:, 0] >= KEPT - slack


def test_the_guard_keeps_matrices_in_their_cone():
    rng = np.random.default_rng(1)
    for d in (1, 2, 5):
        sure, noise = adversarial(rng, 34_000, d)
        share = share_of_matrices(sure, noise)[:, None, None]
        after = sure + share * noise
        size = np.abs(share * noise).max(axis=(1, 2)) / np.linalg.eigvalsh(sure)[:, 0]
        assert (left_in(sure, after, 1e-12 * (1 + size) * 1e2)).all()
        assert np.linalg.eigvalsh(after)[:, 0].min() > 0
        assert ((share >= 0) & (share <= 1)).all() and 0.1 < (share < 1).mean() < 1
        after_guard = sure + share_of_matrices(sure, 0.5 * noise)[:, None, None] * 0.5 * noise + 0.5 * noise
        assert not left_in(sure, after_guard).all()  # the wrong twin: some noise after the guard


def test_the_guard_takes_no_more_than_it_must():
    """The border of what is left is reached where it acts."""
    sure, noise = adversarial(np.random.default_rng(2), 2000, 3)
    share = share_of_matrices(sure, noise)
    more = np.minimum(1.0, 1.01 * share)[:, None, None]
    acts = share < 1
    assert not left_in(sure, sure + more * noise)[acts].any()
    assert share_of_numbers(np.array([2.0, 2.0, 2.0]), np.array([-1.0, -4.0, 3.0])).tolist() == [
        1.0,
        pytest.approx(0.5 * (1 - KEPT)),
        1.0,
    ]


def test_steps_of_a_mixture_stay_in_their_domain():
    """100,000 parts of steps with noise as of 1.01 rows, where that of weights has a standard deviation of 20."""
    x = clouds(400, 3, 4, seed=3)
    model, noise = Gaussian(Prior(0.1, 10.0, 3.0, 1.0), 20, 3), Noise("svi+")
    q, held, parts = model.seeded(x, 400, np.random.default_rng(0)), 0, 0
    while parts < 100_000:
        stream = Stream(1, Purpose.STATISTICS_NOISE, parts)
        (numbers,) = noise.numbers(serial(), [np.arange(400)], 400, 1.01, stream)
        _, sums = looked(model, q, x, None, numbers)
        extra = noise.deviation(sums[0], sums[1], numbers.sum(), 400)
        q, acted = model.step(q, sums[0], extra, Step(0.85, 1.0))
        held, parts = held + acted, parts + 3 * 20
        if parts % 3000 == 0:
            assert q.sound()
    assert q.sound() and held > 0.1 * parts


def test_without_a_guard_they_do_not():
    x = clouds(400, 3, 4, seed=3)
    model, noise = Gaussian(Prior(0.1, 10.0, 3.0, 1.0), 20, 3), Noise("svi+")
    q = model.seeded(x, 400, np.random.default_rng(0))
    (numbers,) = noise.numbers(serial(), [np.arange(400)], 400, 1.01, Stream(1, Purpose.STATISTICS_NOISE, 0))
    _, sums = looked(model, q, x, None, numbers)
    extra = noise.deviation(sums[0], sums[1], numbers.sum(), 400)
    q, acted = model.step(q, sums[0], extra, Step(0.85, 1.0, guard=False))
    assert acted == 0 and not q.sound()
