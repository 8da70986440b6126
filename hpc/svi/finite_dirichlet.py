"""Finite Dirichlet mixtures: of Gaussians whose weights have alpha / K each (docs/math.md 8.5).

As K grows they become a Dirichlet process mixture with concentration alpha (Ishwaran & Zarepour 2002): components that
few rows want are left empty.
"""

from __future__ import annotations

from dataclasses import replace

from mpibayes.hpc.svi.gaussian import Prior


def of(prior: Prior, n_components: int) -> Prior:
    """The prior with alpha for all components together."""
    return replace(prior, alpha=prior.alpha / n_components)
