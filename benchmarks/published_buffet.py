"""The published hybrid sampler of the Indian buffet process, for comparison only.

Zhang, M. M. (2016), "Distributed inference in Bayesian nonparametric models using partially collapsed MCMC" (report,
The University of Texas at Austin), section 2.3.2. A cycle begins with a synchronisation: features without rows go, and
every other feature gets loadings and a weight mu ~ Beta(m, N - m + c) that all processors know. In each of the sweeps
that follow every row takes or leaves each of them (2.13); rows of processors that are *hot* also propose features of
their own, Poisson(alpha / N) each time, whose loadings and weights are integrated out (2.14).

    cold: one processor, drawn anew in every cycle, is hot.
    warm: all are at first; after t cycles 0.99^t of them are (at least one), drawn anew in every cycle.
    always hot: all are, in every cycle.

The report reads two ways in places, and the reading here is the one that is nearest to the posterior: m of (2.14)
leaves out the row itself, new features replace those that the row alone has, the tail's features count in the
likelihood of a hot row, and the weights are as at the end of section 2.3.2, not as after (2.12). "Reduced by 0.99"
is read as times 0.99.

What remains is not invariant (docs/exactness.md). All features are instantiated, those on a hot processor alone too,
while the tail is as if none were; rows may give up the last place of a feature; and h hot processors
propose as many features as one would with all rows, but cannot see one another's, so the same one is found many times.
"""

from __future__ import annotations

from unittest import mock

import numpy as np

from mpibayes.hpc.ibp.chain import Buffet
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.kernels.ibp import features as kernels

HOT = {
    "cold": lambda shards, cycle: 1,
    "warm": lambda shards, cycle: max(1, round(shards * 0.99**cycle)),
    "always hot": lambda shards, cycle: shards,
}


class Published(Buffet):
    """A shard is a processor of the report. scheme: of HOT; the others as for Buffet, with settings.opening "one"."""

    def __init__(self, *given, scheme: str):
        super().__init__(*given)
        self.n_hot = HOT[scheme]

    def cycle(self) -> None:
        key = self.key()
        self._drop()
        self._learn(key)
        shuffled = generator(purpose=Purpose.COLLAPSED, **key).permutation(self.n_shards)
        hot = set(shuffled[: self.n_hot(self.n_shards, self.cycles)].tolist())
        nothing, owner = np.zeros(len(self.slots), bool), np.full(len(self.slots), -1)
        at, weights = self._weights(key, nothing)
        with mock.patch.object(kernels, "ALIKE", np.inf):  # the report has no exchanges of features
            features = kernels.Features(self.slots[at], self.loadings[at], weights, self.hyper.noise_sd)
        no_anchors = np.zeros(len(at), np.uint64)
        tails, new, births = {}, {}, np.zeros(self.n_shards, np.int64)
        for shard in self.shards:
            if shard.index in hot:
                tails[shard.index] = self._tail(shard, features, self.slots[:0])
            tail = tails.get(shard.index)
            for sweep in range(self.settings.sweeps_per_cycle):
                if tail is not None and sweep:
                    tail.refresh(shard.rows, features)
                features.sweep(shard.rows, no_anchors, key["seed"], key["cycle"], key["chain"], sweep, tail)
        for shard in self.shards:
            if shard.index in tails:
                new[shard.index] = self._write_back(shard, tails[shard.index], owner, nothing)
                births[shard.index] = new[shard.index].shape[1]
        self.comm.sum_everywhere(births)
        self._number(births, new)
        self.cycles += 1
        self.summarise()
