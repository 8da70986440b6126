"""The verdict on variational inference, which every likelihood shares: whether restarts agree, and that it is an
approximation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpibayes.hpc.posterior.sections import DOUBT, GOOD, Verdict
from mpibayes.hpc.posterior.tables import use_it, warned

APPROXIMATION = (
    "This is not the posterior but the nearest of its kind that was found. How far it is from it is not known; spreads "
    "are too small rather than too large."
)
PICTURES = {"bound.png": "The bound over cycles and seconds"}


def verdict(p: Any, found: Sequence[str]) -> Verdict:
    """On a summary with `chains`, `best_chain`, `run` and `warnings`; found: what it is about, in sentences."""
    sound = DOUBT if p.warnings else GOOD
    bound = f"The bound is {p.best_chain.bound:,.3f} nats."
    steps = [*warned(p.warnings), *use_it(p.run, sound)]
    return Verdict([*found, bound], [_restarts(p)], steps, sound, APPROXIMATION)


def _restarts(p: Any) -> str:
    """Whether the chains end alike."""
    if len(p.chains) == 1:
        return "One chain only: others may end with a higher bound."
    best = p.best_chain
    gaps = [best.bound - c.bound for c in p.chains]
    near = sum(gap < 1.0 for gap in gaps)
    return (
        f"{near} of {len(p.chains)} chains end within one nat of the best, {best.name}; the worst is {max(gaps):,.1f} "
        "nats below. Chains are restarts, of which the best is taken."
    )
