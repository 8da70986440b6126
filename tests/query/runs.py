"""Runs for tests of queries: one of a tiny table with known posterior, and one with every kind of column."""

from __future__ import annotations

import numpy as np

from mpibayes.hpc.query.asking import Asking
from mpibayes.io.ingest import import_table
from mpibayes.io.table import table_from_arrays, write_table
from tests.crosscat.report.runs import make_run
from tests.exact.enumerate import NAN, Case

COLUMNS = (
    ("c", "categorical", (0, 2, 1, -1, 0, 2), ("r", "s", "t")),
    ("b", "categorical", (0, 1, 0, 1, 0, 1), ("u", "v")),
    ("x", "real", (-1.4, NAN, 1.1, 1.6, -0.9, 1.3), None),
    ("n", "count", (NAN, 3.0, 0.0, 1.0, 0.0, 5.0), None),
)
PRIORS = {
    "c": {"dirichlet": (0.4, 0.8, 0.5)},
    "b": {"dirichlet": (0.3, 0.3)},
    "x": {"mean": 0.2, "kappa": 0.3, "nu": 2.5, "variance": 0.6},
    "n": {"shape": 1.2, "rate": 0.5},
}
ALPHA, D = 0.9, 0.25


def case(rows=(), columns=COLUMNS) -> Case:
    """The tiny table with more rows, {name: value}; absent cells are missing."""
    grown = []
    for name, kind, cells, levels in columns:
        more = [row.get(name, -1 if levels else NAN) for row in rows]
        grown.append((name, kind, (*cells, *more), levels))
    return Case("", tuple(grown), PRIORS, ALPHA, D)


def tiny_run(folder, family="mixture", cycles=500, columns=COLUMNS):
    """A run of the tiny table, with all draws kept; sweeps and moves of columns alone reach all of its states soon."""
    names = [c[0] for c in columns]
    table = [(name, kind, np.array(cells), levels) for name, kind, cells, levels in columns]
    written = write_table(folder / "tiny.h5", *table_from_arrays(table))
    text = f"[model]\nfamily = '{family}'\nconcentration = {ALPHA}\ndiscount = {D}\n"
    text += "view_concentration = 1.0\nview_discount = 0.0\n" if family == "crosscat" else ""
    for name in names:
        prior = ", ".join(f"{k} = {list(v) if isinstance(v, tuple) else v}" for k, v in PRIORS[name].items())
        text += f"[columns.{name}]\nprior = {{{prior}}}\n"
    return make_run(folder / "tiny", written, cycles=cycles, burn_in=cycles // 10, text=text, split_merge=0)


def people(n=160, seed=4) -> list[dict]:
    """Two groups of people: ages in years, incomes that are 0 or log-normal in whole numbers, heights without a step,
    colours, visits, days; some cells are missing."""
    g = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        k = int(g.random() < 0.4)
        row = {
            "age": f"{max(0, round(g.normal((30, 61)[k], 7)))}",
            "income": "0" if g.random() < (0.7, 0.1)[k] else f"{round(np.exp(g.normal((6.0, 8.0)[k], 0.5)))}",
            "height": f"{g.normal((160, 175)[k], 4):.12g}",
            "colour": str(g.choice(["red", "green", "blue"], p=([0.8, 0.15, 0.05], [0.1, 0.2, 0.7])[k])),
            "visits": f"{g.poisson((2, 9)[k])}",
            "day": f"2024-0{1 + 2 * k}-{g.integers(1, 29):02d}",
            "noise": str(g.choice(["p", "q"])),
        }
        for name in row:
            if i > 1 and g.random() < 0.04:
                row[name] = ""
        rows.append(row)
    return rows


def write_csv(path, rows):
    names = list(rows[0])
    path.write_text("\n".join([",".join(names), *(",".join(row[n] for n in names) for row in rows)]) + "\n")
    return path


def people_run(folder, family="mixture", **more):
    source = write_csv(folder / "people.csv", people())
    kinds = {"visits": "count", "age": "real", "height": "real", "income": "real"}
    import_table([source], folder / "people.h5", kinds=kinds)
    from mpibayes.io.table import Table

    more = {"cycles": 28, "burn_in": 8, "chains": 2, "heldout": 0.1, **more}
    return make_run(folder / family, Table.open(folder / "people.h5"), text=f"[model]\nfamily = '{family}'\n", **more)


def rows_like(asking: Asking, rows: list[dict], folder):
    """Rows of texts, read as questions read them."""
    from mpibayes.hpc.query.new_rows import rows_of

    return rows_of(asking, write_csv(folder / "rows.csv", rows)).whole(asking)
