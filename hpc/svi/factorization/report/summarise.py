"""All that the report of a factorization shows: computed from the traces and the kept states."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mpibayes.hpc.svi import keys
from mpibayes.hpc.svi.factorization.draws import Kept, Posterior
from mpibayes.hpc.svi.factorization.predictive import Law
from mpibayes.hpc.svi.factorization.turned import Turned
from mpibayes.hpc.svi.report.summarise import course, step_warnings

USERS = 65_536  # looked at at a time


@dataclass(frozen=True)
class ChainSummary:
    """A chain and its last kept state. still_after, gain, guarded: see `hpc.svi.report.summarise.ChainSummary`."""

    name: str
    cycles: int
    seconds: float
    kept: int
    bound: float
    rating_sd: float
    still_after: int | None
    gain: float
    guarded: float
    rmse: float
    heldout: float


@dataclass
class RunSummary:
    """All that a report shows. names: of the items. ratings: training ratings of each, int64 (J,). bias (J,), factors
    (J, d): of the items, as `turned` has them."""

    run: Posterior
    best: Kept
    law: Law
    turned: Turned
    chains: list[ChainSummary]
    names: list[str]
    ratings: np.ndarray
    n_heldout: int
    bias: np.ndarray
    factors: np.ndarray
    warnings: list[str] = field(default_factory=list)

    @property
    def best_chain(self) -> ChainSummary:
        return next(c for c in self.chains if c.name == self.run.chains[self.best.chain].name)

    def shares(self) -> list[tuple[str, float]]:
        """(what, standard deviation) of the parts of a rating: items' and users' biases, factors, the rest."""
        t = self.turned
        biases = [("items' biases", t.item_bias), ("users' biases", t.user_bias)] if t.biased else []
        factors = [(f"factor {k + 1}", float(s)) for k, s in enumerate(t.strength)]
        return [*biases, *factors, ("the rest", float(self.best.q.variance[0] ** 0.5))]


def summarise(run: Posterior) -> RunSummary:
    """Everything the report shows."""
    run.read_traces()
    run.require_draws()
    last = run.last()
    best = max(last, key=lambda kept: kept.bound)
    law, turned = run.law(best), Turned.of(best.q, run.model.biased)
    ratings, n_heldout = np.zeros(run.table.n_columns, np.int64), 0
    for start in range(0, run.n_rows, USERS):
        train, out = run.ratings(np.arange(start, min(start + USERS, run.n_rows)))
        ratings += np.bincount(train.columns, minlength=len(ratings))
        n_heldout += len(out.columns)
    bias, factors = turned.items(law.items.mean)
    chains = [_chain(run, kept) for kept in last]
    found = RunSummary(
        run, best, law, turned, chains, run.table.column_ids(), ratings, n_heldout, bias, factors
    )  # fmt: skip
    found.warnings = step_warnings(found.best_chain, len(chains), run.config.of(keys.Step))
    return found


def _chain(run: Posterior, kept: Kept) -> ChainSummary:
    chain = run.chains[kept.chain]
    t = chain.trace
    still, gain = course(t)
    scores = [t[name][np.isfinite(t[name])] for name in ("rmse", "heldout_lpd")]
    rmse, heldout = (float(score[-1]) if len(score) else np.nan for score in scores)
    parts = run.n_rows + run.table.n_columns
    return ChainSummary(
        chain.name, int(t["cycle"][-1]), float(chain.seconds[-1]), kept.cycle, kept.bound,
        float(kept.q.variance[0] ** 0.5), still, gain, float(t["guarded"].mean() / parts), rmse, heldout,
    )  # fmt: skip


def extremes(values: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Places of the n greatest and the n least values, the most extreme first."""
    order = np.argsort(-values, kind="stable")
    return order[:n], order[::-1][:n]
