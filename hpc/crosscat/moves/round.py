"""Split and merge moves at the sync, on rows that live on many ranks (docs/split_merge.md derives them).

Weights and parameters are integrated out: the state is the partition alone, and the moves leave its posterior given the
hyperparameters invariant.
"""

from __future__ import annotations

from mpibayes.hpc.crosscat.moves.alike import Informed
from mpibayes.hpc.crosscat.moves.launched import Guided


class Round(Guided, Informed):
    """One round of moves on the labels of a view. Collective; arguments as of Book."""

    def run(self) -> None:
        self.guided()
        self.informed()
