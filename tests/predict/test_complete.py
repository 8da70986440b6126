"""`predict --complete`: gaps are filled with values as people record them, and all else in the file stays as it is."""

import csv
import datetime
import gzip
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from mpibayes.errors import CheckpointError, ConfigError, DataError
from mpibayes.hpc.results.predict import predict
from mpibayes.io import complete
from mpibayes.io.forms import Form, form_of
from mpibayes.io.recode import read_like
from mpibayes.io.table import Table
from tests.run.conftest import mpibayes

QUIET = {"console": Console(quiet=True)}
NAMES = ["who", "colour", "member", "income", "age", "mass", "visits"]
CONFIG = (
    "[data]\ntable = 't.h5'\n[model]\nfamily = 'mixture'\n"
    "[run]\ncycles = 24\nseed = 3\nshards = 2\n[output]\nlabels = 2\n"
)


def people(n, seed):
    """Red people have no income nine times in ten and are about 30, blue ones earn about 1000 and are about 60; ages
    come in years, the mass with a decimal comma. Cells are text; the group is the second thing returned."""
    g = np.random.default_rng(seed)
    blue = g.random(n) < 0.5
    income = np.where(blue, np.exp(g.normal(7.0, 1.3, n)), np.exp(g.normal(4.0, 0.8, n))).round().clip(1)
    income[g.random(n) < np.where(blue, 0.02, 0.9)] = 0
    age = g.normal(np.where(blue, 60, 30), 4).round()
    mass = g.normal(np.where(blue, 80, 60), 6).round(1)
    visits = g.poisson(np.where(blue, 9, 2))
    rows = [
        [
            f"p{i}",
            "blue" if b else "red",
            "yes" if b else "no",
            f"{x:.0f}",
            f"{a:.0f}",
            f"{m:.1f}".replace(".", ","),
            str(v),
        ]
        for i, (b, x, a, m, v) in enumerate(zip(blue, income, age, mass, visits))
    ]
    return rows, blue


def write(path, rows, names=NAMES):
    with open(path, "w", newline="") as file:
        csv.writer(file, delimiter=";").writerows([*([names] if names else []), *rows])
    return path


def read(path, delimiter=";"):
    with open(path, newline="") as file:
        return list(csv.reader(file, delimiter=delimiter))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("people")
    write(place / "t.csv", people(300, 1)[0])
    (place / "run.toml").write_text(CONFIG)
    kinds = ("--kind", "visits=count", "--keep", "member")  # which is one with the colour
    for words in (("import", "t.csv", "t.h5", *kinds), ("run", "run.toml", "-o", "a")):
        done = mpibayes(place, *words)
        assert done.returncode == 0, done.stderr
    income = next(c for c in Table.open(place / "t.h5").columns if c.name == "income")
    assert income.atoms == (0.0,) and income.log and income.resolution == 1.0
    return place / "a"


@pytest.fixture
def holes(tmp_path):
    """A file of 40 rows whose every row has a gap, in one of the columns but the first; and where the gaps are."""
    rows, blue = people(40, 2)
    gaps = [(i, 1 + i % 6) for i in range(40)]
    for i, j in gaps:
        rows[i][j] = ("", "NA", " ? ")[i % 3]
    return write(tmp_path / "holes.csv", rows), gaps, blue


def test_gaps_are_filled_as_people_record_values(run, holes, tmp_path):
    path, gaps, blue = holes
    done = predict(run, path, complete=tmp_path / "full.csv", **QUIET)
    given, reported = read(path), read(tmp_path / "full.csv")
    assert reported[0] == [*NAMES, "cluster", "p_cluster"] and len(reported) == 41
    assert sum(done.filled.values()) == 40 and done.filled["income"] == sum(j == 3 for _, j in gaps)
    for i, (g, t) in enumerate(zip(given[1:], reported[1:])):
        assert [c for j, c in enumerate(t[:7]) if (i, j) not in gaps] == [
            c for j, c in enumerate(g) if (i, j) not in gaps
        ]
        assert int(t[7]) >= 0 and 0 < float(t[8]) <= 1
    for i, j in gaps:
        cell, b = reported[1 + i][j], int(blue[i])
        if j == 1:
            assert cell == ("red", "blue")[b]
        elif j == 2:
            assert cell == ("no", "yes")[b]
        elif j == 3:  # an atom, or a number that is none: nothing in between, as a mean over both would be
            assert 500 < int(cell) < 2000 if b else cell == "0"
        elif j in (4, 6):
            assert int(cell) == pytest.approx({4: (30, 60), 6: (2, 9)}[j][b], abs=5)
        else:
            assert len(cell.partition(",")[2]) <= 1
            assert float(cell.replace(",", ".")) == pytest.approx((60, 80)[b], abs=6)
    assert any("," in reported[1 + i][j] for i, j in gaps if j == 5)
    rows = read_like(Table.open(run.parent / "t.h5"), tmp_path / "full.csv")  # no gap is left
    assert not np.isnan(rows.reals).any() and not np.isnan(rows.tallies).any() and (rows.codes8 < 2).all()


def test_the_fill_is_the_imputed_level_and_the_rounded_mean(run, holes, tmp_path):
    predict(run, holes[0], tmp_path / "out.csv", complete=tmp_path / "full.csv", impute=True, **QUIET)
    reported, out = read(tmp_path / "full.csv"), read(tmp_path / "out.csv", ",")
    place = {name: j for j, name in enumerate(out[0])}
    for i, j in holes[1]:
        cell, imputed = reported[1 + i][j], out[1 + i][place[f"imputed_{NAMES[j]}"]]
        if j in (1, 2):
            assert cell == imputed
        elif j != 3:
            assert float(cell.replace(",", ".")) == pytest.approx(float(imputed), abs=0.0501 if j == 5 else 0.501)
        assert reported[1 + i][7] == out[1 + i][place["cluster"]]
        assert float(reported[1 + i][8]) == pytest.approx(float(out[1 + i][place["p_cluster"]]), rel=1e-3)


def test_a_complete_file_stays_as_it_is(run, holes, tmp_path):
    """Also its columns that the run does not use, blanks, and names that are taken; pieces do not matter."""
    predict(run, holes[0], complete=tmp_path / "a.csv", **QUIET)
    predict(run, holes[0], complete=tmp_path / "b.csv", batch_rows=7, **QUIET)
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    done = predict(run, tmp_path / "a.csv", complete=tmp_path / "again.csv.gz", **QUIET)
    assert not any(done.filled.values())
    again = gzip.decompress((tmp_path / "again.csv.gz").read_bytes()).decode().splitlines()
    assert again[0].endswith(";cluster;p_cluster;cluster_;p_cluster_")
    assert [line.rsplit(";", 2)[0] for line in again] == (tmp_path / "a.csv").read_text().splitlines()


def test_new_levels_stay_and_lacking_columns_are_added(run, tmp_path):
    rows, blue = people(12, 5)
    rows = [[" padded ", *row[1:3], 'say "a;b"' if i % 2 else "a\rb", row[4]] for i, row in enumerate(rows)]
    rows[0][1] = "violet"
    path = write(tmp_path / "few.csv", rows, ["", "colour", "member", "remark", "age"])
    done = predict(run, path, complete=tmp_path / "full.csv", **QUIET)
    reported = read(tmp_path / "full.csv")
    assert reported[0] == ["", "colour", "member", "remark", "age", "income", "mass", "visits", "cluster", "p_cluster"]
    assert [row[:5] for row in reported[1:]] == rows and done.filled["income"] == 12 and done.filled["colour"] == 0
    assert [row[5] == "0" for row in reported[1:]] == (~blue).tolist()
    assert "'income', 'mass', 'visits'" in done.notes[0] and "violet" in done.notes[1]


def test_parquet_keeps_its_types(run, tmp_path):
    rows, _ = people(30, 6)
    who, colour, member, income, age, mass, visits = zip(*rows)
    hole = [i % 3 == 0 for i in range(30)]
    given = pa.table(
        {
            "who": pa.array(who),
            "when": pa.array(range(30), pa.timestamp("ms")),
            "colour": pa.array([None if h else c for c, h in zip(colour, hole)]).dictionary_encode(),
            "member": pa.array(member, pa.large_string()),
            "income": pa.array([None if h else int(x) for x, h in zip(income, hole)], pa.int32()),
            "age": pa.array([None if h else float(x) for x, h in zip(age, hole)], pa.float32()),
            "mass": pa.array(mass),
            "visits": pa.array([None if h else int(x) for x, h in zip(visits, hole)], pa.uint8()),
        }
    )
    pq.write_table(given, tmp_path / "new.parquet", row_group_size=7)
    done = predict(run, tmp_path / "new.parquet", complete=tmp_path / "full.parquet", **QUIET)
    reported = pq.read_table(tmp_path / "full.parquet")
    assert done.filled == {"colour": 10, "member": 0, "income": 10, "age": 10, "mass": 0, "visits": 10}
    assert reported.schema.names == [*given.schema.names, "cluster", "p_cluster"]
    for name in given.schema.names:
        assert reported[name].type == given[name].type and reported[name].null_count == 0
        kept = [(a, b) for a, b in zip(given[name].to_pylist(), reported[name].to_pylist()) if a is not None]
        assert all(a == b for a, b in kept)
    assert all(x == round(x) for x in reported["age"].to_pylist())


def test_a_type_that_cannot_hold_a_level_is_said(run, tmp_path):
    rows, _ = people(5, 6)
    columns = dict(zip(NAMES, map(list, zip(*rows))))
    pq.write_table(pa.table(columns | {"colour": pa.nulls(5, pa.int8())}), tmp_path / "new.parquet")
    with pytest.raises(DataError, match=r"column 'colour': its type, int8, cannot hold '(red|blue)'"):
        predict(run, tmp_path / "new.parquet", complete=tmp_path / "full.parquet", **QUIET)
    assert not list(tmp_path.glob("full*"))


def test_typed_tables(run, holes, tmp_path):
    done = mpibayes(tmp_path, "import", holes[0], "new.h5", "--kind", "visits=count", "--keep", "who")
    assert done.returncode == 0, done.stderr
    predict(run, holes[0], complete=tmp_path / "a.csv", **QUIET)
    predict(run, tmp_path / "new.h5", complete=tmp_path / "b.csv", **QUIET)
    predict(run, tmp_path / "new.h5", complete=tmp_path / "b.parquet", **QUIET)
    a, b, c = read(tmp_path / "a.csv"), read(tmp_path / "b.csv", ","), pq.read_table(tmp_path / "b.parquet")
    assert b[0] == a[0] == c.schema.names
    plain = [[cell.replace(",", ".").removesuffix(".0") for cell in row] for row in a]
    assert plain == b  # whose numbers have no form of their own
    assert c["visits"].to_pylist() == [int(row[6]) for row in b[1:]]


def test_what_the_run_does_not_use_may_be_of_any_type(run, tmp_path):
    """Bytes that are no text, and lists."""
    rows, _ = people(9, 7)
    columns = dict(zip(NAMES, map(list, zip(*rows)))) | {"age": [None] + [30.0] * 8}
    columns |= {"photo": pa.array([b"\xff\xd8"] * 9, pa.binary()), "tags": [[i] for i in range(9)]}
    pq.write_table(pa.table(columns), tmp_path / "new.parquet")
    done = predict(run, tmp_path / "new.parquet", complete=tmp_path / "full.parquet", **QUIET)
    reported = pq.read_table(tmp_path / "full.parquet")
    assert done.filled["age"] == 1 and reported["photo"].to_pylist() == [b"\xff\xd8"] * 9
    assert reported["tags"].to_pylist() == columns["tags"] and reported["photo"].type == pa.binary()


WHEN = "%d.%m.%Y %H:%M+02:00"


def test_dates_stay_as_the_file_has_them(tmp_path):
    """Dates come back as the text of the file, with its zone; of a typed table as dates, not as numbers of days."""
    days = [datetime.datetime(2024, 5, 1) + datetime.timedelta(hours=7 * i) for i in range(200)]
    lines = [f"{day.strftime(WHEN)};{day.date()};{i % 2}" for i, day in enumerate(days)]
    (tmp_path / "t.csv").write_text("when;day;b\n" + "\n".join(lines) + "\n")
    (tmp_path / "new.csv").write_text("when;day;b\n" + "\n".join([lines[0], ";;1", lines[2]]) + "\n")
    (tmp_path / "run.toml").write_text(CONFIG)
    for words in (("import", "t.csv", "t.h5"), ("run", "run.toml", "-o", "a")):
        assert mpibayes(tmp_path, *words).returncode == 0
    schema = tmp_path / "s.toml"
    done = mpibayes(tmp_path, "import", "t.csv", "t2.h5", "--write-schema", schema)
    done = mpibayes(tmp_path, "import", "new.csv", "new.h5", "--schema", schema)
    assert done.returncode == 0, done.stderr
    for name in ("new.csv", "new.h5"):
        predict(tmp_path / "a", tmp_path / name, complete=tmp_path / "full.csv", overwrite=True, **QUIET)
        reported = read(tmp_path / "full.csv", ";" if name == "new.csv" else ",")
        utc = days[0] - datetime.timedelta(hours=2)
        given = lines[0].split(";")[0] if name == "new.csv" else str(utc)
        assert reported[1][:2] == [given, "2024-05-01"]
        form = WHEN if name == "new.csv" else "%Y-%m-%d %H:%M:%S"
        assert days[0].date() < datetime.datetime.strptime(reported[2][0], form).date() < days[-1].date()
        assert "2024-05-01" < reported[2][1] < str(days[-1].date())
    predict(tmp_path / "a", tmp_path / "new.h5", complete=tmp_path / "full.parquet", **QUIET)
    reported = pq.read_table(tmp_path / "full.parquet")
    assert reported.schema.types[:2] == [pa.timestamp("ms"), pa.date32()] and reported["when"].null_count == 0
    assert reported["when"][0].as_py() == utc and reported["day"][0].as_py() == days[0].date()


def test_refusals(run, holes, tmp_path):
    def refused(words, *arguments, **options):
        with pytest.raises(ConfigError, match=words):
            predict(run, holes[0], *arguments, **options, **QUIET)

    refused("nothing to write: name a file")
    refused("--groups are columns of the file that -o names", complete=tmp_path / "a.csv", impute=True)
    refused("is both read and written by this command", complete=holes[0], overwrite=True)
    refused("is a text file; expected a name that ends in .csv", complete=tmp_path / "a.parquet")
    refused("is named twice", tmp_path / "a.csv", complete=tmp_path / "a.csv")
    (tmp_path / "mine.csv").write_text("mine")
    refused("exists and is kept", complete=tmp_path / "mine.csv")
    pq.write_table(pa.table({"age": [1.0]}), tmp_path / "new.parquet")
    with pytest.raises(ConfigError, match="is a Parquet file; expected a name that ends in"):
        predict(run, tmp_path / "new.parquet", complete=tmp_path / "a.csv", **QUIET)
    assert not (tmp_path / "a.csv").exists() and (tmp_path / "mine.csv").read_text() == "mine"


def test_a_full_disk_leaves_no_file(run, holes, tmp_path, monkeypatch):
    def fsync(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fsync)
    with pytest.raises(CheckpointError, match=r"full\.csv: cannot be written: No space left on device"):
        predict(run, holes[0], complete=tmp_path / "full.csv", **QUIET)
    assert [p.name for p in tmp_path.iterdir()] == ["holes.csv"]


@pytest.mark.parametrize(
    "form, text",
    [
        (Form(",", "."), "-1234,5"),
        (Form(".", ",", "$"), "-$1234.5"),
        (Form(",", "", "%"), "-1234,5%"),
        (Form(",", " ", "EUR"), "-1234,5 EUR"),
    ],
)
def test_numbers_are_written_as_they_are_read(form, text):
    assert form.written("-1234.5") == text
    assert form.plain(pa.array([text])).to_pylist() == ["-1234.5"]
    assert form_of(["12,5", "7,25"])[0].written("3.5") == "3,5"


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", " "])
@pytest.mark.parametrize("n_columns", [1, 3])
def test_lines_are_those_of_the_csv_module(tmp_path, delimiter, n_columns):
    """Quotes, delimiters, line ends, empty cells, and the same from cells with and without a dictionary."""
    texts = ["", "a", 'say "so"', "a,b;c|d\te f", "two\nlines", "\rback", " ", "é", "0", '"']
    columns = [np.random.default_rng(i).choice(texts, 200) for i in range(n_columns)]
    names = ["x", 'y "z"', "a,b"][:n_columns]
    originals = SimpleNamespace(head=names, delimiter=delimiter, encoding="utf-8")
    path = tmp_path / "a.csv"
    with path.open("wb") as file:
        text = complete._Text(file, originals, path)
        text.add({i: pa.array(cells, pa.string()).dictionary_encode() for i, cells in enumerate(columns)})
        text.add({i: pa.array([c or None for c in cells], pa.string()) for i, cells in enumerate(columns)})
        text.close()
    expected: list[str] = []  # the module quotes a carriage return only if its line terminator has one
    lines = csv.writer(SimpleNamespace(write=expected.append), delimiter=delimiter)
    lines.writerows([names, *zip(*columns), *zip(*columns)])
    assert path.read_bytes().decode() == "".join(line.removesuffix("\r\n") + "\n" for line in expected)


@pytest.mark.parametrize("gap", [0, 69_999])
def test_ordered_categories_stay_ordered(tmp_path, gap):
    """Also where a batch of the file has no gap."""
    k = np.arange(70_000) % 2
    values = np.where(k, "u", "v").astype(object)
    values[gap] = None
    codes = pa.array([None if v is None else "vu".index(v) for v in values], pa.int8())
    column = pa.DictionaryArray.from_arrays(codes, pa.array(["v", "u"]), ordered=True)
    held = complete._Parquet(None, SimpleNamespace(metadata=None, names=["b"]), tmp_path / "out.parquet")
    like = SimpleNamespace(levels=("u", "v"), name="b")
    filled = held.put(column, 70_000, np.array([gap]), np.array([0]), like, None)
    untouched = held.put(column, 70_000, np.zeros(0, int), np.zeros(0), like, None)
    assert filled.type == untouched.type == column.type and filled[gap].as_py() == "u"
