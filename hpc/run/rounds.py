"""A run that ends once it has settled: its chains advance in rounds, and after each round root judges their traces.

Clusters of real tables seldom settle: in two chains of 2,000 cycles on iris, penguins, faithful, galaxies, zoo and 800
rows of a survey they never did, while scores settled after 197 to 1,184. So a run may end by its scores alone.

A round ends at the next check of `hpc/settled.py`, so rounds grow by a fourth; before the first check there are two
short ones, after which a report can have an early look. Each chain makes the first one as soon as it has left its
search, so that the first report does not wait for the searches of all chains. The draws are the same as without
rounds, and the judgement depends on the traces alone: a resumed run ends at the same cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.errors import MpibayesError
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.data.sparse import AnyData
from mpibayes.hpc.parallel.agreement import on_root
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.groups import Groups
from mpibayes.hpc.scalar import ACTIVE_ROWS, SCORES, Scalar
from mpibayes.hpc.settled import SMALL, Judgement, is_check, judge, next_check
from mpibayes.io.trace import read_trace
from mpibayes.text import counted

ENOUGH = 400  # least number of cycles of a run that ends by its scores alone: for the report's draws
EARLY = 20, 50  # cycles after which every chain writes a checkpoint, before the first check

if TYPE_CHECKING:
    from mpibayes.hpc.run.chain_run import ChainRun


def decided(config: Config, scalars: Sequence[Scalar], data: AnyData) -> Config:
    """Return the configuration with run.until decided: "auto" is "settled" for several chains on a small table, else
    "cycles"; "scores" is "cycles" for a single chain, or without held-out rows."""
    if config.run.until == "scores":
        scored = config.run.chains > 1 and data.heldout is not None and any(s.judged == SCORES for s in scalars)
        return config if scored else config.changed("run", until="cycles")
    if config.run.until != "auto":
        return config
    small = data.n_rows * len(data.columns) <= SMALL
    judged = config.run.chains > 1 and small and any(s.judged for s in scalars)
    return config.changed("run", until="settled" if judged else "cycles")


def until_settled(groups: Groups, config: Config, chains: Iterable[ChainRun]) -> bool:
    """Advance all chains until they have settled, or have all their cycles; False if it was time to stop.

    chains: chains of this rank's group. Collective over all groups.
    """
    mine = groups.agree(lambda: list(chains), "make its chains ready")
    try:
        result = _rounds(groups, config, mine)
    except MpibayesError:
        for chain in mine:
            chain.rest("stopped", "another chain failed")
        raise
    if result is None:
        groups.agree(lambda: _leave(mine), "write its last checkpoints")
        return False
    early = f"ended after {counted(result.cycle, 'cycle')}" if result.cycle < config.run.cycles else ""
    last = config.run.chains - 1
    for ending in (False, True):  # the last line is about the whole run
        these = [chain for chain in mine if (chain.number == last) == ending]
        groups.agree(partial(_close, these, early, result, ending), "write trace.h5 and the last status")
    return True


def _rounds(groups: Groups, config: Config, mine: Sequence[ChainRun]) -> Judgement | None:
    """Return the judgement that ends the run; None if it was time to stop before."""

    def stopped() -> str | None:
        return mine[0].clock.stop_reason()

    if not groups.all_done(partial(_open, groups.comm, config, mine), "start its chains", stopped):
        return None
    while True:
        done = min(groups.world.collect(min(chain.chain.cycles for chain in mine)))
        result = _judged(groups, config, mine, done)
        if result is not None and (_ends(config, result) or done >= config.run.cycles):
            return result
        end = min(_next_end(done), config.run.cycles)
        if not groups.all_done(partial(_round, groups.comm, mine, end), f"end cycle {end} of its chains", stopped):
            return None


def _ends(config: Config, judgement: Judgement) -> bool:
    """True if this judgement of its chains ends the run."""
    scores = config.run.until == "scores" and judgement.has(SCORES) and judgement.cycle >= ENOUGH
    return judgement.settled or scores


def _open(comm: Communicator, config: Config, chains: Sequence[ChainRun]) -> bool:
    """Start or resume the chains, each up to its first checkpoint: a report need not wait for the searches of the
    others. False if it was time to stop."""
    first = min(EARLY[0], config.run.cycles)
    for chain in chains:
        if not chain.open():
            return False
        chain.rest()
        if not _round(comm, [chain], first):
            return False
    return True


def _leave(chains: Sequence[ChainRun]) -> None:
    for chain in chains:
        if chain.is_open:
            chain.leave()


def _close(chains: Sequence[ChainRun], words: str, judgement: Judgement, ending: bool) -> None:
    for chain in chains:
        chain.close(True, words, _end(judgement, chain) if ending else "")


def _round(comm: Communicator, chains: Sequence[ChainRun], cycles: int) -> bool:
    """Advance each chain to cycle `cycles`; False if it was time to stop."""
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
    """Last cycle of the round that starts after cycle `done`."""
    return min([end for end in EARLY if end > done] + [next_check(done)])


def _end(judgement: Judgement, chain: ChainRun) -> str:
    """Last line of a run's messages."""
    if judgement.settled:
        return f"{chain.home}: {judgement}; to see the result: mpibayes report {chain.home}"
    run = chain.config.run
    by = f"the run ended at run.cycles = {run.cycles}; raise it to continue"
    if judgement.cycle < run.cycles:
        by = 'the run ended because run.until = "scores"; set "settled" to continue until clusters have settled, too'
    end = f"{chain.home}: {judgement}; {by}"
    return f"{end}. What you can use already: mpibayes report {chain.home}"


def _judged(groups: Groups, config: Config, mine: Sequence[ChainRun], cycle: int) -> Judgement | None:
    """Judge the traces on disk, at a check and at the end; else None. Each group reads the traces that it has just
    written."""
    if not is_check(cycle) and cycle < config.run.cycles:
        return None
    chain, comm = mine[0].chain, groups.comm
    judged = {ACTIVE_ROWS, *(s.name for s in chain.scalars if s.judged)}

    def read() -> dict[int, dict[str, np.ndarray]]:
        return {run.number: read_trace(run.folder, only=judged) for run in mine}

    here = groups.agree(lambda: on_root(comm, read, share=False, what="read the traces"), "read the traces")
    traces = {number: trace for part in groups.world.collect(here or {}) for number, trace in part.items()}

    def look() -> Judgement:
        result = judge([traces[i] for i in sorted(traces)], chain.scalars, chain.n_rows, cycle, config.burn_in)
        if result.known and not result.settled and cycle < config.run.cycles:
            mine[0].writers.progress.note(f"{mine[0].home}: cycle {cycle:,}: {result}")
        return result

    return on_root(groups.world, look, what="judge the traces")
