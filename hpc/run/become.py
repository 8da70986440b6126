"""Replacement of this process by mpirun: the only way in which the program starts ranks of a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from mpibayes.errors import ConfigError
from mpibayes.hpc.parallel.cores import share_out
from mpibayes.hpc.parallel.launcher import launched, launcher_name, mpirun
from mpibayes.hpc.run import output
from mpibayes.io.files import reason
from mpibayes.text import visible

NO_MPIRUN = "there is no mpirun here: pip install 'mpibayes[mpich]', load an MPI module, or use one process"


def words_of(
    config: Path, out: Path | str | None, overrides: Sequence[str], max_time_s: float | None, fresh: bool
) -> list[str]:
    """Arguments of `mpibayes` for this run; each option is one word, since a lone ":" ends a program for mpirun."""
    words = [f"--out={out}"] if out is not None else []
    words += [f"--set={change}" for change in overrides]
    words += [] if max_time_s is None else [f"--max-time={max(max_time_s, 1e-9):.9f}"]
    return ["run", *words, *(["--fresh"] if fresh else []), "--", str(config)]


def become_mpirun(ranks: int, words: Sequence[str], asked: str) -> None:
    """Let mpirun take this process's place, its number and its terminal, and start `ranks` ranks of `mpibayes WORDS`.

    Its exit code is root's, and signals to it reach the ranks, as if the user had called it. Standard input is empty:
    mpirun would consume input meant for others. Returns if `ranks` is 1, which this process is. Raises ConfigError if
    no mpirun starts, or if a launcher started this process. asked: the setting or option, for that message.
    """
    if launched():
        raise ConfigError(f"{asked}: {launcher_name()} has started this process; ask it for the ranks")
    if ranks == 1:
        return
    program = mpirun()
    if program is None:
        raise ConfigError(f"{asked}: {NO_MPIRUN}")
    output.say(f"{ranks} ranks, started by {program} (run.ranks)")
    share_out(ranks)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    # -P: modules are never loaded from the current folder
    try:
        os.execv(program, [program, "-n", str(ranks), sys.executable, "-P", "-m", "mpibayes", *words])
    except OSError as error:
        raise ConfigError(f"{asked}: {visible(program)} cannot be started: {reason(error)}") from None
