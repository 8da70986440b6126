"""The cost model: its collectives by hand, what it must not do, and what `check` makes of it. Nothing is timed."""

from dataclasses import replace

import numpy as np
import pytest

from mpibayes.hpc.crosscat import check
from mpibayes.hpc.crosscat.cost import cost_model, rehearsal, speed
from mpibayes.hpc.crosscat.cost.cost_constants import SECONDS
from mpibayes.hpc.crosscat.cost.cost_model import (
    COMPUTE,
    ONE_NODE,
    Coefficients,
    Cycle,
    Design,
    Network,
    Problem,
    bottleneck,
    compute_seconds,
    efficiency,
    features,
    forecast,
    message_seconds,
    wire_bytes,
)
from mpibayes.hpc.crosscat.start import combined
from mpibayes.io.rows import place_columns

FLAT = Network("flat", 1e-6, 1e9, ranks_per_node=1)
CENSUS = Problem(500_000, 68, 465, 64, 10, widest=19, moves_every=0)


def test_every_phase_has_constants():
    assert set(SECONDS) == {*COMPUTE, "crowd"}
    for phase, constants in SECONDS.items():
        assert constants and min(constants.values()) >= 0, phase
        assert set(constants) <= set(features(phase, CENSUS, 1, 1)), phase


def test_features_by_hand():
    p = Problem(1000, 3, 12, 20, 2, reals=2, counts=1, moved=0.25)
    assert p.lanes == 32
    x = features("sweep", p, 100, 1)
    assert x["row"] == 100 and x["row x column x lane"] == 100 * 3 * 32 and x["row x real x lane"] == 100 * 2 * 32
    assert features("collapsed shard", p, 100, 1)["row x column"] == 100 * p.columns
    assert x["row x column x lane, far"] == 0
    far = replace(p, level_rows=100_000)
    assert features("sweep", far, 100, 1)["row x column x lane, far"] == 100 * 3 * 32
    assert features("statistics", p, 100, 2)["changed row x column"] == 75
    assert features("statistics", p, 100, 2, Design(changed_rows=False))["changed row x column"] == pytest.approx(90)
    seconds = sum(SECONDS["draw"].get(k, 0) * v for k, v in features("draw", p, 100, 2).items())
    assert compute_seconds("draw", p, 100, 2) == seconds
    with pytest.raises(KeyError):
        features("tea", p, 1, 1)


def test_collectives_by_hand():
    """Latency 1 us, 1 GB/s, a rank a node: 3 rounds among 8, or 6 rounds with pieces; a ring when it is long."""
    add = cost_model.ADD_S
    assert cost_model.reduce_everywhere(8, 8, FLAT) == pytest.approx(3 * (1e-6 + 8e-9 + 8 * add))
    n = 1e7
    assert cost_model.reduce_everywhere(n, 8, FLAT) == pytest.approx(6e-6 + 7 / 8 * n * (2e-9 + add))
    assert cost_model.broadcast(8, 8, FLAT) == pytest.approx(3 * (1e-6 + 8e-9))
    assert cost_model.broadcast(n, 8, FLAT) == pytest.approx(10e-6 + 2 * 7 / 8 * n * 1e-9)
    assert cost_model.gather_everywhere(800, 8, FLAT) == pytest.approx(3e-6 + 700e-9)
    assert cost_model.gather_everywhere(n, 8, FLAT) == pytest.approx(7e-6 + 7 / 8 * n * 1e-9)
    for collective in (cost_model.reduce_everywhere, cost_model.broadcast, cost_model.gather_everywhere):
        assert collective(1000, 1, FLAT) == 0
        assert collective(1000, 9, FLAT) > collective(1000, 8, FLAT)
        assert collective(2e6, 64, FLAT) > collective(1e6, 64, FLAT)
    assert cost_model.gather(1000, 1, FLAT) == 0
    two = Network("two", 1e-6, 1e9, ranks_per_node=4)
    assert cost_model.reduce_everywhere(8, 4, two) < cost_model.reduce_everywhere(8, 4, FLAT)


def test_bytes_on_the_wire_by_hand():
    p = Problem(1000, 3, 12, 20, 40, reals=2, counts=1)
    assert wire_bytes(p, 1) == {} and message_seconds(p, 1, FLAT) == {}
    n = wire_bytes(p, 8)
    assert n["counts"] == 4 * 12 * 20 + 4 * 3 * 20 and n["anchors"] == 8 * 20 and n["moments"] == 3 * 8 * 3 * 2 * 20
    assert n["parameters"] == 4 * 12 * 20 + 8 * (6 + 2 + 2) * 20
    old = wire_bytes(p, 8, Design(tree=False, slim=False))
    assert old["anchors"] == 40 * 8 * 20 and old["moments"] == 40 * 8 * 3 * 2 * 20 and old["news"] == 32 * 40


def test_a_forecast_is_sane():
    one = forecast(CENSUS, 1)
    assert efficiency(one, one, 1) == 1 and set(one.seconds) >= {"sweep", "collapsed shard", "draw", "reduction"}
    before = one.total
    for ranks in (2, 5, 10):
        many = forecast(CENSUS, ranks)
        assert 0 < efficiency(one, many, ranks) < 1 and many.total < before
        before = many.total
    assert forecast(CENSUS, 100).total > 0.9 * forecast(CENSUS, 10).total  # more ranks than shards are no help
    assert forecast(replace(CENSUS, rows=1_000_000, shards=20), 1).total > 1.5 * one.total
    assert forecast(replace(CENSUS, moves_every=4), 1).total > one.total
    three, four = (forecast(CENSUS, ranks).seconds["sweep"] for ranks in (3, 4))
    assert three == pytest.approx(four * 4 / 3)  # 4 and 3 of the 10 shards on the busiest rank
    root = Design(divided=False, tree=False)
    reals = Problem(50_000_000, 68, 465, 64, 1000, reals=10)
    assert forecast(reals, 1000, ONE_NODE, root).total > 1.5 * forecast(reals, 1000).total


def test_the_bottleneck_is_what_does_not_shrink():
    one, many = Cycle({"sweep": 8.0, "draw": 0.2, "news": 0.1}), Cycle({"sweep": 1.1, "draw": 0.2, "news": 0.3})
    assert bottleneck(one, many, 8) == "news"
    assert efficiency(one, many, 8) == pytest.approx(8.3 / (8 * 1.6))


def test_speed_follows_the_sample():
    """A sample twice as slow as the model makes everything but messages twice as slow."""
    columns = place_columns([(f"c{i}", "categorical", tuple("abcdef")) for i in range(30)] + [("x", "real", ())])
    timing = speed.Timing(20_000, 4, 0.0, 1.0, 0.0, 40, 0.1)
    slow = speed.Speed.of(columns, 10_000_000, 200, 0, replace(timing, cycle_s=2.0))
    fast = speed.Speed.of(columns, 10_000_000, 200, 0, timing)
    assert (fast.problem.columns, fast.problem.level_rows, fast.problem.reals, fast.problem.widest) == (30, 210, 1, 7)
    assert slow.factor == pytest.approx(2 * fast.factor) and slow.cycle_s(1) == pytest.approx(2 * fast.cycle_s(1))
    talk = sum(message_seconds(fast.problem, 200, speed.TYPICAL_NETWORK).values())
    assert slow.cycle_s(200) - talk == pytest.approx(2 * (fast.cycle_s(200) - talk))
    assert fast.cycle_s(200) == fast.cycle_s(1000) and fast.wire_bytes(1) == 0 < fast.wire_bytes(2)
    words = fast.in_words()
    assert words.startswith("1: ") and "200: " in words and "256" not in words and words.count("(") == 4
    moving = speed.Speed.of(columns, 10_000_000, 200, 4, replace(timing, moves_s=3.0))
    per_row = 3.0 / 20_000 * 10_000_000 / 4
    assert 3.0 / 4 < moving.cycle_s(1) - fast.cycle_s(1) < 1.2 * per_row


def test_a_draw_of_coefficients_is_as_it_was_measured():
    """Its rows are shared among ranks, and root's part is not; each gradient of every shard goes to root."""
    of = Coefficients(own=2, shared=3, passes=5, row_s=2e-8, root_s=0.5)
    timing = speed.Timing(20_000, 4, 0.0, 1.0, 0.0, 40, 0.1, coefficients=of)
    columns = place_columns([("c", "categorical", tuple("ab"))])
    drawn = speed.Speed.of(columns, 10_000_000, 200, 0, timing)
    without = speed.Speed.of(columns, 10_000_000, 200, 0, replace(timing, coefficients=None))
    assert drawn.cycle_s(1) - without.cycle_s(1) == pytest.approx(0.2 + 0.5)
    assert drawn.cycle_s(20, drawn=False) == pytest.approx(without.cycle_s(20))
    sent = of.message_seconds(40, 200, 20, speed.TYPICAL_NETWORK)
    assert drawn.cycle_s(20) - without.cycle_s(20) == pytest.approx(0.01 + 0.5 + sent)
    assert of.messages(40, 200) == (8 * 200 * (41 + 83), 8 * (83 + 5), 8 * 200 * 40 * 16)
    softmax = replace(of, own=4, shared=6, n_eta=2)  # of three levels: products of the same 5 predictors
    assert softmax.messages(40, 200)[2] == 8 * 200 * 40 * (2 + 15)
    whole = 5 * 8 * 200 * 124 + 6 * 8 * 88 + 8 * 200 * 40 * 16
    assert drawn.wire_bytes(20) - without.wire_bytes(20) == whole


def test_first_cycles_count_as_they_took():
    """Three cycles were timed, of 5, 3 and 2 later ones, and the fourth and fifth are like their mean."""
    columns = place_columns([("c", "categorical", tuple("ab"))])
    timing = speed.Timing(20_000, 4, 0.0, 0.6, 1.6, 40, 0.1, first=(5.0, 3.0, 2.0))  # a later one: 0.6 + 1.6 / 4
    of = speed.Speed.of(columns, 20_000, 4, 4, timing)
    assert of.cycle_s(1) == pytest.approx(1.0)
    assert [of.first_s(1, n) for n in (1, 2, 3, 5)] == pytest.approx([4.0, 6.0, 7.0, 7.0 + 2 * (10 / 3 - 1)])
    twice = speed.Speed.of(columns, 40_000, 4, 4, timing)
    assert twice.first_s(1, 2) == pytest.approx(6.0 * twice.cycle_s(1))
    assert speed.Speed.of(columns, 20_000, 4, 4, replace(timing, first=())).first_s(1, 5) == 0.0


@pytest.mark.thorough
def test_a_sample_starts_from_random_clusters_and_visits_stray_rows(tmp_path, monkeypatch):
    """Its first cycles, which have 128 clusters, take longer than later ones; scores and stray rows are timed."""
    from mpibayes.hpc.crosscat.chain import Settings
    from mpibayes.hpc.data.rows import Data
    from mpibayes.io.table import table_from_arrays, write_table

    rng = np.random.default_rng(0)
    z = rng.integers(0, 2, 6_000)
    made = [(f"c{i}", "categorical", (rng.random(6_000) < 0.1 + 0.8 * z).astype(int), None) for i in range(20)]
    data = Data(write_table(tmp_path / "t.h5", *table_from_arrays(made)), (), None)
    monkeypatch.setattr(rehearsal, "SAMPLE_S", 60.0)
    monkeypatch.setattr(rehearsal, "LATER_S", 1.0)
    timing = rehearsal.time_sample(data, Settings(stray_rows=300), "random", 128, heldout=600)
    assert timing.n_shards == 4 and timing.n_clusters < 64 and len(timing.first) == 100
    assert sum(timing.first[:5]) > 7 * (timing.cycle_s + timing.moves_s / 8)
    assert 0 < timing.score_s < 1e-3 and 0 < timing.strays_s < 1e-3
    alone = rehearsal.time_sample(data, Settings(shards=1, stray_rows=300), "one", 1, cycles=1)
    assert alone.strays_s == alone.score_s == 0 and len(alone.first) == 1


def test_a_sample_with_an_outcome_times_its_draws(tmp_path):
    from mpibayes.hpc.crosscat.chain import Settings
    from mpibayes.hpc.data.rows import Data
    from mpibayes.hpc.outcome.columns import Columns
    from mpibayes.hpc.outcome.keys import Outcome
    from mpibayes.io.table import table_from_arrays, write_table

    rng = np.random.default_rng(0)
    made = [("c", "categorical", rng.integers(0, 3, 30_000), None), ("y", "real", rng.normal(size=30_000), None)]
    table = write_table(tmp_path / "t.h5", *table_from_arrays(made))
    outcome = Columns.of(Outcome(column="y"), Data(table, (), None), None)
    timing = rehearsal.time_sample(
        Data(table, ("y",), None), Settings(shards=4, split_merge=0), "one", 1, 2, outcome=outcome
    )
    of = timing.coefficients
    assert (of.own, of.shared, of.passes) == (1, 0, 9)
    assert 0 < of.row_s < 1e-5 and 0 < of.root_s < 0.2 and timing.cycle_s > 0


def test_a_sample_has_shards_as_long_as_a_run(tmp_path):
    """A run of many shards must not be timed with shards of a few rows."""
    from mpibayes.hpc.crosscat.chain import Settings
    from mpibayes.hpc.data.rows import Data
    from mpibayes.io.table import table_from_arrays, write_table

    rng = np.random.default_rng(0)
    columns, rows = table_from_arrays([("c", "categorical", rng.integers(0, 3, 30_000), None)])
    data = Data(write_table(tmp_path / "t.h5", columns, rows), (), None)
    timing = rehearsal.time_sample(data, Settings(shards=600), "one", 1, cycles=1)
    assert timing.n_rows == rehearsal.SAMPLE_ROWS and timing.n_shards == 4 and timing.cycle_s > 0
    assert rehearsal.time_sample(data, Settings(shards=2, split_merge=0), "one", 1, cycles=1).moves_s == 0


def test_several_searches_of_a_sample_are_combined(tmp_path, monkeypatch):
    """The largest view is scored on as many rows as in a run; one search combines nothing."""
    from mpibayes.hpc.crosscat.chain import Settings
    from mpibayes.hpc.crosscat.start.views import Found, Pilot
    from mpibayes.hpc.data.rows import Data
    from mpibayes.io.table import table_from_arrays, write_table

    rng, asked = np.random.default_rng(0), []
    made = [(f"c{i}", "categorical", rng.integers(0, 3, 900), None) for i in range(5)]
    data = Data(write_table(tmp_path / "t.h5", *table_from_arrays(made)), (), None)
    views = [Found((f"c{i}",), None, None) for i in (3, 4)]
    found = Pilot([views[0], Found(("c0", "c1", "c2"), None, None), views[1]], (1.0, 0.0))
    monkeypatch.setattr(rehearsal, "_found", lambda *_: found)
    monkeypatch.setattr(combined, "scored", lambda *of: asked.append(of))
    monkeypatch.setattr(rehearsal, "_seconds", lambda work: work() or 2.0)
    of = data, Settings(view_concentration="learn"), "random", 4, 1, 3, 100
    assert rehearsal.time_sample(*of).combining_s == 0.0 and not asked
    seconds = 2.0 * combined.work_in_all(3) * 5 / combined.work_of(3, 5)
    assert rehearsal.time_sample(*of, searches=3).combining_s == pytest.approx(seconds)
    ((_, columns, rows, fold, settings, _, names),) = asked
    assert names == {"c0", "c1", "c2"} and len(columns) == 5 and len(rows) == len(fold) == 300
    assert fold.max() == 1 and settings.view_concentration == "learn"


def test_searches_and_their_combination_precede_the_first_cycle():
    timing = speed.Timing(1000, 1, 0.5, 1.0, 0.0, 40, 0.1, search_s=2.0, combining_s=6.0)
    forecast = [check._start_s(timing, 3000, 3, at_once) for at_once in (1, 2, 3)]
    assert forecast == pytest.approx([1.5 + 6.0 + 6.0, 1.5 + 4.0 + 3.0, 1.5 + 2.0 + 2.0])
