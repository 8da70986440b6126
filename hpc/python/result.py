"""The answer to a question: a table that can print itself, with remarks and a picture."""

from __future__ import annotations

import html
import io
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.python import frames
from mpibayes.hpc.python.child import in_python
from mpibayes.hpc.query import answer as answers
from mpibayes.hpc.query.answer import Answer

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

WIDTH = 118  # of the printed text, at most: it fits the terminal


class Result:
    """The answer to a question about a run; it prints like `mpibayes query`.

    title: the question. names: of its columns; result[name] is one as a NumPy array (n,), numbers or texts (object).
    notes: remarks on the numbers. facts: a few of them in words, such as a median.
    frame: all lines, as a DataFrame of the run's type (pandas, polars or pyarrow); other libraries accept the result
    itself, through Arrow's PyCapsule interface. For rows of a table made from a pandas DataFrame, the pandas frame has
    that DataFrame's index.
    """

    def __init__(self, answer: Answer, kind: frames.Kind = "pyarrow", index: Callable[[], Any] = lambda: None):
        """index(): of all rows of the table, or None; called for a pandas frame."""
        remarks, of_whom = [in_python(text) for text in answer.remarks], in_python(answer.of_whom)
        self._answer, self._kind, self._index = replace(answer, remarks=remarks, of_whom=of_whom), kind, index

    @property
    def title(self) -> str:
        return self._answer.title

    @property
    def names(self) -> list[str]:
        return list(self._answer.columns)

    @property
    def notes(self) -> Sequence[str]:
        return self._answer.notes

    @property
    def facts(self) -> dict[str, str]:
        return dict(self._answer.facts)

    def __len__(self) -> int:
        return len(self._answer)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._answer.columns:
            raise KeyError(f"no column '{name}'; there are {', '.join(self.names)}")
        return np.asarray(self._answer.columns[name])

    @property
    def frame(self) -> Any:
        return self.to_pandas() if self._kind == "pandas" else frames.from_arrow(self.to_arrow(), self._kind)

    def to_arrow(self) -> pa.Table:
        """Return all lines as a pyarrow Table; NaN and None are nulls."""
        table: pa.Table = answers.as_table(self._answer)
        return table

    def to_pandas(self) -> Any:
        """Return all lines as a pandas DataFrame. Raises ConfigError if pandas is not installed."""
        rows = self._answer.columns.get("row")
        index = None if rows is None else self._index()
        return frames.from_arrow(self.to_arrow(), "pandas", None if index is None else index[np.asarray(rows) - 1])

    def to_polars(self) -> Any:
        """Return all lines as a polars DataFrame. Raises ConfigError if polars is not installed."""
        return frames.from_arrow(self.to_arrow(), "polars")

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def plot(self) -> Figure:
        """Draw the answer as a matplotlib figure. Raises ConfigError if it has none, or matplotlib is not installed."""
        from mpibayes.hpc.report.drawing import require_extra

        if self._answer.picture is None:
            raise ConfigError(f"{self.title}: has no picture; .frame has its numbers")
        require_extra("matplotlib")
        figure: Figure = self._answer.picture()
        return figure

    def __repr__(self) -> str:
        from mpibayes.terminal import Console

        text = io.StringIO()
        width = min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)
        paper = Console(file=text, width=width, color_system=None, force_terminal=False, legacy_windows=False)
        answers.show(self._answer, paper, "; .frame has all of them")
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    def _repr_html_(self) -> str:
        a = self._answer
        columns = a.shortly
        names, n = list(columns), len(next(iter(columns.values()), ()))
        most = min(n, a.shown)
        facts = "".join(f"<div>{html.escape(k)}: {html.escape(v)}</div>" for k, v in a.facts)
        head = "".join(f"<th>{html.escape(answers.cell(name))}</th>" for name in names)
        lines = [
            "<tr>" + "".join(f"<td>{html.escape(answers.cell(columns[name][i]))}</td>" for name in names) + "</tr>"
            for i in range(most)
        ]
        more = [f"and {n - most:,} more lines"] if n > most else []
        notes = "".join(f"<div><small>{html.escape(text)}</small></div>" for text in [*more, *a.notes])
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>" if most else ""
        return f"<div><b>{html.escape(a.title)}</b></div>{facts}{table}{notes}"
