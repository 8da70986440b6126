"""Files that are opened, made and replaced whatever lies in their place."""

import os
import socket

import pytest

from mpibayes.hpc.errors import ConfigError, DataError
from mpibayes.io.files import open_regular, read_regular, reason
from mpibayes.io.table import Table


def put(path, kind):
    """Something at `path` that is no regular file."""
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
    """As from a shell's <(...); a FIFO that nobody writes to is empty."""
    os.mkfifo(tmp_path / "fifo")
    assert read_regular(tmp_path / "fifo", pipe=True) == b""
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
    from mpibayes.hpc import config

    put(tmp_path / "socket.toml", "socket")
    with pytest.raises(ConfigError, match=r"socket\.toml: cannot be read: not a regular file"):
        config.load(tmp_path / "socket.toml")
    ours, theirs = os.pipe()
    os.write(theirs, b'data.table = "table.h5"\n')
    os.close(theirs)
    assert config.load(f"/dev/fd/{ours}").data.table == "table.h5"
    os.close(ours)
