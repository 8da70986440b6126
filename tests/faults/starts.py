"""One start of the command under mpirun: its processes, a fault in them, and checks after it has ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.conftest import FOR_RANKS
from tests.faults.cases import Wrong, places

LIMIT = 120.0  # seconds without output after which a start counts as hanging, on a busy machine
ORPHANS = 20.0  # seconds within which all processes of a dead job must be gone
MARK = "MPIBAYES_FAULT_CAMPAIGN"  # in the environment of all processes of a start
SIGNALS = {
    "kill -9 a rank": signal.SIGKILL,
    "kill -9 mpirun": signal.SIGKILL,
    "SIGTERM": signal.SIGTERM,
    "SIGUSR1": signal.SIGUSR1,
    "SIGINT": signal.SIGINT,
    "SIGINT to a rank": signal.SIGINT,
}
PROGRAM = Path(__file__).with_name("program.py")


@dataclass
class Start:
    """One start of a command, with its output in files, and methods to disturb it."""

    words: list[str]
    ranks: int
    folder: Path
    program: tuple[str, ...] = ("-m", "mpibayes")
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self):
        program = [sys.executable, *self.program, *map(str, self.words)]
        command = program if self.ranks == 1 else ["mpirun", "-n", str(self.ranks), *program]
        self.out, self.err = (self.folder / f"last.{name}" for name in ("out", "err"))
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                env={**os.environ, **FOR_RANKS, MARK: self.mark},
            )  # fmt: skip
        self.began = time.time()

    def processes(self, ranks: bool = False) -> list[int]:
        """All processes of this start, regardless of their present parent; `ranks`: only those of the program
        itself."""
        result, mark = [], f"{MARK}={self.mark}".encode()
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                if mark not in Path("/proc", entry, "environ").read_bytes():
                    continue
                command = Path("/proc", entry, "cmdline").read_bytes()
            except OSError:  # gone meanwhile
                continue
            if not ranks or command.startswith(sys.executable.encode()):
                result.append(int(entry))
        return result

    def disturb(self, kind: str, random: Random) -> None:
        target = self.process.pid
        if kind.endswith("a rank"):
            result = self.processes(ranks=True)
            while not result and self.process.poll() is None:
                result = self.processes(ranks=True)
            if not result:
                return
            target = random.choice(result)
        with contextlib.suppress(ProcessLookupError):
            os.kill(target, SIGNALS[kind])

    def signal(self, number: int) -> None:
        """Send a signal to all of its processes."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def wait(self) -> int:
        """Return the exit code once all processes are gone. Raises Wrong for a hang and for orphans, which it kills."""
        try:
            before, since = None, time.monotonic()
            while (code := self.process.poll()) is None:
                time.sleep(0.02)
                if (now := self.last_sign_of_life()) != before:
                    before, since = now, time.monotonic()
                if time.monotonic() - since > LIMIT:
                    raise Wrong(f"hangs: no sign of life for {LIMIT:g} s")
            until = time.monotonic() + ORPHANS
            while (left := self.processes()) and time.monotonic() < until:
                time.sleep(0.02)
            if left:
                raise Wrong(f"processes left over {ORPHANS:g} s after the end: {left}")
        finally:
            self.end()
        return code

    def last_sign_of_life(self) -> float:
        folders = [
            p / name for p in places(self.folder / "run") for name in ("", "checkpoints", "trace", "logs/run.log")
        ]
        return max((p.stat().st_mtime for p in folders if p.exists()), default=0.0)

    def end(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()

    def output(self) -> str:
        return self.out.read_text(errors="replace") + self.err.read_text(errors="replace")
