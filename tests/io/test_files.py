"""Files that are opened, made and replaced whatever lies in their place."""

import os
import socket
import stat

import numpy as np
import pytest

from mpibayes.errors import ConfigError, DataError
from mpibayes.io import checkpoint, files, generations
from mpibayes.io.files import make_directory, open_regular, read_regular, reason, set_aside
from mpibayes.io.segments import Segments
from mpibayes.io.table import Table, table_from_arrays, write_table


def put(path, kind):
    """Make something at `path` that is no regular file."""
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        with socket.socket(socket.AF_UNIX) as listener:
            before = os.getcwd()
            os.chdir(path.parent)  # the whole path may be too long for a socket
            try:
                listener.bind(path.name)
            finally:
                os.chdir(before)


KINDS = pytest.mark.parametrize("kind", ["FIFO", "device", "socket"])


@KINDS
@pytest.mark.parametrize("mode", ["rb", "ab"])
@pytest.mark.timeout(20)
def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path, kind, mode):
    put(tmp_path / "file", kind)
    with pytest.raises(OSError) as caught:
        open_regular(tmp_path / "file", mode)
    assert reason(caught.value) == "not a regular file"


def test_other_reasons_are_as_usual(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "file")
    with pytest.raises(IsADirectoryError):
        read_regular(tmp_path)
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link") == b"abc"
    with open_regular(tmp_path / "file", "a", encoding="utf-8") as file:
        file.write("d")
        assert os.get_blocking(file.fileno()) and not os.get_inheritable(file.fileno())
    assert read_regular(tmp_path / "file") == b"abcd"


@pytest.mark.timeout(20)
def test_a_pipe_where_one_will_do(tmp_path):
    """A FIFO, as from a shell's <(...), whose writer is late is not an empty file."""
    from mpibayes.hpc.config.load import load
    from mpibayes.io.ingest import import_table
    from mpibayes.io.schema import read_schema

    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    (tmp_path / "data.csv").write_text("1,2\n")
    for read in (
        load,
        read_schema,
        lambda path: import_table(tmp_path / "data.csv", tmp_path / "t.h5", names=path),
    ):
        with pytest.raises(ConfigError, match=r"fifo: .*: a pipe without a writer; start the writer first$"):
            read(fifo)
    ours, theirs = os.pipe()
    os.write(theirs, b"run.seed = 3\n")
    os.close(theirs)
    assert read_regular(f"/dev/fd/{ours}", pipe=True) == b"run.seed = 3\n"
    os.close(ours)


@KINDS
@pytest.mark.timeout(20)
def test_tables_and_sources_are_regular_files(tmp_path, kind):
    from mpibayes.io.source import TextSource

    put(tmp_path / "table.h5", kind)
    with pytest.raises(DataError, match=r"table\.h5: cannot be read: not a regular file"):
        Table.open(tmp_path / "table.h5")
    with pytest.raises(DataError, match=r"table\.h5: cannot be read: not a regular file"):
        TextSource([tmp_path / "table.h5"])


@pytest.mark.timeout(20)
def test_a_configuration_may_be_a_pipe_but_nothing_else(tmp_path):
    from mpibayes.hpc.config.load import load

    put(tmp_path / "socket.toml", "socket")
    with pytest.raises(ConfigError, match=r"socket\.toml: cannot be read: not a regular file"):
        load(tmp_path / "socket.toml")
    ours, theirs = os.pipe()
    os.write(theirs, b'data.table = "table.h5"\n')
    os.close(theirs)
    assert load(f"/dev/fd/{ours}").data.table == "table.h5"
    os.close(ours)


# --- temporary files --------------------------------------------------------------------------------------------------


def segment(folder):
    Segments(folder / "trace", "f", 1).write({"cycle": np.arange(1, 4)})


def generation(folder):
    draft = checkpoint.begin(folder, 3)
    part = checkpoint.write_part(draft, 0, {0: {"z": np.zeros(3)}})
    checkpoint.commit(draft, [part], {})


def table(folder):
    write_table(folder / "table.h5", *table_from_arrays([("x", "real", np.zeros(3), None)]), overwrite=True)


# How a file is written, its name, and those of the temporary one that somebody could guess.
WRITTEN = {
    "segment": (segment, "trace/seg-000000001-000000003.h5", "trace/seg-000000001-000000003.h5.0badcafe0badcafe.tmp"),
    "table": (table, "table.h5", f"table.h5.{'0badcafe' * 2}.tmp"),
    "generation": (generation, "000000003/shared.h5", "000000003-0badcafe.tmp"),
}


@pytest.mark.parametrize("kind", WRITTEN)
@pytest.mark.parametrize("there", ["link", "dangling link", "hard link", "left over", "nothing"])
@pytest.mark.timeout(20)
def test_what_has_a_temporary_name_is_not_written_to(tmp_path, kind, there):
    """Whoever may write in the folder could have another file of ours overwritten, or made."""
    write, name, temporary = WRITTEN[kind]
    temporary, victim = tmp_path / "folder" / temporary, tmp_path / "victim"
    temporary.parent.mkdir(parents=True)
    victim.write_text("the user's")
    if "link" in there:
        if there == "hard link":
            os.link(victim, temporary)
        else:
            temporary.symlink_to(victim if there == "link" else tmp_path / "made")
    elif there == "left over":
        temporary.write_text("half")
    if os.path.lexists(temporary):
        os.utime(temporary, (0, 0), follow_symlinks=False)  # a table's is removed when it is old
    before = os.umask(0o027)
    try:
        write(tmp_path / "folder")
    finally:
        os.umask(before)
    assert victim.read_text() == "the user's" and not (tmp_path / "made").exists()
    made = tmp_path / "folder" / name
    assert made.is_file() and not made.is_symlink() and stat.S_IMODE(made.stat().st_mode) == 0o640
    assert not [path for path in (tmp_path / "folder").rglob("*") if "tmp" in path.name]


def test_a_link_in_a_generation_is_not_written_to(tmp_path):
    """Put there while its parts are written."""
    (tmp_path / "victim").write_text("the user's")
    folder = checkpoint.begin(tmp_path / "checkpoints", 3)
    for name in ("part-00000.h5", generations.SHARED, generations.MANIFEST):
        (folder / name).symlink_to(tmp_path / "victim")
    part = checkpoint.write_part(folder, 0, {0: {"z": np.zeros(3)}})
    checkpoint.commit(folder, [part], {})
    assert (tmp_path / "victim").read_text() == "the user's"
    assert generations.latest(tmp_path / "checkpoints").warnings == []


def test_setting_aside_replaces_nothing(tmp_path):
    (tmp_path / "script").write_text("mine")
    (tmp_path / "script.old-1").symlink_to("nowhere")
    assert set_aside(tmp_path / "script").name == "script.old-2" and (tmp_path / "script.old-1").is_symlink()


# --- directories ------------------------------------------------------------------------------------------------------


def test_a_directory_is_on_disk_in_its_parent(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(files, "sync_directory", lambda path: synced.append(path))
    make_directory(tmp_path / "a" / "b" / "c")
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"] and (tmp_path / "a" / "b" / "c").is_dir()
    make_directory(tmp_path / "a" / "b")
    assert len(synced) == 3
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError):
        make_directory(tmp_path / "file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everywhere")
def test_a_directory_in_one_that_may_not_be_read(tmp_path):
    tmp_path.chmod(0o300)
    try:
        make_directory(tmp_path / "a")
    finally:
        tmp_path.chmod(0o700)
