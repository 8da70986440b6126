"""A run's directory: made once, recognised when the run continues, refused if the configuration is of another run."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import mpibayes
from mpibayes.errors import CheckpointError, ConfigError, MpibayesError
from mpibayes.hpc.config import json_schema
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.config.resolved import as_dict, continued, difference, resolved_toml
from mpibayes.hpc.run import grown
from mpibayes.hpc.run import identity as records
from mpibayes.hpc.run import lock as locks
from mpibayes.hpc.run.grown import Growth
from mpibayes.hpc.run.identity import AUTO, CHECKPOINTS, GROWN, HELDOUT_FILE, PENDING, PROVENANCE, RESOLVED
from mpibayes.hpc.run.lock import Lock
from mpibayes.hpc.run.status import read_status
from mpibayes.io.documents import json_value
from mpibayes.io.draws import FOLDER as LABELS
from mpibayes.io.files import (
    Guard,
    cannot_write,
    is_there,
    make_directory,
    read_regular,
    reading,
    remove_left_overs,
    replacing,
    set_aside,
    storing,
    unguarded,
    write_text,
)
from mpibayes.io.generations import Generation
from mpibayes.io.segments import require
from mpibayes.io.table import Table
from mpibayes.io.tables import AnyTable
from mpibayes.io.trace import FOLDER as TRACE
from mpibayes.text import counted

TRAINING_ROWS = "training_rows.npy"
OF_A_GROWTH = ("shards", "burn_in")  # keys of [run] that a growth decides anew
START = "start.json"
NOTE = "checkpointed.json"
NO_GROWTH = Growth()
UNFINISHED_START = {"config.toml", json_schema.NAME, PROVENANCE, RESOLVED}


def chain_places(folder: Path, n_chains: int) -> list[Path]:
    """Directory of each chain: the run's own if there is one chain."""
    return [folder] if n_chains == 1 else [folder / f"chain-{i + 1}" for i in range(n_chains)]


def lacks_checkpoint(places: Sequence[Path]) -> bool:
    """True if at least one chain has to start afresh."""
    return not all(map(_has_checkpoint, places))


def _has_checkpoint(place: Path) -> bool:
    with reading(place / CHECKPOINTS, CheckpointError):
        return any((place / CHECKPOINTS).glob("*/MANIFEST.json"))


def note_checkpoint(place: Path, number: int, n_chains: int, guard: Guard = unguarded) -> None:
    """Record that this chain, numbered from 0, has a checkpoint, once there is one. Raises CheckpointError.

    Not before: a chain that is killed on its way to the first may have cycles in its trace, and starts anew. The note
    is in provenance.json; with several chains, perhaps on several hosts, each has a file of its own.
    """
    if _is_noted(place, number, n_chains):
        return
    if n_chains > 1:
        with storing(place / NOTE):
            write_text(place / NOTE, json.dumps({"run": name_of_chain(place, number, n_chains)}) + "\n", guard=guard)
        return
    record = records.read_provenance(place)
    records.write_provenance(place, record | {CHECKPOINTS: [*record.get(CHECKPOINTS, []), number]}, guard)


def _is_noted(place: Path, number: int, n_chains: int) -> bool:
    """True if this chain had a checkpoint. Runs of earlier versions have all notes in provenance.json."""
    noted = records.read_provenance(_home(place, n_chains)).get(CHECKPOINTS, [])
    return number in noted or _read(place / NOTE).get("run") == name_of_chain(place, number, n_chains)


def require_no_checkpoint_was_written(place: Path, number: int, n_chains: int) -> None:
    """Raise CheckpointError if the chain once had a checkpoint: starting anew would drop its trace."""
    noted = _is_noted(place, number, n_chains)
    last = None
    with contextlib.suppress(MpibayesError):
        last = read_status(place).get("last_checkpoint")
    if last or (noted and any((place / folder).exists() for folder in (TRACE, LABELS))):
        of = f" of cycle {last}" if last else ""
        raise CheckpointError(
            f"{place / CHECKPOINTS}: empty, but the chain had a checkpoint{of}; put it back "
            f"(is it in a {place.name}.old-N that --fresh made?), or start anew with --fresh"
        )


def as_continued(folder: Path, config: Config, fresh: bool, growth: Growth) -> Config:
    """Return the configuration with "auto" as an earlier start in this directory decided it, if any; root alone."""
    if fresh or not holds_run(folder):
        return config
    config = continued(config, _before(folder, growth))
    # a run that is older than this key
    return config if config.run.until != "auto" else config.changed("run", until="cycles")


def _before(folder: Path, growth: Growth) -> dict[str, Any]:
    """Return the settings of the run in a directory; if rows are added, without those that depend on their number."""
    old = records.read_resolved(folder)
    if not growth.due:
        return old
    return old | {"run": {key: value for key, value in old["run"].items() if key not in OF_A_GROWTH}}


def _resolved(config: Config) -> str:
    """Return the settings to continue a run with, which add no rows unless that is asked for again."""
    return resolved_toml(config.changed("run", grow=False))


def open_run(
    folder: Path,
    config: Config,
    table: AnyTable,
    content: dict[str, Any],
    decided: dict[str, Any],
    fresh: bool,
    lock: Lock,
    growth: Growth = NO_GROWTH,
) -> Config:
    """Make the directory, or check that this configuration continues its run, and hold it; root alone.

    content: "fingerprint" of the table and of the held-out file ("heldout", None without one). decided: values of
    "auto" at a first start, by section and key. growth: as `planned` returns it. Returns the configuration with "auto"
    as decided at the first start. Raises ConfigError that lists the differences.
    """
    started, made = holds_run(folder), False
    if (now := grown.continued_as(Path(os.path.realpath(folder)))) is not None and started and holds_run(now):
        raise ConfigError(f"{folder}: the run of {now} before rows were appended, which does not continue; run {now}")
    content = content | {AUTO: [key for key in OF_A_GROWTH if getattr(config.run, key) == "auto"]}
    try:
        if not started:
            require_no_strangers(folder)
        place = Path(os.path.realpath(folder))
        made = not is_there(place)
        make_directory(place)
        lock.take(folder)
        started = holds_run(folder)
        if fresh and started:
            lock.check()
            lock.follow(set_aside(place))  # held until other starters can no longer find it
            lock.release()
            make_directory(place)
            lock.take(folder)
            started = holds_run(folder)
        remove_left_overs(folder, lock.check)
        if not started:
            config = continued(config, decided)
            write_text(folder / "config.toml", config.text, guard=lock.check)
            record = {"run": records.new_name(), "table": str(table.path), **content, "starts": []}
            json_schema.write_schema(folder / json_schema.NAME, lock.check)
            records.write_provenance(folder, record, lock.check)
            records.write_resolved(folder, _resolved(config), lock.check)
            return config
        record = records.read_provenance(folder)
        if len(record.get(GROWN, ())) + growth.due != growth.times or (PENDING in record and not growth.anew):
            raise ConfigError(f"{folder}: another start took rows in meanwhile; run the same command again")
        grown.complete(folder, lock.check)
    except OSError as error:
        if made:
            _unmake(folder, lock)
        raise cannot_write(error.filename or folder, error, CheckpointError if started else ConfigError) from None
    before, old = records.read_provenance(folder), _before(folder, growth)
    config = continued(config, old)
    if growth.due:
        config = continued(config, decided)
        old["run"] |= {key: getattr(config.run, key) for key in OF_A_GROWTH}
    same_table = before["fingerprint"] == content["fingerprint"]
    changes = difference(old, as_dict(config), same_table or growth.due)
    same_heldout = before.get("heldout") == content["heldout"]
    if growth.due and None not in (before.get("heldout"), content["heldout"]):
        # new levels change the file's coding: then its bytes count, or for an older run its name
        named = not any(c.startswith("data.heldout:") for c in changes)
        same_heldout |= before[HELDOUT_FILE] == content[HELDOUT_FILE] if HELDOUT_FILE in before else named
    if same_heldout and content["heldout"] is not None:  # a moved file is the same data
        changes = [c for c in changes if not c.startswith("data.heldout:")]
    if not same_table and not growth.due:
        changes.append(f"data.table: {_change_of(config, table, before['fingerprint'], folder)}")
    if not same_heldout:
        changes.append("data.heldout: the held-out file's rows are not those the run started with")
    if changes:
        raise ConfigError(
            f"{folder}: holds a run with another configuration, which was left as it is; what differs:",
            [*changes, "to start anew: choose another directory with -o, or --fresh, which renames this one"],
        )
    with storing(folder / json_schema.NAME):
        json_schema.write_schema(folder / json_schema.NAME, lock.check)
    if growth.due:
        record = before | {"table": str(table.path), **content}
        grown.take_in(folder, record, growth.earlier, _resolved(config), lock.check, growth.shards)
    else:
        records.write_resolved(folder, _resolved(config), lock.check)
    return config


def require_same_run(folder: Path, config: Config) -> None:
    """Raise ConfigError if a configuration differs from that of the run in a directory in a setting that may not change
    with a growth."""
    old = _before(folder, Growth(due=True))
    old["run"] |= {key: getattr(config.run, key) for key in OF_A_GROWTH}
    if changes := difference(old, as_dict(config), True):
        raise ConfigError(f"{folder}: holds a run with another configuration; what differs:", changes)


def _change_of(config: Config, table: AnyTable, fingerprint: str, folder: Path) -> str:
    """Describe how a table differs from the one with this fingerprint."""
    before = grown.rows_before(table, fingerprint)
    if not before:
        sparse = "" if isinstance(table, Table) or not config.run.grow else "; a sparse table cannot grow (run.grow)"
        return f"the content of {table.path} is not the content the run started with{sparse}"
    n = counted(table.n_rows - before, "row")
    words = f"{n} appended to {table.path} since the run started with {before:,}; its results describe those rows"
    return f"{words}. With --grow (run.grow = true) the run adds them, and continues"


def _unmake(folder: Path, lock: Lock) -> None:
    """Remove a directory that this start has made, and its files there, unless another start is in it."""
    with contextlib.suppress(OSError, CheckpointError):
        lock.check()
        for name in ("config.toml", json_schema.NAME, PROVENANCE):
            (folder / name).unlink(missing_ok=True)
    lock.release()
    with contextlib.suppress(OSError):
        folder.rmdir()


def holds_run(folder: Path) -> bool:
    """True if a run was started in this directory. Raises ConfigError if it is a file, or cannot be read."""
    with reading(folder, ConfigError):
        if is_there(folder) and not folder.is_dir():
            raise ConfigError(f"{folder}: is a file; name a run directory with -o")
        return (folder / RESOLVED).exists()


def require_no_strangers(folder: Path) -> None:
    """Raise ConfigError if a folder without a run has files in it, other than those of an interrupted start."""
    with reading(folder, ConfigError):
        names = {p.name for p in folder.iterdir()} if folder.exists() else set()
    names = {re.sub(r"\.[0-9a-f]{16}\.tmp$", "", name) for name in names}
    if not {n for n in names if n.partition(".")[0] != locks.NAME} <= UNFINISHED_START:
        raise ConfigError(f"{folder}: not empty, and no run directory (it has no {RESOLVED}); choose another with -o")


def record_start(folder: Path, hosts: Sequence[str], guard: Guard) -> None:
    """Add this start to provenance.json: versions, hosts, ranks, command; root alone."""
    record = records.read_provenance(folder)
    record["starts"].append(
        {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "mpibayes": mpibayes.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "h5py": h5py.__version__,
            "machine": platform.machine(),
            "ranks": len(hosts),
            "hosts": sorted(set(hosts)),
            "command": sys.argv,
        }
    )
    records.write_provenance(folder, record, guard)


def name_of_chain(place: Path, number: int, n_chains: int) -> str:
    """Name that marks the files of one chain. number: of the chain, from 0."""
    record = records.read_provenance(_home(place, n_chains))
    times = len(record.get(GROWN, ()))
    return f"{record['run']}-{number + 1}" + (f".{times}" if times else "")


def _home(place: Path, n_chains: int) -> Path:
    """Run directory of a chain's directory."""
    return place if n_chains == 1 else place.parent


def require_what_it_kept(place: Path, generation: Generation, name: str) -> None:
    """Raise CheckpointError if the trace or the labels end before this generation, or belong to another run."""
    for folder in (TRACE, LABELS):
        kept = generation.kept(folder)
        if kept is None:
            continue
        if kept.run != name:
            raise CheckpointError(
                f"{generation.path}: is a checkpoint of another run, not of the one in {PROVENANCE}. "
                "Put the file of this run back"
            )
        require(place / folder, kept)


def write_training_rows(folder: Path, training_rows: np.ndarray | None, guard: Guard) -> None:
    """Write the row numbers of the training rows, if the table has held-out rows; root alone."""
    if training_rows is not None:
        with storing(folder / TRAINING_ROWS), replacing(folder / TRAINING_ROWS, guard=guard) as file:
            np.save(file, training_rows)


def write_start(folder: Path, record: Mapping[str, Any], guard: Guard) -> None:
    """Write a chain's record of its start (`family.Chain.start_record`); root alone."""
    if record:
        with storing(folder / START):
            write_text(folder / START, json.dumps(record) + "\n", guard=guard)


def read_start(folder: Path) -> dict[str, Any]:
    """Return the record of `write_start`; {} if there is none, or it cannot be read: no result depends on it."""
    return _read(folder / START)


def _read(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; {} if there is none, or it cannot be read."""
    try:
        record = json_value(read_regular(path))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}
