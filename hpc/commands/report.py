"""`mpibayes report`: tables, pictures and a machine-readable summary of the posterior of one or several chains."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from mpibayes.errors import ConfigError
from mpibayes.hpc.page.page import page
from mpibayes.hpc.posterior.chains import family_in
from mpibayes.hpc.posterior.drawing import load_matplotlib
from mpibayes.hpc.posterior.sections import ASKED, BAD, DOUBT, GOOD
from mpibayes.hpc.posterior.tables import Report, commands_in_words
from mpibayes.hpc.registry import posterior_of, report_of
from mpibayes.io.files import reason, write_bytes, write_text

WIDTH = 118  # of report.txt


def require_extra(*modules: str) -> None:
    """Raises ConfigError when a library of the `report` extra is not installed; else makes sure that matplotlib, which
    all of them need, can be imported."""
    lacking = [name for name in modules if importlib.util.find_spec(name) is None]
    if lacking:
        raise ConfigError(f"the report needs {' and '.join(lacking)}: pip install '.[report]' in the program's folder")
    load_matplotlib()


def report(
    run_dirs: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    burn_in: int | None = None,
    console: Any = None,
    table: str | Path | None = None,
    full: bool = False,
) -> Path:
    """Write the report to `out` (DIR/report of the first directory): report.html, report.txt, summary.json, PNG
    pictures, and coefficients.csv of a regression; and print its verdict and what is largest, or, `full`, all of it.

    burn_in: cycles left out of each chain, instead of what the configuration says. table: where the run's table is now.
    Returns the folder. Raises ConfigError (no run there, nothing after burn-in, `out` not writable), DataError (the
    table is missing or another one), CheckpointError (a damaged trace or labels segment).
    """
    from mpibayes.terminal import Console, Text

    require_extra("matplotlib", "arviz")
    console = console or Console()
    run_dirs = [run_dirs] if isinstance(run_dirs, str | Path) else list(run_dirs)
    if not run_dirs:
        raise ConfigError("no run directory was given; expected one or more")
    family = family_in(run_dirs[0])
    kept = posterior_of(family)(run_dirs, burn_in, table)
    folder = Path(out) if out is not None else Path(run_dirs[0]) / "report"
    make_folder(folder)
    made = report_of(family)(kept)
    write(folder, made)
    _print(console, made.parts() if full or made.verdict is None else _opening(made))
    names = ", ".join(["summary.json", *made.files, *made.pictures])
    console.print()
    console.print(Text(f"{folder / 'report.html'}: the page, to look at in a browser"), soft_wrap=True)
    console.print(
        Text(f"{folder / 'report.txt'}: all of it as text (also with --full); there too: {names}"), soft_wrap=True
    )
    return folder


def _opening(made: Report) -> list[Any]:
    """The verdict, and small tables of what is largest: a screen or two."""
    from rich.table import Table

    from mpibayes.terminal import Text

    v, homes = made.verdict, dict.fromkeys(str(c.home) for c in made.chains)
    style = {GOOD: "bold green", DOUBT: "bold yellow", BAD: "bold red"}[v.sound]
    text = Text(f"{', '.join(homes)}: ").append(str(v).lower(), style=style)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", width=max(len(question) for question, _ in ASKED))
    grid.add_column(overflow="fold")
    if v.approximation:
        grid.add_row("An approximation", Text(v.approximation, style="yellow"))
    for question, name in ASKED:
        for i, sentence in enumerate(getattr(v, name)):
            grid.add_row("" if i else question, Text(sentence))
    shown: list[Any] = [text, grid, *commands_in_words(v.commands)]
    for part in made.top():
        shown += ["", part]
    return shown


def _print(console: Any, parts: Sequence[Any]) -> None:
    """A text that is not to be wrapped, such as a command, is a whole line whatever the width."""
    for part in parts:
        console.print(part, soft_wrap=bool(getattr(part, "no_wrap", False)))


def make_folder(folder: Path) -> None:
    """Raises ConfigError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be made: {reason(error)}; choose another place with --out") from None


def text_of(made: Report) -> str:
    """The report as it is in report.txt."""
    from mpibayes.terminal import Console

    text = StringIO()
    paper = Console(file=text, width=WIDTH, color_system=None, force_terminal=False, legacy_windows=False)
    _print(paper, made.parts())
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def write(folder: Path, made: Report) -> None:
    """Its files, in a folder that is there. Raises ConfigError."""
    text, html = text_of(made), page(made)
    try:
        for name, image in made.pictures.items():
            write_bytes(folder / name, image)
        for name, content in made.files.items():
            write_text(folder / name, content)
        write_text(folder / "report.txt", text)
        write_text(folder / "report.html", html)
        write_text(folder / "summary.json", json.dumps(made.document, indent=1, allow_nan=False) + "\n")
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written: {reason(error)}; choose another place with --out") from None
