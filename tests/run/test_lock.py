"""One run at a time in a directory, whoever died before."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from mpibayes.errors import CheckpointError, ConfigError
from mpibayes.hpc.run import lock as locks
from mpibayes.hpc.run.clock import Clock, job_time_left
from mpibayes.hpc.run.lock import Lock
from tests.conftest import launch
from tests.faults.starts import PROGRAM
from tests.run.conftest import run
from tests.run.test_stop_continue import ENDLESS, start, wait_for_progress


def owned(folder, **changes):
    """A LOCK as another process would have left it."""
    owner = {"host": "elsewhere", "pid": 17, "started": 5, "job": None, "restarts": 0, "token": "x"} | changes
    (folder / locks.NAME).write_text(json.dumps(owner))


@pytest.fixture
def lock():
    made = Lock()
    yield made
    made.release()


@pytest.fixture
def brief(monkeypatch):
    """A second or so of silence counts as death."""
    monkeypatch.setattr(locks, "SILENT_S", 0.5)


@pytest.fixture
def alive(tmp_path):
    """Whoever holds the LOCK gives signs of life."""
    done = threading.Event()

    def renew():
        while not done.wait(0.01):
            with contextlib.suppress(FileNotFoundError):
                os.utime(tmp_path / locks.NAME)

    thread = threading.Thread(target=renew)
    thread.start()
    yield
    done.set()
    thread.join()


def test_taken_and_released(tmp_path, lock):
    lock.take(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [locks.NAME]
    with pytest.raises(ConfigError, match=f"process {os.getpid()} on {socket.gethostname()}.*the process exists"):
        Lock().take(tmp_path)
    lock.release()
    assert not list(tmp_path.iterdir())
    lock.take(tmp_path)


DAMAGED = ["", "{", "[1]", "{}", '{"token": "../x"}', '{"place": 1, "token": []}']


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_lock_counts_while_it_gives_signs_of_life(tmp_path, lock, alive, text):
    (tmp_path / locks.NAME).write_text(text)
    with pytest.raises(ConfigError, match="heartbeat"):
        lock.take(tmp_path)


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_lock_without_signs_of_life(tmp_path, lock, brief, text):
    (tmp_path / locks.NAME).write_text(text)
    lock.take(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [locks.NAME]


def test_another_host_is_believed_while_it_gives_signs_of_life(tmp_path, lock, alive):
    owned(tmp_path, job="12")
    with pytest.raises(ConfigError, match=r"process 17 on elsewhere, job 12 .*heartbeat.*remove .*LOCK"):
        lock.take(tmp_path)


@pytest.mark.parametrize("clock", [-1000, 0, 1000])
def test_another_host_without_signs_of_life(tmp_path, lock, brief, clock):
    """Whatever its clock has stamped."""
    owned(tmp_path, job="12")
    then = time.time() + clock
    os.utime(tmp_path / locks.NAME, (then, then))
    lock.take(tmp_path)
    assert json.loads((tmp_path / locks.NAME).read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("clock", [-1000, 1000])
def test_another_host_whose_clock_is_off(tmp_path, lock, monkeypatch, clock):
    """Its signs of life carry its own time, as on file systems that leave the stamp to the host."""
    owned(tmp_path)
    done = threading.Event()

    def renew():
        while not done.wait(0.01):
            then = time.time() + clock
            os.utime(tmp_path / locks.NAME, (then, then))

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        with pytest.raises(ConfigError, match="heartbeat"):
            lock.take(tmp_path)
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("host", ["elsewhere", socket.gethostname()])
def test_the_same_job_after_a_requeue(tmp_path, lock, monkeypatch, host):
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    owned(tmp_path, job="12", host=host)
    lock.take(tmp_path)


def test_an_earlier_start_of_the_same_job_that_is_still_ending_is_waited_for(tmp_path, lock, monkeypatch):
    """The owner writes its last checkpoint, on the same host; to refuse would end the job."""
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    ending = subprocess.Popen(["sleep", "1"])
    reaper = threading.Thread(target=ending.wait)
    reaper.start()
    owned(tmp_path, job="12", place=locks.place(), pid=ending.pid, started=None)
    lock.take(tmp_path)
    assert ending.returncode == 0
    reaper.join()


def test_an_earlier_start_of_the_same_job_that_does_not_end(tmp_path, lock, brief, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    owned(tmp_path, job="12", place=locks.place(), pid=os.getpid(), started=None)
    with pytest.raises(ConfigError, match="the process exists"):
        lock.take(tmp_path)


def test_a_step_of_the_same_job_does_not_count_as_a_requeue(tmp_path, lock, alive, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    owned(tmp_path, job="12")
    with pytest.raises(ConfigError):
        lock.take(tmp_path)


def test_a_process_with_the_number_of_a_dead_one(tmp_path, lock):
    owned(tmp_path, place=locks.place(), pid=os.getpid(), started=1)
    lock.take(tmp_path)


@pytest.mark.parametrize("pid", [0, -1, 1 << 40, "1", None])
def test_a_number_that_no_process_has(tmp_path, lock, pid):
    owned(tmp_path, place=locks.place(), pid=pid)
    lock.take(tmp_path)


def test_the_number_of_a_process_says_nothing_in_another_place(tmp_path, lock, alive):
    """A container, or a host of the same name: there is no such process here, and the owner lives."""
    owned(tmp_path, host=socket.gethostname(), place="another boot or namespace", pid=1 << 30)
    with pytest.raises(ConfigError, match="heartbeat"):
        lock.take(tmp_path)


def test_what_is_no_file(tmp_path, lock):
    os.mkfifo(tmp_path / locks.NAME)
    with pytest.raises(OSError, match="not a regular file"):
        lock.take(tmp_path)


@pytest.mark.parametrize("how", ["removed", "taken over", "cannot be read"])
def test_whoever_lost_the_directory_writes_nothing_more(tmp_path, lock, how):
    lock.take(tmp_path)
    lock.check()
    if how == "taken over":
        owned(tmp_path)
    else:
        (tmp_path / locks.NAME).unlink()
    if how == "cannot be read":
        (tmp_path / locks.NAME).mkdir()
    with pytest.raises(CheckpointError, match=how):
        lock.check()
    lock.release()
    assert (tmp_path / locks.NAME).exists() == (how != "removed")


def test_signs_of_life(tmp_path, lock, monkeypatch):
    monkeypatch.setattr(locks, "RENEWED_S", 0.05)
    lock.take(tmp_path)
    os.utime(tmp_path / locks.NAME, (1000, 1000))
    end = time.monotonic() + 20
    while (tmp_path / locks.NAME).stat().st_mtime == 1000:
        assert time.monotonic() < end
        time.sleep(0.05)


# --- who is first, on slow file systems -------------------------------------------------------------------------------

# A starter whose file system is slow at random, or stalls in one step: says "holds it" or why not. It then keeps the
# directory until all have tried. Hard links never work: nothing may depend on them.
STARTER = """
import os, random, sys, time
from pathlib import Path
from mpibayes.hpc.run import lock as locks

def slow(name):
    function = getattr(os, name)
    def call(*words, **more):
        time.sleep(dice.choice((0.0, 0.01, 0.1)))
        if name == stall:
            time.sleep(0.6)
        result = function(*words, **more)
        time.sleep(0.6 if name + "ed" == stall else dice.choice((0.0, 0.01)))
        return result
    setattr(os, name, call)

def no_links(*words, **more):
    raise PermissionError(1, "Operation not permitted")

folder, number, stall = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dice = random.Random(number)
os.link = no_links
for name in ("open", "replace", "unlink"):
    slow(name)
while not (folder.parent / "go").exists():
    time.sleep(0.001)
lock = locks.Lock()
try:
    lock.take(folder)
    lock.check()
    print("holds it", flush=True)
except locks.ConfigError as error:
    print(error, flush=True)
    sys.exit()
sys.stdin.read()
try:
    lock.check()
except locks.CheckpointError as error:
    print("lost it", error, flush=True)
lock.release()
"""


STALLS = ("open", "replace", "opened", "opened")


@pytest.mark.alone
@pytest.mark.parametrize(
    "before, stalls",
    [
        pytest.param("nobody", STALLS, marks=pytest.mark.thorough),
        pytest.param("a dead owner", ("",) * 4, marks=pytest.mark.thorough),
        pytest.param("a dead owner", STALLS, marks=pytest.mark.thorough),
        pytest.param("a damaged file", STALLS, marks=pytest.mark.thorough),
        ("a dead owner and a dead heir", STALLS),
    ],
)
def test_of_many_that_start_at_once_one_holds_it(tmp_path, before, stalls):
    """Whatever they find, however slow the file system is: with a pause between any two of their steps."""
    folder = tmp_path / "run"
    folder.mkdir()
    dead = {"place": locks.place(), "pid": 1 << 30}
    if before != "nobody":
        owned(folder, **dead)
    if before == "a damaged file":
        (folder / locks.NAME).write_text("{")
    if before == "a dead owner and a dead heir":
        heir = json.loads((folder / locks.NAME).read_text()) | {"token": "y"}
        (folder / f"{locks.NAME}.x{locks.CLAIM}").write_text(json.dumps(heir))
    code = STARTER.replace("lock = locks.Lock()", "locks.SILENT_S = 0.3\nlock = locks.Lock()")
    words = [[sys.executable, "-c", code, str(folder), str(n), stall] for n, stall in enumerate(stalls)]
    many = [subprocess.Popen(w, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for w in words]
    (tmp_path / "go").touch()
    lines = [p.stdout.readline() for p in many]
    lines = [text + p.communicate(timeout=60)[0] for text, p in zip(lines, many, strict=True)]
    assert sum("holds it" in text for text in lines) == 1 and not any("lost it" in text for text in lines), lines
    assert all("holds it" in text or "is running it" in text for text in lines), lines
    assert not list(folder.iterdir())


def test_a_starter_that_is_frozen_while_it_takes_over_loses(tmp_path, lock, monkeypatch):
    """Between its claim and its LOCK; meanwhile somebody holds it for dead, and takes over in its place."""
    monkeypatch.setattr(locks, "SILENT_S", 0.1)
    owned(tmp_path)
    frozen, rename = Lock(), os.replace

    def freeze(*words):
        monkeypatch.setattr(os, "replace", rename)
        claim = next(tmp_path.glob(f"{locks.NAME}.*{locks.CLAIM}"))
        text = json.loads(claim.read_text())
        claim.write_text(json.dumps(text | {"place": "elsewhere"}))  # whose process cannot be looked for
        lock.take(tmp_path)
        rename(*words)

    monkeypatch.setattr(os, "replace", freeze)
    with pytest.raises(ConfigError, match="the process exists"):
        frozen.take(tmp_path)
    lock.check()
    assert [p.name for p in tmp_path.iterdir()] == [locks.NAME]


@pytest.mark.thorough
@pytest.mark.parametrize("found", ["nobody", "a dead owner"])
def test_a_starter_that_is_frozen_while_it_writes_its_name_loses(tmp_path, lock, brief, monkeypatch, found):
    """The owner has made LOCK, or its claim, and not yet written to it."""
    if found == "a dead owner":
        owned(tmp_path, place=locks.place(), pid=1 << 30)
    frozen, make = Lock(), os.open

    def freeze(path, flags, *mode, **more):
        fd = make(path, flags, *mode, **more)
        if flags & os.O_CREAT:
            monkeypatch.setattr(os, "open", make)
            lock.take(tmp_path)
        return fd

    monkeypatch.setattr(os, "open", freeze)
    with pytest.raises(ConfigError, match="the process exists"):
        frozen.take(tmp_path)
    lock.check()


def test_a_claim_on_an_owner_that_lives_after_all(tmp_path, lock):
    """An heir has held it for dead, and died itself before it took its place."""
    lock.take(tmp_path)
    token = json.loads((tmp_path / locks.NAME).read_text())["token"]
    heir = {"token": "heir", "place": locks.place(), "pid": 1 << 30}
    (tmp_path / f"{locks.NAME}.{token}{locks.CLAIM}").write_text(json.dumps(heir))
    with pytest.raises(ConfigError, match="the process exists"):
        Lock().take(tmp_path)
    lock.check()


def test_a_claim_is_taken_back_when_the_file_system_fails(tmp_path, lock, monkeypatch):
    owned(tmp_path, place=locks.place(), pid=1 << 30)
    look, looks = locks._chain, []

    def chain(path):
        looks.append(path)
        if len(looks) == 2:
            raise OSError(5, "Input/output error")
        return look(path)

    monkeypatch.setattr(locks, "_chain", chain)
    with pytest.raises(OSError):
        lock.take(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [locks.NAME]


def test_no_lock_is_left_when_the_last_look_fails(tmp_path, lock, monkeypatch):
    look = Lock._holds

    def holds(self, path):
        monkeypatch.setattr(Lock, "_holds", look)
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(Lock, "_holds", holds)
    with pytest.raises(OSError):
        lock.take(tmp_path)
    lock.release()
    assert not list(tmp_path.iterdir())


def test_a_starter_that_thaws_and_fails_leaves_the_lock_of_its_successor(tmp_path, lock, brief, monkeypatch):
    frozen, write = Lock(), json.dumps

    def fail(about, *words, **more):
        if about is frozen._mine:
            monkeypatch.setattr(json, "dumps", write)
            lock.take(tmp_path)
            raise OSError(5, "Input/output error")
        return write(about, *words, **more)

    monkeypatch.setattr(json, "dumps", fail)
    with pytest.raises(OSError):
        frozen.take(tmp_path)
    lock.check()


@pytest.mark.parametrize("text", ['{"job": "12", "restarts": null}', "[" * 200_000])
def test_what_is_damaged_is_no_internal_error(tmp_path, lock, brief, monkeypatch, text):
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    (tmp_path / locks.NAME).write_text(text)
    lock.take(tmp_path)


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
    done = run(place, "out", *ENDLESS, "--max-time", "1")
    assert done.returncode == 75, done.stderr
    status = json.loads((place / "out" / "status.json").read_text())
    assert status["before"]["state"] == "died" and not (place / "out" / locks.NAME).exists()


@pytest.mark.thorough
def test_a_run_in_another_namespace_of_process_ids_is_not_taken_over(place):
    """Two containers of one host, or two hosts of one name."""
    alone = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("this machine does not let us make a namespace of process ids")
    options = {"ranks": 1, "program": [PROGRAM]}  # with signs of life that are not long to wait for
    process = start(place, "out", *ENDLESS, "--set", "run.checkpoint_minutes=0.001", **options)
    try:
        wait_for_progress(place, "out", process)
        words = [sys.executable, PROGRAM, "run", "run.toml", "-o", "out", *ENDLESS]
        second = launch([*alone, *words], cwd=place, timeout=60)
        assert second.returncode == 2 and f"process {process.pid} on" in second.stderr, second.stderr
        assert "heartbeat" in second.stderr and process.poll() is None
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


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
    "answer, left",
    [
        ("JobId=12 EndTime={soon} Deadline=N/A", 100),
        ("JobId=12 EndTime=Unknown", None),
        ("JobId=12 EndTime=2020-01-01T00:00:00", None),  # over: a shell that remembers it
        ("", None),
    ],
)
def test_slurm_is_asked_where_it_did_not_tell(monkeypatch, tmp_path, answer, left):
    soon = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 100))
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f"#!/bin/sh\necho '{answer.format(soon=soon)}'\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)
    result = job_time_left()
    assert result is None if left is None else abs(result - left) < 20


def test_no_job_no_end(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert job_time_left() is None
