"""How chains fared, on traces and labels made by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mpibayes.hpc.config.config import Config
from mpibayes.hpc.config.places import Places
from mpibayes.hpc.crosscat.keys import Sampler
from mpibayes.hpc.crosscat.partitions import nearest, similarity, variations
from mpibayes.hpc.crosscat.report import agreement as chains
from mpibayes.hpc.posterior.chains import Chain
from mpibayes.hpc.posterior.scalars import MOST_R_HAT
from mpibayes.hpc.run.growth import growth_of


def make_chain(burn_in=4, growth=0, name="a", **trace):
    """A chain with a line of the trace for every cycle, half a second each."""
    n = len(next(iter(trace.values())))
    plain = {"cycle": np.arange(1, n + 1), "seconds": np.full(n, 0.5), "log_joint": np.zeros(n)}
    plain |= {"n_clusters": np.full(n, 3.0), "entropy": np.full(n, 1.0)}
    plain |= dict.fromkeys(("heldout_lpd", "heldout_lpd_averaged"), np.full(n, np.nan))
    plain |= dict.fromkeys(chains.MOVES, np.zeros(n))
    trace = plain | {key: np.asarray(values, float) for key, values in trace.items()}
    config = Config({"sampler": Sampler()}, {}, Places(Path("run.toml")))
    return Chain(name, Path(name), Path(name), config, burn_in, growth, trace)


@pytest.mark.parametrize(
    "active, growth",
    [
        ([10, 20, 20, 40, 40], 4),  # the fourth cycle ends with all rows in
        ([40, 40, 40], 0),
        ([10, 20, 20], 3),  # no end is in sight
        ([10, 40], 2),
        ([40, 20, 40, 40], 3),  # whatever happened, only what comes after it is exact
    ],
)
def test_the_growth_ends_when_all_rows_are_active(active, growth):
    assert growth_of({"cycle": np.arange(1, len(active) + 1), "active_rows": np.array(active, float)}, 40) == growth


def test_thinned_traces_and_those_that_never_grow_have_their_growth():
    assert growth_of({"cycle": np.arange(5)}, 40) == growth_of({}, 40) == 0
    assert growth_of({"cycle": np.array([5, 10, 15]), "active_rows": np.array([10.0, 40, 40])}, 40) == 10


def test_moves_are_counted_by_phase():
    tried, done = np.arange(1, 11), np.ones(10)
    counts = {"splits_tried": tried, "splits": done, "merges_tried": 2 * tried, "merges": 0 * done}
    found = chains.moves(make_chain(burn_in=5, growth=2, **counts))
    assert found == {
        "growth": {"cycles": 2, "splits_tried": 3, "splits": 2, "merges_tried": 6, "merges": 0},
        "burn-in": {"cycles": 3, "splits_tried": 12, "splits": 3, "merges_tried": 24, "merges": 0},
        "kept": {"cycles": 5, "splits_tried": 40, "splits": 5, "merges_tried": 80, "merges": 0},
    }
    assert list(chains.moves(make_chain(burn_in=2, growth=2, **counts))) == ["growth", "kept"]
    assert list(chains.moves(make_chain(burn_in=0, **counts))) == ["kept"]
    one, other = (chains.summarise_chain(make_chain(burn_in=b, growth=g, **counts)) for b, g in ((5, 2), (5, 0)))
    both = chains.moves_together([one, other])
    assert both["burn-in"]["splits_tried"] == 12 + 15 and list(both) == ["growth", "burn-in", "kept"]


def test_when_the_final_level_is_first_reached():
    rise = np.concatenate([np.linspace(-100, -10, 10), np.zeros(30)])
    chain = chains.summarise_chain(make_chain(burn_in=20, log_joint=rise))
    assert (chain.reached, chain.late, chain.seconds) == (11, 0.0, 20.0)
    late = chains.summarise_chain(make_chain(burn_in=5, log_joint=np.concatenate([np.zeros(15), np.ones(25)])))
    assert late.reached == 16  # after burn-in: the report warns of it
    # the log joint of few rows is high, and does not count
    grown = chains.summarise_chain(
        make_chain(burn_in=20, growth=12, log_joint=np.concatenate([np.full(11, 99.0), rise[11:]]))
    )
    assert grown.reached == 12 and grown.growth_s == 6.0


def test_a_thinned_trace_tells_the_time_of_all_its_cycles():
    thin = make_chain(log_joint=np.zeros(3))
    thin.trace["cycle"] = np.array([10, 20, 30])
    assert thin.seconds.tolist() == [5.0, 10.0, 15.0]


def partitions(g, truth, n_draws, noise):
    """Draws around a partition: a share `noise` of the rows at random, clusters numbered anew in every draw."""
    draws = []
    for _ in range(n_draws):
        z = np.where(g.random(len(truth)) < noise, g.integers(0, truth.max() + 1, len(truth)), truth)
        draws.append(g.permutation(truth.max() + 1)[z])
    return draws


def agreement_of(draws, of=None, r_hat=1.0):
    """`draws`: those of each chain, a list of labels."""
    labels = np.array([z for some in draws for z in some], np.int32)
    chain = np.repeat(np.arange(len(draws)), [len(some) for some in draws])
    return chains.agreement(of or summaries(len(draws)), r_hat, chain, labels, variations(labels))


def summaries(n, log_joint=(0.0, -50.0, -80.0), heldout=(-2.0, -1.5, -2.5), tried=0.0, cycles=20):
    """log_joint: of each chain a number, or one for every cycle."""
    return [
        chains.summarise_chain(
            make_chain(
                name=f"chain-{i + 1}", log_joint=np.full(cycles, log_joint[i]), heldout_lpd=np.full(cycles, heldout[i]),
                **dict.fromkeys(chains.MOVES, np.full(cycles, tried)),
            )
        )
        for i in range(n)
    ]  # fmt: skip


TRUTH = np.repeat([0, 1, 2, 3], [400, 300, 200, 100])
MERGED = np.minimum(TRUTH, 1)


def test_chains_of_one_clustering_agree():
    g = np.random.default_rng(1)
    a = agreement_of([partitions(g, TRUTH, 12, 0.02) for _ in range(3)])
    assert a.verdict == "same" and a.groups == [[0, 1, 2]] and a.n == 1000
    assert a.ari == pytest.approx(a.ari.T) and np.all(a.ari > 0.85) and np.all(a.vi < 0.6)
    (said,) = chains.answer(a, summaries(3))
    assert said.startswith("Yes: adjusted Rand index 0.")


def test_the_diagonal_compares_the_halves_of_a_chain():
    """A chain that changes its mind half-way, and one that does not."""
    a = agreement_of([[TRUTH] * 5 + [MERGED] * 5, [TRUTH] * 10])
    assert a.ari[0, 0] == pytest.approx(similarity(TRUTH, MERGED)[0]) and a.ari[1, 1] == 1
    assert a.vi[0, 0] == pytest.approx(similarity(TRUTH, MERGED)[1]) and a.vi[1, 1] == 0


def test_the_representative_of_a_chain_is_nearest_to_its_draws():
    g = np.random.default_rng(2)
    draws = partitions(g, TRUTH, 9, 0.2)
    draws.insert(3, TRUTH)  # what all others are scattered around
    labels = np.array(draws)
    assert nearest(np.arange(10), variations(labels)) == 3
    a = agreement_of([draws, [TRUTH] * 4])
    assert a.ari[0, 1] == 1 and a.vi[0, 1] == 0


def test_chains_of_other_clusterings_differ():
    g = np.random.default_rng(3)
    draws = [partitions(g, z, 12, 0.02) for z in (TRUTH, MERGED, TRUTH)]
    a = agreement_of(draws)
    assert a.verdict == "different" and a.groups == [[0, 2], [1]]
    said = " ".join(chains.answer(a, summaries(3)))
    assert said.startswith("No, there are 2 clusterings (chain-1, chain-3 | chain-2)")
    order = "chain-2 -1.500, chain-1 -2.000, chain-3 -2.500"
    assert f"The chains by held-out score, nats a row, the best first: {order}. What" in said
    assert "look at chain-2 by itself" in said
    assert "let split and merge moves run, in a new run. Until" in said
    tried = " ".join(chains.answer(a, summaries(3, tried=1.0)))
    assert "go on for longer. Until" in tried  # "auto" has a round in each of the first hundred cycles
    assert "let moves run in every cycle" in " ".join(chains.answer(a, summaries(3, tried=1.0, cycles=120)))
    stopped = [replace(c, stopped=True) for c in summaries(3, tried=1.0)]
    assert "What to do: run the same command again. Until" in " ".join(chains.answer(a, stopped))


def test_chains_that_their_log_joints_tell_apart_have_not_met():
    """Alike partitions do not excuse it, nor halves of a chain that are as different."""
    g = np.random.default_rng(5)
    alike = [[TRUTH] * 8, [TRUTH] * 8]
    spread = [list(g.integers(0, 6, (12, 1000))) for _ in range(2)]
    of = summaries(2, log_joint=(-3000.0, 0.0))
    for draws in (alike, spread):
        a = agreement_of(draws, of, r_hat=2.87)
        said = " ".join(chains.answer(a, of))
        assert a.verdict == "apart" and a.gap == 3000
        assert said.startswith("The chains have not met: their mean log joints differ by 3,000 nats (R-hat 2.87).")
        assert "the best first: chain-2 -1.500, chain-1 -2.000." in said
        assert "look at chain-2 by itself" in said
    assert agreement_of(alike, of, r_hat=1.05).verdict == "same"  # as wide as that in each chain
    assert agreement_of(alike, summaries(2, log_joint=(-90.0, 0.0)), r_hat=2.0).verdict == "same"  # nats do not matter
    few = agreement_of([[TRUTH] * 9, [TRUTH]], of, r_hat=2.87)
    assert few.verdict == "apart" and "at least 4 kept draws" in " ".join(chains.answer(few, of))
    other = agreement_of([[TRUTH] * 8, [MERGED] * 8], of, r_hat=MOST_R_HAT)
    assert other.verdict == "different" and "(R-hat > 100)" in " ".join(chains.answer(other, of))


def test_chains_of_one_score_are_ranked_by_where_their_log_joints_are_in_the_end():
    """Of two that score alike the one is best whose log joint is high after its jump, not on average."""
    jumped = np.where(np.arange(40) < 20, -900.0, 90.0)
    of = summaries(2, log_joint=(0.0, jumped), heldout=(-2.0, -2.04), cycles=40)
    assert of[0].scalars["log_joint"].mean > of[1].scalars["log_joint"].mean
    assert [c.name for c in chains.ranked(of)[0]] == ["chain-2", "chain-1"] and not chains.ranked(of)[1]
    assert [c.name for c in chains.ranked(summaries(2, heldout=(-2.0, -2.06)))[0]] == ["chain-1", "chain-2"]


def test_a_chain_that_climbs_has_not_met_the_others():
    of = summaries(2, log_joint=(np.linspace(-500.0, 0.0, 20), 0.0))
    a = agreement_of([[TRUTH] * 8, [TRUTH] * 8], of)
    assert of[0].climbed == pytest.approx(500 / 19 * 8) and of[1].climbed == 0
    assert a.verdict == "apart" and a.climbing == (0,)
    said = chains.answer(a, of)
    assert said[0] == (
        "The chains have not met: still climbing: chain-1 (by 211 nats from the first half of the draws to the second)."
    )
    noise = np.random.default_rng(6).normal(0.0, 30.0, 100)
    assert chains.climb(noise) == 0 and chains.climb(np.linspace(0.0, 90.0, 100)) == 0 and chains.climb(noise[:3]) == 0


def test_details_are_not_called_another_clustering():
    moved = TRUTH.copy()
    moved[:20] = 4  # a small cluster of its own
    a = agreement_of([[TRUTH] * 8, [moved] * 8])
    assert a.verdict == "nearly" and chains.answer(a, summaries(2))[0].startswith("Nearly")


def test_a_posterior_that_is_spread_out_is_no_disagreement():
    g = np.random.default_rng(4)
    a = agreement_of([list(g.integers(0, 6, (12, 1000))) for _ in range(2)])
    assert a.verdict == "spread" and "spread over many partitions" in chains.answer(a, summaries(2))[0]


def test_representatives_that_differ_by_chance_are_no_disagreement():
    """Draws of few rows scatter so much that representatives of two chains often differ more than those of halves: by
    these alone some seeds would be called different; with a cluster of another's, all are."""
    truth = np.repeat(np.arange(3), 20)
    moved = np.where(np.arange(60) % 20 < 7, (truth + 1) % 3, truth)
    by_representatives = []
    for seed in range(30):
        g = np.random.default_rng(seed)
        a = agreement_of([partitions(g, truth, 24, 0.4) for _ in range(2)])
        assert a.verdict in ("same", "spread") and a.farther[0, 1] == pytest.approx(1.0, abs=0.015), seed
        by_representatives.append(replace(a, farther=None).verdict)
        b = agreement_of([partitions(g, z, 24, 0.4) for z in (truth, moved)])
        assert b.farther[0, 1] > chains.FARTHER and b.verdict == "different", seed
    assert by_representatives.count("different") >= 3


def test_few_draws_do_not_decide():
    a = agreement_of([[TRUTH] * 9, [TRUTH] * (chains.FEWEST - 1)])
    assert a.verdict == "unknown" and np.isnan(a.ari[0, 1]) and np.isnan(a.ari[1, 1]) and a.ari[0, 0] == 1
    assert "cannot be decided" in chains.answer(a, summaries(2))[0]
    assert agreement_of([[TRUTH] * 9]).verdict == "unknown"  # one chain has nothing to agree with


def test_many_names_are_cut():
    assert chains._names(["a", "b", "c", "d"]) == "a, b, c, d"
    assert chains._names(list("abcdefgh")) == "a, b, c and 5 more"
