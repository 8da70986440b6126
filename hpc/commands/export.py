"""`mpibayes export`: draws for other programs, and the clusters of the rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from mpibayes.errors import ConfigError, DataError, MpibayesError
from mpibayes.hpc.posterior.chains import burn_in_of, family_in, files_of
from mpibayes.hpc.registry import exports_of, posterior_of
from mpibayes.io import export as forms
from mpibayes.io.export import STDOUT, Exported, write_csv_lines
from mpibayes.io.files import chain_directories
from mpibayes.io.rows import Column
from mpibayes.io.table import Table
from mpibayes.io.target import CLUSTERS, CYCLES, DRAWS, FACTORS, TOPICS, TRACE, check_export

SLICE_ROWS = 65_536
PURPOSES = {
    "csv": CYCLES, "arviz": TRACE, "labels": DRAWS, "features": DRAWS, "clusters": CLUSTERS, "topics": TOPICS,
    "factors": FACTORS,
}  # fmt: skip
OF_DRAWS = {"labels": "labels of rows"} | {form: form for form in ("clusters", "features", "factors", "topics")}


def export(
    run_dirs: str | Path | Sequence[str | Path],
    to: str,
    out: str | Path | None = None,
    burn_in: int | None = None,
    timings: bool = True,
    table: str | Path | None = None,
    overwrite: bool = False,
) -> Exported:
    """Write `to`: clusters (see below), or a form of `io.export.export`.

    clusters  a line of CSV for each training row: the identifier if the table has one; row, its number from 1; line,
              where the table was imported from one CSV file; cluster, as the report numbers it; probability of that;
              of several views cluster_1, probability_1 and so on
    topics    of topics a line of CSV for each topic and word: the topic, its share, the word, its probability there
    factors   of a factorization a line of CSV for each user and item: what it is, its id, its bias and its factors

    burn_in: cycles of burn-in, by default run.burn_in; csv: cycles to leave out, by default none. table: where the
    run's table is now. overwrite: replace a file that is no earlier export of this form. Raises ConfigError, DataError,
    CheckpointError.
    """
    given = [run_dirs] if isinstance(run_dirs, str | Path) else list(run_dirs)
    if out is not None and str(out) != STDOUT:
        _check_target(Path(out), given, to, overwrite)
    if to == "csv" or not given:
        return forms.export(given, to, out, burn_in, timings)
    family = family_in(given[0])
    door = exports_of(family)
    if to in OF_DRAWS and to not in door.FORMS:
        what = f"a model without {OF_DRAWS[to]}"
        others = ", ".join(f"--to {form}" for form in (*door.FORMS, "csv"))
        raise ConfigError(f"{given[0]}: {what}; {others} and --to arviz write its draws")
    if to == "clusters":
        return _clusters(posterior_of(family)(given, burn_in, table), door, out)
    if to in ("factors", "topics"):
        head, blocks, said = getattr(door, to)(posterior_of(family)(given, burn_in, table))
        done = write_csv_lines(out, head, blocks)
        done.notes.append(said)
        return done
    burn_ins = [burn_in_of(run_dir) if burn_in is None else burn_in for run_dir in given]
    kept, notes = None, []
    if to == "arviz" and door.FORMS:
        try:
            run = posterior_of(family)(given, burn_in, table)
            kept = door.parameters(run)
            burn_ins = [max(c.burn_in for c in run.chains)] * len(given)  # with the cycles of a growing subsample
        except DataError as error:
            if table is not None:
                raise
            notes.append(f"hyperparameters and weights are left out: {error}")
    done = forms.export(given, to, out, burn_ins, timings, kept if kept and kept[0] else None)
    done.notes.extend(notes)
    return done


def _check_target(out: Path, run_dirs: Sequence[str | Path], to: str, overwrite: bool) -> None:
    """ConfigError, before any work is done, where the export cannot be written or would replace what it must not."""
    inputs, n_chains = [], 1
    with suppress(MpibayesError):  # a run that cannot be read is reported when it is
        n_chains = sum(len(chain_directories(run_dir)) for run_dir in run_dirs)
        inputs = files_of(run_dirs)
    several = forms.a_file_each(out, n_chains) if to in forms.TEXTS and n_chains > 1 else [out]
    for path in several:
        check_export(path, PURPOSES[to], overwrite, inputs)


def _clusters(run: Any, door: Any, out: str | Path | None) -> Exported:
    found = door.clusters(run)
    numbers = np.arange(run.n_rows) if run.data.training_rows is None else run.data.training_rows
    identifier, source = identifier_of(run.table), run.table.source
    in_lines = source.get("format") == "csv" and len(source.get("files", ())) == 1

    def blocks() -> Iterator[list[list[str]]]:
        for start in range(0, run.n_rows, SLICE_ROWS):
            some = slice(start, start + SLICE_ROWS)
            at = numbers[some]
            columns = [] if identifier is None else [_texts(run.table, identifier, at)]
            columns.append([str(n + 1) for n in at.tolist()])
            if in_lines:
                columns.append([str(n + 1 + bool(source.get("header"))) for n in at.tolist()])
            for cluster, probability in found.views:
                columns.append([str(k) for k in cluster[some].tolist()])
                columns.append([f"{p:.4g}" for p in probability[some].tolist()])
            yield columns

    number = [f"_{v}" for v in range(1, 1 + len(found.views))] if len(found.views) > 1 else [""]
    head = ["row", *(["line"] * in_lines), *(f"{name}{v}" for v in number for name in ("cluster", "probability"))]
    if identifier is not None:
        taken = identifier.name in head
        head.insert(0, f"{identifier.name}'" if taken else identifier.name)
    done = write_csv_lines(out, head, blocks())
    done.notes.append(found.said)
    n_out = run.table.n_rows - run.n_rows
    if n_out:
        done.notes.append(
            f"{n_out:,} held-out rows are left out: they have no cluster; `mpibayes predict` gives them one"
        )
    return done


def identifier_of(table: Table) -> Column | None:
    """The first column that names the rows: as many levels as rows, or numbers that all differ, under the name of an
    identifier. The import leaves such columns out unless they are kept (--keep)."""
    from mpibayes.io.infer import ID_NAME

    for column in table.columns:
        if column.n_missing == 0 and (
            len(column.levels) == table.n_rows > 1
            or (not column.levels and ID_NAME.search(column.name) and _all_differ(table, column))
        ):
            return column
    return None


def _all_differ(table: Table, column: Column) -> bool:
    values = np.concatenate([getattr(rows, column.block)[:, column.index] for rows in table.slices()])
    return len(np.unique(values)) == len(values)


def _texts(table: Table, column: Column, numbers: np.ndarray) -> list[str]:
    """The cells of some rows, ascending, as text."""
    first = int(numbers[0])
    rows = table.read(first, int(numbers[-1]) + 1)
    cells = getattr(rows, column.block)[numbers - first, column.index].tolist()
    return [column.levels[code] for code in cells] if column.levels else [f"{x:.15g}" for x in cells]
