"""Every key of the configuration as text, as `mpibayes schema` lists them."""

from __future__ import annotations

from collections.abc import Iterator

from mpibayes.hpc.config.places import as_toml
from mpibayes.hpc.registry import ROOMS, keys_of


def keys_text() -> str:
    """Every key as lines of TOML: for each room of models its sections, each key with its default and expected
    value."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for room in dict.fromkeys(ROOMS.values()):
        kinds = [kind for kind in ROOMS if ROOMS[kind] == room]
        yield f"# {', '.join(kinds)}"
        doors = keys_of(kinds[0])
        for head, section in [*doors.SECTIONS.items(), *((f"{kind}.NAME", of) for kind, of in doors.NAMED.items())]:
            yield f"\n[{head}]"
            for key, info in section.model_fields.items():
                unset = "required" if info.is_required() else "not set"
                given = not info.is_required() and info.default is not None
                yield f"{key} = {as_toml(info.default)}" if given else f"# {key} = ({unset})"
                yield f"    # {info.description}"
                yield f"    # expected: {info.json_schema_extra['expected']}"
        yield ""
