"""Times to an event from a file of text to the page, its questions and its completed table."""

import csv
import itertools
import json

import numpy as np
import pyarrow as pa
import pytest

import mpibayes as mb
from mpibayes.errors import DataError
from mpibayes.io import spells
from mpibayes.io.append import append_rows
from mpibayes.io.ingest import import_table
from mpibayes.io.table import Table
from tests.run.conftest import mpibayes, sets

N = 160
RUN = sets(
    "model.family=mixture",
    "columns.time.prior={shape = 1.0, rate = 900.0}",
    "data.heldout=0.1",
    "run.seed=4",
    "run.shards=3",
    "run.cycles=20",
    "run.burn_in=4",
)


def people(path, n=N, seed=1):
    """Two groups, in one of which the event comes ten times as early; censored by status 0 or 1, the event being 2."""
    g = np.random.default_rng(seed)
    z = g.integers(2, size=n)
    came, left = g.exponential(np.array([300.0, 3000.0])[z]), g.uniform(200.0, 2000.0, n)
    with open(path, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["time", "status", "group", "x", "status2"])
        for i in range(n):
            time, status = f"{min(came[i], left[i]):.1f}", 2 if came[i] < left[i] else i % 2
            gap = i in (5, 77)
            out.writerow(["" if gap else time, status, "ab"[z[i]], f"{z[i] + g.normal():.3f}", "02"[status == 2]])


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    place = tmp_path_factory.mktemp("survival")
    people(place / "people.csv")
    words = ("--survival", "time,status=2", "--drop", "status2", "--write-schema", "schema.toml")
    done = mpibayes(place, "import", "people.csv", "people.h5", *words)
    assert done.returncode == 0, done.stderr
    done = mpibayes(place, "run", "people.h5", "-o", "one", *RUN)
    assert done.returncode == 0, done.stderr
    return place


def cells_of(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def asked(place, *words):
    done = mpibayes(place, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.thorough
def test_the_table_and_its_schema(ran):
    table = Table.open(ran / "people.h5")
    column = table.columns[0]
    x = table.read().reals[:, column.index]
    rows = cells_of(ran / "people.csv")
    assert (
        column.kind == "survival"
        and column.n_missing == 2
        and [c.name for c in table.columns] == ["time", "group", "x"]
    )
    for value, row in zip(x, rows):
        assert np.isnan(value) if not row["time"] else value == float(row["time"]) * (1 if row["status"] == "2" else -1)
    assert len(column.ends) == 7 and list(column.ends) == sorted(column.ends)
    (ran / "cut.toml").write_text((ran / "schema.toml").read_text().replace(
        'kind = "survival"', 'kind = "survival"\ncuts = [365, 1000.5]'
    ))  # fmt: skip
    asked(ran, "import", "people.csv", "again.h5", "--schema", "cut.toml")
    again = Table.open(ran / "again.h5")
    assert again.columns[0].ends == (365.0, 1000.5) and again.fingerprint != table.fingerprint


def test_the_same_bits_on_two_ranks(ran):
    done = mpibayes(ran, "run", "people.h5", "-o", "two", *RUN, ranks=2)
    assert done.returncode == 0, done.stderr
    texts = [asked(ran, "export", run, "--to", "csv", "--no-timings", "-o", f"{run}.csv") for run in ("one", "two")]
    assert len(texts) == 2 and (ran / "one.csv").read_bytes() == (ran / "two.csv").read_bytes()


def test_the_report_has_curves(ran, figures):
    asked(ran, "report", "one")
    text = (ran / "one/report/report.txt").read_text()
    assert "without the event" in text or "has not come by a time" in text
    views = json.loads((ran / "one/report/summary.json").read_text())
    found = find(views, "survival")
    assert found and found[0]["column"] == "time"
    for cluster in found[0]["clusters"]:
        means = [p["mean_low_high"][0] for p in cluster["survival"]]
        assert all(a >= b for a, b in itertools.pairwise(means)) and cluster["events"] <= cluster["rows"]


def find(document, key):
    """The first value of a key that is a list of dictionaries."""
    if isinstance(document, dict):
        if isinstance(document.get(key), list) and document[key] and isinstance(document[key][0], dict):
            return document[key]
        document = list(document.values())
    for part in document if isinstance(document, list) else ():
        if (result := find(part, key)) is not None:
            return result
    return None


@pytest.mark.thorough
def test_questions(ran):
    """A time beyond another is less probable, the early group's too; cells of the distribution add up."""

    def p(*words):
        return float(asked(ran, "query", "one", "logp", *words).splitlines()[2].split()[2])

    early, late = (p("--of", "time=300..", "--given", f"group={g}") for g in "ab")
    assert early < late and p("--of", "time=600..") < p("--of", "time=300..")
    assert p("--of", "time=300+") == pytest.approx(p("--of", "time=300.."), abs=1e-3)
    table = asked(ran, "query", "one", "conditional", "time", "--given", "group=a")
    assert "beyond" in table and "median" in table
    sides = ("--group", "group=a", "--against", "group=b")
    for verb in (("predictors", "time"), ("dependence",), ("simulate",), ("surprisal",), ("compare", *sides)):
        assert asked(ran, "query", "one", *verb)
    assert "not reached" in asked(ran, "query", "one", "conditional", "time", "--given", "group=b")
    refused = mpibayes(ran, "synthesize", "one", "-o", "synthetic")
    assert refused.returncode == 2 and "censored in the table" in refused.stderr


def test_a_completed_table_has_times_beyond_their_censoring(ran):
    asked(ran, "complete", "one", "--copies", "1", "-o", "complete")
    before, after = (cells_of(path) for path in (ran / "people.csv", ran / "complete/copy-1.csv"))
    for a, b in zip(before, after):
        assert b["status"] == "2" and float(b["time"]) >= float(a["time"] or 0)
        assert a["status"] != "2" or not a["time"] or a["time"] == b["time"]
    assert any(a["time"] != b["time"] for a, b in zip(before, after))


def test_new_rows(ran):
    (ran / "new.csv").write_text("time,status,group,x\n100,2,a,0.1\n100,1,b,0.4\n,,b,1.2\n")
    asked(ran, "predict", "one", "new.csv", "-o", "predicted.csv", "--impute")
    rows = cells_of(ran / "predicted.csv")
    assert [bool(row["imputed_time"]) for row in rows] == [False, False, True]
    (ran / "bad.csv").write_text("time,group,x\n100,a,0.1\n")
    done = mpibayes(ran, "predict", "one", "bad.csv", "-o", "none.csv")
    assert done.returncode == 3 and "which says whether the event occurred" in done.stderr
    people(ran / "later.csv", 20, 2)
    asked(ran, "import", "later.csv", "people.h5", "--append", "--drop", "status2")
    assert (
        Table.open(ran / "people.h5").columns[0].ends
        == Table.of(Table.open(ran / "people.h5").pieces[:1]).columns[0].ends
    )


def test_what_cannot_be(tmp_path):
    people(tmp_path / "people.csv", 60)
    for words, message in (
        (("--survival", "time,status"), "expected 1 or 0, yes or no: whether the event occurred"),
        (("--survival", "time,nothing"), "VALUE; no column 'nothing'"),
        (("--survival", "tme,status=2"), "VALUE; no column 'tme' (did you mean 'time'?)"),
        (
            ("--survival", "time,status=2", "--keep", "status"),
            "a pair of --survival, and cannot be kept",
        ),
        (("--survival", "x,status=2"), "a time of 0 or more"),
        (("--survival", "time,status=2", "--kind", "time=real"), "is of a pair of --survival"),
        (("--kind", "time=survival"), "a survival column is of two of the file"),
    ):
        done = mpibayes(tmp_path, "import", "people.csv", "people.h5", *words)
        assert done.returncode in (2, 3) and message in " ".join(done.stderr.split()), (words, done.stderr)
    asked(tmp_path, "import", "people.csv", "people.h5", "--survival", "time,status=2")
    done = mpibayes(tmp_path, "run", "people.h5", "-o", "features", *sets("model.family=ibp"))
    assert done.returncode == 2 and "is of times to an event" in done.stderr


HEAD = "time,dead,g\n"


@pytest.mark.parametrize(
    ("cells", "options", "expected"),
    [
        (["3,yes,a", "4,no,b"], ("time,dead=Yes",), "column 'dead': no cell is 'Yes'"),
        (["3,1,a", "4+,0,b"], ("time,dead",), "row 2, column 'time': found '4+'"),
        (["3,1,a", "4,-9,b"], ("time,dead",), "row 2, column 'dead': found '-9'"),
    ],
)
def test_a_pair_that_cannot_be_read_is_refused(cells, options, expected, tmp_path):
    (tmp_path / "a.csv").write_text(HEAD + "\n".join(cells * 9) + "\n")
    with pytest.raises(DataError) as raised:
        import_table(tmp_path / "a.csv", tmp_path / "a.h5", survival=list(options))
    assert expected in str(raised.value)
    assert not (tmp_path / "a.h5").exists()


def test_markers_hold_for_the_event_too(tmp_path):
    """Also in rows that are appended: the row is missing, and not censored."""
    (tmp_path / "a.csv").write_text(HEAD + "3,1,a\n4,-9,b\n0,0,a\n" * 9)
    (tmp_path / "b.csv").write_text(HEAD + "5,-9,a\n6,0,b\n")
    import_table(tmp_path / "a.csv", tmp_path / "a.h5", survival=["time,dead=1"], missing=["-9"])
    append_rows([tmp_path / "b.csv"], tmp_path / "a.h5")
    table = Table.open(tmp_path / "a.h5")
    time = next(c for c in table.columns if c.name == "time")
    cells = table.read(0, table.n_rows).reals[:, time.index]
    assert np.isnan(cells).sum() == 10
    assert np.isnan(cells[1]) and np.isnan(cells[27])
    assert spells.text(cells[2]) == "0+" and time.minimum == 0.0  # censored at once


def test_an_event_that_the_table_never_had_is_refused(tmp_path):
    """The level may be another event, or the same by another name, and would count as censored."""
    (tmp_path / "a.csv").write_text(HEAD + "3,2,a\n4,0,b\n5,1,b\n" * 9)
    (tmp_path / "b.csv").write_text(HEAD + "5,1.0,a\n6,2.0,b\n7,dead,b\n")
    import_table(tmp_path / "a.csv", tmp_path / "a.h5", survival=["time,dead=2"])
    with pytest.raises(DataError, match=r"row 3, column 'dead': found 'dead', which the table never had.*'0' and '1'"):
        append_rows([tmp_path / "b.csv"], tmp_path / "a.h5")


def test_a_column_without_events_is_imported_with_a_warning(tmp_path):
    (tmp_path / "a.csv").write_text(HEAD + "3,0,a\n4,0,b\n" * 9)
    summary = import_table(tmp_path / "a.csv", tmp_path / "a.h5", survival=["time,dead"])
    assert any("the event occurred in no row" in text for text in summary.warnings)


def test_python_imports_pairs(tmp_path):
    data = pa.table({"time": [3.0, 4.0] * 9, "dead": [True, False] * 9, "g": ["a", "b"] * 9})
    table = Table.open(mb.import_table(data, tmp_path / "a.h5", survival="time,dead"))
    assert "survival" in [column.kind for column in table.columns]
    with pytest.raises(DataError, match=r"survival=\['time,g=a'\]"):
        mb.import_table(data, tmp_path / "b.h5", survival=["time,g"])


def test_ends_that_no_tick_tells_apart_are_left_out():
    assert spells.ends_of(np.array([1e-300] * 4 + [1.0, 2.0, 3.0, 4.0]))[0] >= 1.0
