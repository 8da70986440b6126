"""The report that compares runs on one table, with the report of each beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mpibayes.hpc.comparison.comparison import Side, compare, same_table
from mpibayes.hpc.comparison.report import make
from mpibayes.hpc.posterior.chains import family_in, home_of
from mpibayes.hpc.registry import posterior_of
from mpibayes.hpc.report.document import Document
from mpibayes.hpc.results.asked_report import asked_report
from mpibayes.text import visible

LETTERS = 60  # of a folder's name: at most 255 bytes, and a letter may take 4


def compared(
    sides: Sequence[Sequence[Path]], burn_in: int | None, table: str | Path | None, weighted: bool | None = None
) -> Document:
    """Compare runs, each given by its directories, which are chains of one posterior.

    Raises the same errors as `report`, and DataError if they are not on one table.
    """
    same_table([home_of(homes[0]) for homes in sides])
    runs = [posterior_of(family_in(homes[0]))(homes, burn_in, table) for homes in sides]
    with weighed(runs, weighted):
        return of_opened(sides, runs)


@contextmanager
def weighed(runs: Sequence[Any], weighted: bool | None) -> Iterator[None]:
    """Set whether the reports of these runs have shares of the population, by default if the table has weights. Raises
    ConfigError if they cannot."""
    for run in runs:
        run.training_weights(weighted)
        run.weighted = weighted
    try:
        yield
    finally:
        for run in runs:
            run.weighted = None


def of_opened(sides: Sequence[Sequence[Path]], runs: Sequence[Any]) -> Document:
    """Compare runs that are opened already."""
    same_table([run.chains[0].home for run in runs])
    names = names_of(sides)
    opened = [
        Side(visible(name), [str(home) for home in homes], run, asked_report(run))
        for name, homes, run in zip(names, sides, runs)
    ]
    return make(compare(opened), [_folder(name) for name in names])


def default_folder(sides: Sequence[Sequence[Path]]) -> Path:
    """DIR/report for a run, DIR/against-NAME for a comparison."""
    home, names = sides[0][0], [_folder(name) for name in names_of(sides)[1:]]
    return home / (f"against-{'-'.join(names)}"[:LETTERS] if names else "report")


def _folder(name: str) -> str:
    return name.replace(os.sep, "-")[-LETTERS:]


def names_of(sides: Sequence[Sequence[Path]]) -> list[str]:
    """Short name of each run: its directory relative to the common parent, with a number appended if it is taken."""
    places = [homes[0].resolve() for homes in sides]
    common, names = os.path.commonpath(places), []
    for place in places:
        path = os.path.relpath(place, common)
        stem = name = place.name if path == "." else path
        number = 2
        while _folder(name) in map(_folder, names):
            name, number = f"{stem}-{number}", number + 1
        names.append(name)
    return names
