"""Regressions for the tests of Firefly's exactness: logistic24, and one for each other likelihood and prior.

logistic24 is that of tests/exact/numbers.md. Predictors are what the program stores, single precision.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from tests.exact.quadrature import Case, Posterior

VALUES = (
    "2.04:+ -2.56:- .42:+ -.57:- -.45:+ -.22:- -2.02:- -.23:+ -.87:- 3.32:+ .23:+ -.35:- -.28:+ -.67:- -1.06:- -.39:+ "
    ".48:- -.24:- .96:+ -.2:- .02:- 1.55:+ .55:- -.51:+"
)


def single(x) -> np.ndarray:
    return np.asarray(x, np.float32).astype(np.float64)


def _logistic24() -> Case:
    value, sign = zip(*(word.split(":") for word in VALUES.split()))
    x = np.column_stack([np.array(value, float), np.ones(len(value))])
    return Case("logistic24", "logistic", single(x), np.array([s == "+" for s in sign], int), (1.0, 0.0))


def _student16() -> Case:
    """A line with two outliers, under a Laplace prior that pulls the slope to 0."""
    value = np.array([-1.9, -1.4, -1.1, -0.9, -0.6, -0.4, -0.3, -0.1, 0.1, 0.2, 0.5, 0.7, 1.0, 1.2, 1.6, 2.1])
    noise = np.array([0.3, -0.6, 0.2, 0.9, -0.2, 0.1, -5.0, 0.4, -0.3, 0.6, -0.1, 0.2, -0.7, 0.5, 4.0, -0.4])
    x = np.column_stack([value, np.ones(16)])
    return Case(
        "student16", "student-t", single(x), 0.25 * value + 0.3 + noise, (0.2, 0.4), "laplace", 0.4, nu=4.0, scale=0.7
    )


def _softmax12() -> Case:
    """Three classes, one predictor: three coefficients, whose sum only the prior determines."""
    x = np.array([-2.2, -1.7, -1.2, -0.8, -0.5, -0.2, 0.3, 0.6, 0.9, 1.3, 1.8, 2.4])
    y = np.array([0, 0, 1, 0, 2, 1, 1, 0, 2, 2, 1, 2])
    return Case("softmax12", "softmax", single(x[:, None]), y, (-1.0, 0.0, 0.5), "gaussian", 1.5, n_classes=3)


CASES = {case.name: case for case in (_logistic24(), _student16(), _softmax12())}


def _rare24() -> Case:
    """logistic24 with its constant first and three responses equal to 1; a narrow Laplace prior."""
    case = _logistic24()
    y = (np.arange(24) % 8 == 1).astype(int)
    return Case("rare24", "logistic", case.x[:, ::-1], y, (-2.0, 0.1), "laplace", 0.5, intercept_scale=4.0)


def _far16() -> Case:
    """student16 far from 0, with its constant first."""
    case = _student16()
    y = case.y + 3.0
    return Case("far16", "student-t", case.x[:, ::-1], y, (3.3, 0.2), "gaussian", 0.5, scale=0.7, intercept_scale=5.0)


def _rare12() -> Case:
    """Two classes, an intercept each, and nothing else; only the prior determines their sum."""
    y = (np.arange(12) == 5).astype(int)
    return Case("rare12", "softmax", np.ones((12, 1)), y, (1.0, -1.0), "laplace", 0.5, n_classes=2, intercept_scale=3.0)


INTERCEPTS = {case.name: case for case in (_rare24(), _far16(), _rare12())}  # with a prior of their own
FLAT = replace(_logistic24(), name="flat24", prior_scale=(2.0, np.inf))  # in its intercept


@functools.cache
def posterior(name: str) -> Posterior:
    """Quadrature of a case, computed once per process."""
    return Posterior((CASES | INTERCEPTS | {FLAT.name: FLAT})[name])
