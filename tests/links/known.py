"""A row's known cells, for questions about columns that are linked."""

import numpy as np

from mpibayes.hpc.data.events import Known, everyone, known_of, of_range, of_values
from mpibayes.hpc.data.latent import OF_NEW_ROWS


def one(asking, **cells) -> Known:
    """Known cells by name: a level or a number, or (low, high)."""
    events = {}
    for name, value in cells.items():
        column = asking.conditions.column(name)
        if isinstance(value, tuple):
            events[name] = of_range(column, *value)
        else:
            events[name] = of_values(column, np.array([column.levels.index(value) if column.levels else value]))
    return everyone(events)


def log_p(asking, target: dict, given: dict) -> float:
    """Log probability of cells by name given others; see `one`."""
    return float(asking.log_p(one(asking, **target), one(asking, **given))[0][0])


def require_one_density(asking, rows, numbers) -> None:
    """Compare the density of new rows without these numbers as questions and as predictions compute it. rows: 8 of
    them, recorded; their cells of `numbers` are made missing."""
    for name in numbers:
        column = asking.conditions.column(name)
        getattr(rows, column.block)[:, column.index] = np.nan
    known, modelled = known_of(rows, asking.columns), asking.run.data.as_modelled(rows, np.arange(8), OF_NEW_ROWS)
    whole = asking.run.laws([d for _, d in asking.run.states(asking.asked._kept)])
    for law, of_rows in zip(asking.draws(["cost"]), whole, strict=True):
        assert np.allclose(of_rows.log_density(modelled), law.given(known).log_p, atol=1e-6)
