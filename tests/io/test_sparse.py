"""Sparse tables: every form of source gives the same table, whatever its order; what is wrong is said with its line."""

import gzip

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from mpibayes.errors import ConfigError, DataError
from mpibayes.hpc.data.sparse import SparseData
from mpibayes.io import sparse_import, triples
from mpibayes.io.sparse import SparseRows, SparseTable, cuts, write_sparse
from mpibayes.io.sparse_import import import_sparse
from mpibayes.io.table import Table, table_from_arrays, write_table
from mpibayes.io.tables import is_sparse

RNG = np.random.default_rng(5)
COUNTS = np.where(RNG.random((23, 11)) < 0.4, RNG.integers(1, 9, (23, 11)), 0)
COUNTS[7] = 0  # a document without words
WORDS = [f"wört{i}" for i in range(11)]


@pytest.fixture
def small(monkeypatch):
    """So small pieces that there are many."""
    monkeypatch.setattr(triples, "BLOCK_BYTES", 64)
    monkeypatch.setattr(triples, "CHUNK", 7)
    monkeypatch.setattr(sparse_import, "PIECE", 9)
    blocks = triples.whole_lines
    monkeypatch.setattr(triples, "whole_lines", lambda path, size=64: blocks(path, size))


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
        found = import_sparse([tmp_path / name], tmp_path / "t.h5", vocabulary=tmp_path / "vocab.a.txt", overwrite=True)
        table = found.table
        np.testing.assert_array_equal(dense(table), COUNTS)
        assert (
            table.column_ids() == WORDS and table.column_ids(3, 5) == WORDS[3:5] and table.row_ids(1, 3) == ["2", "3"]
        )
        assert (table.whole, table.total, table.n_entries) == (True, COUNTS.sum(), (COUNTS > 0).sum())
        assert any("1 row without an entry" in warning for warning in found.warnings)
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
    found = import_sparse([a, b], tmp_path / "t.h5")
    assert dense(found.table).tolist() == [[3, 4], [0, 1]] and found.table.column_ids() == ["cat", "dog"]
    assert found.warnings == ("1 entry of a pair that was there before: values added up",)


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
