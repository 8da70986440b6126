"""Rows that a search does not see judge its trials, where they tell more than chance."""

import numpy as np
import pytest

from mpibayes.hpc.crosscat.columns.scan import Rowwise, of_views
from mpibayes.hpc.crosscat.law import Density
from mpibayes.hpc.crosscat.laws.view_density import ViewDensity
from mpibayes.hpc.crosscat.start import evidence, probe, strategy
from mpibayes.hpc.crosscat.start.dependence import between_units, branches, linked
from mpibayes.hpc.crosscat.start.probe import Probe
from mpibayes.hpc.crosscat.start.trials import Change, Trials
from tests.crosscat.test_trials import N, settled, stream, table


def unseen(n=200):
    return table(1)[1].take(slice(n))


def test_density_is_that_of_the_views_together():
    chain = settled(1, "ab", "c")
    parts = [ViewDensity(v.components, v.hyper, v.partition.statistics) for v in chain.views]
    whole = Density(parts, chain.places).log_density(unseen())
    rows = Probe(unseen())
    assert np.allclose(sum(rows.log_densities(chain, chain.views)), whole, rtol=1e-12)
    each = sum(rows.log_densities(chain, [view])[0] for view in chain.views)
    assert np.allclose(each, whole, rtol=1e-12)


def test_a_difference_that_may_be_chance_is_none():
    g = np.random.default_rng(1)
    before = g.normal(size=400)
    assert probe.gain(before + 0.3 + 0.1 * g.normal(size=400), before) == pytest.approx(0.3, abs=0.03)
    assert probe.gain(before - 0.3 + 0.1 * g.normal(size=400), before) == pytest.approx(-0.3, abs=0.03)
    assert probe.gain(before + np.tile([1.0, -1.0], 200), before) == 0.0


@pytest.mark.quick(every=2)
@pytest.mark.parametrize("predicts, better", [(0.2, True), (-0.2, False), (0.0, False)])
def test_the_probe_decides_before_the_evidence(predicts, better, monkeypatch):
    """Two true views as one have far less evidence; where the probe tells nothing, that counts."""
    chain = settled(1, "a", "bc")
    a, b = map(np.array, chain.units_of_views())
    change = Change(b, (1, 0), [(np.sort(np.concatenate([a, b])), of_views(chain.views)[0])], 0.0)
    tried = Trials(chain, stream(1))
    monkeypatch.setattr(tried, "_predicts", lambda other, home: predicts)
    (worth,) = tried._worth({change: chain.beside(change.new)}).values()
    assert (worth > 0) == better and (predicts == 0.0 or worth == predicts)


def test_rows_are_dealt_to_the_largest_clusters_of_a_product():
    chain = settled(1, "a", "bc")
    one, two = of_views(chain.views)
    both = np.arange(len(chain.units))
    result = evidence.dealt(chain.subject(chain.names(both)), one, two, np.random.default_rng(0).random(N))
    assert result.z[0].min() == 0 and result.z[0].max() == result.n_labels - 1 <= evidence.MAX_CLUSTERS
    assert result.n_labels >= max(one.n_labels, two.n_labels), "finer than either"
    alone = Rowwise([np.arange(N, dtype=np.int32)], N, one.process)  # of single rows, none of which is larger
    assert (
        0
        < evidence.dealt(chain.subject(chain.names(both)), alone, two, np.full(N, 0.5)).n_labels
        <= evidence.MAX_CLUSTERS
    )


@pytest.mark.thorough
@pytest.mark.parametrize("known", [True, False])
def test_columns_that_are_close_leave_together(known):
    """Rows have settled with all columns in one view: single columns do not find out of it."""
    chain = settled(1, "abc")
    columns, rows = table(1)
    if known:
        chain.branches = branches(linked(between_units(columns, rows, chain.units)))
    Trials(chain, stream(1)).run()
    views = {frozenset(name[0] for name in view.columns) for view in chain.views}
    assert (frozenset("a") in views) == known


def test_how_many_rows_are_left_out():
    assert strategy.n_probes(7200, 3000) == 1500 and strategy.n_probes(2268, 2520) == 227
    assert strategy.n_probes(400, 3000) == 0, "too few to tell"
    for n_rows in (0, 1, 50, 400, 600, 3100, 10**7):
        for most in (1, 100, 3000):
            assert 0 <= strategy.n_probes(n_rows, most) <= max(most // 2, 0) and (
                strategy.n_probes(n_rows, most) < max(n_rows, 1)
            )
