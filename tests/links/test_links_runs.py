"""Runs with links from the command line: ranks, stops, exports, the report, and configurations that are refused."""

import json

import numpy as np
import pytest

import mpibayes as mb
from mpibayes.hpc.crosscat import rules
from mpibayes.hpc.crosscat.draws import iterate_draws
from mpibayes.hpc.data.bins import cuts_of
from mpibayes.hpc.links.coding import Coding
from mpibayes.hpc.run.identity import read_resolved
from mpibayes.io.append import append_rows
from mpibayes.io.ingest import import_table
from mpibayes.io.rows import Column
from mpibayes.io.table import table_from_arrays, write_table
from tests.links.runs import links_of, require_the_same_in_pieces
from tests.run.conftest import exported, mpibayes, run, sets, small_config

CONFIG = small_config('links = "forest"', "[sampler]\nlink_moves = 2\nsplit_merge = 4")


def links_table(path, n=400, seed=3):
    """Three clusters of four columns; beside them b and flag lean on a. Cells of a, b and x1 are missing."""
    g = np.random.default_rng(seed)
    z, a = g.integers(3, size=n), g.integers(40, size=n)
    b = np.where(g.random(n) < 0.9, a % 5, g.integers(5, size=n))
    flag = np.where(g.random(n) < 0.95, a % 2, g.integers(2, size=n))
    for codes in (a, b):
        codes[g.random(n) < 0.1] = -1
    columns = [("a", "categorical", a, [f"a{i}" for i in range(40)]), ("b", "categorical", b, list("pqrst"))]
    columns += [("flag", "boolean", flag, ("no", "yes")), ("y", "real", g.normal(size=n) + 3.0 * z, None)]
    for i in range(3):
        x = np.where(g.random(n) < 0.85, z, g.integers(3, size=n))
        x[g.random(n) < (0.1 if i == 1 else 0.0)] = -1
        columns.append((f"x{i}", "categorical", x, list("uvw")))
    write_table(path, *table_from_arrays(columns))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("links")
    links_table(place / "table.h5")
    (place / "run.toml").write_text(CONFIG)
    assert run(place, "straight").returncode == 0
    return place


def test_started_and_continued_on_other_ranks(place):
    require_the_same_in_pieces(place, "straight", ((5, 3), (12, 2)))


def test_named_links_are_kept(place):
    named = 'model.links=[["b", "a"], ["flag", "a"]]'
    assert run(place, "named", "--set", named, "--set", "run.cycles=4").returncode == 0
    assert links_of(place, "named") == [[-1, 0, 0, -1, -1, -1, -1]] * 2


@pytest.mark.thorough
def test_named_pairs_of_parents_are_kept_on_any_number_of_ranks(place):
    """Some of the columns lack cells, which are drawn; the report has both parents."""
    named = "--set", 'model.links=[["b", "x0", "x1"], ["flag", "b"], ["x2", "flag", "x1"]]', "--set", "run.cycles=6"
    for ranks in (1, 2):
        assert run(place, f"two-{ranks}", *named, ranks=ranks).returncode == 0
    assert links_of(place, "two-1") == links_of(place, "two-2") == [[-1, 4, 1, -1, -1, -1, 2]] * 3
    assert exported(place, "two-1") == exported(place, "two-2")
    assert mpibayes(place, "export", "two-1", "--to", "links", "-o", "two.txt").returncode == 0
    assert set((place / "two.txt").read_text().splitlines()) == {"-1 4,5 1 -1 -1 -1 2,5"}
    assert mpibayes(place, "report", "two-1").returncode == 0
    pairs = json.loads((place / "two-1/report/summary.json").read_text())["links"]["pairs"]
    both = {("b", "x0"), ("b", "x1"), ("flag", "b"), ("x2", "flag"), ("x2", "x1")}
    assert {(pair["child"], pair["parent"]) for pair in pairs if pair["share"] == 1.0} == both


@pytest.mark.thorough
def test_a_number_is_a_second_parent_by_fewer_bins(place):
    """Beside three levels there may be eight bins, beside five six; so there are six."""
    for ranks in (1, 2):
        named = "--set", 'model.links=[["flag", "x0", "y"], ["x2", "y", "b"]]', "--set", "run.cycles=6"
        assert run(place, f"number-{ranks}", *named, ranks=ranks).returncode == 0
    assert exported(place, "number-1") == exported(place, "number-2")
    bins = read_resolved(place / "number-1")["model"]["bins"]
    assert len(bins["y"]) == 5
    assert mpibayes(place, "report", "number-1").returncode == 0
    done = mpibayes(place, "query", "number-1", "logp", "--of", "flag=yes", "--given", "x2=u")
    assert done.returncode == 0 and "log_p" in done.stdout, done.stderr


def test_two_parents_share_the_view_of_their_child(place):
    named = "--set", "model.family=crosscat", "--set", 'model.links=[["flag", "x0", "x2"]]'
    assert run(place, "two-views", *named, "--set", "run.cycles=6", "--set", "sampler.init_rows=0").returncode == 0
    for draw in iterate_draws(place / "two-views"):
        assert len({int(draw.view_of[c]) for c in (2, 4, 6)}) == 1
    done = mpibayes(place, "query", "two-views", "logp", "--of", "flag=yes", "--given", "x2=u")
    assert done.returncode == 0 and "log_p" in done.stdout, done.stderr


def test_links_are_found_reported_and_exported(place, small_pictures):
    changes = sets("run.cycles=150", "sampler.link_moves=auto", "sampler.split_merge=auto")
    assert run(place, "long", *changes).returncode == 0
    done = mpibayes(place, "report", "long")
    assert done.returncode == 0 and "2 pairs of columns stay linked" in done.stdout, done.stdout + done.stderr
    result = json.loads((place / "long/report/summary.json").read_text())["links"]["pairs"]
    surest = {frozenset((pair["child"], pair["parent"])) for pair in result if pair["share"] > 0.9}
    assert surest == {frozenset("ba"), frozenset(("flag", "a"))}
    assert (place / "long/report/links.png").exists()
    assert mpibayes(place, "export", "long", "--to", "links", "-o", "links.txt").returncode == 0
    lines = (place / "links.txt").read_text().splitlines()
    parents = [[int(p) for p in line.split()] for line in lines[-3:]]
    linked = [{frozenset((c, p)) for c, p in enumerate(part)} for part in parents]
    assert all(frozenset((0, 1)) in pairs and frozenset((0, 2)) in pairs for pairs in linked), parents
    assert mpibayes(place, "check", "run.toml").returncode == 0


def test_a_run_without_links_has_none_to_export(place):
    assert run(place, "none", "--set", "model.links=none", "--set", "run.cycles=4").returncode == 0
    done = mpibayes(place, "export", "none", "--to", "links")
    assert done.returncode == 2 and 'model.links = "forest" learns them' in done.stderr


def test_advice_of_forms_is_of_those_that_the_run_has(place):
    done = mpibayes(place, "export", "straight", "--to", "features")
    assert done.returncode == 2 and "--to labels, --to clusters, --to links, --to csv and" in done.stderr, done.stderr
    assert run(place, "bare", "--set", "model.links=none", "--set", "run.cycles=4").returncode == 0
    done = mpibayes(place, "export", "bare", "--to", "features")
    assert done.returncode == 2 and "--to labels, --to clusters, --to csv and" in done.stderr, done.stderr


@pytest.mark.parametrize("family", ["mixture", "auto"])  # of these columns a mixture, too
def test_columns_that_are_listed_for_lines_are_linked_in_a_mixture(tmp_path, family):
    u, v = np.random.default_rng(4).normal(size=(2, 30))
    columns = [("u", "real", u, None), ("v", "real", u + 0.1 * v, None)]
    write_table(tmp_path / "table.h5", *table_from_arrays(columns))
    (tmp_path / "run.toml").write_text('[data]\ntable = "table.h5"\n[run]\ncycles = 4\n')
    words = ["--set", f"model.family={family}", "--set"]
    done = run(tmp_path, "one", *words, 'model.lines=["u", "v"]')
    assert done.returncode == 0 and "links: u, v may depend on each other linearly" in done.stdout, done.stderr
    assert run(tmp_path, "none", *words, "model.lines=auto").returncode == 0
    for name, there in (("one", False), ("none", True)):
        done = mpibayes(tmp_path, "export", name, "--to", "links")
        assert ("has no links between columns" in done.stderr) is there, done.stderr
    done = run(tmp_path, "two", *words, 'model.children=["u"]')
    assert done.returncode == 2 and 'has no effect with links = "auto"; add links = "forest"' in done.stderr


@pytest.mark.parametrize(
    ("links", "words"),
    [
        ('[["flag", "a"], ["a", "x0"], ["x0", "flag"]]', "links go in a circle; take one of them out"),
        ('[["flag", "b"], ["flag", "x0"]]', '"flag" is listed twice; give both parents in one link'),
        ('[["flag", "b", "x0"], ["flag", "x1"]]', '"flag" has 3 parents, "b", "x0", "x1"; a column has at most two'),
        ('[["flag", "b", "x0", "x1"]]', "[CHILD, PARENT, PARENT]"),
        ('[["flag", "b", "b"]]', '"b" is listed twice as a parent of "flag"'),
        ('[["flag", "b"], ["b", "x0"], ["flag", "b"]]', 'the link ["flag", "b"] is listed twice; list it once'),
        ('[["flag", "b", "x0"], ["flag", "b", "x0"]]', 'the link ["flag", "b", "x0"] is listed twice; list it once'),
        ('[["flag", "x0", "b"], ["b", "flag"]]', "links go in a circle; take one of them out"),
        ('[["flag", "x0", "a"]]', 'the 3 contexts of "x0" and 32 contexts of "a" make 96, more than 32'),
        ('[["y", "x0", "b"]]', 'column "y" is real; a column with two parents is categorical or boolean'),
        ('[["flag", "a", "y"]]', 'the 32 contexts of "a" and 1 contexts of "y" leave "y" fewer than two bins'),
        ('[["flag", "nobody"]]', 'the run has no column "nobody"'),
    ],
)
def test_links_that_there_cannot_be(place, links, words):
    done = run(place, "wrong", "--set", f"model.links={links}")
    assert done.returncode == 2 and words in done.stderr and "model.links" in done.stderr, done.stderr


def whole_years(place, cuts):
    """A table with a number in whole years, and a configuration with cuts of it."""
    rows = "".join(f"{chr(97 + i % 3)},{i % 9 + i % 5}\n" for i in range(60))
    (place / "table.csv").write_text("kind,years\n" + rows)
    import_table(place / "table.csv", place / "table.h5", kinds={"years": "real"})
    text = f'[data]\ntable = "table.h5"\n[model]\nfamily = "mixture"\nlinks = "forest"\nbins = {{years = {cuts}}}\n'
    (place / "run.toml").write_text(text)


@pytest.mark.parametrize(("cuts", "accepted"), [("[2.0, 6.0]", False), ("[2.25]", False), ("[1.5, 6.5]", True)])
def test_a_cut_does_not_split_a_recorded_value(tmp_path, cuts, accepted):
    """A recorded 2 stands for all numbers from 1.5 to 2.5."""
    whole_years(tmp_path, cuts)
    done = mpibayes(tmp_path, "check", "run.toml")
    assert done.returncode == (0 if accepted else 2), done.stderr
    assert ("in steps of 1: give 1.5 or 2.5, not 2" in done.stderr) is not accepted, done.stderr


@pytest.mark.thorough
def test_a_run_that_has_begun_keeps_its_cuts(tmp_path, monkeypatch):
    """Rules that came later do not apply to it: it continues, and takes rows in."""
    whole_years(tmp_path, "[2.25]")
    with monkeypatch.context() as earlier:
        earlier.setattr(rules, "_check_between", lambda *_: None)
        assert run(tmp_path, "old", "--set", "run.cycles=2").returncode == 0
    assert run(tmp_path, "old", "--set", "run.cycles=3").returncode == 0
    (tmp_path / "later.csv").write_text("kind,years\n" + "a,3\nb,4\n" * 9)
    append_rows(tmp_path / "later.csv", tmp_path / "table.h5")
    assert run(tmp_path, "old", "--set", "run.cycles=3", "--grow").returncode == 0
    assert read_resolved(tmp_path / "old")["model"]["bins"] == {"years": [2.25]}
    (tmp_path / "july.csv").write_text("kind,years\n" + "c,2\nb,4\n" * 9)
    monkeypatch.chdir(tmp_path)
    assert mb.fit("july.csv", run="old", ranks=1, progress=False).directory.name == "old"
    new = run(tmp_path, "new")
    assert new.returncode == 2 and "give 1.5 or 2.5, not 2.25" in new.stderr, new.stderr


def test_cuts_are_on_the_borders_of_recorded_values():
    """A few values are between the steps; a cut half a step above one would split the rows of the step above it."""
    column = Column("x", "real", "reals", 0, resolution=1.0)
    assert cuts_of(column, np.array([1.0, 2.0, 2.3, 3.0, 5.0, 5.0]), 6) == (1.5, 2.5, 3.5)
    assert cuts_of(column, np.array([1.0, 2.0, 2.3, 2.7]), 4) == (1.5, 2.5)
    assert cuts_of(column, np.array([2.7, 2.9]), 2) == ()


@pytest.mark.parametrize("n_levels", [254, 255, 256, 65_535])
@pytest.mark.parametrize("parents", [[-1, -1, 1], [-1, 0, 0]])
def test_codes_are_read_back(n_levels, parents):
    g = np.random.default_rng(n_levels)
    wide = np.append(g.integers(n_levels, size=300), n_levels - 1)
    three = [g.integers(k, size=301) for k in (3, 2)]
    three[1][::7] = -1
    columns, rows = table_from_arrays(
        [
            (n, "categorical", x, [str(v) for v in range(k)])
            for n, x, k in zip("abc", (three[0], wide, three[1]), (3, n_levels, 2))
        ]
    )
    contexts = {"a": np.arange(3), "b": np.arange(n_levels) % 32}
    if n_levels == 65_535 and parents[1] >= 0:
        parents = [-1, -1, 0]  # more codes than there can be
    coding = Coding(columns, np.array(parents), contexts)
    back = coding.decoded(coding.coded(rows))
    for name, of in vars(rows).items():
        assert np.array_equal(getattr(back, name), of), name


def test_without_columns_with_levels_there_is_one_forest(place):
    words = [w for c in ("a", "b", "flag", "x0", "x1", "x2") for w in ("--set", f"columns.{c}.use=false")]
    done = run(place, "numbers", *words, "--set", "run.cycles=3")
    assert done.returncode == 0, done.stderr


VIEWS = ("--set", "model.family=crosscat", "--set", "sampler.init_rows=60", "--set", "sampler.searches=1")


@pytest.mark.thorough
def test_links_in_views_on_ranks_and_continued(place):
    """Two views from a search, whose links are drawn; the same bits on two ranks, and after a stop."""
    assert run(place, "views", *VIEWS).returncode == 0
    require_the_same_in_pieces(place, "views", ((5, 2), (12, 1)), *VIEWS)
    views = [draw.view_of for draw in iterate_draws(place / "views")]
    for parents, home in zip(links_of(place, "views"), views, strict=True):
        assert all(p == -1 or home[c] == home[p] for c, p in enumerate(parents))


def test_named_links_keep_columns_in_one_view(place):
    named = ("--set", 'model.links=[["b", "x0"], ["flag", "x0"]]', "--set", "run.cycles=6")
    assert run(place, "named-views", *VIEWS, *named).returncode == 0
    assert links_of(place, "named-views") == [[-1, 4, 4, -1, -1, -1, -1]] * 3
    assert all(len(set(draw.view_of[[1, 2, 4]].tolist())) == 1 for draw in iterate_draws(place / "named-views"))
    done = mpibayes(place, "report", "named-views")
    assert done.returncode == 0 and "2 pairs of columns stay linked" in done.stdout, done.stdout + done.stderr
    done = run(place, "wrong", *VIEWS, "--set", 'model.links=[["flag", "b"]]')
    assert done.returncode == 2 and "in views, a parent must have no missing cells" in done.stderr
