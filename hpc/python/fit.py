"""`mpibayes.fit`: start or continue a run from Python. It is the same program, as a child process, and the same run
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
    directory: of the run; by default runs/NAME beside the file. Of a DataFrame without one it is a temporary
        directory, which is reported.
    run: a run, or its directory, that the rows of `data` come to: they are appended to its table, which is in order
        where the columns are the table's (docs/append.md), and the run goes on with all rows, as with --grow. Its
        settings are those it has; cycles, burn_in, until_settled, max_time and ranks may be others. What it was so far
        is kept in its folder grown. The same call again, after an interrupt, goes on and appends nothing.
    ranks: processes, under mpirun where there are several; by default run.ranks, which means as many as have work, on
        the cores of this machine. Results have the same bits on any number.
    family ... heldout: keys of the configuration (docs/configuration.md). heldout: 0 for none. Without them a data file
        gets two chains and a tenth of its rows held out.
    until_settled: end once the chains agree, after `cycles` at the latest.
    max_time: stop at a checkpoint before it has passed; seconds, "3h50m" or a timedelta.
    config: other keys, {"sampler.strategy": "anneal"} or nested.
    kinds, schema, missing: how columns are imported, as of `mpibayes import`: {"zip": "categorical"}; ...
    weight: the column of survey weights. The fit is of the rows as they are; answers speak of the population.
    fresh: start over; a run that is there is renamed.
    progress: whether to show how far it is.

    Returns the run, in which answers are of the kind of `data` (pandas, polars or pyarrow).

    Raises ConfigError, DataError, CheckpointError or NumericalError with what the program says; Interrupted, a
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
    """Make a typed table (.h5) of a DataFrame, or of a file that can be imported; print what each column became.

    kinds: {"zip": "categorical"}; one of categorical, boolean, real, count, ignored. schema: a TOML file that says it
    of all columns. missing: texts of missing cells besides the usual ones. keep, drop: columns that are, and are not,
    part of it whatever they look like. ordered, unordered: columns whose categories are in order, and are not, whatever
    they look like; ["none"]: none but those that are named. An ordered Categorical keeps its order. sheet: of an Excel
    workbook, by default the first. encoding, delimiter, header, names (of the columns), decimal, thousands, dates
    ("day-first" or "month-first"): how a text file is written, where that is not to be found out. calendar: columns of
    dates whose weekday, month and hour become columns, too. count: the column that says how many equal rows each row
    stands for; the table has them all. weight: the column of survey weights, which are kept beside the rows.
    survival: pairs of columns, "TIME,EVENT" or "TIME,EVENT=VALUE", that become one: how long each row was watched, and
    whether the event came. Returns the path. Raises ConfigError, DataError.
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
