"""Traces: one row per cycle, appended in segments during a run; `inference.py` makes the file that ArviZ opens.

`trace/seg-<first>-<last>.h5`: `cycle` int64 (n,), one float64 (n,) for each scalar and one float64 (n, ...) for each
array that the sampler draws (`io/segments.py`). Its attributes name the scalars, and those of each of KINDS, so that a
trace can be read without a model. `trace/axes.json`: names of these arrays' axes and of the places along them,
{"theta": {"coefficient": ["(intercept)", "age"]}}.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from mpibayes.errors import CheckpointError
from mpibayes.io import generations
from mpibayes.io.documents import json_value
from mpibayes.io.files import TEMPORARY, Guard, read_regular, storing, unguarded, write_text
from mpibayes.io.segments import Segments, read_attributes, read_blocks

# Kinds of scalars that are not plain float64 numbers: shown as integers; sampler statistics rather than draws; times,
# which differ between runs of one chain, so that comparisons omit them.
KINDS = ("whole", "statistic", "timing")
FOLDER = "trace"
MERGED = "trace.h5"
AXES = "axes.json"
BUFFERED = 1 << 20  # bytes kept in memory before a segment is written


Axes = Mapping[str, Mapping[str, Sequence]]  # by array: its axes, and the names of the places along each
Kinds = Mapping[str, Collection[str]]  # by element of KINDS: the names of its scalars


class TraceWriter:
    """Appends the scalars and arrays of each cycle; root alone. Rows not flushed are lost if the process dies.

    scalars: names, in the order for readers. kinds: see `Kinds`. axes: of each array, by name. guard: see `Segments`.
    """

    def __init__(
        self,
        run_dir: str | Path,
        scalars: Sequence[str],
        run: str = "",
        axes: Axes | None = None,
        guard: Guard = unguarded,
        kinds: Kinds | None = None,
    ):
        self.scalars, self._axes = tuple(scalars), axes or {}
        self._segments = Segments(Path(run_dir) / FOLDER, "mpibayes-trace-segment", 1, run, guard)
        _remove_dead_merges(Path(run_dir))
        self._attributes: dict[str, str | list[str]] = {"scalars": list(self.scalars)}
        self._attributes |= {kind: list((kinds or {}).get(kind, ())) for kind in KINDS}
        if self._axes:
            text, path = json.dumps(self._axes, ensure_ascii=False), self._segments.folder / AXES
            self._attributes[AXES] = _digest(text)
            with storing(path):
                write_text(path, text, guard=guard)
        self._blocks: list[dict[str, np.ndarray]] = []
        self._bytes = 0

    @property
    def last_cycle(self) -> int:
        """Last cycle appended, or -1."""
        return int(self._blocks[-1]["cycle"][-1]) if self._blocks else self._segments.last

    def append(self, cycle: int, values: Mapping[str, float]) -> None:
        """Add one row; see `extend`."""
        self.extend([cycle], {name: np.asarray(value)[None] for name, value in values.items()})

    def extend(self, cycles: Sequence[int], values: Mapping[str, np.ndarray]) -> None:
        """Add rows: cycles (n,), ascending, with values (n,) for each scalar and (n, ...) for each array.

        `values` must have every scalar and array of the trace (others are ignored). Raises KeyError, ValueError (cycles
        that are not beyond the last), CheckpointError.
        """
        if not len(cycles):
            return
        if cycles[0] <= self.last_cycle:
            raise ValueError(
                f"the trace goes on from cycle {self.last_cycle}, not {cycles[0]}; truncate it on resuming"
            )
        block = {"cycle": np.array(cycles, np.int64)}
        block |= {name: np.array(values[name], np.float64) for name in (*self.scalars, *self._axes)}
        self._blocks.append(block)
        self._bytes += sum(array.nbytes for array in block.values())
        if self._bytes >= BUFFERED:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows as one segment, on disk when this returns.

        Raises CheckpointError; the buffer is then kept.
        """
        if not self._blocks:
            return
        names = self._blocks[0]
        columns = {name: np.concatenate([block[name] for block in self._blocks]) for name in names}
        self._segments.write(columns, self._attributes)
        self._blocks, self._bytes = [], 0

    def truncate(self, cycle: int) -> None:
        """Forget all rows beyond `cycle` (-1: all rows), as needed when a run resumes from its checkpoint."""
        kept = [{name: array[block["cycle"] <= cycle] for name, array in block.items()} for block in self._blocks]
        self._blocks = [block for block in kept if len(block["cycle"])]
        self._segments.truncate(cycle)


def read_axes(run_dir: str | Path) -> dict[str, dict[str, list[str]]]:
    """Axes of the arrays in a chain's trace, by array name; {} if it has none, or nothing is kept.

    Raises CheckpointError if the file is not the one that the segments were written with.
    """
    folder = Path(run_dir) / FOLDER
    written = read_attributes(folder).get(AXES)
    if written is None:
        return {}
    path = folder / AXES
    try:
        text = read_regular(path).decode()
    except (OSError, UnicodeDecodeError):
        text = ""
    if _digest(text) != written:
        raise CheckpointError(
            f"{path}: missing or changed; it names what is in the trace. Restore it from a copy, or run the same "
            "command again: a resumed run rewrites it"
        )
    return json_value(text)


def read_kinds(run_dir: str | Path) -> dict[str, frozenset[str]]:
    """Names of a chain's scalars by kind; {} if nothing is kept. Raises CheckpointError."""
    attributes = read_attributes(Path(run_dir) / FOLDER)
    return {kind: frozenset(map(str, attributes[kind])) for kind in KINDS if kind in attributes}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def read_trace(
    run_dir: str | Path, burn_in: int | None = None, only: Collection[str] | None = None
) -> dict[str, np.ndarray]:
    """{"cycle": int64 (n,), scalar: float64 (n,), array: float64 (n, ...)} of one chain; {} if nothing is kept.

    Scalars come in declared order, followed by arrays.
    burn_in: number of initial cycles to leave out. only: names to read in addition to the cycle, if present. Raises
    CheckpointError naming a damaged segment.
    """
    folder, kept = Path(run_dir) / FOLDER, generations.kept(run_dir, FOLDER)
    names = [*(str(name) for name in read_attributes(folder).get("scalars", ())), *read_axes(run_dir)]
    names = ["cycle", *(name for name in names if only is None or name in only)]
    blocks = list(read_blocks(folder, names, -1 if burn_in is None else burn_in, kept))
    if not blocks:
        return {}
    return {name: np.concatenate([block[name] for block in blocks]) for name in names}


def last_values(run_dir: str | Path, cycle: int) -> dict[str, float]:
    """Last finite value of each scalar in the thousand cycles up to `cycle`, where a trace ends; {} if nothing is kept.
    Raises CheckpointError naming a damaged segment."""
    folder, values = Path(run_dir) / FOLDER, {}
    names = ["cycle", *map(str, read_attributes(folder).get("scalars", ()))]
    for block in read_blocks(folder, names, max(cycle - 1000, 0)):
        finite = ((name, x[np.isfinite(x)]) for name, x in block.items())
        values |= {name: float(x[-1]) for name, x in finite if len(x)}
    return values


def _remove_dead_merges(run_dir: Path) -> None:
    """Remove temporary files of killed merges; younger ones may belong to a program that is merging now."""
    with suppress(OSError):  # already gone, or not ours to remove
        for path in run_dir.glob(f"{MERGED}.*{TEMPORARY}"):
            if path.stat().st_mtime < time.time() - 600:
                path.unlink()
