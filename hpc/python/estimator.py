"""Base of the estimators for scikit-learn (`mpibayes.sklearn`): their parameters as a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state


class InProcessEstimator(BaseEstimator):  # type: ignore[misc, unused-ignore]
    """Common base of the estimators: a run of this process, configured by their parameters."""

    def __init__(
        self,
        cycles: int,
        chains: int,
        draws: int,
        config: Mapping[str, Any] | None,
        directory: Any,
        random_state: Any,
    ) -> None:
        self.cycles = cycles
        self.chains = chains
        self.draws = draws
        self.config = config
        self.directory = directory
        self.random_state = random_state

    def _settings(self, **sections: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Configuration by section."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        run = {"seed": seed, "cycles": self.cycles, "chains": self.chains, "until": "cycles"}
        settings: dict[str, dict[str, Any]] = {"run": run}
        for name, keys in sections.items():
            settings.setdefault(name.replace("__", "."), {}).update(keys)
        for dotted, value in (self.config or {}).items():
            section, _, key = dotted.rpartition(".")
            settings.setdefault(section, {})[key] = value
        return settings

    def _columns(self, x: np.ndarray) -> list[str]:
        return [f"x{i}" for i in range(x.shape[1])]
