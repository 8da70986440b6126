"""Summary behind the report of variational inference: computed from the traces and the kept states."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mpibayes.hpc.svi import keys
from mpibayes.hpc.svi.draws import Kept, Posterior
from mpibayes.hpc.svi.exports import assigned
from mpibayes.hpc.svi.law import Students
from mpibayes.hpc.svi.report import chains
from mpibayes.hpc.svi.report.chains import OfChains, last_and_best, last_score, line, step_warnings


@dataclass(frozen=True)
class ComponentLine:
    """A component of the best state, numbered from 1, the heaviest first. rows: number of rows with it as the most
    probable one. sure: its mean probability in these. mean, sd (D,), correlation (D, D): of its density, in the table's
    units; sd is NaN if it has none."""

    number: int
    weight: float
    rows: int
    sure: float
    mean: np.ndarray
    sd: np.ndarray
    correlation: np.ndarray


@dataclass(frozen=True)
class ChainSummary(chains.ChainSummary):
    """Summary of a chain. in_use: number of components."""

    in_use: int
    heldout: float


@dataclass
class RunSummary(OfChains):
    """Everything that a report shows. labels: most probable component of each training row, from 0, int64 (N,)."""

    run: Posterior
    best: Kept
    law: Students
    chains: list[ChainSummary]
    components: list[ComponentLine]
    labels: np.ndarray
    warnings: list[str] = field(default_factory=list)


def summarise(run: Posterior) -> RunSummary:
    """Compute everything that the report shows."""
    last, best = last_and_best(run)
    law = Students.of(best.q)
    labels, probability = assigned(run, run.law(best))
    rows = np.bincount(labels, minlength=len(law.weight))
    sure = np.bincount(labels, probability, minlength=len(law.weight)) / np.maximum(rows, 1)
    components = [_component(run, law, k, int(rows[k]), float(sure[k])) for k in range(len(law.weight))]
    summary = RunSummary(run, best, law, [_chain(run, kept) for kept in last], components, labels)
    summary.warnings = step_warnings(summary.best_chain, len(last), run.config.of(keys.Step))
    return summary


def _component(run: Posterior, law: Students, k: int, rows: int, sure: float) -> ComponentLine:
    nu, cells = law.degrees[k], run.cells
    covariance = law.scale[k] * (nu / (nu - 2.0) if nu > 2.0 else np.nan) * np.outer(cells.scale, cells.scale)
    scale = np.sqrt(np.diag(law.scale[k]))
    mean = law.mean[k] * cells.scale + cells.center
    correlation = law.scale[k] / np.outer(scale, scale)
    return ComponentLine(k + 1, float(law.weight[k]), rows, sure, mean, np.sqrt(np.diag(covariance)), correlation)


def _chain(run: Posterior, kept: Kept) -> ChainSummary:
    chain = run.chains[kept.chain]
    return ChainSummary(
        **line(chain, kept, 3 * run.model.n_components), in_use=int((run.model.weight(kept.q) >= 1.0).sum()),
        heldout=last_score(chain, "heldout_lpd"),
    )  # fmt: skip
