"""Searches that find small clusters in a sample are repeated on more rows."""

from unittest import mock

import numpy as np
import pytest

from mpibayes.hpc.cli import main
from mpibayes.hpc.config.load import load
from mpibayes.hpc.crosscat.start import searches, strategy, views
from mpibayes.hpc.parallel.comm import serial
from tests.crosscat.test_search import table
from tests.crosscat.test_searches import SETTINGS, Data, stub

N = 1000


@pytest.mark.parametrize(
    "n_rows, keys, again",
    [(17583, "", 10_000), (8_000, "", 8_000), (5_999, "", 0), (9_000, "init_rows = 99", 0), (9_000, "searches = 1", 0)],
)  # fmt: skip
def test_only_if_the_table_has_many_more_rows(tmp_path, n_rows, keys, again):
    text = f'[data]\ntable = "t.h5"\n[model]\nfamily = "crosscat"\n[sampler]\n{keys}\n'
    (tmp_path / "run.toml").write_text(text)
    assert strategy.rows_again(load(tmp_path / "run.toml"), n_rows) == again


def test_small_clusters():
    """The size of a row's cluster counts, in each view of several columns: not a few rows in clusters of their own, nor
    a column alone."""

    def small(*of):
        found = [mock.Mock(columns=names, statistics=mock.Mock(size=np.array(sizes))) for names, sizes in of]
        return searches.small_clusters(searches.Choice(views.Pilot(found, (1.0, 0.0)), np.zeros(0), 0))

    assert not small(("ab", [900, 100]), ("cd", [960, *[1] * 40]))
    assert not small(("ab", [900, 100]), ("c", [10] * 100))
    assert small(("ab", [900, 100]), ("cd", [10] * 100))


def test_repeated_searches_have_samples_of_their_own(monkeypatch):
    data = Data(*table(1))
    seen = stub(monkeypatch, [-1.0] * 4)
    for first in (0, 2):
        searches.best_search(serial(), data, SETTINGS, 0, 200, 4, 2, first=first)
    assert len({rows.codes8.tobytes() for rows in seen}) == 4


@pytest.mark.parametrize("n_clusters, again", [(25, True), (2, False)])
def test_a_start_with_small_clusters(tmp_path, monkeypatch, capsys, n_clusters, again):
    monkeypatch.setattr(strategy, "ROWS_OF_EACH", 200)
    g = np.random.default_rng(1)
    cells = g.integers(40, size=(n_clusters, 4))[np.arange(N) % n_clusters]
    cells = np.where(g.random(cells.shape) < 0.05, g.integers(40, size=cells.shape), cells)
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c,d", *(",".join(f"v{v}" for v in row) for row in cells.tolist())]))
    keys = ("run.chains=1", "run.until=cycles", "run.cycles=2", "run.ranks=1")
    monkeypatch.chdir(tmp_path)
    assert main(["run", "t.csv", *(word for key in keys for word in ("--set", key))]) == 0
    out = capsys.readouterr().out
    assert "searches for views: 3, on 200 rows each" in out
    assert ("3, on 729 rows each, since clusters are small" in out) is again
