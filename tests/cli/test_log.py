"""Progress: greppable lines at growing distances in a batch log, a display on a terminal, status.json's numbers."""

import io
import math

from mpibayes.hpc.log import Progress, duration, line, rate


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def values(cycle, **more):
    return {
        "cycle": cycle, "n_clusters": 37, "log_joint": -1.2345e7, "concentration": 1.84, "discount": 0.0,
        "moved_fraction": 0.031, "heldout_lpd": math.nan, "entropy": 2.5, "seconds": 0.5, **more,
    }  # fmt: skip


def test_lines_come_at_growing_distances_then_each_minute(tmp_path):
    clock, stream = Clock(), io.StringIO()
    progress = Progress(tmp_path, 0, 1000, 5000, stream, clock)
    for cycle in range(1, 1001):
        clock.now = 0.5 * cycle
        progress.update(values(cycle))
    progress.close()
    lines = stream.getvalue().splitlines()
    cycles = [int(text.split("cycle=")[1].split("/")[0]) for text in lines]
    assert cycles == [2, 6, 14, 30, 62, 126, 246, 366, 486, 606, 726, 846, 966, 1000]
    assert (tmp_path / "logs" / "run.log").read_text() == stream.getvalue()
    assert lines[0].split()[1:] == [
        "cycle=2/1000", "K=37", "logp=-1.23450e+07", "alpha=1.84", "d=0", "moved=3.1%", "0.5s/cycle", "10krows/s",
        "eta=8m19s",
    ]  # fmt: skip
    assert "\x1b" not in stream.getvalue() and "\r" not in stream.getvalue()


def test_the_last_held_out_score_stays(tmp_path):
    progress = Progress(tmp_path, 10, 20, 100, io.StringIO(), Clock())
    progress.update(values(11, heldout_lpd=-20.5))
    progress.update(values(12))
    status = progress.status()
    assert status["heldout_lpd"] == -20.5 and status["cycle"] == 12 and status["n_clusters"] == 37
    assert status["eta_s"] == 4.0 and status["rows_per_second"] == 200.0
    assert progress.status(values(12, log_joint=-1.0))["log_joint"] == -1.0
    assert "heldout=-20.5000" in line(status)
    progress.close()


def test_before_the_first_cycle(tmp_path):
    progress = Progress(tmp_path, 3, 20, 100, io.StringIO(), Clock())
    status = progress.status(None)
    progress.close()
    assert status["cycle"] == 3 and status["seconds_per_cycle"] is None and status["eta_s"] is None
    assert line(status) == "cycle=3/20"


def test_notes_and_a_log_that_cannot_be_written(tmp_path):
    (tmp_path / "logs").write_text("in the way")
    stream = io.StringIO()
    progress = Progress(tmp_path, 0, 1, 10, stream)
    progress.note("stopped [early]")
    progress.update(values(1))
    progress.close()
    assert "stopped [early]" in stream.getvalue() and "cycle=1/1" in stream.getvalue()


def test_a_terminal_gets_a_display(tmp_path):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    progress = Progress(tmp_path, 0, 2, 10, stream)
    progress.update(values(1))
    progress.note("a [word]")
    progress.update(values(2))
    progress.close()
    assert "a [word]" in stream.getvalue()
    logged = (tmp_path / "logs" / "run.log").read_text()
    assert "a [word]" in logged and "cycle=2/2" in logged and "\x1b" not in logged


def test_words_for_numbers():
    assert [duration(s) for s in (0, 59.6, 312, 3600 * 3 + 300, 86400 * 2 + 4 * 3600, None, math.inf)] == [
        "0s", "1m00s", "5m12s", "3h05m", "2d04h", "?", "?",
    ]  # fmt: skip
    assert [rate(r) for r in (830, 21_300, 2.2e6, None)] == ["830rows/s", "21.3krows/s", "2.2Mrows/s", "?rows/s"]
