"""Small files to import, and what an import makes of them."""

import numpy as np
import pytest

from mpibayes.errors import DataError
from mpibayes.io.ingest import import_table

PEOPLE = "name,age,city,score\nAnn,31,Rome,1.5\nBob,?,Oslo,2.5\nCid,44,Rome,NA\nDora,31,,0.5\n"


def put(tmp_path, content, name="data.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def run(tmp_path, content, **options):
    return import_table(put(tmp_path, content), tmp_path / "out.h5", **options)


def imported(tmp_path, content, name="data.csv", **options):
    """Import a text, bytes, or columns by their names, over what was imported before; return the summary."""
    if isinstance(content, dict):
        rows = zip(*content.values(), strict=True)
        content = "".join(",".join(map(str, row)) + "\n" for row in (content, *rows))
    return import_table(put(tmp_path, content, name), tmp_path / "out.h5", overwrite=True, **options)


def imported_columns(tmp_path, content, **options):
    """Import likewise; return the summary, and its columns by name."""
    summary = imported(tmp_path, content, **options)
    return summary, {c.name: c for c in summary.columns}


def cells(table, name):
    """The cells of a column as texts (None = missing) or floats."""
    column = next(c for c in table.columns if c.name == name)
    values = getattr(table.read(), column.block)[:, column.index]
    if column.levels:
        return [None if v == len(column.levels) else column.levels[v] for v in values]
    return [None if np.isnan(v) else v for v in values]


def kind_of(summary, name):
    return next(c.kind for c in summary.columns if c.name == name)


def refused(tmp_path, content, expected=DataError, **options):
    """The message of an import that must fail, leave nothing behind and change nothing."""
    path = put(tmp_path, content) if content is not None else tmp_path / "data.csv"
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    with pytest.raises(expected) as error:
        import_table(path, tmp_path / "out.h5", **options)
    assert type(error.value) is expected and error.value.exit_code == (3 if expected is DataError else 2)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    return str(error.value)
