"""Remedies for chains that disagree or have not settled: sentences, and commands that work as printed.

Advice ends once it has been followed: a stopped run has been resumed to run.cycles; moves run in every cycle; there are
MOST_CHAINS chains of LONG cycles; chains with different views have made MOST_SEARCHES searches each. Where no move has
been accepted for STILL cycles, more cycles would change nothing and are not advised; the advice then names the results
that can be used as they are.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mpibayes.hpc.crosscat.report.agreement import Agreement, ChainSummary, moves_in, moves_together, ranked, worst
from mpibayes.hpc.crosscat.sampler_keys import Sampler
from mpibayes.hpc.crosscat.start import strategy
from mpibayes.hpc.posterior.chains import Chain
from mpibayes.hpc.report import advice
from mpibayes.hpc.report.document import Command
from mpibayes.hpc.report.tables import sentence
from mpibayes.hpc.run.grown import continued_as
from mpibayes.hpc.scalar import SCORES
from mpibayes.hpc.settled import LEAST_ESS, Judgement
from mpibayes.text import counted

LONG = 10_000  # cycles per chain: twice as many are unlikely to achieve more
STILL = 100  # cycles after burn-in without an accepted move
MOST_CHAINS = 8
MOST_SEARCHES = 32  # searches for views per chain
PREDICTIONS = "The scores have settled: predictions can be used as they are."
AVERAGES = "Averages over the draws can be used, as in predictions and queries; single clusters cannot."
NO_AVERAGES = "Until the chains agree, averages over them mean little."
MOST_TIMES = 8.0  # largest multiple of the present cycles in one piece of advice


@dataclass(frozen=True)
class Advice:
    """Next steps as sentences, and shell commands that can be run at once."""

    steps: list[str] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)


def advise(
    chains: Sequence[Chain], summaries: Sequence[ChainSummary], on: Sequence[Agreement], settled: Judgement,
    ess: float = np.nan, shown: str = "", several: bool = False, missing: Sequence[str] = (),
) -> Advice:  # fmt: skip
    """Advise next steps. on: agreement on the columns and on the rows of each view, or on the rows of a mixture; ess:
    smallest of the scalars; shown: chain whose clusters the report shows; several: True if there may be several views;
    missing: descriptions of chains that were not started."""
    if now := continued_as(chains[0].home):
        report = shlex.join(["mpibayes", "report", str(now)])
        step = "This run has only the rows before an append, and does not continue."
        return Advice([step], [("report on all rows", report)])
    one_run, verdict = len({chain.home for chain in chains}) == 1, worst(on) if on else "unknown"
    if len(summaries) == 1:
        if missing:
            return Advice([sentence(words) for words in missing])
        if (planned := chains[0].config.run.chains) > 1:  # one was asked for, or alone there when the report began
            report = shlex.join(["mpibayes", "report", str(chains[0].home)])
            return Advice([f"The run has {planned} chains: compare them."], [("report on all of them", report)])
        more = advice.anew(chains, "compare two chains in a new run", run_chains=2)
        step = "Run more than one chain (run.chains = 2), so that they can be compared."
        return Advice([step], [more] if one_run and on else [])
    agreed = verdict in ("same", "unknown")
    if agreed and settled.settled:
        return Advice()
    early = min(c.cycles for c in summaries) < max(chain.config.burn_in for chain in chains)
    still = "" if early else standing_still(summaries, on, several)  # of a chain that settles nothing is known
    stopped = [c for c in summaries if c.stopped]
    if stopped and not still:
        done, planned = min(c.cycles for c in stopped), max(chain.config.run.cycles for chain in chains)
        step = f"Run the same command again: it resumes from cycle {done:,} of {planned:,}."
        return Advice([step, *([] if agreed else _until_then(summaries, on, settled, shown, several))])
    other_views = several and bool(on) and len(on[0].groups) > 1
    steps, commands = _remedies(chains, summaries, verdict, settled, ess, still, other_views)
    if not agreed:
        steps += _until_then(summaries, on, settled, shown, several)
    return Advice(steps, commands if one_run else [])


def _remedies(
    chains: Sequence[Chain], summaries: Sequence[ChainSummary], verdict: str, settled: Judgement, ess: float,
    still: str, other_views: bool,
) -> tuple[list[str], list[Command]]:  # fmt: skip
    """Return sentences and commands, the most promising first. still: see `standing_still`; other_views: True if the
    chains have different views."""
    commands: list[Command] = []
    steps = []
    if still:
        steps.append(f"{still}.")
    elif min(c.cycles for c in summaries) < LONG or any(c.climbed for c in summaries):
        commands.append(advice.longer(chains, _times(ess)))
    else:
        steps.append(f"More cycles are not likely to help: each chain has {LONG:,} or more.")
    n = min(2 * len(summaries), MOST_CHAINS)
    more = [advice.anew(chains, f"compare {n} chains in a new run", run_chains=n)] if len(summaries) < n else []
    if verdict not in ("same", "unknown"):
        if not moves_in(summaries)[0]:
            commands.append(
                advice.anew(chains, "switch split and merge moves on in a new run", sampler_split_merge="auto")
            )
        elif other_views:  # searches determine views, and more cycles hardly ever correct them
            n_chains = n if steps else len(summaries)
            searches = _more_searches(chains, n_chains, len(summaries))
            commands, more = [*commands, *searches], [] if searches else more
        elif verdict != "spread" and not all(c.moves_in_every_cycle for c in summaries):
            commands.append(advice.anew(chains, "make moves in every cycle of a new run", sampler_split_merge=1))
    commands += more if steps else []
    if commands:
        words = ", or ".join(words for words, _ in commands)
        aim = ", so that it settles" if verdict in ("same", "unknown") and not steps else ""
        condition = {"nearly": "If the details matter: ", "spread": "If single clusters matter: "}.get(verdict, "")
        sentence = f"{condition}{words}{aim}."
        steps.append(sentence[:1].upper() + sentence[1:])
    if verdict in ("same", "unknown") and steps and settled.has(SCORES):
        steps.append(PREDICTIONS)
    return steps, commands


def _more_searches(chains: Sequence[Chain], n_chains: int, there: int) -> list[Command]:
    """Return the command for twice as many searches for views per chain, and for `n_chains` chains if there are fewer
    now; none if chains have made MOST_SEARCHES, or no searches."""
    sampler = chains[0].config.of(Sampler)
    n = strategy.SEARCHES if sampler.searches == "auto" else sampler.searches
    if sampler.init_rows == 0 or n >= MOST_SEARCHES:
        return []
    most = min(2 * n, MOST_SEARCHES)
    where, keys = ("each chain", {}) if n_chains == there else (f"each of {n_chains} chains", {"run_chains": n_chains})
    words = f"make {most} searches for views in {where}, in a new run"
    return [advice.anew(chains, words, sampler_searches=most, **keys)]


def standing_still(summaries: Sequence[ChainSummary], on: Sequence[Agreement], several: bool) -> str:
    """Say which moves chains with different results have not accepted in at least STILL cycles after burn-in; "" if
    they have accepted some."""
    if several and on and len(on[0].groups) == 1:  # they have the same views
        return ""
    n = moves_together(summaries).get("kept", {})
    cycles = n.get("cycles", 0) // len(summaries)
    if cycles < STILL or not on or on[0].verdict in ("same", "unknown") or any(c.climbed for c in summaries):
        return ""
    since = f"in the {counted(cycles, 'cycle')} after burn-in"
    if several:
        moved = n["view_moves"] + n["columns_moved"]
        if moved or not n["view_moves_tried"]:
            return ""
        return f"More cycles will hardly change the views: no column has changed its view in any chain {since}"
    tried, accepted = n["splits_tried"] + n["merges_tried"], n["splits"] + n["merges"]
    fixed = all(c.scalars["n_clusters"].fixed for c in summaries if "n_clusters" in c.scalars)
    still = tried and fixed and not accepted
    return f"More cycles will not help: no chain has split or merged a cluster {since}" if still else ""


def _times(ess: float) -> float:
    """Return the multiple of the cycles that brings the smallest ESS to 1.5 times the required one."""
    return float(np.clip(np.ceil(1.5 * LEAST_ESS / ess), 2.0, MOST_TIMES)) if np.isfinite(ess) and ess > 0 else 2.0


def _until_then(
    summaries: Sequence[ChainSummary], on: Sequence[Agreement], settled: Judgement, shown: str, several: bool
) -> list[str]:
    """Describe the use of the result as it is."""
    verdict = worst(on)
    if verdict == "spread":
        return [AVERAGES]
    if verdict not in ("different", "apart") or (verdict == "apart" and not any(a.gap for a in on)):
        return []
    rows_alone = several and len(on[0].groups) == 1
    what = "clusters in the views" if rows_alone else "views" if several else "clusters"
    usable = PREDICTIONS if settled.has(SCORES) else NO_AVERAGES
    best = shown or ranked(summaries)[0][0].name
    return [usable, f"The {what} below are those of {best}, the best chain: one answer of several."]
