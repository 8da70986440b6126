"""A run of a few seconds on arrays, in this process, for estimators: the same run loop, in a temporary run directory.

The directory belongs to the object: it is removed with it, and included in its pickles.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mpibayes.errors import MpibayesError
from mpibayes.hpc.config.places import as_toml, bare
from mpibayes.hpc.data.events import Known
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.io.rows import Rows
from mpibayes.io.table import table_from_arrays, write_table

TABLE, CONFIG, RUN = "table.h5", "run.toml", "run"

# name, kind, cells (n,): level codes with -1 for missing, or numbers with NaN; levels of a categorical column
Columns = Sequence[tuple[str, str, np.ndarray, Sequence[str] | None]]


class InProcess:
    """A finished run. write: makes the table at a path; config: the sections of the run's configuration, without
    `data.table`.

    draws: maximal number to average over. directory: of the run, None for a temporary one; an existing run is
    continued. Raises ConfigError, DataError, NumericalError.
    """

    _pickled: tuple[str, ...] = ("_draws", "_kept")

    def __init__(
        self, write: Callable[[Path], object], config: Mapping[str, Any], draws: int, directory: str | Path | None
    ):
        from mpibayes.hpc.run.loop import in_process

        self._draws = draws
        self._kept = None if directory is None else Path(directory)
        self._open(self._kept or self._temporary())
        self._folder.mkdir(parents=True, exist_ok=True)
        write(self._folder / TABLE)
        (self._folder / CONFIG).write_text(
            _toml({**config, "data": {"table": TABLE, **config.get("data", {})}}), encoding="utf-8"
        )
        try:
            in_process(self._folder / CONFIG, self._folder / RUN)
        except MpibayesError as error:  # the user never saw the temporary folder
            words = [text.replace(f"{self._folder}{os.sep}", "") for text in (error.message, *error.problems)]
            raise type(error)(words[0], words[1:]) from None

    def _temporary(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="mpibayes-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder

    def _open(self, folder: Path) -> None:
        self._folder = folder

    # --- pickles -----------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        state = {name: self.__dict__[name] for name in self._pickled}
        if self._kept is None:
            archive = io.BytesIO()
            with tarfile.open(fileobj=archive, mode="w:gz", compresslevel=1) as tar:
                tar.add(self._folder, ".")
            state["archive"] = archive.getvalue()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        archive = state.pop("archive", None)
        self.__dict__.update(state)
        self._open(self._kept or self._temporary())
        if archive is not None:
            with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
                tar.extractall(self._folder, filter="data")


class Fitted(InProcess):
    """A finished run and its predictions. columns: of the table. probabilities: True if predictions include those of
    clusters. The other arguments and errors are those of `InProcess`."""

    _pickled = (*InProcess._pickled, "family", "_probabilities", "_columns")

    def __init__(
        self,
        columns: Columns,
        config: Mapping[str, Any],
        draws: int,
        directory: str | Path | None = None,
        probabilities: bool = False,
    ):
        self.family, self._probabilities = str(config["model"]["family"]), probabilities
        self._columns = [(name, kind, levels) for name, kind, _, levels in columns]

        def write(path: Path) -> None:
            write_table(path, *table_from_arrays(columns), overwrite=True)

        super().__init__(write, config, draws, directory)

    @cached_property
    def posterior(self) -> Any:
        """Run opened for reading."""
        from mpibayes.hpc.registry import posterior_of

        posterior = posterior_of(self.family)([self._folder / RUN], None, self._folder / TABLE)
        posterior.read_traces()
        return posterior

    @cached_property
    def _forecast(self) -> Any:
        from mpibayes.hpc.family import Request
        from mpibayes.hpc.registry import forecast_of

        request = Request(self._folder / TABLE, self._draws, self._probabilities)
        forecast = forecast_of(self.family)(self.posterior, request)
        forecast.prepare()
        return forecast

    def predict(self, cells: Mapping[str, np.ndarray], n: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Columns of `mpibayes predict` for n rows, (n,) each, and the log densities of rows that have one. cells: by
        column, as in Columns; absent columns are missing."""
        rows = self._rows(cells, n)
        parts, density = [], []
        for start in range(0, n, self._forecast.batch):
            predictions = self._forecast(rows.take(slice(start, start + self._forecast.batch)), start)
            parts.append({name: np.asarray(values) for name, values in predictions.columns.items()})
            density.append(predictions.log_density)
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, np.concatenate(density)

    def _rows(self, cells: Mapping[str, np.ndarray], n: int) -> Rows:
        """Rows of the table's columns from cells."""
        blank = {True: np.full(n, -1), False: np.full(n, np.nan)}
        columns = [
            (name, kind, cells.get(name, blank[levels is not None]), levels) for name, kind, levels in self._columns
        ]
        rows: Rows = table_from_arrays(columns)[1]
        return rows

    def simulate(self, n: int, seed: int) -> dict[str, np.ndarray]:
        """Draw n rows from the posterior predictive distribution, by column (n,): level codes or numbers."""
        laws = list(self.posterior.draws(self._draws))
        names = [name for name, _, _ in self._columns]
        u = Stream(seed, Purpose.SIMULATED, cycle=0).uniforms(np.arange(n))
        chosen = np.minimum((u * len(laws)).astype(np.int64), len(laws) - 1)
        cells = {name: np.empty(n) for name in names}
        for d, law in enumerate(laws):
            at = np.flatnonzero(chosen == d)
            if len(at):
                stream = Stream(seed, Purpose.SIMULATED, cycle=d + 1)
                for name, x in law.simulate(Known(len(at), {}), names, stream, np.arange(len(at))).items():
                    cells[name][at] = x
        return cells


def _toml(sections: Mapping[str, Mapping[str, Any]]) -> str:
    lines = []
    for section, keys in sections.items():
        lines.append(f"[{'.'.join(map(bare, section.split('.')))}]")
        lines += [f"{bare(key)} = {as_toml(value)}" for key, value in keys.items()]
    return "\n".join(lines) + "\n"
