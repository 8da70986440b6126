"""`report` on small complete run directories: what it writes, what it says, what it refuses."""

import io
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from mpibayes.errors import ConfigError, DataError
from mpibayes.hpc.crosscat.draws import Posterior, iterate_draws
from mpibayes.hpc.crosscat.report.clusters import block_tables
from mpibayes.hpc.crosscat.report.names import name_clusters
from mpibayes.hpc.crosscat.report.profiles import BlockProfile
from mpibayes.hpc.crosscat.report.report import make
from mpibayes.hpc.crosscat.report.summarise import summarise
from mpibayes.hpc.crosscat.report.traits import Trait
from mpibayes.hpc.crosscat.report.verdict import verdict
from mpibayes.hpc.crosscat.report.view_summary import ClusterLine
from mpibayes.hpc.crosscat.start.subsample import Annealing
from mpibayes.hpc.crosscat.summaries.representative import representatives
from mpibayes.hpc.posterior.chains import evenly
from mpibayes.hpc.report.page.page import page
from mpibayes.hpc.report.text import text_of
from mpibayes.hpc.results.report import report
from mpibayes.hpc.run.status import write_status
from mpibayes.io.draws import FOLDER as DRAWS
from mpibayes.io.table import table_from_arrays, write_table
from mpibayes.io.trace import read_trace
from tests.crosscat.report.runs import make_run, planted, write_planted
from tests.page.checks import parts_of, problems
from tests.run.conftest import mpibayes


def run_report(run_dirs, **options):
    """(folder, what was printed, summary.json)"""
    paper = io.StringIO()
    folder = report(run_dirs, console=Console(file=paper, width=120), full=True, **options)
    return folder, paper.getvalue(), json.loads((folder / "summary.json").read_text())


def assert_picture(path, at_least=(300, 150)):
    import matplotlib.image

    assert path.read_bytes().startswith(b"\x89PNG\r\n")
    pixels = matplotlib.image.imread(path)[..., :3]
    assert pixels.shape[1] >= at_least[0] and pixels.shape[0] >= at_least[1]
    assert pixels.std() > 0.02  # something is drawn


def test_the_whole_report(run_dir, tmp_path, pictures):
    folder, printed, summary = run_report(run_dir, out=tmp_path / "r")
    names = {
        "report.html",
        "report.txt",
        "summary.json",
        "trace.png",
        "cluster_sizes.png",
        "profiles.png",
        "heldout.png",
    }
    assert {p.name for p in folder.iterdir()} == names
    for name in summary["pictures"]:
        assert_picture(folder / name)
    text = (folder / "report.txt").read_text()
    for words in (
        "360 training rows, 40 held out",
        "clusters K",
        "held-out, averaged",
        "exact",
        "representative partition",
        "draws",
        "fixed",
    ):
        assert words in printed and words in text
    assert summary["kept_draws"] == 30
    assert sum(summary["representative"]["sizes"]) == summary["table"]["training_rows"] == 360
    largest = summary["clusters"][0]
    assert {"colour", "flag"} & {t["column"] for t in largest["traits"]}
    assert 0 < largest["stability"] <= 1
    assert sum(summary["n_clusters"].values()) == pytest.approx(1.0)


@pytest.mark.thorough
def test_the_default_place_is_the_run_directory(table, tmp_path):
    run = make_run(tmp_path / "a", table, cycles=15, burn_in=3)
    folder, *_ = run_report(run)
    assert folder == run / "report"
    run_report(run)  # again, over the first one


@pytest.fixture
def short(run_dir):
    """Reports of the 40 cycles of a run that is to have 2,000, with what its status.json says, if it has one."""

    def made(until, state):
        kept = Posterior([run_dir])
        kept.chains = [replace(c, config=c.config.changed("run", cycles=2000, until=until)) for c in kept.chains]
        if state:
            write_status(run_dir, {"state": state})
        try:
            return make(kept)
        finally:
            (run_dir / "status.json").unlink(missing_ok=True)

    return made


@pytest.mark.quick(every=2)
@pytest.mark.parametrize("until, most", [("cycles", ""), ("settled", "at most ")])
@pytest.mark.parametrize("state, early", [("stopped", True), ("running", True), ("finished", False)])
def test_a_run_short_of_its_end_is_an_early_look(short, until, most, state, early):
    """Verdict, text and page begin with it; not those of a run that ended, by cycles or because it settled."""
    made, words = short(until, state), f"An early look: 40 of {most}2,000 cycles."
    assert [made.verdict.found[0] == words, text_of(made).startswith(words), words in page(made)] == [early] * 3


def test_an_early_look_without_a_status(short, run_dir):
    """A run directory can be copied without status.json: then the last cycle counts."""
    assert text_of(short("cycles", "")).startswith("An early look: 40 of 2,000 cycles.")
    assert "early look" not in text_of(short("settled", "")), "nobody knows"
    assert "early look" not in text_of(make(Posterior([run_dir])))


@pytest.mark.parametrize("state", ["running", "finished"])
def test_answers_of_a_run_short_of_its_end_have_a_note(run_dir, tmp_path, state):
    """Beside `predict` and questions; none beside answers of a run that has ended."""
    asked = ["query", run_dir, "simulate", "-n", "2", "-o", "a.csv"], ["predict", run_dir, "a.csv", "-o", "b.csv"]
    write_status(run_dir, {"state": state})
    try:
        answers = [mpibayes(tmp_path, *words) for words in asked]
    finally:
        (run_dir / "status.json").unlink(missing_ok=True)
    assert [answer.returncode for answer in answers] == [0, 0], answers
    assert ["note: an early look: 40 of " in answer.stderr for answer in answers] == [state == "running"] * 2


@pytest.mark.thorough
def test_a_chain_without_cycles_does_not_keep_the_others_from_a_report(table, tmp_path):
    """A chain that was stopped in its search, say."""
    folder = make_run(tmp_path / "run", table, chains=2)
    shutil.rmtree(folder / "chain-2" / "trace")
    text = " ".join(run_report(folder)[1].split())
    assert "1 of the 2 chains of" in text and "has no cycles yet: run the same command again" in text
    write_status(folder / "chain-1", {"state": "running"})
    text = " ".join(run_report(folder)[1].split())
    assert "has no cycles yet: ask again later" in text and "run the same command" not in text
    shutil.rmtree(folder / "chain-1" / "trace")
    with pytest.raises(ConfigError, match="nothing has been saved yet"):
        report(folder)
    for chain in ("chain-1", "chain-2"):
        shutil.rmtree(folder / chain / DRAWS)
    with pytest.raises(ConfigError, match=r"nothing has been saved yet: .* mpibayes status "):
        Posterior([folder]).require_kept()


def test_held_out_rows_have_a_score_before_it_is_averaged(run_dir):
    p = summarise(Posterior([run_dir]))
    averaged, single = f"{p.heldout_averaged:.3f}", f"{p.scalars['heldout_lpd'].mean:.3f}"
    assert any(
        line.startswith(f"Held-out rows score {averaged} nats a row (higher is better): ") for line in verdict(p).found
    )
    p.heldout_averaged = None
    assert f"Held-out rows score {single} nats a row in each draw, on average." in verdict(p).found


def test_the_representative_has_the_least_loss(run_dir):
    """Compare with the definition, on all rows: the table is smaller than the number of probe rows."""
    run = Posterior([run_dir])
    kept = run.kept()
    (r,) = representatives(run, kept).views
    assert r.loss == pytest.approx(r.losses.min()) and len(r.losses) == len(kept)
    drawn = {d.cycle: d.labels[0] for d in iterate_draws(run_dir)}
    same = drawn[r.cycle][:, None] == drawn[r.cycle]
    assert np.array_equal(r.labels[:, None] == r.labels, same)
    assert np.all(np.diff(r.sizes) <= 0)


def test_several_chains(table, tmp_path, small_pictures, no_more_pictures):
    run = make_run(tmp_path / "a", table, chains=2, labels=2)
    _, printed, summary = run_report(run)
    assert "2 chains" in printed and len(summary["runs"]) == 2 and summary["kept_draws"] == 30
    assert_picture(run / "report" / "trace.png")
    _, _, alone = run_report(run / "chain-2", out=tmp_path / "alone")
    assert alone["kept_draws"] == 15 and len(alone["runs"]) == 1
    no_more_pictures()
    _, _, both = run_report([run / "chain-1", run / "chain-2"], out=tmp_path / "both")
    assert both["scalars"] == summary["scalars"] and both["agreement"] == summary["agreement"]
    assert_picture(run / "report" / "chains.png", (300, 90))
    assert "Did the chains find the same clustering? Yes" in printed and "annealing.png" not in summary["pictures"]
    assert "chains.png" not in alone["pictures"] and alone["runs"][0]["moves"] == summary["runs"][1]["moves"]
    assert summary["agreement"]["verdict"] == "same" and summary["agreement"]["groups"] == [["chain-1", "chain-2"]]
    within = [alone["agreement"]["adjusted_rand"][0][0], summary["agreement"]["adjusted_rand"][1][1]]
    assert within[0] == pytest.approx(within[1], abs=0.1)


@pytest.mark.thorough
def test_a_chain_that_is_stuck_is_found(table, tmp_path):
    """One chain in one cluster, which it cannot leave as a new one costs 69 nats, and two in the planted clusters."""
    few = "[model]\nfamily = 'mixture'\nconcentration = 1e-30\n"
    starts = ("one", planted()[1])
    run = make_run(tmp_path / "a", table, chains=3, cycles=30, starts=starts, split_merge=0, text=few)
    _, printed, summary = run_report(run)
    assert summary["agreement"]["verdict"] == "different"
    assert summary["agreement"]["groups"] == [["chain-1"], ["chain-2", "chain-3"]]
    assert max(summary["agreement"]["adjusted_rand"][0][1:]) < 0.1
    text = " ".join(printed.split())
    assert "No, there are 2 clusterings (chain-1 | chain-2, chain-3)" in text
    assert "by mean log joint of the second half after burn-in, the best first: chain-" in text
    assert "--set sampler.split_merge=auto" in text
    assert summary["settled"]["problems"]["clusters"] and "clusters have not settled" in text
    assert "no split or merge was tried" in text and summary["moves"]["kept"]["splits_tried"] == 0
    assert "The chains disagree: their mean log joints differ by" in text
    gap = np.ptp([r["scalars"]["log_joint"]["mean"] for r in summary["runs"]])
    assert summary["agreement"]["log_joint_gap"] == pytest.approx(gap) and gap > 100
    for number in (2, 3):  # as if the run had been stopped in its first chain
        shutil.rmtree(run / f"chain-{number}")
    _, printed, _ = run_report(run)
    text = " ".join(printed.split())
    assert "missing 2 of the 3 chains of" in text and "have no cycles yet: run the same command again" in text
    assert "A chain that is stuck agrees with itself too. Only the run's other chains can show that" in text


def test_moves_that_all_fail_are_told(table, tmp_path):
    """A new cluster costs 690 nats by the prior, and without likelihood nothing outweighs that."""
    few = "[model]\nfamily = 'mixture'\nconcentration = 1e-300\nlikelihood = false\n"
    _, printed, summary = run_report(make_run(tmp_path / "a", table, cycles=15, burn_in=3, starts=("one",), text=few))
    assert summary["moves"]["kept"]["splits_tried"] > 0 == summary["moves"]["kept"]["splits"]
    text = " ".join(printed.split())
    assert "tried): the clusters are clear-cut, or the chain is stuck. Only a second chain" in text


ANNEALED = {"annealing": Annealing("linear", 4.0, 40), "starts": ("sequential",)}


@pytest.mark.thorough
def test_a_growth_phase_is_shown_and_never_counts(table, tmp_path, small_pictures, no_more_pictures):
    run = make_run(tmp_path / "a", table, burn_in=25, **ANNEALED)
    folder, printed, summary = run_report(run)
    trace = read_trace(run)
    growth = int(trace["cycle"][np.argmax(trace["active_rows"] == 400)])
    assert 1 < growth < 25 and summary["exact_from_cycle"] == growth + 1
    (chain,) = summary["runs"]
    assert chain["growth"] == growth and chain["reached"] >= growth and chain["burn_in"] == 25
    assert [chain["moves"][phase]["cycles"] for phase in ("growth", "burn-in", "kept")] == [growth, 25 - growth, 15]
    for name in ("splits_tried", "splits", "merges_tried", "merges"):
        assert sum(phase[name] for phase in chain["moves"].values()) == trace[name].sum()
    assert f"from cycle {growth + 1} on" in printed and "active rows at first, all 400 from cycle" in printed
    for name in ("annealing.png", "trace.png"):
        assert_picture(folder / name)
    no_more_pictures()
    _, printed, early = run_report(run, out=tmp_path / "early", burn_in=0)
    assert early["runs"][0]["burn_in"] == growth and "no fewer than the growth takes" in printed
    assert early["scalars"]["log_joint"]["n_draws"] == 40 - growth


def test_a_chain_that_still_grows_has_no_report(table, tmp_path):
    run = make_run(tmp_path / "a", table, cycles=3, burn_in=1, **ANNEALED)
    with pytest.raises(ConfigError, match=r"still growing, with \d+ of 400 rows after 3 cycles"):
        report(run)


@pytest.mark.thorough
def test_chains_with_and_without_growth(table, tmp_path, small_pictures):
    grown = make_run(tmp_path / "grown", table, burn_in=25, **ANNEALED)
    plain = make_run(tmp_path / "plain", table, burn_in=5)
    folder, printed, summary = run_report([plain, grown])
    assert [r["growth"] > 0 for r in summary["runs"]] == [False, True] and "(1 of the chains)" in printed
    assert [r["name"] for r in summary["runs"]] == ["plain", "grown"]
    assert summary["moves"]["kept"]["cycles"] == 35 + 15
    assert_picture(folder / "annealing.png")


def test_runs_of_different_models_are_not_mixed(run_dir, table, tmp_path):
    text = "[model]\nfamily = 'mixture'\ndiscount = 0.5\n"
    other = make_run(tmp_path / "b", table, cycles=15, burn_in=3, heldout=0.1, text=text)
    with pytest.raises(ConfigError, match=r"model\.discount"):
        Posterior([run_dir, other])
    rows = make_run(tmp_path / "c", table, cycles=15, burn_in=3)
    with pytest.raises(ConfigError, match="heldout"):
        Posterior([run_dir, rows])


def test_without_likelihood_there_are_no_profiles(table, tmp_path, small_pictures):
    text = "[model]\nfamily = 'mixture'\nlikelihood = false\n"
    run = make_run(tmp_path / "a", table, cycles=15, burn_in=5, text=text)
    folder, printed, summary = run_report(run)
    assert "profiles.png" not in summary["pictures"] and summary["columns"] == []
    assert "samples the prior" in " ".join(printed.split())
    assert_picture(folder / "cluster_sizes.png")


def test_unused_columns_and_given_priors(table, tmp_path):
    text = "[columns.colour]\nuse = false\n[columns.flag]\nprior = {dirichlet = [1.0, 2.0]}\n"
    *_, summary = run_report(make_run(tmp_path / "a", table, cycles=15, burn_in=3, text=text))
    assert "colour" not in {c["column"] for c in summary["columns"]} and len(summary["columns"]) == 6


def test_one_kind_of_column_is_enough(tmp_path):
    for keep in ("categorical", "real", "count"):
        columns = [c for c in planted(n=120)[0] if c[1] == keep]
        table = write_table(tmp_path / f"{keep}.h5", *table_from_arrays(columns))
        *_, summary = run_report(make_run(tmp_path / keep, table, cycles=6, burn_in=2))
        assert len(summary["columns"]) == len(columns)


def test_few_draws_are_called_few(table, tmp_path):
    run = make_run(tmp_path / "a", table, cycles=12, burn_in=6, labels=5)
    _, printed, summary = run_report(run)
    assert summary["kept_draws"] == 1 and "only 1 draw of the labels kept" in printed.replace("\n", " ")


def test_no_draws_leave_the_trace(table, tmp_path, named_pictures):
    run = make_run(tmp_path / "a", table, cycles=12, burn_in=4, keep=False)
    _, printed, summary = run_report(run)
    assert summary["pictures"] == ["trace.png"] and "clusters cannot be shown" in printed.replace("\n", " ")


def test_burn_in_is_honoured(run_dir, tmp_path):
    *_, summary = run_report(run_dir, out=tmp_path, burn_in=30)
    assert summary["kept_draws"] == 10 and summary["runs"][0]["burn_in"] == 30
    with pytest.raises(ConfigError, match="leaves nothing of the 40 there are"):
        report(run_dir, out=tmp_path, burn_in=40)
    with pytest.raises(ConfigError, match="0 or more"):
        report(run_dir, out=tmp_path, burn_in=-1)


def test_a_moved_table_is_found_with_table(tmp_path):
    table = write_planted(tmp_path / "here.h5")
    run = make_run(tmp_path / "a", table, cycles=12, burn_in=4)
    shutil.move(tmp_path / "here.h5", tmp_path / "there.h5")
    with pytest.raises(DataError, match=r"here\.h5.*--table"):
        report(run)
    run_report(run, table=tmp_path / "there.h5")
    write_planted(tmp_path / "here.h5", seed=1)
    with pytest.raises(DataError, match="its content is not what"):
        report(run)


def test_places_that_are_no_run(table, tmp_path):
    with pytest.raises(ConfigError, match="no such directory"):
        report(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="no run directory"):
        report(tmp_path / "empty")
    run = make_run(tmp_path / "a", table, cycles=5, burn_in=1)
    shutil.rmtree(run / "trace")
    with pytest.raises(ConfigError, match="nothing has been saved yet"):
        report(run)


def test_out_that_cannot_be_written(run_dir, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigError, match="--out"):
        report(run_dir, out=tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_statistics_in_slices_are_those_of_the_whole(run_dir, monkeypatch):
    run = Posterior([run_dir])
    (_, draw), *_ = run.whole.states()
    whole = run.statistics([draw.labels])[0]
    moments, sample = run.moments(draw.labels), run.sample(100)
    cuts = {"height": np.array([0.0, 30.0]), "visits": np.array([3.0])}
    histograms = run.histograms(draw.labels, cuts)
    monkeypatch.setattr("mpibayes.hpc.crosscat.draws.SLICE_ROWS", 37)
    parts = run.statistics([draw.labels])[0]
    for name, value in vars(whole).items():
        np.testing.assert_allclose(getattr(parts, name), value, rtol=1e-12, atol=1e-9)
    for name, (mean, scatter) in run.moments(draw.labels).items():
        np.testing.assert_allclose((mean, scatter), moments[name], rtol=1e-9, atol=1e-9)
    for name, counts in run.histograms(draw.labels, cuts).items():
        assert np.array_equal(counts, histograms[name])
    for name, value in vars(run.sample(100)).items():
        np.testing.assert_array_equal(value, getattr(sample, name))
    x = run.data.rows_of(0, run.n_rows).reals[:, 0]
    assert histograms["height"].sum() == np.isfinite(x).sum()
    assert histograms["height"][1].sum() == np.sum((x > 0) & (x <= 30))


def test_evenly_spaced_draws_end_with_the_last():
    assert evenly(range(7), 9) == list(range(7))
    assert evenly(range(100), 4) == [24, 49, 74, 99]
    assert evenly(range(10), 1) == [9]


def test_a_block_of_ten_long_names_fits_a_hundred_letters():
    g, names = np.random.default_rng(2), tuple(f"{i}_measured_where_it_is_".ljust(25, "x") for i in range(10))
    here, overall = (np.clip(g.uniform(-1, 1, (4, 10, 10)), -0.9, 0.9) for _ in range(2))
    mean = 1000 * g.normal(size=(4, 10))
    block = BlockProfile("body", names, np.full(4, 500.0), mean, here, mean.mean(axis=0), overall[0])
    clusters = [ClusterLine(k + 1, 500, 0.25, 1.0) for k in range(4)]
    paper = io.StringIO()
    for part in block_tables(clusters, block):
        Console(file=paper, width=100).print(part)
    lines = paper.getvalue().splitlines()
    assert all(name in paper.getvalue() for name in names) and "\u2026" not in paper.getvalue()
    heads = [i for i, line in enumerate(lines) if line.split()[:1] == ["#"]]
    assert lines[heads[0]].split()[1:] == [f"({i})" for i in range(1, 11)]
    assert [line.split()[0] for line in lines[heads[0] + 1 : heads[1]]] == ["1", "2", "3", "4", "all"]
    assert [line.split()[0] for line in lines[heads[1] + 1 :]] == ["1", "2", "3", "4"]  # a line a cluster: none folded
    assert all(line.count("overall") == 3 for line in lines[heads[1] + 1 :])


def opening(run_dirs, width=100, **options):
    """Text of the terminal, parts of the page, and the page."""
    paper = io.StringIO()
    folder = report(run_dirs, console=Console(file=paper, width=width), **options)
    text = (folder / "report.html").read_text()
    assert problems(text) == []
    return paper.getvalue(), parts_of(text), text


@pytest.mark.thorough
def test_the_terminal_has_the_verdict_and_the_page_all_columns(run_dir, tmp_path, small_pictures):
    printed, parts, text = opening(run_dir, out=tmp_path / "r")
    lines = printed.splitlines()
    assert len(lines) <= 40 and "read this with care" in lines[0]
    assert "3 clusters in 360 rows" in printed and "One chain only:" in printed and "run.chains = 2" in printed
    assert "height 60" in printed and "report.html" in printed
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    stops, browse, columns, traces = parts
    assert [stop["name"] for stop in stops["stops"]] == ["2 groups", "3 groups", "all 3 clusters"]
    assert [row[2] for row in browse["rows"]] == summary["representative"]["sizes"]
    assert len({row[1] for row in browse["rows"]}) == 3  # each has a name of its own
    assert {c["name"] for c in browse["details"]["columns"]} == {row[0] for row in columns["rows"]}
    assert len(columns["rows"]) == 7 and columns["rows"][0][2] == max(row[2] for row in columns["rows"])
    (height,) = (c for c in browse["details"]["columns"] if c["name"] == "height")
    tall = max(range(3), key=lambda k: height["mean"][k])
    assert abs(height["mean"][tall] - 60) < 3 and "height" in browse["rows"][tall][-1]
    assert {panel["title"] for panel in traces["panels"]} >= {"Log joint, nats", "Number of clusters"}
    assert "representative" in text and text.count("<svg") >= 3 and "config.resolved.toml" in text


def test_chains_that_differ_are_not_to_be_used(table, tmp_path):
    run = make_run(tmp_path / "both", table, chains=2, labels=2, cycles=20, burn_in=4)
    printed, parts, _ = opening(run)
    summary = json.loads((run / "report" / "summary.json").read_text())
    bad = summary["agreement"]["verdict"] in ("different", "apart")
    assert ("do not use this result yet" in printed) == bad and ("nothing speaks against" in printed) is False
    (traces,) = (part for part in parts if part["part"] == "traces")
    assert [c["name"] for c in traces["chains"]] == ["chain-1", "chain-2"] and len(traces["panels"][0]["lines"]) == 2


def level_trait(column, level, p, overall=0.5):
    return Trait(column, column, 1.0, "level", f"{level} x", "y", {"levels": [level], "p": [p], "overall": [overall]})


def test_names_of_clusters_are_their_own_and_say_what_they_have():
    has, mostly = level_trait("sex", "F", 0.99), level_trait("job", "none", 0.6)
    lacks = level_trait("code", "0", 0.001)
    assert [t.label for t in (has, mostly, lacks)] == ["sex = F", "job = none 60 %", "code not 0"]
    assert level_trait("type", "2", 0.6).label == 'type = "2" 60 %', "two numbers side by side"
    assert level_trait("type", "2", 0.99).label == "type = 2"
    named = name_clusters([[lacks, has, mostly], [lacks, has], [lacks, has, mostly], [has, mostly], [], []])
    assert named[0] == "sex = F, job = none 60 %" and named[1] == "sex = F, code not 0"
    assert named[4] == named[5] == "much like all rows, column by column"
    assert named[2] == "job = none 60 %, code not 0" and named[3] == "sex = F, job = none 60 %"  # it has no other
