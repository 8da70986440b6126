"""The tables on which programs are compared, each a file NAME.npz that any program can read.

x (N, C), int8 codes or float64; held (H, C): rows of the same law that no program sees; levels (C,), empty for reals;
z (N,): the clusters that the table was made from, empty for a real one.

    cat_10k, cat_100k, cat_1m    68 categorical columns of 2 to 18 levels, 20 clusters, 80 % of (cluster, column) apart
    weak_10k                     the same, 30 % apart: one cluster is a deep local mode
    many_100k                    as cat_100k, 64 clusters
    real_10k, real_100k          10 reals, 20 clusters with full covariances
    income_20k, kdd_20k          census-income and KDD Cup 1999, discretised; from a folder (public_tables.py)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from discrete_tables import HELD_OUT, Discrete, made, real
from scorer import heldout_codes, heldout_reals

MADE = {  # rows, clusters, share of (cluster, column) apart
    "cat_10k": (10_000, 20, 0.8), "cat_100k": (100_000, 20, 0.8), "cat_1m": (1_000_000, 20, 0.8),
    "weak_10k": (10_000, 20, 0.3), "many_100k": (100_000, 64, 0.8),
}  # fmt: skip
REALS = {"real_10k": 10_000, "real_100k": 100_000}
PUBLIC = {"income_20k": "income", "kdd_20k": "kdd"}


@dataclass(frozen=True)
class Comparison:
    """One table; see above."""

    name: str
    path: Path
    x: np.ndarray
    held: np.ndarray
    levels: tuple[int, ...]
    z: np.ndarray

    def score(self, labels: np.ndarray) -> float:
        """Held-out score of a partition, nats a row."""
        if self.levels:
            return heldout_codes(self.x, self.held, self.levels, labels)
        return heldout_reals(self.x, self.held, labels)


def gaussians(rows: int, dimensions: int = 10, clusters: int = 20, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """x (rows, D) and z (rows,): clusters with means N(0, 3^2) and covariances of their own, weights like Zipf's."""
    model = np.random.default_rng([seed, 0])
    mean = model.normal(0, 3, (clusters, dimensions))
    factor = model.normal(size=(clusters, dimensions, 2 * dimensions)) / np.sqrt(2 * dimensions)
    root = np.linalg.cholesky(factor @ factor.transpose(0, 2, 1) + 0.05 * np.eye(dimensions))
    weights = np.arange(1, clusters + 1) ** -0.7
    draws = np.random.default_rng([seed, rows])
    z = draws.choice(clusters, rows, p=weights / weights.sum())
    return mean[z] + np.einsum("nab,nb->na", root[z], draws.normal(size=(rows, dimensions))), z


def discrete(name: str, data: Path | None) -> Discrete:
    """A categorical table by name; a real one from the folder `data`."""
    if name in PUBLIC:
        return real(name, data, PUBLIC[name], 20_000)
    rows, clusters, private = MADE[name]
    return made(name, rows, 68, clusters, private, seed=1)


def table(name: str, folder: Path, data: Path | None) -> Comparison:
    """A table by name, written to FOLDER/NAME.npz where it is not there yet."""
    path = folder / f"{name}.npz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        if name in REALS:
            x, z = gaussians(REALS[name] + HELD_OUT)
            parts = {"x": x[:-HELD_OUT], "held": x[-HELD_OUT:], "levels": (), "z": z[:-HELD_OUT]}
        else:
            result = discrete(name, data)
            z = np.zeros(0, int) if result.z is None else result.z
            parts = {"x": result.x, "held": result.held, "levels": result.levels, "z": z}
        np.savez(path, **{key: np.asarray(value) for key, value in parts.items()})
    with np.load(path) as arrays:
        return Comparison(
            name, path, arrays["x"], arrays["held"], tuple(arrays["levels"].astype(int).tolist()), arrays["z"]
        )
