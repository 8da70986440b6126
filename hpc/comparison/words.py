"""A comparison in sentences: which run predicts held-out rows better, and which groups only one of them has."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import numpy as np

from mpibayes.hpc.comparison.comparison import Comparison, Scores, Side
from mpibayes.hpc.comparison.groupings import Alike, Pair
from mpibayes.hpc.comparison.paired import FEW, Difference
from mpibayes.hpc.report.document import BAD, early_look
from mpibayes.hpc.report.findings import Findings
from mpibayes.hpc.report.tables import fixed
from mpibayes.text import counted, enumerated, percent

SAME, PARTLY = 0.9, 0.5  # least adjusted Rand index of partitions called the same, and partly the same
TIMES = 1000.0  # largest ratio of probabilities that is stated
LISTED = 6  # pairs of columns, or views, in a sentence
NAMED = 4  # columns of a view in a sentence


def headline(c: Comparison) -> str:
    """The answer in a line."""
    if c.scores is None:
        return f"Held-out scores of {_names(c)} cannot be compared"
    best, second, d = _first_two(c)
    if not d.decided:
        both = f"{best} and {second}"
        return f"Held-out rows do not decide between {both}: {_amount(d)}, within two standard errors {_n(d)}"
    return f"{best} predicts held-out rows better than {second}: by {_amount(d)} {_n(d)}"


def _first_two(c: Comparison) -> tuple[str, str, Difference]:
    best, second = c.scores.ranking[:2]
    return c.sides[best].name, c.sides[second].name, c.scores.next


def _amount(d: Difference) -> str:
    return f"{plus_minus(d.mean, d.error)} nats a row"


def _n(d: Difference) -> str:
    return f"(n = {d.n:,})"


def plus_minus(mean: float, error: float) -> str:
    """Format a mean and its standard error with at least two decimals, and as many as the error justifies: one digit of
    the error, two if the first is a 1."""
    digits = 2
    if error > 0:
        first = int(np.floor(np.log10(error)))
        digits = int(np.clip(-first + (error < 2.0 * 10.0**first), 2, 6))
    return f"{fixed(mean, digits)} ± {fixed(error, digits)}"


def of_scores(c: Comparison) -> list[str]:
    """Explain the size of the difference, or why there is none."""
    if c.scores is None:
        why = c.refused.why
        return [f"{why[:1].upper()}{why[1:]}."]
    best, second, d = _first_two(c)
    sentences = []
    times = np.exp(d.mean)
    if d.decided and times < TIMES:
        sentences.append(
            f"{best} gives a held-out row {times:.3g} times the probability that {second} does, on average (geometric "
            f"mean), and predicts {percent(d.better)} of the rows better."
        )
    elif d.decided:
        sentences.append(f"{best} predicts {percent(d.better)} of the rows better.")
    if d.hangs_on_one_row:
        at, mean, error = d.without
        sentences.append(
            f"This depends on a single row, {c.scores.number[at] + 1:,}: without it the difference is "
            f"{plus_minus(mean, error)}."
        )
    if d.n < FEW:
        sentences.append(f"With {d.n} rows the standard error itself is rough.")
    if len(c.sides) > 2:
        sentences += [_behind(c, r) for r in c.scores.ranking[2:]]
    return sentences


def _behind(c: Comparison, r: int) -> str:
    d, best = c.scores.below[r], c.sides[c.scores.ranking[0]].name
    close = "" if d.decided else ", within two standard errors"
    return f"{c.sides[r].name} is behind {best} by {_amount(d)}{close}."


def of_chains(c: Comparison) -> list[str]:
    """Describe how reliable each run is, by its own report, and runs whose chains differ more than the runs do."""
    sentences = []
    for side in c.sides:
        verdict, early = side.made.verdict, early_look(side.run.chains)
        line = str(verdict)
        words = [f"{side.name}: {line[:1].lower()}{line[1:]}.", *verdict.chains[:1], early]
        sentences.append(" ".join(filter(None, words)))
    if c.scores is not None and c.scores.next.decided:
        difference = abs(c.scores.next.mean)
        for r in c.scores.ranking[:2]:
            spread = chain_spread(c.sides[r])
            if spread > difference:
                sentences.append(
                    f"The chains of {c.sides[r].name} differ from each other by {spread:.2g} nats a row in their "
                    "held-out scores, more than the runs do: another run of it may come out the other way."
                )
    return sentences


def chain_spread(side: Side) -> float:
    """Largest difference between the chains' mean held-out scores after burn-in, nats per row; 0 if there is none."""
    means = []
    for chain in side.run.chains:
        scores = chain.later().get("heldout_lpd", np.zeros(0))
        scores = scores[np.isfinite(scores)]
        if len(scores):
            means.append(scores.mean())
    return float(max(means) - min(means)) if len(means) > 1 else 0.0


def approximations(c: Comparison) -> str:
    """Caveats of the runs that are approximations; "" if none is."""
    each = [(side.name, side.made.verdict.approximation) for side in c.sides]
    return " ".join(f"{name}: {words}" for name, words in each if words)


def doubtful(c: Comparison) -> bool:
    """True if a run is not to be used yet, or has not reached its end."""
    return any(side.made.verdict.sound == BAD or early_look(side.run.chains) for side in c.sides)


# --- groups of each run -----------------------------------------------------------------------------------------------


def of_groupings(c: Comparison) -> list[str]:
    """Describe views, clusters and groups that one run has and the other lacks."""
    sentences = []
    for (first, other), pair in c.pairs.items():
        names = c.sides[first].name, c.sides[other].name
        sentences += _of_views(names, (c.findings[first], c.findings[other]), pair)
        sentences += _of_rows(names, pair)
    return sentences


def _of_views(names: tuple[str, str], findings: tuple[Findings, Findings], pair: Pair) -> list[str]:
    asks = [f.together is not None for f in findings]
    if not any(asks):
        return []
    if not all(asks):
        views, one = (0, 1) if asks[0] else (1, 0)
        f = findings[views]
        if len(f.groupings) == 1:
            return [
                f"{names[views]}, which may have several views, has one of all {counted(len(f.names), 'column')}, too."
            ]
        return [
            f"{names[one]} has all its columns in one view, as its model demands; {names[views]} puts "
            f"{counted(len(f.names), 'column')} into {counted(len(f.groupings), 'view')}: {_views(f)}."
        ]
    if not pair.columns:
        return [f"The same columns go together in {names[0]} and in {names[1]}."]
    sentences = []
    for name, other, ours, its in ((*names, "first", "second"), (*names[::-1], "second", "first")):
        here = [t for t in pair.columns if getattr(t, ours) > getattr(t, its)]
        if here:
            examples = [
                f"{' and '.join(t.columns)} ({percent(getattr(t, ours))} of the draws, {percent(getattr(t, its))} in "
                f"{other})" if not k else f"{' and '.join(t.columns)}"
                for k, t in enumerate(here[:LISTED])
            ]  # fmt: skip
            more = f"; and {counted(len(here) - LISTED, 'more pair')}" if len(here) > LISTED else ""
            sentences.append(f"Together in {name} and not in {other}: {'; '.join(examples)}{more}.")
    return sentences


def _views(f: Findings) -> str:
    views = []
    for g in f.groupings[:LISTED]:
        more = f" and {len(g.columns) - NAMED:,} more" if len(g.columns) > NAMED else ""
        views.append(f"({', '.join(g.columns[:NAMED])}{more})")
    rest = len(f.groupings) - LISTED
    return ", ".join(views) + (f" and {counted(rest, 'more view')}" if rest > 0 else "")


def _of_rows(names: tuple[str, str], pair: Pair) -> list[str]:
    if not pair.views:
        return ["No view of the two groups both rows and columns."] * bool(pair.n_rows)
    best = max(pair.views, key=lambda v: v.clusters)
    several = len(pair.views) > 1
    first, second = (_where(name, g, several) for name, g in zip(names, (best.first, best.second)))
    nearest = "Nearest to each other: the" if several else "The"
    sentences = [
        f"{nearest} {counted(best.first.n_clusters, 'cluster')} of {first} and the "
        f"{counted(best.second.n_clusters, 'cluster')} of {second} {_alike(best.clusters)} (adjusted Rand index "
        f"{best.clusters:.2f})."
    ]
    return [*sentences, *_of_levels(names, best, several)]


def _where(name: str, g, several: bool) -> str:
    return f"view {g.number} of {name}" if several else name


def _alike(index: float) -> str:
    if index == 1.0:
        return "are the same rows"
    if index >= SAME:
        return "are the same but for details"
    return "agree in part" if index >= PARTLY else "cut the rows in different ways"


def _of_levels(names: tuple[str, str], v: Alike, several: bool) -> list[str]:
    """Describe which of the two runs has usable groups; if both have, how similar these are."""
    usable = [v.first.usable_level, v.second.usable_level]
    kind = ["" if of is None else counted(of.n, "natural group" if of.natural else "group") for of in usable]
    if all(usable):
        both = f"The {kind[0]} of {names[0]} and the {kind[1]} of {names[1]}"
        return [f"{both} {_alike(v.groups)} (adjusted Rand index {v.groups:.2f})."]
    where = " there" * several
    if not any(of is not None and of.judged for of in (v.first.level, v.second.level)):
        return []
    if not any(usable):
        return [f"Neither has groups{where} that its chains agree on."]
    has, lacks = (0, 1) if usable[0] else (1, 0)
    return [f"{names[has]} has {kind[has]} to use{where}; {names[lacks]} has none that its chains agree on."]


# --- what to do -------------------------------------------------------------------------------------------------------


def next_steps(c: Comparison) -> tuple[list[str], list[tuple[str, str]]]:
    """Next steps as sentences, and commands."""
    if c.scores is None:
        return [step for step in [c.refused.step] if step], list(c.refused.commands)
    best, second, d = _first_two(c)
    two = [c.sides[r] for r in c.scores.ranking[:2]]
    bad = [side for side in two if side.made.verdict.sound == BAD]
    steps = [f"First do what the page of {side.name} says, then compare again." for side in bad]
    commands = [(f"see what {s.name} says", shlex.join(["mpibayes", "report", *s.homes])) for s in bad]
    if not d.decided and not bad:
        easier = "whose groups are easier to use" if any(map(_has_groups, c.findings)) else "that is simpler"
        steps.append(
            f"For predictions either will do: take the one {easier}. More held-out rows (data.heldout) show smaller "
            "differences."
        )
    elif d.decided and not bad:
        steps.append(f"Use {best} for predictions.")
        home = c.sides[c.scores.ranking[0]].run.chains[0].home
        commands.append(("score new rows", shlex.join(["mpibayes", "predict", str(home), "NEW.csv", "-o", "OUT.csv"])))
    if d.decided and _groups_elsewhere(c):
        steps.append(f"{second} has groups to use and {best} has none: describe the rows by these, predict by {best}.")
    return steps, commands


def _groups_elsewhere(c: Comparison) -> bool:
    return [_has_groups(c.findings[r]) for r in c.scores.ranking[:2]] == [False, True]


def _has_groups(f: Findings | None) -> bool:
    return f is not None and any(g.usable_level is not None for g in f.groupings)


def _names(c: Comparison) -> str:
    return enumerated([side.name for side in c.sides])


def groups_in_words(f: Findings | None) -> str:
    """Number of groups in each usable level, view by view; "-" for a model without clusters."""
    if f is None:
        return "-"
    usable = [level for level in (g.usable_level for g in f.groupings) if level is not None]
    return enumerated([f"{level.n}{' natural' if level.natural else ''}" for level in usable[:LISTED]]) or "none"


def summary_line(scores: Scores, r: int) -> tuple[str, str]:
    """Mean score of a run, and its distance below the best."""
    d = scores.below[r]
    return fixed(float(scores.values[r].mean()), 3), "best" if d is None else plus_minus(d.mean, d.error)


def model_in_words(side: Side) -> str:
    config = side.run.chains[0].config
    chains: Sequence[str] = [c.name for c in side.run.chains]
    columns = [counted(len(side.run.modelled), "column")] if side.run.modelled else []
    return ", ".join([config.kind, *columns, counted(len(chains), "chain")])
