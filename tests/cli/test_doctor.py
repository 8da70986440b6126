"""`mpibayes doctor`: one line a check, whatever is wrong; it never hangs, and its exit code is that of the worst."""

import json
import os
import sys
import time

import numpy as np
import pytest

from mpibayes.hpc.doctor import local as doctor_checks
from mpibayes.hpc.doctor import ranks as doctor_mpi
from mpibayes.hpc.doctor.doctor import OK, PROBLEM, WARNING
from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.parallel.launcher import MARKS, RANK_VARIABLES
from tests.conftest import FOR_RANKS, launch

ALONE = ["program", "kernels", "hdf5", "extras", "launcher", "job", "directory", "locks", "mpi", "cores"]
TOGETHER = [*ALONE, "same", "shared", "allreduce"]


@pytest.fixture(autouse=True)
def no_job(monkeypatch):
    for name in list(os.environ):
        if name.startswith("SLURM_") or name in (*MARKS, *RANK_VARIABLES):
            monkeypatch.delenv(name)


def doctor(place, *words, ranks=0, env=None):
    """(lines as [level, check, text], completed process)"""
    program = [sys.executable, "-m", "mpibayes", "doctor", *words]
    command = ["mpirun", "-n", ranks, *program] if ranks else program
    done = launch(command, timeout=150, cwd=place, env={**FOR_RANKS, **(env or {})})
    assert "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
    lines = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    return [line for line in lines if line and line[0] in (OK, WARNING, PROBLEM)], done


def checks(lines):
    return [check for _, check, _ in lines]


def text_of(lines, check):
    return next(" ".join((level, text)) for level, name, text in lines if name == check)


def test_alone(tmp_path):
    lines, done = doctor(tmp_path)
    assert done.returncode == 0 and checks(lines) == ALONE, done.stdout + done.stderr
    assert "started alone" in text_of(lines, "launcher") and "not in a SLURM job" in text_of(lines, "job")
    assert "write, flush, rename over work" in text_of(lines, "directory")
    assert "MPI" in text_of(lines, "mpi")
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_under_mpirun(tmp_path):
    lines, done = doctor(tmp_path, "new/folder", "--seconds", "0.5", ranks=2)
    assert done.returncode == 0 and checks(lines) == TOGETHER, done.stdout + done.stderr
    assert "2 processes" in text_of(lines, "launcher") and "2 ranks" in text_of(lines, "mpi")
    assert text_of(lines, "shared").startswith("ok") and text_of(lines, "same").startswith("ok")
    assert all(size in text_of(lines, "allreduce") for size in ("8 B", "1 KB", "1 MB", "99 %"))
    assert list(tmp_path.iterdir()) == []


def test_json(tmp_path):
    _, done = doctor(tmp_path, "--json")
    reported = json.loads(done.stdout)
    assert [c["check"] for c in reported["checks"]] == ALONE and reported["exit_code"] == done.returncode == 0
    assert reported["worst"] in (OK, WARNING)
    assert set(reported["checks"][0]) == {"check", "level", "text", "advice", "code"}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "env",
    [
        {"PMI_SIZE": "4"},
        {"OMPI_COMM_WORLD_SIZE": "4"},
        {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0", "SLURM_STEP_ID": "0"},
    ],
    ids=["pmi", "openmpi", "srun"],
)
def test_another_launcher(tmp_path, env):
    lines, done = doctor(tmp_path, env=env)
    assert done.returncode == 2, done.stdout
    assert checks(lines) == ALONE[:-1]  # what follows would examine one lonely copy
    assert text_of(lines, "mpi").startswith("problem") and "srun --mpi=pmi" in text_of(lines, "mpi")


def test_the_other_lonely_copies_are_silent(tmp_path):
    lines, done = doctor(tmp_path, env={"PMI_SIZE": "4", "PMI_RANK": "2"})
    assert done.returncode == 0 and not lines


def test_no_mpi_library(tmp_path):
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").touch()
    (tmp_path / "mpi4py" / "MPI.py").write_text("raise RuntimeError('cannot load MPI library')\n")
    lines, done = doctor(tmp_path, env={"PYTHONPATH": tmp_path})
    assert done.returncode == 0 and checks(lines) == ALONE
    assert text_of(lines, "mpi").startswith("warning no MPI library (cannot load MPI library)")
    lines, done = doctor(tmp_path, env={"PYTHONPATH": tmp_path, "PMI_SIZE": "4"})
    assert done.returncode == 2 and "4 processes, but no MPI library" in text_of(lines, "mpi")


@pytest.fixture
def read_only(tmp_path):
    """A folder that nobody may write in: for root a file system that was mounted so."""
    folder = tmp_path / "shut"
    folder.mkdir()
    if os.geteuid():
        folder.chmod(0o500)
        yield folder
        folder.chmod(0o700)
        return
    if launch(["mount", "-t", "tmpfs", "-o", "ro,size=64k", "tmpfs", folder]).returncode:
        pytest.skip("root may write everywhere, and cannot mount a read-only file system here")
    yield folder
    launch(["umount", folder])


@pytest.mark.thorough
def test_a_directory_that_cannot_be_written(read_only):
    lines, done = doctor(read_only.parent, "shut")
    assert done.returncode == 4, done.stdout
    assert text_of(lines, "directory").startswith("problem") and "choose another with -o" in text_of(lines, "directory")
    assert checks(lines) == ALONE  # the others are made all the same
    lines, done = doctor(read_only.parent, "shut", "--seconds", "0.3", ranks=2)
    assert done.returncode == 4 and text_of(lines, "shared").startswith("problem")
    assert checks(lines) == TOGETHER


def test_a_file_is_no_directory(tmp_path):
    (tmp_path / "file").touch()
    lines, done = doctor(tmp_path, "file")
    assert done.returncode == 4 and "is a file" in text_of(lines, "directory")


FAULTY = """
import os, sys, time
from mpibayes.hpc.doctor.doctor import Check, Finding, examine
def hang(): time.sleep(600)
def die(): os.kill(os.getpid(), 9)
def fail(): raise KeyError("x")
def well(): return Finding("well", "ok", "fine")
checks = [Check("fail", 9, fail), Check("hang", 0.7, hang, "advice"), Check("well", 9, well), Check("die", 9, die),
          Check("well", 9, well)]
for finding in examine(checks):
    print(finding.line())
"""


def test_checks_that_hang_die_or_fail(tmp_path):
    started = time.monotonic()
    done = launch([sys.executable, "-c", FAULTY], timeout=60, cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == "" and time.monotonic() - started < 30
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["problem", "fail"],
        ["problem", "hang"],
        ["ok", "well"],
        ["problem", "die"],
        ["ok", "well"],
    ]
    assert "KeyError" in lines[0] and "did not end within 1 s; advice" in lines[1] and "signal 9" in lines[3]


def test_a_batch_job(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 7230))
    result = doctor_checks.job()
    assert result.level == OK and "SLURM job 77 on n[1-2]" in result.text and "in 2h00m" in result.text
    monkeypatch.delenv("SLURM_JOB_END_TIME")
    monkeypatch.setenv("PATH", "")  # no scontrol
    result = doctor_checks.job()
    assert result.level == WARNING and "--max-time" in result.advice


def test_slow_messages_are_a_warning(tmp_path, monkeypatch):
    ranks = doctor_mpi.Ranks(tmp_path, 0.1)
    monkeypatch.setattr(ranks, "_time", lambda array, seconds: [2e-3] * 10)
    result = ranks.allreduce()
    assert result.level == WARNING and "OMPI_MCA_mpi_yield_when_idle=1" in result.advice and "2 ms" in result.text
    monkeypatch.setattr(ranks, "_time", lambda array, seconds: [2e-6] * 10)
    assert ranks.allreduce().level == OK


class Several:
    """Stands in for a communicator: this rank's word is everyone's, but for what `other` makes of it."""

    rank, size = 0, 3
    numbers = range(3)

    def __init__(self, other):
        self.hosts, self._other = ["a", "a", "b"], other

    def share(self, value):
        return value

    def collect(self, value):
        return [value, value, self._other(value)]


def test_ranks_against_cores(tmp_path, monkeypatch):
    ranks = doctor_mpi.Ranks(tmp_path, 0.1)
    monkeypatch.setattr(doctor_mpi, "usable_cores", lambda: {0, 1})
    monkeypatch.setattr(doctor_mpi, "quota", lambda: None)
    monkeypatch.setattr(doctor_mpi, "blas_threads", lambda: 2)
    monkeypatch.setattr(doctor_mpi.socket, "gethostname", lambda: "a")
    ranks.comm = serial()
    assert ranks.cores().level == OK
    ranks.comm = Several(lambda value: ("b", *value[1:]))
    result = ranks.cores()
    assert result.level == WARNING and "a: 2 ranks on 2 cores, b: 1 rank on 2 cores" in result.text
    assert "OMP_NUM_THREADS=1" in result.advice
    ranks.comm = Several(lambda value: value)
    result = ranks.cores()
    assert result.level == WARNING and "a: 3 ranks on 2 cores" in result.text and "no more ranks" in result.advice
    monkeypatch.setattr(doctor_mpi, "quota", lambda: 1.0)
    ranks.comm = serial()
    assert "1 rank on 1 core;" in ranks.cores().text


def test_a_rank_that_does_not_see_the_directory(tmp_path, monkeypatch):
    ranks = doctor_mpi.Ranks(tmp_path, 0.1)
    ranks.comm = Several(lambda seconds: None)
    result = ranks.shared()
    assert (result.level, result.code) == (PROBLEM, 4) and "rank 2 (b) did not see" in result.text
    monkeypatch.setattr(doctor_mpi, "SEEN_S", 0.2)
    assert doctor_mpi.seen_after(tmp_path / "nothing", b"word") is None
    assert list(tmp_path.iterdir()) == []


def test_ranks_with_other_versions(tmp_path):
    ranks = doctor_mpi.Ranks(tmp_path, 0.1)
    ranks.comm = Several(lambda text: text.replace(np.__version__, "1.0"))
    result = ranks.same()
    assert (result.level, result.code) == (PROBLEM, 2) and "rank 2 (b) with" in result.text
