"""Runs whose linked columns have learned bases: ranks, stops, views, and answers from kept draws."""

import numpy as np
import pytest

from mpibayes.hpc.crosscat.draws import Posterior, iterate_draws
from tests.links.runs import require_the_same_in_pieces
from tests.links.test_links_runs import CONFIG, VIEWS, links_table
from tests.run.conftest import mpibayes, run


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("bases")
    links_table(place / "table.h5")
    (place / "run.toml").write_text(CONFIG.replace("[sampler]", 'link_base = "learned"\n[sampler]'))
    assert run(place, "straight").returncode == 0
    return place


def drawn(place, name):
    return [(draw.parents.tolist(), np.trim_zeros(draw.tables, "b").tolist()) for draw in iterate_draws(place / name)]


def test_on_ranks_and_continued(place):
    require_the_same_in_pieces(place, "straight", ((5, 3), (12, 2)), drawn=drawn)
    assert any(tables for _, tables in drawn(place, "straight"))


@pytest.mark.thorough
def test_in_views_on_ranks_and_continued(place):
    assert run(place, "views", *VIEWS).returncode == 0
    require_the_same_in_pieces(place, "views", ((5, 2), (12, 1)), *VIEWS, drawn=drawn)


@pytest.mark.thorough
def test_answers_use_the_bases_of_the_draw(place):
    """A new cluster predicts the base in each context, also in one that no row of it has."""
    named = 'model.links=[["b", "a"], ["flag", "a"]]'
    assert run(place, "named", "--set", named, "--set", "run.cycles=6").returncode == 0
    posterior = Posterior([place / "named"])
    (law,) = list(posterior.draws(1))
    view = law.views[0]
    kind, tree = view.components.categorical, view.blocks[0]
    c = next(i for i, column in enumerate(kind.columns) if column.name == "b")
    base = kind.base[kind.offsets[c] : kind.offsets[c + 1]].reshape(32, 6)
    np.testing.assert_allclose(base[:, :-1].mean(axis=1), 1.0, atol=1e-12)
    assert base[:, :-1].std(axis=1).max() > 0.5
    at = next(t for t in tree.tables if (t.n_contexts, t.n_levels) == (32, 5))
    np.testing.assert_allclose([at.levels(u)[:, -1] for u in range(32)], base[:, :-1] / 5, rtol=1e-9)
    for words in (
        ["query", "named", "logp", "--of", "b=p", "--given", "a=a3"],
        ["synthesize", "named", "--rows", "50", "--copies", "1", "-o", "made"],
        ["complete", "named", "--copies", "1", "-o", "copies"],
        ["report", "named"],
    ):
        done = mpibayes(place, *words)
        assert done.returncode == 0, done.stderr
