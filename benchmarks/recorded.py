"""What resolution and atoms cost: cycles of one table as its numbers are, and as they were recorded.

    python benchmarks/recorded.py [--rows 100000] [--clusters 16 64]

33 categorical and 7 real columns, 40 % of each real one an atom; the same labels before every cycle, in turns, now one
first and now the other. Prints medians, in ms of CPU time a cycle, their ratio, and the quartiles of the ratios of
cycles made one after the other.
"""

import argparse
import time
from dataclasses import replace

import numpy as np

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.data.latent import Latent
from mpibayes.hpc.parallel.comm import serial
from mpibayes.io.rows import slices_of, summarise
from mpibayes.io.table import table_from_arrays


def made(n_rows, n_clusters, g):
    """(labels, columns, rows)."""
    z = g.integers(n_clusters, size=n_rows)
    levels = [str(v) for v in range(6)]
    given = [
        (f"c{i}", "categorical", g.integers(6, size=(n_clusters, 3))[z, g.integers(3, size=n_rows)], levels)
        for i in range(33)
    ]
    for i in range(7):
        x = np.round(g.normal(20, 3, size=n_clusters)[z] + g.normal(size=n_rows), 1)
        given.append((f"x{i}", "real", np.where(g.random(n_rows) < 0.4, 0.0, x), None))
    return z, *table_from_arrays(given)


def chain(columns, rows):
    settings = Settings(seed=1, shards=8, split_merge=0)
    mixture = Mixture(serial(), columns, lambda a, b: rows.take(np.arange(a, b)), len(rows), settings)
    mixture.start("one")
    return mixture


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--clusters", type=int, nargs="*", default=[16, 64])
    parser.add_argument("--cycles", type=int, default=100)
    given = parser.parse_args()
    for k in given.clusters:
        z, columns, rows = made(given.rows, k, np.random.default_rng(1))
        recorded = [replace(c, resolution=0.1, atoms=(0.0,)) if c.kind == "real" else c for c in columns]
        latent = Latent(summarise(recorded, slices_of(rows, 65_536)), "ab" * 32)
        chains = [chain(columns, rows), chain(latent.columns, latent(rows, np.arange(len(rows))))]
        seconds = np.empty((given.cycles, 2))
        for i in range(given.cycles):
            for j in (0, 1) if i % 2 else (1, 0):
                mixture = chains[j]
                cuts = [(s.start, s.start + len(s)) for s in mixture.view.shards]
                mixture.view.resume(lambda s, z=z, cuts=cuts: z[slice(*cuts[s])], k, mixture.view.hyper)
                mixture.resume(i)
                start = time.process_time()
                mixture.cycle()
                seconds[i, j] = time.process_time() - start
        seconds = seconds[4:]
        as_is, of_recorded = 1e3 * np.median(seconds, axis=0)
        low, high = np.quantile(seconds[:, 1] / seconds[:, 0], [0.25, 0.75])
        print(
            f"K = {k}: as is {as_is:.1f}, as recorded {of_recorded:.1f} ms a cycle, ratio {of_recorded / as_is:.3f}"
            f" (quartiles {low:.3f} to {high:.3f})"
        )


if __name__ == "__main__":
    main()
