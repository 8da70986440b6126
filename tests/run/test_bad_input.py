"""Bad input to `mpibayes run`, on one rank and on several: one clear message, the documented exit code, none lost."""

import os

import h5py
import numpy as np
import pytest

from mpibayes.errors import ConfigError
from mpibayes.hpc.crosscat.start.labels import given_labels
from mpibayes.io.seal import append_seal
from mpibayes.io.table import Table, table_from_arrays, write_table
from tests.run.conftest import run

ON_SEVERAL = pytest.mark.parametrize("ranks", [1, 3])
RANKS = pytest.mark.parametrize("ranks", [1, pytest.param(3, marks=pytest.mark.thorough)])


def refused(done, code, *words):
    """One message with all the words, the code, and no traceback."""
    text = done.stdout + done.stderr
    assert done.returncode == code, text
    assert done.stderr.count("mpibayes: error:") == 1, text
    assert "Traceback" not in text and "BAD TERMINATION" not in text
    for word in words:
        assert word in done.stderr, (word, text)


@ON_SEVERAL
def test_missing_table(place, ranks):
    (place / "table.h5").unlink()
    refused(run(place, "out", ranks=ranks), 3, "table.h5", "no such file")
    assert not (place / "out").exists()


@RANKS
def test_not_hdf5(place, ranks):
    (place / "table.h5").write_text("a,b\n1,2\n")
    refused(run(place, "out", ranks=ranks), 3, "table.h5", "not an HDF5 file", "mpibayes import")


@RANKS
def test_truncated_hdf5(place, ranks):
    data = (place / "table.h5").read_bytes()
    (place / "table.h5").write_bytes(data[: len(data) // 2])
    refused(run(place, "out", ranks=ranks), 3, "table.h5", "truncated")


def test_another_hdf5_file(place):
    (place / "table.h5").unlink()
    with h5py.File(place / "table.h5", "w") as file:
        file["x"] = np.arange(3)
    refused(run(place, "out"), 3, "table.h5", "no mpibayes table")


def seal(path):
    """h5py drops the checksums when it changes a file: these are of what is there now."""
    with open(path, "r+b") as file:
        append_seal(file)


def test_wrong_table_version(place):
    with h5py.File(place / "table.h5", "r+") as file:
        file.attrs["version"] = 99
    seal(place / "table.h5")
    refused(run(place, "out"), 3, "table.h5", "version 99", "version 2")


@ON_SEVERAL
def test_a_slice_that_only_one_rank_finds_damaged(place, ranks):
    """A code beyond its column's levels in the last rows: the rank that reads them tells the others."""
    with h5py.File(place / "table.h5", "r+") as file:
        file["codes8"][-1, 0] = 200
    seal(place / "table.h5")
    refused(run(place, "out", ranks=ranks), 3, "table.h5", "damaged table")


@RANKS
def test_all_configuration_mistakes_at_once(place, ranks):
    words = ("--set", "run.cylces=5", "--set", "run.seed=x", "--set", "model.discount=1.5", "--set", "output.thin=0")
    done = run(place, "out", *words, ranks=ranks)
    refused(done, 2, "run.cylces", "run.cycles", "run.seed", "model.discount", "output.thin")


def test_an_annealed_start_that_does_not_fit(place):
    """Found before the run directory is made: fewer cycles than adding the rows takes."""
    anneal = ("--set", "sampler.strategy=anneal")
    done = run(place, "out", *anneal, "--set", "run.cycles=9", ranks=3)
    refused(done, 2, "run.cycles: got 9", "630 rows are added until cycle", "run.burn_in: got 4")
    assert not (place / "out").exists()


def test_a_column_that_the_table_does_not_have(place):
    refused(run(place, "out", "--set", "columns.c9.use=false"), 2, "c9")


@RANKS
def test_heldout_file_with_other_columns(place, ranks):
    columns = [("c0", "boolean", np.array([0, 1]), ["v0", "v1"]), ("other", "real", np.array([0.5, 1.0]), None)]
    write_table(place / "held.h5", *table_from_arrays(columns))
    done = run(place, "out", "--set", "data.heldout=held.h5", ranks=ranks)
    refused(done, 3, "held.h5", "c1", "x")


def heldout_with_unseen_level(place):
    table = Table.open(place / "table.h5")
    rows = table.read(0, 5)
    values = []
    for column in table.columns:
        cells = getattr(rows, column.block)[:, column.index]
        levels = None
        if column.levels:
            levels = list(column.levels)
            cells = np.where(cells == len(levels), -1, cells.astype(int))
        if column.name == "c3":
            levels[0] = "never-seen"
            cells[:] = 0
        values.append((column.name, column.kind, cells, levels))
    write_table(place / "held.h5", *table_from_arrays(values))


@RANKS
def test_heldout_file_with_unseen_levels(place, ranks):
    heldout_with_unseen_level(place)
    done = run(place, "out", "--set", "data.heldout=held.h5", ranks=ranks)
    refused(done, 3, "held.h5", "c3", "never-seen", "missing")
    allowed = ("--set", "data.heldout=held.h5", "--set", "data.unseen=missing", "--set", "run.cycles=3")
    done = run(place, "missing", *allowed, ranks=ranks)
    assert done.returncode == 0, done.stderr


def test_a_mistyped_path_can_be_corrected(place):
    """A run that could not start leaves nothing behind, so the corrected command is not refused."""
    words = ("--set", "run.cycles=3")
    refused(run(place, "out", *words, "--set", "data.heldout=hold.h5"), 3, "hold.h5")
    refused(
        run(place, "out", *words, "--set", "sampler.init=labels", "--set", "sampler.init_labels=no.txt"), 2, "no.txt"
    )
    assert not (place / "out").exists()
    assert run(place, "out", *words).returncode == 0


def test_a_heldout_file_that_changed(place):
    table = Table.open(place / "table.h5")
    words = ("--set", "data.heldout=held.h5", "--set", "run.cycles=3")
    write_table(place / "held.h5", table.columns, table.read(0, 50))
    assert run(place, "out", *words).returncode == 0
    (place / "held.h5").unlink()
    write_table(place / "held.h5", table.columns, table.read(5, 40))
    refused(run(place, "out", *words, "--set", "run.cycles=5"), 2, "data.heldout")


def test_a_table_of_one_row(place):
    (place / "table.h5").unlink()
    write_table(place / "table.h5", *table_from_arrays([("x", "real", np.array([1.5]), None)]))
    assert run(place, "out", "--set", "run.cycles=3", "--set", "run.burn_in=0").returncode == 0


def test_counts_whose_sum_is_not_exact(place):
    (place / "table.h5").unlink()
    cells = np.full(40, 2.0**50)
    write_table(
        place / "table.h5", *table_from_arrays([("huge", "count", cells, None), ("n", "count", np.arange(40.0), None)])
    )
    refused(run(place, "out", ranks=2), 2, "columns.huge", "with --kind huge=real --force, or set use")
    assert run(place, "out", "--set", "columns.huge.use=false", "--set", "run.cycles=2").returncode == 0


@RANKS
def test_output_that_cannot_be_written(place, ranks):
    (place / "file").write_text("not a folder")
    done = run(place, "file/out", ranks=ranks)
    refused(done, 2, "file/out", "cannot be written")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_output_without_permission(place):
    (place / "shut").mkdir(mode=0o500)
    refused(run(place, "shut/out"), 2, "shut/out", "cannot be written")


def test_a_run_needs_a_rank_count_that_mpi_agrees_with(place):
    """N lonely copies of one chain are detected before any work."""
    done = run(place, "out", env={"PMI_SIZE": "3", "MPI4PY_MPIABI": "mpich"}, timeout=60)
    assert done.returncode != 0 and not (place / "out").exists()


def test_labels_to_start_from(tmp_path):
    """A line of text or a NumPy array; anything else is refused in words."""
    labels = np.array([4, 0, 4, 2])
    np.save(tmp_path / "a.npy", labels.astype(np.uint16))
    (tmp_path / "a.txt").write_text("first\n4 0 4 2\n")
    np.save(tmp_path / "b.npy", labels + 0.5)
    (tmp_path / "c.npy").write_bytes(b"\x93NUMPY")
    (tmp_path / "c.txt").write_bytes(b"\x93")
    for name in ("a.npy", "a.txt"):
        given = given_labels(tmp_path / name, 4, 3, several=False)
        assert [z.tolist() for z in given.labels] == [[2, 0, 2, 1]] and given.view_of.tolist() == [0, 0, 0]
    for name, words in (
        ("a.npy", "4 labels, expected 5"),
        ("b.npy", "whole numbers"),
        ("c.npy", "whole numbers"),
        ("c.txt", "whole numbers"),
        ("d.txt", "No such file"),
    ):
        with pytest.raises(ConfigError, match=words):
            given_labels(tmp_path / name, 5, 3, several=False)
