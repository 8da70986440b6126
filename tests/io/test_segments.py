"""Segments that overlap are read, counted, joined and cut as if they did not; a writer without its folder changes
nothing."""

import errno

import numpy as np
import pytest

from mpibayes.errors import CheckpointError
from mpibayes.io import segments
from mpibayes.io.segments import Segments, list_segments, read_attributes, read_blocks

# (first cycle, last cycle, last cycle stored before) of segments, as writers that did not know of each other left them
OVERLAPS = {
    "partial": [(1, 100, -1), (51, 150, 50), (151, 250, 150)],
    "nested": [(1, 250, -1), (101, 150, 100)],
    "nested in a later one": [(1, 100, -1), (90, 250, 89), (120, 180, 119)],
    "equal": [(1, 100, -1), (101, 250, 100), (101, 250, 100)],
    "three deep": [(1, 100, -1), (51, 150, 50), (76, 200, 75), (80, 250, 79)],
    "within two": [(1, 100, -1), (50, 120, 49), (101, 250, 100)],
    "one row": [(1, 100, -1), (100, 250, 99)],
    "none": [(1, 100, -1), (101, 250, 100)],
}
every = pytest.mark.parametrize("pieces", OVERLAPS.values(), ids=OVERLAPS)


def rows(first, last):
    cycle = np.arange(first, last + 1)
    return {"cycle": cycle, "x": np.sin(cycle), "z": np.multiply.outer(cycle, [1, 2]).astype(np.uint16)}


def count_rows(folder):
    return sum(len(block["cycle"]) for block in read_blocks(folder, ()))


def lay(folder, pieces):
    for first, last, before in pieces:
        writer = Segments(folder.parent / "other", "f", 1, "run-1")
        writer.last = before
        writer.write(rows(first, last), {"scalars": ["x"]})
        (made,) = (folder.parent / "other").iterdir()
        folder.mkdir(exist_ok=True)
        name = made.name if not (folder / made.name).exists() else f"seg-{first}-{last}.h5"
        made.rename(folder / name)


def check(folder, last):
    blocks = list(read_blocks(folder))
    result = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    assert result["cycle"].tolist() == list(range(1, last + 1))
    for name, expected in rows(1, last).items():
        assert np.array_equal(result[name], expected), name
    assert count_rows(folder) == last and list_segments(folder)[-1].last == last
    segments.require(folder, segments.Kept(last, "run-1"))
    with pytest.raises(CheckpointError, match="is missing"):
        segments.require(folder, segments.Kept(last + 1, "run-1"))
    assert read_attributes(folder)["run"] == "run-1" and read_attributes(folder)["scalars"].tolist() == ["x"]
    for after in (0, 60, 100, 125, last - 1):
        left = [c for block in read_blocks(folder, (), after) for c in block["cycle"].tolist()]
        assert left == list(range(after + 1, last + 1))


@every
def test_overlaps_are_read_and_counted_once(tmp_path, pieces):
    lay(tmp_path / "folder", pieces)
    check(tmp_path / "folder", 250)


@every
def test_overlaps_are_joined_once(tmp_path, pieces, monkeypatch):
    """Read in one go, and again with what is written later; with blocks that are cut inside the overlaps."""
    monkeypatch.setattr(segments, "BLOCK", 64)
    folder = tmp_path / "folder"
    lay(folder, pieces)
    writer = Segments(folder, "f", 1, "run-1")
    assert writer.last == 250
    writer._join()
    assert writer._joining and len(list(folder.iterdir())) == 1
    check(folder, 250)
    monkeypatch.setattr(segments, "MANY", 2)
    for last in range(260, 310, 10):
        writer.write(rows(last - 9, last), {"scalars": ["x"]})
    assert len(list(folder.iterdir())) <= 3
    check(folder, 300)


@pytest.mark.quick(every=6)
@every
@pytest.mark.parametrize("cycle", [1, 50, 75, 100, 110, 150, 200, 249])
def test_overlaps_are_cut(tmp_path, pieces, cycle):
    folder = tmp_path / "folder"
    lay(folder, pieces)
    writer = Segments(folder, "f", 1, "run-1")
    writer.truncate(cycle)
    assert writer.last == cycle
    blocks = list(read_blocks(folder))
    assert [c for block in blocks for c in block["cycle"].tolist()] == list(range(1, cycle + 1))
    assert np.array_equal(np.concatenate([block["x"] for block in blocks]), np.sin(np.arange(1, cycle + 1)))
    writer.write(rows(cycle + 1, 300), {"scalars": ["x"]})
    check(folder, 300)


class Taken:
    """A guard, and what it says once someone else has taken the directory."""

    def __init__(self):
        self.asked, self.left = 0, 10**9

    def __call__(self):
        self.asked += 1
        self.left -= 1
        if self.left < 0:
            raise CheckpointError("taken over")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


CHANGES = {
    "write": lambda writer: writer.write(rows(251, 260)),
    "write and join": lambda writer: (setattr(writer, "_n_small", 99), writer.write(rows(251, 260))),
    "truncate": lambda writer: writer.truncate(120),
    "truncate everything": lambda writer: writer.truncate(-1),
    "open": lambda writer: Segments(writer.folder, "f", 1, "run-1", writer._guard),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_who_lost_the_folder_changes_nothing_more(tmp_path, change, monkeypatch):
    """Whenever it is lost: before the first change, and between any two."""
    monkeypatch.setattr(segments, "MANY", 2)
    for lost in range(30):
        folder, guard = tmp_path / str(lost) / "folder", Taken()
        folder.parent.mkdir()
        lay(folder, OVERLAPS["partial"])
        writer = Segments(folder, "f", 1, "run-1", guard)
        lay(folder, [(60, 70, 59)])  # what opening cleans
        before = contents(folder)
        guard.left, guard.asked = lost, 0
        try:
            change(writer)
        except CheckpointError as error:
            assert str(error) == "taken over" and guard.asked >= lost + 1
        else:
            break
        if lost == 0:
            assert contents(folder) == before
        assert not list(folder.glob("*.tmp"))
        guard.left = 10**9
        writer = Segments(folder, "f", 1, "run-1")
        assert count_rows(folder) == max(writer.last, 0)  # a beginning, each cycle once
    assert 1 <= guard.asked == lost and contents(folder) != before


def test_traces_and_draws_ask_too(tmp_path):
    from mpibayes.io.draws import DrawWriter
    from mpibayes.io.trace import TraceWriter

    guard = Taken()
    trace, draws = TraceWriter(tmp_path, ["x"], guard=guard), DrawWriter(tmp_path, guard=guard)
    trace.append(1, {"x": 2.0})
    draws.append(1, labels=np.zeros(4, np.int32))
    guard.left = 0
    for writer in (trace, draws):
        with pytest.raises(CheckpointError, match="taken over"):
            writer.flush()
    with pytest.raises(CheckpointError, match="taken over"):
        TraceWriter(tmp_path, ["x"], axes={"theta": {"coefficient": ["a"]}}, guard=guard)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_segment_that_cannot_be_looked_at_is_named(tmp_path, monkeypatch):
    """Joining leaves it as it is, and the chain goes on."""
    folder = tmp_path / "folder"
    lay(folder, OVERLAPS["none"])
    stat = segments.Path.stat

    def fails(path, **options):
        if path.name == "seg-000000001-000000100.h5":
            raise OSError(errno.ESTALE, "Stale file handle")
        return stat(path, **options)

    writer = Segments(folder, "f", 1, "run-1")
    monkeypatch.setattr(segments.Path, "stat", fails)
    with pytest.raises(CheckpointError, match=r"seg-000000001-000000100\.h5: cannot be read: Stale file handle"):
        Segments(folder, "f", 1, "run-1")
    writer._join()
    assert not writer._joining and len(list(folder.iterdir())) == 2
    writer.write(rows(251, 260), {"scalars": ["x"]})
    check(folder, 260)
