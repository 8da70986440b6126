"""Oddness of rows against enumeration, and its promises: units, gaps, new levels, the same bits on ranks."""

from dataclasses import replace

import numpy as np
import pytest

from mpibayes.errors import ConfigError
from mpibayes.hpc.crosscat.asked import Asked
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.oddness import Oddness
from mpibayes.hpc.query.surprisal import Novelty, Surprise, of_table
from mpibayes.io.rows import Rows
from mpibayes.io.table import table_from_arrays, write_table
from tests.crosscat.report.runs import make_run
from tests.exact.enumerate import Posterior
from tests.query.runs import COLUMNS, case, people_run, rows_like

ERRORS = 5.0  # a sound program fails about once in 100,000 seeds: six rows
NEW = {"c": 1, "b": 0, "x": 3.0, "n": 4.0}


def without(row):
    """The tiny table without one of its rows."""
    return case(columns=[(n, kind, (*cells[:row], *cells[row + 1 :]), levels) for n, kind, cells, levels in COLUMNS])


def exact(oddness, log_p, x, gaps):
    """The score that a row should have: numbers per deviation of their column, a gap as an average cell."""
    unit = 0.0 if np.isnan(x) else np.log(oddness._asking.conditions.column("x").scale)
    return -log_p - unit + oddness.average[gaps].sum()


def rows_of_the_table(run):
    """Scores of the training rows, what they should be, and their errors."""
    asking = Asking(run, draws=10_000)
    oddness, whole = Oddness(asking), Posterior(case()).log_evidence
    *_, error, _, _ = of_table(asking, oddness.names, 6).of(slice(None))
    cells = {name: values for name, _, values, _ in COLUMNS}
    truth = []
    for i in range(6):
        gaps = [c for c, name in enumerate(oddness.names) if cells[name][i] in (-1,) or np.isnan(cells[name][i])]
        truth.append(exact(oddness, whole - Posterior(without(i)).log_evidence, cells["x"][i], gaps))
    return oddness.rows, np.array(truth), error


def test_a_row_of_the_table_is_scored_without_itself(tiny):
    score, truth, error = rows_of_the_table(tiny)
    assert (np.abs(score - truth) < ERRORS * error).all(), np.column_stack([score, truth, error])
    assert error.max() < 0.1 < np.ptp(truth)


@pytest.mark.thorough
def test_rows_scored_by_the_product_of_their_margins_are_rejected(tiny, monkeypatch):
    right = Asked.left_out

    def margins(self, known, places):
        parts = [right(self, known.only([name]), places) for name in known.of]
        for of_draw in zip(*parts, strict=True):
            log_p, inverse = zip(*of_draw, strict=True)
            yield sum(log_p), np.column_stack(inverse)

    monkeypatch.setattr(Asked, "left_out", margins)
    score, truth, error = rows_of_the_table(tiny)
    assert (np.abs(score - truth) > ERRORS * error).any()


def test_rows_scored_with_themselves_in_the_draws_are_rejected(tiny, monkeypatch):
    def familiar(self, rows):
        known = self.known.block(rows)
        for draw in self._asking.draws(known.of):
            given = draw.given(known)
            yield given.log_p, given.inverses()

    monkeypatch.setattr(Surprise, "passes", familiar)
    score, truth, error = rows_of_the_table(tiny)
    assert (score < truth - ERRORS * error).any()


def test_a_new_row_is_scored_given_the_whole_table(tiny):
    asking = Asking(tiny, draws=10_000)
    oddness = Oddness(asking)
    rows = Rows.missing(asking.asked.like.columns, 1)
    for column in asking.columns:
        getattr(rows, column.block)[:, column.index] = NEW[column.name]
    log_p = Posterior(case([NEW])).log_evidence - Posterior(case()).log_evidence
    (score,), _ = oddness.of(rows)
    _, error, _ = asking.log_p(asking.known(rows), asking.known(rows, ()))
    assert abs(score - exact(oddness, log_p, NEW["x"], [])) < ERRORS * error[0]


@pytest.mark.thorough
def test_rows_of_the_table_are_recognised_and_gaps_are_average(people):
    asking = Asking(people)
    oddness = Oddness(asking)
    numbers = asking.asked.training_numbers()[10:30]
    score, cells = oddness.of(asking.asked.recorded(numbers))
    np.testing.assert_array_equal(score, oddness.rows[10:30])
    np.testing.assert_array_equal(cells, oddness.cells[10:30])
    assert np.abs(oddness.cells.mean(axis=0)).max() < 1e-9  # excess is about 0, gaps are 0
    (nothing,), none = oddness.of(Rows.missing(asking.asked.like.columns, 1))
    assert nothing == pytest.approx(oddness.average.sum()) and not none.any()


def test_a_level_that_no_row_has_is_as_odd_as_n_rows_can_tell(people, tmp_path):
    asking = Asking(people)
    oddness, at = Oddness(asking), [c.name for c in asking.columns].index("colour")
    row = {"age": "30", "income": "0", "height": "160", "visits": "2", "day": "2024-01-05", "noise": "p"}
    gap = rows_like(asking, [{**row, "colour": ""}], tmp_path).rows
    (blank,), _ = oddness.of(gap)
    new = np.zeros((1, len(oddness.names)), bool)
    new[0, at] = True
    (score,), cells = oddness.of(gap, new)
    assert score - blank + oddness.average[at] == pytest.approx(np.log(asking.asked.n_rows + 1))
    assert cells[0].argmax() == at


@pytest.mark.parametrize("log", [False, True])
def test_units_of_columns_do_not_matter(tmp_path, log):
    """Atoms and numbers of a column compare however the numbers are measured; the same of surprisals."""
    g = np.random.default_rng(3)
    number = np.exp(g.normal(3, 1, 60)) if log else g.normal(30, 5, 60)
    cells = np.where(g.random(60) < 0.5, 0.0, number)
    result = []
    for unit in (1.0, 1e4):
        (column,), rows = table_from_arrays([("x", "real", cells * unit, None)])
        rest = np.log(cells[cells > 0] * unit) if log else cells[cells > 0] * unit
        column = replace(column, atoms=(0.0,), log=log, rest_center=rest.mean(), rest_scale=rest.std())
        table = write_table(tmp_path / f"{unit}.h5", (column,), rows)
        run = make_run(tmp_path / f"run{unit}", table, cycles=20, burn_in=5, text="[model]\nfamily = 'mixture'\n")
        asking = Asking(run)
        new = rows_like(asking, [{"x": "0"}, {"x": f"{20 * unit}"}, {"x": f"{45 * unit}"}], tmp_path)
        novel = Novelty(top=3).answer(asking, new).columns
        surprisals = of_table(asking, ["x"], 60).of(slice(None))[1][:, 0]
        result.append((Oddness(asking).rows, surprisals, novel["novelty"], novel["surprisal"]))
    for one, other in zip(*result, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    at_zero = result[0][1][cells == 0]
    assert (at_zero > 0).all() and (at_zero < 1.5).all()  # about -log of one half


def test_blocks_are_refused(tmp_path):
    g = np.random.default_rng(0)
    columns = [("x", "real", g.normal(size=20), None), ("y", "real", g.normal(size=20), None)]
    table = write_table(tmp_path / "t.h5", *table_from_arrays(columns))
    run = make_run(
        tmp_path / "r",
        table,
        cycles=6,
        burn_in=2,
        text="[model]\nfamily = 'mixture'\n[blocks.all]\ncolumns = ['x', 'y']\n",
    )
    with pytest.raises(ConfigError, match="'x' is in a block"):
        Oddness(Asking(run))


@pytest.mark.thorough
def test_ranks_share_the_work_and_give_the_same_bits(tmp_path, mpirun):
    people_run(tmp_path, "crosscat", cycles=10, burn_in=4, chains=1)
    program = (
        "import numpy as np; from mpibayes.hpc.parallel.comm import world\n"
        "from mpibayes.hpc.query import oddness, surprisal; from mpibayes.hpc.query.asking import Asking\n"
        "surprisal.BYTES = 1  # blocks of 16 rows\n"
        "comm = world()\n"
        "alone, shared = (oddness.Oddness(Asking('crosscat', comm=c)) for c in (None, comm))\n"
        "rows = shared._asking.asked.recorded(np.arange(50))\n"
        "rows.tallies[::2] += 1.0  # some of them are none of the table's\n"
        "one, other = ((o.rows, o.cells, *o.of(rows)) for o in (alone, shared))\n"
        "assert all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))\n"
        "print(f'same {comm.size}')\n"
    )
    done = mpirun(3, "-c", program, cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.count("same 3") == 3, done.stderr
