"""Figure 2 of Paisley, Fazelnia & Barr: topics of documents by SVI and SVI+, from many starts.

mpibayes import --sparse docword.txt documents.h5
python examples/svi_plus/topics.py documents.h5 --out FOLDER [--starts 20] [--cycles 60]

50 topics, alpha 0.1, eta 0.05; batches of 500 and 1,000 documents, and of 1,000 with noise as of 500; steps of
(t + 1)^-0.6. Prints a table and draws figure2.png, both with bounds of all documents.
"""

import argparse
from pathlib import Path

import bands
import numpy as np

from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.svi.lda.ascent import Ascent, Settings
from mpibayes.hpc.svi.noise import Noise
from mpibayes.hpc.svi.schedule import Constant, Decay
from mpibayes.io.sparse import SparseTable

EVERY = 5  # cycles between two bounds
RATE = {"rate": Decay(1.0, 0.6)}
WAYS = {
    "SVI, 500": {"batch": Constant(500), **RATE},
    "SVI, 1,000": {"batch": Constant(1000), **RATE},
    "SVI+, 1,000 as 500": {
        "batch": Constant(1000), "noise": Noise("svi+"), "effective": Constant(500), **RATE,
    },
}  # fmt: skip


def run(rows, table, way, start, cycles):
    """(bounds (T,), share of topics whose noise was held back)."""
    settings = Settings(topics=50, alpha=0.1, eta=0.05, seed=1, shards=1, warm=cycles + 1, **WAYS[way])
    chain = Ascent(
        serial(), lambda a, b: rows.take(slice(a, b)), len(rows), table.n_columns, table.total, settings, start
    )
    chain.start()
    bounds, held = [], 0.0
    for t in range(1, cycles + 1):
        chain.cycle()
        held += chain.guarded / 50 / cycles
        if t % EVERY == 0:
            bounds.append(chain.evaluate() / table.total)
    return np.array(bounds), held


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder for the picture")
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--cycles", type=int, default=60)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    table = SparseTable.open(given.table)
    rows, ways = table.read(), {}
    print(f"{given.table.name}: {table.n_rows:,} documents, {table.n_columns:,} words, {given.starts} starts")
    print("| way | bound a word after 20 cycles | at the end | best | guard, % |\n| --- | --- | --- | --- | --- |")
    for way in WAYS:
        found = [run(rows, table, way, i, given.cycles) for i in range(given.starts)]
        bounds = np.array([b for b, _ in found])
        ways[way] = (EVERY * np.arange(1, bounds.shape[1] + 1), bounds)
        shown = bounds[:, [20 // EVERY - 1, -1]].T
        cells = [f"{at.mean():.4f} ± {at.std(ddof=1) / np.sqrt(len(at)):.4f}" for at in shown]
        held = 100 * np.mean([h for _, h in found])
        print(f"| {way} | {cells[0]} | {cells[1]} | {bounds[:, -1].max():.4f} | {held:.1f} |", flush=True)
    bands.draw(given.out / "figure2.png", {"50 topics": ways}, "bound a word")


if __name__ == "__main__":
    main()
