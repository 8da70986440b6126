"""`mpibayes synthesize`: synthetic tables, each from a kept draw of its own. Tables are distributed over ranks, and
their rows stream to files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.law import Synthesis
from mpibayes.hpc.parallel.agreement import agree, on_root
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.together import together
from mpibayes.hpc.posterior.chains import evenly, files_of
from mpibayes.hpc.query.answer import Answer, show, write
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.filling import written_like
from mpibayes.hpc.query.support import never_negative, tails
from mpibayes.hpc.report.advice import warn_beside_answer
from mpibayes.hpc.results.complete import FORMS, in_folder
from mpibayes.hpc.synthetic import judge as judging
from mpibayes.hpc.synthetic.gaps import Gaps
from mpibayes.hpc.synthetic.judge import TABLES, Judge
from mpibayes.hpc.synthetic.rare import Merging, merging
from mpibayes.hpc.synthetic.rows import Cells, blocks
from mpibayes.hpc.synthetic.training import Training, look
from mpibayes.io.complete import Dialect, check_format, dialect_of, form_of
from mpibayes.io.synthetic import synthesized
from mpibayes.io.target import SYNTHETIC, check_target
from mpibayes.text import counted

MISSING = ("as-in-data", "none")
LIKE_TABLE = "; numbers and dates are written as the table has them"


Measured = tuple[Counter[str], dict[str, tuple[float, float]]]  # of a table: cells below 0, by column; see `Judge`


@dataclass(frozen=True)
class Asked:
    """A request for `tables` tables of n rows; seed: of their streams; gaps: cells are missing as often as in the data;
    rare: levels and atoms with fewer training rows are merged, 0: none."""

    tables: int
    n: int
    seed: int
    gaps: bool
    rare: int


@dataclass(frozen=True)
class Synthetic:
    """The files written; n_rows of each; notes: remarks for the user; dialect: of CSV files; judged: their utility and
    risk."""

    paths: Sequence[Path]
    n_rows: int
    notes: Sequence[str]
    dialect: Dialect | None = None
    judged: Answer | None = None


def synthesize(
    run_dir: str | Path | Sequence[str | Path], out: str | Path, *, rows: int | None = None, copies: int = 5,
    missing: str = "as-in-data", rare: int = 0, form: str | None = None, otherwise: str = "csv", seed: int = 1,
    burn_in: int | None = None, table: str | Path | None = None, sources: Sequence[str | Path] = (),
    judge: bool = False, target: str | None = None, key: Sequence[str] = (), weighted: bool | None = None,
    overwrite: bool = False, console: Any = None,
) -> Synthetic | None:  # fmt: skip
    """Write `copies` synthetic tables, synthetic-1.csv and so on, to the folder `out`, alone or on all ranks that a
    launcher started.

    rows: of each table, by default the number of training rows. missing: "as-in-data" (see `synthetic/gaps.py`) or
    "none". rare: levels and atoms with fewer training rows are merged. form: "csv" or "parquet", by default that of the
    table's source, or `otherwise` if it is neither. sources: as in `complete`. Each table uses its own kept draw,
    evenly spaced over those of all chains after burn-in. judge: measure utility and risk, too, for judge.json and
    judge.csv; target, key: see `synthetic.judge.Roles`. weighted: draw rows of the population that survey weights
    represent, by default if the table has weights. Raises ConfigError, DataError, CheckpointError, on root alone; other
    ranks then return None.
    """
    out = Path(out)
    _require(rows, copies, missing, rare)
    run_dirs = [run_dir] if isinstance(run_dir, str | Path) else list(run_dir)

    def work(comm: Communicator) -> Synthetic:
        asking = Asking(run_dirs, copies, burn_in, table, comm)
        asking.require("synthesize")
        asking.take_outcome(True)
        asking.weigh(weighted)
        if judge and asking.weighted:
            raise ConfigError(
                "--judge compares synthetic rows with rows as they are: add --unweighted, or leave it out"
            )
        asking.require_draws(copies, "tables")
        given = judging.roles(asking, target, key) if judge else None
        asked = Asked(copies, rows or asking.asked.n_rows, seed, missing == MISSING[0], rare)
        source, notes = on_root(
            comm, lambda: written_like(asking, [Path(source) for source in sources], form, LIKE_TABLE)
        )
        names = [f"synthetic-{i}.{form or form_of(source, otherwise)}" for i in range(1, copies + 1)]
        names += ["judge.json", "judge.csv"] if judge else []
        paths = on_root(comm, lambda: _targets(run_dirs, source, out, names, overwrite))
        training = agree(comm, lambda: look(asking), "look at the training rows")
        merged = merging(training, asking.columns, rare)
        critic = None
        if given is not None:
            critic = agree(comm, lambda: Judge(asking, merged, given, asked.n, seed), "sample rows to compare with")
        written = _written(comm, asking, asked, training, merged, source, paths, critic)
        below = sum((part for part, _ in written), Counter[str]())
        judged = None
        if critic is not None and given is not None:
            judged = judging.answer(critic, given, [measures for _, measures in written if measures], copies)
            on_root(comm, partial(_write_all, judged, paths[copies:]))
        share = {name: n / (asked.n * copies) for name, n in below.items()}
        notes = [note for note in (*notes, asking.of_whom, *merged.notes(), *tails(share, "values")) if note]
        done = Synthetic(
            paths[:copies], asked.n, notes,
            on_root(comm, lambda: dialect_of(asking.asked.like, source, [c.name for c in asking.columns], ())),
            judged,
        )  # fmt: skip
        on_root(comm, lambda: _say(done, asking, out, console), share=False)
        return done

    return together(work)


def _write_all(judged: Answer, paths: Sequence[Path]) -> None:
    for path in paths:
        write(judged, path)


def _require(rows: int | None, copies: int, missing: str, rare: int) -> None:
    for name, value, least in (("rows", rows, 1), ("copies", copies, 1), ("rare", rare, 0)):
        if value is not None and value < least:
            raise ConfigError(f"{name} = {value}: expected a whole number, {least} or more")
    if missing not in MISSING:
        raise ConfigError(f"missing = {missing!r}: expected 'as-in-data' or 'none'")


def _written(
    comm: Communicator, asking: Asking, asked: Asked, training: Training, merged: Merging, source: Path,
    paths: Sequence[Path], critic: Judge | None,
) -> list[Measured]:  # fmt: skip
    """Write the tables; return for each the negative cells in columns that are never negative, by column, and its
    measures if it is judged."""
    mine, judged = slice(comm.rank, asked.tables, comm.size), evenly(range(asked.tables), TABLES)

    def local() -> list[Measured]:
        drawn = asking.clusters("synthesize").syntheses(asked.seed, asked.n, merged.atoms, mine)
        numbers = range(mine.start, mine.stop, mine.step)
        return [one(i, synthesis) for i, synthesis in zip(numbers, drawn)]

    def one(i: int, synthesis: Synthesis) -> Measured:
        gaps = Gaps(training, asking.columns, asked.seed, i + 1, max(asked.rare, 1)) if asked.gaps else None
        rows = blocks(synthesis, asking.columns, asked.n, gaps, merged)
        return _table(asking, rows, source, paths[i], merged, critic if i in judged else None)

    of_ranks = comm.collect(agree(comm, local, "write its tables"))
    return [of_ranks[i % comm.size][i // comm.size] for i in range(asked.tables)]


def _table(
    asking: Asking, rows: Iterator[Cells], source: Path, path: Path, merged: Merging, critic: Judge | None
) -> Measured:
    below, first, n = Counter[str](), list[Cells](), 0
    signed = [c.name for c in asking.columns if never_negative(c)]
    with synthesized(asking.asked.like, source, path, merged.name) as write_rows:
        for cells in rows:
            write_rows(cells)
            below.update({name: int((cells[name] < 0.0).sum()) for name in signed})
            if critic is not None and n < critic.n:
                first.append(cells)
                n += len(next(iter(cells.values())))
    if critic is None:
        return below, {}
    return below, critic({c.name: np.concatenate([cells[c.name] for cells in first]) for c in asking.columns})


def _targets(
    run_dirs: Sequence[str | Path], source: Path, out: Path, names: Sequence[str], overwrite: bool
) -> list[Path]:
    """Return the files to write, and make their folder. Raises before any work is done if one may not be written."""
    if out.name.endswith(FORMS):
        raise ConfigError(f"{out}: each table is a file; name a folder for them")
    paths = [out / name for name in names]
    check_format(source, paths[0])
    in_folder(out, names, "synthetic", "synthetic tables")
    inputs = [source, *files_of(run_dirs)]
    for path in paths:
        check_target(path, overwrite, "" if path.suffix == ".json" else SYNTHETIC, inputs)
    return paths


def _say(done: Synthetic, asking: Asking, out: Path, console: Any) -> None:
    from mpibayes.terminal import Console, Text, output

    to = console or Console(stderr=True)
    for note in done.notes:
        to.print(Text(f"note: {note}"), soft_wrap=True)
    tables = counted(len(done.paths), "synthetic table")
    to.print(Text(f"{tables} of {counted(done.n_rows, 'row')} written to {out}"), soft_wrap=True)
    if done.judged is not None:
        show(done.judged, console or output())
    if console is None:
        warn_beside_answer(asking.run)
