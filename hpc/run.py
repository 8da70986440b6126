"""`mpibayes run`: start or continue the chains of a run directory, until they are long enough or it is time to stop.

The loop is: a cycle, its scores, what is kept of it, and at times a checkpoint. Everything that depends on time, files
or signals is decided on root and agreed on by all ranks between two cycles.
"""

from __future__ import annotations

import os
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mpibayes.hpc import config as configuration
from mpibayes.hpc import run_directory, status
from mpibayes.hpc.clock import Clock
from mpibayes.hpc.comm import Communicator, agree, on_root, world
from mpibayes.hpc.config import Config
from mpibayes.hpc.data import Data
from mpibayes.hpc.errors import EXIT_STOPPED, ConfigError, MpibayesError, NumericalError
from mpibayes.hpc.heldout import HeldOut
from mpibayes.hpc.log import Progress
from mpibayes.hpc.mixture import Info, Mixture, Settings
from mpibayes.hpc.models.components import Hyper
from mpibayes.io import checkpoint
from mpibayes.io.labels import DrawWriter
from mpibayes.io.table import Table
from mpibayes.io.trace import TraceWriter, merge

SCALARS = (
    "log_joint", "n_clusters", "concentration", "discount", "entropy", "heldout_lpd", "heldout_lpd_averaged",
    "moved_fraction", "seconds",
)  # fmt: skip
STATUS_EVERY_S = 10.0


def main(
    config_path: str | Path,
    out: str | Path | None = None,
    overrides: Sequence[str] = (),
    max_time_s: float | None = None,
    fresh: bool = False,
) -> int:
    """Run on all processes that the launcher started. The exit code of this rank: root's tells, the others return 0.

    Errors that all ranks know end the program normally with the error's code; anything else ends the whole job.
    """
    comm = None
    try:
        comm = world()
        clock = Clock(max_time_s)
        clock.watch_signals()
        code = _run(comm, clock, Path(config_path), out, overrides, fresh)
    except MpibayesError as error:
        if comm is None or comm.rank == 0:
            print(f"mpibayes: error: {error}", file=sys.stderr, flush=True)
        code = error.exit_code
        if comm is not None and not comm.wait_for_all(10.0):  # the others do not know: do not leave them waiting
            print(f"mpibayes: error on rank {comm.rank}: {error}", file=sys.stderr, flush=True)
            comm.abort(code)
    except BaseException:
        place = f" on rank {comm.rank} of {socket.gethostname()}" if comm is not None and comm.size > 1 else ""
        print(f"mpibayes: internal error{place}; the job ends here", file=sys.stderr)
        traceback.print_exc()
        if comm is None:
            return 70
        comm.abort(70)
    return code if comm is None or comm.rank == 0 else 0


def _run(comm: Communicator, clock: Clock, config_path: Path, out, overrides, fresh: bool) -> int:
    config: Config = on_root(comm, lambda: configuration.load(config_path, overrides))
    if clock.max_time_s is None:
        clock.max_time_s = config.run.max_time
    table: Table = on_root(comm, lambda: Table.open(config.table))
    on_root(comm, lambda: configuration.check_columns(config, table.columns))
    folder = Path(out) if out is not None else Path("runs") / config_path.stem
    data = Data(table, config.unused, config.heldout_fraction, config.run.seed)
    config = on_root(comm, lambda: run_directory.open_run(folder, config, table, data.n_rows, fresh))
    heldout_file = None
    if config.heldout_path is not None:
        heldout_file = data.read_heldout_file(comm, config.heldout_path, config.data.unseen)
    hosts = comm.collect(socket.gethostname())
    on_root(comm, lambda: run_directory.record_start(folder, hosts))
    for number in range(config.run.chains):
        place = folder if config.run.chains == 1 else folder / f"chain-{number + 1}"
        chain = Chain(comm, clock, config, data, heldout_file, place, number)
        if not chain.run():
            return EXIT_STOPPED
    return 0


def settings_of(config: Config) -> Settings:
    """What the sampler needs of a configuration in which "auto" has been decided."""
    concentration = config.model.concentration
    return Settings(
        seed=config.run.seed,
        shards=config.run.shards,
        concentration=concentration if isinstance(concentration, str | float) else {"gamma": concentration.gamma},
        discount=config.model.discount,
        sweeps_per_cycle=config.sampler.sweeps_per_cycle,
        opening=config.sampler.opening,
        likelihood=config.model.likelihood,
        priors=config.priors,
        hyper_every=config.sampler.hyper_every,
    )


class Chain:
    """One chain and its directory, on all ranks. Writers and progress exist on root alone."""

    def __init__(self, comm, clock: Clock, config: Config, data: Data, heldout_file, folder: Path, number: int):
        self.comm, self.clock, self.config, self.data, self.folder = comm, clock, config, data, folder
        self.mixture: Mixture = agree(
            comm, lambda: Mixture(comm, data.columns, data.rows_of, data.n_rows, settings_of(config), number)
        )
        self.heldout = None
        if config.data.heldout is not None and config.model.likelihood:
            blocks = data.heldout_blocks(comm, self.mixture.n_shards, heldout_file)
            self.heldout = HeldOut(comm, blocks)
        self.trace = self.draws = self.progress = None
        self._last_checkpoint = self._last_status = clock.elapsed()
        self._saved_cycle = -1

    def run(self) -> bool:
        """Start or continue; whether the chain reached its full length."""
        comm, clock, mixture, cycles = self.comm, self.clock, self.mixture, self.config.run.cycles
        self._resume_or_start()
        if mixture.cycles >= cycles:
            on_root(comm, lambda: self.progress.note(f"{self.folder}: already has its {mixture.cycles} cycles; raise run.cycles to extend it"))
            on_root(comm, lambda: self.progress.close())
            return True
        stop = False
        while mixture.cycles < cycles and not stop:
            started = time.perf_counter()
            info = mixture.cycle()
            values = self._keep(info, started)
            stop, save = self._decide(info, values)
            if save or stop or mixture.cycles == cycles:
                self._checkpoint()
        finished = mixture.cycles >= cycles
        on_root(comm, lambda: self._close(finished, values))
        return finished

    # --- one cycle's output ------------------------------------------------------------------------------------------

    def _keep(self, info: Info, started: float) -> dict[str, float]:
        """Scores of the new state, and what is kept of it."""
        comm, output = self.comm, self.config.output
        lpd = averaged = np.nan
        thinned = info.cycle % output.thin == 0
        if self.heldout is not None and thinned:
            lpd, averaged = self.heldout.score(self.mixture, average=info.cycle > self.config.burn_in)
        labels = self.mixture.labels() if info.cycle % output.labels == 0 else None
        seconds = time.perf_counter() - started
        self.clock.cycle_took(seconds)
        values = {**vars(info), "heldout_lpd": lpd, "heldout_lpd_averaged": averaged, "seconds": seconds}
        if comm.rank == 0:
            if thinned:
                self.trace.append(info.cycle, {name: values[name] for name in SCALARS})
            if labels is not None:
                self.draws.append(info.cycle, labels, **vars(self.mixture.hyper))
            self.progress.update(values)
        return values

    def _decide(self, info: Info, values) -> tuple[bool, bool]:
        """Whether to stop and whether to write a checkpoint; the same on all ranks."""
        clock = self.clock
        failed = self.comm.rank == 0 and not np.isfinite(info.log_joint)
        due = clock.elapsed() - self._last_checkpoint > 60.0 * self.config.run.checkpoint_minutes
        flags = np.array([clock.signalled is not None, False, False, failed], np.int64)
        if self.comm.rank == 0:
            flags[1:3] = clock.out_of_time(), due
            if clock.elapsed() - self._last_status > STATUS_EVERY_S:
                self._write_status("running", values)
        self.comm.max_everywhere(flags)
        if flags[3]:
            raise NumericalError(
                f"cycle {info.cycle}: the log joint probability is not a finite number; the last checkpoint is of cycle {self._saved_cycle}"
            )
        return bool(flags[:2].any()), bool(flags[2])

    def _write_status(self, state: str, values: dict[str, float] | None = None, message: str = "") -> None:
        self._last_status = self.clock.elapsed()
        status.write_status(self.folder, self.progress.status(values) | {
            "state": state, "last_checkpoint": self._saved_cycle, "ranks": self.comm.size, "shards": self.mixture.n_shards,
            "host": socket.gethostname(), "pid": os.getpid(), "message": message,
        })  # fmt: skip

    def _close(self, finished: bool, values) -> None:
        merge(self.folder)
        reason = self.clock.signalled or "time limit"
        message = "" if finished else f"stopped early ({reason}) at the checkpoint of cycle {self._saved_cycle}; run the same command to continue"
        self._write_status("finished" if finished else "stopped", values, message)
        self.progress.note(message or f"finished {self.mixture.cycles} cycles; look at them: mpibayes report {self.folder}")
        self.progress.close()

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def _checkpoint(self) -> None:
        """Trace and draws first, then the generation that they belong to. All ranks know whether it worked."""
        comm, mixture, started = self.comm, self.mixture, time.monotonic()
        place, cycle = self.folder / "checkpoints", mixture.cycles

        def prepare():
            self.trace.flush()
            self.draws.flush()
            checkpoint.begin(place, cycle)

        on_root(comm, prepare, share=False)
        shards = {shard.index: {"z": shard.z} for shard in mixture.shards}
        if self.heldout is not None:
            for i in shards:
                shards[i]["heldout_log_sum"] = self.heldout.log_sums[i]
        first = min(shards, default=0)
        part = agree(comm, lambda: checkpoint.write_part(place, cycle, first, shards))
        parts = comm.collect(part)
        shared = {
            "cycles": cycle,
            "n_labels": mixture.n_labels,
            "heldout_draws": self.heldout.n_draws if self.heldout is not None else 0,
            **vars(mixture.hyper),
        }
        on_root(comm, lambda: checkpoint.commit(place, cycle, parts, shared), share=False)
        self._saved_cycle = cycle
        self._last_checkpoint = self.clock.elapsed()
        self.clock.checkpoint_took(time.monotonic() - started)

    def _resume_or_start(self) -> None:
        comm, config, mixture = self.comm, self.config, self.mixture
        found = self._newest_checkpoint()
        cycle = 0
        if found is not None:
            shared = found.shared()
            cycle = int(shared["cycles"])
            mine = {shard.index: found.shard(shard.index) for shard in mixture.shards}
            hyper = Hyper(*(shared[name] for name in ("concentration", "discount", "dirichlet", "normal", "gamma")))
            mixture.resume(cycle, lambda i: mine[i]["z"], int(shared["n_labels"]), hyper)
            if self.heldout is not None:
                self.heldout.n_draws = int(shared["heldout_draws"])
                self.heldout.log_sums = {i: arrays["heldout_log_sum"] for i, arrays in mine.items()}
            self._saved_cycle = cycle
        else:
            self._start()

        def open_writers():
            self.folder.mkdir(parents=True, exist_ok=True)
            run_directory.write_training_rows(self.folder, self.data.training_rows)
            self.trace, self.draws = TraceWriter(self.folder, SCALARS), DrawWriter(self.folder)
            self.trace.truncate(cycle)
            self.draws.truncate(cycle)
            self.progress = Progress(self.folder, cycle, config.run.cycles, mixture.n_rows)
            for warning in found.warnings if found is not None else ():
                self.progress.note(f"warning: {warning}; continuing from cycle {cycle}")
            if comm.size > mixture.n_shards:
                self.progress.note(
                    f"warning: {comm.size} ranks, but {mixture.n_shards} shards: {comm.size - mixture.n_shards} ranks have nothing to do (run.shards)"
                )
            self._write_status("running")

        on_root(comm, open_writers, share=False)

    def _newest_checkpoint(self) -> checkpoint.Generation | None:
        """The newest generation that every rank finds whole."""
        comm = self.comm
        found = on_root(comm, lambda: checkpoint.latest(self.folder / "checkpoints", deep=False))
        while found is not None:
            problems = [p for shard in self.mixture.shards if (p := found.verify_part(shard.index))]
            everyone = [p for some in comm.collect(problems) for p in some]
            if not everyone:
                return found
            damaged = found
            found = on_root(comm, lambda: checkpoint.previous(damaged, everyone))
        return None

    def _start(self) -> None:
        sampler = self.config.sampler
        how: str | np.ndarray = sampler.init
        if how == "labels":
            path = self.config.init_labels_path
            how = on_root(self.comm, lambda: run_directory.initial_labels(path))
            if len(how) != self.mixture.n_rows:
                raise ConfigError(f"sampler.init_labels: {path} has {len(how)} labels, expected {self.mixture.n_rows}, one a training row")
        self.mixture.start(how, sampler.init_clusters)
