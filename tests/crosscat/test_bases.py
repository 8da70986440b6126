"""The base of columns with many levels: of the training rows alone, the same on all ranks and when a run is opened."""

import numpy as np
import pytest

from mpibayes.hpc.crosscat.bases import MANY, UNSEEN, with_bases
from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.draws import Posterior
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.io.table import table_from_arrays, write_table
from tests.crosscat.report.runs import make_run


def table(n=400, seed=5):
    """A column of just too few levels, a wide one with missing cells, and one of more than 255 levels."""
    g = np.random.default_rng(seed)
    wide = np.where(g.random(n) < 0.1, -1, np.minimum(g.geometric(0.05, n), MANY + 7) - 1)
    columns = [("few", MANY), ("wide", MANY + 7), ("widest", 300)]
    codes = [g.integers(0, MANY, n), wide, np.minimum(g.geometric(0.02, n), 300) - 1]
    return table_from_arrays(
        [(name, "categorical", x, [str(v) for v in range(k)]) for (name, k), x in zip(columns, codes)]
    ), codes


def test_a_base_counts_the_rows():
    (columns, rows), codes = table()
    slices = [rows.take(slice(a, a + 100)) for a in range(0, 400, 100)]
    result = with_bases({}, columns, slices, serial())
    assert set(result) == {"wide", "widest"}
    for name, x, k in (("wide", codes[1], MANY + 7), ("widest", codes[2], 300)):
        count = np.bincount(x[x >= 0], minlength=k) + UNSEEN
        np.testing.assert_allclose(result[name]["base"], count / count.mean(), rtol=1e-14)
    given = {"wide": {"dirichlet": [0.5] * (MANY + 7)}}
    assert with_bases(given, columns, slices, serial())["wide"] is given["wide"]


def test_a_run_that_is_opened_has_the_base_of_its_training_rows(tmp_path):
    (columns, rows), codes = table()
    run = make_run(tmp_path / "r", write_table(tmp_path / "t.h5", columns, rows), cycles=4, burn_in=1, heldout=0.25)
    opened = Posterior([run])
    training = codes[1][opened.data.training_rows]
    count = np.bincount(training[training >= 0], minlength=MANY + 7) + UNSEEN
    kind = opened.components.categorical
    at = [c.name for c in kind.columns].index("wide")
    np.testing.assert_allclose(kind.base[kind.offsets[at] : kind.missing_rows[at]], count / count.mean(), rtol=1e-14)


@pytest.mark.mpi(min_size=2)
def test_it_is_the_same_on_all_ranks():
    (columns, rows), _ = table()
    settings = Settings(seed=1, shards=6)

    def base(comm):
        chain = Mixture(comm, columns, lambda a, b: rows.take(slice(a, b)), len(rows), settings)
        return chain.components.categorical.base

    np.testing.assert_array_equal(base(world()), base(serial()))
