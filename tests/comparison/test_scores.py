"""The score of each held-out row: the definition, cell by cell with scipy (`tests.predict.test_predict`), the trace,
and what is compared where runs have other rows, columns or units."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logsumexp

from mpibayes.hpc.comparison.common import NotComparable, columns_of, rows_of
from mpibayes.hpc.comparison.scores import log_scores
from mpibayes.hpc.crosscat.draws import Posterior, iterate_draws
from mpibayes.io.table import table_from_arrays, write_table
from mpibayes.io.trace import read_trace
from tests.crosscat.report.runs import make_run, planted, write_planted
from tests.predict.test_predict import cluster_terms

N, CYCLES, BURN_IN = 80, 16, 6


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return write_planted(tmp_path_factory.mktemp("scores") / "t.h5", n=N)


@pytest.fixture(scope="module")
def runs(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    made = {
        "mixture": make_run(folder / "mixture", table, CYCLES, BURN_IN, heldout=0.1),
        "wider": make_run(folder / "wider", table, CYCLES, BURN_IN, heldout=0.2),
        "fewer": make_run(
            folder / "fewer", table, CYCLES, BURN_IN, heldout=0.1, text="[columns.height]\nuse = false\n"
        ),
        "all": make_run(folder / "all", table, CYCLES, BURN_IN),
        "views": make_run(
            folder / "views", table, CYCLES, BURN_IN, heldout=0.1, text='[model]\nfamily = "crosscat"\n'
        ),
        "prior": make_run(
            folder / "prior", table, CYCLES, BURN_IN, text="[model]\nlikelihood = false\nfamily = 'mixture'\n"
        ),
    }  # fmt: skip
    opened = {name: Posterior([place]) for name, place in made.items()}
    for run in opened.values():
        run.read_traces()
    return opened


def scored(runs, *names):
    """(numbers of the rows, scores of each run)"""
    some = [runs[name] for name in names]
    rows, columns = rows_of(some, names), columns_of(some, names)
    values = [log_scores(run, name, rows, columns, of) for run, name, of in zip(some, names, columns.log_width)]
    return rows.numbers, values


def by_definition(run, numbers, names):
    """log of the mean over draws of the density of the rows' cells in columns `names`, the naive way."""
    columns, _ = planted(n=N)
    columns = [c for c in columns if c[0] in run.modelled]
    training = {name: values[run.data.training_rows] for name, _, values, _ in columns}
    densities = []
    for draw in iterate_draws(run.chains[0].folder, BURN_IN + 1):
        z = draw.labels[0]
        rows = [
            {name: values[i] if name in names else (-1 if levels else np.nan) for name, _, values, levels in columns}
            for i in numbers
        ]
        densities.append([logsumexp(cluster_terms(columns, training, z, draw, x)) for x in rows])
    return logsumexp(densities, axis=0) - np.log(len(densities))


def test_scores_are_the_definition(runs):
    numbers, (mixture, views) = scored(runs, "mixture", "views")
    every = {c[0] for c in planted(n=N)[0]}
    assert len(numbers) == 8
    # the kernels' scores of categories are float32
    np.testing.assert_allclose(mixture, by_definition(runs["mixture"], numbers, every), rtol=0, atol=1e-5)
    # of several views, the trace has the mean that the sampler computed
    for name, values in (("mixture", mixture), ("views", views)):
        averaged = read_trace(runs[name].chains[0].folder)["heldout_lpd_averaged"][-1]
        assert values.mean() == pytest.approx(averaged, abs=1e-9)


def test_the_mean_of_logs_is_another_number(runs):
    """The wrong twin: averaging log densities over draws, not densities, is too low by more than the test's error."""
    run = runs["mixture"]
    numbers, (values, _) = scored(runs, "mixture", "views")
    rows = run.data.as_modelled(run.data.recorded_at(numbers), numbers)
    twin = np.mean([draw.log_density(rows) for draw in run.draws(100)], axis=0)
    assert (values - twin > 1e-4).all()


def test_columns_that_one_run_lacks_are_missing(runs):
    numbers, (mixture, fewer) = scored(runs, "mixture", "fewer")
    names = set(runs["fewer"].modelled)
    np.testing.assert_allclose(mixture, by_definition(runs["mixture"], numbers, names), rtol=0, atol=1e-5)
    np.testing.assert_allclose(fewer, by_definition(runs["fewer"], numbers, names), rtol=0, atol=1e-5)
    assert columns_of([runs["mixture"], runs["fewer"]], ["a", "b"]).notes == [
        "Scored by the 6 columns of all; not by height."
    ]


def test_rows_that_neither_was_trained_on(runs):
    some = [runs["wider"], runs["mixture"]]
    rows = rows_of(some, ["wider", "mixture"])
    assert "neither was trained on" in rows.words
    np.testing.assert_array_equal(rows.numbers, some[1].data.heldout)  # those of a larger fraction have them, too
    assert not set(rows.numbers) & (set(some[0].data.training_rows) | set(some[1].data.training_rows))


def test_batches_do_not_matter(runs, monkeypatch):
    _, whole = scored(runs, "mixture", "views")
    monkeypatch.setattr("mpibayes.hpc.comparison.scores.BATCH", 3)
    _, parts = scored(runs, "mixture", "views")
    np.testing.assert_array_equal(whole, parts)


def test_draws_in_parts_are_the_same(runs, monkeypatch):
    _, whole = scored(runs, "mixture", "views")
    monkeypatch.setattr("mpibayes.hpc.crosscat.draws.LABEL_BYTES", 100)
    _, parts = scored(runs, "mixture", "views")
    np.testing.assert_array_equal(whole, parts)


def test_no_row_is_left(runs):
    with pytest.raises(NotComparable, match="all was trained on every row") as refused:
        rows_of([runs["wider"], runs["all"]], ["wider", "all"])
    ((_, command),) = refused.value.commands  # the same rows as of the run that holds some out
    assert command.endswith("--set data.heldout=0.2") and "all/config.resolved.toml" in command


def test_the_prior_predicts_nothing(runs):
    with pytest.raises(NotComparable, match="prior sampled the prior"):
        columns_of([runs["mixture"], runs["prior"]], ["mixture", "prior"])


def test_a_file_that_one_run_held_out(table, tmp_path):
    """Rows of a file are in no table: runs on all rows can be compared by them."""
    write_table(tmp_path / "new.h5", *table_from_arrays(planted(n=30, seed=8)[0]))
    of_file = make_run(tmp_path / "a", table, CYCLES, BURN_IN)
    config = (tmp_path / "a.toml").read_text()
    assert "heldout" not in config
    run = Posterior([of_file])
    run.read_traces()
    data = run.chains[0].config.data
    held = run.chains[0].config.changed("data", heldout=str(tmp_path / "new.h5"))
    object.__setattr__(run.chains[0], "config", held)
    assert data.heldout is None
    rows = rows_of([run, run], ["a", "a"])
    values = log_scores(run, "a", rows, columns_of([run, run], ["a", "a"]), {})
    assert rows.path == tmp_path / "new.h5" and values.shape == (30,) and np.isfinite(values).all()


def test_densities_become_probabilities_of_steps(tmp_path):
    """A column recorded in tenths is cells of a width of 0.1 in one run and numbers in the other."""
    g = np.random.default_rng(3)
    x = np.round(g.normal(20.0, 3.0, 200), 1)
    columns, rows = table_from_arrays([("x", "real", x, None), ("y", "real", g.normal(0.0, 1.0, 200), None)])
    columns = [replace(c, resolution=0.1) if c.name == "x" else c for c in columns]
    table = write_table(tmp_path / "t.h5", columns, rows)
    runs = {}
    for name, real in (("cells", ""), ("plain", 'real = "as is"\n')):
        text = f'[model]\nfamily = "mixture"\n{real}'
        runs[name] = Posterior([make_run(tmp_path / name, table, CYCLES, BURN_IN, heldout=0.5, text=text)])
        runs[name].read_traces()
    found = columns_of(list(runs.values()), list(runs))
    assert found.log_width == [{}, {"x": pytest.approx(np.log(0.1))}] and len(found.notes) == 1
    _, (cells, plain) = scored(runs, *runs)
    assert abs(cells.mean() - plain.mean()) < 0.2  # without the width 2.3 apart
