"""Effective samples a CPU second with one collapsed shard a cycle (docs/math.md 2.1) and with all of them (2.3).

    python benchmarks/opening.py [TABLE.h5] [--rows 5000] [--cycles 1000]

Prints, for 4 and 16 shards, the median over three seeds of the effective sample size (ArviZ, bulk) of K, of the entropy
of the cluster sizes and of the log joint, divided by CPU seconds. This decides what `sampler.opening = "auto"` means.
Without a table, simulated ones with five overlapping clusters are used, of 2,000 and 20,000 rows.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.parallel.comm import serial
from mpibayes.io.table import Table, table_from_arrays


def simulated(n: int):
    """Eight categorical columns of six levels, a real one and a count, in five clusters."""
    rng = np.random.default_rng(1)
    z = rng.integers(5, size=n)
    columns = []
    for c in range(8):
        cumulative = np.cumsum(rng.dirichlet(np.ones(6), 5), axis=1)
        codes = (rng.random(n)[:, None] > cumulative[z]).sum(axis=1).clip(0, 5)
        columns.append((f"c{c}", "categorical", codes, list("abcdef")))
    x = rng.normal(0, 3, 5)[z] + rng.normal(size=n)
    x[rng.random(n) < 0.1] = np.nan
    columns.append(("x", "real", x, None))
    columns.append(("n", "count", rng.poisson(np.array([1, 3, 9, 20, 2])[z]).astype(float), None))
    return table_from_arrays(columns)


def compare(name: str, columns, rows, cycles: int) -> None:
    warnings.simplefilter("ignore")
    import arviz

    n = len(rows)
    for n_shards in (4, 16):
        for opening in ("one", "all"):
            rates, seconds = [], []
            for seed in (1, 2, 3):
                settings = Settings(seed=seed, shards=n_shards, opening=opening)
                m = Mixture(serial(), columns, lambda a, b: rows.take(slice(a, b)), n, settings)
                m.start("random")
                started = time.process_time()
                trace = np.array([(i.n_clusters, i.entropy, i.log_joint) for i in (m.cycle() for _ in range(cycles))])
                seconds.append(time.process_time() - started)
                kept = trace[cycles // 3 :]
                rates.append([float(arviz.ess(kept[:, j])) / (seconds[-1] * 2 / 3) for j in range(3)])
            k, entropy, log_joint = np.median(rates, axis=0)
            print(
                f"{name} rows={n} shards={n_shards} opening={opening} ess/s: K {k:.2f} entropy {entropy:.2f} "
                f"log_joint {log_joint:.2f}; {1e3 * np.mean(seconds) / cycles:.2f} ms/cycle",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", nargs="?")
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--cycles", type=int, default=1000)
    options = parser.parse_args()
    if options.table:
        table = Table.open(options.table)
        compare(options.table, table.columns, table.read(0, min(options.rows, table.n_rows)), options.cycles)
    else:
        for n in (2000, 20000):
            compare("simulated", *simulated(n), options.cycles)


if __name__ == "__main__":
    main()
