"""`mpibayes.fit`: start or continue a run from Python. It is the same program, as a child process, and the same run
directory."""

from __future__ import annotations

import datetime
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpibayes.errors import ConfigError, DataError, MpibayesError
from mpibayes.hpc.config.places import as_toml, dotted
from mpibayes.hpc.parallel.launcher import launcher_size
from mpibayes.hpc.python import child, frames
from mpibayes.hpc.python.display import Display, display_for
from mpibayes.hpc.python.index import keep_index
from mpibayes.hpc.python.rows import in_words_of_python
from mpibayes.hpc.run.from_file import is_data, stem
from mpibayes.io.documents import TooMuch, check_values

if TYPE_CHECKING:
    from mpibayes.hpc.python.run import Run
    from mpibayes.io.table import Table

# keyword: key of the configuration
KEYS = {
    "family": "model.family",
    "likelihood": "model.likelihood",
    "response": "regression.response",
    "predictors": "regression.predictors",
    "cycles": "run.cycles",
    "chains": "run.chains",
    "seed": "run.seed",
    "burn_in": "run.burn_in",
    "heldout": "data.heldout",
}


def fit(
    data: Any,
    directory: str | os.PathLike[str] | None = None,
    *,
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
        "chains": chains, "seed": seed, "burn_in": burn_in, "heldout": _heldout(heldout),
    }  # fmt: skip
    settings = _settings({KEYS[name]: value for name, value in given.items() if value is not None}, config or {})
    if until_settled is not None:
        settings.setdefault("run.until", "settled" if until_settled else "cycles")
    display = display_for(progress)
    try:
        source, folder = _placed(data, directory, fresh, display)
        if kinds or schema is not None or missing or weight is not None:
            if source.suffix == ".toml":
                names = "kinds, schema, missing and weight"
                raise ConfigError(f"{source}: {names} are for data that is imported, not for a table")
            options = {"kinds": kinds, "schema": schema, "missing": missing, "weight": weight}
            source = _imported(source, folder, fresh, display, **options)
        words = ["run", str(source), "-o", str(folder)]
        words += [word for key, value in settings.items() for word in ("--set", f"{key}={as_toml(value)}")]
        words += [] if max_time is None else ["--max-time", _seconds(max_time)]
        words += ["--fresh"] if fresh else []
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
    Returns the path. Raises ConfigError, DataError.
    """
    from mpibayes.io import ingest
    from mpibayes.io.summary import print_summary
    from mpibayes.terminal import output

    with in_words_of_python(), _as_file(data) as source:
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
            overwrite=overwrite,
        )
    print_summary(summary, output(), verbose)
    return Path(table)


@contextmanager
def _as_file(data: Any) -> Iterator[Path]:
    """The path that was given, or a Parquet file of a DataFrame, for as long as it is needed."""
    if frames.is_path(data):
        yield Path(data).expanduser()
        return
    with tempfile.TemporaryDirectory(prefix="mpibayes-") as folder:
        place = Path(folder) / f"{frames.NAME}.parquet"
        frames.write_parquet(frames.to_arrow(data), place)
        try:
            yield place
        except MpibayesError as error:
            raise frames.retold(error, place) from None


def _heldout(heldout: Any) -> Any:
    """Value of data.heldout: None if nothing was given, "none" for no rows, a path, or a fraction."""
    if heldout is None:
        return None
    if isinstance(heldout, str | os.PathLike):
        text = os.fspath(heldout)
        return text if text == "none" else str(Path(text).expanduser().absolute())
    return float(heldout) if heldout else "none"


def _seconds(time: float | str | datetime.timedelta) -> str:
    return str(time.total_seconds() if isinstance(time, datetime.timedelta) else time)


def _settings(keywords: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Values by dotted key. Raises ConfigError where one is given twice, or is beyond the limits of a document."""
    settings: dict[str, Any] = {}
    for key, value in [*keywords.items(), *_flat(config)]:
        if key in settings:
            raise ConfigError(f"{key}: given twice, as a keyword and in config")
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        elif hasattr(value, "tolist"):  # of NumPy
            value = value.tolist()
        settings[key] = "none" if value is None else value
    try:
        check_values(settings)
    except TooMuch as error:
        raise ConfigError(f"config: {error}") from None
    return settings


def _flat(config: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of a configuration whose keys are dotted, or nested as in a TOML file."""
    for key, value in config.items():
        if isinstance(value, Mapping) and "." not in key and len(above) < (2 if above[:1] == ("columns",) else 1):
            yield from _flat(value, (*above, key))
        else:
            yield (dotted((*above, key)) if above else key), value


def _placed(data: Any, directory: str | os.PathLike[str] | None, fresh: bool, display: Display) -> tuple[Path, Path]:
    """The file that the program is given, and the run directory. A DataFrame is written beside the run directory."""
    folder = None if directory is None else Path(directory).expanduser()
    if frames.is_path(data):
        path = Path(data).expanduser()
        if folder is None:
            folder = path.parent / "runs" / (stem(path) if is_data(path) else path.stem)
        return path, folder
    table = frames.to_arrow(data)
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="mpibayes-")) / "run"
        display.say(f"the run is in {folder}; name a directory to find it again")
    if folder.name in ("", ".."):
        raise ConfigError(f"directory = {str(folder)!r}: needs a name, for its table lies beside it and has it too")
    _make(folder.parent)
    place, new = (folder.with_name(f"{folder.name}{end}.parquet") for end in ("", ".new"))
    frames.write_parquet(table, new)
    _put(new, place, _same_rows, folder, fresh, "of another DataFrame")
    if note := keep_index(data, folder):
        display.say(note)
    return place, folder


def _put(new: Path, place: Path, same: Callable[[Path, Path], bool], folder: Path, fresh: bool, what: str) -> None:
    """A table that was made anew in its place beside the run directory, unless it is there; nothing is left over.

    Raises ConfigError where a run was started with another one.
    """
    try:
        if place.exists() and same(new, place):
            return
        if place.exists() and (folder / "config.toml").exists() and not fresh:
            raise ConfigError(f"{folder}: holds a run {what}, which was left as it is; choose another directory")
        os.replace(new, place)
    finally:
        new.unlink(missing_ok=True)


def _make(folder: Path) -> None:
    from mpibayes.io.files import make_directory, writing

    with writing(folder):
        make_directory(folder)


def _same_rows(a: Path, b: Path) -> bool:
    import pyarrow as pa
    import pyarrow.parquet

    try:
        one, other = (pyarrow.parquet.read_table(path) for path in (a, b))
        return one.column_names == other.column_names and all(
            frames.decoded(x).equals(frames.decoded(y)) for x, y in zip(one.columns, other.columns, strict=True)
        )
    except (OSError, pa.ArrowException):
        return False


def _same_table(new: Path, place: Path) -> bool:
    """True if two tables hold the same cells. Where they differ in which columns are in order, or in the weights of
    rows, which no run depends on, the new one replaces the one that is there."""
    from mpibayes.io.table import Table

    try:
        one, other = Table.open(new), Table.open(place)
    except DataError:
        return False
    same = one.fingerprint == other.fingerprint
    if same and (one.columns != other.columns or not _same_weights(one, other)):
        os.replace(new, place)
    return same


def _same_weights(one: Table, other: Table) -> bool:
    if one.weight is None or other.weight is None:
        return one.weight == other.weight
    return one.weight == other.weight and bool((one.weights() == other.weights()).all())


def _imported(source: Path, folder: Path, fresh: bool, display: Display, **options: Any) -> Path:
    """The typed table beside the run directory, made with these options; the one that is there if it is the same."""
    from mpibayes.io import ingest
    from mpibayes.io.summary import summary_lines

    place, new = (folder.with_name(f"{folder.name}{end}.h5") for end in ("", ".new"))
    _make(folder.parent)
    with in_words_of_python():
        summary = ingest.import_table(source, new, overwrite=True, **options)
    for line in summary_lines(summary):
        if line.startswith(child.ADVICE):
            display.say(child.in_python(line))
    _put(new, place, _same_table, folder, fresh, "of another table, or with other columns")
    return place
