"""Names of files and options whose bytes are not UTF-8, or that no file system takes: a message, or they just work."""

import os

import pytest

from mpibayes.errors import ConfigError, DataError
from mpibayes.io.ingest import import_table
from mpibayes.io.sparse import SparseTable
from mpibayes.io.sparse_import import import_sparse
from mpibayes.io.table import Table

NOT_UTF8 = os.fsdecode(b"caf\xe9")
CSV = "colour,height\n" + "".join(f"{'red' if i % 2 else 'blue'},{i * 1.37:.2f}\n" for i in range(20))


def test_a_source_whose_name_is_not_utf8_is_imported_and_remembered(tmp_path):
    source = tmp_path / f"{NOT_UTF8}.csv"
    source.write_text(CSV)
    import_table(source, tmp_path / "t.h5")
    assert Table.open(tmp_path / "t.h5").source["files"] == [f"{NOT_UTF8}.csv"]


def test_so_is_a_vocabulary(tmp_path):
    (tmp_path / "docword.txt").write_text("2\n3\n3\n1 1 1\n2 2 4\n2 3 1\n")
    (tmp_path / NOT_UTF8).write_text("ant\nbee\ncat\n")
    import_sparse([tmp_path / "docword.txt"], tmp_path / "t.h5", vocabulary=str(tmp_path / NOT_UTF8))
    assert SparseTable.open(tmp_path / "t.h5").source["vocabulary"] == NOT_UTF8


def test_a_name_too_long_for_the_file_system(tmp_path):
    with pytest.raises(DataError, match="File name too long"):
        import_table(tmp_path / ("n" * 300), tmp_path / "t.h5")


@pytest.mark.parametrize("option, value", [("delimiter", "\udcff"), ("encoding", "\udcff"), ("delimiter", "\0")])
def test_an_option_that_no_file_can_have(tmp_path, option, value):
    (tmp_path / "t.csv").write_text(CSV)
    with pytest.raises(ConfigError, match=option):
        import_table(tmp_path / "t.csv", tmp_path / "t.h5", **{option: value})
