"""Calibrated copies (`complete --calibrate`): classes of rows, the law of the shifts, and shares that are right where
the clusters are wrong."""

import numpy as np
import pytest
from rich.console import Console

from mpibayes.hpc.cli import main
from mpibayes.hpc.crosscat.laws.calibration import Calibration, Tally, drawn_shifts
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.hpc.query.gap_classes import gap_classes
from mpibayes.hpc.results.complete import complete
from mpibayes.io.table import Table, table_from_arrays, write_table
from tests.crosscat.report.runs import make_run

N = 4000
ONE_CLUSTER = "[model]\nfamily = 'mixture'\nconcentration = 1e-9\n"
SHARE = np.array([0.2, 0.5, 0.8])  # of high pay, by sector
QUIET = {"console": Console(quiet=True)}


def jobs():
    """Cells of the pay, which goes with the sector and the size, are missing by the sector; so are some sizes."""
    g = np.random.default_rng(8)
    sector, size = g.integers(3, size=N), g.integers(2, size=N)
    pay = (g.random(N) < SHARE[sector] + 0.18 * (2 * size - 1)).astype(int)
    gone = g.random(N) < np.array([0.1, 0.3, 0.7])[sector]
    size_gone = g.random(N) < 0.1
    columns = [
        ("sector", "categorical", sector, list("xyz")),
        ("pay", "boolean", np.where(gone, -1, pay), ["low", "high"]),
        ("size", "boolean", np.where(size_gone, -1, size), ["small", "large"]),
        ("years", "real", g.normal(10.0, 2.0, N), None),
    ]  # fmt: skip
    return columns, pay, gone, sector


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibrated")
    write_table(folder / "t.h5", *table_from_arrays(jobs()[0]))
    more = {"cycles": 12, "burn_in": 4, "starts": ["one"], "split_merge": 0}
    table, named = Table.open(folder / "t.h5"), 'links = [["pay", "size"]]\n'
    make_run(folder / "plain", table, text=ONE_CLUSTER, **more)
    make_run(folder / "linked", table, text=ONE_CLUSTER + named, links={"pay": "size"}, **more)
    return folder


def errors(folder, n_copies=4):
    """Errors of the copies' numbers of high pay by sector, (3,), in standard errors."""
    _, pay, gone, sector = jobs()
    lines = [line.split(",") for i in range(1, 1 + n_copies) for line in
             (folder / f"copy-{i}.csv").read_text().splitlines()[1:]]  # fmt: skip
    high = np.array([line[1] == "high" for line in lines]).reshape(n_copies, N)
    result = []
    for s in range(3):
        at, seen = (sector == s) & gone, ((sector == s) & ~gone).sum()
        p, m = pay[sector == s].mean(), at.sum()
        variance = m * p * (1 - p) * (1 + m / seen + (1 + m / seen) / n_copies)
        result.append((high[:, at].mean(axis=0).sum() - pay[at].sum()) / np.sqrt(variance))
    return np.array(result)


@pytest.mark.parametrize("name", ["plain", "linked"])
def test_shares_are_those_of_alike_rows(place, tmp_path, name):
    """One cluster does not know of the sectors. False alarms: less than 3 in 10,000."""
    done = complete(place / name, None, tmp_path / "yes", copies=4, calibrate=True, **QUIET)
    assert np.abs(errors(tmp_path / "yes")).max() < 4.0
    assert not any("biased" in note for note in done.notes)
    done = complete(place / name, None, tmp_path / "no", copies=4, **QUIET)
    assert np.abs(errors(tmp_path / "no")).max() > 10.0
    assert any("calibrate the copies (--calibrate" in note for note in done.notes)


def test_shifts_in_the_first_context_of_a_parent_are_rejected(place, tmp_path, monkeypatch):
    monkeypatch.setattr(Calibration, "_contexts", lambda *arguments: {})
    complete(place / "linked", None, tmp_path / "yes", copies=4, calibrate=True, **QUIET)
    assert np.abs(errors(tmp_path / "yes")).max() > 4.0


def test_columns_without_levels_stay_as_they_are(place, tmp_path):
    for name, calibrate in (("a", True), ("b", False)):
        complete(place / "plain", None, tmp_path / name, copies=1, calibrate=calibrate, **QUIET)
    cells = [np.loadtxt(tmp_path / name / "copy-1.csv", dtype=str, delimiter=",") for name in "ab"]
    assert (cells[0][:, [0, 3]] == cells[1][:, [0, 3]]).all() and (cells[0][:, 1] != cells[1][:, 1]).any()


def numeric(seen, base, log_odds):
    """Mean and standard deviation of phi_1 - phi_0 for two levels, by quadrature; its prior has a variance of 2."""
    d = np.linspace(-8.0, 8.0, 4001)
    log = d * seen[1] - np.log1p(np.exp(np.add.outer(log_odds, d))).T @ base - d**2 / 4.0
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    mean = weight @ d
    return mean, np.sqrt(weight @ (d - mean) ** 2)


def test_shifts_have_their_posterior():
    """Means and spreads of 4,000 draws. The normal approximation errs by less than a tenth of a standard deviation;
    false alarms: less than 1 in 10,000."""
    base, seen, p = np.array([150.0, 250.0]), np.array([120.0, 280.0]), np.array([0.2, 0.6])
    log_p, shifts = np.log(np.column_stack([1.0 - p, p])), []
    for copy in range(4000):
        stream = Stream(3, Purpose.CALIBRATION, cycle=copy)
        shifts.append(drawn_shifts(log_p, Tally(0, base[None], seen[None]), stream)[0])
    d = np.diff(shifts, axis=1)[:, 0]
    mean, sd = numeric(seen, base, np.log(p / (1.0 - p)))
    assert abs(d.mean() - mean) < (0.1 + 4.0 / np.sqrt(4000)) * sd and abs(d.std() / sd - 1.0) < 0.1
    wrong = numeric(seen, base[::-1], np.log(p / (1.0 - p)))  # rows of the other cluster
    assert abs(d.mean() - wrong[0]) > 2.0 * sd


def test_levels_that_no_row_of_a_class_has():
    """The prior keeps the shifts finite."""
    log_p = np.log(np.array([[0.5, 0.3, 0.2]]))
    tally = Tally(0, np.array([[50.0], [0.0]]), np.array([[50.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    shifts = drawn_shifts(log_p, tally, Stream(3, Purpose.CALIBRATION, cycle=1))
    assert shifts[0, 0] > shifts[0, 1] and np.abs(shifts).max() < 6.0


@pytest.mark.thorough
def test_classes_follow_the_expected_number_of_gaps(place):
    table = Table.open(place / "t.h5")

    def classes(step):
        return gap_classes(table.columns, lambda: (table.read(i, min(i + step, N)) for i in range(0, N, step)))

    found, sector = classes(N), jobs()[3]
    assert found.gaps == {"pay", "size"} and 3 <= found.n <= 8 and set(found.of) == set(range(found.n))
    means = [found.of[sector == s].mean() for s in range(3)]
    assert means[0] < means[1] < means[2]
    assert found.of[sector == 0].max() <= found.of[sector == 1].min() + 1
    assert (classes(7).of == found.of).all()


def test_without_complete_columns_all_rows_are_alike():
    columns, rows = table_from_arrays([("a", "boolean", np.array([-1, 0, 1] * 100), ["no", "yes"])])
    found = gap_classes(columns, lambda: iter([rows]))
    assert found.n == 1 and found.gaps == {"a"} and not found.of.any()


def test_other_rows_are_refused(place, tmp_path, capsys):
    other = tmp_path / "other.csv"
    other.write_text("sector,pay,size,years\nx,,small,9\n")
    assert main(["complete", str(place / "plain"), str(other), "--calibrate", "--copies", "2", "-o", "out"]) == 2
    assert "other.csv: only copies of the run's own table" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.thorough
def test_cells_do_not_depend_on_ranks(place, tmp_path, mpirun):
    complete(place / "linked", None, tmp_path / "one", copies=3, calibrate=True, **QUIET)
    program = "import sys; from mpibayes.hpc.cli import main; sys.exit(main(sys.argv[1:]))"
    command = ["complete", str(place / "linked"), "--copies", "3", "--calibrate", "-o", str(tmp_path / "two")]
    assert mpirun(2, "-c", program, *command, cwd=tmp_path).returncode == 0
    for i in (1, 2, 3):
        assert (tmp_path / "one" / f"copy-{i}.csv").read_text() == (tmp_path / "two" / f"copy-{i}.csv").read_text()
