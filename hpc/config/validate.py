"""Validation of a document against the sections of its family; every problem is reported, with the nearest valid key.

Types, ranges and unknown keys are found by pydantic; the words are here. Rules that involve several keys are in the
family's `rules.py`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from mpibayes.hpc import registry
from mpibayes.hpc.config import keys as shared
from mpibayes.hpc.config.places import Key, Report, dotted, shown, table
from mpibayes.hpc.config.section import Section, expected, section_in


def validated(document: dict[str, Any], report: Report) -> tuple[dict[str, Section], dict[str, dict[str, Section]]]:
    """Return sections by name, and named ones by kind and name; invalid ones are reported and left out."""
    check = _Check(_family(document, report), document, report)
    check.strangers(document)
    sections = {
        name: section
        for name, of in check.sections.items()
        if (section := check.section(of, table(document.get(name)), (name,))) is not None
    }
    named = {kind: check.with_names(kind, of, table(document.get(kind))) for kind, of in check.named.items()}
    if check.family is not None:
        registry.rules_of(check.family).rules(sections, named, report)
    return sections, named


def _family(document: dict[str, Any], report: Report) -> str | None:
    """Return the kind of the model; None if no such family exists, which is reported, and the value removed."""
    model = table(document.get("model"))
    given = model.get("family", registry.DEFAULT)
    if given in registry.FAMILIES:
        return registry.kind_of(model)
    hint = ""
    if isinstance(given, str) and (near := _near(given.lower(), registry.FAMILIES)):
        hint = f'; did you mean "{near}"?'
    elif isinstance(given, str):  # may be a value that a family requires
        for name in registry.FAMILIES:
            section = registry.keys_of(name).SECTIONS["model"]
            needed = (key for key, info in section.model_fields.items() if info.is_required())
            for key in (key for key in needed if _fits(section, key, given)):
                hint = f'; did you mean family = "{name}" and {key} = {shown(given)}?'
    report.add(("model", "family"), f"got {shown(given)}, expected {_either(registry.FAMILIES)}{hint}")
    del model["family"]
    return None


def _fits(section: type[Section], key: str, value: Any) -> bool:
    """True if a key of a section accepts this value."""
    try:
        section.model_validate({key: value})
    except ValidationError as error:
        return all(problem["loc"][0] != key for problem in error.errors())
    return True


def _either(names: Iterable[str]) -> str:
    *others, last = (f'"{name}"' for name in names)
    return f"{', '.join(others)} or {last}" if others else last


def _near(name: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    return next(iter(difflib.get_close_matches(name, list(names), 1, cutoff)), None)


class _Check:
    """Validation of a document against the sections of its family.

    With an unknown family (None), which is reported already, the sections are those shared by all families, and those
    of any family that the document has; whether they belong in it is unknown.
    """

    def __init__(self, family: str | None, document: dict[str, Any], report: Report):
        self.family, self.report = family, report
        if family is not None:
            keys = registry.keys_of(family)
            self.sections, self.named = keys.SECTIONS, keys.NAMED
        else:
            families = reversed(registry.FAMILIES)  # the first family with a section declares its keys
            every = {name: of for each in families for name, of in registry.keys_of(each).SECTIONS.items()}
            self.sections = {name: of for name, of in every.items() if name in document} | shared.SECTIONS
            self.named = shared.NAMED

    def strangers(self, document: dict[str, Any]) -> None:
        """Report sections that the family does not have, and values in the place of sections."""
        for name, given in document.items():
            if name in self.sections or name in self.named:
                self._is_section((name,), given)
            elif others := _families_with(name):
                whole = (name,) in self.report.places.lines
                for key in [(name,)] if whole else [(name, key) for key in table(given)]:
                    self._no_use(key, others)
            else:
                what = "section" if isinstance(given, dict) else "key"
                self.report.add((name,), f"unknown {what}; {self._near_section(name, what)}")

    def with_names(self, kind: str, of: type[Section], given: dict[str, Any]) -> dict[str, Section]:
        """Return the valid sections of [columns.NAME] and others, by name."""
        sections = {
            name: self.section(of, keys, (kind, name))
            for name, keys in given.items()
            if self._is_section((kind, name), keys)
        }
        return {name: section for name, section in sections.items() if section is not None}

    def section(self, of: type[Section], given: dict[str, Any], above: Key) -> Section | None:
        """Return the section, or None with its problems reported: one per key, in the words of its declaration."""
        for name in of.retired.keys() & given.keys():
            self.report.note((*above, name), f"has no effect any more: {of.retired[name]}; take it out")
        given = {name: value for name, value in given.items() if name not in of.retired}
        try:
            return of.model_validate(given)
        except ValidationError as error:
            seen = set()
            # unknown keys first: a required key may be present under a misspelt name
            for problem in sorted(error.errors(), key=lambda p: p["type"] != "extra_forbidden"):
                within, holder = _place(of, problem["loc"])
                key = (*above, *within)
                if key in seen:
                    continue
                seen.add(key)
                if within[-1] not in holder.model_fields:
                    self._unknown(key, holder, len(above))
                elif problem["type"] == "missing" and len(problem["loc"]) == len(within):
                    self._missing(key, expected(of, *within))
                else:
                    got: Any = given
                    for step in within:
                        got = got.get(step)
                    self.report.add(key, f"got {shown(got)}, expected {expected(of, *within)}{_elsewhere(key, got)}")
            return None

    # --- what is reported ---------------------------------------------------------------------------------------------

    def _is_section(self, key: Key, given: Any) -> bool:
        if not isinstance(given, dict):
            self.report.add(key, f"expected a section [{dotted(key)}], got {shown(given)}")
        return isinstance(given, dict)

    def _missing(self, key: Key, what: str) -> None:
        if not any(line.endswith(f"; did you mean {dotted(key)}?") for line in self.report.problems):
            self.report.add(key, f"this key is required: {what}")

    def _unknown(self, key: Key, holder: type[Section], depth: int) -> None:
        """Report an unknown key. depth: of its section, or of the key that holds its section."""
        others = _families_with(key[0], key[-1]) if len(key) == depth + 1 else []
        if others:
            self._no_use(key, others)
        elif len(key) == 2:
            self.report.add(key, f"unknown key; {self._near_key(*key)}")
        else:
            *known, last = holder.model_fields
            what = f"a {key[0][:-1]}" if len(key) == 3 else f"a {key[-2]} here"
            has = f"{what} has {', '.join(known)}{' and ' if known else ''}{last}"
            near = _near(key[-1], holder.model_fields)
            self.report.add(key, f"unknown key; {f'did you mean {near}?' if near else has}")

    def _no_use(self, key: Key, others: Sequence[str]) -> None:
        if self.family is not None:
            cure = f"take it out, or set {_one(others, self.family)}"
            self.report.add(key, f"given, but {_setting(self.family)} has no use for it; {cure}")

    def _near_section(self, name: str, what: str) -> str:
        names = [*self.sections, *self.named]
        every = [section for each in registry.FAMILIES for section in _sections(each)]
        if what == "key" and (homes := self._homes(name)):
            return f"did you mean {homes[0]}?"
        if near := _near(name, names) or _near(name, every):
            return f"did you mean [{near}]?"
        return f"sections are {', '.join(names)}"

    def _near_key(self, section: str, name: str) -> str:
        """Nearest valid key: of the same name in another section, similar in its own, or similar elsewhere."""
        keys = self.sections[section].model_fields
        everywhere = {key: f"{home}.{key}" for home, of in self.sections.items() for key in of.model_fields}
        if homes := self._homes(name):
            return f"did you mean {homes[0]}?"
        if near := _near(name, keys):
            return f"did you mean {section}.{near}?"
        if near := _near(name, everywhere, 0.7):
            return f"did you mean {everywhere[near]}?"
        return f"[{section}] has {', '.join(keys)}"

    def _homes(self, key: str) -> list[str]:
        return [f"{name}.{key}" for name, of in self.sections.items() if key in of.model_fields]


def _sections(family: str) -> Mapping[str, type[Section]]:
    """Sections of a family, by name and by kind of named sections."""
    keys = registry.keys_of(family)
    return {**keys.SECTIONS, **keys.NAMED}


def _families_with(section: str, key: str | None = None) -> list[str]:
    """Kinds of models that have this section, or this key of it; "auto", which is one of them, is left out."""
    sections = ((name, _sections(name).get(section)) for name in registry.ROOMS if name != registry.AUTO)
    having = ((name, of) for name, of in sections if of is not None)
    return [name for name, of in having if key is None or key in of.model_fields]


def _setting(kind: str) -> str:
    """Setting that chooses a kind of model, in words."""
    family, _, likelihood = kind.partition(" ")
    return f'model.family = "{family}"' + (f', model.likelihood = "{likelihood}"' if likelihood else "")


def _one(others: Sequence[str], kind: str) -> str:
    """Setting that chooses one of the kinds `others`: a likelihood of the same family, if one will do."""
    family = kind.partition(" ")[0]
    same = [other for other in others if other.partition(" ")[0] == family]
    if same:
        known = (registry.keys_of(other).SECTIONS["model"].model_fields["likelihood"] for other in same)
        return f"model.likelihood = {_either(str(info.default) for info in known)}"
    return f"model.family = {_either(dict.fromkeys(other.partition(' ')[0] for other in others))}"


def _elsewhere(key: Key, value: Any) -> str:
    """Describe the families for which a wrong value would be right, if any."""
    fits = []
    if len(key) == 2:
        known = [name for name in _families_with(*key) if name in registry.FAMILIES]
        fits = [name for name in known if _fits(_sections(name)[key[0]], key[1], value)]
    return f"; it is a value for model.family = {_either(fits)}" if fits else ""


def _place(section: type[Section], loc: Sequence[str | int]) -> tuple[tuple[str, ...], type[Section]]:
    """Locate an error: its key path (two keys where a key holds a section), and the section declaring the last key."""
    first = str(loc[0])
    inner = section_in(section.model_fields[first]) if first in section.model_fields else None
    return ((first, str(loc[1])), inner) if inner is not None and len(loc) > 1 else ((first,), section)
