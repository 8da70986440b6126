"""Refuse to write where a file would be lost that the command was not asked to replace.

Never replaced, even on request: a file that the command reads, the inputs and files of a run, output of another command
for another purpose, and anything that is not a regular file. The purpose of a file is recognised by its format, its
first line or, for a configuration, its first section.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from mpibayes.errors import ConfigError, MpibayesError
from mpibayes.io.files import HDF5, open_regular, reading, require_replaceable, writing
from mpibayes.io.h5 import reading_h5

TABLE, SPARSE, TRACE = "a typed table", "a sparse table", "the draws of a run (export --to arviz)"
CYCLES, CLUSTERS = "a trace (export --to csv)", "clusters (export --to clusters)"
DRAWS = "draws of labels, features or links"
TOPICS, FACTORS = "topics (export --to topics)", "factors (export --to factors)"
ANSWER, COMPLETED = "predictions, or the answer to a query", "a file with its gaps filled"
SYNTHETIC = "a synthetic table"
CONFIGURATION, SETTINGS = "a configuration", "the settings of a run"
SCHEMA, SCRIPT, REPORT, CRATE = "a schema", "a batch script", "a report", "a crate"
FORMATS = {"mpibayes-table": TABLE, "mpibayes-sparse": SPARSE, "mpibayes-trace": TRACE}
FIRST_LINES = {
    CYCLES: r"(chain,)?cycle,",
    CLUSTERS: r"(?!.*\b(log_density|p_cluster)\b)(.*,)?(row|line),(.*,)?cluster(_1)?(,|$)",
    DRAWS: r"(?=\S* )[\d |-]+$|[01]+$|-1?$",
    TOPICS: r"topic,",
    FACTORS: r"of,id,bias",
    ANSWER: r"row,",
    SETTINGS: r"# Every key and its value, as mpibayes understood ",
    SCHEMA: r"# What the columns of the table are\.",
    SCRIPT: r"#!.*\n# Written by mpibayes submit ",
    CRATE: r"PK\x03\x04[\s\S\n]{,40}ro-crate-metadata\.json[\s\S]*made by mpibayes export",
    CONFIGURATION: r"(?:[ \t]*(#.*)?\n)*\[(data|model|run|sampler|output)\][ \t]*(#.*)?\n",  # its first section
}
# Files and folders in the directory of a run or of a chain.
SETTINGS_OF_RUN = "config.resolved.toml"
OF_A_RUN = re.compile(
    r"config(\.resolved)?\.toml|config\.schema\.json|provenance\.json|status\.json|start\.json|training_rows\.npy|trace\.h5|LOCK.*"
    r"|checkpoints|trace|labels|logs|report"
)
OF_A_CHAIN = re.compile(r"chain-\d+")
HEAD = 1 << 16  # bytes read to find the first line


def check_target(
    path: Path,
    overwrite: bool,
    purpose: str = "",
    inputs: Iterable[str | os.PathLike | None] = (),
    otherwise: type[MpibayesError] = ConfigError,
) -> None:
    """Raise, before any work is done, if a new file of this purpose cannot or must not be written at `path`.

    inputs: files that the command reads. Raises ConfigError if a file would be lost, `otherwise` if none can be
    written.
    """
    with reading(path, ConfigError):
        if path.is_dir():
            raise ConfigError(f"{path}: is a directory; name a file to write")
    with writing(path, otherwise):
        require_replaceable(path)
        if not path.parent.is_dir():
            raise otherwise(f"{path}: cannot be written: no directory {path.parent}")
    with reading(path, ConfigError):
        protect(path, purpose, inputs)
        if path.exists() and not overwrite:
            raise ConfigError(f"{path}: exists and is kept; choose another name, or replace it with --force")
    if not os.access(path.parent, os.W_OK):
        raise otherwise(f"{path}: cannot be written: no permission to write in {path.parent}")


def protect(path: Path, purpose: str = "", inputs: Iterable[str | os.PathLike | None] = ()) -> None:
    """Raise ConfigError if writing to `path` would replace a file that must not be lost. Raises OSError."""
    for read in inputs:
        if read is not None and same_file(path, read):
            raise ConfigError(f"{path}: is both read and written by this command; choose another name to write")
    run = run_that_owns(path, purpose)
    if run is not None:
        raise ConfigError(f"{path}: belongs to the run in {run}, which needs its files; choose another name to write")
    there = purpose_of(path) if os.path.exists(path) else ""
    if there and purpose and there != purpose:
        raise ConfigError(f"{path}: is {there}, and what would replace it is {purpose}; choose another name to write")


def same_file(path: str | os.PathLike, other: str | os.PathLike) -> bool:
    """True if two names denote the same file, through any links; also for a file that does not exist yet."""
    with suppress(OSError, ValueError):  # a name cannot contain NUL
        return os.path.samefile(path, other)
    with suppress(ValueError):
        return os.path.realpath(path) == os.path.realpath(other)
    return False


def run_that_owns(path: Path, purpose: str = "") -> Path | None:
    """Run directory whose own files include `path`; None if there is none. Raises OSError."""
    real = Path(os.path.realpath(path.parent), path.name)
    for folder in real.parents:
        if not os.path.exists(folder / SETTINGS_OF_RUN):
            continue
        parts = real.relative_to(folder).parts
        name = parts[1] if len(parts) > 1 and OF_A_CHAIN.fullmatch(parts[0]) else parts[0]
        meant = (name == "report" and purpose == REPORT) or (name == "trace.h5" and purpose == TRACE)
        return folder if OF_A_RUN.fullmatch(name) and not meant else None
    return None


def purpose_of(path: Path) -> str:
    """Name the output of our commands found at `path`; "" for a file of other origin, or an unreadable one."""
    try:
        with open_regular(path) as file:
            head = file.read(HEAD)
        if head.startswith(HDF5):
            with reading_h5(path) as file:
                form = str(file.attrs.get("format", ""))
            return FORMATS.get(form, "a file of a run" if form.startswith("mpibayes-") else "")
    except (OSError, RuntimeError, MpibayesError):
        return ""
    text = head.decode("utf-8", "replace").replace('"', "")  # some writers quote every name of a header
    first = text.partition("\n")[0]
    return next((what for what, like in FIRST_LINES.items() if re.match(like, text if "\\n" in like else first)), "")


def check_export(path: Path, purpose: str, overwrite: bool, inputs: Iterable[str | os.PathLike | None] = ()) -> None:
    """`check_target`, except that an empty file, and an earlier one of the same purpose, may be replaced."""
    with reading(path, ConfigError):
        again = path.is_file() and (path.stat().st_size == 0 or purpose_of(path) == purpose)
    check_target(path, overwrite or again, purpose, inputs)
