"""Tables for the Firefly benchmarks: real ones made from a folder, synthetic ones made block by block as asked for.

    python benchmarks/firefly_tables.py --data FOLDER --out DIR      makes them all and says what they are

    FOLDER/mnist/{train,t10k}-{images-idx3,labels-idx1}-ubyte.gz     the four original files
    FOLDER/cifar10_jpeg/cifar10-jpeg.tar.xz                          {train,test}/CLASS/NNNN.jpg, JPEG of CIFAR-10
    FOLDER/qm9/qm9_features57.csv.xz                                 Index, HOMO-LUMO gap (Hartree), 57 descriptors
    FOLDER/cep/cep_features57.csv.xz                                 power conversion efficiency, the same descriptors

| name | model | rows | what it is |
| --- | --- | --- | --- |
| mnist | logistic | 12,214 | digits 7 against 9, the first 50 principal components of the pixels, unscaled, and 1 |
| cifar | softmax, K = 3 | 18,000 | airplane, automobile, bird; 256 `binary_features`, -1/2 or 1/2, and 1 |
| qm9 | Student t | 130,831 | HOMO-LUMO gap of QM9 on 57 descriptors and 1, all standardised |
| cep | Student t | 29,978 | efficiency of the Clean Energy molecules on the same |
| opv | Student t | 1,800,000 | simulated: 57 Gaussian predictors correlated as QM9's and 1, t errors with nu = 4 |
| synthetic | logistic | any | 50 independent N(0, 1) predictors and 1, coefficients N(0, 1.5^2) |

cifar stands in for features that a deep autoencoder made of the original pixels; qm9, cep and opv for 1.8 million
organic photovoltaic molecules, which are not public. What takes long is kept as DIR/NAME.npz. The real tables come with
rows held out from choosing the scale of the prior; a simulated one has none. Rows are in a random order.
"""

from __future__ import annotations

import argparse
import gzip
import io
import lzma
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from public_tables import folder

REAL = ("mnist", "cifar", "qm9", "cep")
NU = 4.0  # degrees of freedom of the Student t
OPV_ROWS = 1_800_000
BLOCK = 65_536  # rows of a synthetic table that are drawn together


@dataclass(frozen=True)
class Regression:
    """A regression. rows(start, stop) -> (x (n, D) float32, y (n,) float64); the last predictor is the constant 1.

    Those of a synthetic table come with zeros after them, to a multiple of 8, so that nobody copies 10^7 of them.
    y: -1 or +1 (logistic), the class's number (softmax), the standardised response (Student t).
    n_training: how many rows, from the first, do not stand in the held-out part. truth: coefficients of a simulation.
    """

    name: str
    likelihood: str
    n_rows: int
    n_predictors: int
    rows: Callable[[int, int], tuple[np.ndarray, np.ndarray]]
    n_classes: int = 1
    n_training: int = 0
    heldout: tuple[np.ndarray, np.ndarray] | None = None
    truth: np.ndarray | None = None

    def part(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """rows(start, stop) without the zeros."""
        x, y = self.rows(start, stop)
        return x[:, : self.n_predictors], y

    def all(self) -> tuple[np.ndarray, np.ndarray]:
        return self.part(0, self.n_rows)


# --- real tables -----------------------------------------------------------------------------------------------------


def idx(path: Path) -> np.ndarray:
    """An array of the IDX format, uint8."""
    data = gzip.decompress(path.read_bytes())
    shape = np.frombuffer(data, ">i4", data[3], 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)


def mnist(data: Path) -> dict[str, np.ndarray]:
    """7 (+1) against 9 (-1): principal components of the training pixels divided by 255, in the test rows too."""
    parts = {}
    for part in ("train", "t10k"):
        label = idx(data / f"mnist/{part}-labels-idx1-ubyte.gz")
        keep = (label == 7) | (label == 9)
        x = idx(data / f"mnist/{part}-images-idx3-ubyte.gz")[keep].reshape(-1, 784) / 255.0
        parts[part] = x, np.where(label[keep] == 7, 1.0, -1.0)
    x, y = parts["train"]
    mean = x.mean(0)
    _, vectors = np.linalg.eigh(np.cov(x.T))
    axes = vectors[:, ::-1][:, :50]
    axes *= np.sign(axes[np.abs(axes).argmax(0), range(50)])  # one of the two signs, whatever the library returned
    order = np.random.default_rng(1).permutation(len(x))
    test, y_test = parts["t10k"]
    return {
        "x": with_one((x[order] - mean) @ axes), "y": y[order],
        "x_heldout": with_one((test - mean) @ axes), "y_heldout": y_test,
    }  # fmt: skip


PATCH, STRIDE, WORDS = 6, 2, 64


def binary_features(images: np.ndarray, n_training: int) -> np.ndarray:
    """256 bits an image (n, 32, 32, 3), in the manner of Coates, Lee & Ng (2011); uint8.

    Patches of 6 x 6 pixels, brightness and contrast normalised, whitened; a dictionary of 64 words by spherical
    k-means; each patch of a grid of step 2 answers with max(0, mean distance - distance) to every word; answers are
    summed over the four quadrants of the image, which gives 4 x 64 numbers, and each is set against its median over
    the training rows. Dictionary, whitening and medians know no class.
    """
    generator = np.random.default_rng(2)
    chosen = generator.integers(n_training, size=40_000)
    corner = generator.integers(32 - PATCH + 1, size=(40_000, 2))
    sample = np.stack(
        [images[i, a : a + PATCH, b : b + PATCH].ravel() for i, (a, b) in zip(chosen, corner, strict=True)]
    )
    sample = normalised(sample.astype(np.float32))
    mean = sample.mean(0)
    values, vectors = np.linalg.eigh(np.cov((sample - mean).T))
    whiten = ((vectors / np.sqrt(values + 0.1)) @ vectors.T).astype(np.float32)
    white = (sample - mean) @ whiten
    words = white[generator.choice(len(white), WORDS, replace=False)]
    words /= np.linalg.norm(words, axis=1, keepdims=True)
    for _ in range(30):
        answer = white @ words.T
        best = np.abs(answer).argmax(1)
        weight = np.zeros_like(answer)
        weight[np.arange(len(white)), best] = answer[np.arange(len(white)), best]
        words = weight.T @ white + 1e-6 * words
        words /= np.linalg.norm(words, axis=1, keepdims=True)
    grid = (32 - PATCH) // STRIDE + 1
    half = grid // 2
    pooled = np.empty((len(images), 4 * WORDS), np.float32)
    for start in range(0, len(images), 500):
        block = images[start : start + 500]
        windows = np.lib.stride_tricks.sliding_window_view(block, (PATCH, PATCH), axis=(1, 2))[:, ::STRIDE, ::STRIDE]
        patches = np.moveaxis(windows, 3, 5).reshape(-1, PATCH * PATCH * 3).astype(np.float32)
        white = (normalised(patches) - mean) @ whiten
        distance = np.sqrt(np.maximum((white**2).sum(1, keepdims=True) - 2 * white @ words.T + 1, 0))
        answer = np.maximum(distance.mean(1, keepdims=True) - distance, 0).reshape(-1, grid, grid, WORDS)
        quadrants = [answer[:, a, b].sum((1, 2)) for a in (slice(half), slice(half, None))
                     for b in (slice(half), slice(half, None))]  # fmt: skip
        pooled[start : start + 500] = np.concatenate(quadrants, 1)
    return (pooled > np.median(pooled[:n_training], axis=0)).astype(np.uint8)


def normalised(patches: np.ndarray) -> np.ndarray:
    """Each patch less its mean, over its standard deviation (pixels 0 to 255; 10 keeps flat ones flat)."""
    patches = patches - patches.mean(1, keepdims=True)
    return patches / np.sqrt(patches.var(1, keepdims=True) + 10)


def cifar(data: Path) -> dict[str, np.ndarray]:
    """All 18,000 images of three classes; the 3,000 of the test folder come last, and are the held-out part too."""
    from PIL import Image

    classes = ("airplane", "automobile", "bird")
    result = []
    with tarfile.open(data / "cifar10_jpeg/cifar10-jpeg.tar.xz") as archive:
        for member in archive:
            parts = Path(member.name).parts[-3:]
            if member.isfile() and len(parts) == 3 and parts[1] in classes:
                picture = np.asarray(Image.open(io.BytesIO(archive.extractfile(member).read())).convert("RGB"))
                result.append((parts[0] == "test", parts[2], classes.index(parts[1]), picture))
    result.sort(key=lambda f: f[:3])
    test = np.array([f[0] for f in result])
    order = np.random.default_rng(1).permutation(len(result))
    order = order[np.argsort(test[order], kind="stable")]
    n = int((~test).sum())
    bits = binary_features(np.stack([result[i][3] for i in order]), n)
    y = np.array([result[i][2] for i in order], float)
    return {"x": with_one(bits - 0.5), "y": y, "n_training": np.array(n)}


def molecules(path: Path, first: int) -> dict[str, np.ndarray]:
    """57 descriptors, each cut off at its 0.1 % and 99.9 % quantiles and standardised; the response standardised.

    first: column of the response; the descriptors follow it. A few descriptors are 100 standard deviations out for the
    smallest molecules (Kappa3: 9,508 with a mean of 1), hence the cut. The last tenth of the rows is the held-out part.
    """
    with lzma.open(path) as file:
        file.readline()
        table = np.loadtxt(file, delimiter=",")
    table = table[np.random.default_rng(1).permutation(len(table)), first:]
    y, x = table[:, 0], table[:, 1:]
    x = np.clip(x, *np.quantile(x, (0.001, 0.999), axis=0))
    scale = x.std(0)
    x = (x - x.mean(0)) / np.where(scale > 0, scale, 1.0)
    y = (y - y.mean()) / y.std()
    return {"x": with_one(x), "y": y, "n_training": np.array(len(y) - len(y) // 10)}


def with_one(x: np.ndarray) -> np.ndarray:
    """The predictors and the constant 1, float32."""
    return np.concatenate([x, np.ones((len(x), 1))], 1).astype(np.float32)


# --- synthetic tables ------------------------------------------------------------------------------------------------


def by_blocks(draw: Callable, n_predictors: int, key: int) -> Callable[[int, int], tuple[np.ndarray, np.ndarray]]:
    """rows(start, stop) of an endless table, of which draw(generator, n) makes a block."""
    width = -(-n_predictors // 8) * 8

    def rows(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        x, y = np.zeros((stop - start, width), np.float32), np.empty(stop - start)
        for block in range(start // BLOCK, -(-stop // BLOCK)):
            some_x, some_y = draw(np.random.Generator(np.random.Philox(key=[key, block])), BLOCK)
            first, last = max(start, block * BLOCK), min(stop, (block + 1) * BLOCK)
            here, there = slice(first - start, last - start), slice(first - block * BLOCK, last - block * BLOCK)
            x[here, :n_predictors], y[here] = some_x[there], some_y[there]
        return x, y

    return rows


def synthetic(n_rows: int, n_predictors: int = 51) -> Regression:
    """Logistic regression; the first rows of a table are those of a longer one."""
    truth = 1.5 * np.random.default_rng(3).standard_normal(n_predictors)  # about as many bright rows as mnist has

    def draw(generator: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        x = np.ones((n, n_predictors), np.float32)
        x[:, :-1] = generator.standard_normal((n, n_predictors - 1), dtype=np.float32)
        return x, np.where(generator.random(n) < 1 / (1 + np.exp(-(x @ truth))), 1.0, -1.0)

    rows = by_blocks(draw, n_predictors, 4)
    return Regression(f"synthetic {n_rows:,}", "logistic", n_rows, n_predictors, rows, truth=truth)


def opv(qm9: Regression, coefficients: np.ndarray, scale: float, n_rows: int = OPV_ROWS) -> Regression:
    """Robust regression on predictors correlated as those of qm9, with given coefficients and scale of the errors."""
    x, _ = qm9.all()
    values, vectors = np.linalg.eigh(np.cov(x[:, :-1].T.astype(float)))
    root = ((vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T).astype(np.float32)

    def draw(generator: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        x = np.ones((n, len(root) + 1), np.float32)
        x[:, :-1] = generator.standard_normal((n, len(root)), dtype=np.float32) @ root
        return x, x @ coefficients + scale * generator.standard_t(NU, n)

    rows = by_blocks(draw, len(root) + 1, 5)
    return Regression(f"opv {n_rows:,}", "student-t", n_rows, len(root) + 1, rows, truth=np.asarray(coefficients))


def components(found: Regression) -> Regression:
    """The same regression on the principal components that vary, each of variance 1, and 1."""
    x, _ = found.part(0, min(found.n_rows, 200_000))
    mean = x[:, :-1].mean(0, dtype=float).astype(np.float32)
    values, vectors = np.linalg.eigh(np.cov(x[:, :-1].T.astype(float)))
    axes = (vectors / np.sqrt(np.maximum(values, 1e-300)))[:, values > 1e-6 * values.max()].astype(np.float32)

    def rows(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        x, y = found.part(start, stop)
        return turned(x), y

    def turned(x: np.ndarray) -> np.ndarray:
        return with_one((x[:, :-1] - mean) @ axes)

    heldout = found.heldout and (turned(found.heldout[0]), found.heldout[1])
    name, n = f"{found.name} components", axes.shape[1] + 1
    return Regression(name, found.likelihood, found.n_rows, n, rows, found.n_classes, found.n_training, heldout)


# --- all of them -----------------------------------------------------------------------------------------------------

MAKERS = {
    "mnist": mnist,
    "cifar": cifar,
    "qm9": lambda data: molecules(data / "qm9/qm9_features57.csv.xz", 1),
    "cep": lambda data: molecules(data / "cep/cep_features57.csv.xz", 0),
}
LIKELIHOODS = {"mnist": ("logistic", 1), "cifar": ("softmax", 3), "qm9": ("student-t", 1), "cep": ("student-t", 1)}


def table(name: str, data: str | Path | None, out: Path) -> Regression:
    """A real table, made where OUT/NAME.npz is not there yet."""
    path = out / f"{name}.npz"
    if not path.exists():
        out.mkdir(parents=True, exist_ok=True)
        made = MAKERS[name](folder(data))
        np.savez(path.with_suffix(".part.npz"), **made)
        path.with_suffix(".part.npz").rename(path)
    with np.load(path) as result:
        arrays = dict(result)
    x, y = arrays["x"], arrays["y"]
    n = int(arrays.get("n_training", len(x)))
    heldout = (arrays["x_heldout"], arrays["y_heldout"]) if "x_heldout" in arrays else (x[n:], y[n:])
    likelihood, n_classes = LIKELIHOODS[name]
    rows = lambda start, stop: (x[start:stop], y[start:stop])  # noqa: E731
    return Regression(name, likelihood, len(x), x.shape[1], rows, n_classes, n, heldout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of public tables (default: $MPIBAYES_DATA)")
    parser.add_argument("--out", type=Path, default=Path("firefly_tables"))
    given = parser.parse_args()
    for name in REAL:
        result = table(name, given.data, given.out)
        x, y = result.all()
        values, counts = np.unique(y, return_counts=True)
        response = dict(zip(values.tolist(), counts.tolist(), strict=True)) if len(values) < 9 else "real"
        print(
            f"{name}: {result.likelihood}, {x.shape[0]:,} x {x.shape[1]}, held out {len(result.heldout[1]):,}, "
            f"y {response}"
        )


if __name__ == "__main__":
    main()
