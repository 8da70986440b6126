"""Times full-covariance normals on one core: ns per (row x cluster), everything that a sweep does included.

    python benchmarks/niw.py [--rows 20000] [--repeats 5]

One line a case: D columns in one block, K clusters, their parameters drawn (`sweep`) or integrated out (`collapsed`).
`score_samples` of scikit-learn's GaussianMixture, where it is installed, does the scores alone: it draws nothing and
changes no cluster. CPU time, the median of the repeats. MPIBAYES_ISA forces an instruction set.
"""

import argparse
import os
import time
from types import SimpleNamespace

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from joint import jointly

from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.view.sweep import instantiated
from mpibayes.io.table import table_from_arrays
from mpibayes.kernels import mixture
from mpibayes.kernels.common.machine import ISA

CASES = [(d, k) for d in (2, 5, 10, 20) for k in (16, 64)]


def table(width, k, n, rng):
    """(rows, labels, components): n rows of k clusters with covariances of their own, in one block."""
    labels = rng.integers(k, size=n).astype(np.int32)
    mix = rng.normal(size=(k, width, width)) + 2.0 * np.eye(width)
    x = np.einsum("nij,nj->ni", mix[labels], rng.normal(size=(n, width))) + 3.0 * rng.normal(size=(k, width))[labels]
    columns, rows, more = jointly(*table_from_arrays([(f"x{d}", "real", x[:, d], None) for d in range(width)]))
    return rows, labels, Components(columns, {}, more["blocks"])


def seconds(repeats, work):
    taken = []
    for i in range(repeats):
        start = time.process_time()
        work(i)
        taken.append(time.process_time() - start)
    return float(np.median(taken))


def peer(rows, labels, k):
    """score_samples of scikit-learn with the clusters' own means and covariances, or None where it is not there."""
    try:
        from sklearn.mixture import GaussianMixture
    except ImportError:
        return None
    x = rows.vectors
    means = np.array([x[labels == j].mean(axis=0) for j in range(k)])
    covariances = np.array([np.cov(x[labels == j].T) for j in range(k)])
    model = GaussianMixture(k, covariance_type="full")
    model.weights_, model.means_, model.covariances_ = np.full(k, 1.0 / k), means, covariances
    model.precisions_cholesky_ = np.linalg.cholesky(np.linalg.inv(covariances))
    return lambda i: model.score_samples(x)


def run(width, k, n, repeats):
    rows, labels, components = table(width, k, n, np.random.default_rng(1))
    hyper = components.start(1.0, 0.0)
    prior = components.prior(hyper)
    s = Statistics(*mixture.accumulate(rows, labels, k, prior.offsets))
    draw = components.draw(hyper, s, components.everything, {"seed": 1, "cycle": 0, "chain": 0})
    order = np.arange(k)
    weights = SimpleNamespace(log_weight=np.log(s.size / n))
    shared = SimpleNamespace(parameters=draw, anchor=np.zeros(k, np.uint64), weights=weights)
    held = instantiated(shared, order, k)
    tail = mixture.Tail(prior, 1.0, 0.0, 0.0, k)
    tail.load(s)
    z = [labels.copy(), labels.copy()]
    cell = 1e9 / (n * k)
    ours = seconds(repeats, lambda i: mixture.sweep(rows, z[0], 0, 1, i, 0, 0, held, None, prior)) * cell
    collapsed = seconds(repeats, lambda i: mixture.sweep(rows, z[1], 0, 1, i, 0, 0, None, tail, prior)) * cell
    other = peer(rows, labels, k)
    beside = "not installed" if other is None else f"{seconds(repeats, other) * cell:7.2f} ns"
    print(
        f"D={width:<3d} K={k:<4d} sweep {ours:6.2f} ns   collapsed {collapsed:6.2f} ns   scikit-learn {beside}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(f"instruction set {ISA}, {options.rows} rows, median of {options.repeats}, CPU time")
    for width, k in CASES:
        run(width, k, options.rows, options.repeats)


if __name__ == "__main__":
    main()
