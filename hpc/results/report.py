"""`mpibayes report`: tables, pictures and a machine-readable summary of the posterior of one or several chains."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from mpibayes.errors import ConfigError, MpibayesError
from mpibayes.hpc.posterior.chains import by_model, family_in
from mpibayes.hpc.registry import posterior_of
from mpibayes.hpc.report.document import Document
from mpibayes.hpc.report.drawing import require_extra
from mpibayes.hpc.report.page.page import page
from mpibayes.hpc.report.text import opening, parts, print_parts, text_of
from mpibayes.hpc.results.asked_report import asked_report
from mpibayes.hpc.results.compared import compared, default_folder, weighed
from mpibayes.io.files import make_directory, reading, replacing, writing
from mpibayes.io.target import REPORT, protect

PAGE, TEXT, NUMBERS = "report.html", "report.txt", "summary.json"


def report(
    run_dirs: str | Path | Sequence[str | Path], out: str | Path | None = None, burn_in: int | None = None,
    console: Any = None, table: str | Path | None = None, full: bool = False, compare: bool = False,
    weighted: bool | None = None,
) -> Path:  # fmt: skip
    """Write the report to `out` (DIR/report of the first directory): report.html, report.txt, summary.json, PNG
    pictures, and a regression's coefficients.csv; and print its verdict and largest results, or, with `full`, all of
    it.

    burn_in: cycles left out of each chain, instead of the configured number. table: present path of the run's table.
    weighted: True if clusters also have shares of the population, by default if the table has weights. Directories of
    one model are chains of one posterior; those of two models or more, or with `compare`, are compared (`compared`), by
    default in DIR/against-NAME of the first directory, with the report of each in a folder there. Returns the folder.
    Raises ConfigError (no run there, nothing after burn-in, `out` not writable, or with files that are no report),
    DataError (the table is missing or another one), CheckpointError (a damaged trace or labels segment, a full disk).
    """
    from mpibayes.terminal import Console, Text

    require_extra("matplotlib", "arviz")
    console = console or Console()
    run_dirs = [run_dirs] if isinstance(run_dirs, str | Path) else list(run_dirs)
    if not run_dirs:
        raise ConfigError("no run directory was given; expected one or more")
    sides = [[Path(home)] for home in run_dirs] if compare else by_model(run_dirs)
    if compare and len(sides) < 2:
        raise ConfigError("--compare: name two run directories or more")
    folder = Path(out) if out is not None else default_folder(sides)
    check_folder(folder)
    if len(sides) > 1:
        made = compared(sides, burn_in, table, weighted)
    else:
        made = report_of_one(run_dirs, burn_in, table, weighted)
    write(folder, made)
    print_parts(console, list(parts(made)) if full else opening(made))
    names = ", ".join(["summary.json", *made.files, *made.pictures])
    console.print()
    console.print(Text(f"{folder / PAGE}: the page, for a browser"), soft_wrap=True)
    console.print(Text(f"{folder / TEXT}: the same as text (also --full); beside it: {names}"), soft_wrap=True)
    return folder


def report_of_one(
    homes: Sequence[str | Path], burn_in: int | None, table: str | Path | None, weighted: bool | None = None
) -> Document:
    """Make the report of a run, or of several that are chains of one posterior."""
    run = posterior_of(family_in(homes[0]))(homes, burn_in, table)
    with weighed([run], weighted):
        return asked_report(run)


def check_folder(folder: Path) -> None:
    """Raise ConfigError if a folder cannot hold a report, or has files that are no report and would be replaced."""
    with reading(folder, ConfigError):
        if os.path.lexists(folder) and not folder.is_dir():
            raise ConfigError(f"{folder}: is not a folder; choose another place with --out")
        protect(folder / PAGE, REPORT)
        reported = all((folder / name).exists() for name in (TEXT, NUMBERS))
        there = [name for name in (PAGE, TEXT, NUMBERS) if (folder / name).exists()]
    if there and not reported:
        raise ConfigError(
            f"{folder / there[0]}: exists, and no report of ours made it; choose another place with --out"
        )


def _bytes(text: str) -> bytes:
    """Encode a text in UTF-8; undecodable bytes of a path in it are escaped."""
    return text.encode(errors="backslashreplace")


def write(folder: Path, made: Document) -> None:
    """Write the files of a report, all or none, and make the folder. Reports in its subfolders come first. Raises
    ConfigError, CheckpointError."""
    for name in made.beside:
        check_folder(folder / name)
    for name, report in made.beside.items():
        write(folder / name, report)
    files = {name: _bytes(content) for name, content in made.files.items()}
    document = json.dumps(made.numbers, indent=1, allow_nan=False) + "\n"
    files |= {**made.pictures, TEXT: _bytes(text_of(made)), PAGE: _bytes(page(made)), NUMBERS: document.encode()}
    new = not folder.exists()
    try:
        with writing(folder), ExitStack() as stack:
            make_directory(folder)
            for name, content in files.items():
                file = stack.enter_context(replacing(folder / name))
                file.write(content)
                file.flush()  # a full disk raises before the first file gets its name
    except MpibayesError:
        if new:
            with suppress(OSError):
                folder.rmdir()
        raise
