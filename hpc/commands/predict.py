"""`mpibayes predict`: what a run says of new rows, averaged over its draws; they stream from file to file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpibayes.errors import ConfigError
from mpibayes.hpc.family import Forecast
from mpibayes.hpc.posterior.chains import family_in
from mpibayes.hpc.registry import forecast_of, posterior_of
from mpibayes.io.files import reading, reason, replacing
from mpibayes.io.rows import Rows
from mpibayes.text import counted

FORMS = (".csv", ".csv.gz", ".parquet")


@dataclass(frozen=True)
class Predicted:
    """What a prediction wrote, and what the user should know."""

    path: Path
    n_rows: int
    n_draws: int
    log_density: float  # mean over the rows that have one, else NaN
    notes: tuple[str, ...] = ()


def predict(
    run_dir: str | Path,
    source: str | Path,
    out: str | Path,
    *,
    unseen: str = "missing",
    draws: int | None = None,
    burn_in: int | None = None,
    table: str | Path | None = None,
    probabilities: bool = False,
    impute: bool = False,
    overwrite: bool = False,
    batch_rows: int | None = None,
    console: Any = None,
) -> Predicted:
    """Score the rows of `source` (CSV, Parquet or typed table) under the draws of all chains; write CSV or Parquet to
    `out`, a line a row in their order. draws: at most so many, evenly spaced. unseen: what a level
    that the table does not have is, "missing" or an "error". Columns that the file lacks are missing cells, too.

    Of a mixture: row (from 1), log_density, log_density_sd (over draws), cluster (number in the report, 0 = a new one),
    p_cluster, p_new; with `probabilities` p_1 ... p_R; with `impute` imputed_<name> and imputed_<name>_p (categorical:
    most probable level and its probability) or imputed_<name>_sd (mean and standard deviation) of every modelled
    column, empty where the cell was observed. Of a regression: see `hpc/regression/predict.py`.
    Raises ConfigError, DataError, CheckpointError.
    """
    from mpibayes.io.recode import lacking_columns, lacking_message, stream_like, unseen_message
    from mpibayes.terminal import Console

    console = console or Console(stderr=True)
    out = Path(out)
    _check_target(out, overwrite)
    if draws is not None and draws < 1:
        raise ConfigError(f"draws = {draws}: expected a whole number, 1 or more")
    family = family_in(run_dir)
    kept = posterior_of(family)([run_dir], burn_in, table)
    forecast: Forecast = forecast_of(family)(kept, Path(source), draws, probabilities, impute)
    lacking = lacking_columns(forecast.like, source, forecast.may_lack)
    record: dict = {}
    more = {"batch_rows": batch_rows} if batch_rows else {}
    rows = stream_like(forecast.like, source, unseen=unseen, may_lack=lacking, record=record, **more)
    first = next(rows, None)  # mistakes in the new file are reported before the long work
    notes = [lacking_message(lacking, forecast.like, source), unseen_message(record, source)]
    notes = tuple(note for note in notes if note)
    for note in notes:
        _say(console, f"note: {note}")
    _say(console, forecast.prepare())
    n_rows, n_scored, total = 0, 0, 0.0
    with _writer(out) as write:
        for block in _chain(first, rows):
            for start in range(0, len(block), forecast.batch):
                batch = block.take(slice(start, start + forecast.batch))
                columns, log_density = forecast(batch, n_rows)
                write(columns)
                n_rows += len(batch)
                n_scored += len(log_density)
                total += float(log_density.sum())
    mean = total / n_scored if n_scored else float("nan")
    of = f" of the {n_scored:,} whose response is there" if n_scored < n_rows else ""
    scored = f"; mean log density {mean:,.4f} nats a row{of}" if n_scored else ""
    _say(console, f"{counted(n_rows, 'row')} written to {out}{scored}")
    return Predicted(out, n_rows, forecast.n_draws, mean, notes)


def _say(console: Any, text: str) -> None:
    from mpibayes.terminal import Text

    console.print(Text(text), soft_wrap=True)


def _chain(first: Rows | None, rest: Iterator[Rows]) -> Iterator[Rows]:
    if first is not None:
        yield first
    yield from rest


def _check_target(out: Path, overwrite: bool) -> None:
    """Raises ConfigError before any work is done when nothing can be written at `out`."""
    if not out.name.endswith(FORMS):
        raise ConfigError(f"{out}: the ending of the name decides the format; expected {', '.join(FORMS)}")
    with reading(out, ConfigError):
        if out.is_dir():
            raise ConfigError(f"{out}: is a directory; name a file to write")
        if out.exists() and not overwrite:
            raise ConfigError(f"{out}: exists and is kept; choose another name or replace it with --force")
        if not out.parent.is_dir():
            raise ConfigError(f"{out}: cannot be written: no directory {out.parent}")


@contextmanager
def _writer(out: Path):
    """A function that appends a batch (names and arrays) to `out`, which appears whole at the end or not at all."""
    import gzip
    from contextlib import ExitStack

    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    try:
        with ExitStack() as stack:
            file = stack.enter_context(replacing(out))
            if out.name.endswith(".gz"):
                file = stack.enter_context(
                    gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6, mtime=0)
                )
            writer = None

            def write(columns: dict[str, Any]) -> None:
                nonlocal writer
                batch = pa.table(columns)
                if writer is None:
                    make = pyarrow.parquet.ParquetWriter if out.suffix == ".parquet" else pyarrow.csv.CSVWriter
                    writer = stack.enter_context(make(file, batch.schema))
                writer.write_table(batch)

            yield write
    except OSError as error:
        raise ConfigError(f"{out}: cannot be written: {reason(error)}") from None
