"""SLURM's queue, through its commands: sbatch, scontrol, scancel. SLURM forgets a job some minutes after its end."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mpibayes.errors import ConfigError

PATIENCE_S = 120.0
KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT")  # variables that locate SLURM; all others belong to a job
OVER = frozenset({
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "COMPLETING", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
    "PREEMPTED", "REVOKED", "TIMEOUT",
})  # fmt: skip


class NoAnswer(ConfigError):
    """SLURM's commands are not here, or its controller does not answer."""


@dataclass(frozen=True)
class Queued:
    """A job as SLURM sees it now.

    state, reason: SLURM's words, such as PENDING and Resources. nodes: a list such as n[1-2], "" before it starts.
    start: ISO time of its actual or expected start, "" if unknown. code: exit code of its script, 0 until it ends.
    signal: the one that ended it, 0 for none. restarts: number of times it was requeued.
    """

    state: str
    reason: str = ""
    nodes: str = ""
    start: str = ""
    code: int = 0
    signal: int = 0
    restarts: int = 0


def require_sbatch(advice: str = "") -> None:
    if shutil.which("sbatch") is None:
        raise ConfigError(f"there is no sbatch here; submit from a login node of the cluster{advice}")


def sbatch(script: Path) -> str:
    """Submit a script and return the number of the job. Raises ConfigError with sbatch's own words."""
    done = _run("sbatch", "--parsable", str(script))
    if done.returncode != 0:
        raise ConfigError(f"sbatch refused {script}", _words(done))
    return done.stdout.strip().splitlines()[-1].split(";")[0]


def look(job: str) -> Queued | None:
    """Query a job, for an array its first task in SLURM's order; None if SLURM has forgotten it. Raises NoAnswer."""
    return next(iter(_tasks(job)), None)


def waiting_or_running(job: str) -> str:
    """SLURM's state of a job, or any task of an array, that has not ended; "" if all have, or SLURM does not answer."""
    try:
        states = [task.state for task in _tasks(job)]
    except NoAnswer:
        return ""
    return next((state for state in states if state not in OVER), "")


def _tasks(job: str) -> list[Queued]:
    done = _run("scontrol", "-o", "show", "job", job)
    if done.returncode != 0:
        words = _words(done)
        if "invalid job id" in " ".join(words).lower():
            return []
        raise NoAnswer(f"SLURM does not answer about job {job}", words)
    return [_parsed(line) for line in done.stdout.splitlines() if line.strip()]


def cancel(jobs: Sequence[str]) -> None:
    """End jobs, pending or running; finished ones stay as they are. Raises NoAnswer with scancel's own words."""
    done = _run("scancel", *jobs)
    words = [line for line in _words(done) if not re.search("invalid job id|already complet", line, re.IGNORECASE)]
    if done.returncode != 0 and words:
        raise NoAnswer(f"scancel could not end job {' and '.join(jobs)}", words)


def _parsed(line: str) -> Queued:
    """Parse a line of `scontrol -o show job`.

    >>> _parsed("JobId=7 JobState=FAILED Reason=NonZeroExitCode Restarts=1 ExitCode=3:0 StartTime=Unknown NodeList=n1")
    Queued(state='FAILED', reason='NonZeroExitCode', nodes='n1', start='', code=3, signal=0, restarts=1)
    """

    def field(name: str) -> str:
        result = re.search(rf"(?:^|\s){name}=(\S*)", line)
        return "" if result is None or result[1] in ("None", "(null)", "Unknown", "N/A") else result[1]

    code, _, signal = field("ExitCode").partition(":")
    return Queued(
        field("JobState") or "UNKNOWN", field("Reason"), field("NodeList"), field("StartTime"),
        int(code or 0), int(signal or 0), int(field("Restarts") or 0),
    )  # fmt: skip


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=PATIENCE_S,
            env=outside_of_jobs(os.environ),
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise NoAnswer(f"{words[0]} could not be run: {error}") from None


def outside_of_jobs(environment: Mapping[str, str]) -> dict[str, str]:
    """Remove from an environment the variables of the job that this process belongs to, as a notebook may: sbatch
    passes them on, and the memory or tasks of that job would apply to the new one, too."""
    if "SLURM_JOB_ID" not in environment:
        return dict(environment)
    ours = re.compile("SLURM_|SLURMD_|PMI|SRUN_")
    return {name: value for name, value in environment.items() if name in KEPT or not ours.match(name)}


def _words(done: subprocess.CompletedProcess[str]) -> list[str]:
    return (done.stderr or done.stdout).strip().splitlines()
