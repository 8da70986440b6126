"""Interface of a model with conjugate priors to variational inference; and the models by `model.likelihood`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Protocol

import numpy as np

from mpibayes.hpc.config.config import Config
from mpibayes.hpc.svi import finite_dirichlet, gaussian, keys
from mpibayes.hpc.svi.step import Step

State = Any  # q: a frozen dataclass of arrays; `sound()` says whether all of it lies in its domain


def arrays_of(q: State) -> dict[str, np.ndarray]:
    """The arrays of a state by name."""
    return {field.name: getattr(q, field.name) for field in fields(q)}


class Likelihood(Protocol):
    """A model. Rows are independent given the parameters that q is about, and their sums are all that a step needs."""

    form: tuple[int, ...]  # of these sums

    def first(self) -> State:
        """The prior as a state."""

    def seeded(self, x: np.ndarray, n_rows: int, rng: np.random.Generator) -> State:
        """A state to start from, that some rows of `n_rows` suggest."""

    def accumulate(
        self, q: State, x: np.ndarray, rows: np.ndarray | None, numbers: np.ndarray | None, sums: np.ndarray
    ) -> float:
        """The local step of some rows under q. Adds to `sums` (1 or 2, *form): over these rows, and, where there are
        `numbers` (one a row), of the rows times these. Returns the rows' part of the bound."""

    def step(self, q: State, total: np.ndarray, noise: np.ndarray | None, step: Step) -> tuple[State, int]:
        """The state after a step to the sums `total` and what noise adds to them; and how often the guard acted."""

    def bound(self, q: State) -> float:
        """The part of the bound that no row has."""

    def weight(self, q: State) -> np.ndarray:
        """Rows that each component stands for, (K,)."""


MAKERS: Mapping[str, Callable[[Config, int], Likelihood]] = {
    "gaussian": lambda config, d: gaussian.Gaussian(prior_of(config, d), config.of(keys.Model).components, d),
    "finite-dirichlet": lambda config, d: gaussian.Gaussian(
        finite_dirichlet.of(prior_of(config, d), config.of(keys.Model).components), config.of(keys.Model).components, d
    ),
}


def likelihood_of(config: Config, n_columns: int) -> Likelihood:
    """The model of a configuration, of so many columns."""
    return MAKERS[config.of(keys.Model).likelihood](config, n_columns)


def prior_of(config: Config, n_columns: int) -> gaussian.Prior:
    model = config.of(keys.Model)
    degrees = n_columns + 2.0 if model.degrees == "auto" else model.degrees
    return gaussian.Prior(model.alpha, model.mean_variance, degrees, model.scale)
