"""Processors that a rank may use, and hosts with more ranks than processors."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from mpibayes.hpc.parallel.control_groups import quota
from mpibayes.text import whole_number

if TYPE_CHECKING:
    from mpibayes.hpc.parallel.comm import Communicator

SHARE = "MPIBAYES_CORES_PER_RANK"


def usable_cores() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def program_cores() -> int:
    """Return how many cores a program running alone may use."""
    n, limit = len(usable_cores()), quota()
    return n if limit is None else max(1, min(n, int(limit)))


def rank_cores(alone: bool) -> int:
    """Return how many cores this process may use by itself: all of them if the program is `alone`; its share if the
    program started its ranks itself; otherwise one."""
    return program_cores() if alone else whole_number(os.environ.get(SHARE, "")) or 1


def share_out(ranks: int) -> None:
    """Let the ranks that this process starts share its cores."""
    os.environ[SHARE] = str(max(1, program_cores() // ranks))


def crowded(comm: Communicator) -> str | None:
    """Return a warning if some host has more ranks than cores, for the worst host; None if there is none.

    Collective. Ranks that wait for each other take turns on a core, which costs far more than it gains.
    """
    if comm.size == 1:
        return None
    hosts: dict[str, list[set[int]]] = {}
    for host, cores in comm.collect((socket.gethostname(), usable_cores())):
        hosts.setdefault(host, []).append(cores)
    limit = quota()
    n_cores = {host: len(set.union(*sets)) for host, sets in hosts.items()}
    if limit is not None:
        n_cores = {host: min(n, max(1, int(limit))) for host, n in n_cores.items()}
    worst = max(hosts, key=lambda host: len(hosts[host]) / n_cores[host])
    n_ranks = len(hosts[worst])
    if n_ranks <= n_cores[worst]:
        return None
    cores = "one core" if n_cores[worst] == 1 else f"{n_cores[worst]} cores"
    return (
        f"{n_ranks} ranks on {worst}, which gives them {cores}: ranks take turns, and the run is slower than with "
        f"{n_cores[worst]}; start no more ranks than cores"
    )
