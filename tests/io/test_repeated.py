"""`--count COLUMN`: the table is that of the cases written out, to the byte."""

import numpy as np
import pandas as pd
import pytest

from mpibayes.errors import ConfigError, DataError
from mpibayes.hpc.cli import main
from mpibayes.io import repeated
from mpibayes.io.ingest import import_table
from mpibayes.io.row_names import RowNames
from mpibayes.io.table import Table
from tests.io.test_weights import FIELD

PATTERNS = pd.read_csv(FIELD / "freq.csv")


def written(folder, name, frame):
    frame.to_csv(folder / name, index=False)
    return folder / name


def cases(frame, count="Freq"):
    return frame.loc[frame.index.repeat(frame[count])].drop(columns=count)


def counted(folder, frame, **options):
    source = written(folder, "counted.csv", frame)
    return import_table(source, folder / "counted.h5", count="Freq", overwrite=True, **options)


def test_the_table_is_that_of_all_cases(tmp_path):
    table = counted(tmp_path, PATTERNS).table
    other = import_table(written(tmp_path, "cases.csv", cases(PATTERNS)), tmp_path / "cases.h5").table
    assert table.n_rows == 3000 and table.fingerprint == other.fingerprint
    once = import_table(written(tmp_path, "once.csv", PATTERNS.drop(columns="Freq")), tmp_path / "once.h5").table
    assert table.fingerprint != once.fingerprint


def test_rows_that_count_0_are_left_out_and_batches_are_cut(tmp_path, monkeypatch):
    """Columns of numbers too, whose kinds are decided by all cases: one batch of 45 rows, in batches of 7."""
    monkeypatch.setattr(repeated, "AT_ONCE", 7)
    frame = pd.DataFrame({"Freq": np.arange(10), "x": np.arange(10) % 4 + 0.25, "y": list("ababababab")})
    table = counted(tmp_path, frame).table
    other = import_table(written(tmp_path, "cases.csv", cases(frame)), tmp_path / "cases.h5").table
    assert table.n_rows == 45 and table.fingerprint == other.fingerprint


def test_several_files_and_other_formats(tmp_path):
    parts = [PATTERNS[:10], PATTERNS[10:]]
    files = [written(tmp_path, f"{i}.csv", part) for i, part in enumerate(parts)]
    PATTERNS.to_parquet(tmp_path / "a.parquet")
    of_files = import_table(files, tmp_path / "a.h5", count="Freq").table
    of_parquet = import_table(tmp_path / "a.parquet", tmp_path / "b.h5", count="Freq").table
    assert of_files.fingerprint == of_parquet.fingerprint == counted(tmp_path, PATTERNS).table.fingerprint


@pytest.mark.parametrize("text", ["-1", "1.5", "", "NA", "many", "inf", "1_0", "1e20"])
def test_a_count_that_is_none_is_named(tmp_path, text):
    frame = PATTERNS.astype({"Freq": object})
    frame.loc[4, "Freq"] = text
    with pytest.raises(DataError, match=r"counted.csv row 5, column 'Freq': found '.*', expected the number") as caught:
        counted(tmp_path, frame)
    assert repr(text) in str(caught.value) and not (tmp_path / "counted.h5").exists()


def test_counts_that_no_chain_can_hold_are_refused_before_they_are_written_out(tmp_path):
    with pytest.raises(DataError, match="counts more than 2,147,483,647 rows"):
        counted(tmp_path, PATTERNS.assign(Freq=2**27))
    with pytest.raises(DataError, match="has no rows"):
        counted(tmp_path, PATTERNS.assign(Freq=0))


def test_the_count_is_a_column_and_nothing_else(tmp_path):
    source = written(tmp_path, "a.csv", PATTERNS)
    with pytest.raises(ConfigError, match=r"no column of numbers 'Frq' in .* \(did you mean 'Freq'\?\)"):
        import_table(source, tmp_path / "a.h5", count="Frq")
    with pytest.raises(ConfigError) as caught:
        import_table(source, tmp_path / "a.h5", count="Freq", kinds={"Freq": "real"})
    assert list(caught.value.problems) == ["column 'Freq': counts rows, and is not a column of the table"]


def test_messages_name_rows_of_the_file(tmp_path):
    """Not of the cases: the text is in row 3, case 1,444 and on."""
    frame = PATTERNS.assign(x=1.5)[["x", "smoke", "Freq"]].astype({"x": object})
    frame.loc[2, "x"] = "high"
    with pytest.raises(DataError) as caught:
        counted(tmp_path, frame, kinds={"x": "real"})
    assert "counted.csv row 3 (line 4), column 'x': found 'high'" in caught.value.problems[0]
    assert f"{frame.Freq[2]:,} such cells" in caught.value.problems[0]


def test_the_schema_keeps_it(tmp_path):
    table = counted(tmp_path, PATTERNS, write_schema=tmp_path / "s.toml").table
    assert 'count = "Freq"' in (tmp_path / "s.toml").read_text()
    again = import_table(tmp_path / "counted.csv", tmp_path / "b.h5", schema=tmp_path / "s.toml").table
    assert again.fingerprint == table.fingerprint


def test_cases_have_the_names_of_their_rows(tmp_path):
    frame = PATTERNS.assign(who=[f"pattern {i}" for i in range(32)])
    table = counted(tmp_path, frame, drop=["who"]).table
    names = RowNames(Table.open(table.path), ["who"])
    who = [text for block in names.blocks(1000) for text in block[0]]
    assert who == cases(frame)["who"].tolist() and [name.heading for name in names.names] == ["who", "row"]


def test_the_command(tmp_path, capsys):
    source = written(tmp_path, "a.csv", PATTERNS)
    assert main(["import", str(source), str(tmp_path / "a.h5"), "--count", "Freq"]) == 0
    out = capsys.readouterr().out
    assert "3,000 rows, 5 of 6 columns" in out and "says how many equal rows each row stands for" in out
