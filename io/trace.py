"""Traces of scalars: one row a cycle, appended in segments as a run goes on, merged into the `trace.h5` ArviZ opens.

`trace/seg-<first>-<last>.h5`: `cycle` int64 (n,) and one float64 (n,) for each scalar (`io/segments.py`).
`trace.h5`: groups `posterior` and `sample_stats`, variables (chain, draw), with HDF5 dimension scales `chain` and
`draw`, the draw being the cycle number: a netCDF-4 file by its structure, so that `arviz.from_netcdf` and
`xarray.open_datatree` read it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import h5py
import numpy as np

from mpibayes.hpc.errors import CheckpointError
from mpibayes.io import checkpoint
from mpibayes.io.files import TEMPORARY, h5_image, storing, write_bytes
from mpibayes.io.segments import Segments, read_attributes, read_blocks

SCALARS = (
    "log_joint",
    "n_clusters",
    "concentration",
    "discount",
    "entropy",
    "heldout_lpd",
    "heldout_lpd_averaged",
    "moved_fraction",
    "active_rows",
    "splits_tried",
    "splits",
    "merges_tried",
    "merges",
    "seconds",
)
MOVES = ("splits_tried", "splits", "merges_tried", "merges")
# How the sampler fared, rather than what it drew.
SAMPLE_STATS = frozenset({"moved_fraction", "active_rows", *MOVES, "seconds"})
# Differ from run to run of one chain, so comparisons leave them out.
TIMINGS = frozenset({"seconds"})
# Stored as float64 like the others, shown as whole numbers.
INTEGERS = frozenset({"n_clusters", "active_rows", *MOVES})
FOLDER = "trace"
MERGED = "trace.h5"
BUFFERED = 8192  # cycles kept in memory at most: about 1 MiB


class TraceWriter:
    """Appends the scalars of each cycle; root alone. What was not flushed is lost with the process.

    A trace keeps the scalars that it began with, so that one of an older version, which had fewer, goes on as it was.
    """

    def __init__(self, run_dir: str | Path, scalars: Sequence[str] = SCALARS, run: str = ""):
        self._given = tuple(scalars)
        self._segments = Segments(Path(run_dir) / FOLDER, "mpibayes-trace-segment", 1, run)
        self._choose_scalars()
        _remove_dead_merges(Path(run_dir))
        self._cycles: list[int] = []
        self._rows: list[list[float]] = []

    def _choose_scalars(self) -> None:
        try:
            stored = read_attributes(self._segments.folder).get("scalars", ())
        except CheckpointError:  # a damaged segment is for the reader to tell: the chain does not depend on it
            stored = ()
        self.scalars = tuple(map(str, stored)) or self._given

    @property
    def last_cycle(self) -> int:
        """The last cycle appended, or -1."""
        return self._cycles[-1] if self._cycles else self._segments.last

    def append(self, cycle: int, values: Mapping[str, float]) -> None:
        """Add one row; `values` must have every scalar of the trace (others are ignored).

        Raises KeyError, ValueError (a cycle that is not beyond the last), CheckpointError.
        """
        if cycle <= self.last_cycle:
            raise ValueError(f"the trace goes on from cycle {self.last_cycle}, not {cycle}; truncate it on resuming")
        self._rows.append([float(values[name]) for name in self.scalars])
        self._cycles.append(int(cycle))
        if len(self._cycles) >= BUFFERED:
            self.flush()

    def flush(self) -> None:
        """Write what is buffered as one segment, on disk when this returns.

        Raises CheckpointError; the buffer is then kept.
        """
        if not self._cycles:
            return
        table = np.asarray(self._rows, dtype=np.float64)
        columns = {"cycle": np.asarray(self._cycles, dtype=np.int64)}
        columns |= {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(self.scalars)}
        self._segments.write(columns, {"scalars": list(self.scalars)})
        self._cycles, self._rows = [], []

    def truncate(self, cycle: int) -> None:
        """Forget everything beyond `cycle` (-1: everything), as a run must that goes on from its checkpoint."""
        keep = sum(c <= cycle for c in self._cycles)
        self._cycles, self._rows = self._cycles[:keep], self._rows[:keep]
        self._segments.truncate(cycle)
        if not self._cycles:
            self._choose_scalars()


def read_trace(run_dir: str | Path, burn_in: int | None = None) -> dict[str, np.ndarray]:
    """{"cycle": int64 (n,), scalar: float64 (n,)} of one chain, scalars in declared order; {} when nothing is kept.

    burn_in: number of cycles to leave out at the beginning. Raises CheckpointError naming a damaged segment.
    """
    folder, kept = Path(run_dir) / FOLDER, checkpoint.kept(run_dir, FOLDER)
    names = ["cycle", *(str(name) for name in read_attributes(folder).get("scalars", ()))]
    blocks = list(read_blocks(folder, names, -1 if burn_in is None else burn_in, kept))
    if not blocks:
        return {}
    return {name: np.concatenate([block[name] for block in blocks]) for name in names}


def merge(run_dir: str | Path) -> Path | None:
    """Write the run directory's `trace.h5` from its segments, in one step; None when nothing is kept.

    Holds the whole trace in memory, 120 bytes a cycle. Raises CheckpointError.
    """
    trace = read_trace(run_dir)
    if not trace:
        return None
    path = Path(run_dir) / MERGED
    image = inference_image([trace])
    with storing(path):
        write_bytes(path, image, shared=True)  # `report` and `export` may merge while a run does
    return path


def _remove_dead_merges(run_dir: Path) -> None:
    """Temporary files that killed merges left; younger ones may belong to a program that is merging now."""
    for path in run_dir.glob(f"{MERGED}.*{TEMPORARY}"):
        try:
            if path.stat().st_mtime < time.time() - 600:
                path.unlink()
        except OSError:  # gone meanwhile, or not ours to remove
            continue


def inference_image(traces: Sequence[Mapping[str, np.ndarray]]) -> bytes:
    """The bytes of a netCDF-4 file in ArviZ's schema; chains must have equal `cycle`."""

    def fill(file: h5py.File) -> None:
        file.attrs.update(format="mpibayes-trace", version=1, inference_library="mpibayes")
        names = [name for name in traces[0] if name != "cycle"]
        groups = {
            "posterior": [name for name in names if name not in SAMPLE_STATS],
            "sample_stats": [name for name in names if name in SAMPLE_STATS],
        }
        for title, members in groups.items():
            group = file.create_group(title, track_order=True)
            group.attrs["inference_library"] = "mpibayes"
            scales = {"chain": np.arange(len(traces), dtype=np.int64), "draw": traces[0]["cycle"]}
            for name, values in scales.items():
                group.create_dataset(name, data=values).make_scale(name)
            for name in members:
                values = np.stack([trace[name] for trace in traces])
                if name in INTEGERS and np.isfinite(values).all():
                    values = values.astype(np.int64)
                data = group.create_dataset(name, data=values)
                for axis, scale in enumerate(scales):
                    data.dims[axis].attach_scale(group[scale])

    return h5_image(fill)
