"""The kernel of visits.pyx in plain Python: slow, and its specification."""

from __future__ import annotations

import numpy as np

from mpibayes.kernels.mixture.twin import words

SUBSAMPLE = 15  # purpose of its random words


def visits(z, n_grow, n_churn, seed, cycle, sweep, chain, shard, strata=None, grow=None):
    """See visits.visits."""
    n, steps = len(z), n_grow + n_churn
    strata = np.zeros(n, dtype=np.int32) if strata is None else strata
    grow = [n_grow] if grow is None else list(grow)
    word = [int(v) for v in words(0, 2 * steps, seed, SUBSAMPLE, shard + (sweep << 32), cycle, chain)]
    active = [i for i in range(n) if z[i] >= -1]
    idle = [[i for i in range(n) if z[i] < -1 and strata[i] == h] for h in range(len(grow))]
    due = [h for h, times in enumerate(grow) for _ in range(times)]
    remove, assign = [], []
    for s in range(steps):
        first, second = word[2 * s], word[2 * s + 1]
        if -(-(s + 1) * n_grow // steps) > -(-s * n_grow // steps):
            at = first * len(due) >> 64
            due[at], due[-1] = due[-1], due[at]
            pool = idle[due.pop()]
            at = second * len(pool) >> 64
            pool[at], pool[-1] = pool[-1], pool[at]
            row = pool.pop()
            active.append(row)
            remove.append(-1)
        else:
            at = first * len(active) >> 64
            remove.append(row := active[at])
            pool = idle[strata[row]]
            other = second * (len(pool) + 1) >> 64
            if other < len(pool):
                row, pool[other] = pool[other], row
            active[at] = row
        assign.append(row)
    return np.array(remove, dtype=np.int32), np.array(assign, dtype=np.int32)
