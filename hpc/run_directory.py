"""A run's directory: made once, recognised when the run goes on, refused when the run would be another one."""

from __future__ import annotations

import json
import platform
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np

import mpibayes
from mpibayes.hpc import config as configuration
from mpibayes.hpc.config import Config
from mpibayes.hpc.errors import CheckpointError, ConfigError
from mpibayes.hpc.shards import default_count
from mpibayes.io.files import write_text
from mpibayes.io.table import Table

RESOLVED = "config.resolved.toml"
PROVENANCE = "provenance.json"
TRAINING_ROWS = "training_rows.npy"


def decided(config: Config, n_training: int) -> dict:
    """What "auto" comes to at the first start, by section and key."""
    shards = default_count(n_training) if config.run.shards == "auto" else config.run.shards
    opening = config.sampler.opening
    if opening == "auto":
        opening = "one"
    return {
        "run": {"shards": min(shards, n_training), "burn_in": config.burn_in},
        "sampler": {"opening": opening},
    }


def open_run(folder: Path, config: Config, table: Table, n_training: int, fresh: bool) -> Config:
    """Make the directory, or check that this configuration continues what is there; root alone.

    Returns the configuration with "auto" as decided at the first start. Raises ConfigError with what differs.
    """
    if fresh and folder.exists():
        _set_aside(folder)
    resolved = folder / RESOLVED
    if not resolved.exists():
        if folder.exists() and any(folder.iterdir()):
            raise ConfigError(f"{folder}: not empty, and no run directory (it has no {RESOLVED}); choose another with -o")
        config = configuration.continued(config, decided(config, n_training))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_text(folder / "config.toml", config.text)
            _write_provenance(folder, {"table": str(table.path), "fingerprint": table.fingerprint, "starts": []})
            write_text(resolved, configuration.resolved_toml(config))
        except OSError as error:
            raise ConfigError(f"{folder}: cannot be written: {error.strerror}") from None
        return config
    old = tomllib.loads(resolved.read_text(encoding="utf-8"))
    before = _read_provenance(folder)
    config = configuration.continued(config, old)
    same_table = before["fingerprint"] == table.fingerprint
    changes = configuration.difference(old, configuration.as_dict(config), same_table)
    if not same_table:
        changes.append(f"data.table: the content of {table.path} is not the content the run started with")
    if changes:
        raise ConfigError(
            f"{folder}: holds a run with another configuration, which was left as it is; what differs:",
            [*changes, "to start anew: choose another directory with -o, or --fresh, which renames this one"],
        )
    write_text(resolved, configuration.resolved_toml(config))
    return config


def _set_aside(folder: Path) -> None:
    n = 1
    while (aside := folder.with_name(f"{folder.name}.old-{n}")).exists():
        n += 1
    folder.rename(aside)


def record_start(folder: Path, hosts: Sequence[str]) -> None:
    """Add this start to provenance.json: versions, hosts, ranks, command; root alone."""
    record = _read_provenance(folder)
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
    _write_provenance(folder, record)


def _read_provenance(folder: Path) -> dict:
    try:
        return json.loads((folder / PROVENANCE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder / PROVENANCE}: cannot be read ({error}); the run's table cannot be told") from None


def _write_provenance(folder: Path, record: dict) -> None:
    write_text(folder / PROVENANCE, json.dumps(record, indent=1) + "\n")
