"""A run of several views from a file to the end: the same bits on any number of ranks, stopped and continued, and what
is made of it afterwards. Columns of every kind, a block, one with an atom, missing cells, held-out rows."""

import csv
from unittest import mock

import numpy as np
import pytest

from mpibayes.errors import ConfigError, NumericalError
from mpibayes.hpc.crosscat.draws import iterate_draws
from mpibayes.hpc.crosscat.start import searches
from mpibayes.hpc.parallel.tasks import Stopped
from mpibayes.hpc.results.report import report
from mpibayes.hpc.run.loop import in_process
from mpibayes.hpc.run.status import at_work, read_status
from mpibayes.io.export import export
from mpibayes.io.finished import FOLDER
from tests.run.conftest import exported, mpibayes, run, run_some

N, CYCLES = 600, 12
CONFIG = f"""
[data]
table = "table.h5"
heldout = 0.1
[model]
family = "crosscat"
[blocks.size]
columns = ["width", "height"]
[sampler]
init_views = 4
view_moves = 1
column_powers = 2
group_moves = 3
split_merge = 4
[run]
seed = 5
shards = 4
cycles = {CYCLES}
[output]
labels = 3
"""
STARTS = {
    "pilot": ("sampler.init_rows=150",),
    "annealed": ("sampler.strategy=anneal", "anneal.start_rows=60", "anneal.passes=2"),
}
STOPS = {"pilot": 4, "annealed": 3}  # the second within the growth


def write_csv(path):
    """Rows of three kinds, by which half of the columns go, and of two others, by which the rest go."""
    g = np.random.Generator(np.random.Philox(3))
    a, b = g.integers(3, size=N), g.integers(2, size=N)

    def holes(cells, where=None):
        where = g.random(N) < 0.08 if where is None else where
        return ["" if hole else str(cell) for cell, hole in zip(cells, where)]

    unmeasured = g.random(N) < 0.08

    columns = {
        "colour": holes(np.array(["red", "green", "blue"])[(a + (g.random(N) < 0.1)) % 3]),
        "width": holes(np.round(g.normal(3.0 * a, 1.0), 2), unmeasured),
        "height": holes(np.round(g.normal(-2.0 * a, 1.0), 2), unmeasured),
        "visits": holes(g.poisson(np.array([1, 6, 20])[a])),
        "member": holes(np.array(["no", "yes"])[(b + (g.random(N) < 0.1)) % 2]),
        "gain": holes(np.where(g.random(N) < 0.6, 0.0, np.round(g.normal(10 + 20 * b, 2.0), 1))),
        "age": holes(np.round(g.normal(30 + 20 * b, 4.0), 1)),
    }
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([columns, *zip(*columns.values())])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the table and an annealed run, straight through on one rank."""
    folder = tmp_path_factory.mktemp("views")
    write_csv(folder / "table.csv")
    (folder / "run.toml").write_text(CONFIG)
    assert mpibayes(folder, "import", "table.csv", "table.h5").returncode == 0
    done = run(folder, "annealed", *changes("annealed"))
    assert done.returncode == 0, done.stderr
    return folder


def changes(name):
    return [word for change in STARTS[name] for word in ("--set", change)]


def with_searches(place, name, cycles=1):
    """A configuration whose chain makes two searches on 40 rows, and some cycles."""
    path = place / f"{name}.toml"
    text = CONFIG.replace("[sampler]", "[sampler]\nsearches = 2\ninit_rows = 40")
    path.write_text(text.replace(f"cycles = {CYCLES}", f"cycles = {cycles}"))
    return path


def trace(place, name):
    export([place / name], "csv", out=place / f"{name}.csv", timings=False)
    return np.genfromtxt((place / f"{name}.csv").read_text().splitlines(), delimiter=",", names=True)


def lines(path):
    with open(path, newline="") as file:
        return list(csv.reader(file))


@pytest.mark.quick("annealed")
@pytest.mark.parametrize("start", STARTS)
def test_same_bits_stopped_on_three_ranks_and_continued_on_one(place, start):
    if start != "annealed":
        assert run(place, start, *changes(start)).returncode == 0
    done = run_some(place, f"{start}-pieces", STOPS[start], *STARTS[start], ranks=3)
    assert done.returncode == 75, done.stdout + done.stderr
    done = run(place, f"{start}-pieces", *changes(start))
    assert done.returncode == 0, done.stderr
    assert exported(place, f"{start}-pieces") == exported(place, start)


@pytest.mark.thorough
def test_a_run_that_searches_looks_alive(place, monkeypatch):
    search, seen = searches._search, []

    def watched(*args):
        seen.append((read_status(place / "watched"), at_work(place / "watched")))
        return search(*args)

    monkeypatch.setattr(searches, "_search", watched)
    in_process(with_searches(place, "watched"), place / "watched")
    assert [(status["state"], status["cycle"], alive) for status, alive in seen] == [("searching", 0, True)] * 2
    assert [status["message"].split(" (since ")[0] for status, _ in seen] == [
        "initial search 1 of 2", "initial search 2 of 2",
    ]  # fmt: skip
    assert read_status(place / "watched")["state"] == "finished"


@pytest.mark.thorough
def test_a_search_that_fails_is_no_run_at_work_and_can_start_again(place, monkeypatch):
    config, folder = with_searches(place, "failed"), place / "failed"
    with monkeypatch.context() as patch, pytest.raises(NumericalError):
        patch.setattr(searches, "_search", mock.Mock(side_effect=NumericalError("no view")))
        in_process(config, folder)
    assert read_status(folder)["state"] == "failed" and not at_work(folder)
    in_process(config, folder)
    status = read_status(folder)
    assert status["state"] == "finished" and status["before"]["message"] == "no view"


@pytest.mark.thorough
def test_a_run_stopped_in_its_search_goes_on_with_the_next_one_and_has_the_same_bits(place, monkeypatch):
    in_process(with_searches(place, "at-once", 4), place / "at-once")
    config, folder, search, numbers = with_searches(place, "in-parts", 4), place / "in-parts", searches._search, []

    def stopped(*args):
        numbers.append(args[4])
        if numbers == [0, 1]:
            raise Stopped
        return search(*args)

    monkeypatch.setattr(searches, "_search", stopped)
    in_process(config, folder)
    status = read_status(folder)
    assert status["state"] == "stopped" and "; 1 finished search kept; run" in status["message"]
    with pytest.raises(ConfigError, match=r"was stopped before a chain was first saved \(1 finished search kept\)"):
        report(folder)
    in_process(config, folder)
    assert numbers == [0, 1, 1] and not (folder / FOLDER).exists()
    assert exported(place, "in-parts") == exported(place, "at-once")


@pytest.mark.thorough
def test_searches_are_said_before_they_begin(place):
    """Not after the minute that they may take; nobody waits for a process that runs alone."""
    subset = ("run.chains=2", "run.cycles=1", "run.until=cycles", "sampler.searches=2", "sampler.init_rows=40")
    done = run(place, "searched", *(word for change in subset for word in ("--set", change)))
    assert done.returncode == 0 and "waiting" not in done.stderr, done.stderr
    for name in ("chain-1", "chain-2"):
        before = done.stdout.index(f" {name}: searches for views: 2, on 40 rows each\n")
        assert before < done.stdout.index(f"{name}: starts: ") < done.stdout.index(f"{name}: views: the best of 2")


@pytest.mark.thorough
def test_same_bits_on_three_ranks(place):
    done = run(place, "three", *changes("annealed"), ranks=3)
    assert done.returncode == 0, done.stderr
    assert exported(place, "three") == exported(place, "annealed")


def test_there_is_something_to_compare(place):
    """Columns have moved, views are several, rows have come in, and held-out rows are scored."""
    result = trace(place, "annealed")
    assert result["active_rows"][STOPS["annealed"] - 1] < N * 0.9 == result["active_rows"][-1]
    assert result["columns_moved"].sum() > 0 and result["n_views"][-1] > 1
    assert np.isfinite(result["heldout_lpd"]).all()


def test_what_is_made_of_it(place):
    done = mpibayes(place, "export", "annealed", "--to", "clusters", "-o", "clusters.csv")
    assert done.returncode == 0, done.stderr
    rows = lines(place / "clusters.csv")
    assert len(rows) in (N + 1, int(0.9 * N) + 1) and len(rows[0]) > 2
    done = mpibayes(place, "predict", "annealed", "table.csv", "-o", "scored.csv", "--complete", "filled.csv")
    assert done.returncode == 0, done.stderr
    assert len(lines(place / "scored.csv")) == N + 1
    assert all(all(row) for row in lines(place / "filled.csv"))


def test_labels_as_the_documents_have_them(place):
    """The view of each column of the table, and each view's labels, all numbered by first appearance."""
    done = mpibayes(place, "export", "annealed", "--to", "labels", "--burn-in", 0, "-o", "lines.txt")
    assert done.returncode == 0, done.stderr
    draws, texts = list(iterate_draws(place / "annealed")), (place / "lines.txt").read_text().splitlines()
    assert len(texts) == len(draws) > 1 and any(len(draw.labels) > 1 for draw in draws)
    for text, draw in zip(texts, draws):
        views, *labels = ([int(word) for word in part.split(" ")] for part in text.split(" | "))
        assert len(views) == 7 and len(labels) == len(draw.labels) == max(views) + 1
        for mine in (views, *labels):
            assert list(dict.fromkeys(mine)) == list(range(max(mine) + 1))
        for c, v in enumerate(views):
            same = np.unique(np.stack([labels[v], draw.labels[draw.view_of[c]]]), axis=1)
            assert same.shape[1] == max(labels[v]) + 1 == len(np.unique(same[1]))


def test_its_labels_start_another(place):
    """The second run begins where the first ended, and not where it began."""
    short = ("run.cycles=1", "run.seed=6", "run.burn_in=0")
    for name, how in (("again", ("init=labels", "init_labels=annealed")), ("anew", ("init_rows=0",))):
        words = [word for change in (*short, *(f"sampler.{key}" for key in how)) for word in ("--set", change)]
        done = run(place, name, *words)
        assert done.returncode == 0, done.stderr
    end = trace(place, "annealed")["log_joint"][-1]
    again, anew = (float(trace(place, name)["log_joint"]) for name in ("again", "anew"))
    assert abs(again - end) < 0.5 * abs(anew - end)
