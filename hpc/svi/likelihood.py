"""Interface between models with conjugate priors and variational inference; the models by `model.likelihood`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Protocol

import numpy as np

from mpibayes.hpc.config.config import Config
from mpibayes.hpc.svi import finite_dirichlet, gaussian, keys
from mpibayes.hpc.svi.step import Step

State = Any  # q: a frozen dataclass of arrays; `sound()` is True if all lie in their domains


def arrays_of(q: State) -> dict[str, np.ndarray]:
    """The arrays of a state by name."""
    return {field.name: getattr(q, field.name) for field in fields(q)}


class Likelihood(Protocol):
    """A model. Rows are independent given the parameters of q, and a step needs only sums over them."""

    form: tuple[int, ...]  # shape of these sums

    def first(self) -> State:
        """The prior as a state."""

    def seeded(self, x: np.ndarray, n_rows: int, rng: np.random.Generator) -> State:
        """Initial state suggested by a sample x of `n_rows` rows."""

    def accumulate(
        self, q: State, x: np.ndarray, rows: np.ndarray | None, numbers: np.ndarray | None, sums: np.ndarray
    ) -> float:
        """Run the local step of rows under q. Adds to `sums` (1 or 2, *form) the sums over these rows, and if there are
        `numbers` (one per row), over the rows times these. Returns the rows' part of the bound."""

    def step(self, q: State, total: np.ndarray, noise: np.ndarray | None, step: Step) -> tuple[State, int]:
        """Return the state after a step with the sums `total` plus noise, and the number of times the guard acted."""

    def bound(self, q: State) -> float:
        """The part of the bound that does not depend on rows."""

    def weight(self, q: State) -> np.ndarray:
        """Expected number of rows of each component, (K,)."""


MAKERS: Mapping[str, Callable[[Config, int], Likelihood]] = {
    "gaussian": lambda config, d: gaussian.Gaussian(prior_of(config, d), config.of(keys.Model).components, d),
    "finite-dirichlet": lambda config, d: gaussian.Gaussian(
        finite_dirichlet.of(prior_of(config, d), config.of(keys.Model).components), config.of(keys.Model).components, d
    ),
}


def likelihood_of(config: Config, n_columns: int) -> Likelihood:
    """Build the model of a configuration for `n_columns` columns."""
    return MAKERS[config.of(keys.Model).likelihood](config, n_columns)


def prior_of(config: Config, n_columns: int) -> gaussian.Prior:
    model = config.of(keys.Model)
    degrees = n_columns + 2.0 if model.degrees == "auto" else model.degrees
    return gaussian.Prior(model.alpha, model.mean_variance, degrees, model.scale)
