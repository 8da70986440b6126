"""When a run has settled: R-hat and ESS as ArviZ has them, the judgement of traces, and runs that end by it."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from mpibayes.hpc.config.load import load
from mpibayes.hpc.convergence import bulk_ess, effective, r_hat
from mpibayes.hpc.crosscat.scalars import SCALARS
from mpibayes.hpc.run import rounds
from mpibayes.hpc.scalar import SCORES
from mpibayes.hpc.settled import BURN_IN, SMALL, Judgement, _unmixed, is_check, judge, next_check
from mpibayes.io.table import table_from_arrays, write_table
from tests.run.conftest import exported, mpibayes, run, run_some

N_ROWS = 50


# --- R-hat and ESS ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("rho", [0.0, 0.95, -0.6])
def test_as_arviz_has_them(rho, whole):
    import arviz
    from arviz.stats import diagnostics

    g = np.random.default_rng(1)
    for n_chains, n in ((2, 20), (3, 37), (4, 500)):
        x = g.normal(size=(n_chains, n))
        for t in range(1, n):
            x[:, t] += rho * x[:, t - 1]
        x = np.round(x) if whole else x
        known = arviz.rhat(x), arviz.ess(x, method="bulk"), diagnostics._ess(x)
        assert np.allclose((r_hat(x), bulk_ess(x), effective(x)), np.array(known, float), rtol=1e-9)


def test_what_stands_still():
    assert r_hat(np.ones((2, 20))) == 1.0 and bulk_ess(np.ones((2, 20))) == 40.0
    assert r_hat(np.repeat([[3.0], [4.0]], 20, axis=1)) == np.inf


# --- the judgement ----------------------------------------------------------------------------------------------------


def traces(n=1000, shift=(), score=0.0, jump=None, rise=0.0, n_chains=2):
    """Chains of independent draws; shift: of each chain's log joint, score: of the second one's held-out score."""
    g = np.random.default_rng(4)
    made = []
    for i in range(n_chains):
        cycle = np.arange(1, n + 1)
        joint = g.normal(size=n) + (shift[i] if shift else 0.0)
        if jump is not None:
            joint = joint + 20.0 * (cycle > jump)
        made.append(
            {
                "cycle": cycle, "log_joint": joint, "n_clusters": np.full(n, 4.0), "entropy": g.normal(size=n),
                "heldout_lpd": 0.02 * g.normal(size=n) - 5.0 + score * i + rise * cycle / n,
                "active_rows": np.full(n, float(N_ROWS)),
            }
        )  # fmt: skip
    return made


def judged(made, cycle=1000):
    return judge(made, SCALARS, N_ROWS, cycle, BURN_IN)


def test_chains_of_one_law_have_settled():
    result = judged(traces())
    assert result.settled and result.meaning == "" and set(result.after) == {"clusters", "scores"}
    first = result.after["clusters"]
    assert judged(traces(), first).settled and not judged(traces(), next_check(100)).settled
    assert f"clusters settled after {first} cycles" in str(result)


def test_apart_in_clusters_alone():
    result = judged(traces(shift=(0.0, 3.0)))
    assert not result.settled and result.has("scores") and "R-hat" in result.problems["clusters"][0]
    assert "log joint" in str(result) and result.meaning == "Predictions can be trusted, single clusters cannot."


def test_what_an_r_hat_out_of_all_bounds_means_is_said_in_words():
    """A number of clusters that stands still in each chain has no spread to compare with."""
    made = traces()
    made[1]["n_clusters"] = np.full(1000, 5.0)
    (words,) = judged(made).problems["clusters"]
    assert words == "the number of clusters never changes within a chain, but is 4 or 5 in different chains"
    made[1]["n_clusters"][998] = 4.0
    assert judged(made).problems["clusters"] == ("R-hat 18.248 of the number of clusters",)
    rare = np.repeat([[4.0], [5.0]], 60_000, axis=1)
    rare[1, 30_000] = 4.0
    assert "number of clusters hardly changes within a chain, but differs" in _unmixed({"number of clusters": rare})[0]
    jumped = np.where(np.arange(1000) < 500, 4.0, 5.0)[None]
    assert _unmixed({"number of views": jumped}) == ["the number of views has jumped, and hardly changes otherwise"]


@pytest.mark.parametrize("change, words", [({"score": 0.07}, "differ by 0.07"), ({"rise": 0.4}, "still rising by 0.1")])
def test_scores_that_differ_or_rise(change, words):
    result = judged(traces(**change))
    assert result.has("clusters") and words in result.problems["scores"][0] and "not yet" in result.meaning
    assert judged(traces(score=0.03, rise=0.02)).has("scores")


@pytest.mark.parametrize("rise, level", [(0.0, True), (0.1, True), (0.4, False)])
def test_a_chain_whose_scores_hardly_rise_predicts(rise, level):
    """Between the quarters after the first half scores rise by a fourth: by 0.025 and 0.1 nats a row."""
    result = judged(traces(rise=rise, n_chains=1))
    assert result.level == level and not result.settled
    assert result.rise == pytest.approx(rise / 4, abs=0.01) and ("still rising" in str(result)) == (rise > 0.0)


def test_a_jump_in_the_second_half_has_not_settled_and_is_forgotten_later():
    made = traces(2500, jump=590)
    assert not judged(made, 757).settled and not judged(made, 947).has("clusters")
    assert judged(made, 2313).after["clusters"] == 1480  # its second half, and that of the check before, lie beyond


def test_one_check_is_not_enough():
    made = traces(400, jump=154)
    assert not judged(made, 309).settled and "not the one before" in str(judged(made, 309))
    assert judged(made, 387).settled


def test_without_held_out_rows_clusters_alone_count():
    made = [t | {"heldout_lpd": np.full(1000, np.nan)} for t in traces()]
    assert judged(made).settled and list(judged(made).problems) == ["clusters"]


def test_one_chain_cannot_show_it():
    result = judged(traces(n_chains=1))
    assert not result.settled and not result.after and not result.meaning
    assert result.problems == dict.fromkeys(("clusters", "scores"), ("one chain alone cannot show it",))


def test_growth_does_not_count():
    made = traces()
    for t in made:
        t["active_rows"][:980] = 10
    assert judged(made).problems == dict.fromkeys(("clusters", "scores"), ("too few draws to judge",))


def test_checks_grow_by_a_fourth():
    checks = [n for n in range(1, 700) if is_check(n)]
    assert checks == [100, 125, 157, 197, 247, 309, 387, 484, 605] and next_check(605) == 757


def test_a_chain_has_its_first_checkpoint_before_the_next_one_searches():
    """A report need not wait for the searches of all chains."""
    steps = []

    class Recorded:
        def __init__(self, number):
            self.number, self.chain = number, SimpleNamespace(cycles=0)

        def open(self):
            steps.append((self.number, "open"))
            return True

        def advance(self, cycles):
            steps.append((self.number, cycles))
            self.chain.cycles = cycles
            return True

        def wake(self):
            pass

        rest = wake

    config = SimpleNamespace(run=SimpleNamespace(cycles=2000))
    assert rounds._open(None, config, [Recorded(1), Recorded(2)])
    assert steps == [(1, "open"), (1, 20), (2, "open"), (2, 20)]


# --- runs -------------------------------------------------------------------------------------------------------------

CONFIG = """
[data]
table = "table.h5"
heldout = 0.2
[model]
family = "mixture"
concentration = 0.01
discount = 0.0
[sampler]
split_merge = 4
[run]
seed = 5
shards = 3
chains = 2
cycles = 700
"""


@pytest.fixture(scope="module")
def until_settled(tmp_path_factory):
    """Two clear clusters, which split and merge moves find with any seed, and a run on one rank that ends by itself."""
    place = tmp_path_factory.mktemp("settled")
    g = np.random.default_rng(2)
    z = np.arange(40) % 2
    columns = [(f"c{j}", "boolean", z, ["a", "b"]) for j in range(2)] + [
        ("x", "real", 9.0 * z + g.normal(size=40), None)
    ]
    write_table(place / "table.h5", *table_from_arrays(columns))
    (place / "run.toml").write_text(CONFIG)
    done = run(place, "one")
    assert done.returncode == 0, done.stderr
    return place, done.stdout, ends(place, "one")


def ends(place, out):
    return [exported(place, f"{out}/chain-{i}") for i in (1, 2)]


def cycles(place, out):
    return [json.loads((place / out / f"chain-{i}" / "status.json").read_text())["cycle"] for i in (1, 2)]


def test_a_run_ends_once_it_has_settled(until_settled):
    place, text, _ = until_settled
    one, two = cycles(place, "one")
    assert one == two < 700 and is_check(one)
    last = text.strip().splitlines()[-1]
    assert "clusters settled after" in last and "scores settled after" in last and "mpibayes report one" in last
    assert f"settled after {one} cycles" in last and "not settled" not in last
    assert any(f"cycle {n}: " in text for n in range(157, one))  # what is judged on the way
    again = run(place, "one")
    assert again.returncode == 0 and cycles(place, "one") == [one, one]
    assert f"settled after {one} cycles" in again.stdout


def test_it_has_the_bits_of_a_straight_one(until_settled):
    place, _, bits = until_settled
    changes = ("run.until=cycles", f"run.cycles={cycles(place, 'one')[0]}", f"run.burn_in={BURN_IN}", "run.chains=1")
    assert run(place, "straight", *(word for change in changes for word in ("--set", change))).returncode == 0
    assert exported(place, "straight") == bits[0]


@pytest.mark.thorough
def test_on_three_ranks_stopped_and_continued(until_settled):
    place, _, bits = until_settled
    assert run_some(place, "pieces", 130, ranks=3).returncode == 75
    status = [json.loads((place / "pieces" / f"chain-{i}" / "status.json").read_text()) for i in (1, 2)]
    assert [s["state"] for s in status] == ["stopped", "stopped"]
    assert run(place, "pieces").returncode == 0
    assert ends(place, "pieces") == bits


@pytest.mark.thorough
def test_side_by_side_stopped_and_continued(until_settled):
    """Each rank has a chain of its own, and is judged with the other's trace; the same end as in turns."""
    place, _, bits = until_settled
    assert run_some(place, "beside", 130, ranks=2).returncode == 75
    status = [json.loads((place / "beside" / f"chain-{i}" / "status.json").read_text()) for i in (1, 2)]
    assert [s["state"] for s in status] == ["stopped", "stopped"] and all(s["ranks"] == 1 for s in status)
    assert all(s["last_checkpoint"] == s["cycle"] >= 100 for s in status)
    done = run(place, "beside", ranks=2)
    assert done.returncode == 0, done.stderr
    assert ends(place, "beside") == bits and cycles(place, "beside") == cycles(place, "one")
    last = done.stdout.strip().splitlines()[-1]
    assert f"settled after {cycles(place, 'one')[0]} cycles" in last and "mpibayes report beside" in last
    assert done.stdout.count("mpibayes report beside") == 1


def test_at_run_cycles_it_says_what_has_not_settled(until_settled):
    place, *_ = until_settled
    done = run(place, "short", "--set", "run.cycles=30")
    assert done.returncode == 0 and cycles(place, "short") == [30, 30]
    last = done.stdout.strip().splitlines()[-1]
    assert "clusters have not settled: too few draws" in last and "run.cycles = 30" in last


def test_scores_alone_may_end_it(until_settled, monkeypatch):
    """Scores end a run from ENOUGH cycles on; a chain without others, or without held-out rows, ends at run.cycles."""
    place, *_ = until_settled
    config = load(place / "run.toml", ["run.until=scores"])
    scores = Judgement(484, {"clusters": ("R-hat 1.2 of the entropy",), SCORES: ()}, {SCORES: 309})
    assert rounds._ends(config, scores) and not rounds._ends(config, replace(scores, cycle=387))
    assert not rounds._ends(config.changed("run", until="settled"), scores)
    assert not rounds._ends(config, replace(scores, after={}))
    data, alone = SimpleNamespace(heldout=np.arange(4)), SimpleNamespace(heldout=None)
    several = [(config, data, "scores"), (config, alone, "cycles"), (config.changed("run", chains=1), data, "cycles")]
    assert [rounds.decided(of, SCALARS, rows).run.until for of, rows, _ in several] == [u for *_, u in several]


@pytest.mark.thorough
def test_a_run_ends_by_its_scores(until_settled):
    place, *_ = until_settled
    done = run(place, "scores", "--set", "run.until=scores")
    assert done.returncode == 0, done.stderr
    one, two = cycles(place, "scores")
    assert one == two <= cycles(place, "one")[0] and is_check(one)
    assert "scores settled after" in done.stdout.strip().splitlines()[-1]


def test_what_auto_is(until_settled):
    place, *_ = until_settled
    text = (place / "one" / "config.resolved.toml").read_text()
    assert 'until = "settled"' in text and f"burn_in = {BURN_IN}" in text
    assert run(place, "single", "--set", "run.chains=1", "--set", "run.cycles=2").returncode == 0
    assert 'until = "cycles"' in (place / "single" / "config.resolved.toml").read_text()
    assert SMALL > 40 * 4


def test_one_chain_cannot_settle(until_settled):
    place, *_ = until_settled
    bad = mpibayes(place, "run", "run.toml", "-o", "bad", "--until-settled", "--set", "run.chains=1")
    assert bad.returncode == 2 and "run.until" in bad.stderr and "run.chains = 2" in bad.stderr
    assert not (place / "bad").exists()


def test_a_chain_that_is_short_of_its_end_leaves_out_half_of_what_is_there(tmp_path):
    """A run stopped at 24 of 1,000 cycles has an answer although run.burn_in is 200; a finished one keeps its own."""
    from mpibayes.hpc.posterior.chains import KeptChains
    from tests.run.conftest import config_text, mixed_table

    mixed_table(tmp_path / "table.h5", n=60)
    text = config_text(shards=1, cycles=1000).replace("burn_in = 4\n", "")
    (tmp_path / "run.toml").write_text(text)
    assert run_some(tmp_path, "a", 24, ranks=1).returncode == 75
    (chain,) = KeptChains([tmp_path / "a"]).chains
    assert chain.config.burn_in == 200 and chain.early and 10 <= chain.burn_in <= 24
    assert run(tmp_path, "b", "--set", "run.cycles=24", "--set", "run.burn_in=20").returncode == 0
    (chain,) = KeptChains([tmp_path / "b"]).chains
    assert chain.burn_in == 20 and not chain.early


def test_a_finished_run_leaves_out_its_burn_in_however_it_ended(until_settled):
    """Draws of the burn-in count in no finished run: its judgement did not look at them. With output.thin the trace
    ends before run.cycles."""
    from mpibayes.hpc.posterior.chains import KeptChains

    place, *_ = until_settled
    thin = ("run.until=cycles", "run.cycles=45", "run.burn_in=38", "output.thin=10")
    for out, changes, expected in (("own", ("run.cycles=60", "run.burn_in=40"), 40), ("thin", thin, 38)):
        done = run(place, out, *(word for change in changes for word in ("--set", change)))
        assert done.returncode == 0, done.stderr
        assert [(c.burn_in, c.early) for c in KeptChains([place / out]).chains] == [(expected, False)] * 2


def test_chains_are_even_after_the_first_short_round(until_settled):
    """Every chain writes a checkpoint after 20 cycles, before the first has more."""
    place, *_ = until_settled
    assert run_some(place, "early", 45, ranks=1).returncode == 75
    assert cycles(place, "early") == [25, 20]
