"""Scores of rows under the few instantiated clusters that matter to their draws, for the sweep beside a tail."""

import numpy as np

from libc.stdint cimport int32_t, int64_t

from mpibayes.kernels.common.machine cimport address


cdef class Survivors:
    """Row i has count[i] (cluster, score) pairs from start[i] on in position and score; start -1: they are not known.

    Clusters that are not among a row's pairs have hardly any weight relative to one that is. Made by
    `pruning.survivors`.
    """

    def __init__(self, int64_t n, int64_t room):
        self.start, self.count = np.full(n, -1, np.int64), np.zeros(n, np.int32)
        self.position, self.score = np.empty(0, np.int32), np.empty(0)
        self.c.start, self.c.count = <int64_t *>address(self.start), <int32_t *>address(self.count)
        self.grow(room)

    cdef int grow(self, room) except -1:
        """Make room for `room` pairs; current ones stay."""
        for name in ("position", "score"):
            old = getattr(self, name)
            new = np.empty(room, old.dtype)
            new[:len(old)] = old
            if name == "position":
                self.position = new
            else:
                self.score = new
        self.c.position, self.c.score = <int32_t *>address(self.position), <double *>address(self.score)
        self.c.room = room
        return 0

    def __len__(self):
        return self.c.used

    @property
    def margin(self):
        """Bound on the weight of the omitted clusters, relative to the weight of all clusters."""
        return self.c.margin

    @margin.setter
    def margin(self, double margin):
        self.c.margin = margin
