"""Quantities fixed before a chain starts: scales chosen from data, and the mode under them."""

from __future__ import annotations

from dataclasses import dataclass, field

from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.regression.mode.fit import Fit, fit
from mpibayes.hpc.regression.mode.scales import Chosen, choose_scale, joint_t_scale
from mpibayes.hpc.regression.problem import Problem
from mpibayes.hpc.regression.settings import Settings


@dataclass(frozen=True)
class Choice:
    """Mode of a problem whose scales are decided, and a description of the decision."""

    fit: Fit
    words: list[str] = field(default_factory=list)


def choose(comm: Communicator, settings: Settings, problem: Problem, heldout: list, names: list[str]) -> Choice:
    """Decide the scales, give them to the problem, and find the mode. Collective.

    heldout: (number, x, y) of this rank's blocks of held-out rows; as many blocks as shards. names: of the predictors.
    """
    m, words, mode = problem.likelihood, [], None
    blocks = [(i, m.rows(x, y)) for i, x, y in heldout]
    rows, n, prior = problem.rows, problem.n_shards, problem.prior
    if m.has_scale and isinstance(settings.scale, str):
        if settings.scale == "auto":
            scale, mode = joint_t_scale(comm, rows, n, prior, likelihood=m)
            words.append(f"scale of the t distribution: {scale:.4g}, the most probable one")
        else:
            chosen = choose_scale("t", comm, rows, n, blocks, n, prior, likelihood=m)
            scale, mode = chosen.value, chosen.fitted
            words.append(f"scale of the t distribution: {_in_words(chosen)}")
        problem.rescaled(prior, scale)
    if settings.prior_scale == "heldout":
        chosen = choose_scale("prior", comm, problem.rows, n, blocks, n, prior, likelihood=problem.likelihood)
        mode = chosen.fitted
        problem.rescaled(prior.rescaled(chosen.value), problem.likelihood.scale)
        words.append(f"scale of the prior: {_in_words(chosen)}")
    mode = mode or fit(comm, problem.rows, n, problem.prior, likelihood=problem.likelihood, names=names)
    return Choice(mode, words)


def _in_words(chosen: Chosen) -> str:
    tried = f"the best of {len(chosen.tried)} from {chosen.tried[0]:g} to {chosen.tried[-1]:g} on the held-out rows"
    end = ", and the last of them: a better one may lie beyond" if chosen.at_an_end else ""
    return f"{chosen.value:.4g}, {tried}{end}"
