"""No rank leaves the others waiting in MPI's start: one that is signalled, or that ends, before they have met."""

import os
import signal
import sys
import time

import pytest

from mpibayes.hpc.parallel import launcher
from mpibayes.hpc.run import signals
from tests.conftest import is_open_mpi, launch

# Sends this process a signal while the modules of the command are loaded, long before a run looks at signals.
SIGNALLED = """
import os, signal, sys
from mpibayes.__main__ import main

class Loader:
    def find_spec(self, name, *rest):
        if name == "mpibayes.hpc.cli" and os.environ[{rank!r}] == "1":
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.{number})

sys.meta_path.insert(0, Loader())
sys.argv[0] = "mpibayes"
sys.exit(main())
"""
RUN = ["run", "run.toml", "-o", "out", "--set", "run.cycles=100000"]


@pytest.mark.thorough
@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGUSR1"])
def test_a_signal_to_one_rank_while_it_starts_stops_the_run(place, mpirun, number):
    """The run ends at a checkpoint. SIGINT used to end that rank by itself, and the other waited for ten minutes."""
    rank = "OMPI_COMM_WORLD_RANK" if is_open_mpi() else "PMI_RANK"
    done = mpirun(2, "-c", SIGNALLED.format(number=number, rank=rank), *RUN, cwd=place, timeout=60)
    assert done.returncode == 75 and "stopped early" in done.stdout + done.stderr, done
    assert list((place / "out" / "checkpoints").glob("*/MANIFEST.json"))


def test_ctrl_c_while_one_process_starts_ends_it(place):
    """A single process has nobody to wait for it."""
    code = SIGNALLED.format(number="SIGINT", rank="RANK")
    done = launch([sys.executable, "-c", code, *RUN], cwd=place, timeout=60, env={"RANK": "1"})
    assert done.returncode == -signal.SIGINT and not done.stderr and not (place / "out").exists()


def test_ctrl_c_to_another_command_under_a_launcher_ends_it():
    """A signal noted during the start is heeded once it turns out that this is no run."""
    before = {number: signal.getsignal(number) for number in signals.SIGNALS}
    try:
        signals.note()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signals.act()
        assert signals.noted() is None and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.thorough
def test_a_rank_that_ends_before_mpi_starts_takes_the_job_with_it(place, mpirun):
    """End as Python does on Ctrl-C in its first hundredths of a second, with an exit code that MPICH does not mind."""
    began = time.monotonic()
    program = f"-n 1 {sys.executable} -c raise(SystemExit(1)) : -n 1 {sys.executable} -m mpibayes".split()
    done = launch(["mpirun", *program, *RUN], cwd=place, timeout=100)
    assert done.returncode != 0 and time.monotonic() - began < 60.0, done
    if not is_open_mpi():  # which ends the others itself
        assert "a rank on" in done.stderr and "has left" in done.stderr, done


@pytest.mark.thorough
def test_ranks_behind_a_shell_are_not_missing(place, mpirun):
    words = ["mpirun", "-n", "2", "sh", "-c", f'sleep 1; {sys.executable} -m mpibayes "$@"; exit $?', "sh"]
    done = launch([*words, "run", "run.toml", "-o", "out", "--set", "run.cycles=3"], cwd=place, timeout=100)
    assert done.returncode == 0 and "has left" not in done.stderr, done


@pytest.mark.thorough
def test_a_late_rank_is_waited_for(place, mpirun):
    """A rank that is slow to start is there for its launcher."""
    program = "import time; time.sleep({}); from mpibayes.hpc.parallel import waiting; waiting.MISSING_S = 0.5; "
    program += "waiting.AFTER_S = 2.0; from mpibayes.__main__ import main; exit(main())"
    words = ["-n", "1", sys.executable, "-c", program.format(4), *RUN[:-1], "run.cycles=3"]
    words += [":", "-n", "1", sys.executable, "-c", program.format(0), *RUN[:-1], "run.cycles=3"]
    done = launch(["mpirun", *words], cwd=place, timeout=100)
    assert done.returncode == 0 and "has left" not in done.stderr, done


def test_without_a_launcher_nobody_is_missing():
    assert not launcher.ranks_missing_here(os.getpid())


def test_a_launcher_below_the_batch_systems_own_process(tmp_path, monkeypatch):
    """Ranks of Open MPI's mpirun in a batch script are counted among its children, not among SLURM's."""
    look = {10: ("python", "S", "9"), 9: ("mpiexec", "S", "8"), 8: ("bash", "S", "7"), 7: ("slurmstepd", "S", "1")}
    look[1] = ("init", "S", "0")
    monkeypatch.setattr(launcher, "_stat", lambda pid: look[int(pid)])
    assert launcher._ancestor(10, launcher.STARTERS) == 9
    look[9] = ("another", "S", "8")
    assert launcher._ancestor(10, launcher.STARTERS) is None
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2")
    monkeypatch.setenv("SLURM_GTIDS", "0")
    assert not launcher.ranks_missing_here(10)
