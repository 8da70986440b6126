"""State of an Indian buffet process, and the part of it that all ranks know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mpibayes.hpc.parallel.shards import Setting

WORD = 64  # features per word of a row's bits


@dataclass(frozen=True)
class Gamma:
    """Gamma prior, by shape and rate."""

    shape: float
    rate: float


@dataclass(frozen=True)
class InverseGamma:
    """Inverse gamma prior of a variance."""

    shape: float
    scale: float


@dataclass(frozen=True)
class Settings:
    """Settings of the chain's law, besides the data. A number fixes a hyperparameter; a prior lets it be learned."""

    seed: int = 0
    shards: Setting = None
    alpha: float | Gamma = field(default_factory=lambda: Gamma(1.0, 1.0))  # mass
    c: float | Sequence[float] = 1.0  # concentration: a number, or a grid of equal weights
    noise_sd: float | InverseGamma = field(default_factory=lambda: InverseGamma(1.0, 1.0))  # prior of the variance
    feature_sd: float | InverseGamma = field(default_factory=lambda: InverseGamma(1.0, 1.0))
    noise: str = "shared"  # or "column": each has its own, in whose units the prior of its loadings is
    sweeps_per_cycle: int = 1
    opening: str = "one"
    likelihood: bool = True
    start: str = "subsample"  # see start.strategy
    moves: int | None = None  # cycles between two rounds of moves; None: more frequent at first, 0: no moves


@dataclass
class Hyper:
    """Hyperparameters: alpha, c; noise_sd (D,) by column; feature_sd of a loading, relative to noise_sd if columns have
    their own.

    noise: as in Settings. It determines the meaning of feature_sd, which the numbers do not: a single column may have
    its own noise, and the noises of several may be equal.
    """

    alpha: float
    c: float
    noise_sd: np.ndarray
    feature_sd: float
    noise: str


@dataclass
class Totals:
    """Sums over all rows. owned (K,): number of rows with each feature, on every rank. On root alone: together (K, K),
    number of rows with both features; cells (K, D), sums of their cells; squares (D,), sums of all rows' squared
    cells."""

    owned: np.ndarray
    together: np.ndarray | None = None
    cells: np.ndarray | None = None
    squares: np.ndarray | None = None
