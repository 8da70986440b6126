"""The families of models by `model.family`: each has a room with the same doors, loaded when one of them is wanted.

The doors are described in `family.py`. Those that a configuration needs, `keys` and `rules`, load no MPI.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mpibayes.errors import ConfigError

if TYPE_CHECKING:
    from mpibayes.hpc.family import Check, Exports, Family, Forecast, Keys, Posterior, Queries, Rules
    from mpibayes.hpc.scalar import Scalar

ROOMS = {"mixture": "crosscat", "crosscat": "crosscat", "regression": "regression", "ibp": "ibp", "svi": "svi"}
FAMILIES = tuple(ROOMS)
DEFAULT = "mixture"


def keys_of(family: str) -> Keys:
    """The sections of its configuration."""
    return _door(family, "keys")


def rules_of(family: str) -> Rules:
    """What holds between the keys of its configuration, and between them and the table."""
    return _door(family, "rules")


def family_of(family: str) -> type[Family]:
    """What belongs to a kind of model before a chain starts."""
    return _door(family, "family").Family


def scalars_of(family: str) -> tuple[Scalar, ...]:
    """The scalars of its trace; light to import."""
    return _door(family, "scalars").BY_FAMILY[family]


def posterior_of(family: str) -> type[Posterior]:
    """A run of it, opened for reading."""
    return _door(family, "draws").Posterior


def report_of(family: str) -> Any:
    """make(kept) -> Report."""
    return _door(family, "report.report").make


def forecast_of(family: str) -> type[Forecast]:
    """What it predicts of new rows."""
    return _door(family, "predict").Forecast


def exports_of(family: str) -> Exports:
    """What `mpibayes export` writes of it besides its trace."""
    return _door(family, "exports")


def queries_of(family: str) -> Queries:
    """How its kept draws are asked."""
    return _door(family, "query")


def check_of(family: str) -> Check:
    """What `mpibayes check` says of it."""
    return _door(family, "check")


def _door(family: str, name: str) -> Any:
    if family not in ROOMS:
        raise ConfigError(f'model.family = "{family}": there is no such family; expected one of {", ".join(ROOMS)}')
    return importlib.import_module(f"mpibayes.hpc.{ROOMS[family]}.{name}")
