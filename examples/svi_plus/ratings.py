"""Figure 1 of Paisley, Fazelnia & Barr: ratings factorized by batch steps and by SVI+, from many starts.

mpibayes import --sparse ratings.dat ratings.h5
python examples/svi_plus/ratings.py ratings.h5 --out FOLDER [--starts 20] [--cycles 100]

The paper's model (c = 1, variance 1/2, stars as they are), its noise (M = 50 t, rate 0.85) with the guard that it
needs, and the same noise with M taken of each user's and item's own ratings. Prints a table and draws figure1.png.
"""

import argparse
from pathlib import Path

import bands
import numpy as np

from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.svi.chain import Settings
from mpibayes.hpc.svi.factorization.chain import Kind, RatingsAscent
from mpibayes.hpc.svi.factorization.ratings import Ratings
from mpibayes.hpc.svi.noise import Noise
from mpibayes.hpc.svi.schedule import Constant, Growing
from mpibayes.io.sparse import SparseTable

PAPER = {"center": False, "learn": False, "biased": False, "variance": 0.5, "spread": 1.0}
NOISE = {"noise": Noise("svi+"), "rate": Constant(0.85), "effective": Growing(50)}
WAYS = {
    "batch": ({}, {}),
    "SVI+, M = 50 t of all": ({"own_count": False, "stepped": True}, NOISE),
    "SVI+, M = 50 t of a row's own": ({"stepped": True}, NOISE),
}


def run(x, items, rank, way, start, cycles):
    """(bounds (T,), share of users and items whose noise was held back)."""
    of_kind, settings = WAYS[way]
    kind = Kind(rank, **PAPER, **of_kind)
    fresh = Ratings(x.starts, x.columns, x.values)  # a chain keeps its users with them
    chain = RatingsAscent(
        serial(), kind, items, lambda a, b: fresh, len(x), Settings(seed=1, shards=1, **settings), start
    )
    chain.start()
    bounds, held = [chain.bound], 0.0
    for _ in range(cycles):
        chain.cycle()
        bounds.append(chain.bound)
        held += chain.guarded / (len(x) + items) / cycles
    return np.array(bounds), held


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder for the picture")
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--cycles", type=int, default=100)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    table = SparseTable.open(given.table)
    x, panels = Ratings.of(table.read()), {}
    print(f"{given.table.name}: {table.n_rows:,} users, {table.n_columns:,} items, {table.n_entries:,} ratings")
    print("| d | way | bound after 20 cycles | at the end | guard, % |\n| --- | --- | --- | --- | --- |")
    for rank in (5, 10):
        panel = panels[f"d = {rank}"] = {}
        for way in WAYS:
            found = [run(x, table.n_columns, rank, way, i, given.cycles) for i in range(given.starts)]
            bounds = np.array([b for b, _ in found])
            panel[way] = (np.arange(given.cycles + 1), bounds / table.n_entries)
            cells = [f"{at.mean():,.0f} ± {at.std(ddof=1) / np.sqrt(len(at)):,.0f}" for at in bounds[:, [20, -1]].T]
            held = 100 * np.mean([h for _, h in found])
            print(f"| {rank} | {way} | {cells[0]} | {cells[1]} | {held:.1f} |", flush=True)
    bands.draw(given.out / "figure1.png", panels, "bound a rating")


if __name__ == "__main__":
    main()
