"""Regressions under the run loop: their settings from a configuration, and a Firefly chain."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mpibayes.errors import DataError
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.data.rows import Data, digest
from mpibayes.hpc.family import Info
from mpibayes.hpc.parallel import shards
from mpibayes.hpc.parallel.agreement import agree, on_root
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.regression import keys
from mpibayes.hpc.regression.design import Built, Design
from mpibayes.hpc.regression.firefly import Firefly
from mpibayes.hpc.regression.firefly_settings import Settings as FireflySettings
from mpibayes.hpc.regression.forecast import in_words
from mpibayes.hpc.regression.mode.choice import Choice, choose
from mpibayes.hpc.regression.mode.identifiable import check_training
from mpibayes.hpc.regression.problem import Problem
from mpibayes.hpc.regression.scalars import QUERIES, SCALARS
from mpibayes.hpc.regression.settings import Settings
from mpibayes.hpc.run import directory as run_directory
from mpibayes.io.files import Guard
from mpibayes.io.finished import Finished
from mpibayes.io.rows import SLICE_BYTES, SLICE_ROWS, Rows

BATCH_S = 0.05  # approximate length of a batch of cycles, between which the run checks signals and the clock
MOST = 100_000  # most cycles of a batch
MOST_PROBLEMS = 30  # most problems listed for one shard's rows
ROWS_A_SHARD, MOST_SHARDS = 1_000_000, 8


def default_shards(n_rows: int) -> int:
    """Few shards: a cycle looks at few rows, and every shard costs it about 2 us; ranks beyond their number have no
    rows."""
    return int(np.clip(round(n_rows / ROWS_A_SHARD), 1, MOST_SHARDS))


def slice_rows(design: Design) -> int:
    """Rows read at a time: at most SLICE_BYTES of predictors."""
    return max(1, min(SLICE_ROWS, SLICE_BYTES // (4 * design.width)))


def settings_of(config: Config) -> Settings:
    """Settings of the model: response, predictors, likelihood and prior."""
    r = config.of(keys.Regression)
    return Settings(
        likelihood=config.of(keys.Model).likelihood,
        response=r.response,
        predictors=None if r.predictors == "all" else r.predictors,
        standardise=r.standardise,
        intercept=r.intercept,
        missing=r.missing,
        prior=r.prior,
        prior_scale=r.prior_scale,
        intercept_scale=r.intercept_scale,
        degrees_of_freedom=r.degrees_of_freedom,
        scale=r.scale,
    )


def firefly_settings(config: Config, number: int = 0) -> FireflySettings:
    """Settings of the sampler. number: the chain's, from 0."""
    f, output = config.of(keys.Firefly), config.of(keys.Output)
    every, thin = output.log_posterior, output.thin
    return FireflySettings(
        seed=config.run.seed, bounds=f.bounds, theta_update=f.theta_update, z_update=f.z_update, q=f.q,
        xi=None if f.xi == "auto" else f.xi, whiten=f.whiten, step_size=f.step_size, leapfrog_steps=f.leapfrog_steps,
        init=f.init, burn_in=config.burn_in, posterior_every=None if every == "auto" else -(-every // thin) * thin,
        refresh=None if f.refresh == "auto" else f.refresh, wide=1.0 if number == 0 else 2.0, thin=thin,
    )  # fmt: skip


def axes_of(design: Design) -> dict[str, dict[str, list[str]]]:
    """Axes of theta in the trace."""
    classes = {"class": list(design.classes)} if design.n_classes > 1 else {}
    return {"theta": {**classes, "coefficient": list(design.names)}}


class Family:
    """See `hpc.family.Family`. The mode and the scales to choose are found once, for all chains."""

    shares_cycles = False  # cycles look at few rows, and wait for messages

    def __init__(self, comm: Communicator, config: Config, data: Data):
        self.comm, self.data, self._config = comm, data, config
        self.settings = settings_of(config)
        self.design: Design = on_root(comm, lambda: Design.of(self.settings, data.columns))
        self.warnings: list[str] = []
        self.heldout_file: Rows | None = None
        self._choice: Choice | None = None

    default_shards = staticmethod(default_shards)

    @staticmethod
    def cycle_s(n_cells: int) -> float:
        return 1e-4  # a cycle looks at few rows, whatever their number

    @staticmethod
    def decided(config: Config, n_training: int) -> dict[str, dict[str, Any]]:
        n_shards = shards.count(config.run.shards, n_training, default_shards)
        return {"run": {"shards": n_shards, "burn_in": config.burn_in}}

    @staticmethod
    def grown(config: Config) -> Config:
        return config

    def read_files(self, places: Sequence[Path], fresh: bool) -> dict[str, Any]:
        comm, config, data = self.comm, self._config, self.data
        if config.heldout_path is not None:
            self.heldout_file, message = data.read_heldout_file(comm, config.heldout_path, config.data.unseen)
            self.warnings += [message] if message else []
        return {"heldout": None if self.heldout_file is None else digest(self.heldout_file)}

    def load(self, places: Sequence[Path], fresh: bool) -> None:
        given, n_shards = self._config.run.shards, self.decided(self._config, self.data.n_rows)["run"]["shards"]
        self.problem = self.problem_of(given if isinstance(given, tuple) else n_shards)
        p = self.problem
        self.warnings += check_training(self.comm, self.design, p.rows, n_shards, bool(p.prior.flat.any()))
        if fresh or on_root(self.comm, lambda: run_directory.lacks_checkpoint(places)):
            self.choice()

    def problem_of(self, given: shards.Setting) -> Problem:
        """Rows and prior of the regression, with a first guess for scales still to be chosen. Collective."""
        s, design, data = self.settings, self.design, self.data
        return Problem(
            self.comm, s.likelihood, self._training, data.n_rows, given, n_predictors=design.n_predictors,
            n_classes=design.n_classes, prior=s.prior, prior_scale=2.5 if s.prior_scale == "heldout" else s.prior_scale,
            intercept_scale=s.intercept_scale if s.intercept else None,
            nu=s.degrees_of_freedom, scale=1.0 if isinstance(s.scale, str) else s.scale,
        )  # fmt: skip

    def _training(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (x, y) of training rows start..stop-1, read in slices so that the table's cells take little room."""
        design, data = self.design, self.data
        x, y = np.empty((stop - start, design.width), np.float32), np.empty(stop - start)
        n, errors = 0, []
        step = slice_rows(design)
        for first in range(start, stop, step):
            last = min(first + step, stop)
            numbers = first if data.training_rows is None else data.training_rows[first:last]
            try:
                built = design.build(data.rows_of(first, last), numbers)
            except DataError as error:
                errors.append(error)
                continue
            here = slice(n, n + len(built.y))
            x[here], y[here], n = built.x, built.y, here.stop
        if errors:
            raise DataError(errors[0].message, [p for error in errors for p in error.problems][:MOST_PROBLEMS])
        return (x, y) if n == len(y) else (x[:n].copy(), y[:n].copy())

    def choice(self) -> Choice:
        """Scales, and the mode under them; found on first use. Collective."""
        if self._choice is None:
            self._choice = choose(self.comm, self.settings, self.problem, self._heldout(), self.design.names)
        return self._choice

    def _heldout(self) -> list[tuple[int, Any]]:
        """Blocks of this rank's held-out rows, as (number, x, y)."""
        if self._config.heldout_path is None and self.data.heldout is None:
            return []
        held, n = self.data.heldout, self.problem.n_shards
        blocks = self.data.heldout_blocks(self.comm, n, self.heldout_file)
        cut = shards.bounds(blocks.n_rows, n)

        def build() -> dict[int, Built]:
            numbers = {i: cut[i] if held is None else held[cut[i] : cut[i + 1]] for i in blocks.blocks}
            try:
                return {i: self.design.build(rows, numbers[i]) for i, rows in blocks.blocks.items()}
            except DataError as error:
                raise DataError(f"held-out rows: {error.message}", error.problems) from None

        return [(i, b.x, b.y) for i, b in agree(self.comm, build, "read its held-out rows").items()]

    def chain(self, config: Config, number: int) -> RegressionChain:
        return RegressionChain(self, config, number)


class RegressionChain:
    """See `hpc.family.Chain`: a Firefly chain, in batches of cycles."""

    scalars = SCALARS
    growing = False

    def __init__(self, family: Family, config: Config, number: int):
        self.comm, self.config, self.family = family.comm, config, family
        self.axes = axes_of(family.design)
        self.start_record: Mapping[str, Any] = {}
        self.firefly = Firefly(family.comm, family.problem, firefly_settings(config, number), number)
        self._batch = 1  # cycles; root's counts
        self._passed = dict.fromkeys(QUERIES, 0)  # queries of cycles since the last one that the trace keeps

    @property
    def n_rows(self) -> int:
        return self.firefly.problem.n_rows

    @property
    def n_shards(self) -> int:
        return self.firefly.problem.n_shards

    @property
    def cycles(self) -> int:
        return self.firefly.cycles

    @property
    def shards(self) -> list[int]:
        return [i for i, _ in self.firefly.problem.rows]

    def start_from(self, place: Path, finished: Finished | None = None) -> None:
        """Start at the mode of all rows, as any chain does: coefficients for other rows are in other units, and would
        not get there faster."""
        self.start()

    def start(self, finished: Finished | None = None) -> None:
        self.firefly.start(self.family.choice().fit)

    def advance(self, word: Sequence[int], limit: int) -> Info:
        """Run a batch of cycles, as many as root expects to take BATCH_S."""
        first, began = self.cycles + 1, time.perf_counter()
        news = np.array([*word, self._batch if self.comm.rank == 0 else 0], np.int64)
        self.comm.sum_everywhere(news)
        n = min(int(news[-1]), limit)
        values = self.firefly.advance(n)
        self._batch = int(np.clip(n * BATCH_S / max(time.perf_counter() - began, 1e-6), 1, min(MOST, 4 * n)))
        if values is not None:
            self._gather_queries(range(first, first + n), values)
        info = Info(range(first, first + n), news[:-1].tolist(), values or {})
        if values is not None and not np.isfinite(values["lp"]).all():
            info.problem = "log p(theta, z) is not a finite number"
        return info

    def _gather_queries(self, cycles: range, values: dict[str, np.ndarray]) -> None:
        """Add the queries of cycles that the trace leaves out to the next cycle that it keeps."""
        kept = np.flatnonzero(np.arange(cycles.start, cycles.stop) % self.config.output.thin == 0)
        for name in QUERIES:
            total = self._passed[name] + np.cumsum(values[name])
            values[name][kept] = np.diff(total[kept], prepend=0)
            self._passed[name] = int(total[-1] - (total[kept[-1]] if len(kept) else 0))

    def state(self) -> tuple[dict[int, dict[str, np.ndarray]], dict[str, Any]]:
        mine, shared = self.firefly.state()
        p = self.firefly.problem
        return mine, shared | {"prior_scale": p.prior.scale, "scale": p.likelihood.scale, "passed": self._passed}

    def restore(self, shared: Mapping[str, Any], shards: Mapping[int, Mapping[str, np.ndarray]]) -> None:
        p = self.firefly.problem
        p.rescaled(replace(p.prior, scale=shared["prior_scale"]), float(shared["scale"]))
        self.firefly.restore(int(shared["cycles"]), shared, shards)
        self._passed = dict(shared["passed"])

    def draws(self, folder: Path, run: str, guard: Guard) -> None:
        return None

    def in_words(self) -> list[str]:
        f, config = self.firefly, self.config
        lines = [f"warning: {w}" for w in self.family.warnings]
        if self.cycles:
            lines.append(f"continues from cycle {self.cycles}")
        else:
            lines += in_words(self.family.design, f, self.family.choice())
        if self.cycles <= config.burn_in:
            last = config.run.cycles
            counts = f"draws count from cycle {config.burn_in + 1} of {last}, after adaptation"
            lines.append(
                counts if config.burn_in < last else f"no draws count: run.burn_in = {config.burn_in} of {last}"
            )
        return lines
