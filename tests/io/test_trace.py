"""Traces: what goes in comes out, cut at a checkpoint, joined when small, read by ArviZ."""

import os
import warnings

import numpy as np
import pytest

from mpibayes.errors import CheckpointError
from mpibayes.io import segments
from mpibayes.io.inference import merge
from mpibayes.io.segments import list_segments, read_blocks
from mpibayes.io.trace import TraceWriter, read_kinds, read_trace

SCALARS = ("log_joint", "n_clusters", "entropy", "heldout_lpd", "moved_fraction", "splits", "seconds")
KINDS = {"whole": ["n_clusters", "splits"], "statistic": ["moved_fraction", "splits", "seconds"], "timing": ["seconds"]}


def opened(run):
    return TraceWriter(run, SCALARS, kinds=KINDS)


def values_of(cycle):
    values = {name: np.sin(cycle * (i + 1)) for i, name in enumerate(SCALARS)}
    return values | {"n_clusters": cycle % 7, "heldout_lpd": float("nan") if cycle % 2 else -1.5}


def fill(writer, cycles, flush_every=10):
    for cycle in cycles:
        writer.append(cycle, values_of(cycle))
        if cycle % flush_every == 0:
            writer.flush()
    writer.flush()


def check(run, cycles):
    trace = read_trace(run)
    assert list(trace) == ["cycle", *SCALARS]
    assert trace["cycle"].dtype == np.int64 and trace["cycle"].tolist() == list(cycles)
    for name in SCALARS:
        assert np.array_equal(trace[name], [values_of(c)[name] for c in cycles], equal_nan=True)


def files(run):
    return sorted(p.name for p in (run / "trace").iterdir())


def test_round_trip(tmp_path):
    writer = opened(tmp_path)
    assert read_trace(tmp_path) == {} and merge(tmp_path) is None and writer.last_cycle == -1
    fill(writer, range(1, 26))
    check(tmp_path, range(1, 26))
    assert files(tmp_path) == [
        "seg-000000001-000000010.h5",
        "seg-000000011-000000020.h5",
        "seg-000000021-000000025.h5",
    ]
    assert read_trace(tmp_path, burn_in=12)["cycle"].tolist() == list(range(13, 26))
    assert read_trace(tmp_path, burn_in=25) == {}


def test_a_trace_says_what_its_scalars_are(tmp_path):
    """Kinds of scalars in the trace alone, before and after its segments are joined and cut; of real numbers none."""
    assert read_kinds(tmp_path) == {}
    writer = opened(tmp_path)
    fill(writer, range(1, 101), flush_every=1)
    writer.truncate(70)
    assert read_kinds(tmp_path) == {kind: frozenset(names) for kind, names in KINDS.items()}
    (tmp_path / "plain").mkdir()
    writer = TraceWriter(tmp_path / "plain", ["x"])
    writer.append(1, {"x": 2.0})
    writer.flush()
    assert read_kinds(tmp_path / "plain") == dict.fromkeys(KINDS, frozenset())


def test_what_is_buffered_is_not_yet_on_disk_and_comes_in_order(tmp_path):
    writer = opened(tmp_path)
    writer.append(3, values_of(3))
    assert read_trace(tmp_path) == {} and writer.last_cycle == 3
    with pytest.raises(ValueError, match="goes on from cycle 3"):
        writer.append(3, values_of(3))
    with pytest.raises(KeyError, match="entropy"):
        writer.append(4, {k: v for k, v in values_of(4).items() if k != "entropy"})
    writer.flush()
    check(tmp_path, [3])
    with pytest.raises(ValueError, match="goes on from cycle 3"):
        opened(tmp_path).append(2, values_of(2))


@pytest.mark.parametrize("cycle", [-1, 0, 1, 9, 10, 11, 24, 25, 99])
def test_truncate_keeps_exactly_what_the_checkpoint_had(tmp_path, cycle):
    fill(opened(tmp_path), range(1, 26))
    writer = opened(tmp_path)
    writer.truncate(cycle)
    kept = range(1, min(cycle, 25) + 1)
    if len(kept):
        check(tmp_path, kept)
    else:
        assert read_trace(tmp_path) == {}
    fill(writer, range(len(kept) + 1, 41))
    check(tmp_path, range(1, 41))


def test_truncate_reaches_the_buffer(tmp_path):
    writer = opened(tmp_path)
    for cycle in range(1, 8):
        writer.append(cycle, values_of(cycle))
    writer.truncate(5)
    assert writer.last_cycle == 5
    writer.flush()
    check(tmp_path, range(1, 6))


def test_many_small_segments_are_joined(tmp_path):
    writer = opened(tmp_path)
    fill(writer, range(1, 101), flush_every=1)
    assert len(files(tmp_path)) <= segments.MANY + 1
    check(tmp_path, range(1, 101))
    writer = opened(tmp_path)
    writer.truncate(80)
    check(tmp_path, range(1, 81))


def test_joining_leaves_large_segments_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "SMALL", 40_000)
    monkeypatch.setattr(segments, "JOINED", 60_000)
    monkeypatch.setattr(segments, "MANY", 4)
    writer = opened(tmp_path)
    fill(writer, range(1, 3001), flush_every=1500)
    large = files(tmp_path)
    fill(writer, range(3001, 3040), flush_every=1)
    assert files(tmp_path)[:2] == large
    check(tmp_path, range(1, 3040))


def test_a_kill_between_joining_and_removing_repeats_nothing(tmp_path):
    """Old segments beside the joined one, a cut segment beside the whole one: each row counts once."""
    fill(opened(tmp_path), range(1, 31))
    old = {p: p.read_bytes() for p in (tmp_path / "trace").iterdir()}
    store = segments.Segments(tmp_path / "trace", "mpibayes-trace-segment", 1)
    store._rewrite(list_segments(tmp_path / "trace")[:2], 20)
    for path, data in old.items():
        path.write_bytes(data)
    check(tmp_path, range(1, 31))
    assert len(files(tmp_path)) == 4
    (tmp_path / "trace" / "seg-000000031-000000040.h5.0123456789abcdef.tmp").write_bytes(b"half")
    opened(tmp_path)
    assert files(tmp_path) == ["seg-000000001-000000020.h5", "seg-000000021-000000030.h5"]
    # killed while cutting at 25: both the cut segment and the whole one are there
    whole = (tmp_path / "trace" / "seg-000000021-000000030.h5").read_bytes()
    opened(tmp_path).truncate(25)
    (tmp_path / "trace" / "seg-000000021-000000030.h5").write_bytes(whole)
    check(tmp_path, range(1, 31))
    opened(tmp_path).truncate(25)
    check(tmp_path, range(1, 26))


def test_a_reader_survives_joining_under_it(tmp_path):
    fill(opened(tmp_path), range(1, 41))
    blocks = read_blocks(tmp_path / "trace")
    seen = next(blocks)["cycle"].tolist()
    store = segments.Segments(tmp_path / "trace", "mpibayes-trace-segment", 1)
    store._rewrite(list_segments(tmp_path / "trace"), 40)
    for block in blocks:
        seen += block["cycle"].tolist()
    assert seen == list(range(1, 41))


@pytest.mark.parametrize("kind", ["bit", "cut", "empty", "text"])
def test_a_damaged_segment_is_named(tmp_path, kind):
    fill(opened(tmp_path), range(1, 2001), flush_every=1000)
    path = list_segments(tmp_path / "trace")[1].path
    data = bytearray(path.read_bytes())
    if kind == "bit":
        at = data.index(np.array([values_of(c)["entropy"] for c in range(1001, 1010)]).tobytes())
        data[at + 3] ^= 4
    path.write_bytes({"bit": data, "cut": data[: len(data) // 2], "empty": b"", "text": b"not HDF5 at all" * 99}[kind])
    with pytest.raises(CheckpointError, match=r"seg-000001001-000002000\.h5: damaged") as caught:
        read_trace(tmp_path)
    assert caught.value.exit_code == 4


def test_a_full_disk_is_named_and_nothing_is_lost(tmp_path, monkeypatch):
    writer = opened(tmp_path)
    fill(writer, range(1, 11))
    for cycle in range(11, 16):
        writer.append(cycle, values_of(cycle))

    def fsync(fd):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(CheckpointError, match=r"seg-000000011-000000015\.h5: cannot be written: No space left"):
            writer.flush()
    check(tmp_path, range(1, 11))
    assert len(files(tmp_path)) == 1
    writer.flush()
    check(tmp_path, range(1, 16))


def test_merged_trace_opens_in_xarray_and_arviz(tmp_path):
    fill(opened(tmp_path), range(1, 26))
    path = merge(tmp_path)
    assert path == tmp_path / "trace.h5"
    xarray = pytest.importorskip("xarray", reason="the report extra is not installed")
    pytest.importorskip("h5netcdf", reason="the report extra is not installed")

    def check_groups(posterior, sample_stats):
        assert set(posterior.data_vars) == {"log_joint", "n_clusters", "entropy"}
        assert set(sample_stats.data_vars) == {"heldout_lpd", "moved_fraction", "splits", "seconds"}
        assert sample_stats.moved_fraction.dtype == np.float64
        assert posterior.n_clusters.dims == ("chain", "draw") and posterior.n_clusters.dtype == np.int64
        assert posterior.draw.values.tolist() == list(range(1, 26)) and posterior.chain.values.tolist() == [0]
        assert np.array_equal(posterior.log_joint.values[0], [values_of(c)["log_joint"] for c in range(1, 26)])

    with xarray.open_datatree(path) as tree:  # what ArviZ 1.x does
        check_groups(tree["posterior"], tree["sample_stats"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ArviZ 0.23 announces 1.0 on import
        arviz = pytest.importorskip("arviz", reason="the report extra is not installed")
    data = arviz.from_netcdf(str(path))
    check_groups(data.posterior, data.sample_stats)
    assert np.isfinite(float(arviz.ess(data, var_names=["log_joint"]).log_joint))
