"""Handle of a run in SLURM's queue. All its information lies in the run directory and beside it: a restarted notebook
can make another handle."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpibayes.errors import EXIT_STOPPED, ConfigError, MpibayesError
from mpibayes.hpc.python.child import EXCEPTIONS
from mpibayes.hpc.python.display import Display, Status, display_for, in_words, statuses
from mpibayes.hpc.slurm import queue
from mpibayes.hpc.slurm.job_record import log_path, read_record, record_path
from mpibayes.hpc.slurm.queue import NoAnswer, Queued
from mpibayes.text import counted, visible

if TYPE_CHECKING:
    from mpibayes.hpc.python.run import Run

FIRST_LOOK_S, LAST_LOOK_S = 1.0, 15.0  # between two queries of SLURM, which many users share
LAST_LINES, LAST_BYTES = 15, 1 << 16  # of a log
GOING = ("pending", "running")
NEXT = re.compile(r"^job (\d+) continues when this one has ended", re.MULTILINE)  # in the log of a chain of jobs
STATES = {
    "COMPLETED": "finished", "CANCELLED": "cancelled",
    "RUNNING": "running", "COMPLETING": "running", "SIGNALING": "running", "STAGE_OUT": "running",
    **dict.fromkeys(queue.OVER - {"COMPLETED", "CANCELLED", "COMPLETING"}, "failed"),
}  # fmt: skip
AFTER = {
    "stopped": "submit it again to continue",
    "cancelled": "submit it again to continue",
    "failed": "see the causes in slurm/README.md; submitting it again continues from the last checkpoint",
    "unknown": "SLURM has forgotten it, and the run does not say how it ended; submitting it again continues",
}


def submitted(directory: str | os.PathLike[str]) -> Job:
    """Handle of the last job submitted for a run, by `submit` or by `mpibayes submit`, in any session.

    directory: of the run. Raises ConfigError if there was none, and for an array, whose tasks are separate runs.
    """
    folder = Path(directory).expanduser().absolute()
    record = read_record(folder)
    if record is None:
        raise ConfigError(
            f"{folder}: no job was submitted for it (there is no {record_path(folder).name} beside it); "
            "mpibayes.open opens a run"
        )
    if record.array is not None:
        raise ConfigError(
            f"{folder}: job {record.job} is an array; open its runs with mpibayes.open, once squeue says it is over"
        )
    begun = [str(chain.get("job")) for chain in statuses(folder, 0.0)]  # its script may have been submitted by hand
    numbers = [record.job, *(job for job in begun if re.fullmatch(r"\d+", job, re.ASCII))]
    return Job(folder, max(numbers, key=int), chain=record.chain)


@dataclass(frozen=True)
class JobStatus:
    """Status of a job at one moment. Prints as a line, followed by one per chain that has begun.

    state: "pending", "running", "finished"; "stopped" (at a checkpoint, not requeued), "failed", "cancelled";
    "unknown", if neither SLURM nor the run reports it. queued: SLURM's report, None once it has forgotten the job.
    chains: status.json of each chain that has begun.
    """

    number: str
    state: str
    queued: Queued | None
    chains: Sequence[Status]

    def __str__(self) -> str:
        return "\n".join([self.headline, *filter(None, map(in_words, self.chains))])

    @property
    def headline(self) -> str:
        """The state in a line, with SLURM's reason, nodes or exit code."""
        q, parts = self.queued, []
        if q is not None and self.state == "pending":
            parts += [q.reason] if q.reason else []
            parts += [f"expected to start {q.start}"] if q.start else []
        elif q is not None and self.state == "running":
            parts += [f"on {q.nodes}"] if q.nodes else []
        elif q is not None and self.state in ("failed", "stopped"):
            parts += [] if q.state == "FAILED" else [q.state]
            parts += [f"exit code {q.code}"] if q.code else []
            parts += [f"signal {q.signal}"] if q.signal else []
        if q is not None and q.restarts:
            parts.append(counted(q.restarts, "restart"))
        return visible(f"job {self.number}: {self.state}" + (f" ({', '.join(parts)})" if parts else ""))


class Job:
    """A run in SLURM's queue: made by `submit`, or by `submitted` in another session. Its repr shows its state.

    directory: of the run. The job continues when this object is gone.
    """

    def __init__(self, directory: Path, number: str, *, chain: bool = False, frames: str = "pyarrow") -> None:
        self.directory, self._first, self._chain, self._frames = directory, number, chain, frames

    @property
    def number(self) -> str:
        """SLURM's number of the job; for a chain of jobs, of the last one that has begun or waits."""
        return self._numbers()[-1]

    @property
    def log(self) -> Path:
        """Path of the file with the job's output; it exists once the job has started."""
        return log_path(self.directory, self.number)

    def status(self) -> JobStatus:
        """Query SLURM and the run directory. Raises ConfigError if SLURM does not answer."""
        number = self.number
        queued, chains = queue.look(number), statuses(self.directory, 0.0)
        return JobStatus(number, _state(queued, chains, number), queued, chains)

    def wait(self, timeout: float | None = None, *, progress: bool = True) -> Job:
        """Wait until the run is finished, over all restarts of the job; return this handle.

        timeout: seconds, None for no limit. progress: show the progress of the run. An interrupt ends the waiting, not
        the job.

        Raises TimeoutError at the limit, and a MpibayesError with the last lines of the log if the job ended before the
        run did: ConfigError, DataError, CheckpointError or NumericalError if the program reported one.
        """
        display = display_for(progress)
        try:
            status = self._wait(timeout, display)
        except KeyboardInterrupt:
            display.say("no longer waiting; the job goes on, and cancel() ends it")
            raise
        finally:
            display.close()
        if status.state != "finished":
            raise self._error(status)
        return self

    def open(self, **options: Any) -> Run:
        """Open the run, finished or not, with the options of `mpibayes.open`. Raises ConfigError if it has not
        begun."""
        from mpibayes.hpc.python.run import open_run

        return open_run(self.directory, **{"frames": self._frames, **options})

    def cancel(self) -> None:
        """Remove the job, and the next one of a chain, from the queue. A run writes a checkpoint if the site allows
        time for it. A finished job stays as it is. Raises ConfigError if SLURM does not answer."""
        number = self.number
        queue.cancel([number, *self._next(number)])

    def __repr__(self) -> str:
        try:
            return f"{self.status()}\nrun: {visible(self.directory)}"
        except MpibayesError as error:
            return f"job {self._first}: {error}\nrun: {visible(self.directory)}"

    # --- waiting ------------------------------------------------------------------------------------------------------

    def _wait(self, timeout: float | None, display: Display) -> JobStatus:
        began, shown = time.monotonic(), ""
        while True:
            status = None
            try:
                status = self.status()
            except NoAnswer as error:  # a controller that is restarting
                line = error.message + "".join(f"; {words}" for words in error.problems[:1])
            else:
                line = status.headline
                display.show(status.chains)
            if line != shown:
                display.say(line)
                shown = line
            if status is not None and status.state not in GOING:
                return status
            passed = time.monotonic() - began
            if timeout is not None and passed >= timeout:
                raise TimeoutError(f"{shown}, after {timeout:g} s; it goes on, and wait() may be called again")
            pause = min(max(FIRST_LOOK_S, passed / 10), LAST_LOOK_S)
            time.sleep(pause if timeout is None else min(pause, timeout - passed))

    def _error(self, status: JobStatus) -> MpibayesError:
        code = status.queued.code if status.queued is not None else 0
        kind = EXCEPTIONS.get(code, MpibayesError) if status.state == "failed" else MpibayesError
        log = log_path(self.directory, status.number)
        lines = _end_of(log)
        about = f"the end of {log}:" if lines else f"it has no log ({log})"
        return kind(f"{status.headline}; {AFTER[status.state]}; {about}", lines)

    # --- a chain of jobs ----------------------------------------------------------------------------------------------

    def _numbers(self) -> list[str]:
        """Jobs of a chain that have begun or wait, in order of submission; without a chain, only this job."""
        numbers = [self._first]
        while self._chain and (after := self._next(numbers[-1])):
            is_over = queue.waiting_or_running(numbers[-1]) == ""
            if not is_over or not (log_path(self.directory, after[0]).exists() or queue.waiting_or_running(after[0])):
                break
            numbers += after
        return numbers

    def _next(self, number: str) -> list[str]:
        """Next job according to the log of this one."""
        if not self._chain:
            return []
        try:
            return NEXT.findall(log_path(self.directory, number).read_text(errors="replace"))[-1:]
        except OSError:
            return []


def _state(queued: Queued | None, chains: Sequence[Status], number: str) -> str:
    """State according to SLURM, or, once it has forgotten the job, to the run's own record."""
    if queued is not None:
        if queued.state == "FAILED" and queued.code == EXIT_STOPPED:
            return "stopped"
        return STATES.get(queued.state, "pending")
    states = {str(chain.get("state")) for chain in chains if chain.get("job") == number}
    if len(states) == 1 and states <= {"finished", "stopped", "failed"}:
        return states.pop()
    return "unknown"


def _end_of(log: Path) -> list[str]:
    """Last lines of a log; none if it cannot be read."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - LAST_BYTES))
            return file.read().decode(errors="replace").splitlines()[-LAST_LINES:]
    except OSError:
        return []
