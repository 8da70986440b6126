"""CPU milliseconds of a pass of variational inference over 100,000 rows of 8 columns, 50 components, on one core.

python benchmarks/svi.py [--peer]     # --peer: scikit-learn's E and M step beside it, where it is installed
"""

import sys
import time

import numpy as np

from mpibayes.kernels.svi.gaussian import Pass

ROWS, COLUMNS, COMPONENTS, TIMES = 100_000, 8, 50, 9


def table(apart):
    """(rows, centers): unit Gaussians whose centers have this standard deviation."""
    rng = np.random.default_rng(1)
    centers = apart * rng.normal(size=(COMPONENTS, COLUMNS))
    return np.ascontiguousarray(
        centers[rng.integers(COMPONENTS, size=ROWS)] + rng.normal(size=(ROWS, COLUMNS))
    ), centers


def median_ms(work):
    took = []
    for _ in range(TIMES):
        began = time.process_time()
        work()
        took.append(1e3 * (time.process_time() - began))
    return float(np.median(took))


def ours(x, centers):
    factor = np.broadcast_to(np.sqrt(0.5) * np.eye(COLUMNS), (COMPONENTS, COLUMNS, COLUMNS)).copy()
    run, sums = Pass(COMPONENTS, COLUMNS), np.zeros((1, COMPONENTS, 1 + COLUMNS + COLUMNS * (COLUMNS + 1) // 2))
    return median_ms(lambda: run(x, None, None, centers, factor, np.zeros(COMPONENTS), sums))


def peer(x, centers):
    from sklearn.mixture import GaussianMixture

    model = GaussianMixture(COMPONENTS, means_init=centers, max_iter=1, tol=0.0)
    model._initialize_parameters(x, np.random.RandomState(0))

    def step():
        _, log = model._e_step(x)
        model._m_step(x, log)

    return median_ms(step)


def main():
    for name, apart in (("separated", 8.0), ("overlapping", 0.7)):
        x, centers = table(apart)
        beside = f", scikit-learn {peer(x, centers):.0f} ms" if "--peer" in sys.argv else ""
        print(f"{name}: {ours(x, centers):.1f} ms{beside}")


if __name__ == "__main__":
    main()
