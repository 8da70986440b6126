"""What the report of a mixture shows, computed from the traces, the kept draws and passes over the table.

Clusters are those of the representative partition, never of the last draw. Kept draws are read one at a time and the
table in slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mpibayes.hpc.crosscat.draws import Posterior
from mpibayes.hpc.crosscat.partitions import contingency, jaccard, ordered_sizes, posterior_of_count
from mpibayes.hpc.crosscat.report import agreement, profiles, telling
from mpibayes.hpc.crosscat.report.agreement import Agreement, ChainSummary
from mpibayes.hpc.crosscat.report.profiles import BlockProfile, ColumnProfile, Trait
from mpibayes.hpc.crosscat.representative import COMPARED, SAMPLED, Representative, representative
from mpibayes.hpc.crosscat.scalars import SCALARS
from mpibayes.hpc.posterior.chains import evenly
from mpibayes.hpc.posterior.scalars import ENOUGH_DRAWS, ScalarSummary, mixing_warnings, summary_of
from mpibayes.hpc.scalar import named, shown
from mpibayes.hpc.settled import MOST_R_HAT, Judgement, judge
from mpibayes.io.rows import Rows
from mpibayes.text import counted

LATE = 0.05  # share of the cycles after burn-in in which a log joint may still rise without a warning
LISTED = 30  # clusters in the table, at most
LEAST_SHARE = 0.001  # smaller clusters are gathered in one line
SECOND_CHAIN = "Only a second chain from another start can show that: run.chains = 2."


@dataclass
class ClusterLine:
    """What the report says of one cluster."""

    number: int
    rows: int
    share: float
    stability: float
    traits: list[Trait] = field(default_factory=list)

    @property
    def name(self) -> list[str]:
        """Its two most telling traits."""
        return [t.short for t in self.traits[:2]]


@dataclass
class RunSummary:
    """All that a report shows."""

    run: Posterior
    summaries: list[ChainSummary]
    scalars: dict[str, ScalarSummary]
    n_clusters: dict[int, float]
    heldout_averaged: float | None
    n_kept: int
    settled: Judgement = field(default_factory=lambda: Judgement(0))
    agreement: Agreement | None = None
    representative: Representative | None = None
    clusters: list[ClusterLine] = field(default_factory=list)
    profiles: list[ColumnProfile] = field(default_factory=list)
    columns: list[ColumnProfile] = field(default_factory=list)  # that the picture of the profiles shows, in order
    blocks: list[BlockProfile] = field(default_factory=list)
    ordered: np.ndarray | None = None  # (D, most) sizes of the draws' clusters
    warnings: list[str] = field(default_factory=list)


def summarise(run: Posterior) -> RunSummary:
    """Everything the report shows, from the traces, the kept draws and one pass over the table."""
    run.read_traces()
    run.require_draws()
    later = [c.later() for c in run.chains]
    scalars = {s.name: summary_of([t[s.name] for t in later]) for s in shown(SCALARS) if s.label}
    kept = run.kept()
    summaries = [agreement.summarise_chain(c) for c in run.chains]
    averaged = [c.heldout_averaged for c in summaries if np.isfinite(c.heldout_averaged)]
    posterior = RunSummary(
        run, summaries, {k: s for k, s in scalars.items() if s.n_draws},
        posterior_of_count(np.concatenate([t["n_clusters"] for t in later])),
        float(np.mean(averaged)) if averaged else None, len(kept), _judged(run),
    )  # fmt: skip
    posterior.warnings += mixing_warnings(
        {named(SCALARS)[name].label: s for name, s in posterior.scalars.items()}, len(run.chains), MOST_R_HAT
    )
    climbing = [c for c in summaries if c.climbed]
    late = [c for c in summaries if c.reached - c.burn_in > LATE * (c.cycles - c.burn_in) and not c.climbed]
    if climbing:
        posterior.warnings.append(
            f"{', '.join(c.name for c in climbing)}: the log joint still climbs, {agreement.climbed(climbing)}: too "
            "short to be summarised; raise run.cycles"
        )
    if late:
        posterior.warnings.append(
            f"{', '.join(c.name for c in late)}: the log joint went on rising after burn-in, up to cycle "
            f"{max(c.reached for c in late):,}: leave out more (--burn-in), or raise run.cycles"
        )
    tried, accepted = agreement.moves_in(summaries, "kept")
    if len(summaries) == 1 and tried and not accepted:
        posterior.warnings.append(
            f"no split or merge was accepted after burn-in ({tried:,} tried): the clustering is clear-cut, "
            f"or the chain is stuck. {SECOND_CHAIN}"
        )
    if not kept:
        posterior.warnings.append(
            "no draw of the labels was kept after burn-in, so clusters cannot be shown: give a smaller --burn-in, "
            "let the run go on, or lower output.labels"
        )
        return posterior
    if len(kept) < ENOUGH_DRAWS:
        posterior.warnings.append(
            f"only {counted(len(kept), 'draw')} of the labels kept after burn-in: clusters, sizes and stability below "
            f"are rough; keep at least {ENOUGH_DRAWS} (run.cycles, output.labels)"
        )
    posterior.representative = r = representative(run, kept)
    c = r.compared
    posterior.agreement = agreement.agreement(summaries, scalars["log_joint"].r_hat, c.chain, c.labels, c.distances)
    _describe(posterior, r, kept)
    return posterior


def _judged(run: Posterior) -> Judgement:
    """Whether the chains have settled, by all that the shortest of them has in common with the others."""
    last = min(int(c.trace["cycle"][-1]) for c in run.chains)
    burn_in = max(c.config.burn_in for c in run.chains)
    return judge([c.trace for c in run.chains], SCALARS, run.n_rows, last, burn_in)


def _describe(posterior: RunSummary, r: Representative, kept: Sequence[tuple[int, int]]) -> None:
    """Stability, sizes and profiles of the clusters."""
    run = posterior.run
    overlap, sizes = np.zeros(len(r.sizes)), []
    used = evenly(kept, COMPARED)
    for _, draw in run.states(used):
        overlap += jaccard(contingency(r.labels, draw.labels))
        sizes.append(np.bincount(draw.labels))
    posterior.ordered = ordered_sizes(sizes, max(len(s) for s in sizes))
    least = max(2, int(np.ceil(LEAST_SHARE * run.n_rows)))
    shown = np.arange(min(LISTED, max(1, int(np.count_nonzero(r.sizes >= least)))))
    shared = telling.nothing_shared
    if run.likelihood:
        step = max(1, run.n_rows // SAMPLED)
        cells, z = _cells(run.columns, run.sample(SAMPLED)), r.labels[::step]
        cuts = {c.name: profiles.cuts(cells[c.name]) for c in run.columns if not c.levels}
        codes = {name: _in_intervals(x, cuts[name]) if name in cuts else x for name, x in cells.items()}
        listed = z < len(shown)
        shared = telling.shared_of({name: x[listed] for name, x in codes.items()}, z[listed])
        counts, moments = run.histograms(r.labels, cuts), run.moments(r.labels)
        numbers = {name: profiles.Numbers(counts[name], *moments[name]) for name in cuts}
        (statistics,) = run.statistics([r.labels])
        posterior.profiles = profiles.profiles(
            run.components, run.components.prior(r.hyper), statistics, shown, numbers
        )
        posterior.blocks = profiles.block_profiles(run.components, statistics, shown)
        posterior.columns = profiles.picture(posterior.profiles, shared) if posterior.profiles else []
    for k in shown:
        posterior.clusters.append(
            ClusterLine(
                int(k) + 1, int(r.sizes[k]), float(r.sizes[k] / run.n_rows), float(overlap[k] / len(used)),
                profiles.traits(posterior.profiles, int(k), shared),
            )
        )  # fmt: skip


def _cells(columns, rows: Rows) -> dict[str, np.ndarray]:
    return {c.name: getattr(rows, c.block)[:, c.index] for c in columns}


def _in_intervals(x: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """The interval of every cell, missing cells last."""
    return np.where(np.isnan(x), len(cuts) + 1, np.searchsorted(cuts, x))
