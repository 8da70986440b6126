"""The families of models by `model.family`: each is a room with the same doors, loaded when one of them is wanted."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from mpibayes.errors import ConfigError
from mpibayes.hpc.family import Family
from mpibayes.hpc.scalar import Scalar

ROOMS = {"mixture": "crosscat", "logistic": "regression", "softmax": "regression", "student-t": "regression"}


def family_of(family: str) -> type[Family]:
    """What belongs to a kind of model before a chain starts."""
    return _door(family, "family").Family


def scalars_of(family: str) -> tuple[Scalar, ...]:
    """The scalars of its trace; light to import."""
    return _door(family, "scalars").SCALARS


def kept_of(family: str) -> type[Any]:
    """A run of it, opened for reading: Kept(run directories, burn-in, table)."""
    return _door(family, "draws").Kept


def report_of(family: str) -> Any:
    """make(kept) -> Report."""
    return _door(family, "report.report").make


def forecast_of(family: str) -> type[Any]:
    """What it predicts of new rows (`commands.predict.Forecast`)."""
    return _door(family, "predict").Forecast


def check_of(family: str) -> ModuleType:
    """The module with findings(found, ranks) and memory(found, ranks)."""
    return _door(family, "check")


def _door(family: str, name: str) -> ModuleType:
    if family not in ROOMS:
        raise ConfigError(f'model.family = "{family}": there is no such family; expected one of {", ".join(ROOMS)}')
    return importlib.import_module(f"mpibayes.hpc.{ROOMS[family]}.{name}")
