"""A draw as a distribution over rows: what it simulates follows the conditionals that its log densities imply.

The densities come from the kernels, the simulated cells from the laws of the components: neither knows the other. A
test fails a sound sampler about once in 10,000 seeds.
"""

import functools

import numpy as np
import pytest
from scipy import stats

from mpibayes.hpc.components.predictive import Predictive as Student
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.law import Law
from mpibayes.hpc.crosscat.laws.view_law import ViewLaw
from mpibayes.hpc.data.events import Known, known_of
from mpibayes.hpc.data.rows import Carve, in_blocks
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.io.rows import Rows
from mpibayes.io.table import table_from_arrays
from mpibayes.kernels import mixture as kernels

LEVEL = 1e-4 / 3  # p-values below reject; three to a comparison
STREAM = Stream(seed=3, purpose=Purpose.SIMULATED, cycle=7)
JOINT = {"g": {"columns": ("u", "v")}}
N, MOST = 1500, 12  # rows; a count above is MOST
SOME = slice(0, 300)  # of them, where a row costs much
U = np.linspace(0.0, 1.0, 252)[1:-1]


def cells(n, **given):
    """Columns of the table, missing where they are not given."""
    blank = {name: np.full(n, -1 if name in "cd" else np.nan) for name in "cduvxm"} | given
    kinds = {"c": ("categorical", ("a", "b", "e")), "d": ("categorical", ("p", "q")), "m": ("count", None)}
    made = [(name, kinds.get(name, ("real", None)), blank[name]) for name in "cduvxm"]
    return [(name, kind, x.astype(np.int64) if levels else x.astype(float), levels) for name, (kind, levels), x in made]


def rows_of(n, **given) -> Rows:
    columns, rows = table_from_arrays(cells(n, **given))
    return Carve(columns, JOINT)(rows)


@functools.cache
def view(clusters: int = 3) -> ViewLaw:
    """A draw with so many clusters; without any it is the prior."""
    g = np.random.default_rng(8)
    z = np.repeat(np.arange(3), (25, 12, 6)).astype(np.int32)
    u = g.normal(z, 0.7)
    training = {"c": (z + (g.random(43) < 0.2)) % 3, "d": (z + (g.random(43) < 0.3)) % 2, "u": u}
    training |= {"v": 2.0 * u - 3.0 * z + g.normal(0, 0.3, 43), "x": g.normal(-2.0 * z, 0.5)}
    training["m"] = g.poisson(1.0 + 3.0 * z)
    columns, rows = table_from_arrays(cells(43, **training))
    rows, components = Carve(columns, JOINT)(rows), Components(in_blocks(columns, JOINT), {}, JOINT)
    s = Statistics(*kernels.accumulate(rows, z, 3, components.categorical.offsets))
    return ViewLaw(components, components.start(1.5, 0.2), s.take(np.arange(clusters)), names=tuple("cduvxm"))


def columns(names="cduvxm"):
    return [c for kind in view().components.kinds for c in kind.columns if c.name in names]


GIVEN = {"c": 1, "u": 0.4}


def given_rows(n, given=GIVEN, **more) -> Rows:
    return rows_of(n, **{name: np.full(n, value) for name, value in given.items()}, **more)


def known(n, **given) -> Known:
    """The same cells as a law is given them."""
    made, rows = table_from_arrays(cells(n, **given))
    return known_of(rows, [c for c in made if c.name in given])


def simulated(of: ViewLaw, given=GIVEN) -> dict[str, np.ndarray]:
    on_them = known(N, **{name: np.full(N, value) for name, value in given.items()})
    return Law([of]).simulate(on_them, set("dvxm"), STREAM, np.arange(N))


def p_of_d_and_m(drawn) -> float:
    """p-value of d and m together, given c and u."""
    d, m = (drawn[name] for name in "dm")
    table = np.array(np.meshgrid([0, 1], np.arange(MOST), indexing="ij")).reshape(2, -1)
    law = Law([view()])
    none = law.log_density(given_rows(1))
    p = np.exp(law.log_density(given_rows(table.shape[1], d=table[0], m=table[1])) - none).reshape(2, -1)
    of_d = np.exp(law.log_density(given_rows(2, d=np.arange(2))) - none)
    p = np.column_stack([p, of_d - p.sum(axis=1)]).ravel()
    seen = np.bincount((d * (MOST + 1) + np.minimum(m, MOST)).astype(int), minlength=len(p))
    order = np.argsort(p)
    groups = (np.cumsum(p[order]) * 12).astype(int)  # of about equal probability
    expected, result = (np.bincount(groups, a[order]) for a in (N * p, seen))
    whole = expected > 0
    return stats.chisquare(result[whole], expected[whole] * result.sum() / expected.sum()).pvalue


def p_of_x(drawn) -> float:
    """p-value of x, given d and m."""
    return p_of_places("x", drawn["x"][SOME], given_rows(300, d=drawn["d"][SOME], m=drawn["m"][SOME]))


def p_of_v(drawn) -> float:
    """p-value of v, given d, m and x."""
    rest = {name: drawn[name][SOME] for name in "dmx"}
    return p_of_places("v", drawn["v"][SOME], given_rows(300, **rest))


def p_of_places(name, value, rest: Rows) -> float:
    """p-value of the values' places in their conditional distributions, by densities on a grid for each row."""
    (column,), law, grid = columns(name), Law([view()]), np.tan(np.pi * (U - 0.5))
    n, wide = len(value), len(grid)
    rows = rest.take(np.repeat(np.arange(n), wide))
    getattr(rows, column.block)[:, column.index] = np.tile(grid, n)
    log_p = law.log_density(rows).reshape(n, wide)
    density = np.exp(log_p - law.log_density(rest)[:, None]) * np.pi * (1.0 + grid**2)
    below = np.cumsum(density, axis=1) / (wide + 1)
    assert below[:, -1] == pytest.approx(1.0, abs=2e-2)
    place = np.arctan(value) / np.pi + 0.5
    return stats.kstest([np.interp(at, U, row) for at, row in zip(place, below)], "uniform").pvalue


def test_simulated_cells_follow_the_conditional():
    drawn = simulated(view())
    assert min(p(drawn) for p in (p_of_d_and_m, p_of_x, p_of_v)) > LEVEL


def test_wrong_ways_to_simulate_are_rejected(monkeypatch):
    assert p_of_d_and_m(simulated(view(), {})) < LEVEL, "the given cells are ignored"
    assert p_of_d_and_m(simulated(view(0))) < LEVEL, "cells of the prior's predictive"
    assert p_of_x(simulated(view(1))) < LEVEL, "two clusters are forgotten"
    right = Student.draw
    monkeypatch.setattr(Student, "draw", lambda self, x, seen, *a: right(self, x[:, :0], seen[:0], *a))
    assert p_of_v(simulated(view())) < LEVEL, "a block's given cell is ignored"


def test_a_rows_cells_depend_on_its_number_alone():
    law, g = Law([view()]), np.random.default_rng(1)
    cells = {"c": g.integers(-1, 3, 30), "u": np.where(g.random(30) < 0.5, np.nan, 1.0), "x": g.normal(size=30)}
    given, ids = known(30, **cells), np.arange(30)
    whole = law.simulate(given, set("cuvm"), STREAM, ids)
    parts = [law.simulate(given.take(at), set("cuvm"), STREAM, at) for at in np.split(ids, range(7, 30, 7))]
    assert whole.keys() == set("cuvm")
    for name, x in whole.items():
        np.testing.assert_array_equal(x, np.concatenate([part[name] for part in parts]), err_msg=name)
        before = cells.get(name, np.full(30, np.nan))
        seen = before >= 0 if name == "c" else ~np.isnan(before)
        np.testing.assert_array_equal(x[seen], before[seen], err_msg="an observed cell stays")
        assert np.isfinite(x).all()
    assert (whole["c"] < 3).all()
    other = law.simulate(given, set("cuvm"), Stream(seed=4, purpose=Purpose.SIMULATED, cycle=7), ids)
    assert (other["m"] != whole["m"]).any()


def test_a_wide_blocks_draws_depend_on_their_row_alone():
    """A product of matrices would round by the rows beside it, from some six columns on."""
    g = np.random.default_rng(5)
    d, n = 9, 50
    half = g.normal(size=(d, 2 * d))
    law = Student(g.normal(size=(1, d)), (half @ half.T)[None], np.array([12.0]))
    x, z, chi = g.normal(size=(n, 2)), g.normal(size=(n, d - 2)), g.normal(size=n)
    seen, lacking = np.arange(2), np.arange(2, d)
    whole = law.draw(x, seen, lacking, z, lambda shape: chi)
    parts = [law.draw(x[i : i + 1], seen, lacking, z[i : i + 1], lambda shape, i=i: chi[i : i + 1]) for i in range(n)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))


def test_columns_that_repeat_each_other_are_drawn():
    matrix = np.full((1, 3, 3), 2.0) + 1e-18 * np.eye(3)
    law = Student(np.zeros((1, 3)), matrix, np.array([5.0]))
    drawn = law.draw(np.ones((4, 1)), np.arange(1), np.arange(1, 3), np.ones((4, 2)), lambda shape: np.zeros(4))
    assert drawn == pytest.approx(1.0, abs=1e-4)


def test_views_are_a_product():
    """Two views over columns of one table: densities add, and each view draws its own."""
    g = np.random.default_rng(2)
    table = [(name, "real", g.normal(size=40), None) for name in "abcd"]
    own, rows = table_from_arrays(table)
    views, places = [], []
    for number, names in enumerate(("bd", "ac")):
        mine, part = table_from_arrays([t for t in table if t[0] in names])
        components = Components(mine)
        z = g.integers(2, size=40).astype(np.int32)
        s = Statistics(*kernels.accumulate(part, z, 2, components.categorical.offsets))
        views.append(ViewLaw(components, components.start(1.0, 0.0), s, number=number, names=sorted(names)))
        empty = {name: np.zeros(0, np.intp) for name in ("codes8", "codes16", "tallies", "vectors", "spells")}
        places.append(empty | {"reals": np.array(["abcd".index(n) for n in names]), "widths": np.zeros(0, np.int64)})
    law = Law(views, places)
    parts = (table_from_arrays([t for t in table if t[0] in names])[1] for names in ("bd", "ac"))
    each = [view.log_density(part) for view, part in zip(views, parts)]
    np.testing.assert_allclose(law.log_density(rows), each[0] + each[1])
    given = known_of(rows, [c for c in own if c.name in "ad"])
    drawn = law.simulate(given, set("abc"), STREAM, np.arange(40))
    assert (drawn["a"] == rows.reals[:, 0]).all() and np.isfinite([drawn["b"], drawn["c"]]).all()
    assert stats.pearsonr(drawn["b"], drawn["c"]).pvalue > LEVEL, "views draw from streams of their own"
