"""Whatever befalls one rank ends the whole job within seconds: one message with rank, host and cause, and an exit code.

Each case starts mpirun with a small script that makes one rank fail, and has a clock. A rank that is stopped for good
(SIGSTOP, a node that no longer answers) is not among them: no program can tell it from a slow one, so the run waits,
and says so; the batch system's time limit ends it.
"""

import re
import shlex
import socket
import sys
import time

import pytest

from tests.conftest import FOR_RANKS, exit_code, launch
from tests.run.conftest import FAULTY, run

HOST = re.escape(f"({socket.gethostname()})")
KILLED = (9, 137)  # what mpirun of MPICH and of Open MPI make of kill -9
WITHIN = 45  # seconds: alone a case takes 2 to 8, most of it to start

IN_A_CYCLE = """
from mpibayes.hpc.crosscat.chain import Mixture
from mpibayes.errors import NumericalError
cycle = Mixture.cycle
def faulty(self, word=()):
    if rank == 1 and self.cycles == 3:
        {}
    return cycle(self, word)
Mixture.cycle = faulty
"""
# What MPI raises here if the connection to a rank on another node is reset.
LOST = IN_A_CYCLE.format("from mpi4py import MPI; raise MPI.Exception(MPI.ERR_OTHER)")
WHILE_READING = """
from mpibayes.io import piece
def read(*ignored):
    {}
if rank == 1:
    piece.read_rows = read
"""
BEFORE_MPI = """
from mpibayes.hpc.run import loop as run
def world():
    raise RuntimeError("boom")
if rank == 1:
    run.world = world
"""
IN_A_MOVE_OF_VIEWS = """
from mpibayes.kernels import mixture
def seat(*ignored):
    raise FloatingPointError("row 3 has no score")
if rank == 0:
    mixture.seat = seat
"""
# Rank 1 writes nothing but its parts of checkpoints.
NO_ROOM = """
def full(file):
    raise OSError(28, "No space left on device")
if rank == 1:
    os.fsync = full
"""
HALF_INSTALLED = """
if rank == 1:
    sys.modules["h5py"] = None
"""


def faulty(place, code, out, *words, ranks=3, env=None, timeout=WITHIN):
    """(what was said, exit code); TimeoutExpired when it hangs."""
    program = [sys.executable, "-c", FAULTY, code, out, "--set", "run.cycles=8", "--set", "run.burn_in=2", *words]
    mpirun = ["mpirun", "-n", ranks] if ranks else []
    return launch([*mpirun, *program], timeout=timeout, cwd=place, env={**FOR_RANKS, **(env or {})})


@pytest.mark.quick("lost")
@pytest.mark.parametrize(
    "code, exit_codes, words",
    [
        (IN_A_CYCLE.format("raise MemoryError"), (4,), "not enough memory: this process has .* of addresses"),
        (IN_A_CYCLE.format("sys.exit(3)"), (70,), "internal error: SystemExit: 3"),
        (IN_A_CYCLE.format('raise NumericalError("only I know")'), (5,), "only I know"),
        (WHILE_READING.format("raise MemoryError"), (4,), "not enough memory: .*, trying to read its rows"),
        (WHILE_READING.format('raise OSError(5, "Input/output error")'), (3,), "table.h5.*Input/output error"),
        (NO_ROOM, (4,), "part-00002.h5: cannot be written: No space left on device"),
        (LOST, (70,), "MPI failed, as it does once another rank or its node is lost .*run the same command again"),
        (BEFORE_MPI, (70,), "internal error: RuntimeError: boom"),
        (HALF_INSTALLED, (70,), "the program cannot be loaded: .*h5py"),
    ],
    ids=[
        "memory", "exit", "error-of-one-rank", "memory-while-reading", "unreadable-slice", "no-room", "lost",
        "before-mpi", "half-installed",
    ],
)  # fmt: skip
def test_a_fault_of_one_rank(place, code, exit_codes, words):
    done = faulty(place, code, "out", ranks=3 if code == NO_ROOM else 2)
    told_once(done, exit_codes, words)
    assert ("Traceback" in done.stderr) == ("internal error" in words)


def told_once(done, exit_codes, words):
    assert exit_code(done) in exit_codes, done.stdout + done.stderr
    reported = re.findall(r"mpibayes: error: .*", done.stderr)
    assert len(reported) == 1 and re.search(rf"rank 1 {HOST}: .*{words}", reported[0]), done.stderr


@pytest.mark.thorough
def test_root_fails_in_a_move_of_views(place):
    done = faulty(
        place, IN_A_MOVE_OF_VIEWS, "out", "--set", 'model.family="crosscat"', "--set", "model.view_discount=0.0"
    )
    assert exit_code(done) == 5, done.stdout + done.stderr
    assert "a row cannot be scored in a move of views" in done.stderr and "row 3 has no score" in done.stderr


def test_a_rank_has_a_log_of_its_own_when_it_has_something_to_say(place):
    done = faulty(place, IN_A_CYCLE.format('raise RuntimeError("boom")'), "out", ranks=2)
    told_once(done, (70,), "internal error: RuntimeError: boom")
    logs = place / "out" / "logs"
    assert sorted(p.name for p in logs.iterdir()) == ["rank-00001.log", "run.log"]
    text = (logs / "rank-00001.log").read_text()
    assert re.search(rf"rank 1 {HOST}: internal error: RuntimeError: boom", text) and "Traceback" in text


@pytest.mark.thorough
def test_several_ranks_fail_with_one_message(place):
    done = faulty(place, WHILE_READING.replace("rank == 1", "rank > 0").format("raise MemoryError"), "out")
    assert done.returncode == 4 and done.stderr.count("mpibayes: error:") == 1, done.stderr
    assert re.search(rf"rank 1 {HOST}: not enough memory", done.stderr)
    assert re.search(rf"likewise rank 2 {HOST}", done.stderr)


@pytest.mark.quick("cycle-2")
@pytest.mark.parametrize("when, rank", [(IN_A_CYCLE, 2), (WHILE_READING, 0)], ids=["cycle-2", "reading-0"])
def test_a_killed_rank(place, when, rank):
    """Kill a rank as the system does when memory is short. The launcher reports it; the run can be continued."""
    code = when.replace("rank == 1", f"rank == {rank}").format("os.kill(os.getpid(), 9)")
    done = faulty(place, code, "out")
    text = done.stdout + done.stderr
    assert done.returncode in KILLED, text
    assert "KILLED" in text.upper() or "SIGNAL 9" in text.upper()
    words = ("--set", "run.cycles=8", "--set", "run.burn_in=2")
    assert run(place, "out", *words).returncode == 0


@pytest.mark.thorough
def test_no_room_on_one_rank_costs_nothing_else(place):
    """The checkpoint before stays; what was half written goes; the same command continues once there is room."""
    assert run(place, "straight", "--set", "run.cycles=8", "--set", "run.burn_in=2").returncode == 0
    first = ("--set", "run.cycles=4", "--set", "run.burn_in=2")
    assert run(place, "out", *first, ranks=3).returncode == 0
    assert faulty(place, NO_ROOM, "out").returncode == 4
    assert [p.name for p in (place / "out" / "checkpoints").iterdir()] == ["000000004"]
    assert run(place, "out", "--set", "run.cycles=8", "--set", "run.burn_in=2", ranks=3).returncode == 0
    from tests.run.conftest import exported

    assert exported(place, "out") == exported(place, "straight")


@pytest.mark.thorough
@pytest.mark.parametrize("ranks", [0, 2])
def test_a_limit_on_addresses_that_libraries_do_not_fit_into(place, ranks):
    """OpenBLAS ended the program itself at 200,000 KB, or it hung; one rank speaks for all."""
    command = ["mpirun", "-n", str(ranks)] if ranks else []
    words = shlex.join([*command, sys.executable, "-m", "mpibayes", "run", "run.toml", "-o", "out"])
    done = launch(["bash", "-c", f"ulimit -v 200000; exec {words}"], timeout=WITHIN, cwd=place, env=FOR_RANKS)
    assert done.returncode == 4 and done.stderr.count("mpibayes: error:") == 1, done.stdout + done.stderr
    assert "not enough memory: ulimit -v allows 195 MB of addresses" in done.stderr and not (place / "out").exists()


# --- N separate copies ------------------------------------------------------------------------------------------------


@pytest.mark.quick("openmpi")
@pytest.mark.parametrize(
    "env",
    [
        {"PMI_SIZE": "4", "PMI_RANK": "0"},
        {"OMPI_COMM_WORLD_SIZE": "4"},
        {"SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "1", "SLURM_STEP_ID": "0"},
    ],
    ids=["pmi", "openmpi", "srun"],
)
def test_lonely_copies_are_refused_before_any_work(place, env):
    """The variables of a launcher of another MPI: each of its processes finds itself alone."""
    done = run(place, "out", env=env, timeout=60)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.count("mpibayes: error:") == 1 and "Traceback" not in done.stderr
    assert "started 4 processes, but MPI sees 1" in done.stderr and "srun --mpi" in done.stderr
    assert not (place / "out").exists()


def test_one_process_within_a_job_of_many_tasks_is_no_lonely_copy(place):
    """A batch script that starts the program without srun."""
    env = {"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}
    done = run(place, "out", "--set", "run.cycles=2", "--set", "run.burn_in=0", env=env)
    assert done.returncode == 0, done.stderr


# --- what takes long is told ------------------------------------------------------------------------------------------

QUICK = "from mpibayes.hpc.parallel import waiting; waiting.AFTER_S = 0.5\n"
SLOW_PART = """
from mpibayes.io import checkpoint
write = checkpoint.write_part
def slow(*words):
    time.sleep(3.0 * (rank == 1))
    return write(*words)
checkpoint.write_part = slow
"""
SLOW_READ = """
from mpibayes.io import piece
read, slept = piece.read_rows, []
def slow(*words):
    if rank == 0 and not slept:
        slept.append(time.sleep(1.5))
    return read(*words)
piece.read_rows = slow
"""
SLOW_MERGE = """
from mpibayes.hpc.run import chain_run as run
merge = run.merge
def slow(*words):
    time.sleep(1.5)
    return merge(*words)
run.merge = slow
"""
LATE = "time.sleep(3.0 * (rank == 1))\n"


@pytest.mark.alone
@pytest.mark.quick("part")
@pytest.mark.parametrize(
    "code, words, ranks",
    [
        (QUICK + SLOW_PART, f"rank 1 {HOST} to write its part of checkpoint 000000008", 3),
        (QUICK + SLOW_READ, f"rank 0 {HOST} to read its rows of the table", 2),
        (QUICK + SLOW_READ, "the program to read its rows of the table", 0),
        (QUICK + SLOW_MERGE, f"rank 0 {HOST} to write trace.h5 and the last status", 2),
        (QUICK + LATE, "all ranks to start MPI", 2),
    ],
    ids=["part", "read", "read-alone", "merge", "start"],
)
def test_slow_is_told_from_hanging(place, code, words, ranks):
    whole = "--set", 'model.shapes="none"'  # whose fit would be the first to read rows
    done = faulty(place, code, "out", *whole, ranks=ranks)
    assert done.returncode == 0, done.stderr
    lines = re.findall(rf"^[\d:T-]+ waiting (\d+) s for {words}$", done.stderr, re.M)
    assert 1 <= len(lines) <= 6, done.stderr  # at doubling intervals
    if words != "all ranks to start MPI":
        assert re.search(rf"waited \d+ s for {words}; going on", done.stderr)


def test_a_run_that_does_not_wait_says_nothing(place):
    done = run(place, "out", "--set", "run.cycles=2", "--set", "run.burn_in=0", ranks=2)
    assert done.returncode == 0 and done.stderr == ""


@pytest.mark.thorough
@pytest.mark.parametrize(
    "how, message", [("sys.exit(1)", "has left"), ("time.sleep(60)", "in vain for all ranks to start MPI")]
)
def test_a_rank_that_never_starts_mpi(place, how, message):
    """MPICH's mpirun does not mind a process that leaves before MPI starts; and for one that hangs there is a limit."""
    code = QUICK + "import time; from mpibayes.hpc.parallel import comm; comm.START_LIMIT_S = 4.0\n"
    code += f"if rank == 1: {how}\n"
    started = time.monotonic()
    done = faulty(place, code, "out", ranks=2)
    assert done.returncode != 0 and time.monotonic() - started < WITHIN
    text = done.stdout + done.stderr
    assert message in text or "non-zero exit code" in text, text  # Open MPI's mpirun minds
