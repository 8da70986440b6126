"""Runs with numbers that lean on columns with levels, from the command line: ranks, stops, growth, reports, and
configurations that are refused."""

import json

import numpy as np
import pytest
from scipy.special import logsumexp

from mpibayes.hpc.query.asking import Asking
from mpibayes.io.table import table_from_arrays, write_table
from tests.links.known import log_p
from tests.links.runs import links_of, require_the_same_in_pieces
from tests.run.conftest import exported, mpibayes, run, small_config

CONFIG = small_config('links = [["x", "kind"], ["n", "kind"], ["y", "x"]]', cycles=10)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place, g, n = tmp_path_factory.mktemp("children"), np.random.default_rng(3), 300
    kind, c = g.integers(4, size=n), g.integers(2, size=n)
    x = 3.0 * kind + g.normal(size=n)
    gaps = np.where(g.random(n) < 0.1, np.nan, g.normal(size=n) + c)
    levels = ["k0", "k1", "k2", "k3"]
    columns = [("kind", "categorical", np.where(g.random(n) < 0.1, -1, kind), levels), ("x", "real", x, None)]
    columns += [("y", "real", x + 0.2 * g.normal(size=n), None), ("gaps", "real", gaps, None)]
    columns += [("n", "count", g.poisson(1.0 + 3.0 * kind).astype(float), None), ("c", "categorical", c, ["p", "q"])]
    columns += [("full", "categorical", kind, levels)]
    write_table(place / "table.h5", *table_from_arrays(columns))
    (place / "run.toml").write_text(CONFIG)
    assert run(place, "straight").returncode == 0
    return place


def test_named_links_are_kept_and_recorded(place):
    assert 'children = ["x", "n"]' in (place / "straight" / "config.resolved.toml").read_text()
    assert {tuple(parents) for parents in links_of(place, "straight")} == {(-1, 0, 1, -1, 0, -1, -1)}
    assert mpibayes(place, "report", "straight").returncode == 0
    pairs = json.loads((place / "straight" / "report" / "summary.json").read_text())["links"]["pairs"]
    (pair,) = [pair for pair in pairs if pair["child"] == "x"]
    assert pair["parent"] == "kind" and "where kind is k3" in pair["example"]


@pytest.mark.thorough
def test_numbers_on_categories_in_views(place):
    """The same bytes on ranks and continued; all doors open."""
    views = "model.family=crosscat", "model.links=forest", 'model.children=["x", "y", "gaps", "n"]', "data.heldout=0.1"
    views += "sampler.searches=1", "sampler.link_moves=2", "sampler.column_moves=2", "sampler.column_powers=3"
    views = [word for setting in views for word in ("--set", setting)]
    assert run(place, "views", *views).returncode == 0
    assert any(parents[c] in (0, 5, 6) for parents in links_of(place, "views") for c in (1, 2, 3, 4))
    require_the_same_in_pieces(place, "views", ((5, 3), (10, 2)), *views)
    for what in (
        ("complete", "views", "--copies", "2", "-o", "filled"),
        ("synthesize", "views", "--rows", "40", "--copies", "2", "-o", "made"),
        ("report", "views"),
        ("predict", "views", "table.h5", "-o", "p.csv"),
        ("query", "views", "logp", "--of", "x=3", "--given", "full=k1"),
        ("query", "views", "conditional", "full", "--given", "x=6"),
        ("query", "views", "simulate", "--given", "full=k1", "-n", "5"),
        ("query", "views", "surprisal", "--top", "3"),
        ("query", "views", "dependence"),
    ):
        done = mpibayes(place, *what)
        assert done.returncode == 0, (what, done.stderr)
    asking = Asking(place / "views", draws=4)
    asking.draws([column.name for column in asking.columns])
    for target, given in (
        ({"x": 6.0}, {"y": 6.2}),
        ({"full": "k2"}, {"n": 7.0, "x": 5.5}),
        ({"n": 4.0}, {"full": "k1"}),
    ):
        both = log_p(asking, {**target, **given}, {})
        assert both == pytest.approx(log_p(asking, target, given) + log_p(asking, given, {}), abs=1e-9)
    parts = [log_p(asking, {"full": level, "x": 6.0}, {"n": 7.0}) for level in ("k0", "k1", "k2", "k3")]
    assert logsumexp(parts) == pytest.approx(log_p(asking, {"x": 6.0}, {"n": 7.0}), abs=1e-9)


@pytest.mark.thorough
def test_learned_links_grow_with_the_subsample(place):
    more = ("model.links=forest", "sampler.link_moves=2", "sampler.strategy=anneal", "anneal.passes=2")
    more += ("run.cycles=16", "run.burn_in=6")
    settings = [word for setting in more for word in ("--set", setting)]
    assert run(place, "grown", *settings).returncode == 0 and run(place, "grown-2", *settings, ranks=2).returncode == 0
    assert exported(place, "grown") == exported(place, "grown-2")
    assert 'children = ["x", "y", "gaps"]' in (place / "grown" / "config.resolved.toml").read_text()


REFUSED = [
    ('model.links=[["x", "kind"], ["c", "x"]]', 'so that "c" cannot depend on its bins'),
    ('model.children=["kind"]', 'the run has no column of numbers "kind"'),
    ("model.children=none", "is linked with a categorical column in model.links; add it here"),
    ("model.family=crosscat", "in views, a parent must have no missing cells"),
]


@pytest.mark.parametrize(("setting", "words"), REFUSED)
def test_what_cannot_lean_on_levels(place, setting, words):
    done = run(place, "refused", "--set", setting)
    assert done.returncode == 2 and words in done.stderr, done.stderr
