"""A start reads the table once: training rows, and the held-out rows between them."""

import numpy as np
import pytest

from mpibayes.hpc.data import rows as reading
from mpibayes.hpc.data.rows import Data, OnePass
from mpibayes.hpc.parallel import shards
from mpibayes.hpc.parallel.comm import serial
from mpibayes.io.append import append_rows
from mpibayes.io.ingest import import_table
from mpibayes.io.rows import ARRAYS
from mpibayes.io.table import Table

N, NEW, SHARDS = 3_000, 700, 3


def write(path, n, seed):
    g = np.random.default_rng(seed)
    lines = [f"{'abc'[a]},{b:.2f},{c:.3f},{d}\n" for a, b, c, d in zip(
        g.integers(3, size=n), g.normal(size=n), g.normal(size=n), g.integers(9, size=n))]  # fmt: skip
    path.write_text("p,q,r,s\n" + "".join(lines))
    return path


@pytest.mark.parametrize("blocks", [{}, {"pair": {"columns": ["q", "r"]}}])
def test_held_out_rows_are_those_of_a_pass_of_their_own(tmp_path, monkeypatch, blocks):
    import_table(write(tmp_path / "a.csv", N, 1), tmp_path / "t.h5")
    append_rows(write(tmp_path / "b.csv", NEW, 2), tmp_path / "t.h5")
    monkeypatch.setattr(reading, "PIECE", 256)
    monkeypatch.setattr(reading, "PIECE_BYTES", 1)
    data = Data(Table.open(tmp_path / "t.h5"), ("s",), 0.2, blocks, latent=True)
    asked, read = [], Table.read
    monkeypatch.setattr(Table, "read", lambda self, a, b: asked.append(b - a) or read(self, a, b))
    once, cut = OnePass(data), shards.bounds(data.n_rows, SHARDS)
    for i in range(SHARDS):
        once.rows_of(cut[i], cut[i + 1])
    together = data.heldout_blocks(serial(), SHARDS, read=once)
    assert sum(asked) <= 1.05 * (N + NEW)  # rows at the edges of pieces may be read by themselves
    apart = data.heldout_blocks(serial(), SHARDS)
    assert together.n_rows == apart.n_rows == (N + NEW) // 5
    for i, block in apart.blocks.items():
        for name in ARRAYS:
            assert np.array_equal(getattr(together.blocks[i], name), getattr(block, name), equal_nan=True), (i, name)


def test_rows_that_were_not_met_are_read(tmp_path):
    import_table(write(tmp_path / "a.csv", N, 1), tmp_path / "t.h5")
    data = Data(Table.open(tmp_path / "t.h5"), (), 0.2)
    once, cut = OnePass(data), shards.bounds(data.n_rows, SHARDS)
    once.rows_of(cut[1], cut[2])
    for i, block in data.heldout_blocks(serial(), SHARDS).blocks.items():
        mine = data.heldout_blocks(serial(), SHARDS, read=once).blocks[i]
        assert all(np.array_equal(getattr(mine, name), getattr(block, name), equal_nan=True) for name in ARRAYS)
