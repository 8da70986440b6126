"""The guard of tests/conftest.py: no rank that fails, dies, sleeps or strays can hang the suite or hide a failure.

Each case writes a tiny test file and starts mpirun with a clock. The `plain` cases show the plugin's own faults.
"""

import shutil
import subprocess
import time
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
HEAD = """
import os, signal, time
import pytest
from mpi4py import MPI
comm = MPI.COMM_WORLD
pytestmark = pytest.mark.mpi
def test_before():
    assert comm.allreduce(1) == comm.size
"""
ONE_FAILS = (
    HEAD
    + """
def test_one_rank_fails():
    assert comm.rank != 1, "rank one says no"
    comm.Barrier()
def test_after():
    comm.Barrier()
"""
)
ONE_FAILS_ALONE = (
    HEAD
    + """
def test_one_rank_fails():
    assert comm.rank != 1, "rank one says no"
"""
)
ONE_DIES = (
    HEAD
    + """
def test_one_rank_dies():
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.Barrier()
"""
)
ONE_SLEEPS = (
    HEAD
    + """
def test_one_rank_sleeps():
    if comm.rank == 1:
        time.sleep(600)
"""
)
ALL_HANG = (
    HEAD
    + """
def test_all_wait_for_a_message_that_nobody_sends():
    comm.recv(source=(comm.rank + 1) % comm.size)
"""
)
STRAYS = (
    HEAD
    + """
if comm.rank == 1:
    def test_only_here():
        pass
"""
)
PASSES = (
    HEAD
    + """
@pytest.mark.mpi(min_size=3)
def test_three():
    assert comm.size >= 3
@pytest.mark.mpi(min_size=4)
def test_four():
    assert comm.size >= 4
@pytest.mark.mpi(max_size=2)
def test_at_most_two():
    assert comm.size <= 2
"""
)
ONE_SERIAL = """
import pytest
def test_serial():
    raise AssertionError("a serial test ran under mpirun")
@pytest.mark.mpi
def test_parallel():
    pass
"""


@pytest.fixture
def suite(tmp_path, mpirun):
    """Runs the text of one test file on three ranks; returns the process and the seconds it took."""

    def run(text, guarded=True, timeout=60, n=3, more=("--with-mpi",), faulthandler=30):
        if guarded:
            shutil.copy(CONFTEST, tmp_path / "conftest.py")
        (tmp_path / "test_case.py").write_text(text)
        (tmp_path / "pytest.ini").write_text(
            f"[pytest]\nfaulthandler_timeout = {faulthandler}\nfaulthandler_exit_on_timeout = true\n"
        )
        start = time.monotonic()
        done = mpirun(
            n, "-m", "pytest", *more, "--color=no", "-p", "no:cacheprovider", "test_case.py",
            timeout=timeout, cwd=tmp_path, env={"MPI_TEST_GRACE": 3},
        )  # fmt: skip
        return done, time.monotonic() - start

    return run


@pytest.mark.thorough
def test_passing_suite_prints_once(suite):
    done, _ = suite(PASSES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("test session starts") == 1
    assert "2 passed, 2 skipped" in done.stdout
    assert "MPI Information" not in done.stdout
    assert "MPI: 3 ranks" in done.stdout


@pytest.mark.thorough
def test_serial_tests_stay_out(suite):
    done, _ = suite(ONE_SERIAL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "collected 1 item" in done.stdout and " 1 passed in " in done.stdout


def test_failure_on_one_rank_while_others_wait(suite):
    done, seconds = suite(ONE_FAILS)
    assert done.returncode != 0
    assert "rank one says no" in done.stdout + done.stderr
    assert "[rank 1]" in done.stdout + done.stderr
    assert seconds < 45


@pytest.mark.thorough
def test_failure_on_one_rank_is_seen_on_all(suite):
    done, _ = suite(ONE_FAILS_ALONE)
    assert done.returncode != 0
    assert "rank one says no" in done.stdout
    assert "1 error" in done.stdout
    assert "MPI_Abort" not in done.stdout + done.stderr and "other ranks are missing" not in done.stderr


def test_death_of_one_rank(suite):
    done, seconds = suite(ONE_DIES)
    assert done.returncode != 0
    assert seconds < 45


@pytest.mark.thorough
def test_one_rank_sleeps(suite):
    done, seconds = suite(ONE_SLEEPS)
    assert done.returncode != 0
    assert "other ranks are missing after 3 s" in done.stderr
    assert "test_one_rank_sleeps" in done.stderr
    assert seconds < 45


@pytest.mark.thorough
def test_all_ranks_hang(suite):
    done, seconds = suite(ALL_HANG, faulthandler=4)
    assert done.returncode != 0
    assert "test_all_wait_for_a_message" in done.stderr
    assert seconds < 45


@pytest.mark.thorough
def test_different_tests_on_one_rank(suite):
    done, _ = suite(STRAYS)
    assert done.returncode != 0
    assert "did not collect the same tests" in done.stdout + done.stderr


@pytest.mark.thorough
def test_without_the_option(suite):
    done, _ = suite(PASSES, more=())
    assert done.returncode != 0
    assert "--with-mpi" in done.stdout + done.stderr


@pytest.mark.thorough
def test_plain_pytest_mpi_hangs_on_one_failing_rank(suite):
    with pytest.raises(subprocess.TimeoutExpired):
        suite(ONE_FAILS, guarded=False, timeout=8, faulthandler=0)


@pytest.mark.thorough
def test_plain_pytest_mpi_prints_a_pass_over_a_failure(suite):
    done, _ = suite(ONE_FAILS_ALONE, guarded=False)
    assert done.stdout.count("test session starts") == 3
    assert "2 passed" in done.stdout
