"""The kernels of moves on features do what their plain twins do, and sums have the bits of the cycle's own."""

import numpy as np
import pytest

from mpibayes.kernels.ibp import moves, twin_moves
from mpibayes.kernels.ibp.features import Rows


@pytest.fixture
def rows():
    stream = np.random.default_rng(3)
    z = stream.integers(0, 1 << 63, size=(57, 2), dtype=np.uint64)
    x = stream.standard_normal((57, 11)).astype(np.float32)
    return z, x, np.array([0, 5, 62, 64, 99], np.int64)


def test_twins(rows):
    z, x, slots = rows
    assert np.array_equal(moves.prints(z, slots, 12), twin_moves.prints(z, slots, 12))
    pattern = moves.patterns(z, slots)
    assert np.array_equal(pattern, twin_moves.patterns(z, slots))
    for ours, theirs in zip(
        moves.tally_patterns(z, x, pattern, 32, slots[:3]), twin_moves.tally_patterns(z, x, pattern, 32, slots[:3])
    ):
        assert np.array_equal(ours, theirs)
    for ours, theirs in zip(moves.tally(z, x, slots[1:3], slots), twin_moves.tally(z, x, slots[1:3], slots)):
        assert np.array_equal(ours, theirs)
    stream = np.random.default_rng(4)
    vectors, offsets, subset = stream.standard_normal((3, 11)), stream.standard_normal((3, 5)), np.arange(3, 50, 2)
    np.testing.assert_allclose(
        moves.scores(z, x, subset, vectors, slots, offsets),
        twin_moves.scores(z, x, subset, vectors, slots, offsets),
        1e-12,
    )
    there, here = z.copy(), z.copy()
    moves.write(here, slots, pattern[::-1].copy())
    twin_moves.write(there, slots, pattern[::-1].copy())
    assert np.array_equal(here, there)
    assert np.array_equal(moves.patterns(here, slots), pattern[::-1])


def test_sums_have_the_bits_of_the_cycle(rows):
    z, x, slots = rows
    together, cells = moves.tally(z, x, slots, slots)
    owners, sums = Rows(x, z, 0).tally(slots)
    assert np.array_equal(together, owners)
    assert np.array_equal(cells, sums[:-1])


def test_prints_add_up(rows):
    """A column's number does not depend on how rows are cut into shards."""
    z, _, slots = rows
    parts = moves.prints(z[:20].copy(), slots, 0) + moves.prints(z[20:].copy(), slots, 20)
    assert np.array_equal(parts, moves.prints(z, slots, 0))


@pytest.mark.parametrize("call", [
    lambda z, x: moves.patterns(z, np.arange(9)),
    lambda z, x: moves.write(z, np.arange(2), np.zeros(3, np.uint8)),
    lambda z, x: moves.tally_patterns(z, x, np.full(len(z), 4, np.uint8), 4, np.arange(2)),
    lambda z, x: moves.scores(z, x, np.arange(2), np.zeros((1, 8)), np.arange(2), np.zeros((1, 2))),
])  # fmt: skip
def test_wrong_shapes_are_refused(rows, call):
    with pytest.raises(ValueError, match=r"\d"):
        call(*rows[:2])
