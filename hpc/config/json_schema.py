"""JSON schema (draft 7) of the configuration, written from the sections, for editors that complete and check TOML.

It accepts every document that the program accepts. It covers types, bounds and names of keys; rules between keys, and
between keys and table, are checked by `mpibayes check`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mpibayes.hpc import registry
from mpibayes.hpc.config.section import Section, duration, parsed
from mpibayes.io.files import Guard, read_regular, unguarded, write_text

Schema = dict[str, Any]
DRAFT = "http://json-schema.org/draft-07/schema#"
KEPT = Path(__file__).with_name("schema.json")
NAME = "config.schema.json"  # in a run directory, beside config.resolved.toml
COPIED = {
    "type", "enum", "const", "required", "additionalProperties", "pattern", "propertyNames", "items",
    "minItems", "maxItems", "minProperties", "minLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
}  # fmt: skip


def header(place: str = f"./{NAME}") -> str:
    """Return the comment that leads editors (Taplo, Even Better TOML) to the schema of a TOML file. place: path from
    that file."""
    return f"#:schema {place}\n"


def schema_text() -> str:
    """Return the schema as JSON, from the file beside this one: generating it would take a quarter of a run's start."""
    return KEPT.read_text(encoding="utf-8")


def written() -> str:
    """Generate the schema as JSON from the sections. `python -m mpibayes.hpc.config.json_schema` stores it."""
    return json.dumps(configuration(), indent=1, ensure_ascii=False) + "\n"


def write_schema(path: Path, guard: Guard = unguarded) -> None:
    """Write the schema to a file unless it already has this content. Raises OSError."""
    text = schema_text()
    try:
        there = read_regular(path) == text.encode()
    except OSError:
        there = False
    if not there:
        write_text(path, text, guard=guard)


def configuration() -> Schema:
    """Schema of a whole configuration: one part per room of models, which applies if the file names one of its
    kinds."""
    rooms = {room: [kind for kind, of in registry.ROOMS.items() if of == room] for room in registry.ROOMS.values()}
    each = {room: {"$ref": f"#/definitions/{room}"} for room in rooms}
    return {
        "$schema": DRAFT,
        "title": "configuration of mpibayes",
        "type": "object",
        "properties": {"model": {"properties": {"family": {"enum": list(registry.FAMILIES)}}}},
        "allOf": [
            {"if": {"anyOf": [_is(kind) for kind in kinds]}, "then": each[room]} for room, kinds in rooms.items()
        ],
        # Unconditional: some editors complete only the keys listed here, not those behind an `if`.
        "anyOf": [{}, *each.values()],
        "definitions": {room: _room(kinds[0]) for room, kinds in rooms.items()},
    }


def _is(kind: str) -> Schema:
    """Schema of the documents whose model is of this kind, as determined by `registry.kind_of`."""
    family, _, likelihood = kind.partition(" ")
    given = _model(family=family, **({"likelihood": likelihood} if likelihood else {}))
    if kind == registry.DEFAULT:
        given = {"anyOf": [given, {"not": _model(family=None)}]}
    narrower = [_is(other) for other in registry.ROOMS if other.startswith(f"{kind} ")]
    return {"allOf": [given], "not": {"anyOf": narrower}} if narrower else given


def _model(**values: str | None) -> Schema:
    """Schema of the documents with these values in [model]; None: any value."""
    keys = {key: {} if value is None else {"const": value} for key, value in values.items()}
    return {"required": ["model"], "properties": {"model": {"required": list(values), "properties": keys}}}


def _room(kind: str) -> Schema:
    doors = registry.keys_of(kind)
    sections = {name: _section(of) for name, of in doors.SECTIONS.items()}
    named = {
        name: {"type": "object", "additionalProperties": _section(of)} for name, of in doors.NAMED.items()
    }  # [columns.NAME]
    needed = [name for name, schema in sections.items() if "required" in schema]
    return _object({**sections, **named}, needed)


def _object(properties: dict[str, Schema], required: list[str]) -> Schema:
    needed = {"required": required} if required else {}
    return {"type": "object", "properties": properties, **needed, "additionalProperties": False}


def _section(section: type[Section]) -> Schema:
    whole = section.model_json_schema()
    keys = {}
    for name, info in section.model_fields.items():
        schema = _plain(whole["properties"][name], whole.get("$defs", {}))
        if any(getattr(mark, "func", None) is duration for mark in info.metadata):
            schema = _either([schema, {"type": "string", "pattern": r"^\s*\d"}])
        if _takes_none(section, name):
            schema = _either([schema, {"const": "none"}])
        marks = info.json_schema_extra or {}
        about = f"{info.description}\nExpected: {marks['expected']}" if info.description else None
        default = list(info.default) if isinstance(info.default, tuple) else info.default
        start = {} if info.is_required() or default is None else {"default": default}
        keys[name] = {**({"description": about} if about else {}), **schema, **start}
    retired = {name: {"description": f"Has no effect any more: {why}"} for name, why in section.retired.items()}
    return _object(keys | retired, whole.get("required", []))


def _takes_none(section: type[Section], key: str) -> bool:
    """True if the word "none" resets the value of a key."""
    try:
        return parsed(section, key, "none") is None
    except ValidationError:
        return False


def _plain(schema: Any, definitions: dict[str, Schema]) -> Any:
    """Convert a schema as pydantic writes it (draft 2020-12) to draft 7: references resolved, without null, which TOML
    lacks, and without keywords that do not concern values."""
    if isinstance(schema, list):
        return [_plain(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _plain(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    plain = {key: _plain(value, definitions) for key, value in schema.items() if key in COPIED}
    if "properties" in schema:
        plain["properties"] = {name: _plain(of, definitions) for name, of in schema["properties"].items()}
    if "prefixItems" in schema:
        plain["items"] = _plain(schema["prefixItems"], definitions)
    if "anyOf" in schema:
        options = [option for option in schema["anyOf"] if option != {"type": "null"}]
        plain |= _either([_plain(option, definitions) for option in options])
    return plain


def _either(options: list[Schema]) -> Schema:
    flat = [inner for option in options for inner in (option["anyOf"] if set(option) == {"anyOf"} else [option])]
    return flat[0] if len(flat) == 1 else {"anyOf": flat}


if __name__ == "__main__":
    write_text(KEPT, written())
