"""Firefly Monte Carlo: a chain over coefficients theta and brightnesses z of all rows.

Maclaurin & Adams 2014; docs/math.md 4. A cycle is one pass of brightness updates over every shard, without
communication, and one update of theta given the bright rows. If these are few, every rank gets those of all, in row
order: one message a cycle. If they are many they stay in place, and each evaluation of the target is one exchange of
the shards' sums. Every rank then updates theta by itself. Both give the same bits, on any number of ranks.

If one coefficient affects many rows at once (a level of a predictor at which a class never occurs, say), these rows
must light up one by one before it can move, and z mixes slowly. So occasionally theta makes one step on all rows, with
z integrated out, and z is redrawn: an exact block update, which takes a small share of the time (`refresh`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from mpibayes.hpc.parallel import shards
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.reduce import shard_sum_everywhere
from mpibayes.hpc.parallel.streams import Purpose, generator, in_lane
from mpibayes.hpc.regression.firefly_settings import PROPOSED, Settings
from mpibayes.hpc.regression.likelihoods.likelihood import LANES
from mpibayes.hpc.regression.mode.fit import Fit, Quadratic, bound_statistics, fit
from mpibayes.hpc.regression.mode.laplace import predicted_bright, whitening
from mpibayes.hpc.regression.problem import Problem
from mpibayes.kernels import firefly as kernels

UPDATES = {"hmc": kernels.HMC, "mala": kernels.MALA, "random-walk": kernels.RANDOM_WALK, "slice": kernels.SLICE}
ALL_ROWS = 1  # random stream lane of the steps on all rows
FULL_STEP = 0.8  # initial step size of hmc on all rows
STEP, STEP_AVERAGE = 0, 1  # indices in `tuning`, see kernels.start_tuning
OUTPUTS = {  # outputs of `advance`, and the kernels' names for them
    "theta": "theta", "lp": "lp", "acceptance_rate": "acceptance", "step_size": "step_size", "n_bright": "bright",
    "queries_theta": "queries_theta", "queries_z": "queries_z",
}  # fmt: skip


class Firefly:
    """One chain. Every public method is collective."""

    def __init__(self, comm: Communicator, problem: Problem, settings: Settings, chain: int = 0):
        self.comm, self.problem, self.settings, self.chain = comm, problem, settings, chain
        self.cycles = 0
        self.theta = np.zeros(problem.n_parameters)  # on every rank
        self.tuning = kernels.start_tuning(1.0, 1.0)  # on every rank
        self.fitted: Fit | None = None
        self.full_tuning = kernels.start_tuning(1.0, 1.0)  # tuning of the steps on all rows
        self.predicted = float("nan")  # predicted number of bright rows

    @property
    def firefly(self) -> bool:
        """True if there are bounds; without them every row is evaluated."""
        return self.settings.firefly

    # --- how a chain starts -------------------------------------------------------------------------------------------

    def start(self, fitted: Fit | None = None) -> None:
        """Find the mode, unless given, and set the bounds, the first theta, and the brightness of every row."""
        s, p = self.settings, self.problem
        self.fitted = fitted or fit(self.comm, p.rows, p.n_shards, p.prior, likelihood=p.likelihood)
        self._prepare(self.fitted.theta, self.fitted.covariance)
        self.theta = self._first_theta()
        self.comm.broadcast(self.theta)
        if self.firefly:
            self.predicted = self._predict()
            for i, lights in self._lights:
                lights.draw(self.theta, s.seed, 0, self.chain, i)
        step = self._first_step() if s.step_size == "auto" else float(s.step_size)
        bright = self._count() if self.firefly else p.n_rows
        self.tuning = kernels.start_tuning(step, bright)
        self.full_tuning = kernels.start_tuning(FULL_STEP, p.n_rows)

    def _prepare(self, mode: np.ndarray, covariance: np.ndarray) -> None:
        """Set bounds, target and coordinates, which are functions of the mode and the covariance."""
        s, p, m = self.settings, self.problem, self.problem.likelihood
        self.mode, self.covariance = mode, covariance
        for _, rows in p.rows:
            if s.bounds == "tuned":
                rows.tune(mode)
            else:
                rows.untune((m.untuned_at or 0.0) if s.xi is None else s.xi)
        self._lights = [(i, kernels.Lights(rows)) for i, rows in p.rows] if self.firefly else []
        width, dealt = -(-m.n_predictors // LANES) * LANES, np.diff(self._starts)
        mine = [lights for _, lights in self._lights]
        self._bright = kernels.Messages(mine, dealt, width, m.n_bounds) if self.firefly else None
        self._quadratic = quadratic = bound_statistics(self.comm, p.rows, p.n_shards, mode)
        self.target = self._new_target(quadratic)
        if not self.firefly:
            self.target.load_full([rows for _, rows in p.rows])
        self.mover = kernels.Mover(UPDATES[s.theta_update], p.n_parameters, self._whitening() if s.whiten else None)
        self._on_all_rows: tuple[kernels.Target, kernels.Mover] | None = None
        if s.step_size != "auto":
            self.mover.goal = 0.0

    def _whitening(self) -> np.ndarray:
        """Root's, as processors that differ might round it otherwise."""
        w = whitening(self.covariance)
        self.comm.broadcast(w)
        return w

    def _new_target(self, quadratic: Quadratic) -> kernels.Target:
        m, prior = self.problem.likelihood, self.problem.prior
        return kernels.Target(
            m.code, m.n_predictors, m.n_classes, m.nu, m.scale, quadratic.theta0, quadratic.S, quadratic.A,
            quadratic.G, quadratic.c0, prior.numbers, prior.scale,
        )  # fmt: skip

    def _first_theta(self) -> np.ndarray:
        s, p = self.settings, self.problem
        stream = generator(s.seed, Purpose.START, 0, 0, self.chain)
        if s.init == "map":
            return self.mode.copy()
        if s.init == "prior":
            return p.prior.draw(stream)
        u = stream.standard_normal(p.n_parameters)
        return self.mode + s.wide * np.einsum("ij,j->i", whitening(self.covariance), u)

    def _first_step(self) -> float:
        """Initial step size: about what the theory for Gaussian targets advises; adapted later."""
        s, n = self.settings, self.problem.n_parameters
        size = 1.0 if s.whiten else float(np.exp(np.log(np.diagonal(self.covariance)).mean() / 2))
        return size * {"hmc": 0.5, "mala": n ** (-1 / 6), "random-walk": 2.38 / n**0.5, "slice": 2.0}[s.theta_update]

    def _predict(self) -> float:
        p = self.problem
        return predicted_bright(
            self.comm, p.rows, p.n_shards, self.fitted, quadratic=self._quadratic, likelihood=p.likelihood,
            seed=self.settings.seed,
        )  # fmt: skip

    def _count(self) -> int:
        counts = np.array([sum(lights.n_bright for _, lights in self._lights)], np.int64)
        self.comm.sum_everywhere(counts)
        return int(counts[0])

    # --- cycles -------------------------------------------------------------------------------------------------------

    def advance(self, n_cycles: int) -> dict[str, np.ndarray] | None:
        """Run `n_cycles` cycles; returns on root: theta (n, P), or softmax (n, K, D), lp, log_posterior,
        acceptance_rate, step_size float64 (n,), n_bright, queries_theta, queries_z int64 (n,)."""
        values = self._room(n_cycles)
        done, every = 0, self.posterior_every
        while done < n_cycles:
            refresh = self.refresh_every
            queries = self._refresh() if refresh and (self.cycles + 1) % refresh == 0 else 0
            n = n_cycles - done
            n = n if not every else min(n, every - self.cycles % every)
            n = n if not refresh else min(n, refresh - (self.cycles + 1) % refresh)
            n = n if self.cycles >= self.settings.burn_in else min(n, self.settings.burn_in - self.cycles)
            part = {name: array[done : done + n] for name, array in values.items()}
            (self._run if self.comm.size == 1 else self._run_together)(n, part)
            part["queries_theta"][0] += queries
            done += n
            if every and self.cycles % every == 0:
                value = self.log_posterior(self.theta)
                part["log_posterior"][-1] = value
        if not self.firefly:
            values["log_posterior"][:] = values["lp"]
        if self.comm.rank != 0:
            return None
        if (k := self.problem.likelihood.n_classes) > 1:
            values["theta"] = values["theta"].reshape(n_cycles, k, -1)
        return values

    def _room(self, n: int) -> dict[str, np.ndarray]:
        values = {name: np.zeros(n) for name in ("lp", "acceptance_rate", "step_size")}
        values |= {name: np.zeros(n, np.int64) for name in ("n_bright", "queries_theta", "queries_z")}
        return {"theta": np.zeros((n, self.problem.n_parameters)), **values, "log_posterior": np.full(n, np.nan)}

    @property
    def posterior_every(self) -> int:
        """Cycles between two sums over all rows; 0: none."""
        return self.settings.summed_every(self.problem.n_rows, self.predicted)

    @property
    def refresh_every(self) -> int:
        """Cycles between two steps on all rows; 0: none."""
        return self.settings.refreshed_every(self.problem, self.predicted, self.cycles)

    def _refresh(self) -> int:
        """Begin a cycle with a step of theta on all rows, z integrated out, and redraw z; returns the number of
        likelihoods evaluated."""
        s, p, cycle = self.settings, self.problem, self.cycles + 1
        adapting = cycle <= s.burn_in
        step = self.full_tuning[STEP if adapting else STEP_AVERAGE]
        if self._on_all_rows is None:
            target = self._new_target(self._quadratic)
            target.load_full([rows for _, rows in p.rows])
            same = s.theta_update == "hmc" and s.whiten
            mover = self.mover if same else kernels.Mover(kernels.HMC, p.n_parameters, self._whitening())
            self._on_all_rows = target, mover
        accept, looks = self._step_in_place(*self._on_all_rows, p.rows, step, cycle, in_lane(self.chain, ALL_ROWS))
        if adapting:
            kernels.adapt(self.full_tuning, accept, p.n_rows, kernels.GOALS[kernels.HMC])
        for i, lights in self._lights:
            lights.draw(self.theta, s.seed, cycle, self.chain, i)
        return (looks + 1) * p.n_rows

    @property
    def _q_factor(self) -> float:
        """Factor of q for the kernels: q M / N, or minus a fixed q."""
        return PROPOSED if self.settings.q == "auto" else -float(self.settings.q)

    def _run(self, n: int, out: dict[str, np.ndarray]) -> None:
        """Run cycles on the only rank, without returning to Python in between."""
        s = self.settings
        kernels.cycles(
            [lights for _, lights in self._lights], self.target, self.mover, self.theta, self.tuning, self._q_factor,
            s.z_update == "explicit", s.leapfrog_steps, s.seed, self.cycles + 1, self.chain, n, s.burn_in,
            {inner: out[name] for name, inner in OUTPUTS.items()},
        )  # fmt: skip
        self.cycles += n

    def _run_together(self, n: int, out: dict[str, np.ndarray]) -> None:
        """Run cycles on several ranks."""
        s, p = self.settings, self.problem
        kernels.cycles_on_ranks(
            [lights for _, lights in self._lights], self._bright, self._starts[self.comm.rank], self.comm.exchange,
            self._move_in_place, self.target, self.mover, self.theta, self.tuning, self._q_factor,
            s.z_update == "explicit", s.leapfrog_steps, s.seed, self.cycles + 1, self.chain, n, s.burn_in, p.n_rows,
            s.gather_limit, {inner: out[name] for name, inner in OUTPUTS.items()},
        )  # fmt: skip
        self.cycles += n

    @cached_property
    def _starts(self) -> np.ndarray:
        """First shard of each rank, and the end."""
        n_shards, n_ranks = self.problem.n_shards, self.comm.size
        return np.array([*(shards.of_rank(n_shards, n_ranks, rank).start for rank in range(n_ranks)), n_shards])

    def _move_in_place(self, step: float, cycle: int) -> tuple[float, int]:
        """Update theta without moving the bright rows, or without bounds all rows."""
        sources = self._lights or self.problem.rows
        outcome = self._step_in_place(self.target, self.mover, sources, step, cycle, self.chain)
        for _, lights in self._lights:
            lights.refresh(self.theta)
        return outcome

    def _step_in_place(self, target, mover, sources, step: float, cycle: int, chain: int) -> tuple[float, int]:
        """Update theta, as every rank does, on rows that stay in place; ranks exchange sums over them.

        sources: (shard number, Lights or Rows) of this rank. Returns acceptance probability and evaluations.
        """
        s = self.settings
        if self.comm.size > 1 or sources is not self.problem.rows:  # else the target already has the rows
            target.remote = lambda theta, gradient: self._sum(target, sources, theta, gradient)
        outcome = mover.step(target, self.theta, step, s.leapfrog_steps, s.seed, cycle, chain)
        target.remote = None
        return outcome

    def _sum(self, target, sources, theta: np.ndarray, gradient: np.ndarray | None) -> float:
        """Sum of log L~ or log L over the rows of all shards, in shard order, on every rank."""
        starts = self._starts
        parts = np.zeros((int(starts[-1]), 1 if gradient is None else 1 + len(theta)))
        for row, (_, source) in enumerate(sources, start=starts[self.comm.rank]):
            slope = None if gradient is None else np.zeros(len(theta))
            parts[row, 0] = target.partial(source, theta, slope)
            if slope is not None:
                parts[row, 1:] = slope
        self.comm.share_rows(parts, starts)
        total = parts[0].copy()
        for part in parts[1:]:
            total += part
        if gradient is not None:
            gradient[:] = total[1:]
        return float(total[0])

    def log_posterior(self, theta: np.ndarray) -> float:
        """Log likelihood of all rows plus log prior, normalised; on every rank."""
        p = self.problem
        parts = [np.array([rows.log_likelihood(theta)]) for _, rows in p.rows]
        total = shard_sum_everywhere(self.comm, parts, (1,), p.n_shards)
        return float(total[0] + p.prior.log_density(theta))

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[int, dict[str, np.ndarray]], dict[str, Any]]:
        """Return the bright rows of each shard; theta, the adapted tuning, and the mode where the bounds touch."""
        bright = dict(self._lights)
        dark = np.zeros(0, np.int32)
        mine = {i: {"bright": bright[i].bright if self.firefly else dark} for i, _ in self.problem.rows}
        shared = {
            "theta": self.theta, "tuning": self.tuning, "full_tuning": self.full_tuning, "mode": self.mode,
            "covariance": self.covariance, "predicted": self.predicted,
        }  # fmt: skip
        return mine, shared

    def restore(self, cycles: int, shared: Mapping[str, Any], mine: Mapping[int, Mapping[str, np.ndarray]]) -> None:
        """Continue after `cycles` cycles."""
        self._prepare(shared["mode"], shared["covariance"])
        self.theta, self.tuning = shared["theta"].copy(), shared["tuning"].copy()
        self.full_tuning = shared["full_tuning"].copy()
        self.predicted, self.cycles = float(shared["predicted"]), cycles
        for i, lights in self._lights:
            lights.set_bright(mine[i]["bright"])
            lights.refresh(self.theta)
