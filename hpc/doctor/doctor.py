"""`mpibayes doctor`: checks that machine, launcher and directory are fit for a run. One line per check; no check hangs.

Checks run in a child process, which reports its findings through a pipe. A check that exceeds its limit, or kills its
process (an MPI library may), is itself the finding, and another child does the rest. Every rank has such a pair of
processes; root's first checks the machine, while the other ranks wait for it in MPI's start-up.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mpibayes.hpc.parallel.launcher import launcher_rank
from mpibayes.text import visible

OK, WARNING, PROBLEM = "ok", "warning", "problem"
SETUP, DIRECTORY = 2, 4  # exit codes


@dataclass
class Finding:
    """Result of a check: its level, the fact, and advice; `code` is the exit code of a problem."""

    check: str
    level: str
    text: str
    advice: str = ""
    code: int = 0

    def line(self) -> str:
        return visible(f"{self.level:8} {self.check:10} {self.text}" + (f"; {self.advice}" if self.advice else ""))


@dataclass
class Check:
    """A check with its limit in seconds; `advice` is for a check that hangs or dies, e.g. without a matching MPI."""

    name: str
    limit: float
    find: Callable[[], Finding]
    advice: str = ""
    code: int = SETUP
    vital: bool = False  # if it finds a problem, later checks are meaningless


def doctor(directory: Path, as_json: bool = False, seconds: float = 5.0) -> int:
    """Run all checks, printing on rank 0. Returns the exit code of the worst finding there, 0 on other ranks."""
    from mpibayes.hpc.doctor import local as doctor_checks
    from mpibayes.hpc.doctor import ranks as doctor_mpi

    alone = doctor_checks.checks(directory)
    patience = 0.0 if launcher_rank() == 0 else sum(check.limit for check in alone)
    together = doctor_mpi.checks(directory, seconds, patience)
    if launcher_rank() > 0:
        for finding in examine(together, go_on=False):
            if finding.level == PROBLEM and finding.code == 0:  # on this rank alone: root does not know
                print(f"mpibayes doctor: rank {launcher_rank()}: {visible(finding.text)}", file=sys.stderr, flush=True)
        return 0
    findings = []
    for finding in _both(alone, together):
        findings.append(finding)
        if not as_json:
            print(finding.line(), flush=True)
    code = min((f.code for f in findings if f.level == PROBLEM), default=0)
    counts = {level: sum(f.level == level for f in findings) for level in (OK, WARNING, PROBLEM)}
    if as_json:
        worst = next((level for level in (PROBLEM, WARNING) if counts[level]), OK)
        print(json.dumps({"worst": worst, "exit_code": code, "checks": [asdict(f) for f in findings]}, indent=1))
    else:
        print(", ".join(f"{n} {level}{'s' * (level != OK and n != 1)}" for level, n in counts.items()), flush=True)
    return code


def _both(alone: Sequence[Check], together: Sequence[Check]) -> Iterator[Finding]:
    yield from examine(alone)
    yield from examine(together, go_on=False)


def examine(checks: Sequence[Check], go_on: bool = True) -> Iterator[Finding]:
    """Yield the findings of the checks, in order. After a check that hangs or dies, the rest continue if they can."""
    start = 0
    while start < len(checks):
        child = _Child(checks[start:])
        try:
            for check in checks[start:]:
                start += 1
                finding = child.next(check)
                yield finding
                child.gone |= check.vital and finding.level == PROBLEM
                if child.gone:
                    break
        finally:
            child.end()
        if child.gone and not go_on:
            return


class _Child:
    """A process that runs checks and reports each result through a pipe."""

    def __init__(self, checks: Sequence[Check]):
        sys.stdout.flush()
        sys.stderr.flush()
        self._pipe, report = os.pipe()
        self._text = b""
        self.gone = False
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._pipe)
            _work(checks, report)
        os.close(report)

    def next(self, check: Check) -> Finding:
        """Finding of this check; a timeout or the child's death is reported as a finding, and sets `gone`."""
        limit = time.monotonic() + check.limit
        while b"\n" not in self._text:
            left = limit - time.monotonic()
            if left <= 0 or not select.select([self._pipe], [], [], left)[0]:
                self.gone = True
                return Finding(check.name, PROBLEM, f"did not end within {check.limit:.0f} s", check.advice, check.code)
            piece = os.read(self._pipe, 65536)
            if not piece:
                self.gone = True
                how = self._how_it_died()
                return Finding(check.name, PROBLEM, f"took its process with it ({how})", check.advice, check.code)
            self._text += piece
        line, _, self._text = self._text.partition(b"\n")
        return Finding(**json.loads(line))

    def _how_it_died(self) -> str:
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        code = os.waitstatus_to_exitcode(status)
        return f"exit code {code}" if code >= 0 else f"signal {-code}"

    def end(self) -> None:
        os.close(self._pipe)
        if self._pid and self.gone:
            os.kill(self._pid, signal.SIGKILL)  # it may be stuck in the kernel: do not wait for it
        elif self._pid:
            limit = time.monotonic() + 10.0
            while time.monotonic() < limit and not os.waitpid(self._pid, os.WNOHANG)[0]:
                time.sleep(0.005)


def _work(checks: Sequence[Check], report: int) -> None:
    """Run in the child: send all findings through the pipe, including errors of the checks themselves."""
    _die_with_parent()
    code = 0
    try:
        for check in checks:
            try:
                finding = check.find()
            except Exception as error:
                text = f"could not be done: {type(error).__name__}: {error}"
                finding = Finding(check.name, PROBLEM, " ".join(text.split()), check.advice, check.code)
            os.write(report, (json.dumps(asdict(finding)) + "\n").encode())
    except OSError:  # the parent has gone
        code = 1
    sys.exit(code)  # not os._exit: MPI must finalize with Python, or the launcher counts this process as dead


def _die_with_parent() -> None:
    """End this process with its parent, which a launcher may kill (Linux; elsewhere it ends in time)."""
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
