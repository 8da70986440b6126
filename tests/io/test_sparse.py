"""Sparse tables: every form of source gives the same table, whatever its order; what is wrong is said with its line."""

import gzip
import io
import time
import zipfile

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from mpibayes.errors import ConfigError, DataError
from mpibayes.hpc.data.sparse import SparseData
from mpibayes.io import npz, sparse_import, triples
from mpibayes.io.sparse import SparseRows, SparseTable, cuts
from mpibayes.io.sparse_import import import_sparse
from mpibayes.io.table import Table, table_from_arrays, write_table
from mpibayes.io.tables import is_sparse
from tests.sparse_tables import write_sparse

RNG = np.random.default_rng(5)
COUNTS = np.where(RNG.random((23, 11)) < 0.4, RNG.integers(1, 9, (23, 11)), 0)
COUNTS[7] = 0  # a document without words
WORDS = [f"wört{i}" for i in range(11)]


@pytest.fixture
def small(monkeypatch):
    """Pieces so small that there are many."""
    monkeypatch.setattr(triples, "BLOCK_BYTES", 64)
    monkeypatch.setattr(npz, "CHUNK", 7)
    monkeypatch.setattr(sparse_import, "PIECE", 9)


def dense(table):
    rows = table.read()
    out = np.zeros((table.n_rows, table.n_columns))
    out[rows.row_of(), rows.columns] = rows.values
    return out


def docword(order=None):
    i, j = np.nonzero(COUNTS)
    lines = [f"{a + 1} {b + 1} {COUNTS[a, b]}\n" for a, b in zip(i, j)]
    lines = lines if order is None else [lines[k] for k in order.permutation(len(lines))]
    return f"23\n11\n{len(lines)}\n" + "".join(lines)


def put(tmp_path, name, content):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return tmp_path / name


def test_every_form_is_the_same_table(tmp_path, small):
    put(tmp_path, "vocab.a.txt", "\n".join(WORDS) + "\n")
    sparse = scipy.sparse.csr_array(COUNTS)
    scipy.sparse.save_npz(tmp_path / "csr.npz", sparse)
    scipy.sparse.save_npz(tmp_path / "coo.npz", sparse.tocoo())
    scipy.io.mmwrite(tmp_path / "m.mtx", sparse.tocoo())
    put(tmp_path, "docword.a.txt", docword())
    put(tmp_path, "docword.a.txt.gz", gzip.compress(docword(np.random.default_rng(1)).encode()))
    put(tmp_path, "blanks.txt", docword().replace(" ", "  "))
    names = ("docword.a.txt", "docword.a.txt.gz", "blanks.txt", "csr.npz", "coo.npz", "m.mtx")
    prints = set()
    for name in names:
        result = import_sparse(
            [tmp_path / name], tmp_path / "t.h5", vocabulary=tmp_path / "vocab.a.txt", overwrite=True
        )
        table = result.table
        np.testing.assert_array_equal(dense(table), COUNTS)
        assert (
            table.column_ids() == WORDS and table.column_ids(3, 5) == WORDS[3:5] and table.row_ids(1, 3) == ["2", "3"]
        )
        assert (table.whole, table.total, table.n_entries) == (True, COUNTS.sum(), (COUNTS > 0).sum())
        assert any("1 row without an entry" in warning for warning in result.warnings)
        prints.add(table.fingerprint)
    assert len(prints) == 1
    assert import_sparse([tmp_path / "docword.a.txt"], tmp_path / "u.h5").table.column_ids() == WORDS  # found beside it


@pytest.mark.parametrize("separator", ["::", "\t", ",", ";", "|"])
def test_text_with_ids(tmp_path, small, separator):
    i, j = np.nonzero(COUNTS)
    order = np.random.default_rng(2).permutation(len(i))
    lines = [separator.join((f"u{i[k]}", f"é {j[k]}", f"{COUNTS[i[k], j[k]] / 2}", str(k))) for k in order]
    head = [separator.join(("user", "item", "rating", "time"))]
    for first in ([], head):
        path = put(tmp_path, "r.dat", "\n".join(first + lines))
        table = import_sparse([path], tmp_path / "t.h5", overwrite=True).table
        assert table.names == (("user", "item", "rating", "time") if first else ("row", "column", "value", "time"))
        users = [int(text[1:]) for text in table.row_ids()]
        items = [int(text[2:]) for text in table.column_ids()]
        assert users == list(dict.fromkeys(i[order])) and items == list(dict.fromkeys(j[order]))
        rows = table.read()
        np.testing.assert_array_equal(
            rows.values, COUNTS[np.array(users)[rows.row_of()], np.array(items)[rows.columns]] / 2
        )
        k = rows.times.astype(int)
        np.testing.assert_array_equal(i[k], np.array(users)[rows.row_of()])


def test_parts_of_a_text(tmp_path):
    a, b = put(tmp_path, "a.csv", "d,w,n\nx,cat,2\ny,dog,1\n"), put(tmp_path, "b.csv", "d,w,n\nx,dog,4\nx,cat,1\n")
    result = import_sparse([a, b], tmp_path / "t.h5")
    assert dense(result.table).tolist() == [[3, 4], [0, 1]] and result.table.column_ids() == ["cat", "dog"]
    assert result.warnings == ("1 entry of a pair that was there before: values added up",)


MARKET = "%%MatrixMarket matrix coordinate integer general\n"


def npy(**arrays):
    """The bytes of an npz file."""
    file = io.BytesIO()
    np.savez(file, **{name: np.asarray(values) for name, values in arrays.items()})
    return file.getvalue()


@pytest.mark.parametrize(
    "name, content, words",
    [
        ("d.txt", "2\n3\n2\n1 1 1\n2 4 1\n", "line 5: word 4: expected a whole number from 1 to 3"),
        ("d.txt", "2\n3\n2\n1 1 1\n0 2 1\n", "line 5: document 0: expected a whole number from 1 to 2"),
        ("d.txt", "2\n3\n3\n1 1 1\n2 2 1\n", "has 2 entries, but its head announces 3; is the file whole?"),
        ("d.txt", "2\n3\n2\n1 1 x\n2 2 1\n", "line 4: expected a number, got 'x'"),
        ("d.txt", "2\n3\n2\n1 1\n2 2 1\n", "line 4: 2 fields, expected 3"),
        ("m.mtx", "%%MatrixMarket matrix array real general\n", "line 1: expected '%%MatrixMarket matrix coordinate"),
        ("m.mtx", "%%MatrixMarket matrix coordinate real symmetric\n2 2 1\n1 1 1\n", "a symmetric matrix"),
        ("m.mtx", "%%MatrixMarket matrix coordinate real general\n% no\n2 2 1\n1 3 1\n", "line 4: column 3: expected"),
        ("r.csv", "a,b,1\na,c,2\nb,,3\n", "line 3: an id is missing"),
        ("r.csv", "a,b,1\na,c,nan\n", "line 2: expected a finite number, got nan"),
        ("r.csv", "a,b,1\na,c\nb,b,1\n", "line 2: 2 fields, expected 3"),
        ("r.csv", "a,b,1\na,c,16777216\n", "too large to be exact"),
        ("r.csv", "a,b,1.5\na,b,2\n", "row 'a' has two values in column 'b'"),
        ("r.csv", "u,i,4\nu,i,5\n", "row 'u' has two values in column 'i'"),
        ("r.csv", "user,item,rating\nu,i,4\nu,i,5\n", "row 'u' has two values in column 'i'"),
        ("r.csv", "d,w,count,time\nu,i,4,1\nu,i,5,2\n", "row 'u' has two values in column 'i'"),
        ("r.csv", "a,b,1,nan\na,c,2,1\n", "line 1: expected a finite number as time, got nan"),
        ("r.csv", "a,b,1,2\na,c,2,-inf\n", "line 2: expected a finite number as time, got -inf"),
        ("r.csv", "a,b,1\na,c,1_000\n", "line 2: expected a number, got '1_000'"),
        ("r.csv", "a,b,1\na,c,٣\n", "line 2: expected a number, got '٣'"),
        ("d.txt", "2\n3\n2\n1 1 -4\n2 2 1\n", "line 4: expected a whole number from 0, got -4"),
        ("d.txt", "2\n3\n2\n1 1 1.5\n2 2 1\n", "line 4: expected a whole number from 0, got 1.5"),
        ("d.txt", "2\n3\n2\n1 1 1_000\n2 2 1\n", "line 4: expected a number, got '1_000'"),
        ("d.txt", "2\n3\n2\n1_0 1 1\n2 2 1\n", "line 4: document 1_0: expected a whole number from 1 to 2"),
        ("d.txt", "2\n3\n2\n1 ٣ 1\n2 2 1\n", "line 4: word ٣: expected a whole number from 1 to 3"),
        ("d.txt", "2\n3\n2\n1 ² 1\n2 2 1\n", "line 4: word ²: expected a whole number from 1 to 3"),
        ("d.txt", "2\n3\n2\n1 1 1\n2 " + "9" * 5000 + " 1\n", "line 5: word 9999"),
        ("d.txt", "9" * 5000 + "\n3\n2\n1 1 1\n", "line 1: expected a number of at most 18 digits, got '9999"),
        ("m.mtx", MARKET + "9" * 5000 + " 3 2\n1 1 1\n", "line 2: expected a number of at most 18 digits"),
        ("m.mtx", MARKET + "2 2 1\n1 1 2.5\n", "line 3: expected a whole number, got 2.5"),
        ("x.npz", npy(format=b"csr", shape=[2, 2], data=np.ones(1)), "cannot be read"),
        ("r.csv", "a,b\nc,d\n", "expected lines of three or four fields"),
        ("r.csv", "", "is empty"),
        ("r.npz", b"PK\x03\x04rubbish", "cannot be read"),
    ],
)
def test_refused(tmp_path, small, name, content, words):
    path = put(tmp_path, name, content)
    with pytest.raises(DataError) as error:
        import_sparse([path], tmp_path / "t.h5")
    assert words in str(error.value) and error.value.exit_code == 3
    assert [p.name for p in tmp_path.iterdir()] == [name]


CSR = {"format": b"csr", "shape": [3, 4], "indptr": [0, 2, 2, 3], "indices": [0, 3, 1], "data": [1.0, 2.0, 3.0]}
COO = {"format": b"coo", "shape": [3, 4], "row": [0, 0, 2], "col": [0, 3, 1], "data": [1.0, 2.0, 3.0]}


@pytest.mark.parametrize(
    "change, words",
    [
        ({"indptr": [0, 2, 1, 3]}, "indptr does not ascend from 0 to its 3 entries"),
        ({"indptr": [-1, 2, 2, 3]}, "indptr does not ascend from 0"),
        ({"indptr": [1, 2, 2, 3]}, "indptr does not ascend from 0"),
        ({"indptr": [0, 2, 2, 4]}, "indptr does not ascend from 0"),
        ({"indptr": [0, 2, 2, 2]}, "indptr does not ascend from 0"),
        ({"indptr": [0, 2, 3]}, "expected 4 integers"),
        ({"indptr": [0, 1, 2, 2, 3]}, "expected at most 4 elements"),
        ({"indptr": [[0, 2, 2, 3]]}, "indptr has the shape (1, 4)"),
        ({"indptr": [0.0, 2.0, 2.5, 3.0]}, "indptr is float64"),
        ({"data": [1.0, 2.0]}, "3 indices, 2 data; expected as many"),
        ({"indices": [0, 3]}, "2 indices, 3 data; expected as many"),
        ({"data": [1j, 2.0, 3.0]}, "its data are complex128 of shape (3,); expected real numbers"),
        ({"data": ["a", "b", "c"]}, "expected real numbers"),
        ({"data": [1.0, np.nan, 3.0]}, "entry 2: expected a finite number"),
        ({"indices": [0.0, 3.0, 1.0]}, "its indices are float64 of shape (3,); expected integers"),
        ({"indices": [0, 4, 1]}, "entry 2: row 0, column 4 of 3 by 4"),
        ({"indices": [0, -1, 1]}, "entry 2: row 0, column -1 of 3 by 4"),
        ({"shape": [3, 4, 5]}, "expected at most 2 elements"),
        ({"shape": [3.0, np.inf]}, "cannot be read"),
        ({"format": b"csc"}, "a matrix in the form 'csc'; expected csr or coo"),
        (COO | {"row": [0, 0]}, "2 row, 3 col, 3 data; expected as many"),
        (COO | {"row": [0, 0, 3]}, "entry 3: row 3, column 1 of 3 by 4"),
        (COO | {"col": [0.5, 3.0, 1.0]}, "its col are float64"),
    ],
)
def test_malformed_npz(tmp_path, change, words):
    path = put(tmp_path, "m.npz", npy(**(CSR | change)))
    with pytest.raises(DataError) as error:
        import_sparse([path], tmp_path / "t.h5")
    assert words in str(error.value) and "m.npz" in str(error.value)
    assert [p.name for p in tmp_path.iterdir()] == ["m.npz"]


def test_the_npz_that_these_were_made_from(tmp_path):
    expected = [[1, 0, 0, 2], [0, 0, 0, 0], [0, 3, 0, 0]]
    for content in (CSR, COO, CSR | {"data": [True, 2, 3]}):
        table = import_sparse([put(tmp_path, "m.npz", npy(**content))], tmp_path / "t.h5", overwrite=True).table
        assert dense(table).tolist() == expected


def test_other_lines_and_encodings(tmp_path):
    """Lines that end as on old Macs, a byte order mark, UTF-16, and a zip archive are the same table."""
    text = "user,item,rating\nü1,é1,4\nü2,é1,2\n"
    contents = [
        text.encode(), text.replace("\n", "\r").encode(), text.replace("\n", "\r\n").encode("utf-8-sig"),
        text.encode("utf-16"), text.encode("latin-1"),
    ]  # fmt: skip
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.writestr("r.csv", text)
    contents.append((tmp_path / "z.zip").read_bytes())
    for content in contents:
        encoding = "latin-1" if content == contents[4] else None
        table = import_sparse([put(tmp_path, "r.csv", content)], tmp_path / "t.h5", encoding=encoding, overwrite=True)
        assert table.table.row_ids() == ["ü1", "ü2"] and table.table.names == ("user", "item", "rating")
    headless = put(tmp_path, "r.csv", "\ufeffu1,i1,4\nu1,i2,4\n")
    assert import_sparse([headless], tmp_path / "t.h5", overwrite=True).table.row_ids() == ["u1"]
    with pytest.raises(DataError, match="cannot be read as utf-8; see --encoding"):
        import_sparse([put(tmp_path, "r.csv", contents[4])], tmp_path / "u.h5")
    for name in ("rot13", "zip", "idna", "undefined"):
        with pytest.raises(ConfigError, match=f"encoding '{name}'"):
            import_sparse([headless], tmp_path / "u.h5", encoding=name)


@pytest.mark.thorough  # 10 MB
def test_a_million_comments(tmp_path):
    """Reading takes linear time: a copy of each block for each of its lines took minutes."""
    path = put(tmp_path, "m.mtx", MARKET + "% comment\n" * 1_000_000 + "2 2 1\n2 2 7\n")
    began = time.perf_counter()
    assert dense(import_sparse([path], tmp_path / "t.h5").table).tolist() == [[0, 0], [0, 7]]
    assert time.perf_counter() - began < 20


def test_refused_ids(tmp_path):
    path = put(tmp_path, "d.txt", "2\n3\n1\n1 1 1\n")
    with pytest.raises(DataError, match="2 lines, but there are 3 columns"):
        import_sparse([path], tmp_path / "t.h5", vocabulary=put(tmp_path, "v.txt", "a\nb\n"))
    with pytest.raises(ConfigError, match="has ids itself"):
        import_sparse([put(tmp_path, "r.csv", "a,b,1\n")], tmp_path / "t.h5", vocabulary=tmp_path / "v.txt")
    more = import_sparse([path], tmp_path / "t.h5", vocabulary=put(tmp_path, "v.txt", "a\nb\nc\nd\n"))
    assert more.table.column_ids() == ["a", "b", "c"] and "4 lines, of which the first 3 are used" in more.warnings[0]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=30), st.integers(1, 9))
def test_slices(lengths, entries):
    starts = np.concatenate([[0], np.cumsum(lengths)])
    pieces = list(cuts(starts, entries))
    assert [a for a, _ in pieces] == [0, *(b for _, b in pieces[:-1])] and pieces[-1][1] == len(lengths)
    assert all(b == a + 1 or starts[b] - starts[a] <= entries for a, b in pieces)
    rows = SparseRows(starts, np.arange(starts[-1], dtype=np.int32), np.ones(starts[-1], np.float32))
    parts = SparseRows.concatenate([rows.take(slice(a, b)) for a, b in pieces])
    assert all((getattr(parts, name) == getattr(rows, name)).all() for name in ("starts", "columns", "values"))


def test_rows_of_a_run(tmp_path):
    sparse = scipy.sparse.csr_array(COUNTS)
    rows = SparseRows(sparse.indptr.astype(np.int64), sparse.indices, sparse.data.astype(np.float32))
    table = write_sparse(tmp_path / "t.h5", rows, 11, column_ids=WORDS)
    data = SparseData(table, 0.2)
    assert data.n_rows == 18 and len(data.heldout) == 5
    there = np.concatenate([data.numbers_of(0, 18), data.heldout])
    parts = SparseRows.concatenate([data.rows_of(0, 10), data.rows_at(np.arange(10, 18)), data.heldout_of(0, 5)])
    out = np.zeros_like(COUNTS)
    out[there[parts.row_of()], parts.columns] = parts.values
    np.testing.assert_array_equal(out, COUNTS)
    with pytest.raises(DataError, match="columns of a row have to ascend"):
        write_sparse(tmp_path / "u.h5", SparseRows(np.array([0, 2]), np.array([1, 1]), np.ones(2)), 11)


def test_a_flipped_bit_and_the_other_kind_are_seen(tmp_path):
    path = put(tmp_path, "d.txt", docword())
    table = import_sparse([path], tmp_path / "t.h5").table
    assert is_sparse(table.path)
    with pytest.raises(DataError, match="a sparse table, of counts or ratings; expected a typed table"):
        Table.open(table.path)
    columns, rows = table_from_arrays([("x", "real", np.arange(3.0), None)])
    write_table(tmp_path / "dense.h5", columns, rows)
    assert not is_sparse(tmp_path / "dense.h5")
    with pytest.raises(DataError, match="a typed table; expected a sparse one"):
        SparseTable.open(tmp_path / "dense.h5")
    content = bytearray(table.path.read_bytes())
    content[content.find(table.read().values.tobytes()) + 5] ^= 1
    damaged = put(tmp_path, "damaged.h5", bytes(content))
    with pytest.raises(DataError, match="damaged HDF5 file"):
        SparseTable.open(damaged).read()
    cut = put(tmp_path, "cut.h5", bytes(content[:-50]))
    with pytest.raises(DataError, match="truncated"):
        SparseTable.open(cut)
