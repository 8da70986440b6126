"""`mpibayes query`: a question to a run, and where its answer goes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mpibayes.errors import ConfigError
from mpibayes.hpc.parallel.comm import Communicator, agree, on_root
from mpibayes.hpc.parallel.together import together
from mpibayes.hpc.posterior.chains import family_in, files_of
from mpibayes.hpc.query import answer as answers
from mpibayes.hpc.query import new_rows
from mpibayes.hpc.query.answer import Answer
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.new_rows import NewRows, stream
from mpibayes.hpc.report.advice import disagreement
from mpibayes.io.files import writing
from mpibayes.io.target import ANSWER, check_target
from mpibayes.text import visible

Verb = Callable[[Asking, NewRows | None], Answer]


def query(
    run_dir: Path | Sequence[Path],
    verb: Verb,
    *,
    rows: Path | None = None,
    reads: Sequence[str] = (),
    out: Path | None = None,
    picture: bool = False,
    unseen: str = "missing",
    draws: int | None = None,
    burn_in: int | None = None,
    table: Path | None = None,
    weighted: bool | None = False,
    force: bool = False,
    console: Any = None,
) -> Answer | None:
    """Ask a run, alone or on all ranks that a launcher started, print the answer and write it to `out`.

    run_dir: a run, or several of one posterior. rows: a file of rows that the question is about; reads: other files
    that are read, or rows by their numbers. picture: whether the answer may be one. weighted: whether it is of the
    population, see `Asking.weigh`; None: where the question names no rows. console: where the answer is shown; that
    chains disagree is then for the caller to say. See `Asking` and `read`. Raises ConfigError, DataError,
    CheckpointError, on root alone; other ranks then return None.
    """
    from mpibayes.terminal import Text, output

    def work(comm: Communicator) -> Answer:
        asking, found = _asked(
            comm, run_dir, verb, rows, reads, out, picture, unseen, draws, burn_in, table, weighted, force
        )

        def told() -> None:
            to = console or output()
            answers.show(found, to)
            if out is not None:
                with writing(out):
                    answers.write(found, out)
                to.print(Text(f"written to {out}"), soft_wrap=True)

            if console is None and asking.run.contradicted():
                print(visible(f"mpibayes: warning: {disagreement(asking.run.chains)}"), file=sys.stderr, flush=True)

        on_root(comm, told, share=False, what="write the answer")
        return found

    return together(work)


def _asked(
    comm: Communicator, run_dir, verb: Verb, rows, reads, out, picture, unseen, draws, burn_in, table, weighted, force
) -> tuple[Asking, Answer]:
    """The run that was asked and the answer, on every rank. Mistakes are found by all of them alike, or agreed on."""

    def looked_at() -> None:
        if out is None:
            return
        answers.check_name(out, picture)
        given = [run_dir] if isinstance(run_dir, Path) else run_dir
        check_target(out, force, ANSWER, [rows, *reads, *files_of(given)])
        if out.suffix == ".png":
            from mpibayes.hpc.report.drawing import require_extra

            require_extra("matplotlib")

    on_root(comm, looked_at)
    on_root(comm, lambda: family_in(run_dir if isinstance(run_dir, Path) else run_dir[0]))
    asking = Asking(run_dir, draws, burn_in, table, comm)
    asking.weigh(False if weighted is None and rows is not None else weighted)
    new = None
    if rows is not None:
        notes = on_root(comm, lambda: stream(asking, rows, unseen).notes, what=f"read {rows}")
        new = agree(comm, lambda: stream(asking, rows, unseen, notes), f"read {rows}")
    return asking, replace(verb(asking, new), of_whom=asking.of_whom)


def compared(
    group, against, rows, against_rows, other, columns, top: int, options: Mapping[str, Any],
    cluster_group: tuple[int, int | None, int] | None = None,
) -> Verb:  # fmt: skip
    """The verb `compare`, of what is described, of two groups of rows or of two runs; or of a group of clusters, by its
    number, how many groups there are, and the view, with all other rows. rows, against_rows: the name of a
    file, or numbers of rows of the table, which are compared with all others where `against_rows` is None."""
    from mpibayes.hpc.query import compare

    def read(asking: Asking, text: str) -> NewRows:
        numbers = agree(asking.comm, lambda: new_rows.numbers_in(text, asking.asked.like.n_rows), f"read {text}")
        if numbers is not None:
            return new_rows.of_table(asking, numbers, new_rows.called(numbers))
        notes = on_root(asking.comm, lambda: stream(asking, text, options["unseen"]).notes)
        return agree(asking.comm, lambda: stream(asking, text, options["unseen"], notes), f"read {text}")

    def verb(asking: Asking, _: NewRows | None) -> Answer:
        if other is not None:
            on_root(asking.comm, lambda: family_in(other))
            second = Asking(other, options["draws"], options["burn_in"], None, asking.comm)
            second.weigh(options["weighted"])
            return compare.compare_runs(asking, second, columns, top)
        if cluster_group is not None:
            number, n, view = cluster_group
            here, others = agree(
                asking.comm, lambda: new_rows.of_group(asking, number, n, view), "find the group of clusters"
            )
            return compare.compare_rows(asking, here, others, columns, top)
        if rows is None:
            return compare.compare(asking, group, against, columns, top)
        first = read(asking, rows)
        if against_rows is not None:
            return compare.compare_rows(asking, first, read(asking, against_rows), columns, top)
        numbers = new_rows.numbers_in(rows, asking.asked.like.n_rows)
        if numbers is None:
            raise ConfigError("name the other group, too: two files of rows, --rows and --against-rows")
        return compare.compare_rows(asking, first, new_rows.others(asking, numbers), columns, top)

    return verb
