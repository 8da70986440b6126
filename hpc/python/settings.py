"""Keywords of `fit` and `submit` as keys of the configuration."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mpibayes.errors import ConfigError
from mpibayes.hpc.config.places import as_toml, dotted
from mpibayes.io.documents import TooMuch, check_values

# keyword: key of the configuration
KEYS = {
    "family": "model.family",
    "likelihood": "model.likelihood",
    "response": "regression.response",
    "predictors": "regression.predictors",
    "cycles": "run.cycles",
    "chains": "run.chains",
    "seed": "run.seed",
    "burn_in": "run.burn_in",
    "heldout": "data.heldout",
}


def overrides(keywords: Mapping[str, Any], until_settled: bool | None, config: Mapping[str, Any] | None) -> list[str]:
    """Settings in the form of `--set`, "run.cycles=100". keywords: those of KEYS, None if not given.

    Raises ConfigError if a key is given twice, or a value exceeds the limits of a document.
    """
    given = {KEYS[name]: value for name, value in keywords.items() if value is not None}
    if keywords.get("heldout") is not None:
        given[KEYS["heldout"]] = _heldout(keywords["heldout"])
    settings = _settings(given, config or {})
    if until_settled is not None:
        settings.setdefault("run.until", "settled" if until_settled else "cycles")
    return [f"{key}={as_toml(value)}" for key, value in settings.items()]


def _settings(given: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Collect values by dotted key."""
    settings: dict[str, Any] = {}
    for key, value in [*given.items(), *_flat(config)]:
        if key in settings:
            raise ConfigError(f"{key}: given twice, as a keyword and in config")
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        elif hasattr(value, "tolist"):  # of NumPy
            value = value.tolist()
        settings[key] = "none" if value is None else value
    try:
        check_values(settings)
    except TooMuch as error:
        raise ConfigError(f"config: {error}") from None
    return settings


def _flat(config: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) for a configuration whose keys are dotted, or nested as in a TOML file."""
    for key, value in config.items():
        if isinstance(value, Mapping) and "." not in key and len(above) < (2 if above[:1] == ("columns",) else 1):
            yield from _flat(value, (*above, key))
        else:
            yield (dotted((*above, key)) if above else key), value


def _heldout(heldout: Any) -> Any:
    """Value of data.heldout: "none" for no rows, a path, or a fraction."""
    if isinstance(heldout, str | os.PathLike):
        text = os.fspath(heldout)
        return text if text == "none" else str(Path(text).expanduser().absolute())
    return float(heldout) if heldout else "none"
