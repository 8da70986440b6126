"""The only door to MPI: a communicator of one process or of many, with the same few operations.

mpi4py is imported when a run starts under a launcher, never before, so that every other command works on a login
node without MPI. Arrays travel as buffers; small Python objects only at start-up and at checkpoints.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
import warnings
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.parallel.launcher import launched, launcher_name, launcher_rank, launcher_size
from mpibayes.hpc.parallel.waiting import announce, watched

T = TypeVar("T")

# Advice where launcher and MPI library do not match.
MATCHING = (
    "start with that library's own mpirun, or with srun --mpi=pmix (Open MPI) or srun --mpi=pmi2 (MPICH)",
    "with the cluster's own MPI, do without the mpich wheel: pip uninstall mpich",
)

TOP_BIT = np.uint64(1 << 63)


def _never() -> bool:
    """Default for `asked_to_stop`: no stop is ever requested."""
    return False


def _unheard(words: str) -> None:
    """Default for `report`: nobody asks what a rank is doing."""


class Serial:
    """A single process. Every operation is the identity. alone: True if the program has the process, and its other
    cores, to itself: no launcher started it and no other program called it. asked_to_stop(): True once this process
    should stop; set by whoever receives such requests. report(words): called on rank 0 of a group in each part of a
    long step; set by whoever shows progress. number: of this rank in its job, if the job has several ranks.
    numbers: of all ranks here. one_of_many: True if the job has more than one rank."""

    rank = 0
    size = 1

    def __init__(self, alone: bool = False, asked_to_stop: Callable[[], bool] = _never, number: int | None = None):
        self.hosts = [socket.gethostname()]
        self.numbers = [number or 0]
        self.one_of_many = number is not None
        self.alone, self.asked_to_stop = alone, asked_to_stop
        self.report: Callable[[str], None] = _unheard

    def share(self, value: T, root: int = 0) -> T:
        """Return root's picklable `value` on every rank."""
        return value

    def collect(self, value: T) -> list[T]:
        """Return the picklable `value` of every rank, in rank order, on every rank."""
        return [value]

    def broadcast(self, array: np.ndarray, root: int = 0) -> None:
        """Overwrite `array` on every rank with root's."""

    def sum_everywhere(self, array: np.ndarray) -> None:
        """Overwrite the integer `array` on every rank with the sum over ranks."""

    def least_everywhere(self, array: np.ndarray) -> None:
        """Overwrite the uint64 `array` on every rank with the minimum over ranks."""

    def send(self, array: np.ndarray, to: int) -> Callable[[], Any]:
        """Send an array to rank `to`, which calls `receive`. The array may change only after the returned function is
        called."""
        raise NotImplementedError("there is one process")

    def receive(self, array: np.ndarray, source: int) -> np.ndarray:
        """Overwrite `array` with the array sent by rank `source`, and return it."""
        raise NotImplementedError("there is one process")

    def share_rows(self, array: np.ndarray, starts: np.ndarray) -> None:
        """Complete `array` on every rank: rank r contributes rows starts[r] to starts[r + 1] - 1."""

    def deal(self, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Send parts[r], uint8 (n,), to rank r; return what each rank has sent to this one, in rank order."""
        return list(parts)

    def exchange(self, array: np.ndarray, everyones: np.ndarray) -> None:
        """Overwrite everyones[r] on every rank with the `array` of rank r, of the same size on all ranks."""
        everyones[0] = array

    def gather_to_root(self, array: np.ndarray, lengths: Sequence[int], root: int = 0) -> np.ndarray | None:
        """Concatenate the ranks' arrays on root along the first axis, in rank order; lengths: of each rank's array."""
        return array

    def barrier(self) -> None:
        """Wait for all ranks, sleeping between checks, since MPI's own barriers spin."""

    def wait_for_all(self, seconds: float) -> bool:
        """Wait for all ranks; return True if every rank arrives within `seconds`."""
        return True

    def meet(self, what: str, meanwhile: Callable[[], Any] = _never) -> None:
        """Polite barrier after a step that may take long; root names the ranks it waits for "to `what`" if the wait is
        long. meanwhile: called repeatedly until all ranks are here."""

    def split(self, groups: Sequence[int]) -> Communicator:
        """Communicator of the ranks in this rank's group; groups: group number of every rank. Collective."""
        return self

    def tell(self, words: str, to: int) -> Callable[[], Any]:
        """Send words to another rank, which may `hear` them at any time. Call the returned function before the program
        ends."""
        raise NotImplementedError("there is one process")

    def hear(self, patiently: bool = False) -> str | None:
        """Return words sent by another rank, or None if there are none; `patiently` waits for them."""
        return None

    def abort(self, code: int) -> None:
        """End the whole job now. For internal errors only; expected errors are agreed on (`agreement.agree`)."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Mpi:
    """All ranks of an mpi4py communicator, duplicated so that its messages never mix with those of other code."""

    HERE = 1  # tag of the empty message by which a rank reports to root in `meet`
    PART = 2  # tag of arrays sent from rank to rank
    WORDS = 3  # tag of words that may be heard at any time
    alone, one_of_many = False, True

    def __init__(self, mpi, communicator, numbers: Sequence[int] | None = None):
        self._mpi = mpi
        self._comm = communicator.Dup()
        self.rank: int = self._comm.rank
        self.size: int = self._comm.size
        self.numbers = list(range(self.size) if numbers is None else numbers)
        self.asked_to_stop = _never
        self.report: Callable[[str], None] = _unheard
        self.hosts: list[str] = self._comm.allgather(socket.gethostname())

    def share(self, value, root=0):
        return self._comm.bcast(value, root=root)

    def collect(self, value):
        return self._comm.allgather(value)

    def broadcast(self, array, root=0):
        self._comm.Bcast(array, root=root)

    def sum_everywhere(self, array):
        self._check_exact(array)
        self._comm.Allreduce(self._mpi.IN_PLACE, array, op=self._mpi.SUM)

    def least_everywhere(self, array):
        # Open MPI 4.1 and MPICH 4.0 compare unsigned integers as signed, so map them to signed integers in the same
        # order.
        signed = (array ^ TOP_BIT).view(np.int64)
        self._comm.Allreduce(self._mpi.IN_PLACE, signed, op=self._mpi.MIN)
        np.bitwise_xor(signed.view(np.uint64), TOP_BIT, out=array)

    def send(self, array, to):
        return self._comm.Isend(np.ascontiguousarray(array), dest=to, tag=self.PART).Wait

    def receive(self, array, source):
        self._comm.Recv(array, source=source, tag=self.PART)
        return array

    @staticmethod
    def _check_exact(array):
        if array.dtype.kind not in "iu":  # MPI chooses the order of summation, so only exact sums are allowed
            raise TypeError(f"sums over ranks are for integers, got {array.dtype}")

    def share_rows(self, array, starts):
        if array.size:
            width = array.size // len(array)
            counts, places = np.diff(starts) * width, starts[:-1] * width
            self._comm.Allgatherv(self._mpi.IN_PLACE, [array, (counts.tolist(), places.tolist())])

    def deal(self, parts):
        sent = np.array([len(part) for part in parts], np.int64)
        lengths = np.empty_like(sent)
        self._comm.Alltoall(sent, lengths)
        whole = np.empty(int(lengths.sum()), np.uint8)
        self._comm.Alltoallv([np.concatenate(parts), sent.tolist()], [whole, lengths.tolist()])
        return np.split(whole, lengths.cumsum()[:-1])

    def exchange(self, array, everyones):
        self._comm.Allgather(array, everyones)

    def gather_to_root(self, array, lengths, root=0):
        array = np.ascontiguousarray(array)
        if self.rank != root:
            self._comm.Gatherv(array, None, root=root)
            return None
        whole = np.empty((sum(lengths), *array.shape[1:]), array.dtype)
        width = int(np.prod(array.shape[1:], dtype=np.int64))
        self._comm.Gatherv(array, [whole, [n * width for n in lengths]], root=root)
        return whole

    def barrier(self):
        self.wait_for_all(float("inf"))

    def wait_for_all(self, seconds):
        return _politely(self._comm.Ibarrier().Test, seconds)

    def meet(self, what, meanwhile=_never):
        nothing = [None, 0, self._mpi.BYTE]
        if self.rank != 0:
            self._comm.Send(nothing, dest=0, tag=self.HERE)
        else:
            missing = {r: self._comm.Irecv(nothing, source=r, tag=self.HERE) for r in range(1, self.size)}

            def all_here():
                meanwhile()
                for rank in [rank for rank, request in missing.items() if request.Test()]:
                    del missing[rank]
                return not missing

            with announce(lambda: f"{names(self, list(missing))} to {what}"):
                _politely(all_here)
        arrived = self._comm.Ibarrier()

        def over():
            meanwhile()
            return arrived.Test()

        _politely(over)

    def split(self, groups):
        mine = [self.numbers[rank] for rank, group in enumerate(groups) if group == groups[self.rank]]
        part = self._comm.Split(groups[self.rank], self.rank)
        try:
            return Mpi(self._mpi, part, mine) if len(mine) > 1 else Serial(number=mine[0])
        finally:
            part.Free()

    def tell(self, words, to):
        return self._comm.isend(words, dest=to, tag=self.WORDS).wait

    def hear(self, patiently=False):
        anyone = self._mpi.ANY_SOURCE
        if patiently or self._comm.Iprobe(source=anyone, tag=self.WORDS):
            return self._comm.recv(source=anyone, tag=self.WORDS)
        return None

    def abort(self, code):
        sys.stdout.flush()
        sys.stderr.flush()
        self._comm.Abort(code)


Communicator = Serial | Mpi


def _politely(done: Callable[[], bool], seconds: float = float("inf")) -> bool:
    """Wait for `done()` with short sleeps; return False if it takes longer than `seconds`."""
    pause, start = 1e-5, time.monotonic()
    while not done():
        if time.monotonic() - start > seconds:
            return False
        time.sleep(pause)
        pause = min(2 * pause, 2e-3)
    return True


def names(comm: Communicator, ranks: Collection[int]) -> str:
    """Name ranks and their hosts in a message: "rank 3 (node7)", "ranks 3 (node7), 4 (node7) and 12 more"."""
    shown = ", ".join(f"{comm.numbers[rank]} ({comm.hosts[rank]})" for rank in list(ranks)[:4])
    more = f" and {len(ranks) - 4} more" if len(ranks) > 4 else ""
    return f"rank{'s' * (len(ranks) != 1)} {shown}{more}"


def serial(asked_to_stop: Callable[[], bool] = _never) -> Serial:
    """Return a communicator of this process alone."""
    return Serial(asked_to_stop=asked_to_stop)


START_LIMIT_S = 600.0  # for MPI to start: a hang must end; thousands of ranks may take minutes


def load():
    """Start mpi4py's MPI and return it; raise ImportError or RuntimeError if it is not available.

    MPI waits here until every process of the job has started, so a line reports a long wait.
    """
    if "mpi4py.MPI" in sys.modules:
        return sys.modules["mpi4py.MPI"]
    advice = "some rank did not start: look for messages of it or its node; `mpibayes doctor` shows more"
    with watched("all ranks to start MPI", START_LIMIT_S, advice, launcher_rank() == 0), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `world` reports a mismatch of launcher and library itself
        from mpi4py import MPI
    return MPI


def world() -> Communicator:
    """Return all processes started by a launcher, or this one alone.

    Raises ConfigError if the launcher's number of processes differs from MPI's: N unconnected copies of one chain would
    be the worst failure, since each of them looks fine.
    """
    if not launched():
        return Serial(alone=True)
    claimed = launcher_size()
    try:
        mpi = load()
    except (ImportError, RuntimeError) as error:
        if claimed == 1:
            return Serial()
        raise ConfigError(
            f"started as {claimed} processes, but no MPI library could be loaded on {socket.gethostname()} ({error})",
            ["load the cluster's MPI module, or install the optional extra: pip install 'mpibayes[mpich]'"],
        ) from None
    if mpi.COMM_WORLD.size != claimed and claimed > 1:
        raise ConfigError(
            f"{launcher_name()} started {claimed} processes, but MPI sees {mpi.COMM_WORLD.size}: "
            f"launcher and MPI library do not match, so each would be a run of its own (host {socket.gethostname()})",
            [f"MPI library: {library(mpi)}", *MATCHING],
        )
    return Mpi(mpi, mpi.COMM_WORLD) if mpi.COMM_WORLD.size > 1 else Serial()


def library(mpi) -> str:
    """Name and version of the MPI library."""
    text = mpi.Get_library_version().splitlines()[0].strip(" \0")
    return " ".join(text.split(",")[0].replace("Version:", "").split())


def end_job(code: int) -> int:
    """End the whole job where a process fails before meeting the other ranks, which may wait for it while MPI starts.

    Returns `code` if there are no other ranks.
    """
    if launched() and launcher_size() > 1:
        with contextlib.suppress(ImportError, RuntimeError):
            mpi = load()
            if mpi.COMM_WORLD.size > 1:
                mpi.COMM_WORLD.Abort(code)
    return code
