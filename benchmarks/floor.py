"""The floor program (floor.c): compiled at run time, given a table and its clusters, its seconds read back."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from machine import COMPILER

HERE = Path(__file__).resolve().parent
FLAGS = ["-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"]


@dataclass
class Clusters:
    """A table of n rows and the K clusters that it was drawn from.

    codes (n, C) uint8, reals (n, D), counts (n, Q); labels (n,). log_theta: of every code column (V, K) float;
    location (D, K), with unit deviations, or precision (K, D, D); rate (Q, K).
    """

    codes: np.ndarray
    reals: np.ndarray
    counts: np.ndarray
    labels: np.ndarray
    n_clusters: int
    log_theta: list[np.ndarray]
    location: np.ndarray
    rate: np.ndarray
    precision: np.ndarray | None = None


def compiled(folder: Path) -> Path:
    """The program, in `folder`."""
    out = folder / "floor"
    subprocess.run([COMPILER, *FLAGS, "-o", str(out), str(HERE / "floor.c"), "-lm"], check=True)
    return out


def quadratic_weights(c: Clusters) -> tuple[np.ndarray, np.ndarray]:
    """log N(x; location_k, precision_k^-1) = constant_k + weights_k . (x_a, then x_a x_b for a <= b).

    Weights (D (D + 3) / 2, K), constants (K,).
    """
    d = len(c.location)
    upper = np.triu_indices(d)
    twice = np.where(upper[0] == upper[1], 0.5, 1.0)
    linear = np.einsum("kab,bk->ak", c.precision, c.location)
    square = -(c.precision[:, upper[0], upper[1]] * twice).T
    constant = 0.5 * (
        np.linalg.slogdet(c.precision)[1] - d * np.log(2 * np.pi) - np.einsum("ak,ak->k", linear, c.location)
    )
    return np.concatenate([linear, square]), constant


def write_problem(c: Clusters, path: Path) -> None:
    """The file that floor.c reads: a head of six numbers, then arrays, each padded to 64 bytes. Clusters up to the next
    multiple of 16 have no weight."""
    n, k, d = len(c.labels), -(-c.n_clusters // 16) * 16, c.reals.shape[1]
    levels = [len(t) for t in c.log_theta]
    weight = np.full(k, -1e30)
    weight[: c.n_clusters] = -np.log(c.n_clusters) - c.rate.sum(axis=0)
    quadratic = np.zeros((d * (d + 3) // 2, c.n_clusters))
    if c.precision is None:
        weight[: c.n_clusters] -= 0.5 * (c.location**2 + np.log(2 * np.pi)).sum(axis=0)
    else:
        quadratic, constant = quadratic_weights(c)
        weight[: c.n_clusters] += constant
    nu = np.full(k, 2.0 + n / k)

    def padded(array: np.ndarray) -> np.ndarray:
        return np.pad(array, ((0, 0), (0, k - c.n_clusters)))

    arrays = [
        (np.array([n, c.codes.shape[1], sum(levels), d, c.counts.shape[1], k]), np.int64),
        (np.concatenate([[0], np.cumsum(levels)]), np.int64),
        (c.codes, np.uint8),
        (c.reals, np.float32),
        (c.counts, np.float32),
        (c.labels, np.int32),
        (weight, np.float32),
        (padded(np.concatenate([*c.log_theta, np.zeros((0, c.n_clusters))])), np.float32),
        (np.full((d, k), -0.5), np.float32),
        (padded(c.location), np.float32),
        (padded(np.log(c.rate)), np.float32),
        (padded(c.location), np.float32),
        (np.broadcast_to(nu**-0.5, (d, k)), np.float32),
        (0.5 * (nu + 1), np.float32),
        (np.zeros(k), np.float32),
        (padded(quadratic), np.float64),
    ]
    with path.open("wb") as file:
        for array, dtype in arrays:
            block = np.ascontiguousarray(array, dtype).tobytes()
            file.write(block + bytes(-len(block) % 64))


def seconds(program: Path, case: str, problem: Path, rounds: int = 1) -> tuple[list[float], float]:
    """CPU seconds of each pass over the rows, after a first one; the share of rows that got their own label."""
    answer = subprocess.run([program, case, problem, str(rounds)], capture_output=True, text=True, check=True).stdout
    *times, same = map(float, answer.split())
    return times, same
