"""Checks of `mpibayes doctor` without MPI: the program, the launcher, the batch job and the directory."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import shutil
import tempfile
import time
from importlib import metadata
from pathlib import Path

import mpibayes
from mpibayes.hpc.doctor.doctor import DIRECTORY, OK, PROBLEM, SETUP, WARNING, Check, Finding
from mpibayes.hpc.parallel.launcher import launched, launcher_name, launcher_size
from mpibayes.hpc.run.clock import job_time_left
from mpibayes.text import duration

PREFIX = ".mpibayes-doctor-"
BLOCK = 4 << 20
SLOW_S = 2.0  # for a block of 4 MB
LITTLE_ROOM = 1 << 30


def checks(directory: Path) -> list[Check]:
    slow = "its file system does not answer; choose another directory"
    return [
        Check("program", 60.0, program),
        Check("kernels", 30.0, kernels),
        Check("hdf5", 30.0, filters),
        Check("extras", 30.0, extras),
        Check("launcher", 5.0, launcher),
        Check("job", 15.0, job),
        Check("directory", 60.0, lambda: written(directory), slow, DIRECTORY),
        Check("locks", 20.0, lambda: locks(directory), "locks hang here; a run does not need them", DIRECTORY),
    ]


def version(package: str) -> str | None:
    """Version of an installed package, without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def program() -> Finding:
    import h5py
    import numpy

    text = (
        f"mpibayes {mpibayes.__version__}, Python {platform.python_version()}, NumPy {numpy.__version__}, "
        f"h5py {h5py.__version__} (HDF5 {h5py.version.hdf5_version}), mpi4py {version('mpi4py') or 'missing'}"
    )
    if version("mpi4py") is None:
        return Finding("program", WARNING, text, "more than one process needs it: pip install mpi4py")
    return Finding("program", OK, text)


def kernels() -> Finding:
    from mpibayes.kernels.common.machine import ISA

    forced = " (MPIBAYES_ISA)" if os.environ.get("MPIBAYES_ISA") else ""
    return Finding("kernels", OK, f"{ISA}{forced} on {platform.machine()}; results do not depend on it")


def filters() -> Finding:
    from h5py import h5z

    missing = [n for n, i in (("gzip", h5z.FILTER_DEFLATE), ("fletcher32", h5z.FILTER_FLETCHER32)) if not _has(i)]
    if missing:
        advice = "labels and traces are written with them; install h5py's own wheel: pip install --force-reinstall h5py"
        return Finding("hdf5", PROBLEM, f"this HDF5 lacks {' and '.join(missing)}", advice, SETUP)
    plugin = version("hdf5plugin")
    with contextlib.suppress(Exception):
        import hdf5plugin  # noqa: F401 - registers its filters
    more = [name for name, number in (("zstd", 32015), ("blosc2", 32026)) if _has(number)]
    also = f", {', '.join(more)}" if more else " (hdf5plugin would add zstd and blosc2; nothing here needs them)"
    return Finding("hdf5", OK, f"filters gzip, fletcher32{also}" + (f", hdf5plugin {plugin}" if plugin else ""))


def _has(number: int) -> bool:
    from h5py import h5z

    return bool(h5z.filter_avail(number))


def extras() -> Finding:
    uses = {"pyarrow": "import and predict", "matplotlib": "pictures of report", "arviz": "reading trace.h5"}
    there = {name: version(name) for name in uses}
    text = ", ".join(f"{name} {there[name]}" if there[name] else f"no {name}" for name in uses)
    missing = [f"{name} ({use})" for name, use in uses.items() if not there[name]]
    if missing:
        return Finding("extras", WARNING, text, f"for {', '.join(missing)}: pip install 'mpibayes[report]'")
    return Finding("extras", OK, text)


def launcher() -> Finding:
    if not launched():
        return Finding("launcher", OK, "started alone, one process")
    n = launcher_size()
    return Finding("launcher", OK, f"started by {launcher_name()} as {n} process{'es' * (n != 1)}")


def job() -> Finding:
    number = os.environ.get("SLURM_JOB_ID")
    if not number:
        return Finding("job", OK, "not in a SLURM job")
    nodes = os.environ.get("SLURM_JOB_NODELIST") or os.environ.get("SLURM_NODELIST") or "unknown"
    text = f"SLURM job {number} on {nodes}, restarted {os.environ.get('SLURM_RESTART_COUNT', '0')} times"
    left = job_time_left()
    if left is None:
        return Finding("job", WARNING, f"{text}, end unknown", "give `mpibayes run` --max-time")
    ends = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() + left))
    return Finding("job", OK, f"{text}, ends {ends} (in {duration(left)})")


# --- the directory ----------------------------------------------------------------------------------------------------


def existing(directory: Path) -> Path:
    """The directory, or its nearest existing ancestor, where a run would make it."""
    directory = directory.absolute()
    return next(p for p in (directory, *directory.parents) if p.exists())


@contextlib.contextmanager
def scratch(directory: Path):
    """Yield a temporary folder in the directory. Raises OSError."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=existing(directory)))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def unusable(check: str, directory: Path, error: OSError) -> Finding:
    why = os.strerror(error.errno) if error.errno else str(error)
    return Finding(check, PROBLEM, f"{directory}: cannot be used: {why}", "choose another with -o", DIRECTORY)


def written(directory: Path) -> Finding:
    """Check the operations that checkpoints need: write, flush, rename over, flush the directory; also speed and free
    space."""
    place = existing(directory)
    if not place.is_dir():
        return Finding("directory", PROBLEM, f"{place}: is a file", "choose another with -o", DIRECTORY)
    try:
        with scratch(place) as folder:
            (folder / "file").write_bytes(b"old")
            started = time.monotonic()
            with open(folder / "file.tmp", "wb") as file:
                file.write(os.urandom(BLOCK))
                file.flush()
                os.fsync(file.fileno())
            took = time.monotonic() - started
            os.replace(folder / "file.tmp", folder / "file")
            if (folder / "file").stat().st_size != BLOCK:
                return Finding("directory", PROBLEM, f"{place}: a rename over a file does not show", "", DIRECTORY)
            from mpibayes.io.files import sync_directory

            sync_directory(folder)
        room = shutil.disk_usage(place).free
    except OSError as error:
        return unusable("directory", place, error)
    new = "" if place == directory.absolute() else " (nearest that exists)"
    text = (
        f"{place}{new} on {file_system(place)}: write, flush, rename over work; "
        f"4 MB in {took:.3g} s; {room / 2**30:.3g} GiB free"
    )
    if took > SLOW_S:
        return Finding(
            "directory",
            WARNING,
            text,
            "slow: checkpoint less often (run.checkpoint_minutes), or choose another directory",
        )
    if room < LITTLE_ROOM:
        return Finding("directory", WARNING, text, "little room; `mpibayes check` predicts what a run writes")
    return Finding("directory", OK, text)


def file_system(place: Path) -> str:
    """Type of the file system, as in /proc/mounts."""
    best = ("", "an unknown file system")
    with contextlib.suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            mount, kind = line.split()[1:3]
            mount = mount.replace("\\040", " ")
            if place.resolve().is_relative_to(mount) and len(mount) >= len(best[0]):
                best = (mount, kind)
    return best[1]


def locks(directory: Path) -> Finding:
    """Check locks: input is read without locks, and a run's LOCK needs exclusive creation, but other programs may use
    them."""
    import h5py

    works = {}
    try:
        with scratch(directory) as folder:
            with open(folder / "a", "wb") as file:
                works["flock"] = _tries(lambda: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB))
            works["HDF5 locking"] = _tries(lambda: h5py.File(folder / "b.h5", "w", locking=True).close())
            exclusive = not _tries(lambda: open(folder / "a", "xb").close())
    except OSError as error:
        return unusable("locks", existing(directory), error)
    if not exclusive:
        what = "a file that exists can be made again, so two runs could use one directory; choose another file system"
        return Finding("locks", PROBLEM, what, code=DIRECTORY)
    text = ", ".join(f"{name} works" for name, ok in works.items() if ok)
    lacking = [name for name, ok in works.items() if not ok]
    if lacking:
        advice = "a run does not need them; other programs that open its files may need HDF5_USE_FILE_LOCKING=FALSE"
        return Finding("locks", WARNING, ", ".join(filter(None, [text, f"no {', no '.join(lacking)}"])), advice)
    return Finding("locks", OK, text)


def _tries(step) -> bool:
    try:
        step()
    except (OSError, RuntimeError, ValueError):
        return False
    return True
