"""`mpibayes synthesize`: synthetic tables, each of a kept draw of its own. Tables are dealt to ranks, and their rows
stream to files."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpibayes.errors import ConfigError
from mpibayes.hpc.commands.complete import FORMS, in_folder
from mpibayes.hpc.commands.together import together
from mpibayes.hpc.parallel.comm import Communicator, agree, on_root
from mpibayes.hpc.posterior.advice import disagreement
from mpibayes.hpc.posterior.chains import family_in, files_of
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.filling import written_like
from mpibayes.hpc.query.support import never_negative, tails
from mpibayes.hpc.synthetic.gaps import Gaps
from mpibayes.hpc.synthetic.rare import Merging, merging
from mpibayes.hpc.synthetic.rows import blocks
from mpibayes.hpc.synthetic.training import Training, look
from mpibayes.io.complete import Dialect, check_format, dialect_of, form_of
from mpibayes.io.synthetic import synthesized
from mpibayes.io.target import SYNTHETIC, check_target
from mpibayes.text import counted, visible

MISSING = ("as-in-data", "none")
LIKE_TABLE = "; numbers and dates are written as the table has them"


@dataclass(frozen=True)
class Asked:
    """tables of n rows; seed: of their streams; gaps: with missing cells as often as the data; rare: levels and atoms
    of fewer training rows are merged, 0: none."""

    tables: int
    n: int
    seed: int
    gaps: bool
    rare: int


@dataclass(frozen=True)
class Synthetic:
    """The files written; n_rows of each; notes: what the user should know; dialect: of files of CSV."""

    paths: Sequence[Path]
    n_rows: int
    notes: Sequence[str]
    dialect: Dialect | None = None


def synthesize(
    run_dir: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    rows: int | None = None,
    copies: int = 5,
    missing: str = "as-in-data",
    rare: int = 0,
    form: str | None = None,
    otherwise: str = "csv",
    seed: int = 1,
    burn_in: int | None = None,
    table: str | Path | None = None,
    sources: Sequence[str | Path] = (),
    overwrite: bool = False,
    console: Any = None,
) -> Synthetic | None:
    """Write `copies` synthetic tables, synthetic-1.csv and so on, to the folder `out`, alone or on all ranks that a
    launcher started.

    rows: of each table, by default as many as the run was trained on. missing: "as-in-data" (see `synthetic/gaps.py`)
    or "none". rare: levels and atoms of fewer training rows are merged. form: "csv" or "parquet", by default that of
    the table's source, `otherwise` where it is neither. sources: as of `complete`. Each table is of its own kept draw,
    evenly spaced over those of all chains after burn-in. Raises ConfigError, DataError, CheckpointError, on root alone;
    other ranks then return None.
    """
    out = Path(out)
    _require(rows, copies, missing, rare)
    run_dirs = [run_dir] if isinstance(run_dir, str | Path) else list(run_dir)

    def work(comm: Communicator) -> Synthetic:
        on_root(comm, lambda: family_in(run_dirs[0]))
        asking = Asking(run_dirs, copies, burn_in, table, comm)
        asking.require("synthesize")
        if asking.asked.n_kept < copies:
            raise ConfigError(
                f"{copies} tables: each is of a kept draw of its own, and the run has "
                f"{counted(asking.asked.n_kept, 'draw')} after burn-in; ask for fewer (--copies), or let the run go on"
            )
        asked = Asked(copies, rows or asking.asked.n_rows, seed, missing == MISSING[0], rare)
        given = [Path(source) for source in sources]
        source, notes = on_root(comm, lambda: written_like(asking, given, form, LIKE_TABLE))
        paths = on_root(comm, lambda: _targets(run_dirs, source, out, copies, form, otherwise, overwrite))
        training = agree(comm, lambda: look(asking), "look at the training rows")
        merged = merging(training, asking.columns, rare)
        written = _written(comm, asking, asked, training, merged, source, paths)
        below = sum(written, Counter())
        share = {name: n / (asked.n * copies) for name, n in below.items()}
        done = Synthetic(
            paths, asked.n, [*notes, *merged.notes(), *tails(share, "values")],
            on_root(comm, lambda: dialect_of(asking.asked.like, source, [c.name for c in asking.columns], ())),
        )  # fmt: skip
        on_root(comm, lambda: _say(done, asking, out, console), share=False)
        return done

    return together(work)


def _require(rows: int | None, copies: int, missing: str, rare: int) -> None:
    for name, value, least in (("rows", rows, 1), ("copies", copies, 1), ("rare", rare, 0)):
        if value is not None and value < least:
            raise ConfigError(f"{name} = {value}: expected a whole number, {least} or more")
    if missing not in MISSING:
        raise ConfigError(f"missing = {missing!r}: expected 'as-in-data' or 'none'")


def _written(
    comm, asking: Asking, asked: Asked, training: Training, merged: Merging, source: Path, paths
) -> list[Counter]:
    """Write the tables; returns for each the cells below 0 in columns that never are, by column."""
    mine = slice(comm.rank, asked.tables, comm.size)

    def local() -> list[Counter]:
        drawn = asking.asked.syntheses(asked.seed, asked.n, merged.atoms, mine)
        return [_table(asking, asked, training, merged, source, paths[i], i + 1, s) for i, s in zip(_of(mine), drawn)]

    return [part for of in comm.collect(agree(comm, local, "write its tables")) for part in of]


def _of(some: slice) -> range:
    return range(some.start, some.stop, some.step)


def _table(asking: Asking, asked: Asked, training, merged, source, path, number: int, synthesis) -> Counter:
    columns, below = asking.columns, Counter()
    gaps = Gaps(training, columns, asked.seed, number, max(asked.rare, 1)) if asked.gaps else None
    with synthesized(asking.asked.like, source, path, merged.name) as write:
        for cells in blocks(synthesis, columns, asked.n, gaps, merged):
            write(cells)
            below.update({c.name: int((cells[c.name] < 0.0).sum()) for c in columns if never_negative(c)})
    return below


def _targets(
    run_dirs, source: Path, out: Path, copies: int, form: str | None, otherwise: str, overwrite: bool
) -> list[Path]:
    """The files to write, in a folder that is there. Raises before any work is done where one must not be written."""
    if out.name.endswith(FORMS):
        raise ConfigError(f"{out}: each table is a file; name a folder for them")
    names = [f"synthetic-{i}.{form or form_of(source, otherwise)}" for i in range(1, copies + 1)]
    paths = [out / name for name in names]
    check_format(source, paths[0])
    in_folder(out, names, "synthetic", "synthetic tables")
    inputs = [source, *files_of(run_dirs)]
    for path in paths:
        check_target(path, overwrite, SYNTHETIC, inputs)
    return paths


def _say(done: Synthetic, asking: Asking, out: Path, console: Any) -> None:
    from mpibayes.terminal import Console, Text

    to = console or Console(stderr=True)
    for note in done.notes:
        to.print(Text(f"note: {note}"), soft_wrap=True)
    tables = counted(len(done.paths), "synthetic table")
    to.print(Text(f"{tables} of {counted(done.n_rows, 'row')} written to {out}"), soft_wrap=True)
    if console is None and asking.run.contradicted():
        print(visible(f"mpibayes: warning: {disagreement(asking.run.chains)}"), file=sys.stderr, flush=True)
