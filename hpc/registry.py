"""The families of models by `model.family`: each has a room with the same doors, loaded on demand.

`family.py` describes the doors. Those needed by a configuration, `keys` and `rules`, load no MPI. A likelihood may have
a room within its family's: the *kind* of a model is its family's name, optionally followed by the likelihood's.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mpibayes.errors import ConfigError

if TYPE_CHECKING:
    from mpibayes.hpc.family import AnyForecast, Check, Choice, Exports, Family, Keys, Posterior, Rules
    from mpibayes.hpc.law import Asked, Density
    from mpibayes.hpc.scalar import Scalar

ROOMS = {
    "auto": "crosscat",
    "mixture": "crosscat",
    "crosscat": "crosscat",
    "regression": "regression",
    "ibp": "ibp",
    "svi": "svi",
    "svi factorization": "svi.factorization",
    "svi lda": "svi.lda",
}  # by kind
FAMILIES = tuple(kind for kind in ROOMS if " " not in kind)
DEFAULT = AUTO = "auto"  # `choice_for` decides by the table


def kind_of(model: Mapping[str, Any]) -> str:
    """Kind of a model by its `family`, or the default, and its `likelihood`, if it has one."""
    family = model.get("family", DEFAULT)
    kind = f"{family} {model.get('likelihood')}"
    return kind if kind in ROOMS else family


def choice_for(family: str) -> Choice | None:
    """Module that chooses the family for a table if `family` leaves it open; None if it is a family."""
    choice: Choice | None = _door(AUTO, "choice") if family == AUTO else None
    return choice


def keys_of(kind: str) -> Keys:
    """Sections of a kind's configuration."""
    keys: Keys = _door(kind, "keys")
    return keys


def rules_of(kind: str) -> Rules:
    """Rules between the keys of a kind's configuration, and between keys and table."""
    rules: Rules = _door(kind, "rules")
    return rules


def family_of(kind: str) -> type[Family]:
    """Family of a kind of model: everything needed before a chain starts."""
    family: type[Family] = _door(kind, "family").Family
    return family


def scalars_of(kind: str) -> tuple[Scalar, ...]:
    """Scalars of a kind's trace; light to import."""
    scalars: tuple[Scalar, ...] = _door(kind, "scalars").BY_FAMILY[kind]
    return scalars


def posterior_of(kind: str) -> type[Posterior]:
    """Class of a kind's runs opened for reading."""
    posterior: type[Posterior] = _door(kind, "draws").Posterior
    return posterior


def report_of(kind: str) -> Any:
    """Function make(kept) -> Report of a kind."""
    return _door(kind, "report.report").make


def asked_of(kind: str) -> type[Asked]:
    """Class of a kind's kept draws opened for questions; for kinds without `Posterior.no_questions`."""
    asked: type[Asked] = _door(kind, "asked").Asked
    return asked


def forecast_of(kind: str) -> type[AnyForecast]:
    """Predictions of a kind of model for new rows."""
    forecast: type[AnyForecast] = _door(kind, "predict").Forecast
    return forecast


def exports_of(kind: str) -> Exports:
    """Exports of `mpibayes export` other than the trace."""
    exports: Exports = _door(kind, "exports")
    return exports


def check_of(kind: str) -> Check:
    """Findings of `mpibayes check` for a kind of model."""
    check: Check = _door(kind, "check")
    return check


def _door(kind: str, name: str) -> Any:
    if not isinstance(kind, str) or kind not in ROOMS:
        raise ConfigError(f'model.family = "{kind}": unknown family; expected one of {", ".join(FAMILIES)}')
    return importlib.import_module(f"mpibayes.hpc.{ROOMS[kind]}.{name}")


if TYPE_CHECKING:  # static check of the families' laws against their protocols
    from mpibayes.hpc.crosscat import asked as of_crosscat
    from mpibayes.hpc.crosscat import law as crosscat
    from mpibayes.hpc.crosscat.laws import completion, synthesis
    from mpibayes.hpc.ibp import asked as of_ibp
    from mpibayes.hpc.ibp import law as ibp
    from mpibayes.hpc.law import AskedClusters, AskedJoint, Completion, JointLaw, Law, Synthesis
    from mpibayes.hpc.regression import asked as of_regression
    from mpibayes.hpc.regression import law as regression
    from mpibayes.hpc.svi import law as svi

    def densities(a: crosscat.Density, b: svi.Law) -> list[Density]:
        return [a, b]

    def laws(a: regression.Law, b: ibp.Law, c: crosscat.Law) -> list[Law]:
        return [a, *joint_laws(b, c)]

    def joint_laws(a: ibp.Law, b: crosscat.Law) -> list[JointLaw]:
        return [a, b]

    def asked(a: of_regression.Asked, b: of_ibp.Asked, c: of_crosscat.Asked) -> list[Asked]:
        joint: list[AskedJoint] = [b, c]
        clusters: AskedClusters = c
        return [a, *joint, clusters]

    def drawn(a: completion.Completion, b: synthesis.Synthesis) -> tuple[Completion, Synthesis]:
        return a, b
