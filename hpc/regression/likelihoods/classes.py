"""Common base of logistic and softmax regression: the response is one of several classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpibayes.hpc.regression.likelihoods.likelihood import NUMERIC, Likelihood
from mpibayes.io.rows import Column
from mpibayes.text import import_again


class OfClasses(Likelihood):
    """Base of likelihoods of classes: adds their probabilities."""

    @classmethod
    def response_problems(cls, column: Column) -> list[str]:
        if column.kind in NUMERIC:
            return [
                f"response '{column.name}' is {column.kind}; {cls.name} needs classes: "
                f'{import_again(column.name, "categorical")}, or set model.likelihood = "student-t"'
            ]
        if len(column.levels) < 2:
            return [f"response '{column.name}' has one level ({column.levels[0]!r}); {cls.name} needs two"]
        return []

    def probabilities(self, eta: np.ndarray) -> np.ndarray:
        """Probabilities of the classes, (..., C), from eta (..., K)."""
        raise NotImplementedError

    def draw(self, eta: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Draw a class number for each row, (n,)."""
        below = self.probabilities(eta).cumsum(axis=1)
        return (u[:, None] >= below[:, :-1]).sum(axis=1).astype(np.float64)

    def predictions(self, eta: np.ndarray, classes: Sequence[str], center: float, scale: float) -> dict[str, Any]:
        """Most probable class, and 5 and 95 % quantiles of the probabilities over draws."""
        import pyarrow as pa

        p = self.probabilities(eta)
        mean = p.mean(axis=1)
        best = mean.argmax(axis=1)
        columns = {"probability": mean[np.arange(len(mean)), best]}
        low, high = np.quantile(p, (0.05, 0.95), axis=1)
        for c in range(len(classes)) if self.n_classes > 1 else (1,):  # of two classes the second is enough
            name = f"p_{classes[c]}"
            columns |= {name: mean[:, c], f"{name}_q05": low[:, c], f"{name}_q95": high[:, c]}
        label = pa.array(classes, pa.string()).take(pa.array(best))
        return {"class": label} | {name: values.astype(np.float32) for name, values in columns.items()}


def log_sum_exp(eta: np.ndarray) -> np.ndarray:
    """Log of sum_k exp(eta_k), (n,)."""
    largest = eta.max(axis=1)
    return largest + np.log(np.exp(eta - largest[:, None]).sum(axis=1))


def softmax(eta: np.ndarray) -> np.ndarray:
    """Class probabilities, (..., K)."""
    p = np.exp(eta - eta.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def quoted(level: str) -> str:
    return f'"{level}"'
