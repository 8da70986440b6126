"""Questions about blocks of real columns: densities are those of `mpibayes predict`, conditionals are their ratios, and
simulated rows have them. Tests of distributions are at level 1e-4."""

import numpy as np
import pytest
from scipy import stats

from mpibayes.errors import ConfigError
from mpibayes.hpc.cli import main
from mpibayes.hpc.crosscat.laws.blocks import BlockLaw
from mpibayes.hpc.data.events import Known, everyone, of_range, of_values
from mpibayes.hpc.query import new_rows
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.compare import compare_rows
from mpibayes.hpc.query.dependence import Dependence
from mpibayes.hpc.query.simulate import simulated
from mpibayes.hpc.query.surprisal import Surprise
from mpibayes.io.table import table_from_arrays, write_table

LEVEL = 1e-4


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two groups; in each x and y are correlated 0.9, z is one more of the block; w is none of it, c are levels."""
    folder, g = tmp_path_factory.mktemp("blocks"), np.random.default_rng(3)
    k = g.integers(0, 2, 200)
    x = g.normal(size=200)
    y = 0.9 * x + np.sqrt(1 - 0.81) * g.normal(size=200)
    z, w = g.normal(size=200) - y, g.normal(size=200) + 2.0 * k
    columns = [("x", x + 5.0 * k), ("y", y - 3.0 * k), ("z", z), ("w", w)]
    columns = [(name, "real", values, None) for name, values in columns]
    columns.append(("c", "categorical", np.where(g.random(200) < 0.9, k, 1 - k), ("p", "q")))
    write_table(folder / "t.h5", *table_from_arrays(columns))
    text = "[data]\ntable = 't.h5'\nheldout = 0.1\n[model]\nfamily = 'mixture'\n[blocks.b]\ncolumns = ['x', 'y', 'z']\n"
    (folder / "run.toml").write_text(f"{text}[run]\ncycles = 24\nburn_in = 8\n[output]\nlabels = 2\n")
    assert main(["run", str(folder / "run.toml"), "-o", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture
def asking(run):
    return Asking(run)


def known_row(asking, **cells):
    return everyone({n: of_values(asking.conditions.column(n), np.array([v])) for n, v in cells.items()})


def log_p(asking, target, given=None):
    return asking.log_p(known_row(asking, **target), known_row(asking, **(given or {})))[0][0]


def test_a_row_has_the_density_of_predict(asking):
    run = asking.asked.run
    numbers = asking.asked.training_numbers()[:20]
    known = asking.known(asking.asked.recorded(numbers))
    log, _, _ = asking.log_p(known, Known(20, {}))
    rows = run.data.rows_at(np.arange(20))
    each = np.array([draw.log_density(rows) for draw in run.draws(100)])
    np.testing.assert_allclose(log, np.logaddexp.reduce(each) - np.log(len(each)), atol=1e-7)


def test_the_chain_rule(asking):
    a, b, c = {"x": 5.2, "w": 1.0}, {"y": -2.0, "c": 1}, {"z": 0.4}
    both = log_p(asking, {**a, **b}, c)
    assert both == pytest.approx(log_p(asking, a, {**b, **c}) + log_p(asking, b, c), abs=1e-9)
    assert both == pytest.approx(log_p(asking, b, {**a, **c}) + log_p(asking, a, c), abs=1e-9)


GRID = np.linspace(-6.0, 12.0, 3001)


def off(asking, given):
    """The largest difference between p(x <= v | given) as a range has it and by quadrature of the density."""
    column = asking.conditions.column("x")
    density = Known(len(GRID), {"x": (of_values(column, GRID), np.arange(len(GRID)))})
    p = np.exp(asking.log_p(density, known_row(asking, **given).repeat(len(GRID)))[0])
    assert np.trapezoid(p, GRID) == pytest.approx(1.0, abs=5e-3)
    draws, known = asking.draws({"x", *given}), known_row(asking, **given)
    worst = 0.0
    for v in (-1.0, 1.0, 4.0, 5.5):
        event, total, weight = of_range(column, -np.inf, v), 0.0, 0.0
        for draw in draws:
            on_them = draw.given(known)
            total += np.exp(on_them.log_p[0]) * on_them.averaged(event, draw.masses(event))[0, 0]
            weight += np.exp(on_them.log_p[0])
        here = v >= GRID
        worst = max(worst, abs(total / weight - np.trapezoid(p[here], GRID[here])))
    return worst


@pytest.mark.parametrize("given", [{}, {"y": -2.0}, {"y": -2.0, "z": 1.0, "c": 1}, {"w": 2.5}])
def test_a_conditional_is_the_integral_of_its_density(asking, given):
    assert off(asking, given) < 5e-3


def test_columns_that_are_independent_in_a_cluster_are_rejected(asking, monkeypatch):
    monkeypatch.setattr(BlockLaw, "knows", lambda self, known: False)
    monkeypatch.setattr(BlockLaw, "given", lambda self, known, given: self.score(known))
    draws = asking.draws({"x", "y"})
    column, known = asking.conditions.column("x"), known_row(asking, y=-1.0)
    event = of_range(column, -np.inf, 1.0)
    wrong = draws[0].given(known).averaged(event, draws[0].masses(event))[0, 0]
    monkeypatch.undo()
    assert abs(wrong - draws[0].given(known).averaged(event, draws[0].masses(event))[0, 0]) > 0.05


def p_value(asking, known, drawn):
    column, draws = asking.conditions.column("x"), asking.draws({"x", "y", "z", "w", "c"})
    weight = np.exp([draw.given(known).log_p[0] for draw in draws])
    below = np.zeros(300)
    for i, v in enumerate(drawn[:300]):
        event = of_range(column, -np.inf, v)
        each = [draw.given(known).averaged(event, draw.masses(event))[0, 0] for draw in draws]
        below[i] = np.average(each, weights=weight)
    return stats.kstest(below, "uniform").pvalue


@pytest.mark.thorough
def test_simulated_rows_have_the_conditional(asking, monkeypatch):
    known = known_row(asking, y=-1.5, c=1)
    drawn = simulated(asking, known, ["x", "y", "z", "c"], 300, seed=2)
    assert (drawn["y"] == -1.5).all() and (drawn["c"] == 1).all()
    assert p_value(asking, known, drawn["x"]) > LEVEL
    right = BlockLaw.draw  # which forgets what is known of the block

    def wrong(self, law, block, known, *more):
        return right(self, law, block, Known(known.n_rows, {}), *more)

    monkeypatch.setattr(BlockLaw, "draw", wrong)
    assert p_value(asking, known, simulated(asking, known, ["x"], 300, seed=2)["x"]) < LEVEL


def test_surprisal_of_a_cell_is_that_given_the_others(asking):
    numbers = asking.asked.training_numbers()[:5]
    known = asking.known(asking.asked.recorded(numbers))
    asking.draws(known.of)
    _, cells, *_ = Surprise(asking, known, numbers, None).of(slice(None))
    for i, name in enumerate(known.of):
        if name == "x":
            log, _, _ = asking.log_p(known.only([name]), known.without([name]))
            np.testing.assert_allclose(cells[:, i] + np.log(asking.conditions.column(name).scale), -log, atol=1e-7)


def test_what_is_not_answered(asking):
    answer = Dependence().answer(asking)
    pairs = list(zip(answer.columns["column"], answer.columns["with"], answer.columns["information"]))
    assert {(a, b) for a, b, v in pairs if np.isnan(v)} == {("x", "y"), ("x", "z"), ("y", "z")}
    column = asking.conditions.column("x")
    both = everyone({"x": of_range(column, 0.0, 1.0), "y": of_values(asking.conditions.column("y"), np.array([0.0]))})
    with pytest.raises(ConfigError, match="its range can be given only if nothing else"):
        asking.log_p(known_row(asking, c=1), both)


def test_copies_have_the_correlation_of_the_block(run, tmp_path):
    """Deviations of y - 0.9 x in rows with x alone, or neither x nor y: 0.44 in their group, 0.59 between quartiles."""
    x = np.linspace(-2.0, 2.0, 40)
    lines = [f"{v},,,0,p" for v in x] + [",,,0,p"] * 40
    (tmp_path / "new.csv").write_text("\n".join(["x,y,z,w,c", *lines]) + "\n")
    out = tmp_path / "copies"
    assert main(["complete", str(run), str(tmp_path / "new.csv"), "--copies", "8", "-o", str(out)]) == 0
    copies = [np.genfromtxt(out / f"copy-{i}.csv", delimiter=",", skip_header=1)[:, :3] for i in range(1, 9)]
    assert all(np.isfinite(copy).all() for copy in copies)
    assert all((copy[:40, 0] == pytest.approx(x)) for copy in copies)
    given, drawn = np.concatenate([c[:40] for c in copies]), np.concatenate([c[40:] for c in copies])
    for rows in (given, drawn):
        low, high = np.quantile(rows[:, 1] - 0.9 * rows[:, 0], (0.25, 0.75))
        assert 0.45 < high - low < 0.8  # drawn apart: 1.8


def test_synthetic_rows_keep_a_block_together(asking):
    """Columns of a block are related inside clusters, in a synthetic table as in the data: the correlation of x and y
    given the group is 0.9, and that of 400 rows has a standard error of 0.01; the posterior adds 0.02."""
    synthesis, ids = next(asking.asked.syntheses(1, 800, {})), np.arange(800)
    cells = synthesis.cells(ids, synthesis.parts(ids))
    group = cells["x"] - cells["y"] > 4.0
    for here in (group, ~group):
        assert here.sum() > 200 and np.corrcoef(cells["x"][here], cells["y"][here])[0, 1] > 0.75


def test_groups_of_rows_are_compared_in_the_columns_of_a_block(run, asking):
    """x and y move with the group; a row's own cell is in its weights alone, or its distribution had no width."""
    first = new_rows.of_table(asking, np.arange(1, 61), "some")
    others = new_rows.of_table(asking, np.arange(61, 121), "others")
    answer = compare_rows(asking, first, others)
    assert sorted(answer.columns["column"]) == ["c", "w", "x", "y", "z"]
    assert np.isfinite(answer.columns["divergence"]).all() and (answer.columns["divergence"] >= 0).all()
    assert main(["query", str(run), "compare", "--rows", "1-60"]) == 0
