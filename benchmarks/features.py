"""Features that a chain of the Indian buffet process finds: how many seeds, in which time, and the held-out gap.

    python benchmarks/features.py cambridge 10000 --seeds 10
    python benchmarks/features.py blobs 100000 --seeds 10 --start subsample

`cambridge`: four features of 6 x 6 pixels, each present with 1/2. `blobs`: 20 round features of 12 x 12 pixels, cosines
below 0.6, each present with 0.1 to 0.3. Noise of 0.5. A seed has arrived when every true feature is there within 25 %
of its norm, and no other has 0.5 % of the rows; the time is CPU time of one process until the first cycle that has
arrived and whose next nine, too, have. The gap is how far the log density of 1,000 new rows, in nats a row, given the
last features is below that under the true loadings and shares (hpc/ibp/features.py for both). Beside it is the gap of
one who is told which rows have which features, and has to learn the loadings alone: K D / 2 N nats in the mean, and no
program can be expected to do better.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from scipy.special import logsumexp

from mpibayes.hpc.ibp.chain import Buffet
from mpibayes.hpc.ibp.features import Features
from mpibayes.hpc.ibp.moves.ledger import Ledger
from mpibayes.hpc.ibp.start.strategy import STARTS, start
from mpibayes.hpc.ibp.state import Hyper, Settings
from mpibayes.hpc.parallel.comm import serial

NOISE = 0.5


def cambridge(stream: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(loadings (4, 36), weights (4,)): a cross, a ring, a staircase and a T, one in each corner."""
    pictures = [
        ["010000", "111000", "010000", "000000", "000000", "000000"],
        ["000111", "000101", "000111", "000000", "000000", "000000"],
        ["000000", "000000", "000000", "100000", "110000", "111000"],
        ["000000", "000000", "000000", "000111", "000010", "000010"],
    ]
    return np.array([[float(p) for line in lines for p in line] for lines in pictures]), np.full(4, 0.5)


def blobs(stream: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(loadings (20, 144), weights (20,)): round spots of height 1 anywhere."""
    row, column = np.divmod(np.arange(144), 12)
    result: list[np.ndarray] = []
    while len(result) < 20:
        at, width = stream.uniform(0.5, 10.5, size=2), stream.uniform(1.0, 1.8)
        spot = np.exp(-0.5 * ((row - at[0]) ** 2 + (column - at[1]) ** 2) / width**2)
        if all(spot @ other < 0.6 * np.linalg.norm(spot) * np.linalg.norm(other) for other in result):
            result.append(spot)
    return np.array(result), stream.uniform(0.1, 0.3, size=20)


def arrived(chain: Buffet, truth: np.ndarray) -> tuple[int, int]:
    """(true features that are there, others that have 0.5 % of the rows)."""
    ledger = Ledger(chain)
    means = ledger.means(ledger.columns) * chain.hyper.noise_sd
    distance = np.linalg.norm(means[:, None] - truth[None], axis=2) / np.linalg.norm(truth, axis=1)
    matched, free = 0, np.ones(len(means), bool)
    for t in range(len(truth)):
        best = int(np.argmin(np.where(free, distance[:, t], np.inf))) if free.any() else -1
        if best >= 0 and distance[best, t] < 0.25:
            matched += 1
            free[best] = False
    return matched, int((free & (ledger.columns.owned >= 0.005 * chain.n_rows)).sum())


def density(x: np.ndarray, loadings: np.ndarray, weights: np.ndarray, noise: float) -> float:
    """Mean log density a row, summed over all patterns of at most 12 features."""
    k, d = loadings.shape
    has = (np.arange(2**k)[:, None] >> np.arange(k) & 1).astype(float)
    log_p = has @ np.log(weights) + (1.0 - has) @ np.log1p(-weights)
    total = 0.0
    for part in np.array_split(x, max(1, len(x) // 500)):
        distance = ((part[:, None] - (has @ loadings)[None]) ** 2).sum(axis=2)
        log_p_rows = log_p - 0.5 * distance / noise**2 - 0.5 * d * np.log(2.0 * np.pi * noise**2)
        total += logsumexp(log_p_rows, axis=1).sum()
    return total / len(x)


def gaps(chain: Buffet, truth: np.ndarray, weights: np.ndarray, x, has, held: np.ndarray) -> tuple[float, float]:
    """(gap of the chain's features, gap of the true features `has` of the rows x)."""
    ledger, n = Ledger(chain), chain.n_rows
    reported = Hyper(chain.hyper.alpha, chain.hyper.c, np.full(x.shape[1], NOISE), 1.0, "shared")
    many = 1e12  # rows that say what the loadings are
    shares = np.outer(weights, weights) + np.diag(weights * (1.0 - weights))
    z = has.astype(np.float64)
    laws = [
        Features.of(many * shares, many * shares @ truth, int(many), reported),
        Features.of(ledger.columns.together, ledger.columns.cells, n, chain.hyper),
        Features.of(z.T @ z, z.T @ x.astype(np.float64), n, reported),
    ]
    true, result, best = (float(law.log_density(held)[0].mean()) for law in laws)
    return true - result, true - best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("cambridge", "blobs"))
    parser.add_argument("rows", type=int)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--start", choices=STARTS, default="subsample")
    parser.add_argument("--shards", type=int)
    parser.add_argument("--cycles", type=int, default=100)
    given = parser.parse_args()
    for seed in range(given.first, given.first + given.seeds):
        stream = np.random.default_rng(1000 + seed)
        truth, weights = {"cambridge": cambridge, "blobs": blobs}[given.what](stream)
        n, d = given.rows + 1000, truth.shape[1]
        has = stream.random((n, len(truth))) < weights
        x = (has @ truth + NOISE * stream.standard_normal((n, d))).astype(np.float32)
        rows, held, has = x[1000:], x[:1000].astype(np.float64), has[1000:]
        settings = Settings(seed=seed, shards=given.shards)
        chain = Buffet(serial(), lambda a, b, rows=rows: rows[a:b], given.rows, d, settings)
        began, spent = time.process_time(), 0.0
        start(chain, given.start)
        at_start, reached, since, trail = time.process_time() - began, None, 0, []
        spent = at_start
        for _ in range(given.cycles):
            result = arrived(chain, truth)
            trail.append(result)
            good = result == (len(truth), 0)
            reached, since = (spent if since == 0 else reached, since + 1) if good else (None, 0)
            if since == 10:
                break
            began = time.process_time()
            chain.cycle()
            spent += time.process_time() - began
        when = "never" if since < 10 else f"{reached:.2f} s"
        result, best = gaps(chain, truth, weights, rows, has, held)
        print(
            f"{given.what} {given.rows} seed {seed}: start {at_start:.2f} s {trail[0]}, arrived {when}, last "
            f"{trail[-1]}, noise {chain.hyper.noise_sd[0]:.4f}, gap {result:.4f}, told {best:.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
