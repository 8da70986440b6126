"""Tasks give the same results on ranks, in one process and in its children; a dead child costs only time."""

import multiprocessing
import os
import subprocess
import sys
import time
from functools import partial

import pytest

from mpibayes.errors import DataError
from mpibayes.hpc.parallel import cores, tasks, waiting
from mpibayes.hpc.parallel.agreement import agree
from mpibayes.hpc.parallel.comm import Serial, world


def square(i):
    return i * i, os.getpid()


def squares(comm, n):
    return [result for result, _ in tasks.run_all(comm, [partial(square, i) for i in range(n)], "square numbers")]


@pytest.mark.parametrize("cores", [1, 2, 3, 9])
def test_children_give_the_same(monkeypatch, cores):
    monkeypatch.setattr(tasks, "rank_cores", lambda alone: cores if alone else 1)
    assert squares(Serial(alone=True), 5) == [0, 1, 4, 9, 16]


def test_children_are_used_where_the_program_runs_alone(monkeypatch):
    monkeypatch.setattr(tasks, "rank_cores", lambda alone: 2 if alone else 1)
    for alone in (True, False):
        done = tasks.run_all(Serial(alone=alone), [partial(square, i) for i in range(4)], "square numbers")
        assert len({pid for _, pid in done}) == 1 + alone


@pytest.mark.parametrize(
    ("cores", "reported"),
    [
        (1, ["task 1 of 3", "task 2 of 3", "task 3 of 3"]),
        (2, ["tasks 1 to 2 of 3", "task 3 of 3"]),
        (9, ["tasks 1 to 3 of 3"]),
    ],
)
def test_tasks_are_reported_as_they_begin(monkeypatch, cores, reported):
    monkeypatch.setattr(tasks, "rank_cores", lambda alone: cores)
    comm, heard = Serial(alone=True), []
    comm.report = heard.append
    tasks.run_all(comm, [partial(square, i) for i in range(3)], "square numbers", "task")
    assert heard == reported


def test_a_child_that_dies_is_replaced(monkeypatch):
    monkeypatch.setattr(tasks, "rank_cores", lambda alone: 2 if alone else 1)
    parent = os.getpid()

    def fragile(i):
        if os.getpid() != parent:
            os.kill(os.getpid(), 9)
        return i

    assert tasks.run_all(Serial(alone=True), [partial(fragile, i) for i in range(4)], "survive") == [0, 1, 2, 3]


def test_an_error_in_a_child_is_the_programs(monkeypatch):
    monkeypatch.setattr(tasks, "rank_cores", lambda alone: 2 if alone else 1)

    def bad(i):
        if i == 3:
            raise DataError("the fourth")
        return i

    with pytest.raises(DataError, match="the fourth"):
        tasks.run_all(Serial(alone=True), [partial(bad, i) for i in range(4)], "fail")


def test_ranks_that_a_program_starts_share_its_cores(monkeypatch):
    monkeypatch.setattr(cores, "program_cores", lambda: 5)
    monkeypatch.setenv(cores.SHARE, "")
    assert (cores.rank_cores(True), cores.rank_cores(False)) == (5, 1)
    for ranks, each in ((2, 2), (5, 1), (8, 1)):
        cores.share_out(ranks)
        assert (cores.rank_cores(True), cores.rank_cores(False)) == (5, each)
    cores.share_out(2)
    done = tasks.run_all(Serial(), [partial(square, i) for i in range(4)], "square numbers")
    assert len({pid for _, pid in done}) == 2


def test_where_no_process_can_be_made_this_one_does_all(monkeypatch):
    def full(process):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(tasks, "rank_cores", lambda alone: 3 if alone else 1)
    monkeypatch.setattr(multiprocessing.get_context(tasks.FORKED).Process, "start", full)
    assert squares(Serial(alone=True), 5) == [0, 1, 4, 9, 16]


def test_children_end_with_a_program_that_is_killed():
    """They hold its standard output, and its reader would wait for them."""
    program = (
        "from mpibayes.hpc.parallel import tasks\n"
        "import os, time\n"
        "from mpibayes.hpc.parallel.comm import Serial\n"
        "def late():\n    print(os.getpid(), flush=True); time.sleep(60)\n"
        "tasks.rank_cores = lambda alone: 2\n"
        "tasks.run_all(Serial(alone=True), [late, late], 'sleep')\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    try:
        numbers = {int(process.stdout.readline()) for _ in range(2)}
        assert process.pid in numbers and len(numbers) == 2
    finally:
        process.kill()
    began = time.monotonic()
    assert process.communicate(timeout=30)[0] == b"", "the end of the output"
    assert time.monotonic() - began < 30 and process.returncode == -9


@pytest.mark.parametrize("cores", [1, 2])
def test_no_task_begins_once_the_program_is_to_stop(monkeypatch, cores):
    """Neither a child nor a task that stops by itself is waited for."""
    monkeypatch.setattr(tasks, "rank_cores", lambda alone: cores if alone else 1)
    monkeypatch.setattr(tasks, "LOOK_S", 0.02)
    parent, asked, begun = os.getpid(), [], []

    def task():
        if os.getpid() != parent:
            time.sleep(60)
        begun.append(1)
        asked.append("SIGTERM")

    began = time.monotonic()
    with pytest.raises(tasks.Stopped):
        tasks.run_all(Serial(alone=True, asked_to_stop=lambda: bool(asked)), [task] * 4, "stop")
    assert begun == [1] and time.monotonic() - began < 30

    def heeds():
        raise tasks.Stopped

    with pytest.raises(tasks.Stopped):
        tasks.run_all(Serial(), [heeds], "stop")


@pytest.mark.mpi(min_size=2)
def test_all_ranks_stop_where_one_is_to():
    comm = world()
    comm.asked_to_stop = lambda: comm.rank == comm.size - 1
    with pytest.raises(tasks.Stopped):
        squares(comm, 2 * comm.size)
    comm.asked_to_stop = lambda: False
    assert squares(comm, 2) == [0, 1]


@pytest.mark.mpi(min_size=2)
def test_ranks_share_tasks_and_errors():
    comm = world()
    assert squares(comm, 5) == [0, 1, 4, 9, 16]
    done = tasks.run_all(comm, [partial(square, i) for i in range(2 * comm.size)], "square numbers")
    assert len({pid for _, pid in done}) == comm.size

    def bad():
        raise DataError("only here")

    with pytest.raises(DataError, match="only here"):
        tasks.run_all(comm, [partial(square, 1)] * (comm.size - 1) + [bad], "fail")


def test_alone_nobody_waits(monkeypatch, capfd):
    """A program that runs alone does not wait for itself; its children do not wait for their parent."""
    monkeypatch.setattr(waiting, "AFTER_S", 0.05)
    monkeypatch.setattr(tasks, "rank_cores", lambda alone: 2 if alone else 1)

    def slow():
        with waiting.announce("a step of the task", after_s=60.0):
            time.sleep(0.4)
        return os.getpid(), len(waiting._waits)

    (_, here), (_, in_child) = tasks.run_all(Serial(alone=True), [slow, slow], "be slow")
    assert (here, in_child) == (0, 0) and "waiting" not in capfd.readouterr().err
    with waiting.announce("the whole", after_s=60.0):
        (_, here), (_, in_child) = tasks.run_all(Serial(alone=True), [slow, slow], "be slow")
    assert (here, in_child) == (1, 0)
    agree(Serial(alone=True), lambda: time.sleep(0.4), "write the trace")
    assert "s for the program to write the trace" in capfd.readouterr().err
