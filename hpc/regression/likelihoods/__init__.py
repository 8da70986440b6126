"""The likelihoods of a regression: one class each, with everything specific to it."""

from __future__ import annotations

from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.regression.likelihoods.likelihood import Likelihood
from mpibayes.hpc.regression.likelihoods.logistic import Logistic
from mpibayes.hpc.regression.likelihoods.softmax import Softmax
from mpibayes.hpc.regression.likelihoods.student_t import StudentT

LIKELIHOODS: dict[str, type[Likelihood]] = {kind.name: kind for kind in (Logistic, Softmax, StudentT)}


def likelihood_of(comm: Communicator, rows) -> Likelihood:
    """Return the likelihood of root's first shard, on every rank, as a rank may hold no rows. Collective.

    rows: (shard index, kernels' Rows) of this rank's shards.
    """
    mine = None
    if comm.rank == 0:
        first = rows[0][1]
        (kind,) = (kind for kind in LIKELIHOODS.values() if kind.code == first.likelihood)
        mine = kind(first.n_predictors, first.n_classes, first.nu, first.scale)
    return comm.share(mine)
