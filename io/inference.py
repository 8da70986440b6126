"""Draws for ArviZ: the bytes of a netCDF-4 file, whose groups hold variables (chain, draw, ...).

posterior      draws after burn-in of variables that vary and have a value in every draw: only these have effective
               draws and an R-hat
sample_stats   sampler statistics, and every scalar that is not in `posterior`
kept_draws     arrays kept with the labels, which are not kept for every cycle: the draws of a group are the same
warmup_...     the same variables during burn-in

HDF5 dimension scales `chain`, `draw` (the cycle number) and the names along further axes give it the structure of a
netCDF-4 file, so that `arviz.from_netcdf` and `xarray.open_datatree` read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import h5py
import numpy as np

from mpibayes.io.files import storing, write_bytes
from mpibayes.io.h5 import h5_image
from mpibayes.io.segments import list_segments, size_of
from mpibayes.io.trace import FOLDER, MERGED, Axes, Kinds, read_axes, read_kinds, read_trace

MERGED_AT_MOST = 64 << 20  # bytes of segments that are merged; four times as much memory is needed

Draws = Sequence[Mapping[str, np.ndarray]]  # of each chain: `cycle` (n,), the same for all, and arrays (n, ...) by name


def merge(run_dir: str | Path, burn_in: Callable[[Mapping[str, np.ndarray]], int] = lambda trace: 0) -> Path | None:
    """Write the run directory's `trace.h5` from its segments, in one step. burn_in(trace): its number of cycles.

    Returns None if nothing is kept, or if the segments exceed MERGED_AT_MOST bytes: an older file is then removed, and
    `mpibayes export` makes one. Raises CheckpointError.
    """
    path = Path(run_dir) / MERGED
    if sum(map(size_of, list_segments(Path(run_dir) / FOLDER))) > MERGED_AT_MOST:
        with storing(path):
            path.unlink(missing_ok=True)
        return None
    trace = read_trace(run_dir)
    if not trace:
        return None
    image = inference_image([trace], read_axes(run_dir), read_kinds(run_dir), burn_in(trace))
    with storing(path):
        write_bytes(path, image)  # `report` and `export` may merge while a run does
    return path


def inference_image(
    traces: Draws, axes: Axes, kinds: Kinds, burn_in: int = 0, kept: Draws = (), kept_axes: Axes | None = None
) -> bytes:
    """Bytes of a file with these traces and further kept arrays. axes: of the arrays. burn_in: cycles of warm-up."""
    statistics, names = kinds.get("statistic", ()), [name for name in traces[0] if name != "cycle"]
    drawn = [name for name in names if name not in statistics and _says_something(traces, name, burn_in)]
    groups = [
        ("posterior", traces, drawn, axes),
        ("sample_stats", traces, [name for name in names if name not in drawn], axes),
    ]
    if kept:
        arrays = [name for name in kept[0] if name != "cycle"]
        groups.append(("kept_draws", kept, arrays, kept_axes or {}))

    def fill(file: h5py.File) -> None:
        file.attrs.update(format="mpibayes-trace", version=1, inference_library="mpibayes")
        for title, draws, members, places in groups:
            later = draws[0]["cycle"] > burn_in
            for name, rows in ((title, later), (f"warmup_{title}", ~later)):
                if rows.any() and members:
                    _fill(file.create_group(name, track_order=True), draws, rows, members, places, kinds)

    return h5_image(fill)


def _says_something(traces: Draws, name: str, burn_in: int) -> bool:
    """True if a variable varies after burn-in and has a value in every draw; also if there is no draw after burn-in."""
    later = traces[0]["cycle"] > burn_in
    if not later.any():
        return True
    first = traces[0][name][later][:1]
    return all(np.isfinite(trace[name][later]).all() for trace in traces) and any(
        (trace[name][later] != first).any() for trace in traces
    )


def _fill(group: h5py.Group, draws: Draws, rows: np.ndarray, members: Sequence[str], axes: Axes, kinds: Kinds) -> None:
    group.attrs["inference_library"] = "mpibayes"
    scales = {"chain": np.arange(len(draws), dtype=np.int64), "draw": draws[0]["cycle"][rows]}
    for name in members:
        scales |= {axis: np.array(places) for axis, places in axes.get(name, {}).items()}
    for name, values in scales.items():
        dtype = h5py.string_dtype() if values.dtype.kind == "U" else values.dtype
        values = values.astype(object) if values.dtype.kind == "U" else values
        group.create_dataset(name, data=values, dtype=dtype).make_scale(name)
    for name in members:
        values = np.stack([of_chain[name][rows] for of_chain in draws])
        if name in kinds.get("whole", ()) and np.isfinite(values).all():
            values = values.astype(np.int64)
        data = group.create_dataset(name, data=values)
        for axis, scale in enumerate(("chain", "draw", *axes.get(name, {}))):
            data.dims[axis].attach_scale(group[scale])
