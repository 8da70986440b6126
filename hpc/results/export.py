"""`mpibayes export`: draws for other programs, and the clusters of the rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from mpibayes.errors import ConfigError, DataError, MpibayesError
from mpibayes.hpc.family import Clusters
from mpibayes.hpc.posterior.chains import burn_in_of, family_in, files_of
from mpibayes.hpc.registry import exports_of, posterior_of
from mpibayes.hpc.results.crate import write_crate
from mpibayes.hpc.run.directory import TRAINING_ROWS
from mpibayes.io import export as forms
from mpibayes.io.export import STDOUT, Exported, write_csv_lines
from mpibayes.io.files import chain_directories
from mpibayes.io.row_names import RowNames
from mpibayes.io.target import CLUSTERS, CRATE, CYCLES, DRAWS, FACTORS, TOPICS, TRACE, check_export
from mpibayes.text import counted

SLICE_ROWS = 65_536
PURPOSES = {
    "csv": CYCLES, "arviz": TRACE, "labels": DRAWS, "features": DRAWS, "links": DRAWS, "outcome": DRAWS,
    "clusters": CLUSTERS,    "topics": TOPICS, "factors": FACTORS, "crate": CRATE,
}  # fmt: skip
OF_DRAWS = {form: form for form in ("clusters", "features", "factors", "topics")}
OF_DRAWS |= {"labels": "labels of rows", "links": "links between columns", "outcome": "an outcome"}


def export(
    run_dirs: str | Path | Sequence[str | Path], to: str, out: str | Path | None = None, burn_in: int | None = None,
    timings: bool = True, table: str | Path | None = None, overwrite: bool = False, ids: Sequence[str] = (),
    sources: Sequence[str | Path] = (), groups: int | None = None, weighted: bool | None = None,
) -> Exported:  # fmt: skip
    """Write `to`, one of the forms that `mpibayes export --help` lists, or of `io.export.export`.

    A line of clusters begins with the identifier if the table has one, or the columns `ids`; row, its number from 1;
    line, if the table was imported from one CSV file. The columns of `hpc.family.Clusters` follow.

    burn_in: cycles of burn-in, by default run.burn_in; csv: cycles to leave out, by default none. table: present path
    of the run's table. overwrite: replace a file that is no earlier export of this form. For clusters: ids, sources:
    see `io.row_names.RowNames`; groups: number of groups of clusters in a column `group`; weighted: add a column
    `weight`, and shares of the population, by default if the table has weights. Raises ConfigError, DataError,
    CheckpointError.
    """
    given = [run_dirs] if isinstance(run_dirs, str | Path) else list(run_dirs)
    if (ids or sources) and to != "clusters":
        raise ConfigError(f"--to {to}: has no line for each row; --id and --source are for --to clusters")
    if groups is not None and to != "clusters":
        raise ConfigError(f"--to {to}: has no groups of clusters; --groups is for --to clusters")
    if weighted is not None and to != "clusters":
        raise ConfigError(f"--to {to}: has no shares of clusters; --weighted and --unweighted are for --to clusters")
    if out is not None and str(out) != STDOUT:
        _check_target(Path(out), given, to, overwrite)
    if to == "crate":
        return write_crate(given, out)
    if to == "csv" or not given:
        return forms.export(given, to, out, burn_in, timings)
    family = family_in(given[0])
    door = exports_of(family)
    if to in door.NEEDS:
        door.NEEDS[to](given)
    if to in OF_DRAWS and to not in door.FORMS:
        what = f"a model without {OF_DRAWS[to]}"
        there = [form for form in door.FORMS if _has(door, form, given)]
        others = ", ".join(f"--to {form}" for form in (*there, "csv"))
        raise ConfigError(f"{given[0]}: {what}; {others} and --to arviz write its draws")
    if to == "clusters":
        run = posterior_of(family)(given, burn_in, table)
        run.weighted = weighted
        run.training_weights(weighted)  # may raise
        return _clusters(run, door, out, ids, sources, groups)
    if to in door.LINES:
        head, blocks, note = door.LINES[to](posterior_of(family)(given, burn_in, table))
        done = write_csv_lines(out, head, blocks)
        done.notes.append(note)
        return done
    if to in door.TEXTS:
        run = posterior_of(family)(given, burn_in, table)
        run.read_traces()
        return forms.write_lines(out, door.TEXTS[to](run), len(run.chains), to)
    burn_ins = [burn_in_of(run_dir) if burn_in is None else burn_in for run_dir in given]
    kept, notes = None, []
    if to == "arviz" and door.FORMS:
        try:
            run = posterior_of(family)(given, burn_in, table)
            kept = door.parameters(run)
            burn_ins = [max(c.burn_in for c in run.chains)] * len(given)  # including the cycles of a growing subsample
        except DataError as error:
            if table is not None:
                raise
            notes.append(f"hyperparameters and weights are left out: {error}")
    done = forms.export(given, to, out, burn_ins, timings, kept if kept and kept[0] else None)
    done.notes.extend(notes)
    if to in forms.TEXTS:
        done.notes.extend(_left_out(given))
    return done


def _has(door: Any, form: str, run_dirs: Sequence[str | Path]) -> bool:
    """True if the runs have what a form writes."""
    try:
        door.NEEDS.get(form, lambda _: None)(run_dirs)
    except ConfigError:
        return False
    return True


def _check_target(out: Path, run_dirs: Sequence[str | Path], to: str, overwrite: bool) -> None:
    """Raise ConfigError, before any work is done, if the export cannot be written or may not replace a file."""
    inputs, n_chains = [], 1
    with suppress(MpibayesError):  # an unreadable run is reported when it is read
        n_chains = sum(len(chain_directories(run_dir)) for run_dir in run_dirs)
        inputs = files_of(run_dirs)
    several = forms.a_file_each(out, n_chains) if PURPOSES[to] == DRAWS and n_chains > 1 else [out]
    for path in several:
        check_export(path, PURPOSES[to], overwrite, inputs)


def _left_out(run_dirs: Sequence[str | Path]) -> list[str]:
    """Note that lines of labels, or of features, do not cover all rows of the table; [] if they do."""
    lists = [chain / TRAINING_ROWS for run_dir in run_dirs for chain in chain_directories(run_dir)]
    there = [path for path in lists if path.exists()]
    return [f"the training rows alone; {there[0]} lists them, from 0 (rows held out are in no draw)"] if there else []


def _clusters(
    run: Any, door: Any, out: str | Path | None, ids: Sequence[str], sources: Sequence[str | Path], groups: int | None
) -> Exported:
    names = RowNames(run.table, ids, [Path(source) for source in sources])
    clusters: Clusters = door.clusters(run, groups)
    columns = clusters.columns()

    def blocks() -> Iterator[list[list[str]]]:
        for start, texts in zip(range(0, run.table.n_rows, SLICE_ROWS), names.blocks(SLICE_ROWS), strict=True):
            yield [*texts, *(_texts(values[start : start + SLICE_ROWS]) for values in columns.values())]

    head = [name.heading for name in names.names]
    taken = {*("row", "line"), *columns}
    n_ids = head.index("row")
    head[:n_ids] = [f"{name}'" if name in taken else name for name in head[:n_ids]]
    done = write_csv_lines(out, [*head, *columns], blocks())
    done.notes.extend([clusters.about, *clusters.shares, *names.notes])
    n_out = int(columns["held_out"].sum())
    if n_out:
        done.notes.append(f"{counted(n_out, 'row')} held out: the most probable cluster given the draws (held_out)")
    return done


def _texts(values: np.ndarray) -> list[str]:
    """Format whole numbers, shares to four figures, and true or false."""
    if values.dtype == bool:
        return ["true" if x else "false" for x in values.tolist()]
    return [f"{x:.4g}" for x in values.tolist()] if values.dtype.kind == "f" else [str(x) for x in values.tolist()]
