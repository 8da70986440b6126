"""Wrong versions of the full-covariance component, each a context that replaces the posterior of a block."""

from dataclasses import replace
from unittest import mock

import numpy as np

from mpibayes.hpc.components.block import Block


def _other_posterior(change):
    right = Block.posterior

    def posterior(self, wishart, n, mean, scatter):
        return change(self, right(self, wishart, n, mean, scatter), n, mean)

    return mock.patch.object(Block, "posterior", posterior)


def one_degree_short():
    """nu + n - 1 degrees of freedom."""
    return _other_posterior(lambda self, p, n, mean: replace(p, nu=np.where(n > 0, p.nu - 1.0, p.nu)))


def one_degree_long():
    return _other_posterior(lambda self, p, n, mean: replace(p, nu=p.nu + 1.0))


def without_kappa():
    """The cluster's mean is drawn as if it were that of one row."""
    return _other_posterior(lambda self, p, n, mean: replace(p, kappa=np.ones_like(p.kappa)))


def scatter_about_the_prior():
    """Squares about the prior's location are taken for those about the mean."""

    def change(self, p, n, mean):
        off = np.where(n > 0, mean - self.mean[:, None], 0.0).T
        matrix = p.lower @ p.lower.swapaxes(-1, -2) + n[:, None, None] * (off[:, :, None] * off[:, None, :])
        return replace(p, lower=np.linalg.cholesky(matrix))

    return _other_posterior(change)


def columns_apart():
    """The covariance is left out: a product of normal columns."""

    def change(self, p, n, mean):
        deviation = np.sqrt(np.diagonal(p.lower @ p.lower.swapaxes(-1, -2), axis1=-2, axis2=-1))
        return replace(p, lower=deviation[..., None] * np.eye(self.width))

    return _other_posterior(change)
