"""HDF5 files that point elsewhere are refused by the name of what does, wherever one is opened; nothing is followed.

Where another file is named, that is a FIFO: whoever opens it waits for ever.
"""

import hashlib
import json
import os

import h5py
import numpy as np
import pytest

from mpibayes.errors import CheckpointError, DataError
from mpibayes.hpc.cli import main
from mpibayes.io import checkpoint, generations
from mpibayes.io.h5 import reading_h5, writing_h5
from mpibayes.io.seal import append_seal
from mpibayes.io.segments import Segments, list_segments, read_attributes, read_blocks
from mpibayes.io.sparse import SparseRows, SparseTable
from mpibayes.io.table import Table, table_from_arrays, write_table
from mpibayes.io.tables import is_sparse
from tests.sparse_tables import write_sparse

pytestmark = pytest.mark.timeout(30)


def external_link(file, name, elsewhere):
    del file[name]
    file[name] = h5py.ExternalLink(elsewhere, f"/{name}")


def link_by_name(file, name, elsewhere):
    file.move(name, "aside")
    file[name] = h5py.SoftLink("/aside")


def virtual(file, name, elsewhere):
    shape, dtype = file[name].shape, file[name].dtype
    del file[name]
    layout = h5py.VirtualLayout(shape, dtype)
    layout[...] = h5py.VirtualSource(elsewhere, name, shape)
    file.create_virtual_dataset(name, layout)


def external_storage(file, name, elsewhere):
    shape, dtype = file[name].shape, file[name].dtype
    size = int(np.prod(shape)) * dtype.itemsize
    del file[name]
    file.create_dataset(name, shape, dtype, external=[(elsewhere, 0, size)])


def foreign_filter(file, name, elsewhere):
    values = file[name][()]
    del file[name]
    file.create_dataset(name, data=values, chunks=True, compression="lzf")


CRAFTED = {
    external_link: "is a link to another file, ",
    link_by_name: "is a link by name",
    virtual: "is put together of other files, ",
    external_storage: "has its values in another file, ",
    foreign_filter: "needs the filter 32000",
}
crafted = pytest.mark.parametrize("craft", CRAFTED, ids=lambda craft: craft.__name__)


def make_crafted(path, craft, name, sealed=True):
    """Change a dataset of a file, which then has a right seal."""
    os.mkfifo(elsewhere := path.with_name("elsewhere.h5"))
    with h5py.File(path, "r+", locking=False) as file:
        craft(file, name, str(elsewhere))
        file.flush()
    if sealed:
        with path.open("r+b") as file:
            append_seal(file)


def typed(folder):
    columns = [("x", "real", np.arange(9.0), None), ("c", "categorical", [0, 1, -1] * 3, ["a", "b"])]
    return write_table(folder / "table.h5", *table_from_arrays(columns)).path


# A filter takes chunks, and external storage a fixed length.
OF_A_TABLE = [(craft, "reals") for craft in CRAFTED] + [
    *((craft, name) for craft in (external_link, link_by_name, virtual) for name in ("levels/1", "columns")),
    (foreign_filter, "levels/1"),
]


@pytest.mark.parametrize("craft, name", OF_A_TABLE)
def test_a_typed_table(tmp_path, craft, name):
    path = typed(tmp_path)
    make_crafted(path, craft, name)
    for look in (Table.open, is_sparse):
        with pytest.raises(DataError, match=rf"table\.h5: refused: '/{name}' {CRAFTED[craft]}"):
            look(path)


@crafted
def test_a_sparse_table(tmp_path, craft):
    rows = SparseRows(np.array([0, 1, 3]), np.array([0, 0, 1]), np.array([1.0, 2.0, 1.0]))
    path = write_sparse(tmp_path / "s.h5", rows, 2).path
    make_crafted(path, craft, "values")
    with pytest.raises(DataError, match=rf"s\.h5: refused: '/values' {CRAFTED[craft]}"):
        SparseTable.open(path)


@crafted
def test_a_segment(tmp_path, craft):
    Segments(tmp_path / "trace", "f", 1).write({"cycle": np.arange(1, 9), "x": np.arange(8.0)})
    make_crafted(list_segments(tmp_path / "trace")[0].path, craft, "x")
    for look in (lambda: list(read_blocks(tmp_path / "trace")), lambda: read_attributes(tmp_path / "trace")):
        with pytest.raises(CheckpointError, match=rf"seg-.*\.h5: refused: '/x' {CRAFTED[craft]}"):
            look()


@crafted
def test_a_checkpoint(tmp_path, craft):
    draft = checkpoint.begin(tmp_path / "checkpoints", 3)
    part = checkpoint.write_part(draft, 0, {0: {"z": np.zeros(3)}})
    place = checkpoint.commit(draft, [part], {"a": np.arange(4.0)})
    make_crafted(place / generations.SHARED, craft, "arrays/a", sealed=False)
    manifest = json.loads((place / generations.MANIFEST).read_text())
    content = (place / generations.SHARED).read_bytes()
    manifest["shared"] |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest["sha256"] = generations.manifest_sum(manifest)
    (place / generations.MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=rf"shared\.h5: refused: '/arrays/a' {CRAFTED[craft]}"):
        generations.latest(tmp_path / "checkpoints").shared()


def test_what_has_all_in_itself_is_read(tmp_path):
    """Hard links, even in a circle, and the filters that are written."""
    path = tmp_path / "own.h5"
    with h5py.File(path, "w") as file:
        group = file.create_group("a/b")
        group["circle"] = file["a"]
        group.create_dataset("x", data=np.arange(99), compression="gzip", shuffle=True, fletcher32=True)
        file["again"] = group["x"]
    with reading_h5(path) as file:
        assert (file["again"][()] == np.arange(99)).all()


def test_a_file_that_changes_is_looked_at_again(tmp_path):
    path = typed(tmp_path)
    Table.open(path)
    make_crafted(path, external_link, "reals")
    with pytest.raises(DataError, match="refused"):
        Table.open(path)


@pytest.mark.parametrize("craft", [external_link, virtual, external_storage], ids=lambda craft: craft.__name__)
def test_the_command_refuses_it(tmp_path, craft, capsys):
    path = typed(tmp_path)
    make_crafted(path, craft, "reals")
    (tmp_path / "run.toml").write_text('[data]\ntable = "table.h5"\n')
    assert main(["check", str(tmp_path / "run.toml")]) == 3
    assert f"table.h5: refused: '/reals' {CRAFTED[craft]}" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["fifo", "device", "folder"])
def test_no_file_at_all(tmp_path, kind, capsys):
    """A FIFO or a device in place of a table is refused, and not waited for."""
    path = tmp_path / "table.h5"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/full")
    else:
        path.mkdir()
    (tmp_path / "run.toml").write_text('[data]\ntable = "table.h5"\n')
    assert main(["check", str(tmp_path / "run.toml")]) == 3
    text = capsys.readouterr().err
    assert ("is a directory" if kind == "folder" else "not a regular file") in text, text


@pytest.mark.quick(every=4)
@pytest.mark.parametrize("room", range(0, 4000, 97))
def test_what_a_full_disk_did_not_take_is_read_back(tmp_path, monkeypatch, room):
    """HDF5 reads its own structures while it writes: with other bytes there it ends the process."""
    taken, pwrite = 0, os.pwrite

    def full(fd, data, at):
        nonlocal taken
        if taken + len(data) > room:
            raise OSError(28, "No space left on device")
        taken += len(data)
        return pwrite(fd, data, at)

    monkeypatch.setattr(os, "pwrite", full)
    failing = pytest.raises(OSError, match="No space left")
    with open(tmp_path / "a.h5", "w+b") as file, failing, writing_h5(file) as (made, check):
        made.create_dataset("x", data=np.arange(1000))
        for i in range(20):
            made.create_dataset(f"levels/{i}", data=["a", "b"], dtype=h5py.string_dtype())
            made.flush()
            assert made[f"levels/{i}"].asstr()[:].tolist() == ["a", "b"] and made["x"][999] == 999
        check()
