"""Groups of ranks side by side: at a meeting each has its own results, and all share an error of one group."""

import time

import numpy as np
import pytest

from mpibayes.errors import DataError, NumericalError
from mpibayes.hpc.parallel.agreement import on_root
from mpibayes.hpc.parallel.comm import world
from mpibayes.hpc.parallel.groups import FAILED, Groups
from mpibayes.hpc.parallel.schedule import grouped

pytestmark = pytest.mark.mpi(min_size=2)


def two_groups(signalled=lambda: None):
    comm = world()
    return comm, Groups(comm, grouped(comm.size, comm.size, 2), signalled)


def test_each_group_has_its_own_messages():
    comm, groups = two_groups()
    numbers = groups.comm.numbers
    assert numbers[groups.comm.rank] == comm.rank and len(numbers) == groups.comm.size < comm.size
    total = np.array([comm.rank], np.int64)
    groups.comm.sum_everywhere(total)
    assert total[0] == sum(numbers)
    assert sorted({number for group in comm.collect(numbers) for number in group}) == list(range(comm.size))
    assert groups.agree(lambda: groups.number, "look") == groups.number and groups.heard() is None


def test_one_group_is_the_world():
    comm = world()
    groups = Groups(comm, grouped(comm.size, 3, 1))
    assert groups.comm is comm and not groups.several and groups.all_done(lambda: True, "go on")


def test_an_error_of_one_group_is_raised_on_all_ranks():
    _, groups = two_groups()

    def fails():
        if groups.number == 1:
            raise DataError("row 3", ["of this group"])

    with pytest.raises(DataError, match="row 3") as caught:
        groups.agree(lambda: on_root(groups.comm, fails), "read")
    assert caught.value.shared and "of this group" in caught.value.problems
    assert groups.heard() == (FAILED if groups.number == 0 else None)


def test_of_two_errors_the_first_is_raised_with_the_other():
    _, groups = two_groups()

    def fails():
        raise (DataError, NumericalError)[groups.number](f"in group {groups.number}")

    with pytest.raises(DataError) as caught:
        groups.agree(fails, "read")
    assert caught.value.message == "in group 0" and caught.value.problems == ("likewise: in group 1",)


def test_one_that_stops_has_the_others_stop():
    """They would otherwise run for a minute; the groups can meet again afterwards."""
    comm, groups = two_groups()

    def at_work():
        until = time.monotonic() + 60.0
        while time.monotonic() < until:
            if groups.number == 1 or groups.heard():
                return False
            time.sleep(0.001)
        return True

    began = time.monotonic()
    assert not groups.all_done(at_work, "end", lambda: "time limit")
    assert time.monotonic() - began < 30.0
    assert groups.number == 1 or groups.heard() == "time limit"
    assert not groups.all_done(lambda: groups.number == 0, "end") and groups.all_done(lambda: True, "end")
    assert comm.hear() is None  # no message is in transit any more


def test_a_signal_to_a_rank_that_waits_is_passed_on():
    comm = world()
    comm, groups = two_groups(lambda: "SIGTERM" if comm.rank == comm.size - 1 else None)

    def at_work():
        until = time.monotonic() + 60.0
        while groups.number == 0 and not groups.heard() and time.monotonic() < until:
            time.sleep(0.001)
        return groups.number == 1

    assert not groups.all_done(at_work, "end", groups.heard)
    assert groups.number == 1 or groups.heard() == "SIGTERM"
