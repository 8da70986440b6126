"""Exports: fixed forms, the same bytes straight through and resumed, clear refusals."""

import io
import os
import subprocess
import sys
import types
import warnings

import numpy as np
import pytest

from mpibayes.errors import CheckpointError, ConfigError
from mpibayes.hpc.crosscat import draws as kept
from mpibayes.hpc.crosscat.scalars import MOVES, SCALARS
from mpibayes.hpc.scalar import kinds
from mpibayes.io.export import canonical_labels, export
from mpibayes.io.trace import TraceWriter

NAMES = [s.name for s in SCALARS]
HYPERS = {"concentration": 1.0, "discount": 0.0, "dirichlet": np.ones(2)}


def values_of(cycle, seed=0):
    values = {name: np.sin(cycle * (i + 1) + seed) / 3 for i, name in enumerate(NAMES)}
    return values | {"n_clusters": cycle % 5 + 1, "heldout_lpd": float("nan")}


def labels_of(cycle):
    return np.random.Generator(np.random.Philox(key=[cycle, 1])).integers(0, 4, 6)


def run(directory, cycles, seed=0, seconds=0.0):
    trace, draws = TraceWriter(directory, NAMES, kinds=kinds(SCALARS)), kept.writer(directory)
    start = cycles[0] - 1
    trace.truncate(start)
    draws.truncate(start)
    for cycle in cycles:
        trace.append(cycle, values_of(cycle, seed) | {"seconds": seconds + cycle})
        if cycle % 2 == 0:
            draws.append(cycle, labels=labels_of(cycle), **HYPERS)
        if cycle % 9 == 0:
            trace.flush()
            draws.flush()
    trace.flush()
    draws.flush()


def test_labels_are_one_draw_a_line(tmp_path):
    run(tmp_path, range(1, 21))
    out = tmp_path / "labels.txt"
    assert export([tmp_path], "labels", out).paths == [out]
    expected = [" ".join(map(str, canonical_labels(labels_of(c)))) for c in range(2, 21, 2)]
    assert out.read_bytes() == ("\n".join(expected) + "\n").encode()
    export(tmp_path, "labels", out, burn_in=10)
    assert out.read_text().splitlines() == expected[5:]


def test_canonical_labels():
    assert canonical_labels(np.array([7, 2, 7, 5])).tolist() == [0, 1, 0, 2]
    assert canonical_labels(np.array([], dtype=int)).tolist() == []
    generator = np.random.Generator(np.random.Philox(3))
    for _ in range(50):
        z = generator.integers(0, 30, 40)
        seen = {}
        expected = [seen.setdefault(k, len(seen)) for k in z.tolist()]
        assert canonical_labels(z).tolist() == expected
        assert canonical_labels(generator.permutation(30)[z]).tolist() == expected


def test_csv_reads_back_exactly(tmp_path):
    run(tmp_path, range(1, 21))
    out = tmp_path / "trace.csv"
    export(tmp_path, "csv", out)
    lines = out.read_text().splitlines()
    assert (
        lines[0] == "cycle,log_joint,n_clusters,concentration,discount,entropy,heldout_lpd,heldout_lpd_averaged,"
        "moved_fraction,active_rows,splits_tried,splits,merges_tried,merges,seconds"
    )
    for cycle, line in enumerate(lines[1:], 1):
        cells = dict(zip(lines[0].split(","), line.split(","), strict=True))
        assert cells["cycle"] == str(cycle) and cells["n_clusters"] == str(cycle % 5 + 1)
        assert cells["heldout_lpd"] == "nan"
        assert float(cells["log_joint"]) == values_of(cycle)["log_joint"] and float(cells["seconds"]) == cycle
    assert len(lines) == 21 and b"\r" not in out.read_bytes()
    export(tmp_path, "csv", out, burn_in=15, timings=False)
    assert out.read_text().splitlines() == [line.rsplit(",", 1)[0] for line in [lines[0], *lines[16:]]]


@pytest.mark.quick(every=2)
@pytest.mark.parametrize("checkpoint", [1, 7, 9, 13, 18, 19])
def test_resumed_and_straight_are_the_same_bytes(tmp_path, checkpoint):
    straight, resumed = tmp_path / "a", tmp_path / "b"
    straight.mkdir(), resumed.mkdir()
    run(straight, range(1, 31))
    run(resumed, range(1, 21), seconds=0.5)  # went on to 20, and died with a checkpoint further back
    run(resumed, range(checkpoint + 1, 31), seconds=0.25)
    for form, options in (("csv", {"timings": False}), ("labels", {})):
        for directory in (straight, resumed):
            export(directory, form, directory / f"{form}.txt", **options)
        assert (straight / f"{form}.txt").read_bytes() == (resumed / f"{form}.txt").read_bytes() != b""


def chains(tmp_path, lengths=(20, 12)):
    for n, length in enumerate(lengths, 1):
        (tmp_path / f"chain-{n}").mkdir()
        run(tmp_path / f"chain-{n}", range(1, length + 1), seed=n)


def test_several_chains(tmp_path):
    chains(tmp_path)
    out = tmp_path / "trace.csv"
    export(tmp_path, "csv", out)
    lines = out.read_text().splitlines()
    assert lines[0].startswith("chain,cycle,log_joint") and len(lines) == 33
    assert [line.split(",")[:2] for line in lines[20:22]] == [["1", "20"], ["2", "1"]]
    export([tmp_path / "chain-1", tmp_path / "chain-2"], "csv", tmp_path / "again.csv")
    assert out.read_bytes() == (tmp_path / "again.csv").read_bytes()
    done = export(tmp_path, "labels", tmp_path / "z.txt")
    assert [p.name for p in done.paths] == ["z.chain-1.txt", "z.chain-2.txt"]
    assert [len(p.read_text().splitlines()) for p in done.paths] == [10, 6]
    for out in (None, "-"):
        with pytest.raises(ConfigError, match="labels of 2 chains cannot share standard output"):
            export(tmp_path, "labels", out)


def test_arviz_file_of_several_chains(tmp_path):
    xarray = pytest.importorskip("xarray", reason="the report extra is not installed")
    chains(tmp_path)
    done = export(tmp_path, "arviz", burn_in=2)
    assert done.paths == [tmp_path / "trace.h5"]
    assert done.notes == ["the chains were cut to the 12 cycles that all of them have; one has 20"]
    with xarray.open_datatree(done.paths[0]) as tree:
        assert tree["posterior"].log_joint.shape == (2, 10)
        assert tree["posterior"].draw.values.tolist() == list(range(3, 13))
        assert float(tree["posterior"].log_joint[1, 0]) == values_of(3, 2)["log_joint"]
        statistics = ["heldout_lpd", "heldout_lpd_averaged", "moved_fraction", "active_rows", *MOVES, "seconds"]
        assert list(tree["sample_stats"].data_vars) == statistics
        for name in ("posterior", "sample_stats"):
            warm_up = tree[f"warmup_{name}"]
            assert list(warm_up.data_vars) == list(tree[name].data_vars) and warm_up.draw.values.tolist() == [1, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arviz = pytest.importorskip("arviz", reason="the report extra is not installed")
        data = arviz.from_netcdf(str(done.paths[0]))
        summary = arviz.summary(data)
    assert list(summary.index) == ["log_joint", "n_clusters", "concentration", "discount", "entropy"]
    assert not summary.isna().any(axis=None)
    with pytest.raises(ConfigError, match="cannot go to standard output"):
        export(tmp_path, "arviz", "-")


def test_what_was_kept_besides_has_a_group_of_its_own(tmp_path):
    """Its draws are those that all chains have; names along axes are text or numbers."""
    xarray = pytest.importorskip("xarray", reason="the report extra is not installed")
    chains(tmp_path)
    kept = [{"cycle": np.arange(2, n, 2), "weight": np.arange(2, n, 2)[:, None] / [1.0, 2.0]} for n in (20, 12)]
    done = export(tmp_path, "arviz", burn_in=4, kept=(kept, {"weight": {"cluster": [1, 2]}}))
    with xarray.open_datatree(done.paths[0]) as tree:
        weight = tree["kept_draws"].weight
        assert weight.dims == ("chain", "draw", "cluster") and weight.cluster.values.tolist() == [1, 2]
        assert weight.draw.values.tolist() == [6, 8, 10] and weight.sel(cluster=2).values.tolist() == [[3, 4, 5]] * 2
        assert tree["warmup_kept_draws"].weight.draw.values.tolist() == [2, 4]


def test_every_directory_may_have_its_own_burn_in(tmp_path):
    chains(tmp_path)
    out = tmp_path / "t.csv"
    export([tmp_path / "chain-1", tmp_path / "chain-2"], "csv", out, burn_in=[15, 10])
    cycles = [line.split(",")[:2] for line in out.read_text().splitlines()[1:]]
    assert cycles == [["1", str(c)] for c in range(16, 21)] + [["2", "11"], ["2", "12"]]


def test_standard_output(tmp_path, monkeypatch):
    run(tmp_path, range(1, 21))
    export(tmp_path, "csv", tmp_path / "t.csv")
    for out in (None, "-"):
        stdout = types.SimpleNamespace(buffer=io.BytesIO(), flush=lambda: None)
        monkeypatch.setattr(sys, "stdout", stdout)
        assert export(tmp_path, "csv", out).paths == []
        assert stdout.buffer.getvalue() == (tmp_path / "t.csv").read_bytes()


@pytest.mark.thorough
def test_a_reader_that_stops_early_is_no_error(tmp_path):
    trace = TraceWriter(tmp_path, NAMES, kinds=kinds(SCALARS))
    for cycle in range(1, 20001):
        trace.append(cycle, values_of(cycle))
    trace.flush()
    program = f"from mpibayes.io.export import export; export({str(tmp_path)!r}, 'csv')"
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout.readline().startswith(b"cycle,")
    child.stdout.close()
    assert (child.stderr.read(), child.wait()) == (b"", 0)
    child.stderr.close()


def test_refusals(tmp_path):
    def refused(words, *arguments, **options):
        with pytest.raises(ConfigError, match=words) as caught:
            export(*arguments, **options)
        assert caught.value.exit_code == 2

    refused("no such form; expected one of labels, features, csv, arviz", tmp_path, "parquet")
    refused("nothing to export", [], "csv")
    refused("there is no such directory", tmp_path / "absent", "csv")
    for form in ("csv", "labels", "arviz"):
        refused("no run was started in this directory", tmp_path, form)
    (tmp_path / "file").write_text("")
    refused("this is a file", tmp_path / "file", "csv")
    (tmp_path / "status.json").write_text("{}")
    refused("no cycle is kept here yet", tmp_path, "csv")
    refused("no labels are kept here yet", tmp_path, "labels")
    run(tmp_path, range(1, 21))
    refused("a burn-in of 20 cycles leaves nothing", tmp_path, "csv", burn_in=20)
    refused("a burn-in of 20 cycles leaves nothing", tmp_path, "labels", burn_in=20)
    refused("0 or more", tmp_path, "csv", burn_in=-1)
    refused("cannot be written: Is a directory", tmp_path, "csv", tmp_path)
    refused("cannot be written: No such file or directory", tmp_path, "csv", tmp_path / "absent" / "x.csv")


def test_a_failed_export_leaves_the_old_file(tmp_path, monkeypatch):
    run(tmp_path, range(1, 21))
    out = tmp_path / "t.csv"
    out.write_text("old")

    def fsync(fd):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(CheckpointError, match=r"t\.csv: cannot be written: No space left on device"):
            export(tmp_path, "csv", out)
    (tmp_path / "labels" / "seg-000000010-000000018.h5").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"seg-000000010-000000018\.h5: damaged"):
        export(tmp_path, "labels", out)
    assert out.read_text() == "old" and not list(tmp_path.glob("*.tmp"))
