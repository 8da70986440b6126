"""Errors that the user can correct, with their exit codes.

Exit codes: 0 done, 2 configuration or usage, 3 data, 4 checkpoint unusable, or disk or memory full, 5 numerical
failure, 70 internal error, 75 stopped early at a checkpoint (run the same command again).
"""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Sequence
from pathlib import Path

from mpibayes.text import visible

EXIT_STOPPED, EXIT_INTERNAL = 75, 70


def in_a_notebook(error: BaseException) -> list[str]:
    """Lines shown by IPython for an error: the caller's line and the message, without the frames below that line."""
    ours = str(Path(__file__).parent)
    callers = itertools.takewhile(lambda f: not f.filename.startswith(ours), traceback.extract_tb(error.__traceback__))
    where = [f"----> {frame.lineno} {frame.line}" for frame in callers][-1:]
    return [*where, "", f"{type(error).__name__}: {error}"]


class MpibayesError(Exception):
    """A failure with one message for the user; several problems are listed below it, one per line."""

    exit_code = EXIT_INTERNAL
    shared = False  # True if every rank of the job has raised it, too

    def __init__(self, message: str, problems: Sequence[str] = ()):
        self.message = message
        self.problems = tuple(problems)
        super().__init__(message, self.problems)  # both arguments, so that pickling rebuilds the error

    def __str__(self) -> str:
        """Message and problems, with names made printable; the only line breaks are ours."""
        return "\n".join([visible(self.message), *(f"  - {visible(p)}" for p in self.problems)])

    def _render_traceback_(self) -> list[str]:
        return in_a_notebook(self)


class ConfigError(MpibayesError):
    exit_code = 2


class DataError(MpibayesError):
    exit_code = 3


class CheckpointError(MpibayesError):
    """A checkpoint cannot be used, or the disk rejects a file."""

    exit_code = 4


class NumericalError(MpibayesError):
    exit_code = 5


class Interrupted(KeyboardInterrupt):
    """`mpibayes.fit` was interrupted; the run ended at a checkpoint, and the same call continues it."""

    def _render_traceback_(self) -> list[str]:
        return in_a_notebook(self)


class MpibayesWarning(UserWarning):
    """Warning about an answer: cells that were read as missing, too few draws."""


class ChainsDisagree(MpibayesWarning):
    """The chains of a run contradict each other: its report says not to use the result yet."""
