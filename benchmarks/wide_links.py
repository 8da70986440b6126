"""Time and memory of a draw of links of many 0/1 columns, beside the forecast of `mpibayes check`.

    python benchmarks/wide_links.py [--columns 1000] [--rows 5000] [--cycles 20]

The table is made: six clusters, and in most columns a copy of one of the twenty before, with errors.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.cost import link_cost
from mpibayes.hpc.links import moves
from mpibayes.hpc.parallel.comm import serial
from mpibayes.io.table import table_from_arrays

MIB = 1 << 20


def made(n: int, d: int, seed: int = 1):
    """Return the columns and rows of the table."""
    g = np.random.default_rng(seed)
    z, p, x = g.choice(6, n), g.random((6, d)), np.empty((n, d), np.int8)
    for c in range(d):
        x[:, c] = g.random(n) < p[z, c]
        if c and g.random() < 0.7:
            copy = x[:, g.integers(max(0, c - 20), c)] ^ (g.random(n) < 0.15)
            x[:, c] = np.where(g.random(n) < 0.6, copy, x[:, c])
    return table_from_arrays([(f"c{c}", "boolean", x[:, c], ("0", "1")) for c in range(d)])


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--cycles", type=int, default=20)
    given = parser.parse_args()
    columns, rows = made(given.rows, given.columns)
    settings = Settings(seed=1, links="forest", link_moves=0)
    mixture = Mixture(serial(), columns, lambda start, stop: rows.take(slice(start, stop)), len(rows), settings)
    mixture.start("one")
    began = time.process_time()
    for _ in range(given.cycles):
        info = mixture.cycle()
    print(f"{(time.process_time() - began) / given.cycles:.3f} s a cycle with {info.n_clusters} clusters")
    moves.due = lambda every, cycle: True
    for _ in range(2):
        before, began = peak(), time.process_time()
        mixture.linking.draw()
        n_links = int((mixture.linking.coding.parents >= 0).sum())
        print(
            f"{time.process_time() - began:.2f} s a draw, {peak() - before:.0f} MiB more, {n_links} links", flush=True
        )
    code_bytes, levels = given.columns, 6 * given.columns
    forecast_s = link_cost.draw_seconds(columns, given.rows, 1, info.n_clusters)
    forecast = link_cost.draw_bytes(given.rows, code_bytes, given.columns, levels, info.n_clusters)
    print(f"forecast {forecast_s:.2f} s and {forecast / MIB:.0f} MiB")


if __name__ == "__main__":
    main()
