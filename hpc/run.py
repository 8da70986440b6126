"""`mpibayes run`: start or continue the chains of a run directory, until they are long enough or it is time to stop.

The loop is: a cycle, its scores, what is kept of it, and at times a checkpoint. Everything that depends on time, files
or signals is decided on root and agreed on by all ranks between two cycles.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mpibayes.hpc import config as configuration
from mpibayes.hpc import resume, run_directory, status, strata, strategy, waiting
from mpibayes.hpc.clock import Clock
from mpibayes.hpc.comm import Communicator, end_job, names, on_root, world
from mpibayes.hpc.config import Config
from mpibayes.hpc.data import Data, digest
from mpibayes.hpc.errors import EXIT_STOPPED, MpibayesError, NumericalError
from mpibayes.hpc.heldout import HeldOut
from mpibayes.hpc.launcher import launcher_rank, launcher_size
from mpibayes.hpc.lock import Lock, job, restarts
from mpibayes.hpc.log import Progress
from mpibayes.hpc.mixture import Info, Mixture, Settings
from mpibayes.hpc.waiting import announce
from mpibayes.io.labels import DrawWriter
from mpibayes.io.table import Table
from mpibayes.io.trace import SCALARS, TraceWriter, merge

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
        clock = Clock(max_time_s)
        clock.watch_signals()  # first: Ctrl-C while the MPI library starts is a wish to stop, no internal error
        comm = world()
        code = _run(comm, clock, Path(config_path), out, overrides, fresh)
    except MpibayesError as error:
        code = error.exit_code
        if comm is None:
            if launcher_rank() > 0:  # of copies that do not find each other one speaks: its end is the others' too
                time.sleep(3.0)
            print(f"mpibayes: error: {error}", file=sys.stderr, flush=True)
            return code
        if comm.rank == 0:
            print(f"mpibayes: error: {error}", file=sys.stderr, flush=True)
        # others may not know: do not leave them waiting, nor speak where root does
        if not comm.wait_for_all(60.0 if error.shared else 5.0):
            if comm.rank != 0:
                print(f"mpibayes: error: {names(comm, [comm.rank])}: {error}", file=sys.stderr, flush=True)
            comm.abort(code)
    except BaseException as error:
        _tell_internal(comm, error, run_folder(out, config_path))
        if comm is None:
            return end_job(70)
        comm.abort(70)
    if comm is not None and comm.size > 1:
        clock.leave()
    return code if comm is None or comm.rank == 0 else 0


def run_folder(out: str | Path | None, config_path: str | Path) -> Path:
    """The run directory: as named, or after the configuration."""
    return Path(out) if out is not None else Path("runs") / Path(config_path).stem


def _tell_internal(comm: Communicator | None, error: BaseException, folder: Path) -> None:
    """One line that says where and what; then the traceback, unless memory is short. A rank's own log keeps both."""
    size, rank = (launcher_size(), launcher_rank()) if comm is None else (comm.size, comm.rank)
    place = f"rank {rank} ({socket.gethostname()}): " if size > 1 else ""
    what = "out of memory" if isinstance(error, MemoryError) else f"internal error: {type(error).__name__}: {error}"
    line = f"mpibayes: error: {place}{what}; the whole job ends here"
    print(line, file=sys.stderr, flush=True)
    if isinstance(error, MemoryError):
        return
    traceback.print_exception(error)
    with contextlib.suppress(OSError), (folder / "logs" / f"rank-{rank:05d}.log").open("a") as file:
        print(time.strftime("%Y-%m-%dT%H:%M:%S"), line, file=file)
        traceback.print_exception(error, file=file)


def _run(comm: Communicator, clock: Clock, config_path: Path, out, overrides, fresh: bool) -> int:
    config: Config = on_root(comm, lambda: configuration.load(config_path, overrides), what=f"read {config_path}")
    if clock.max_time_s is None:
        clock.max_time_s = config.run.max_time
    if comm.rank == 0:
        clock.watch_job()
    table: Table = on_root(comm, lambda: Table.open(config.table), what=f"open {config.table}")
    on_root(comm, lambda: configuration.check_columns(config, table.columns, table.n_rows))
    folder = run_folder(out, config_path)
    data = Data(table, config.unused, config.heldout_fraction)
    # all that can be wrong with the input is found before the run directory is made
    on_root(comm, lambda: strategy.check_length(config, data.n_rows))
    labels = heldout_file = None
    places = run_directory.chain_places(folder, config.run.chains)
    if config.sampler.init == "labels" and (fresh or on_root(comm, lambda: run_directory.lacks_checkpoint(places))):
        labels = on_root(comm, lambda: run_directory.initial_labels(config.init_labels_path, data.n_rows))
    if config.heldout_path is not None:
        heldout_file, message = data.read_heldout_file(comm, config.heldout_path, config.data.unseen)
        if message:
            print(f"warning: {message}", flush=True)
    content = {"fingerprint": table.fingerprint, "heldout": None if heldout_file is None else digest(heldout_file)}
    lock = Lock()
    try:
        config = on_root(
            comm,
            lambda: run_directory.open_run(folder, config, table, content, data.n_rows, fresh, lock),
            what=f"open {folder}",
        )
        hosts = comm.collect(socket.gethostname())
        on_root(comm, lambda: run_directory.record_start(folder, hosts))
        for number, place in enumerate(places):
            if number and any(comm.collect(clock.stop_reason() is not None)):
                return EXIT_STOPPED
            chain = Chain(comm, clock, lock, config, data, heldout_file, labels, place, number)
            if not chain.run():
                return EXIT_STOPPED
        return 0
    finally:
        lock.release()


def settings_of(config: Config, n_rows: int) -> Settings:
    """What the sampler needs of a configuration in which "auto" has been decided. n_rows: training rows."""
    moves = config.sampler.split_merge
    return Settings(
        seed=config.run.seed,
        shards=config.run.shards,
        concentration=config.concentration,
        discount=config.model.discount,
        sweeps_per_cycle=config.sampler.sweeps_per_cycle,
        opening=config.sampler.opening,
        likelihood=config.model.likelihood,
        priors=config.priors,
        hyper_every=config.sampler.hyper_every,
        split_merge=None if moves == "auto" else moves,
        annealing=strategy.annealing(config, n_rows),
    )


class Chain:
    """One chain and its directory, on all ranks. Writers and progress exist on root alone."""

    def __init__(
        self, comm, clock: Clock, lock: Lock, config: Config, data: Data, heldout_file, labels, folder: Path, number
    ):  # fmt: skip
        self.comm, self.clock, self.config, self.data, self.folder = comm, clock, config, data, folder
        self.lock = lock
        self.number, self._initial_labels = number, labels
        settings = settings_of(config, data.n_rows)
        strata_of = None
        if settings.annealing is not None:
            strata_of = strata.chosen(comm, data, settings, config.anneal.strata, number)
        self.mixture = Mixture(comm, data.columns, data.rows_of, data.n_rows, settings, number, strata_of)
        self.heldout = None
        if (data.heldout is not None or config.heldout_path is not None) and config.model.likelihood:
            blocks = data.heldout_blocks(comm, self.mixture.n_shards, heldout_file)
            self.heldout = HeldOut(comm, blocks)
        self.trace = self.draws = self.progress = None
        self._before: dict | None = None  # how the start before this one ended
        self._last_checkpoint = self._last_status = clock.elapsed()
        self._saved_cycle = 0
        self._failure: MpibayesError | None = None  # on root: what went wrong since the ranks last agreed

    def run(self) -> bool:
        """Start or continue; whether the chain reached its full length."""
        self._resume_or_start()
        if self.mixture.cycles >= self.config.run.cycles:
            on_root(self.comm, self._nothing_to_do)
            return True
        try:
            finished = self._cycles()
            on_root(self.comm, lambda: self._close(finished), what="write trace.h5 and the last status")
        except MpibayesError as error:
            if self.comm.rank == 0:
                self._write_status("failed", message=error.message)
                self.progress.close()
            raise
        return finished

    def _nothing_to_do(self) -> None:
        done = self.mixture.cycles
        self.progress.note(
            f"{self.folder}: has all its {done} cycles"
            + (f", and more than run.cycles = {self.config.run.cycles}" if done > self.config.run.cycles else "")
            + f"; look at them: mpibayes report {self.folder}"
        )
        self.progress.close()

    def _cycles(self) -> bool:
        mixture, cycles, stop = self.mixture, self.config.run.cycles, False
        while mixture.cycles < cycles and not stop:
            started = time.perf_counter()
            patience = waiting.AFTER_S + 3.0 * self.clock.slowest_cycle
            with announce(f"cycle {mixture.cycles + 1} to end on all ranks", patience, loud=self.comm.rank == 0):
                info = mixture.cycle(self._word())
                self._keep(info, started)
            stop, save = self._heed(info.word)
            if save or stop or mixture.cycles == cycles:
                self._checkpoint()
        return mixture.cycles >= cycles

    # --- one cycle's output ------------------------------------------------------------------------------------------

    def _keep(self, info: Info, started: float) -> None:
        """Scores of the new state, and what is kept of it."""
        comm, output = self.comm, self.config.output
        lpd = averaged = np.nan
        thinned, whole = info.cycle % output.thin == 0, not self.mixture.growing
        if self.heldout is not None and thinned:
            lpd, averaged = self.heldout.score(self.mixture, average=whole and info.cycle > self.config.burn_in)
        labels = self.mixture.labels() if whole and info.cycle % output.labels == 0 else None
        seconds = time.perf_counter() - started
        self.clock.cycle_took(seconds)
        if comm.rank != 0 or self._failure is not None:
            return
        values = {name: getattr(info, name) for name in ("cycle", *SCALARS) if hasattr(info, name)}
        values |= {"heldout_lpd": lpd, "heldout_lpd_averaged": averaged, "seconds": seconds}
        try:
            if not np.isfinite(info.log_joint):
                raise NumericalError(
                    f"cycle {info.cycle}: the log joint probability is not a finite number; "
                    f"the last checkpoint is of cycle {self._saved_cycle}"
                )
            if thinned:
                self.trace.append(info.cycle, values)
            if labels is not None:
                self.draws.append(info.cycle, labels, **vars(self.mixture.hyper))
            self.progress.update(values)
            if self.clock.elapsed() - self._last_status > STATUS_EVERY_S:
                self._write_status("running", values)
        except MpibayesError as error:
            self._failure = error

    def _word(self) -> tuple[bool, bool, bool]:
        """This rank's say: stop, write a checkpoint, report a failure. It travels with the next cycle's own sync."""
        if self.comm.rank != 0:  # of the time root alone decides
            return self.clock.signalled is not None, False, False
        stop = self.clock.stop_reason() is not None
        since = self.clock.elapsed() - self._last_checkpoint
        return stop, since > 60.0 * self.config.run.checkpoint_minutes, self._failure is not None

    def _heed(self, word: Sequence[int]) -> tuple[bool, bool]:
        """What all ranks do after hearing everyone's word: (stop, checkpoint)."""
        stop, save, failed = word
        if failed:
            raise self.comm.share(self._failure)
        return stop > 0, save > 0

    def _write_status(self, state: str, values: dict[str, float] | None = None, message: str = "") -> None:
        """status.json is a convenience: when it cannot be written, the next checkpoint will say so."""
        self._last_status = self.clock.elapsed()
        about = {
            "state": state, "last_checkpoint": self._saved_cycle, "ranks": self.comm.size,
            "shards": self.mixture.n_shards,
            "host": socket.gethostname(), "pid": os.getpid(), "job": job(), "restarts": restarts(),
            "before": self._before, "message": message,
        }  # fmt: skip
        with contextlib.suppress(MpibayesError):
            status.write_status(self.folder, self.progress.status(values) | about)

    def _close(self, finished: bool) -> None:
        merge(self.folder)
        if finished:
            message = (
                f"{self.folder}: has all its {self.mixture.cycles} cycles; look at them: mpibayes report {self.folder}"
            )
            if self.mixture.growing:
                message = (
                    f"{self.folder}: has all its {self.mixture.cycles} cycles, but only {self.mixture.n_active:,} of "
                    f"{self.mixture.n_rows:,} rows are in: no draw counts yet; raise run.cycles and run the same "
                    "command again"
                )
        else:
            why = self.clock.stop_reason() or "another rank"
            message = (
                f"{self.folder}: stopped early ({why}) at the checkpoint of cycle {self._saved_cycle}; "
                "run the same command again to continue"
            )
        self._write_status("finished" if finished else "stopped", message=message)
        self.progress.note(message)
        self.progress.close()

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def _checkpoint(self) -> None:
        """Trace and draws first, then the generation that they belong to. All ranks know whether it worked."""
        started = time.monotonic()

        def flush():
            if self._failure is not None:
                raise self._failure
            self.lock.check()
            self.trace.flush()
            self.draws.flush()

        on_root(self.comm, flush, share=False, what="write the trace and the draws")
        kept = None
        if self.comm.rank == 0:
            kept = {"run": self._name, "trace": self.trace.last_cycle, "labels": self.draws.last_cycle}
        resume.save(self.comm, self.folder / run_directory.CHECKPOINTS, self.mixture, self.heldout, kept)
        self._saved_cycle = self.mixture.cycles
        self._last_checkpoint = self.clock.elapsed()
        self.clock.checkpoint_took(time.monotonic() - started)
        if self.comm.rank == 0:
            self._write_status("running")

    def _resume_or_start(self) -> None:
        comm, config, mixture = self.comm, self.config, self.mixture
        found = resume.newest(comm, self.folder / run_directory.CHECKPOINTS, mixture)
        if found is not None:
            resume.restore(comm, found, mixture, self.heldout)
        else:
            how = strategy.initial_of_chain(config, self.number)
            mixture.start(how if self._initial_labels is None else self._initial_labels, config.sampler.init_clusters)
        cycle = self._saved_cycle = mixture.cycles

        def open_writers():
            self.folder.mkdir(parents=True, exist_ok=True)
            run_directory.write_training_rows(self.folder, self.data.training_rows)
            self._before = status.ending(self.folder)
            self._name = run_directory.name_of_chain(self.folder, self.number, config.run.chains)
            self.trace, self.draws = TraceWriter(self.folder, run=self._name), DrawWriter(self.folder, self._name)
            if found is None:
                run_directory.require_no_checkpoint_was_written(self.folder)
            else:
                run_directory.require_what_it_kept(self.folder, found, self._name)
            self.trace.truncate(cycle)
            self.draws.truncate(cycle)
            self.progress = Progress(self.folder, cycle, config.run.cycles, mixture.n_rows)
            for warning in found.warnings if found is not None else ():
                self.progress.note(f"warning: {warning}; continuing from cycle {cycle}")
            if comm.size > mixture.n_shards:
                self.progress.note(
                    f"warning: {comm.size} ranks, but {mixture.n_shards} shards: "
                    f"{comm.size - mixture.n_shards} ranks have nothing to do (run.shards)"
                )
            if mixture.cycles < config.run.cycles:
                self._header()
                self._write_status("running")

        on_root(comm, open_writers, share=False, what=f"open {self.folder} for writing")

    def _header(self) -> None:
        """How the chain starts, or where it goes on, and from which cycle its draws count."""
        config, n_rows, cycle = self.config, self.mixture.n_rows, self.mixture.cycles
        if not cycle:
            self.progress.note(f"starts: {strategy.start_in_words(config, n_rows, self.number)}")
        words = [f"continues from cycle {cycle}"] if cycle else []
        words += [strategy.growth_in_words(config, n_rows)] if self.mixture.growing else []
        words += [strategy.counting_in_words(config)] if cycle <= config.burn_in else []
        self.progress.note("; ".join(w for w in words if w))
