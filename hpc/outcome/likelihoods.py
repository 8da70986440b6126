"""Likelihoods of an outcome given its linear predictor eta, one class each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from mpibayes.hpc.components.masses import log_t
from mpibayes.hpc.outcome import levels
from mpibayes.hpc.parallel.streams import Stream
from mpibayes.hpc.regression.likelihoods.likelihood import NUMERIC
from mpibayes.hpc.regression.likelihoods.logistic import Logistic as OfClasses
from mpibayes.io.rows import Column
from mpibayes.kernels.common.functions import expit, gammaln
from mpibayes.kernels.mixture import response as kernels
from mpibayes.text import counted, import_again

POINTS, FINE, REACH = 129, 513, 8.0  # points of trapezoid rules for classes and for numbers; their reach in sd
MOST_LEVELS = 32  # of a softmax
LEAST = 40.0  # nats below the largest term at which terms are dropped


class Likelihood:
    """One kind of outcome. effect: name of the effect exp(theta) or theta; ratio: True if it is exp(theta)."""

    name: ClassVar[str]
    code: ClassVar[int]
    of_classes: ClassVar[bool] = False  # y is -1 or 1, of a softmax a level
    of_levels: ClassVar[bool] = False  # a softmax: eta (..., C) has a last axis, of all levels but the first
    of_times: ClassVar[bool] = False  # y is 1 of an event, 0 if censored, and the law has a `Baseline`
    weighs_rows: ClassVar[bool] = False  # y estimates a row's own curvature, which varies by orders of magnitude
    has_scale: ClassVar[bool] = False  # True if it has a scale s; the outcome is then modelled in standard deviations
    effect: ClassVar[str]
    ratio: ClassVar[bool] = True

    @staticmethod
    def problems(column: Column) -> list[str]:
        """Return the reasons why a column cannot be the outcome; empty if it can."""
        raise NotImplementedError

    @staticmethod
    def encode(cells: np.ndarray) -> np.ndarray:
        """Return y of cells, which are level codes or numbers, float64."""
        return cells.astype(np.float64)

    @staticmethod
    def centre(mean: Sequence[float]) -> list[float]:
        """Return the eta (C,) at which y has this mean, or levels but the first these probabilities."""
        return [*mean]

    @staticmethod
    def curvature(mean: np.ndarray, nu: float, scale: float) -> np.ndarray:
        """Return a row's information about eta where y has this mean, (K, C): its weight in the metric, (K, C, C), or
        (K, 1) where C = 1."""
        return np.full_like(mean, scale**-2)

    @staticmethod
    def expectation(eta: np.ndarray) -> np.ndarray:
        """Return the mean of y, or the probability of the second class; of a softmax of each level, (..., C + 1)."""
        return eta

    @classmethod
    def mean_at(cls, eta: np.ndarray) -> np.ndarray:
        """Return the mean (C,) that has this `centre`."""
        return cls.expectation(eta)

    @staticmethod
    def log_density(eta: np.ndarray, y: np.ndarray, nu: float, scale: float) -> np.ndarray:
        """Return log L, normalised."""
        raise NotImplementedError

    @staticmethod
    def log_base(y: np.ndarray, nu: float, scale: float) -> float:
        """Return the terms of log L that the kernels leave out, summed over all y."""
        return 0.0

    @classmethod
    def log_between(cls, eta: np.ndarray, low: np.ndarray, high: np.ndarray, nu: float, scale: float) -> np.ndarray:
        """Return the log probability of low <= y <= high, log density where low == high. Arguments broadcast."""
        return np.where(low == high, cls.log_density(eta, low, nu, scale), 0.0)  # both classes

    @staticmethod
    def drawn(eta: np.ndarray, nu: float, scale: float, stream: Stream, ids: np.ndarray) -> np.ndarray:
        """Draw y, (n,). ids (n,): of the rows in the stream."""
        raise NotImplementedError

    @classmethod
    def log_averages(cls, y: np.ndarray, at: np.ndarray, spread: np.ndarray, nu: float, scale: float) -> np.ndarray:
        """Return the log of the average of L over eta ~ N(at, spread^2), (n,)."""
        eta, log_weight = points(at, spread)
        return np.logaddexp.reduce(cls.log_density(eta, y[:, None], nu, scale) + log_weight, axis=1)

    @staticmethod
    def average_expectations(at: np.ndarray, spread: np.ndarray) -> np.ndarray:
        """Return the average of the expectation over eta ~ N(at, spread^2), (n,)."""
        return at


def points(at: np.ndarray, spread: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return points of eta ~ N(at, spread^2), (n, P), and their log weights (P,)."""
    x = np.linspace(-REACH, REACH, POINTS)
    log_weight = -0.5 * x * x
    return at[:, None] + spread[:, None] * x, log_weight - np.logaddexp.reduce(log_weight)


def _between(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the points (n, FINE) of a trapezoid rule between two ends, and the log of their spacing, (n,)."""
    return low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, FINE), np.log((high - low) / (FINE - 1))


class Logistic(Likelihood):
    """Two classes: y = 1 for the second, y = -1 for the first."""

    name, code, effect, of_classes = "logistic", kernels.LOGISTIC, "odds ratio", True
    encode = staticmethod(OfClasses.encode)
    expectation = staticmethod(expit)

    @staticmethod
    def problems(column: Column) -> list[str]:
        if column.kind in NUMERIC:
            cure = f'set outcome.likelihood = "student-t", or {import_again(column.name, "boolean")}'
            return [f"outcome '{column.name}' is {column.kind}; logistic needs two levels: {cure}"]
        if len(column.levels) != 2:
            cure = ': set outcome.likelihood = "softmax"' if len(column.levels) > 2 else ""
            return [f"outcome '{column.name}' has {counted(len(column.levels), 'level')}; logistic needs two{cure}"]
        return []

    @staticmethod
    def centre(mean: Sequence[float]) -> list[float]:
        return [math.log1p(each) - math.log1p(-each) for each in mean]

    @classmethod
    def mean_at(cls, eta: np.ndarray) -> np.ndarray:
        return 2.0 * cls.expectation(eta) - 1.0

    @staticmethod
    def curvature(mean: np.ndarray, nu: float, scale: float) -> np.ndarray:
        return np.maximum(0.25 * (1.0 - mean * mean), 0.01)

    @staticmethod
    def log_density(eta: np.ndarray, y: np.ndarray, nu: float, scale: float) -> np.ndarray:
        return -np.logaddexp(0.0, -y * eta)

    @staticmethod
    def drawn(eta: np.ndarray, nu: float, scale: float, stream: Stream, ids: np.ndarray) -> np.ndarray:
        return np.where(stream.uniforms(ids) < expit(eta), 1.0, -1.0)

    @classmethod
    def average_expectations(cls, at: np.ndarray, spread: np.ndarray) -> np.ndarray:
        eta, log_weight = points(at, spread)
        return cls.expectation(eta) @ np.exp(log_weight)


class Softmax(Likelihood):
    """Levels: y = 0, 1, ... in the table's order. The first is the reference: its eta is 0, and an effect is the ratio
    of the odds of a level against it. An event is a number whose bits are its levels."""

    name, code, effect, of_classes, of_levels = "softmax", kernels.SOFTMAX, "odds ratio", True, True

    @staticmethod
    def problems(column: Column) -> list[str]:
        if column.kind in NUMERIC:
            cure = f'set outcome.likelihood = "{"poisson" if column.kind == "count" else "student-t"}"'
            codes = f"if its numbers are codes of levels, {import_again(column.name, 'categorical')}"
            return [f"outcome '{column.name}' is {column.kind}; softmax needs levels: {cure}; {codes}"]
        n = len(column.levels)
        cure = ': set outcome.likelihood = "logistic"' if n == 2 else ""
        problem = f"outcome '{column.name}' has {counted(n, 'level')}; softmax needs 3 to {MOST_LEVELS}{cure}"
        return [] if 3 <= n <= MOST_LEVELS else [problem]

    @staticmethod
    def centre(mean: Sequence[float]) -> list[float]:
        return [math.log(each / (1.0 - sum(mean))) for each in mean]

    @staticmethod
    def curvature(mean: np.ndarray, nu: float, scale: float) -> np.ndarray:
        diagonal = np.maximum(mean, 0.01)[:, :, None] * np.eye(mean.shape[1])
        return diagonal - mean[:, :, None] * mean[:, None, :]

    @staticmethod
    def log_probabilities(eta: np.ndarray) -> np.ndarray:
        """Return the log probability of each level, (..., C + 1)."""
        every = np.concatenate([np.zeros((*eta.shape[:-1], 1)), eta], axis=-1)
        every -= every.max(axis=-1, keepdims=True)
        return every - np.log(np.exp(every).sum(axis=-1, keepdims=True))

    @classmethod
    def expectation(cls, eta: np.ndarray) -> np.ndarray:
        return np.exp(cls.log_probabilities(eta))

    @classmethod
    def mean_at(cls, eta: np.ndarray) -> np.ndarray:
        return cls.expectation(eta)[..., 1:]

    @classmethod
    def log_density(cls, eta: np.ndarray, y: np.ndarray, nu: float, scale: float) -> np.ndarray:
        level = np.broadcast_to(y, eta.shape[:-1]).astype(np.intp)[..., None]
        return np.take_along_axis(cls.log_probabilities(eta), level, axis=-1)[..., 0]

    @classmethod
    def log_between(cls, eta: np.ndarray, low: np.ndarray, high: np.ndarray, nu: float, scale: float) -> np.ndarray:
        return cls.log_of_events(cls.expectation(eta), low)

    @staticmethod
    def log_of_events(p: np.ndarray, events: np.ndarray) -> np.ndarray:
        """Return the log probability of events, from that of each level, (..., C + 1). Leading axes broadcast."""
        bits = np.asarray(events).astype(np.int64)
        with np.errstate(divide="ignore"):
            return np.log(sum((bits >> c & 1) * p[..., c] for c in range(p.shape[-1])))

    @classmethod
    def drawn(cls, eta: np.ndarray, nu: float, scale: float, stream: Stream, ids: np.ndarray) -> np.ndarray:
        below = np.cumsum(cls.expectation(eta), axis=1)[:, :-1]
        return (below <= stream.uniforms(ids)[:, None]).sum(axis=1).astype(np.float64)

    @classmethod
    def log_averages(cls, y: np.ndarray, at: np.ndarray, spread: np.ndarray, nu: float, scale: float) -> np.ndarray:
        p = cls.average_expectations(at, spread)
        return np.log(np.take_along_axis(p, y.astype(np.intp)[:, None], axis=1)[:, 0])

    @staticmethod
    def average_expectations(at: np.ndarray, spread: np.ndarray) -> np.ndarray:
        return levels.averages(at, spread)


class StudentT(Likelihood):
    """A number with heavy tails."""

    name, code, effect, has_scale, ratio = "student-t", kernels.STUDENT_T, "mean difference", True, False

    @classmethod
    def problems(cls, column: Column) -> list[str]:
        if column.kind not in NUMERIC:
            of_two = 'set outcome.likelihood = "logistic"; or, ' if len(column.levels) == 2 else ""
            cure = f"{of_two}if it has numbers, {import_again(column.name, 'real')}"
            return [f"outcome '{column.name}' is {column.kind}; {cls.name} needs a real or count column: {cure}"]
        constant = column.minimum == column.maximum
        return [f"outcome '{column.name}' is constant ({column.minimum:g})"] if constant else []

    @staticmethod
    def curvature(mean: np.ndarray, nu: float, scale: float) -> np.ndarray:
        return np.full_like(mean, (nu + 1.0) / (nu + 3.0) / scale**2)

    @staticmethod
    def log_density(eta: np.ndarray, y: np.ndarray, nu: float, scale: float) -> np.ndarray:
        constant = math.lgamma(0.5 * (nu + 1)) - math.lgamma(0.5 * nu) - 0.5 * math.log(nu * math.pi) - math.log(scale)
        return constant - 0.5 * (nu + 1.0) * np.log1p((y - eta) ** 2 / (nu * scale**2))

    @classmethod
    def log_between(cls, eta: np.ndarray, low: np.ndarray, high: np.ndarray, nu: float, scale: float) -> np.ndarray:
        return log_t(eta, scale, np.array(nu), low, high)

    @staticmethod
    def drawn(eta: np.ndarray, nu: float, scale: float, stream: Stream, ids: np.ndarray) -> np.ndarray:
        precision = np.exp(stream.log_gammas(np.full(len(ids), 0.5 * nu), 2 * ids)) / (0.5 * nu)
        return eta + scale * stream.normals(2 * ids + 1) / np.sqrt(precision)

    @classmethod
    def log_base(cls, y: np.ndarray, nu: float, scale: float) -> float:
        return len(y) * float(cls.log_density(np.zeros(1), np.zeros(1), nu, scale)[0])

    @classmethod
    def log_averages(cls, y: np.ndarray, at: np.ndarray, spread: np.ndarray, nu: float, scale: float) -> np.ndarray:
        """Average normals over a precision g ~ Gamma(nu / 2, nu / 2), in log g: smooth for any scale."""
        square = (y - at) ** 2
        far = (2.0 * LEAST + square / (spread**2 + scale**2)) / nu
        low = np.minimum(0.5 * (far + np.sqrt(far * far + 8.0 * far)), 2.0 * LEAST / nu + np.log1p(square / scale**2))
        high = min(math.sqrt(4.0 * LEAST / nu), math.log(2.0 + 4.0 * LEAST / nu))
        x, log_step = _between(-low, np.full(len(y), high))
        variance = spread[:, None] ** 2 + scale**2 * np.exp(-x)
        terms = 0.5 * nu * (x - np.exp(x)) - 0.5 * np.log(2.0 * math.pi * variance) - 0.5 * square[:, None] / variance
        constant = 0.5 * nu * math.log(0.5 * nu) - math.lgamma(0.5 * nu)
        return np.logaddexp.reduce(terms, axis=1) + log_step + constant


class Normal(StudentT):
    """A number."""

    name, code = "normal", kernels.NORMAL

    @staticmethod
    def curvature(mean: np.ndarray, nu: float, scale: float) -> np.ndarray:
        return np.full_like(mean, scale**-2)

    @staticmethod
    def log_density(eta: np.ndarray, y: np.ndarray, nu: float, scale: float) -> np.ndarray:
        return -0.5 * math.log(2 * math.pi) - math.log(scale) - 0.5 * ((y - eta) / scale) ** 2

    @classmethod
    def log_between(cls, eta: np.ndarray, low: np.ndarray, high: np.ndarray, nu: float, scale: float) -> np.ndarray:
        return log_t(eta, scale, np.array(np.inf), low, high)

    @staticmethod
    def drawn(eta: np.ndarray, nu: float, scale: float, stream: Stream, ids: np.ndarray) -> np.ndarray:
        return eta + scale * stream.normals(ids)

    @classmethod
    def log_averages(cls, y: np.ndarray, at: np.ndarray, spread: np.ndarray, nu: float, scale: float) -> np.ndarray:
        variance = spread**2 + scale**2
        return -0.5 * (np.log(2.0 * math.pi * variance) + (y - at) ** 2 / variance)


class Poisson(Likelihood):
    """A count; exp(eta) is its mean."""

    name, code, effect = "poisson", kernels.POISSON, "rate ratio"
    weighs_rows = True
    expectation = staticmethod(np.exp)

    @staticmethod
    def problems(column: Column) -> list[str]:
        if column.kind != "count":
            again = import_again(column.name, "count")
            return [f"outcome '{column.name}' is {column.kind}; poisson needs a count column: {again}"]
        return []

    @staticmethod
    def centre(mean: Sequence[float]) -> list[float]:
        return [math.log(max(each, 1e-6)) for each in mean]

    @staticmethod
    def curvature(mean: np.ndarray, nu: float, scale: float) -> np.ndarray:
        return np.maximum(mean, 1e-3)

    @staticmethod
    def log_density(eta: np.ndarray, y: np.ndarray, nu: float, scale: float) -> np.ndarray:
        return y * eta - np.exp(eta) - gammaln(y + 1.0)

    @classmethod
    def log_between(cls, eta: np.ndarray, low: np.ndarray, high: np.ndarray, nu: float, scale: float) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            each = cls.log_density(eta, np.where(np.isfinite(low), low, 0.0), nu, scale)
        if np.array_equal(low, high):
            return each
        from scipy.special import gammainc, gammaincc  # slow to import

        rate, first = np.exp(np.minimum(eta, 700.0)), np.maximum(low, 0.0)
        above = np.where(first > 0.0, gammainc(np.maximum(first, 1.0), rate), 1.0)  # of y >= low
        beyond = np.where(np.isfinite(high), gammainc(np.where(np.isfinite(high), high, 0.0) + 1.0, rate), 0.0)
        within = np.where(np.isfinite(high), gammaincc(np.where(np.isfinite(high), high, 0.0) + 1.0, rate), 1.0)
        before = np.where(first > 0.0, gammaincc(np.maximum(first, 1.0), rate), 0.0)
        with np.errstate(divide="ignore"):
            several = np.log(np.maximum(np.where(above < 0.5, above - beyond, within - before), 0.0))
        return np.where(low == high, each, several)

    @staticmethod
    def drawn(eta: np.ndarray, nu: float, scale: float, stream: Stream, ids: np.ndarray) -> np.ndarray:
        from scipy.special import pdtr, pdtrik  # slow to import

        rate, u = np.exp(np.minimum(eta, 30.0)), stream.uniforms(ids)
        y = np.where(u <= np.exp(-rate), 0.0, np.ceil(np.nan_to_num(pdtrik(u, rate)) - 1e-9))
        return np.where(pdtr(y, rate) < u, y + 1.0, y)

    @classmethod
    def log_averages(cls, y: np.ndarray, at: np.ndarray, spread: np.ndarray, nu: float, scale: float) -> np.ndarray:
        """Integrate about the mode in eta, whose peak can be much narrower than spread."""
        precision, mode = spread**-2.0, np.maximum(at, np.log(np.maximum(y, 0.5)))
        for _ in range(100):  # from above, so that no step overshoots
            rate = np.exp(np.minimum(mode, 700.0))
            step = (y - rate - (mode - at) * precision) / (rate + precision)
            mode = mode + step
            if np.abs(step).max(initial=0.0) < 1e-9:
                break
        rate = np.exp(mode)
        wide, rate = (REACH + 1.0) * spread, np.maximum(rate, 1e-300)
        low = np.minimum(wide, (LEAST + np.sqrt(LEAST * LEAST + 8.0 * LEAST * rate)) / (2.0 * rate))
        eta, log_step = _between(mode - low, mode + np.minimum(wide, np.sqrt(2.0 * LEAST / rate)))
        terms = cls.log_density(eta, y[:, None], nu, scale) - 0.5 * (eta - at[:, None]) ** 2 * precision[:, None]
        return np.logaddexp.reduce(terms, axis=1) + log_step - 0.5 * np.log(2.0 * math.pi * spread**2)

    @staticmethod
    def average_expectations(at: np.ndarray, spread: np.ndarray) -> np.ndarray:
        return np.exp(np.minimum(at + 0.5 * spread**2, 700.0))

    @staticmethod
    def log_base(y: np.ndarray, nu: float, scale: float) -> float:
        return -float(np.sum(gammaln(y + 1.0)))


class Survival(Poisson):
    """A time to an event, with proportional hazards; `Baseline` has its densities."""

    name, effect, of_times = "survival", "hazard ratio", True

    @staticmethod
    def problems(column: Column) -> list[str]:
        if column.kind != "survival":
            what = "survival needs times to an event: import them with --survival time,event"
            return [f"outcome '{column.name}' is {column.kind}; {what}"]
        return [] if column.ends else [f"outcome '{column.name}' has no event"]


KINDS = Logistic, Softmax, StudentT, Normal, Poisson, Survival
LIKELIHOODS: dict[str, type[Likelihood]] = {of.name: of for of in KINDS}
