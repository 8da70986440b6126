"""The collectives at the ends of their number ranges, where MPI libraries have erred.

Open MPI 4.1.2 to 4.1.4 and MPICH 4.0.2 take the least of unsigned 64-bit numbers as if they were signed (their issues
10525 and 6083): what was sent as it is failed here with Debian 12's Open MPI. Nothing is random.
"""

import numpy as np
import pytest

from mpibayes.hpc.parallel.comm import serial, world

SIZES = [1, 2, 3, 7, 8, 9, 33, 1000]
ENDS = np.array([0, 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1], np.uint64)


def words(rank, n):
    return ENDS[(np.arange(n) * 7 + rank * 3) % len(ENDS)]


@pytest.mark.mpi
@pytest.mark.parametrize("n", SIZES)
def test_least_of_unsigned_words(n):
    comm = world()
    result = words(comm.rank, n)
    comm.least_everywhere(result)
    np.testing.assert_array_equal(result, np.min([words(r, n) for r in range(comm.size)], axis=0))


@pytest.mark.mpi
@pytest.mark.parametrize("kind", [np.int16, np.int32, np.int64])
@pytest.mark.parametrize("n", SIZES)
def test_sums_up_to_the_ends(n, kind):
    """Ranks' numbers of either sign, whose sum goes up to the ends of what the type holds."""
    comm = world()
    end = np.iinfo(kind).max
    signs = np.where(np.arange(n) % 2, 1, -1)
    parts = [(signs * (end // comm.size - r)).astype(kind) for r in range(comm.size)]
    result = parts[comm.rank].copy()
    comm.sum_everywhere(result)
    np.testing.assert_array_equal(result, np.sum(parts, axis=0, dtype=np.int64))


@pytest.mark.mpi
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("empty", ["none", "first", "all but the last"])
def test_rows_shared_in_place(empty, kind):
    comm = world()
    lengths = np.arange(1, comm.size + 1) * 3
    lengths[: {"none": 0, "first": 1, "all but the last": comm.size - 1}[empty]] = 0
    starts = np.concatenate([[0], np.cumsum(lengths)])
    whole = np.arange(starts[-1] * 5).reshape(-1, 5).astype(kind)
    result = np.full_like(whole, np.nan)
    result[starts[comm.rank] : starts[comm.rank + 1]] = whole[starts[comm.rank] : starts[comm.rank + 1]]
    comm.share_rows(result, starts)
    np.testing.assert_array_equal(result, whole)


@pytest.mark.mpi
def test_bytes_are_dealt_to_ranks():
    comm = world()

    def part(source, to):
        return np.full((source + 2 * to) % 3 * 5, 10 * source + to, np.uint8)

    received = comm.deal([part(comm.rank, to) for to in range(comm.size)])
    for source, found in enumerate(received):
        np.testing.assert_array_equal(found, part(source, comm.rank))
    assert len(received) == comm.size


def test_one_process_keeps_what_it_has():
    comm, result = serial(), words(0, 9)
    comm.least_everywhere(result)
    np.testing.assert_array_equal(result, words(0, 9))
