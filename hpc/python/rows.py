"""Arguments of a question from Python: rows in memory, read like a file; and conditions as values."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mpibayes.errors import ConfigError, MpibayesError
from mpibayes.hpc.python import frames
from mpibayes.hpc.python.child import in_python
from mpibayes.hpc.query.conditions import Item, Said
from mpibayes.hpc.query.new_rows import Named

if TYPE_CHECKING:
    from mpibayes.hpc.query.question import Question
Given = Mapping[str, Any] | Sequence[str] | str | None


@dataclass(frozen=True)
class Handed:
    """Rows passed to a question: their type, and the index of a pandas DataFrame (None for others)."""

    data: Any
    kind: frames.Kind
    index: Any

    @property
    def name(self) -> str:
        return Path(self.data).name if frames.is_path(self.data) else frames.NAME

    def places(self, rows: np.ndarray) -> Any:
        """Index entries of rows given by numbers from 1; None without an index."""
        return None if self.index is None else self.index[np.asarray(rows) - 1]

    @contextmanager
    def file(self, text: bool = False) -> Iterator[Path]:
        """Yield a file of the rows; errors about a temporary file name the DataFrame instead. text: make it CSV, the
        format for files of pairs."""
        if frames.is_path(self.data):
            yield Path(self.data).expanduser()
            return
        with tempfile.TemporaryDirectory(prefix="mpibayes-") as folder:
            place = Path(folder) / f"{frames.NAME}{'.csv' if text else '.parquet'}"
            write = frames.write_csv if text else frames.write_parquet
            write(frames.to_arrow(self.data), place)
            try:
                yield place
            except MpibayesError as error:
                raise frames.retold(error, place) from None


def handed(data: Any, kind: frames.Kind) -> Handed:
    """Wrap a DataFrame or a file of rows; `kind` is the type of answers about a file."""
    if frames.is_path(data):
        return Handed(data, kind, None)
    kind_of_rows = frames.kind_of(data)
    return Handed(data, kind_of_rows, data.index if kind_of_rows == "pandas" and hasattr(data, "columns") else None)


@contextmanager
def placed(question: Question) -> Iterator[Question]:
    """Yield the question with its rows in files, or as row numbers of the table. A DataFrame is written to a temporary
    file, and errors about it name the DataFrame."""
    with ExitStack() as files:

        def source(rows: Any) -> Any:
            numbers = numbers_of(rows) if question.NUMBERED else None
            if rows is None or numbers is not None:
                return numbers
            place = files.enter_context(handed(rows, "pyarrow").file())
            return place if frames.is_path(rows) else Named(place, frames.NAME)

        yield replace(question, **{name: source(getattr(question, name)) for name in question.FROM})


def conditions(given: Given) -> list[Item]:
    """Convert `given` to conditions for `hpc/query`: {"age": (40, 50)}, or as on the command line, "age=40..50" or
    ["age"]."""
    if given is None:
        return []
    if isinstance(given, str):
        return [given]
    if isinstance(given, Mapping):
        return [Said(str(name), value) for name, value in given.items()]
    return [*names(given)]


def names(columns: Sequence[str] | str | None) -> list[str]:
    """Check and list names of columns. Raises ConfigError."""
    if columns is None:
        return []
    listed = [columns] if isinstance(columns, str) else list(columns)
    wrong = [name for name in listed if not isinstance(name, str)]
    if wrong:
        raise ConfigError(f"{wrong[0]!r}: expected the name of a column")
    return listed


def numbers_of(rows: Any) -> np.ndarray | None:
    """Row numbers, ascending, if rows are given as numbers; None for other rows."""
    if isinstance(rows, int | np.integer) and not isinstance(rows, bool):
        rows = [rows]
    if not isinstance(rows, list | tuple | set | range | np.ndarray):
        return None
    numbers = np.asarray(sorted(rows) if isinstance(rows, set) else rows)
    if numbers.ndim != 1 or (len(numbers) and numbers.dtype.kind not in "iu"):
        raise ConfigError("rows: expected whole numbers of rows of the table, from 1, a DataFrame or a file")
    return np.unique(numbers.astype(np.int64))


@contextmanager
def folder_for_files() -> Iterator[Path]:
    """Yield a folder for files written by the command line; its errors are translated to the terms of Python."""
    with tempfile.TemporaryDirectory(prefix="mpibayes-") as folder, in_words_of_python():
        yield Path(folder)


def nowhere() -> Any:
    """Return a console that shows nothing."""
    from mpibayes.terminal import Console

    return Console(quiet=True)


@contextmanager
def in_words_of_python() -> Iterator[None]:
    """Translate errors of code shared with the command line to the terms of Python."""
    try:
        yield
    except MpibayesError as error:
        raise type(error)(in_python(error.message), [in_python(p) for p in error.problems]) from None
