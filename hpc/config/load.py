"""Reading a configuration: a TOML file and `--set key=value`, checked as a whole.

All mistakes are reported together, each with its file, line, key, expected value and the nearest valid key. Paths are
relative to the configuration file. The set of sections depends on `model.family`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mpibayes.errors import ConfigError
from mpibayes.hpc import registry
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.config.places import (
    Key,
    Places,
    Report,
    leaves,
    line_numbers,
    merge,
    parse_override,
    times_as_text,
)
from mpibayes.hpc.config.section import marked
from mpibayes.hpc.config.validate import validated
from mpibayes.io import documents
from mpibayes.io.files import read_regular, reason


def load(path: str | Path, overrides: Iterable[str] = ()) -> Config:
    """Read and check a configuration; ConfigError (exit 2) lists every problem at once."""
    path = Path(path)
    text = _read(path)
    document = _parsed(path, text)
    problems: list[str] = []
    set_keys: set[Key] = set()
    for item in overrides:
        try:
            change = parse_override(item)
        except ValueError as error:
            problems.append(str(error))
            continue
        set_keys |= set(leaves(change))
        merge(document, change, _kinds_of_named)
    places = Places(path, line_numbers(text), frozenset(set_keys))
    report = Report(places, problems)
    sections, named = validated(times_as_text(document), report)
    if problems:
        many = f"{len(problems)} problems" if len(problems) > 1 else "one problem"
        raise ConfigError(f"{path}: {many} in the configuration", problems)
    config = Config(sections, named, places, text, tuple(report.notes))
    for section in sections.values():
        for value in (getattr(section, key) for key in marked(type(section), "path")):
            if isinstance(value, str):
                config.resolve(value)  # report a text that cannot be a path now
    return config


def _kinds_of_named() -> set[str]:
    """Return the kinds of named sections, as "columns", of all families."""
    return {kind for name in registry.FAMILIES for kind in registry.keys_of(name).NAMED}


def _read(path: Path) -> str:
    try:
        return read_regular(path, pipe=True).decode("utf-8").replace("\r\n", "\n")
    except FileNotFoundError:
        near = difflib.get_close_matches(
            path.name, [p.name for p in path.parent.glob("*.toml")] if path.parent.is_dir() else [], 1
        )
        hint = f"; did you mean {path.parent / near[0]}?" if near else ""
        raise ConfigError(f"{path}: there is no such configuration file{hint}") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: this is a folder; a configuration (TOML) file was expected") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start}); a configuration is a TOML file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {reason(error)}") from None


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        return documents.toml(text)
    except ValueError as error:
        line, message = documents.where(error, text)
        place = path if line is None else f"{path}:{line}"
        kind = "" if isinstance(error, documents.TooMuch) else "not valid TOML: "
        raise ConfigError(f"{place}: {kind}{message}") from None
