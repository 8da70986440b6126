"""A run opened from Python: the answers are those of `mpibayes query`, in the caller's kind of table."""

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import mpibayes as mb
from mpibayes.hpc.cli import main
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.conditions import Said
from tests.query.runs import people as texts
from tests.query.runs import people_run, write_csv

ignoring = pytest.mark.filterwarnings("ignore::mpibayes.MpibayesWarning")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return people_run(tmp_path_factory.mktemp("python"))


@pytest.fixture(scope="module")
def run(place):
    return mb.open(place, draws=20)


@pytest.fixture(scope="module")
def new(tmp_path_factory):
    """Some rows as a CSV file, and as a DataFrame with an index of its own."""
    file = write_csv(tmp_path_factory.mktemp("rows") / "new.csv", texts(12, seed=9))
    frame = pd.read_csv(file, parse_dates=["day"])
    frame.index = pd.Index([f"r{i}" for i in range(len(frame))])
    return file, frame


VERBS = {
    "logp": (["logp", "--of", "income"], lambda run, rows: run.logp(rows, of="income")),
    "given": (["logp", "--given", "age=20..40"], lambda run, rows: run.logp(rows, given={"age": (20, 40)})),
    "conditional": (["conditional", "colour"], lambda run, rows: run.conditional("colour", rows)),
    "impute": (["impute"], lambda run, rows: run.impute(rows)),
    "novelty": (["novelty"], lambda run, rows: run.novelty(rows)),
    "surprisal": (["surprisal", "--top", "5"], lambda run, rows: run.surprisal(rows, top=5)),
}


@pytest.mark.parametrize("name", VERBS)
def test_answers_are_those_of_the_command_line(place, run, new, tmp_path, name):
    file, frame = new
    words, ask = VERBS[name]
    out = tmp_path / "out.parquet"
    assert main(["query", str(place), *words, "--rows", str(file), "--draws", "20", "-o", str(out)]) == 0
    expected, result = pyarrow.parquet.read_table(out), ask(run, frame)
    assert isinstance(result, pd.DataFrame)
    assert result.reset_index(drop=True).equals(expected.to_pandas())
    assert result.index.equals(frame.index[result["row"] - 1])
    assert ask(run, str(file)).equals(expected)


@ignoring
def test_tables_come_back_as_they_came_in(run, new):
    pl = pytest.importorskip("polars")
    _, frame = new
    columns = {name: frame[name].astype(object).where(frame[name].notna(), None).tolist() for name in ("age", "colour")}
    assert isinstance(run.logp(frame[["age", "colour"]]), pd.DataFrame)
    assert isinstance(run.logp(pl.DataFrame(columns, strict=False)), pl.DataFrame)
    assert isinstance(run.logp(pa.table(columns)), pa.Table)

    class Capsule:  # of any other library
        def __arrow_c_stream__(self, requested_schema=None):
            return pa.table(columns).__arrow_c_stream__(requested_schema)

    for rows in (pa.table(columns), columns, Capsule(), pl.DataFrame(columns, strict=False)):
        assert np.array_equal(pa.table(run.logp(rows))["log_p"], run.logp(frame[["age", "colour"]])["log_p"])


def test_completed_rows_are_the_same_rows_with_their_gaps_filled(run, new):
    _, frame = new
    assert frame.isna().any(axis=None)
    full = run.complete(frame)
    assert not full[frame.columns].isna().any(axis=None) and full.index.equals(frame.index)
    seen = frame.notna()
    for name in frame.columns:
        before, after = frame.loc[seen[name], name], full.loc[seen[name], name]
        assert (before == after).all() and frame[name].dtype.kind == full[name].dtype.kind
    pl = pytest.importorskip("polars")
    given = pl.from_pandas(frame.reset_index(drop=True))
    filled = run.complete(given)
    assert filled.schema["day"] == given.schema["day"] and filled["age"].null_count() == 0


def test_simulated_rows_have_the_types_of_the_table(place):
    run = mb.open(place, draws=20, frames="pandas")
    rows = run.simulate(50, given={"colour": ["red", "blue"]}, seed=3)
    assert set(rows["colour"]) == {"red", "blue"} and rows["visits"].dtype == np.int64
    assert isinstance(rows["day"][0], datetime.date) and rows["height"].dtype == np.float64
    assert run.simulate(20, given="colour=blue|red", seed=3).equals(rows[:20])


CONDITIONS = [
    ("age", 40, "40"),
    ("age", np.int64(40), "40"),
    ("age", (40, 50), "40..50"),
    ("age", (40, None), "40.."),
    ("colour", "red", "red"),
    ("colour", ["red", "blue"], "red|blue"),
    ("day", datetime.date(2024, 1, 9), "2024-01-09"),
    ("day", np.datetime64("2024-01-09"), "2024-01-09"),
    ("day", pd.Timestamp("2024-01-09"), "2024-01-09"),
    ("day", (datetime.date(2024, 1, 9), None), "2024-01-09.."),
    ("visits", 3.0, "3"),
]


@pytest.mark.parametrize("name, value, text", CONDITIONS, ids=[c[2] for c in CONDITIONS])
def test_values_say_what_texts_say(place, name, value, text):
    conditions = Asking(place, draws=1).conditions
    ((of, one),) = conditions.read([Said(name, value)]).items()
    ((also, two),) = conditions.read([f"{name}={text}"]).items()
    assert of == also == name
    for field in ("codes", "low", "high", "sets"):
        assert np.array_equal(getattr(one, field), getattr(two, field)), field


@ignoring
def test_groups_are_compared(run, new):
    _, frame = new
    result = run.compare({"colour": "red"}, {"colour": "blue"}, columns=["age", "income"])
    assert result["column"].tolist() == ["age", "income"] and (result["divergence"] > 0.1).all()
    likewise = run.compare("colour=red", "colour=blue", columns="age,income")
    assert result.to_arrow().equals(likewise.to_arrow())
    assert len(run.compare(rows=frame[:6], against_rows=frame[6:])) == 7
    alike = run.compare(other=run)
    assert np.allclose(alike["divergence"], 0.0, atol=1e-12)
    assert len(run.predictors("income", ["age", "colour", "noise"], size=2)) <= 2


MISTAKES = {
    "compared two ways": (lambda run: run.compare({"age": 3}, other=run), "in one way"),
    "no such level": (lambda run: run.logp(of={"colour": "rad"}), "did you mean 'red'"),
    "no such column": (lambda run: run.conditional("color"), "did you mean 'colour'"),
    "no number": (lambda run: run.logp(of={"age": [1, 2]}), "is not a number"),
    "no whole number": (lambda run: run.logp(of={"visits": 2.5}), "is not a whole number"),
    "nothing asked": (
        lambda run: run.logp(),
        "name values with of=, as in of='income=high', or a file of rows with rows=",
    ),
    "no value": (lambda run: run.logp(of="colour"), "write of='colour=VALUE'"),
    "both sides": (lambda run: run.logp(of={"age": 3}, given={"age": 4}), "both asked for and given"),
    "no row": (lambda run: run.similarity(10**6), "row=1000000: expected a row of the table"),
    "no table": (lambda run: run.logp(3), "is no table; expected a DataFrame"),
    "no rows": (lambda run: run.novelty(None), "name those that the question is about"),
    "by what": (lambda run: run.surprisal(by="columns"), "expected 'cells' or 'rows'"),
    "no picture": (lambda run: run.predictors("age").plot(), "has no picture"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(run, name):
    ask, words = MISTAKES[name]
    with pytest.raises(mb.ConfigError) as caught:
        ask(run)
    assert words in str(caught.value) and "--" not in str(caught.value)


@ignoring
def test_rows_that_cannot_be_read(run):
    with pytest.raises(mb.DataError, match="DataFrame row 2, column 'age': found 'old'") as caught:
        run.logp({"age": ["30", "old"]})
    assert "parquet" not in str(caught.value) and "/tmp" not in str(caught.value)
    with pytest.raises(mb.DataError, match="Could not convert 'x'"):
        run.logp(pd.DataFrame({"age": [1, "x"]}))
    with pytest.raises(mb.DataError, match="violet"):
        run.logp({"colour": ["violet"], "age": [30]}, unseen="error")
    with pytest.warns(mb.MpibayesWarning, match=r"^DataFrame: .*'colour': 1 cell, first 'violet' in row 1"):
        run.logp({"colour": ["violet"], "age": [30]})
    with pytest.raises(mb.ConfigError, match="no such directory"):
        mb.open("no-such-run")
    with pytest.raises(mb.ConfigError, match="expected one of pandas, polars, pyarrow"):
        mb.open(run.directory, frames="excel")


def test_a_notebook_shows_the_message_and_the_line(run):
    with pytest.raises(mb.ConfigError) as caught:
        run.logp(of={"colour": "rad"})
    shown = caught.value._render_traceback_()
    assert shown[0].endswith('run.logp(of={"colour": "rad"})') and shown[-1].startswith("ConfigError: 'colour=rad'")
    assert len(shown) == 3


def test_a_result_shows_itself(run):
    result = run.conditional("colour", given={"age": 30})
    assert repr(result).startswith("colour given age=30\n") and "<table>" in result._repr_html_()
    assert result["p"].sum() == pytest.approx(1.0) and len(result) == 3 and result.names == ["colour", "p", "p_error"]
    assert pa.table(result).equals(result.to_arrow()) and result.frame.equals(result.to_arrow())
    assert isinstance(result.to_pandas(), pd.DataFrame) and result.notes[0].startswith("averaged over 20 draws")
    assert "median" in run.conditional("age").facts
    with pytest.raises(KeyError, match="there are colour, p, p_error"):
        result["q"]
    assert "; .frame has all of them" in repr(run.clusters())


def test_pictures_are_figures(run, pictures):
    from matplotlib.figure import Figure

    for result in (run.dependence(), run.conditional("income")):
        figure = result.plot()
        assert isinstance(figure, Figure) and figure._repr_png_().startswith(b"\x89PNG")


def test_clusters_labels_and_trace(place, run):
    clusters = run.clusters()
    assert clusters.names == ["row", "cluster", "probability", "held_out"] and clusters["held_out"].sum() == 16
    assert np.array_equal(clusters["row"], np.arange(1, 161)) and np.array_equal(run.labels, clusters["cluster"])
    assert run.labels.min() >= 1
    trace = run.trace.to_pandas()
    assert trace["chain"].tolist() == [1] * 28 + [2] * 28 and trace["cycle"].max() == 28
    assert run.columns["visits"] == "count" and "2 chains" in repr(run)


@ignoring
def test_clusters_of_other_rows(run, new):
    """Clusters are those of `predict`, but for a row whose most probable cluster is a new one."""
    file, frame = new
    result, predicted = run.clusters(rows=frame), run.predict(frame)
    assert list(result.columns) == ["row", "cluster", "probability"] and result.index.equals(frame.index)
    old = predicted["cluster"] > 0
    assert old.sum() > len(old) / 2 and result["cluster"].min() >= 1
    assert result["cluster"][old].tolist() == predicted["cluster"][old].tolist()
    assert np.allclose(result["probability"][old], predicted["p_cluster"][old])
    assert run.clusters(rows=file).column_names == ["row", "cluster", "probability"]
    with pytest.raises(mb.DataError, match="DataFrame: has no rows"):
        run.clusters(rows=frame.iloc[:0])


@pytest.mark.thorough
def test_other_tables_of_the_run(place, run):
    result = run.to_arviz()
    assert result.posterior.sizes["chain"] == 2 and result.posterior.sizes["draw"] == 20
    report = run.report()
    assert report.text == run.summary() and "trace.png" in report.pictures and "<img" in report._repr_html_()
    assert (report.save(place.parent / "written") / "summary.json").exists()


def test_several_directories_are_one_posterior(place, run):
    parts = [place / "chain-1", place / "chain-2"]
    both = mb.open(parts, draws=20)
    assert both.logp(of={"age": 30}).to_arrow().equals(run.logp(of={"age": 30}).to_arrow())
    assert len(both.status) == 0 and "mixture" in repr(both)


@pytest.mark.thorough
def test_several_views(tmp_path_factory):
    run = mb.open(people_run(tmp_path_factory.mktemp("views"), "crosscat"), draws=20)
    views = run.labels.shape[1] if run.labels.ndim == 2 else 1
    assert len(run.clusters().names) == 2 + 2 * views and len(run.clusters()) == len(run.labels) == 160
    assert len(run.dependence()) == 21 and len(run.similarity(5, top=3)) == 3
