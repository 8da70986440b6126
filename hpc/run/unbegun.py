"""Why a run has nothing to read yet, and what to do."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from mpibayes.errors import MpibayesError
from mpibayes.hpc.run.grown import place_of
from mpibayes.hpc.run.identity import GROWN, read_provenance
from mpibayes.hpc.run.status import at_work, ending
from mpibayes.io.files import chain_directories
from mpibayes.io.finished import n_finished
from mpibayes.text import counted

ENDED = {"stopped": "was stopped", "died": "died", "failed": "failed"}


def nothing_yet(folder: Path, home: Path) -> str:
    """Describe why `folder`, a run or one of its chains, has no cycles. home: directory of the run."""
    chains = chain_directories(home)
    states = [last["state"] for chain in chains if (last := ending(chain)) is not None]
    ended = None if any(map(at_work, chains)) else next((ENDED[state] for state in states if state in ENDED), None)
    if ended is None:
        why = "a chain is first saved some cycles after its initial search"
        then = f"mpibayes status {home} shows how far it is"
    else:
        n = sum(map(n_finished, chains))
        kept = f" ({counted(n, 'finished search', 'finished searches')} kept)" if n else ""
        why = f"the run {ended} before a chain was first saved{kept}"
        then = "run the same command again"
    where = folder if ended is None else home
    return f"{where}: nothing has been saved yet: {why}; {then}{_before_growth(home)}"


def _before_growth(home: Path) -> str:
    """Advice to read the run of the rows before the last growth, if there is one."""
    with suppress(MpibayesError):
        if times := len(read_provenance(home).get(GROWN, ())):
            return f". The run of the rows before can be read: mpibayes report {place_of(home, times)}"
    return ""
