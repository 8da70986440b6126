"""The report of a run, in memory."""

from __future__ import annotations

import base64
import html
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mpibayes.hpc.report.document import Document
from mpibayes.hpc.report.drawing import require_extra
from mpibayes.hpc.report.text import text_of
from mpibayes.hpc.results import compared
from mpibayes.hpc.results import report as written
from mpibayes.hpc.results.asked_report import asked_report


class Report:
    """text: the report. pictures: PNG by name. document: the numbers, as in summary.json. files: further files by name.
    A notebook shows it with its pictures."""

    def __init__(self, made: Document, folder: Path):
        self._made, self._folder = made, folder
        self.text: str = text_of(made)
        self.document: dict[str, Any] = made.numbers
        self.pictures: Mapping[str, bytes] = made.pictures
        self.files: Mapping[str, str] = made.files

    def save(self, folder: str | os.PathLike[str] | None = None) -> Path:
        """Write report.txt, summary.json and the pictures; by default to DIR/report. Returns the folder. Raises
        ConfigError if it cannot be written."""
        place = self._folder if folder is None else Path(folder).expanduser()
        written.check_folder(place)
        written.write(place, self._made)
        return place

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        images = [
            f'<div><img alt="{html.escape(name)}" style="max-width: 100%" '
            f'src="data:image/png;base64,{base64.b64encode(image).decode()}"></div>'
            for name, image in self.pictures.items()
        ]
        return f"<pre>{html.escape(self.text)}</pre>{''.join(images)}"


def report(posterior: Any, directory: Path, weighted: bool | None = None) -> Report:
    """Report of an opened run. weighted: see `compared.weighed`. Raises ConfigError if the `report` extra is not
    installed."""
    require_extra("matplotlib", "arviz")
    with compared.weighed([posterior], weighted):
        return Report(asked_report(posterior), directory / "report")


def comparison(
    directories: Sequence[Sequence[Path]], posteriors: Sequence[Any], weighted: bool | None = None
) -> Report:
    """Compare opened runs, each given by its directories, in a report. Raises ConfigError, DataError."""
    require_extra("matplotlib", "arviz")
    with compared.weighed(posteriors, weighted):
        return Report(compared.of_opened(directories, posteriors), compared.default_folder(directories))
