"""Summary behind the report of an Indian buffet process: computed from the traces and the kept draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mpibayes.hpc.ibp.draws import Draw, Posterior
from mpibayes.hpc.ibp.features import ENUMERATED
from mpibayes.hpc.ibp.matching import COMPARED, Representative, match, representative
from mpibayes.hpc.ibp.scalars import SCALARS, common_rows
from mpibayes.hpc.posterior.chains import Chain, evenly
from mpibayes.hpc.posterior.scalars import ENOUGH_DRAWS, ScalarSummary, mixing_warnings, summary_of
from mpibayes.hpc.settled import Judgement, judge
from mpibayes.text import counted

COMBINATIONS = 12  # most combinations of features listed, most rows first
JUDGED = ("log_joint", "n_features", "features_of_row")  # scalars with warnings about mixing
AVERAGED = ("heldout_lpd_averaged", "heldout_cell_lpd_averaged", "heldout_cell_rmse")  # scores of averaged draws


@dataclass(frozen=True)
class FeatureLine:
    """A feature of the representative draw, numbered from 1. rows: number of rows with it. stability: share of the
    draws that have a match. alike: share of rows with both it and its match, among rows with either, averaged over
    these draws. loadings, errors (D,): mean and standard deviation given the draw, in the table's units."""

    number: int
    rows: int
    share: float
    stability: float
    alike: float
    loadings: np.ndarray
    errors: np.ndarray


@dataclass(frozen=True)
class Combination:
    """Numbers of features, and the number of rows of the representative draw with these and no others."""

    features: tuple[int, ...]
    rows: int


@dataclass(frozen=True)
class ChainSummary:
    """Summary of one chain after burn-in; cycles and seconds are of the whole chain. averaged: the available ones of
    AVERAGED."""

    name: str
    cycles: int
    burn_in: int
    seconds: float
    scalars: dict[str, ScalarSummary]
    averaged: dict[str, float]


@dataclass
class RunSummary:
    """Everything that a report shows. counts: share of the draws with each number of features; common: the same for
    features of at least `common_rows` rows. averaged: mean over chains of the available ones of AVERAGED. of_columns:
    mean noise of each column in the table's units, if each has its own."""

    run: Posterior
    chains: list[ChainSummary]
    scalars: dict[str, ScalarSummary]
    counts: dict[int, float]
    common: dict[int, float]
    settled: Judgement
    n_kept: int
    averaged: dict[str, float]
    representative: Representative | None = None
    features: list[FeatureLine] = field(default_factory=list)
    combinations: list[Combination] = field(default_factory=list)
    of_columns: np.ndarray | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def common_rows(self) -> int:
        """Least number of rows of a common feature; 1 on a table so small that every feature is common."""
        return common_rows(self.run.n_rows)


def summarise(run: Posterior) -> RunSummary:
    """Compute everything that the report shows."""
    run.read_traces()
    run.require_draws()
    later = [c.later() for c in run.chains]
    scalars = {s.name: summary_of([t[s.name] for t in later]) for s in SCALARS if s.label}
    scalars = {name: s for name, s in scalars.items() if s.n_draws}
    counts, common = (_shares([t[name] for t in later]) for name in ("n_features", "common_features"))
    chains = [_chain(c) for c in run.chains]
    averaged = {name: [c.averaged[name] for c in chains if name in c.averaged] for name in AVERAGED}
    averaged = {name: float(np.mean(each)) for name, each in averaged.items() if each}
    cycle = min(int(c.trace["cycle"][-1]) for c in run.chains)
    burn_in = max(c.config.burn_in for c in run.chains)  # the run's own choice
    settled = judge([c.trace for c in run.chains], SCALARS, run.n_rows, cycle, min(burn_in, cycle // 2))
    kept = run.kept()
    summary = RunSummary(run, chains, scalars, counts, common, settled, len(kept), averaged)
    if run.noise == "column" and run.likelihood:
        summary.of_columns = np.concatenate([t["column_noise_sd"] for t in later]).mean(axis=0)
    if kept:
        _features(summary, kept)
    _warn(summary)
    return summary


def _shares(draws: Sequence[np.ndarray]) -> dict[int, float]:
    """Share of the draws with each integer."""
    values, times = np.unique(np.concatenate(draws), return_counts=True)
    return dict(zip(values.astype(int).tolist(), (times / times.sum()).tolist()))


def _chain(chain: Chain) -> ChainSummary:
    later = chain.later()
    summaries = {s.name: summary_of([later[s.name]]) for s in SCALARS if s.label}
    averaged = {name: later[name][np.isfinite(later[name])] for name in AVERAGED}
    return ChainSummary(
        chain.name, int(chain.trace["cycle"][-1]), chain.burn_in, float(chain.seconds[-1]),
        {name: s for name, s in summaries.items() if s.n_draws},
        {name: float(x[-1]) for name, x in averaged.items() if len(x)},
    )  # fmt: skip


def _features(p: RunSummary, kept: Sequence[tuple[int, int]]) -> None:
    run = p.run
    p.representative = representative(run, kept)
    draw = p.representative.draw
    k, matched = len(draw), np.zeros(len(draw))
    alike, used = np.zeros(k), evenly(kept, COMPARED)
    for _, other in run.states(used):
        m = match(draw, other)
        matched += m.place >= 0
        alike += np.where(m.place >= 0, m.alike, 0.0)
    loadings, errors = np.zeros((k, len(run.cells))), np.zeros((k, len(run.cells)))
    if run.likelihood:
        law = draw.new_row()
        loadings = law.means * run.cells.scale
        errors = np.sqrt(np.diag(law.spread))[:, None] * law.noise_sd * run.cells.scale
    p.features = [
        FeatureLine(
            i + 1, int(draw.owned[i]), draw.owned[i] / run.n_rows, matched[i] / len(used),
            float(alike[i] / matched[i]) if matched[i] else np.nan, loadings[i], errors[i],
        )
        for i in range(k)
    ]  # fmt: skip
    p.combinations = combinations(draw)


def combinations(draw: Draw) -> list[Combination]:
    """The most frequent combinations of features, the empty one included."""
    rows = draw.rows()
    bits, times = np.unique(np.packbits(rows, axis=1), axis=0, return_counts=True)
    first = np.argsort(-times, kind="stable")[:COMBINATIONS]
    has = np.unpackbits(bits[first], axis=1, count=len(draw)) if len(draw) else np.zeros((len(first), 0), np.uint8)
    return [Combination(tuple((np.flatnonzero(h) + 1).tolist()), int(n)) for h, n in zip(has, times[first])]


def _warn(p: RunSummary) -> None:
    labels = {s.name: s.label for s in SCALARS}
    judged = {labels[name]: p.scalars[name] for name in JUDGED if name in p.scalars}
    p.warnings += mixing_warnings(judged)
    if p.n_kept < ENOUGH_DRAWS:
        p.warnings.append(
            f"{counted(p.n_kept, 'draw')} of the features kept after burn-in: raise run.cycles, or lower output.labels"
        )
    if "heldout_lpd_averaged" in p.averaged and max(p.counts) > ENUMERATED:
        p.warnings.append(
            f"held-out scores of draws with more than {ENUMERATED} features are sums near each row's best combination, "
            "somewhat too low for rows that several combinations explain"
        )
