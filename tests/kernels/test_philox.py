"""The generator is numpy.random.Philox bit for bit, and a row's word depends on nothing but its key and counter."""

import numpy as np

from mpibayes.hpc.parallel import streams
from mpibayes.kernels import mixture
from mpibayes.kernels.mixture import twin


def test_bits_are_those_of_numpy():
    large = 2**64 - 1
    for seed, cycle, chain, row0 in [(0, 0, 0, 0), (7, 3, 2, 5), (large, large, 2**63, 2**40 + 3), (1, 2, 3, 4)]:
        ours = mixture.priorities(row0, 23, seed, cycle, chain)
        assert ours.dtype == np.uint64
        assert np.array_equal(ours, twin.priorities(row0, 23, seed, cycle, chain))


def test_one_block_by_hand():
    """Counter (row >> 2, 0, cycle, chain), key (seed, 1), written out without the twin's arithmetic."""
    stream = np.random.Philox(key=[9, 1], counter=[4, 0, 8, 6])  # the first block NumPy returns has word 0 = 5
    assert np.array_equal(stream.random_raw(4), mixture.priorities(20, 4, 9, 8, 6))


def test_a_generator_has_the_key_and_the_counter_that_it_says():
    for seed, cycle, sub, chain in [(0, 0, 0, 0), (7, 3, 2, 5), (2**64 - 1, 2**40, 2**32 - 1, 3 | 9 << 32)]:
        stream = np.random.Philox(
            key=np.array([seed, streams.Purpose.START], np.uint64), counter=np.array([0, sub, cycle, chain], np.uint64)
        )
        ours = streams.generator(seed, streams.Purpose.START, cycle, sub, chain)
        assert np.array_equal(ours.bit_generator.random_raw(9), stream.random_raw(9))


def test_slices_agree():
    whole = mixture.priorities(0, 40, 3, 1, 0)
    assert np.array_equal(whole[13:29], mixture.priorities(13, 16, 3, 1, 0))
    assert len(np.unique(whole)) == 40
