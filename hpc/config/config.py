"""A checked configuration, as one frozen object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from mpibayes.errors import ConfigError
from mpibayes.hpc.config.keys import Block, Column, Data, Model, Output, Run
from mpibayes.hpc.config.places import Key, Places
from mpibayes.hpc.config.section import Section
from mpibayes.hpc.registry import kind_of
from mpibayes.text import is_unicode, toml_string

S = TypeVar("S", bound=Section)


@dataclass(frozen=True)
class Config:
    """A checked configuration. sections: by name, the shared ones as the family extends them and its own. named:
    [columns.NAME] and others, by kind and name. text: content of the file. notes: keys that no longer have an
    effect."""

    sections: Mapping[str, Section]
    named: Mapping[str, Mapping[str, Section]]
    places: Places
    text: str = field(default="", repr=False)
    notes: tuple[str, ...] = ()

    def of(self, section: type[S]) -> S:
        """Return a section by its class. Raises KeyError if the family has no such section."""
        for candidate in self.sections.values():
            if isinstance(candidate, section):
                return candidate
        raise KeyError(section.__name__)

    @property
    def data(self) -> Data:
        return self.of(Data)

    @property
    def model(self) -> Model:
        return self.of(Model)

    @property
    def kind(self) -> str:
        """Kind of the model (`registry.kind_of`)."""
        return kind_of(self.model.model_dump(include={"family", "likelihood"}))

    @property
    def run(self) -> Run:
        return self.of(Run)

    @property
    def output(self) -> Output:
        return self.of(Output)

    @property
    def columns(self) -> Mapping[str, Column]:
        return self.named["columns"]

    @property
    def blocks(self) -> Mapping[str, Block]:
        return self.named.get("blocks", {})

    @property
    def path(self) -> Path:
        """Path of the configuration file."""
        return self.places.path

    @property
    def table(self) -> Path:
        return self.resolve(self.data.table)

    @property
    def heldout_fraction(self) -> float | None:
        return self.data.heldout if isinstance(self.data.heldout, float) and not self.data.single else None

    @property
    def heldout_path(self) -> Path | None:
        return self.resolve(self.data.heldout) if isinstance(self.data.heldout, str) else None

    @property
    def burn_in(self) -> int:
        """Cycles left out of summaries. "auto" is decided at the first start."""
        return self.run.cycles // 5 if self.run.burn_in == "auto" else self.run.burn_in

    @property
    def joint(self) -> dict[str, dict[str, Any]]:
        """Blocks of jointly modelled columns, by name: {"columns": names, ...}."""
        return {name: block.model_dump() for name, block in self.blocks.items()}

    @property
    def unused(self) -> frozenset[str]:
        """Columns that the configuration leaves out of the model."""
        taken = {name for section in self.sections.values() for name in section.taken}
        return frozenset(name for name, c in self.columns.items() if not c.use) | taken

    def resolve(self, path: str) -> Path:
        """Return an absolute path; relative paths start at the folder of the configuration file."""
        try:
            place = (self.path.absolute().parent / Path(path).expanduser()).resolve()
        except (ValueError, RuntimeError, OSError) as error:  # a NUL, a user without a home, a name beyond all limits
            raise ConfigError(f"{self.path}: {toml_string(path)} cannot be a path: {error}") from None
        if not is_unicode(str(place)):
            raise ConfigError(f"{place}: the path is not UTF-8, and a run has to write it down; rename it")
        return place

    def where(self, key: Key) -> str:
        """See `Places.where`."""
        return self.places.where(key)

    def changed(self, section: str, **values: Any) -> Config:
        """Return a copy with other values of keys, without validating them again."""
        new = self.sections[section].model_copy(update=values)
        return replace(self, sections={**self.sections, section: new})
