"""`mpibayes predict`: a run's predictions for new rows, averaged over its draws; they stream from file to file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from mpibayes.errors import ConfigError, DataError
from mpibayes.hpc.family import Forecast, Request, SparseForecast
from mpibayes.hpc.posterior.chains import family_in, files_of
from mpibayes.hpc.registry import forecast_of, posterior_of
from mpibayes.hpc.report.advice import early_note
from mpibayes.io.files import replacing, writing
from mpibayes.io.rows import SLICE_ROWS
from mpibayes.io.target import ANSWER, COMPLETED, check_target, same_file
from mpibayes.text import counted

if TYPE_CHECKING:
    from gzip import GzipFile

    from mpibayes.io.complete import Fill

FORMS = (".csv", ".csv.gz", ".parquet")
LISTED = 8  # columns named, at most


@dataclass(frozen=True)
class Predicted:
    """Outcome of a prediction: its file, and notes for the user."""

    path: Path | None
    n_rows: int
    n_draws: int
    log_density: float  # mean over the rows that have one, NaN if none has
    notes: tuple[str, ...] = ()
    filled: Mapping[str, int] = field(default_factory=dict)  # filled cells by column


def predict(
    run_dir: str | Path | Sequence[str | Path], source: str | Path | None, out: str | Path | None = None, *,
    complete: str | Path | None = None, unseen: str = "missing", draws: int | None = None, burn_in: int | None = None,
    table: str | Path | None = None, probabilities: bool = False, impute: bool = False, groups: int | None = None,
    top: int | None = None, users: Sequence[str] = (), overwrite: bool = False, batch_rows: int = SLICE_ROWS,
    console: Any = None,
) -> Predicted:  # fmt: skip
    """Score the rows of `source` (of any file or typed table) under the draws of all chains; write CSV or Parquet to
    `out`, a line a row in their order, or the file with its gaps filled to `complete`, or both.

    draws: at most this many, evenly spaced. unseen: treatment of levels that the table does not have, "missing" or
    "error". Columns that the file lacks count as missing cells, too.
    For a mixture: row (from 1), log_density, log_density_sd (over draws), cluster (number in the report, 0: a new one),
    p_cluster, p_new; with `groups` group, of `groups`, and p_group; with `probabilities` p_1 ... p_R; with `impute`
    imputed_<name> and imputed_<name>_p (categorical: most probable level and its probability) or imputed_<name>_sd
    (mean and standard deviation) of every modelled column, empty if the cell was observed. For a regression: see
    `hpc/regression/predict.py`.
    complete: the source in its own format, gaps of modelled columns filled in (see `io.complete`), with its cluster
    and p_cluster beside each row; a regression fills in its response, with <name>_p or <name>_sd beside.
    For a sparse table see its `predict.py`; top, users: for recommendations.
    Raises ConfigError, DataError, CheckpointError.
    """
    from mpibayes.io.absent import Absence, rows_lacking
    from mpibayes.io.recode import incoming
    from mpibayes.terminal import Console

    console = console or Console(stderr=True)
    out, complete, source = (None if path is None else Path(path) for path in (out, complete, source))
    run_dirs = [run_dir] if isinstance(run_dir, str | Path) else list(run_dir)
    _check_targets(run_dirs, out, complete, source, overwrite)
    if out is None and (probabilities or impute or groups is not None):
        raise ConfigError("--probabilities, --impute and --groups are columns of the file that -o names; give it")
    if draws is not None and draws < 1:
        raise ConfigError(f"draws = {draws}: expected a whole number, 1 or more")
    family = family_in(run_dirs[0])
    kept = posterior_of(family)(run_dirs, burn_in, table)
    kept.refuse_groups(groups)
    asked = Request(source, draws, probabilities, impute, complete is not None, groups, top, users, unseen)
    kind = forecast_of(family)
    for option in asked.options:
        if option in kind.cannot:
            raise ConfigError(f"{run_dirs[0]}: {kind.cannot[option]}")
    if kept.sparse:
        if out is None:
            raise ConfigError("name a file for the predictions (-o)")
        return _of_sparse(cast(SparseForecast, kind(kept, asked)), out, console)
    if source is None:
        raise ConfigError("name a file with new rows")
    forecast = cast(Forecast, kind(kept, asked))
    rows, lacking, notes = incoming(forecast.like, source, unseen, forecast.may_lack, batch_rows=batch_rows)
    for note in notes:
        _say(console, f"note: {note}")
    _say(console, forecast.prepare())
    n_rows, n_scored, total, filled = 0, 0, 0.0, dict[str, int]()
    never: Counter[Absence] = Counter()
    with ExitStack() as stack:
        write = stack.enter_context(_writer(out)) if out else None
        fill = stack.enter_context(_completed(forecast, source, complete, lacking, filled)) if complete else None
        for block in rows:
            for start in range(0, len(block), forecast.batch):
                batch = block.take(slice(start, start + forecast.batch))
                try:
                    predictions = forecast(batch, n_rows)
                except DataError as error:
                    raise DataError(f"{source}: {error.message}", error.problems) from None
                if complete is not None or impute:
                    never.update(dict(rows_lacking(Absence.stored(forecast.like.source), forecast.like.columns, batch)))
                if write:
                    write(predictions.columns)
                if fill:
                    fill(len(batch), predictions.cells, predictions.beside)
                n_rows += len(batch)
                n_scored += len(predictions.log_density)
                total += float(predictions.log_density.sum())
    for a, n in never.items():
        what = f"the table {a.how_often} has '{a.column}' where {a.condition()}; {counted(n, 'row')} of {source} "
        notes = [*notes, f"{what}got what the model would expect if there were one"]
        _say(console, f"note: {notes[-1]}")
    mean = total / n_scored if n_scored else float("nan")
    of = f" of the {n_scored:,} whose response is there" if n_scored < n_rows else ""
    scored = f"; mean log density {mean:,.4f} nats a row{of}" if n_scored else ""
    if out:
        _say(console, f"{counted(n_rows, 'row')} written to {out}{scored}")
    if complete:
        each = [name for name, n in filled.items() if n]
        where = f" ({', '.join(each[:LISTED])}{', ...' * (len(each) > LISTED)})" if each else ""
        cells = f"{counted(sum(filled.values()), 'cell')} filled in{where}"
        _say(console, f"{counted(n_rows, 'row')} written to {complete}: {cells}{'' if out else scored}")
    if early := early_note(kept):
        _say(console, early)
    return Predicted(out, n_rows, forecast.n_draws, mean, tuple(notes), filled)


def _of_sparse(forecast: SparseForecast, out: Path, console: Any) -> Predicted:
    """Write the predictions of a model of a sparse table."""
    _say(console, forecast.prepare())
    n_lines = 0
    with _writer(out) as write:
        for columns in forecast.blocks():
            write(columns)
            n_lines += len(next(iter(columns.values())))
    notes = tuple(forecast.notes())
    for note in notes:
        _say(console, f"note: {note}")
    _say(console, f"{counted(n_lines, 'line')} written to {out}")
    mean = forecast.log_density / forecast.n_scored if forecast.n_scored else float("nan")
    return Predicted(out, n_lines, 1, mean, notes)


def _completed(
    forecast: Forecast, source: Path, complete: Path, lacking: list[str], filled: dict[str, int]
) -> AbstractContextManager[Fill]:
    from mpibayes.io.complete import completed

    return completed(forecast.like, source, complete, lacking, filled)


def _say(console: Any, text: str) -> None:
    from mpibayes.terminal import Text

    console.print(Text(text), soft_wrap=True)


def _check_targets(
    run_dirs: Sequence[str | Path], out: Path | None, complete: Path | None, source: Path | None, overwrite: bool
) -> None:
    """Raise, before any work is done, if a file cannot or must not be written."""
    if out is None and complete is None:
        raise ConfigError(
            "nothing to write: name a file for the predictions (-o), or for the filled-in rows (--complete)"
        )
    for path in (out, complete):
        if path is not None and not path.name.endswith(FORMS):
            raise ConfigError(f"{path}: the ending of the name decides the format; expected {', '.join(FORMS)}")
    inputs = [source, *files_of(run_dirs)]
    if out is not None:
        check_target(out, overwrite, ANSWER, inputs)
    if complete is not None and source is not None:
        from mpibayes.io.complete import check_format

        check_target(complete, overwrite, COMPLETED, inputs)
        if out is not None and same_file(out, complete):
            raise ConfigError(f"{out}: is named twice; give -o and --complete two files")
        check_format(source, complete)


@contextmanager
def _writer(out: Path) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Yield a function that appends a batch (names and arrays) to `out`, which appears whole at the end or never."""
    import gzip

    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    with writing(out), ExitStack() as stack:
        file: BinaryIO | GzipFile = stack.enter_context(replacing(out))
        if out.name.endswith(".gz"):
            file = stack.enter_context(gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6, mtime=0))
        writer = None

        def write(columns: Mapping[str, Any]) -> None:
            nonlocal writer
            batch = pa.table(columns)
            if writer is None:
                make = pyarrow.parquet.ParquetWriter if out.suffix == ".parquet" else pyarrow.csv.CSVWriter
                writer = stack.enter_context(make(file, batch.schema))
            writer.write_table(batch)

        yield write
