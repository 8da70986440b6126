"""Import: every kind of bad input with its one message, which leaves nothing behind."""

import gzip
import hashlib
import io
import lzma
import os
import subprocess
import sys
import textwrap
import time

import pyarrow as pa
import pyarrow.parquet
import pytest

from mpibayes.errors import ConfigError, DataError
from mpibayes.io import csv_rows, dialect
from mpibayes.io.ingest import import_table
from mpibayes.io.source import TextSource
from tests.io.importing import PEOPLE, put, refused, run


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (None, {}, "data.csv: no such file"),
        ("", {}, "is empty"),
        ("\n\n", {}, "is empty"),
        (gzip.compress(b""), {}, "is empty"),
        ("a,b\n", {"header": True}, "has no rows below its header"),
        ("a,b,a\n1,2,3\n", {}, "duplicate column names"),
        ("a,b\n1,2\n3\n4,5\n", {}, "row 2 (line 3): 1 field, expected 2: '3'"),
        ("a,b\n1,2\n\n3,4,5\n", {"header": True}, "row 2 (line 4): 3 fields, expected 2: '3,4,5'"),
        ('a,b\n"x\ny",2\n3,4,5\n', {"delimiter": ","}, "row 2 (line 4): 3 fields, expected 2"),
        ("a,b\n1,2\n3\n4,5,6\n" + "7\n" * 50, {"delimiter": ","}, "(the first ones)"),
        (b"a,b\n1,x\n2,\xff\xfe\n3,y\n", {}, "not UTF-8: byte 0xff on line 3 (byte offset 10)"),
        (b"a,b\n" + b"1,x\n" * 400_000 + b"2,\xe9t\xe9\n", {}, "byte 0xe9 on line 400,002 (byte offset 1,600,006)"),
        (b"a\0\0b,c\n1\0,2\n", {}, "NUL"),
        ("a,b\n1,2\n".encode("utf-16-le"), {}, "UTF-16"),
        (b"\x89HDF\r\n\x1a\n123", {}, "HDF5"),
        (b"PK\x03\x04123456", {}, "zip archive that is damaged"),
        (b"PAR1" + b"0" * 50, {}, "damaged Parquet"),
        (gzip.compress(PEOPLE.encode())[:-20], {}, "cannot be read"),
        (lzma.compress(PEOPLE.encode())[:-20], {}, "cannot be read"),
        (pa.compress(PEOPLE.encode() * 9, "zstd", asbytes=True)[:-9], {}, "cannot be read"),
        ("a,b\nx,\nx,\n", {}, "no column is left"),
    ],
)  # fmt: skip
def test_bad_files(tmp_path, content, options, message):
    text = refused(tmp_path, content, **options)
    assert message in text and "data.csv" in text and "Traceback" not in text


def test_an_open_quote(tmp_path, monkeypatch):
    monkeypatch.setattr(dialect, "BLOCK_BYTES", 1 << 16)
    message = refused(tmp_path, "a,b\n1,2\n" + '3,"open\n' + "5,6\n" * 100_000)
    assert "row 2 (line 3): a quote is left open" in message


def test_directory_and_bad_options(tmp_path):
    with pytest.raises(DataError, match="is a directory"):
        import_table(tmp_path, tmp_path / "t.h5")
    for encoding in ("latin-99", "rot13", "zip", "idna", "undefined", "unicode_escape", "a\0b"):
        assert "no such text encoding" in refused(tmp_path, PEOPLE, ConfigError, encoding=encoding)
    assert "one ASCII character" in refused(tmp_path, PEOPLE, ConfigError, delimiter="::")
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match="no directory"):
        import_table(tmp_path / "data.csv", tmp_path / "none" / "t.h5")


def test_what_exists_is_kept(tmp_path):
    run(tmp_path, PEOPLE)
    before = (tmp_path / "out.h5").read_bytes()
    with pytest.raises(ConfigError, match="exists and is kept"):
        run(tmp_path, PEOPLE)
    with pytest.raises(DataError, match="row 5"):  # an import that fails after it was allowed to overwrite
        run(tmp_path, PEOPLE + "x\n", overwrite=True)
    assert (tmp_path / "out.h5").read_bytes() == before
    with pytest.raises(ConfigError, match="a typed table is HDF5"):  # the name of the table was forgotten
        import_table(tmp_path / "data.csv", tmp_path / "more.csv")
    (tmp_path / "text.h5").write_text(PEOPLE)
    with pytest.raises(ConfigError, match="both read and written"):
        import_table(tmp_path / "text.h5", tmp_path / "text.h5", overwrite=True)
    (tmp_path / "s.toml").write_text("mine")
    with pytest.raises(ConfigError, match="exists and is kept"):
        import_table(tmp_path / "data.csv", tmp_path / "new.h5", write_schema=tmp_path / "s.toml")
    assert not (tmp_path / "new.h5").exists() and (tmp_path / "s.toml").read_text() == "mine"


def test_a_source_that_changes_while_it_is_read(tmp_path):
    path = put(tmp_path, "a,b\n1.5,x\n2.5,y\n" * 1)

    def grow(phase, rows, share):
        if phase == "reading":
            path.write_text("a,b\n1.5,x\n2.5,y\n3.5,x\n")

    with pytest.raises(DataError, match="did the source change"):
        import_table(path, tmp_path / "t.h5", progress=grow)
    assert os.listdir(tmp_path) == ["data.csv"]


@pytest.mark.parametrize("phase", ["reading", "writing"])
def test_a_file_that_changes_without_growing(tmp_path, phase):
    """Profile, table and hash are of one content, or there is no table."""
    path = put(tmp_path, "a,b\n1.5,x\n2.5,y\n" * 1)

    def change(at, rows, share):
        if at == phase:
            path.write_text("a,b\n1.5,y\n2.5,x\n")

    with pytest.raises(DataError, match=r"data\.csv: changed while it was read"):
        import_table(path, tmp_path / "t.h5", progress=change)
    assert os.listdir(tmp_path) == ["data.csv"]


def test_the_hash_is_of_what_was_read(tmp_path):
    path = put(tmp_path, "a,b\n1.5,x\n2.5,y\n")
    summary = import_table(path, tmp_path / "t.h5", hashed=True)
    assert summary.sha256 == (hashlib.sha256(path.read_bytes()).hexdigest(),)


def test_a_full_disk(tmp_path):
    pytest.importorskip("resource")
    path = put(tmp_path, "a,b\n" + "".join(f"{i * 0.5},{i % 3}\n" for i in range(50_000)))
    code = """
        import resource, sys
        from mpibayes.errors import CheckpointError
        from mpibayes.io.ingest import import_table
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            import_table(sys.argv[1], sys.argv[2])
        except CheckpointError as error:
            print(error)
            sys.exit(error.exit_code)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(path), str(tmp_path / "t.h5")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 4 and "cannot be written: File too large" in result.stdout, result
    assert os.listdir(tmp_path) == ["data.csv"]


@pytest.mark.parametrize("ragged", [False, True])
def test_nothing_is_read_after_rows_are_let_go(tmp_path, monkeypatch, ragged):
    """A thread that still read them while Python exits would end the program with abort()."""
    path = put(tmp_path, "a,b\n1,2\n" + ("3\n" if ragged else "3,4\n") + "5,6\n" * 50_000)
    reads = []

    class Slow:
        closed = False

        def __init__(self, raw):
            self.content = io.BytesIO(raw.read())

        def read(self, _):
            time.sleep(0.002)
            reads.append(self.content.tell())
            return self.content.read(1000)

        def close(self):
            pass

    source = TextSource(path)
    monkeypatch.setattr(csv_rows, "MAX_PROBLEMS", 1)
    monkeypatch.setattr(csv_rows, "decompressed", Slow)
    if ragged:
        with pytest.raises(DataError, match="1 field"):
            next(source.batches())
    else:
        batches = source.batches()
        next(batches)
        batches.close()
    n = len(reads)
    time.sleep(0.1)
    assert len(reads) == n > 0
