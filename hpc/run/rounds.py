"""A run that goes on until it has settled: its chains advance in rounds, and after each root judges their traces.

A round ends at the next check of `hpc/settled.py`, so rounds grow by a fourth; before the first check there are two
short ones, after which a report can have an early look at all chains. The chains draw what they would without
rounds, and the judgement depends on their traces alone: a run that was stopped goes on to the same end.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from mpibayes.errors import MpibayesError
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.parallel.comm import Communicator, on_root
from mpibayes.hpc.scalar import Scalar
from mpibayes.hpc.settled import SMALL, Judgement, is_check, judge, next_check
from mpibayes.io.trace import read_trace
from mpibayes.text import counted

EARLY = 20, 50  # cycles after which every chain writes a checkpoint, before the first check

if TYPE_CHECKING:
    from mpibayes.hpc.run.loop import ChainRun


def decided(config: Config, scalars: Sequence[Scalar], data: Data) -> Config:
    """The configuration with what run.until = "auto" means: several chains on a small table go on until settled."""
    if config.run.until != "auto":
        return config
    small = data.n_rows * len(data.columns) <= SMALL
    judged = config.run.chains > 1 and small and any(s.judged for s in scalars)
    return config.changed("run", until="settled" if judged else "cycles")


def until_settled(comm: Communicator, config: Config, chains: Sequence[ChainRun]) -> bool:
    """Advance all chains until they have settled, or have all their cycles; False where it was time to stop."""
    try:
        for k, chain in enumerate(chains):
            if not chain.open():
                for opened in chains[:k]:
                    opened.leave()
                return False
            chain.rest()
        while True:
            done = min(chain.chain.cycles for chain in chains)
            found = on_root(comm, partial(_judged, config, chains, done), what="judge the traces")
            if found is not None and (found.settled or done >= config.run.cycles):
                break
            if not _round(comm, chains, min(_next_end(done), config.run.cycles)):
                for chain in chains:
                    chain.leave()
                return False
    except MpibayesError:
        for chain in chains:
            chain.rest("stopped", "another chain failed")
        raise
    early = f"ends after {counted(done, 'cycle')}" if found.settled else ""
    for chain in chains:
        chain.close(True, early, _end(found, chain) if chain is chains[-1] else "")
    return True


def _round(comm: Communicator, chains: Sequence[ChainRun], cycles: int) -> bool:
    """Bring each chain to so many cycles; False where it was time to stop."""
    for chain in chains:
        if chain.chain.cycles >= cycles:
            continue
        chain.wake()
        if not chain.advance(cycles):
            return False
        chain.rest()
        if chain is not chains[-1] and any(comm.collect(chain.clock.stop_reason() is not None)):
            return False
    return True


def _next_end(done: int) -> int:
    """The cycle that the round after this cycle ends with."""
    return min([end for end in EARLY if end > done] + [next_check(done)])


def _end(found: Judgement, chain: ChainRun) -> str:
    """The last line."""
    if found.settled:
        return f"{chain.home}: {found}; look at them: mpibayes report {chain.home}"
    end = f"{chain.home}: {found}; run.cycles = {chain.config.run.cycles} ended it: raise it to go on"
    return f"{end}. What can be used as it is: mpibayes report {chain.home}"


def _judged(config: Config, chains: Sequence[ChainRun], cycle: int) -> Judgement | None:
    """What the traces on disk say at a check, and at the end; root alone."""
    if not is_check(cycle) and cycle < config.run.cycles:
        return None
    first = chains[0].chain
    traces = [read_trace(chain.folder) for chain in chains]
    found = judge(traces, first.scalars, first.n_rows, cycle, config.burn_in)
    if found.known and not found.settled and cycle < config.run.cycles:
        chains[0].progress.note(f"{chains[0].home}: cycle {cycle:,}: {found}")
    return found
