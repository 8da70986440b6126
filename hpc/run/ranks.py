"""The number of ranks that a run starts itself, if no launcher has started any.

Bits do not depend on the number of ranks, so it may be chosen for speed. As the user need not have asked for ranks,
nothing that worked in one process may fail: ranks are started only if they are known to find each other and to end at a
checkpoint on Ctrl-C, if their work takes longer than their start, and if there is memory.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mpibayes.errors import ConfigError
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.data.sparse import AnyData
from mpibayes.hpc.parallel.control_groups import free_memory
from mpibayes.hpc.parallel.cores import program_cores
from mpibayes.hpc.parallel.launcher import batch_system, mpirun
from mpibayes.hpc.parallel.meeting import meeting
from mpibayes.hpc.run import signals
from mpibayes.hpc.run.become import become_mpirun
from mpibayes.hpc.run.clock import Clock
from mpibayes.hpc.run.plan import Work, work_of
from mpibayes.text import whole_number

VARIABLE = "MPIBAYES_RANKS"  # overrides run.ranks = "auto"
WORTH_S = 5.0  # least time of one process that is worth ranks; their start takes one or two seconds
SHARE_OF_MEMORY = 0.5  # at most this share of free memory
PASSES_ON = "MPICH"  # its mpirun passes Ctrl-C on, and waits for ranks to end at a checkpoint
UNKNOWN_CYCLES = 100  # assumed if the family decides the number later


@dataclass(frozen=True)
class Machine:
    """The machine that ranks would be started on. memory: free bytes, None if unknown. batch: True if a batch system
    allocates the cores. program: its mpirun. meeting(program, n): see `parallel/meeting.py`."""

    cores: int
    memory: int | None
    batch: bool
    program: str | None
    meeting: Callable[[str, int], str | None] = meeting


def this_machine() -> Machine:
    return Machine(program_cores(), free_memory(), batch_system(), mpirun())


def decide(work: Work, cycles: int, machine: Machine) -> tuple[int, str]:
    """Number of ranks that a run starts itself, and a note for the user if it could be more. cycles: number left."""
    most = work.ranks(machine.cores)
    if machine.memory is not None:
        more = SHARE_OF_MEMORY * machine.memory
        fits = (n for n in range(most, 1, -1) if work.bytes(n) - work.bytes(1) <= more)
        most = work.ranks(next(fits, 1))
    if most == 1 or machine.program is None or work.n_chains * cycles * work.cycle_s < WORTH_S:
        return 1, ""
    if machine.batch:
        return 1, f"note: one process, since a batch system allocates the cores here; --ranks {most} starts {most}"
    name = machine.meeting(machine.program, most)
    if name is None:
        trial = f"`{Path(machine.program).name} -n {most} mpibayes doctor`"
        return 1, f"note: one process, since {most} ranks of {machine.program} cannot connect; {trial} shows why"
    if name != PASSES_ON:
        return 1, f"note: one process; --ranks {most} is faster, but its mpirun ends it on Ctrl-C without a checkpoint"
    return most, ""


def choose(config: Config, data: AnyData, done: int = 0) -> tuple[int, str]:
    """Apply `decide` to a configuration, whose family is decided, on this machine, unless the user has set the number.

    done: cycles that all its chains have. Raises ConfigError if MPIBAYES_RANKS is no number.
    """
    if config.run.ranks != "auto":
        return config.run.ranks, ""
    if (text := os.environ.get(VARIABLE, "auto")) != "auto":
        n = whole_number(text)
        if n is None or n < 1:
            raise ConfigError(f'MPIBAYES_RANKS = "{text}": expected "auto" or a whole number, 1 or more')
        return n, ""
    total = config.run.cycles if isinstance(config.run.cycles, int) else UNKNOWN_CYCLES
    return decide(work_of(config, data), max(0, total - done), this_machine())


def hand_over(ranks: int, words: Sequence[str], clock: Clock) -> None:
    """Call `become_mpirun`, unless a signal asks this process to stop: then it runs alone to its first checkpoint."""
    for number in signals.SIGNALS:  # from now on a signal ends the process, which has not begun any work
        signal.signal(number, signal.SIG_DFL)
    if clock.stop_reason() is None:
        become_mpirun(ranks, words, f"run.ranks = {ranks}")
    clock.watch_signals()
