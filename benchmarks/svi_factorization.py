"""Factorization of ratings: time of a pass, errors of held-out ratings, what the guard does, efficiency of ranks.

python benchmarks/svi_factorization.py speed [--peer]     a table of MovieLens 10M's shape, CPU seconds of a pass
python benchmarks/svi_factorization.py rmse FOLDER        of the data folder: movielens_1m_part, movielens_100k, jester1
python benchmarks/svi_factorization.py noise FOLDER [RANK [CYCLES [STARTS]]]
                                                          bounds and guard with the paper's noise; movielens_100k
mpirun -n 2 python benchmarks/svi_factorization.py ranks  seconds of a cycle; with -n 1 beside it
"""

import lzma
import sys
import time
from pathlib import Path

import numpy as np

from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.hpc.svi.chain import Settings
from mpibayes.hpc.svi.factorization.chain import Kind, RatingsAscent
from mpibayes.hpc.svi.factorization.law import HeldOut
from mpibayes.hpc.svi.factorization.ratings import Ratings, split
from mpibayes.hpc.svi.noise import Noise
from mpibayes.hpc.svi.schedule import Constant, Growing
from mpibayes.io.sparse import SparseRows

USERS, ITEMS, RATINGS = 69_878, 10_677, 10_000_000
TIMES, SPLITS, HELD, STARTS = 5, 5, 0.1, 20
PRIOR = {"variance": 0.5, "spread": 1.0}  # the paper's
PAPER = {"center": False, "learn": False, "biased": False, **PRIOR}
MODELS = {
    "d = 5, the paper's prior": Kind(5, False, False, **PRIOR),
    "d = 5, biases, the paper's prior": Kind(5, True, False, **PRIOR),
    "d = 5, plain": Kind(5, False, False),
    "d = 5, biases": Kind(5, True, False),
    "d = 10, plain": Kind(10, False, False),
    "d = 10, biases": Kind(10, True, False),
    "d = 5, learned": Kind(5, False, True),
    "d = 5, learned, biases": Kind(5, True, True),
    "d = 10, learned, biases": Kind(10, True, True),
}


def simulated():
    """A table of MovieLens 10M's shape, with users and items of very different counts."""
    rng = np.random.default_rng(0)
    active = rng.lognormal(0.0, 1.1, USERS)
    starts = np.concatenate([[0], np.cumsum(np.maximum(1, np.round(active / active.sum() * RATINGS)).astype(np.int64))])
    share = np.cumsum(rng.lognormal(0.0, 2.0, ITEMS))
    columns = np.searchsorted(share / share[-1], rng.random(starts[-1])).clip(0, ITEMS - 1)
    return Ratings(starts, columns.astype(np.int32), rng.integers(1, 6, starts[-1]).astype(np.float32))


def shard_of(x, start, stop):
    first, last = x.starts[start], x.starts[stop]
    return Ratings(x.starts[start : stop + 1] - first, x.columns[first:last], x.values[first:last])


def chain_of(comm, kind, x, items, **settings):
    return RatingsAscent(comm, kind, items, lambda a, b: shard_of(x, a, b), len(x), Settings(**settings))


def timed(work):
    """Least CPU seconds of some times."""
    took = []
    for _ in range(TIMES):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return min(took)


def speed(peer):
    x = simulated()
    noisy = {"noise": Noise("svi+"), "effective": Constant(100)}
    for rank, biased, more in (
        (5, False, {}), (10, False, {}), (5, True, {}), (10, True, {}), (10, False, noisy), (10, True, noisy)
    ):  # fmt: skip
        chain = chain_of(serial(), Kind(rank, biased, biased), x, ITEMS, **more)
        chain.start()
        words = f"d = {rank}{', biases, learned' if biased else ''}{', noise' if more else ''}"
        print(f"{words}: {timed(chain.cycle):.3f} s a cycle", flush=True)
    if peer:
        print(f"NumPy, d = 10: {numpy_pass(x, 10):.2f} s for users, a {RATINGS // 10**6}M table; items take as long")


def numpy_pass(x, d, some=5000):
    """Seconds of the users' half of a pass in NumPy, a user at a time, scaled from the first of them."""
    rng = np.random.default_rng(0)
    mean, second = rng.normal(size=(ITEMS, d)), rng.normal(size=(ITEMS, d * d))
    began = time.process_time()
    for i in range(some):
        at = slice(x.starts[i], x.starts[i + 1])
        precision = np.eye(d) + 2.0 * second[x.columns[at]].sum(axis=0).reshape(d, d)
        np.linalg.inv(precision) @ (2.0 * x.values[at] @ mean[x.columns[at]])
    return (time.process_time() - began) * x.starts[-1] / x.starts[some]


def read(folder, name):
    """(rows, items) of a table of the data folder."""
    if name == "jester1":
        with lzma.open(folder / name / "jester-data-1.csv.xz", "rt") as text:
            y = np.loadtxt(text, delimiter=",", dtype=np.float32)[:, 1:]
        there = y != 99
        starts = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
        return SparseRows(starts, np.nonzero(there)[1].astype(np.int32), y[there]), y.shape[1]
    file, mark = {"movielens_1m_part": ("ratings_users1-2999.dat.xz", "::"), "movielens_100k": ("u.data.xz", "\t")}[
        name
    ]
    with lzma.open(folder / name / file, "rt") as text:
        lines = (line.split(mark)[:3] for line in text)
        result = np.array([[int(field) for field in line] for line in lines if len(line) == 3])
    user, (ids, item) = np.unique(result[:, 0], return_inverse=True)[1], np.unique(result[:, 1], return_inverse=True)
    order = np.lexsort((item, user))
    starts = np.searchsorted(user[order], np.arange(user.max() + 2))
    return SparseRows(starts, item[order].astype(np.int32), result[order, 2].astype(np.float32)), len(ids)


def errors(rows, items, kind, cycles, which):
    """RMSE of the ratings that a split holds out, and CPU seconds of so many cycles."""
    train, out = split(rows, np.arange(len(rows)) + which * len(rows), items, HELD)
    x = Ratings.of(train)
    chain = chain_of(serial(), kind, x, items, shards=1, tolerance=0.0)
    began = time.process_time()
    chain.start()
    for _ in range(cycles):
        chain.cycle()
    took = time.process_time() - began
    return HeldOut(serial(), chain, [Ratings.of(out)]).score()[0], took


def rmse(folder):
    for name in ("movielens_1m_part", "movielens_100k", "jester1"):
        rows, items = read(folder, name)
        print(f"{name}: {len(rows):,} users, {items:,} items, {len(rows.columns):,} ratings, {SPLITS} splits")
        for words, kind in MODELS.items():
            result = np.array([errors(rows, items, kind, 60, which) for which in range(SPLITS)])
            mean, spread = result[:, 0].mean(), result[:, 0].std(ddof=1)
            print(f"  {words}: RMSE {mean:.4f}, sd of splits {spread:.4f}, {result[:, 1].mean():.2f} s", flush=True)


def noise(folder, rank=5, cycles=100, starts=STARTS, name="movielens_100k"):
    """Bounds at the end, with errors, and the share of users and items whose noise was held back."""
    rows, items = read(folder, name)
    x = Ratings.of(rows)
    plus = {"noise": Noise("svi+"), "rate": Constant(0.85)}
    runs = {
        "batch": ({}, {}),
        "svi+, 50 t of all ratings": ({"own_count": False, "stepped": True}, plus | {"effective": Growing(50)}),
        "svi+, 50 t of a row's own": ({"stepped": True}, plus | {"effective": Growing(50)}),
        "svi+, 10 t of a row's own": ({"stepped": True}, plus | {"effective": Growing(10)}),
    }
    for words, (of_kind, settings) in runs.items():
        ends, held, middle = [], [], []
        for seed in range(starts):
            chain = chain_of(serial(), Kind(rank, **PAPER, **of_kind), x, items, shards=1, seed=seed, **settings)
            chain.start()
            for t in range(cycles):
                chain.cycle()
                held.append(chain.guarded / (len(x) + items))
                if t + 1 == 20:
                    middle.append(chain.bound)
            ends.append(chain.bound)
        parts = np.array(held).reshape(starts, cycles)
        at = [f"{np.mean(b):,.0f} +- {np.std(b, ddof=1) / np.sqrt(starts):,.0f}" for b in (middle, ends)]
        guard = f"{parts[:, :20].mean():.1%} of cycles 1 to 20, {parts[:, -20:].mean():.1%} of the last 20"
        print(f"d = {rank}, {words}: bound after 20 {at[0]}, {cycles} {at[1]}; guard {guard}", flush=True)


def ranks():
    comm, x = world(), simulated()
    chain = chain_of(comm, Kind(10, True, True), x, ITEMS, shards=4)
    chain.start()
    took = []
    for _ in range(8):
        comm.barrier()
        began = time.perf_counter()
        chain.cycle()
        comm.barrier()
        took.append(time.perf_counter() - began)
    if comm.rank == 0:
        print(f"{comm.size} ranks: {min(took):.3f} s a cycle, at best; {np.median(took):.3f} s, median")


def main():
    what, more = sys.argv[1], sys.argv[2:]
    if what == "speed":
        speed("--peer" in more)
    elif what == "ranks":
        ranks()
    elif what == "noise":
        noise(Path(more[0]), *map(int, more[1:]))
    else:
        rmse(Path(more[0]))


if __name__ == "__main__":
    main()
