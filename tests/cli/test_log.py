"""Progress: greppable lines at growing distances in a batch log, a display on a terminal, status.json's numbers."""

import io
import math
from itertools import pairwise

import pytest

from mpibayes.hpc.crosscat.scalars import SCALARS
from mpibayes.hpc.run.live import BLOCKS, MOST_PAST, Past, panel, plot
from mpibayes.hpc.run.progress import Progress, line, say
from mpibayes.io.trace import TraceWriter, last_values
from mpibayes.terminal import Console
from mpibayes.text import count, duration, rate


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
    progress = Progress(tmp_path, 0, 1000, 5000, SCALARS, stream, clock)
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


def test_a_chain_that_goes_on_knows_what_it_had(tmp_path):
    """Before its first cycle; what was not computed in the last one is from before."""
    trace = TraceWriter(tmp_path, [s.name for s in SCALARS])
    for cycle in range(1, 11):
        score = {"heldout_lpd": -20.0 - cycle} if cycle < 8 else {}
        trace.append(cycle, dict.fromkeys((s.name for s in SCALARS), math.nan) | values(cycle, **score))
    trace.flush()
    last = last_values(tmp_path, 10)
    progress = Progress(tmp_path, 10, 20, 100, SCALARS, io.StringIO(), Clock(), values=last)
    progress.close()
    status = progress.status()
    assert status["n_clusters"] == 37 and status["heldout_lpd"] == -27.0 and status["cycle"] == 10
    assert last_values(tmp_path / "absent", 10) == {}


def test_the_last_held_out_score_stays(tmp_path):
    progress = Progress(tmp_path, 10, 20, 100, SCALARS, io.StringIO(), Clock())
    progress.update(values(11, heldout_lpd=-20.5))
    progress.update(values(12))
    status = progress.status()
    assert status["heldout_lpd"] == -20.5 and status["cycle"] == 12 and status["n_clusters"] == 37
    assert status["eta_s"] == pytest.approx(4.0) and status["rows_per_second"] == pytest.approx(200.0)
    assert progress.status(values(12, log_joint=-1.0))["log_joint"] == -1.0
    assert "heldout=-20.5000" in line(status, SCALARS, {})
    progress.close()


def test_rows_that_come_in_and_moves(tmp_path):
    """Rows are told while they come in; moves are counted from line to line; the rest takes as long as full cycles."""
    clock, stream = Clock(), io.StringIO()
    progress = Progress(tmp_path, 0, 100, 180_000, SCALARS, stream, clock)
    for cycle, active in ((1, 1000), (2, 12_345), (3, 180_000)):
        clock.now = 4.0 * cycle**2
        moves = {"splits_tried": 10.0, "splits": 2.0, "merges_tried": 3.0, "merges": 1.0}
        progress.update(values(cycle, active_rows=float(active), seconds=active / 1e5, **(moves if cycle < 3 else {})))
        if cycle == 2:
            progress.update(values(2, active_rows=12_345.0, seconds=0.12345, **moves))
            assert progress.status()["active_rows"] == 12_345 and progress.status()["rows"] == 180_000
            assert progress.status()["eta_s"] == pytest.approx(98 * 1.8)
    progress.close()
    first, second, third = (text.split()[1:] for text in stream.getvalue().splitlines())
    assert first[1:3] == ["K=37", "rows=1k/180k"] and second[2] == "rows=12.3k/180k"
    assert (
        first[first.index("moved=3.1%") + 1] == "moves=3/13" and second[second.index("moved=3.1%") + 1] == "moves=3/13"
    )
    assert not any(word.startswith("rows=") for word in third) and "moves=3/13" in third  # of the cycle in between


def test_the_time_left_while_rows_come_in(tmp_path):
    """Cycles of 0.05 s and 1 microsecond a row: nothing is said of ten cycles over 1,000 of 100,000 rows, which could
    be all fixed cost or all rows; then what a full cycle takes is found. Its cost a row is not that of small ones."""
    progress = Progress(tmp_path, 0, 200, 100_000, SCALARS, io.StringIO(), Clock())
    active = [1000] * 10 + [int(1000 * 1.15**i) for i in range(30)]
    for cycle, rows in enumerate(active, 1):
        progress.update(values(cycle, active_rows=float(rows), seconds=0.05 + 1e-6 * rows))
        if cycle <= 10:
            assert progress.status()["eta_s"] is None and "eta=?" in line(progress.status(), SCALARS, {})
    assert progress.status()["eta_s"] == pytest.approx(160 * 0.15)
    progress.close()


def test_before_the_first_cycle(tmp_path):
    progress = Progress(tmp_path, 3, 20, 100, SCALARS, io.StringIO(), Clock())
    status = progress.status(None)
    progress.close()
    assert status["cycle"] == 3 and status["seconds_per_cycle"] is None and status["eta_s"] is None
    assert line(status, SCALARS, {}) == "cycle=3/20"


def test_notes_and_a_log_that_cannot_be_written(tmp_path):
    (tmp_path / "logs").write_text("in the way")
    stream = io.StringIO()
    progress = Progress(tmp_path, 0, 1, 10, SCALARS, stream)
    progress.note("stopped [early]")
    progress.update(values(1))
    progress.close()
    assert "stopped [early]" in stream.getvalue() and "cycle=1/1" in stream.getvalue()


def test_a_line_is_written_as_one_piece(tmp_path, monkeypatch):
    """Ranks share an output, and where Python does not buffer it, pieces of two lines would mix."""
    pieces = []

    class Stream(io.StringIO):
        def write(self, text):
            pieces.append(text)
            return len(text)

    progress = Progress(tmp_path, 0, 10, 500, SCALARS, Stream(), Clock())
    progress.note("the first words")
    progress.close()
    monkeypatch.setattr("sys.stdout", Stream())
    say("the second words")
    assert len(pieces) == 2 and all(text.endswith(" words\n") for text in pieces)


def test_a_terminal_gets_a_display(tmp_path):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    progress = Progress(tmp_path, 0, 2, 10, SCALARS, stream)
    progress.update(values(1))
    progress.note("a [word]")
    progress.update(values(2))
    progress.close()
    assert "a [word]" in stream.getvalue()
    logged = (tmp_path / "logs" / "run.log").read_text()
    assert "a [word]" in logged and "cycle=2/2" in logged and "\x1b" not in logged


def shown_at(width, height=24, encoding="utf-8", n=40):
    """The display of a chain after n cycles, line by line."""
    past = Past()
    for i in range(n):
        past.add({"n_clusters": 3 + i % 2, "log_joint": -1e9 if i < 2 else -900.0 + i, "discount": 0.0})
    status = {"cycle": n, "cycles": 100, "rows": 10, "seconds_per_cycle": 0.5, "rows_per_second": 20.0, "eta_s": 30.0}
    status |= {"elapsed_s": 20.0, "n_clusters": 4, "log_joint": -861.0, "discount": 0.0}
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    console = Console(
        file=file, width=width, height=height, force_terminal=True, color_system=None, legacy_windows=False
    )
    console.print(panel(status, SCALARS, "chain 2 of 3", past))
    file.flush()
    return [line.rstrip() for line in raw.getvalue().decode(encoding).splitlines()]


@pytest.mark.parametrize("width", [30, 50, 80, 140])
def test_the_display_fits_its_terminal(width):
    lines = shown_at(width)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width and "chain 2" in text and "-861" in text
    assert ("0.5 s a cycle" in text) == (width >= 64) and "█" in text
    assert ("40 %" if width > 30 else "40/100") in text and "30s left" in text


def test_the_display_of_a_low_terminal_or_one_without_block_letters():
    tall, low = (sum("█" in line for line in shown_at(80, height)) for height in (24, 10))
    assert tall > low >= 1
    assert not set("".join(shown_at(80, encoding="ascii"))) & set(BLOCKS[1:])


def test_a_start_far_below_does_not_flatten_the_plot():
    (line,) = plot([-1e9, -1e9, *range(16)], 18)
    assert line[0] == line[1] == "▁" and line[-1] == "█" and len(set(line[2:])) >= 6
    assert plot([2.0, 2.0], 5) == ["▄▄"] and plot([], 5, 2) == ["", ""]


def test_what_was_long_ago_is_thinned():
    past = Past()
    for i in range(10_000):
        past.add({"a": i, "b": float("nan")})
    kept = past.values["a"]
    assert len(kept) <= MOST_PAST and kept[-1] > 9_900 and list(past.values) == ["a"]
    steps = {b - a for a, b in pairwise(kept)}
    assert len(steps) == 1


def test_words_for_numbers():
    assert [duration(s) for s in (0, 59.6, 312, 3600 * 3 + 300, 86400 * 2 + 4 * 3600, None, math.inf)] == [
        "0s", "1m00s", "5m12s", "3h05m", "2d04h", "?", "?",
    ]  # fmt: skip
    assert [count(n) for n in (1, 830, 999.6, 1000, 12_345, 180_000, 999_999, 2.2e6, 1.05e9)] == [
        "1", "830", "1k", "1k", "12.3k", "180k", "1M", "2.2M", "1.05G",
    ]  # fmt: skip
    assert [rate(r) for r in (830, 21_300, 2.2e6, None)] == ["830rows/s", "21.3krows/s", "2.2Mrows/s", "?rows/s"]


def test_no_display_under_a_launcher(tmp_path, monkeypatch):
    """Open MPI's mpirun gives its ranks a terminal, and what is written there ends in the batch log."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    progress = Progress(tmp_path, 0, 10, 100, SCALARS, stream)
    progress.note("words")
    progress.close()
    assert stream.getvalue().endswith(" words\n") and "\x1b" not in stream.getvalue()
