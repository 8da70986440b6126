"""Reports on chains, from traces and labels made by hand."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from mpibayes.hpc.config.config import Config
from mpibayes.hpc.config.keys import Run
from mpibayes.hpc.config.places import Places
from mpibayes.hpc.crosscat.report import agreement as chains
from mpibayes.hpc.crosscat.report import remedies, summarise
from mpibayes.hpc.crosscat.report.answers import answer, listed, settled
from mpibayes.hpc.crosscat.sampler_keys import Sampler
from mpibayes.hpc.crosscat.summaries.partitions import nearest, variations
from mpibayes.hpc.posterior.chains import Chain
from mpibayes.hpc.posterior.scalars import MOST_R_HAT
from mpibayes.hpc.posterior.similarity import similarity
from mpibayes.hpc.run.annealed import cycle_of_all_rows
from mpibayes.hpc.settled import Judgement


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
    assert (
        cycle_of_all_rows({"cycle": np.arange(1, len(active) + 1), "active_rows": np.array(active, float)}, 40)
        == growth
    )


def test_thinned_traces_and_those_that_never_grow_have_their_growth():
    assert cycle_of_all_rows({"cycle": np.arange(5)}, 40) == cycle_of_all_rows({}, 40) == 0
    assert cycle_of_all_rows({"cycle": np.array([5, 10, 15]), "active_rows": np.array([10.0, 40, 40])}, 40) == 10


def test_moves_are_counted_by_phase():
    tried, done = np.arange(1, 11), np.ones(10)
    counts = {"splits_tried": tried, "splits": done, "merges_tried": 2 * tried, "merges": 0 * done}
    result = chains.moves(make_chain(burn_in=5, growth=2, **counts))
    assert result == {
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
    labels = np.array([z for subset in draws for z in subset], np.int32)
    chain = np.repeat(np.arange(len(draws)), [len(subset) for subset in draws])
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
    (text,) = answer(a, summaries(3))
    assert text.startswith("Yes: adjusted Rand index 0.")


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
    text = " ".join(answer(a, summaries(3)))
    assert text.startswith("No, there are 2 clusterings (chain-1, chain-3 | chain-2)")
    order = "chain-2 -1.500, chain-1 -2.000, chain-3 -2.500"
    assert f"The chains by held-out score, nats a row, the best first: {order}." in text


def test_chains_whose_log_joints_differ_disagree():
    """Alike partitions do not excuse it, nor halves of a chain that are as different."""
    g = np.random.default_rng(5)
    alike = [[TRUTH] * 8, [TRUTH] * 8]
    spread = [list(g.integers(0, 6, (12, 1000))) for _ in range(2)]
    of = summaries(2, log_joint=(-3000.0, 0.0))
    for draws in (alike, spread):
        a = agreement_of(draws, of, r_hat=2.87)
        text = " ".join(answer(a, of))
        assert a.verdict == "apart" and a.gap == 3000
        assert text.startswith("The chains disagree: their mean log joints differ by 3,000 nats (R-hat 2.87).")
        assert "the best first: chain-2 -1.500, chain-1 -2.000." in text
    assert agreement_of(alike, of, r_hat=1.05).verdict == "same"  # as wide as that in each chain
    assert agreement_of(alike, summaries(2, log_joint=(-90.0, 0.0)), r_hat=2.0).verdict == "same"  # nats do not matter
    few = agreement_of([[TRUTH] * 9, [TRUTH]], of, r_hat=2.87)
    assert few.verdict == "apart" and "at least 4 kept draws" in " ".join(answer(few, of))
    other = agreement_of([[TRUTH] * 8, [MERGED] * 8], of, r_hat=MOST_R_HAT)
    assert other.verdict == "different" and "(R-hat > 100)" in " ".join(answer(other, of))


def test_log_joints_that_differ_leave_equal_views_equal():
    """The views of the columns are compared on their own; a gap inside them does not put them in doubt."""
    of = summaries(2, log_joint=(-3000.0, 0.0))
    alike, few = [[TRUTH] * 8, [TRUTH] * 8], [[TRUTH] * 8, [TRUTH]]
    assert "On the views, yes: adjusted Rand index 1.000" in " ".join(
        answer(agreement_of(alike, of, r_hat=2.87), of, {})
    )
    climbing = summaries(2, log_joint=(np.linspace(-500.0, 0.0, 20), 0.0))
    for draws, chosen in ((few, of), (alike, climbing)):
        assert "says little yet" in " ".join(answer(agreement_of(draws, chosen, r_hat=2.87), chosen, {}))


def test_chains_of_one_score_are_ranked_by_where_their_log_joints_are_in_the_end():
    """The best of two chains with equal scores is the one whose log joint is high after its jump, not on average."""
    jumped = np.where(np.arange(40) < 20, -900.0, 90.0)
    of = summaries(2, log_joint=(0.0, jumped), heldout=(-2.0, -2.04), cycles=40)
    assert of[0].scalars["log_joint"].mean > of[1].scalars["log_joint"].mean
    assert [c.name for c in chains.ranked(of)[0]] == ["chain-2", "chain-1"] and not chains.ranked(of)[1]
    assert [c.name for c in chains.ranked(summaries(2, heldout=(-2.0, -2.06)))[0]] == ["chain-1", "chain-2"]


def test_a_chain_that_climbs_has_not_converged():
    of = summaries(2, log_joint=(np.linspace(-500.0, 0.0, 20), 0.0))
    a = agreement_of([[TRUTH] * 8, [TRUTH] * 8], of)
    assert of[0].climbed == pytest.approx(500 / 19 * 8) and of[1].climbed == 0
    assert a.verdict == "apart" and a.climbing == (0,)
    text = answer(a, of)
    assert text[0] == (
        "The chains have not converged: the log joint still climbs in chain-1 (by 211 nats from the first half of the "
        "draws to the second)."
    )
    noise = np.random.default_rng(6).normal(0.0, 30.0, 100)
    assert chains.climb(noise) == 0 and chains.climb(np.linspace(0.0, 90.0, 100)) == 0 and chains.climb(noise[:3]) == 0


def test_details_are_not_called_another_clustering():
    moved = TRUTH.copy()
    moved[:20] = 4  # a small cluster of its own
    a = agreement_of([[TRUTH] * 8, [moved] * 8])
    assert a.verdict == "nearly" and answer(a, summaries(2))[0].startswith("Nearly")


def test_a_posterior_that_is_spread_out_is_no_disagreement():
    g = np.random.default_rng(4)
    a = agreement_of([list(g.integers(0, 6, (12, 1000))) for _ in range(2)])
    assert a.verdict == "spread" and "Many partitions are plausible" in answer(a, summaries(2))[0]


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
    assert "cannot be decided" in answer(a, summaries(2))[0]
    assert agreement_of([[TRUTH] * 9]).verdict == "unknown"  # one chain has nothing to agree with


# --- what to do -------------------------------------------------------------------------------------------------------

ENDED = Judgement(1000, {"clusters": ("R-hat 1.300 of the entropy",), "scores": ()}, {"scores": 200})


def kept_chains(n=2, cycles=400, stopped=False, heldout=(-2.0, -1.5), every=1, sampler=None, **trace):
    """Chains, and what the report takes from their traces."""
    made = []
    for i in range(n):
        part = {name: np.full(cycles, value) for name, value in {"splits_tried": 1.0, "splits": 1.0, **trace}.items()}
        part["n_clusters"] = np.resize(part.get("n_clusters", np.array([3.0, 4.0])), cycles)
        chain = make_chain(name=f"chain-{i + 1}", heldout_lpd=np.full(cycles, heldout[i % 2]), **part)
        settings = Sampler(split_merge=every, **(sampler or {}))
        config = Config({"sampler": settings, "run": Run(cycles=2000)}, {}, Places(Path("run.toml")))
        made.append(replace(chain, config=config, home=Path("runs/a"), folder=Path(f"runs/a/chain-{i + 1}")))
    return made, [replace(chains.summarise_chain(chain), stopped=stopped) for chain in made]


def advice(draws, judged=ENDED, shown="chain-2", several=False, ess=20.0, **more):
    """The advice to chains of these draws, its sentences as one text."""
    made, of = kept_chains(len(draws), **more)
    result = remedies.advise(made, of, [agreement_of(draws, of)], judged, ess, shown, several)
    return " ".join(result.steps), [command for _, command in result.commands]


APART = [[TRUTH] * 8, [MERGED] * 8]


def test_advice_names_the_chain_whose_clusters_are_shown():
    text, _ = advice(APART, shown="")  # without kept labels
    assert text.endswith("The clusters below are those of chain-2, the best chain: one answer of several.")
    text, _ = advice(APART, shown="chain-2")
    assert text.endswith("The clusters below are those of chain-2, the best chain: one answer of several.")
    text, _ = advice(APART, shown="chain-2", several=True, view_moves_tried=1.0, view_moves=1.0, columns_moved=1.0)
    assert text.endswith("The views below are those of chain-2, the best chain: one answer of several.")


def test_advice_does_not_contradict_the_judgement():
    """Predictions can be used once scores have settled; views on which chains agree are not one answer of several."""
    usable, not_yet = "predictions can be used as they are", "averages over them mean little"
    assert usable in advice(APART)[0] and not_yet not in advice(APART)[0]
    text, _ = advice(APART, judged=Judgement(1000, {"clusters": ("...",), "scores": ("still rising",)}))
    assert usable not in text and not_yet in text
    made, of = kept_chains(view_moves_tried=1.0, view_moves=1.0, columns_moved=1.0)
    same, other = agreement_of([[TRUTH] * 8] * 2, of), agreement_of(APART, of)
    text = " ".join(remedies.advise(made, of, [same, other], ENDED, 20.0, "chain-2", True).steps)
    assert "The clusters in the views below are those of chain-2, the best chain: one answer of several" in text


def test_advice_to_go_on_has_an_end():
    """Advice goes by the effective draws there are: at most eight times as long at once, and not beyond LONG cycles."""
    for ess, cycles in ((20.0, 3200), (50.0, 1200), (99.0, 800), (np.nan, 800)):
        text, (command,) = advice(APART, ess=ess)
        assert text.startswith("Continue the run.") and f"run.cycles={cycles}" in command
    text, commands = advice(APART, cycles=remedies.LONG)
    assert text.startswith(
        "More cycles are not likely to help: each chain has 10,000 or more. Compare 4 chains in a new"
    )
    assert ["run.chains=4" in command for command in commands] == [True]
    text, commands = advice(APART * 4, cycles=remedies.LONG)
    assert "not likely" in text and not commands and "one answer of several" in text


def test_advice_to_a_run_that_was_stopped_says_where_it_ends():
    text, commands = advice(APART, stopped=True)
    assert text.startswith("Run the same command again: it resumes from cycle 400 of 2,000. The") and not commands


def test_advice_of_moves_ends_once_they_run_in_every_cycle():
    text, commands = advice(APART, splits_tried=0.0, splits=0.0)
    assert "switch split and merge moves on in a new run" in text and "sampler.split_merge=auto" in commands[1]
    text, commands = advice(APART, every=5)
    assert "make moves in every cycle of a new run" in text and "sampler.split_merge=1" in commands[1]
    assert len(advice(APART)[1]) == 1


def test_more_cycles_are_not_advised_where_nothing_is_accepted():
    views = {"view_moves_tried": 1.0, "view_moves": 0.0, "columns_moved": 0.0}
    text, commands = advice(APART, several=True, **views)
    words = "More cycles will hardly change the views: "
    words += "no column has changed its view in any chain in the 396 cycles after burn-in."
    more = "Make 6 searches for views in each of 4 chains, in a new run."
    assert text.startswith(f"{words} {more}")
    assert ["--set sampler.searches=6 --set run.chains=4" in command for command in commands] == [True]
    assert advice(APART, several=True, stopped=True, **views)[0].startswith(words)  # nor to go on with a stopped one
    assert advice(APART, several=True, **{**views, "columns_moved": 1.0})[0].startswith("Continue the run")
    assert advice(APART, several=True, cycles=90, **views)[0].startswith("Continue the run")  # too early to say
    text, _ = advice(APART, splits=0.0, n_clusters=np.array([3.0]))
    assert text.startswith("More cycles will not help: no chain has split or merged a cluster in the 396 cycles")
    assert ["sampler.searches=6" in command for command in advice(APART * 4, several=True, **views)[1]] == [True]
    for sampler in ({"searches": remedies.MOST_SEARCHES}, {"init_rows": 0}):
        assert advice(APART * 4, several=True, **views, sampler=sampler)[1] == []
    same, _ = advice([[TRUTH] * 8] * 2, several=True, **views)
    assert "hardly change" not in same and "searches" not in same


def test_chains_of_the_same_views_differ_in_rows():
    """Views that agree are not one answer of several because log joints differ, nor what more cycles cannot mend."""
    made, of = kept_chains(view_moves_tried=1.0, view_moves=0.0, columns_moved=0.0)
    views = replace(agreement_of([[TRUTH] * 8] * 2, of), gap=800.0, r_hat=2.0)
    assert views.verdict == "apart"
    text = " ".join(remedies.advise(made, of, [views, agreement_of(APART, of)], ENDED, 20.0, "chain-2", True).steps)
    assert text.startswith("Continue the run") and "searches" not in text
    assert "The clusters in the views below are those of chain-2, the best chain: one answer of several" in text


def test_chains_that_agree_are_not_called_untrustworthy():
    same = [[TRUTH] * 8, [TRUTH] * 8]
    words = settled(ENDED, False, agreement_of(same).verdict)
    assert "cannot be trusted" not in words and "so can the clusters that the chains share" in words
    assert settled(ENDED, False, "different").endswith("Predictions can be trusted, single clusters cannot.")
    text, (command,) = advice(same)
    assert text == "Continue the run, so that it settles. The scores have settled: predictions can be used as they are."
    assert "run.cycles=3200" in command
    done = Judgement(1000, {"clusters": (), "scores": ()}, {"clusters": 200, "scores": 200})
    assert advice(same, judged=done) == ("", [])


def test_advice_without_kept_labels_is_about_what_the_traces_say():
    made, of = kept_chains()
    result = remedies.advise(made, of, [], ENDED, 50.0)
    assert result.steps[0] == "Continue the run, so that it settles." and "run.cycles=1200" in result.commands[0][1]
    assert remedies.advise(made, of, [], ENDED, 50.0, several=True) == result  # views, too
    one = remedies.advise(made[:1], of[:1], [], ENDED)
    assert one.steps[0].startswith("Run more than one chain") and not one.commands


def test_a_posterior_that_is_spread_out_says_what_can_be_used():
    g = np.random.default_rng(4)
    text, _ = advice([list(g.integers(0, 6, (12, 1000))) for _ in range(2)])
    assert "Averages over the draws can be used, as in predictions and queries; single clusters cannot" in text


def test_one_chain_is_to_be_compared_with_another():
    text, (command,) = advice([[TRUTH] * 8])
    assert text.startswith("Run more than one chain (run.chains = 2)") and "run.chains=2" in command


def test_one_chain_of_several_is_to_be_compared_with_the_others(monkeypatch):
    """They may have begun after the report did; alone it is not the best of them."""
    made, of = kept_chains(1)
    run = Config({**made[0].config.sections, "run": Run(chains=2)}, {}, Places(Path("run.toml")))
    made = [replace(made[0], config=run)]
    result = remedies.advise(made, of, [agreement_of([[TRUTH] * 8], of)], ENDED)
    assert result.steps == ["The run has 2 chains: compare them."]
    assert result.commands == [("report on all of them", "mpibayes report runs/a")]
    monkeypatch.setattr(summarise, "_judged", lambda run, chains: SimpleNamespace(level="scores"))
    summary = SimpleNamespace(run=SimpleNamespace(chains=made), summaries=of)
    assert summarise.RunSummary.best.fget(summary) is None


def test_a_chain_that_was_not_started_is_started_by_the_same_command():
    """The advice is no new run of as many chains as this one is to have."""
    made, of = kept_chains(1)
    result = remedies.advise(made, of, [], ENDED, missing=["1 of the 2 chains has not been started: run it"])
    assert result.steps == ["1 of the 2 chains has not been started: run it."] and not result.commands


def test_many_names_are_cut():
    assert listed(["a", "b", "c", "d"]) == "a, b, c, d"
    assert listed(list("abcdefgh")) == "a, b, c and 5 more"
