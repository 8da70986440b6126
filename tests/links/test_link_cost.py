"""Forecasts of draws of links: bounded for many columns, and as many as the run will make."""

import numpy as np

from mpibayes.hpc.crosscat.cost import link_cost
from mpibayes.hpc.links import moves
from mpibayes.io.table import table_from_arrays


def columns(d):
    return table_from_arrays([(f"c{c}", "boolean", np.zeros(3, np.int8), ("0", "1")) for c in range(d)])[0]


def test_a_thousand_columns_are_bounded():
    assert link_cost.draw_seconds(columns(1000), 5000, 1, 30) < 10.0
    assert link_cost.draw_bytes(5000, 1000, 1000, 6000, 30) < 1 << 28
    few, many = (link_cost.draw_seconds(columns(100), 10**6, ranks, 30) for ranks in (4, 1))
    assert 3.0 < many / few < 4.0


def test_draws_of_a_run_are_counted():
    assert sum(moves.due(None, cycle) for cycle in range(1, 1001)) == 6
    assert link_cost.in_words(columns(5), 100, 1, 4, None, 1000).startswith("6 draws of links more, of about")
    assert link_cost.in_words(columns(5), 100, 1, 4, 0, 1000).startswith("0 draws of links more")
