"""`mpibayes query`: a question to a run, and where its answer goes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mpibayes.errors import ConfigError
from mpibayes.hpc.query import answer as answers
from mpibayes.hpc.query.answer import Answer
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.new_rows import NewRows, read
from mpibayes.io.files import reason

Verb = Callable[[Asking, NewRows | None], Answer]


def query(
    run_dir: Path,
    verb: Verb,
    *,
    rows: Path | None = None,
    out: Path | None = None,
    picture: bool = False,
    unseen: str = "missing",
    draws: int | None = None,
    burn_in: int | None = None,
    table: Path | None = None,
    force: bool = False,
    console: Any = None,
) -> Answer:
    """Ask a run, print the answer and write it to `out`.

    rows: a file of rows that the question is about. picture: whether the answer may be one. See `Asking` and `read`.
    Raises ConfigError, DataError, CheckpointError.
    """
    from mpibayes.terminal import Text, output

    console = console or output()
    answers.check_target(out, force, picture)
    if out is not None and out.suffix == ".png":
        from mpibayes.hpc.commands.report import require_extra

        require_extra("matplotlib")
    asking = Asking(run_dir, draws, burn_in, table)
    found = verb(asking, None if rows is None else read(asking, rows, unseen))
    answers.show(found, console)
    if out is not None:
        try:
            answers.write(found, out)
        except OSError as error:
            raise ConfigError(f"{out}: cannot be written: {reason(error)}") from None
        console.print(Text(f"written to {out}"), soft_wrap=True)
    return found
