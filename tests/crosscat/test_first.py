"""The score that a run prints before its searches for views."""

import numpy as np
import pytest

from mpibayes.hpc.crosscat.law import Density
from mpibayes.hpc.crosscat.start import first
from mpibayes.hpc.crosscat.view_density import densities
from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.registry import family_of
from mpibayes.hpc.run.examine import examine
from mpibayes.io.rows import Rows
from mpibayes.io.table import table_from_arrays, write_table

CONFIG = '[data]\ntable = "t.h5"\nheldout = 0.1\n[model]\nfamily = "crosscat"\n[run]\nshards = 3\ncycles = 1\n'


@pytest.fixture
def made(tmp_path):
    g = np.random.default_rng(1)
    z = g.integers(4, size=600)
    columns = [
        (f"c{i}", "categorical", np.where(g.random(600) < 0.1, g.integers(4, size=600), z), None) for i in range(6)
    ]
    columns.append(("x", "real", g.normal(3.0 * z), None))
    write_table(tmp_path / "t.h5", *table_from_arrays(columns))
    (tmp_path / "run.toml").write_text(CONFIG)
    result = examine(tmp_path / "run.toml", [])
    return lambda: family_of(result.config.kind)(serial(), result.config, result.data).chain(result.config, 0)


def test_it_is_of_all_held_out_rows_and_knows_the_clusters(made):
    chain = made()
    other = first.mixture_of_all(chain.mixture, chain.data)
    assert len(other.views) == 1 and other.n_rows == 540
    blocks = [block for _, block in sorted(chain.heldout.rows.blocks.items())]
    rows = Rows.concatenate(chain.data.columns, blocks)
    log = Density(densities(other.views, other.linking.codings)).log_density(rows)
    score = chain.heldout.score_of(other)
    assert len(blocks) == 3 and len(rows) == 60 and score == pytest.approx(log.mean())
    one = made()
    one.mixture.start("one")
    assert score > one.heldout.score_of(one.mixture) + 1.0


def test_the_chain_itself_draws_the_same_without_it(made, monkeypatch, capsys):
    chain = made()
    chain.start()
    assert capsys.readouterr().out.index("after 10 cycles: heldout=-") < 120
    monkeypatch.setattr(first, "mixture_of_all", lambda *_: None)
    other = made()
    monkeypatch.setattr(other.heldout, "score_of", lambda _: 0.0)
    other.start()
    assert [view.columns for view in other.mixture.views] == [view.columns for view in chain.mixture.views]
    assert chain.advance((0,), 1).values["heldout_lpd"] == other.advance((0,), 1).values["heldout_lpd"]
