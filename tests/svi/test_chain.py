"""Batches of a chain: their sums, scaled, are those of all rows on average."""

import numpy as np

from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.svi.chain import Ascent, Settings
from mpibayes.hpc.svi.gaussian import Gaussian, Prior
from mpibayes.hpc.svi.schedule import Constant
from mpibayes.hpc.svi.step import Step
from tests.svi.cases import clouds, looked

N, BATCH, TIMES = 300, 40, 400
FAR = 5.0  # standard errors; of 4 comparisons a right program fails one with probability 2e-6


class NotScaled(Gaussian):
    """Wrong: N / |S| is left out."""

    def step(self, q, total, noise, step):
        return super().step(q, total, noise, Step(step.rate, 1.0, step.guard))


def off(kind):
    """Largest distance, in standard errors, of the mean counts that a first step aims at from those of all rows."""
    x = clouds(N, 2, 3, seed=1)
    model = kind(Prior(1.0, 10.0, 4.0, 1.0), 4, 2)
    q = model.seeded(x, N, np.random.default_rng(0))
    requested, counts = 1.0 + looked(model, q, x)[1][0, :, 0], np.empty((TIMES, 4))
    for seed in range(TIMES):
        settings = Settings(seed=seed, shards=3, batch=Constant(BATCH))
        chain = Ascent(serial(), model, lambda a, b: x[a:b], lambda places: x[places], N, settings)
        chain.place(q)
        chain.cycle()
        counts[seed] = chain.q.alpha
    return float(np.abs((counts.mean(axis=0) - requested) / (counts.std(axis=0) / np.sqrt(TIMES))).max())


def test_batches_stand_for_all_rows():
    assert off(Gaussian) < FAR


def test_a_batch_that_is_not_scaled_is_seen():
    assert off(NotScaled) > 10 * FAR
