"""What the fault campaign and the fuzzing found, each with the least that shows it."""

import signal
import subprocess
import sys

from mpibayes.hpc import clock, run
from mpibayes.hpc.errors import ConfigError


def test_signals_are_watched_before_mpi_starts(monkeypatch):
    """Ctrl-C while the MPI library started was a KeyboardInterrupt inside of it, and then a segmentation fault."""
    handlers = []

    def world():
        handlers.extend(signal.getsignal(number) for number in clock.SIGNALS)
        raise ConfigError("far enough")

    monkeypatch.setattr(run, "world", world)
    before = {number: signal.getsignal(number) for number in clock.SIGNALS}
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
