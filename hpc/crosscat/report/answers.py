"""Sentences about the agreement of the chains."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from mpibayes.hpc.crosscat.report.agreement import ALIKE, Agreement, ChainSummary, ranked, worst
from mpibayes.hpc.crosscat.summaries.representative import FEWEST
from mpibayes.hpc.posterior.scalars import r_hat_in_words
from mpibayes.hpc.scalar import SCORES
from mpibayes.hpc.settled import Judgement

VERDICTS = {  # on the rows of a view, in a table
    "same": "yes",
    "nearly": "nearly",
    "spread": "as well as halves of one chain",
    "apart": "the chains disagree",
    "different": "no",
    "unknown": "cannot be decided",
}

ON_VIEWS = "on the views"  # a bare Yes would be read as a Yes on clusters, too


def answer(a: Agreement, summaries: Sequence[ChainSummary], rows: Mapping[int, Agreement] | None = None) -> list[str]:
    """Say whether the chains found the same clustering; if not, rank the chains. rows: agreement on the rows of each
    view, by its number, if `a` is on the columns."""
    within = worst(rows.values()) if rows else "same"
    yes = "Yes" if not rows else f"Yes, {ON_VIEWS}" if within == "same" else f"{ON_VIEWS.capitalize()}, yes"
    sentences = _found(a, summaries, "rows" if rows is None else "columns", yes)
    if rows:
        sentences.append(_in_views(rows))
    if worst([a, *(rows or {}).values()]) in ("unknown", "same"):
        return sentences
    return [*sentences, _ranking(summaries)]


def settled(judgement: Judgement, climbing: bool, verdict: str) -> str:
    """Describe a judgement and its consequences. climbing: True if a chain's log joint climbs; verdict: worst on any
    partition, by `agreement.worst`."""
    words = str(judgement)
    if climbing:
        return f"not yet: the log joint climbs; {words}"
    meaning = judgement.meaning
    if meaning and judgement.has(SCORES) and verdict in ("same", "nearly"):
        meaning = (
            "Predictions can be trusted, and so can the clusters that the chains share, but not the number of "
            "small ones."
        )
    return f"{words}. {meaning}" if meaning else words


def climbed(summaries: Sequence[ChainSummary]) -> str:
    """Describe the rise of chains that still climb."""
    low, high = (f"{f(c.climbed for c in summaries):,.0f}" for f in (min, max))
    span = low if low == high else f"{low} to {high}"
    return f"by {span} nats from the first half of the draws to the second"


def listed(names: Sequence[str], most: int = 4) -> str:
    """Join the names of chains, shortening a long list."""
    if len(names) <= most:
        return ", ".join(names)
    return ", ".join(names[: most - 1]) + f" and {len(names) - most + 1} more"


def _in_views(rows: Mapping[int, Agreement]) -> str:
    """Name the views in which the chains found the same clusters."""
    same = [str(v) for v, a in rows.items() if a.verdict == "same"]
    if len(same) == len(rows):
        return f"On the clusters, too: {_least(rows.values())}."
    others = {str(v): a for v, a in rows.items() if a.verdict != "same"}
    where = f", in view {listed(list(others), 12)}" if same else ", in any view" if len(rows) > 1 else ""
    return f"On single clusters, not fully{where}: {_least(others.values())}."


def _least(of: Collection[Agreement]) -> str:
    between, within = (np.concatenate([f(a, a.ari) for a in of]) for f in (Agreement.between, Agreement.within))
    if not len(between) or not len(within):
        return f"too few kept draws ({FEWEST} of each chain are needed)"
    return _index(between, within)


def _index(between: np.ndarray, within: np.ndarray) -> str:
    return f"adjusted Rand index {_range(between)} between chains, {_range(within)} between the halves of one chain"


def _found(a: Agreement, summaries: Sequence[ChainSummary], of: str, yes: str) -> list[str]:
    """Say whether the chains found the same partition of the rows or columns. yes: first words if they did."""
    verdict = a.verdict
    measured = f"at least {FEWEST} kept draws of each chain are needed (output.labels)"
    if verdict == "unknown":
        return [f"This cannot be decided: {measured}."]
    if np.all(np.isfinite(a.ari)):
        measured = _index(a.between(a.ari), a.within(a.ari))
    if verdict == "same":
        return [f"{yes}: {measured}."]
    if verdict == "spread":
        if of == "columns":
            return [f"On the views, as well as the halves of one chain do: columns change views; {measured}."]
        how = "Different chains agree as well as the halves of one chain"
        return [f"{how}: {measured}. Many partitions are plausible, or the chains are still too short."]
    if verdict == "apart":
        if of == "columns" and not a.climbing and np.all(np.isfinite(a.ari)) and a.between(a.ari).min() >= ALIKE:
            return [f"{ON_VIEWS.capitalize()}, yes: {measured}.", f"Within views the chains have not mixed: {_gap(a)}."]
        return [_disagree(a, summaries), f"The agreement of their partitions says little yet: {measured}."]
    if verdict == "nearly":
        return [f"Nearly: they agree on most {of} and differ on the rest: {measured}."]
    groups = " | ".join(listed([summaries[i].name for i in group]) for group in a.groups)
    what = "clusterings" if of == "rows" else "sets of views"
    no = f"No, there are {len(a.groups)} {what} ({groups}): {measured}."
    return [no] if a.met else [no, _disagree(a, summaries)]


def _disagree(a: Agreement, summaries: Sequence[ChainSummary]) -> str:
    """Describe the gap between log joints, and name the chains whose log joints still rise."""
    reasons = []
    if a.gap:
        reasons.append(_gap(a))
    if a.climbing:
        climbing = [summaries[i] for i in a.climbing]
        reasons.append(f"the log joint still climbs in {listed([c.name for c in climbing])} ({climbed(climbing)})")
    return f"The chains {'disagree' if a.gap else 'have not converged'}: {'; '.join(reasons)}."


def _gap(a: Agreement) -> str:
    return f"their mean log joints differ by {a.gap:,.0f} nats (R-hat {r_hat_in_words(a.r_hat, 2)})" if a.gap else ""


def _range(values: np.ndarray) -> str:
    low, high = f"{values.min():.3f}", f"{values.max():.3f}"
    return low if low == high else f"{low} to {high}"


def _ranking(summaries: Sequence[ChainSummary]) -> str:
    order, by_score = ranked(summaries)
    measure = "held-out score, nats a row" if by_score else "mean log joint of the second half after burn-in"
    names = [f"{c.name} {c.heldout:,.3f}" if by_score else f"{c.name} {c.late:,.1f}" for c in order]
    return f"The chains by {measure}, the best first: {listed(names)}."
