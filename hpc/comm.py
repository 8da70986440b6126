"""The only door to MPI: a communicator of one process or of many, with the same few operations.

mpi4py is imported when a run starts under a launcher, never before, so that every other command works on a login
node without MPI. Arrays travel as buffers; small Python objects only at start-up and at checkpoints.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from mpibayes.hpc.errors import ConfigError, MpibayesError

T = TypeVar("T")

# Variables by which launchers tell a process how many of it there are.
LAUNCHER_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "MPI_LOCALNRANKS")
LAUNCHER_MARKS = (*LAUNCHER_SIZES, "PMI_RANK", "PMIX_RANK")


class Serial:
    """One process. Every operation is the identity."""

    rank = 0
    size = 1

    def share(self, value: T) -> T:
        """Root's picklable `value` on every rank."""
        return value

    def collect(self, value: T) -> list[T]:
        """Every rank's picklable `value`, in rank order, on every rank."""
        return [value]

    def broadcast(self, array: np.ndarray) -> None:
        """Overwrite `array` on every rank with root's."""

    def sum_to_root(self, array: np.ndarray) -> None:
        """Overwrite root's integer `array` with the sum over ranks (other ranks keep theirs)."""

    def sum_everywhere(self, array: np.ndarray) -> None:
        """Overwrite the integer `array` on every rank with the sum over ranks."""

    def gather_to_root(self, array: np.ndarray, lengths: Sequence[int]) -> np.ndarray | None:
        """Root receives the ranks' arrays, `lengths` long, concatenated along the first axis in rank order."""
        return array

    def barrier(self) -> None:
        """Wait for everyone, politely: waiting ranks sleep between looks, since MPI's own barriers spin."""

    def wait_for_all(self, seconds: float) -> bool:
        """Whether every rank arrives here within `seconds`."""
        return True

    def abort(self, code: int) -> None:
        """End the whole job now. For internal errors alone; expected ones are agreed on (see `agree`)."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Mpi:
    """All the ranks of an mpi4py communicator, which is duplicated so that nobody else's messages meet ours."""

    def __init__(self, mpi, communicator):
        self._mpi = mpi
        self._comm = communicator.Dup()
        self.rank: int = self._comm.rank
        self.size: int = self._comm.size

    def share(self, value):
        return self._comm.bcast(value, root=0)

    def collect(self, value):
        return self._comm.allgather(value)

    def broadcast(self, array):
        self._comm.Bcast(array, root=0)

    def sum_to_root(self, array):
        self._check_exact(array)
        if self.rank == 0:
            self._comm.Reduce(self._mpi.IN_PLACE, array, op=self._mpi.SUM, root=0)
        else:
            self._comm.Reduce(array, None, op=self._mpi.SUM, root=0)

    def sum_everywhere(self, array):
        self._check_exact(array)
        self._comm.Allreduce(self._mpi.IN_PLACE, array, op=self._mpi.SUM)

    @staticmethod
    def _check_exact(array):
        if array.dtype.kind not in "iu":  # the order of an MPI sum is not ours, so only exact sums may use it
            raise TypeError(f"sums over ranks are for integers, got {array.dtype}")

    def gather_to_root(self, array, lengths):
        array = np.ascontiguousarray(array)
        if self.rank != 0:
            self._comm.Gatherv(array, None, root=0)
            return None
        whole = np.empty((sum(lengths), *array.shape[1:]), array.dtype)
        width = int(np.prod(array.shape[1:], dtype=np.int64))
        self._comm.Gatherv(array, [whole, [n * width for n in lengths]], root=0)
        return whole

    def barrier(self):
        self.wait_for_all(float("inf"))

    def wait_for_all(self, seconds):
        request, pause, start = self._comm.Ibarrier(), 1e-5, time.monotonic()
        while not request.Test():
            if time.monotonic() - start > seconds:
                return False
            time.sleep(pause)
            pause = min(2 * pause, 2e-3)
        return True

    def abort(self, code):
        sys.stdout.flush()
        sys.stderr.flush()
        self._comm.Abort(code)


Communicator = Serial | Mpi


def serial() -> Serial:
    """A communicator of this process alone."""
    return Serial()


def world() -> Communicator:
    """All processes that a launcher started together, or this one alone.

    Raises ConfigError when the launcher says that there are N processes and MPI sees another number: N lonely
    copies of one chain would be the worst failure, since each of them looks fine.
    """
    if not any(name in os.environ for name in LAUNCHER_MARKS):
        return Serial()
    claimed = next((int(os.environ[name]) for name in LAUNCHER_SIZES if os.environ.get(name, "").isdigit()), 1)
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        if claimed == 1:
            return Serial()
        raise ConfigError(
            f"started as {claimed} processes, but no MPI library could be loaded ({error})",
            ["load the cluster's MPI module, or install the optional extra: pip install 'mpibayes[mpich]'"],
        ) from None
    if MPI.COMM_WORLD.size != claimed and claimed > 1:
        raise ConfigError(
            f"the launcher started {claimed} processes, but MPI sees {MPI.COMM_WORLD.size}: "
            "launcher and MPI library do not match",
            [
                f"MPI library: {MPI.Get_library_version().splitlines()[0].strip()}",
                "start with that library's own mpirun, or with srun --mpi=pmix or --mpi=pmi2 to suit it",
            ],
        )
    return Mpi(MPI, MPI.COMM_WORLD) if MPI.COMM_WORLD.size > 1 else Serial()


def agree(comm: Communicator, step: Callable[[], T]) -> T:
    """This rank's `step()`, unless it failed somewhere: then every rank raises the same MpibayesError.

    Collective. For steps that may fail on one rank alone (reading a slice, writing a file) and hold no collective.
    """
    value, error = None, None
    try:
        value = step()
    except MpibayesError as caught:
        error = caught
    except (OSError, MemoryError) as caught:
        error = MpibayesError(f"{type(caught).__name__}: {caught}")
    failures = [(rank, e) for rank, e in enumerate(comm.collect(error)) if e is not None]
    if failures:
        rank, first = failures[0]
        if comm.size > 1 and rank > 0:
            first = type(first)(f"rank {rank}: {first.message}", first.problems)
        raise first
    return value


def on_root(comm: Communicator, step: Callable[[], T], share: bool = True) -> T | None:
    """Root's `step()`, on every rank (`share`) or on root alone; if it fails, every rank raises the same error."""
    value = agree(comm, step if comm.rank == 0 else lambda: None)
    return comm.share(value) if share else value


def broadcast_arrays(comm: Communicator, arrays: dict[str, np.ndarray] | None) -> dict[str, np.ndarray]:
    """Root's dictionary of arrays on every rank, in two messages: a small header and one block of bytes."""
    if comm.size == 1:
        return arrays
    header: Any = None
    if comm.rank == 0:
        arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
        header = [(name, array.shape, array.dtype.str) for name, array in arrays.items()]
    header = comm.share(header)
    sizes = [
        (int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize + 63) // 64 * 64 for _, shape, dtype in header
    ]
    block = np.empty(sum(sizes), np.uint8)
    views, start = {}, 0
    for (name, shape, dtype), size in zip(header, sizes):
        nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        views[name] = block[start : start + nbytes].view(dtype).reshape(shape)
        start += size
    if comm.rank == 0:
        for name, array in arrays.items():
            views[name][...] = array
    comm.broadcast(block)
    return views
