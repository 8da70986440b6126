"""Shared parts of all tests: options, paths of the large tables, starting mpirun, and a guard for runs under mpirun.

The markers are pytest-mpi's: `mpirun -n N python -m pytest --with-mpi -m mpi`. The plugin by itself has three faults. A
test that fails on one rank while the other ranks wait for it hangs the run. Each rank prints its own summary, and rank
0 may print "passed" over a failure elsewhere. Tests without a marker run N times. The guard below fixes them:

* Every rank runs the same tests in the same order (checked after collection). At each test's teardown the ranks meet at
  a non-blocking barrier on a separate communicator and share their outcomes: a failure on one is an error on all.
* A rank that waits longer than MPI_TEST_GRACE seconds (60) for the other ranks prints its state and calls MPI_Abort. If
  all ranks hang, `faulthandler_timeout` with `faulthandler_exit_on_timeout` (pyproject.toml) ends the run with stacks.
* Rank 0 alone prints (all of them with MPI_TEST_ALL_RANKS=1), and tests without the `mpi` marker are not collected.
"""

from __future__ import annotations

import atexit
import functools
import gc
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

LAUNCHER_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PALS_SIZE", "MV2_COMM_WORLD_SIZE")
GRACE = float(os.environ.get("MPI_TEST_GRACE", "60"))

# For ranks in tests, which often outnumber cores: waiting ranks yield their core. MPICH's would spin; with its heavy
# yield they sleep briefly, and four ranks on two cores take a third of the processor time.
FOR_RANKS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",  # jobs side by side would all be bound to the first cores
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
    "OMP_NUM_THREADS": "1",
}

# `mpirun` is found beside the Python that runs the tests, with or without an activated environment, and works as root
# and with more ranks than cores, for any MPI.
os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", "")
for _name, _value in FOR_RANKS.items():
    os.environ.setdefault(_name, _value)
# Tests set their number of ranks: without a launcher one, this process, in which `main` is called within pytest.
os.environ.setdefault("MPIBAYES_RANKS", "1")

# Tests write, sync and remove tens of thousands of small files: they go to memory where there is room for them. Each
# session has a root of its own: ranks end together, and would remove each other's links.
MEMORY, ROOM = Path("/dev/shm"), 8 << 30


def _remove_unless_failed(root):
    if not any(path.is_dir() and not path.is_symlink() for path in Path(root).glob("*/*")):
        shutil.rmtree(root, ignore_errors=True)


if "PYTEST_DEBUG_TEMPROOT" not in os.environ:
    _roomy = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM
    os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.mkdtemp(prefix="t-", dir=MEMORY if _roomy else None)
    atexit.register(_remove_unless_failed, os.environ["PYTEST_DEBUG_TEMPROOT"])

comm = None  # a duplicate of COMM_WORLD on two and more ranks, or None
failures: list[str] = []  # this rank's failures, for the last message of an aborted run


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="run the tests marked `long`, which take minutes")


def pytest_configure(config):
    global comm
    launched = max(int(os.environ.get(name, "1")) for name in LAUNCHER_SIZES)
    if launched > 1:
        from mpi4py import MPI

        if MPI.COMM_WORLD.size != launched:
            pytest.exit(
                f"mpirun started {launched} processes, but MPI sees {MPI.COMM_WORLD.size}: mpi4py loaded another "
                "MPI than mpirun's. With an MPI module loaded, uninstall the `mpich` wheel",
                returncode=4,
            )
        if not (config.getoption("--with-mpi") or config.getoption("--only-mpi")):
            pytest.exit("under mpirun, give pytest --with-mpi", returncode=4)
        comm = MPI.COMM_WORLD.Dup()
    else:
        _fix_hypothesis()


def _fix_hypothesis():
    """Use the same examples in every run, and no deadlines, since other programs use the machine, too."""
    try:
        from hypothesis import settings
    except ImportError:
        return
    settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
    settings.load_profile("fixed")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session):
    manager = session.config.pluginmanager
    for plugin in manager.get_plugins():
        if type(plugin).__name__ == "MPIPlugin":
            # Drops pytest-mpi's closing section, mpi4py's whole configuration; the header says what matters.
            plugin._is_testing_mpi = False
    reporter = manager.getplugin("terminalreporter")
    if comm and comm.rank and reporter and not os.environ.get("MPI_TEST_ALL_RANKS"):
        reporter._tw._file = open(os.devnull, "w")  # noqa: SIM115 - for the rest of the run


def pytest_report_header():
    if comm:
        from mpi4py import MPI

        return f"MPI: {comm.size} ranks, {MPI.Get_library_version().split(chr(10))[0].strip()[:60]}"


# --- which tests run --------------------------------------------------------------------------------------------------


def pytest_make_parametrize_id(config, val, argname):
    """Never name a test by bytes: those of a compressed file contain the time of its creation, and each of the
    processes that share the tests collects them separately, with other names if a second has passed."""
    return argname if isinstance(val, bytes) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect without the collector of garbage, which would look through all tests and modules again and again."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


def pytest_unconfigure():
    """Look for garbage once at the end, rather than in each of pytest's five rounds."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector, name, obj):
    """Make no variants, on two and more ranks, of tests that run on one: most files have far more of those."""
    if comm and name.startswith("test") and callable(obj):
        marks = [*getattr(obj, "pytestmark", ()), *collector.iter_markers()]
        if not any(mark.name == "mpi" for mark in marks):
            return []


NO_DATA = "needs MPIBAYES_DATA=FOLDER, the folder of the large tables that CONTRIBUTING.md lists"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config, items):
    choose(config, items)
    yield  # let pytest apply -m first
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers > 1:
        items[:] = spread(items, workers)


def choose(config, items):
    size = comm.size if comm else 1
    mark_thorough(config, items, size)
    chosen, left_out = [], []
    for item in items:
        mark = item.get_closest_marker("mpi")
        late = item.get_closest_marker("long") and not config.getoption("--long")
        (chosen if (mark or size == 1) and not late else left_out).append(item)
        if mark:
            requested = mark.kwargs
            if not (
                requested.get("min_size", 1) <= size <= requested.get("max_size", size)
                and requested.get("size", size) == size
            ):
                item.add_marker(pytest.mark.skip(reason=f"not for {size} rank{'s' * (size > 1)}"))
        if item.get_closest_marker("data") and not os.environ.get("MPIBAYES_DATA"):
            item.add_marker(pytest.mark.skip(reason=NO_DATA))
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = chosen


# Folders of tests that take seconds each: they start programs, or chains.
SLOW = {
    "run", "query", "python", "faults", "crosscat", "regression", "exact", "laws", "links", "predict", "house", "slurm",
}  # fmt: skip


def spread(items, workers):
    """Order the tests so that processes that share them finish at about the same time.

    pytest-xdist (`--dist worksteal`) gives each process an equal run of the list; one that finishes takes the end of
    another's. So slow tests come first in each run, whole files for the sake of their fixtures, and quick ones last.
    """
    files, quick = {}, []
    for item in items:
        path = item.nodeid.partition("::")[0]
        (files.setdefault(path, []) if SLOW & set(path.split("/")[:-1]) else quick).append(item)
    shares, loads = [[] for _ in range(workers)], [0] * workers
    for part in sorted(files.values(), key=load, reverse=True):
        least = loads.index(min(loads))
        shares[least] += part
        loads[least] += load(part)
    for i, share in enumerate(shares):
        room = max(0, len(items) * (i + 1) // workers - len(items) * i // workers - len(share))
        share += quick[:room]
        del quick[:room]
    return [item for share in shares for item in share] + quick


def load(items):
    return sum(item.get_closest_marker("skip") is None for item in items)


def mark_thorough(config, items, size=1):
    """Mark the variants that a test's mark `quick` leaves out as `thorough`: they belong only to `make test-all`.

    quick("a", "b") keeps the variants of these names, quick(every=3) every third one, quick(ranks=2) or quick(ranks=(2,
    3)) those on so many ranks of the runs on more than one. A name without a variant is an error, so that a change of
    parameters cannot silently empty `make test`.
    """
    marks, result = {}, {}
    for item in items:
        mark = item.get_closest_marker("quick")
        ranks = mark.kwargs.get("ranks", size) if mark else size
        if size > 1 and size not in (ranks if isinstance(ranks, tuple) else (ranks,)):
            item.add_marker(pytest.mark.thorough)
        if mark and (mark.args or "every" in mark.kwargs):
            test, variant = item.nodeid.partition("[")[0], item.callspec.id
            marks[test], variants = mark, result.setdefault(test, [])
            if len(variants) % mark.kwargs["every"] if "every" in mark.kwargs else variant not in mark.args:
                item.add_marker(pytest.mark.thorough)
            variants.append(variant)
    if not any("::" in word for word in config.args):
        for test, mark in marks.items():
            if missing := set(mark.args) - set(result[test]):
                raise pytest.UsageError(f"{test}: no variant has the name {', '.join(sorted(missing))}")


def pytest_collection_finish(session):
    """Check that all ranks have collected the same tests; otherwise none runs any."""
    if comm is None:
        return
    names = hashlib.sha256("\n".join(item.nodeid for item in session.items).encode()).hexdigest()
    everyone = _meet("collection", (names, session.testsfailed))
    if len(set(everyone)) > 1:
        sizes = ", ".join(f"rank {rank}: {failed} errors" for rank, (_, failed) in enumerate(everyone))
        pytest.exit(
            f"the ranks did not collect the same tests ({sizes}); see them with MPI_TEST_ALL_RANKS=1", returncode=1
        )


# --- the guard --------------------------------------------------------------------------------------------------------


def _meet(where, mine):
    """Gather every rank's `mine`, in rank order. A rank left alone for GRACE seconds ends the run."""
    request, start, nap = comm.Ibarrier(), time.monotonic(), 0.0
    while not request.Test():
        if time.monotonic() - start > GRACE:
            known = "\n".join(failures) or "nothing failed here"
            sys.stdout.flush()
            words = (
                f"\n[rank {comm.rank}] {where}: other ranks are missing after {GRACE:g} s\n[rank {comm.rank}] {known}\n"
            )
            os.write(2, words.encode())
            comm.Abort(1)
        time.sleep(nap)
        nap = min(nap + 1e-4, 5e-3)
    return comm.allgather(mine)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if comm is None:
        return report
    mine = item.__dict__.setdefault("_mpi_failures", [])
    if report.failed:
        mine.append(f"[rank {comm.rank}] {item.nodeid}: {call.when} failed:\n{report.longreprtext}")
        failures.append(mine[-1])
    if call.when == "teardown":
        everyone = [text for texts in _meet(item.nodeid, mine) for text in texts]
        if everyone and not mine:
            report.outcome, report.longrepr = "failed", "\n".join(everyone)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session, exitstatus):
    """Let the ranks leave together, with one exit status."""
    if comm is None:
        return
    if any(everyone := _meet("end of the session", int(exitstatus))):
        session.exitstatus = max(everyone)


# --- fixtures ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Folder of the large tables; tests that use it are marked `data`, which skips them without it."""
    folder = Path(os.environ.get("MPIBAYES_DATA", ""))
    if not os.environ.get("MPIBAYES_DATA") or not folder.is_dir():
        pytest.skip(NO_DATA)
    return folder


def launch(command, timeout=120, cwd=None, env=None) -> subprocess.CompletedProcess:
    """Run a command in its own process group, killed as a whole at the limit with TimeoutExpired."""
    process = subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        cwd=cwd,
        env={**os.environ, **{name: str(value) for name, value in (env or {}).items()}},
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as expired:
        os.killpg(process.pid, signal.SIGKILL)
        expired.stdout, expired.stderr = process.communicate()
        raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def exit_code(done: subprocess.CompletedProcess) -> int:
    """Return mpirun's exit code, or the code with which a rank aborted: for ranks that end together MPICH's mpirun may
    report one that it killed itself (docs/mpi.md)."""
    aborted = re.search(r"Abort\((\d+)\)", done.stderr) if done.returncode == signal.SIGKILL else None
    return int(aborted[1]) if aborted else done.returncode


def is_running(chain: Path) -> bool:
    """True if the chain in a directory makes cycles: before, it may search for a start."""
    try:
        return json.loads((chain / "status.json").read_text())["state"] == "running"
    except FileNotFoundError:
        return False


@functools.cache
def is_open_mpi() -> bool:
    """True if the `mpirun` of these tests is Open MPI's."""
    return shutil.which("mpirun") is not None and "open-mpi" in launch(["mpirun", "--version"], timeout=30).stdout


@pytest.fixture(scope="session")
def mpirun():
    """Return a function that starts n ranks of this Python: `mpirun(n, "-c", PROGRAM, ...)`; keywords as in `launch`.
    The command, `mpirun(n, "-m", "mpibayes", "query", ...)`, goes to ranks that stay, unless it is the doctor's."""
    program = shutil.which("mpirun")
    if program is None:
        pytest.skip("there is no mpirun on this machine")

    def start(n, *words, timeout=120, cwd=None, env=None):
        if words[:2] == ("-m", "mpibayes") and words[2] != "doctor" and env is None:
            from tests.ranks import on_ranks  # this file is copied beside other suites, without ranks.py

            call = {"words": list(map(str, words[2:]))}
            return on_ranks(n, Path(cwd or "."), call, {**os.environ, **FOR_RANKS}, timeout)
        return launch([program, "-n", n, sys.executable, *words], timeout, cwd, env)

    return start


@pytest.fixture(scope="session", autouse=True)
def no_pictures():
    """Leave out the pictures of reports, as drawing takes most of a small report; yield the functions that draw."""
    if comm:
        yield
        return
    from mpibayes.hpc.report import drawing

    kept = drawing.drawn, drawing.png
    drawing.drawn = drawing.png = lambda *of, **named: drawing.Picture(b"not drawn")
    yield kept
    drawing.drawn, drawing.png = kept


@pytest.fixture(scope="session", autouse=True)
def brief_checks():
    """Let `mpibayes check` time as few cycles as it may, rather than seconds of them: tests read no times of its."""
    if comm:
        yield
        return
    limits = ("crosscat.cost.rehearsal.SAMPLE_S", "crosscat.cost.rehearsal.LATER_S")
    rooms = ("ibp", "regression", "svi", "svi.factorization", "svi.lda")
    with pytest.MonkeyPatch.context() as patch:
        for limit in (*limits, *(f"{room}.check.TIMED_S" for room in rooms)):
            patch.setattr(f"mpibayes.hpc.{limit}", 0.0)
        yield


@pytest.fixture
def figures(no_pictures, monkeypatch):
    """Make figures, without pictures of them."""
    monkeypatch.setattr("mpibayes.hpc.report.drawing.drawn", no_pictures[0])


@pytest.fixture
def pictures(figures, no_pictures, monkeypatch):
    """Draw pictures, for tests that look at them."""
    monkeypatch.setattr("mpibayes.hpc.report.drawing.png", no_pictures[1])


@pytest.fixture
def small_pictures(figures, no_pictures, monkeypatch):
    """Draw pictures at a third of the resolution and without a layout."""
    monkeypatch.setattr("mpibayes.hpc.report.drawing.DPI", 50)
    monkeypatch.setattr(
        "mpibayes.hpc.report.drawing.png", lambda figure: figure.set_layout_engine("none") or no_pictures[1](figure)
    )
