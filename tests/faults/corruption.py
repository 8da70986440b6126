"""Damaged files: any damage to one file of a run is reported with the file's name, or does no harm.

    python -m tests.faults.corruption --cases 500 --seed 1
    python -m tests.faults.corruption --seed 1 --only 17      # case 17 again, with the output of the commands

A victim is a run that stopped in the middle, with two generations and several segments. A case copies it, damages one
file, and calls every command on it. Each must print the same as before (status and report may print less), or end with
one message that names the file and exit code 2 to 5. A run that continues must end with the bits of the undisturbed
one; a refused run must continue with these bits once the file is restored.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.conftest import FOR_RANKS, launch
from tests.faults.cases import Wrong, config_text, exports, mpibayes, write_csv

LIMIT = 180  # seconds a command may take on a busy machine
LENGTHS = (16, 24, 32)  # cycles at which the victim's starts end
LAST = ("--set", "run.cycles=44", "--set", "run.burn_in=15")
DAMAGES = ("flip", "flip", "flip", "truncate", "empty", "remove", "directory", "fifo", "other run")


class Victim:
    """A half-finished run directory, its table, and the output of its commands while it is intact."""

    def __init__(self, folder: Path, random: Random, text: str | None = None):
        self.folder = folder
        self.whole = folder / "whole"
        self.whole.mkdir(parents=True)
        write_csv(self.whole / "table.csv", random, 300)
        (self.whole / "run.toml").write_text(text or config_text(random, 44))
        expect(mpibayes("import", self.whole / "table.csv", self.whole / "table.h5"))
        self._start("run", "run.burn_in=15")
        self._other(random.randrange(1000, 2000))
        self.half = exports(self.whole / "run", folder / "exported")
        expect(mpibayes("run", self.whole / "run.toml", "-o", self.whole / "straight", *LAST))
        self.expected = exports(self.whole / "straight", folder / "exported")
        shutil.rmtree(self.whole / "straight")
        skip = ("table.csv", "run.toml", "other.h5")
        files = [p.relative_to(self.whole) for p in sorted(self.whole.rglob("*")) if p.is_file()]
        self.kinds: dict[str, list[Path]] = {}  # files by kind, each kind equally likely
        for path in files:
            if path.name not in skip and path.parts[0] != "other":
                self.kinds.setdefault(kind_of(path), []).append(path)

    def _start(self, out: str, *changes: str) -> None:
        """Start the victim; the last start is on two ranks, each of which writes a part of the checkpoint."""
        for cycles in LENGTHS:
            sets = [word for change in (f"run.cycles={cycles}", *changes) for word in ("--set", change)]
            words = ("run", self.whole / "run.toml", "-o", self.whole / out, *sets)
            if cycles < LENGTHS[-1] or not shutil.which("mpirun"):
                expect(mpibayes(*words))
                continue
            done = launch(["mpirun", "-n", 2, sys.executable, "-m", "mpibayes", *words], env=FOR_RANKS)
            expect((done.returncode, done.stdout + done.stderr))

    def _other(self, seed: int) -> None:
        """Make another run of another table, whose files have the same names."""
        write_csv(self.whole / "table.csv", Random(seed), 300)
        expect(mpibayes("import", self.whole / "table.csv", self.whole / "other.h5"))
        self._start("other", f"run.seed={seed}", "run.burn_in=15")


def kind_of(path: Path) -> str:
    return re.sub(r"\d{5,}|(?<=chain-)\d", "N", path.as_posix())


def expect(done: tuple[int, str]) -> None:
    if done[0]:
        raise RuntimeError(done[1])


class Case:
    """One damaged file. The copy is kept on failure."""

    def __init__(self, victim: Victim, folder: Path, random: Random, kind: str = "", damage: str = ""):
        self.victim, self.folder, self.random = victim, folder, random
        self.file = random.choice(victim.kinds[kind or random.choice(list(victim.kinds))])
        self.damage = damage or random.choice(DAMAGES)
        self.words: list[str] = []

    @property
    def title(self) -> str:
        return f"{self.damage}: {self.file}"

    def run(self) -> str:
        """ "detected", "harmless" or "warned" (harmless, and reported). Raises Wrong."""
        shutil.copytree(self.victim.whole, self.folder)
        self._damage(self.folder / self.file)
        run = self.folder / "run"
        detected = False
        detected |= self._command("status", run)
        detected |= self._command("report", run, "--burn-in", 15)
        detected |= self._exported(self.victim.half)
        if self._command("run", self.folder / "run.toml", "-o", run, *LAST):
            self._put_back()
            if self._command("run", self.folder / "run.toml", "-o", run, *LAST):
                raise Wrong("does not go on when the file is put back")
            if self._exported(self.victim.expected):
                raise Wrong("cannot be exported when the file is put back")
            return "detected"
        warned = "warning: " in self.words[-1]
        if self._exported(self.victim.expected):
            self._put_back()
            if self._exported(self.victim.expected):
                raise Wrong("cannot be exported when the file is put back")
            return "detected"
        return "detected" if detected else "warned" if warned else "harmless"

    def _command(self, *words) -> bool:
        """Run a command; True if it refused, with one message that names the file."""
        with time_limit():
            code, text = mpibayes(*words)
        self.words.append(f"{words[0]} -> {code}: {text}")
        if "Traceback" in text or "internal error" in text:
            raise Wrong(f"{words[0]}: a traceback: {text[-2500:]}")
        if code == 0:
            return False
        if code not in (2, 3, 4, 5):
            raise Wrong(f"{words[0]}: exit code {code}: {text}")
        self._check_message(text, words[0])
        return True

    def _check_message(self, text: str, command: str) -> None:
        if text.count("mpibayes: error") != 1:
            raise Wrong(f"{command}: not one message: {text}")
        name = re.sub(r"seg-\d+-", "seg-*-", self.file.name) if self.damage == "remove" else self.file.name
        if name not in re.sub(r"\s*\n\s*", "", text):
            raise Wrong(f"{command}: does not name {self.file}: {text}")

    def _exported(self, expected) -> bool:
        """Export; return True if the exports were refused. Bits other than the expected ones are wrong."""
        with time_limit():
            result = exports(self.folder / "run", self.folder / "exported")
        if isinstance(result, str):
            self.words.append(f"export: {result}")
            if "Traceback" in result or "internal error" in result:
                raise Wrong(f"export: a traceback: {result[-2500:]}")
            self._check_message(result, "export")
            return True
        if result != expected:
            counts = {k: (len(v.splitlines()), len(expected.get(k, b"").splitlines())) for k, v in result.items()}
            raise Wrong(f"other exports; lines found and expected: {counts}")
        return False

    def _damage(self, path: Path) -> None:
        data = bytearray(path.read_bytes())
        random, other = self.random, self.victim.whole / "other" / Path(*self.file.parts[1:])
        if self.file.name == "table.h5":
            other = self.victim.whole / "other.h5"
        path.unlink()
        if self.damage == "flip" and data:
            start = random.randrange(len(data))
            how = random.choice(("bit", "ones", "noise"))
            for i in range(start, min(len(data), start + random.choice((1, 1, 4, 64)))):
                data[i] ^= {"bit": 1 << random.randrange(8), "ones": 255, "noise": random.randrange(1, 256)}[how]
            path.write_bytes(data)
        elif self.damage == "truncate":
            path.write_bytes(data[: random.randrange(len(data) or 1)])
        elif self.damage == "directory":
            path.mkdir()
        elif self.damage == "fifo":
            os.mkfifo(path)
        elif self.damage == "other run" and other.exists():
            shutil.copy(other, path)
        elif self.damage != "remove":
            path.write_bytes(b"")

    def _put_back(self) -> None:
        path = self.folder / self.file
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.victim.whole / self.file, path)


@contextlib.contextmanager
def time_limit() -> Iterator[None]:
    """Raise in Python if a command hangs; end this process with its stack if Python does not run."""

    def late(*_):
        raise Wrong(f"hangs: no end after {LIMIT} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LIMIT)
    faulthandler.dump_traceback_later(2 * LIMIT, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def without_pictures(patch) -> None:
    """Make reports of only text: pictures take seconds, and read nothing more. patch: as monkeypatch.setattr."""
    patch("mpibayes.hpc.crosscat.report.report._figures", lambda posterior: [])


def campaign(cases: range, seed: int, folder: Path, words=print, victim: Victim | None = None):
    """Return ({(damage, outcome): cases}, {kind of file: cases}, [failures])."""
    outcomes, files, wrong = Counter(), Counter(), []
    victims: dict[int, Victim] = {}
    for number in cases:
        kind = number // 50
        if kind not in victims:
            victims = {kind: victim or Victim(folder / f"victim-{kind}", Random(f"{seed}:{kind}"))}
        case = Case(victims[kind], folder / f"case-{number}", Random(f"{seed}:{kind}:{number}"))
        began = time.time()
        try:
            outcome = case.run()
            shutil.rmtree(case.folder)
        except Wrong as error:
            outcome = "WRONG"
            wrong.append(f"case {number} of seed {seed} ({case.title}), kept in {case.folder}: {error}")
            words(wrong[-1])
        outcomes[case.damage, outcome] += 1
        files[kind_of(case.file)] += 1
        words(f"case {number}: {case.title}: {outcome} ({time.time() - began:.1f} s)")
        if len(cases) == 1:
            words("\n".join(case.words))
    return outcomes, files, wrong


def table(outcomes: Counter) -> str:
    names = ["detected", "warned", "harmless", "WRONG"]
    rows = [["damage", *names, "all"], ["---"] * 6]
    for damage in dict.fromkeys(DAMAGES):
        counts = [outcomes[damage, name] for name in names]
        rows.append([damage, *map(str, counts), str(sum(counts))])
    totals = [sum(outcomes[d, name] for d in dict.fromkeys(DAMAGES)) for name in names]
    rows.append(["all", *map(str, totals), str(sum(totals))])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="one case, by its number")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mpibayes-corruption-"))
    import mpibayes.hpc.crosscat.report.report as report

    report._figures = lambda posterior: []
    began, only = time.time(), options.only
    cases = range(options.cases) if only is None else range(only, only + 1)
    outcomes, files, wrong = campaign(cases, options.seed, folder, lambda text: print(text, flush=True))
    print(f"\n{table(outcomes)}\n\n" + "\n".join(f"{n:5d}  {name}" for name, n in sorted(files.items())))
    print(f"\n{len(wrong)} failures, {time.time() - began:.0f} s; " + (f"kept: {folder}" if wrong else ""))
    if not wrong:
        shutil.rmtree(folder)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
