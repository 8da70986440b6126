"""Reading a configuration: a TOML file and `--set key=value`, checked whole.

All mistakes are reported together, each with its file, line, key, what was expected and the nearest valid key. Paths
are relative to the configuration file. Which sections there are depends on `model.family`.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mpibayes.errors import ConfigError
from mpibayes.hpc import registry
from mpibayes.hpc.config import keys as shared
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.config.places import (
    Key,
    Places,
    Report,
    dotted,
    leaves,
    line_numbers,
    merge,
    parse_override,
    shown,
    table,
    times_as_text,
)
from mpibayes.hpc.config.section import Section, expected, marked, section_in
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
        merge(document, change, {kind for name in registry.FAMILIES for kind in registry.keys_of(name).NAMED})
    places = Places(path, line_numbers(text), frozenset(set_keys))
    sections, named = _checked(times_as_text(document), Report(places, problems))
    if problems:
        many = f"{len(problems)} problems" if len(problems) > 1 else "one problem"
        raise ConfigError(f"{path}: {many} in the configuration", problems)
    config = Config(sections, named, places, text)
    for section in sections.values():
        for value in (getattr(section, key) for key in marked(type(section), "path")):
            if isinstance(value, str):
                config.resolve(value)  # a text that cannot be a path is reported now
    return config


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
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, line = str(error), 1
        found = re.search(r"\s*\(at line (\d+), column (\d+)\)", message)
        if found:
            line = int(found[1])
            message = message.replace(found[0], f" (column {found[2]})")
        elif "at end of document" in message:
            line = text.count("\n") + 1
        raise ConfigError(f"{path}:{line}: not valid TOML: {message}") from None


# --- checking ---------------------------------------------------------------------------------------------------------


def _checked(document: dict[str, Any], report: Report) -> tuple[dict[str, Section], dict[str, dict[str, Section]]]:
    """The sections by name, and the named ones by kind and name; those that are not valid are reported and missing."""
    check = _Check(_family(document, report), report)
    check.find_strangers(document)
    sections = _valid(
        {
            name: check.section(of, table(document.get(name)), (name,))
            for name, of in check.sections.items()
            if check.family is not None or name in {*document, *shared.SECTIONS}
        }
    )
    named = {
        kind: _valid(
            {
                name: check.section(of, given, (kind, name))
                for name, given in table(document.get(kind)).items()
                if check.is_section((kind, name), given)
            }
        )
        for kind, of in check.named.items()
    }
    if check.family is not None:
        registry.rules_of(check.family).rules(sections, named, report)
    return sections, named


def _valid(sections: Mapping[str, Section | None]) -> dict[str, Section]:
    return {name: section for name, section in sections.items() if section is not None}


def _family(document: dict[str, Any], report: Report) -> str | None:
    """The name of the family; None where there is no such family, which is reported, and taken out."""
    model = table(document.get("model"))
    given = model.get("family", registry.DEFAULT)
    if given in registry.FAMILIES:
        return given
    hint = ""
    if isinstance(given, str):  # which may be a kind of a family
        for name in registry.FAMILIES:
            section = registry.keys_of(name).SECTIONS["model"]
            for key in (key for key in section.model_fields if _fits(section, key, given)):
                hint = f'; did you mean family = "{name}" and {key} = {shown(given)}?'
    report.add(("model", "family"), f"got {shown(given)}, expected {_either(registry.FAMILIES)}{hint}")
    del model["family"]
    return None


def _fits(section: type[Section], key: str, value: Any) -> bool:
    """Whether a key of a section takes this value."""
    try:
        section.model_validate({key: value})
    except ValidationError as error:
        return all(problem["loc"][0] != key for problem in error.errors())
    return True


def _either(names: Iterable[str]) -> str:
    *some, last = (f'"{name}"' for name in names)
    return f"{', '.join(some)} or {last}" if some else last


class _Check:
    """Checks a document, section by section, against what the family has.

    Without a family (None), whose name is reported already, only what is wrong with any family is.
    """

    def __init__(self, family: str | None, report: Report):
        self.family, self.report = family, report
        if family is not None:
            keys = registry.keys_of(family)
            self.sections, self.named = dict(keys.SECTIONS), dict(keys.NAMED)
        else:
            self.sections, self.named = {}, {}
            for keys in map(registry.keys_of, registry.FAMILIES):
                self.sections |= keys.SECTIONS
                self.named |= keys.NAMED
            self.sections |= shared.SECTIONS
            self.named |= shared.NAMED

    def find_strangers(self, document: dict[str, Any]) -> None:
        """Reports sections that the family does not have, and what is no section."""
        for name, given in document.items():
            if name in self.sections or name in self.named:
                self.is_section((name,), given)
            elif self._others(name):
                for key in table(given):
                    self._no_use((name, key), self._others(name))
            else:
                what = "section" if isinstance(given, dict) else "key"
                self.report.add((name,), f"unknown {what}; {self._near_section(name)}")

    def is_section(self, key: Key, given: Any) -> bool:
        """Whether it is a table; reported where it is none."""
        if not isinstance(given, dict):
            self.report.add(key, f"expected a section [{dotted(key)}], got {shown(given)}")
        return isinstance(given, dict)

    def section(self, of: type[Section], given: dict[str, Any], above: Key) -> Section | None:
        """The section, or None with its problems reported: one for each key, in the words of its declaration."""
        try:
            return of.model_validate(given)
        except ValidationError as error:
            seen = set()
            # misspelt names first: a key that is required may be there under one
            for problem in sorted(error.errors(), key=lambda p: p["type"] != "extra_forbidden"):
                within, holder = _place(of, problem["loc"])
                key = (*above, *within)
                if key in seen:
                    continue
                seen.add(key)
                if within[-1] not in holder.model_fields:
                    self._unknown(key, holder)
                elif problem["type"] == "missing" and len(problem["loc"]) == len(within):
                    self._missing(key, expected(of, *within))
                else:
                    got: Any = given
                    for step in within:
                        got = got.get(step)
                    hint = "" if len(above) > 1 else self._fits_elsewhere(key, got)
                    self.report.add(key, f"got {shown(got)}, expected {expected(of, *within)}{hint}")
            return None

    def _missing(self, key: Key, what: str) -> None:
        if not any(line.endswith(f"; did you mean {dotted(key)}?") for line in self.report.problems):
            self.report.add(key, f"this key is required: {what}")

    def _unknown(self, key: Key, holder: type[Section]) -> None:
        section, name = key[0], key[-1]
        others = self._others(section, name) if len(key) == 2 or (section in self.named and len(key) == 3) else []
        if others:
            self._no_use(key, others)
        elif section in self.named:
            known = list(holder.model_fields)
            near = difflib.get_close_matches(name, known, 1)
            what = f"a {section[:-1]}" if len(key) == 3 else f"a {key[-2]} here"
            has = f"{what} has {', '.join(known[:-1])} and {known[-1]}" if known[1:] else f"{what} has {known[0]} alone"
            self.report.add(key, f"unknown key; {f'did you mean {near[0]}?' if near else has}")
        else:
            self.report.add(key, f"unknown key; {self._near_key(section, name)}")

    def _others(self, section: str, key: str | None = None) -> list[str]:
        """The families that have this section, or this key of it."""
        found = []
        for name in registry.FAMILIES:
            keys = registry.keys_of(name)
            of = keys.SECTIONS.get(section) or keys.NAMED.get(section)
            if of is not None and (key is None or key in of.model_fields):
                found.append(name)
        return found

    def _no_use(self, key: Key, others: Sequence[str]) -> None:
        if self.family is not None:
            cure = f"take it out, or set model.family = {_either(others)}"
            self.report.add(key, f'given, but model.family = "{self.family}" has no use for it; {cure}')

    def _fits_elsewhere(self, key: Key, value: Any) -> str:
        """The families that a value is for, where it is one for others."""
        fits = [
            name for name in self._others(*key[:2]) if _fits(registry.keys_of(name).SECTIONS[key[0]], key[1], value)
        ]
        return f"; it is a value for model.family = {_either(fits)}" if fits else ""

    def _near_section(self, name: str) -> str:
        every = [*self.sections, *self.named]
        near = difflib.get_close_matches(name, every, 1, 0.6)
        homes = self._homes(name)
        if near:
            return f"did you mean [{near[0]}]?"
        return f"did you mean {homes[0]}?" if homes else f"sections are {', '.join(every)}"

    def _near_key(self, section: str, name: str) -> str:
        """The nearest valid key: of the same name in another section, like it in its own, or like it elsewhere."""
        own = self.sections[section].model_fields
        near = difflib.get_close_matches(name, own, 1, 0.6)
        if homes := self._homes(name):
            return f"did you mean {homes[0]}?"
        if near:
            return f"did you mean {section}.{near[0]}?"
        everywhere = {key: f"{home}.{key}" for home, of in self.sections.items() for key in of.model_fields}
        near = difflib.get_close_matches(name, everywhere, 1, 0.7)
        return f"did you mean {everywhere[near[0]]}?" if near else f"[{section}] has {', '.join(own)}"

    def _homes(self, key: str) -> list[str]:
        return [f"{name}.{key}" for name, of in self.sections.items() if key in of.model_fields]


def _place(section: type[Section], loc: Sequence[str | int]) -> tuple[tuple[str, ...], type[Section]]:
    """Of a problem: the key, or the two where a key holds a section; and the section that the last of them is in."""
    first = str(loc[0])
    inner = section_in(section.model_fields[first]) if first in section.model_fields else None
    return ((first, str(loc[1])), inner) if inner is not None and len(loc) > 1 else ((first,), section)
