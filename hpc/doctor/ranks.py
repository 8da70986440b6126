"""Checks of `mpibayes doctor` on all ranks: MPI, processors and threads, the shared directory, and latency."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import socket
import time
from collections import Counter
from pathlib import Path

import numpy as np

import mpibayes
from mpibayes.errors import MpibayesError
from mpibayes.hpc.doctor.doctor import DIRECTORY, OK, PROBLEM, SETUP, WARNING, Check, Finding
from mpibayes.hpc.doctor.local import existing, scratch, unusable
from mpibayes.hpc.parallel import comm as mpi
from mpibayes.hpc.parallel.cores import quota, usable_cores
from mpibayes.hpc.parallel.launcher import launched, launcher_size
from mpibayes.text import counted

START_S = 60.0
SEEN_S = 20.0  # network file systems may show a new file to other nodes only after some seconds
SLOW_ALLREDUCE_S = 1e-3  # for small messages; on one host they take microseconds
SIZES = {"8 B": 8, "1 KB": 1024, "1 MB": 1 << 20}


def checks(directory: Path, seconds: float, patience: float) -> list[Check]:
    """Checks on all ranks, in one process, since they share the started MPI. patience: seconds that root may be
    late."""
    ranks = Ranks(directory, seconds)
    hint = "launcher and MPI library do not match, or a rank did not start: " + "; ".join(mpi.MATCHING)
    listed = [
        Check("mpi", START_S + patience, ranks.start, hint, vital=True),
        Check("cores", 30.0 + patience, ranks.cores),
    ]
    if launcher_size() > 1:
        listed += [
            Check("same", 30.0, ranks.same),
            Check("shared", SEEN_S + 30.0, ranks.shared, "a rank cannot reach the directory", DIRECTORY),
            Check("allreduce", seconds + 60.0, ranks.allreduce),
        ]
    return listed


class Ranks:
    """Checks that need a communicator; every rank takes part, and root's findings count."""

    def __init__(self, directory: Path, seconds: float):
        self.directory, self.seconds = directory, seconds
        self.comm: mpi.Communicator = mpi.serial()

    def start(self) -> Finding:
        if not launched():
            return self._alone()
        try:
            self.comm = mpi.world()
        except MpibayesError as error:
            return Finding("mpi", PROBLEM, error.message, "; ".join(error.problems), SETUP)
        if self.comm.size == 1:
            return self._alone()
        hosts = Counter(self.comm.hosts)
        where = ", ".join(f"{n} on {host}" for host, n in hosts.most_common(8))
        more = f" and {counted(len(hosts) - 8, 'more host')}" if len(hosts) > 8 else ""
        return Finding("mpi", OK, f"{mpi.library(mpi.load())}: {self.comm.size} ranks, {where}{more}")

    def _alone(self) -> Finding:
        try:
            name = mpi.library(mpi.load())
        except (ImportError, RuntimeError) as error:
            advice = "one process needs none; for more, load the cluster's MPI module, or pip install 'mpibayes[mpich]'"
            return Finding("mpi", WARNING, f"no MPI library ({' '.join(str(error).split())})", advice)
        return Finding("mpi", OK, f"{name}, one process; to examine more: mpirun -n N mpibayes doctor")

    def same(self) -> Finding:
        """Check that all ranks run the same program."""
        mine = f"mpibayes {mpibayes.__version__}, Python {platform.python_version()}, NumPy {np.__version__}"
        everyone = self.comm.collect(mine)
        odd = [rank for rank, text in enumerate(everyone) if text != everyone[0]]
        if odd:
            text = f"{mpi.names(self.comm, odd)} with {everyone[odd[0]]}, but root with {everyone[0]}"
            return Finding("same", PROBLEM, text, "use one environment on all nodes", SETUP)
        return Finding("same", OK, "all ranks have the same versions")

    def cores(self) -> Finding:
        """Compare ranks and their threads with the available cores, on each host."""
        given = {name: os.environ.get(name, "unset") for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        everyone = self.comm.collect((socket.gethostname(), usable_cores(), quota(), blas_threads()))
        by_host: dict[str, list] = {}
        for host, *rest in everyone:
            by_host.setdefault(host, []).append(rest)
        texts, crowded, threaded = [], [], []
        for host, ranks in by_host.items():
            cores = len(set().union(*(mine for mine, _, _ in ranks)))
            if ranks[0][1] is not None:
                cores = min(cores, max(1, round(ranks[0][1])))
            threads = max(n for _, _, n in ranks)
            texts.append(f"{host}: {counted(len(ranks), 'rank')} on {counted(cores, 'core')}")
            if len(ranks) > cores:
                crowded.append(host)
            elif len(ranks) > 1 and len(ranks) * threads > cores:
                threaded.append(host)
        threads = max(n for *_, n in everyone)
        text = ", ".join(texts[:4]) + (f" and {counted(len(texts) - 4, 'more host')}" if len(texts) > 4 else "")
        text += f"; BLAS threads {threads}, " + ", ".join(f"{name} {value}" for name, value in given.items())
        if crowded:
            advice = "start no more ranks than cores; if you must, with Open MPI set OMPI_MCA_mpi_yield_when_idle=1"
            return Finding("cores", WARNING, text, advice)
        if threaded:
            return Finding("cores", WARNING, text, "set OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1")
        return Finding("cores", OK, text)

    def shared(self) -> Finding:
        """Check that every rank can read a file written by root."""
        comm, word = self.comm, os.urandom(16)
        place = existing(self.directory)
        with contextlib.ExitStack() as stack:
            path, trouble = None, None
            if comm.rank == 0:
                try:
                    path = stack.enter_context(scratch(place)) / "word"
                    path.write_bytes(word)
                except OSError as error:
                    trouble = unusable("shared", place, error)
            path, word, trouble = comm.share((path, word, trouble))
            if trouble:
                return trouble
            took = seen_after(path, word)
            everyone = comm.collect(took)
        blind = [rank for rank, seconds in enumerate(everyone) if seconds is None]
        if blind:
            text = f"{place}: {mpi.names(comm, blind)} did not see what root wrote within {SEEN_S:.0f} s"
            return Finding("shared", PROBLEM, text, "choose a directory on a file system of all nodes", DIRECTORY)
        return Finding("shared", OK, f"all ranks see what root wrote, after at most {max(everyone):.2g} s")

    def allreduce(self) -> Finding:
        """Time allreduce, which every cycle waits for."""
        medians, texts = [], []
        for name, size in SIZES.items():
            times = self._time(np.zeros(size // 8, np.int64), self.seconds / len(SIZES))
            median, high = np.percentile(times, [50, 99])
            medians.append(median)
            texts.append(f"{name} {span(median)} (99 %: {span(high)})")
        text = ", ".join(texts)
        if max(medians[:2]) > SLOW_ALLREDUCE_S:
            advice = (
                "over 1 ms suggests more ranks than cores: start fewer ranks, and with Open MPI set "
                "OMPI_MCA_mpi_yield_when_idle=1"
            )
            return Finding("allreduce", WARNING, text, advice)
        return Finding("allreduce", OK, text)

    def _time(self, array: np.ndarray, seconds: float) -> list[float]:
        times: list[float] = []
        end = time.perf_counter() + seconds
        self.comm.sum_everywhere(array)
        while self.comm.share(not times or time.perf_counter() < end):
            for _ in range(10):
                started = time.perf_counter()
                self.comm.sum_everywhere(array)
                times.append(time.perf_counter() - started)
        return times


def span(seconds: float) -> str:
    """Format a short time: 4.5 µs, 1.2 ms."""
    return f"{seconds * 1e6:.3g} µs" if seconds < 1e-3 else f"{seconds * 1e3:.3g} ms"


def seen_after(path: Path, word: bytes) -> float | None:
    """Seconds until the file contains the word here; None if it does not in time."""
    started = time.monotonic()
    while time.monotonic() - started < SEEN_S:
        with contextlib.suppress(OSError):
            if path.read_bytes() == word:
                return time.monotonic() - started
        time.sleep(0.05)
    return None


def blas_threads() -> int:
    """Number of threads of NumPy's OpenBLAS; 1 if unknown."""
    with contextlib.suppress(OSError):
        paths = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "openblas" in line}
        for path in sorted(paths):
            for prefix in ("scipy_", ""):
                for suffix in ("64_", ""):
                    with contextlib.suppress(OSError, AttributeError):
                        return int(getattr(ctypes.CDLL(path), f"{prefix}openblas_get_num_threads{suffix}")())
    return 1
