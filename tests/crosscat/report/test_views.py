"""The report of several views: which columns go together, against plain computations, and whether chains agree."""

import io
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from mpibayes.hpc.crosscat.draws import Posterior, iterate_draws
from mpibayes.hpc.crosscat.exports import clusters
from mpibayes.hpc.crosscat.report import agreement, dependence, figures, numbers, report, tables
from mpibayes.hpc.crosscat.report.answers import answer
from mpibayes.hpc.crosscat.report.summarise import summarise
from mpibayes.hpc.crosscat.summaries.partitions import by_size, variations
from mpibayes.hpc.posterior.similarity import similarity
from mpibayes.hpc.report.document import PAGE, Table
from mpibayes.hpc.run.directory import write_start
from mpibayes.io.files import unguarded
from mpibayes.io.table import table_from_arrays, write_table
from mpibayes.terminal import Console
from tests.crosscat.report.runs import make_run, planted
from tests.crosscat.report.test_chains import make_chain
from tests.crosscat.report.test_figures import axes_of
from tests.crosscat.report.test_report import assert_picture, run_report
from tests.page.checks import parts_of, problems

CROSSCAT = '[model]\nfamily = "crosscat"\n'


@pytest.fixture(scope="session")
def two_tables(tmp_path_factory):
    """Two planted tables beside one another: the second's columns, but for two of them, with other clusters of rows."""
    one, two = (planted(n=250, seed=seed)[0] for seed in (0, 1))
    columns = [*one, *((f"{name} 2", *rest) for name, *rest in two if name not in ("noise", "dust"))]
    return write_table(tmp_path_factory.mktemp("two") / "two.h5", *table_from_arrays(columns))


@pytest.fixture(scope="session")
def two_views(two_tables, tmp_path_factory):
    """A run on it, for tests that only read it."""
    return make_run(tmp_path_factory.mktemp("views") / "a", two_tables, cycles=40, text=CROSSCAT, heldout=0.1)


def test_a_column_alone_is_shown_as_its_distribution(tmp_path):
    """Its clusters are a histogram: the page, the terminal and the note of an export name none."""
    grades = ("grade", "categorical", np.random.default_rng(3).integers(0, 5, 150), list("12345"))
    columns = [c for c in planted(n=150)[0] if c[0] in ("colour", "flag", "height", "dust")]
    table = write_table(tmp_path / "t.h5", *table_from_arrays([*columns, grades]))
    many_views = f"{CROSSCAT}view_concentration = 20.0\n"
    run = Posterior([make_run(tmp_path / "a", table, cycles=16, text=many_views, heldout=0.1)])
    p = summarise(run)
    sole = {view.number: view for view in p.views if len(view.names) == 1}
    assert sole and len(sole) < len(p.views)
    shown = {
        s.name: [part for block in s.blocks(PAGE) for part in block if isinstance(part, Table)]
        for s in report.sections(p, [])
    }
    (views,), (columns,) = shown["views"], shown["columns"]
    about = {row[0]: row[2:4] for row in columns.rows}
    paper = io.StringIO()
    Console(file=paper, width=300).print(report.top(p)[0])
    lines = [" ".join(line.split()) for line in paper.getvalue().splitlines()]
    note = clusters(run).about
    for view, row in zip(p.views, views.rows):
        (name, *others), text = view.names, view.spread
        assert bool(text) == (not others) == (f"{view.number}: {name} (a column alone" in note)
        if text:
            assert row[3:] == [None, None, f"{name}: {text}"] and about[name] == [None, f"alone: {text}"]
            assert f"{view.number} 1 - {name}: {text}" in lines and f"clusters-{view.number}" not in shown
        else:
            assert isinstance(row[3], int) and about[name][1].startswith("cluster ")
        assert numbers._one_of_several(p, view.number - 1, view)["distribution"] == (text or None)


def kept(folder, burn_in=10):
    return [draw for draw in iterate_draws(folder) if draw.cycle > burn_in]


def test_the_whole_report(two_views, tmp_path, pictures):
    folder, printed, summary = run_report(two_views, out=tmp_path / "r")
    for name in summary["pictures"]:
        assert_picture(folder / name)
    page = (folder / "report.html").read_text()
    views, matrix, *clusters = parts_of(page)
    assert problems(page) == []
    assert len(views["rows"]) == len(summary["views"]) and len(matrix["names"]) == len(summary["dependence"]["columns"])
    assert matrix["ends"][-1] == len(matrix["names"])
    telling = [v for v in summary["views"] if len(v["columns"]) > 1 and v["representative"]["n_clusters"] > 1]
    clusters = [part for part in clusters if part.get("noun") == "cluster"]
    assert len(clusters) == len(telling) >= 2
    for view, browse in zip(telling, clusters):
        assert [row[2] for row in browse["rows"]] == view["representative"]["sizes"]
        assert {c["name"] for c in browse["details"]["columns"]} == {c["column"] for c in view["profiles"]}
    requested = {"trace.png", "heldout.png", "dependence.png", "cluster_sizes.png", "profiles-1.png", "profiles-2.png"}
    assert requested <= set(summary["pictures"])
    text = " ".join(printed.split())
    for words in (
        "views V",
        "of all views together",
        "halves columns: adjusted Rand index",
        "; rows in the views: ",
        "moves of views tried",
        "changed their view",
        "Views: columns that share one clustering of the rows",
        "pairs of columns" if summary["dependence"]["uncertain"] else "every pair of columns",
        "View 1: clusters of the representative partition",
        "View 2: clusters of the representative partition",
    ):
        assert words in text
    for view in summary["views"][:2]:
        assert {"colour", "colour 2"} & {c["column"] for c in view["columns"]} and view["clusters"][0]["name"]
        assert {c["column"] for c in view["profiles"]} == {c["column"] for c in view["columns"]}
        assert sum(view["representative"]["sizes"]) == summary["table"]["training_rows"] == 225
    assert sum(summary["n_views"].values()) == pytest.approx(1.0) and summary["representative"]["n_views"] >= 2
    assert summary["moves"]["kept"]["view_moves_tried"] > 0


def wrong(summary, draws, names):
    """Parts of a summary that differ from the draws, by plain counts."""
    d, result = summary["dependence"], []
    place = {name: i for i, name in enumerate(names)}
    of = {(a, b): np.mean([x.view_of[place[a]] == x.view_of[place[b]] for x in draws]) for a in names for b in names}
    if not np.allclose(d["share"], [[of[a, b] for b in d["columns"]] for a in d["columns"]], atol=1e-6):
        result.append("share")
    for view in summary["views"]:
        part = [c["column"] for c in view["columns"]]
        others = [[of[a, b] for b in part if b != a] for a in part]
        for c, shares in zip(view["columns"], others):
            alone = np.mean([np.sum(x.view_of == x.view_of[place[c["column"]]]) == 1 for x in draws])
            if shares and abs(c["with_others"] - np.mean(shares)) > 1e-9:
                result.append("with_others")
            if (not shares and c["with_others"] is not None) or abs(c["alone"] - alone) > 1e-9:
                result.append("alone")
        if len(part) > 1 and abs(view["together"] - np.mean(others)) > 1e-9:
            result.append("together")
    return result


def test_views_and_dependence_are_those_of_the_draws(two_views, two_tables, tmp_path):
    """The wrong ones: draws whose columns are named in another order, one draw less, a view's numbers in another."""
    *_, summary = run_report(two_views, out=tmp_path)
    draws, names = kept(two_views), [c.name for c in two_tables.columns]
    assert summary["dependence"]["draws"] == len(draws) == 30
    assert not wrong(summary, draws, names)
    assert "share" in wrong(summary, draws, names[::-1])
    early = kept(two_views, 0)[:3]  # that have not found the views yet
    assert "share" in wrong(summary, [*draws, *early], names)
    summary["views"][0]["columns"][0]["with_others"] *= 0.9
    assert wrong(summary, draws, names) == ["with_others"]
    (best,) = [x for x in draws if x.cycle == summary["representative"]["cycle"]]
    sets = {frozenset(names[i] for i in np.flatnonzero(best.view_of == v)) for v in np.unique(best.view_of)}
    reported = [[c["column"] for c in view["columns"]] for view in summary["views"]]
    assert {frozenset(part) for part in reported} == sets
    assert [len(part) for part in reported] == sorted(map(len, reported), reverse=True)
    assert summary["dependence"]["columns"] == [name for part in reported for name in part]
    losses = variations(np.stack([x.view_of for x in draws])).mean(axis=1)
    assert summary["representative"]["expected_variation_of_information"] == pytest.approx(losses.min())


@pytest.mark.thorough
def test_all_that_is_shown_is_of_the_best_chain(two_tables, tmp_path, monkeypatch):
    """Views, clusters of every view, pictures and export, whichever chain predicts better. Before, the clusters of a
    view could be of the other chain's draw."""
    home = make_run(tmp_path / "a", two_tables, cycles=16, chains=2, text=CROSSCAT, labels=2, heldout=0.1)
    read = Posterior.read_traces

    def scored(run):
        read(run)
        for i, chain in enumerate(run.chains):
            for name in ("heldout_lpd", "heldout_lpd_averaged"):
                chain.trace[name][:] = -20.0 if i == best else -21.0

    monkeypatch.setattr(Posterior, "read_traces", scored)
    for best in (0, 1):
        p = summarise(run := Posterior([home]))
        assert {p.representatives.chain, *(view.representative.chain for view in p.views)} == {best}
        words = [part for s in report.sections(p, []) for block in s.blocks(PAGE) for part in block]
        shown = [part for part in words if isinstance(part, str) and " of the best chain" in part]
        assert len(shown) > 1 and all(f"chain-{best + 1}, cycle" in part for part in shown)
        assert f"of {home}/chain-{best + 1}," in clusters(run).about


def test_the_clusters_of_a_view_are_those_of_its_draw(two_views, two_tables, tmp_path):
    *_, summary = run_report(two_views, out=tmp_path)
    draws, names = {x.cycle: x for x in kept(two_views)}, [c.name for c in two_tables.columns]
    for view in summary["views"]:
        draw = draws[view["representative"]["cycle"]]
        part = [names.index(c["column"]) for c in view["columns"]]
        home = np.bincount(draw.view_of[part]).argmax()
        sizes = np.bincount(by_size(draw.labels[home]))
        assert view["representative"]["sizes"] == sizes[sizes > 0].tolist()
        others = [v for v in range(len(draw.labels)) if v != home]
        assert all(view["representative"]["sizes"] != np.bincount(by_size(draw.labels[v])).tolist() for v in others)


PARTITIONS = np.array([[0, 0, 1, 1, 2], [0, 0, 1, 1, 1], [0, 1, 1, 0, 2], [0, 0, 1, 1, 1]])


def test_dependence_by_hand():
    d = dependence.dependence(PARTITIONS, list("abcde"), [["a", "b"], ["c", "d"], ["e"]])
    assert d.names == list("abcde") and d.n_draws == 4
    assert d.share[0].tolist() == [1, 0.75, 0, 0.25, 0] and d.share[4].tolist() == [0, 0, 0.5, 0.5, 1]
    assert [d.together(0), d.together(1)] == [0.75, 0.75] and np.isnan(d.together(2))
    assert d.alone.tolist() == [0, 0, 0, 0, 0.5]
    assert d.uncertain[:2] == [(2, 4), (3, 4)] and len(d.uncertain) == 6
    assert [d.view_of(c) for c in range(5)] == [0, 0, 1, 1, 2]
    loose = dependence.dependence(PARTITIONS, list("abcde"), [["a", "c", "d"], ["b", "e"]])
    assert loose.names == ["d", "c", "a", "b", "e"]  # the surest of a view first
    sure = dependence.dependence(PARTITIONS[[0, 0]], list("abcde"), [["a", "b"], ["c", "d"], ["e"]])
    assert sure.uncertain == []


def touching(monkeypatch, n, n_views):
    """True if numbers or names touch in a picture with n columns in so many views."""
    z = np.sort(np.arange(n) % n_views)
    names = [f"column {i}" for i in range(n)]
    views = sorted([[names[i] for i in np.flatnonzero(z == v)] for v in range(n_views)], key=len, reverse=True)
    figure = axes_of(monkeypatch, dependence.dependence_map, dependence.dependence(z[None], names, views))
    axes, size = figure.axes[0], figure.get_size_inches()
    assert max(size) * 150 <= 2100
    figure.canvas.draw()
    numbers = [text.get_window_extent() for text in axes.texts]
    labels = [text.get_window_extent() for text in axes.get_yticklabels()]
    assert len(labels) == (n if n <= dependence.NAMED else 0) and numbers
    assert all(box.x0 >= 0 and box.y1 <= figure.bbox.height for box in [*numbers, *labels])
    pairs = [(a, b) for i, a in enumerate(numbers) for b in [*numbers[:i], *labels]]
    return any(a.overlaps(b) for a, b in [*pairs, *pairwise(labels)])


@pytest.mark.quick("2-1", "70-60")
@pytest.mark.usefixtures("figures")
@pytest.mark.parametrize("n, n_views", [(2, 1), (5, 2), (70, 60), (500, 90)])
def test_the_picture_of_the_dependence_is_legible(n, n_views, monkeypatch):
    assert not touching(monkeypatch, n, n_views)
    monkeypatch.setattr(dependence, "LETTER", 0.0)  # the wrong one: every view has its number, whatever its room
    monkeypatch.setattr(dependence, "MARGIN", 0.0)
    assert touching(monkeypatch, n, n_views) == (n_views >= 30)


@pytest.mark.usefixtures("figures")
def test_few_cluster_sizes_have_a_panel_for_each_view(monkeypatch):
    sizes = {"View 1": np.array([[5, 3], [4, 4]]), "View 2": np.array([[8], [8]]), "View 3": np.array([[6, 2]])}
    figure = axes_of(monkeypatch, figures.cluster_sizes, sizes, 8)
    assert [axes.get_title(loc="left") for axes in figure.axes if axes.get_title(loc="left")] == list(sizes)


@pytest.mark.usefixtures("figures")
def test_sizes_of_many_clusters_are_one_shape(monkeypatch):
    """Below an axis that is logarithmic, and not a bar for each."""
    sizes = np.sort(np.random.default_rng(1).integers(1, 900, (3, 2 * figures.BARS)))[:, ::-1]
    axes = axes_of(monkeypatch, figures.cluster_sizes, {"": sizes}, int(sizes.sum())).axes[0]
    assert len(axes.patches) == 0 and len(axes.collections) == 2
    assert axes.get_legend_handles_labels()[1] == ["posterior mean", "5 % to 95 % of the draws"]


def agree(ari, **more):
    return agreement.Agreement(np.array(ari, float), np.zeros((2, 2)), 100, **more)


SAME, OTHER = [[0.99, 0.98], [0.98, 0.99]], [[0.99, 0.2], [0.2, 0.99]]


@pytest.mark.parametrize(
    "columns, rows, worst, words",
    [
        (SAME, {1: SAME, 3: SAME}, "same", "Yes, on the views: adjusted Rand index 0.980"),
        (SAME, {1: SAME, 3: SAME}, "same", "On the clusters, too: adjusted Rand index 0.980"),
        (
            SAME,
            {1: SAME, 3: OTHER},
            "different",
            "On single clusters, not fully, in view 3: adjusted Rand index 0.200",
        ),
        (OTHER, {1: SAME}, "different", "No, there are 2 sets of views (a | b)"),
        (SAME, {1: OTHER}, "different", "On single clusters, not fully: adjusted"),
        (SAME, {1: OTHER}, "different", "On the views, yes: "),
        (SAME, {1: SAME}, "same", "On the clusters, too: "),
        (SAME, {}, "same", "Yes: "),
    ],
)
def test_chains_agree_on_columns_and_then_on_rows(columns, rows, worst, words):
    summaries = [agreement.summarise_chain(make_chain(name=name, log_joint=np.zeros(20))) for name in "ab"]
    a, of_rows = agree(columns), {number: agree(ari) for number, ari in rows.items()}
    text = " ".join(answer(a, summaries, of_rows))
    assert words in text and ("the best first" in text) == (worst != "same")
    assert agreement.worst([a, *of_rows.values()]) == worst
    apart = " ".join(answer(replace(a, gap=500.0), summaries, of_rows))
    assert "mean log joints differ by 500 nats" in apart and "the best first" in apart


@pytest.mark.parametrize(
    "verdict, several, advised", [("same", True, False), ("different", True, True), ("different", False, False)]
)
def test_searches_of_the_chains_in_a_line(tmp_path, verdict, several, advised):
    """More of them are advised where no chain has found its best twice, and chains of several views differ."""
    chains = [SimpleNamespace(folder=tmp_path / name) for name in ("chain-1", "chain-2")]
    opened = SimpleNamespace(chains=chains, several=several)
    posterior = SimpleNamespace(run=opened, agreement=SimpleNamespace(verdict=verdict))
    for chain in chains:
        chain.folder.mkdir()
    assert tables.searched(posterior) == [], "a run of before there was start.json"
    for first, near, advice in (
        ([-1.0, -2.0, -1.03], "1 and 0 other searches", False),
        ([-1.0, -2.0], "no other search", advised),
    ):
        for chain, scores in zip(chains, (first, [-1.0, -2.0])):
            write_start(chain.folder, {"searches": scores, "judges": 30}, unguarded)
        ((name, words),) = tables.searched(posterior)
        assert name == "searches" and f"{near} within 0.05" in words and ("may find" in words) == advice


@pytest.mark.thorough
def test_two_chains(two_tables, tmp_path, named_pictures):
    run = make_run(tmp_path / "a", two_tables, cycles=20, chains=2, text=CROSSCAT, labels=2)
    _, printed, summary = run_report(run)
    text, result = " ".join(printed.split()), summary["agreement"]
    assert "Did the chains find the same views?" in text and "of the 12 columns into views" in text
    assert result["columns"]["columns"] == 12 and len(result["columns"]["adjusted_rand"]) == 2
    assert all(view["agreement"]["rows"] == 250 for view in summary["views"])
    assert "chains.png" in summary["pictures"] and "rows, adjusted Rand index" in text
    assert result["verdict"] in agreement.WORST_FIRST and result["columns"]["adjusted_rand"][0][1] == apart(run)
    wrong = [apart(run, np.roll(np.arange(12), by)) for by in range(1, 12)]  # the columns of one chain in another order
    assert sum(result["columns"]["adjusted_rand"][0][1] == of for of in wrong) < 8, wrong


def apart(run, order=slice(None)):
    """The adjusted Rand index of the columns of the draws that are nearest to all others of their chain."""
    best = []
    for chain, how in zip(("chain-1", "chain-2"), (slice(None), order)):
        z = np.stack([draw.view_of for draw in kept(run / chain)])
        best.append(z[np.argmin(np.round(variations(z).mean(axis=1), 12))][how])
    return pytest.approx(similarity(*best)[0], abs=1e-12)


@pytest.mark.thorough
def test_without_likelihood_and_with_one_draw(two_tables, tmp_path, named_pictures):
    text = CROSSCAT + "likelihood = false\n"
    run = make_run(tmp_path / "a", two_tables, cycles=12, burn_in=6, labels=5, text=text)
    _, printed, summary = run_report(run)
    assert summary["kept_draws"] == 1 and "only 1 draw of the labels kept" in " ".join(printed.split())
    assert all(view["profiles"] == [] for view in summary["views"])
    assert not [name for name in summary["pictures"] if name.startswith("profiles")]
    assert "dependence.png" in summary["pictures"] and summary["dependence"]["uncertain"] == []


@pytest.mark.thorough
def test_no_draws_leave_the_trace(two_tables, tmp_path, named_pictures):
    run = make_run(tmp_path / "a", two_tables, cycles=12, burn_in=4, keep=False, text=CROSSCAT)
    _, _, summary = run_report(run)
    assert summary["pictures"] == ["trace.png"] and "views" not in summary


def test_columns_sure_to_go_together_are_named_where_views_differ():
    """A set has every pair in nine tenths of the draws, so that no chain of pairs joins two columns that are apart."""
    one, other = np.array([0, 0, 0, 1, 1]), np.array([0, 0, 1, 1, 1])
    made = dependence.dependence(np.stack([one, other] * 5), list("abcde"), [["a", "b", "c"], ["d", "e"]])
    assert sorted(map(sorted, made.sure)) == [["a", "b"], ["d", "e"]]
