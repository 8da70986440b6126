"""What to do about the chains of a run, as commands that work as they are printed.

They name the configuration as the run has it (config.resolved.toml), which has every key and absolute paths.
"""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from mpibayes.hpc.posterior.chains import Chain
from mpibayes.hpc.run.identity import RESOLVED

Command = tuple[str, str]  # what it does, and the command


def longer(chains: Sequence[Chain]) -> Command:
    """Chains that have all their cycles, or that have settled, go on for as long again."""
    home, run = chains[0].home, chains[0].config.run
    keys: dict[str, object] = {"run.cycles": 2 * max(int(c.trace["cycle"][-1]) for c in chains)}
    if run.until != "cycles":  # one that has settled would end at once
        keys["run.until"] = "cycles"
    return "go on for longer", _run(home, home, keys)


def anew(chains: Sequence[Chain], words: str, **keys: object) -> Command:
    """A new run beside this one, for keys that one which has started keeps. keys: sampler_split_merge=1."""
    home = chains[0].home
    places = (home.with_name(f"{home.name}-{i}") for i in itertools.count(2))
    place = next(place for place in places if not os.path.exists(place))  # also where nobody can tell
    return words, _run(home, place, {key.replace("_", ".", 1): value for key, value in keys.items()})


def _run(home: Path, out: Path, keys: dict[str, object]) -> str:
    settings = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    return shlex.join(["mpibayes", "run", str(home / RESOLVED), "-o", str(out), *settings])


def disagreement(chains: Sequence[Chain]) -> str:
    """What is said beside answers of chains that contradict each other, or of one that climbs, in a line."""
    homes = list(dict.fromkeys(str(chain.home) for chain in chains))
    report, of = shlex.join(["mpibayes", "report", *homes]), ", ".join(homes)
    said = f"the chains of {of} do not agree" if len(chains) > 1 else f"the chain of {of} still climbs"
    return f"{said}: do not use this answer yet; what to do: {report}"
