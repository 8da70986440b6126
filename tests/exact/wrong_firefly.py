"""Wrong versions of Firefly Monte Carlo, made from the program's own: what the tests of its law must reject.

The compiled loop over cycles is replaced by the same loop in Python (that of several ranks, with the same bits), and in
it single parts by wrong ones: the z-update by a plain rule for all rows at once (`Sweep`), the theta-update by plain
steps (`Step`), the bounds by others that cross the likelihood (`Raised`).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from unittest import mock

import numpy as np

from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.parallel.streams import generator
from mpibayes.kernels import firefly as kernels
from tests.exact import production_firefly as production
from tests.exact.regression_cases import posterior

MOVER = kernels.Mover  # the program's own, whatever is put in its place

# ---- z ---------------------------------------------------------------------------------------------------------------
# bright after an implicit sweep, given: bright before, L~, hits (each with probability q), two uniform numbers a row, q


def right(was, light, hit, u, v, q):
    """docs/math.md 4.3."""
    return np.where(was, u * light >= q, hit & (v * q < light))


def misprinted(was, light, hit, u, v, q):
    """As the paper's Algorithm 2 prints line 10: bright if L~/q < u."""
    return np.where(was, u * light >= q, hit & (light < v * q))


def proposed_again(was, light, hit, u, v, q):
    """Hits on rows that were bright at the start are not ignored: one that went dark in this sweep is proposed again.

    One that stayed bright has L~ >= q, so that a hit leaves it bright: how such a hit is taken makes no difference.
    """
    stays = was & (u * light >= q)
    return stays | (hit & (v * q < light))


def without_q(was, light, hit, u, v, q):
    """No q in the ratios."""
    return np.where(was, u * light >= 1.0, hit & (v < light))


class Sweep(kernels.Lights):
    """The rows of a shard; their implicit z-update is `rule`, all rows at once, with a stream of its own."""

    rule = staticmethod(right)

    def sweep(self, theta, q, explicit, seed, cycle, chain, shard):
        gap = self.rows.gaps(theta)
        n, g = len(gap), generator(seed, 1000, cycle, shard, chain)
        was = np.zeros(n, bool)
        was[self.bright] = True
        hit, u, v = g.random(n) < q, g.random(n), g.random(n)
        with np.errstate(over="ignore"):
            bright = np.flatnonzero(self.rule(was, np.expm1(gap), hit, u, v, q))
        self.set_bright(bright.astype(np.int32))
        self.set_gap(gap[bright])
        return int((hit & ~was).sum())


def stale(self, *new):
    """Gaps of bright rows stay what they were when these were lit."""


class KeptDark(kernels.Lights):
    """z is not drawn anew after a step on all rows."""

    def draw(self, theta, seed, cycle, chain, shard):
        if cycle == 0 or chain >= production.PLACED:
            super().draw(theta, seed, cycle, chain, shard)
        else:
            self.refresh(theta)


# ---- theta -----------------------------------------------------------------------------------------------------------


class Step(kernels.Mover):
    """HMC and MALA in plain NumPy, with a stream of their own; `log_ratio` may be changed."""

    def __init__(self, kind, n_parameters, whitening=None):
        super().__init__(kind, n_parameters, whitening)
        self._whitening = np.eye(n_parameters) if whitening is None else whitening
        self._look = MOVER(kernels.RANDOM_WALK, n_parameters)

    def step(self, target, theta, step_size, n_steps, seed, cycle, chain):
        w, gradient, g = self._whitening, np.empty(len(theta)), generator(seed, 2000, cycle, 0, chain)

        def value(at):
            v = target.value(at, gradient)
            return v, w.T @ gradient

        step = self._leapfrog if self.kind == kernels.HMC else self._langevin
        new, log_ratio = step(value, theta, step_size, n_steps, w, g)
        if np.log(g.random()) < log_ratio:
            theta[:] = new
        # A step that goes nowhere, so that the target knows gaps and density of this state.
        self._look.step(target, theta, 1e-300, 1, seed, cycle, chain)
        return float(np.exp(min(0.0, log_ratio))), n_steps + 1

    def _leapfrog(self, value, theta, step_size, n_steps, w, g):
        p, (before, slope), size = g.standard_normal(len(theta)), value(theta), step_size * (0.8 + 0.4 * g.random())
        energy, new = before - 0.5 * p @ p, theta
        for _ in range(n_steps):
            p = p + 0.5 * size * slope
            new = new + size * (w @ p)
            after, slope = value(new)
            if not np.isfinite(after):
                return theta, -np.inf
            p = p + 0.5 * size * slope
        return new, self.hmc_ratio(after - 0.5 * p @ p - energy)

    def _langevin(self, value, theta, step_size, n_steps, w, g):
        (before, slope), noise = value(theta), g.standard_normal(len(theta))
        move = 0.5 * step_size**2 * slope + step_size * noise
        new = theta + w @ move
        after, slope = value(new)
        if not np.isfinite(after):
            return theta, -np.inf
        back = (-move - 0.5 * step_size**2 * slope) / step_size
        return new, after - before + self.mala_ratio(0.5 * (noise @ noise - back @ back))

    def hmc_ratio(self, log_ratio):
        return log_ratio

    def mala_ratio(self, log_ratio):
        return log_ratio


# ---- bounds ----------------------------------------------------------------------------------------------------------


class Raised(kernels.Rows):
    """Rows whose bounds are higher than they may be: all (logistic), or where class 1 is likely (softmax)."""

    BY = 0.05

    def tune(self, theta):
        super().tune(theta)
        self.bounds.base[:, 1] += self.BY

    def untune(self, xi):
        super().untune(xi)
        self.bounds.base[:, 1] += self.BY


# ---- programs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """The program with one class of its kernels replaced, and settings with which the test of its law sees that."""

    part: str  # Lights, Mover or Rows
    base: type
    changes: dict
    settings: dict
    case: str = "logistic24"
    n: tuple[int, int] = (150, 40)

    def in_place(self):
        """A context in which this is the program."""
        return mock.patch.object(kernels, self.part, type("Other", (self.base,), self.changes))

    def verdict(self, seed: int, level: float, right: bool = False):
        """Verdict on this program, or with `right` on the right program with the same chain."""
        with contextlib.nullcontext() if right else self.in_place():
            return production.verdict(
                serial(), posterior(self.case), 2, seed, self.n, level, in_python=True, **self.settings
            )


UNTUNED, TUNED = {"bounds": "untuned", "q": 0.5}, {"bounds": "tuned", "q": 0.6}
MALA, SLICE, EXPLICIT = {"theta_update": "mala"}, {"theta_update": "slice"}, {"z_update": "explicit"}


def always(log_ratio):
    return 0.0


def sweep(rule, settings):
    return Program("Lights", Sweep, {"rule": staticmethod(rule)}, settings)


def step(settings, **changes):
    return Program("Mover", Step, {name: staticmethod(change) for name, change in changes.items()}, settings)


def stale_gaps(settings):
    return Program("Lights", kernels.Lights, {"set_gap": stale, "refresh": stale}, settings, n=(400, 40))


PROGRAMS = {
    "misprinted acceptance": sweep(misprinted, UNTUNED),
    "darkened rows proposed again": sweep(proposed_again, UNTUNED),
    "darkened rows proposed again, tuned": sweep(proposed_again, TUNED),
    "no q in the ratios": sweep(without_q, UNTUNED),
    "stale gaps": stale_gaps(UNTUNED | SLICE),
    "stale gaps, explicit": stale_gaps(UNTUNED | SLICE | EXPLICIT | {"q": 1.0}),
    "z kept in a step on all rows": Program("Lights", KeptDark, {}, UNTUNED | {"q": 0.1, "refresh": 2}),
    "bounds raised by 0.05": Program("Rows", Raised, {}, TUNED),
    "bounds raised by 0.05, softmax": Program("Rows", Raised, {}, TUNED, "softmax12"),
    "hmc without acceptance": step(TUNED | {"step_size": 0.7}, hmc_ratio=always),
    "mala without its reverse": step(TUNED | MALA, mala_ratio=always),
}
RIGHT = {
    "plain sweep": sweep(right, UNTUNED),
    "plain hmc": step(TUNED | {"step_size": 0.7}),
    "plain mala": step(TUNED | MALA),
    "bounds raised by 0": Program("Rows", Raised, {"BY": 0.0}, TUNED),
}
