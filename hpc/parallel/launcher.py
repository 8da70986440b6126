"""Environment variables that a launcher (mpirun, srun) sets for its processes; needs no MPI."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from mpibayes.text import whole_number

# Number of processes, and rank of this one. The first variable that is set counts: mpirun's own variables come before
# SLURM's, since srun may have started only mpirun's helpers.
SIZE_VARIABLES = (
    "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "MPI_LOCALNRANKS",
)  # fmt: skip
RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PALS_RANKID", "SLURM_PROCID")
# The launcher's process on this host, which starts the ranks there, and the number of ranks it has to start. Linux
# shows 15 characters of a name. SLURM's own process may have another launcher below it: it counts only if srun is the
# launcher.
STARTERS = ("hydra_pmi_proxy", "orted", "prted", "orterun", "prterun")
STARTERS += tuple(name + made for name in ("mpirun", "mpiexec") for made in ("", ".openmpi"))
LOCAL_SIZE_VARIABLES = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE")
MARKS = (*SIZE_VARIABLES, "PMI_RANK", "PMIX_RANK")
# Signs of a batch job (SLURM, PBS, LSF, Grid Engine, Flux, OAR), and commands of hosts that submit jobs.
JOB_VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "SGE_O_HOST", "FLUX_JOB_ID", "OAR_JOB_ID")
SUBMITTERS = ("sbatch", "qsub", "bsub")


def launched() -> bool:
    """True if a launcher started this process."""
    return any(name in os.environ for name in MARKS)


def launcher_rank() -> int:
    """Rank of this process according to the launcher; 0 without a launcher."""
    return _first(RANK_VARIABLES, 0)


def launcher_size() -> int:
    """Number of processes that the launcher reports; 1 without a launcher."""
    return _first(SIZE_VARIABLES, 1)


def launcher_name() -> str:
    """Name of the launcher, for messages."""
    if "OMPI_COMM_WORLD_SIZE" in os.environ:
        return "Open MPI's mpirun"
    step = f"srun (step {os.environ.get('SLURM_JOB_ID', '?')}.{os.environ.get('SLURM_STEP_ID', '?')})"
    if "PMI_SIZE" in os.environ:
        # Under srun --mpi=pmi2 PMI and SLURM agree on the number of ranks; under mpirun SLURM counts only helpers.
        same = os.environ.get("SLURM_STEP_NUM_TASKS") == os.environ["PMI_SIZE"]
        return f"{step} with PMI" if same else "mpirun of the MPICH family"
    if "PMIX_RANK" in os.environ:
        return f"{step} with PMIx" if "SLURM_STEP_NUM_TASKS" in os.environ else "a launcher with PMIx"
    if "SLURM_STEP_NUM_TASKS" in os.environ:
        return f"{step} without PMI"
    return "a launcher" if launched() else "no launcher"


def mpirun() -> str | None:
    """Path of the mpirun of this Python's environment, or of the machine's; None if there is none."""
    beside = Path(sys.executable).parent
    return shutil.which("mpirun", path=os.pathsep.join([str(beside), os.environ.get("PATH", "")]))


def batch_system() -> bool:
    """True if a batch system allocates the cores here: inside its jobs and on hosts that submit them."""
    return any(name in os.environ for name in JOB_VARIABLES) or any(map(shutil.which, SUBMITTERS))


def ranks_missing_here(pid: int) -> bool:
    """True if the launcher has fewer live children on this host than ranks: one has ended or not yet started.

    pid: a rank on this host. False if that is unknown: other launchers, or no /proc.
    """
    requested, starters = _first(LOCAL_SIZE_VARIABLES, 0), STARTERS
    if requested == 0 and "SLURM_GTIDS" in os.environ:  # the numbers of the step's ranks on this host
        requested, starters = len(os.environ["SLURM_GTIDS"].split(",")), ("slurmstepd",)
    try:
        starter = _ancestor(pid, starters)
        if starter is None:
            return False
        lists = [(task / "children").read_text() for task in Path(f"/proc/{starter}/task").iterdir()]
        alive = [child for child in " ".join(lists).split() if _stat(child)[1] != "Z"]
    except (OSError, ValueError, IndexError):
        return False
    return len(alive) < requested


def _ancestor(pid: int, names: tuple[str, ...]) -> int | None:
    """Nearest ancestor with one of these names; ranks may have been started through a shell, `time` or `numactl`."""
    while pid > 1:
        pid = int(_stat(pid)[2])
        if _stat(pid)[0] in names:
            return pid
    return None


def _stat(pid: int | str) -> tuple[str, str, str]:
    """Name (at most 15 characters), state and parent of a process."""
    name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
    return name, *rest.split()[:2]


def _first(names: tuple[str, ...], default: int) -> int:
    numbers = (whole_number(os.environ.get(name, "")) for name in names)
    return next((number for number in numbers if number is not None), default)
