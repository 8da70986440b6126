"""Finite Dirichlet mixtures of Gaussians: each weight has alpha / K (docs/math.md 8.5).

As K grows they become a Dirichlet process mixture with concentration alpha (Ishwaran & Zarepour 2002): surplus
components stay empty.
"""

from __future__ import annotations

from dataclasses import replace

from mpibayes.hpc.svi.gaussian import Prior


def of(prior: Prior, n_components: int) -> Prior:
    """Return the prior with alpha shared by all components."""
    return replace(prior, alpha=prior.alpha / n_components)
