"""Whole numbers that spread wider than a Poisson law: which form predicts cells that it has not seen.

    python benchmarks/counts.py TABLE.csv COLUMN [--cycles 100] [--held-out 0.3] [--seed 1] [--most 4000]

The column alone, its cells dealt at random to training and held-out ones. Mixtures of Poissons (`--kind x=count`), of
normals in steps (what the import chooses), and of these in coordinates (`model.shapes = "auto"`) are runs of this
program; mixtures of one to four negative binomials are fitted here by expectation maximisation, their number by BIC.
Scores are log probabilities, nats a held-out cell, with the standard error of the difference to the import's choice.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.csv as pc
from scipy.optimize import minimize_scalar
from scipy.stats import nbinom

from mpibayes.io.trace import read_trace

MOST_COMPONENTS, ROUNDS, ENOUGH = 4, 300, 1e-7
LOG_SIZES = (-5.0, 8.0)  # of a negative binomial: its variance is mean + mean^2 / size
FORMS = {"poissons": ("count", "none"), "normals in steps": ("real", "none"), "in coordinates": ("real", "auto")}


class NegativeBinomials:
    """The most likely mixture of k negative binomials of the cells x (n,)."""

    def __init__(self, x: np.ndarray, k: int):
        parts = np.array_split(np.sort(x), k)
        value, times = np.unique(x, return_counts=True)
        self.weight, self.mean = np.full(k, 1.0 / k), np.array([max(p.mean(), 0.1) for p in parts])
        self.size, last = np.ones(k), -np.inf
        for _ in range(ROUNDS):
            log = self.logs(value)
            total = np.logaddexp.reduce(log, axis=1)
            self.score = float(times @ total)
            if self.score - last < ENOUGH * len(x):
                break
            last = self.score
            share = np.exp(log - total[:, None]) * times[:, None]
            self.weight = np.maximum(share.sum(axis=0), 1e-12) / len(x)
            self.mean = np.maximum(value @ share / (self.weight * len(x)), 1e-9)
            self.size = np.array([most_likely_size(value, s, m) for s, m in zip(share.T, self.mean)])
        self.bic = self.score - 0.5 * (3 * k - 1) * np.log(len(x))

    def logs(self, x: np.ndarray) -> np.ndarray:
        """Log of weight times probability, (n, k)."""
        return np.log(self.weight) + nbinom.logpmf(x[:, None], self.size, self.size / (self.size + self.mean))


def most_likely_size(value: np.ndarray, share: np.ndarray, mean: float) -> float:
    """Size of a negative binomial with this mean, of values that count for `share` each."""

    def loss(log_size: float) -> float:
        size = np.exp(log_size)
        return -float(share @ nbinom.logpmf(value, size, size / (size + mean)))

    return float(np.exp(minimize_scalar(loss, bounds=LOG_SIZES, method="bounded").x))


def scored_by_a_run(training: np.ndarray, held: np.ndarray, kind: str, shapes: str, cycles: int, seed: int):
    """Log probabilities of the held-out cells, and the mean number of clusters, of a run on the training cells."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name, cells in (("t.csv", training), ("new.csv", held)):
            (place / name).write_text("x\n" + "\n".join(map(str, cells)) + "\n")
        (place / "run.toml").write_text(
            f'[data]\ntable = "t.h5"\n[model]\nfamily = "mixture"\nshapes = "{shapes}"\n'
            f'[run]\ncycles = {cycles}\nseed = {seed}\nchains = 2\nuntil = "cycles"\n'
        )
        program = [sys.executable, "-m", "mpibayes"]
        for words in (
            ["import", "t.csv", "t.h5", "--kind", f"x={kind}"],
            ["run", "run.toml", "-o", "run"],
            ["predict", "run", "new.csv", "-o", "scores.csv"],
        ):
            done = subprocess.run([*program, *words], cwd=place, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"mpibayes {' '.join(words)}\n{done.stderr}")
        clusters = [read_trace(chain)["n_clusters"] for chain in (place / "run").glob("chain-*")]
        k = float(np.mean([k[len(k) // 2 :] for k in clusters]))
        return np.array(pc.read_csv(place / "scores.csv")["log_density"]), k


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("table", type=Path)
    words.add_argument("column")
    words.add_argument("--cycles", type=int, default=100)
    words.add_argument("--held-out", type=float, default=0.3)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--most", type=int, default=4000, help="cells that are looked at, by default 4000")
    given = words.parse_args()

    x = np.array([v for v in pc.read_csv(given.table)[given.column].to_pylist() if v is not None], dtype=np.int64)
    x = np.random.default_rng(given.seed).permutation(x)[: given.most]
    held, training = np.split(x, [int(given.held_out * len(x))])
    what = f"mean {x.mean():.2f}, variance {x.var():.1f}"
    print(f"{given.column}: {len(training)} + {len(held)} cells, {what}", flush=True)
    scores = {name: scored_by_a_run(training, held, *form, given.cycles, given.seed) for name, form in FORMS.items()}
    fitted = [NegativeBinomials(training, k) for k in range(1, MOST_COMPONENTS + 1)]
    for name, fit in (
        ("one negative binomial", fitted[0]),
        ("negative binomials", max(fitted, key=lambda fit: fit.bic)),
    ):
        scores[name] = np.logaddexp.reduce(fit.logs(held), axis=1), len(fit.weight)
    base = scores["normals in steps"][0]
    for name, (score, k) in scores.items():
        error = (score - base).std() / np.sqrt(len(held))
        print(f"  {name:22} {score.mean():8.4f}  {(score - base).mean():+.4f} +- {error:.4f}  K {k:.1f}")


if __name__ == "__main__":
    main()
