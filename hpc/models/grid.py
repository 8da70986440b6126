"""Gibbs draws of hyperparameters that live on a grid."""

from __future__ import annotations

import numpy as np

from mpibayes.hpc.errors import NumericalError


def draw_on_grid(log_weight: np.ndarray, stream: np.random.Generator) -> np.ndarray:
    """Index drawn with probability proportional to exp(log_weight) along the last axis, one a leading row."""
    weight = np.exp(log_weight - log_weight.max(axis=-1, keepdims=True))
    cumulative = np.cumsum(weight, axis=-1)
    if not np.isfinite(cumulative[..., -1]).all():
        raise NumericalError("a hyperparameter's weight on its grid is not a number")
    u = stream.random(log_weight.shape[:-1])[..., None] * cumulative[..., -1:]
    return (cumulative <= u).sum(axis=-1)


def as_grid(value: float | list[float]) -> np.ndarray:
    """A number is a grid of one point: a fixed hyperparameter."""
    return np.atleast_1d(np.asarray(value, np.float64))
