"""Summary of a mixture or a cross-categorization for its report, computed from the traces, the kept draws and passes
over the table.

Clusters are those of the representative partition, never of the last draw. Kept draws are read one at a time, the table
in slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from mpibayes.hpc.crosscat.draws import Posterior
from mpibayes.hpc.crosscat.report import agreement
from mpibayes.hpc.crosscat.report.agreement import Agreement, ChainSummary
from mpibayes.hpc.crosscat.report.answers import climbed
from mpibayes.hpc.crosscat.report.dependence import Dependence, dependence
from mpibayes.hpc.crosscat.report.links import Links, links_of
from mpibayes.hpc.crosscat.report.outcome import Effects, effects_of, warnings_of
from mpibayes.hpc.crosscat.report.remedies import Advice, advise
from mpibayes.hpc.crosscat.report.view_summary import ViewSummary, describe
from mpibayes.hpc.crosscat.summaries.partitions import posterior_of_count
from mpibayes.hpc.crosscat.summaries.representative import Compared, Representatives, representatives
from mpibayes.hpc.posterior.chains import Chain
from mpibayes.hpc.posterior.scalars import ENOUGH_DRAWS, ScalarSummary, mixing_warnings, summary_of
from mpibayes.hpc.report.tables import not_started
from mpibayes.hpc.scalar import named, shown
from mpibayes.hpc.settled import MOST_R_HAT, Judgement, judge
from mpibayes.text import counted, enumerated, span

LATE = 0.05  # share of the cycles after burn-in in which a log joint may still rise without a warning
COUNTS = ("n_views", "n_clusters")  # scalars for which the report gives every value's share
SECOND_CHAIN = "Only a second chain from another start can show that: run.chains = 2."
OTHER_CHAINS = "Only the run's other chains can show that."


@dataclass
class RunSummary:
    """Contents of a report."""

    run: Posterior
    summaries: list[ChainSummary]
    scalars: dict[str, ScalarSummary]
    counts: dict[str, dict[int, float]]  # share of the draws with each number of clusters and views
    heldout_averaged: float | None
    n_kept: int
    settled: Judgement = field(default_factory=lambda: Judgement(0))
    views: list[ViewSummary] = field(default_factory=list)
    representatives: Representatives | None = None
    dependence: Dependence | None = None  # of columns, with several views
    of_columns: Agreement | None = None  # of the chains, on the columns
    warnings: list[str] = field(default_factory=list)
    weights: np.ndarray | None = None  # survey weights of the training rows
    links: Links | None = None  # None where columns cannot be linked
    outcome: Effects | None = None  # None where rows have none

    @property
    def agreement(self) -> Agreement | None:
        """Agreement of the chains on the columns; for a mixture, on the rows."""
        return self.of_columns or (self.views[0].agreement if self.views else None)

    @property
    def of_rows(self) -> dict[int, Agreement] | None:
        """Agreement of the chains on the rows, by number of views that group columns and rows; None for a mixture."""
        if self.of_columns is None:
            return None
        return {view.number: view.agreement for view in self.views if not view.slight}

    @property
    def agreements(self) -> list[Agreement]:
        """All agreements: `agreement`, then those of `of_rows`."""
        return [self.agreement, *(self.of_rows or {}).values()] if self.agreement else []

    @property
    def verdict(self) -> str:
        """Worst verdict on any partition (`agreement.worst`)."""
        return agreement.worst(self.agreements) if self.agreements else "unknown"

    @property
    def predicts(self) -> bool:
        """True if predictions can be used, even if clusters cannot."""
        return agreement.predicts(self.summaries, self.settled)

    @property
    def one_population(self) -> bool:
        """True if no view of several columns, or not the mixture, has more than one cluster."""
        return bool(self.views) and all(
            view.slight if self.run.several else len(view.representative.sizes) == 1 for view in self.views
        )

    @property
    def best(self) -> Chain | None:
        """Best of several chains, if its held-out scores hardly rise any more."""
        if len(self.summaries) == 1:
            return None
        order, _ = agreement.ranked(self.summaries)
        chain = next(c for c, summary in zip(self.run.chains, self.summaries) if summary is order[0])
        return chain if _judged(self.run, [chain]).level else None

    @property
    def same_views(self) -> bool:
        """True if all chains have found the same views."""
        a = self.of_columns
        return a is not None and len(a.groups) == 1 and bool(a.between(a.ari).min(initial=1.0) >= agreement.ALIKE)

    @cached_property
    def advice(self) -> Advice:
        """Advice if chains disagree or have not settled, or if there is only one."""
        ess = [s.ess for s in self.scalars.values() if not s.fixed and np.isfinite(s.ess)]
        r = self.representatives
        shown = self.summaries[r.chain].name if r is not None else ""
        return advise(
            self.run.chains, self.summaries, self.agreements, self.settled, min(ess, default=np.nan), shown,
            self.run.several, [words for _, words in not_started(self.run.chains)],
        )  # fmt: skip


def summarise(run: Posterior) -> RunSummary:
    """Compute the report's contents from the traces, the kept draws and some passes over the table."""
    run.read_traces()
    run.require_draws()
    later = [c.later() for c in run.chains]
    scalars = {s.name: summary_of([t[s.name] for t in later]) for s in shown(run.scalars) if s.label}
    kept = run.kept()
    summaries = [agreement.summarise_chain(c, run.scalars) for c in run.chains]
    averaged = [c.heldout_averaged for c in summaries if np.isfinite(c.heldout_averaged)]
    posterior = RunSummary(
        run, summaries, {k: s for k, s in scalars.items() if s.n_draws},
        {name: posterior_of_count(np.concatenate([t[name] for t in later])) for name in COUNTS if name in later[0]},
        float(np.mean(averaged)) if averaged else None, len(kept), _judged(run, run.chains),
    )  # fmt: skip
    _warn(posterior)
    posterior.weights = run.training_weights(run.weighted)
    if not kept:
        return posterior
    reference = representatives(run, kept)
    posterior.representatives = reference
    of_columns, of_rows = _agreements(summaries, scalars["log_joint"].r_hat, reference)
    posterior.views = [
        ViewSummary(number, view, of) for number, (view, of) in enumerate(zip(reference.views, of_rows), 1)
    ]
    if reference.compared is not None:
        names = [c.name for c in run.data.stored]
        d = dependence(reference.compared.labels, names, [view.of.names for view in reference.views])
        posterior.dependence, posterior.of_columns = d, of_columns
        for i, view in enumerate(posterior.views):
            view.together = d.together(i) if len(view.representative.of.names) > 1 else float(d.alone[d.of(i)][0])
    posterior.links = links_of(run, [(view.of.names, view.labels) for view in reference.views])
    describe(run, posterior.views, kept, posterior.links, posterior.weights)
    if run.outcomes is not None:
        posterior.outcome = effects_of(run, reference.views)
        posterior.warnings += warnings_of(posterior.outcome)
    return posterior


def _agreements(
    summaries: Sequence[ChainSummary], r_hat: float, chosen: Representatives
) -> tuple[Agreement | None, list[Agreement]]:
    """Return the chains' agreement on the columns (None for a mixture), and on the rows of each view. r_hat: of the
    log joint."""

    def on(c: Compared) -> Agreement:
        return agreement.agreement(summaries, r_hat, c.chain, c.labels, c.distances)

    of_rows = [on(view.compared) for view in chosen.views]
    if chosen.compared is None:
        return None, of_rows
    # the columns' agreement reports the log joints
    return on(chosen.compared), [replace(of, gap=0.0, climbing=()) for of in of_rows]


def contradicted(run: Posterior) -> bool:
    """Judge a run as `agreement.contradicted` does, computing no more of the report than needed. Chains with settled
    scores do not contradict each other in query answers, which are averages over their draws."""
    run.read_traces()
    run.require_draws()
    summaries = [agreement.summarise_chain(c, run.scalars) for c in run.chains]
    if agreement.predicts(summaries, _judged(run, run.chains)):
        return False
    r_hat = summary_of([c.later()["log_joint"] for c in run.chains]).r_hat
    kept = run.kept()
    if agreement.contradicted(summaries, []) or (kept and agreement.gap_of(summaries, r_hat)):
        return True
    if len(summaries) == 1 or not kept:
        return False
    reference = representatives(run, kept)
    of_columns, of_rows = _agreements(summaries, r_hat, reference)
    if of_columns is not None:
        of_rows = [of_columns, *(of for view, of in zip(reference.views, of_rows) if not view.slight)]
    return agreement.contradicted(summaries, of_rows)


def second_chain(p: RunSummary) -> str:
    """Say what shows whether a single chain is stuck."""
    return OTHER_CHAINS if p.run.chains[0].config.run.chains > 1 else SECOND_CHAIN


def _warn(posterior: RunSummary) -> None:
    """Add warnings about the traces and about few draws."""
    run, summaries, n_kept = posterior.run, posterior.summaries, posterior.n_kept
    stopped = [c for c in summaries if c.stopped]
    if stopped:
        ends = f"{span([c.cycles for c in stopped])} of {run.chains[0].config.run.cycles:,}"
        posterior.warnings.append(
            f"{', '.join(c.name for c in stopped)}: stopped in cycle {ends}; the same command resumes there"
        )
    posterior.warnings += mixing_warnings(
        {named(run.scalars)[name].label: s for name, s in posterior.scalars.items()}, len(run.chains), MOST_R_HAT
    )
    climbing = [c for c in summaries if c.climbed]
    late = [c for c in summaries if c.reached - c.burn_in > LATE * (c.cycles - c.burn_in) and not c.climbed]
    if climbing:
        posterior.warnings.append(
            f"the log joint of {enumerated([c.name for c in climbing])} still climbs, {climbed(climbing)}: "
            "single clusters may still change; raise run.cycles"
        )
    if late:
        posterior.warnings.append(
            f"the log joint of {enumerated([c.name for c in late])} kept rising after burn-in, up to cycle "
            f"{max(c.reached for c in late):,}: leave out more (--burn-in), or raise run.cycles"
        )
    tried, accepted = agreement.moves_in(summaries, "kept")
    if len(summaries) == 1 and tried and not accepted:
        posterior.warnings.append(
            f"no split or merge was accepted after burn-in ({tried:,} tried): the clusters are clear-cut, "
            f"or the chain is stuck. {second_chain(posterior)}"
        )
    moving = agreement.moves_together(summaries).get("kept", {})
    if len(summaries) == 1 and moving.get("view_moves_tried") and not (moving["view_moves"] + moving["columns_moved"]):
        posterior.warnings.append(
            "no column changed its view after burn-in: the views are clear-cut, or the chain is stuck. "
            + second_chain(posterior)
        )
    if not n_kept:
        posterior.warnings.append(
            "no draw of the labels was kept after burn-in, so clusters cannot be shown: give a smaller --burn-in, "
            "continue the run, or lower output.labels"
        )
    elif n_kept < ENOUGH_DRAWS:
        posterior.warnings.append(
            f"only {counted(n_kept, 'draw')} of the labels kept after burn-in: clusters, sizes and stability below "
            f"are rough; keep at least {ENOUGH_DRAWS} (run.cycles, output.labels)"
        )


def _judged(run: Posterior, chains: Sequence[Chain]) -> Judgement:
    """Judge whether chains have settled, by the cycles that all of them have run."""
    last = min(int(c.trace["cycle"][-1]) for c in chains)
    burn_in = max(c.config.burn_in for c in chains)
    return judge([c.trace for c in chains], run.scalars, run.n_rows, last, burn_in)
