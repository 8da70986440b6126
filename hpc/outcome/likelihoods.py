"""Likelihoods of an outcome given its linear predictor eta, a class each."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from mpibayes.hpc.regression.likelihoods.likelihood import NUMERIC
from mpibayes.hpc.regression.likelihoods.logistic import Logistic as OfClasses
from mpibayes.io.rows import Column
from mpibayes.kernels.common.functions import expit, gammaln
from mpibayes.kernels.mixture import response as kernels
from mpibayes.text import counted, import_again


class Likelihood:
    """One kind of outcome. effect: what exp(theta) or theta compares, in words; ratio: whether it is exp(theta)."""

    name: ClassVar[str]
    code: ClassVar[int]
    of_classes: ClassVar[bool] = False  # y is -1 or 1
    has_scale: ClassVar[bool] = False  # it has a scale s, and a number is modelled in standard deviations
    effect: ClassVar[str]
    ratio: ClassVar[bool] = True

    @staticmethod
    def problems(column: Column) -> list[str]:
        """Reasons why a column cannot be the outcome; empty if it can."""
        raise NotImplementedError

    @staticmethod
    def encode(cells: np.ndarray) -> np.ndarray:
        """y of cells, level codes or numbers, float64."""
        return cells.astype(np.float64)

    @staticmethod
    def centre(mean: float) -> float:
        """eta at which the mean of y is this."""
        return mean

    @staticmethod
    def curvature(mean: np.ndarray, nu: float, scale: float) -> np.ndarray:
        """Information of a row about eta where the mean of y is this: the weight of a row in the metric."""
        return np.full_like(mean, scale**-2)

    @staticmethod
    def expectation(eta: np.ndarray) -> np.ndarray:
        """Mean of y, or the probability of the second class."""
        return eta

    @staticmethod
    def log_density(eta: np.ndarray, y: np.ndarray, nu: float, scale: float) -> np.ndarray:
        """log L, normalised."""
        raise NotImplementedError

    @staticmethod
    def log_base(y: np.ndarray, nu: float, scale: float) -> float:
        """Sum of the terms of log L that the kernels leave out, of all y."""
        return 0.0


class Logistic(Likelihood):
    """Two classes; y = 1 is the second one, y = -1 the first."""

    name, code, effect, of_classes = "logistic", kernels.LOGISTIC, "odds ratio", True
    encode = staticmethod(OfClasses.encode)
    expectation = staticmethod(expit)

    @staticmethod
    def problems(column: Column) -> list[str]:
        if column.kind in NUMERIC:
            cure = f'set outcome.likelihood = "student-t", or {import_again(column.name, "boolean")}'
            return [f"outcome '{column.name}' is {column.kind}; logistic needs two levels: {cure}"]
        if len(column.levels) != 2:
            cure = f": if it has numbers, {import_again(column.name, 'real')}" if len(column.levels) > 2 else ""
            return [f"outcome '{column.name}' has {counted(len(column.levels), 'level')}; logistic needs two{cure}"]
        return []

    @staticmethod
    def centre(mean: float) -> float:
        return math.log1p(mean) - math.log1p(-mean)

    @staticmethod
    def curvature(mean: np.ndarray, nu: float, scale: float) -> np.ndarray:
        return np.maximum(0.25 * (1.0 - mean * mean), 0.01)

    @staticmethod
    def log_density(eta: np.ndarray, y: np.ndarray, nu: float, scale: float) -> np.ndarray:
        return -np.logaddexp(0.0, -y * eta)


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
    def log_base(cls, y: np.ndarray, nu: float, scale: float) -> float:
        return len(y) * float(cls.log_density(np.zeros(1), np.zeros(1), nu, scale)[0])


class Normal(StudentT):
    """A number."""

    name, code = "normal", kernels.NORMAL

    @staticmethod
    def curvature(mean: np.ndarray, nu: float, scale: float) -> np.ndarray:
        return np.full_like(mean, scale**-2)

    @staticmethod
    def log_density(eta: np.ndarray, y: np.ndarray, nu: float, scale: float) -> np.ndarray:
        return -0.5 * math.log(2 * math.pi) - math.log(scale) - 0.5 * ((y - eta) / scale) ** 2


class Poisson(Likelihood):
    """A count; exp(eta) is its mean."""

    name, code, effect = "poisson", kernels.POISSON, "rate ratio"
    expectation = staticmethod(np.exp)

    @staticmethod
    def problems(column: Column) -> list[str]:
        if column.kind != "count":
            again = import_again(column.name, "count")
            return [f"outcome '{column.name}' is {column.kind}; poisson needs a count column: {again}"]
        return []

    @staticmethod
    def centre(mean: float) -> float:
        return math.log(max(mean, 1e-6))

    @staticmethod
    def curvature(mean: np.ndarray, nu: float, scale: float) -> np.ndarray:
        return np.maximum(mean, 1e-3)

    @staticmethod
    def log_density(eta: np.ndarray, y: np.ndarray, nu: float, scale: float) -> np.ndarray:
        return y * eta - np.exp(eta) - gammaln(y + 1.0)

    @staticmethod
    def log_base(y: np.ndarray, nu: float, scale: float) -> float:
        return -float(np.sum(gammaln(y + 1.0)))


LIKELIHOODS: dict[str, type[Likelihood]] = {of.name: of for of in (Logistic, StudentT, Normal, Poisson)}
