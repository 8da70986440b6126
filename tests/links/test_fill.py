"""Missing cells of parents: the compiled draws are those of plain Python, and change the counts as they should."""

from unittest import mock

import numpy as np
import pytest
from scipy.special import gammaln

from mpibayes.hpc.components.categorical import Categorical
from mpibayes.hpc.links import in_turn
from mpibayes.hpc.links.coding import Coding
from mpibayes.hpc.links.gaps import Gaps, masks_of
from mpibayes.hpc.links.in_turn import few_cells, in_parts
from mpibayes.hpc.parallel import shards
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.io.rows import Rows
from mpibayes.io.table import table_from_arrays
from mpibayes.kernels import mixture as kernels
from mpibayes.kernels.mixture import turns, twin_turns, updates

N, K, LEVELS = 400, 5, (40, 30, 4, 3, 2)  # the second column needs codes of 16 bits
PARENTS = np.array([-1, 0, 1, 1, -1])  # b leans on a, c and d on b; e alone
KEY = {"seed": 3, "cycle": 9, "chain": 0}


def state():
    """Gaps, the columns' kind, coded rows in two shards with labels, some of them idle, and the counts."""
    rng = np.random.default_rng(5)
    cells = [np.where(rng.random(N) < 0.3, -1, rng.integers(v, size=N)) for v in LEVELS]
    given = [(n, "categorical", x, tuple(map(str, range(v)))) for n, x, v in zip("abcde", cells, LEVELS)]
    columns, rows = table_from_arrays(given)
    coding = Coding(columns, PARENTS, {n: np.arange(v) % 32 for n, v in zip("abcde", LEVELS)})
    parts = [rows.take(np.arange(0, 250)), rows.take(np.arange(250, N))]
    gaps = Gaps(coding, [masks_of(columns, part) for part in parts])
    for i, part in enumerate(parts):
        gaps.start(i, part, 250 * i, KEY)
    z = rng.integers(-1, K, N).astype(np.int32)
    labelled = list(zip([coding.coded(part) for part in parts], [z[:250].copy(), z[250:].copy()]))
    kind = Categorical(sorted(coding.columns, key=lambda c: (c.block == "codes16", c.index)), {}, {})
    return gaps, kind, labelled, counted(kind, labelled)


def counted(kind, labelled):
    return sum(kernels.accumulate(rows, z, K, kind.offsets)[1] for rows, z in labelled)


def drawn(plain):
    gaps, kind, labelled, levels = state()
    assert gaps._plain
    before = [rows.codes16.copy() for rows, _ in labelled]
    gaps.__dict__["_plain"], gaps._few_of[K] = plain, ()
    gaps.draw(serial(), kind, np.full(len(kind), 0.4), levels, labelled, [0, 250], KEY, {})
    moved = [(rows.codes16 != old).any(axis=1) for (rows, _), old in zip(labelled, before)]
    assert sum(m.sum() for m in moved) > 50
    assert not any(m[z < 0].any() for m, (_, z) in zip(moved, labelled))
    assert np.array_equal(levels, counted(kind, labelled))
    return [(rows.codes8, rows.codes16) for rows, _ in labelled], levels


def test_compiled_draws_are_those_of_plain_python():
    (ours, levels), (plain, of_plain) = drawn(True), drawn(False)
    for one, other in zip(ours, plain):
        assert all(np.array_equal(a, b) for a, b in zip(one, other))
    assert np.array_equal(levels, of_plain)


def test_draws_in_turn_are_those_of_the_twin_on_any_shards():
    def drawn_by(fill, together):
        gaps, kind, labelled, levels = state()
        before = [rows.codes16.copy() for rows, _ in labelled]
        if together:
            whole = Rows.concatenate((), [rows for rows, _ in labelled])
            labelled = [(whole, np.concatenate([z for _, z in labelled]))]
            gaps.at = [{c: np.concatenate([gaps.at[0][c], 250 + gaps.at[1][c]]) for c in gaps.at[0]}]
        gaps._few_of[K] = tuple(gaps.lacking)
        with mock.patch.object(turns, "fill_in_turn", fill):
            gaps.draw(serial(), kind, np.full(len(kind), 0.4), levels, labelled, [0, 250], KEY, {})
        assert np.array_equal(levels, counted(kind, labelled))
        wide = np.concatenate([rows.codes16 for rows, _ in labelled])
        moved = (wide != np.concatenate(before)).any(axis=1)
        assert moved.sum() > 50
        assert not moved[np.concatenate([z for _, z in labelled]) < 0].any()
        return np.concatenate([rows.codes8 for rows, _ in labelled]), wide, levels

    first, twin = drawn_by(turns.fill_in_turn, False), drawn_by(twin_turns.fill_in_turn, False)
    with mock.patch.object(in_turn, "AT_ONCE", 1):
        in_two_parts = drawn_by(turns.fill_in_turn, False)
    for other in (twin, drawn_by(turns.fill_in_turn, True), in_two_parts):
        assert all(np.array_equal(a, b) for a, b in zip(first, other))


def drawn_on_ranks(comm, alike):
    """Coded rows of this rank's shards and the counts after draws in turn, by all ranks alike or by clusters."""
    gaps, kind, labelled, levels = state()
    mine = shards.of_rank(2, comm.size, comm.rank)
    gaps.at, labelled = [gaps.at[i] for i in mine], [labelled[i] for i in mine]
    gaps._few_of[K] = tuple(gaps.lacking)
    with mock.patch.object(in_turn, "ALIKE", alike):
        gaps.draw(comm, kind, np.full(len(kind), 0.4), levels, labelled, [[0, 250][i] for i in mine], KEY, {})
    return [(rows.codes8, rows.codes16) for rows, _ in labelled], levels


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("alike", [-1, in_turn.ALIKE])
def test_draws_in_turn_are_the_same_on_ranks(alike):
    comm = world()
    (ours, levels), (theirs, of_one) = drawn_on_ranks(comm, alike), drawn_on_ranks(serial(), alike)
    for i, one in zip(shards.of_rank(2, comm.size, comm.rank), ours, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, theirs[i]))
    assert np.array_equal(levels, of_one)


@pytest.mark.mpi(min_size=2)
def test_counts_without_the_cells_of_other_ranks_differ():
    with mock.patch.object(turns, "recount", lambda *arguments: None):
        assert not np.array_equal(drawn_on_ranks(world(), -1)[1], drawn_on_ranks(serial(), -1)[1])


def test_counts_follow_cells_that_another_rank_drew():
    """Counts of some rows change as with the twin, and differ without the change of a child's context."""
    gaps, kind, labelled, levels = state()
    before, after = levels.copy(), levels.copy()
    seen, right = [], turns.fill_in_turn

    def fill(columns, cells, own, *more, **key):
        seen.append((columns, cells.copy()))
        right(columns, cells, own, *more, **key)
        seen[-1] += (cells.copy(),)

    gaps._few_of[K] = tuple(gaps.lacking)
    with mock.patch.object(turns, "fill_in_turn", fill):
        gaps.draw(serial(), kind, np.full(len(kind), 0.4), levels, labelled, [0, 250], KEY, {})
    columns, old, new = *seen[0][:2], seen[-1][2]
    rows = np.arange(len(old))
    for module, result in ((turns, after), (twin_turns, before)):
        module.recount(columns, old, new, np.ascontiguousarray(rows[::2]), result)
    assert np.array_equal(after, before) and not np.array_equal(after, levels)
    turns.recount(columns, old, new, np.ascontiguousarray(rows[1::2]), after)
    assert np.array_equal(after, levels)
    alone = [(*column[:5], -1, column[6]) for column in columns]
    turns.recount(alone, new, old, rows, after)
    assert not np.array_equal(after, counted(*state()[1:3]))
    with pytest.raises(ValueError, match="do not fit"):
        turns.recount(columns, old, new[:, :-1].copy(), rows, after)


def test_cells_are_drawn_in_turn_where_few_are_missing():
    gaps, kind, _, _ = state()
    assert few_cells(gaps, kind, 1000) == tuple(gaps.lacking) == (0, 1)
    with mock.patch.object(in_turn, "A_GAMMA", 0):
        assert few_cells(gaps, kind, 1000) == ()


def test_cells_that_every_rank_has_at_once_are_few():
    """Columns may lack cells in different rows, so that all of them together are most cells of the table."""
    gaps, kind, labelled, levels = state()
    held, take = [], turns.take_cells

    def seen(*arguments):
        held.append(arguments[-1].base.size if arguments[-1].base is not None else arguments[-1].size)
        take(*arguments)

    most = max(4 * gaps.coding.plain[c].n_missing for c in gaps.lacking)
    gaps._few_of[K] = tuple(gaps.lacking)
    with mock.patch.object(in_turn, "AT_ONCE", most), mock.patch.object(turns, "take_cells", seen):
        assert in_parts(gaps, gaps.lacking) == [(0,), (1,)]
        gaps.draw(serial(), kind, np.full(len(kind), 0.4), levels, labelled, [0, 250], KEY, {})
    assert len(held) == 4 and max(held) <= 1.25 * most  # the labels, too
    assert in_parts(gaps, gaps.lacking) == [(0, 1)]


def test_cells_in_turn_have_their_law_given_all_others():
    """Three rows lack a parent's cell, in one cluster; the enumeration integrates level probabilities out."""
    contexts, shape = np.arange(3), (3, 3, 3)
    columns = [("codes8", 0, 0, 3, 1, -1, contexts), ("codes8", 1, 4, 2, 3, 0, None)]
    beta = np.array([0.2, 0.2, 0.2, 0.0] + [1.0, 1.0, 0.0] * 3)
    rows = np.array([[0, 0, 0], [0, 0, 0], [0, 1, 1], [0, 0, 0], [0, 0, 1], [0, 0, 0]], np.int32)
    at, levels = np.array([3, 4, 5]), np.zeros((13, 1), np.int32)

    def log_p(cells):
        n = np.zeros(13)
        np.add.at(n, np.concatenate([cells[:, 1], 4 + 3 * cells[:, 1] + cells[:, 2]]), 1)
        of = [slice(0, 3), slice(4, 6), slice(7, 9), slice(10, 12)]
        return sum((gammaln(n[s] + beta[s]) - gammaln(beta[s])).sum() - gammaln((n[s] + beta[s]).sum()) for s in of)

    filled = [rows.copy() for _ in range(27)]
    for state, cells in enumerate(filled):
        cells[at, 1] = np.unravel_index(state, shape)
    exact = np.exp([log_p(cells) for cells in filled])
    exact /= exact.sum()

    def distance(fill, cycles, **how):
        cells, n = rows.copy(), np.zeros(27)
        np.add.at(levels, (np.concatenate([cells[:, 1], 4 + 3 * cells[:, 1] + cells[:, 2]]), 0), 1)
        for cycle in range(cycles):
            key = {**KEY, "cycle": cycle, "purpose": 1, "sub": 0, **how}
            fill(columns, cells, 0, at, np.arange(6), levels, beta, **key)
            n[np.ravel_multi_index(tuple(cells[at, 1]), shape)] += 1
        levels[:] = 0
        return np.abs(n / cycles - exact).sum() / 2

    assert distance(turns.fill_in_turn, 40_000) < 0.02
    assert distance(twin_turns.fill_in_turn, 2000, by_children=False) > 0.1


def test_cells_in_turn_that_do_not_fit_are_refused():
    column, levels, beta = ("codes8", 0, 0, 2, 1, -1, np.zeros(2, np.int64)), np.zeros((3, K), np.int32), np.ones(3)
    at, ids = np.zeros(1, np.int64), np.zeros(1, np.int64)

    def fill(columns=(column,), cells=((0, 0),), at=at, levels=levels):
        cells = np.array(cells, np.int32)
        turns.fill_in_turn(list(columns), cells, 0, at, ids, levels, beta, purpose=1, sub=0, **KEY)

    fill()
    for changed in (
        {"cells": ((0, 2),)}, {"cells": ((K, 0),)}, {"at": at + 1}, {"levels": levels[:2]},
        {"columns": ((*column[:3], 3, *column[4:]),)}, {"columns": ((*column[:5], 7, column[6]),)},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"fit together|no such row|one context"):
            fill(**changed)


def test_what_does_not_fit_is_refused():
    _, _, labelled, levels = state()
    rows, z = labelled[0]
    at, change = np.zeros(1, np.int64), np.zeros(levels.shape, np.int32)
    own = "codes8", 0, 3, 0, np.zeros(3, np.int64), np.zeros((1, K, 3), np.float32), 1

    def fill(at, own):
        updates.fill_cells([(rows, at, z, 0)], own, None, [], change, purpose=1, sub=0, **KEY)

    with pytest.raises(ValueError, match="rows and labels"):
        fill(at + len(z), own)
    with pytest.raises(ValueError, match="tables and contexts"):
        fill(at, (*own[:5], own[5][:, 1:], 1))
    with pytest.raises(ValueError, match="rows, levels and contexts"):
        fill(at, ("codes8", 9, *own[2:]))
