"""Sweeps that leave out clusters draw the labels of full ones where columns are linked, too."""

from dataclasses import replace
from unittest import mock

import numpy as np

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.view.pruning import Pruning
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
    links = {"c1": "c0", "c3": "c0", "c2": "c1"}
    assert np.array_equal(labels(columns, rows, z, links, True), labels(columns, rows, z, links, False))


def test_pruned_sweeps_know_the_missing_numbers_that_were_drawn(monkeypatch):
    """Bins of cells that are others in every cycle; with the old ones a sweep has other labels."""
    columns, rows, z = numbers()
    full = labels(columns, rows, z, {"x1": "x0", "x3": "x2"}, False)
    assert np.array_equal(labels(columns, rows, z, {"x1": "x0", "x3": "x2"}, True), full)
    monkeypatch.setattr(Pruning, "renew", lambda self: None)
    assert not np.array_equal(labels(columns, rows, z, {"x1": "x0", "x3": "x2"}, True), full)


def test_pruned_sweeps_know_the_contexts_that_numbers_were_moved_to(monkeypatch):
    """A cell of a parent that is drawn moves the number below it to another column of cells."""
    columns, rows, z = numbers_in_contexts()
    links = {f"x{c}": "a" for c in range(4)}
    full = labels(columns, rows, z, links, False)
    assert np.array_equal(labels(columns, rows, z, links, True), full)
    monkeypatch.setattr(Pruning, "renew", lambda self: None)
    assert not np.array_equal(labels(columns, rows, z, links, True), full)


def numbers_in_contexts():
    g = np.random.default_rng(1)
    z, means, a = g.integers(120, size=3000), g.normal(0.0, 5.0, (120, 4, 2)), g.integers(2, size=3000)
    x = means[z, :, a] + 0.1 * g.normal(size=(3000, 4))
    c = np.where(g.random((3000, 4)) < 0.9, g.integers(6, size=(120, 4))[z], g.integers(6, size=(3000, 4)))
    a[g.random(3000) < 0.3] = -1
    columns, rows = table_from_arrays(
        [
            ("a", "categorical", a, ("0", "1")),
            *((f"c{i}", "categorical", c[:, i], tuple("012345")) for i in range(4)),
            *((f"x{i}", "real", x[:, i], ()) for i in range(4)),
        ]
    )
    return [replace(column, child=column.name.startswith("x")) for column in columns], rows, z


def numbers():
    g = np.random.default_rng(1)
    z, means = g.integers(120, size=3000), g.normal(0.0, 5.0, (120, 5))
    x = means[z] + 0.3 * g.normal(size=(3000, 5))
    x[:, 1] = x[:, 0] + 0.1 * g.normal(size=3000)
    for c in (0, 2):
        x[g.random(3000) < 0.2, c] = np.nan
    columns, rows = table_from_arrays([(f"x{c}", "real", x[:, c], ()) for c in range(5)])
    return [replace(column, line=column.name in ("x0", "x1", "x2", "x3")) for column in columns], rows, z


def labels(columns, rows, z, links, pruned: bool) -> np.ndarray:
    settings = Settings(seed=3, shards=4, split_merge=0, links=links)
    with mock.patch.object(Pruning, "worthwhile", lambda *_: pruned):
        mixture = Mixture(serial(), columns, lambda a, b: rows.take(slice(a, b)), len(rows), settings)
        mixture.start(np.unique(z, return_inverse=True)[1])
        for _ in range(3):
            mixture.cycle()
    assert mixture.view.n_labels > 96
    return mixture.view.labels()
