"""The Indian buffet process on public tables, through the program: handwritten digits, and nine tables of 0 and 1.

    python benchmarks/public_features.py digits --data FOLDER --out OUT
    python benchmarks/public_features.py binary --data FOLDER --out OUT [--tables nltcs plants]

    FOLDER/mnist/{train,t10k}-images-idx3-ubyte.gz              MNIST
    FOLDER/binary_density/NAME.{train,valid,test}.data.xz       0/1 tables, comma separated, without a header

`digits`: the inner 24 x 24 pixels in blocks of 2 x 2, so 12 x 12, grey from 0 to 1 (the border is empty in nearly all
digits, and a constant pixel has no loadings). `binary`: cells are taken as the reals 0 and 1, training and validation
rows together. Cells are not centred or scaled. Every table is imported, checked, run, reported and predicted by the
commands that a user has, in processes of their own, on one core; seconds are CPU seconds of `mpibayes run`.

Two things are compared on rows of the test file:

density     log density of a row, in nats. That of a 0/1 cell under a normal law is no probability: it says something
            beside another normal law of the same cells only, here principal components with noise (Tipping & Bishop
            1999) of as many components as there are features, whose scores are real where features are there or not.
withheld    a fifth of the cells of each row, at random, is taken out and predicted from the others. The figure is the
            mean squared error, which for 0/1 cells is the Brier score of the predicted share. It compares with
            anything: the column's mean, the components, and, for 0/1 tables, the program's mixture of booleans.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import lzma
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

BINARY = ("nltcs", "plants", "accidents", "pumsb_star", "jester", "baudio", "bnetflix", "dna", "mushrooms")
WITHHELD = 0.2
CONFIG = """[data]
table = "train.h5"
[model]
family = "{family}"
{model}
[run]
seed = 1
cycles = {cycles}
[output]
thin = 5
labels = 5
{more}"""


def digits(data: Path, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """(first `rows` training digits (n, 144), all test digits)."""
    result = []
    for name in ("train", "t10k"):
        with gzip.open(data / "mnist" / f"{name}-images-idx3-ubyte.gz") as file:
            pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28)
        blocks = pixels[:, 2:26, 2:26].reshape(-1, 12, 2, 12, 2).mean(axis=(2, 4))
        result.append(np.round(blocks.reshape(-1, 144) / 255.0, 4))
    return result[0][:rows], result[1]


def binary(data: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    parts = {}
    for part in ("train", "valid", "test"):
        with lzma.open(data / "binary_density" / f"{name}.{part}.data.xz", "rt") as file:
            parts[part] = np.loadtxt(file, delimiter=",", ndmin=2)
    return np.concatenate([parts["train"], parts["valid"]]), parts["test"]


def write(path: Path, x: np.ndarray) -> None:
    with open(path, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow([f"c{d}" for d in range(x.shape[1])])
        out.writerows(["" if np.isnan(v) else f"{v:g}" for v in row] for row in x)


def program(place: Path, *words: object) -> float:
    """CPU seconds of one command of the program."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "mpibayes", *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MPIBAYES_RANKS": "1"}
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def predicted(place: Path, run: str, source: str, *words: object) -> dict[str, np.ndarray]:
    """Columns of what `predict` writes."""
    out = place / f"{run}-{source}"
    program(place, "predict", run, source, "-o", out, "--draws", 10, "--force", *words)
    with open(out, newline="") as file:
        head, *lines = csv.reader(file)
    return {name: np.array(column) for name, column in zip(head, zip(*lines))}


def filled(found: dict[str, np.ndarray], holes: np.ndarray, boolean: bool) -> np.ndarray:
    """Predicted means of the missing cells of `holes` (n, D), of each where there is one."""
    out = holes.copy()
    for d in range(holes.shape[1]):
        gone = np.isnan(holes[:, d])
        value = found[f"imputed_c{d}"][gone]
        if boolean:
            p = found[f"imputed_c{d}_p"][gone].astype(float)
            out[gone, d] = np.where(np.isin(value, ("1", "true", "True", "yes")), p, 1.0 - p)
        else:
            out[gone, d] = value.astype(float)
    return out


class Components:
    """Principal components with noise, by maximum likelihood (Tipping & Bishop 1999)."""

    def __init__(self, x: np.ndarray, k: int):
        self.mean = x.mean(axis=0)
        values, vectors = np.linalg.eigh(np.cov(x.T, bias=True))
        values, vectors, k = values[::-1], vectors[:, ::-1], min(k, x.shape[1] - 1)
        noise = values[k:].mean()
        w = vectors[:, :k] * np.sqrt(np.maximum(values[:k] - noise, 0.0))
        self.covariance = w @ w.T + noise * np.eye(x.shape[1])

    def log_density(self, x: np.ndarray) -> np.ndarray:
        low = np.linalg.cholesky(self.covariance)
        error = np.linalg.solve(low, (x - self.mean).T)
        return -0.5 * (error**2).sum(axis=0) - np.log(np.diag(low)).sum() - 0.5 * x.shape[1] * np.log(2.0 * np.pi)

    def filled(self, holes: np.ndarray) -> np.ndarray:
        out = holes.copy()
        for row in out:
            gone = np.isnan(row)
            weights = np.linalg.solve(self.covariance[np.ix_(~gone, ~gone)], self.covariance[np.ix_(~gone, gone)])
            row[gone] = self.mean[gone] + (row[~gone] - self.mean[~gone]) @ weights
        return out


def measure(
    place: Path, train: np.ndarray, test: np.ndarray, cycles: int, noise: str, image: tuple[int, int] | None
) -> str:
    """One line of the table. place: a folder for it, which is not there yet."""
    place.mkdir(parents=True)
    kept = train.min(axis=0) < train.max(axis=0)
    train, test = train[:, kept], test[:, kept]
    holes = np.where(np.random.default_rng(1).random(test.shape) < WITHHELD, np.nan, test)
    gone = np.isnan(holes)
    for name, x in (("train.csv", train), ("test.csv", test), ("holes.csv", holes)):
        write(place / name, x)
    kinds = [f"--kind=c{d}=real" for d in range(train.shape[1])]
    program(place, "import", "train.csv", "train.h5", *kinds)
    more = f"[report]\nimage = {list(image)}\n" if image else ""
    (place / "ibp.toml").write_text(
        CONFIG.format(family="ibp", model=f"standardise = false\nnoise_sd = {noise}", cycles=cycles, more=more)
    )
    program(place, "check", "ibp.toml")
    seconds = program(place, "run", "ibp.toml", "-o", "ibp")
    program(place, "report", "ibp")
    program(place, "export", "ibp", "--to", "csv", "-o", "trace.csv")
    with open(place / "trace.csv", newline="") as file:
        lines = [(float(line["n_features"]), float(line["noise_sd"])) for line in csv.DictReader(file)]
    k, sd = np.mean(lines[len(lines) // 5 :], axis=0)
    density = predicted(place, "ibp", "test.csv")["log_density"].astype(float).mean()
    ours = filled(predicted(place, "ibp", "holes.csv", "--impute"), holes, boolean=False)
    other = Components(train, round(k))
    guesses = {"mean": np.broadcast_to(train.mean(axis=0), test.shape), "components": other.filled(holes), "ibp": ours}
    if image is None:
        kinds = [f"--kind=c{d}=boolean" for d in range(train.shape[1])]
        program(place, "import", "train.csv", "train.h5", "--force", *kinds)
        (place / "mixture.toml").write_text(CONFIG.format(family="mixture", model="", cycles=cycles, more=""))
        program(place, "run", "mixture.toml", "-o", "mixture")
        guesses["mixture"] = filled(predicted(place, "mixture", "holes.csv", "--impute"), holes, boolean=True)
    error = {name: ((guess - test)[gone] ** 2).mean() for name, guess in guesses.items()}
    what = [place.name, len(train), train.shape[1], f"{seconds:.0f}", f"{k:.1f}", f"{sd:.3f}", f"{density:.1f}"]
    what += [
        f"{other.log_density(test).mean():.1f}",
        *(f"{error.get(name, np.nan):.4f}" for name in ("mean", "components", "ibp", "mixture")),
    ]
    return "| " + " | ".join(map(str, what)) + " |"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("digits", "binary"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("public_features"))
    parser.add_argument("--tables", nargs="+", choices=BINARY, default=BINARY)
    parser.add_argument("--rows", type=int, default=20_000, help="training digits, 15,000 at least")
    parser.add_argument("--tested", type=int, default=1000, help="test rows, at most")
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--noise", default='"learn"', help="model.noise_sd")
    given = parser.parse_args(words)
    print(f"{given.cycles} cycles; means over draws after a fifth of them; squared errors of withheld cells")
    head = "table, rows, columns, CPU s, features, noise, density, components, mean, components, features, mixture"
    print(f"| {head.replace(', ', ' | ')} |")
    print("| --- " * 12 + "|", flush=True)
    for name in ("digits",) if given.what == "digits" else given.tables:
        train, test = digits(given.data, given.rows) if name == "digits" else binary(given.data, name)
        image = (12, 12) if name == "digits" else None
        print(measure(given.out / name, train, test[: given.tested], given.cycles, given.noise, image), flush=True)


if __name__ == "__main__":
    main()
