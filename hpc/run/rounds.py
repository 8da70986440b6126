"""A run that goes on until it has settled: its chains advance in rounds, and after each root judges their traces.

Clusters of real tables seldom settle: in two chains of 2,000 cycles on iris, penguins, faithful, galaxies, zoo and 800
rows of a survey they never did, while scores had after 197 to 1,184. So a run may end by its scores alone.

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
from mpibayes.hpc.scalar import SCORES, Scalar
from mpibayes.hpc.settled import SMALL, Judgement, is_check, judge, next_check
from mpibayes.io.trace import read_trace
from mpibayes.text import counted

ENOUGH = 400  # cycles at least of a run that ends by its scores alone: for the report's draws
EARLY = 20, 50  # cycles after which every chain writes a checkpoint, before the first check

if TYPE_CHECKING:
    from mpibayes.hpc.run.loop import ChainRun


def decided(config: Config, scalars: Sequence[Scalar], data: Data) -> Config:
    """The configuration with what run.until = "auto" means: several chains on a small table go on until settled.
    "scores" is "cycles" of a chain without others, or without held-out rows."""
    if config.run.until == "scores":
        scored = config.run.chains > 1 and data.heldout is not None and any(s.judged == SCORES for s in scalars)
        return config if scored else config.changed("run", until="cycles")
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
            if found is not None and (_ends(config, found) or done >= config.run.cycles):
                break
            if not _round(comm, chains, min(_next_end(done), config.run.cycles)):
                for chain in chains:
                    chain.leave()
                return False
    except MpibayesError:
        for chain in chains:
            chain.rest("stopped", "another chain failed")
        raise
    early = f"ends after {counted(done, 'cycle')}" if done < config.run.cycles else ""
    for chain in chains:
        chain.close(True, early, _end(found, chain, done) if chain is chains[-1] else "")
    return True


def _ends(config: Config, found: Judgement) -> bool:
    """True if the run ends by a judgement of its chains."""
    scores = config.run.until == "scores" and found.has(SCORES) and found.cycle >= ENOUGH
    return found.settled or scores


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


def _end(found: Judgement, chain: ChainRun, done: int) -> str:
    """The last line."""
    if found.settled:
        return f"{chain.home}: {found}; look at them: mpibayes report {chain.home}"
    run = chain.config.run
    by = f"run.cycles = {run.cycles} ended it: raise it to go on"
    if done < run.cycles:
        by = 'run.until = "scores" ended it: set "settled" to go on until clusters have, too'
    end = f"{chain.home}: {found}; {by}"
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
