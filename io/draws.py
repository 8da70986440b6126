"""Kept draws: named arrays too large for a row of the trace, one set per draw.

`labels/seg-<first>-<last>.h5` (`io/segments.py`), one draw per row: cycle int64 (D,), and each array (D, ...) under its
name, integers in the smallest unsigned type that fits, all others float64. The family defines the arrays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from mpibayes.io import generations
from mpibayes.io.files import Guard, unguarded
from mpibayes.io.segments import Segments, list_segments, read_blocks

FOLDER = "labels"
BUFFERED = 2 << 20  # bytes of draws kept in memory before a segment is written

Draw = tuple[int, dict[str, np.ndarray]]  # cycle, and arrays by name, as stored


class DrawWriter:
    """Appends draws; root alone. Draws appended since the last segment or `flush` are lost if the process dies.

    whole: names of arrays, if present, that hold non-negative integers. guard: see `Segments`.
    """

    def __init__(
        self, run_dir: str | Path, run: str = "", guard: Guard = unguarded, *, whole: Collection[str] = ()
    ):  # fmt: skip
        self._segments = Segments(Path(run_dir) / FOLDER, "mpibayes-labels-segment", 1, run, guard)
        self._whole = tuple(whole)
        self._cycles: list[int] = []
        self._buffers: dict[str, np.ndarray] = {}  # (capacity, ...) each; rows beyond len(_cycles) are unused

    @property
    def last_cycle(self) -> int:
        """Last cycle appended, or -1."""
        return self._cycles[-1] if self._cycles else self._segments.last

    def append(self, cycle: int, **arrays: ArrayLike) -> None:
        """Copy one draw: the same arrays every time, of the same shapes except for the length of the first axis.
        Shorter arrays may be read back padded with zeros.

        Raises ValueError (a cycle not beyond the last, a negative integer), CheckpointError.
        """
        if cycle <= self.last_cycle:
            raise ValueError(f"kept draws go on from cycle {self.last_cycle}, not {cycle}; truncate them on resuming")
        tops = {name: int(np.max(arrays[name], initial=0)) for name in self._whole if name in arrays}
        for name in tops:
            if np.min(arrays[name], initial=0) < 0:
                raise ValueError(f"cycle {cycle}: {name} of a kept draw are whole numbers from 0, and one is negative")
        room = {name: np.iinfo(self._buffers[name].dtype).max for name in tops if self._buffers}
        if any(tops[name] > room[name] for name in room):
            self.flush()  # wider integers leave room for fewer draws
            tops = {name: max(tops[name], room[name]) for name in room}
            self._buffers = {}
        if any(np.shape(arrays[name])[:1] > buffer.shape[1:2] for name, buffer in self._buffers.items()):
            self.flush()
            self._buffers = {}
        if not self._buffers:
            self._allocate(arrays, tops)
        for name, buffer in self._buffers.items():
            row, length = buffer[len(self._cycles) :][:1], np.shape(arrays[name])[:1]
            row[...] = 0
            row[(0, *map(slice, length))] = arrays[name]
        self._cycles.append(int(cycle))
        if len(self._cycles) == len(buffer):
            self.flush()

    def flush(self) -> None:
        """Write the buffered draws as one segment, on disk when this returns.

        Raises CheckpointError; the buffer is then kept.
        """
        n = len(self._cycles)
        if n == 0:
            return
        columns = {"cycle": np.asarray(self._cycles, dtype=np.int64)}
        columns |= {name: buffer[:n] for name, buffer in self._buffers.items()}
        for name in columns.keys() & set(self._whole):
            columns[name] = columns[name].astype(_unsigned(int(columns[name].max(initial=0))), copy=False)
        self._segments.write(columns)
        self._cycles = []

    def truncate(self, cycle: int) -> None:
        """Forget all draws beyond `cycle` (-1: all draws)."""
        self._cycles = [c for c in self._cycles if c <= cycle]
        self._segments.truncate(cycle)

    def _allocate(self, arrays: Mapping[str, ArrayLike], tops: Mapping[str, int]) -> None:
        """Allocate buffers for draws like this one, with integers up to `tops`."""
        rows = {
            name: np.empty(np.shape(array), _unsigned(tops[name]) if name in tops else np.float64)
            for name, array in arrays.items()
        }
        n = int(np.clip(BUFFERED // (8 + sum(row.nbytes for row in rows.values())), 1, 65536))
        self._buffers = {name: np.empty((n, *row.shape), row.dtype) for name, row in rows.items()}


def iterate_draws(run_dir: str | Path, start_cycle: int = 0) -> Iterator[Draw]:
    """Yield the kept draws of one chain with cycle >= start_cycle, one at a time, in constant memory.

    Raises CheckpointError naming a damaged segment.
    """
    kept = generations.kept(run_dir, FOLDER)
    for block in read_blocks(Path(run_dir) / FOLDER, None, start_cycle - 1, kept):
        for row in range(len(block["cycle"])):
            yield _draw(block, row)


def last_draw(run_dir: str | Path) -> Draw | None:
    """Last kept draw of one chain, e.g. to start another run from it; None if there is none."""
    kept, segments = generations.kept(run_dir, FOLDER), list_segments(Path(run_dir) / FOLDER)
    if not segments and kept is None:
        return None
    draw, last = None, segments[-1].last if segments else -1
    for block in read_blocks(Path(run_dir) / FOLDER, None, last - 1, kept):
        draw = _draw(block, len(block["cycle"]) - 1)
    return draw


def _draw(block: dict[str, np.ndarray], row: int) -> Draw:
    return int(block["cycle"][row]), {name: a[row].copy() for name, a in block.items() if name != "cycle"}


def _unsigned(top: int) -> np.dtype:
    """Smallest unsigned type for 0..top."""
    return np.dtype(np.uint8 if top < 1 << 8 else np.uint16 if top < 1 << 16 else np.uint32)
