"""Kept draws: every draw comes back, in the smallest type, one at a time."""

import tracemalloc

import h5py
import numpy as np
import pytest

from mpibayes.io import draws as module
from mpibayes.io import segments
from mpibayes.io.draws import DrawWriter, iterate_draws, last_draw
from mpibayes.io.segments import list_segments


def draw_of(cycle, n=40, top=10):
    g = np.random.Generator(np.random.Philox(key=[cycle, n]))
    return {"labels": g.integers(0, top, n), "rate": g.gamma(1.0), "places": g.normal(size=(2, 4))}


def opened(run):
    return DrawWriter(run, whole=["labels"])


def same(draw, cycle, **kind):
    (found_cycle, result), expected = draw, draw_of(cycle, **kind)
    assert found_cycle == cycle and result.keys() == expected.keys() and result["labels"].dtype.kind == "u"
    assert all(np.array_equal(result[name], expected[name]) for name in expected)


def fill(run, cycles, flush_every=7, **kind):
    writer = opened(run)
    for cycle in cycles:
        writer.append(cycle, **draw_of(cycle, **kind))
        if cycle % flush_every == 0:
            writer.flush()
    writer.flush()
    return writer


def test_round_trip(tmp_path):
    assert list(iterate_draws(tmp_path)) == [] and last_draw(tmp_path) is None
    fill(tmp_path, range(2, 61, 2))
    draws = list(iterate_draws(tmp_path))
    assert [cycle for cycle, _ in draws] == list(range(2, 61, 2))
    for draw in draws:
        same(draw, draw[0])
    same(last_draw(tmp_path), 60)


def test_a_part_of_the_draws(tmp_path):
    fill(tmp_path, range(1, 31))
    assert [cycle for cycle, _ in iterate_draws(tmp_path, start_cycle=12)] == list(range(12, 31))
    for draw in iterate_draws(tmp_path, start_cycle=12):
        same(draw, draw[0])


def test_no_columns_of_a_kind(tmp_path):
    writer = opened(tmp_path)
    writer.append(1, labels=np.zeros(4, dtype=np.int32), none=np.zeros(0), normal=np.zeros((0, 4)))
    writer.flush()
    ((_, draw),) = iterate_draws(tmp_path)
    assert draw["normal"].shape == (0, 4) and draw["none"].shape == (0,) and draw["labels"].tolist() == [0] * 4


@pytest.mark.parametrize(
    "top, dtype", [(0, "u1"), (255, "u1"), (256, "u2"), (65535, "u2"), (65536, "u4"), (2**32 - 1, "u4")]
)
def test_the_smallest_type_is_used(tmp_path, top, dtype):
    writer = opened(tmp_path)
    for cycle, labels in enumerate(([0, 0, 0], [0, top, 1], [1, 0, 1]), 1):
        writer.append(cycle, labels=np.array(labels), rate=1.0)
    writer.flush()
    with h5py.File(list_segments(tmp_path / "labels")[-1].path) as file:
        assert file["labels"].dtype == np.dtype(dtype) and file["labels"].compression == "gzip"
    assert [draw["labels"].tolist() for _, draw in iterate_draws(tmp_path)] == [[0, 0, 0], [0, top, 1], [1, 0, 1]]


def test_labels_of_different_types_are_joined(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "MANY", 8)
    writer = opened(tmp_path)
    for cycle in range(1, 40):
        writer.append(cycle, **draw_of(cycle, top=10 if cycle % 2 else 1000))
        writer.flush()
    assert len(list_segments(tmp_path / "labels")) <= 9
    for draw in iterate_draws(tmp_path):
        same(draw, draw[0], top=10 if draw[0] % 2 else 1000)
    assert draw[0] == 39


def test_a_full_buffer_becomes_a_segment(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BUFFERED", 1000)
    writer = fill(tmp_path, range(1, 31), flush_every=1000)
    assert len(list_segments(tmp_path / "labels")) > 2 and writer.last_cycle == 30
    assert [cycle for cycle, _ in iterate_draws(tmp_path)] == list(range(1, 31))


@pytest.mark.parametrize("cycle", [-1, 0, 6, 7, 8, 13, 30, 99])
def test_truncate(tmp_path, cycle):
    fill(tmp_path, range(1, 31))
    opened(tmp_path).truncate(cycle)
    assert [cycle for cycle, _ in iterate_draws(tmp_path)] == list(range(1, min(cycle, 30) + 1))
    fill(tmp_path, range(min(cycle, 30) + 1 if cycle > 0 else 1, 41))
    for expected, draw in enumerate(iterate_draws(tmp_path), 1):
        same(draw, expected)


def test_draws_must_go_on_and_be_complete(tmp_path):
    writer = fill(tmp_path, range(1, 4))
    with pytest.raises(ValueError, match="go on from cycle 3"):
        writer.append(3, **draw_of(3))
    with pytest.raises(ValueError, match=r"cycle 4: labels of a kept draw .* negative"):
        writer.append(4, **draw_of(4) | {"labels": np.array([0, -1] * 20)})
    with pytest.raises(KeyError, match="rate"):
        writer.append(4, labels=np.zeros(40, int), places=np.zeros((2, 4)))


def test_arrays_of_whole_numbers_grow_apart(tmp_path):
    writer = DrawWriter(tmp_path, whole=["z", "w"])
    draws = [([1], [300]), ([70_000], [2]), ([3], [4])]
    for cycle, (z, w) in enumerate(draws):
        writer.append(cycle, z=np.array(z), w=np.array(w))
    writer.flush()
    assert [(draw["z"].tolist(), draw["w"].tolist()) for _, draw in iterate_draws(tmp_path)] == draws
    types = [[file[name].dtype.str[1:] for name in "zw"] for file in map(h5py.File, files(tmp_path))]
    assert types == [["u1", "u2"], ["u4", "u1"]]


def files(run):
    return [segment.path for segment in list_segments(run / "labels")]


def test_reading_is_flat_in_memory(tmp_path):
    """64 MB of labels, read draw by draw."""
    writer = opened(tmp_path)
    n = 1_000_000
    z = np.arange(n) % 200
    for cycle in range(1, 65):
        writer.append(cycle, labels=z, rate=1.0)
    writer.flush()
    tracemalloc.start()
    seen = 0
    for _, draw in iterate_draws(tmp_path):
        assert draw["labels"][-1] == z[-1]
        seen += 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen == 64 and peak < 40e6  # a draw is 1 MB, a block 4 MB
