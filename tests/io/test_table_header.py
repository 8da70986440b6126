"""Crafted tables with a right seal: what they claim is checked, in no time, before anything is made of it."""

import json

import h5py
import numpy as np
import pytest

from mpibayes.errors import DataError
from mpibayes.io.seal import append_seal
from mpibayes.io.sparse import SparseRows, SparseTable
from mpibayes.io.table import Table, table_from_arrays, write_table
from tests.sparse_tables import write_sparse

pytestmark = pytest.mark.timeout(20)
MANY = 300_000_000


def resealed(path, change):
    with h5py.File(path, "r+", locking=False) as file:
        change(file)
    with path.open("r+b") as file:
        append_seal(file)
    return path


def put(name, value):
    def change(file):
        del file[name]
        file[name] = value

    return change


def key(name, value, column=0):
    """Change one value in the description of a column."""

    def change(file):
        columns = json.loads(file["columns"][()])
        columns[column][name] = value
        put("columns", json.dumps(columns))(file)

    return change


def attribute(name, value):
    def change(file):
        file.attrs[name] = value

    return change


def source(**entries):
    def change(file):
        before = json.loads(file["source"][()]) if "source" in file else {}
        put("source", json.dumps(before | entries))(file)

    return change


def levels(*names, column=1):
    def change(file):
        del file[f"levels/{column}"]
        file.create_dataset(f"levels/{column}", data=list(names), dtype=h5py.string_dtype("utf-8"))

    return change


def cells(name, value):
    return lambda file: file[name].write_direct(np.full(file[name].shape, value, file[name].dtype))


def claims_many_rows(**how):
    def change(file):
        file.attrs["n_rows"] = MANY
        for name in ("codes8", "reals", "tallies"):
            width, dtype = file[name].shape[1], file[name].dtype
            del file[name]
            file.create_dataset(name, (MANY, width), dtype, **how)

    return change


def a_group(name):
    def change(file):
        del file[name]
        file.create_group(name)

    return change


TYPED = {
    "columns a dictionary": (put("columns", '{"a": 1}'), "the list of its columns is none"),
    "no column": (put("columns", "[null]"), "column 1 is not described"),
    "columns a number": (put("columns", 5), "'columns' is no text"),
    "a key too many": (key("colour", 1), "column 1 has 'colour', which is unknown"),
    "a name that is a number": (key("name", 5), "'name' of column 1 is 5"),
    "no name": (key("name", None), "'name' of column 1 is None"),
    "an unknown block": (key("block", "nope"), "nope"),
    "text for a float": (key("center", "abc"), "'center' of column 1 is 'abc'"),
    "no scale": (key("scale", None), "'scale' of column 1 is None"),
    "text for atoms": (key("atoms", "abc"), "'atoms' of column 1 is 'abc'"),
    "texts for atoms": (key("atoms", ["a"]), "'atoms' of column 1 is"),
    "a negative step": (key("resolution", -1.0), "column 1 has a negative resolution"),
    "text for a truth": (key("log", "yes"), "'log' of column 1 is 'yes'"),
    "a number of missing cells as text": (key("n_missing", "a"), "'n_missing' of column 1 is 'a'"),
    "no source": (put("source", "null"), "what it was made from is not described"),
    "two columns of one name": (key("name", "x", 1), "2 columns are called 'x'"),
    "a center that is no number": (key("center", np.nan), "'center' of column 1 is nan"),
    "an infinite rest": (key("rest_center", np.inf), "'rest_center' of column 1 is inf"),
    "an atom that is no number": (key("atoms", [0.0, np.nan]), "'atoms' of column 1 is"),
    "no spread": (key("scale", 0.0), "column 1 has a scale of 0 or below"),
    "a negative spread of the rest": (key("rest_scale", -1.0), "column 1 has a scale of 0 or below"),
    "an unknown kind": (key("kind", "date"), "column 1 is of an unknown kind"),
    "too many missing cells": (key("n_missing", 61), "column 'x' has 61 missing cells in 60 rows"),
    "a missing cell too many": (key("n_missing", 1), "column 'x' lacks in 0 of 60 rows, and by the header in 1"),
    "a missing level too many": (key("n_missing", 1, 1), "column 'c' lacks in 0 of 60 rows, and by the header in 1"),
    "a missing count": (cells("tallies", np.nan), "column 'n' lacks in 60 of 60 rows, and by the header in 0"),
    "a level twice": (levels("a", "a"), "column 'c': a level is listed twice"),
    "a boolean of one level": (levels("yes", column=3), "column 'b': a boolean column has two levels, found 1"),
    "no level": (key("n_levels", 0, 1), "column 'c': a categorical column needs at least one level"),
    "a number that an import takes as missing": (cells("reals", 1e300), r"larger than 1e\+150 in size"),
    "a negative one": (cells("reals", -1e300), r"larger than 1e\+150 in size"),
    "names that are none": (source(names=5), "'names' of what it was made from is not of its kind"),
    "numbers for files": (source(files=[1]), "'files' of what it was made from is not of its kind"),
    "a list for missing texts": (source(missing=["NA"]), "'missing' of what it was made from"),
    "a text for forms": (source(forms={"x": "ymd"}), "'forms' of what it was made from"),
    "absence of nothing": (source(absent=[{"column": "x"}]), "'absent' of what it was made from"),
    "questions as a text": (source(asked="x"), "'asked' of what it was made from"),
    "columns left out without a reason": (source(left_out=["x"]), "'left_out' of what it was made from"),
    "absences as a text": (source(absent="x"), "'absent' of what it was made from"),
    "no levels": (a_group("levels/1"), "'levels/1' is no dataset"),
    "no reals": (a_group("reals"), "'reals' is no dataset"),
    "levels in a square": (put("levels/1", np.array([["a", "b"]], object)), "levels of shape"),
    "an infinite number": (cells("reals", np.inf), "a number in 'reals' is infinite"),
    "a negative count": (cells("tallies", -2.0), "a count is not a non-negative integer"),
    "half a count": (cells("tallies", 0.5), "a count is not a non-negative integer"),
    "an infinite count": (cells("tallies", np.inf), "a number in 'tallies' is infinite"),
    "300 million rows": (claims_many_rows(), "the values of 'codes8' are not in the file"),
    "and in chunks": (claims_many_rows(chunks=(1 << 16, 1), compression="gzip"), "are not in the file"),
}


@pytest.mark.parametrize("case", TYPED)
def test_a_typed_table(tmp_path, case):
    change, words = TYPED[case]
    columns = [
        ("x", "real", np.arange(60.0), None),
        ("c", "categorical", np.arange(60) % 2, ["a", "b"]),
        ("n", "count", np.arange(60.0), None),
        ("b", "boolean", np.arange(60) % 2, ["no", "yes"]),
    ]
    path = write_table(tmp_path / "t.h5", *table_from_arrays(columns)).path
    assert len(Table.open(path).read()) == 60
    with pytest.raises(DataError, match=rf"t\.h5: .*(\n  - )?.*{words}"):
        Table.open(resealed(path, change)).read()


def many(*names):
    def change(file):
        file.attrs["n_entries" if names[0] == "values" else "n_rows"] = MANY
        for name in names:
            dtype = file[name].dtype
            del file[name]
            file.create_dataset(name, (MANY + (name == "starts"),), dtype)

    return change


SPARSE = {
    "a negative count": (cells("values", -1.0), "a value is not what its header promises"),
    "no number": (cells("values", np.nan), "a value is not what its header promises"),
    "half a count": (cells("values", 0.5), "a value is not what its header promises"),
    "no source": (put("source", "null"), "what it was made from is not described"),
    "no names": (put("source", '{"names": 5}'), "'names' of what it was made from is not of its kind"),
    "two names": (source(names=["a", "b"]), "what it was made from is not described"),
    "names that are numbers": (source(names=[1, 2, 3]), "'names' of what it was made from is not of its kind"),
    "10^12 columns": (attribute("n_columns", 10**12), "1,000,000,000,000 columns, more than the 2,147,483,647"),
    "300 million rows": (many("starts"), "the values of 'starts' are not in the file"),
    "300 million entries": (many("values", "columns"), "are not in the file"),
}


@pytest.mark.parametrize("case", SPARSE)
def test_a_sparse_table(tmp_path, case):
    change, words = SPARSE[case]
    rows = SparseRows(np.arange(0, 61, 2), np.tile([0, 1], 30), np.ones(60))
    path = write_sparse(tmp_path / "s.h5", rows, 2).path
    assert len(SparseTable.open(path).read()) == 30
    with pytest.raises(DataError, match=words):
        SparseTable.open(resealed(path, change)).read()


def test_a_part_of_the_rows_cannot_lack_more_than_all_do(tmp_path):
    """Ranks read slices: no slice has more missing cells than the header says, nor leaves too few for the others."""
    x = np.where(np.arange(60) < 10, np.nan, 1.5)
    path = write_table(tmp_path / "t.h5", *table_from_arrays([("x", "real", x, None)])).path
    assert [len(rows) for rows in Table.open(path).slices(7)] == [7] * 8 + [4]
    for n_missing, start, stop in ((9, 0, 20), (40, 20, 60)):
        table = Table.open(resealed(path, key("n_missing", n_missing)))
        with pytest.raises(DataError, match="column 'x' lacks in"):
            table.read(start, stop)


def test_arrays_have_the_numbers_that_an_import_takes():
    with pytest.raises(DataError, match=r"column 'x': a value is infinite, or larger than 1e\+150 in size"):
        table_from_arrays([("x", "real", np.array([1.0, -1e151]), None)])
