"""The kernel of counts.pyx in plain Python: slow, and its specification."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from mpibayes.kernels.mixture import twin

INTEGERS = (0, 1, 5, 6)  # integer results of accumulate: size, levels, tally_n, tally_sum


def add_codes(codes, columns, groups, first, levels):
    """See counts.add_codes."""
    for c, row in zip(columns, first):
        for v, k in zip(codes[c], groups):
            if k >= 0:
                levels[row + v, k] += 1


def recount(rows, before, after, n_clusters, offsets, into=None):
    """See counts.recount: a full count by `after`, minus one by `before`."""
    counted = SimpleNamespace(
        codes8=rows.codes8, codes16=rows.codes16, reals=np.empty((len(rows), 0)), tallies=rows.tallies
    )
    before, after = (np.where(z < n_clusters, z, -1) for z in (before, after))
    old, new = (twin.accumulate(counted, z, n_clusters, offsets) for z in (before, after))
    change = tuple(new[i] - old[i] for i in INTEGERS)
    if into is None:
        return change
    for total, part in zip(into, change, strict=True):
        total += part
    return into
