"""The two files that identify a run, `config.resolved.toml` and `provenance.json`, each with a checksum of itself.

A changed digit in one of them would make another run: other shards, another burn-in, another table. The provenance also
has the run's name, drawn at its start, which is in its checkpoints and segments: files of another run are recognised.
The growths of its table are there too (`grown.py`).
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from pathlib import Path
from typing import Any

from mpibayes.errors import CheckpointError
from mpibayes.io import documents
from mpibayes.io.files import Guard, read_regular, reason, storing, unguarded, write_text

RESOLVED = "config.resolved.toml"
PROVENANCE = "provenance.json"
CHECKPOINTS = "checkpoints"
GROWN, PENDING = "grown", "pending"  # see `grown.py`
AUTO = "auto"  # keys of [run], among those decided anew by a growth, that were "auto" then
HELDOUT_FILE = "heldout_file"  # SHA-256 of the held-out file at the first start, or the last growth
FIELDS = {"run": str, "table": str, "fingerprint": str, "starts": list, CHECKPOINTS: list, GROWN: list}


def new_name() -> str:
    """Draw a unique name for a run."""
    return secrets.token_hex(8)


def write_resolved(folder: Path, text: str, guard: Guard = unguarded) -> None:
    """Write the settings of the run whose provenance exists already. Raises CheckpointError."""
    text += f"# run {read_provenance(folder)['run']}\n"
    with storing(folder / RESOLVED):
        write_text(folder / RESOLVED, f"{text}# sha256 of the lines above: {_sum(text)}\n", guard=guard)


def read_resolved(folder: Path) -> dict[str, Any]:
    """Return the settings by section. Raises CheckpointError if the file is damaged or edited."""
    path, record = folder / RESOLVED, read_provenance(folder)
    if PENDING in record:
        return documents.toml(record[PENDING])
    try:
        text = read_regular(path).decode()
        settings = documents.toml(text)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read ({reason(error)}); it says what the run is") from None
    result = re.fullmatch(r"(.*\n)# sha256 of the lines above: ([0-9a-f]{64})\n", text, re.DOTALL)
    if result is None or _sum(result[1]) != result[2]:
        raise CheckpointError(
            f"{path}: damaged or edited (its own SHA-256 does not agree); it says what the run is. Restore it from a "
            "copy; a run is changed in the configuration that it is started with"
        )
    if not result[1].endswith(f"\n# run {record['run']}\n"):
        raise CheckpointError(f"{path}: is of another run than {folder / PROVENANCE}. Put the file of this run back")
    return settings


def write_provenance(folder: Path, record: dict[str, Any], guard: Guard = unguarded) -> None:
    """Write the record with its checksum. Raises CheckpointError."""
    record = {key: value for key, value in record.items() if key != "sha256"}
    record["sha256"] = _sum(json.dumps(record, sort_keys=True))
    with storing(folder / PROVENANCE):
        write_text(folder / PROVENANCE, json.dumps(record, indent=1) + "\n", guard=guard)


def read_provenance(folder: Path) -> dict[str, Any]:
    """Return the record. Raises CheckpointError if the file is damaged or edited."""
    path = folder / PROVENANCE
    try:
        record = _record(documents.json_value(read_regular(path)))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read ({reason(error)}); the run's table is not known") from None
    if record is None:
        raise CheckpointError(f"{path}: damaged, not the record of a run; the run's table is not known")
    rest = {key: value for key, value in record.items() if key != "sha256"}
    if record.get("sha256") != _sum(json.dumps(rest, sort_keys=True)):
        raise CheckpointError(
            f"{path}: damaged (its own SHA-256 does not agree); the run's table is not known. Restore it from a copy"
        )
    return record


def _record(value: Any) -> dict[str, Any] | None:
    """Return a value read from a file if it has the fields of a run's record, else None."""
    if not isinstance(value, dict):
        return None
    fields: dict[str, Any] = {CHECKPOINTS: [], GROWN: [], **value}
    return value if all(isinstance(fields.get(name), kind) for name, kind in FIELDS.items()) else None


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
