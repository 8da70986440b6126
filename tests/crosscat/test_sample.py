"""On a large table a chain starts from the clusters of a sample of its rows."""

import gc
import weakref

import numpy as np
import pytest

from mpibayes.hpc.config.load import load
from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.start import sample, strategy, views
from mpibayes.hpc.crosscat.start.alone import chain_on
from mpibayes.hpc.parallel.comm import Serial, serial
from mpibayes.hpc.parallel.tasks import Stopped
from mpibayes.io.table import table_from_arrays
from tests.crosscat.test_search import table
from tests.crosscat.test_searches import Data

LINKS = {"none": "none", "forest": "forest"}


def rows_between(data):
    return lambda start, stop: data.rows.take(slice(start, stop))


def started(seed=3, views_of=None, **keys):
    data = Data(*table(1))
    settings = Settings(seed=seed, shards=2, view_concentration=None if views_of is None else "learn", **keys)
    mixture = Mixture(serial(), data.columns, rows_between(data), len(data.rows), settings)
    pilot = None
    if views_of is not None:  # a search's, with all rows in one cluster
        alone = chain_on(serial(), data.columns, data.rows, settings, 0, views_of)
        alone.start("one")
        pilot = views.Pilot(views.found_by(alone).views, (2.0, 0.25))
    return data, mixture, pilot


@pytest.mark.thorough
@pytest.mark.parametrize("few", [100, 3000], ids=["from few rows", "from one cluster"])
@pytest.mark.parametrize("links", LINKS.values(), ids=LINKS)
def test_every_row_starts_in_a_cluster_of_the_sample(links, few, monkeypatch):
    monkeypatch.setattr(sample, "FIRST_ROWS", few)
    data, mixture, _ = started(links=links)
    found = sample.clusters_of_sample(serial(), data, mixture, 200)
    assert len(data.asked) == 1 and len(data.asked[0]) == 200  # only the sample was read
    views.follow(mixture, found)
    assert len(found.views[0].statistics) > 1 and found.views[0].statistics.size.sum() == 200
    labels = np.concatenate(mixture.view.z)
    assert labels.min() >= 0 and labels.max() < len(found.views[0].statistics)
    assert not mixture.growing and mixture.cycles == 0
    mixture.cycle()


def test_views_of_a_search_stay():
    names = [column.name for column in table(1)[0]]
    given = names[::2], names[1::2]
    data, mixture, pilot = started(views_of=given)
    found = sample.clusters_of_sample(serial(), data, mixture, 150, pilot)
    assert [list(of.columns) for of in found.views] == list(given) and found.process == (2.0, 0.25)
    assert all(of.statistics.size.sum() == 150 for of in found.views)
    views.follow(mixture, found)
    assert [list(view.columns) for view in mixture.views] == list(given)


def test_no_false_cluster_stays(monkeypatch):
    """All three starts find the five clusters; in chains of 10 cycles, all have more."""
    g = np.random.default_rng(1)
    z = g.integers(5, size=40_000)
    share, mean = g.uniform(0.05, 0.95, (5, 10)), g.normal(0, 4, (5, 3))
    cells, numbers = g.random((len(z), 10)) < share[z], mean[z] + g.standard_normal((len(z), 3))
    columns = [(f"b{j}", "boolean", of.astype(int), ["0", "1"]) for j, of in enumerate(cells.T)]
    columns += [(f"x{j}", "real", of, None) for j, of in enumerate(numbers.T)]
    data = Data(*table_from_arrays(columns))

    def found(chain):
        whole = Mixture(serial(), data.columns, rows_between(data), len(z), Settings(seed=0, split_merge=4), chain)
        return int((sample.clusters_of_sample(serial(), data, whole, 10_000).views[0].statistics.size > 200).sum())

    assert [found(chain) for chain in (1, 2, 3)] == [5, 5, 5]
    monkeypatch.setattr(sample, "CYCLES", 10)
    assert min(found(chain) for chain in (1, 2, 3)) > 5, "the wrong one: false clusters have no time to merge"


def test_chains_have_samples_of_their_own():
    places = []
    for chain in (0, 1, 0):
        data, mixture, _ = started()
        mixture.chain = chain
        sample.clusters_of_sample(serial(), data, mixture, 100)
        places.append(data.asked[0])
    assert np.array_equal(places[0], places[2]) and not np.array_equal(places[0], places[1])


def test_a_stop_ends_it():
    data, mixture, _ = started()
    comm = Serial()
    comm.asked_to_stop = lambda: True
    with pytest.raises(Stopped):
        sample.clusters_of_sample(comm, data, mixture, 100)


@pytest.mark.parametrize(
    "family, n_rows, keys, of_search, of_clusters",
    [
        ("mixture", 29_999, "", 0, 0),
        ("mixture", 30_000, "", 10_000, 10_000),
        ("mixture", 250_000, "", 25_000, 25_000),
        ("mixture", 9_000_000, "", 50_000, 50_000),
        ("mixture", 250_000, "init_rows = 700", 700, 700),
        ("mixture", 250_000, "init_rows = 0", 0, 0),
        ("mixture", 250_000, 'init = "one"', 0, 0),
        ("mixture", 250_000, 'strategy = "anneal"', 0, 0),
        ("crosscat", 29_999, "", 3000, 0),
        ("crosscat", 250_000, "", 3000, 25_000),
        ("crosscat", 250_000, "init_rows = 0", 0, 0),
    ],
)
def test_rows_of_the_sample(tmp_path, family, n_rows, keys, of_search, of_clusters):
    (tmp_path / "run.toml").write_text(f'[data]\ntable = "t.h5"\n[model]\nfamily = "{family}"\n[sampler]\n{keys}\n')
    config = load(tmp_path / "run.toml")
    assert strategy.pilot_rows(config, n_rows) == of_search
    assert strategy.cluster_rows(config, n_rows) == of_clusters
    resolved = config.changed("sampler", init=strategy.initial(config, n_rows), init_rows=of_search)
    words = strategy.start_in_words(resolved, n_rows, 10)
    assert (f"in clusters found on a sample of {of_clusters:,}" in words) == (of_clusters > 0)


@pytest.mark.parametrize(
    "keys, n_rows, init",
    [
        ("", 9_000, "random"),
        ('links = "forest"', 9_000, "one"),
        ('links = "forest"\nlines = ["x", "y"]', 9_000, "random"),
        ('links = [["a", "b"]]', 9_000, "random"),
        ('links = "forest"\nlink_base = "learned"', 9_000, "random"),
        ('links = "forest"', 30_000, "random"),
        ('links = "forest"\nlikelihood = false', 9_000, "random"),
    ],
)
def test_a_mixture_that_learns_links_without_lines_starts_from_one_cluster(tmp_path, keys, n_rows, init):
    """Among random clusters links between columns with levels are not found."""
    (tmp_path / "run.toml").write_text(f'[data]\ntable = "t.h5"\n[model]\nfamily = "mixture"\n{keys}\n')
    assert strategy.initial(load(tmp_path / "run.toml"), n_rows) == init


def test_a_chain_that_has_ended_is_freed_at_once():
    data = Data(*table(1))
    gc.disable()  # no cycle of references keeps its rows
    try:
        for links in LINKS.values():
            chain = chain_on(serial(), data.columns, data.rows, Settings(seed=1, links=links), 0)
            chain.start("one")
            chain.cycle()
            gone = weakref.ref(chain), weakref.ref(chain.view)
            del chain
            assert [of() for of in gone] == [None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize("links", LINKS.values(), ids=LINKS)
def test_chains_on_a_sample_leave_its_rows_as_they_are(links):
    data = Data(*table(1))
    before = data.rows.take(slice(None))
    chain = chain_on(serial(), data.columns, data.rows, Settings(seed=1, links=links), 0)
    chain.start("random", 3)
    for _ in range(3):
        chain.cycle()
    assert all(np.array_equal(array, getattr(before, name)) for name, array in vars(data.rows).items())
