"""Updates of theta, their tuning, and whole cycles of Firefly Monte Carlo (docs/math.md 4.3, 4.4)."""

import numpy as np

from libc.stdint cimport int64_t, uint64_t

from mpibayes.kernels.common.machine cimport address, aligned
from mpibayes.kernels.firefly.layout cimport lights_t
from mpibayes.kernels.firefly.lights cimport Lights
from mpibayes.kernels.firefly.rows cimport checked, in_place
from mpibayes.kernels.firefly.target cimport Target, target_t

from mpibayes.kernels.common.machine import ISA_NUMBER


cdef extern from "firefly.h" nogil:
    int kernel_isa
    enum:
        N_TUNING

    ctypedef struct banded_t:
        int64_t stride
        const float *value
        const int64_t *first
        const int64_t *last

    ctypedef struct mover_t:
        int kind
        int64_t n_parameters, stride
        const banded_t *w
        const banded_t *transposed
        double *scratch

    ctypedef struct record_t:
        double *theta
        double *log_density
        double *acceptance
        double *step_size
        int64_t *bright
        int64_t *queries_theta
        int64_t *queries_z

    double move(const mover_t *, target_t *, double *, double, int64_t, uint64_t, uint64_t, uint64_t)
    void c_adapt "adapt"(double *, double, double, double)
    double c_proposal_rate "proposal_rate"(const double *, double, double)
    double log_positive(double)
    int run_cycles(lights_t **, int64_t, target_t *, const mover_t *, double *, double *, double, double, int, int64_t,
                   uint64_t, uint64_t, uint64_t, int64_t, int64_t, const int *, record_t)


kernel_isa = ISA_NUMBER
HMC, MALA, RANDOM_WALK, SLICE = 0, 1, 2, 3
GOALS = (0.8, 0.574, 0.234, 0.0)  # acceptance that the step size aims at, by kind of update; 0: none


cdef class _Banded:
    """A square matrix in single precision, and which rows of each 32 columns are not 0."""

    cdef banded_t c
    cdef object arrays

    def __init__(self, matrix):
        cdef int64_t n = len(matrix), stride = (n + 31) // 32 * 32, n_tiles = stride // 32, c
        values = aligned(n * stride // 2, np.float64).view(np.float32).reshape(n, stride)
        values[:, :n] = matrix
        first, last = np.zeros(n_tiles, dtype=np.int64), np.zeros(n_tiles, dtype=np.int64)
        for c in range(n_tiles):
            used = np.flatnonzero(values[:, 32 * c:32 * c + 32].any(axis=1))
            if len(used):
                first[c], last[c] = used.min(), used.max() + 1
        self.arrays = values, first, last
        cdef const float[:, ::1] v = values
        cdef const int64_t[::1] f = first, g = last
        self.c.stride, self.c.value, self.c.first, self.c.last = stride, &v[0, 0], &f[0], &g[0]


cdef class Mover:
    """One kind of update of theta that leaves a Target's density invariant: HMC, MALA, RANDOM_WALK or SLICE.

    whitening: float64 (P, P) W, for coordinates u with theta = W u, copied and rounded to single precision, for any W
    is as right as another; a triangular one saves half the work. None: the identity. `goal`: the acceptance that
    `cycles` adapts the step size to; 0: the step size stays.
    """

    cdef mover_t c
    cdef object scratch
    cdef _Banded w, transposed
    cdef public double goal
    cdef readonly int kind
    cdef readonly int64_t n_parameters

    def __init__(self, kind, n_parameters, whitening=None):
        if kind not in (HMC, MALA, RANDOM_WALK, SLICE):
            raise ValueError(f"kind {kind} is not one of HMC, MALA, RANDOM_WALK, SLICE")
        cdef int64_t n = n_parameters, stride = (n_parameters + 31) // 32 * 32
        self.kind, self.n_parameters, self.goal = kind, n, GOALS[kind]
        self.c.kind, self.c.n_parameters, self.c.stride = kind, n, stride
        self.scratch = aligned(7 * stride, np.float64)
        self.c.scratch = <double *>address(self.scratch)
        self.c.w = self.c.transposed = NULL
        if whitening is not None:
            w = checked("whitening", whitening, np.float64, (n, n))
            self.w, self.transposed = _Banded(w), _Banded(w.T)
            self.c.w, self.c.transposed = &self.w.c, &self.transposed.c

    def step(self, Target target, theta, double step_size, int64_t n_steps, uint64_t seed, uint64_t cycle,
             uint64_t chain):
        """One update of theta (P,), overwritten in place; returns (acceptance probability, evaluations of the target).

        step_size: leapfrog step, standard deviation of the random walk, or width of the slice sampler's interval, in
        u. n_steps: leapfrog steps of HMC. target.gap and target.log_density are then those of theta.
        """
        cdef double[::1] view = in_place("theta", theta, self.n_parameters)
        cdef double accept
        if target.n_parameters != self.n_parameters:
            raise ValueError(f"the target has {target.n_parameters} parameters, the update {self.n_parameters}")
        if not step_size > 0 or (self.kind == HMC and n_steps < 1):
            raise ValueError(f"step size {step_size} and {n_steps} steps have to be positive")
        target._ready()
        with nogil:
            accept = move(&self.c, &target.c, &view[0], step_size, n_steps, seed, cycle, chain)
        target._raise()
        return accept, target.c.n_evaluations


def start_tuning(double step_size, double n_bright):
    """float64 (6,): step size in use, averaged step size (for cycles after burn-in), number of adaptations, running
    mean of the bright count, logarithms of the first two."""
    log_step = log_positive(step_size)
    return np.array([step_size, step_size, 0.0, n_bright, log_step, log_step])


def adapt(tuning, double accept, double n_bright, double goal):
    """Adapt in burn-in: Robbins & Monro on the log step size towards the acceptance `goal` (0: leave it), and the
    running mean of the bright count. tuning: see start_tuning, overwritten."""
    cdef double[::1] view = in_place("tuning", tuning, N_TUNING)
    c_adapt(&view[0], accept, n_bright, goal)


def proposal_rate(tuning, double q_factor, double n_rows):
    """q of the next sweep: q_factor M / n with M the running mean of the bright count, between 1 / n and 1; a negative
    q_factor is -q itself."""
    cdef double[::1] view = in_place("tuning", tuning, N_TUNING)
    return c_proposal_rate(&view[0], q_factor, n_rows)


def cycles(lights, Target target, Mover mover, theta, tuning, double q_factor, bint explicit, int64_t n_steps,
           uint64_t seed, uint64_t first_cycle, uint64_t chain, int64_t n_cycles, int64_t adapting_until, out):
    """n_cycles cycles from first_cycle on: a sweep of every shard's Lights, one update of theta, and adaptation in
    cycles up to adapting_until.

    theta (P,) and tuning (6,) are overwritten; q is proposal_rate(tuning, q_factor, n), the step size tuning[0] while
    adapting and tuning[1] after. lights: one a shard, gaps at theta known; empty when the target was given load_full.
    out: arrays that are written, one entry a cycle: theta (n_cycles, P), lp, acceptance, step_size float64, bright,
    queries_theta, queries_z int64. A loop of sweep, load, step, set_gap and adapt gives the same bits.
    """
    cdef double[::1] view = in_place("theta", theta, mover.n_parameters), knobs = in_place("tuning", tuning, N_TUNING)
    cdef double[:, ::1] thetas = out["theta"]
    cdef double[::1] lp = out["lp"], acceptance = out["acceptance"], step_size = out["step_size"]
    cdef int64_t[::1] bright = out["bright"], queries_theta = out["queries_theta"], queries_z = out["queries_z"]
    cdef int64_t n_shards = len(lights), i
    cdef Lights one
    cdef record_t record
    cdef int done
    if n_cycles <= 0:
        return
    if target.n_parameters != mover.n_parameters:
        raise ValueError(f"the target has {target.n_parameters} parameters, the update {mover.n_parameters}")
    if thetas.shape[1] != mover.n_parameters or min(len(out[name]) for name in (
            "theta", "lp", "acceptance", "step_size", "bright", "queries_theta", "queries_z")) < n_cycles:
        raise ValueError(f"the arrays to write to have to hold {n_cycles} cycles of {mover.n_parameters} parameters")
    if not knobs[0] > 0 or not knobs[1] > 0 or (mover.kind == HMC and n_steps < 1):
        raise ValueError("step sizes and the number of leapfrog steps have to be positive")
    for one in lights:
        target._fits(one.rows)
    if n_shards:
        target.load(lights)
    elif not target.c.full and target.remote is None:
        raise ValueError("no lights were given, and the target was not given load_full")
    target._ready()
    addresses = np.zeros(n_shards + 1, dtype=np.int64)
    cdef int64_t[::1] address = addresses
    for i in range(n_shards):
        one = lights[i]
        address[i] = <int64_t><size_t>&one.c
        one.version += 1
    record.theta, record.log_density, record.acceptance = &thetas[0, 0], &lp[0], &acceptance[0]
    record.step_size, record.bright = &step_size[0], &bright[0]
    record.queries_theta, record.queries_z = &queries_theta[0], &queries_z[0]
    with nogil:
        done = run_cycles(<lights_t **>&address[0], n_shards, &target.c, &mover.c, &view[0], &knobs[0], mover.goal,
                          q_factor, explicit, n_steps, seed, first_cycle, chain, n_cycles,
                          adapting_until, &target.failed, record)
    target._raise()
    if not done:
        raise MemoryError("no memory for the list of bright rows")
    if n_shards:
        target.load(lights)
