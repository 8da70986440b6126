"""One run at a time in a directory, whoever died before."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from mpibayes.hpc import lock as locks
from mpibayes.hpc.clock import Clock, job_time_left
from mpibayes.hpc.errors import CheckpointError, ConfigError
from mpibayes.hpc.lock import Lock
from tests.run.conftest import run
from tests.run.test_stop_continue import ENDLESS, start, wait_for_progress


def owned(folder, **changes):
    """A LOCK as another process would have left it."""
    owner = {"host": "elsewhere", "pid": 17, "started": 5, "job": None, "restarts": 0, "token": "x"} | changes
    (folder / locks.NAME).write_text(json.dumps(owner))


def silent_for(folder, seconds):
    then = time.time() - seconds
    os.utime(folder / locks.NAME, (then, then))


@pytest.fixture
def lock():
    made = Lock()
    yield made
    made.release()


def test_taken_and_released(tmp_path, lock):
    lock.take(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [locks.NAME]
    with pytest.raises(ConfigError, match=f"process {os.getpid()} on {socket.gethostname()}.*the process exists"):
        Lock().take(tmp_path)
    lock.release()
    assert not list(tmp_path.iterdir())
    lock.take(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[1]", "{}"])
def test_a_damaged_lock_counts_while_it_is_fresh(tmp_path, lock, text):
    (tmp_path / locks.NAME).write_text(text)
    with pytest.raises(ConfigError, match="sign of life"):
        lock.take(tmp_path)
    silent_for(tmp_path, 61)
    lock.take(tmp_path)


def test_another_host_is_believed_while_it_gives_signs_of_life(tmp_path, lock):
    owned(tmp_path, job="12")
    with pytest.raises(ConfigError, match=r"process 17 on elsewhere, job 12 .*sign of life.*remove .*LOCK"):
        lock.take(tmp_path)
    silent_for(tmp_path, 61)
    lock.take(tmp_path)
    assert json.loads((tmp_path / locks.NAME).read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("host", ["elsewhere", socket.gethostname()])
def test_the_same_job_after_a_requeue(tmp_path, lock, monkeypatch, host):
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    owned(tmp_path, job="12", host=host)
    lock.take(tmp_path)


def test_a_step_of_the_same_job_does_not_count_as_a_requeue(tmp_path, lock, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    owned(tmp_path, job="12")
    with pytest.raises(ConfigError):
        lock.take(tmp_path)


def test_a_process_with_the_number_of_a_dead_one(tmp_path, lock):
    owned(tmp_path, host=socket.gethostname(), pid=os.getpid(), started=1)
    lock.take(tmp_path)


def test_a_file_system_without_links(tmp_path, lock, monkeypatch):
    def no_links(*arguments):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    lock.take(tmp_path)
    with pytest.raises(ConfigError):
        Lock().take(tmp_path)


@pytest.mark.parametrize("how", ["removed", "taken over"])
def test_whoever_lost_the_directory_writes_nothing_more(tmp_path, lock, how):
    lock.take(tmp_path)
    lock.check()
    if how == "removed":
        (tmp_path / locks.NAME).unlink()
    else:
        owned(tmp_path)
    with pytest.raises(CheckpointError, match=how):
        lock.check()
    lock.release()
    assert (tmp_path / locks.NAME).exists() == (how == "taken over")


def test_signs_of_life(tmp_path, lock, monkeypatch):
    monkeypatch.setattr(locks, "RENEWED_S", 0.05)
    lock.take(tmp_path)
    silent_for(tmp_path, 1000)
    end = time.monotonic() + 20
    while time.time() - (tmp_path / locks.NAME).stat().st_mtime > 500:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_of_many_that_start_at_once_one_holds_it(tmp_path):
    """Over a lock whose owner is dead, which all of them want to take over."""
    owned(tmp_path)
    silent_for(tmp_path, 1000)
    code = (
        "import sys, time; from pathlib import Path; from mpibayes.hpc.lock import Lock; lock = Lock()\n"
        "lock.take(Path(sys.argv[1])); print('holds it', flush=True); time.sleep(3)"
    )
    many = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    said = [p.communicate(timeout=60)[0].decode() for p in many]
    assert sum("holds it" in text for text in said) == 1, said


def test_a_second_run_is_refused_and_a_killed_one_continued(place):
    process = start(place, "out", *ENDLESS, "--set", "run.checkpoint_minutes=0.001", ranks=1)
    try:
        wait_for_progress(place, "out", process)
        second = run(place, "out", *ENDLESS)
        assert second.returncode == 2 and f"process {process.pid} on" in second.stderr
        fresh = run(place, "out", *ENDLESS, "--fresh")
        assert fresh.returncode == 2 and "is running it" in fresh.stderr
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    done = run(place, "out", *ENDLESS, "--max-time", "3")
    assert done.returncode == 75, done.stderr
    status = json.loads((place / "out" / "status.json").read_text())
    assert status["before"]["state"] == "died" and not (place / "out" / locks.NAME).exists()


# --- the end of the batch job ----------------------------------------------------------------------------------------


def test_the_end_of_the_job_is_a_deadline(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 100))
    clock = Clock(None)
    clock.watch_job()
    assert clock.stop_reason() is None
    clock.cycle_took(30.0)  # two more would not fit, twice over
    assert clock.stop_reason() == "end of the batch job"


@pytest.mark.parametrize(
    "told, left",
    [
        ("JobId=12 EndTime={soon} Deadline=N/A", 100),
        ("JobId=12 EndTime=Unknown", None),
        ("JobId=12 EndTime=2020-01-01T00:00:00", None),  # over: a shell that remembers it
        ("", None),
    ],
)
def test_slurm_is_asked_where_it_did_not_tell(monkeypatch, tmp_path, told, left):
    soon = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 100))
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f"#!/bin/sh\necho '{told.format(soon=soon)}'\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)
    found = job_time_left()
    assert found is None if left is None else abs(found - left) < 20


def test_no_job_no_end(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert job_time_left() is None
