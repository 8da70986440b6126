"""`mpibayes submit` without SLURM: what it checks, what it writes, and what it says; a script stands in for sbatch."""

import os
import shlex
import shutil
import subprocess
import sys
from importlib import resources

import pytest

from mpibayes.hpc.cli import main
from mpibayes.hpc.slurm import batch_script
from mpibayes.hpc.slurm.batch_script import Request, clock
from mpibayes.hpc.slurm.submit import limit
from tests.run.conftest import mixed_table

CONFIG = '[data]\ntable = "table.h5"\n[model]\nfamily = "mixture"\n[run]\nshards = 7\ncycles = 6\nburn_in = 2\n'
TEMPLATES = ("run.sbatch", "array.sbatch", "chain.sbatch")
# Each ends a line for someone, or cannot be written: newlines of all kinds, a tab, an escape, a byte that is not UTF-8.
UNFIT = ("\n", "\r", "\v", "\t", "\x1b", "\x7f", "\x85", "\u2028", "\u2029", "\udcff")
ODD_NAMES = (
    "a b",
    "it's",
    'a"b',
    "$(touch PWNED)",
    "`touch PWNED`",
    "-o",
    "50%j",
    "a#b",
    "é日",
    "a;touch PWNED",
    "*",
    " ",
)


@pytest.fixture
def place(tmp_path, monkeypatch):
    folder = tmp_path / "it's 50%"
    folder.mkdir()
    mixed_table(folder / "table.h5", n=300)
    (folder / "run.toml").write_text(CONFIG)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(batch_script, "_has_mpich_wheel", lambda: False)
    return folder


@pytest.fixture
def sbatch(tmp_path, monkeypatch):
    """A program that takes the script and answers as sbatch does; returns its exit code's setter."""
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")

    def answer(code=0, text="77;cluster"):
        (tools / "sbatch").write_text(f'#!/bin/sh\necho "$@" >> {tools}/calls\necho "{text}"\nexit {code}\n')
        (tools / "sbatch").chmod(0o755)

    answer()
    answer.calls = tools / "calls"
    return answer


def dry(capsys, *words):
    assert main(["submit", "run.toml", *words, "--dry-run"]) == 0
    return capsys.readouterr()


def in_bash(text, tmp_path, name="script"):
    path = tmp_path / name
    path.write_text(text)
    return subprocess.run(["bash", "-n", path], capture_output=True, text=True, timeout=20)


def test_the_filled_script(place, capsys, tmp_path):
    text = dry(
        capsys, "-o", "runs/a b", "--nodes", "2", "--time", "1-12", "--partition", "long", "--account", "physics",
        "--mpi", "pmix", "--setup", "module load openmpi", "--sbatch", "--qos=x", "--set", "sampler.init='one'",
    ).out  # fmt: skip
    lines = text.splitlines()
    for line in (
        "#SBATCH --job-name=a-b", "#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=4", "#SBATCH --time=1-12:00:00",
        "#SBATCH --signal=B:USR1@300", "#SBATCH --partition=long", "#SBATCH --account=physics", "#SBATCH --qos=x",
        "#SBATCH --requeue", "module load openmpi", "launch=(srun --kill-on-bad-exit=1 --mpi=pmix)",
    ):  # fmt: skip
        assert lines.count(line) == 1, line
    assert [line for line in lines if line.startswith("#SBATCH --output=")] == [
        f'#SBATCH --output="{str(place).replace("%", "%%")}/runs/a b-%j.log"'
    ]
    assert not [line for line in lines if line.startswith(("# module", "# source", "# launch"))]
    last = max(i for i, line in enumerate(lines) if line.startswith("#SBATCH"))
    commands = [i for i, line in enumerate(lines) if line and not line.startswith("#")]
    assert last < commands[0], "sbatch reads no option below the first command"
    assert in_bash(text, tmp_path).returncode == 0
    echo = text[: text.index("\nrestarts=")] + '\nprintf "%s\\n" "$@"\n'
    words = subprocess.run(["bash", "-c", echo], capture_output=True, text=True, timeout=20).stdout.splitlines()
    assert words == [str(place / "run.toml"), str(place / "runs" / "a b"), "--set", "sampler.init='one'"]
    assert not (place / "runs").exists(), "a dry run writes nothing"


@pytest.mark.parametrize(
    "words, template, line",
    [
        ((), "run.sbatch", "#SBATCH --requeue"),
        (("--array", "4"), "array.sbatch", "#SBATCH --array=1-4"),
        (("--array", "2-8:2%3"), "array.sbatch", "#SBATCH --array=2-8:2%3"),
        (("--chain",), "chain.sbatch", "#SBATCH --no-requeue"),
        (("--mpi", "mpirun"), "run.sbatch", 'launch=(mpirun -n "$SLURM_NTASKS")'),
        (("--mpi", "pmi2"), "run.sbatch", "launch=(srun --kill-on-bad-exit=1 --mpi=pmi2)"),
        (("--time", "8m"), "run.sbatch", "#SBATCH --signal=B:USR1@120"),
        (("--ntasks-per-node", "3"), "run.sbatch", "#SBATCH --ntasks-per-node=3"),
    ],
)
def test_what_the_options_do(place, capsys, tmp_path, words, template, line):
    text = dry(capsys, *words).out
    assert f"from {template}" in text and line in text.splitlines()
    assert in_bash(text, tmp_path).returncode == 0


def test_the_wheel_of_mpich_starts_with_pmi2(place, capsys, monkeypatch):
    monkeypatch.setattr(batch_script, "_has_mpich_wheel", lambda: True)
    text = dry(capsys).out
    assert "launch=(srun --kill-on-bad-exit=1 --mpi=pmi2)" in text and "export MPIR_CVAR_CH4_NETMOD=ofi" in text
    assert "NETMOD" not in dry(capsys, "--mpi", "pmix").out
    assert "NETMOD" in dry(capsys, "--mpi", "pmi2").out


def test_more_ranks_than_shards(place, capsys):
    assert "12 ranks, but 7 shards: 5 ranks" in dry(capsys, "--nodes", "3", "--ntasks-per-node", "4").err
    assert dry(capsys, "--nodes", "2", "--ntasks-per-node", "3").err == ""


def test_it_submits(place, sbatch, capsys):
    assert main(["submit", "run.toml", "-o", "runs/a", "--nodes", "2"]) == 0
    text = capsys.readouterr().out
    assert "job 77: 8 ranks on 2 nodes, 04:00:00 a job" in text and f"{place}/runs/a-77.log" in text, text
    assert sbatch.calls.read_text() == f"--parsable {place}/runs/a.sbatch\n"
    assert sorted(p.name for p in (place / "runs").iterdir()) == ["a.job.json", "a.sbatch"]
    assert main(["run", "run.toml", "-o", "runs/a"]) == 0, "the run directory is still to be made"
    assert main(["submit", "run.toml", "-o", "runs/a", "--nodes", "2"]) == 0
    assert sorted(p.name for p in (place / "runs").iterdir()) == ["a", "a.job.json", "a.sbatch"]
    (place / "runs" / "a.sbatch").write_text("# edited\n")
    assert main(["submit", "run.toml", "-o", "runs/a", "--nodes", "2"]) == 0
    assert (place / "runs" / "a.sbatch.old-1").read_text() == "# edited\n"


def test_it_submits_an_array(place, sbatch, capsys):
    assert main(["submit", "run.toml", "-o", "runs/b", "--array", "3"]) == 0
    text = capsys.readouterr().out
    assert "b-77_N.log" in text and f"mpibayes report {shlex.quote(f'{place}/runs/b')}/seed-*" in text


@pytest.mark.parametrize(
    "words, code, message",
    [
        (("--time", "90"), 2, "minutes or seconds?"),
        (("--time", "4:00:00:00"), 2, "is not a time limit such as"),
        (("--time", "soon"), 2, "is not a time limit such as"),
        (("--time", "30s"), 2, "too short to start a run"),
        (("--nodes", "0"), 2, "--nodes"),
        (("--array", "three"), 2, "expected a number of chains"),
        (("--array", "2\ntouch PWNED"), 2, r"'2\ntouch PWNED': expected a number of chains"),
        (("--array", "٣"), 2, "expected a number of chains"),
        (("--array", "0"), 2, "at least one chain"),
        (("--array", "2", "--chain"), 2, "expected one of the two"),
        (("--array", "2", "--set", "run.seed=3"), 2, "the number of the task is the seed"),
        (("--sbatch", "qos=long"), 2, "with its dashes"),
        (("--setup", "module load a \\"), 2, "would join it to the next line"),
        (("-o", "a\\b"), 2, "a backslash, which sbatch takes out of a log's name"),
        (("-o", "/"), 2, "no name to call the script and the log by"),
        (("-o", "runs/.."), 2, "no name to call the script and the log by"),
        (("-o", "é" * 101), 2, "more than 200 bytes"),
        (("--mpi", "pmi3"), 2, "pmi3"),
        (("--set", "run.cyles=3"), 2, "did you mean run.cycles"),
        (("--set", "data.table=nowhere.h5"), 3, "nowhere.h5"),
    ],
)
def test_what_is_refused(place, sbatch, capsys, words, code, message):
    assert main(["submit", "run.toml", *words]) == code
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error
    assert not sbatch.calls.exists() and not (place / "runs").exists()


@pytest.mark.parametrize("character", UNFIT, ids=ascii)
@pytest.mark.parametrize("option", ["-o", "--partition", "--account", "--set", "--setup", "--sbatch", "CONFIG", "PATH"])
def test_no_text_leaves_its_line(place, sbatch, capsys, monkeypatch, option, character):
    text = f"--a.b=1{character}touch PWNED{character}#"
    if option == "CONFIG":
        shutil.copy("run.toml", text)
    if option == "PATH":
        monkeypatch.setattr(sys, "executable", f"/{text}/bin/python")
    words = (
        [] if option in ("CONFIG", "PATH") else [f"{option}={text}" if option.startswith("--") else f"{option}{text}"]
    )
    before = sorted(os.listdir())
    for dry_run in [], ["--dry-run"]:
        assert main(["submit", *words, *dry_run, "--", text if option == "CONFIG" else "run.toml"]) == 2
        message = capsys.readouterr()
        assert message.out == "" and "expected one line of printable text" in message.err, message
        assert {"PATH": "the folder of Python"}.get(option, option) in message.err
        assert character == "\n" or character not in message.err, "the message has one line a problem"
    assert sorted(os.listdir()) == before and not sbatch.calls.exists()


def test_all_problems_are_told_at_once(place, sbatch, capsys):
    assert (
        main(["submit", "run.toml", "-o", "a\nb", "--partition", "c\rd", "--account", "e\u2028f", "--time", "9s"]) == 2
    )
    assert capsys.readouterr().err.count("\n  - ") == 4


def test_a_folder_of_python_that_path_cannot_hold(place, capsys, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/opt/a:b/bin/python")
    assert main(["submit", "run.toml", "--dry-run"]) == 2
    assert "a colon, which separates folders in PATH" in capsys.readouterr().err


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_stay_as_they_are(place, sbatch, capsys, monkeypatch, name):
    """Read by bash, and printed by submit as what to type; tests/slurm/test_queue.py has sbatch read it."""
    shutil.copy("run.toml", f"./{name}.toml")
    monkeypatch.setattr(sys, "executable", f"/{name}/python")
    assert (
        main(["submit", "--out", name, "--account", name, "--set", f"sampler.init='one' #{name}", "--", f"{name}.toml"])
        == 0
    )
    words = capsys.readouterr().out
    assert f"log:     {place}/{name}-77.log\n" in words
    status = next(line for line in words.splitlines() if line.startswith("status:"))
    assert shlex.split(status) == ["status:", "mpibayes", "status", f"{place}/{name}"]
    text = (place / f"{name}.sbatch").read_text()
    script = text[: text.index("\nrestarts=")] + '\nprintf "%s\\n" "$PATH" "$@"\n'
    given = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=20).stdout.splitlines()
    assert given[0].startswith(f"/{name}:")
    assert given[1:] == [f"{place}/{name}.toml", f"{place}/{name}", "--set", f"sampler.init='one' #{name}"]
    assert not (place / "PWNED").exists()


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_templates_pass_their_arguments_on(place, template):
    """Names given by hand are relative: one may begin with a dash, and --fresh within a name is no option."""
    text = resources.files("mpibayes").joinpath("slurm", template).read_text()
    text = text.replace("launch=(srun --kill-on-bad-exit=1)", "launch=(printf '%s|')")
    environment = {**os.environ, "SLURM_ARRAY_TASK_ID": "3", "SLURM_RESTART_COUNT": "1", "MPIBAYES_RESTARTS": "50"}
    arguments = ["-c.toml", "-d e", "--set", "a.b='x --fresh y'"]
    done = subprocess.run(["bash", "-c", text, template, *arguments], env=environment, capture_output=True, text=True)
    words = done.stdout.splitlines()[-1].split("|")[:-1]
    directory, seed = ("-d e/seed-3", ["--set", "run.seed=3"]) if template == "array.sbatch" else ("-d e", [])
    assert words == ["mpibayes", "run", "-o", directory, *arguments[2:], *seed, "--", "-c.toml"], done
    for refused in ["--fresh"], ["--set", "a.b=1", "--fresh"]:
        words = ["bash", "-c", text, template, "c", "d", *refused]
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
        assert done.returncode == 2 and "start anew by hand" in done.stderr


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize(
    "code, nodes, here, everywhere, again",
    [
        (75, 2, 0, 0, "stopped at a checkpoint"),
        (137, 2, 0, 1, "lost a node"),
        (70, 2, 0, 124, "lost a node"),  # as `timeout` ends a probe that hangs
        (255, 2, 0, 0, ""),  # a rank died
        (137, 1, 0, 1, ""),
        (137, 2, 1, 1, ""),  # an srun without these options, or a controller that is down: who knows
        (5, 2, 0, 1, ""),
        (0, 2, 0, 1, ""),
    ],
)
def test_a_lost_node_is_tried_again_and_nothing_else(sbatch, place, template, code, nodes, here, everywhere, again):
    """A stand-in for srun starts a process on this node, and on all of them, or does not."""
    tools, calls = sbatch.calls.parent, sbatch.calls.with_name("queue")
    probe = f'case "$*" in *"--nodes=1 "*) exit {here};; *) exit {everywhere};; esac'
    programs = {"srun": probe, "scontrol": f"echo $* >> {calls}; exit 1", "scancel": f"echo $* >> {calls}"}
    for name, text in programs.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    text = resources.files("mpibayes").joinpath("slurm", template).read_text()
    text = text.replace("launch=(srun --kill-on-bad-exit=1)", f"launch=(bash -c 'exit {code}')")
    job = {"SLURM_JOB_ID": "5", "SLURM_ARRAY_JOB_ID": "5", "SLURM_ARRAY_TASK_ID": "3", "SLURMD_NODENAME": "n1"}
    job |= {"SLURM_NNODES": str(nodes), "SLURM_NTASKS": "4", "SLURM_NTASKS_PER_NODE": "2"}
    done = subprocess.run(
        ["bash", "-c", text, template, "c", "d"], env={**os.environ, **job}, capture_output=True, text=True, timeout=20
    )
    assert done.returncode == code, done
    called = calls.read_text() if calls.exists() else ""
    if template == "chain.sbatch":  # the next job is in the queue, and stays there
        assert (called == "") == bool(again), called
    else:
        assert ("requeue 5" in called) == bool(again) and (not again or f"{again}: back to the queue" in done.stdout)
    assert f"{min(4, 2 * nodes)} ranks on" in done.stdout, "fewer nodes than were asked for have fewer ranks"


def test_another_run_is_refused_before_the_queue(place, sbatch, capsys):
    assert main(["run", "run.toml", "-o", "runs/a"]) == 0
    assert main(["submit", "run.toml", "-o", "runs/a", "--set", "run.seed=9"]) == 2
    assert "run.seed: was 0, is now 9" in capsys.readouterr().err
    (place / "full").mkdir()
    (place / "full" / "thesis.tex").touch()
    assert main(["submit", "run.toml", "-o", "full"]) == 2
    assert main(["submit", "run.toml", "-o", "run.toml"]) == 2
    assert not sbatch.calls.exists()
    assert main(["submit", "run.toml", "-o", "runs/a", "--set", "run.cycles=9"]) == 0


def test_without_slurm_and_when_it_refuses(place, sbatch, capsys, monkeypatch):
    sbatch(1, "sbatch: error: invalid partition specified: long")
    assert main(["submit", "run.toml"]) == 2
    assert "invalid partition specified: long" in capsys.readouterr().err
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    assert main(["submit", "run.toml"]) == 2
    assert "there is no sbatch here" in capsys.readouterr().err


def test_a_second_job_of_one_run_is_refused(place, sbatch, capsys):
    """While the first one waits or runs; one that waits for it is welcome."""
    scontrol = sbatch.calls.with_name("scontrol")
    assert main(["submit", "run.toml", "-o", "runs/a"]) == 0
    for state, code in ("PENDING", 2), ("RUNNING", 2), ("COMPLETING", 0), ("FAILED", 0):
        scontrol.write_text(f"#!/bin/sh\necho JobId=77 JobName=a JobState={state} Reason=None ExitCode=0:0\n")
        scontrol.chmod(0o755)
        assert main(["submit", "run.toml", "-o", "runs/a"]) == code
        assert (f"job 77 of this run is in the queue ({state})" in capsys.readouterr().err) == (code == 2)
        assert main(["submit", "run.toml", "-o", "runs/a", "--sbatch=--dependency=afterany:77"]) == 0
    scontrol.write_text("#!/bin/sh\necho JobId=78 JobState=FAILED\necho JobId=77 JobState=PENDING\n")  # of an array
    assert main(["submit", "run.toml", "-o", "runs/a"]) == 2
    scontrol.write_text("#!/bin/sh\necho slurm_load_jobs error: Unable to contact slurm controller >&2\nexit 1\n")
    assert main(["submit", "run.toml", "-o", "runs/a"]) == 0
    (place / "runs" / "a.job.json").write_text('{"job": "77; touch PWNED"}')
    assert main(["submit", "run.toml", "-o", "runs/a"]) == 2
    assert "a.job.json: damaged; remove it" in capsys.readouterr().err


def test_a_job_submits_as_a_login_node_does(place, sbatch, monkeypatch):
    """A notebook may itself be a job, whose tasks and memory are not those of the run."""
    script = sbatch.calls.with_name("sbatch")
    script.write_text(f"#!/bin/sh\nenv >> {sbatch.calls}\necho 77\n")
    job = {"SLURM_JOB_ID": "5", "SLURM_MEM_PER_NODE": "100", "SLURM_NTASKS": "1", "PMI_FD": "3"}
    for name, value in {**job, "SLURM_CONF": "/etc/c", "SBATCH_QOS": "long"}.items():
        monkeypatch.setenv(name, value)
    assert main(["submit", "run.toml", "-o", "runs/a"]) == 0
    lines = set(sbatch.calls.read_text().splitlines())
    assert {"SLURM_CONF=/etc/c", "SBATCH_QOS=long"} <= lines
    assert not {line.split("=")[0] for line in lines} & job.keys()


def test_times():
    assert [limit(t) for t in ("4:00:00", "1-12", "3h50m", "02:30")] == [14400, 129600, 13800, 150]
    assert [clock(s) for s in (14400, 129600, 150, 100 * 3600)] == ["04:00:00", "1-12:00:00", "00:02:30", "4-04:00:00"]


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_templates_are_shipped_and_in_order(name):
    text = resources.files("mpibayes").joinpath("slurm", name).read_text()
    assert text.startswith("#!/bin/bash\n") and "B:USR1@300" in text
    if shutil.which("shellcheck"):
        path = resources.files("mpibayes").joinpath("slurm", name)
        done = subprocess.run(["shellcheck", path], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout


def test_every_job_has_a_template():
    assert {Request().template, Request(array="2").template, Request(chain=True).template} == set(TEMPLATES)
