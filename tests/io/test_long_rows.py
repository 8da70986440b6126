"""CSV files whose header or rows are longer than what is looked at first, or than a block that is read at once."""

import gzip
import io
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from mpibayes.errors import DataError
from mpibayes.io import csv_rows, dialect
from mpibayes.io.asked_columns import empty_profiles
from mpibayes.io.ingest import import_table
from mpibayes.io.schema import read_schema
from mpibayes.io.source import TextSource
from mpibayes.io.summary import print_summary
from mpibayes.terminal import Console
from tests.io.importing import imported

LONG = "ä" * 3000


def text(n_columns, n_rows, delimiter=",", end="\n", name='"column\n{} {}"'):
    """A header beyond 256 KiB for 100 columns, with line breaks in it."""
    lines = [delimiter.join(name.format(i, LONG) for i in range(n_columns))]
    lines += [delimiter.join(str((7 * i + 3 * r) % 11 + 0.5) for i in range(n_columns)) for r in range(n_rows)]
    return "\n".join(lines) + end


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", ""])
def test_a_header_longer_than_the_sample(tmp_path, delimiter, end):
    content = text(100, 12, delimiter, end)
    assert content.index("0.5") > dialect.SAMPLE_BYTES
    summary = imported(tmp_path, content)
    assert summary.rows == 12 and [c.name for c in summary.columns] == [f"column\n{i} {LONG}" for i in range(100)]
    table = summary.table.read()
    assert table.reals[3].tolist() == [(7 * i + 9) % 11 + 0.5 for i in range(100)]


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16"])
def test_compressed_and_encoded(tmp_path, encoding):
    content = gzip.compress(text(100, 12).encode(encoding), 1)
    summary = imported(tmp_path, content, "data.csv.gz", encoding=encoding)
    assert summary.columns[-1].name == f"column\n99 {LONG}" and len(summary.table.columns) == 100


def test_loose_quotes(tmp_path):
    summary = imported(tmp_path, text(100, 3, ", "))
    assert summary.rows == 3 and summary.columns[-1].name == f"column\n99 {LONG}"


@pytest.mark.parametrize("end", ["\n", ""])
@pytest.mark.parametrize("n_columns", [2, 100])
def test_a_header_alone(tmp_path, n_columns, end):
    with pytest.raises(DataError, match="has no rows below its header"):
        imported(tmp_path, text(n_columns, 0, end=end))


def test_a_header_alone_among_several_files(tmp_path):
    for name, content in (("a.csv", "x,y\n1.5,2.5\n3.5,4.5\n"), ("b.csv", "x,y"), ("c.csv", "x,y\n5.5,6.5")):
        (tmp_path / name).write_text(content)
    summary = import_table([tmp_path / f"{n}.csv" for n in "abc"], tmp_path / "t.h5")
    assert summary.table.read().reals[:, 0].tolist() == [1.5, 3.5, 5.5]


@pytest.mark.thorough
def test_forty_thousand_columns(tmp_path):
    """Nothing that is done for each column looks at all the others. (All but ten are left out: using them takes
    longer.)"""
    content = text(40_000, 3, name="gene_{}")
    out = [f"gene_{i}" for i in range(10, 40_000)]
    start = time.process_time()
    summary = imported(tmp_path, content, drop=out, write_schema=tmp_path / "s.toml")
    assert summary.rows == 3 and [c.name for c in summary.columns[10:]] == out
    assert [c.name for c in summary.table.columns] == [f"gene_{i}" for i in range(10)]
    profiles = empty_profiles(TextSource(tmp_path / "data.csv"), read_schema(tmp_path / "s.toml"), (), {}, out, ())
    assert [p.kind for p in profiles[9:11]] == ["real", "ignored"]
    assert time.process_time() - start < 40  # some 6 s; the quadratic steps took more than a minute


def test_few_columns_are_printed(tmp_path):
    summary = imported(tmp_path, text(300, 3, name="gene_{}"))
    for verbose in (False, True):
        console = Console(file=io.StringIO(), width=4096)  # however long tmp_path is, no line is wrapped
        print_summary(summary, console, verbose)
        n_lines = len(console.file.getvalue().splitlines())
        assert n_lines >= 303 if verbose else n_lines < 12


def test_a_limit_is_told(tmp_path, monkeypatch):
    for name, value in (("SAMPLE_BYTES", 1 << 12), ("MORE_BYTES", 1 << 14), ("MAX_ROW_BYTES", 1 << 20)):
        monkeypatch.setattr(dialect, name, value)
    monkeypatch.setattr(csv_rows, "MAX_ROW_BYTES", 1 << 20)
    with pytest.raises(DataError, match="its first row is longer than 1 MiB; is a quote left open"):
        imported(tmp_path, '"a,b\n' + "1,2\n" * 300_000)
    with pytest.raises(DataError, match="a row is longer than 1 MiB; is a quote left open"):
        imported(tmp_path, "a,b\n" + "1,2\n" * 500 + '1,"' + "1,2\n" * 800_000)


@pytest.mark.parametrize("at", [0, 1500])
@pytest.mark.parametrize("blank", ["", "\n"])
def test_a_row_longer_than_a_block(tmp_path, monkeypatch, at, blank):
    """Every row is there once, whatever the blocks; blank lines are none."""
    monkeypatch.setattr(dialect, "BLOCK_BYTES", 1 << 12)
    lines = [f"{i}.5,x{i % 3}\n{blank}" for i in range(3000)]
    lines[at] = f'{at}.5,"{"y" * 300_000}"\n'
    summary = imported(tmp_path, "a,b\n" + "".join(lines), kinds={"b": "categorical"})
    rows = summary.table.read()
    assert rows.reals[:, 0].tolist() == [i + 0.5 for i in range(3000)]
    codes = rows.codes8[:, 0]
    assert len(set(codes.tolist())) == 4 and (codes == codes[at]).sum() == 1


def test_a_header_longer_than_a_block(tmp_path, monkeypatch):
    monkeypatch.setattr(dialect, "BLOCK_BYTES", 1 << 12)
    summary = imported(tmp_path, f"a,{'b' * 30_000}\n" + "".join(f"{i}.5,x{i % 3}\n" for i in range(3000)))
    assert summary.rows == 3000 and summary.columns[1].name == "b" * 30_000


def test_wrong_rows_before_a_long_one(tmp_path, monkeypatch):
    monkeypatch.setattr(dialect, "BLOCK_BYTES", 1 << 12)
    content = "a,b\n1,2,3\n" + "1,2\n" * 500 + f'1,"{"y" * 300_000}"\n1,2,3\n'
    with pytest.raises(DataError, match=r"row 1 \(line 2\): 3 fields"):
        imported(tmp_path, content)
    content = f'a,b\n1,"{"y" * 300_000}"\n' + "1,2\n" * 500 + "1,2,3\n"
    with pytest.raises(DataError, match=r"row 502 \(line 503\): 3 fields"):
        imported(tmp_path, content)


@pytest.mark.parametrize("blank", ["", " "])
def test_an_open_quote_takes_no_rows(tmp_path, blank):
    """The rows after it would become one cell of the last column."""
    content = f'a,{blank}"b"\n' + f'1,{blank}"2"\n' * 30 + f'3,{blank}"open\n' + "5,6\n" * 30
    with pytest.raises(DataError, match=r"row 31 \(line 32\): a quote is left open"):
        imported(tmp_path, content)
    for end in ("", "\n", "\r\n\n"):
        closed = f'a,{blank}"b"\n' + f'1,{blank}"2"\n' * 30 + f'3,{blank}"said ""a\nb"""{end}'
        assert imported(tmp_path, closed, kinds={"b": "categorical"}).rows == 31


@pytest.mark.parametrize("blank", ["", " "])
def test_text_after_a_quoted_cell_leaves_no_quote_open(tmp_path, blank):
    for last in ('"p\nq"z', '"p\nq"z ""', '"p\nq"""', '"p\nq" '):
        content = "a,b\n" + "1,x\n" * 30 + f"2,{blank}{last}"
        assert imported(tmp_path, content, kinds={"b": "categorical"}, keep=["a"]).rows == 31
    with pytest.raises(DataError, match=r"row 31 \(line 32\): a quote is left open"):
        imported(tmp_path, "a,b\n" + "1,x\n" * 30 + f'2,{blank}"p\nq""')


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("at", [1, 1500])
def test_a_long_row_makes_one_block_large_and_not_all(tmp_path, monkeypatch, encoding, at):
    """pyarrow reads 32 blocks ahead: blocks that all have room for a long row would take 32 times its memory."""
    monkeypatch.setattr(dialect, "BLOCK_BYTES", 1 << 12)
    lines = [f"{i}.5,x{i % 3}\n" for i in range(3000)]
    lines[at] = f'{at}.5,"{"y," * 150_000}\r\n"\n'
    path = tmp_path / "data.csv"
    path.write_text("a,b\n" + "".join(lines), encoding=encoding, newline="")
    sizes = [batch.n_rows for batch in TextSource(path, encoding=encoding).batches()]
    assert sum(sizes) == 3000 and max(sizes) < 1000


@pytest.mark.parametrize("blank", ["", " "])
def test_a_cell_longer_than_the_limit_of_python_csv(tmp_path, blank):
    content = f'a,b\n1.5,{blank}"{"y" * 200_000}"\n' + "".join(f"{i}.5,x{i % 3}\n" for i in range(200))
    assert imported(tmp_path, content).rows == 201


def test_a_character_across_the_end_of_the_sample(tmp_path):
    for shift in range(3):
        name = "x" * shift + "€" * (dialect.SAMPLE_BYTES // 3)
        assert TextSource(_put(tmp_path, f"{name},b\n1,2\n")).names == (name, "b")


def _put(tmp_path, content):
    path = tmp_path / "data.csv"
    path.write_text(content, encoding="utf-8")
    return path


def test_a_header_that_is_not_utf8(tmp_path):
    """pyarrow does not look at the line that is skipped, so its names would be spoilt without a warning."""
    with pytest.raises(DataError, match="not UTF-8: byte 0xf6 on line 1"):
        imported(tmp_path, "größe,b\n1.5,2.5\n2.5,3.5\n".encode("latin-1"))
    assert imported(tmp_path, "gr\ufffd,b\n1.5,2.5\n2.5,3.5\n").columns[0].name == "gr\ufffd"


def test_texts_that_no_cell_has(tmp_path):
    """A dictionary of Parquet may have more than the cells of a batch, or of all of them."""
    names = ["1.5", "2.5", "left", "never"]
    codes = [np.repeat(c, 40) for c in (0, 1, 2)]
    parts = [pa.DictionaryArray.from_arrays(pa.array(c, pa.int32()), names) for c in codes]
    table = pa.table({"a": pa.chunked_array(parts), "b": np.arange(120.0) / 7})
    pa.parquet.write_table(table, tmp_path / "d.parquet", row_group_size=40)
    summary = import_table(tmp_path / "d.parquet", tmp_path / "t.h5")
    assert summary.columns[0].levels == ("1.5", "2.5", "left")
