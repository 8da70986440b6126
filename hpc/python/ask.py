"""A question of `Run` asked by several ranks: the program as a child, `mpirun -n 4 python -m mpibayes.hpc.python.ask`.

The child has the run, the name of the method and its arguments, and what the method would ask here (`Asks`) it asks as
`mpibayes query` does under mpirun. Its root writes the answer, without its picture, to a file.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from mpibayes.errors import ConfigError, MpibayesError
from mpibayes.hpc.parallel.launcher import launcher_size
from mpibayes.hpc.python import child, frames
from mpibayes.hpc.python.rows import numbers_of

if TYPE_CHECKING:
    from mpibayes.hpc.python.run import Run
    from mpibayes.hpc.query.answer import Answer

QUESTION, ANSWER = "question", "answer"
ROWS = {"rows", "against_rows"}  # arguments that may be a DataFrame
P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class Received:
    """An answer from ranks. notes: what is to know of the rows. drawn: whether it has a picture."""

    answer: Answer
    notes: Sequence[str]
    drawn: bool


class Asks(Exception):
    """Question of a method of `Run`: raised instead of asking it."""

    def __init__(self, verb: Callable[..., Any], rows: Any, unseen: str, weighted: bool | None):
        super().__init__()
        self.verb, self.rows, self.unseen, self.weighted = verb, rows, unseen, weighted


def shared(method: Callable[P, T]) -> Callable[P, T]:
    """A question that several ranks can share, by its keyword `ranks`."""

    called = signature(method)

    @wraps(method)
    def asked(*args: P.args, **more: P.kwargs) -> T:
        given = dict(called.bind(*args, **more).arguments)
        run, ranks = given.pop("self"), given.pop("ranks", 1)
        if ranks == 1:
            return method(*args, **more)
        if not isinstance(ranks, int) or ranks < 1:
            raise ConfigError(f"ranks = {ranks!r}: expected a whole number, 1 or more")
        run.received = _from_ranks(run, method.__name__, given, ranks)
        try:
            return method(*args, **more)
        finally:
            run.received = None

    return asked


def _from_ranks(run: Run, method: str, given: dict[str, Any], ranks: int) -> Received:
    """Start the child, wait for it, and read its answer. Raises its errors as they are here."""
    if launcher_size() > 1:
        raise ConfigError("ranks: a question starts its ranks itself; ask it from one process, not under mpirun")
    with tempfile.TemporaryDirectory(prefix="mpibayes-") as folder:
        place = Path(folder)
        made = []
        for name in ROWS & given.keys():  # a DataFrame is read as a file of it is
            if given[name] is not None and not frames.is_path(given[name]) and numbers_of(given[name]) is None:
                path = place / name / f"{frames.NAME}.parquet"
                path.parent.mkdir()
                frames.write_parquet(frames.to_arrow(given[name]), path)
                given[name] = path
                made.append(path)
        (place / QUESTION).write_bytes(pickle.dumps((run, method, given)))
        process = child.start([folder], ranks, module=__spec__.name)
        try:
            _, messages = process.communicate()
        finally:
            if process.poll() is None:  # after an interrupt
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode != 0:
            error = child.error_of(process.returncode, messages.splitlines())
            for path in made:
                error = frames.retold(error, path)
            raise error
        received: Received = pickle.loads((place / ANSWER).read_bytes())
        for path in made:

            def plain(text: str, path: Path = path) -> str:
                return text.replace(str(path), frames.NAME).replace(path.name, frames.NAME)

            a, received.notes = received.answer, list(map(plain, received.notes))
            received.answer = replace(a, title=plain(a.title), remarks=list(map(plain, a.remarks)))
        return received


def main(folder: str) -> int:
    """Ask the question on every rank; return the exit code of `mpibayes query`."""
    from mpibayes.hpc.parallel.launcher import launcher_rank
    from mpibayes.hpc.query.ask import query
    from mpibayes.terminal import Console

    run, method, given = pickle.loads((Path(folder) / QUESTION).read_bytes())
    notes: list[str] = []
    try:
        try:
            getattr(run.for_ranks(), method)(**given)
            raise AssertionError(f"{method} asks nothing")
        except Asks as asks:
            question = asks

        def verb(asking: Any, new: Any) -> Answer:
            notes.extend(new.notes if new is not None else ())
            answer: Answer = question.verb(asking, new)
            return answer

        with open(os.devnull, "w") as nowhere:
            answer = query(
                run.directories, verb, rows=question.rows, unseen=question.unseen or "missing",
                console=Console(file=nowhere), weighted=question.weighted, **run.options,
            )  # fmt: skip
    except MpibayesError as error:
        print(f"{child.ERROR}{error}", file=sys.stderr, flush=True)
        return error.exit_code
    if launcher_rank() == 0 and answer is not None:
        received = Received(replace(answer, picture=None), notes, answer.picture is not None)
        (Path(folder) / ANSWER).write_bytes(pickle.dumps(received))
    return 0


if __name__ == "__main__":
    from mpibayes.hpc.python import ask  # the same classes as those that are pickled

    sys.exit(ask.main(sys.argv[1]))
