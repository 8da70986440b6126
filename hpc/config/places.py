"""Places of the keys of a configuration, spelling of keys and values, and the list of errors."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mpibayes.io import documents
from mpibayes.text import toml_string

Key = tuple[str, ...]  # ("run", "seed"), ("columns", "age", "use"), ("blocks", "body", "prior", "nu")


@dataclass(frozen=True)
class Places:
    """The file, the line of each section and key in it, and the keys given by --set."""

    path: Path
    lines: Mapping[Key, int] = field(default_factory=dict)
    set_keys: frozenset[Key] = frozenset()

    def where(self, key: Key) -> str:
        """Describe the place of a key: `run.toml:12: run.seed`, or `--set run.seed` if the command line gave it."""
        name = _short(dotted(key), 200)
        for length in range(len(key), 0, -1):
            if key[:length] in self.set_keys or (
                length > 1 and any(given[:length] == key[:length] for given in self.set_keys)
            ):
                return f"--set {name}"
            if key[:length] in self.lines:
                return f"{self.path}:{self.lines[key[:length]]}: {name}"
        return f"{self.path}: {name}"


@dataclass(frozen=True)
class Report:
    """Collects problems, and harmless notes, each with its place. begun: the settings are those of a run that exists,
    so rules that came after it do not apply."""

    places: Places
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    begun: bool = False

    def add(self, key: Key, what: str) -> None:
        self.problems.append(f"{self.places.where(key)}: {what}")

    def note(self, key: Key, what: str) -> None:
        self.notes.append(f"{self.places.where(key)}: {what}")


def line_numbers(text: str) -> dict[Key, int]:
    """Line of each section and key. A scan of the text, not a parser: it reads what people write, one key a line."""
    lines: dict[Key, int] = {}
    section: Key = ()
    for number, line in enumerate(text.split("\n"), 1):
        header = re.match(r"\s*\[\[?([^\[\]]+)\]\]?\s*(#.*)?$", line)
        assignment = re.match(rf"\s*({documents.KEY_PART}(?:\s*\.\s*{documents.KEY_PART})*)\s*=", line)
        if header:
            section = _path_of(header[1]) or section
            lines.setdefault(section, number)
        elif assignment:
            key = (*section, *_path_of(assignment[1]))
            lines.setdefault(key, number)
            inline = re.match(r"[^=]*=\s*\{(.*)\}", line)
            for name in re.findall(r"(?<![A-Za-z0-9_-])([A-Za-z0-9_-]++)\s*+=", inline[1]) if inline else ():
                lines.setdefault((*key, name), number)
    return lines


def _path_of(dotted: str) -> Key:
    try:
        tree: Any = documents.toml(f"{dotted} = 0")
    except ValueError:
        return ()
    path = []
    while isinstance(tree, dict):
        (key, tree), *_ = tree.items()
        path.append(key)
    return tuple(path)


# --- keys and values as text ------------------------------------------------------------------------------------------


def table(value: Any) -> dict[str, Any]:
    """Return a table of the file as it is, {} for any other value."""
    return value if isinstance(value, dict) else {}


def dotted(key: Sequence[str]) -> str:
    return ".".join(bare(part) for part in key)


def bare(part: str) -> str:
    return part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else toml_string(part)


def shown(value: Any) -> str:
    return _short(as_toml(value))


def _short(text: str, most: int = 80) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def as_toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{bare(str(key))} = {as_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(as_toml(item) for item in value) + "]"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return str(value)
    return toml_string(str(value))


# --- --set ------------------------------------------------------------------------------------------------------------


def parse_override(item: str) -> dict[str, Any]:
    """Parse `run.seed=3` to {"run": {"seed": 3}}; a value that is not TOML is text. ValueError has a message for
    users."""
    key, equals, value = item.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"--set {_short(item)}: expected key=value, for example --set run.seed=3")
    value = value.strip()
    try:
        change = documents.toml(f"{key} = {value}")
        if not _has_time(change):  # 02:00:00 is a time of day in TOML, and a duration here
            return change
    except documents.TooMuch as error:
        raise ValueError(f"--set {_short(key.strip())}: {error}") from None
    except ValueError:
        pass
    try:
        return documents.toml(f"{key} = {toml_string(value)}")
    except ValueError:
        words = f"{_short(key.strip())!r} is not a key such as run.seed or columns.age.use"
        raise ValueError(f"--set {_short(item)}: {words}") from None


def _has_time(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_time(item) for item in value.values())
    return isinstance(value, datetime.date | datetime.time)


def times_as_text(value: Any) -> Any:
    """Convert dates and times, which the configuration does not have, back to the text as written."""
    if isinstance(value, dict):
        return {key: times_as_text(item) for key, item in value.items()}
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else value


def leaves(tree: Any, above: Key = ()) -> list[Key]:
    """List the keys that a change sets."""
    if isinstance(tree, dict) and tree and len(above) < 3:
        return [leaf for key, item in tree.items() for leaf in leaves(item, (*above, key))]
    return [above]


def merge(document: dict[str, Any], change: dict[str, Any], named: Callable[[], Container[str]]) -> None:
    """Merge `change` into `document`: sections are merged, also named ones ([columns.NAME]); values are replaced.
    named: returns their kinds; called only if it matters, as it loads the keys of all families."""
    for section, keys in change.items():
        if not (isinstance(keys, dict) and isinstance(document.get(section), dict)):
            document[section] = keys
            continue
        for key, value in keys.items():
            old = document[section].get(key)
            if isinstance(value, dict) and isinstance(old, dict) and section in named():
                old.update(value)
            else:
                document[section][key] = value
