"""Reading of checkpoints (`checkpoint`): the newest generation that is complete and undamaged.

Nothing here communicates:
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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mpibayes.errors import CheckpointError
from mpibayes.io.documents import json_value
from mpibayes.io.files import open_regular, read_regular, reading, reason
from mpibayes.io.h5 import reading_h5
from mpibayes.io.segments import Kept
from mpibayes.text import counted

FORMAT = "mpibayes-checkpoint"
VERSION = 4
MANIFEST = "MANIFEST.json"
SHARED = "shared.h5"
# A generation being replaced by a new one of the same cycle keeps this suffix until the new one is in place.
ASIDE = ".old"


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
    return _newest(Path(folder), candidates(Path(folder)), [], deep)


def kept(run_dir: str | Path, folder: str) -> Kept | None:
    """Record of a folder of segments in the newest intact generation; None if there is no record."""
    for cycle, path in candidates(Path(run_dir) / "checkpoints"):
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
    generations = candidates(folder)
    names = [path.name for _, path in generations]
    older = generations[names.index(generation.path.name) + 1 :] if generation.path.name in names else []
    result = _newest(folder, older, generation.warnings + texts, deep)
    assert result is not None  # there are warnings, so nothing usable raises
    return result


def candidates(folder: Path) -> list[tuple[int, Path]]:
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


def manifest_sum(manifest: Mapping[str, Any]) -> str:
    """SHA-256 of a manifest without this entry of its own."""
    rest = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


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
    if manifest.get("sha256") != manifest_sum(manifest):
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
