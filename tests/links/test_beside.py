"""Traits of groups beside links: a column that merely follows from another is no trait of its own."""

import numpy as np
import pytest

from mpibayes.hpc.crosscat.draws import Posterior
from mpibayes.hpc.crosscat.report.beside_links import BesideLinks, _divergences
from mpibayes.hpc.crosscat.report.summarise import summarise
from mpibayes.io.table import table_from_arrays, write_table
from tests.crosscat.report.runs import make_run

N = 4_000


def of_groups(seed=5):
    """Two groups z: trade differs between them, sector follows from it in the same way in both, and skill, which leans
    on trade, too, differs between them given trade."""
    g = np.random.default_rng(seed)
    z = g.integers(2, size=N)
    trade = np.where(g.random(N) < 0.9, z, g.integers(4, size=N)) + 2 * g.integers(2, size=N)
    sector = np.where(g.random(N) < 0.95, trade % 2, g.integers(2, size=N))
    skill = np.where(g.random(N) < 0.9, (trade + z) % 2, g.integers(2, size=N))
    return z, {"trade": trade, "sector": sector, "skill": skill}


def test_divergences_are_those_of_shares():
    codes, z = np.array([0, 0, 0, 1, 1, 2] * 200), np.array([0, 0, 0, 0, 1, 1] * 200)
    share = np.array([1 / 2, 1 / 3, 1 / 6])
    width = np.exp(-(share * np.log(share)).sum())
    exact = [0.75 * np.log(1.5) + 0.25 * np.log(0.75), 0.5 * np.log(1.5) + 0.5 * np.log(3)]
    assert _divergences(codes, z, 2) == pytest.approx(exact - (width - 1) / (2 * np.array([800, 400])))


def test_a_column_that_follows_from_another_is_repeated():
    z, codes = of_groups()
    names = ["skill", "sector", "trade"]
    result = BesideLinks([("sector", "trade"), ("skill", "trade")], codes).repeated(names, z, 2)
    assert result.tolist() == [[False, False], [True, True], [False, False]]
    assert not BesideLinks([("skill", "trade")], codes).repeated(names, z, 2).any()
    assert not BesideLinks().repeated(names, z, 2).any()


def test_it_does_not_matter_which_leans_on_which():
    z, codes = of_groups()
    pairs = ("sector", "trade"), ("trade", "sector")
    one, other = (BesideLinks([pair], codes).repeated(list(codes), z, 2) for pair in pairs)
    assert np.array_equal(one, other)


def test_names_of_clusters_have_a_linked_column_once(tmp_path):
    """Two clusters by two numbers; in a cluster sector follows from trade."""
    z, codes = of_groups()
    g = np.random.default_rng(6)
    columns = [("x", "real", g.normal(6.0 * z), None), ("y", "real", g.normal(6.0 * z), None)]
    columns += [(name, "categorical", codes[name], list("abcdef")[:n]) for name, n in (("trade", 6), ("sector", 2))]
    table = write_table(tmp_path / "t.h5", *table_from_arrays(columns))
    text = "[model]\nfamily = 'mixture'\nlinks = [['sector', 'trade']]\n"
    run = make_run(tmp_path / "run", table, cycles=20, text=text, links={"sector": "trade"})
    p = summarise(Posterior([run]))
    traits = [{t.column for t in c.traits} for c in p.views[0].clusters if c.rows > N / 4]
    assert len(traits) == 2 and all("trade" in of and "sector" not in of for of in traits)
