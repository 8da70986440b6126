"""Faults at random moments: a run that is killed and continued must end with the bits of an undisturbed one.

    python -m tests.faults.campaign --runs 200 --seed 1        # about 5 s per run on one core
    python -m tests.faults.campaign --seed 1 --only 17         # case 17 again

A case is a table that is imported and a run of it on 1 to 4 ranks that constantly writes checkpoints. Up to three of
its starts are disturbed: by SIGKILL of a rank or of the launcher; by a signal that asks to stop, to the launcher or a
rank; by a second start in another namespace of process ids; by a freeze during a takeover. The last start is
undisturbed, and followed by a full disk, a table that links to another file, and one that is replaced while ranks read
it. After each start the case checks for leftover processes, for messages that users should never see, and for draws
that are lost, repeated or different from those of the undisturbed run. A start without output for LIMIT seconds hangs,
as does any other command that takes longer.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

import h5py
import numpy as np

from mpibayes.errors import EXIT_STOPPED, CheckpointError, ConfigError, DataError
from mpibayes.hpc.run.identity import PROVENANCE
from mpibayes.hpc.run.lock import NAME
from mpibayes.io.generations import latest
from mpibayes.io.seal import append_seal
from mpibayes.io.table import Table
from mpibayes.io.trace import read_trace
from tests.conftest import FOR_RANKS, launch
from tests.faults.cases import Wrong, config_text, exports, mpibayes, places, write_csv
from tests.faults.starts import LIMIT, PROGRAM, SIGNALS, Start

CYCLES = 60
SECOND, THAWED = "a second start", "a thawed owner"
KINDS = (*SIGNALS, SECOND, THAWED)
ALONE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
RUN = ["run", "run.toml", "-o", "run"]
FILLING = [("export", "run", "--to", "csv", "-o", "full/new.csv"), ("run", "run.toml", "-o", "full/run")]
if importlib.util.find_spec("matplotlib") and importlib.util.find_spec("arviz"):
    FILLING.append(("report", "run", "-o", "full/new", "--burn-in", "0"))
STORING = ("import", "append")  # phases of a table, and not of a run
PHASES = (*STORING, "start-up", "growth", "cycles", "checkpoint write", "trace write")
AIMS = ("start", "any", "checkpoint", "checkpoint", "trace")


class Case:
    """One table, one configuration, a few disturbed starts and a final one."""

    def __init__(self, number: int, seed: int, folder: Path):
        self.random = Random(f"{seed}:{number}")
        self.folder, self.number, self.words = folder, number, RUN
        self.faults: list[tuple[str, str]] = []  # (kind, phase) of the faults survived
        self.history: list[str] = []
        self.reached: dict[str, int] = {}  # by chain: the newest generation seen so far

    def run(self) -> None:
        self.set_up()
        for _ in range(self.random.randint(1, 3)):
            if not self.disturbed_run():
                break
        self.last_start()
        self.full_disk()
        self.link_in_the_table()
        self.replaced_table()

    def set_up(self) -> None:
        """The table, the configuration, and the run of it that nothing disturbs."""
        random, n_rows = self.random, self.random.randrange(150, 500)
        write_csv(self.folder / "table.csv", random, n_rows)
        text = config_text(random, CYCLES)
        (self.folder / "quiet.toml").write_text(text)
        minutes = random.choice((1e-9, 1e-3, 3e-3))  # after every cycle, every 60 or 180 ms
        (self.folder / "run.toml").write_text(text.replace("[run]", f"[run]\ncheckpoint_minutes = {minutes}"))
        self.import_table()
        self.undisturbed()

    def full_disk(self) -> None:
        """Limit the size of files, at any point of the output: a message and nothing left, or complete output."""
        folder = self.folder / "full"
        for words in FILLING:
            folder.mkdir()
            limit = int(10 ** self.random.uniform(0.0, 5.0))
            command = ["bash", "-c", 'ulimit -f "$0"; exec "$@"', str(-(-limit // 1024)), sys.executable, PROGRAM]
            code, text = self.launched([*command, *words])
            if code not in (0, CheckpointError.exit_code) or "Traceback" in text:
                raise Wrong(f"{words} on a full disk ends with {code}: {text[-2500:]}")
            half = "tmp" if code == 0 or words[0] == "run" else ""
            if left := [path.name for path in folder.rglob("*") if half in path.name]:
                raise Wrong(f"{words} on a full disk leaves {left}")
            shutil.rmtree(folder)

    def link_in_the_table(self) -> None:
        """Test a dataset that links to another file's, with a valid seal: refused, and nothing of the file is read."""
        table, other = self.folder / "linked.h5", self.folder / "table.h5"
        shutil.copy(other, table)
        with h5py.File(table, "r+", locking=False) as file:
            name = self.random.choice(sorted(name for name in file if isinstance(file[name], h5py.Dataset)))
            del file[name]
            file[name] = h5py.ExternalLink(str(other), name)
        with table.open("r+b") as file:
            append_seal(file)
        code, text = mpibayes("check", self.folder / "run.toml", "--set", "data.table=linked.h5")
        if code != DataError.exit_code or "Traceback" in text or f"'/{name}'" not in text:
            raise Wrong(f"a table with '{name}' in another file ends with {code}: {text[-2500:]}")

    def replaced_table(self) -> None:
        """Replace the table by another valid one while a run reads it: refused, or without effect; the run then
        continues with its own."""
        table, part, other = (self.folder / f"{name}.h5" for name in ("table", "own", "other"))
        write_csv(self.folder / "other.csv", self.random, self.random.randrange(150, 500))
        done = mpibayes("import", self.folder / "other.csv", other)
        table.rename(part)
        shutil.copy(part, table)
        start = Start(["run", "run.toml", "-o", "replaced"], self.random.randint(1, 3), self.folder)
        time.sleep(self.random.uniform(0.0, 2.0))
        shutil.copy(other, other.with_suffix(".new"))
        if self.random.random() < 0.5:
            other.with_suffix(".new").replace(table)
        else:
            shutil.copyfile(other, table)  # under any reader that has it open
        code, text = start.wait(), start.output()
        part.replace(table)
        self.history.append(f"table replaced under {start.ranks} ranks -> {code}")
        if done[0] or code not in (0, DataError.exit_code) or "Traceback" in text or (code and "table.h5" not in text):
            raise Wrong(f"a run whose table is replaced ends with {code}: {done[1]}{text[-2500:]}")
        code, text = self.launched([sys.executable, PROGRAM, "run", "run.toml", "-o", "replaced"])
        if started_with_other(self.folder / "replaced", other) and code == ConfigError.exit_code:
            return
        if code or exports(self.folder / "replaced", self.folder / "exported") != self.expected:
            raise Wrong(f"a run whose table was replaced goes on to {code}: {text[-2500:]}")

    def launched(self, command) -> tuple[int, str]:
        """Return the exit code and all output of a command that ends by itself. Raises Wrong if it does not."""
        try:
            done = launch(command, timeout=LIMIT, cwd=self.folder, env=FOR_RANKS)
        except subprocess.TimeoutExpired as error:
            raise Wrong(f"hangs: {command} takes over {LIMIT:g} s: {error.stdout} {error.stderr}") from None
        return done.returncode, done.stdout + done.stderr

    def import_table(self) -> None:
        """Import, possibly killed in the middle: there is a complete table under its name, or none. A signal other than
        SIGINT may leave a temporary file (`io.files.replacing`), which nobody else may take for dead."""
        table, words, killed = self.folder / "table.h5", ["import", "table.csv", "table.h5"], set[Path]()
        if self.random.random() < 0.25:
            start = Start(words, 1, self.folder)
            time.sleep(self.random.uniform(0.0, 0.8))
            kind = self.random.choice([k for k in SIGNALS if k not in ("kill -9 mpirun", "SIGINT to a rank")])
            self.fault(start, kind, "import")
            if SIGNALS[kind] != signal.SIGINT:
                killed = set(self.folder.glob("*.tmp"))
            if table.exists():
                Table.open(table)
                table.unlink()
        start = Start(words, 1, self.folder)
        if start.wait():
            raise Wrong("the import fails after one that was killed")
        if left := [path.name for path in self.folder.glob("*.tmp") if path not in killed]:
            raise Wrong(f"the import leaves {left}")

    def undisturbed(self, *options: str) -> None:
        code, text = mpibayes("run", self.folder / "quiet.toml", "-o", self.folder / "quiet", *options)
        if code:
            raise Wrong(f"the undisturbed run ends with {code}: {text}")
        self.expected = exports(self.folder / "quiet", self.folder / "exported")
        self.traces = {p.name if p.name != "quiet" else "run": read_trace(p) for p in places(self.folder / "quiet")}

    def disturbed_run(self) -> bool:
        """Run one start with one fault; return True if the run is unfinished."""
        kind, aim = self.random.choice(KINDS), self.random.choice(AIMS)
        if kind == "SIGINT to a rank":
            aim = "start"
        program = ("-m", "mpibayes") if kind in SIGNALS else (str(PROGRAM),)
        start = Start(self.words, self.random.randint(1, 4), self.folder, program)
        try:
            self.await_moment(start, aim)
            phase = self.phase(start)
            if kind not in SIGNALS:
                return self.rival(start, kind, phase)
        except BaseException:
            start.end()
            raise
        return self.fault(start, kind, phase) != 0

    def rival(self, start: Start, kind: str, phase: str) -> bool:
        """Start a second time while the first start works, or is frozen and presumed dead; return True if
        unfinished."""
        lock = self.folder / "run" / NAME
        if kind == THAWED:
            start.signal(signal.SIGSTOP)
            with contextlib.suppress(FileNotFoundError, ValueError):  # not taken yet, or not written
                lock.write_text(json.dumps(json.loads(lock.read_text()) | {"place": "elsewhere"}))
        alone = ALONE if kind == SECOND and can_be_alone() else ()
        code, text = self.launched([*alone, sys.executable, PROGRAM, *self.words])
        self.history.append(f"{kind} beside {start.ranks} ranks ({phase}) -> {code}")
        refused = code == 2 and "is running it" in text
        if "Traceback" in text or not (refused or code == 0):
            raise Wrong(f"a second start ends with {code}: {text[-2500:]}")
        if refused and kind == THAWED:
            raise Wrong(f"nobody takes over from an owner that is frozen: {text[-2500:]}")
        start.signal(signal.SIGCONT)
        code = start.wait()
        self.history[-1] += f", {code}"
        text = start.output()
        lost = code == CheckpointError.exit_code and "writes nothing more" in text
        refused_itself = code == 2 and "is running it" in text
        if "Traceback" in text or not (code == 0 or (lost and kind == THAWED) or refused_itself):
            raise Wrong(f"the first start ends with {code}: {text[-2500:]}")
        self.check_directory()
        self.faults.append((kind, phase))
        return False

    def await_moment(self, start: Start, aim: str) -> None:
        until = time.monotonic() + LIMIT / 2
        if aim == "start":
            time.sleep(self.random.uniform(0.0, 1.0))
            return
        while not self.wrote_something(start) and start.process.poll() is None and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(self.random.uniform(0.0, 0.6))
        writing = {"checkpoint": "checkpoints", "trace": ("trace", "labels")}.get(aim)
        while aim != "any" and start.process.poll() is None and time.monotonic() < until:
            if self.unfinished(writing):
                time.sleep(self.random.choice((0.0, 0.0005, 0.002)))
                return

    def unfinished(self, folders: str | tuple[str, ...]) -> bool:
        """True while a file in these folders is being written, judged only by names, for speed."""
        for place in places(self.folder / "run"):
            for name in (folders,) if isinstance(folders, str) else folders:
                try:
                    if any(entry.endswith(".tmp") for entry in os.listdir(place / name)):
                        return True
                except FileNotFoundError:
                    continue
        return False

    def wrote_something(self, start: Start) -> bool:
        """True once this start has written its first line to the log."""
        for place in places(self.folder / "run"):
            try:
                if (place / "logs" / "run.log").stat().st_mtime > start.began:
                    return True
            except FileNotFoundError:
                continue
        return False

    def phase(self, start: Start) -> str:
        if start.process.poll() is not None:
            return "after the end"
        if not self.wrote_something(start):
            return "start-up"
        if self.unfinished("checkpoints"):
            return "checkpoint write"
        return "trace write" if self.unfinished(("trace", "labels")) else "cycles"

    def fault(self, start: Start, kind: str, phase: str) -> int:
        """Disturb this start, and check its result."""
        start.disturb(kind, self.random)
        self.history.append(f"{kind} on {start.ranks} ranks ({phase})")
        code = start.wait()
        self.history[-1] += f" -> {code}"
        self.check_words(start, code, kind)
        if phase not in STORING:
            self.check_directory()
        if phase != "after the end":
            self.faults.append((kind, phase))
        return code

    def check_words(self, start: Start, code: int, kind: str) -> None:
        text, number = start.output(), SIGNALS[kind]
        ours = re.findall(r'File ".*?mpibayes/(.*?)"', text)  # Python's own start, up to the first lines of the command
        early = number == signal.SIGINT and "KeyboardInterrupt" in text and set(ours) <= {"__init__.py", "__main__.py"}
        if ("Traceback" in text and not early) or "internal error" in text:
            raise Wrong(f"a traceback: {text[-2500:]}")
        dead = {-number, number, 128 + number}
        dead.add(number | signal.SIGKILL)  # MPICH's mpirun: one rank died of the signal, mpirun killed the rest
        if kind == "SIGINT to a rank" and "has left" in text:
            dead.add(int(signal.SIGKILL))  # Python had not started; another rank noticed
        if start.words[0] == "import" and number == signal.SIGINT:
            dead.add(130)
        if early and "init_import_site" in text:
            dead.add(1)  # the interpreter itself had not started
        if code not in {0, EXIT_STOPPED, *dead}:
            raise Wrong(f"exit code {code}: {text[-1500:]}")
        if code in (0, EXIT_STOPPED) and "mpibayes: error" in text:
            raise Wrong(f"an error, and exit code {code}: {text[-1500:]}")

    def check_directory(self) -> None:
        """Check that nothing beyond the last generation is lost, nothing repeated, and all draws equal the undisturbed
        run's."""
        for place in places(self.folder / "run"):
            generation = latest(place / "checkpoints")
            cycle = generation.cycle if generation else 0
            if generation and generation.warnings:
                raise Wrong(f"a damaged generation: {generation.warnings}")
            if cycle < self.reached.get(place.name, 0):
                raise Wrong(f"{place.name}: back from generation {self.reached[place.name]} to {cycle}")
            self.reached[place.name] = cycle
            trace, expected = read_trace(place), self.traces[place.name]
            kept = len(trace.get("cycle", ()))
            if kept < np.searchsorted(expected["cycle"], cycle, side="right"):
                raise Wrong(f"{place.name}: generation {cycle}, but only {kept} lines of the trace")
            for name in trace:
                if name != "seconds" and not np.array_equal(trace[name], expected[name][:kept], equal_nan=True):
                    raise Wrong(f"{place.name}: other {name} than in the undisturbed run")

    def last_start(self) -> None:
        start = Start(self.words, self.random.randint(1, 4), self.folder)
        code = start.wait()
        self.history.append(f"left alone on {start.ranks} ranks -> {code}")
        if code or "Traceback" in start.output():
            raise Wrong(f"does not go on: {start.output()[-2500:]}")
        result = exports(self.folder / "run", self.folder / "exported")
        if result != self.expected:
            what = (
                result if isinstance(result, str) else [k for k in self.expected if result.get(k) != self.expected[k]]
            )
            raise Wrong(f"other exports than the undisturbed run: {what}")
        left = [p.name for p in (self.folder / "run").rglob("*.tmp") if not re.match(r"trace\.h5\.\d+\.tmp", p.name)]
        if left:
            raise Wrong(f"temporary files left over: {left}")


def started_with_other(run: Path, table: Path) -> bool:
    """True if a run began while the other table had replaced its table."""
    made = run / PROVENANCE
    return made.exists() and json.loads(made.read_text())["fingerprint"] == Table.open(table).fingerprint


@functools.cache
def can_be_alone() -> bool:
    """True if this machine lets us make a namespace of process ids."""
    return shutil.which(ALONE[0]) is not None and launch([*ALONE, "true"]).returncode == 0


def campaign(runs: int, seed: int, folder: Path, only: int | None = None, words=print, kind: type[Case] = Case):
    """Cases until `runs` faults are survived. Returns ({(kind, phase): faults}, [what went wrong])."""
    survived: Counter[tuple[str, str]] = Counter()
    wrong: list[str] = []
    number = 0 if only is None else only
    while sum(survived.values()) < runs and len(wrong) < 10:
        place = folder / f"case-{number}"
        place.mkdir(parents=True)
        case = kind(number, seed, place)
        try:
            case.run()
            shutil.rmtree(place)
        except Wrong as error:
            wrong.append(f"case {number} of seed {seed} ({'; '.join(case.history)}), kept in {place}: {error}")
            words(wrong[-1])
        survived.update(case.faults)
        words(f"case {number}: {'; '.join(case.history)}")
        if only is not None:
            break
        number += 1
    return survived, wrong


def table(survived: Counter) -> str:
    """Faults by kind and phase, as Markdown."""
    phases = [phase for phase in PHASES if any(survived[kind, phase] for kind in KINDS)]
    rows = [["survived", *phases, "all"]]
    rows += [[k, *(str(survived[k, p]) for p in phases), str(sum(survived[k, p] for p in phases))] for k in KINDS]
    rows.append(["all", *(str(sum(survived[k, p] for k in KINDS)) for p in phases), str(sum(survived.values()))])
    rows.insert(1, ["---"] * len(rows[0]))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main(kind: type[Case] = Case, about: str = __doc__) -> int:
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200, help="disturbed starts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="one case, by its number")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mpibayes-faults-"))
    began = time.time()
    words = functools.partial(print, flush=True)
    survived, wrong = campaign(options.runs, options.seed, folder, options.only, words, kind)
    print(f"\n{table(survived)}\n\n{len(wrong)} failures, {time.time() - began:.0f} s")
    if not wrong:
        shutil.rmtree(folder)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
