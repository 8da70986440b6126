"""Answers beside an outcome against enumeration: of a tiny table everything that can be asked is a ratio of evidences,
each a sum over partitions of the columns' evidence times an integral over the coefficients, by trapezoid rules. A sound
program fails about once in 1,000 seeds: some 40 answers, each within 5 of its own errors."""

import functools
import itertools

import numpy as np
import pytest

from mpibayes.hpc.crosscat import law
from mpibayes.hpc.crosscat.laws.completion import Completion
from mpibayes.hpc.crosscat.laws.outcome_law import OutcomeLaw
from mpibayes.hpc.data.events import Known, everyone, of_levels, of_values
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.hpc.query.asking import Asking
from mpibayes.io.table import table_from_arrays, write_table
from tests.exact.enumerate import Case, blocks, log_eppf, log_marginal_of_subsets
from tests.run.conftest import mpibayes

ERRORS, ROUNDING = 5.0, 0.02  # of a log: predictors that are not known are drawn
C, B, Y = (0, 2, 1, 0, 2), (0, 1, 0, 1, 1), (0, 1, -1, 1, 1)
DIRICHLET = {"c": (0.4, 0.8, 0.5), "b": (0.7, 0.5)}
ALPHA, D, MEAN, SD, WIDE = 0.9, 0.25, 0.3, 3.0, 3.0
QUESTIONS = [
    ({"y": 1}, {}),
    ({"y": 1}, {"b": 0}),
    ({"y": 1}, {"b": 1}),
    ({"y": 1}, {"c": 2}),
    ({"y": 0}, {"c": 0, "b": 1}),
    ({"c": 2}, {"y": 1}),
    ({"c": 0}, {"y": 0, "b": 0}),
    ({"b": 1}, {"y": 1}),
    ({"b": 0}, {"y": 0, "c": 2}),
    ({"c": 1, "b": 0, "y": 0}, {}),
]


@functools.cache
def log_evidence(c=C, b=B, y=Y) -> float:
    """log p of a table whose b is known, and of y what is not -1."""
    n, points = len(c), np.linspace(-8.0, 8.0, 65)
    masks, sizes = blocks(n)
    weight = np.exp(-0.5 * points**2)
    theta, beta, weight = MEAN + SD * points, WIDE * points, weight / weight.sum()
    of_subsets = np.zeros((2**n, len(points)))
    eta = theta[:, None, None] + beta[:, None] * np.array(b)
    each = 1.0 / (1.0 + np.exp(-np.where(np.array(y) == 1, 1.0, -1.0) * eta))
    each[:, :, np.array(y) == -1] = 1.0
    for mask in range(2**n):
        rows = [i for i in range(n) if mask >> i & 1]
        of_subsets[mask] = np.log(weight @ each[:, :, rows].prod(axis=2))
    columns = (("c", "categorical", c, ("r", "s", "t")), ("b", "categorical", b, ("u", "v")))
    case = Case("", columns, {name: {"dirichlet": prior} for name, prior in DIRICHLET.items()}, ALPHA, D)
    log = log_eppf(sizes, ALPHA, D)
    for column in case.columns:
        log = log + log_marginal_of_subsets(column, case.priors[column[0]])[masks].sum(axis=1)
    log = log + np.log(np.exp(of_subsets[masks].sum(axis=1)) @ weight)
    return float(np.logaddexp.reduce(log))


def evidence(cells, y=Y):
    """p(table and a row), its b summed over where it is not known."""
    rows = [cells["b"]] if "b" in cells else [0, 1]
    more = [((*C, cells.get("c", -1)), (*B, b), (*y, cells.get("y", -1))) for b in rows]
    return sum(np.exp(log_evidence(*of)) for of in more)


@functools.cache
def exact():
    return np.log([evidence({**a, **b}) / evidence(b) for a, b in QUESTIONS])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("outcome")
    levels = {"c": ("r", "s", "t"), "b": ("u", "v"), "y": ("no", "yes")}
    columns = [(n, "categorical", np.array(x), levels[n]) for n, x in (("c", C), ("b", B), ("y", Y))]
    write_table(place / "tiny.h5", *table_from_arrays(columns))
    (place / "run.toml").write_text(
        f'[data]\ntable = "tiny.h5"\n[model]\nfamily = "mixture"\nconcentration = {ALPHA}\ndiscount = {D}\n'
        f'[outcome]\ncolumn = "y"\ncovariates = ["b"]\nmean = {MEAN}\nsd = {SD}\ncovariate_sd = {WIDE}\n'
        + "".join(f"[columns.{n}]\nprior = {{dirichlet = {list(p)}}}\n" for n, p in DIRICHLET.items())
        + "[sampler]\nsplit_merge = 0\n[run]\nseed = 5\nshards = 1\ncycles = 660\nburn_in = 60\n[output]\nlabels = 2\n"
    )
    done = mpibayes(place, "run", "run.toml", "-o", "run")
    assert done.returncode == 0, done.stderr
    return place / "run"


def opened(run, draws):
    asking = Asking(run, draws)
    asking.take_outcome(True)
    return asking


@pytest.fixture
def asking(run):
    return opened(run, 10_000)


@pytest.fixture
def sample(run):
    """120 of the 300 draws, which reject every wrong program: errors are 1.5 times as large."""
    return opened(run, 120)


@pytest.fixture
def few(run):
    return opened(run, 20)


def known(asking, cells):
    return everyone({n: of_values(asking.conditions.column(n), np.array([v])) for n, v in cells.items()})


def wrong(asking):
    result = [asking.log_p(known(asking, a), known(asking, b)) for a, b in QUESTIONS]
    log, error = np.array([(log[0], error[0]) for log, error, _ in result]).T
    return np.abs(log - exact()) > ERRORS * error + ROUNDING, np.column_stack([log, exact(), error])


@pytest.mark.thorough
def test_log_probabilities_are_ratios_of_evidences(asking):
    off, table = wrong(asking)
    assert not off.any(), table
    assert (table[:, 2] < 0.12).all()


def test_an_outcome_that_its_cluster_ignores_is_rejected(sample, monkeypatch):
    right = law.Law.given
    monkeypatch.setattr(law.Law, "given", lambda self, known: right(self, known.without(["y"])))
    off, _ = wrong(sample)
    assert off[[bool("y" in b) for _, b in QUESTIONS]].sum() >= 3


def test_predictors_at_their_first_level_are_rejected(sample, monkeypatch):
    right = OutcomeLaw._draws_of
    first = {"b": 0.0}
    monkeypatch.setattr(
        OutcomeLaw, "_draws_of", lambda *a: {name: np.full_like(x, first[name]) for name, x in right(*a).items()}
    )
    assert wrong(sample)[0].any()


def test_distributions_are_log_probabilities(few):
    """Distributions of the outcome and of its predictor, of rows that know others, and of a range of a predictor."""
    for name, given in (("y", {"c": 2}), ("b", {"y": 1, "c": 0}), ("c", {"y": 0}), ("y", {})):
        conditions = known(few, given).repeat(2)
        ((_, of),) = few.distributions(name, conditions, 16)
        assert of.p.sum(axis=1) == pytest.approx(1.0)
        for v in range(of.p.shape[1]):
            log, _, _ = few.log_p(known(few, {name: v}), known(few, given))
            assert np.log(of.p[0, v]) == pytest.approx(log[0], abs=ROUNDING)
    either = everyone({"b": of_levels(few.conditions.column("b"), [0, 1])})
    log = [few.log_p(known(few, {"y": 1}), given)[0][0] for given in (either, known(few, {}))]
    assert log[0] == pytest.approx(log[1], abs=ROUNDING)


def frequencies(asking, drawn):
    """Shares of draws with each event, and their errors."""
    result = np.array([[np.mean(of) for of in drawn(d, draw)] for d, draw in enumerate(asking.asked.labelled(NAMES))])
    return result.mean(axis=0), asking.averages.error((result - result.mean(axis=0)) / len(result))


NAMES, IDS = ["c", "b", "y"], np.arange(20)
JOINT = list(itertools.product((0, 2), (0, 1), (0, 1)))


def off(mean, error, p):
    return np.abs(mean - p) > ERRORS * error + 1e-9


def test_drawn_rows_have_the_posterior_probability(asking):
    def drawn(d, draw):
        cells = draw.simulate(known(asking, {}).repeat(len(IDS)), NAMES, Stream(1, Purpose.SIMULATED, cycle=d), IDS)
        return [(cells["c"] == c) & (cells["b"] == b) & (cells["y"] == y) for c, b, y in JOINT]

    p = [evidence({"c": c, "b": b, "y": y}) / np.exp(log_evidence()) for c, b, y in JOINT]
    mean, error = frequencies(asking, drawn)
    assert not off(mean, error, p).any(), np.column_stack([mean, p, error])


def completed(asking, row):
    """Shares of copies in which the outcome that the table lacks is `yes`, and of rows like another one with each c."""
    many, of = len(IDS), {}
    for name, values in (("c", C), ("b", B), ("y", Y)):
        x, column = np.array([values[2], *[row.get(name, -1)] * many]), asking.conditions.column(name)
        of[name] = of_values(column, np.arange(len(column.levels))), np.where(x < 0, len(column.levels), x)
    gaps, places = {"y": np.array([0]), "c": 1 + np.arange(many)}, np.array([2, *[-1] * many])

    def drawn(d, draw):
        made = Completion(draw, 1, d + 1).cells(Known(1 + many, of), gaps, np.arange(1 + many), places)
        return [made["y"] == 1, *(made["c"] == c for c in range(3))]

    return frequencies(asking, drawn)


ROW = {"b": 1, "y": 0}


def test_a_missing_outcome_of_the_table_has_the_posterior_probability(asking):
    mean, error = completed(asking, ROW)
    yes = log_evidence(C, B, tuple(1 if i == 2 else v for i, v in enumerate(Y))) - log_evidence()
    assert not off(mean[0], error[0], np.exp(yes)), (mean[0], np.exp(yes), error[0])


def of_each_draw(asking, row):
    """Mean over draws of the probability of each c given the row, and the error of the shares of copies about it: a
    copy is of one draw, and a row beside the table changes no draw's weight."""
    each, given = [of_values(asking.conditions.column("c"), np.array([c])) for c in range(3)], known(asking, row)
    p = np.array([
        [draw.given(given).averaged(events, draw.masses(events))[0, 0] for events in each]
        for draw in asking.asked.draws(NAMES)
    ])  # fmt: skip
    return p.mean(axis=0), np.sqrt((p * (1.0 - p)).mean(axis=0) / (len(IDS) * len(p)))


@pytest.mark.thorough
def test_completed_cells_of_other_rows_come_as_often_as_their_draws_say(asking):
    p, error = of_each_draw(asking, ROW)
    mean, _ = completed(asking, ROW)
    assert not off(mean[1:], error, p).any(), np.column_stack([mean[1:], p, error])


def test_copies_whose_clusters_ignore_the_outcome_are_rejected(asking, monkeypatch):
    p, error = of_each_draw(asking, ROW)
    right = OutcomeLaw.score
    monkeypatch.setattr(OutcomeLaw, "score", lambda self, known: right(self, known.without(["y"])))
    mean, _ = completed(asking, ROW)
    assert off(mean[1:], error, p).any()


def test_a_predictor_is_drawn_given_the_outcome(few):
    """Levels come as often as their distribution says, in each draw."""
    given, ids = known(few, {"y": 1, "c": 0}), np.arange(2000)
    events = of_values(few.conditions.column("b"), np.array([1]))
    for d, draw in enumerate(few.asked.draws(NAMES)[:3]):
        p = draw.given(given).averaged(events, draw.masses(events))[0, 0]
        b = draw.simulate(given.repeat(len(ids)), NAMES, Stream(1, Purpose.SIMULATED, cycle=d), ids)["b"]
        assert b.mean() == pytest.approx(p, abs=0.05)
