"""The example of the 1990 census: its checksum, its schema, a stand-in from the file to the report, genuine pieces."""

import csv
import gzip
import hashlib
import importlib.util
import lzma
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mpibayes.hpc.cli import main
from mpibayes.hpc.synthetic.truth import CENSUS, Shape, Truth, census
from mpibayes.io.table import Table

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "census1990"
SCHEMA = ["--schema", str(EXAMPLE / "schema.toml")]


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("census1990", EXAMPLE / "census1990.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stand_in(path, n):
    """A file of the census's shape, drawn from a known mixture; its cells, a list of texts a row."""
    rows = Truth(Shape(census(), n_clusters=3), 5).rows(0, n)
    cells = [[str(10_000 + i), *map(str, row)] for i, row in enumerate(codes(rows))]
    with open(path, "w", newline="") as file:
        csv.writer(file, lineterminator="\r\n").writerows([["caseid", *CENSUS], *cells])
    return cells


def codes(rows):
    """All columns of the census have fewer than 256 levels."""
    return rows.codes8.tolist()


def texts(path):
    """Each row of a table as texts."""
    table = Table.open(path)
    return [[c.levels[code] for c, code in zip(table.columns, row)] for row in codes(table.read())]


def test_checksum_is_of_the_text_with_its_own_ends_of_lines(example, tmp_path, monkeypatch):
    text = b"caseid,dAge\r\n10000,5\r\n10001,6\r\n"
    expected = hashlib.sha256(text).hexdigest()
    (tmp_path / "a.txt").write_bytes(text)
    (tmp_path / "b.txt").write_bytes(text.replace(b"\r\n", b"\n"))
    (tmp_path / "c.gz").write_bytes(gzip.compress(text))
    (tmp_path / "d.xz").write_bytes(lzma.compress(text))
    for size in (1, 2, 3, 7, 1 << 20):  # blocks that end between CR and LF
        monkeypatch.setattr(example, "MEBIBYTE", size)
        assert {example.digest(tmp_path / name) for name in ("a.txt", "b.txt", "c.gz", "d.xz")} == {expected}
    (tmp_path / "e.txt").write_bytes(text.replace(b"10001,6", b"10001,7"))
    assert example.digest(tmp_path / "e.txt") != expected


def test_another_file_is_refused(example, tmp_path, capsys):
    stand_in(tmp_path / "census.txt", 20)
    assert example.main([str(tmp_path / "census.txt"), "-o", str(tmp_path / "out")]) == 3
    result = example.digest(tmp_path / "census.txt")
    assert f"its sha256 is {result}, expected {example.SHA256}" in capsys.readouterr().err
    assert example.main([str(tmp_path / "none.txt"), "-o", str(tmp_path / "out")]) == 3
    assert "none.txt: cannot be read" in capsys.readouterr().err
    (tmp_path / "cut.xz").write_bytes(lzma.compress(b"caseid,dAge\r\n" * 1000)[:60])
    assert example.main([str(tmp_path / "cut.xz"), "-o", str(tmp_path / "out")]) == 3
    assert not (tmp_path / "out").exists()


def test_stand_in_is_imported_as_it_is(tmp_path):
    cells = stand_in(tmp_path / "census.txt", 400)
    assert main(["import", str(tmp_path / "census.txt"), str(tmp_path / "c.h5"), *SCHEMA]) == 0
    assert [c.name for c in Table.open(tmp_path / "c.h5").columns] == list(CENSUS)
    assert texts(tmp_path / "c.h5") == [row[1:] for row in cells]


@pytest.mark.thorough
def test_stand_in_from_the_file_to_the_report(example, tmp_path):
    if not shutil.which("mpirun"):
        pytest.skip("no mpirun")
    stand_in(tmp_path / "census.txt", 600)
    words = [sys.executable, str(EXAMPLE / "census1990.py"), str(tmp_path / "census.txt"), "-o", str(tmp_path / "out")]
    words += ["--sha256", example.digest(tmp_path / "census.txt"), "--set", "run.cycles=10", "--set", "output.labels=2"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    steps = done.stdout.splitlines()[-1].removeprefix("seconds: ").split(", ")
    assert [step.split()[0] for step in steps] == ["checksum", "import", "check", "run", "report"]
    assert (tmp_path / "out" / "run" / "report" / "report.txt").exists()


@pytest.mark.data
def test_genuine_pieces(tmp_path):
    """The first and last rows of the true file, and a part of its columns."""
    folder = Path(os.environ["MPIBAYES_DATA"]) / "census1990_pieces"
    first, last, part = (folder / f"USCensus1990_{name}.csv.xz" for name in ("first199", "last22", "13cols_20000rows"))
    names = ",".join(["caseid", *CENSUS])
    assert main(["import", str(first), str(tmp_path / "first.h5"), *SCHEMA]) == 0
    assert main(["import", str(last), str(tmp_path / "last.h5"), *SCHEMA, "--no-header", "--names", names]) == 0
    assert main(["import", str(part), str(tmp_path / "part.h5")]) == 0
    for name, file, head in (("first", first, 1), ("last", last, 0)):
        with lzma.open(file, "rt", newline="") as source:
            cells = [row[1:] for row in csv.reader(source)][head:]
        assert texts(tmp_path / f"{name}.h5") == cells
        for i, n in enumerate(CENSUS.values()):
            assert len({row[i] for row in cells}) <= n
    assert Table.open(tmp_path / "part.h5").n_rows == 20_000
    assert [c.name for c in Table.open(tmp_path / "part.h5").columns][:3] == ["dAge", "iCitizen", "iDisabl1"]
