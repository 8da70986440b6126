"""Firefly Monte Carlo for the coefficients of an outcome has the exact posterior, with bounds that do not fit well;
programs that get brightness or bounds wrong are rejected by the same test at the same size.

Tests of the posterior, level and seeds are those of test_outcome.py: a right program is rejected with probability 1e-4
at most. Brightness hardly affects the partition, so moments of beta and of the rows' linear predictors matter there.

Brightness that goes with other labels than the present ones changes these moments too little for a small test: it is
tested by itself. Given the state, rows are bright independently with probabilities p, so that the sum over rows and
cycles of (b - p) f, in standard deviations, is about normal. f is the change of p since the cycle before.
"""

import contextlib
from unittest import mock

import numpy as np
import pytest

from mpibayes.hpc.outcome import fireflies as program
from mpibayes.hpc.outcome import kept
from mpibayes.hpc.outcome.fireflies import Fireflies
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.kernels.mixture import response
from tests.exact import outcomes
from tests.exact.compare import seed
from tests.exact.test_outcome import LEVEL, means, p_of_wrong, p_value

MOST_Z = 3.9  # two-sided level 1e-4
TARGETS = [name for name, of in outcomes.TARGETS.items() if of["case"]["family"] in ("logistic", "t")]


def test_law():
    p, t = p_value(*means(serial(), "t4", 3, 40, firefly=2))
    assert p >= LEVEL, f"p {p:.2g}, t {t:.1f} (seed {seed(21)})"


@pytest.mark.thorough
@pytest.mark.parametrize("name, n_shards, steps", [(name, *((1, 1), (3, 4))[i % 2]) for i, name in enumerate(TARGETS)])
def test_law_of_every_target(name, n_shards, steps):
    cycles = 100 if name == "t4" else 60  # at least those of wrong programs
    p, t = p_value(*means(serial(), name, n_shards, cycles, firefly=steps))
    assert p >= LEVEL, f"{name}, {n_shards} shards, {steps} steps: p {p:.2g}, t {t:.1f} (seed {seed(21)})"


@contextlib.contextmanager
def points_of_now():
    """Wrong: bounds touch at the present coefficients."""
    draw = Fireflies.draw

    def wrong(self, z, *rest):
        self.freeze(z)
        draw(self, z, *rest)

    with mock.patch.object(Fireflies, "draw", wrong):
        yield


@contextlib.contextmanager
def kept_by_labels():
    """Wrong: rows whose labels change keep the brightness that they had before."""
    light, draw = Fireflies._light, Fireflies.draw

    def wrong_light(self, i, z, cycle):
        return self.before[i] if hasattr(self, "before") else light(self, i, z, cycle)

    def wrong_draw(self, z, cycle, stream):
        draw(self, z, cycle, stream)
        self.before = [light(self, i, labels, cycle + 1) for i, labels in enumerate(z)]

    with mock.patch.object(Fireflies, "_light", wrong_light), mock.patch.object(Fireflies, "draw", wrong_draw):
        yield


@contextlib.contextmanager
def every_second_cycle():
    """Wrong: brightness is drawn in every second cycle."""
    light = Fireflies._light

    def wrong(self, i, z, cycle):
        self.last = getattr(self, "last", {})
        if cycle % 2 or i not in self.last:
            self.last[i] = light(self, i, z, cycle)
        return self.last[i]

    with mock.patch.object(Fireflies, "_light", wrong):
        yield


@contextlib.contextmanager
def without_offset():
    """Wrong: dark rows see the covariates' coefficients without those of the clusters."""
    sums = response.bound_sums

    def wrong(z, slope, h, u, w, n_clusters):
        p, q = 1 + u.shape[1], 1 + u.shape[1] + w.shape[1]
        out, (row, column) = sums(z, slope, h, u, w, n_clusters), np.tril_indices(q)
        out[:, q:][:, (row >= p) & (column < p)] = 0.0
        return out

    with mock.patch.object(program.kernels, "bound_sums", wrong):
        yield


@contextlib.contextmanager
def anchors_dark():
    """Wrong: the first rows of clusters are never bright."""
    light = Fireflies._light

    def wrong(self, i, z, cycle):
        return np.setdiff1d(light(self, i, z, cycle), np.unique(z, return_index=True)[1])

    with mock.patch.object(Fireflies, "_light", wrong):
        yield


@contextlib.contextmanager
def all_bright_go_dark():
    """Wrong: sweeps between updates always turn bright rows dark."""
    sweep = Fireflies._sweep

    def wrong(self, i, z, bright, cycle, step):
        return np.setdiff1d(sweep(self, i, z, bright, cycle, step), bright)

    with mock.patch.object(Fireflies, "_sweep", wrong):
        yield


WRONG = {
    "points of now": (points_of_now, "t4", 1, 100, 1),
    "offset left out": (without_offset, "t4", 1, 60, 1),
    "anchors dark": (anchors_dark, "t4", 3, 60, 1),
    "all bright go dark": (all_bright_go_dark, "t4", 1, 60, 4),
}
FIRST = "offset left out"


@pytest.mark.parametrize("which", [*(pytest.param(w, marks=pytest.mark.thorough) for w in WRONG if w != FIRST), FIRST])
def test_wrong_is_rejected(which):
    wrong, name, n_shards, cycles, steps = WRONG[which]
    with wrong():
        p, t = p_of_wrong(name, n_shards, cycles, firefly=steps)
    assert p < LEVEL, f"{which}: p {p:.2g}, t {t:.1f}"


def z_of_brightness(name="t4", n_shards=3, cycles=250):
    """Standardised sum of (b - p) f over the rows and cycles of a chain."""
    mixture, seen = outcomes.sampler(serial(), name, n_shards, seed(22), firefly=1, reach=0.3), []
    outcome, gather = mixture.outcome, Fireflies._gather

    def record(self, z, bright):
        for i, a in enumerate(outcome.answers):
            h, level = self._bound.at(self.points[i].astype(float), outcome.law.nu, outcome.law.scale)
            eta = outcome.now.eta(a)[np.arange(len(a.y)), z[i]]
            gap = self._bound.gaps(eta, a.y, h, level, outcome.law.nu)[0]
            seen.append(np.stack([np.isin(np.arange(len(a.y)), bright[i]), -np.expm1(-gap)]))
        return gather(self, z, bright)

    with mock.patch.object(Fireflies, "_gather", record):
        for _ in range(cycles):
            mixture.cycle()
    rows = [np.stack(seen[i :: len(outcome.answers)], axis=2) for i in range(len(outcome.answers))]
    b, p = np.concatenate(rows, axis=1)  # (rows, cycles)
    f, b, p = np.diff(p), b[:, 1:], p[:, 1:]
    return ((b - p) * f).sum() / np.sqrt((p * (1.0 - p) * f * f).sum())


def test_brightness():
    assert abs(z_of_brightness()) < MOST_Z


@pytest.mark.parametrize("wrong", [kept_by_labels, every_second_cycle])
def test_wrong_brightness_is_rejected(wrong):
    with wrong():
        z = z_of_brightness()
    assert abs(z) > MOST_Z, f"z {z:.1f}"


def test_a_rank_without_rows_restores_points_when_the_others_do():
    """Or it would wait for sums that they do not form: from the end of burn-in on, here cycle 3."""
    outcome = outcomes.sampler(serial(), "t4", 1, seed(22), firefly=1).outcome
    outcome.fireflies, outcome.shards, outcome.answers = Fireflies(outcome, 3), [], []
    for cycles, points in ((2, None), (3, [])):
        kept.restore(outcome, {**kept.arrays_of(outcome), "cycles": cycles}, {})
        assert outcome.fireflies.points == points


@pytest.mark.quick(ranks=(2, 4))
@pytest.mark.mpi(min_size=2)
def test_ranks_change_no_bit():
    """The chain on all ranks is that of one, coefficients included."""
    of = "miss5", 3, seed(21)
    here, alone = (outcomes.sampler(comm, *of, firefly=3, split_merge=1) for comm in (world(), serial()))
    for _ in range(12):
        here.cycle()
        alone.cycle()
        assert np.array_equal(here.outcome.theta, alone.outcome.theta)
        assert np.array_equal(here.outcome.beta, alone.outcome.beta)
