"""Public tables for benchmarks, from a folder that has them: imported once, their rows in a random order.

    FOLDER/dartmouth_atlas/dha.csv[.gz]                          Dartmouth Atlas of Health Care 2008, 63 real columns
    FOLDER/census_income_kdd/census-income.data*                 Census-Income (KDD), 42 columns without a header
    FOLDER/kddcup99/kddcup.data_10_percent*                      KDD Cup 1999, 10 %, 42 columns without a header
    FOLDER/kddcup99/kddcup.names                                 its column names
    FOLDER/diabetes130/diabetic_data.csv*                        Diabetes 130-US hospitals, 50 columns

The folder is given by `--data`, or by the environment variable MPIBAYES_DATA. Files may be compressed (gz, xz, zst).
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from mpibayes.io.ingest import import_table
from mpibayes.io.table import Table, write_table

INSTANCE_WEIGHT = "column_25"  # of census-income: how many people a row stands for
ATTACK = "attack"  # of KDD Cup: the label
SOURCES = {
    "hospital": "dartmouth_atlas/dha.csv*",
    "income": "census_income_kdd/census-income.data*",
    "kdd": "kddcup99/kddcup.data_10_percent*",
    "diabetes": "diabetes130/diabetic_data.csv*",
}


def folder(given: str | os.PathLike | None) -> Path:
    """The folder of the tables; ends the program where there is none."""
    given = given or os.environ.get("MPIBAYES_DATA")
    if not given or not Path(given).is_dir():
        raise SystemExit(f"no folder of tables: {given or 'give --data FOLDER or set MPIBAYES_DATA'}")
    return Path(given)


def source(data: Path, name: str) -> Path:
    """The file of a table; ends the program where there is none."""
    result = sorted(data.glob(SOURCES[name]))
    if not result:
        raise SystemExit(f"{data / SOURCES[name]}: no such file")
    return result[0]


def kdd_names(data: Path) -> list[str]:
    """Column names of KDD Cup; the file has the labels in its first line, then `name: kind.` a line."""
    lines = (data / "kddcup99/kddcup.names").read_text().splitlines()[1:]
    return [line.split(":")[0] for line in lines if line.strip()] + [ATTACK]


def imported(data: Path, name: str, out: Path) -> Table:
    """The typed table OUT/NAME.h5, made by the project's import where it is not there yet, rows in a random order."""
    path = out / f"{name}.h5"
    if path.exists():
        return Table.open(path)
    out.mkdir(parents=True, exist_ok=True)
    options = {
        "hospital": lambda: {"drop": ["NAME"], "kinds": {"TTL_MDCR_SPND": "real"}},  # all different, yet no identifier
        "income": lambda: {"drop": [INSTANCE_WEIGHT], "header": False},
        "kdd": lambda: {"names": kdd_names(data), "header": False},
        "diabetes": lambda: {"drop": ["encounter_id", "patient_nbr"]},
    }[name]()
    in_order = out / f"{name}.in-order.h5"
    table = import_table(source(data, name), in_order, overwrite=True, **options).table
    order = np.random.default_rng(1).permutation(table.n_rows)
    table = write_table(path, table.columns, table.read().take(order))
    in_order.unlink()
    return table
