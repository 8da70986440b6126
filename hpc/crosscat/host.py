"""The outcome of a chain in one of its views (docs/math.md 2.16).

A priori every unit of columns is the outcome's host with the same probability, and the outcome is in the view of its
host: a view with n of the U units has it with probability n / U. It does not count among the columns of that view. The
host is drawn anew, among the units of the view, before columns change views; all moves of columns leave it where it is,
so the rows of the outcome's view keep their partition. Between these the outcome changes views by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.hpc.components.grid import draw_on_grid
from mpibayes.hpc.crosscat.moves import round as moves
from mpibayes.hpc.parallel import shards
from mpibayes.hpc.parallel.streams import Purpose, generator

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.chain import Mixture
    from mpibayes.hpc.crosscat.view.sweep import Step
    from mpibayes.hpc.outcome.outcome import Outcome

NOBODY = -1  # host while labels do not depend on the outcome


def view_of(chain: Mixture) -> int:
    """Return the number of the view with the outcome; 0 while labels do not depend on it."""
    return chain.view_of_unit[chain.host] if chain.host != NOBODY else 0


def by_view(chain: Mixture) -> list[Outcome | None]:
    """Return for each view the outcome that its labels depend on, or None."""
    of: list[Outcome | None] = [None] * len(chain.views)
    if chain.host != NOBODY:
        of[view_of(chain)] = chain.outcome
    return of


# --- the cycle --------------------------------------------------------------------------------------------------------


def begin(chain: Mixture, steps: Sequence[Step]) -> None:
    """Add the outcome to the sweeps of its view. Not collective."""
    if chain.host != NOBODY:
        chain.outcome.begin()
        steps[view_of(chain)].outcome = chain.outcome


def follow(chain: Mixture, steps: Sequence[Step]) -> None:
    """Carry the coefficients over from the sweeps to the clusters left by them. Collective."""
    if chain.host == NOBODY:
        return
    step, view = steps[view_of(chain)], chain.views[view_of(chain)]
    owner, size = int(step.collapsed[0]), chain.comm.size
    root = next(rank for rank in range(size) if owner in shards.of_rank(chain.n_shards, size, rank))
    chain.outcome.follow(step.kept, view.n_labels - len(step.kept), root)


def draw(chain: Mixture) -> None:
    """Draw the outcome's view and its coefficients after a cycle whose labels depended on it; start them at its entry.
    Collective."""
    of = chain.outcome
    if chain.host != NOBODY:
        if len(chain.views) > 1 and moves.due(chain.settings.column_moves, chain.cycles, chain.n_cells):
            draw_view(chain)
        of.count(chain.views[view_of(chain)].z, chain.n_rows - chain.n_active)
        of.draw(chain.views[view_of(chain)].z, chain.cycles)
    elif of is not None and chain.cycles == of.entry:
        enter(chain)


def wait(chain: Mixture) -> None:
    """Set the coefficients to their prior mean until labels depend on the outcome. Not collective."""
    if chain.outcome is not None and chain.host == NOBODY:
        chain.outcome.forget(chain.views[0].n_labels)


def rate(chain: Mixture) -> None:
    """Compute the outcome's log likelihood anew after labels changed. Collective."""
    if chain.host != NOBODY:
        chain.outcome.rate(chain.views[view_of(chain)].z)


# --- where it is ------------------------------------------------------------------------------------------------------


def at_first(chain: Mixture) -> None:
    """Let labels depend on the outcome from the start if they are to. Collective."""
    if chain.outcome is not None and not chain.outcome.entry:
        enter(chain)


def enter(chain: Mixture) -> None:
    """Put the outcome into the view that explains it best, and its coefficients near their mode. Collective."""
    from mpibayes.hpc.outcome.branching import scored

    of, best = chain.outcome, 0
    if len(chain.views) > 1:
        stream, log_p = generator(purpose=Purpose.OUTCOME_VIEW, **chain.key), log_prior(chain)
        for v, view in enumerate(chain.views):
            of.beta = np.zeros_like(of.beta)
            of.start(view.z, view.n_labels)
            present = np.zeros(view.n_labels, bool)
            log_p[v] += scored(of, view.z, of.theta, present, stream)[1].sum() + of.law.log_prior(of.theta[:0], of.beta)
        best = int(chain.comm.share(int(log_p.argmax())))
        of.beta = np.zeros_like(of.beta)
    chain.host = chain.view_of_unit.index(best)
    of.start(chain.views[best].z, chain.views[best].n_labels)


def log_prior(chain: Mixture) -> np.ndarray:
    """Return the log prior probability that each view has the outcome, (V,)."""
    n = np.bincount(chain.view_of_unit)
    return np.log(n / n.sum())


def draw_view(chain: Mixture) -> None:
    """Draw the view of the outcome given all labels and global coefficients. Collective.

    Coefficients are proposed in every other view from g of `outcome.branching`. With W = prod_C L(theta) N(theta) /
    g_C(theta) over the clusters of a view, at its present or proposed coefficients, the view is drawn in proportion to
    prior times W: a Gibbs draw of the index where the coefficients of all views but the outcome's have density g.
    """
    from mpibayes.hpc.outcome.branching import scored

    of, here, stream = chain.outcome, view_of(chain), generator(purpose=Purpose.OUTCOME_VIEW, **chain.key)
    log_p, proposed = log_prior(chain), []
    for v, view in enumerate(chain.views):
        present = of.theta if v == here else np.zeros((view.n_labels, of.law.p))
        theta, log_w = scored(of, view.z, present, np.full(view.n_labels, v != here), stream)
        log_p[v] += log_w.sum()
        proposed.append(theta)
    chosen = int(chain.comm.share(draw_on_grid(log_p, stream) if chain.comm.rank == 0 else here))
    if chosen != here:
        chain.host, of.theta = chain.view_of_unit.index(chosen), proposed[chosen]


def draw_host(chain: Mixture) -> None:
    """Draw the outcome's host among the units of its view. Not collective."""
    if chain.host != NOBODY:
        units = np.flatnonzero(np.array(chain.view_of_unit) == view_of(chain))
        chain.host = int(generator(purpose=Purpose.OUTCOME_HOST, **chain.key).choice(units))
