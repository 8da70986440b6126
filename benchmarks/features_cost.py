"""What features cost: a row's sweep, a whole cycle by the number of rows and ranks, and memory.

    python benchmarks/features_cost.py rows [--pyibp FOLDER]    # beside plain Python, and PyIBP
    python benchmarks/features_cost.py cycles              # 10^4, 10^5 and 10^6 rows of 36 columns
    python benchmarks/features_cost.py memory              # 10^6 rows: above what the process had before
    mpirun -n 2 python benchmarks/features_cost.py cycles --rows 500000

All on made rows: K features of standard normal loadings, each in 30 % of the rows, noise 0.5. Cycles are without moves;
the state is placed at the true features. Rows are timed in CPU seconds, cycles by the clock, too; the best of some
repetitions counts.

The plain Python beside the rows is the accelerated Gibbs sampler (Doshi-Velez & Ghahramani 2009), as the programs that
were published for this model have it: loadings integrated out, the row taken out of their posterior, each of its
features weighed by the row's likelihood with and without it, the posterior's covariance inverted afresh for each row.
PyIBP (D. Andrzejewski, github.com/davidandrzej/PyIBP) is such a program; it is of Python 2 and no package has it, so
FOLDER has to have a PyIBP.py that was made Python 3 (print, `except E, e`, NP.int). Its class samples once, from the
true features, with fixed scales.
"""

from __future__ import annotations

import argparse
import importlib
import resource
import sys
import time

import numpy as np

from mpibayes.hpc.ibp.chain import Buffet, held
from mpibayes.hpc.ibp.state import Hyper, Settings
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.hpc.parallel.heap import return_what_is_freed
from mpibayes.kernels.ibp.features import Features, Rows, Tail

NOISE, SHARE = 0.5, 0.3
PRIVATE = 5  # features of the collapsed shard


def made(n: int, d: int, k: int, seed: int = 1):
    """(features bool (n, K), loadings (K, D), cells float32 (n, D))."""
    stream = np.random.default_rng(seed)
    loadings = stream.standard_normal((k, d))
    has = stream.random((n, k)) < SHARE
    x = np.empty((n, d), np.float32)
    for at in np.array_split(np.arange(n), max(1, n // 10_000)):
        x[at] = has[at] @ loadings + NOISE * stream.standard_normal((len(at), d))
    return has, loadings, x


def rows_of(has: np.ndarray, x: np.ndarray) -> Rows:
    bits = (has.astype(np.uint64) << np.arange(has.shape[1], dtype=np.uint64)).sum(axis=1, dtype=np.uint64)
    return Rows(x, np.ascontiguousarray(bits[:, None]), 0)


def best(work, repeats: int) -> float:
    result = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        result.append(time.process_time() - began)
    return min(result)


def accelerated(x: np.ndarray, z: np.ndarray, noise: float, loading: float, alpha: float, stream) -> np.ndarray:
    """One sweep of the accelerated Gibbs sampler in NumPy; the new features (n, K)."""
    (n, d), z, v = x.shape, z.astype(float), noise**2

    def information():
        return z.T @ z / v + np.eye(z.shape[1]) / loading**2, z.T @ x / v

    def log_likelihood(row, mean, cover, cells, extra=0):
        spread = float(row @ cover @ row) + v + extra * loading**2
        return -0.5 * d * np.log(2.0 * np.pi * spread) - 0.5 * ((cells - row @ mean) ** 2).sum() / spread

    for count, i in enumerate(stream.permutation(n)):
        if count % 5 == 0:  # afresh, so that errors do not add up
            precision, weighted = information()
        row, cells = z[i].copy(), x[i]
        precision, weighted = precision - np.outer(row, row) / v, weighted - np.outer(row, cells) / v
        cover = np.linalg.inv(precision)
        mean = cover @ weighted
        others = z.sum(axis=0) - row
        for k in np.flatnonzero(others > 0):
            log_p = []
            for value in (0.0, 1.0):
                row[k] = value
                log_p.append(log_likelihood(row, mean, cover, cells))
            log_odds = log_p[1] - log_p[0] + np.log(others[k]) - np.log(n - others[k])
            row[k] = float(stream.random() < 1.0 / (1.0 + np.exp(-log_odds)))
        alone = np.flatnonzero((others == 0) & (row > 0))
        born = stream.poisson(alpha / n)
        gain = log_likelihood(row, mean, cover, cells, born - len(alone)) - log_likelihood(row, mean, cover, cells)
        z[i] = row
        if np.log(stream.random()) < gain and born != len(alone):
            z = np.delete(z, alone, axis=1)
            z = np.hstack([z, np.zeros((n, born))])
            z[i, z.shape[1] - born :] = 1.0
            precision, weighted = information()
        else:
            precision, weighted = precision + np.outer(row, row) / v, weighted + np.outer(row, cells) / v
    return z


def measure_rows(given) -> None:
    for d, k in ((36, 10), (144, 20)):
        measure_a_row(given, d, k)


def measure_a_row(given, d: int, k: int, n: int = 50_000) -> None:
    has, loadings, x = made(n, d, k)
    rows, slots = rows_of(has, x), np.arange(k)
    features = Features(slots, loadings, np.full(k, SHARE), np.full(d, NOISE))
    free = np.zeros(k, np.uint64)
    numbers = iter(range(10**6))
    sweep = best(lambda: features.sweep(rows, free, 1, next(numbers), 0, 0, None), given.repeats) / n
    sums = best(lambda: rows.tally(slots), given.repeats) / n
    rest = k - PRIVATE
    features = Features(slots[:rest], loadings[:rest], np.full(rest, SHARE), np.full(d, NOISE))
    anchors, small = np.zeros(rest, np.uint64), n // 5
    rows = rows_of(has[:small], x[:small])
    tail = Tail(rows, features, held(rows.z, slots[rest:]), small, 1.0 / small, 1.0 / NOISE**2, 1.0)
    there = best(lambda: features.sweep(rows, anchors, 1, next(numbers), 0, 0, tail), given.repeats) / small
    few, stream = 500, np.random.default_rng(2)
    cells, true = x[:few].astype(float), has[:few]
    peers = {"accelerated Gibbs in NumPy": best(lambda: accelerated(cells, true, NOISE, 1.0, 1.0, stream), 3) / few}
    if given.pyibp:
        PyIBP = importlib.import_module("PyIBP").PyIBP
        peer = PyIBP(cells.copy(), 1.0, NOISE, 1.0, initZV=true.astype(float))
        peers["PyIBP"] = best(peer.sampleZ, 3) / few
    beside = "; ".join(f"{name} {1e6 * took:.0f} us, {took / sweep:,.0f} x" for name, took in peers.items())
    print(
        f"D {d} K {k}: a row's sweep {1e6 * sweep:.3f} us, its sums {1e6 * sums:.3f} us; with {PRIVATE} private "
        f"features {1e6 * there:.2f} us; {beside}",
        flush=True,
    )


def placed(comm, n: int, d: int = 36, k: int = 10) -> Buffet:
    """A chain at its true features, whose cells are made shard by shard."""
    stream = np.random.default_rng(1)
    loadings, has = stream.standard_normal((k, d)), stream.random((n, k)) < SHARE

    def cells(start, stop):
        return has[start:stop] @ loadings + NOISE * np.random.default_rng(start).standard_normal((stop - start, d))

    chain = Buffet(comm, cells, n, d, Settings(seed=1, moves=0))
    chain.place(has, Hyper(1.0, 1.0, np.full(d, NOISE), 1.0, "shared"))
    return chain


def measure_cycles(given) -> None:
    comm = world()
    comm = serial() if comm.size == 1 else comm
    for n in given.rows:
        chain = placed(comm, n)
        chain.cycle()
        took, spent = [], []
        for _ in range(given.repeats):
            comm.barrier()
            began = time.perf_counter(), time.process_time()
            chain.cycle()
            took.append(time.perf_counter() - began[0])
            spent.append(time.process_time() - began[1])
        if comm.rank == 0:
            print(
                f"{n} rows, {comm.size} ranks, {chain.n_shards} shards: a cycle {1e3 * min(took):.2f} ms "
                f"(median {1e3 * np.median(took):.2f}), in CPU seconds {1e3 * min(spent):.2f} ms, "
                f"{1e9 * min(spent) / n:.0f} ns a row",
                flush=True,
            )


def resident() -> int:
    """Bytes that the process has in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def measure_memory(given) -> None:
    def cells(start, stop):
        return np.random.default_rng(start).standard_normal((stop - start, 36), np.float32)

    for n in given.rows:
        Buffet(serial(), cells, 1000, 36, Settings(seed=1)).cycle()
        before = resident()
        chain = Buffet(serial(), cells, n, 36, Settings())
        for _ in range(10):
            chain.cycle()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(
            f"{n} rows of 36 columns, {chain.n_shards} shards: {(resident() - before) / n:.0f} bytes a row, at the "
            f"peak {(peak - before) / n:.0f}; 36 floats + 24 bytes are {36 * 4 + 24}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("rows", "cycles", "memory"))
    parser.add_argument("--rows", type=int, nargs="+")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--pyibp", help="folder with a PyIBP.py of Python 3")
    given = parser.parse_args()
    if given.pyibp:
        sys.path.insert(0, given.pyibp)
    return_what_is_freed()  # as a run does
    given.rows = given.rows or {"memory": [1_000_000]}.get(given.what, [10_000, 100_000, 1_000_000])
    {"rows": measure_rows, "cycles": measure_cycles, "memory": measure_memory}[given.what](given)


if __name__ == "__main__":
    main()
