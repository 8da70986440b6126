"""A chain on the ranks of a communicator, from its start or a checkpoint to its end or until it is time to stop.

The loop: one or more cycles, storing their results, and at times a checkpoint. Everything that depends on time, files
or signals is decided on root and agreed on by all ranks between two cycles. The chain decides what is sampled, and how.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import mpibayes
from mpibayes.errors import MpibayesError, NumericalError
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.data.sparse import AnyData
from mpibayes.hpc.family import Chain, Draws, Info
from mpibayes.hpc.parallel import waiting
from mpibayes.hpc.parallel.agreement import on_root
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.tasks import Stopped
from mpibayes.hpc.parallel.waiting import announce
from mpibayes.hpc.run import checkpoints as resume
from mpibayes.hpc.run import directory as run_directory
from mpibayes.hpc.run import status
from mpibayes.hpc.run.annealed import cycle_of_all_rows
from mpibayes.hpc.run.clock import Clock
from mpibayes.hpc.run.grown import source_of
from mpibayes.hpc.run.identity import CHECKPOINTS
from mpibayes.hpc.run.lock import this_process
from mpibayes.hpc.run.progress import Progress, say
from mpibayes.hpc.scalar import kinds
from mpibayes.io.files import Guard, make_directory, remove_left_overs, storing
from mpibayes.io.finished import FOLDER as STARTS
from mpibayes.io.finished import Finished, n_finished
from mpibayes.io.inference import merge
from mpibayes.io.trace import TraceWriter, last_values
from mpibayes.text import counted, whole_number

EARLY_S, FEWEST_CYCLES = 15.0, 20  # seconds and cycles until a chain's first checkpoint
STATUS_EVERY_S = whole_number(os.environ.get("MPIBAYES_STATUS_SECONDS", "")) or 10  # a notebook asks for 1


@dataclass
class Writers:
    """Root's writers of an open chain: trace, kept draws if the family stores any, and progress."""

    trace: TraceWriter
    draws: Draws | None
    progress: Progress


class ChainRun:
    """One chain and its directory, on all ranks of a communicator. Its writers exist on root alone.

    guard: called before anything in the directory is changed. grown: number of growths of the run.
    """

    def __init__(
        self, comm: Communicator, clock: Clock, guard: Guard, config: Config, data: AnyData, chain: Chain, folder: Path,
        number: int, grown: int = 0,
    ):  # fmt: skip
        self.comm, self.clock, self.guard, self.config, self.data = comm, clock, guard, config, data
        self.chain, self.folder, self.number, self.grown = chain, folder, number, grown
        self._writers: Writers | None = None
        self._before: dict[str, Any] | None = None  # how the start before this one ended
        self._began = self._last_checkpoint = self._last_status = clock.elapsed()
        self._saved_cycle = 0
        self.is_open = False
        self._state = ""  # the last one written
        self._failure: MpibayesError | None = None  # on root: first failure since the ranks last agreed

    @property
    def writers(self) -> Writers:
        """Writers of the chain; on root, once it is open."""
        assert self._writers is not None
        return self._writers

    def run(self, cycles: int) -> bool:
        """Start or continue the chain up to cycle `cycles`, its last one or fewer; True if it got there."""
        if not self.open():
            return False
        if self.chain.cycles >= self.config.run.cycles:
            on_root(self.comm, self._nothing_to_do)
            return True
        there = self.advance(cycles)
        if there and cycles < self.config.run.cycles:
            self._pause()
        else:
            self.close(there)
        return there

    def advance(self, cycles: int) -> bool:
        """Advance to a checkpoint at cycle `cycles`; False if it was time to stop before that."""
        with self._failing():
            return self._cycles(cycles)

    def wake(self) -> None:
        """Record in the status that it is this chain's turn."""
        if self.comm.rank == 0:
            self._write_status("running")

    def rest(self, state: str = "waiting", why: str = "for the other chains") -> None:
        if self._writers is not None and self._state != "failed":
            self._writers.progress.rest()
            self._write_status(state, message=why)

    def _pause(self) -> None:
        """Leave the chain at a checkpoint, to be opened again in its next turn."""
        self.rest()
        if self.comm.rank == 0:
            self.writers.progress.close()

    def leave(self) -> None:
        """Stop between two rounds, after saving a start that no checkpoint holds yet."""
        with self._failing():
            if self.chain.cycles == 0:
                self._checkpoint()
        self.close(False)

    def close(self, finished: bool, words: str = "", of_run: str = "") -> None:
        """Write the chain's last status and message: `words` if given; then `of_run`, the message about all chains."""
        with self._failing():
            on_root(self.comm, lambda: self._close(finished, words, of_run), what="write trace.h5 and the last status")

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except MpibayesError as error:
            if self.comm.rank == 0:
                self._write_status("failed", message=error.message)
                self.writers.progress.close()
            raise

    @property
    def home(self) -> Path:
        """The run's directory."""
        return self.folder if self.config.run.chains == 1 else self.folder.parent

    def _nothing_to_do(self) -> None:
        done = self.chain.cycles
        self.writers.progress.note(
            f"{self.folder}: has all its {counted(done, 'cycle')}"
            + (f", and more than run.cycles = {self.config.run.cycles}" if done > self.config.run.cycles else "")
            + f"; to see the result: mpibayes report {self.home}"
        )
        self.writers.progress.close()

    def _cycles(self, cycles: int) -> bool:
        chain, stop = self.chain, False
        while chain.cycles < cycles and not stop:
            started = time.perf_counter()
            patience = waiting.AFTER_S + 3.0 * self.clock.slowest_cycle
            with announce(f"cycle {chain.cycles + 1} to end on all ranks", patience, loud=self.comm.rank == 0):
                info = chain.advance(self._word(), cycles - chain.cycles)
            self._keep(info, time.perf_counter() - started)
            stop, save = self._heed(info.word)
            if save or stop or chain.cycles == cycles:
                self._checkpoint()
        return chain.cycles >= cycles

    # --- results of cycles --------------------------------------------------------------------------------------------

    def _keep(self, info: Info, seconds: float) -> None:
        """Store trace lines and a draw, and show progress; on root. A failure is held until the ranks next agree."""
        self.clock.cycle_took(seconds)
        if self.comm.rank != 0 or self._failure is not None:
            return
        n, last = len(info.cycles), info.cycles[-1]
        try:
            if info.problem:
                raise NumericalError(
                    f"cycle {last}: {info.problem}; the last checkpoint is of cycle {self._saved_cycle}"
                )
            cycles = np.arange(info.cycles[0], last + 1)
            values = {**info.values, "seconds": np.full(n, seconds / n)}
            requested = cycles % self.config.output.thin == 0
            self.writers.trace.extend(cycles[requested], {name: array[requested] for name, array in values.items()})
            if info.draw is not None and self.writers.draws is not None:
                self.writers.draws.append(last, **info.draw)
            latest = {name: float(array[-1]) for name, array in values.items() if array.ndim == 1}
            self.writers.progress.update({"cycle": last, **latest}, n)
            if self.clock.elapsed() - self._last_status > STATUS_EVERY_S:
                self._write_status("running", latest)
        except MpibayesError as error:
            self._failure = error

    def _word(self) -> tuple[bool, bool, bool]:
        """This rank's vote (stop, write a checkpoint, report a failure), sent with the next cycle's synchronization."""
        if self.comm.rank != 0:  # root alone watches the time
            return self.clock.signalled is not None, False, False
        stop = self.clock.stop_reason() is not None
        return stop, self._due(), self._failure is not None

    def _due(self) -> bool:
        """True if a checkpoint is due: soon after the start, so that a report can have an early look, then whenever the
        time since the start has doubled, until run.checkpoint_minutes have passed."""
        since = self.clock.elapsed() - self._last_checkpoint
        early = self.chain.cycles >= FEWEST_CYCLES and since > max(EARLY_S, self._last_checkpoint - self._began)
        return early or since > 60.0 * self.config.run.checkpoint_minutes

    def _heed(self, word: Sequence[int]) -> tuple[bool, bool]:
        """Decide for all ranks, by the sum of their votes: (stop, checkpoint)."""
        stop, save, failed = word
        if failed:
            error = self.comm.share(self._failure)
            assert error is not None  # root's vote says that it has one
            error.shared = True
            raise error
        return stop > 0, save > 0

    def _write_status(self, state: str, values: dict[str, float] | None = None, message: str = "") -> None:
        """Write status.json, a convenience: if that fails, the next checkpoint reports the failure.

        It is not written in a directory that another run has taken. While the chain looks for a start, it has no
        progress.
        """
        if self._writers is not None:
            fields = self._writers.progress.status(values)
        else:
            fields = {"cycle": 0, "cycles": self.config.run.cycles, "rows": self.chain.n_rows}
        self._last_status, self._state = self.clock.elapsed(), state
        about = {
            "state": state, "family": self.config.kind, "last_checkpoint": self._saved_cycle,
            "ranks": self.comm.size, "shards": self.chain.n_shards, "grown": self.grown,
            **this_process(), "before": self._before, "message": message,
        }  # fmt: skip
        with contextlib.suppress(MpibayesError):
            self.guard()
            status.write_status(self.folder, fields | about)

    def _burn_in(self, trace: Mapping[str, np.ndarray]) -> int:
        return max(self.config.burn_in, cycle_of_all_rows(trace, self.chain.n_rows))

    def _close(self, finished: bool, words: str, of_run: str) -> None:
        self.guard()
        if merge(self.folder, self._burn_in) is None and self.writers.trace.last_cycle > 0:
            self.guard()  # a directory that was moved away has nothing to merge
            self.writers.progress.note(
                f"{self.folder}: the trace is large, so trace.h5 is left out: mpibayes export {self.folder} --to arviz"
            )
        if finished and words:
            message = f"{self.folder}: {words}"
        elif finished:
            message = f"{self.folder}: has all its {counted(self.chain.cycles, 'cycle')}" + (
                ", but not all rows are in: no draws count yet; raise run.cycles and run the same command again"
                if self.chain.growing
                else f"; to see the result: mpibayes report {self.home}"
            )
        else:
            why = self.clock.stop_reason() or "another rank"
            message = (
                f"{self.folder}: stopped early ({why}) at the checkpoint of cycle {self._saved_cycle}; "
                "run the same command again to continue"
            )
        self._write_status("finished" if finished else "stopped", message=message)
        self.writers.progress.note(message)
        if of_run:
            self.writers.progress.note(of_run)
        self.writers.progress.close()

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def _checkpoint(self) -> None:
        """Write trace and draws first, then the generation that they belong to. All ranks learn whether it worked."""
        started = time.monotonic()

        def flush() -> None:
            if self._failure is not None:
                raise self._failure
            self.guard()
            self.writers.trace.flush()
            if self.writers.draws is not None:
                self.writers.draws.flush()

        on_root(self.comm, flush, share=False, what="write the trace and the draws")
        kept: dict[str, Any] = {}
        if self.comm.rank == 0:
            trace, draws = self.writers.trace, self.writers.draws
            kept = {"run": self._name, "trace": trace.last_cycle}
            kept |= {} if draws is None else {"labels": draws.last_cycle}
        resume.save(self.comm, self.folder / CHECKPOINTS, self.chain, kept, self.guard)
        self._saved_cycle = self.chain.cycles
        self._last_checkpoint = self.clock.elapsed()
        self.clock.checkpoint_took(time.monotonic() - started)
        if self.comm.rank == 0:
            with contextlib.suppress(MpibayesError):  # the next checkpoint tries again
                run_directory.note_checkpoint(self.folder, self.number, self.config.run.chains, self.guard)
                Finished(self.folder / STARTS, "", self.guard).clear()
            self._write_status("running")

    def _start(self) -> bool:
        """Start afresh, or after a growth from the chain's last state; False if it was time to stop. The status shows
        how far the search for a start is; its finished parts are kept until the first checkpoint."""
        before = on_root(self.comm, lambda: source_of(self.home, self.folder, self.grown))
        name = on_root(self.comm, lambda: run_directory.name_of_chain(self.folder, self.number, self.config.run.chains))
        finished = Finished(self.folder / STARTS, f"{name} {mpibayes.__version__}", self.guard)
        began = time.strftime("%H:%M:%S")

        def searching(words: str) -> None:
            self._write_status(status.SEARCHING, message=f"initial {words} (since {began})")

        unheard, self.comm.report = self.comm.report, searching
        try:
            if before is None:
                self.chain.start(finished)
            else:
                self.chain.start_from(before, finished)
        except Stopped:
            if self.comm.rank == 0:
                why, n = self.clock.stop_reason() or "another rank", n_finished(self.folder)
                kept = f"; {counted(n, 'finished search', 'finished searches')} kept" if n else ""
                then = "give it more time" if self.clock.out_of_time() else "run the same command again"
                words = f"{self.folder}: stopped early ({why}) before its first cycle{kept}; {then}"
                say(words)
                self._write_status("stopped", message=words)
            return False
        except MpibayesError as error:
            if self.comm.rank == 0:
                self._write_status("failed", message=error.message)
            raise
        finally:
            self.comm.report = unheard
        return True

    def _open_folder(self) -> None:
        """Make the chain's folder; note how the start before this one ended."""
        self.guard()
        with storing(self.folder):
            if self.folder != self.home:
                make_directory(self.folder, within=self.home)
            remove_left_overs(self.folder, self.guard)
        self._before = status.ending(self.folder)

    def open(self) -> bool:
        """Start, or resume from the newest checkpoint, and open the writers. False if it was time to stop before it had
        started."""
        comm, config, chain = self.comm, self.config, self.chain
        result = resume.newest(comm, self.folder / CHECKPOINTS, chain)
        on_root(comm, self._open_folder, share=False, what=f"open {self.folder} for writing")
        if result is not None:
            resume.restore(comm, result, chain)
        elif not self._start():
            return False
        cycle = self._saved_cycle = chain.cycles
        self._began = self._last_checkpoint = self.clock.elapsed()  # the search for a start takes time

        def open_writers() -> None:
            self.guard()
            run_directory.write_training_rows(self.folder, self.data.training_rows, self.guard)
            self._name = run_directory.name_of_chain(self.folder, self.number, config.run.chains)
            if result is None:
                run_directory.require_no_checkpoint_was_written(self.folder, self.number, config.run.chains)
                run_directory.write_start(self.folder, chain.start_record, self.guard)
            else:
                run_directory.require_what_it_kept(self.folder, result, self._name)
                run_directory.note_checkpoint(self.folder, self.number, config.run.chains, self.guard)
            scalars = chain.scalars
            names = [s.name for s in scalars]
            trace = TraceWriter(self.folder, names, self._name, chain.axes, self.guard, kinds(scalars))
            draws = chain.draws(self.folder, self._name, self.guard)
            trace.truncate(cycle)
            if draws is not None:
                draws.truncate(cycle)
            which = self.number + 1 if config.run.chains > 1 else None
            last = {}
            if result is not None:
                with contextlib.suppress(MpibayesError):  # a convenience
                    last = last_values(self.folder, cycle)
            n = config.run.chains
            progress = Progress(
                self.folder, cycle, config.run.cycles, chain.n_rows, scalars, number=which, values=last, chains=n
            )
            self._writers = Writers(trace, draws, progress)
            for warning in result.warnings if result is not None else ():
                progress.note(f"warning: {warning}; continuing from cycle {cycle}")
            if chain.cycles < config.run.cycles:
                for words in chain.in_words():
                    progress.note(words if config.run.chains == 1 else f"{self.folder.name}: {words}")
                self._write_status("running")

        on_root(comm, open_writers, share=False, what=f"open {self.folder} for writing")
        self.is_open = True
        return True
