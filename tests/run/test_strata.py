"""Strata of the annealed subsample: rows of a rare kind come in early, whether a column tells the kind or a pilot."""

import numpy as np
import pytest

from mpibayes.hpc.crosscat import strata
from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.start.subsample import Annealing
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.parallel.comm import serial
from mpibayes.io.table import table_from_arrays, write_table

N, N_RARE, START = 12_000, 8, 200
SETTINGS = Settings(seed=3, shards=3, annealing=Annealing("linear", 5.0, START))


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Three common kinds and a rare one, which `kind` names (with some cells missing), and 12 columns that show it."""
    rng = np.random.default_rng(5)
    kind = rng.integers(3, size=N)
    rare = np.sort(rng.choice(N, N_RARE, replace=False))
    kind[rare] = 3
    columns = []
    for c in range(12):
        codes = np.where(rng.random(N) < 0.9, rng.integers(3, size=4)[kind] + 3 * (kind == 3), rng.integers(6, size=N))
        columns.append((f"c{c}", "categorical", codes, list("abcdef")))
    named = np.where((rng.random(N) < 0.001) & (kind < 3), -1, kind)
    columns.append(("kind", "categorical", named, ["one", "two", "three", "rare"]))
    place = tmp_path_factory.mktemp("strata") / "table.h5"
    return write_table(place, *table_from_arrays(columns)), named, rare


def first_rows(data, strata_of):
    """Mask of the rows that are active after the start of a chain."""
    mixture = Mixture(serial(), data.columns, data.rows_of, data.n_rows, SETTINGS, 0, strata_of)
    mixture.start("sequential")
    assert mixture.growing and mixture.n_active == pytest.approx(START, abs=3)
    return mixture.view.labels() >= 0


def test_without_strata_rare_rows_wait(table):
    stored, _, rare = table
    data = Data(stored, ["kind"], None)
    assert strata.chosen(serial(), data, SETTINGS, "none", 0) is None
    assert first_rows(data, None)[rare].sum() <= 2  # 8 rows of 12,000 in a sample of 200


@pytest.mark.parametrize("heldout", [None, 0.1])
def test_strata_by_a_column_that_the_model_does_not_use(table, heldout):
    stored, named, _ = table
    data = Data(stored, ["kind"], heldout)
    named = named if heldout is None else named[data.training_rows]
    strata_of = strata.chosen(serial(), data, SETTINGS, "kind", 0)
    found = np.concatenate([strata_of(a, min(a + 5000, data.n_rows)) for a in range(0, data.n_rows, 5000)])
    assert found.dtype == np.int32 and np.array_equal(found, np.where(named < 0, 4, named))  # missing: one of its own
    active = np.bincount(found[first_rows(data, strata_of)], minlength=5)
    size = np.bincount(found, minlength=5)
    assert active[3] == size[3] and active[4] == size[4]  # all of the rare kinds are in
    assert active[:3].min() > 0.9 * active[:3].max()


def test_strata_by_clusters_of_a_pilot(table):
    """The pilot sees one row in six. Rare rows that it did not see fit no cluster of it, and are a stratum then."""
    stored, named, rare = table
    data = Data(stored, ["kind"], None)
    strata_of = strata.chosen(serial(), data, SETTINGS, "clusters", 0)
    found = strata_of(0, N)
    assert np.array_equal(found, np.concatenate([strata_of(a, a + 1500) for a in range(0, N, 1500)]))
    of_kind = [np.bincount(found[named == k], minlength=found.max() + 1) for k in range(3)]
    assert all(counts.max() > 0.95 * counts.sum() for counts in of_kind)
    assert len({int(counts.argmax()) for counts in of_kind}) == 3
    assert not set(found[rare]) & {int(counts.argmax()) for counts in of_kind}
    assert first_rows(data, strata_of)[rare].all()
    assert np.array_equal(found, strata.chosen(serial(), data, SETTINGS, "clusters", 0)(0, N))


def test_rows_by_their_places(table):
    stored, _, rare = table
    for heldout in (None, 0.1):
        data = Data(stored, ["c3", "kind"], heldout)
        places = np.union1d(rare[rare < data.n_rows], [0, data.n_rows - 1])
        numbers = places if heldout is None else data.training_rows[places]
        wanted = [c.index for c in stored.columns if c.name not in ("c3", "kind")]
        assert np.array_equal(data.rows_at(places).codes8, stored.read().codes8[numbers][:, wanted])
