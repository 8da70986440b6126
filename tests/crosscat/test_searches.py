"""A chain goes on with the search for views that predicts unseen rows best."""

from dataclasses import replace
from functools import partial
from unittest import mock

import numpy as np
import pytest

from mpibayes.hpc.config.load import load
from mpibayes.hpc.crosscat.chain import Settings
from mpibayes.hpc.crosscat.laws.view_density import ViewDensity
from mpibayes.hpc.crosscat.start import evidence, searches, strategy, views
from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.parallel.tasks import Stopped
from mpibayes.io.finished import FOLDER, Finished
from mpibayes.io.table import table_from_arrays
from tests.crosscat.report.runs import MOVES_EVERY
from tests.crosscat.test_search import table

SETTINGS = Settings(seed=3, view_concentration="learn", split_merge=MOVES_EVERY)


class Data:
    """The training rows as `data.rows.Data` gives them, and which of them were asked for."""

    def __init__(self, columns, rows):
        self.columns, self.rows, self.n_rows, self.asked = columns, rows, len(rows), []

    def rows_at(self, places):
        assert np.all(np.diff(places) > 0), "places ascend, each once"
        self.asked.append(places)
        return self.rows.take(places)


@pytest.fixture
def data():
    return Data(*table(1))


def stub(monkeypatch, scores):
    """Searches that take no time and score as given; returns the rows that they have seen."""
    seen, numbers = [], iter(scores)

    def searched(columns, rows, settings, chain, n_views, alone, probe):
        seen.append(rows)
        linking = mock.Mock(codings=[])
        return type("Search", (), {"views": [], "linking": linking, "places": None, "score": next(numbers)})()

    class Scored:
        def __init__(self, parts, places):
            self.score = scores[len(seen) - 1]

        def log_density(self, rows):
            return np.full(len(rows), self.score)

    monkeypatch.setattr(searches, "searched", searched)
    monkeypatch.setattr(searches, "found_by", lambda search: search.score)
    monkeypatch.setattr(searches, "Density", Scored)
    return seen


def test_the_best_by_judges_is_chosen(monkeypatch, data):
    seen = stub(monkeypatch, [-3.0, -1.0, -2.0])
    choice = searches.best_search(serial(), data, SETTINGS, 0, 400, 4, 3)
    assert choice.best == -1.0 and choice.scores.tolist() == [-3.0, -1.0, -2.0]
    assert choice.n_judges == data.n_rows // 10 and [len(rows) for rows in seen] == [400] * 3


def test_judges_are_the_same_for_all_searches_and_seen_by_none(monkeypatch, data):
    stub(monkeypatch, [-1.0] * 4)
    searches.best_search(serial(), data, SETTINGS, 0, 400, 4, 4)
    judges = set.intersection(*(set(places.tolist()) for places in data.asked))
    assert len(judges) >= data.n_rows // 10  # samples of 400 of 1,350 rows may share a few more
    part = [set(places.tolist()) - judges for places in data.asked]
    assert all(len(a & b) < 0.5 * len(a) for i, a in enumerate(part) for b in part[:i]), "samples differ"


def test_chains_have_judges_and_samples_of_their_own(monkeypatch, data):
    stub(monkeypatch, [-1.0] * 4)
    for chain in (0, 1):
        searches.best_search(serial(), data, SETTINGS, chain, 400, 4, 2)
    first, other = (set(data.asked[i].tolist()) & set(data.asked[i + 1].tolist()) for i in (0, 2))
    assert len(first & other) < 0.6 * len(first)


@pytest.mark.parametrize("n_rows, n_searches", [(10_000, 4), (10_000, 1), (20, 4), (4, 4), (1, 4)])
def test_small_tables(n_rows, n_searches):
    """A row is left to search on, and a judge where there are ten rows."""
    n = searches.n_judges(n_rows, n_searches)
    assert 0 <= n < n_rows and (n > 0) == (n_searches > 1 and n_rows > 5)


@pytest.mark.thorough
def test_scores_are_those_of_the_searches_end(data):
    """Searches run for real, each on 300 rows: the chosen one's own score is the greatest."""
    choice = searches.best_search(serial(), data, SETTINGS, 0, 300, 6, 2)
    judges = np.sort(
        searches.generator(3, searches.Purpose.JUDGES).choice(
            data.n_rows, choice.n_judges, replace=False, shuffle=False
        )
    )
    chain = views.Mixture(serial(), data.columns, lambda a, b: data.rows.take(slice(a, b)), data.n_rows, SETTINGS)
    chain.arrange([result.columns for result in choice.best.views])
    parts = [
        ViewDensity(view.components, result.hyper, result.statistics)
        for view, result in zip(chain.views, choice.best.views)
    ]
    score = searches.Density(parts, chain.places).log_density(data.rows.take(judges)).mean()
    assert np.isclose(score, choice.scores.max(), rtol=1e-12)
    assert choice.scores.min() < choice.scores.max()


def ended(monkeypatch, data, n_views, scores=(-3.0, -1.0, -2.0)):
    """Run a search and two more if it finds several views, which end with these scores; return the numbers of those
    that ran and of the best."""
    numbers = []

    def search(alone, of, settings, chain, number, others, judges, *rest):
        numbers.append(number)
        assert len(others) == data.n_rows and not len(judges)
        return views.Pilot([None] * n_views, (number, 0.0)), np.array([scores[number]])

    monkeypatch.setattr(searches, "_search", search)
    monkeypatch.setattr(searches, "once", lambda finished, part, columns, run: run())
    monkeypatch.setattr("mpibayes.hpc.parallel.tasks.rank_cores", lambda alone: 1)
    choice = searches.best_search(serial(), data, SETTINGS, 0, 400, 4, 1, further=2)
    assert not len(choice.scores) and not choice.n_judges
    return numbers, choice.best.process[0]


def test_where_a_single_search_finds_several_views_the_best_of_more_by_evidence_wins(monkeypatch, data):
    assert ended(monkeypatch, data, 1) == ([0], 0)
    assert ended(monkeypatch, data, 2) == ([0, 1, 2], 1)
    for wrong in (min, lambda result, key: result[0], lambda result, key: result[-1]):  # the worst, first and last one
        monkeypatch.setattr(searches, "max", wrong, raising=False)
        ran, best = ended(monkeypatch, data, 2)
        assert ran == [0, 1, 2] and best != 1


def true_and_wrong(weights, n_columns):
    """Return the log evidence for true views and for wrong ones. Views have n_columns each; a cell follows one of two
    clusters, or of three if the view is alone, with the view's weight."""
    g, cells, n = np.random.default_rng(1), [], 400
    for v, weight in enumerate(weights):
        z = 2 * g.integers(2, size=n) if len(weights) > 1 else g.integers(3, size=n)
        for i in range(n_columns):
            own = g.integers(4, size=n)
            cells.append((f"{v}{i}", "categorical", np.where(g.random(n) < weight, (z + i) % 4, own), list("abcd")))
    columns, rows = table_from_arrays(cells)
    names = [c.name for c in columns]
    half = [names[: len(names) // 2], names[len(names) // 2 :]]
    result = []
    for found in (half, [names]) if len(weights) > 1 else ([names], half):
        mixture = searches.chain_on(serial(), columns, rows, SETTINGS, 0, found)
        mixture.start("one")
        searches.advance(mixture, 30)
        result.append(searches._evidence(mixture, 1))
    return result


log_weight = evidence.log_weight


def log_joint(law, subject, drawn):
    return log_weight(law, subject, drawn) + drawn.log_q


def given_clusters(law, subject, drawn):
    return subject.log_likelihood(drawn.z, drawn.n_labels)


@pytest.mark.parametrize("weights, n_columns, wrong", [((0.45, 0.45), 4, log_joint), ((0.5,), 6, given_clusters)])
def test_evidence_finds_weak_views_where_other_scores_do_not(monkeypatch, weights, n_columns, wrong):
    """The log joint counts the labels against two weak views; given clusters, cells gain from two partitions."""
    true, other = true_and_wrong(weights, n_columns)
    assert true > other + 10.0
    monkeypatch.setattr(evidence, "log_weight", wrong)
    true, other = true_and_wrong(weights, n_columns)
    assert true < other - 10.0


def test_true_views_have_the_greatest_evidence():
    columns, rows = table(1)
    a, b = ([c.name for c in columns if c.name[0] == of] for of in "01")
    noise = [c.name for c in columns if c.name.startswith("noise")]
    few, evidence = rows.take(slice(0, 400)), []
    for names in ([a, b, noise], [[*a, *b], noise], [[*a[1:], b[0]], [a[0], *b[1:]], noise]):
        mixture = searches.chain_on(serial(), columns, few, SETTINGS, 0, names)
        mixture.start("one")
        searches.advance(mixture, 30)
        evidence.append(searches._evidence(mixture, 1))
    assert evidence[0] > max(evidence[1:]) + 10.0


@pytest.mark.quick("1-2", ranks=2)
@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("number, further", [(3, 0), (1, 2)])
def test_the_same_on_any_number_of_ranks(number, further):
    from mpibayes.hpc.parallel.comm import world

    data = Data(*table(2))
    run = partial(searches.best_search, data=data, settings=SETTINGS, chain=1, n_rows=200, n_views=4)
    run = partial(run, n_searches=number, further=further)

    def result_of(choice):
        views = [(view.columns, view.statistics.size.tolist()) for view in choice.best.views]
        return choice.scores.tolist(), views

    ranks = result_of(run(world()))
    alone = result_of(run(serial())) if world().rank == 0 else None
    assert world().share(alone) == ranks


@pytest.mark.thorough
def test_finished_searches_are_not_repeated_and_choose_alike(tmp_path, monkeypatch, data):
    """Stopped in the second of two searches; the first one's result is the same from its file, to the last bit."""
    run = partial(searches.best_search, serial(), data, SETTINGS, 0, 120, 4, 2)
    straight, search, numbers = run(), searches._search, []
    finished = Finished(tmp_path / FOLDER, "run-1")

    def stopped(alone, of, settings, chain, number, *rest):
        numbers.append(number)
        if numbers == [0, 1]:
            raise Stopped
        return search(alone, of, settings, chain, number, *rest)

    monkeypatch.setattr(searches, "_search", stopped)
    with pytest.raises(Stopped):
        run(finished=finished)
    again = run(finished=finished)
    assert numbers == [0, 1, 1] and again.scores.tolist() == straight.scores.tolist()
    assert again.best.process == straight.best.process
    for a, b in zip(again.best.views, straight.best.views, strict=True):
        assert a.columns == b.columns
        for mine, theirs in ((a.hyper, b.hyper), (a.statistics, b.statistics)):
            for name, array in vars(theirs).items():
                assert np.array_equal(getattr(mine, name), array) and np.shape(getattr(mine, name)) == np.shape(array)


@pytest.mark.parametrize(
    "n_rows, given, n, more",
    [(500, "auto", 3, 0), (499, "auto", 1, 2), (499, "4", 4, 0), (500, "1", 1, 0), (499, "1", 1, 0)],
)
def test_few_rows_choose_by_chance(tmp_path, n_rows, given, n, more):
    """One search of few rows, and more if it finds several views; the number that is asked for is the number."""
    words = '"auto"' if given == "auto" else given
    text = f'[data]\ntable = "t.h5"\n[model]\nfamily = "crosscat"\n[sampler]\nsearches = {words}\n'
    (tmp_path / "run.toml").write_text(text)
    config = load(tmp_path / "run.toml")
    assert strategy.searches(config, n_rows) == n and strategy.further_searches(config, n_rows) == more


def test_in_words():
    assert "no other search within 0.05" in searches.in_words([-1.0, -1.2], 30)
    assert "2 other searches within 0.05" in searches.in_words([-1.0, -1.04, -1.2, -1.01], 30)


def test_ahead_in_words():
    assert searches.ahead_in_words(2520, 3000, 4).endswith("4, on 2,041 rows each")
    assert searches.ahead_in_words(2520, 3000, 1).endswith("1, on 2,268 rows")
    assert searches.ahead_in_words(9000, 3000, 4).endswith("4, on 3,000 rows each")
    assert searches.ahead_in_words(400, 400, 1, further=2).endswith("1, on 400 rows, and 2 more if it finds several")


def test_of_chains_in_words():
    words = searches.of_chains_in_words([[-1.0, -1.2, -1.04], [-1.0, -2.0, -3.0]], 30)
    assert words.startswith("the best of 3 searches of each chain, as scored on 30 rows")
    assert "1 and 0 other searches within 0.05 nats a row" in words
    assert "no other search within" in searches.of_chains_in_words([[-1.0, -2.0]] * 3, 30)


@pytest.mark.parametrize("record", [{}, {"judges": 3}, {"searches": "-1.0"}, {"searches": [None]}, {"searches": {}}])
def test_a_start_without_scores(record):
    assert searches.scores_in(record) == []


# --- views that a chain has already ----------------------------------------------------------------------------------


def present_of(data, columns, n_old):
    """Views of these columns, with the clusters of a short chain; rows from n_old on are idle."""
    rows = data.rows
    chain = views.Mixture(
        serial(), data.columns, lambda a, b: rows.take(slice(a, b)), len(rows),
        replace(SETTINGS, column_moves=0, view_moves=0), views=columns,
    )  # fmt: skip
    chain.start("one")
    for _ in range(40):
        chain.cycle()
    labels = [np.where(np.arange(len(rows)) < n_old, view.labels().astype(int), searches.IDLE) for view in chain.views]
    return searches.Present(columns, labels)


@pytest.mark.thorough
def test_the_present_views_are_judged_like_a_search(data):
    """All columns in one view, or dealt in turn, are worse by far; those of the search hardly, with few judges."""
    run = partial(searches.best_search, serial(), data, SETTINGS, 0, 300, 6, 2)
    good = [list(of.columns) for of in run().best.views]
    assert len(good) > 1
    names = [c.name for c in data.columns]
    beside_good = run(present_of(data, good, data.n_rows // 2))
    assert beside_good.gain < 0.1
    for bad in ([names], [names[::2], names[1::2]]):
        choice = run(present_of(data, bad, data.n_rows // 2))
        assert choice.gain > 0.3 and choice.scores.tolist() == beside_good.scores.tolist()
    assert run(present_of(data, good, 0)).gain is None  # no row has a cluster


def test_the_present_views_in_words():
    words = searches.in_words([-1.0, -1.2], 30, -0.25)
    assert words.startswith("continues unchanged") and words.endswith("than the best new search, by 0.25 nats a row")
    assert "than the existing chain, by 0.50 nats a row" in searches.in_words([-1.0, -1.2], 30, 0.5)
    records = [{}, {"gain": "1"}, {"searches": [-1.0]}, {"searches": [-1.0], "gain": 0.0}, {"gain": 0.5}]
    assert [searches.left_present(record) for record in records] == [None] * 3 + [False, True]


def test_clusters_of_a_mixture_stay_unless_a_search_is_better(monkeypatch, data):
    """Rows in one cluster give way, if they are judged as they are; clusters of 40 cycles stay beside those of one."""
    names = [c.name for c in data.columns]
    present = searches.Present([names], [np.where(np.arange(data.n_rows) < 1350, 0, searches.IDLE)])
    run = partial(searches.best_search, serial(), data, Settings(seed=3), 0, 300, 1, 2)
    with monkeypatch.context() as patch:
        patch.setattr(searches, "CYCLES_JUDGED", 1)
        choice = run(present)
    assert choice.gain > 0.5 and [of.columns for of in choice.best.views] == [tuple(names)]
    monkeypatch.setattr(searches, "CYCLES_OF_CLUSTERS", 1)
    assert run(present_of(data, [names], 1350)).gain < -0.5


def test_new_rows_judge_and_nobody_has_seen_them(monkeypatch, data):
    """Half of them; the chain as it was has been fitted to all others."""
    n_old, n_new = data.n_rows - 200, 200
    monkeypatch.setattr(searches, "CYCLES_OF_CLUSTERS", 1), monkeypatch.setattr(searches, "CYCLES_JUDGED", 1)
    labels = np.where(np.arange(data.n_rows) < n_old, 0, searches.IDLE)
    present = searches.Present([[c.name for c in data.columns]], [labels])
    seen, log_density = [], searches._log_density

    def judged(chain, unseen):
        seen.append((chain.n_rows, len(unseen)))
        return log_density(chain, unseen)

    monkeypatch.setattr(searches, "_log_density", judged)
    choice = searches.best_search(serial(), data, Settings(seed=3), 0, 300, 1, 2, present)
    assert choice.n_judges == n_new // 2 and seen == [(300, n_new // 2)] * 3
    together = [set(places.tolist()) for places in data.asked if len(places) > 300]
    assert sum(place >= n_old for place in set.intersection(*together)) >= n_new // 2


@pytest.mark.parametrize("n_new, n", [(0, 0), (98, 0), (100, 50), (1000, 500), (10**6, 3000)])
def test_few_new_rows_judge_nothing(n_new, n):
    assert strategy.n_new_judges(n_new) == n


@pytest.mark.quick(ranks=2)
@pytest.mark.mpi(min_size=2)
def test_the_chain_as_it_was_is_judged_alike_on_ranks():
    from mpibayes.hpc.parallel.comm import world

    data = Data(*table(2))
    labels = np.where(np.arange(data.n_rows) < 200, 0, searches.IDLE)
    present = searches.Present([[c.name for c in data.columns]], [labels])
    run = partial(
        searches.best_search, data=data, settings=Settings(seed=3), chain=1, n_rows=150, n_views=1, n_searches=2,
        present=present,
    )  # fmt: skip
    alone, ranks = run(serial()), run(world())
    assert (alone.scores.tolist(), alone.gain) == (ranks.scores.tolist(), ranks.gain)
