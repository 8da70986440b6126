"""Checkpoints: generations that are complete or do not exist.

    checkpoints/000000400/part-00000.h5   groups shard-<i> with that shard's arrays, one file per rank
                          shared.h5       state shared by all shards: arrays as datasets, the rest as one JSON text
                          MANIFEST.json   written last: format, version, cycle, and every file's size and SHA-256

A generation is written as `000000400-<random>.tmp`, so that a run and another that presumes it dead never write into
the same one, and renamed when its manifest is on disk. Two are kept. Nothing here communicates:
    root: draft = begin(folder, cycle), broadcast
    each rank: part = write_part(draft, first_shard, {i: arrays}); root gathers parts and problems
    root: commit(draft, parts, shared), or discard(draft) when some rank could not write
and to continue
    root: generation = latest(folder, deep=False), broadcast (a Generation pickles)
    each rank: problems = [generation.verify_part(i) for i in its shards]; all gather them
    while there are problems, root: generation = previous(generation, problems), broadcast, verify again
    each rank: generation.shared(), generation.shard(i)
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import h5py
import numpy as np

from mpibayes.errors import CheckpointError
from mpibayes.io.documents import json_value
from mpibayes.io.files import (
    TEMPORARY,
    Guard,
    create,
    make_directory,
    open_regular,
    read_regular,
    reading,
    reason,
    remove,
    storing,
    sync_directory,
    unguarded,
)
from mpibayes.io.h5 import reading_h5, write_h5
from mpibayes.io.segments import Kept
from mpibayes.text import counted

FORMAT = "mpibayes-checkpoint"
VERSION = 4
MANIFEST = "MANIFEST.json"
SHARED = "shared.h5"
# A generation being replaced by a new one of the same cycle keeps this suffix until the new one is in place.
ASIDE = ".old"
DRAFT = re.compile(r"\d{9,}(-[0-9a-f]+)?" + re.escape(TEMPORARY))


# --- writing ---


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
    kept: contents of the run's trace and labels by then, {"run": its name, folder: last cycle}; see `kept`.
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
        manifest["sha256"] = _manifest_sum(manifest)
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


def _manifest_sum(manifest: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _remove_beyond(folder: Path, cycle: int, keep: int, guard: Guard) -> None:
    generations = _candidates(folder)
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


# --- reading ---


@dataclass
class Generation:
    """One complete checkpoint. Pickles, so that root can broadcast it; every rank then reads the files itself."""

    path: Path
    cycle: int
    manifest: dict[str, Any]
    warnings: list[str] = field(default_factory=list)  # damaged newer generations: file and problem
    _sound: set[str] = field(default_factory=set, repr=False)  # files whose checksum this process has verified

    @property
    def n_shards(self) -> int:
        return sum(len(part["shards"]) for part in self.manifest["parts"])

    def kept(self, folder: str) -> Kept | None:
        """Contents of a folder of segments when this generation was written; None if the run keeps none."""
        cycles = self.manifest["kept"]
        return Kept(cycles[folder], cycles["run"]) if folder in cycles else None

    def shared(self) -> dict[str, Any]:
        """Shared state that was passed to `commit`. Raises CheckpointError if the file is damaged."""
        with self._open(self.manifest["shared"]) as file:
            return json_value(file["json"].asstr()[()]) | _load(file["arrays"])

    def shard(self, index: int) -> dict[str, np.ndarray]:
        """Arrays of one shard; reads only its part, and verifies it if `verify_part` has not.

        Raises CheckpointError.
        """
        with self._open(self._part(index)) as file:
            return _load(file[f"shard-{index}"])

    def verify_part(self, index: int) -> str | None:
        """Problem with the file that holds shard `index`, or None. A part is verified once per process."""
        return self._verify(self._part(index))

    def verify(self) -> str | None:
        """Problem with any file, by size and checksum, or None."""
        entries = [self.manifest["shared"], *self.manifest["parts"]]
        return next(filter(None, map(self._verify, entries)), None)

    def _part(self, index: int) -> dict[str, Any]:
        for part in self.manifest["parts"]:
            if index in part["shards"]:
                return part
        raise CheckpointError(
            f"{self.path / MANIFEST}: holds {counted(self.n_shards, 'shard')}, so there is no shard {index}"
        )

    def _verify(self, entry: Mapping[str, Any]) -> str | None:
        if entry["file"] in self._sound:
            return None
        path = self.path / entry["file"]
        try:
            with open_regular(path) as file:
                checksum = hashlib.file_digest(file, "sha256").hexdigest()
                size = file.tell()
        except OSError as error:
            return f"{path}: {reason(error)}"
        if size != entry["bytes"]:
            return _wrong_size(path, size, entry["bytes"])
        if checksum != entry["sha256"]:
            return f"{path}: damaged (its SHA-256 is not the one in {MANIFEST})"
        self._sound.add(entry["file"])
        return None

    @contextlib.contextmanager
    def _open(self, entry: Mapping[str, Any]) -> Iterator[h5py.File]:
        problem = self._verify(entry)
        if problem:
            raise CheckpointError(problem)
        path = self.path / entry["file"]
        try:
            with reading_h5(path, CheckpointError) as file:
                yield file
        except (OSError, KeyError, RuntimeError) as error:  # its checksum was right a moment ago
            raise CheckpointError(f"{path}: cannot be read ({reason(error)})") from error

    def __getstate__(self) -> dict[str, Any]:
        # Each process verifies the files it reads: another node may see different bytes.
        return self.__dict__ | {"_sound": set()}


def latest(folder: str | Path, deep: bool = True) -> Generation | None:
    """Newest usable generation, or None if none was ever completed; its `.warnings` name newer, damaged ones.

    deep: verify the checksum of every file. Otherwise the manifest, all sizes and shared.h5 are verified, and each rank
    verifies the part that it reads (`Generation.verify_part`), so that a large checkpoint is read once.
    Raises CheckpointError if there are generations but none is usable, listing the problem of each.
    """
    return _newest(Path(folder), _candidates(Path(folder)), [], deep)


def kept(run_dir: str | Path, folder: str) -> Kept | None:
    """Record of a folder of segments in the newest intact generation; None if there is no record."""
    for cycle, path in _candidates(Path(run_dir) / "checkpoints"):
        generation, _ = _read_manifest(path, cycle)
        if generation is not None and not (
            _wrong_sizes(generation) or generation._verify(generation.manifest["shared"])
        ):
            return generation.kept(folder)
    return None


def previous(generation: Generation, problems: Iterable[str | None] = (), deep: bool = False) -> Generation:
    """Next older usable generation after ranks found `problems` in this one; its `.warnings` repeat them.

    Raises CheckpointError if there is none, listing the problem of each.
    """
    texts = list(dict.fromkeys(p for p in problems if p)) or [f"{generation.path}: could not be used"]
    folder = generation.path.parent
    generations = _candidates(folder)
    names = [path.name for _, path in generations]
    older = generations[names.index(generation.path.name) + 1 :] if generation.path.name in names else []
    result = _newest(folder, older, generation.warnings + texts, deep)
    assert result is not None  # there are warnings, so nothing usable raises
    return result


def _candidates(folder: Path) -> list[tuple[int, Path]]:
    """(cycle, path) of the generations in a folder, newest first."""
    with reading(folder, CheckpointError):
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            return []
    generations = []
    for name in names:
        match = re.fullmatch(r"(\d{9,})(" + re.escape(ASIDE) + ")?", name)
        if match:
            generations.append((int(match[1]), match[2] is None, folder / name))
    return [(cycle, path) for cycle, _, path in sorted(generations, reverse=True)]


def _newest(folder: Path, result: list[tuple[int, Path]], warnings: list[str], deep: bool) -> Generation | None:
    for cycle, path in result:
        generation, problem = _read_manifest(path, cycle)
        if generation is not None:
            problem = _wrong_sizes(generation) or generation._verify(generation.manifest["shared"])
            if problem is None and deep:
                problem = generation.verify()
            if problem is None:
                generation.warnings = warnings
                return generation
        warnings = [*warnings, problem or f"{path}: unusable"]
    if warnings:
        raise CheckpointError(
            f"{folder}: there are checkpoints, and none can be used. Restore one from a copy; or move this directory "
            "away to start the run again from the beginning. What is wrong:",
            warnings,
        )
    return None


def _wrong_sizes(generation: Generation) -> str | None:
    """Problem with a file that is missing or has the wrong size, or None; nothing is read."""
    for entry in [generation.manifest["shared"], *generation.manifest["parts"]]:
        path = generation.path / entry["file"]
        try:
            size = path.stat().st_size
        except OSError as error:
            return f"{path}: {reason(error)}"
        if size != entry["bytes"]:
            return _wrong_size(path, size, entry["bytes"])
    return None


def _wrong_size(path: Path, size: int, expected: int) -> str:
    return f"{path}: has {size} bytes where {MANIFEST} says {expected}"


def _read_manifest(directory: Path, cycle: int) -> tuple[Generation | None, str | None]:
    path = directory / MANIFEST
    try:
        manifest = json_value(read_regular(path))
    except OSError as error:
        return None, f"{path}: {reason(error)}"
    except ValueError:
        return None, f"{path}: damaged (not a JSON text)"
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        return None, f"{path}: not the manifest of a checkpoint (format should be {FORMAT!r})"
    if (version := manifest.get("version")) != VERSION:
        return None, f"{path}: format version {version!r}; this program reads version {VERSION}{_advice(version)}"
    if manifest.get("sha256") != _manifest_sum(manifest):
        return None, f"{path}: damaged (its own SHA-256 does not agree)"
    if manifest["cycle"] != cycle:
        return None, f"{path}: is of cycle {manifest['cycle']}, and its directory is of cycle {cycle}"
    return Generation(directory, cycle, manifest), None


def _advice(version: object) -> str:
    """Advice for a checkpoint of an older program: this program would not continue its chain under the same law."""
    if not (isinstance(version, int) and 0 < version < VERSION):
        return ""
    return ". An older mpibayes wrote it: finish the run with that, or start it anew with --fresh"


def _load(group: h5py.Group) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    group.visititems(lambda name, item: arrays.__setitem__(name, item[()]) if isinstance(item, h5py.Dataset) else None)
    return arrays
