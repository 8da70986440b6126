"""Faults found by the fault campaign and the fuzzing, each with the least input that shows it."""

import signal
import subprocess
import sys

import pytest

from mpibayes.errors import ConfigError, DataError
from mpibayes.hpc.config.load import load
from mpibayes.hpc.run import clock, signals
from mpibayes.hpc.run import loop as run
from mpibayes.io.table import Table


def test_signals_are_watched_before_mpi_starts(monkeypatch):
    """Ctrl-C while the MPI library started was a KeyboardInterrupt inside of it: an internal error with a traceback."""
    handlers = []

    def world():
        handlers.extend(signal.getsignal(number) for number in signals.SIGNALS)
        raise ConfigError("far enough")

    monkeypatch.setattr(run, "world", world)
    before = {number: signal.getsignal(number) for number in signals.SIGNALS}
    try:
        assert run.main("run.toml") == 2
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert all(getattr(handler, "__func__", None) is clock.Clock._on_signal for handler in handlers)


def test_a_row_too_long_that_is_not_utf8_has_one_message(tmp_path):
    """pyarrow printed a traceback of its own beside ours."""
    (tmp_path / "bad.csv").write_bytes(b"a,b\n" + b"1,2\n" * 9 + b"3,4,\x81\n")
    words = ["import", "bad.csv", "bad.h5"]
    done = subprocess.run(
        [sys.executable, "-m", "mpibayes", *words], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 3 and "Traceback" not in done.stderr and done.stderr.count("mpibayes: error") == 1


SLOW = """
import sys, time
from mpibayes.io import csv_rows

class Slow:
    closed = False

    def __init__(self, raw):
        self.raw, self.reads = raw, 0

    def read(self, size=-1):
        self.reads += 1
        time.sleep(0.3 * (self.reads > 1))
        return self.raw.read(size)

    def close(self): pass

csv_rows.decompressed = Slow
from mpibayes.__main__ import main
sys.exit(main())
"""


def test_a_thread_that_still_reads_does_not_abort_the_process(tmp_path):
    """pyarrow's, after an error in an earlier row: it came back while the interpreter ended."""
    (tmp_path / "bad.csv").write_bytes(b"a,b\n" + b"1,2\n" * 9 + b"3,4,\x81\n" + b"1,2\n" * 3_000_000)
    words = [sys.executable, "-c", SLOW, "import", "bad.csv", "bad.h5"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3 and done.stderr.count("mpibayes: error") == 1


@pytest.mark.parametrize("path", ["a\\u0000b", "~nobody-has-this-name/table.h5"])
def test_a_text_that_is_no_path_is_a_mistake_in_the_configuration(tmp_path, path):
    (tmp_path / "run.toml").write_text(f'data.table = "{path}"\n')
    with pytest.raises(ConfigError, match=r"run\.toml.*cannot be a path"):
        load(tmp_path / "run.toml")


def test_a_name_beyond_all_limits_is_no_table(tmp_path):
    with pytest.raises(DataError, match="File name too long"):
        Table.open(tmp_path / ("x" * 5000))
