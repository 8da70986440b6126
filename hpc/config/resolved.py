"""A configuration as a plain document: written as config.resolved.toml, and compared with that of an earlier start."""

from __future__ import annotations

import math
from typing import Any

from mpibayes.errors import CheckpointError
from mpibayes.hpc import registry
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.config.json_schema import header
from mpibayes.hpc.config.places import as_toml, bare, shown, table
from mpibayes.hpc.config.section import Section, marked, parsed
from mpibayes.text import visible


def as_dict(config: Config) -> dict[str, Any]:
    """Return every key with its value, as nested dictionaries, with absolute paths; unset and unused keys are left
    out."""
    document: dict[str, Any] = {}
    for name, section in config.sections.items():
        document[name] = section.model_dump(exclude_none=True)
        for key in marked(type(section), "path"):
            if isinstance(path := document[name].get(key), str):
                document[name][key] = str(config.resolve(path))
    for section, key in _without_effect(config):
        document[section].pop(key, None)
    for kind, named in config.named.items():
        document[kind] = {}
        for name, section in named.items():
            given = section.model_dump(exclude_none=True)
            implied = type(section).implied(given)
            document[kind][name] = given | {key: more | given.get(key, {}) for key, more in implied.items()}
    return document


def _without_effect(config: Config) -> dict[tuple[str, str], str]:
    """Return the keys that have no effect given the other keys, each with the setting that causes it."""
    return registry.rules_of(config.kind).without_effect(config.sections)


def continued(config: Config, old: dict[str, Any]) -> Config:
    """Return the configuration of a run that resumes: values that "auto" took at the first start (in `old`) still hold.

    Raises CheckpointError if such a value in `old` is invalid.
    """
    for name, section in config.sections.items():
        for key in marked(type(section), "decided_once"):
            before = table(old.get(name)).get(key, _marks(type(section), key)["formerly"])
            if getattr(section, key) == "auto" and before not in (None, "auto"):
                try:
                    value = parsed(type(section), key, before)
                except ValueError:
                    words = f"{name}.{key} = {shown(before)} in the settings of the run cannot be"
                    raise CheckpointError(f"{words}; restore its config.resolved.toml from a copy") from None
                config = config.changed(name, **{key: value})
    return config


# --- comparing --------------------------------------------------------------------------------------------------------


def difference(
    old: dict[str, Any], new: dict[str, Any], same_table: bool = False, model_alone: bool = False
) -> list[str]:
    """Changes that forbid continuing a run with another configuration: one line for each key that changes the
    statistics.

    `old` and `new` are `as_dict(config)` or the parsed config.resolved.toml. With `same_table` (the fingerprints agree)
    the table's path may differ: a file that was moved is the same data. A new "auto" takes its value at the first
    start. model_alone: compare the model, not how it is sampled. Of two families only the shared keys are compared.
    """
    changes = changed(old, new, same_table, model_alone)
    return [f"{key}: was {or_unset(was)}, is now {or_unset(now)}" for key, was, now in changes]


def changed(
    old: dict[str, Any], new: dict[str, Any], same_table: bool = False, model_alone: bool = False
) -> list[tuple[str, Any, Any]]:
    """Keys that `difference` reports, each with its two values; None: not set."""
    before, after = _flat(old), _flat(new)
    marks = {key: marks for key, (_, marks) in (before | after).items()}
    if before["model.family"] != after["model.family"]:
        marks = {key: marks[key] for key in before.keys() & after.keys()}
    changes = []
    for key, mark in sorted(marks.items()):
        (was, _), (now, _) = before.get(key, UNSET), after.get(key, UNSET)
        may_differ = (
            mark["may_change"]
            or (mark["decided_once"] and now == "auto")
            or (key == "data.table" and same_table)
            or (model_alone and not mark["of_the_model"])
        )
        if was != now and not may_differ:
            changes.append((key, was, now))
    return changes


UNSET = (None, {})


def or_unset(value: Any) -> str:
    return "not set" if value is None else shown(value)


def _flat(document: dict[str, Any]) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return every key, "run.seed", with its value and declared marks; for named sections, only the given keys."""
    keys = registry.keys_of(registry.kind_of(table(document.get("model"))))
    flat = {}
    for name, section in keys.SECTIONS.items():
        for key, info in section.model_fields.items():
            default = None if info.is_required() else info.default
            formerly = _marks(section, key)["formerly"]
            default = default if formerly is None else formerly
            flat[f"{name}.{key}"] = _plain(table(document.get(name)).get(key, default)), _marks(section, key)
    for kind, section in keys.NAMED.items():
        for name, given in table(document.get(kind)).items():
            given = _without_implied(section, table(_plain(given)))
            for key, info in section.model_fields.items():
                if key in given and given[key] != info.default:
                    flat[f"{kind}.{bare(name)}.{key}"] = given[key], _marks(section, key)
    return flat


def _marks(section: type[Section], key: str) -> dict[str, Any]:
    marks = section.model_fields[key].json_schema_extra
    return marks | {"of_the_model": section.of_the_model or marks["of_the_model"]}


def _without_implied(section: type[Section], given: dict[str, Any]) -> dict[str, Any]:
    """Drop the entries that would hold without being given."""
    given = dict(given)
    for key, implied in section.implied(given).items():
        rest = {k: v for k, v in given.pop(key, {}).items() if not _same_grid(v, implied.get(k))}
        given |= {key: rest} if rest else {}
    return given


def _same_grid(a: Any, b: Any) -> bool:
    """True if two grids agree up to rounding: another NumPy may round a default grid differently."""
    return isinstance(a, list) and isinstance(b, list) and len(a) == len(b) and all(map(math.isclose, a, b))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


# --- writing ----------------------------------------------------------------------------------------------------------


def resolved_toml(config: Config, actual: dict[str, Any] | None = None) -> str:
    """Write the whole configuration as TOML, each key with its value and a line of explanation; `load` reads it back.

    `actual` replaces values by key, e.g. {"run.shards": 4, "sampler.opening": "all"}: the values that "auto" took.
    run.burn_in is always written as the number used.
    """
    actual = {"run.burn_in": config.burn_in, **(actual or {})}
    document, unused = as_dict(config), _without_effect(config)
    out = [
        f"# Every key and its value, as mpibayes understood {visible(config.path.name)}"
        + (" and --set." if config.places.set_keys else "."),
        header().rstrip(),
    ]
    for name, section in config.sections.items():
        out += ["", f"[{name}]"]
        for key, info in type(section).model_fields.items():
            value = actual.get(f"{name}.{key}", document[name].get(key))
            # TOML has no null, so a key that is not set is a comment.
            blank = f"not used: {unused[name, key]}" if (name, key) in unused else "not set"
            text = f"# {key} = ({blank})" if value is None else f"{key} = {as_toml(value)}"
            out.append(f"{text}  # {info.description}")
    for kind, named in config.named.items():
        for name, section in named.items():
            out += ["", f"[{kind}.{bare(name)}]"]
            for key, info in type(section).model_fields.items():
                if key in document[kind][name]:
                    out.append(f"{key} = {as_toml(document[kind][name][key])}  # {info.description}")
    return "\n".join(out) + "\n"
