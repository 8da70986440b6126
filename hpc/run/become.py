"""mpirun in the place of this process: the one way in which the program starts ranks of a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from mpibayes.errors import ConfigError
from mpibayes.hpc.parallel.cores import share_out
from mpibayes.hpc.parallel.launcher import launched, launcher_name, mpirun
from mpibayes.io.files import reason
from mpibayes.text import visible

NO_MPIRUN = "there is no mpirun here: pip install 'mpibayes[mpich]', load an MPI module, or use one process"


def words_of(
    config: Path, out: Path | str | None, overrides: Sequence[str], max_time_s: float | None, fresh: bool
) -> list[str]:
    """The words after `mpibayes` that run this; each a word of its own, since ":" ends a program for mpirun."""
    words = [f"--out={out}"] if out is not None else []
    words += [f"--set={change}" for change in overrides]
    words += [] if max_time_s is None else [f"--max-time={max(max_time_s, 1e-9):.9f}"]
    return ["run", *words, *(["--fresh"] if fresh else []), "--", str(config)]


def become_mpirun(ranks: int, words: Sequence[str], asked: str) -> None:
    """Let mpirun take this process's place, its number and its terminal, and start so many ranks of `mpibayes WORDS`.

    Its exit code is root's, and signals to it reach the ranks, as if it had been called. Standard input is empty:
    mpirun would read what is meant for others. Returns where one rank is asked for, which this process is. Raises
    ConfigError where no mpirun starts, or a launcher is at work already. asked: who wants so many, for that message.
    """
    if launched():
        raise ConfigError(f"{asked}: {launcher_name()} has started this process; ask it for the ranks")
    if ranks == 1:
        return
    program = mpirun()
    if program is None:
        raise ConfigError(f"{asked}: {NO_MPIRUN}")
    print(f"{ranks} ranks, started by {visible(program)} (run.ranks)", flush=True)
    share_out(ranks)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    # -P: the folder where the user is has no say in which modules are loaded
    try:
        os.execv(program, [program, "-n", str(ranks), sys.executable, "-P", "-m", "mpibayes", *words])
    except OSError as error:
        raise ConfigError(f"{asked}: {visible(program)} cannot be started: {reason(error)}") from None
