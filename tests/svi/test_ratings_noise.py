"""Batches and noise of factorizations: their moments, and the guard, with wrong twins that these tests reject."""

from dataclasses import replace

import numpy as np
import pytest

from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.svi.chain import Settings
from mpibayes.hpc.svi.factorization.chain import Kind, RatingsAscent
from mpibayes.hpc.svi.factorization.model import Factorization
from mpibayes.hpc.svi.factorization.ratings import Numbers, Ratings, Stepped
from mpibayes.hpc.svi.noise import Noise
from mpibayes.hpc.svi.schedule import Constant
from mpibayes.hpc.svi.step import KEPT, Step
from tests.svi.ratings import first_of, looked, made, model_of, plain_moments, square

ITEMS, USERS, M, CYCLES = 8, 30, 3, 3000
FAR = 5.5  # standard errors; of some 60 comparisons a right program fails one with probability 2e-6


def chain_of(x, biased=True, items=ITEMS, shards=1, learn=False, own=True, stepped=False, **settings):
    """A chain of these ratings."""
    cuts = np.arange(shards + 1) * len(x) // shards

    def ratings_of(start, stop):
        assert start in cuts
        first, last = x.starts[start], x.starts[stop]
        return Ratings(x.starts[start : stop + 1] - first, x.columns[first:last], x.values[first:last])

    kind = Kind(2, biased, learn, own_count=own, stepped=stepped, variance=None if learn else 0.5, spread=1.0)
    return RatingsAscent(serial(), kind, items, ratings_of, len(x), Settings(shards=shards, **settings))


def of_one_side(items, ratings, biased, other_mean, other_covariance):
    """Terms of each rating in the packed precision and linear term of one row: t (n, T + D)."""
    result = []
    for j, r in zip(items, ratings):
        m, s = other_mean[j], other_covariance[j]
        second = s + np.outer(m, m)
        xx, x = second.copy(), m.copy()
        less = np.zeros(len(m))
        if biased:
            xx[-1, :-1] = xx[:-1, -1] = m[:-1]
            xx[-1, -1], x[-1] = 1.0, 1.0
            less = np.append(second[-1, :-1], m[-1])
        result.append(np.concatenate([xx[np.tril_indices(len(m))], r * x - less]))
    return np.array(result)


def off(found, t, effective):
    """Largest distance, in standard errors, of the noise's means and covariances from their targets."""
    keep = t.std(axis=0) > 1e-9
    found, t = found[:, keep], t[:, keep]
    n, apart = len(t), t - t.mean(axis=0)
    requested = (n / effective - 1.0) * apart.T @ apart
    errors = [found.mean(axis=0) / (found.std(axis=0) / np.sqrt(len(found)))]
    i, j = np.tril_indices(t.shape[1])
    products = found[:, i] * found[:, j]
    errors.append((products.mean(axis=0) - requested[i, j]) / (products.std(axis=0) / np.sqrt(len(found))))
    return float(np.abs(np.concatenate(errors)).max())


def noise_of_users(biased, centred=True):
    """(noise of a user's parameters by cycle, what its ratings add)."""
    x = made(USERS, ITEMS, 2, biased, seed=6, share=0.8)
    chain = chain_of(x, biased, noise=Noise("svi+"), effective=Constant(M), guard=False)
    model, user = chain.model, int(np.diff(x.starts).argmax())
    q = first_of(model)
    subset = slice(x.starts[user], x.starts[user + 1])
    (part,) = chain.rows
    part.stepped = Stepped(np.zeros((len(x), model.t + model.d)), np.zeros((len(x), model.t + model.d)))
    result = []
    for t in range(CYCLES + 1):
        (numbers,) = chain._numbers([np.array([user])], len(x), t)
        if t == 0:
            numbers = replace(numbers, each=np.zeros_like(numbers.each))  # without noise
        if not centred:
            numbers = Numbers(numbers.each * np.sqrt(len(numbers.each) / M - 1.0))
        model.accumulate(q, part, np.array([user]), numbers, np.zeros((2, *model.form)))
        result.append(part.stepped.next[user] * q.variance[0])
    ratings = x.values[subset] - q.center[0]
    return np.array(result[1:]) - result[0], of_one_side(x.columns[subset], ratings, biased, *plain_moments(q))


class NotCentred(Factorization):
    """Wrong: the mean of the numbers is left in."""

    def own_deviation(self, sums, effective):
        at = self.t - 1 if self.biased else self.t
        return np.sqrt(np.maximum(sums[0][:, at] / effective - 1.0, 0.0))[:, None] * sums[1]


def noise_of_items(biased, kind=Factorization):
    """(noise of an item's sums by cycle, what its ratings add)."""
    x = made(USERS, ITEMS, 2, biased, seed=6, share=0.8)
    chain = chain_of(x, biased, noise=Noise("svi+"), effective=Constant(M))
    chain.model.__class__ = kind
    model, item = chain.model, int(np.bincount(x.columns).argmax())
    q, result = first_of(model), []
    mean, covariance = model.users(q, x)
    for t in range(CYCLES):
        numbers = chain._numbers([None], len(x), t)
        sums = looked(model, q, x, numbers=replace(numbers[0], effective=1e9))[1]  # users are solved without noise
        result.append(model._wide(chain._deviation(sums, 0.0, len(x), t))[item])
    at = np.flatnonzero(x.columns == item)
    users = np.searchsorted(x.starts, at, side="right") - 1
    return np.array(result), of_one_side(users, x.values[at] - q.center[0], biased, mean, square(covariance))


@pytest.mark.parametrize("biased", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_moments_of_noise(biased):
    assert off(*noise_of_users(biased), M) < FAR
    assert off(*noise_of_items(biased), M) < FAR


def test_noise_that_is_not_centred_is_seen():
    assert off(*noise_of_users(True, centred=False), M) > 3 * FAR
    assert off(*noise_of_items(True, NotCentred), M) > 3 * FAR


def test_noise_of_all_ratings_adds_none_of_them():
    """With the whole batch counted, weights sum to its ratings; and most users' noise is held back, as a few ratings
    stand for all."""
    x = made(200, 20, 2, True, seed=3)
    chain = chain_of(x, items=20, own=False, noise=Noise("svi+"), effective=Constant(50))
    chain.start()
    count = chain._found.noise[:-2, chain.model.t - 1]
    assert abs(count.sum()) < 1e-8 * np.abs(count).sum()
    chain.cycle()
    assert chain.guarded > 0.5 * (len(x) + 20)


def test_a_guard_against_100000_updates():
    """Numbers with no mean, a thousand times too large: precisions stay above KEPT of what they would be without."""
    x = made(250, 50, 2, True, seed=8)
    model = model_of(x, 50, 2, True, False)
    q, rng, t = first_of(model), np.random.default_rng(1), model.t
    before = np.tile(np.concatenate([np.eye(3)[np.tril_indices(3)], np.zeros(3)]), (250, 1))
    x.stepped = Stepped(before, np.zeros((250, 9)), 0.7)
    model.accumulate(q, x, None, None, np.zeros((1, *model.form)))
    sure = np.linalg.inv(np.linalg.cholesky(square(x.stepped.next[:, :t])))
    total, held = looked(replace(model), q, Ratings(x.starts, x.columns, x.values))[1][0], 0
    plain = model.step(q, total, None, Step(0.7, 1.0))[0]
    of_items = np.linalg.inv(np.linalg.cholesky(square(plain.natural[:, :t])))

    def least(root, natural):
        return np.linalg.eigvalsh(root @ square(natural[:, :t]) @ root.swapaxes(1, 2))[:, 0].min()

    for _ in range(400):  # of 250 users; and 50 items
        sums = np.zeros((2, *model.form))
        numbers = Numbers(1e3 * rng.standard_cauchy(len(x.columns)), effective=rng.choice([0.01, 1.0, 2.0]))
        model.accumulate(q, x, None, numbers, sums)
        held += sums[0, -1, model.d + 3]
        assert sums[0, -1, model.d + 4] == 0 and least(sure, x.stepped.next) > 0.99 * KEPT
        moved, more = model.step(q, total, 1e3 * model.own_deviation(sums, 2.0), Step(0.7, 1.0))
        assert least(of_items, moved.natural) > 0.99 * KEPT
        held += more
    assert held > 50_000


def test_noise_after_the_guard_is_seen():
    """The wrong twin: what the guard has let through is doubled; and what happens without a guard."""
    x = made(250, 50, 2, True, seed=8)
    model = model_of(x, 50, 2, True, False)
    q, rng = first_of(model), np.random.default_rng(1)
    sums = np.zeros((2, *model.form))
    numbers = Numbers(rng.normal(size=len(x.columns)), effective=0.5)
    model.accumulate(q, x, None, numbers, sums)
    total = looked(model, q, x)[1][0]
    noise = 20.0 * model.own_deviation(sums, 0.5)
    plain, noisy = (model.step(q, total, extra, Step(1.0, 1.0))[0] for extra in (None, noise))
    doubled = replace(q, natural=plain.natural + 2.0 * (noisy.natural - plain.natural))
    assert noisy.sound() and not doubled.sound()
    assert not model.step(q, total, noise, Step(1.0, 1.0, guard=False))[0].sound()


class NotScaled(Factorization):
    """Wrong: N / |S| is left out."""

    def step(self, q, total, noise, step):
        return super().step(q, total, noise, Step(step.rate, 1.0, step.guard))


def batch_is_off(kind):
    """Largest distance, in standard errors, of the items' parameters after steps of batches from those of all users."""
    x, result = made(60, ITEMS, 2, True, seed=9), []
    for seed in range(400):
        chain = chain_of(x, shards=3, seed=seed, batch=Constant(12))
        chain.model.__class__ = kind
        chain.place(first_of(chain.model))
        requested = chain.model.step(chain.q, looked(chain.model, chain.q, x)[1][0], None, Step(1.0, 1.0))[0].natural
        chain.cycle()
        result.append(chain.q.natural[0] - requested[0])
    result = np.array(result)
    return float(np.abs(result.mean(axis=0) / (result.std(axis=0) / np.sqrt(len(result)))).max())


@pytest.mark.thorough
def test_batches_stand_for_all_users():
    assert batch_is_off(Factorization) < FAR
    assert batch_is_off(NotScaled) > 5 * FAR


def test_users_that_take_steps_end_where_solved_ones_do():
    x = made(60, ITEMS, 2, True, seed=9)
    ends = []
    for stepped in (False, True):
        chain = chain_of(x, shards=2, stepped=stepped, rate=Constant(0.7))
        chain.start()
        for _ in range(300):
            chain.cycle()
        ends.append(chain.bound)
    assert ends[0] == pytest.approx(ends[1], rel=1e-7)
