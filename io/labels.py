"""Kept draws: the labels of all training rows with the hyperparameters they were drawn under.

`labels/seg-<first>-<last>.h5` (`io/segments.py`), one draw a row: cycle int64 (D,), labels (D, N) in the smallest
unsigned type that fits, concentration and discount float64 (D,), dirichlet float64 (D, C), normal float64 (D, R, 4),
gamma float64 (D, Q, 2), and wishart float64 (D, B, 3) where there are blocks of columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mpibayes.io import checkpoint
from mpibayes.io.files import Guard, unguarded
from mpibayes.io.segments import Segments, count_rows, list_segments, read_blocks

FOLDER = "labels"
BUFFERED = 16 << 20  # bytes of labels and hyperparameters kept in memory before a segment is written


@dataclass(frozen=True)
class Draw:
    """One kept draw."""

    cycle: int
    labels: np.ndarray  # int64 (N,), clusters as numbered in the run
    concentration: float
    discount: float
    dirichlet: np.ndarray  # float64 (C,)
    normal: np.ndarray  # float64 (R, 4)
    gamma: np.ndarray  # float64 (Q, 2)
    wishart: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))  # float64 (B, 3)


class DrawWriter:
    """Appends draws; root alone. What was appended since the last segment or `flush` is lost with the process.

    guard: see `Segments`.
    """

    def __init__(self, run_dir: str | Path, run: str = "", guard: Guard = unguarded):
        self._segments = Segments(Path(run_dir) / FOLDER, "mpibayes-labels-segment", 1, run, guard)
        self._cycles: list[int] = []
        self._buffers: dict[str, np.ndarray] = {}  # (capacity, ...) each; rows beyond len(_cycles) are unused

    @property
    def last_cycle(self) -> int:
        """The last cycle appended, or -1."""
        return self._cycles[-1] if self._cycles else self._segments.last

    def append(
        self,
        cycle: int,
        labels: np.ndarray,
        concentration: float,
        discount: float,
        dirichlet: np.ndarray,
        normal: np.ndarray,
        gamma: np.ndarray,
        wishart: np.ndarray | None = None,
    ) -> None:
        """Copy one draw: labels int (N,) >= 0, dirichlet (C,), normal (R, 4), gamma (Q, 2), wishart (B, 3).

        Raises ValueError (a cycle that is not beyond the last, a negative label), CheckpointError.
        """
        if cycle <= self.last_cycle:
            raise ValueError(f"kept draws go on from cycle {self.last_cycle}, not {cycle}; truncate them on resuming")
        if not self._buffers:
            self._allocate(labels, dirichlet, normal, gamma, wishart)
        top = int(labels.max(initial=0))
        if labels.min(initial=0) < 0:
            raise ValueError(f"cycle {cycle}: a kept draw needs a cluster for every row, and some label is negative")
        if top > np.iinfo(self._buffers["labels"].dtype).max:
            self._widen(top)
        i, buffers = len(self._cycles), self._buffers
        buffers["labels"][i] = labels
        buffers["concentration"][i] = concentration
        buffers["discount"][i] = discount
        buffers["dirichlet"][i] = dirichlet
        buffers["normal"][i] = normal
        buffers["gamma"][i] = gamma
        if "wishart" in buffers:
            buffers["wishart"][i] = wishart
        self._cycles.append(int(cycle))
        if len(self._cycles) == len(buffers["labels"]):
            self.flush()

    def flush(self) -> None:
        """Write what is buffered as one segment, on disk when this returns.

        Raises CheckpointError; the buffer is then kept.
        """
        n = len(self._cycles)
        if n == 0:
            return
        columns = {"cycle": np.asarray(self._cycles, dtype=np.int64)}
        columns |= {name: buffer[:n] for name, buffer in self._buffers.items()}
        columns["labels"] = columns["labels"].astype(_unsigned(int(columns["labels"].max(initial=0))), copy=False)
        self._segments.write(columns)
        self._cycles = []

    def truncate(self, cycle: int) -> None:
        """Forget everything beyond `cycle` (-1: everything)."""
        self._cycles = [c for c in self._cycles if c <= cycle]
        self._segments.truncate(cycle)

    def _allocate(self, labels: np.ndarray, dirichlet, normal, gamma, wishart) -> None:
        dtype = _unsigned(int(labels.max(initial=0)))
        row = labels.size * dtype.itemsize + 8 * (3 + np.size(dirichlet) + np.size(normal) + np.size(gamma))
        n = int(np.clip(BUFFERED // row, 1, 65536))
        shapes = {"concentration": (), "discount": ()}
        shapes |= {"dirichlet": np.shape(dirichlet), "normal": np.shape(normal), "gamma": np.shape(gamma)}
        if np.size(wishart if wishart is not None else ()):
            shapes["wishart"] = np.shape(wishart)
        self._buffers = {"labels": np.empty((n, labels.size), dtype)}
        self._buffers |= {name: np.empty((n, *shape)) for name, shape in shapes.items()}

    def _widen(self, top: int) -> None:
        """Make room for labels up to `top`; the buffer then has fewer rows, and what it holds is written first."""
        self.flush()
        old = self._buffers
        dtype = _unsigned(top)
        n = max(1, len(old["labels"]) * old["labels"].dtype.itemsize // dtype.itemsize)
        self._buffers = {name: np.empty((n, *buffer.shape[1:]), buffer.dtype) for name, buffer in old.items()}
        self._buffers["labels"] = np.empty((n, old["labels"].shape[1]), dtype)


def iterate_draws(run_dir: str | Path, start_cycle: int = 0, every: int = 1) -> Iterator[Draw]:
    """The kept draws of one chain with cycle >= start_cycle, every `every`-th of them, one at a time in flat memory.

    Raises CheckpointError naming a damaged segment.
    """
    i = 0
    kept = checkpoint.kept(run_dir, FOLDER)
    for block in read_blocks(Path(run_dir) / FOLDER, None, start_cycle - 1, kept):
        for row in range(len(block["cycle"])):
            if i % every == 0:
                yield _draw(block, row)
            i += 1


def last_draw(run_dir: str | Path) -> Draw | None:
    """The last kept draw of one chain, e.g. to start another run from its labels; None when there is none."""
    kept, segments = checkpoint.kept(run_dir, FOLDER), list_segments(Path(run_dir) / FOLDER)
    if not segments and kept is None:
        return None
    draw, last = None, segments[-1].last if segments else -1
    for block in read_blocks(Path(run_dir) / FOLDER, None, last - 1, kept):
        draw = _draw(block, len(block["cycle"]) - 1)
    return draw


def count_draws(run_dir: str | Path) -> int:
    """How many draws one chain has kept on disk."""
    return count_rows(Path(run_dir) / FOLDER)


def _draw(block: dict[str, np.ndarray], row: int) -> Draw:
    return Draw(
        int(block["cycle"][row]),
        block["labels"][row].astype(np.int64),
        float(block["concentration"][row]),
        float(block["discount"][row]),
        **{name: block[name][row].copy() for name in ("dirichlet", "normal", "gamma", "wishart") if name in block},
    )


def _unsigned(top: int) -> np.dtype:
    """The smallest unsigned type for 0..top."""
    return np.dtype(np.uint8 if top < 1 << 8 else np.uint16 if top < 1 << 16 else np.uint32)
