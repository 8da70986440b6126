"""Pairs that a run weakens, and linked pairs, in its report and beside completed tables."""

import numpy as np
import pytest

from mpibayes.hpc.crosscat.draws import Posterior
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.report.document import PAGE
from mpibayes.hpc.report.text import text_of
from mpibayes.hpc.results import weak_pairs
from mpibayes.hpc.results.asked_report import asked_report
from mpibayes.hpc.results.complete import complete
from mpibayes.hpc.results.linked_tables import table
from mpibayes.hpc.results.weak_pairs import forest, groups, look
from mpibayes.hpc.synthetic.pairs import check
from mpibayes.io.table import table_from_arrays, write_table
from tests.crosscat.report.runs import make_run
from tests.query.test_pairs import ONE_CLUSTER, N

LINKED = "[model]\nfamily = 'mixture'\nlinks = 'forest'\nconcentration = 1e-9\n"


@pytest.fixture(scope="module")
def of_jobs(tmp_path_factory):
    """A table in which the sector follows the job, and the pay, of which some cells are missing, the sector."""
    folder, g = tmp_path_factory.mktemp("weak"), np.random.default_rng(4)
    job = g.choice(3, size=N, p=[0.5, 0.3, 0.2])
    sector = np.where(g.random(N) < 0.8, job, g.integers(3, size=N))
    pay = np.where(g.random(N) < 0.8, sector > 0, g.integers(2, size=N)).astype(int)
    pay[g.random(N) < 0.1] = -1
    columns = [
        ("job", "categorical", job, ["cook", "nurse", "smith"]), ("sector", "categorical", sector, list("xyz")),
        ("pay", "boolean", pay, ["low", "high"]), ("coin", "boolean", g.integers(2, size=N), ["no", "yes"]),
    ]  # fmt: skip
    return folder, write_table(folder / "t.h5", *table_from_arrays(columns)), job, sector


@pytest.fixture(scope="module")
def plain(of_jobs):
    folder, written, *_ = of_jobs
    return make_run(folder / "plain", written, text=ONE_CLUSTER, cycles=30, starts=["one"], split_merge=0)


@pytest.fixture(scope="module")
def linked(of_jobs):
    folder, written, *_ = of_jobs
    more = {"text": LINKED, "links": "forest", "link_moves": 5, "starts": ["one"], "split_merge": 0}
    return make_run(folder / "linked", written, cycles=30, **more)


def test_a_brief_look_finds_what_a_long_one_does(plain):
    asking = Asking(plain)
    long, brief = (check(asking, asking.columns, briefly) for briefly in (False, True))
    at = [long.pairs.index(pair) for pair in brief.pairs]
    assert (brief.n_all, brief.n_rows) == (6, N) and len(at) < 6  # no pair of the coin has anything to lose
    assert np.array_equal(brief.table, long.table[at]) and np.array_equal(brief.drawn, long.drawn[:, at])
    assert [brief.pairs[i] for i in brief.clear()] == [long.pairs[i] for i in long.clear()]


def test_a_report_has_the_pairs_that_the_run_weakens(plain):
    made = asked_report(Posterior([plain]))
    result = made.numbers["pairs"]
    weaker = {tuple(pair["columns"]) for pair in result["weaker"]}
    assert weaker == {("job", "sector"), ("sector", "pay"), ("job", "pay")}
    assert (result["looked_at"], result["judged"]) == (6, True)
    assert any("job with sector" in s and 'links = "forest" under [model]' in s for s in made.verdict.next)
    assert "3 pairs of 6 depend on each other less" in text_of(made)
    names = [s.name for s in made.sections]
    assert names.index("pairs") == names.index("columns") - 1
    (section,) = (s for s in made.sections if s.name == "pairs")
    (*_, remedy), pairs = section.parts[1:]
    assert remedy.lines[1][1] == 'links = [["job", "sector"], ["sector", "pay"]]'
    assert [row[-1] for row in pairs.rows] == ["yes"] * 3


def test_a_linked_run_has_them_all_and_says_so(linked):
    made = asked_report(Posterior([linked]))
    assert made.numbers["pairs"]["weaker"] == [] and not any("Completed" in s for s in made.verdict.next)
    assert "None of the 6 pairs of columns is clearly less dependent in simulated rows" in text_of(made)


def test_a_linked_pair_as_a_table(of_jobs, linked):
    """Shares are those of the table's rows, but for pseudo-counts: within 1 % of 300 rows or more."""
    *_, job, sector = of_jobs
    made = table(Asking(linked), "sector", "job")
    names, shares, words = (list(column.cells) for column in made.columns)
    assert names == ["cook", "nurse", "smith", "all"] and words[0].startswith("x (")
    assert made.columns[-1].header == "sector"
    for j, line in enumerate(words[:3]):
        share = float(line.split("(")[1].split(" %")[0]) / 100
        assert share == pytest.approx(np.mean(sector[job == j] == j), abs=0.01)
        assert float(shares[j].split(" ")[0]) / 100 == pytest.approx(np.mean(job == j), abs=0.01)


def test_the_page_has_tables_of_linked_pairs(linked):
    made = asked_report(Posterior([linked]))
    assert {frozenset(pair) for pair in made.linked} == {frozenset({"job", "sector"}), frozenset({"sector", "pay"})}
    (section,) = (s for s in made.sections if s.name == "links")
    of_pairs = section.blocks(PAGE)[-1]
    headings, tables = of_pairs[-4::2], of_pairs[-3::2]
    assert [str(heading) for heading in headings] == [f"{child} given {parent}" for child, parent in made.linked]
    assert [part.columns[0].header for part in tables] == [parent for _, parent in made.linked]


def test_links_to_name_are_a_forest():
    pairs = [("a", "b"), ("b", "c"), ("a", "c"), ("d", "c"), ("e", "f")]
    assert forest(pairs, lambda child, parent: True) == [("a", "b"), ("b", "c"), ("d", "c"), ("e", "f")]
    assert forest(pairs, lambda child, parent: parent != "f") == [("a", "b"), ("b", "c"), ("d", "c"), ("f", "e")]
    assert forest([("a", "b"), ("a", "c")], lambda child, parent: child == "a") == [("a", "b")]


def test_completed_tables_come_with_a_note(plain, linked, tmp_path):
    """The warning names pairs that have a cell to complete."""
    notes = [note for note in complete(plain, None, tmp_path / "a", copies=2).notes if "are weaker in the run" in note]
    assert len(notes) == 1 and "sector with pay, job with pay;" in notes[0] and 'links = "forest"' in notes[0]
    assert not any("links" in note for note in complete(linked, None, tmp_path / "b", copies=2).notes)


def test_completed_tables_name_what_biases_them(of_jobs, plain, tmp_path):
    """Cells of the pay are missing by the sector, which one cluster does not tell: the completed share of high pay is
    nearer to that of the observed cells than to the truth. The same cells missing by chance bias nothing."""
    sector, g = of_jobs[-1], np.random.default_rng(8)
    pay = (g.random(N) < np.array([0.1, 0.5, 0.9])[sector]).astype(int)
    gone = g.random(N) < np.array([0.1, 0.3, 0.7])[sector]
    for name, missing, expected in (("by_sector", gone, 1), ("by_chance", g.permutation(gone), 0)):
        columns = [
            ("sector", "categorical", sector, list("xyz")),
            ("pay", "boolean", np.where(missing, -1, pay), ["low", "high"]),
            ("coin", "boolean", g.integers(2, size=N), ["no", "yes"]),
        ]  # fmt: skip
        written = write_table(tmp_path / f"{name}.h5", *table_from_arrays(columns))
        run = make_run(tmp_path / name, written, text=ONE_CLUSTER, cycles=30, starts=["one"], split_merge=0)
        done = complete(run, None, tmp_path / f"{name}-copies", copies=2)
        notes = [note for note in done.notes if "are biased towards those of the observed cells" in note]
        assert len(notes) == expected and all(note.startswith("pay with sector: ") for note in notes)
        lines = [line.split(",") for path in done.paths for line in path.read_text().splitlines()[1:]]
        share, seen = np.mean([line[1] == "high" for line in lines]), pay[~missing].mean()
        assert abs(share - seen) < abs(share - pay.mean()) or not expected


def test_few_draws_do_not_say_what_is_weaker(plain):
    assert look(Asking(plain, 4)).words() == "4 draws: too few to say which pairs of columns the run weakens."


@pytest.mark.thorough
def test_numbers_that_vary_together_are_advised_a_block(tmp_path, monkeypatch):
    """`same` repeats `size` with noise; so does `gap`, which lacks a cell, as no block may; `lone` is apart."""
    g = np.random.default_rng(6)
    size = g.normal(size=N)
    same, gap = size + 0.2 * g.normal(size=N), size + 0.2 * g.normal(size=N)
    gap[3] = np.nan
    reals = zip(("size", "same", "gap", "lone"), (size, same, gap, g.normal(size=N)))
    written = write_table(tmp_path / "t.h5", *table_from_arrays([(name, "real", x, None) for name, x in reals]))
    more = {"cycles": 30, "starts": ["one"], "split_merge": 0}
    run = Posterior([make_run(tmp_path / "apart", written, text=ONE_CLUSTER, **more)])
    words = "The numbers size and same vary together"
    assert not any(words in s for s in asked_report(run).verdict.next)  # one cluster stands in for nothing
    monkeypatch.setattr(weak_pairs, "MANY", 0)
    apart = asked_report(run)
    assert any(words in s for s in apart.verdict.next)
    text = " ".join(text_of(apart).split())
    assert '[blocks.numbers] columns = ["size", "same"]' in text
    assert 'or as links, under [model] links = "lines"' in text
    lined = ONE_CLUSTER.replace("[model]", "[model]\nlinks = 'lines'\nlines = ['size', 'same', 'lone']")
    more |= {"text": lined, "links": "lines", "link_moves": 5}
    made = asked_report(Posterior([make_run(tmp_path / "lined", written, **more)]))
    assert not any("vary together" in s for s in made.verdict.next)  # a line is as good as a block of two


def test_groups_of_pairs():
    pairs = [("a", "b"), ("c", "d"), ("b", "c"), ("e", "f"), ("f", "a")]
    assert sorted(map(sorted, groups(pairs, 6))) == [list("abcdef")]
    assert sorted(map(sorted, groups(pairs, 4))) == [list("abcd"), list("ef")]
