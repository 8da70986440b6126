"""Runs on tiny tables of linked categorical columns c0, c1, ..., whose posterior `LinkedPosterior` has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mpibayes.hpc.data.events import Known, everyone, of_values
from mpibayes.hpc.query.asking import Asking
from mpibayes.io.table import table_from_arrays, write_table
from tests.crosscat.report.runs import make_run

LEVELS, BETA, ALPHA, D = [3, 2, 2], 0.5, 1.0, 0.25


def tiny_run(folder: Path, cells: Sequence[Sequence[int]], cycles: int):
    """A run with all draws of so many cycles, links drawn anew in each. cells: levels, -1 for a missing one."""
    codes = np.array(cells)
    given = [(f"c{c}", "categorical", codes[:, c], tuple(f"v{v}" for v in range(n))) for c, n in enumerate(LEVELS)]
    table = write_table(folder / "tiny.h5", *table_from_arrays(given))
    text = f"[model]\nfamily = 'mixture'\nlinks = 'forest'\nconcentration = {ALPHA}\ndiscount = {D}\n"
    for c, n in enumerate(LEVELS):
        text += f"[columns.c{c}]\nprior = {{dirichlet = {[BETA] * n}}}\n"
    more = {"links": "forest", "link_moves": 1, "split_merge": 0}  # sweeps reach all partitions of so few rows
    return make_run(folder / "tiny", table, cycles=cycles, burn_in=20, text=text, **more)


def asking_of(run) -> Asking:
    """The run opened for questions about its columns."""
    asking = Asking(run, draws=10_000)
    asking.draws(["c0", "c1", "c2"])  # which later questions use, too
    return asking


def known(asking: Asking, row: dict) -> Known:
    """Known cells of a row, by the column's number."""
    return everyone({f"c{c}": of_values(asking.conditions.column(f"c{c}"), np.array([v])) for c, v in row.items()})
