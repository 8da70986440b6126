"""Append-only records in small files: a folder of segments, each an HDF5 file with the rows of consecutive cycles.

`seg-<first cycle>-<last cycle>.h5` holds `cycle` int64 (n,), ascending, and other datasets of n rows each, which may be
longer along their first axis than those of another segment: when joined, the shorter ones are padded with zeros. A
segment is written once, under a temporary name that is then renamed, and never changed: a kill leaves complete
segments. Cutting and joining write the new segment before removing the old ones, so a kill in between leaves a segment
whose range lies within another's; it is redundant and skipped. Segments may also overlap in part, if a writer presumed
dead continued for a moment: the chain produces the same rows again, and each cycle counts once.

A segment is sealed (`io/seal.py`). Its attributes `run` (its owner) and `after` (the last cycle stored before it, -1:
none) reveal a segment of another run, and a missing segment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mpibayes.errors import CheckpointError
from mpibayes.io.files import (
    Guard,
    make_directory,
    reading,
    reason,
    remove_left_overs,
    replacing,
    storing,
    sync_directory,
    unguarded,
)
from mpibayes.io.h5 import reading_h5, write_h5
from mpibayes.io.seal import Seal, append_seal

# More than MANY small segments are joined; a joined one stays below JOINED bytes, so joining is a bounded rewrite.
MANY = 64
SMALL = 4 << 20
JOINED = 16 << 20
BLOCK = 4 << 20  # bytes of one dataset held while reading


@dataclass(frozen=True)
class Segment:
    path: Path
    first: int
    last: int


def list_segments(folder: str | Path) -> list[Segment]:
    """Segments of a folder in order of cycle, without those that lie within another; [] if there is no folder."""
    return _list(Path(folder))[0]


@dataclass(frozen=True)
class Kept:
    """Record of a folder of segments in a checkpoint: the last cycle in it (-1: none), and its run."""

    last: int
    run: str = ""


def require(folder: str | Path, kept: Kept) -> None:
    """Raise CheckpointError if the folder lacks the newest rows that a checkpoint relies on."""
    segments = list_segments(folder)
    last = segments[-1].last if segments else -1
    if last < kept.last:
        raise CheckpointError(
            f"{Path(folder) / f'seg-*-{kept.last:09d}.h5'}: is missing: the newest checkpoint was written after "
            f"it, and what is there ends at cycle {last}. Restore it from a copy, or move that checkpoint away to go "
            "back."
        )


def read_blocks(
    folder: str | Path, names: Sequence[str] | None = None, after: int = -1, kept: Kept | None = None
) -> Iterator[dict[str, np.ndarray]]:
    """Yield the rows with cycle > `after`, a block of some MiB at a time: {"cycle": (n,), name: (n, ...)}.

    names: requested datasets, None for all. A running writer may join segments meanwhile: no row is missed or repeated.
    Raises CheckpointError naming a segment that is damaged, missing or of another run. kept: a checkpoint's record of
    the folder.
    """
    tries, run = 0, kept.run if kept else ""
    if kept:
        require(folder, kept)
    while True:
        segment = next((s for s in list_segments(folder) if s.last > after), None)
        if segment is None:
            return
        try:
            with _open(segment.path) as file:
                if (before := _check(file, segment, run)) > after and tries < 5:
                    tries += 1  # missing, or joined while the folder was listed
                    continue
                run = run or str(file.attrs["run"])
                data, n, step = _stored(file, names) if before <= after else ({}, 0, 0)
                small = {name: of[:step] for name, of in data.items()} if step >= n else None
            if before > after:
                raise _missing(segment, before)
            for block in _blocks(segment.path, names) if small is None else [small]:
                new = block["cycle"] > after  # where segments overlap, the first counts
                after = int(block["cycle"].max(initial=after))
                if new.any():
                    yield block if new.all() else {name: array[new] for name, array in block.items()}
            after = max(after, segment.last)
            tries = 0
        except FileNotFoundError:  # joined or cut between the listing and the opening
            tries += 1
            if tries > 5:
                raise CheckpointError(f"{segment.path}: vanished while it was read") from None


def read_attributes(folder: str | Path) -> dict[str, Any]:
    """Attributes of the newest segment; {} if there is none. Raises CheckpointError."""
    for last_try in (False, False, False, False, True):
        segments = list_segments(folder)
        if not segments:
            return {}
        try:
            with _open(segments[-1].path) as file:
                return dict(file.attrs)
        except FileNotFoundError as error:  # joined or cut between the listing and the opening
            if last_try:
                raise CheckpointError(f"{segments[-1].path}: vanished while it was read") from error
    raise AssertionError


class Segments:
    """The only writer of a folder. Opening it removes the leftovers of a killed writer: temporary and superseded files.

    guard: called before each change of the folder, so that a writer that was frozen and presumed dead changes nothing
    when it resumes.
    """

    def __init__(self, folder: str | Path, format: str, version: int, run: str = "", guard: Guard = unguarded):
        self.folder, self._guard = Path(folder), guard
        self.attributes = {"format": format, "version": version, "run": run}
        self.last: int = -1  # the last cycle stored
        self._n_small: int = 0  # upper bound on the number of small segments
        self._joining = True
        with storing(self.folder):
            self._guard()
            make_directory(self.folder, within=self.folder.parent)
            remove_left_overs(self.folder, self._guard)
            self._clean()
        self._recount()

    def write(self, columns: Mapping[str, np.ndarray], attributes: Mapping[str, Any] | None = None) -> None:
        """Store one more segment; columns must have "cycle", ascending and beyond all stored cycles.

        Raises ValueError, CheckpointError.
        """
        cycle = columns["cycle"]
        if len(cycle) == 0:
            return
        if cycle[0] <= self.last or np.any(np.diff(cycle) <= 0):
            raise ValueError(f"{self.folder}: cycles must go on from {self.last}, not {cycle[0]}")

        def fill(file: h5py.File) -> None:
            file.attrs.update(self.attributes | {"after": self.last} | dict(attributes or {}))
            for name, array in columns.items():
                _create(file, name, array.shape, array.dtype)[...] = array

        self._put(int(cycle[0]), int(cycle[-1]), fill)
        self.last = int(cycle[-1])
        self._n_small += 1  # counted as small until checked: checking costs more than a needless recount
        if self._n_small > MANY:
            self._recount()
            if self._n_small > MANY and self._joining:
                self._join()

    def truncate(self, cycle: int) -> None:
        """Forget all rows beyond `cycle` (-1: all rows), newest first, so that a kill leaves a valid beginning.

        Raises CheckpointError.
        """
        with storing(self.folder):
            self._clean()
            for segment in reversed(list_segments(self.folder)):
                if segment.first > cycle:
                    self._remove(segment.path)
                elif segment.last > cycle:
                    self._rewrite([segment], cycle)
            sync_directory(self.folder)
        self._recount()

    def _put(self, first: int, last: int, fill: Callable[[h5py.File], None]) -> None:
        path = self.folder / f"seg-{first:09d}-{last:09d}.h5"
        with storing(path), replacing(path, guard=self._guard) as file:
            write_h5(file, fill)
            append_seal(file)

    def _remove(self, path: Path) -> None:
        self._guard()
        with storing(path):
            path.unlink(missing_ok=True)

    def _clean(self) -> None:
        for segment in _list(self.folder)[1]:
            self._remove(segment.path)

    def _recount(self) -> None:
        segments = list_segments(self.folder)
        self.last = segments[-1].last if segments else -1
        self._n_small = sum(size_of(s) < SMALL for s in segments)

    def _join(self) -> None:
        """Join neighbouring small segments if they can be read: damaged or missing ones are left for readers to report,
        and the chain continues."""
        try:
            self._join_neighbours()
        except (CheckpointError, OSError):
            self._guard()
            self._joining = False
        else:
            self._recount()

    def _join_neighbours(self) -> None:
        run: list[Segment] = []
        size = 0
        for segment in [*list_segments(self.folder), None]:
            add = size_of(segment) if segment else JOINED
            if segment and add < SMALL and size + add < JOINED:
                run.append(segment)
                size += add
                continue
            if len(run) > 1:
                self._rewrite(run, run[-1].last)
            run, size = ([segment], add) if segment and add < SMALL else ([], 0)

    def _rewrite(self, segments: list[Segment], last: int) -> None:
        """Write the rows of `segments` with cycle <= last to one new segment, a block at a time; remove the old
        ones."""
        shapes: dict[str, tuple[int, ...]] = {}
        dtypes: dict[str, np.dtype] = {}
        n_rows, final, attributes = 0, -1, {}
        for i, segment in enumerate(segments):
            with _open(segment.path) as file:
                before = _check(file, segment, attributes.get("run", ""))
                if i and before > segments[i - 1].last:
                    raise _missing(segment, before)
                attributes = {**file.attrs, "after": attributes.get("after", file.attrs["after"])}
                cycle = file["cycle"][()]
                cycle = cycle[(cycle > final) & (cycle <= last)]
                n_rows, final = n_rows + len(cycle), int(cycle.max(initial=final))
                for name, data in file.items():
                    here, so_far = data.shape[1:], shapes.get(name, data.shape[1:])
                    if here[1:] != so_far[1:] or len(here) != len(so_far):
                        raise CheckpointError(f"{segment.path}: {name} has rows of shape {here}, elsewhere {so_far}")
                    shapes[name] = max(here, so_far)
                    dtypes[name] = np.promote_types(dtypes.get(name, data.dtype), data.dtype)

        def fill(file: h5py.File) -> None:
            file.attrs.update(attributes)
            out = {name: _create(file, name, (n_rows, *shapes[name]), dtypes[name]) for name in shapes}
            at, done = 0, -1
            for segment in segments:
                for block in _blocks(segment.path, None):
                    cycle = block["cycle"]
                    new = (cycle > done) & (cycle <= last)
                    n = int(new.sum())
                    for name, array in block.items():
                        length = array.shape[1:2]  # shorter rows have zeros behind them
                        out[name][(slice(at, at + n), *map(slice, length))] = array[new]
                    at, done = at + n, int(cycle.max(initial=done))

        self._put(segments[0].first, final, fill)
        for segment in segments:
            self._remove(segment.path)


def _list(folder: Path) -> tuple[list[Segment], list[Segment]]:
    """Return (segments that count, segments that lie within one of those)."""
    segments = []
    with reading(folder, CheckpointError):
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            names = []
    for name in names:
        match = re.fullmatch(r"seg-(\d+)-(\d+)\.h5", name)
        if match:
            segments.append(Segment(folder / name, int(match[1]), int(match[2])))
    segments.sort(key=lambda s: (s.first, -s.last))
    counting: list[Segment] = []
    within: list[Segment] = []
    for segment in segments:
        (within if counting and segment.last <= counting[-1].last else counting).append(segment)
    return counting, within


def size_of(segment: Segment) -> int:
    """Size of a segment in bytes. Raises CheckpointError."""
    with reading(segment.path, CheckpointError):
        return segment.path.stat().st_size


def _check(file: h5py.File, segment: Segment, run: str) -> int:
    """Last cycle stored before this segment. Raises CheckpointError if it is of another run, ValueError for wrong
    cycles."""
    owner, cycle = str(file.attrs["run"]), file["cycle"]
    if run and owner != run:
        raise CheckpointError(f"{segment.path}: is of another run. Restore this run's file from a copy.")
    if len(cycle) == 0 or (int(cycle[0]), int(cycle[-1])) != (segment.first, segment.last):
        raise ValueError("its cycles are not those of its name")
    return int(file.attrs["after"])


def _missing(segment: Segment, before: int) -> CheckpointError:
    return CheckpointError(
        f"{segment.path.with_name(f'seg-*-{before:09d}.h5')}: is missing: {segment.path.name} goes on from there. "
        "Restore it from a copy; checkpoints do not depend on it."
    )


def _create(file: h5py.File, name: str, shape: tuple[int, ...], dtype: np.dtype) -> h5py.Dataset:
    """Create a dataset in chunks of about 1 MiB of whole rows, each with a checksum that HDF5 verifies on reading."""
    n_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if n_bytes == 0:
        return file.create_dataset(name, shape, dtype)
    chunks = (min(shape[0], max(1, (shape[0] << 20) // n_bytes)), *(min(n, 1 << 18) for n in shape[1:]))
    # Unsigned columns are labels and shrink well; noise in floating point does not.
    packed = {"compression": "gzip", "compression_opts": 1, "shuffle": True} if dtype.kind == "u" else {}
    return file.create_dataset(name, shape, dtype, chunks=chunks, fletcher32=True, **packed)


@contextmanager
def _open(path: Path) -> Iterator[h5py.File]:
    """Open a segment for reading; any HDF5 error becomes a CheckpointError that names the file.

    Raises FileNotFoundError if there is none.
    """
    try:
        seal = Seal.of(path)
        seal.require()
        seal.verify_contents()
        with reading_h5(path, CheckpointError) as file:
            yield file
    except FileNotFoundError:
        raise
    except (OSError, KeyError, RuntimeError, ValueError) as error:
        raise CheckpointError(
            f"{path}: damaged or not a segment of this format ({reason(error)}). Restore it from a copy; "
            "checkpoints do not depend on it."
        ) from error


def _stored(file: h5py.File, names: Sequence[str] | None) -> tuple[dict[str, h5py.Dataset], int, int]:
    """Return the requested datasets of an open segment, its number of rows, and how many of them are read at a time."""
    stored = list(file) if names is None else ["cycle", *(n for n in names if n != "cycle")]
    data = {name: file[name] for name in stored}
    step = n = data["cycle"].shape[0]
    for name, of in data.items():
        if of.shape[0] != n:
            raise ValueError(f"{name} has {of.shape[0]} rows, cycle has {n}")
        if of.chunks:
            row = max(1, of.nbytes // n)
            step = min(step, max(1, BLOCK // (row * of.chunks[0])) * of.chunks[0])
    return data, n, step


def _blocks(path: Path, names: Sequence[str] | None) -> Iterator[dict[str, np.ndarray]]:
    with _open(path) as file:
        stored, n, step = _stored(file, names)
    # The file is closed between blocks: a reader that stops half-way, or computes for long, keeps no file open.
    for start in range(0, n, max(1, step)):
        with _open(path) as file:
            block = {name: file[name][start : start + step] for name in stored}
        yield block
