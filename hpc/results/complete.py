"""`mpibayes complete`: copies of a table, or of a file like it, with missing cells drawn, each copy from a kept draw of
its own (Rubin 1987). Copies are distributed over ranks; rows stream from file to file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.law import Completion
from mpibayes.hpc.parallel.agreement import agree, on_root
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.together import together
from mpibayes.hpc.posterior.chains import files_of
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.filling import Filling, of_file, of_table
from mpibayes.hpc.query.support import tails
from mpibayes.hpc.report.advice import warn_beside_answer
from mpibayes.hpc.results.asked_report import DRAWS
from mpibayes.hpc.results.weak_pairs import weakened
from mpibayes.io.complete import Dialect, Fill, check_format, dialect_of, form_of, passes_over
from mpibayes.io.files import make_directory, writing
from mpibayes.io.target import COMPLETED, check_target
from mpibayes.text import counted

FORMS = (".csv", ".csv.gz", ".parquet")
LONG = ".imp", ".id"
LISTED = 8  # columns named, at most


Counts = tuple[Counter[str], Counter[str]]  # cells filled in a copy, and those below 0, by column


@dataclass(frozen=True)
class Completed:
    """The files written, in the order of the copies; n_rows of each copy; filled: cells filled per copy, by column;
    notes: remarks for the user; dialect: of CSV files."""

    paths: Sequence[Path]
    n_rows: int
    filled: Mapping[str, int] = field(default_factory=dict)
    notes: Sequence[str] = ()
    dialect: Dialect | None = None


def complete(
    run_dir: str | Path | Sequence[str | Path], source: str | Path | None, out: str | Path, *, copies: int = 20,
    long: bool = False, calibrate: bool = False, form: str | None = None, otherwise: str = "csv", seed: int = 1,
    unseen: str = "missing", burn_in: int | None = None, table: str | Path | None = None,
    sources: Sequence[str | Path] = (), overwrite: bool = False, console: Any = None,
) -> Completed | None:  # fmt: skip
    """Write `copies` completed copies of the run's table, or of the rows of `source`, alone or on all ranks that a
    launcher started.

    out: a folder, for copy-1.csv and so on; with `long` one file, or a folder for long.csv: first the rows as they are
    (.imp = 0, gaps empty), then each copy, with the columns `.imp` and `.id`, the row from 1. calibrate: see
    `crosscat/laws/calibration.py`. form: "csv" or "parquet", by default that of `source`, or `otherwise` if it is
    neither. sources: the file that the run's table was imported from, which is written in its format and with the
    columns that the table lacks; by default the one near the table, or the table itself. unseen: as in `predict`. Each
    copy uses its own kept draw, evenly spaced over those of all chains after burn-in; see
    `crosscat/laws/completion.py` for what is drawn.
    Raises ConfigError, DataError, CheckpointError, on root alone; other ranks then return None.
    """
    out = Path(out)
    source = None if source is None else Path(source)
    if copies < 1:
        raise ConfigError(f"copies = {copies}: expected a whole number, 1 or more")
    run_dirs = [run_dir] if isinstance(run_dir, str | Path) else list(run_dir)

    def work(comm: Communicator) -> Completed:
        asking = Asking(run_dirs, copies, burn_in, table, comm)
        asking.require("complete")
        asking.take_outcome(True)
        asking.require_draws(copies, "copies")
        requested = form or _form_in(out)
        filling = of_table(asking, sources, requested) if source is None else of_file(asking, source, unseen, requested)
        filling = filling.calibrated() if calibrate else filling
        paths = on_root(comm, lambda: _targets(run_dirs, filling.path, out, copies, long, form, otherwise, overwrite))
        written = _written(comm, asking, filling, paths, copies, long, seed)
        filled, below = (sum((part[i] for part in written), Counter[str]()) for i in (0, 1))
        weak = weakened(Asking.of_run(asking.run, DRAWS, comm), filled, calibrate) if filled else []
        done = Completed(
            paths,
            filling.n_rows,
            {name: n // copies for name, n in filled.items() if n},
            [
                *filling.notes,
                *_about_weights(asking, filling),
                *weak,
                *tails({name: n / filled[name] for name, n in below.items()}, "values"),
                *filling.never(),
            ],
            on_root(comm, lambda: dialect_of(asking.asked.like, filling.path, filling.lacking, LONG if long else ())),
        )
        on_root(comm, lambda: _say(done, asking, out, copies, console), share=False)
        return done

    return together(work)


def _about_weights(asking: Asking, filling: Filling) -> list[str]:
    table = asking.run.table
    if table.weight is None:
        return []
    here = f"; they are not in the copies: join '{table.weight}'" if filling.path == table.path else ""
    return [f"a row's gaps are drawn given its own cells, whatever its weight; analyse copies with the weights{here}"]


def _written(
    comm: Communicator, asking: Asking, filling: Filling, paths: Sequence[Path], copies: int, long: bool, seed: int
) -> list[Counts]:
    """Write the copies; return for each the filled cells, and the negative ones in columns that are never negative, by
    column."""
    if not long:

        def own() -> list[Counts]:
            drawn = asking.clusters("complete").completions(seed, slice(comm.rank, copies, comm.size))
            return [_copy(asking, filling, paths[i], c) for i, c in zip(range(comm.rank, copies, comm.size), drawn)]

        return [part for of in comm.collect(agree(comm, own, "write its copies")) for part in of]

    def all_of_them() -> list[Counts]:
        with passes_over(asking.asked.like, filling.path, paths[0], filling.lacking, LONG) as start:
            _original(filling, start(Counter()))
            every = asking.clusters("complete").completions(seed)
            return [_pass(filling, start, completion, copy) for copy, completion in enumerate(every, 1)]

    return on_root(comm, all_of_them, what="write the copies")


def _copy(asking: Asking, filling: Filling, path: Path, completion: Completion) -> Counts:
    with passes_over(asking.asked.like, filling.path, path, filling.lacking) as start:
        return _pass(filling, start, completion, None)


def _pass(
    filling: Filling, start: Callable[[Counter[str]], Fill], completion: Completion, number: int | None
) -> Counts:
    """Write all rows with their gaps filled. number: the copy's number, if rows have a column for it."""
    filled, below = Counter[str](), Counter[str]()
    fill = start(filled)
    for first, n, cells in filling.blocks(completion):
        below.update(filling.below_zero(cells))
        fill(n, cells, {} if number is None else _beside(number, first, n))
    return filled, below


def _original(filling: Filling, fill: Fill) -> None:
    for first, rows in filling.rows():
        fill(len(rows), None, _beside(0, first, len(rows)))


def _beside(number: int, first: int, n: int) -> dict[str, np.ndarray]:
    return dict(zip(LONG, (np.full(n, number), np.arange(first + 1, first + n + 1))))


def _targets(
    run_dirs: Sequence[str | Path], source: Path, out: Path, copies: int, long: bool, form: str | None,
    otherwise: str, overwrite: bool,
) -> list[Path]:  # fmt: skip
    """Return the files to write, and make their folder. Raises before any work is done if one may not be written."""
    ending = f".{form or form_of(source, otherwise)}"
    single = out.name.endswith(FORMS)
    if single and not long:
        raise ConfigError(f"{out}: each copy is a file; name a folder for them, or write all into one file with --long")
    if single and form and out.name.endswith(FORMS[:2]) != (form == "csv"):
        raise ConfigError(f"{out}: the ending of the name decides the format; leave out --to {form}")
    names = [f"long{ending}"] if long else [f"copy-{i}{ending}" for i in range(1, copies + 1)]
    paths = [out] if single else [out / name for name in names]
    check_format(source, paths[0])
    if not single:
        in_folder(out, names, "copy", "copies", refuse=not long)
    inputs = [source, *files_of(run_dirs)]
    for path in paths:
        check_target(path, overwrite, COMPLETED, inputs)
    return paths


def _form_in(out: Path) -> str | None:
    """Form given by the name of one long file."""
    return "parquet" if out.suffix == ".parquet" else "csv" if out.name.endswith(FORMS[:2]) else None


def in_folder(out: Path, names: Sequence[str], stem: str, what: str, refuse: bool = True) -> None:
    """Make a folder for files with these names, `stem`-1.csv and so on. Raises ConfigError if it is a file, or, with
    `refuse`, if it has other files of the kind, which would be mixed with them."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out}: is a file; name a folder for the {what}")
    with writing(out):
        make_directory(out)
        mine = (p.name for p in out.iterdir() if re.fullmatch(rf"{stem}-\d+\.(csv|parquet)", p.name))
        others = sorted(name for name in mine if name not in names)
    if others and refuse:
        raise ConfigError(
            f"{out}: has {what}, such as {others[0]}, that would stay; name another folder, or remove them"
        )


def _say(done: Completed, asking: Asking, out: Path, copies: int, console: Any) -> None:
    from mpibayes.terminal import Console, Text

    to = console or Console(stderr=True)
    for note in done.notes:
        to.print(Text(f"note: {note}"), soft_wrap=True)
    each = list(done.filled)
    where = f" ({', '.join(each[:LISTED])}{', ...' * (len(each) > LISTED)})" if each else ""
    cells = f"{counted(sum(done.filled.values()), 'cell')} drawn in each{where}"
    many = "1 copy" if copies == 1 else f"{copies:,} copies"
    to.print(Text(f"{many} of {counted(done.n_rows, 'row')} written to {out}: {cells}"), soft_wrap=True)
    if console is None:
        warn_beside_answer(asking.run)
