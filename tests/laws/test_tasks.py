"""Tasks give the same results on ranks, in one process and in its children; a child that dies costs time alone."""

import os
import time
from functools import partial

import pytest

from mpibayes.errors import DataError
from mpibayes.hpc.parallel import tasks, waiting
from mpibayes.hpc.parallel.comm import Serial, agree, world


def square(i):
    return i * i, os.getpid()


def squares(comm, n):
    return [result for result, _ in tasks.run_all(comm, [partial(square, i) for i in range(n)], "square numbers")]


@pytest.mark.parametrize("cores", [1, 2, 3, 9])
def test_children_give_the_same(monkeypatch, cores):
    monkeypatch.setattr(tasks, "program_cores", lambda: cores)
    assert squares(Serial(alone=True), 5) == [0, 1, 4, 9, 16]


def test_children_are_used_where_the_program_runs_alone(monkeypatch):
    monkeypatch.setattr(tasks, "program_cores", lambda: 2)
    for alone in (True, False):
        done = tasks.run_all(Serial(alone=alone), [partial(square, i) for i in range(4)], "square numbers")
        assert len({pid for _, pid in done}) == 1 + alone


def test_a_child_that_dies_is_replaced(monkeypatch):
    monkeypatch.setattr(tasks, "program_cores", lambda: 2)
    parent = os.getpid()

    def fragile(i):
        if os.getpid() != parent:
            os.kill(os.getpid(), 9)
        return i

    assert tasks.run_all(Serial(alone=True), [partial(fragile, i) for i in range(4)], "survive") == [0, 1, 2, 3]


def test_an_error_in_a_child_is_the_programs(monkeypatch):
    monkeypatch.setattr(tasks, "program_cores", lambda: 2)

    def bad(i):
        if i == 3:
            raise DataError("the fourth")
        return i

    with pytest.raises(DataError, match="the fourth"):
        tasks.run_all(Serial(alone=True), [partial(bad, i) for i in range(4)], "fail")


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
    """A program that runs alone is not waited for by itself; its children do not wait for their parent."""
    monkeypatch.setattr(waiting, "AFTER_S", 0.05)
    monkeypatch.setattr(tasks, "program_cores", lambda: 2)

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
    assert "s for this process to write the trace" in capfd.readouterr().err
