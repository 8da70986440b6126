"""Kept draws: every draw comes back, in the smallest type, one at a time."""

import tracemalloc

import h5py
import numpy as np
import pytest

from mpibayes.io import labels as module
from mpibayes.io import segments
from mpibayes.io.labels import DrawWriter, count_draws, iterate_draws, last_draw
from mpibayes.io.segments import list_segments


def draw_of(cycle, n=40, top=10):
    g = np.random.Generator(np.random.Philox(key=[cycle, n]))
    return (
        g.integers(0, top, n),
        g.gamma(1.0),
        g.uniform(),
        g.gamma(1.0, size=3),
        g.normal(size=(2, 4)),
        g.gamma(1.0, size=(1, 2)),
    )


def same(draw, cycle, **kind):
    expected = draw_of(cycle, **kind)
    assert draw.cycle == cycle and draw.labels.dtype == np.int64
    found = (draw.labels, draw.concentration, draw.discount, draw.dirichlet, draw.normal, draw.gamma)
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def fill(run, cycles, flush_every=7, **kind):
    writer = DrawWriter(run)
    for cycle in cycles:
        writer.append(cycle, *draw_of(cycle, **kind))
        if cycle % flush_every == 0:
            writer.flush()
    writer.flush()
    return writer


def test_round_trip(tmp_path):
    assert count_draws(tmp_path) == 0 and list(iterate_draws(tmp_path)) == [] and last_draw(tmp_path) is None
    fill(tmp_path, range(2, 61, 2))
    draws = list(iterate_draws(tmp_path))
    assert [d.cycle for d in draws] == list(range(2, 61, 2)) and count_draws(tmp_path) == 30
    for draw in draws:
        same(draw, draw.cycle)
    same(last_draw(tmp_path), 60)


def test_a_part_of_the_draws(tmp_path):
    fill(tmp_path, range(1, 31))
    assert [d.cycle for d in iterate_draws(tmp_path, start_cycle=12)] == list(range(12, 31))
    assert [d.cycle for d in iterate_draws(tmp_path, start_cycle=12, every=5)] == [12, 17, 22, 27]
    for draw in iterate_draws(tmp_path, every=4):
        same(draw, draw.cycle)


def test_no_columns_of_a_kind(tmp_path):
    writer = DrawWriter(tmp_path)
    writer.append(1, np.zeros(4, dtype=np.int32), 1.0, 0.0, np.zeros(0), np.zeros((0, 4)), np.zeros((0, 2)))
    writer.flush()
    (draw,) = iterate_draws(tmp_path)
    assert draw.normal.shape == (0, 4) and draw.gamma.shape == (0, 2) and draw.dirichlet.shape == (0,)


@pytest.mark.parametrize(
    "top, dtype", [(0, "u1"), (255, "u1"), (256, "u2"), (65535, "u2"), (65536, "u4"), (2**32 - 1, "u4")]
)
def test_the_smallest_type_is_used(tmp_path, top, dtype):
    writer = DrawWriter(tmp_path)
    hypers = (1.0, 0.0, np.ones(1), np.ones((0, 4)), np.ones((0, 2)))
    writer.append(1, np.array([0, 0, 0]), *hypers)
    writer.append(2, np.array([0, top, 1]), *hypers)
    writer.append(3, np.array([1, 0, 1]), *hypers)
    writer.flush()
    with h5py.File(list_segments(tmp_path / "labels")[-1].path) as file:
        assert file["labels"].dtype == np.dtype(dtype) and file["labels"].compression == "gzip"
    assert [d.labels.tolist() for d in iterate_draws(tmp_path)] == [[0, 0, 0], [0, top, 1], [1, 0, 1]]


def test_labels_of_different_types_are_joined(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "MANY", 8)
    writer = DrawWriter(tmp_path)
    for cycle in range(1, 40):
        writer.append(cycle, *draw_of(cycle, top=10 if cycle % 2 else 1000))
        writer.flush()
    assert len(list_segments(tmp_path / "labels")) <= 9
    for draw in iterate_draws(tmp_path):
        same(draw, draw.cycle, top=10 if draw.cycle % 2 else 1000)
    assert draw.cycle == 39


def test_a_full_buffer_becomes_a_segment(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BUFFERED", 1000)
    writer = fill(tmp_path, range(1, 31), flush_every=1000)
    assert len(list_segments(tmp_path / "labels")) > 2 and writer.last_cycle == 30
    assert [d.cycle for d in iterate_draws(tmp_path)] == list(range(1, 31))


@pytest.mark.parametrize("cycle", [-1, 0, 6, 7, 8, 13, 30, 99])
def test_truncate(tmp_path, cycle):
    fill(tmp_path, range(1, 31))
    DrawWriter(tmp_path).truncate(cycle)
    assert [d.cycle for d in iterate_draws(tmp_path)] == list(range(1, min(cycle, 30) + 1))
    fill(tmp_path, range(min(cycle, 30) + 1 if cycle > 0 else 1, 41))
    for expected, draw in enumerate(iterate_draws(tmp_path), 1):
        same(draw, expected)


def test_draws_must_go_on_and_be_complete(tmp_path):
    writer = fill(tmp_path, range(1, 4))
    with pytest.raises(ValueError, match="go on from cycle 3"):
        writer.append(3, *draw_of(3))
    with pytest.raises(ValueError, match="some label is negative"):
        writer.append(4, np.array([0, -1] * 20), *draw_of(4)[1:])


def test_reading_is_flat_in_memory(tmp_path):
    """64 MB of labels, read draw by draw."""
    writer = DrawWriter(tmp_path)
    n = 1_000_000
    z = np.arange(n) % 200
    for cycle in range(1, 65):
        writer.append(cycle, z, 1.0, 0.0, np.ones(1), np.ones((0, 4)), np.ones((0, 2)))
    writer.flush()
    tracemalloc.start()
    seen = 0
    for draw in iterate_draws(tmp_path):
        assert draw.labels[-1] == z[-1]
        seen += 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen == 64 and peak < 40e6  # two draws as int64 are 16 MB, a block 4 MB
