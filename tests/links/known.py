"""A row's known cells, for questions about columns that are linked."""

import numpy as np

from mpibayes.hpc.data.events import Known, everyone, of_range, of_values


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
