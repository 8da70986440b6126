"""An answer: named columns, shown on the terminal as a table, written as CSV, Parquet, JSON or a picture."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.report.tables import plain_table
from mpibayes.io.files import write_bytes, write_text
from mpibayes.text import counted, number, visible

FORMS = (".csv", ".parquet", ".json", ".png")
SHOWN = 20  # lines on the terminal
LETTERS = 36  # longest text of a cell on the terminal
GAP = 2  # between columns


@dataclass
class Answer:
    """title, remarks: for people. columns: arrays of one length, numbers or texts (object); NaN and None are empty.
    short: names of the columns shown on the terminal, all by default; brief: other columns shown instead. bars: the
    column drawn as bars there. picture: draws a matplotlib Figure, if there is one. facts: a few numbers in words.
    of_whom: whether the answer is about the population or the rows, if the table has weights. about_rows: remarks on
    the rows named in the question; these are also in `remarks`.
    """

    title: str
    columns: Mapping[str, np.ndarray]
    remarks: Sequence[str] = ()
    short: Sequence[str] = ()
    brief: Mapping[str, np.ndarray] | None = None
    bars: str = ""
    shown: int = SHOWN
    picture: Callable[[], Any] | None = None
    facts: Sequence[tuple[str, str]] = field(default_factory=tuple)
    of_whom: str = ""
    about_rows: Sequence[str] = ()

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    @property
    def shortly(self) -> dict[str, np.ndarray]:
        """Columns shown on the terminal."""
        return dict(self.brief) if self.brief else {name: self.columns[name] for name in self.short or self.columns}

    @property
    def notes(self) -> list[str]:
        """Remarks, followed by `of_whom`."""
        return [*self.remarks, *filter(None, [self.of_whom])]


def show(answer: Answer, console: Any, rest: str = "; -o FILE has all of them") -> None:
    """Print the first lines on the terminal. rest: where to find the remaining lines."""
    from rich.table import Table

    from mpibayes.terminal import Text

    console.print(Text(answer.title, style="bold"), soft_wrap=True)
    if answer.facts:
        grid = Table.grid(padding=(0, 2))
        for key, value in answer.facts:
            grid.add_row(Text(key), Text(value))
        console.print(grid)
    columns = answer.shortly
    n = len(next(iter(columns.values()), ()))
    most = min(n, answer.shown)
    for i, names in enumerate(_parts(columns, most, console.width) if n else []):
        console.print(*[""] * bool(i), _drawn(answer, {name: columns[name] for name in names}, most), sep="\n")
    if n > most:
        console.print(Text(f"and {counted(n - most, 'more line')}{rest}", style="dim"))
    for remark in answer.notes:
        console.print(Text(remark, style="dim"), soft_wrap=True)


def _parts(columns: Mapping[str, np.ndarray], most: int, width: int) -> list[list[str]]:
    """Split numeric columns that do not fit beside one another into parts, each beginning with the first column, such
    as the number of the row. Texts fold instead."""
    names = list(columns)
    if any(of.dtype == object for of in columns.values()):
        return [names]
    wide = {name: GAP + max(len(name), *(len(cell(x)) for x in columns[name][:most])) for name in names}
    parts, room = [names[:1]], width - wide[names[0]]
    for name in names[1:]:
        if len(parts[-1]) > 1 and wide[name] > room:
            parts.append(names[:1])
            room = width - wide[names[0]]
        parts[-1].append(name)
        room -= wide[name]
    return parts


def _drawn(answer: Answer, columns: Mapping[str, np.ndarray], most: int) -> Any:
    """Return the first lines of these columns as a table."""
    from mpibayes.terminal import Text

    names = list(columns)
    table = plain_table(*names, *([""] if answer.bars else []))
    for i, name in enumerate(names):
        words = columns[name].dtype == object
        table.columns[i].justify = "left" if words else "right"
        table.columns[i].no_wrap = False
    if answer.bars:
        table.columns[-1].no_wrap, table.columns[-1].overflow = True, "crop"
    size = columns.get(answer.bars, answer.columns.get(answer.bars))
    top = float(np.nanmax(size[:most])) if size is not None and most else 0.0
    for i in range(most):
        cells = [cell(columns[name][i]) for name in names]
        table.add_row(*cells, *([] if size is None else [Text(_bar(size[i], top), "blue")]))
    return table


def _bar(x: float, top: float) -> str:
    """Bar of a number, in blocks; `top`, the largest, has 24."""
    return "█" * round(24 * x / top) if top > 0.0 and np.isfinite(x) else ""


def cell(x: Any) -> str:
    """Format a cell for people."""
    if x is None or (isinstance(x, float | np.floating) and np.isnan(x)):
        return ""
    if isinstance(x, str):
        text = visible(x)
        return text if len(text) <= LETTERS else text[: LETTERS - 1] + "\N{HORIZONTAL ELLIPSIS}"
    if isinstance(x, int | np.integer):
        return str(x)
    if isinstance(x, bool | np.bool_):
        return "yes" if x else "no"
    x = float(x)
    if x == round(x) and abs(x) < 1e7:
        return f"{x:,.0f}"
    return f"{x:.3g}" if 0 < abs(x) < 0.1 else f"{x:.3f}" if abs(x) < 10 else number(x)


def check_name(out: Path, picture: bool) -> None:
    """Raise ConfigError unless the file name's ending is a format of the answer."""
    forms = FORMS if picture else FORMS[:-1]
    if out.suffix not in forms:
        raise ConfigError(f"{out}: the ending of the name decides the format; expected {', '.join(forms)}")


def write(answer: Answer, out: Path) -> None:
    """Write all lines, or the picture."""
    check_name(out, answer.picture is not None)
    if answer.picture is not None and out.suffix == ".png":
        from mpibayes.hpc.report.drawing import png

        write_bytes(out, png(answer.picture()))
    elif out.suffix == ".json":
        lines = zip(*(as_json(a) for a in answer.columns.values()))
        rows = [dict(zip(answer.columns, line)) for line in lines]
        facts = {"facts": dict(answer.facts)} if answer.facts else {}
        whom = {"of": answer.of_whom} if answer.of_whom else {}
        write_text(out, json.dumps({"question": answer.title, **whom, **facts, "lines": rows}, indent=1) + "\n")
    else:
        write_bytes(out, _table(answer, out.suffix))


def as_json(array: np.ndarray) -> list[Any]:
    """Values for JSON; NaN becomes None."""
    return [None if isinstance(x, float) and not np.isfinite(x) else x for x in array.tolist()]


def _table(answer: Answer, suffix: str) -> bytes:
    import io

    import pyarrow.csv
    import pyarrow.parquet

    file = io.BytesIO()
    (pyarrow.parquet.write_table if suffix == ".parquet" else pyarrow.csv.write_csv)(as_table(answer), file)
    return file.getvalue()


def as_table(answer: Answer) -> Any:
    """Return all lines as an Arrow table."""
    import pyarrow as pa

    return pa.table({name: arrow(a) for name, a in answer.columns.items()})


def arrow(array: np.ndarray) -> Any:
    """Return an Arrow array in which NaN and None are null."""
    import pyarrow as pa

    if array.dtype == object:
        return pa.array(array.tolist(), pa.string())
    return pa.array(array, mask=np.isnan(array) if array.dtype.kind == "f" else None)
