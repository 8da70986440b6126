"""`mpibayes.fit`: the program as a child of this one. Its errors, its interrupts and its run directory."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import mpibayes as mb
from mpibayes.hpc.python import child, display, settings
from mpibayes.hpc.run.identity import read_provenance, read_resolved
from mpibayes.io.table import Table
from tests.conftest import FOR_RANKS, is_running
from tests.query.runs import people, write_csv

AGES = {"mean": 40.0, "kappa": 0.1, "nu": 3, "variance": 200}
FIELD = Path(__file__).parents[1] / "io" / "field"
# no search for views, which takes most of a small run
FEW = {
    "cycles": 4, "chains": 1, "burn_in": 1, "until_settled": False,
    "config": {"output.labels": 1, "sampler.init_rows": 0},
}  # fmt: skip


def frame(n=60):
    return pd.DataFrame(people(n)).replace("", None).astype({"age": float, "height": float, "day": "datetime64[s]"})


# --- a DataFrame, and what is there already ---------------------------------------------------------------------------


def test_a_dataframe_is_fitted_continued_and_told_from_another(tmp_path, capfd):
    place = tmp_path / "a"
    run = mb.fit(frame(), place, **FEW)
    out = capfd.readouterr().out
    assert "cycle=4/4" in out and "the configuration" in out
    assert run.directory == place and isinstance(run.trace, pd.DataFrame) and len(run.trace) == 4
    assert (tmp_path / "a.parquet").exists() and isinstance(run.simulate(2), pd.DataFrame)
    assert len(mb.fit(frame(), place, **{**FEW, "cycles": 6}, progress=False).trace) == 6
    assert capfd.readouterr().out == ""
    with pytest.raises(mb.ConfigError, match="holds a run of another DataFrame"):
        mb.fit(frame(61), place, **FEW)
    with pytest.raises(mb.ConfigError, match="holds a run with another configuration") as caught:
        mb.fit(frame(), place, **FEW, seed=7, progress=False)
    assert any("run.seed" in problem for problem in caught.value.problems) and "--" not in str(caught.value)


def test_errors_of_the_child_are_exceptions(tmp_path):
    source = write_csv(tmp_path / "people.csv", people(40))
    with pytest.raises(mb.ConfigError) as caught:
        mb.fit(source, tmp_path / "a", config={"run.cycels": 3, "model": {"alpha": 2}}, progress=False)
    assert "2 problems in the configuration" in caught.value.message
    assert any("run.cycels" in p and "run.cycles" in p for p in caught.value.problems)
    assert caught.value.__cause__ is None and not (tmp_path / "a").exists()


@pytest.mark.thorough
def test_what_columns_mean_is_said_and_asked_as_by_the_command(tmp_path, capfd):
    weighted = pd.read_csv(FIELD / "weights_independent.csv")
    run = mb.fit(weighted, tmp_path / "a", **FEW)
    text = "column 'pweight': looks like the weight of each row"
    out = capfd.readouterr().out
    assert text in out and "if it is data: kinds={'pweight': 'real'}" in out and "pweight" not in run.columns
    with pytest.raises(mb.DataError, match="column 'Freq' looks like the number of cases") as caught:
        mb.fit(pd.read_csv(FIELD / "freq.csv"), tmp_path / "b", **FEW, progress=False)
    assert "import it with count='Freq'" in caught.value.problems[0]
    assert "import it with kinds={'Freq': 'real'}" in caught.value.problems[1]
    with pytest.raises(mb.DataError, match=r"^DataFrame: column 'Freq'") as caught:
        mb.import_table(pd.read_csv(FIELD / "freq.csv"), tmp_path / "c.h5")
    assert "kinds={'Freq': 'real'}" in caught.value.problems[1] and not (tmp_path / "c.h5").exists()
    kept = mb.fit(weighted, tmp_path / "d", kinds={"pweight": "real", "item1": "ignored"}, **FEW)
    assert "pweight" in kept.columns and text not in capfd.readouterr().out
    mb.fit(weighted, tmp_path / "e", kinds={"item1": "ignored"}, **FEW)  # imported here, not by the child
    assert text in capfd.readouterr().out


@pytest.mark.thorough
def test_more_errors(tmp_path, monkeypatch):
    with pytest.raises(mb.DataError, match="no such file"):
        mb.fit(tmp_path / "nothing.csv", progress=False)
    with pytest.raises(mb.ConfigError, match="given twice"):
        mb.fit({"a": [1, 2]}, seed=1, config={"run.seed": 2})
    with pytest.raises(mb.ConfigError, match="ranks = 0"):
        mb.fit({"a": [1, 2]}, ranks=0)
    monkeypatch.setenv("PMI_SIZE", "2")
    with pytest.raises(mb.ConfigError, match="not under mpirun"):
        mb.fit({"a": [1, 2]})
    monkeypatch.setattr(child, "mpirun", lambda: None)
    with pytest.raises(mb.ConfigError, match="there is no mpirun here"):
        child.start(["run"], 2)


@pytest.mark.thorough
def test_clusters_have_the_index_of_the_dataframe(tmp_path):
    """A column of clusters put beside the rows they were found in, here and when the run is opened again."""
    g, z = np.random.default_rng(3), np.repeat([0, 1], 40)
    z = g.permutation(z)
    index = pd.MultiIndex.from_arrays([[f"r{i % 7}" for i in range(80)], range(80, 0, -1)], names=["who", "n"])
    data = pd.DataFrame({"x": g.normal(20.0 * z), "y": g.normal(-20.0 * z), "s": np.array(["a", "b"])[z]}, index=index)
    data.loc[:, "x"] = data["x"].round(3)
    about = {**FEW, "cycles": 30, "burn_in": 10, "heldout": 0.3, "config": {"output.labels": 2}}
    run = mb.fit(data, tmp_path / "a", **about, progress=False)
    for opened in (run, mb.open(tmp_path / "a", frames="pandas")):
        data["cluster"] = opened.clusters().frame["cluster"]
        table = pd.crosstab(data["cluster"], z)
        assert opened.clusters().frame.index.equals(index) and table.to_numpy().max(axis=1).sum() == 80
        odd = opened.surprisal(top=4).frame
        assert odd.index.equals(index[odd["row"] - 1])
    again = data.drop(columns="cluster").reset_index(drop=True)
    assert mb.fit(again, tmp_path / "a", **about, progress=False).clusters().frame.index.equals(again.index)
    plain = mb.open(tmp_path / "a")
    assert isinstance(plain.clusters().frame, pa.Table) and plain.clusters().to_pandas().index.equals(again.index)
    (tmp_path / "a.index.parquet").write_bytes(b"no parquet")
    assert len(mb.open(tmp_path / "a", frames="pandas").clusters().frame) == 80


@pytest.mark.thorough
def test_kinds_make_a_table_that_is_found_again(tmp_path, capfd):
    g = np.random.default_rng(1)
    data = pa.table({"code": g.integers(1, 40, 200), "x": g.normal(size=200)})
    run = mb.fit(data, tmp_path / "a", kinds={"code": "categorical"}, **FEW)
    assert run.columns["code"] == "categorical" and isinstance(run.trace, pa.Table)
    assert len(mb.fit(data, tmp_path / "a", kinds={"code": "categorical"}, **{**FEW, "cycles": 5}).trace) == 5
    with pytest.raises(mb.ConfigError, match="of another table, or with other columns"):
        mb.fit(data, tmp_path / "a", kinds={"code": "count"}, **FEW)
    again = mb.fit(data, tmp_path / "a", kinds={"code": "count"}, **FEW, fresh=True)
    assert again.columns["code"] == "count" and (tmp_path / "a.old-1").exists()
    assert not list(tmp_path.glob("*.new.h5"))
    table = mb.import_table(data, tmp_path / "t.h5", kinds={"code": "real"})
    assert "code" in capfd.readouterr().out
    assert mb.fit(table, **FEW, progress=False).directory == tmp_path / "runs" / "t"
    run = mb.fit(data, **FEW, progress=True)
    assert f"the run is in {run.directory}" in capfd.readouterr().out


def test_under_a_launcher_a_run_starts_no_ranks_of_its_own(monkeypatch):
    """`mpirun -n 1 python script.py`: the cores are the launcher's. The child does not take itself for a rank."""
    monkeypatch.delenv("MPIBAYES_RANKS")
    monkeypatch.setenv("PMI_RANK", "0")
    assert child._environment()["MPIBAYES_RANKS"] == "1" and "PMI_RANK" not in child._environment()
    monkeypatch.delenv("PMI_RANK")
    assert "MPIBAYES_RANKS" not in child._environment()
    note = "note: one process, since a batch system allocates the cores here; --ranks 2 starts 2"
    assert child.in_python(note) == note.replace("--ranks 2", "ranks=2")


@pytest.mark.thorough
def test_several_ranks_give_the_same_bits(tmp_path, monkeypatch):
    for name, value in FOR_RANKS.items():
        monkeypatch.setenv(name, value)
    data, many = frame(200), {**FEW, "config": {"output.labels": 1, "run.shards": 2, "columns.age.prior": AGES}}
    one, two = (mb.fit(data, tmp_path / str(n), ranks=n, **many, progress=False) for n in (1, 2))
    assert one.trace.drop(columns="seconds").equals(two.trace.drop(columns="seconds"))
    assert two.status[0]["ranks"] == 2 and np.array_equal(one.labels, two.labels)


# --- a regression -----------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_regression_predicts_and_refuses_what_it_has_not(tmp_path):
    g = np.random.default_rng(2)
    x = g.normal(size=400)
    data = pd.DataFrame({"x": x, "y": np.where(g.random(400) < 1 / (1 + np.exp(-2 * x)), "yes", "no")})
    about = {"family": "regression", "likelihood": "logistic", "response": "y", "cycles": 300, "chains": 1}
    run = mb.fit(data, tmp_path / "r", **about, until_settled=False, progress=False)
    result = run.predict(data[["x"]].iloc[:5])
    assert isinstance(result, pd.DataFrame) and result["p_yes"].between(0, 1).all()
    with pytest.raises(mb.ConfigError, match="without clusters"):
        run.clusters()
    assert (run.complete(data.assign(y=None).astype({"y": object}))["y"].isin(["yes", "no"])).all()


# --- interrupts -------------------------------------------------------------------------------------------------------

PROGRAM = """
import signal, sys
import mpibayes as mb

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job was told to ignore it
try:
    mb.fit("people.csv", "run", ranks=int(sys.argv[1]), cycles=10**6, chains=1, burn_in=1, until_settled=False,
           config={"output.labels": 1000, "run.shards": 2}, max_time="3m")
except mb.Interrupted as error:
    print("INTERRUPTED", isinstance(error, KeyboardInterrupt), error, flush=True)
"""


def start(place, ranks):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(ranks)],
        cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, **FOR_RANKS},
    )  # fmt: skip


def wait_for_cycles(run, process, seconds=60):
    limit = time.monotonic() + seconds
    while not is_running(run):
        assert process.poll() is None and time.monotonic() < limit, process.communicate()
        time.sleep(0.05)


@pytest.mark.quick("1")
@pytest.mark.parametrize("ranks", [1, 2])
def test_an_interrupt_ends_at_a_checkpoint_and_the_same_call_continues(tmp_path, ranks):
    """The interrupt reaches the whole group of processes, as from a terminal or a notebook's server."""
    write_csv(tmp_path / "people.csv", people(60))
    process = start(tmp_path, ranks)
    try:
        wait_for_cycles(tmp_path / "run", process)
        time.sleep(1.0)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, out + err
    assert "INTERRUPTED True run: stopped at the checkpoint of cycle" in out and "Traceback" not in out + err
    (status,) = mb.open(tmp_path / "run").status
    assert status["state"] == "stopped" and status["last_checkpoint"] == status["cycle"] > 0
    cycles = status["cycle"] + 2
    again = mb.fit(
        tmp_path / "people.csv", tmp_path / "run", cycles=cycles, chains=1, burn_in=1, until_settled=False,
        config={"output.labels": 1000, "run.shards": 2}, progress=False,
    )  # fmt: skip
    assert again.trace["cycle"].to_pylist() == list(range(1, cycles + 1))


@pytest.mark.thorough
def test_a_second_interrupt_ends_the_run_at_once(tmp_path):
    """The child, which would go on for long, and has no say any more: it is stopped by SIGSTOP."""
    write_csv(tmp_path / "people.csv", people(60))
    process = start(tmp_path, 1)
    wait_for_cycles(tmp_path / "run", process)
    pid = mb.open(tmp_path / "run").status[0]["pid"]
    os.kill(pid, signal.SIGSTOP)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(1.0)
    out, err = process.communicate(timeout=60)
    assert "INTERRUPTED" in out and process.returncode == 0, out + err
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.thorough
def test_a_time_limit_is_no_error(tmp_path, capfd):
    write_csv(tmp_path / "people.csv", people(60))
    run = mb.fit(
        tmp_path / "people.csv", tmp_path / "a", cycles=10**6, chains=1, until_settled=False, max_time=8.0,
        config={"output.labels": 1000, "model.family": "mixture"},
    )  # fmt: skip
    assert run.status[0]["state"] == "stopped" and "run the same command again" in capfd.readouterr().out


# --- what needs no child ----------------------------------------------------------------------------------------------


def test_settings_become_keys():
    nested = {"run": {"seed": np.int64(3)}, "columns": {"a b": {"use": False}}, "anneal.schedule": [[2, 0.1]]}
    result = settings._settings({"data.heldout": settings._heldout(0)}, nested)
    assert result == {
        "data.heldout": "none",
        "run.seed": 3,
        'columns."a b".use': False,
        "anneal.schedule": [[2, 0.1]],
    }
    prior = {"columns": {"x": {"prior": {"shape": 2, "rate": 0.5}}}}
    assert settings._settings({}, prior) == {"columns.x.prior": {"shape": 2, "rate": 0.5}}


def test_what_a_child_said_becomes_an_exception():
    text = ["warning: x", "mpibayes: error: runs/a: choose another with -o, or --fresh", "  - one", "  - two", "noise"]
    error = child.error_of(2, text)
    assert type(error) is mb.ConfigError and error.problems == ("one", "two")
    assert error.message == "runs/a: choose another with directory=, or fresh=True"
    error = child.error_of(70, ["Traceback ...", "mpibayes: internal error: ValueError: no"])
    assert type(error) is mb.MpibayesError and "exit code 70" in error.message and len(error.problems) == 2
    assert "by SIGKILL" in child.error_of(-9, []).message
    assert (
        child.in_python("srun --mpi=pmix; --given 'a=1' and --burn-in 5")
        == "srun --mpi=pmix; given='a=1' and burn_in=5"
    )


@pytest.mark.thorough
def test_options_that_fit_does_not_have_are_those_of_import_table(tmp_path):
    with pytest.raises(mb.DataError, match="say encoding='cp1252'") as caught:
        mb.fit(FIELD / "european.csv", tmp_path / "a", **FEW, progress=False)
    (way,) = caught.value.problems
    place = str(tmp_path / "a.h5")
    assert f"to mpibayes.import_table({str(FIELD / 'european.csv')!r}, {place!r}, ...), then make the same call" in way
    mb.import_table(FIELD / "european.csv", place, encoding="cp1252")
    run = mb.fit(FIELD / "european.csv", tmp_path / "a", **FEW, progress=False)
    assert "Straße" in run.columns
    with pytest.raises(mb.DataError) as caught:
        mb.fit(FIELD / "freq.csv", tmp_path / "b", **FEW, progress=False)  # fit has `kinds`, but not `count`
    assert len(caught.value.problems) == 4 and "import_table" in caught.value.problems[-1]


def test_a_notebook_shows_bars(monkeypatch):
    shown = []

    class Handle:
        def update(self, what):
            shown.append(what._repr_html_())

    class Shell:
        kernel = object()

    def show(what, display_id):
        shown.append(what._repr_html_())
        return Handle()

    fake = type(sys)("IPython")
    fake.get_ipython, fake.display = Shell, type(sys)("IPython.display")
    fake.display.display = show
    monkeypatch.setitem(sys.modules, "IPython", fake)
    monkeypatch.setitem(sys.modules, "IPython.display", fake.display)
    result = display.display_for(True)
    assert isinstance(result, display.Notebook)
    result.say("2026-01-05T12:00:07 <b>imports</b> into a.h5")
    result.say("2026-01-05T12:00:07 cycle=3/10 K=2")
    status = {"chain": "chain-1", "family": "mixture", "cycle": 3, "cycles": 10, "state": "running", "n_clusters": 2}
    result.show([status])
    result.show([status])
    assert len(shown) == 2 and "&lt;b&gt;imports" in shown[0] and "2026" not in shown[0]
    assert '<progress value="3" max="10">' in shown[1] and "chain-1: cycle=3/10 K=2" in repr(result)


def test_a_configuration_beyond_the_limits_of_a_document_is_one_message(tmp_path):
    """Nesting without end was a RecursionError, and 5,000 digits a ValueError of Python's."""
    endless = []
    endless.append(endless)
    for value, words in ((endless, "more than 32 deep"), (10**5000, "more than 300 digits")):
        with pytest.raises(mb.ConfigError, match=words):
            mb.fit({"x": [1.0, 2.5, 3.5] * 9}, tmp_path / "run", config={"run.shards": value}, progress=False)


@pytest.mark.thorough
def test_rows_that_come_later(tmp_path):
    """Later rows are appended to the run's table once, and the run goes on with all of them; "auto" is decided anew."""
    run = mb.fit(frame(), tmp_path / "a", **{**FEW, "cycles": 5, "burn_in": None}, progress=False)
    later = frame(90)[60:]
    with pytest.raises(mb.ConfigError, match="kinds: is for a new run"):
        mb.fit(later, run=run, kinds={"age": "real"}, progress=False)
    for more, words in (
        ({"run.seed": 9}, "run.seed: was"),
        ({"columns.job.prior": {"grid": [0.5]}}, "columns.job"),
    ):
        with pytest.raises(mb.ConfigError) as caught:  # before a row is appended
            mb.fit(later, run=run, config=more, progress=False)
        assert words in str(caught.value)
    assert Table.open(read_provenance(run.directory)["table"]).n_rows == 60
    for again in (run, tmp_path / "a"):  # the second call has nothing to do
        longer = mb.fit(later, run=again, cycles=3, progress=False)
        assert longer.directory == tmp_path / "a" and len(longer.clusters()) == 90 and len(longer.trace) == 3
    assert len(mb.open(tmp_path / "a" / "grown" / "1").trace) == 5
    burn_in = [read_resolved(tmp_path / place)["run"]["burn_in"] for place in ("a", "a/grown/1")]
    assert burn_in == [0, 1] and read_provenance(tmp_path / "a")["auto"] == ["shards", "burn_in"]
