"""Record of the last job of a run, beside its directory in DIR.job.json, for later sessions."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mpibayes.errors import ConfigError
from mpibayes.io.documents import json_value
from mpibayes.io.files import is_there, read_regular, reading, write_text, writing


@dataclass(frozen=True)
class Record:
    """The last job of a run. array: its tasks as given to sbatch, None without; chain: True if each job submits the
    next one."""

    job: str
    array: str | None = None
    chain: bool = False


def record_path(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.job.json")


def log_path(folder: Path, job: str) -> Path:
    return folder.with_name(f"{folder.name}-{job}.log")


def write_record(folder: Path, record: Record) -> None:
    """Write the record. Raises ConfigError or CheckpointError."""
    with writing(record_path(folder)):
        write_text(record_path(folder), json.dumps(asdict(record)) + "\n")


def read_record(folder: Path) -> Record | None:
    """Read the last job of a run, None if none was recorded. Raises ConfigError for a damaged record."""
    path = record_path(folder)
    try:
        with reading(path, ConfigError):
            if not is_there(path):
                return None
            result: Any = json_value(read_regular(path))
            record = Record(**result)
        if not re.fullmatch(r"\d+", record.job, re.ASCII) or not isinstance(record.chain, bool):
            raise ValueError("not a number of a job")
    except (TypeError, ValueError):
        raise ConfigError(f"{path}: damaged; remove it, and find the job with squeue --me") from None
    return record
