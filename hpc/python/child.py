"""The program as a child process: started, watched, stopped at a checkpoint, with its errors raised as exceptions.

The child has its own process group. Otherwise an interrupt of this process (Ctrl-C, a notebook's stop button) might
reach it, too, in ways that differ, and a second one means "end at once" to a run.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

import mpibayes
from mpibayes.errors import CheckpointError, ConfigError, DataError, Interrupted, MpibayesError, NumericalError
from mpibayes.hpc.parallel.launcher import MARKS, launched, mpirun
from mpibayes.hpc.python.display import Display, statuses
from mpibayes.io.files import reason

EXCEPTIONS: Mapping[int, type[MpibayesError]] = {
    2: ConfigError,
    3: DataError,
    4: CheckpointError,
    5: NumericalError,
}
ERROR = "mpibayes: error: "
ADVICE = ("warning: ", "note: ")  # beginnings of lines that may name options
OF_THE_IMPORT = "give such options to "  # beginning of advice on options that `run` lacks
BEYOND_FIT = re.compile(r"--(?!kind\b|missing\b|schema\b|fresh\b)[a-z]")  # options that `fit` lacks, too
LOOK_S = 0.25  # between two looks at the run's status
STATUS_S = "1"  # between two writes of its status by the run
PATIENCE_S = 10.0  # for a child asked to end at once
LAST_LINES = 30  # of an internal error


def start(words: Sequence[str], ranks: int = 1, module: str = "mpibayes") -> subprocess.Popen[str]:
    """Start `mpibayes WORDS`, or another module, on `ranks` ranks. Raises ConfigError if they cannot be started."""
    # -P: do not load modules from the user's current folder
    command = [sys.executable, "-P", "-m", module, *words]
    if ranks > 1:
        command = [_mpirun(), "-n", str(ranks), *command]
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
            env=_environment(),
        )
    except (OSError, ValueError) as error:  # ValueError: a NUL among the words
        raise ConfigError(f"{command[0]}: cannot be started: {reason(error)}") from None


def _mpirun() -> str:
    path = mpirun()
    if path is None:
        raise ConfigError("ranks: there is no mpirun here; pip install mpich, load an MPI module, or use ranks=1")
    return path


def _environment() -> dict[str, str]:
    """Environment for the child: this process's, so that it finds the same package, without the launcher's
    variables."""
    marks = (*MARKS, "PMI_FD", "PMI_PORT", "PMI_ID")
    inherited = {name: value for name, value in os.environ.items() if name not in marks}
    place = str(Path(mpibayes.__file__).absolute().parent.parent)
    paths = [place, *filter(None, [inherited.get("PYTHONPATH")])]
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    alone = {"MPIBAYES_RANKS": "1"} if launched() else {}  # the launcher allocates the cores
    about = {"PYTHONPATH": os.pathsep.join(paths), "MPIBAYES_STATUS_SECONDS": STATUS_S, "PYTHONUNBUFFERED": "1"}
    return {**threads, **alone, **inherited, **about}


class Watched:
    """A child, watched until it ends."""

    def __init__(self, process: subprocess.Popen[str], folder: Path, display: Display):
        self._process, self._folder, self._display = process, folder, display
        self._since = time.time() - 1.0
        self._lines: queue.Queue[str] = queue.Queue()
        self._errors: list[str] = []
        self._readers = [
            _reader(process.stdout, self._lines.put),
            _reader(process.stderr, self._heard),
        ]

    def _heard(self, line: str) -> None:
        self._errors.append(line)
        if line.startswith("warning: "):
            self._lines.put(line)

    def wait(self) -> int:
        """Wait for the child and return its exit code, 0 or 75 (stopped at a checkpoint). Raises Interrupted, and the
        child's errors as they would occur here."""
        try:
            code = self._wait()
        except KeyboardInterrupt:
            self._stop()
            raise Interrupted(self._where_it_stands()) from None
        finally:
            with contextlib.suppress(Exception):
                self._display.close()
            if self._process.poll() is None:
                self._kill()
        if code not in (0, mpibayes.errors.EXIT_STOPPED):
            raise error_of(code, self._errors)
        return code

    def _wait(self) -> int:
        while True:
            ended = self._process.poll() is not None
            if ended:
                for reader in self._readers:
                    reader.join()
            else:
                with contextlib.suppress(queue.Empty):
                    self._say(self._lines.get(timeout=LOOK_S))
            while not self._lines.empty():
                self._say(self._lines.get())
            self._display.show(statuses(self._folder, self._since))
            if ended:
                return self._process.returncode

    def _say(self, line: str) -> None:
        self._display.say(in_python(line) if line.startswith(ADVICE) else line)

    def _stop(self) -> None:
        """Let the run end at a checkpoint; at a second interrupt, at once."""
        self._display.say("interrupted: the run ends at its next checkpoint (interrupt again to end it at once)")
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGUSR1)  # every mpirun passes it on to its ranks
        try:
            self._wait()
        except KeyboardInterrupt:
            self._kill()

    def _kill(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE_S)
                return

    def _where_it_stands(self) -> str:
        cycles = [s.get("last_checkpoint") for s in statuses(self._folder, 0.0)]
        saved = [c for c in cycles if isinstance(c, int) and c > 0]
        if not saved:
            return f"{self._folder}: stopped before the first checkpoint; the same call starts it again"
        at = " and ".join(f"{c:,}" for c in sorted(set(saved)))
        return f"{self._folder}: stopped at the checkpoint of cycle {at}; the same call continues it"


def _reader(stream: IO[str] | None, heard: Callable[[str], None]) -> threading.Thread:
    """Read lines until the stream ends, so that the child never waits for us."""
    assert stream is not None

    def read() -> None:
        with stream:
            for line in stream:
                heard(line.rstrip("\n"))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def error_of(code: int, lines: Sequence[str]) -> MpibayesError:
    """Return an exception for a child that ended with this code, with its message on standard error."""
    kind = EXCEPTIONS.get(code)
    first = next((i for i, line in enumerate(lines) if line.startswith(ERROR)), None)
    if kind is None or first is None:
        ending = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        return MpibayesError(f"the run ended {ending}; what it said last:", lines[-LAST_LINES:])
    problems = []
    for line in lines[first + 1 :]:
        if not line.startswith("  - "):
            break
        problems.append(line.removeprefix("  - "))
    if problems and problems[-1].startswith(OF_THE_IMPORT) and not BEYOND_FIT.search("\n".join(lines[first:])):
        problems.pop()
    return kind(in_python(lines[first].removeprefix(ERROR)), [in_python(p) for p in problems])


def _as_kinds(option: re.Match[str]) -> str:
    return f"kinds={ {option[1] or option[3]: option[2] or option[4]}!r}"


def _as_text(option: re.Match[str]) -> str:
    return f"{option[1] or option[3]}={(option[2] or option[4])!r}"


def _as_import(command: re.Match[str]) -> str:
    source, table = (shlex.split(word)[0] for word in command.groups())
    return f"mpibayes.import_table({source!r}, {table!r}, ...)"


def in_python(text: str) -> str:
    """Translate a message of the command line to the terms of the Python interface.

    >>> in_python("choose another directory with -o, or --fresh, which renames this one; --burn-in 5")
    'choose another directory with directory=, or fresh=True, which renames this one; burn_in=5'
    >>> in_python("import it with --kind Freq=real")
    "import it with kinds={'Freq': 'real'}"
    >>> in_python("say --encoding cp1252; give such options to mpibayes import a.csv runs/a.h5, then ...")
    "say encoding='cp1252'; give such options to mpibayes.import_table('a.csv', 'runs/a.h5', ...), then ..."
    >>> in_python("is left out; --keep logwage keeps both; if they are only names: --unordered COLUMN")
    "is left out; keep=['logwage'] keeps both; if they are only names: unordered=[COLUMN]"
    >>> in_python("Expected the directory of a run (the -o of `mpibayes run`).")
    'Expected the directory of a run (made by mpibayes.fit).'
    """
    text = re.sub(r"--kind (?:'([^']+)=(\w+)'|(\S+)=(\w+))", _as_kinds, text)
    text = re.sub(r"--(encoding|dates|count|weight) ([\w-]*\w)|--(decimal|thousands) (\S)(?=\s|$)", _as_text, text)
    text = re.sub(r"--(keep|drop) (?:'([^']+)'|(\S+))(?= keeps)", lambda m: f"{m[1]}=[{m[2] or m[3]!r}]", text)
    text = text.replace("--unordered COLUMN", "unordered=[COLUMN]")
    text = re.sub(r"--survival (?:'([^']+)'|(\S+,[^\s:;]+))", lambda m: f"survival=[{m[1] or m[2]!r}]", text)
    text = re.sub(r"mpibayes import (\S+|'[^']+') (\S+\.h5|'[^']+\.h5')(?=[ ,])", _as_import, text)
    text = text.replace("the -o of `mpibayes run`", "made by mpibayes.fit")
    text = text.replace("run the same command again", "make the same call again")
    text = text.replace("--fresh", "fresh=True").replace("--set ", "config: ")
    text = text.replace("--unweighted", "weighted=False").replace("--weighted", "weighted=True")
    text = re.sub(r"(?<![\w-])-o\b(?: (?=\S*/))?", "directory=", text)
    return re.sub(r"(?<![\w-])--([a-z][a-z-]*)(?![=a-z-])(?: (?=['\d]))?", lambda m: m[1].replace("-", "_") + "=", text)
