"""A run as an RO-Crate: its provenance, configuration and report in one ZIP file, described in JSON-LD.

The description follows RO-Crate 1.1 (https://w3id.org/ro/crate/1.1) and, of how the files were made, Process Run Crate
0.5 (https://w3id.org/ro/wfrun/process/0.5). Draws stay in the run directory. The same run gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import mimetypes
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mpibayes.errors import ConfigError
from mpibayes.hpc.config.json_schema import NAME as SCHEMA
from mpibayes.hpc.run.directory import holds_run
from mpibayes.hpc.run.identity import PROVENANCE, RESOLVED, read_provenance, read_resolved
from mpibayes.io.export import STDOUT, Exported
from mpibayes.io.files import read_regular, reading, replacing, writing

METADATA, FILE = "ro-crate-metadata.json", "crate.zip"
CRATE, PROCESS = "https://w3id.org/ro/crate/1.1", "https://w3id.org/ro/wfrun/process/0.5"
NO_LICENCE = "No licence is stated; whoever shares this crate has to choose one."
GIVEN = {"config.toml": "Configuration as it was given", SCHEMA: "JSON schema of the configurations"}
MADE = {RESOLVED: "Every setting with its value", PROVENANCE: "Table, versions, hosts and command of each start"}
EPOCH = (1980, 1, 1, 0, 0, 0)  # time of every file in the archive: true times would make its bytes differ


def write_crate(run_dirs: list[str | Path], out: str | Path | None) -> Exported:
    """Write the crate of one run to `out`, by default crate.zip in its directory.

    Raises ConfigError (no run, several, no place to write), CheckpointError (provenance or settings are damaged, a full
    disk), DataError (a file of the report cannot be read).
    """
    if len(run_dirs) != 1:
        raise ConfigError("--to crate: a crate is of one run; name one run directory")
    if str(out) == STDOUT:
        raise ConfigError("a crate cannot go to standard output: name a file with -o")
    folder = Path(run_dirs[0])
    if not holds_run(folder):
        raise ConfigError(f"{folder}: no run was started in this directory; name the -o of `mpibayes run`")
    provenance = read_provenance(folder)
    read_resolved(folder)  # checks that it is undamaged
    contents = _contents(folder)
    metadata = json.dumps(_metadata(provenance, contents), indent=1, ensure_ascii=False) + "\n"
    path = folder / FILE if out is None else Path(out)
    with writing(path), replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, content in {METADATA: metadata.encode(), **contents}.items():
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    report = any(name.startswith("report/") for name in contents)
    return Exported([path], [] if report else ["without a report: `mpibayes report` writes one, for a later crate"])


def _contents(folder: Path) -> dict[str, bytes]:
    """Content of each file of the crate, by its path in it."""
    paths = [folder / name for name in (*GIVEN, *MADE)]
    with reading(folder / "report"):
        paths += sorted(path for path in (folder / "report").rglob("*") if path.suffix != ".tmp" and path.is_file())
    contents = {}
    for path in paths:
        with reading(path):
            if path.exists():  # runs of earlier versions have no schema
                contents[path.relative_to(folder).as_posix()] = read_regular(path)
    return contents


def _metadata(provenance: Mapping[str, Any], contents: Mapping[str, bytes]) -> dict[str, Any]:
    """The JSON-LD document."""
    starts = provenance["starts"]
    run = f"run {provenance['run']} of mpibayes"
    made = [name for name in contents if name not in GIVEN]
    tables = [_table("#table", Path(provenance["table"]).name, provenance["fingerprint"])]
    if provenance.get("heldout"):
        tables.append(_table("#heldout", "held-out rows", provenance["heldout"]))
    programs = {start["mpibayes"]: _program(start["mpibayes"]) for start in starts}
    actions = [
        {
            "@id": f"#start-{number}",
            "@type": "CreateAction",
            "name": f"Start {number} of {run}, on {start['ranks']} rank{'s' * (start['ranks'] > 1)}",
            "description": " ".join(start["command"]),
            "startTime": _time(start["time"]),
            "instrument": _to(programs[start["mpibayes"]]["@id"]),
            "object": [_to(table["@id"]) for table in tables] + [_to(name) for name in contents if name in GIVEN],
            "result": [_to(quote(name)) for name in made],
        }
        for number, start in enumerate(starts, 1)
    ]
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": run[:1].upper() + run[1:],
        "description": "Configuration, provenance and report of a Bayesian analysis. Its draws are not here.",
        "datePublished": _time(starts[-1]["time"]) if starts else "1980-01-01",
        "license": NO_LICENCE,
        "conformsTo": _to(PROCESS),
        "hasPart": [_to(quote(name)) for name in contents],
        "mentions": _one_or_all([_to(action["@id"]) for action in actions]),
    }
    return {
        "@context": [f"{CRATE}/context", {"sha256": "http://schema.org/sha256"}],
        "@graph": [
            {
                "@id": METADATA,
                "@type": "CreativeWork",
                "conformsTo": _to(CRATE),
                "about": _to("./"),
                "description": "made by mpibayes export",
            },
            root,
            {"@id": PROCESS, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"},
            *(_file(name, content) for name, content in contents.items()),
            *tables,
            *programs.values(),
            *actions,
        ],
    }


def _one_or_all(values: list[Any]) -> Any:
    """A single value on its own, as RO-Crate recommends."""
    return values[0] if len(values) == 1 else values


def _to(place: str) -> dict[str, str]:
    return {"@id": place}


def _file(name: str, content: bytes) -> dict[str, Any]:
    kind = "application/toml" if name.endswith(".toml") else mimetypes.guess_type(name)[0]
    return {
        "@id": quote(name),
        "@type": "File",
        "name": name,
        "description": (GIVEN | MADE).get(name, "Part of the report"),
        "encodingFormat": kind or "application/octet-stream",
        "contentSize": str(len(content)),
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def _table(place: str, name: str, fingerprint: str) -> dict[str, Any]:
    return {
        "@id": place,
        "@type": "CreativeWork",
        "name": name,
        "description": "Table that the run read; not in this crate. Its identifier is the hash of its content.",
        "identifier": f"sha256:{fingerprint}",
    }


def _program(version: str) -> dict[str, Any]:
    return {
        "@id": f"#mpibayes-{version}",
        "@type": "SoftwareApplication",
        "name": "mpibayes",
        "softwareVersion": version,
    }


def _time(written: str) -> str:
    """Convert a time of provenance.json, 2026-01-31T12:00:00+0100, to ISO 8601."""
    return f"{written[:-2]}:{written[-2:]}" if written[-5:-4] in ("+", "-") else written
