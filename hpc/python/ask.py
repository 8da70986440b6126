"""A question asked by several ranks: the program as a child, `mpirun -n 4 python -m mpibayes.hpc.python.ask FOLDER`.

The child receives the place of the run, and the question; its root writes the answer, without its picture, to a file.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpibayes.errors import ConfigError, MpibayesError
from mpibayes.hpc.parallel.launcher import launcher_size
from mpibayes.hpc.python import child

if TYPE_CHECKING:
    from mpibayes.hpc.query.answer import Answer
    from mpibayes.hpc.query.asking import RunAt
    from mpibayes.hpc.query.question import Question

QUESTION, ANSWER = "question", "answer"


def ask_ranks(question: Question, run: RunAt, ranks: int) -> tuple[Answer, bool]:
    """Answer of `ranks` ranks, and True if it has a picture. Raises their errors as they would occur here."""
    if launcher_size() > 1:
        raise ConfigError("ranks: a question starts its ranks itself; ask it from one process, not under mpirun")
    with tempfile.TemporaryDirectory(prefix="mpibayes-") as folder:
        place = Path(folder)
        (place / QUESTION).write_bytes(pickle.dumps((question, run)))
        process = child.start([folder], ranks, module=__name__)
        try:
            _, messages = process.communicate()
        finally:
            if process.poll() is None:  # after an interrupt
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode != 0:
            raise child.error_of(process.returncode, messages.splitlines())
        answer, pictured = pickle.loads((place / ANSWER).read_bytes())
        return answer, pictured


def main(folder: str) -> int:
    """Ask the question on every rank; return the exit code of `mpibayes query`."""
    from mpibayes.hpc.parallel.together import together
    from mpibayes.hpc.query.question import ask

    question, run = pickle.loads((Path(folder) / QUESTION).read_bytes())

    def work(comm: Any) -> None:
        answer = ask(question, run.open(comm))
        if comm.rank == 0:
            received = replace(answer, picture=None), answer.picture is not None
            (Path(folder) / ANSWER).write_bytes(pickle.dumps(received))

    try:
        together(work)
    except MpibayesError as error:
        print(f"{child.ERROR}{error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
