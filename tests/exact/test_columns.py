"""Columns that change views have the exact posterior: of their partition, and of each view's rows.

As in test_mixture_exact: replicates start at exact draws. Hyperparameters that are learned are drawn anew from all else
before anything looks at them, so they need no start. Every test of a law rejects a right program with probability at
most LEVEL.
"""

import contextlib
from dataclasses import replace
from math import comb
from unittest import mock

import numpy as np
import pytest

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.columns import proposal, sides
from mpibayes.hpc.crosscat.columns import scan as program
from mpibayes.hpc.crosscat.columns.split_merge import Move
from mpibayes.hpc.crosscat.moves.ledger import Tally
from mpibayes.hpc.parallel import shards
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.io.table import table_from_arrays
from tests.exact.compare import judge, seed
from tests.exact.cross import CrossCase, Posterior
from tests.exact.enumerate import NAN, Case, log_eppf

LEVEL = 1e-4
CYCLES = 6
REPLICATES = 120
VIEW_MOVES = 25  # a cycle of MovesAlone
STRIDE = 1000
HALF = {"dirichlet": (0.5, 0.5)}
COLUMNS = tuple(
    (name, "categorical", cells, ("no", "yes")) for name, cells in zip("abc", [(0, 0, 1, 1)] * 2 + [(1, 0, 1, 0)])
)
CC4X3 = CrossCase(Case("cc4x3", COLUMNS, {}, 1.0, 0.0), ((1.0, 0.0),), ((1.0, 0.0),), dict.fromkeys("abc", (HALF,)))
MIXED = CrossCase(
    Case(
        "mixed",
        (
            ("a", "categorical", (0, 1, -1, 1), ("no", "yes")),
            ("x", "real", (-1.2, 0.9, 1.4, NAN), None),
            ("n", "count", (0.0, 4.0, NAN, 3.0), None),
        ),
        {},
        1.0,
        0.0,
    ),
    tuple((a, d) for a in (0.3, 3.0) for d in (0.0, 0.5)),
    tuple((a, d) for a in (0.4, 2.0) for d in (0.0, 0.6)),
    {
        "a": tuple({"dirichlet": (m, m)} for m in (0.2, 2.0)),
        "x": tuple({"mean": 0.1, "kappa": 0.3, "nu": 2.0, "variance": v} for v in (0.2, 1.5)),
        "n": ({"shape": 1.3, "rate": 0.4},),
    },
)
CASES = {"cc4x3": (CC4X3, {"view_concentration": 1.0, "view_discount": 0.0, "concentration": 1.0, "discount": 0.0})}
CASES["mixed"] = (
    MIXED,
    {
        "view_concentration": [0.3, 3.0],
        "view_discount": [0.0, 0.5],
        "concentration": [0.4, 2.0],
        "discount": [0.0, 0.6],
    },
)
SHARP = {"dirichlet": (0.05, 0.05, 0.05)}
CASES["sharp"] = (  # two columns that each want a view: what becomes of a view without columns matters most
    CrossCase(
        Case(
            "sharp",
            (
                ("a", "categorical", (0, 0, 1, 1, 2), ("r", "s", "t")),
                ("b", "categorical", (0, 1, 0, 1, 2), ("r", "s", "t")),
            ),
            {},
            1.0,
            0.0,
        ),
        ((1.0, 0.0),),
        ((1.0, 0.0),),
        dict.fromkeys("ab", (SHARP,)),
    ),
    CASES["cc4x3"][1],
)
FAIR, REAL = {"dirichlet": (0.3, 0.3)}, {"mean": 0.1, "kappa": 0.3, "nu": 2.0, "variance": 0.3}
CASES["four"] = (  # four columns on three rows, two of them real: which sides columns take matters
    CrossCase(
        Case(
            "four",
            (
                ("a", "categorical", (0, 1, 1), ("no", "yes")),
                ("b", "categorical", (0, 1, 1), ("no", "yes")),
                ("x", "real", (-1.2, 0.9, 1.4), None),
                ("y", "real", (0.3, -2.0, NAN), None),
            ),
            {},
            1.0,
            0.0,
        ),
        ((0.7, 0.4),),
        ((0.6, 0.5),),
        {**dict.fromkeys("ab", (FAIR,)), **dict.fromkeys("xy", (REAL,))},
    ),
    {"view_concentration": 0.7, "view_discount": 0.4, "concentration": 0.6, "discount": 0.5},
)
PRIORS = {
    "four": {**dict.fromkeys("ab", FAIR), **dict.fromkeys("xy", REAL)},
    "sharp": dict.fromkeys("ab", SHARP),
    "cc4x3": dict.fromkeys("abc", HALF),
    "mixed": {
        "a": {"symmetric": [0.2, 2.0]},
        "x": {"mean": 0.1, "kappa": 0.3, "nu": 2.0, "variance": [0.2, 1.5]},
        "n": {"shape": 1.3, "rate": 0.4},
    },
}
POSTERIORS = {}


def posterior(name):
    if name not in POSTERIORS:
        POSTERIORS[name] = Posterior(CASES[name][0])
    return POSTERIORS[name]


class ScansAlone(Mixture):
    """What ends a cycle is all of it: rows stay where they are."""

    def cycle(self):
        self.cycles += 1
        self._move_columns()
        return self._info(0.0, Tally())


class MovesAlone(Mixture):
    """Splits and merges of views, and nothing else; the law of the views is as fixed as that of CC4X3."""

    def cycle(self):
        self.cycles += 1
        for number in range(VIEW_MOVES):
            found = Move(self, number).run()
            if found is not None:
                self._regroup(*found)
        return self._info(0.0, Tally())


def sampler(comm, name, n_shards, default_seed, kind=Mixture, **settings):
    cross, process = CASES[name]
    columns, rows = table_from_arrays([(n, k, np.array(v), levels) for n, k, v, levels in cross.case.columns])
    settings = {"split_merge": 0, "priors": PRIORS[name], "shards": n_shards, **process, **settings}
    settings = Settings(seed=seed(default_seed), **settings)
    return kind(comm, columns, lambda a, b: rows.take(slice(a, b)), len(rows), settings)


def place(mixture, names, views, labels, cycles):
    """Put the chain at a state: the view of each column, and the labels (C, N) each goes by, on every rank."""
    members = [[n for n, v in zip(names, views) if v == view] for view in range(max(views) + 1)]
    mixture.arrange(members)
    cut = shards.bounds(mixture.n_rows, mixture.n_shards)
    for view, own in zip(mixture.views, members):
        z = np.unique(labels[names.index(own[0])], return_inverse=True)[1]
        view.resume(lambda i, z=z: z[cut[i] : cut[i + 1]], int(z.max()) + 1, view.hyper)
    mixture.resume(cycles)


def state(mixture, names):
    """(view of each column, labels of each) on root; None elsewhere. Collective."""
    labels = [view.labels() for view in mixture.views]
    if mixture.comm.rank:
        return None
    where = {name: v for v, view in enumerate(mixture.views) for name in view.columns}
    return [where[n] for n in names], [labels[where[n]].tolist() for n in names]


def verdict(comm, name, n_shards, n_replicates, default_seed, cycles=CYCLES, **settings):
    """The program against the enumeration; None off root."""
    exact, names = posterior(name), [c[0] for c in CASES[name][0].case.columns]
    mixture = sampler(comm, name, n_shards, default_seed, **settings)
    starts = np.random.default_rng(seed(default_seed) + 1).choice(len(exact.p), n_replicates, p=exact.p / exact.p.sum())
    found = []
    for r, s in enumerate(starts):
        place(mixture, names, exact.views[s].tolist(), exact.partitions[exact.rows[s]], r * STRIDE)
        found.append([mixture.cycle() and state(mixture, names) for _ in range(cycles)])
    if comm.rank:
        return None
    index = np.array([[exact.number(*each) for each in run] for run in found])
    events, table = exact.summaries()
    return judge(index[:, -1], exact.p, events, table.T[index].mean(axis=1), table @ exact.p, LEVEL)


def test_enumeration_has_the_published_figures():
    """docs/math.md 6.1."""
    exact = posterior("cc4x3")
    assert len(exact.p) == 4065
    assert exact.log_evidence == pytest.approx(-9.609204, abs=1e-6)
    names, table = exact.summaries()
    found = dict(zip(names, table @ exact.p))
    figures = {
        "columns 000": 0.353104,
        "columns 001": 0.229448,
        "columns 010": 0.134708,
        "columns 011": 0.134708,
        "columns 012": 0.148031,
        "rows 0, 1 together for column 0": 0.507254,
        "rows 0, 1 together for column 2": 0.387546,
        "rows 0, 2 together for column 0": 0.245436,
        "rows 0, 2 together for column 2": 0.368302,
    }
    assert {name: found[name] for name in figures} == pytest.approx(figures, abs=2e-6)


@pytest.mark.quick("sharp-2")
@pytest.mark.parametrize("n_shards", [1, 2, 3])
@pytest.mark.parametrize("name", ["cc4x3", "mixed", "sharp"])
def test_law_of_columns_and_rows(name, n_shards):
    found = verdict(serial(), name, n_shards, REPLICATES, 121)
    assert found.passed, f"{found} (seed {seed(121)})"


# ---- wrong programs --------------------------------------------------------------------------------------------------


def not_retired():
    """A view that loses its last column is gone, and does not take the place of an auxiliary one."""

    def _retire(self, view):
        self.stream.integers(program.AUXILIARY)

    return mock.patch.object(program.Seating, "_retire", _retire)


def not_shared():
    """Every auxiliary view has all the weight of a new one."""
    right = program.Seating._log_new
    return mock.patch.object(program.Seating, "_log_new", lambda *a: right(*a) + np.log(program.AUXILIARY))


def auxiliary_of_one_cluster():
    """Auxiliary views put all rows together."""
    right = program.auxiliary

    def wrong(*args):
        one = right(*args)
        return program.Rowwise([np.zeros_like(z) for z in one.z], 1, one.process)

    return mock.patch.object(program, "auxiliary", wrong)


@pytest.mark.quick("not_retired")
@pytest.mark.parametrize("wrong", [not_retired, not_shared, auxiliary_of_one_cluster])
def test_wrong_programs_are_rejected(wrong):
    with wrong():
        found = verdict(serial(), "sharp", 2, REPLICATES, 121)
    assert not found.passed, str(found)


# ---- views that split and merge --------------------------------------------------------------------------------------


def cores(rows):
    """Proposals whose core has so many rows on average; the others come in batches, or late."""
    return mock.patch.object(proposal, "CORE", rows)


def verdict_on_moves(n_replicates, wrong=contextlib.nullcontext, core=2, name="sharp", default_seed=124):
    with cores(core), mock.patch.object(sides, "ROWS", core), wrong():
        return verdict(serial(), name, 2, n_replicates, default_seed, 2, kind=MovesAlone)


@pytest.mark.thorough
@pytest.mark.parametrize("core", [2, 4, 100])
def test_law_of_moves_of_views(core):
    found = verdict_on_moves(40 if core == 2 else REPLICATES, core=core)
    assert found.passed, f"{found} (seed {seed(124)})"


def without_q():
    """Partitions are accepted as if all were proposed as often."""
    right = proposal.Proposal._run
    return mock.patch.object(proposal.Proposal, "_run", lambda *a: replace(right(*a), log_q=0.0))


@pytest.mark.thorough
@pytest.mark.parametrize("core", [2, 100])
def test_moves_of_views_without_q_are_rejected(core):
    found = verdict_on_moves(40, without_q, core)
    assert not found.passed, str(found)


def without_sides():
    """Sides are accepted as if all were proposed as often."""
    return mock.patch.object(sides, "log_q", lambda *_: 0.0)


@pytest.mark.thorough
@pytest.mark.parametrize("wrong", [contextlib.nullcontext, without_sides])
def test_moves_of_views_of_more_columns(wrong):
    found = verdict_on_moves(80, wrong, name="four")
    assert found.passed == (wrong is contextlib.nullcontext), f"{found} (seed {seed(124)})"


@pytest.mark.parametrize("n_a, n_b, others", [(1, 1, 0), (2, 1, 0), (1, 3, 2), (4, 2, 1)])
def test_how_often_a_split_and_its_merge_are_chosen(n_a, n_b, others):
    """The view and two of its units in order; or two views, which of them is A, and a unit of each."""
    whole, cut = np.array([n_a + n_b, *[1] * others]), np.array([n_a, *[1] * others, n_b])
    n, n_views = n_a + n_b, 1 + others
    split = 1 / n_views / (n * (n - 1))
    merge = 1 / comb(n_views + 1, 2) * n_a**2 / (n_a**2 + n_b**2) / (n_a * n_b)
    chain = mock.Mock(process=(0.7, 0.3))
    found = Move._log_choices(mock.Mock(chain=chain), whole, cut, n_a, n_b)
    assert found == pytest.approx(log_eppf(cut, 0.7, 0.3) - log_eppf(whole, 0.7, 0.3) + np.log(merge / split))


# ---- ranks -----------------------------------------------------------------------------------------------------------


def bits(comm, cycles):
    """Views and labels after each cycle from one view of one cluster, on root."""
    mixture = sampler(comm, "mixed", 3, 122, split_merge=1)  # and two moves of views a cycle
    mixture.start("one")
    return [mixture.cycle() and state(mixture, ["a", "x", "n"]) for _ in range(cycles)]


@pytest.mark.mpi
def test_same_bits_on_ranks():
    found = bits(world(), 12)
    assert world().rank or found == bits(serial(), 12)
    assert world().rank or len({tuple(views) for views, _ in found}) > 1


@pytest.mark.quick(ranks=3)
@pytest.mark.mpi(min_size=2)
def test_law_of_columns_on_ranks():
    found = verdict(world(), "sharp", 3, 25, 123)
    assert found is None or found.passed, f"{found} (seed {seed(123)})"
