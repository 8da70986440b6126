"""The state of an Indian buffet process, and what of it all ranks know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

WORD = 64  # features a word of a row's bits holds


@dataclass(frozen=True)
class Gamma:
    """A Gamma prior, by shape and rate."""

    shape: float
    rate: float


@dataclass(frozen=True)
class InverseGamma:
    """An inverse gamma prior of a variance."""

    shape: float
    scale: float


@dataclass(frozen=True)
class Settings:
    """Settings of the chain's law, besides the data. A number fixes a hyperparameter; a prior learns it."""

    seed: int = 0
    shards: int | None = None
    alpha: float | Gamma = field(default_factory=lambda: Gamma(1.0, 1.0))  # mass
    c: float | Sequence[float] = 1.0  # concentration: a number, or a grid of equal weights
    noise_sd: float | InverseGamma = field(default_factory=lambda: InverseGamma(1.0, 1.0))  # of the variance
    feature_sd: float | InverseGamma = field(default_factory=lambda: InverseGamma(1.0, 1.0))
    noise: str = "shared"  # or "column": each has its own, and the prior of its loadings is in units of it
    sweeps_per_cycle: int = 1
    opening: str = "one"
    likelihood: bool = True
    start: str = "subsample"  # see start.strategy
    moves: int | None = None  # a round of moves in every cycle of so many; None: more of them at first, 0: none


@dataclass
class Hyper:
    """alpha, c; noise_sd (D,), of each column; feature_sd, of a loading, over noise_sd where columns have their own.

    noise: as in Settings. It says what feature_sd means, which the numbers do not: one column may have its own noise,
    and the noises of several may be equal.
    """

    alpha: float
    c: float
    noise_sd: np.ndarray
    feature_sd: float
    noise: str


@dataclass
class Totals:
    """Sums over all rows. On every rank `owned` (K,), the rows that have each feature; on root together (K, K), cells
    (K, D) and squares (D,): rows that have two features, their cells, and all rows' squared cells."""

    owned: np.ndarray
    together: np.ndarray | None = None
    cells: np.ndarray | None = None
    squares: np.ndarray | None = None
