"""Notes of an import, kept in the table's record of its source for reports: the columns that were left out, and
questions to the owner, each with the option that answers it. Later rows bring none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mpibayes.io import absent
from mpibayes.io.summary import first_of, first_ones
from mpibayes.text import counted

BY_OWNER = "left out by the schema or --drop"
NONE: Mapping[str, Any] = {"left_out": {}, "asked": []}  # in the record of a part


@dataclass(frozen=True)
class ImportNotes:
    """left_out: by column, the reason. asked: notes and warnings. absences: conditions under which columns have no
    value."""

    left_out: Mapping[str, str] = field(default_factory=dict)
    asked: Sequence[str] = ()
    absences: Sequence[str] = ()

    @classmethod
    def stored(cls, source: Mapping[str, Any]) -> ImportNotes:
        """Read the notes in a table's record of its source; tables of earlier versions have only absences."""
        absences = tuple(absent.notes(absent.Absence.stored(source)))
        return cls(dict(source.get("left_out") or {}), tuple(source.get("asked") or ()), absences)

    def store(self) -> dict[str, Any]:
        return {"left_out": dict(self.left_out), "asked": list(self.asked)}

    def without(self, brief: bool) -> list[str]:
        """Lines on the columns left out, unless a warning says more: one for each reason. brief: with a few names."""
        told = {line.partition(": ")[0] for line in self._warned()}
        reasons: dict[str, list[str]] = {}
        left_out = {name: BY_OWNER if reason == "as given" else reason for name, reason in self.left_out.items()}
        for name, reason in left_out.items():
            if f"column '{name}'" not in told:
                reasons.setdefault(re.split("[:(]", reason)[0].strip(), []).append(name)
        lines = [
            f"column '{names[0]}': {left_out[names[0]]}" if len(names) == 1
            else f"{counted(len(names), 'column')}, {reason}: {first_of(names) if brief else ', '.join(names)}"
            for reason, names in reasons.items()
        ]  # fmt: skip
        return [*lines, *_listed(self._warned(), brief)]

    def questions(self, brief: bool) -> list[str]:
        """All other lines."""
        warned = set(self._warned())
        absences = [f"{line}. The model takes no account of it" for line in self.absences]
        return [*absences, *_listed([line for line in self.asked if line not in warned], brief)]

    def _warned(self) -> list[str]:
        return [line for line in self.asked if line.startswith("column '") and "left out" in line]


def _listed(lines: Sequence[str], brief: bool) -> Iterator[str]:
    return first_ones(lines, most=1) if brief else iter(lines)
