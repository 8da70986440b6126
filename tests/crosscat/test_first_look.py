"""A chain reports a held-out score before long searches for views; it decides nothing."""

from dataclasses import replace

import numpy as np
import pytest

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.heldout import HeldOut
from mpibayes.hpc.crosscat.moves.round import SMALL
from mpibayes.hpc.crosscat.start import first_look
from mpibayes.hpc.data.rows import HeldOutRows
from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.parallel.shards import of_rank
from mpibayes.hpc.registry import family_of
from mpibayes.hpc.run.examine import examine
from mpibayes.io.table import table_from_arrays, write_table
from tests.crosscat.test_search import table

N_SHARDS, HELD = 2, 60
SETTINGS = Settings(seed=3, view_concentration="learn", shards=N_SHARDS)


class Data:
    """Training rows; the others are held out, on each rank those of its shards."""

    def __init__(self, comm):
        self.columns, rows = table(1)
        self.n_rows, self.rows = len(rows) - HELD, rows
        cut = np.linspace(self.n_rows, len(rows), N_SHARDS + 1).astype(int).tolist()
        mine = {i: rows.take(slice(cut[i], cut[i + 1])) for i in of_rank(N_SHARDS, comm.size, comm.rank)}
        self.heldout = HeldOut(comm, HeldOutRows(HELD, mine))

    def rows_of(self, start, stop):
        return self.rows.take(slice(start, stop))


def score(comm):
    data = Data(comm)
    return list(first_look.scores(comm, data, SETTINGS, 0, data.heldout, 8))[-1][1]


def test_the_score_is_of_states_after_some_cycles(monkeypatch):
    """One view settles at a higher score; random clusters after one cycle, and single states on average, score
    lower."""
    comm, data = serial(), Data(serial())
    mixture = Mixture(comm, data.columns, data.rows_of, data.n_rows, replace(SETTINGS, view_concentration=None))
    mixture.start("one")
    for _ in range(30):
        mixture.cycle()
    settled, _ = data.heldout.score(mixture.views, mixture.places, False)
    look = score(comm)
    assert look > settled - 0.5
    single = []
    for cycle in range(first_look.FIRST, first_look.CYCLES + 1, first_look.BETWEEN):
        monkeypatch.setattr(first_look, "FIRST", cycle)
        monkeypatch.setattr(first_look, "CYCLES", cycle)
        single.append(score(comm))
    assert look > np.mean(single) + 0.02
    for name in ("CYCLES", "FIRST", "BETWEEN"):
        monkeypatch.setattr(first_look, name, 1)
    assert score(comm) < look - 0.5


@pytest.mark.mpi(min_size=2)
def test_the_same_on_any_number_of_ranks():
    from mpibayes.hpc.parallel.comm import world

    ranks = score(world())
    if world().rank == 0:
        assert score(serial()) == ranks


def test_tables_with_a_look():
    assert first_look.worthwhile(SMALL, 3)
    assert not first_look.worthwhile(SMALL, 1) and not first_look.worthwhile(SMALL + 1, 3)


@pytest.mark.thorough
def test_chains_are_the_same_with_a_look(tmp_path, monkeypatch, capsys):
    """The first chain of a run reports it before its searches; no chain's state or score depends on it."""
    g = np.random.default_rng(1)
    z = g.integers(3, size=120)
    made = [(f"c{i}", "categorical", (z + (g.random(120) < 0.2)) % 3, None) for i in range(4)]
    write_table(tmp_path / "t.h5", *table_from_arrays(made))
    text = '[data]\ntable = "t.h5"\nheldout = 0.1\n[model]\nfamily = "crosscat"\n[sampler]\nsearches = 2\n'
    (tmp_path / "run.toml").write_text(text + "[run]\nseed = 1\n")
    found = examine(tmp_path / "run.toml", [])

    def result(number):
        chain = family_of(found.config.kind)(serial(), found.config, found.data).chain(found.config, number)
        chain.start()
        values = chain.advance((), 1).values
        return str({name: value.tolist() for name, value in values.items()}), capsys.readouterr().out

    with_look, words = result(0)
    places = [words.index(f"first look: {n} cycles of one view of all columns score -") for n in (10, 25)]
    assert words.index("searches for views: 2") < places[0] < places[1]
    second, words = result(1)
    assert "first look" not in words
    monkeypatch.setattr(first_look, "worthwhile", lambda *_: False)
    without, words = result(0)
    assert without == with_look and result(1)[0] == second and "first look" not in words


def test_no_look_beside_an_outcome(tmp_path, capsys):
    """Scores of the chain's draws include the outcome, which the look does not have."""
    g = np.random.default_rng(1)
    z = g.integers(3, size=120)
    made = [(f"c{i}", "categorical", (z + (g.random(120) < 0.2)) % 3, None) for i in range(4)]
    made.append(("y", "real", z + g.normal(size=120), None))
    write_table(tmp_path / "t.h5", *table_from_arrays(made))
    text = '[data]\ntable = "t.h5"\nheldout = 0.1\n[model]\nfamily = "crosscat"\n[sampler]\nsearches = 2\n'
    (tmp_path / "run.toml").write_text(text + '[outcome]\ncolumn = "y"\n[run]\nseed = 1\n')
    found = examine(tmp_path / "run.toml", [])
    chain = family_of(found.config.kind)(serial(), found.config, found.data).chain(found.config, 0)
    chain.start()
    words = capsys.readouterr().out
    assert "searches for views: 2" in words and "first look" not in words
