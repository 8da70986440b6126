"""Suggested commands that help the chains of a run; they work as printed.

They name the run's own configuration (config.resolved.toml), which has every key and absolute paths.
"""

from __future__ import annotations

import itertools
import math
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mpibayes.hpc.posterior.chains import Chain
from mpibayes.hpc.report.document import Command, early_look
from mpibayes.hpc.run.identity import RESOLVED
from mpibayes.text import visible


def longer(chains: Sequence[Chain], times: float = 2.0) -> Command:
    """Resume chains that have all their cycles, or that have settled, until they have `times` as many."""
    home, run = chains[0].home, chains[0].config.run
    keys: dict[str, object] = {"run.cycles": math.ceil(times * max(int(c.trace["cycle"][-1]) for c in chains))}
    if run.until != "cycles":  # a settled run would end at once
        keys["run.until"] = "cycles"
    return "continue the run", _run(home, home, keys)


def anew(chains: Sequence[Chain], words: str, **keys: object) -> Command:
    """Start a run beside this one, with keys that a started run cannot change: sampler_split_merge=1."""
    home = chains[0].home
    places = (home.with_name(f"{home.name}-{i}") for i in itertools.count(2))
    place = next(place for place in places if not os.path.exists(place))  # `exists` is False if it cannot be read
    return words, _run(home, place, {key.replace("_", ".", 1): value for key, value in keys.items()})


def _run(home: Path, out: Path, keys: dict[str, object]) -> str:
    settings = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    return shlex.join(["mpibayes", "run", str(home / RESOLVED), "-o", str(out), *settings])


def disagreement(chains: Sequence[Chain]) -> str:
    """Warning beside answers of chains that contradict each other, or of one that climbs."""
    homes = list(dict.fromkeys(str(chain.home) for chain in chains))
    report, of = shlex.join(["mpibayes", "report", *homes]), ", ".join(homes)
    trouble = f"the chains of {of} do not agree" if len(chains) > 1 else f"the chain of {of} still climbs"
    return f"{trouble}: do not use this answer yet; what to do: {report}"


def warn_beside_answer(run: Any) -> None:
    """Warn on standard error, beside an answer of an opened run, that its chains contradict each other, or have not
    reached their end."""
    words = f"warning: {disagreement(run.chains)}" if run.contradicted() else early_note(run)
    if words:
        print(visible(f"mpibayes: {words}"), file=sys.stderr, flush=True)


def early_note(run: Any) -> str:
    """Describe for a note beside an answer how far the chains of an opened run are; "" if all have reached their
    end."""
    run.read_traces()
    words = early_look(run.chains)
    return f"note: an{words[2:]}" if words else ""
