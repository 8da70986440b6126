"""Traces: one row a cycle, appended in segments as a run goes on, merged into the `trace.h5` that ArviZ opens.

`trace/seg-<first>-<last>.h5`: `cycle` int64 (n,), one float64 (n,) for each scalar and one float64 (n, ...) for each
array that the sampler draws (`io/segments.py`). Its attributes name the scalars, and those of each of KINDS, so that a
trace needs no model to be read. `trace/axes.json`: names of the axes of these arrays and of the places
along them, {"theta": {"coefficient": ["(intercept)", "age"]}}.
`trace.h5`: groups `posterior` and `sample_stats`, variables (chain, draw, ...), with HDF5 dimension scales `chain`,
`draw` (the cycle number) and the names along further axes: a netCDF-4 file by its structure, so that
`arviz.from_netcdf` and `xarray.open_datatree` read it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np

from mpibayes.errors import CheckpointError
from mpibayes.io import checkpoint
from mpibayes.io.files import TEMPORARY, Guard, h5_image, read_regular, storing, unguarded, write_bytes, write_text
from mpibayes.io.segments import Segments, list_segments, read_attributes, read_blocks, size_of

# What a scalar may be besides a float64 number: shown as a whole number; how the sampler fared, rather than what it
# drew; a time, which differs from run to run of one chain, so that comparisons leave it out.
KINDS = ("whole", "statistic", "timing")
FOLDER = "trace"
MERGED = "trace.h5"
AXES = "axes.json"
MERGED_AT_MOST = 64 << 20  # bytes of segments that are merged; four times as much memory is needed
BUFFERED = 1 << 20  # bytes kept in memory before a segment is written


Axes = Mapping[str, Mapping[str, Sequence[str]]]  # of each array: its axes, and the names of the places along each
Kinds = Mapping[str, Collection[str]]  # of each of KINDS: the names of the scalars that are of it


class TraceWriter:
    """Appends the scalars and arrays of each cycle; root alone. What was not flushed is lost with the process.

    scalars: names, in the order in which readers have them. kinds: see `Kinds`. axes: of each array, by its name.
    guard: see `Segments`.
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
        """The last cycle appended, or -1."""
        return int(self._blocks[-1]["cycle"][-1]) if self._blocks else self._segments.last

    def append(self, cycle: int, values: Mapping[str, float]) -> None:
        """Add one row; see `extend`."""
        self.extend([cycle], {name: np.asarray(value)[None] for name, value in values.items()})

    def extend(self, cycles: Sequence[int], values: Mapping[str, np.ndarray]) -> None:
        """Add rows: cycles (n,), ascending, and a scalar's (n,) or an array's (n, ...) values for each of them.

        `values` must have every scalar and array of the trace (others are ignored). Raises KeyError, ValueError
        (cycles that are not beyond the last), CheckpointError.
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
        """Write what is buffered as one segment, on disk when this returns.

        Raises CheckpointError; the buffer is then kept.
        """
        if not self._blocks:
            return
        names = self._blocks[0]
        columns = {name: np.concatenate([block[name] for block in self._blocks]) for name in names}
        self._segments.write(columns, self._attributes)
        self._blocks, self._bytes = [], 0

    def truncate(self, cycle: int) -> None:
        """Forget everything beyond `cycle` (-1: everything), as a run must that goes on from its checkpoint."""
        kept = [{name: array[block["cycle"] <= cycle] for name, array in block.items()} for block in self._blocks]
        self._blocks = [block for block in kept if len(block["cycle"])]
        self._segments.truncate(cycle)


def read_axes(run_dir: str | Path) -> dict[str, dict[str, list[str]]]:
    """The axes of the arrays in a chain's trace, by the array's name; {} where it has none, or nothing is kept.

    Raises CheckpointError where the file is not the one that the segments were written with.
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
            "command again: a run that goes on writes it anew"
        )
    return json.loads(text)


def read_kinds(run_dir: str | Path) -> dict[str, frozenset[str]]:
    """Which scalars of a chain's trace are of which kind; {} where nothing is kept. Raises CheckpointError."""
    attributes = read_attributes(Path(run_dir) / FOLDER)
    return {kind: frozenset(map(str, attributes[kind])) for kind in KINDS if kind in attributes}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def read_trace(run_dir: str | Path, burn_in: int | None = None) -> dict[str, np.ndarray]:
    """{"cycle": int64 (n,), scalar: float64 (n,), array: float64 (n, ...)} of one chain; {} when nothing is kept.

    Scalars come in declared order, arrays after them.
    burn_in: number of cycles to leave out at the beginning. Raises CheckpointError naming a damaged segment.
    """
    folder, kept = Path(run_dir) / FOLDER, checkpoint.kept(run_dir, FOLDER)
    names = ["cycle", *(str(name) for name in read_attributes(folder).get("scalars", ())), *read_axes(run_dir)]
    blocks = list(read_blocks(folder, names, -1 if burn_in is None else burn_in, kept))
    if not blocks:
        return {}
    return {name: np.concatenate([block[name] for block in blocks]) for name in names}


def merge(run_dir: str | Path) -> Path | None:
    """Write the run directory's `trace.h5` from its segments, in one step.

    None when nothing is kept, and where the segments have more than MERGED_AT_MOST bytes: an older file is then
    removed, and `mpibayes export` makes one. Raises CheckpointError.
    """
    path = Path(run_dir) / MERGED
    if sum(map(size_of, list_segments(Path(run_dir) / FOLDER))) > MERGED_AT_MOST:
        with storing(path):
            path.unlink(missing_ok=True)
        return None
    trace = read_trace(run_dir)
    if not trace:
        return None
    image = inference_image([trace], read_axes(run_dir), read_kinds(run_dir))
    with storing(path):
        write_bytes(path, image)  # `report` and `export` may merge while a run does
    return path


def _remove_dead_merges(run_dir: Path) -> None:
    """Temporary files that killed merges left; younger ones may belong to a program that is merging now."""
    with suppress(OSError):  # gone meanwhile, or not ours to remove
        for path in run_dir.glob(f"{MERGED}.*{TEMPORARY}"):
            if path.stat().st_mtime < time.time() - 600:
                path.unlink()


def inference_image(traces: Sequence[Mapping[str, np.ndarray]], axes: Axes, kinds: Kinds) -> bytes:
    """The bytes of a netCDF-4 file in ArviZ's schema; chains must have equal `cycle`. axes: of the arrays."""
    whole, statistics = (kinds.get(kind, ()) for kind in ("whole", "statistic"))

    def fill(file: h5py.File) -> None:
        file.attrs.update(format="mpibayes-trace", version=1, inference_library="mpibayes")
        names = [name for name in traces[0] if name != "cycle"]
        groups = {
            "posterior": [name for name in names if name not in statistics],
            "sample_stats": [name for name in names if name in statistics],
        }
        for title, members in groups.items():
            group = file.create_group(title, track_order=True)
            group.attrs["inference_library"] = "mpibayes"
            scales = {"chain": np.arange(len(traces), dtype=np.int64), "draw": traces[0]["cycle"]}
            for name in members:
                scales |= {axis: np.array(places, object) for axis, places in axes.get(name, {}).items()}
            for name, values in scales.items():
                dtype = h5py.string_dtype() if values.dtype == object else values.dtype
                group.create_dataset(name, data=values, dtype=dtype).make_scale(name)
            for name in members:
                values = np.stack([trace[name] for trace in traces])
                if name in whole and np.isfinite(values).all():
                    values = values.astype(np.int64)
                data = group.create_dataset(name, data=values)
                for axis, scale in enumerate(("chain", "draw", *axes.get(name, {}))):
                    data.dims[axis].attach_scale(group[scale])

    return h5_image(fill)
