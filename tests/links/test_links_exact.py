"""Partitions of the rows and forests of links have their exact joint posterior, on any number of shards and ranks.

Replicates start at exact draws and run CYCLES cycles (tests/exact/compare.py). Every test of a law rejects a right
program with probability at most LEVEL; there are twenty. Each has more replicates than any of the wrong programs
takes to be rejected, here and in the other files of exact laws beside this one.
"""

from functools import cache
from unittest import mock

import numpy as np
import pytest

from mpibayes.hpc.components.product import Components, Prior
from mpibayes.hpc.links import scores
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.io.table import table_from_arrays
from tests.exact.compare import LOOKS, seed
from tests.links import program
from tests.links.enumerate import LinkedPosterior
from tests.links.states import judged_in_parts, require_the_same_on_ranks

LEVEL = 1e-4
CYCLES = 6
LAWS = {
    "rows4": ([[0, 0, 1], [0, 0, 0], [1, 1, 1], [1, 1, 0]], [2, 2, 2], (0.5,), 1.0, 0.0),
    "rows5": ([[0, 0, 1], [1, 1, 0], [2, 1, 0], [0, 0, 0], [2, 1, 1]], [3, 2, 2], (0.5,), 1.0, 0.25),
    # the same four rows, of which two cells are missing
    "gaps4": ([[0, 0, 1], [0, -1, 0], [1, 1, -1], [1, 1, 0]], [2, 2, 2], (0.5,), 1.0, 0.0),
    # two columns that go together, and a third of the parents' cells are missing
    "gaps6": ([[0, 0], [2, 2], [1, 1], [-1, 1], [-1, 0], [-1, 2]], [3, 3], (0.1,), 0.1, 0.0),
    # with pseudo-counts that are learned, and a row that lacks two cells
    "gaps5": (
        [[0, 0, 1], [1, 1, -1], [1, 1, 0], [0, 1, -1], [-1, 0, -1]], [2, 2, 2], (0.2, 1.0, 3.0), 0.7, 0.25,
    ),
}  # fmt: skip


@cache
def law_of(name: str) -> LinkedPosterior:
    return LinkedPosterior(*LAWS[name])


def judged(comm, name: str, n_shards: int, n_replicates: int, cycles: int = CYCLES, looks: int = 1, **settings):
    law = law_of(name)
    mixture = program.sampler(comm, law, n_shards, seed(61), **settings)
    replicates = program.replicates(mixture, law, n_replicates, cycles, seed(62))
    return judged_in_parts(replicates, lambda records: program.verdict(records, law, LEVEL), n_replicates, looks)


@pytest.mark.parametrize(("name", "expected"), [("rows4", -9.394785), ("rows5", -13.416136), ("gaps4", -7.558766)])
def test_the_enumeration_has_the_values_of_the_documents(name, expected):
    assert law_of(name).log_evidence == pytest.approx(expected, abs=1e-6)


@pytest.mark.quick("1-gaps6")
@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("n_shards", [1, 3])
def test_joint_law_of_rows_and_links(name, n_shards):
    result = judged(serial(), name, n_shards, 80)
    assert result.passed, f"{result} (seed {seed(61)})"


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["gaps4", "gaps5", "gaps6"])
@pytest.mark.parametrize("columns", [(), (1,)])
def test_joint_law_with_cells_drawn_given_parameters(name, columns):
    """As they are where many are missing: those of all columns, or of all but one."""
    with program.gaps_in_turn(columns):
        result = judged(serial(), name, 3, 80)
    assert result.passed, f"{result} (seed {seed(61)})"


@pytest.mark.thorough
def test_joint_law_with_splits_and_merges():
    result = judged(serial(), "rows5", 2, 80, split_merge=1)
    assert result.passed, f"{result} (seed {seed(61)})"


@pytest.mark.quick("links_of_what_is_there-gaps6")
@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (program.without_prior, "rows4"),
        (program.codes_of_the_parent_before, "rows4"),
        (program.evidence_of_all_clusters, "rows4"),
        (program.gaps_by_the_parent_alone, "gaps6"),
        (program.gaps_in_turn_by_the_parent_alone, "gaps6"),
        (program.links_of_what_is_there, "gaps6"),
    ],
)
def test_wrong_programs_are_rejected(wrong, name):
    with wrong():
        result = judged(serial(), name, 1, 150, 6 if name == "rows4" else 12, LOOKS)
    assert not result.passed, str(result)


@pytest.mark.thorough
def test_levels_that_no_row_has_take_their_share():
    """Clusters of three shards have drawn probabilities, of unseen levels in total alone."""
    result = judged(serial(), "rows5", 3, 150, 20)
    assert result.passed, f"{result} (seed {seed(61)})"
    with program.levels_of_counted_rows_alone():
        result = judged(serial(), "rows5", 3, 150, 20, LOOKS)
    assert not result.passed, str(result)


def test_sweeps_read_no_level_that_no_row_has():
    def states():
        mixture, seen, some = program.sampler(serial(), law_of("rows5"), 3, seed(65)), [], 0
        mixture.start("one")
        for _ in range(30):
            met = mixture.view.components.categorical.met(mixture.view.counts.levels)
            some += met is not None and not met.all()
            mixture.cycle()
            seen.append(np.concatenate(mixture.view.z))
        return seen, some

    left_out, some = states()
    assert some > 5
    with mock.patch.object(Prior, "__setattr__", lambda *_: None):  # `met` stays None
        whole, _ = states()
    assert all(np.array_equal(a, b) for a, b in zip(left_out, whole))


def test_scores_do_not_depend_on_how_many_columns_are_counted_at_once():
    mixture = program.sampler(serial(), law_of("rows5"), 3, seed(65))
    mixture.start("one")
    for _ in range(3):
        mixture.cycle()
    view, kind = mixture.view, Components(mixture.columns, mixture.priors).categorical
    multiplier = np.array([0.5, 0.7, 1.1])
    rows = [mixture.linking.coding.decoded(shard.rows) for shard in view.shards]
    of = serial(), mixture.linking.coding, kind, multiplier, list(zip(rows, view.z)), view.n_labels
    whole = scores.link_scores(*of)
    with mock.patch.object(scores, "AT_ONCE", 1):
        parts = scores.link_scores(*of)
    for a, b in zip(whole, parts, strict=True):
        assert np.array_equal(a, b)


def test_parents_that_share_a_pass_have_the_scores_of_passes_of_their_own():
    rng, n = np.random.default_rng(66), 900
    n_levels = 2, 3, 40, 2, 4, 2, 35
    cells = [(f"c{c}", "categorical", rng.integers(0, v, n), tuple(map(str, range(v)))) for c, v in enumerate(n_levels)]
    columns, rows = table_from_arrays(cells)
    shards = [rows.take(slice(0, 400)), rows.take(slice(400, n))]
    labels = [rng.integers(-1, 3, len(part)).astype(np.int32) for part in shards]
    contexts = {c.name: np.minimum(np.arange(len(c.levels)), 31) for c in columns}
    kind = Components(columns, {}).categorical
    evidence = scores.Evidence(serial(), contexts, kind, np.full(len(columns), 0.7), shards)
    assert [parents for parents, _ in evidence._shared(16)] == [[0, 3, 5], [1, 4], [2], [6]]
    together, each = (np.full((len(columns), len(columns)), -np.inf) for _ in range(2))
    evidence.under_all(labels, 3, together)
    for j in range(len(columns)):
        children = evidence.children(j)
        each[children, j] = evidence.under(j, labels, 3, children)
    np.testing.assert_allclose(together, each, rtol=1e-12)


def history(comm, name: str, n_shards: int):
    mixture = program.sampler(comm, law_of(name), n_shards, seed(63), split_merge=1)
    return program.replicates(mixture, law_of(name), 2, 6, seed(64))


def history_of_parameters(comm, in_turn, n_shards: int):
    """Missing cells are drawn given parameters, but for those of the columns `in_turn`."""
    with program.gaps_in_turn(in_turn):
        return list(history(comm, "gaps5", n_shards))


@pytest.mark.quick(ranks=2)
@pytest.mark.mpi(min_size=2)
def test_same_states_on_every_number_of_ranks():
    require_the_same_on_ranks(history, [("gaps5", 1), *((name, 3) for name in LAWS)])
    require_the_same_on_ranks(history_of_parameters, [((), 3), ((1,), 3)])


@pytest.mark.thorough
@pytest.mark.mpi(min_size=2)
def test_joint_law_on_ranks():
    comm = world()
    result = judged(comm, "gaps5", 4, 80)
    assert comm.share(result is None or result.passed), f"{result} (seed {seed(61)})"
