"""Times the kernels on one core: ns per (row x column x cluster), beside the same work as a NumPy loop over clusters.

    python benchmarks/kernels.py [--rows 20000] [--repeats 5] [--only TEXT]

One line a case. CPU time, the median of the repeats. `numpy` scores all rows under one cluster after the other and
draws by cumulative sums: what a vectorised Python program would do. For a collapsed sweep it evaluates the same
predictives (log of Student t, negative binomial with scipy's gammaln), which flatters it: with all rows at once no row
leaves its cluster before it is scored, and nothing is updated. `ratio` = numpy / kernel. MPIBAYES_ISA forces an
instruction set.
"""

import argparse
import time
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
from scipy.special import gammaln

from mpibayes.kernels import mixture

FIELDS = ("size", "levels", "real_n", "real_mean", "real_scatter", "tally_n", "tally_sum")


@dataclass
class Rows:
    codes8: np.ndarray
    codes16: np.ndarray
    reals: np.ndarray
    tallies: np.ndarray


@dataclass
class Prior:
    offsets: np.ndarray
    dirichlet: np.ndarray
    normal: np.ndarray
    gamma: np.ndarray


@dataclass
class Case:
    name: str
    clusters: int
    categorical: int
    reals: int
    tallies: int
    tail: bool
    levels: str = ""  # of the categorical columns; without it 2 to 18, at random


# levels of the 33 categorical columns of the Census-Income (KDD) table of the UCI repository; it has 7 numeric ones
CENSUS = "9 52 47 17 3 7 24 15 5 10 2 3 6 8 6 6 51 38 8 10 9 10 3 4 5 43 43 43 5 3 3 3 2"

CASES = [
    *(Case("categorical", k, 68, 0, 0, False) for k in (16, 64, 256)),
    *(Case("categorical, collapsed", k, 68, 0, 0, True) for k in (16, 64, 256)),
    *(Case("real", k, 0, 10, 0, False) for k in (16, 64)),
    Case("real", 64, 0, 41, 0, False),
    *(Case("real, collapsed", 64, 0, d, 0, True) for d in (10, 41)),
    Case("count", 64, 0, 0, 10, False),
    Case("count, collapsed", 64, 0, 0, 10, True),
    Case("mixed", 64, 40, 10, 4, False),
    Case("mixed, collapsed", 64, 40, 10, 4, True),
    *(Case(f"census income{', collapsed' * t}", 64, 33, 7, 0, t, CENSUS) for t in (False, True)),
]


def table(case, n, rng):
    """Rows drawn from `case.clusters` well separated clusters, their labels, a prior and the clusters' parameters."""
    k, labels = case.clusters, rng.integers(case.clusters, size=n)
    levels = np.array(case.levels.split(), dtype=int) if case.levels else rng.integers(2, 19, size=case.categorical)
    offsets = np.concatenate([[0], np.cumsum(levels + 1)]).astype(np.int64)
    base = (k + 15) // 16 * 16
    log_theta = np.zeros((offsets[-1], base), dtype=np.float32)
    codes = np.empty((n, case.categorical), dtype=np.uint8)
    for c, v in enumerate(levels):
        theta = rng.dirichlet(np.full(v, 0.5), size=k)
        log_theta[offsets[c] : offsets[c] + v, :k] = np.log(theta.T + 1e-6)
        cumulative = theta.cumsum(axis=1)
        codes[:, c] = np.minimum((rng.random(n)[:, None] > cumulative[labels]).sum(axis=1), v - 1)
    location = rng.normal(0, 3, size=(case.reals, base))
    rate = rng.gamma(2.0, 5.0, size=(case.tallies, base)) + 0.1
    rows = Rows(
        codes,
        np.zeros((n, 0), np.uint16),
        location.T[labels] + rng.normal(size=(n, case.reals)),
        rng.poisson(rate.T[labels]).astype(float),
    )
    dirichlet = np.full(offsets[-1], 0.5)
    dirichlet[offsets[1:] - 1] = 0
    prior = Prior(
        offsets, dirichlet, np.tile([0.0, 0.1, 2.0, 1.0], (case.reals, 1)), np.tile([2.0, 0.2], (case.tallies, 1))
    )
    parameters = {
        "n": k,
        "free": k,
        "anchors": np.zeros(0, np.uint64),
        "log_weight": np.full(k, -np.log(k)),
        "table": log_theta,
        "location": location,
        "half_precision": np.full(location.shape, 0.5),
        "constant": np.full(location.shape, -0.9),
        "log_rate": np.log(rate),
        "rate": rate,
    }
    return rows, labels.astype(np.int32), prior, parameters


def predictive_scores(rows, prior, statistics, j):
    """log predictive of every row under cluster j, from its statistics."""
    size, levels, real_n, real_mean, real_scatter, tally_n, tally_sum = statistics
    table = np.log(levels[:, j] + prior.dirichlet + (prior.dirichlet == 0))
    totals = np.add.reduceat(prior.dirichlet, prior.offsets[:-1]) + size[j] if rows.codes8.shape[1] else np.ones(1)
    score = table[rows.codes8 + prior.offsets[:-1]].sum(axis=1) - np.log(totals).sum()
    if rows.reals.shape[1]:
        mean0, kappa0, nu0, variance0 = prior.normal.T
        n, mean = real_n[:, j], real_mean[:, j]
        kappa, nu = kappa0 + n, nu0 + n
        spread = nu0 * variance0 + real_scatter[:, j] + n * kappa0 / kappa * (mean0 - mean) ** 2
        square = spread * (1 + 1 / kappa)
        location = (kappa0 * mean0 + n * mean) / kappa
        constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * np.log(np.pi * square)
        score = score + (constant - (nu + 1) / 2 * np.log1p((rows.reals - location) ** 2 / square)).sum(axis=1)
    if rows.tallies.shape[1]:
        a, b = prior.gamma[:, 0] + tally_sum[:, j], prior.gamma[:, 1] + tally_n[:, j]
        constant = a * np.log(b / (b + 1)) - gammaln(a)
        score = score + (gammaln(a + rows.tallies) + constant - rows.tallies * np.log(b + 1)).sum(axis=1)
    return score + np.log(size[j])


def given_scores(rows, prior, parameters, j):
    """log likelihood of every row under the given parameters of cluster j, plus its log weight."""
    score = parameters["log_weight"][j] + parameters["table"][:, j][rows.codes8 + prior.offsets[:-1]].sum(axis=1)
    if rows.reals.shape[1]:
        off = rows.reals - parameters["location"][:, j]
        score = score + (parameters["constant"][:, j] - parameters["half_precision"][:, j] * off * off).sum(axis=1)
    if rows.tallies.shape[1]:
        score = score + (rows.tallies * parameters["log_rate"][:, j] - parameters["rate"][:, j]).sum(axis=1)
    return score


def numpy_sweep(rows, k, score, rng):
    """Scores by one cluster after the other, then one draw for every row."""
    n = len(rows.reals)
    scores = np.empty((n, k))
    for j in range(k):
        scores[:, j] = score(j)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True)).cumsum(axis=1)
    return (weights > rng.random((n, 1)) * weights[:, -1:]).argmax(axis=1)


def seconds(repeats, work):
    taken = []
    for i in range(repeats):
        start = time.process_time()
        work(i)
        taken.append(time.process_time() - start)
    return float(np.median(taken))


def run(case, n, repeats):
    rng = np.random.default_rng(1)
    rows, labels, prior, parameters = table(case, n, rng)
    held = mixture.Instantiated(**parameters)
    z, moved, slots = labels.copy(), [], 0
    if case.tail:
        tail = mixture.Tail(prior, 1.0, 0.0, 0.0, case.clusters)
        statistics = mixture.accumulate(rows, labels, case.clusters, prior.offsets)
        tail.load(SimpleNamespace(**dict(zip(FIELDS, statistics, strict=True))))

        def work(i):
            moved.append(mixture.sweep(rows, z, 0, 1, i, 0, 0, None, tail, prior))
    else:

        def work(i):
            moved.append(mixture.sweep(rows, z, 0, 1, i, 0, 0, held, None, prior))

    work(99)
    kernel = seconds(repeats, work)
    slots = tail.n_slots if case.tail else case.clusters
    columns = case.categorical + case.reals + case.tallies
    small = min(n, 4000)
    part = Rows(*(a[:small] for a in (rows.codes8, rows.codes16, rows.reals, rows.tallies)))
    if case.tail:

        def score(j):
            return predictive_scores(part, prior, statistics, j)
    else:

        def score(j):
            return given_scores(part, prior, parameters, j)

    plain = seconds(3, lambda i: numpy_sweep(part, case.clusters, score, rng)) / small
    cell = 1e9 / (columns * slots)
    print(
        f"{case.name:24s} K={slots:<4d} columns={columns:<3d} kernel {kernel / n * cell:7.4f} ns/cell "
        f"{kernel / n * 1e6:7.3f} us/row  numpy {plain * cell:8.3f} ns/cell  ratio {plain / (kernel / n):6.1f}  "
        f"moved {moved[-1] / n:.3f}",
        flush=True,
    )


def tiny(repeats):
    """Python overhead of a call on 6 rows, and of making what it needs."""
    case = Case("tiny", 3, 2, 0, 0, False)
    rows, labels, prior, parameters = table(case, 6, np.random.default_rng(1))
    held, tail, n = mixture.Instantiated(**parameters), mixture.Tail(prior, 1.0, 0.0, 0.0), 5000
    z = np.full(6, -1, dtype=np.int32)
    for name, work in (
        ("sweep, 6 rows", lambda i: mixture.sweep(rows, labels, 0, 1, i, 0, 0, held, None, prior)),
        ("sweep, 6 rows, tail", lambda i: mixture.sweep(rows, z, 0, 1, i, 0, 0, None, tail, prior)),
        ("accumulate, 6 rows", lambda i: mixture.accumulate(rows, labels, 3, prior.offsets)),
        ("Instantiated", lambda i: mixture.Instantiated(**parameters)),
        ("Tail", lambda i: mixture.Tail(prior, 1.0, 0.0, 0.0)),
    ):
        taken = seconds(repeats, lambda _, work=work: [work(i) for i in range(n)])
        print(f"{name:24s} {taken / n * 1e6:.2f} us a call", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    print(f"instruction set {mixture.ISA}, {options.rows} rows, median of {options.repeats}, CPU time")
    for case in CASES:
        if options.only in case.name:
            run(case, options.rows, options.repeats)
    if options.only in "tiny":
        tiny(options.repeats)


if __name__ == "__main__":
    main()
