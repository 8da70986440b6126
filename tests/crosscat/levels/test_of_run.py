"""Groups of clusters of a run: report, exports, predictions and questions have the same numbers and names."""

import csv
import json
from copy import copy
from dataclasses import replace

import numpy as np
import pytest

from mpibayes.errors import ConfigError
from mpibayes.hpc.crosscat.draws import Posterior
from mpibayes.hpc.crosscat.levels import of_run
from mpibayes.hpc.crosscat.levels.of_run import levels_of_views
from mpibayes.hpc.crosscat.report import distribution, group_words, groups, levels
from mpibayes.hpc.crosscat.report.agreement import Agreement
from mpibayes.hpc.crosscat.report.summarise import summarise
from mpibayes.hpc.crosscat.report.verdict import verdict
from mpibayes.hpc.crosscat.summaries.representative import representatives
from mpibayes.hpc.posterior.similarity import similarity
from mpibayes.hpc.query import new_rows
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.report.document import BAD, DOUBT, PAGE, Stops
from mpibayes.hpc.results.export import export
from mpibayes.hpc.results.predict import predict
from mpibayes.hpc.results.report import report
from mpibayes.hpc.settled import Judgement
from tests.crosscat.report.runs import make_run, planted, write_planted


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    monkeypatch.setattr("mpibayes.hpc.crosscat.report.report._figures", lambda posterior: [])


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return write_planted(tmp_path_factory.mktemp("planted") / "planted.h5")


@pytest.fixture(scope="module")
def run_dir(table, tmp_path_factory):
    """Two chains, a tenth of the rows held out, on three planted groups."""
    return make_run(tmp_path_factory.mktemp("run") / "a", table, cycles=40, heldout=0.1, chains=2)


@pytest.fixture(scope="module")
def one_chain(table, tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("run") / "one", table, cycles=30)


def found(folder):
    run = Posterior([folder])
    run.read_traces()
    kept = run.require_kept()
    views = representatives(run, kept).views
    return run, levels_of_views(run, [(r.of, len(r.sizes)) for r in views], kept)


def lines(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_planted_groups_are_natural(run_dir):
    run, (levels,) = found(run_dir)
    level = levels.level(3)
    assert level.natural and level.usable and level.certain > 0.95
    assert similarity(levels.rows(level), planted()[1][run.data.training_rows])[0] >= 0.95
    assert level.rows.sum() == run.n_rows and level.rows.tolist() == sorted(level.rows, reverse=True)


def test_cells_of_groups_are_those_of_their_rows(run_dir):
    """Averages over draws: where every draw agrees on the groups they are counts."""
    run, (levels,) = found(run_dir)
    level = levels.level(3)
    z, cells = levels.rows(level), {t.column.name: t for t in levels.cells(level)}
    rows = run.data.rows_of(0, run.n_rows)
    height = next(c for c in run.columns if c.name == "height")
    x = getattr(rows, height.block)[:, height.index]
    mean, scatter = cells["height"].moments
    for k in range(3):
        part = x[(z == k) & ~np.isnan(x)]
        assert mean[k] == pytest.approx(part.mean(), abs=1.5)
        assert scatter[k] == pytest.approx(((part - part.mean()) ** 2).sum(), rel=0.35)
    assert cells["colour"].counts.sum() == pytest.approx(run.n_rows)


def test_few_draws_where_clusters_are_many(run_dir, monkeypatch):
    _, (many,) = found(run_dir)
    assert many.patterns.leaves.shape[1] == 10
    monkeypatch.setattr(of_run, "MANY", 5)
    monkeypatch.setattr(of_run, "MOST_LEAVES", 12)
    run, (few,) = found(run_dir)
    assert few.patterns.leaves.shape[1] == 6 and few.tree.n_leaves == 12
    assert similarity(few.rows(few.level(3)), planted()[1][run.data.training_rows])[0] >= 0.95


def test_all_doors_have_the_same_groups(run_dir, table, tmp_path):
    report(run_dir, out=tmp_path / "report")
    document = json.loads((tmp_path / "report" / "summary.json").read_text())
    level = next(level for level in document["levels"] if level["groups"] == 3)
    assert level["natural"] and level["usable"] and level["text"].startswith("3 natural groups: ")
    assert all(group["name"] and group["traits"] for group in level["found"])
    export(run_dir, "clusters", tmp_path / "rows.csv", groups=3)
    rows = lines(tmp_path / "rows.csv")
    assert len(rows) == 400 and list(rows[0])[:3] == ["row", "cluster", "group"]
    trained = [row for row in rows if row["held_out"] == "false"]
    sizes = [sum(row["group"] == str(k) for row in trained) for k in (1, 2, 3)]
    assert sizes == [group["rows"] for group in level["found"]]
    every = np.array([int(row["group"]) for row in rows])
    assert similarity(every - 1, planted()[1])[0] >= 0.95  # held-out rows too
    predict(run_dir, table.path, tmp_path / "new.csv", groups=3)
    predicted = lines(tmp_path / "new.csv")
    assert np.mean(every == [int(row["group"]) for row in predicted]) > 0.98
    assert all(float(row["p_group"]) > 1 / 3 for row in predicted)
    asking = Asking(run_dir)
    here, others = new_rows.of_group(asking, 2, 3, 1)
    assert sum(len(part.rows) for part in here.batches()) == sizes[1] and "group 2 of 3" in str(here.path)
    assert sum(len(part.rows) for part in others.batches()) == sizes[0] + sizes[2]
    assert new_rows.of_group(asking, 1, None, 1)[0].path.name.startswith("group 1 of 3 (")  # those shown first


@pytest.mark.thorough
def test_what_is_not_there(run_dir, tmp_path):
    for groups_ in (2, 3):
        export(run_dir, "clusters", tmp_path / f"{groups_}.csv", groups=groups_)
    with pytest.raises(ConfigError, match=r"no level of 300 groups; .* expected 2"):
        export(run_dir, "clusters", tmp_path / "out.csv", groups=300)
    with pytest.raises(ConfigError, match="--groups is for --to clusters"):
        export(run_dir, "labels", tmp_path / "out.txt", groups=3)
    asking = Asking(run_dir)
    with pytest.raises(ConfigError, match="group 4: expected 1 to 3"):
        new_rows.of_group(asking, 4, 3, 1)
    with pytest.raises(ConfigError, match="view 2: expected 1 to 1"):
        new_rows.of_group(asking, 1, 3, 2)
    assert not (tmp_path / "out.csv").exists()


def test_one_chain_says_so(one_chain, tmp_path):
    report(one_chain, out=tmp_path / "report")
    document = json.loads((tmp_path / "report" / "summary.json").read_text())
    assert {level["natural"] for level in document["levels"]} == {None}
    assert "One chain: not judged." in " ".join((tmp_path / "report" / "report.txt").read_text().split())


def test_the_page_and_the_text(run_dir, tmp_path):
    report(run_dir, out=tmp_path)
    text = " ".join((tmp_path / "report.txt").read_text().split())
    assert (
        text.index("3 natural groups: ")
        < text.index("2 natural groups: ")
        < text.index("Clusters of the representative partition")
    )
    page = (tmp_path / "report.html").read_text()
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    (stops,) = [part for part in data if part["part"] == "stops"]
    assert [stop["mark"] for stop in stops["stops"]][:2] == ["good", "good"] and stops["first"] == 1
    assert stops["stops"][-1]["name"].startswith("all ")
    three = stops["stops"][1]
    assert three["name"] == "3 natural groups" and len(three["table"]["rows"]) == 3
    assert len(three["table"]["details"]["columns"]) == 7


def test_the_level_shown_first_need_not_be_the_first(run_dir):
    """Levels are told apart by being themselves: their arrays have no one answer to ==."""
    p = summarise(Posterior([run_dir]))
    (view,) = p.views
    two, three, *_ = view.levels
    view.levels = [replace(two, level=replace(two.level, agree=0.0)), three]
    assert groups.first(view.levels) is three
    (stops,) = [part for part in levels.section(p, view).blocks(PAGE)[0] if isinstance(part, Stops)]
    assert stops.first == 1 and stops.names[1] == "3 natural groups"


def test_names_follow_the_level_that_they_are_of(run_dir):
    """Also where no level is natural, and the first sentence says so."""
    p = summarise(Posterior([run_dir]))
    (view,) = p.views
    for by_itself, place in ((1.0, 1), (0.0, 2)):  # a summary follows the sentence that none is natural
        view.levels = [replace(s, level=replace(s.level, by_itself=by_itself)) for s in view.levels[:2]]
        text = group_words.sentences(p)
        assert [s.startswith("Group 1 (") for s in text].index(True) == place
        assert text[place - 1] == str(groups.first(view.levels).level)


def test_sentences_of_a_verdict_contain_no_command(run_dir):
    result = verdict(summarise(Posterior([run_dir])))
    assert not any("mpibayes" in line for line in [*result.found, *result.chains, *result.next, *result.warnings])
    assert result.commands[0][1].startswith(f"mpibayes export {run_dir} --to clusters --groups 3 ")
    assert all(command.startswith("mpibayes ") for _, command in result.commands)


def test_groups_that_last_are_of_use_where_chains_are_apart_or_climb(run_dir):
    """Chains that climb may agree on groups that they are about to leave: these are not to be used, but those are that
    earlier draws have like later ones."""
    p = summarise(Posterior([run_dir]))
    (view,) = p.views
    view.agreement = replace(view.agreement, gap=500.0)
    apart = verdict(p)
    assert apart.headline == group_words.HEADLINE and apart.sound == DOUBT
    assert any("--groups 3" in command for _, command in apart.commands) and apart.next[0] == "Use the groups."
    p.summaries[0] = replace(p.summaries[0], climbed=500.0)
    climbing, found = verdict(p), view.levels
    assert climbing.headline == group_words.STILL and climbing.sound == DOUBT
    assert any("--groups 3" in command for _, command in climbing.commands) and climbing.next[0] == "Use the groups."
    for lasting in ({"lasting": 0.8}, {"lasting_matched": 0.4}, {"lasting": np.nan}):
        view.levels = [replace(s, level=replace(s.level, **lasting)) for s in found]
        changing = verdict(p)
        assert changing.headline == group_words.CLIMBS and changing.sound == DOUBT
        assert not any("--groups" in command for _, command in changing.commands)
        assert "which may still change" in changing.found[0] and changing.found[1].startswith("Group 1 (")
    view.levels = [replace(s, level=replace(s.level, by_itself=0.5)) for s in view.levels]
    assert verdict(p).headline == "" and verdict(p).sound == BAD, "each chain has groups of its own"


def test_groups_are_of_use_where_only_clusters_or_figures_are_in_doubt(run_dir):
    """Chains that agree as far as each agrees with itself are no worse than chains that contradict each other."""
    p = summarise(Posterior([run_dir]))
    (view,) = p.views
    p.warnings = ["Fewer than 100 effective draws."]
    assert p.verdict == "same" and verdict(p).headline == group_words.ROUGH
    assert levels.top(view, "", 3).fields[-1].heading == "3 natural groups"
    view.agreement = replace(view.agreement, ari=np.full((2, 2), 0.8))
    assert p.verdict == "spread" and verdict(p).headline == group_words.HEADLINE
    assert verdict(p).sound == DOUBT
    found = view.levels
    view.levels = [replace(s, level=replace(s.level, by_itself=0.5)) for s in found]
    assert verdict(p).headline == group_words.SUMMARY, "each chain's own tree has other groups"
    assert verdict(p).next[0] == "Use the groups as a summary."
    view.levels = [replace(s, level=replace(s.level, lasting=0.8)) for s in found]
    assert verdict(p).headline == group_words.CHANGING and verdict(p).next[0] == "Use the groups as a summary."
    view.levels = [replace(s, level=replace(s.level, agree=0.5)) for s in found]
    assert verdict(p).headline == "", "scores have not settled"
    assert levels.top(view, "", 3).fields[-1].heading == "2 groups, on which the chains agree only in part"
    p.settled = SETTLED
    assert verdict(p).headline == group_words.PREDICTIONS and verdict(p).sound == DOUBT
    assert verdict(p).found[0].startswith("Predictions can be used")


SETTLED = Judgement(200, {"clusters": ("R-hat 1.800 of the entropy",), "scores": ()}, {"scores": 157})


def test_predictions_are_of_use_where_groups_are_not(run_dir):
    """Chains whose scores have settled predict alike, whichever clusters they have; one that climbs does not."""
    p = summarise(Posterior([run_dir]))
    (view,) = p.views
    view.agreement = replace(view.agreement, gap=500.0)
    view.levels = [replace(s, level=replace(s.level, agree=0.5)) for s in view.levels]
    not_settled = verdict(p)
    assert not_settled.sound == BAD and not any("Predictions can be used" in line for line in not_settled.found)
    p.settled = SETTLED
    result = verdict(p)
    assert result.sound == DOUBT and result.headline == group_words.PREDICTIONS
    assert result.found[0].startswith("Predictions can be used") and result.next[0] == "Use the predictions."
    assert result.commands[0] == ("score new rows", f"mpibayes predict {run_dir} NEW.csv -o OUT.csv")
    p.of_columns = Agreement(np.eye(2) * 0.01 + 0.99, np.zeros((2, 2)), 7, gap=500.0)
    assert verdict(p).headline == group_words.ONE_VIEW and "one view: all columns" in verdict(p).found[1]
    p.views = [view, view]
    assert verdict(p).headline == group_words.VIEWS
    p.of_columns = replace(p.of_columns, ari=np.eye(2))
    assert verdict(p).headline == group_words.PREDICTIONS, "views differ"
    p.summaries[0] = replace(p.summaries[0], climbed=500.0)
    assert verdict(p).sound == BAD


def test_no_groups_in_any_view_are_said_once(run_dir):
    p = summarise(Posterior([run_dir]))
    (view,) = p.views
    p.views = [view, view]
    natural = group_words.sentences(p)
    view.levels = [replace(s, level=replace(s.level, agree=0.5)) for s in view.levels]
    assert len(natural) > 1 and group_words.sentences(p) == [groups.NOWHERE]


def test_views_that_divide_the_rows_come_first(run_dir):
    """Before a view that tells a few rows from all others, though that one has groups that may change, too."""
    (divided,) = summarise(Posterior([run_dir])).views
    few, none = copy(divided), copy(divided)
    rows = [np.array([2000, *[20] * (s.level.n - 1)]) for s in divided.levels]
    few.levels = [replace(s, level=replace(s.level, rows=of)) for s, of in zip(divided.levels, rows)]
    few.levels.append(replace(few.levels[-1], level=replace(few.levels[-1].level, lasting=0.8)))
    none.levels = [replace(s, level=replace(s.level, by_itself=0.5)) for s in divided.levels]
    assert group_words.most_useful_first([none, few, divided]) == [divided, few, none]


def test_levels_in_words():
    class Made:
        def __init__(self, n, natural=False, usable=False, agree=0.95, changing=False):
            self.n, self.natural, self.usable, self.agree, self.judged = n, natural, usable, agree, True
            self.changing = changing
            self.clear, self.fault = 9.0 if n == 5 else 1.0, "why"

        def __str__(self):
            return f"{self.n}."

    def words(*levels):
        return groups.in_words([groups.ShownLevel(level, []) for level in levels])

    assert words(Made(2, True, True), Made(3, False, True), Made(4, False, True), Made(7, False, True)) == [
        "2.", "3.", "Also summaries: 4 and 7 groups.",
    ]  # fmt: skip
    assert words(*(Made(n, True, True) for n in range(2, 8))) == [
        "5.", "2.", "3.", "Also natural: 4, 6 and 7 groups.",
    ]  # fmt: skip
    assert words(*(Made(n, False, True) for n in (18, 19, 20, 25, 30, 50))) == [
        f"{groups.NONE}.", "18.", "Also summaries: 19 to 30 and 50 groups.",
    ]  # fmt: skip
    of = [groups.ShownLevel(level, []) for level in (Made(2, True, True), Made(3, True, True), Made(4, False, True))]
    assert groups.in_words(of, 1, summaries=False) == ["2.", "Also natural: 3 groups."]
    assert groups.in_words(of[2:], 1, summaries=False) == [f"{groups.NONE}.", "4."]
    changing, summary = Made(4, changing=True), Made(6, False, True)
    assert words(Made(3, True), changing, summary) == ["3.", "May still change: 4 groups.", "6."]
    assert groups.in_words([groups.ShownLevel(of, []) for of in (changing, summary)], 1, summaries=False) == ["4."]
    assert words(Made(2, agree=0.4), Made(3, agree=0.6)) == [
        groups.EVERY,
        "No number of groups is usable, not even 3 groups, on which the chains agree most: why.",
    ]


def test_a_column_alone_is_a_distribution(table):
    run_columns = {c.name: c for c in table.columns}
    g = np.random.default_rng(0)
    words = distribution.in_words([run_columns["colour"]], {"colour": np.array([0, 0, 0, 2, 4])})
    assert words.startswith("red (75 %), blue (25 %)")
    numbers = distribution.in_words([run_columns["height"]], {"height": g.normal(50, 5, 4000)})
    bars = [c for c in numbers if c in distribution.BARS]
    assert numbers.startswith("49.9 ± 5.0 ") and "(median 49.8, 90 % from 41.9 to 58.2)" in numbers
    assert len(bars) == distribution.BINS and bars[8] > bars[0]
    blank = distribution.in_words([run_columns["height"]], {"height": np.full(3, np.nan)})
    assert blank == "all cells are missing"


def test_one_population_is_an_answer(run_dir):
    p = summarise(Posterior([run_dir]))
    (view,) = p.views
    p.warnings, p.settled, view.levels = ["Fewer than 100 effective draws."], SETTLED, []
    assert p.verdict == "same" and not p.one_population and verdict(p).headline == ""
    view.representative = replace(view.representative, sizes=np.array([p.run.n_rows]))
    assert p.one_population and verdict(p).headline == group_words.ONE and verdict(p).sound == DOUBT


def test_the_best_chain_is_of_use_where_chains_differ_in_how_well_they_predict(run_dir):
    """The best chain is usable if its scores do not rise any more."""
    p = summarise(Posterior([run_dir]))
    (view,) = p.views
    view.agreement = replace(view.agreement, gap=500.0)
    view.levels = [replace(s, level=replace(s.level, agree=0.5)) for s in view.levels]
    level = np.random.default_rng(1).normal(0.0, 0.01, 400)
    scores = (-20.2 + level, -20.0 + level)
    for i, (chain, score) in enumerate(zip(p.run.chains, scores)):
        still = dict.fromkeys(chain.trace, np.full(400, p.run.n_rows))
        chain.trace.update(still | {"cycle": np.arange(1, 401)})
        chain.trace["heldout_lpd"] = score
        p.summaries[i] = replace(p.summaries[i], heldout_averaged=float(score.mean()))
    result = verdict(p)
    assert result.headline == group_words.BEST and result.sound == DOUBT
    assert result.found[0].startswith("chain-2 predicts best: held-out rows score -20.0")
    assert result.next[0] == "Use the predictions of chain-2, the best chain."
    assert result.commands[0] == ("score new rows", f"mpibayes predict {run_dir}/chain-2 NEW.csv -o OUT.csv")
    apart = p.summaries[0]
    p.summaries[0] = replace(apart, heldout_averaged=float(scores[1].mean()) - 0.01)
    alike = verdict(p)  # at one check, but not at the one before
    assert alike.headline == group_words.BEST and " has the highest log joint and predicts as well" in alike.found[0]
    p.summaries[0] = apart
    p.run.chains[1].trace["heldout_lpd"] = scores[1] + np.linspace(-0.5, 0.0, 400)
    rising = verdict(p)
    assert rising.headline == "" and rising.sound == BAD
    assert not any("predict " in command for _, command in rising.commands)
