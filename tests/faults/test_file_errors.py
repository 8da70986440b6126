"""A file system that stumbles, and files that are no files: one message with the name, and an exit code of 2 to 4.

Every call on a path of a run that a command makes fails once. The command must end with such a message, or do without;
the run must go on afterwards with the bits of one that was left alone.
"""

import builtins
import errno
import importlib.util
import io
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from mpibayes.hpc.run import lock
from tests.faults.cases import exports, mpibayes
from tests.faults.corruption import without_pictures
from tests.faults.small import done, half_way, start

REPORT = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None or importlib.util.find_spec("arviz") is None,
    reason="the report needs matplotlib and arviz: pip install '.[report]'",
)
COMMANDS = {
    "run": lambda place: ("run", place / "run.toml", "-o", place / "run"),
    "run --fresh": lambda place: ("run", place / "run.toml", "-o", place / "run", "--fresh", "--set", "run.cycles=3"),
    "first run": lambda place: ("run", place / "run.toml", "-o", place / "new" / "run", "--set", "run.cycles=3"),
    "report": lambda place: ("report", place / "run", "--burn-in", 2),
    "status": lambda place: ("status", place / "run"),
    "csv": lambda place: ("export", place / "run", "--to", "csv", "-o", place / "out.csv"),
    "labels": lambda place: ("export", place / "run", "--to", "labels", "-o", place / "out.txt"),
    "arviz": lambda place: ("export", place / "run", "--to", "arviz", "-o", place / "out.h5"),
    "import": lambda place: ("import", place / "table.csv", place / "new.h5"),
    "predict": lambda place: ("predict", place / "run", place / "table.csv", "-o", place / "p.csv", "--burn-in", 2),
    "complete": lambda place: ("complete", place / "run", "-o", place / "copies", "--copies", 2, "--burn-in", 2),
}
commands = pytest.mark.parametrize("command", [pytest.param(c, marks=REPORT) if c == "report" else c for c in COMMANDS])
CALLS = ("open", "stat", "lstat", "listdir", "scandir", "mkdir", "rename", "replace", "unlink", "link", "utime")


class Stumbling:
    """The calls on paths below `root`, of which one may be told to fail."""

    def __init__(self, root: Path, patch):
        self.root, self.seen, self.failing, self.failed = str(root), {}, None, ""
        for name in CALLS:
            patch.setattr(os, name, self._wrapped(name, getattr(os, name)))
        opened = self._wrapped("open()", builtins.open)
        patch.setattr(builtins, "open", opened)
        patch.setattr(io, "open", opened)

    def _wrapped(self, name, function):
        def call(path=".", *arguments, **options):
            self._meet(name, path, sys._getframe(1))
            return function(path, *arguments, **options)

        return call

    def _meet(self, name, path, frame):
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path).startswith(self.root):
            return
        ours = []  # where in our code
        while frame is not None and len(ours) < 3:
            if f"{os.sep}mpibayes{os.sep}" in frame.f_code.co_filename:
                ours.append((frame.f_code.co_filename, frame.f_lineno))
            frame = frame.f_back
        relative = re.sub(r"[0-9a-f]{16}|\d{5,}", "N", os.fspath(path)[len(self.root) :])
        key = (name, re.sub(r"-\d+$", "", relative), tuple(ours))
        self.seen[key] = None
        if key == self.failing:
            self.failing, self.failed = None, os.fspath(path)
            raise OSError(errno.EIO, os.strerror(errno.EIO), os.fspath(path))


@pytest.fixture(scope="module")
def victim(tmp_path_factory):
    """A run half-way, and what it exports when it was left alone."""
    place = half_way(tmp_path_factory.mktemp("half-way") / "place")
    straight = place.with_name("straight")
    shutil.copytree(place, straight)
    done(start(straight))
    return place, exports(straight / "run", straight / "exported")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    without_pictures(monkeypatch.setattr)


def refused(code, text, *names):
    """True if the command refused, with one message that has one of these names."""
    assert "Traceback" not in text and "internal error" not in text, text
    if code == 0:
        return False
    assert code in (2, 3, 4) and text.count("mpibayes: error") == 1, (code, text)
    assert any(name in re.sub(r"\s*\n\s*", "", text) for name in names), (names, text)
    return True


@pytest.mark.quick("run", "status", "csv", "labels", "arviz", "import", "predict", "complete")
@commands
def test_a_call_that_fails_is_told_with_the_name_of_the_file(victim, tmp_path, monkeypatch, command, request):
    """Fail some of the calls, each by its place in our code; with --long all of them."""
    whole, expected = victim
    place = tmp_path / "place"

    def fails(key):
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(whole, place)
        with monkeypatch.context() as patch:
            calls = Stumbling(place, patch)
            calls.failing = key
            return calls, *mpibayes(*COMMANDS[command](place))

    calls, code, text = fails(None)
    assert code == 0, text
    keys = list(calls.seen)
    for key in keys if request.config.getoption("--long") else keys[:: 1 + len(keys) // 5]:
        calls, code, text = fails(key)
        path = Path(calls.failed)
        was_refused = refused(code, text, path.name, path.parent.name)
        if command == "run":
            (place / "run" / lock.NAME).unlink(missing_ok=True)  # its owner, this process, is not dead
            if was_refused:
                done(start(place))
            assert exports(place / "run", tmp_path / "exported") == expected, key


FILES = (
    "table.h5", "run.toml", "run/LOCK", "run/config.toml", "run/config.resolved.toml", "run/provenance.json",
    "run/status.json", "run/training_rows.npy", "run/trace.h5", "run/logs/run.log", "run/checkpoints/000000008",
    "run/checkpoints/000000008/MANIFEST.json", "run/checkpoints/000000008/shared.h5",
    "run/checkpoints/000000008/part-00000.h5", "run/trace/seg-000000005-000000008.h5",
    "run/labels/seg-000000006-000000008.h5",
)  # fmt: skip


@pytest.mark.quick(every=6)
@pytest.mark.parametrize("file", FILES)
@pytest.mark.timeout(60)
def test_a_fifo_is_told_or_does_no_harm(victim, tmp_path, file):
    """Opening one waited for its other end, for ever."""
    whole, _ = victim
    place = tmp_path / "place"
    for command in ("status", "csv", "labels", "run"):
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(whole, place)
        path = place / file
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        os.mkfifo(path)
        refused(*mpibayes(*COMMANDS[command](place)), path.name)
