"""Bodies of columns, which move between views with their links, and the prior of their views."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.hpc.crosscat.view.pitman_yor import log_eppf
from mpibayes.hpc.links.forest import log_prior_of
from mpibayes.io.rows import Column

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.chain import Mixture


class Bodies:
    """The chain's present bodies. names: columns of each body; where (U,): view of each body; host: body that stays in
    the outcome's view, or -1."""

    def __init__(self, chain: Mixture):
        self.names, self.process = chain.bodies, chain.process
        self.where = np.array(chain.view_of(self.names))
        of_host = set(chain.units[chain.host]) if chain.host >= 0 else set()
        self.host = next((u for u, names in enumerate(self.names) if of_host.intersection(names)), -1)
        self._n_columns = self._counted(chain.units)
        self._n_linkable = self._n_links = None
        if chain.settings.learns_links:
            self._n_linkable = self._counted([column.name] for column in self._linkable(chain))
            self._n_links = self._counted([child] for child in chain.linking.coding.parent_of)

    @staticmethod
    def _linkable(chain: Mixture) -> list[Column]:
        coding = chain.linking.coding
        return [*coding.levelled, *(coding.plain[c] for c in coding.leaning)]

    def _counted(self, groups: Iterable[Sequence[str]]) -> np.ndarray:
        """Return the number of the given groups of columns in each body, (U,) int64."""
        number = {name: u for u, names in enumerate(self.names) for name in names}
        return np.bincount([number[names[0]] for names in groups], minlength=len(self.names))

    def log_prior(self, where: np.ndarray) -> float:
        """Return the log prior of an assignment of bodies to views (in any numbering), and of the links in each view if
        links are learned."""
        view = np.unique(where, return_inverse=True)[1]
        log_p = float(log_eppf(_sums(self._n_columns, view), *self.process))
        if self._n_links is None:
            return log_p
        each = zip(_sums(self._n_linkable, view).tolist(), _sums(self._n_links, view).tolist())
        return log_p + sum(log_prior_of(d, e) for d, e in each)


def _sums(n: np.ndarray, view: np.ndarray) -> np.ndarray:
    """Sum the integers n (U,) over the bodies of each view, (V,) int64."""
    return np.bincount(view, n).astype(np.int64)
