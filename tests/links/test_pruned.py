"""Sweeps that leave out clusters draw the labels of full ones where columns are linked, too."""

from unittest import mock

import numpy as np

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.pruning import Pruning
from mpibayes.hpc.parallel.comm import serial
from mpibayes.io.table import table_from_arrays


def test_pruned_sweeps_have_the_labels_of_full_ones():
    g = np.random.default_rng(0)
    z, levels = g.integers(120, size=3000), g.integers(6, size=(120, 8))
    x = np.where(g.random((3000, 8)) < 0.85, levels[z], g.integers(6, size=(3000, 8)))
    x[:, 1] = np.where(g.random(3000) < 0.9, x[:, 0], x[:, 1])
    x[g.random(3000) < 0.05, 2] = -1
    columns, rows = table_from_arrays(
        [(f"c{c}", "categorical", x[:, c], tuple(map(str, range(6)))) for c in range(x.shape[1])]
    )
    settings = Settings(seed=3, shards=4, split_merge=0, links={"c1": "c0", "c3": "c0", "c2": "c1"})

    def labels(pruned: bool) -> np.ndarray:
        with mock.patch.object(Pruning, "worthwhile", lambda *_: pruned):
            mixture = Mixture(serial(), columns, lambda a, b: rows.take(slice(a, b)), len(rows), settings)
            mixture.start(np.unique(z, return_inverse=True)[1])
            for _ in range(3):
                mixture.cycle()
        assert mixture.view.n_labels > 96
        return mixture.view.labels()

    assert np.array_equal(labels(True), labels(False))
