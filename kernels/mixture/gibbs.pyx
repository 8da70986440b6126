"""Gibbs steps of the rows of a shard, and predictive densities of rows without a cluster.

`sweep` leaves invariant the posterior of a shard's labels given the instantiated clusters (docs/math.md 2.1 step 6,
2.3); with no instantiated cluster it is Neal (2000), Algorithm 3. The loops are in C headers beside this file: sweep.h
reads like the algorithm, cells.h has the cells of rows, scores.h and numbers.h the inner loops, tail.h the collapsed
clusters, draw.h the draw. kernels/mixture/twin.py is the same in plain Python and serves as the specification.

Labels within a sweep: 0..K1-1 instantiated clusters; base + t tail slot t with base = K1 rounded up to 16; -1 a row to
be seated when the sweep reaches it; -2 and below idle: not in the subsample, and ignored by all kernels.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint64_t

from mpibayes.kernels.common.machine cimport address, aligned
from mpibayes.kernels.mixture.instantiated cimport Instantiated
from mpibayes.kernels.mixture.layout cimport (
    STATUS_BAD_LABEL, STATUS_DONE, STATUS_GROW, STATUS_NO_CANDIDATE, STATUS_NOT_A_NUMBER, instantiated_t, outcome_t,
    rows_t, tail_t, work_t,
)
from mpibayes.kernels.mixture.response cimport Response
from mpibayes.kernels.mixture.rows cimport HeldRows
from mpibayes.kernels.mixture.survivors cimport Survivors
from mpibayes.kernels.mixture.tail cimport Tail, Work

from mpibayes.kernels.common.machine import ISA_NUMBER


cdef extern from "mixture.h" nogil:
    int kernel_isa
    void keep_counts()
    outcome_t kernel_sweep(const rows_t *, int32_t *, int64_t, const instantiated_t *, tail_t *, work_t *, uint64_t,
                           uint64_t, uint64_t, uint64_t, uint64_t, int)
    outcome_t kernel_sweep_runs(const rows_t *, int32_t *, int64_t, const instantiated_t *, work_t *, uint64_t,
                                uint64_t, uint64_t, uint64_t, uint64_t, int)
    int in_runs(const rows_t *, int)
    outcome_t kernel_visit(const rows_t *, int32_t *, const int32_t *, const int32_t *, int64_t, int64_t,
                           const instantiated_t *, tail_t *, work_t *, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                           int)
    outcome_t kernel_predictive(const rows_t *, tail_t *, work_t *, double *, double *)
    double kernel_take(const double *, int64_t, int64_t, const double *, const int32_t *, double *, int32_t *)
    outcome_t kernel_seat(const rows_t *, int64_t, const int32_t *, int32_t *, int32_t *, int32_t *, const double *,
                          double, tail_t *, work_t *, double *)


kernel_isa = ISA_NUMBER
keep_counts()
_NOTHING = Instantiated()


cdef int _check_columns(HeldRows rows, Tail tail) except -1:
    cdef int64_t b
    cdef bint same = rows.c.n_blocks == tail.c.n_blocks
    for b in range(rows.c.n_blocks if same else 0):
        same = same and rows.c.widths[b] == tail.c.widths[b]
    if rows.c.n_codes != tail.c.n_codes or rows.c.n_reals != tail.c.n_reals or rows.c.n_tallies != tail.c.n_tallies \
            or rows.c.offsets[rows.c.n_codes] != tail.c.n_levels \
            or not same or rows.c.n_spells != tail.c.n_spells:
        raise ValueError("rows and tail have different columns")
    return 0


cdef int _raise(outcome_t done, int64_t row0) except -1:
    row = row0 + done.row
    if done.status == STATUS_NOT_A_NUMBER:
        raise FloatingPointError(f"row {row}: its score under some cluster is not a number; look for infinite cells and "
                                 "for parameters that are not finite")
    if done.status == STATUS_NO_CANDIDATE:
        raise FloatingPointError(f"row {row}: it has probability 0 under every cluster it may enter")
    if done.status == STATUS_BAD_LABEL:
        raise ValueError(f"row {row}: its label is not negative, no instantiated cluster, and no occupied tail slot")
    return 0


cdef int _check_steps(const int32_t[::1] steps, int64_t n_steps, int64_t n, name) except -1:
    """Raise ValueError unless there are n_steps steps, each of a row below n or -1."""
    cdef int64_t s
    if steps.shape[0] != n_steps:
        raise ValueError("remove and assign have different numbers of steps")
    for s in range(n_steps):
        if not -1 <= steps[s] < n:
            raise ValueError(f"{name}[{s}] = {steps[s]} is not one of the {n} rows, nor -1")
    return 0


def sweep(rows, int32_t[::1] z, row0, seed, cycle, sweep, chain, Instantiated instantiated, Tail tail, prior,
          priority_free=False, remove=None, assign=None, Survivors survivors=None, Response response=None):
    """Make one Gibbs step for every row of a shard in order; return the number of rows that changed cluster.

    z: int32 (n,), labels as in the module's docstring, changed in place; row0: global id of the first row. instantiated
    or tail may be None. priority_free: every row may enter every instantiated cluster and no row is an anchor, as on
    the collapsed shard. A row alone in its tail slot that opens a new cluster counts as unmoved. Raises, naming the
    row, FloatingPointError if a score is NaN or no candidate has a positive probability, and ValueError if a label is
    out of range; rows before it have been moved by then.

    survivors: for the same rows, draw and priorities (pruning.survivors); a row with survivors is scored under no other
    instantiated clusters, and every label is the same as without them.

    response: an outcome of the rows, with coefficients of these clusters and of the tail's slots; coefficients of newly
    opened clusters are added to it.

    With remove and assign, int32 (steps,) local row numbers or -1 for no row, the steps of these lists are made
    instead: row remove[s] is removed, label -2, and row assign[s] seated by the conditional of a Gibbs step; the same
    row twice is a Gibbs step of it. An anchor is never removed, and its whole step is skipped; an idle row needs no
    removal, and a seated one is not seated again. With neither a tail nor an instantiated cluster, the row to be seated
    stays idle. Rows seated count as moved, rows removed do not. For example remove = [-1, 3, 5], assign = [4, 3, 6]
    seats row 4, makes a Gibbs step of row 3, and exchanges 5 for 6.
    """
    cdef Instantiated held = _NOTHING if instantiated is None else instantiated
    cdef HeldRows r = HeldRows(rows, prior.offsets)
    cdef uint64_t u_row0 = row0, u_seed = seed, u_cycle = cycle, u_sweep = sweep, u_chain = chain
    cdef int anchored = not priority_free
    cdef bint listed = remove is not None, runs
    cdef const int32_t[::1] leaving, coming
    cdef int64_t moved = 0, n_steps = 0
    cdef outcome_t done
    cdef tail_t *t = NULL
    cdef Work work
    if z.shape[0] != r.c.n:
        raise ValueError(f"{z.shape[0]} labels for {r.c.n} rows")
    if survivors is not None and (priority_free or len(survivors.start) != r.c.n):
        raise ValueError("survivors are of rows with priorities, as many as there are")
    if response is not None and (len(response) != r.c.n or response.c.base != held.base or survivors is not None
                                 or (tail is not None and response.c.fresh == NULL)):
        raise ValueError("the outcome is not of these rows and clusters")
    if listed != (assign is not None):
        raise ValueError("remove and assign go together")
    if listed:
        leaving, coming = remove, assign
        n_steps = coming.shape[0]
        _check_steps(leaving, n_steps, r.c.n, "remove")
        _check_steps(coming, n_steps, r.c.n, "assign")
    if held.n and (held.n_levels != r.c.offsets[r.c.n_codes] or held.n_reals != r.c.n_reals
                   or held.n_tallies != r.c.n_tallies or held.n_blocks != r.c.n_blocks or held.n_vector != r.c.n_vector
                   or held.n_pairs != r.n_pairs or held.n_spells != r.c.n_spells):
        raise ValueError("rows and instantiated clusters have different columns")
    if tail is not None:
        _check_columns(r, tail)
        t = &tail.c
    if r.c.n == 0 or (listed and n_steps == 0):
        return 0
    runs = t == NULL and response is None and held.n > 0 and in_runs(&r.c, True)
    done.row = 0
    while True:
        work = Work(held.base, tail.c.capacity if tail is not None else 0, r.c.offsets[r.c.n_codes], r.c.n_codes,
                     r.c.n_reals, r.c.n_tallies, r.c.n_blocks)
        work.c.survivors = &survivors.c if survivors is not None else NULL
        if response is not None:
            response.make_room(tail.c.capacity if tail is not None else 0)
            work.c.response = &response.c
        with nogil:
            if listed:
                done = kernel_visit(&r.c, &z[0], &leaving[0], &coming[0], done.row, n_steps, &held.c, t, &work.c,
                                    u_row0, u_seed, u_cycle, u_sweep, u_chain, anchored)
            elif runs:
                done = kernel_sweep_runs(&r.c, &z[0], done.row, &held.c, &work.c, u_row0, u_seed, u_cycle, u_sweep,
                                         u_chain, anchored)
            else:
                done = kernel_sweep(&r.c, &z[0], done.row, &held.c, t, &work.c, u_row0, u_seed, u_cycle, u_sweep,
                                    u_chain, anchored)
        moved += done.moved
        if done.status == STATUS_GROW:
            tail._grow()
            continue
        if done.status != STATUS_DONE:
            _raise(done, u_row0)
        return moved


cdef object _predictive(rows, Tail tail, bint by_cluster):
    cdef HeldRows r = HeldRows(rows, tail.offsets_array)
    _check_columns(r, tail)
    if tail.c.vacant >= tail.c.capacity:
        tail._grow()
    cdef Work work = Work(0, tail.c.capacity, tail.c.n_levels, r.c.n_codes, r.c.n_reals, r.c.n_tallies, r.c.n_blocks)
    out = np.empty((r.c.n, tail.c.n_slots + 1 if by_cluster else 1))
    if r.c.n == 0:
        return out
    cdef double[:, ::1] view = out
    cdef double *terms = &view[0, 0] if by_cluster else NULL
    cdef double *totals = NULL if by_cluster else &view[0, 0]
    cdef outcome_t done
    with nogil:
        done = kernel_predictive(&r.c, &tail.c, &work.c, terms, totals)
    _raise(done, 0)
    return out


def log_predictive(rows, Tail tail):
    """Log predictive density of each row given the tail's clusters, float64 (n,); rows are in no cluster.

    log sum over occupied slots and the new cluster of w (size - d) / (M + c) f(x | slot) and w (c + J d) / (M + c)
    f_H(x), w = exp(log_weight); docs/math.md 2.6 if the tail holds every cluster. Includes the 1 / x! of counts.
    """
    return _predictive(rows, tail, False)[:, 0]


def log_predictive_clusters(rows, Tail tail):
    """Terms of `log_predictive`, float64 (n, n_slots + 1); the last column is the new cluster, vacant slots are
    -inf."""
    return _predictive(rows, tail, True)


def seat(rows, Tail tail, const int32_t[::1] guide, double boost, const double[::1] u, given=None):
    """Seat rows one by one beside the tail's clusters, each by its predictive given those before it: (slots, log_q).

    guide: int32 (n,), below n. Candidates weigh as in `log_predictive_clusters`, except that the slot opened by the
    first row with the same guide, or the new slot until there is one, weighs exp(boost) times as much; guide -1: none
    does. u: float64 (n,), uniforms of the draws. given: int32 (n,), names of clusters, below n, to take instead of
    drawing: rows of one name go together, and the first of a name opens a slot. slots: int32 (n,); log_q: their log
    probability. Raises FloatingPointError as `sweep` does.
    """
    cdef HeldRows r = HeldRows(rows, tail.offsets_array)
    _check_columns(r, tail)
    cdef int64_t n = r.c.n
    out = np.full(n, -1, dtype=np.int32) if given is None else np.array(given, dtype=np.int32)
    if guide.shape[0] != n or u.shape[0] != n or out.shape[0] != n:
        raise ValueError(f"guide, u and given have to be of {n} rows")
    if n and (np.max(guide) >= n or out.max() >= n):
        raise ValueError("guides and names have to be below the number of rows")
    cdef int32_t[::1] slot = out, home = np.full(n, -1, dtype=np.int32), known = np.full(n, -1, dtype=np.int32)
    cdef double log_q = 0.0
    cdef outcome_t done
    cdef Work work
    if n == 0:
        return out, log_q
    done.row = 0
    while True:
        work = Work(0, tail.c.capacity, r.c.offsets[r.c.n_codes], r.c.n_codes, r.c.n_reals, r.c.n_tallies, r.c.n_blocks)
        with nogil:
            done = kernel_seat(&r.c, done.row, &guide[0], &home[0], &known[0], &slot[0], &u[0], boost, &tail.c,
                               &work.c, &log_q)
        if done.status == STATUS_GROW:
            tail._grow()
            continue
        if done.status != STATUS_DONE:
            _raise(done, 0)
        return out, log_q


def take(const double[:, ::1] terms, const double[::1] u, const int32_t[::1] given=None):
    """Draw a column for each row of log weights (n, K): (columns int32 (n,), log probability of them all).

    u: float64 (n,), uniforms of the draws. given: int32 (n,), columns to take instead of drawing.
    """
    cdef int64_t n = terms.shape[0], n_columns = terms.shape[1]
    cdef bint follow = given is not None
    if n_columns < 1 or (given.shape[0] if follow else u.shape[0]) != n:
        raise ValueError(f"expected weights, and what to draw by, of {n} rows")
    out, weights = np.empty(n, np.int32), aligned(n_columns + 7, np.float64)
    cdef double log_q = 0.0
    cdef double *weight = <double *>address(weights)
    cdef int32_t *chosen = <int32_t *>address(out)
    cdef const double *uniform = NULL
    cdef const int32_t *taken = NULL
    if n == 0:
        return out, log_q
    if follow:
        taken = &given[0]
    else:
        uniform = &u[0]
    with nogil:
        log_q = kernel_take(&terms[0, 0], n, n_columns, uniform, taken, weight, chosen)
    return out, log_q
