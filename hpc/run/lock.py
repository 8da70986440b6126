"""One run at a time in a directory: the file LOCK names the owner, and its time shows that the owner still runs.

LOCK is a JSON object (host, place, pid, started, job, restarts, token), made by exclusive creation, which network file
systems do in one step. While the run continues, a thread renews the file's time every RENEWED_S seconds. A process that
finds a LOCK decides whether its owner is dead:

- in its own place (the same boot of a kernel, the same namespace of process ids): the process is gone, or another one
  has its number;
- an earlier start of the same batch job: a job runs once at a time;
- elsewhere (other hosts, containers): the heartbeat does not change while it is watched for SILENT_S seconds. No two
  clocks are compared: those of hosts may differ, and on some file systems each host stamps files by its own.

A dead owner has one successor: the process that makes `LOCK.<token of the owner>.taken`, exclusively. It then renames
that file over LOCK. A claim whose maker died before that is taken over in the same way, so claims may form a chain.
However slow the file system is between any two of these steps, a second starter finds the claim, or a LOCK other than
the one it judged. At the end each starter waits a while, reads LOCK once more, and only then owns the directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpibayes.errors import CheckpointError, ConfigError
from mpibayes.hpc.parallel.waiting import announce
from mpibayes.io.documents import json_value
from mpibayes.io.files import open_regular, read_regular, reason
from mpibayes.text import whole_number

NAME = "LOCK"
CLAIM = ".taken"
RENEWED_S = 10.0
SILENT_S = 35.0  # three renewals and some
JOB_VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID")


def job() -> str | None:
    """The batch job that this process belongs to."""
    return next((os.environ[name] for name in JOB_VARIABLES if os.environ.get(name)), None)


def restarts() -> int:
    """Number of times that the batch system has requeued this job."""
    return whole_number(os.environ.get("SLURM_RESTART_COUNT", "")) or 0


def place() -> str | None:
    """Scope in which this process's number and start are valid: a boot of a kernel, and namespaces of process ids and
    time.

    None if unknown. Hosts may share a name, and so may containers.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        spaces = [os.readlink("/proc/self/ns/pid")]
    except OSError:
        return None
    with contextlib.suppress(OSError):  # kernels before 5.6 have none
        spaces.append(os.readlink("/proc/self/ns/time"))
    return " ".join([boot, *spaces])


def this_process() -> dict[str, Any]:
    """Identity of the running process, for LOCK and the status."""
    return {
        "host": socket.gethostname(), "place": place(), "pid": os.getpid(), "started": _started(os.getpid()),
        "job": job(), "restarts": restarts(),
    }  # fmt: skip


def lives(pid: Any, started: Any) -> bool:
    """True if the process with this number here began at `started`; it counts as running if that is unknown."""
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it exists and belongs to another user
        pass
    now = _started(pid)
    return now is None or started is None or now == started


@dataclass(frozen=True)
class Hold:
    """A LOCK and the token of the run that holds it: all that a process of that run needs to check it, on any host."""

    path: Path
    token: str

    def check(self) -> None:
        """Raise CheckpointError if another run has taken the directory, or if LOCK cannot be read."""
        try:
            owner = _read(self.path)
        except OSError as error:
            raise CheckpointError(
                f"{self.path}: cannot be read: {reason(error)}; so this run does not know whether the directory is "
                "still its own, and writes nothing more. Run the same command again when the file system works"
            ) from error
        if owner is None or owner.get("token") != self.token:
            how = "was removed while the run held it" if owner is None else f"was taken over by {_who(owner)}"
            raise CheckpointError(f"{self.path}: {how}; this run stops and writes nothing more")


class Lock:
    """Root's hold on a run directory. `take`, then `check` before every write, and `release`."""

    def __init__(self) -> None:
        self.path: Path | None = None
        self._mine: dict[str, Any] = {}
        self._took_s = 0.0  # time taken to write the last file: longer on slow file systems
        self._done = threading.Event()

    def take(self, folder: Path) -> None:
        """Hold this directory, which exists. Raises ConfigError if a run that appears to be alive holds it; OSError."""
        path = folder / NAME
        self._mine = {**this_process(), "token": secrets.token_hex(8)}
        self.path = path  # `release` removes it if it is mine
        for _ in range(5):
            if self._make(path) or self._succeed(path):
                time.sleep(min(2.0, 0.02 + 10.0 * self._took_s))
                if self._holds(path):
                    break
        else:
            raise ConfigError(_in_use(path, _read(path) or {}, "it has just started"))
        for claim in path.parent.glob(f"{NAME}.*{CLAIM}"):  # obsolete claims
            if claim != _claim(path, self._mine):
                claim.unlink(missing_ok=True)
        self._done.clear()
        threading.Thread(target=self._renew, name="lock", daemon=True).start()

    def _make(self, path: Path) -> bool:
        """Create this file with the identity of this process; False if it exists."""
        began = time.monotonic()
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            return False
        made = os.fstat(fd).st_ino
        try:
            with open(fd, "w") as file:
                file.write(json.dumps(self._mine) + "\n")
        except BaseException:
            if (_heartbeat(path) or (None,))[0] == made:  # ours, not a successor's
                path.unlink(missing_ok=True)
            raise
        self._took_s = time.monotonic() - began
        return True

    def _succeed(self, path: Path) -> bool:
        """Take over from a dead owner; False if another process was faster. Raises ConfigError if it seems alive."""
        chain = _chain(path)
        if not chain:  # released just now
            return False
        for file, owner in chain:  # check all of them: the maker of a claim may have been wrong
            if alive := self._seems_alive(owner, file):
                raise ConfigError(_in_use(path, owner, alive))
        claim = _claim(*chain[-1])
        if not self._make(claim):
            return False
        judged = [*(file for file, _ in chain), claim]
        try:
            result = [file for file, _ in _chain(path)]
        except BaseException:
            claim.unlink(missing_ok=True)
            raise
        if result != judged:
            claim.unlink(missing_ok=True)  # the LOCK judged above is gone
            return False
        with contextlib.suppress(FileNotFoundError):  # another process has judged this one dead in turn
            for file, _ in reversed(chain):
                if not self._holds(claim):
                    break
                os.replace(claim, file)
                claim = file
        return True

    def _seems_alive(self, owner: dict[str, Any], file: Path) -> str:
        """Reason why an owner counts as running; "" if it does not. Waits up to SILENT_S where it has to be watched."""
        mine = self._mine
        before = owner.get("restarts", 0)
        earlier = isinstance(before, int) and before < mine["restarts"] and owner.get("job") == mine["job"] is not None
        if owner.get("place") and owner["place"] == mine["place"]:

            def gone() -> bool:
                return not lives(owner.get("pid"), owner.get("started"))

            if earlier:  # it may still be writing its last checkpoint
                _await(gone, f"{_who(owner)}, an earlier start of this job, to end")
            return "" if gone() else "the process exists"
        if earlier:
            return ""
        beat = _heartbeat(file)
        sign = f"a heartbeat of {_who(owner)}; after {SILENT_S:.0f} s without one this run takes over"
        moved = _await(lambda: _heartbeat(file) != beat, sign)
        return "its heartbeat is recent" if moved and _heartbeat(file) else ""

    def _renew(self) -> None:
        while not self._done.wait(RENEWED_S):
            with contextlib.suppress(OSError):  # the next checkpoint reports an error that lasts
                if self.path is not None and self._holds(self.path):
                    os.utime(self.path)

    def _holds(self, path: Path) -> bool:
        owner = _read(path)
        return owner is not None and bool(owner.get("token") == self._mine["token"])

    def check(self) -> None:
        """Check the hold as `Hold.check` does; before `take` there is none."""
        if self.path is not None:
            self.hold.check()

    @property
    def hold(self) -> Hold:
        """Hold that other processes of this run check, once the directory is taken."""
        assert self.path is not None
        return Hold(self.path, self._mine["token"])

    def follow(self, folder: Path) -> None:
        """Track the held directory to its new name."""
        self.path = folder / NAME

    def release(self) -> None:
        self._done.set()
        with contextlib.suppress(OSError):
            if self.path is not None and self._holds(self.path):
                self.path.unlink()
        self.path = None


def _await(happened: Callable[[], bool], what: str) -> bool:
    """Wait until it happens and return True, or False after SILENT_S; a printed line names the awaited event."""
    until = time.monotonic() + SILENT_S
    with announce(what, 1.0):
        while not (result := happened()) and time.monotonic() < until:
            time.sleep(SILENT_S / 100)
    return result


def _chain(path: Path) -> list[tuple[Path, dict[str, Any]]]:
    """LOCK and the claims that follow from it, each with its contents; [] if there is no LOCK."""
    chain: list[tuple[Path, dict[str, Any]]] = []
    while path not in [file for file, _ in chain] and (owner := _read(path)) is not None:
        chain.append((path, owner))
        path = _claim(path, owner)
    return chain


def _claim(file: Path, owner: dict[str, Any]) -> Path:
    """Path of the claim to succeed this owner; `owner` is the contents of `file`."""
    token = owner.get("token")
    if not (isinstance(token, str) and re.fullmatch(r"\w{1,64}", token)):  # damaged: use the file's identity instead
        token = "-".join(f"{number:x}" for number in _heartbeat(file) or (0,))
    return file.with_name(f"{NAME}.{token}{CLAIM}")


def _heartbeat(file: Path) -> tuple[int, int] | None:
    """Inode number and time of a file; None if there is none. The file is opened because NFS then asks its server."""
    try:
        with open_regular(file) as opened:
            about = os.fstat(opened.fileno())
    except FileNotFoundError:
        return None
    return about.st_ino, about.st_mtime_ns


def _started(pid: int) -> int | None:
    """Start of a process of this place, in ticks since its kernel booted; None if unknown, -1 if dead."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return -1 if fields[0] in "ZX" else int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def _read(path: Path) -> dict[str, Any] | None:
    """Contents of a lock: {} if it is damaged, None if it does not exist. Raises OSError if it cannot be read."""
    try:
        owner = json_value(read_regular(path))
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return owner if isinstance(owner, dict) else {}


def owner_of(folder: Path) -> dict[str, Any]:
    """Return the identity (`this_process`) of the start that holds a directory or died holding it; {} if there is none.
    Never fails."""
    try:
        owner = _read(folder / NAME) or {}
    except OSError:
        return {}
    return {name: owner[name] for name in ("host", "place", "pid", "started", "job", "restarts") if name in owner}


def _who(owner: dict[str, Any]) -> str:
    batch = f", job {owner['job']}" if owner.get("job") else ""
    return f"process {owner.get('pid', '?')} on {owner.get('host', 'an unknown host')}{batch}"


def _in_use(path: Path, owner: dict[str, Any], why: str) -> str:
    return (
        f"{path.parent}: {_who(owner)} is running it ({why}); wait for it or choose another directory with -o. If you "
        f"know that it is dead, remove {path}"
    )
