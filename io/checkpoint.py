"""Writing of checkpoints: generations that are complete or do not exist.

    checkpoints/000000400/part-00000.h5   groups shard-<i> with that shard's arrays, one file per rank
                          shared.h5       state shared by all shards: arrays as datasets, the rest as one JSON text
                          MANIFEST.json   written last: format, version, cycle, and every file's size and SHA-256

A generation is written as `000000400-<random>.tmp`, so that a run and another that presumes it dead never write into
the same one, and renamed when its manifest is on disk. Two are kept. Nothing here communicates:
    root: draft = begin(folder, cycle), broadcast
    each rank: part = write_part(draft, first_shard, {i: arrays}); root gathers parts and problems
    root: commit(draft, parts, shared), or discard(draft) when some rank could not write

`generations` reads them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import h5py
import numpy as np

from mpibayes.errors import CheckpointError
from mpibayes.io.files import (
    TEMPORARY,
    Guard,
    create,
    make_directory,
    open_regular,
    remove,
    storing,
    sync_directory,
    unguarded,
)
from mpibayes.io.generations import ASIDE, FORMAT, MANIFEST, SHARED, VERSION, candidates, manifest_sum
from mpibayes.io.h5 import write_h5

DRAFT = re.compile(r"\d{9,}(-[0-9a-f]+)?" + re.escape(TEMPORARY))


def begin(folder: str | Path, cycle: int, guard: Guard = unguarded) -> Path:
    """Make the empty temporary directory of a generation, its draft; root alone, before anyone writes a part.

    Leftovers of dead runs (`<digits>-<random>.tmp`) are removed. Raises CheckpointError.
    """
    folder = Path(folder)
    with storing(folder):
        guard()
        make_directory(folder, within=folder.parent)
        for path in folder.iterdir():
            if DRAFT.fullmatch(path.name):
                with contextlib.suppress(OSError):  # open in a reader on a network file system: only space is lost
                    remove(path)
        draft = _draft(folder, cycle)
        draft.mkdir()
    return draft


def write_part(draft: Path, first_shard: int, shards: Mapping[int, Mapping[str, np.ndarray]]) -> dict[str, Any] | None:
    """Write one rank's shards into the draft that `begin` made; {shard: {name: array}}, names may contain "/".

    Returns the manifest's entry {file, bytes, sha256, shards}, or None for a rank without shards.
    Raises CheckpointError, having removed the part.
    """
    if not shards:
        return None

    def fill(file: h5py.File) -> None:
        file.attrs.update(format=FORMAT, version=VERSION, cycle=_cycle(draft))
        for index, arrays in sorted(shards.items()):
            _store(file.create_group(f"shard-{index}"), arrays)

    with storing(draft):
        make_directory(draft, within=draft.parent.parent)  # a network file system may not show root's directory yet
    entry = _write(draft / f"part-{first_shard:05d}.h5", lambda file: write_h5(file, fill))
    return entry | {"shards": sorted(int(i) for i in shards)}


def commit(
    draft: Path,
    parts: Sequence[Mapping[str, Any] | None],
    shared: Mapping[str, Any],
    keep: int = 2,
    kept: Mapping[str, Any] = MappingProxyType({}),
    guard: Guard = unguarded,
) -> Path:
    """Make the generation complete and visible, then remove all but the `keep` newest; root alone.

    parts: results of `write_part` on the ranks (None is skipped); their shards must be 0..S-1, each once.
    shared: arrays, numbers, strings, or anything JSON can hold (tuples come back as lists).
    kept: contents of the run's trace and labels by then, {"run": its name, folder: last cycle}; see `generations.kept`.
    Generations of *later* cycles are removed too: they were damaged, and the run restarted from an earlier one.
    guard: called before any file gets its final name or is removed.
    Raises CheckpointError, having removed the draft; earlier generations are untouched.
    """
    folder, cycle = draft.parent, _cycle(draft)
    written = [dict(part) for part in parts if part is not None]
    shards = sorted(i for part in written for i in part["shards"])
    if shards != list(range(len(shards))):
        raise ValueError(f"the parts of a checkpoint must hold every shard once, not {shards}")
    try:
        guard()
        for part in written:  # do not commit a file that this node sees differently from the node that wrote it
            _check_size(draft / part["file"], part["bytes"])
        manifest: dict[str, Any] = {"format": FORMAT, "version": VERSION, "cycle": cycle, "parts": written}
        manifest["kept"] = dict(kept)
        manifest["shared"] = _write(
            draft / SHARED, lambda file: write_h5(file, lambda h5: _fill_shared(h5, cycle, shared))
        )
        manifest["sha256"] = manifest_sum(manifest)
        text = (json.dumps(manifest, indent=1) + "\n").encode()
        _write(draft / MANIFEST, lambda file: file.write(text))
        with storing(draft):
            sync_directory(draft)
            target, aside = _final(folder, cycle), Path(f"{_final(folder, cycle)}{ASIDE}")
            guard()
            if os.path.lexists(target):
                remove(aside)
                os.rename(target, aside)  # `latest` looks there too, in case the next line never runs
            os.rename(draft, target)
            sync_directory(folder)
    except BaseException:
        discard(draft)
        guard()  # another process that took the directory may have removed the draft
        raise
    _remove_beyond(folder, cycle, keep, guard)
    return target


def discard(draft: Path) -> None:
    """Remove the draft of a generation that could not be completed; root alone, never fails."""
    shutil.rmtree(draft, ignore_errors=True)


def _draft(folder: Path, cycle: int) -> Path:
    return folder / f"{cycle:09d}-{secrets.token_hex(4)}{TEMPORARY}"


def _cycle(draft: Path) -> int:
    return int(draft.name.partition("-")[0])


def _final(folder: Path, cycle: int) -> Path:
    return folder / f"{cycle:09d}"


def _write(path: Path, fill: Callable[[BinaryIO], object]) -> dict[str, Any]:
    """Write and flush a file of a draft (whose rename makes it visible); return its entry in the manifest."""
    try:
        with storing(path), create(path) as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    return {"file": path.name, "bytes": size, "sha256": sha256}


def _store(group: h5py.Group, arrays: Mapping[str, np.ndarray]) -> None:
    for name, array in arrays.items():
        array = np.asarray(array)
        if array.dtype.kind not in "biufc":
            raise TypeError(f"{name}: a checkpoint holds arrays of numbers, not {array.dtype}")
        group.create_dataset(name, data=array)


def _fill_shared(file: h5py.File, cycle: int, shared: Mapping[str, Any]) -> None:
    arrays = {name: value for name, value in shared.items() if isinstance(value, np.ndarray)}
    others = {name: value for name, value in shared.items() if name not in arrays}
    file.attrs.update(format=FORMAT, version=VERSION, cycle=cycle)
    _store(file.create_group("arrays"), arrays)
    file.create_dataset("json", data=json.dumps(others, default=_plain))  # a dataset: attributes are limited to 64 KiB


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a checkpoint cannot hold {type(value).__name__} inside a JSON value")


def _check_size(path: Path, size: int) -> None:
    with storing(path), open_regular(path) as file:  # open before stat: NFS guarantees fresh attributes only then
        written = os.fstat(file.fileno()).st_size
    if written != size:
        raise CheckpointError(
            f"{path}: has {written} bytes where {size} were written; is the file system shared by all nodes?"
        )


def _remove_beyond(folder: Path, cycle: int, keep: int, guard: Guard) -> None:
    generations = candidates(folder)
    kept = [path for number, path in generations if number <= cycle and path.suffix != ASIDE][:keep]
    for number, path in generations:
        if path in kept:
            continue
        guard()
        doomed = _draft(folder, number)  # renamed first: a partial removal must not look like a damaged generation
        try:
            os.rename(path, doomed)
        except OSError:
            continue  # only space is lost; the next commit tries again
        shutil.rmtree(doomed, ignore_errors=True)
