"""Summary behind the report of a factorization: computed from the traces and the kept states."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mpibayes.hpc.svi import keys
from mpibayes.hpc.svi.factorization.draws import Kept, Posterior
from mpibayes.hpc.svi.factorization.law import Law
from mpibayes.hpc.svi.factorization.turned import Turned
from mpibayes.hpc.svi.report import chains
from mpibayes.hpc.svi.report.chains import OfChains, last_and_best, last_score, line, step_warnings

USERS = 65_536  # users processed at a time


@dataclass(frozen=True)
class ChainSummary(chains.ChainSummary):
    """Summary of a chain. rating_sd: of the residual."""

    rating_sd: float
    rmse: float
    heldout: float


@dataclass
class RunSummary(OfChains):
    """Everything that a report shows. names: of the items. ratings: number of training ratings of each, int64 (J,).
    bias (J,), factors (J, d): of the items, as in `turned`."""

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

    def shares(self) -> list[tuple[str, float]]:
        """Return (name, standard deviation) of the parts of a rating: items' and users' biases, factors, the rest."""
        t = self.turned
        biases = [("items' biases", t.item_bias), ("users' biases", t.user_bias)] if t.biased else []
        factors = [(f"factor {k + 1}", float(s)) for k, s in enumerate(t.strength)]
        return [*biases, *factors, ("the rest", float(self.best.q.variance[0] ** 0.5))]


def summarise(run: Posterior) -> RunSummary:
    """Compute everything that the report shows."""
    last, best = last_and_best(run)
    law, turned = run.law(best), Turned.of(best.q, run.model.biased)
    ratings, n_heldout = np.zeros(run.table.n_columns, np.int64), 0
    for start in range(0, run.n_rows, USERS):
        train, out = run.ratings(np.arange(start, min(start + USERS, run.n_rows)))
        ratings += np.bincount(train.columns, minlength=len(ratings))
        n_heldout += len(out.columns)
    bias, factors = turned.items(law.items.mean)
    summaries = [_chain(run, kept) for kept in last]
    summary = RunSummary(
        run, best, law, turned, summaries, run.table.column_ids(), ratings, n_heldout, bias, factors
    )  # fmt: skip
    summary.warnings = step_warnings(summary.best_chain, len(last), run.config.of(keys.Step))
    return summary


def _chain(run: Posterior, kept: Kept) -> ChainSummary:
    chain = run.chains[kept.chain]
    return ChainSummary(
        **line(chain, kept, run.n_rows + run.table.n_columns), rating_sd=float(kept.q.variance[0] ** 0.5),
        rmse=last_score(chain, "rmse"), heldout=last_score(chain, "heldout_lpd"),
    )  # fmt: skip


def extremes(values: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the n greatest and the n least values, the most extreme first."""
    order = np.argsort(-values, kind="stable")
    return order[:n], order[::-1][:n]
