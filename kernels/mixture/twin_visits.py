"""The kernel of visits.pyx in plain Python: slow, and its specification."""

from __future__ import annotations

import numpy as np

from mpibayes.kernels.mixture.twin import words

SUBSAMPLE = 15  # purpose of its random words


def visits(z, n_grow, n_churn, seed, cycle, sweep, chain, shard):
    """See visits.visits."""
    n, steps = len(z), n_grow + n_churn
    word = [int(v) for v in words(0, 2 * steps, seed, SUBSAMPLE, shard + (sweep << 32), cycle, chain)]
    active = [i for i in range(n) if z[i] >= -1]
    idle = [i for i in range(n) if z[i] < -1]
    remove, assign = [], []
    for s in range(steps):
        first, second = word[2 * s], word[2 * s + 1]
        if -(-(s + 1) * n_grow // steps) > -(-s * n_grow // steps):
            at = second * len(idle) >> 64
            idle[at], idle[-1] = idle[-1], idle[at]
            row = idle.pop()
            active.append(row)
            remove.append(-1)
        else:
            at = first * len(active) >> 64
            remove.append(row := active[at])
            other = second * (len(idle) + 1) >> 64
            if other < len(idle):
                row, idle[other] = idle[other], row
            active[at] = row
        assign.append(row)
    return np.array(remove, dtype=np.int32), np.array(assign, dtype=np.int32)
