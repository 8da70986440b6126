"""Growth of a run's table (`run.grow`): the run so far is set aside, and its chains start again from their last state.

DIR/grown/1 is then a complete run directory for the earlier rows: its settings, checkpoints, trace and kept draws, as
hard links where the file system has them. It appears whole, by a rename. Then the new provenance.json replaces the old
one in one step, which makes the directory a run of all rows: it counts the growths, so that names of chains and random
streams differ from the earlier ones, and holds the new settings as `pending` until the old files are removed. A start
that is killed before that step leaves the old run; one that is killed after it is completed by the next start.
"""

from __future__ import annotations

import filecmp
import itertools
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mpibayes.errors import ConfigError
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.config.json_schema import NAME as SCHEMA
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.data.sparse import AnyData
from mpibayes.hpc.parallel import shards
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.hpc.registry import family_of
from mpibayes.hpc.run import identity, lock
from mpibayes.hpc.run.identity import GROWN, PENDING, PROVENANCE, RESOLVED
from mpibayes.io.draws import FOLDER as DRAWS
from mpibayes.io.draws import last_draw
from mpibayes.io.files import (
    TEMPORARY,
    Guard,
    chain_directories,
    make_directory,
    reading,
    remove,
    storing,
    sync_directory,
)
from mpibayes.io.segments import list_segments
from mpibayes.io.table import Table
from mpibayes.io.tables import AnyTable
from mpibayes.text import counted

FOLDER = "grown"
SHARDS = "shards"  # key of a growth in the provenance: sizes of the shards since then
STAYS = {FOLDER, "config.toml", SCHEMA, PROVENANCE, RESOLVED, "logs"}  # beside the lock
LINKED = (".h5", ".npy")  # files that are never modified, only replaced


@dataclass(frozen=True)
class Growth:
    """times: number of growths of a run, including one by this start. due: True if this start adds rows, to `earlier`
    ones. anew: True if no chain has cycles since the last growth. shards: their sizes, if the last growth recorded
    them."""

    times: int = 0
    due: bool = False
    earlier: int = 0
    anew: bool = False
    shards: tuple[int, ...] | None = None

    def settings(self, config: Config) -> Config:
        """Return the settings that chains work with: random streams of their own, and no start other than from their
        last state."""
        if not self.times:
            return config
        seed = int(generator(config.run.seed, Purpose.GROWN, self.times).integers(2**63))
        run = {"seed": seed} | ({"shards": self.shards} if self.shards else {})
        return family_of(config.kind).grown(config.changed("run", **run))


def planned(folder: Path, config: Config, table: AnyTable, fresh: bool) -> Growth:
    """Growth of the run in a directory, including the one that this start would make; root alone."""
    with reading(folder, ConfigError):
        if fresh or not (folder / RESOLVED).exists():
            return Growth()
    record = identity.read_provenance(folder)
    times, pending = len(record.get(GROWN, ())), PENDING in record
    earlier = rows_before(table, record["fingerprint"]) if config.run.grow else 0
    due = 0 < earlier < table.n_rows
    return Growth(times + due, due, earlier, due or pending)


def with_shards(growth: Growth, folder: Path, config: Config, data: AnyData) -> Growth:
    """Return the growth with the sizes of the shards; root alone."""
    if not growth.times:
        return growth
    record = identity.read_provenance(folder)
    grown = record.get(GROWN, [])
    sizes = grown[-1].get(SHARDS) if grown else None
    if growth.due and isinstance(data, Data):
        n = data.n_rows_among(growth.earlier)
        before = sizes or shards.even_sizes(n, identity.read_resolved(folder)["run"]["shards"])
        n_shards = shards.count(config.run.shards, data.n_rows, family_of(config.kind).default_shards)
        sizes = shards.sizes_after(before, data.n_rows - n, n_shards)
    return replace(growth, shards=tuple(sizes) if sizes else None)


def rows_before(table: AnyTable, fingerprint: str) -> int:
    """Number of rows of the table with this fingerprint, if it is the same table before rows were appended; else 0."""
    before = table.before_growth(fingerprint) if isinstance(table, Table) else None
    return 0 if before is None else before.n_rows


def take_in(
    folder: Path,
    record: Mapping[str, Any],
    n_rows: int,
    resolved: str,
    guard: Guard,
    sizes: Sequence[int] | None = None,
) -> None:
    """Turn the run in a directory, which is held, into a run of a longer table. record: its provenance so far, with the
    table's new fingerprint. n_rows: number of rows before. resolved: the new settings. sizes: of the shards."""
    for place in chain_directories(folder):  # fail on unreadable draws before anything is changed
        last_draw(place)
    before = identity.read_provenance(folder)
    grown = [*before.get(GROWN, ()), {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "rows": n_rows, "fingerprint": before["fingerprint"],
        SHARDS: sizes,
    }]  # fmt: skip
    with storing(folder / FOLDER), _unless_lost(guard):
        make_directory(folder / FOLDER, within=folder)
        _remove_drafts(folder, guard)
        _make_way(folder, place_of(folder, len(grown)), guard)
        draft = folder / FOLDER / f"{len(grown)}.{secrets.token_hex(8)}{TEMPORARY}"
        draft.mkdir()
        for entry in _entries(folder):
            if entry.name != FOLDER:
                _copy(entry, draft / entry.name)
        sync_directory(draft)
        guard()
        os.rename(draft, place_of(folder, len(grown)))
        sync_directory(folder / FOLDER)
    new = {**record, GROWN: grown, PENDING: resolved, identity.CHECKPOINTS: []}
    identity.write_provenance(folder, new, guard)
    complete(folder, guard)


def complete(folder: Path, guard: Guard) -> None:
    """Finish an interrupted growth of a directory, which is held: remove files that were set aside, and unfinished
    drafts."""
    record = identity.read_provenance(folder)
    with storing(folder / FOLDER), _unless_lost(guard):
        _remove_drafts(folder, guard)
    if PENDING not in record:
        return
    place = place_of(folder, len(record.get(GROWN, ())))
    if not place.is_dir():
        raise ConfigError(
            f"{folder}: a start that added rows was interrupted, and {place}, the run of the earlier rows, is "
            "gone; put it back, and run the same command again"
        )
    with storing(folder), _unless_lost(guard):
        kept = {path.name for path in place.iterdir()}
        for entry in _entries(folder):
            if entry.name in kept - STAYS:
                guard()
                remove(entry)
        sync_directory(folder)
    identity.write_resolved(folder, record[PENDING], guard)
    identity.write_provenance(folder, {k: v for k, v in record.items() if k != PENDING}, guard)


def place_of(folder: Path, times: int) -> Path:
    """Directory of the run as it was before its `times`-th growth."""
    return folder / FOLDER / str(times)


def continued_as(home: Path) -> Path | None:
    """Directory of the run of all rows, if `home` is its state before a growth; otherwise None."""
    return home.parent.parent if home.parent.name == FOLDER and home.name.isdigit() else None


def source_of(folder: Path, place: Path, times: int) -> Path | None:
    """Directory of the chain from which the chain in `place` starts: its own past before the last growth that found
    kept draws; None if there is none."""
    for i in range(times, 0, -1):
        before = place_of(folder, i) / place.relative_to(folder)
        if list_segments(before / DRAWS):
            return before
    return None


def in_words(folder: Path, n_rows: int) -> str:
    """Describe the last growth. n_rows: number of rows now."""
    grown = identity.read_provenance(folder)[GROWN]
    n = grown[-1]["rows"]
    return (
        f"{counted(n_rows - n, 'row')} appended to the {n:,} before; the earlier run is now "
        f"{place_of(folder, len(grown))}, and draws are counted afresh"
    )


def require_whole(folder: Path) -> None:
    """Raise ConfigError if a start is adding rows at this moment, or was interrupted while it did."""
    record = identity.read_provenance(folder)
    if PENDING in record:
        before = place_of(folder, len(record[GROWN]))
        raise ConfigError(
            f"{folder}: a start that adds rows has not finished; run the same command again. The run of "
            f"the rows before is {before}"
        )


@contextmanager
def _unless_lost(guard: Guard) -> Iterator[None]:
    """Raise the guard's exception instead of FileNotFoundError if another start has taken the run over: then that one
    has removed the file."""
    try:
        yield
    except FileNotFoundError:
        guard()
        raise


def _entries(folder: Path) -> list[Path]:
    """Entries of a run directory, without the lock and unfinished files."""
    names = sorted(os.listdir(folder))
    return [folder / n for n in names if n.partition(".")[0] != lock.NAME and not n.endswith(TEMPORARY)]


def _copy(source: Path, target: Path) -> None:
    """Copy a file or folder, on disk when this returns; symbolic links keep their targets."""
    if source.is_symlink():
        os.symlink(os.path.realpath(source), target)
        return
    if source.is_dir():
        target.mkdir()
        for entry in _entries(source):
            _copy(entry, target / entry.name)
        sync_directory(target)
        return
    if source.suffix in LINKED:
        try:
            os.link(source, target)
            return
        except OSError:  # a file system without hard links
            pass
    shutil.copy2(source, target)
    with open(target, "rb") as file:
        os.fsync(file.fileno())


def _remove_drafts(folder: Path, guard: Guard) -> None:
    """Remove unfinished drafts of growths that were interrupted."""
    if (folder / FOLDER).is_dir():
        for path in (folder / FOLDER).iterdir():
            if re.fullmatch(r"\d+\.[0-9a-f]{16}" + re.escape(TEMPORARY), path.name):
                guard()
                remove(path)


def _make_way(folder: Path, place: Path, guard: Guard) -> None:
    """Free the place of the next growth: remove a copy of the present run left by an interrupted growth; rename
    anything else."""
    if not os.path.lexists(place):
        return
    guard()
    if _repeats(place, folder):
        remove(place)
        return
    n = next(n for n in itertools.count(1) if not os.path.lexists(place.with_name(f"{place.name}.old-{n}")))
    os.rename(place, place.with_name(f"{place.name}.old-{n}"))


def _repeats(copy: Path, folder: Path) -> bool:
    """True if the other folder has all files of the copy, with the same bytes."""
    if not copy.is_dir() or not folder.is_dir():
        return False
    for entry in copy.iterdir():
        other = folder / entry.name
        if entry.is_dir() and not entry.is_symlink():
            if not _repeats(entry, other):
                return False
        elif not other.is_file() or not (entry.samefile(other) or filecmp.cmp(entry, other, shallow=False)):
            return False
    return True
