"""`mpibayes.fit(df, run=...)`: append later rows to the table of a run, and continue the run with them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpibayes.errors import ConfigError
from mpibayes.hpc.python import frames
from mpibayes.hpc.python.display import Display
from mpibayes.hpc.python.rows import in_words_of_python

if TYPE_CHECKING:
    from mpibayes.hpc.python.run import Run


def with_more_rows(
    data: Any, run: Run | str | os.PathLike[str], settings: Sequence[str], refused: Mapping[str, Any], display: Display
) -> tuple[Path, Path, list[str]]:
    """Append the rows to the table of a run; return the configuration to continue with, its directory, and settings:
    those decided anew for the longer table, followed by the given ones.

    Nothing is appended if the run could not continue with these settings. Rows already appended by an interrupted
    earlier call are not appended twice. refused: arguments of `fit` that only a new run accepts, by name. Raises
    ConfigError and DataError.
    """
    from mpibayes.hpc.config.against_table import check_columns
    from mpibayes.hpc.config.load import load
    from mpibayes.hpc.posterior.chains import home_of
    from mpibayes.hpc.run.directory import require_same_run
    from mpibayes.hpc.run.identity import AUTO, RESOLVED, read_provenance
    from mpibayes.io.append import RowsAreThere, append_rows

    if given := [name for name, value in refused.items() if value]:
        raise ConfigError(f"{given[0]}: is for a new run; in an existing run the table says what its columns are")
    place = run if isinstance(run, str | os.PathLike) else run.directory
    folder = home_of(Path(place).expanduser(), whole=False)  # this start completes an interrupted growth
    settings = [*(f"run.{key}=auto" for key in read_provenance(folder).get(AUTO, ())), *settings]
    config = load(folder / RESOLVED, settings)
    require_same_run(folder, config)
    table = config.table
    with in_words_of_python(), frames.as_file(data) as source:
        try:
            appended = append_rows(source, table, check=partial(check_columns, config, begun=True))
        except RowsAreThere:
            display.say(f"{table}: has these rows already")
        else:
            for line in appended.lines():
                display.say(line)
    return folder / RESOLVED, folder, settings
