"""The command line: it teaches, it passes on what was asked for; a failure is one message and its exit code."""

import os
import subprocess
import sys
import types

import pytest

from mpibayes.errors import CheckpointError, ConfigError, DataError, MpibayesError, NumericalError
from mpibayes.hpc import cli
from mpibayes.hpc.parallel.launcher import RANK_VARIABLES

COMMANDS = ["import", "run", "check", "doctor", "status", "report", "export", "predict", "complete", "simulate"]


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def stand_in(monkeypatch):
    """Puts a recording function in the place of a module's function; returns the calls."""

    def put(module, name, result=None):
        calls = []

        def record(*args, **kwargs):
            calls.append((args, kwargs))
            if isinstance(result, BaseException):
                raise result
            return result

        fake = types.ModuleType(module)
        setattr(fake, name, record)
        monkeypatch.setitem(sys.modules, module, fake)
        return calls

    return put


def test_help_teaches(capsys):
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    for command in COMMANDS:
        assert f"\n  {command}" in text
    assert "75" in text and "run the same command again" in text
    assert [text.index(f"\n  {c} ") for c in COMMANDS] == sorted(text.index(f"\n  {c} ") for c in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_an_example(command, capsys):
    assert cli.main([command, "-h"]) == 0
    assert f"mpibayes {command}" in capsys.readouterr().out.split("Example", 1)[1]


def test_run_tells_how_a_chain_starts(capsys):
    assert cli.main(["run", "--help"]) == 0
    text = capsys.readouterr().out
    for key in ("sampler.strategy", "sampler.split_merge", "anneal.schedule", "anneal.seconds"):
        assert key in text
    assert "anneal.schedule=[[2" in text and "published strategies" in text


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["rnu"], "did you mean 'run'?"),
        (["xyzzy"], "commands are import, run, check"),
        (["run"], "CONFIG"),
        (["run", "a.toml", "--sett", "x=1"], "--set"),
        (["run", "a.toml", "--max-time", "soon"], "3h50m"),
        (["export", "r", "--to", "excel"], "labels"),
        (["check", "a.toml", "--ranks", "0"], "--ranks"),
        (["import", "a.csv", "b.h5", "--kind", "age"], "COLUMN=KIND"),
    ],
)
def test_usage_errors(arguments, words, capsys):
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert words in err and err.startswith("mpibayes: error: ") and "Traceback" not in err and out == ""


def test_run_passes_everything_on(stand_in):
    calls = stand_in("mpibayes.hpc.run.loop", "main", 75)
    words = ["run", "x/a.toml", "--set", "run.seed=3", "--set", "run.cycles=9", "--max-time", "1h", "--fresh"]
    assert cli.main(words) == 75
    (config, out, overrides, max_time, fresh), _ = calls[0]
    assert (str(config), str(out), overrides, max_time, fresh) == (
        "x/a.toml", "None", ["run.seed=3", "run.cycles=9"], 3600.0, True,
    )  # fmt: skip
    cli.main(["run", "a.toml", "-o", "there"])
    assert str(calls[1][0][1]) == "there" and calls[1][0][3] is None


def test_other_commands_pass_everything_on(stand_in, capsys):
    result = types.SimpleNamespace(config=types.SimpleNamespace(notes=[], kind="mixture"))
    calls = stand_in("mpibayes.hpc.run.examine", "examine", result)
    findings = types.SimpleNamespace(findings=lambda found, ranks: [("ranks", str(ranks))])
    stand_in("mpibayes.hpc.registry", "check_of", findings)
    assert cli.main(["check", "a.toml", "--ranks", "4", "--set", "run.seed=1"]) == 0
    assert calls[0][0][1] == ("run.seed=1",) and capsys.readouterr().out.split() == ["ranks:", "4"]
    calls = stand_in("mpibayes.hpc.results.report", "report")
    assert cli.main(["report", "a", "b", "--burn-in", "5"]) == 0
    assert [str(p) for p in calls[0][1].pop("run_dirs")] == ["a", "b"] and calls[0][1] == {
        "out": None,
        "burn_in": 5,
        "table": None,
        "full": False,
        "compare": False,
        "weighted": None,
    } | {"console": calls[0][1]["console"]}
    calls = stand_in("mpibayes.hpc.results.predict", "predict")
    assert cli.main(["predict", "a", "new.csv", "-o", "p.csv", "--unseen", "missing"]) == 0
    assert [str(calls[0][1][name]) for name in ("run_dir", "source", "out")] == ["a", "new.csv", "p.csv"]
    assert calls[0][1]["unseen"] == "missing" and calls[0][1]["impute"] is False
    assert cli.main(["predict", "a", "new.csv", "--complete", "c.csv"]) == 0
    assert calls[1][1]["out"] is None and str(calls[1][1]["complete"]) == "c.csv"
    calls = stand_in("mpibayes.hpc.run.status", "show_status")
    assert cli.main(["status", "a", "--json"]) == 0
    assert calls[0][0][1] is True


def test_export_tells_what_it_wrote(stand_in, capsys):
    stand_in("mpibayes.hpc.results.export", "export", types.SimpleNamespace(paths=["x.csv"], notes=["two chains"]))
    assert cli.main(["export", "a", "--to", "csv"]) == 0
    out, err = capsys.readouterr()
    assert out == "" and "two chains" in err and "x.csv" in err


@pytest.mark.parametrize(
    "error, code",
    [(ConfigError, 2), (DataError, 3), (CheckpointError, 4), (NumericalError, 5), (MpibayesError, 70)],
)
def test_errors_are_one_message(stand_in, capsys, monkeypatch, error, code):
    stand_in("mpibayes.hpc.run.status", "show_status", error("a.toml: wrong", ["this", "that"]))
    assert cli.main(["status", "a"]) == code
    assert capsys.readouterr().err == "mpibayes: error: a.toml: wrong\n  - this\n  - that\n"
    monkeypatch.setenv("MPIBAYES_DEBUG", "1")
    assert cli.main(["status", "a"]) == code
    assert "Traceback" in capsys.readouterr().err


def test_faults_of_the_program(stand_in, capsys):
    stand_in("mpibayes.hpc.run.status", "show_status", ZeroDivisionError("oh"))
    assert cli.main(["status", "a"]) == 70
    err = capsys.readouterr().err
    assert "internal error: ZeroDivisionError: oh" in err and "Traceback" in err
    stand_in("mpibayes.hpc.run.status", "show_status", KeyboardInterrupt())
    assert cli.main(["status", "a"]) == 130


def test_one_voice_under_a_launcher(stand_in, capsys, monkeypatch):
    calls = stand_in("mpibayes.hpc.run.status", "show_status")
    monkeypatch.setenv("PMI_RANK", "1")
    assert cli.main(["status", "a"]) == 0 and calls == []
    assert cli.main(["run"]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("PMI_RANK", "0")
    assert cli.main(["status", "a"]) == 0 and len(calls) == 1
    assert cli.main(["run"]) == 2


def test_a_closed_pipe_is_no_error(tmp_path):
    """`mpibayes ... | head -1`: the reader leaves first."""
    code = (
        "import sys, types; m = types.ModuleType('x')\n"
        "m.show_status = lambda *a: [print('line', i) for i in range(10**5)]\n"
        "sys.modules['mpibayes.hpc.run.status'] = m\n"
        "from mpibayes.hpc.cli import main; sys.exit(main(['status', 'a']))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "line 0\n"
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert err == "" and process.wait(60) == 0


@pytest.mark.parametrize("words", [["--help"], ["status", "--help"], ["--version"], ["status", "a"]])
def test_a_pipe_that_nobody_reads_is_no_error(words):
    """A report, which rich prints, stands in for `status`."""
    code = (
        "import sys, types; m = types.ModuleType('x')\n"
        "def show_status(*a):\n"
        "    from rich.console import Console; Console().print('a line')\n"
        "m.show_status = show_status; sys.modules['mpibayes.hpc.run.status'] = m\n"
        "from mpibayes.hpc.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", code, *words], stdout=writer, stderr=subprocess.PIPE, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "mpibayes", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        env=dict(os.environ),
    )
    assert done.returncode == 0 and done.stdout.startswith("mpibayes, version ")


@pytest.mark.timeout(20)
def test_names_from_a_pipe_or_a_file_or_the_command(tmp_path, monkeypatch, capsys):
    """A shell's <(...) is a pipe; a directory may be called as a column is."""
    from mpibayes.io.table import Table

    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_text("1.5,2.5\n2.5,3.5\n3.5,4.5\n")
    (tmp_path / "names").write_text("x\ny\n")
    (tmp_path / "x,y").mkdir()
    ours, theirs = os.pipe()
    os.write(theirs, b"x\ny\n")
    os.close(theirs)
    for names in (f"/dev/fd/{ours}", "names", "x,y"):
        assert cli.main(["import", "data.csv", "table.h5", "--force", "--names", names]) == 0, capsys.readouterr()
        assert [column.name for column in Table.open("table.h5").columns] == ["x", "y"]
    os.close(ours)


def test_options_of_dates_and_of_wide_tables(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cells = ",".join(f"x{i}" for i in range(70))
    with open("data.csv", "w") as file:
        file.write(f"when,{cells}\n")
        for i in range(60):
            file.write(f"{1 + i % 12}/{1 + i % 11}/2024," + ",".join(f"{(i * j) % 59}.5" for j in range(1, 71)) + "\n")
    assert cli.main(["import", "data.csv", "table.h5"]) == 0
    assert "day or the month first" in (text := capsys.readouterr().out) and len(text.splitlines()) < 20
    options = ["--force", "--dates", "day-first", "--calendar", "when", "--verbose"]
    assert cli.main(["import", "data.csv", "table.h5", *options]) == 0
    text = capsys.readouterr().out
    assert "when weekday" in text and "day first" in text and len(text.splitlines()) > 70
    assert cli.main(["import", "data.csv", "table.h5", "--force", "--calendar", "x1"]) == 2


def test_a_rank_has_one_thread_unless_the_environment_says_otherwise():
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    others = {name: value for name, value in os.environ.items() if name not in names}
    for given, expected in (({}, "1"), (dict.fromkeys(names, "2"), "2")):
        done = subprocess.run(
            [sys.executable, "-m", "mpibayes", "doctor"], env=others | given, capture_output=True, text=True, timeout=60
        )
        assert f"OMP_NUM_THREADS {expected}, OPENBLAS_NUM_THREADS {expected}" in done.stdout, done.stdout


# --- run --ranks ------------------------------------------------------------------------------------------------------


@pytest.fixture
def replaced(monkeypatch):
    """Commands that would replace this process."""
    result = []
    monkeypatch.setattr(os, "execv", lambda program, words: result.append(words))
    monkeypatch.setattr("mpibayes.hpc.run.become.share_out", lambda ranks: None)
    return result


def test_ranks_are_started_by_the_mpirun_of_this_environment(replaced, stand_in, monkeypatch, capsys):
    stand_in("mpibayes.hpc.run.loop", "main", 0)
    monkeypatch.setattr("mpibayes.hpc.run.become.mpirun", lambda: "/opt/bin/mpirun")
    words = ["run", "a.toml", "-o", ":", "--set", "run.seed=3", "--set", "-", "--max-time", "0.0001", "--fresh"]
    assert cli.main([*words, "--ranks", "3"]) == 0
    assert ":" not in replaced[0]  # after which mpirun looks for another program
    assert replaced[0][:3] == ["/opt/bin/mpirun", "-n", "3"] and "3 ranks" in capsys.readouterr().out
    again = replaced[0][replaced[0].index("run") :]
    calls = stand_in("mpibayes.hpc.run.loop", "main", 0)
    assert cli.main(again) == 0 and cli.main(words) == 0
    assert calls[0] == calls[1] and len(replaced) == 1


def test_one_rank_is_this_process(replaced, stand_in):
    calls = stand_in("mpibayes.hpc.run.loop", "main", 0)
    assert cli.main(["run", "a.toml", "--ranks", "1"]) == 0 and len(calls) == 1 and not replaced


@pytest.mark.parametrize("missing", [True, False])
def test_ranks_that_cannot_be_started(replaced, missing, monkeypatch, capsys):
    monkeypatch.setattr("mpibayes.hpc.run.become.mpirun", lambda: None)
    if not missing:
        monkeypatch.setenv("PMI_RANK", "0")
    assert cli.main(["run", "a.toml", "--ranks", "2"]) == 2 and not replaced
    text = capsys.readouterr().err
    assert ("there is no mpirun here" in text) if missing else ("has started this process" in text)


def test_an_mpirun_that_is_no_program_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "mpirun").write_text("words\n")
    (tmp_path / "mpirun").chmod(0o755)
    monkeypatch.setattr("mpibayes.hpc.run.become.mpirun", lambda: str(tmp_path / "mpirun"))
    assert cli.main(["run", "a.toml", "--ranks", "2"]) == 2
    assert f"{tmp_path}/mpirun cannot be started: Exec format error" in capsys.readouterr().err
