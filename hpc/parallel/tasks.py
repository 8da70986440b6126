"""Independent tasks: each on one rank, or on a core of its own if the program has all cores to itself."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from mpibayes.hpc.parallel.agreement import agree
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.cores import rank_cores

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T")
FORKED = "fork"  # children share the table and the samples with their parent without copying
LOOK_S = 0.5  # seconds between a child's checks of its parent, and between a waiting parent's checks for a stop


class Stopped(Exception):
    """The program was asked to stop before all tasks were done. Every rank raises it."""


def run_all(comm: Communicator, tasks: Sequence[Callable[[], T]], what: str, noun: str = "") -> list[T]:
    """Return the result of every task, in their order, on every rank. Collective.

    Task i runs on rank i mod `comm.size`. A program running alone (`Serial.alone`), or one that started its ranks
    itself, forks a child for each further core. Tasks hold no collective; their results travel pickled and do not
    depend on who runs them. An MpibayesError raised by a task is raised on all ranks. A rank that is asked to stop
    (`comm.asked_to_stop`) skips its remaining tasks, as it does if a task raises Stopped; then all ranks raise Stopped.
    what: the step in words ("find views"). noun: for a task ("search"), for `comm.report` as tasks begin.
    """
    local, n_cores = list(tasks[comm.rank :: comm.size]), rank_cores(comm.alone)
    at_once = comm.size * _processes(n_cores, len(local))

    def begin(done: int) -> None:
        if noun and comm.rank == 0:
            first, last = done * at_once + 1, min((done + 1) * at_once, len(tasks))
            which = f"{noun}s {first} to {last}" if last > first else f"{noun} {first}"
            comm.report(f"{which} of {len(tasks)}" if len(tasks) > 1 else noun)

    # callers announce long tasks beforehand; `meet` reports the ranks that are waited for at the end
    results = agree(comm, lambda: _on_cores(local, n_cores, comm.asked_to_stop, begin), what, loud=False)
    by_rank = comm.collect(results)
    if None in by_rank:
        raise Stopped
    return [by_rank[i % comm.size][i // comm.size] for i in range(len(tasks))]


def _processes(n_cores: int, n_tasks: int) -> int:
    return max(1, min(n_cores, n_tasks))


def _on_cores(
    tasks: Sequence[Callable[[], T]], n_cores: int, stops: Callable[[], bool], begin: Callable[[int], None]
) -> list[T] | None:
    """Return the results of tasks run by this process and up to n_cores - 1 children; None if stopped early. begin:
    called before each task of this process with the number of its tasks done."""
    n = _processes(n_cores, len(tasks))
    children: list[_Child] = []
    try:
        for i in range(1, n):
            children.append(_Child(tasks[i::n]))
        parts = [_in_turn(tasks[::n], stops, begin)]
        for child in children:
            parts.append(None if parts[-1] is None else child.results(stops))
    finally:
        for child in children:
            child.stop()
    return None if None in parts else [parts[i % n][i // n] for i in range(len(tasks))]


def _in_turn(
    tasks: Sequence[Callable[[], T]], stops: Callable[[], bool], begin: Callable[[int], None] = lambda done: None
) -> list[T] | None:
    """Return the results of tasks run by this process; None if it stops before the last one."""
    results: list[T] = []
    for task in tasks:
        if stops():
            return None
        begin(len(results))
        try:
            results.append(task())
        except Stopped:
            return None
    return results


class _Child:
    """A forked process that runs some tasks and sends their results once. It ends with this process, however that
    ends."""

    def __init__(self, tasks: Sequence[Callable[[], T]]):
        import multiprocessing  # slow to import

        context = multiprocessing.get_context(FORKED)
        self._tasks = tasks
        self._received, sent = context.Pipe(duplex=False)
        self._process = context.Process(target=self._run, args=(sent, os.getpid()), daemon=True)
        with contextlib.suppress(OSError):  # process limit reached: `results` finds the pipe closed
            self._process.start()
        sent.close()

    def _run(self, sent: Connection, parent: int) -> None:
        try:
            self._received.close()
            threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
            sent.send([task() for task in self._tasks])
        finally:
            os._exit(0)  # do not flush or close the parent's files a second time

    def results(self, stops: Callable[[], bool]) -> list[T] | None:
        """Return the child's results, or None if stopped early. If the child died or failed, run its tasks here to
        raise the error."""
        try:
            while not self._received.poll(LOOK_S):
                if stops():
                    return None
            return self._received.recv()
        except (EOFError, OSError):
            return _in_turn(self._tasks, stops)

    def stop(self) -> None:
        """End the child, finished or not."""
        self._received.close()
        if self._process.pid is not None:
            self._process.kill()
            self._process.join()


def _end_with(parent: int) -> None:
    """End this process once its parent is gone: a killed parent cannot end its children."""
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os._exit(1)
