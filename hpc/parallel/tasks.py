"""Independent tasks: each on one rank, or on a core of its own where the program runs in one process."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import TypeVar

from mpibayes.hpc.parallel.comm import Communicator, agree
from mpibayes.hpc.parallel.cores import program_cores

T = TypeVar("T")
FORKED = "fork"  # children share the table and the samples with their parent, and copy nothing


def run_all(comm: Communicator, tasks: Sequence[Callable[[], T]], what: str) -> list[T]:
    """Return the result of every task, in their order, on every rank. Collective.

    Task i runs on rank i mod `comm.size`. A program that runs alone (`Serial.alone`) forks a child for each further
    core. Tasks hold no collective, and their results, which travel pickled, do not depend on who runs them. An
    MpibayesError raised by one is raised on all ranks. what: the step in words ("find views").
    """
    local, n_cores = list(tasks[comm.rank :: comm.size]), program_cores() if comm.alone else 1
    # whoever has tasks that take long says so before; who is waited for at the end, `meet` says
    results = agree(comm, lambda: _on_cores(local, n_cores), what, loud=False)
    by_rank = comm.collect(results)
    return [by_rank[i % comm.size][i // comm.size] for i in range(len(tasks))]


def _on_cores(tasks: Sequence[Callable[[], T]], n_cores: int) -> list[T]:
    """Return the results of tasks run by this process and up to n_cores - 1 children."""
    n = max(1, min(n_cores, len(tasks)))
    children = [_Child(tasks[i::n]) for i in range(1, n)]
    try:
        parts = [[task() for task in tasks[::n]], *(child.results() for child in children)]
    finally:
        for child in children:
            child.stop()
    return [parts[i % n][i // n] for i in range(len(tasks))]


class _Child:
    """A forked process that runs some tasks and sends their results once."""

    def __init__(self, tasks: Sequence[Callable[[], T]]):
        context = multiprocessing.get_context(FORKED)
        self._tasks = tasks
        self._received, sent = context.Pipe(duplex=False)
        self._process = context.Process(target=self._run, args=(sent,), daemon=True)
        self._process.start()
        sent.close()

    def _run(self, sent: Connection) -> None:
        self._received.close()
        try:
            sent.send([task() for task in self._tasks])
        finally:
            os._exit(0)  # nothing of the parent's is to be flushed or closed twice

    def results(self) -> list[T]:
        """Return the child's results; where it died or failed, this process runs its tasks and meets the error."""
        try:
            return self._received.recv()
        except (EOFError, OSError):
            return [task() for task in self._tasks]

    def stop(self) -> None:
        """End the child, finished or not."""
        self._received.close()
        self._process.kill()
        self._process.join()
