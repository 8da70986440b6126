"""The distribution of a column in a few lines: it is the same distribution, and the files have all of it."""

import csv
import json

import numpy as np
import pytest

from mpibayes.hpc.cli import main
from mpibayes.hpc.data.events import everyone
from mpibayes.hpc.query import histogram
from mpibayes.hpc.query.conditional import BRIEF, Conditional
from mpibayes.hpc.query.support import CELLS
from tests.query.runs import people_run

NUMBERS = ["age", "income", "height", "visits", "day"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return people_run(tmp_path_factory.mktemp("histogram"))


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.quick("crosscat-income", "mixture-day")
def test_a_few_lines_are_the_whole_distribution(asking, name):
    """Bins sum to 1, each is the sum of its cells, and the last is open."""
    ((_, d),) = asking.distributions(name, everyone(asking.conditions.read(["colour=red"])), CELLS)
    words, p, error = histogram.brief(name, d, BRIEF)
    assert 3 <= len(words) == len(set(words)) <= BRIEF + 2 and p.sum() == pytest.approx(1.0)
    assert words[-1].endswith("..") and (error >= 0.0).all() and (error <= d.error[0].sum() + 1e-12).all()
    cuts = np.cumsum(d.p[0])
    assert all(np.abs(cuts - end).min() < 1e-9 for end in np.cumsum(p))
    if name == "income":
        assert "0" in words and p[words.index("0")] == pytest.approx(sum(d.p[0][d.support.events.codes >= 0]), abs=0.01)


@pytest.mark.parametrize("name", ["age", "visits"])
def test_mean_and_deviation_are_those_of_simulated_rows(asking, name):
    """Within 5 standard errors of 4,000 rows (false alarms: 1e-6); a mean of the training rows is rejected."""
    from mpibayes.hpc.query.simulate import simulated

    answer = Conditional(name, ["colour=red"]).answer(asking)
    facts = dict(answer.facts)
    drawn = simulated(asking, everyone(asking.conditions.read(["colour=red"])), [name], 4_000, 3)[name]
    mean = float(facts["mean"].split(" ")[0])
    slack = 5.0 * drawn.std() / np.sqrt(len(drawn)) + 0.05
    assert abs(mean - drawn.mean()) < slack and float(facts["sd"]) == pytest.approx(drawn.std(), rel=0.1)
    whole = dict(Conditional(name).answer(asking).facts)
    assert abs(float(whole["mean"].split(" ")[0]) - drawn.mean()) > slack


def test_levels_in_order_stay_in_it(asking, monkeypatch):
    """Levels without an order come by their probability."""
    import mpibayes.hpc.query.conditional as module

    levels = asking.conditions.column("colour").levels
    answer = Conditional("colour").answer(asking)
    assert (np.diff(answer.columns["p"]) <= 0.0).all()
    order = tuple(range(len(levels)))[::-1]
    monkeypatch.setattr(module, "order_of", lambda column: order)
    on_scale = Conditional("colour").answer(asking)
    assert list(on_scale.columns["colour"]) == [levels[v] for v in order]
    p = dict(zip(answer.columns["colour"], answer.columns["p"]))
    assert on_scale.columns["p"].tolist() == [p[levels[v]] for v in order]


@pytest.mark.thorough
def test_the_terminal_is_short_and_the_files_are_whole(run, tmp_path, capsys, pictures):
    words = ["query", str(run), "conditional", "age", "--given", "colour=red", "-o"]
    for name in ("age.csv", "age.json", "age.png"):
        assert main([*words, str(tmp_path / name)]) == 0
    text = capsys.readouterr()[0].split("written to")[0].splitlines()
    assert len([line for line in text if ".." in line]) <= BRIEF and len(text) <= BRIEF + 12
    assert all(any(line.startswith(word) for line in text) for word in ("mean", "sd", "median", "50 %", "90 %", "95 %"))
    with open(tmp_path / "age.csv") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) > 20 and sum(float(line["p"]) for line in lines) == pytest.approx(1.0)
    document = json.loads((tmp_path / "age.json").read_text())
    assert len(document["lines"]) == len(lines) and set(document["facts"]) >= {"mean", "sd", "median"}
    assert (tmp_path / "age.png").read_bytes().startswith(b"\x89PNG")


def test_values_below_zero_are_spoken_of(tmp_path, asking):
    """Values below zero are noted where the table has none: of a narrow column near 0, not of one with both signs."""
    from mpibayes.hpc.query.asking import Asking
    from mpibayes.hpc.query.simulate import Simulate
    from mpibayes.io.ingest import import_table
    from mpibayes.io.table import Table
    from tests.crosscat.report.runs import make_run

    g = np.random.default_rng(3)
    rows = [f"{abs(x):.1f},{y:.1f}" for x, y in zip(g.normal(0.0, 1.0, 200), g.normal(0.0, 1.0, 200))]
    (tmp_path / "a.csv").write_text("\n".join(["near,both", *rows]) + "\n")
    import_table([tmp_path / "a.csv"], tmp_path / "a.h5", kinds={"near": "real", "both": "real"})
    result = Asking(make_run(tmp_path / "run", Table.open(tmp_path / "a.h5"), cycles=20))
    words = [" ".join(Conditional(name).answer(result).remarks) for name in ("near", "both")]
    assert "below 0, where the table has no value: " in words[0] and "below 0" not in words[1]
    drawn = Simulate(400).answer(result)
    share = float((drawn.columns["near"] < 0).mean())
    (line,) = [text for text in drawn.remarks if "below 0" in text]
    assert share > 0.005 and f"{100 * share:.2g} % of near" in line and "both" not in line
    assert not np.signbit(drawn.columns["near"][drawn.columns["near"] == 0]).any()  # -0 is 0
    assert not any("below 0" in text for text in Conditional("age").answer(asking).remarks)
