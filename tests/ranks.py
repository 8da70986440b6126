"""Ranks under mpirun that stay for many commands of `mpibayes`, as starting them takes longer than most commands.

Each rank reads commands from a pipe of its own, so that waiting takes no processor time, and writes what a command
prints to files. A command that ends the job (an error that not all ranks know of) ends these ranks as it would end any;
the next command starts others. Tests of signals, of deaths and of the start itself start programs of their own.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import OrderedDict
from pathlib import Path
from unittest import mock

MOST = 7  # ranks that stay, in all worlds together: they take memory


class World:
    """`n` ranks, and the command at which they are."""

    def __init__(self, n: int, env: dict[str, str]):
        self.n, self.calls = n, 0
        self.folder = Path(tempfile.mkdtemp(prefix="ranks-"))
        (self.folder / "env").write_text(json.dumps(env))
        for name in ("ends", *(f"{rank}.calls" for rank in range(n))):
            os.mkfifo(self.folder / name)
        # for reading and writing: neither waits for the other side, and ranks see the end of this process
        self._ends = os.open(self.folder / "ends", os.O_RDWR)
        self._calls = [os.open(self.folder / f"{rank}.calls", os.O_RDWR) for rank in range(n)]
        with open(self.folder / "out", "wb") as out, open(self.folder / "err", "wb") as err:
            self.process = subprocess.Popen(
                ["mpirun", "-n", str(n), sys.executable, __file__, self.folder],
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env, start_new_session=True,
            )  # fmt: skip

    def call(self, place: Path, call: dict, env: dict[str, str], timeout: float) -> subprocess.CompletedProcess:
        """Have all ranks do this in a folder; the result of a program under mpirun that does it."""
        self.calls += 1
        line = json.dumps({**call, "place": str(place), "env": env, "number": self.calls}) + "\n"
        for pipe in self._calls:
            _write_all(pipe, line.encode())
        codes, until, heard = [], time.monotonic() + timeout, b""
        while len(codes) < self.n and (self.process.poll() is None or heard):
            if time.monotonic() > until:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
                raise subprocess.TimeoutExpired(str(call), timeout, *self._texts())
            if select.select([self._ends], [], [], 0.1)[0]:
                heard += os.read(self._ends, 1 << 16)
                *lines, heard = heard.split(b"\n")
                codes += map(int, lines)
        if len(codes) == self.n:
            return subprocess.CompletedProcess(call, max(codes, key=abs), *self._texts())
        return subprocess.CompletedProcess(call, self.process.wait(), *self._texts())

    def _texts(self) -> tuple[str, str]:
        """Return what this command printed on all ranks, and what mpirun itself did."""
        own = ([self.folder / f"{self.calls}.{rank}.{end}" for rank in range(self.n)] for end in ("out", "err"))
        texts = ([*paths, self.folder / name] for paths, name in zip(own, ("out", "err")))
        return tuple("".join(p.read_text(errors="replace") for p in paths if p.exists()) for paths in texts)

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def close(self, patience: float = 20.0) -> None:
        """End the ranks, which leave by themselves where nothing more can come."""
        for pipe in self._calls:
            os.close(pipe)
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self._ends)
        shutil.rmtree(self.folder, ignore_errors=True)


WORLDS: OrderedDict[int, World] = OrderedDict()  # by number of ranks, the latest last


def on_ranks(n: int, place: Path, call: dict, env: dict[str, str], timeout: float) -> subprocess.CompletedProcess:
    """Have n ranks do this: {"words": of `mpibayes`}, or {"cycles": n, "run": (config, out, changes)}."""
    world = WORLDS.pop(n, None)
    if world is None or world.ended:
        while WORLDS and sum(WORLDS) + n > MOST:
            WORLDS.popitem(last=False)[1].close()
        world = World(n, env)
    try:
        return world.call(place, call, env, timeout)
    finally:
        if world.ended:
            world.close()
        else:
            WORLDS[n] = world


@atexit.register
def close_all() -> None:
    while WORLDS:
        WORLDS.popitem()[1].close()


def _write_all(pipe: int, data: bytes) -> None:
    while data:
        data = data[os.write(pipe, data) :]


def run_of_cycles(cycles: int, config: str, out: str, changes: list[str]) -> int:
    """The command `run`, whose clock expires after a number of cycles. Returns its exit code."""
    from mpibayes.hpc.run import clock
    from mpibayes.hpc.run.loop import main

    left = [cycles]

    def cycle_took(self, seconds):
        left[0] -= 1

    def out_of_time(self):  # the cycle that spreads the word is the last
        return "time limit" if left[0] <= 1 else None

    with mock.patch.multiple(clock.Clock, cycle_took=cycle_took, out_of_time=out_of_time):
        return main(config, out, changes)


# --- a rank -----------------------------------------------------------------------------------------------------------


def serve(folder: Path) -> None:
    """Do the commands that come, until the tests have ended."""
    from mpibayes.hpc import cli
    from mpibayes.hpc.parallel.launcher import launcher_rank
    from mpibayes.hpc.run import signals

    rank, given = launcher_rank(), json.loads((folder / "env").read_text())
    of_launcher = {name: value for name, value in os.environ.items() if given.get(name) != value}
    handlers = {number: signal.getsignal(number) for number in signals.SIGNALS}
    # neither waits for the other side, which is missing for good if the tests were killed before
    pipes = os.open(folder / f"{rank}.calls", os.O_RDONLY | os.O_NONBLOCK), os.open(folder / "ends", os.O_RDWR)
    os.set_blocking(pipes[0], True)
    with open(pipes[0]) as calls, open(pipes[1], "w") as ends:
        for line in calls:
            call = json.loads(line)
            os.environ.clear()
            os.environ.update(call["env"] | of_launcher)
            for fd, end in ((1, "out"), (2, "err")):
                file = os.open(folder / f"{call['number']}.{rank}.{end}", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o666)
                os.dup2(file, fd)
                os.close(file)
            code = 1
            try:
                with contextlib.chdir(call["place"]):
                    code = cli.main(call["words"]) if "words" in call else run_of_cycles(call["cycles"], *call["run"])
            except SystemExit as leaving:
                code = leaving.code or 0
            except BaseException:
                traceback.print_exc()
            for number, handler in handlers.items():
                signal.signal(number, handler)
            sys.stdout.flush()
            sys.stderr.flush()
            ends.write(f"{code}\n")
            ends.flush()
    shutil.rmtree(folder, ignore_errors=True)  # tests that were killed leave that to the ranks


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
