"""One run at a time in a directory: the file LOCK says who works there, and its time that he is alive.

LOCK is a JSON object (host, pid, started, job, restarts), made in one step by linking a finished file, which is safe on
network file systems without locks. While the run goes on, a thread renews the file's time every 15 seconds. Who finds a
LOCK decides whether its owner is dead:

- on its host: the process is gone, or another one has its number;
- an earlier start of the same batch job: a job runs once at a time;
- elsewhere: no renewal for a minute, by the clock of the file system.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from pathlib import Path
from typing import Any

from mpibayes.hpc.errors import CheckpointError, ConfigError

NAME = "LOCK"
RENEWED_S = 15.0
SILENT_S = 60.0
JOB_VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID")


def job() -> str | None:
    """The batch job that this process belongs to; an array's tasks have a number each."""
    return next((os.environ[name] for name in JOB_VARIABLES if os.environ.get(name)), None)


def restarts() -> int:
    """How often the batch system has put this job back into its queue."""
    text = os.environ.get("SLURM_RESTART_COUNT", "")
    return int(text) if text.isdigit() else 0


class Lock:
    """Root's hold on a run directory. `take`, then `check` now and then, and `release`."""

    def __init__(self):
        self.path: Path | None = None
        self._mine: dict[str, Any] = {}
        self._done = threading.Event()

    def take(self, folder: Path) -> None:
        """Hold this directory, which exists. ConfigError when a run that seems alive holds it; OSError."""
        path = folder / NAME
        self._mine = {
            "host": socket.gethostname(), "pid": os.getpid(), "started": _started(os.getpid()),
            "job": job(), "restarts": restarts(), "token": secrets.token_hex(8),
        }  # fmt: skip
        draft = folder / f"{NAME}.{self._mine['token']}.tmp"
        try:
            self._put(draft, path)
        finally:
            draft.unlink(missing_ok=True)
        self.path = path
        self._done.clear()
        threading.Thread(target=self._renew, args=(path,), name="lock", daemon=True).start()

    def _put(self, draft: Path, path: Path) -> None:
        for _ in range(3):
            draft.write_text(json.dumps(self._mine) + "\n")
            try:
                os.link(draft, path)
                return
            except FileExistsError:
                pass
            except OSError:  # a file system without links
                if not path.exists():
                    os.replace(draft, path)
                    return
            owner = _read(path)
            if owner is None:  # released just now
                continue
            if alive := self._seems_alive(owner, draft, path):
                raise ConfigError(_in_use(path, owner, alive))
            os.replace(draft, path)
            time.sleep(0.5)  # of two that take over at once the later one holds it, and both know by now
            if self._holds(path):
                return
        raise ConfigError(_in_use(path, _read(path) or {}, "it has just started"))

    def _seems_alive(self, owner: dict[str, Any], draft: Path, path: Path) -> str:
        """Why its owner counts as alive; "" when he does not."""
        pid = owner.get("pid")
        if owner.get("host") == self._mine["host"] and isinstance(pid, int):
            return "the process exists" if _started(pid) == owner.get("started") is not None else ""
        if owner.get("job") and owner["job"] == self._mine["job"] and owner.get("restarts", 0) < self._mine["restarts"]:
            return ""
        try:
            silent = draft.stat().st_mtime - path.stat().st_mtime
        except FileNotFoundError:
            return ""
        return f"its last sign of life came {max(silent, 0.0):.0f} s ago" if silent < SILENT_S else ""

    def _renew(self, path: Path) -> None:
        while not self._done.wait(RENEWED_S):
            with contextlib.suppress(OSError):  # a file system that stumbles; the next checkpoint will tell
                if self._holds(path):
                    os.utime(path)

    def _holds(self, path: Path) -> bool:
        return (_read(path) or {}).get("token") == self._mine["token"]

    def check(self) -> None:
        """CheckpointError when someone else has taken the directory."""
        if self.path is not None and not self._holds(self.path):
            owner = _read(self.path)
            how = "was removed while the run held it" if owner is None else f"was taken over by {_who(owner)}"
            raise CheckpointError(f"{self.path}: {how}; this run stops and writes nothing more")

    def release(self) -> None:
        self._done.set()
        with contextlib.suppress(OSError):
            if self.path is not None and self._holds(self.path):
                self.path.unlink()
        self.path = None


def _started(pid: int) -> int | None:
    """When a process of this host began, in ticks since the host did; None where it does not exist.

    0 where that cannot be told: systems without /proc.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] == "Z" else int(fields[19])
    except FileNotFoundError:
        pass
    except (OSError, ValueError, IndexError):
        return 0
    if Path("/proc/self/stat").exists():
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass
    return 0


def _read(path: Path) -> dict[str, Any] | None:
    """What a lock says: {} where it is damaged, None where there is none."""
    try:
        owner = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
    return owner if isinstance(owner, dict) else {}


def _who(owner: dict[str, Any]) -> str:
    batch = f", job {owner['job']}" if owner.get("job") else ""
    return f"process {owner.get('pid', '?')} on {owner.get('host', 'an unknown host')}{batch}"


def _in_use(path: Path, owner: dict[str, Any], why: str) -> str:
    return (
        f"{path.parent}: {_who(owner)} is running it ({why}); wait for it or choose another directory with -o. If you "
        f"know that it is dead, remove {path} or try again in {SILENT_S:.0f} s"
    )
