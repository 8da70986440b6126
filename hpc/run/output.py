"""Lines of a run on standard output. A full disk or a closed pipe behind it ends no run."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO

from mpibayes.text import visible_lines


def say(text: str) -> None:
    """Print one or more lines."""
    write(visible_lines(text), sys.stdout)


def write(text: str, stream: TextIO) -> None:
    """Write a text and a line's end in one piece: other ranks write to the same place. If that fails, the stream leads
    nowhere from then on, since Python would write what is left at exit, and complain."""
    try:
        stream.write(text + "\n")
        stream.flush()
    except OSError:
        with contextlib.suppress(OSError, ValueError):  # a stream without a descriptor
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
