"""Typed tables: what is written comes back, what is damaged is refused, nothing half-written gets the final name."""

import os
import socket
import subprocess
import sys
import textwrap

import h5py
import numpy as np
import pytest

from mpibayes.errors import CheckpointError, ConfigError, DataError
from mpibayes.io.rows import SLICE_ROWS
from mpibayes.io.seal import append_seal
from mpibayes.io.table import Table, TableWriter, table_from_arrays, write_table


def mixed(n=1000, seed=0):
    rng = np.random.default_rng(seed)
    return table_from_arrays(
        [
            ("colour", "categorical", rng.integers(-1, 3, n), ["red", "grün", "blue"]),
            ("height", "real", np.where(rng.random(n) < 0.1, np.nan, rng.normal(5, 2, n)), None),
            ("visits", "count", rng.poisson(3, n).astype(float), None),
            ("alive", "boolean", rng.integers(0, 2, n), None),
            ("place", "categorical", rng.integers(-1, 300, n), [f"p{i:03d}" for i in range(300)]),
        ]
    )


def same(a, b):
    return all(np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in zip(vars(a).values(), vars(b).values()))


def test_round_trip(tmp_path):
    columns, rows = mixed()
    table = write_table(tmp_path / "t.h5", columns, rows, source={"names": ["a"]})
    opened = Table.open(tmp_path / "t.h5")
    assert opened.columns == table.columns == columns
    assert opened.fingerprint == table.fingerprint and opened.source == {"names": ["a"]}
    assert same(opened.read(), rows)
    assert same(opened.read(10, 700), rows.take(slice(10, 700)))
    assert len(opened.read(5, 5)) == 0
    assert [c.block for c in columns] == ["codes8", "reals", "tallies", "codes8", "codes16"]
    assert opened.read(0, 3).codes8.flags.c_contiguous and opened.read(0, 3).tallies.dtype == np.float64
    with pytest.raises(IndexError):
        opened.read(0, 1001)


def test_file_follows_the_written_format(tmp_path):
    columns, rows = mixed()
    write_table(tmp_path / "t.h5", columns, rows)
    with h5py.File(tmp_path / "t.h5") as file:
        assert file.attrs["format"] == "mpibayes-table" and file.attrs["version"] == 2 and file.attrs["n_rows"] == 1000
        assert len(file.attrs["fingerprint"]) == 64
        assert file["codes8"].chunks is None and file["reals"].shape == (1000, 1)
        assert file["levels/0"].asstr()[:].tolist() == ["red", "grün", "blue"]


def test_summaries_do_not_depend_on_the_batches(tmp_path):
    columns, rows = mixed(SLICE_ROWS + 1234)
    whole = write_table(tmp_path / "a.h5", columns, rows)
    with TableWriter(tmp_path / "b.h5", columns, len(rows)) as writer:
        for start in range(0, len(rows), 7001):
            writer.write(rows.take(slice(start, start + 7001)))
    assert writer.table.columns == whole.columns and writer.table.fingerprint == whole.fingerprint
    x = rows.reals[:, 0]
    assert whole.columns[1].center == pytest.approx(np.nanmean(x), rel=1e-12)
    assert whole.columns[1].scale == pytest.approx(np.nanstd(x), rel=1e-12)
    assert (whole.columns[1].minimum, whole.columns[1].maximum) == (np.nanmin(x), np.nanmax(x))
    assert whole.columns[1].n_missing == np.isnan(x).sum()
    assert whole.columns[0].n_missing == (rows.codes8[:, 0] == 3).sum()


def test_fingerprint_tells_tables_apart(tmp_path):
    columns, rows = mixed()
    first = write_table(tmp_path / "a.h5", columns, rows).fingerprint
    rows.codes8[500, 0] = 1 - rows.codes8[500, 0] % 2
    assert write_table(tmp_path / "b.h5", columns, rows).fingerprint != first


def test_the_most_levels_and_constant_reals(tmp_path):
    levels = [str(i) for i in range(65_535)]
    codes = np.array([-1, 65_534, 0])
    columns, rows = table_from_arrays([("c", "categorical", codes, levels), ("r", "real", [2.0, 2, 2], None)])
    assert rows.codes16[:, 0].tolist() == [65_535, 65_534, 0] and columns[1].scale == 1.0
    assert Table.open(write_table(tmp_path / "t.h5", columns, rows).path).columns[0].levels == tuple(levels)
    with pytest.raises(DataError, match=r"70,000 levels.*65,535.*ignored"):
        table_from_arrays([("c", "categorical", np.arange(70_000), None)])


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (("x", "categorical", [0, 3], ["a", "b"]), "codes from -1"),
        (("x", "count", [1.0, -1.0], None), "non-negative integer"),
        (("x", "count", [1.0, 0.5], None), "non-negative integer"),
        (("x", "real", [1.0, np.inf], None), "infinite"),
        (("x", "boolean", [0, 1], ["a", "b", "c"]), "two levels"),
        (("x", "categorical", [0, 1], ["a", "a"]), "twice"),
        (("x", "colour", [0, 1], None), "unknown kind"),
    ],
)
def test_arrays_that_do_not_fit(column, message):
    with pytest.raises(DataError, match=message) as error:
        table_from_arrays([column])
    assert "'x'" in str(error.value) and error.value.exit_code == 3


def damage(tmp_path, change):
    columns, rows = mixed()
    path = write_table(tmp_path / "t.h5", columns, rows).path
    with h5py.File(path, "r+") as file:
        change(file)
    with open(path, "r+b") as file:  # h5py drops the checksums when it changes a file
        append_seal(file)
    return path


def test_a_table_without_its_checksums_is_refused(tmp_path):
    columns, rows = mixed()
    path = write_table(tmp_path / "t.h5", columns, rows).path
    with h5py.File(path, "r+") as file:
        file.attrs["n_rows"] = 999
    with pytest.raises(DataError, match="changed since its import"):
        Table.open(path)


def _replace(name, data):
    def change(file):
        del file[name]
        file[name] = data

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.attrs.__setitem__("version", 1), "table version 1; this program reads version 2"),
        (lambda f: f.attrs.__setitem__("format", "other"), "no mpibayes table"),
        (lambda f: f.attrs.__delitem__("format"), "no mpibayes table"),
        (lambda f: f.attrs.__setitem__("n_rows", 0), "no rows"),
        (lambda f: f.attrs.__setitem__("n_rows", 999), "inconsistent"),
        (lambda f: f.__delitem__("reals"), "inconsistent"),
        (_replace("codes8", np.zeros((1000, 1), np.uint8)), "inconsistent"),
        (_replace("tallies", np.zeros((1000, 1), np.float32)), "inconsistent"),
        (lambda f: f.__delitem__("levels"), "damaged"),
        (lambda f: f.__delitem__("columns"), "damaged"),
    ],
)
def test_wrong_tables_are_refused(tmp_path, change, message):
    path = damage(tmp_path, change)
    with pytest.raises(DataError, match=message) as error:
        Table.open(path)
    assert str(path) in str(error.value) and error.value.exit_code == 3


def test_codes_beyond_their_levels_are_noticed(tmp_path):
    path = damage(tmp_path, lambda f: f["codes8"].__setitem__((3, 0), 200))
    with pytest.raises(DataError, match="damaged"):
        Table.open(path).read(0, 10)


@pytest.mark.parametrize("size", [0, 5, 100, 2000, 0.5, 0.999])
def test_truncated_files_are_refused(tmp_path, size):
    columns, rows = mixed()
    path = write_table(tmp_path / "t.h5", columns, rows).path
    raw = path.read_bytes()
    path.write_bytes(raw[: size if isinstance(size, int) else int(size * len(raw))])
    with pytest.raises(DataError, match="truncated" if size and size != 5 else "not an HDF5 file"):
        Table.open(path)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="no such file"):
        Table.open(tmp_path / "none.h5")
    with pytest.raises(DataError, match="is a directory"):
        Table.open(tmp_path)
    with pytest.raises(DataError, match=r"not an HDF5 file.*mpibayes import"):
        Table.open(tmp_path / "a.csv")


def test_replaced_table_is_noticed(tmp_path):
    table = write_table(tmp_path / "t.h5", *mixed(seed=1))
    write_table(tmp_path / "t.h5", *mixed(seed=2), overwrite=True)
    with pytest.raises(DataError, match="replaced"):
        table.read(0, 10)


def test_nothing_is_overwritten_unasked(tmp_path):
    path = tmp_path / "t.h5"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="exists and is kept") as error:
        write_table(path, *mixed())
    assert error.value.exit_code == 2 and path.read_text() == "mine" and os.listdir(tmp_path) == ["t.h5"]


def test_a_failed_write_leaves_what_was_there(tmp_path):
    columns, rows = mixed()
    path = tmp_path / "t.h5"
    before = write_table(path, columns, rows).fingerprint
    with pytest.raises(RuntimeError), TableWriter(path, columns, len(rows), overwrite=True) as writer:
        writer.write(rows.take(slice(0, 10)))
        raise RuntimeError
    short = pytest.raises(DataError, match="10 rows instead of the 1,000")
    with short, TableWriter(path, columns, 1000, overwrite=True) as writer:
        writer.write(rows.take(slice(0, 10)))
    assert Table.open(path).fingerprint == before and os.listdir(tmp_path) == ["t.h5"]


def test_unwritable_places(tmp_path):
    with pytest.raises(DataError, match="no directory"):
        write_table(tmp_path / "none" / "t.h5", *mixed())
    with pytest.raises(ConfigError, match="is a directory"):
        write_table(tmp_path, *mixed())


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="the superuser may write anywhere")
def test_no_permission(tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o500)
    with pytest.raises(DataError, match="no permission"):
        write_table(folder / "t.h5", *mixed())
    folder.chmod(0o700)


FULL = """
    import resource, sys
    import numpy as np
    from mpibayes.errors import CheckpointError
    from mpibayes.io.table import table_from_arrays, write_table
    columns, rows = table_from_arrays([("x", "real", np.zeros({n}), None)])
    resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
    try:
        write_table({path!r}, columns, rows, overwrite=True)
    except CheckpointError as error:
        print(error)
        sys.exit(error.exit_code)
"""


@pytest.mark.quick("1024", "8000100")
@pytest.mark.parametrize("limit", [1024, 100_000, 8_000_100, 8_002_500])
def test_a_disk_that_fills_up(tmp_path, limit):
    """A limit on the size of files stands in for a full disk: a write fails at the start, amid, and at the end, where
    the HDF5 library writes what it has kept in memory."""
    pytest.importorskip("resource")
    path = tmp_path / "t.h5"
    before = write_table(path, *mixed()).fingerprint
    code = textwrap.dedent(FULL).format(n=1_000_000, limit=limit, path=str(path))
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 4 and not result.stderr, result
    words = f"{path}: cannot be written: File too large (a file may have {limit:,} bytes here: ulimit -f)"
    assert words in result.stdout and result.stdout.count("\n") == 1
    assert Table.open(path).fingerprint == before and os.listdir(tmp_path) == ["t.h5"]


def test_space_is_looked_at_first(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    with pytest.raises(CheckpointError, match="MB of disk"):
        write_table(tmp_path / "t.h5", *mixed())
    assert os.listdir(tmp_path) == []


def test_what_a_killed_import_left_is_removed(tmp_path):
    """By a later one, a day after. What another process may be writing now, here or in another container of the same
    host name and process ids, is left alone, and so is what has another form."""
    dead, alive = tmp_path / f"t.h5.{'0a' * 8}.tmp", tmp_path / f"t.h5.{'1b' * 8}.tmp"
    container = tmp_path / f"t.h5.{socket.gethostname()}-{2**22 + 1}.tmp"
    others = [tmp_path / name for name in (f"u.h5.{'0a' * 8}.tmp", "t.h5.mine.tmp", f".t.h5.{'0a' * 8}.tmp")]
    folder = tmp_path / f"t.h5.{'2c' * 8}.tmp"
    folder.mkdir()
    for path in (dead, alive, container, *others):
        path.write_bytes(b"half a table")
    for path in (dead, folder, *others):
        os.utime(path, (0, 0))
    columns, rows = mixed()
    write_table(tmp_path / "t.h5", columns, rows)
    assert not dead.exists() and all(path.exists() for path in (alive, container, folder, *others))


def test_every_flipped_byte_is_noticed(tmp_path):
    """Flip bits in the data, in the names of levels, in HDF5's own tables of contents, and in the checksums."""
    columns, rows = table_from_arrays(
        [("c", "categorical", [0, 1, -1] * 9, ["a", "b"]), ("x", "real", [0.5] * 27, None)]
    )
    whole = write_table(tmp_path / "t.h5", columns, rows).path.read_bytes()
    for place in range(0, len(whole), 37):
        path = tmp_path / f"{place}.h5"
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with pytest.raises(DataError, match=path.name):
            Table.open(path).read()
        path.unlink()
