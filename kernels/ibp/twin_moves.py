"""Plain twins of kernels/ibp/moves.pyx: the same arguments, and the same results but for the rounding of scores."""

from __future__ import annotations

import numpy as np


def columns(z, slots):
    """bool (n, K): whether each row has the feature of each slot."""
    return np.array([[row[s >> 6] >> (s & 63) & 1 for s in map(int, slots)] for row in z.tolist()], bool).reshape(
        len(z), len(slots)
    )


def _mixed(word: int) -> int:
    word = (word + 0x9E3779B97F4A7C15) % 2**64
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
    return word ^ word >> 31


def prints(z, slots, start):
    words = np.array([_mixed(start + i) & 0xFFFFFFFF for i in range(len(z))], np.int64)
    return words @ columns(z, slots)


def patterns(z, slots):
    return (columns(z, slots) @ (1 << np.arange(len(slots)))).astype(np.uint8)


def write(z, slots, pattern):
    for row, p in zip(z, pattern.tolist()):
        for j, s in enumerate(map(int, slots)):
            row[s >> 6] = int(row[s >> 6]) & ~(1 << (s & 63)) | (p >> j & 1) << (s & 63)


def tally_patterns(z, x, pattern, n_patterns, slots):
    has, sizes = columns(z, slots), np.bincount(pattern, minlength=n_patterns)
    counts, cells = np.zeros((n_patterns, len(slots)), np.int64), np.zeros((n_patterns, x.shape[1]))
    for p, row, bits in zip(pattern.tolist(), x, has):
        if p:
            counts[p] += bits
            cells[p] += row
    return sizes, counts, cells


def tally(z, x, of, slots):
    mine, has = columns(z, of), columns(z, slots)
    cells = np.zeros((len(of), x.shape[1]))
    for row, bits in zip(x, mine):
        cells[bits] += row
    return mine.T.astype(np.int64) @ has.astype(np.int64), cells


def scores(z, x, rows, vectors, slots, offsets):
    return x[rows].astype(np.float64) @ vectors.T - columns(z[rows], slots) @ offsets.T
