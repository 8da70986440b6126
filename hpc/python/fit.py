"""`mpibayes.fit`: start or continue a run from Python. It runs the same program as a child process, with the same run
directory."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpibayes.errors import ConfigError
from mpibayes.hpc.parallel.launcher import launcher_size
from mpibayes.hpc.python import child, frames
from mpibayes.hpc.python.display import display_for
from mpibayes.hpc.python.grow import with_more_rows
from mpibayes.hpc.python.placed import placed
from mpibayes.hpc.python.rows import in_words_of_python
from mpibayes.hpc.python.settings import overrides

if TYPE_CHECKING:
    from mpibayes.hpc.python.run import Run


def fit(
    data: Any,
    directory: str | os.PathLike[str] | None = None,
    *,
    run: Run | str | os.PathLike[str] | None = None,
    ranks: int | None = None,
    family: str | None = None,
    likelihood: str | bool | None = None,
    response: str | None = None,
    predictors: Sequence[str] | None = None,
    cycles: int | None = None,
    chains: int | None = None,
    seed: int | None = None,
    burn_in: int | None = None,
    heldout: float | str | os.PathLike[str] | None = None,
    until_settled: bool | None = None,
    max_time: float | str | datetime.timedelta | None = None,
    config: Mapping[str, Any] | None = None,
    kinds: Mapping[str, str] | None = None,
    schema: str | os.PathLike[str] | None = None,
    missing: Sequence[str] = (),
    weight: str | None = None,
    fresh: bool = False,
    progress: bool = True,
) -> Run:
    """Start a run, or continue the one that is in `directory`, wait for it, and open it.

    data: a file that can be imported, a typed table (.h5) or a configuration (.toml), by its path; or a DataFrame of
        pandas or polars, a pyarrow Table, a dict of columns, anything else with __arrow_c_stream__.
    directory: of the run; by default runs/NAME beside the file. For a DataFrame, the default is a temporary directory,
        which is reported.
    run: a run, or its directory, to which the rows of `data` are added: they are appended to its table, which is
        allowed if the columns are the table's (docs/append.md), and the run continues with all rows, as with --grow. It
        keeps its settings; only cycles, burn_in, until_settled, max_time and ranks may change. Its earlier results are
        kept in its folder grown. After an interrupt, the same call continues and appends nothing.
    ranks: number of processes, under mpirun if several; by default run.ranks, which means as many as have work, on the
        cores of this machine. Results have the same bits on any number.
    family ... heldout: keys of the configuration (docs/configuration.md). heldout: 0 for none. By default a data file
        gets two chains and a tenth of its rows held out.
    until_settled: end once the chains agree, after `cycles` at the latest.
    max_time: stop at a checkpoint within this time; seconds, "3h50m" or a timedelta.
    config: other keys, {"sampler.strategy": "anneal"} or nested.
    kinds, schema, missing: how columns are imported, as in `mpibayes import`: {"zip": "categorical"}; ...
    weight: the column of survey weights. The fit uses the rows as they are; answers are about the population.
    fresh: start over; an existing run is renamed.
    progress: show the progress of the run.

    Returns the run, whose answers have the type of `data` (pandas, polars or pyarrow).

    Raises ConfigError, DataError, CheckpointError or NumericalError with the program's message; Interrupted, a
    KeyboardInterrupt, once an interrupted run has ended at a checkpoint: the same call continues it.
    """
    from mpibayes.hpc.python.run import open_run

    if launcher_size() > 1:
        raise ConfigError("fit starts its ranks itself: call it from one process, not under mpirun")
    if ranks is not None and ranks < 1:
        raise ConfigError(f"ranks = {ranks}: expected a whole number, 1 or more")
    given = {
        "family": family, "likelihood": likelihood, "response": response, "predictors": predictors, "cycles": cycles,
        "chains": chains, "seed": seed, "burn_in": burn_in, "heldout": heldout,
    }  # fmt: skip
    settings = overrides(given, until_settled, config)
    display = display_for(progress)
    try:
        how: dict[str, Any] = {"kinds": kinds, "schema": schema, "missing": missing, "weight": weight}
        if run is None:
            source, folder = placed(data, directory, fresh, display, **how)
        else:
            refused = {"directory": directory is not None, "fresh": fresh, **how}
            source, folder, settings = with_more_rows(data, run, settings, refused, display)
        words = ["run", str(source), "-o", str(folder)]
        words += [word for setting in settings for word in ("--set", setting)]
        words += [] if max_time is None else ["--max-time", _seconds(max_time)]
        words += ["--fresh"] if fresh else ["--grow"] if run is not None else []
        words += [] if ranks is None else ["--ranks", str(ranks)]
        process = child.start(words)
    except BaseException:
        display.close()
        raise
    child.Watched(process, folder, display).wait()
    return open_run(folder, frames=frames.kind_of(data) if not frames.is_path(data) else "pyarrow")


def import_table(
    data: Any,
    table: str | os.PathLike[str],
    *,
    kinds: Mapping[str, str] | None = None,
    schema: str | os.PathLike[str] | None = None,
    missing: Sequence[str] = (),
    keep: Sequence[str] = (),
    drop: Sequence[str] = (),
    ordered: Sequence[str] = (),
    unordered: Sequence[str] = (),
    sheet: str | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    names: Sequence[str] | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    dates: str | None = None,
    calendar: Sequence[str] = (),
    count: str | None = None,
    weight: str | None = None,
    survival: str | Sequence[str] = (),
    overwrite: bool = False,
    verbose: bool = False,
) -> Path:
    """Make a typed table (.h5) from a DataFrame, or a file that can be imported; print what became of each column.

    kinds: {"zip": "categorical"}; one of categorical, boolean, real, count, ignored. schema: a TOML file that specifies
    all columns. missing: texts of missing cells in addition to the usual ones. keep, drop: columns to use, or to leave
    out, whatever they look like. ordered, unordered: columns whose categories are ordered, or are not, whatever they
    look like; ["none"]: only those named. An ordered Categorical keeps its order. sheet: of an Excel workbook, by
    default the first. encoding, delimiter, header, names (of the columns), decimal, thousands, dates ("day-first" or
    "month-first"): form of a text file, if it cannot be inferred. calendar: columns of dates whose weekday, month and
    hour become columns, too. count: the column with the number of equal rows that each row represents; the table has
    them all. weight: the column of survey weights, which are kept beside the rows. survival: pairs of columns,
    "TIME,EVENT" or "TIME,EVENT=VALUE", merged into one: how long each row was observed, and whether the event occurred.
    Returns the path. Raises ConfigError, DataError.
    """
    from mpibayes.io import ingest
    from mpibayes.io.summary import print_summary
    from mpibayes.terminal import output

    with in_words_of_python(), frames.as_file(data) as source:
        summary = ingest.import_table(
            source,
            table,
            kinds=kinds,
            schema=schema,
            missing=list(missing),
            keep=list(keep),
            drop=list(drop),
            ordered=list(ordered),
            unordered=list(unordered),
            sheet=sheet,
            encoding=encoding,
            delimiter=delimiter,
            header=header,
            names=names,
            decimal=decimal,
            thousands=thousands,
            dates=dates,
            calendar=calendar,
            count=count,
            weight=weight,
            survival=[survival] if isinstance(survival, str) else list(survival),
            overwrite=overwrite,
        )
    print_summary(summary, output(), verbose)
    return Path(table)


def _seconds(time: float | str | datetime.timedelta) -> str:
    return str(time.total_seconds() if isinstance(time, datetime.timedelta) else time)
