"""Verdict on a mixture or a cross-categorization: findings, agreement of the chains, and next steps."""

from __future__ import annotations

import shlex

from mpibayes.hpc.crosscat.draws import Posterior
from mpibayes.hpc.crosscat.report import agreement, answers, group_words, links, outcome, tables
from mpibayes.hpc.crosscat.report.remedies import AVERAGES, NO_AVERAGES, PREDICTIONS
from mpibayes.hpc.crosscat.report.summarise import RunSummary
from mpibayes.hpc.posterior.chains import Chain
from mpibayes.hpc.report.document import BAD, DOUBT, GOOD, Command, Verdict
from mpibayes.hpc.report.tables import sentence, use_it, warned
from mpibayes.hpc.settled import APART, MOST_R_HAT
from mpibayes.text import counted, percent, span

LARGEST = 10  # clusters whose total share is given
VIEWS_NAMED = 6
COPIES = 20  # of a completed table, by default
TOGETHER = 5  # columns named per set
INDEPENDENT = "No column was found to depend on another."
MEASURES = {  # explained where they occur
    "adjusted Rand index": "Adjusted Rand index: 1 if two groupings are the same, about 0 if they agree by chance.",
    "R-hat": f"R-hat: 1 if the chains cannot be told apart; settled: at most {MOST_R_HAT:g}.",
}


def verdict(p: RunSummary) -> Verdict:
    """Return findings, agreement of the chains, and next steps."""
    several, contradicted = len(p.summaries) > 1, agreement.contradicted(p.summaries, p.agreements)
    alike = not contradicted and p.verdict in ("same", "nearly")
    good = several and alike and p.settled.settled and not p.warnings
    headline = "" if good else _of_use(p, alike, contradicted)
    sound = GOOD if good else BAD if contradicted and not headline else DOUBT
    steps, commands = _next(p, sound)
    more = {"commands": commands, "headline": headline, "warnings": warned(p.warnings)}
    return Verdict(_found(p), _chains(p, several), steps, sound, **more)


def _of_use(p: RunSummary, alike: bool, contradicted: bool) -> str:
    """Name the usable part of a result that is not sound as a whole; "" if there is none, or if only figures are in
    doubt. alike: True if the chains have the same clusters; contradicted: True if they contradict each other."""
    climbs = _climbs(p)  # clusters may still change, whether chains agree or not
    if climbs and not group_words.natural(p):
        return group_words.CLIMBS if group_words.changing(p) else ""
    if group_words.usable(p) or climbs:
        if not group_words.natural(p):
            return group_words.CHANGING if group_words.changing(p) else group_words.SUMMARY
        return group_words.STILL if climbs else group_words.ROUGH if alike else group_words.HEADLINE
    alone = p.same_views and all(len(view.names) == 1 for view in p.views)
    if p.predicts and p.one_population and (alone or not contradicted):
        return group_words.ONE
    if alike or not (p.predicts or p.best):
        return ""
    if not p.predicts:
        return group_words.BEST
    if p.same_views:
        return group_words.VIEWS if len(p.views) > 1 else group_words.ONE_VIEW
    return group_words.PREDICTIONS


def _climbs(p: RunSummary) -> bool:
    return any(c.climbed for c in p.summaries)


def _of_predictions(p: RunSummary) -> list[str]:
    """Name the results that can be used where groups cannot."""
    if group_words.usable(p) or p.verdict in ("same", "nearly"):
        return []
    if not p.predicts:
        return _of_best(p)
    sentences = [f"Predictions can be used: held-out scores of the chains differ by {APART:g} nats a row at most."]
    if p.one_population:
        return sentences
    if p.same_views:
        which = (
            f"the same {len(p.views)} views of the columns{_names(p)}"
            if len(p.views) > 1
            else "one view: all columns go together"
        )
        sentences.append(f"Every chain has {which}.")
    return sentences


def _rows(run: Posterior) -> str:
    """Describe the number of training rows and of held-out rows."""
    held_out = 0 if run.data.heldout is None else len(run.data.heldout)
    return counted(run.n_rows, "row") + (f" ({held_out:,} more are held out)" if held_out else "")


def _names(p: RunSummary) -> str:
    """Name the columns of the first views."""
    left = len(p.views) - VIEWS_NAMED
    names = [group_words.first_columns(view) for view in p.views[:VIEWS_NAMED]]
    return ": " + "; ".join([*names, *([f"and {left} more"] if left > 0 else [])])


def _sure_together(p: RunSummary) -> list[str]:
    """Name the columns that share a view in nearly all draws, if the chains have different views."""
    sets = [] if p.same_views or p.dependence is None or len(p.summaries) < 2 else p.dependence.sure
    if not sets:
        return []
    named = [", ".join(of[:TOGETHER]) + f" and {len(of) - TOGETHER} more" * (len(of) > TOGETHER) for of in sets]
    left = f"; and {counted(len(sets) - VIEWS_NAMED, 'more set')}" if len(sets) > VIEWS_NAMED else ""
    return [f"Columns that go together in every chain: {'; '.join(named[:VIEWS_NAMED])}{left}."]


def _of_best(p: RunSummary) -> list[str]:
    """Compare the scores of the best chain, whose predictions can be used, with those of the other chains."""
    if p.best is None:
        return []
    (best, *others), by_score = agreement.ranked(p.summaries)
    scores = span([round(c.heldout, 3) for c in others], "")
    rest = "the other chain" if len(others) == 1 else "other chains"
    how = "predicts best" if by_score else "has the highest log joint and predicts as well as the others"
    return [f"{best.name} {how}: held-out rows score {best.heldout:.3f} nats a row, in {rest} {scores}."]


def _found(p: RunSummary) -> list[str]:
    run = p.run
    lines = [] if run.likelihood else ["Draws of the prior: the cells were ignored (model.likelihood = false)."]
    if not p.views:
        return [*lines, "No draw of the labels was kept after burn-in, so clusters cannot be shown."]
    lines += _of_predictions(p)
    lines += group_words.sentences(p)
    lines += _sure_together(p)
    if p.run.several:
        telling = [view for view in p.views if not view.slight]
        alone, sizes = len(p.views) - len(telling), [len(view.representative.sizes) for view in telling]
        groups = (
            f"{span(sizes, 'cluster')}{' each' * (len(telling) > 1)}"
            if telling
            else "no groups of rows in columns that go together"
        )
        how_many = f"{len(telling)} of them {'has' if len(telling) == 1 else 'have'} " if telling and alone else ""
        others = "the other has" if alone == 1 else "the others have"
        bare = all(len(view.names) == 1 for view in p.views if view.slight)
        what = f"a single column{'' if bare else ' or a single cluster'}{' each' * (alone > 1)}"
        rest = f"; {others} {what}" if telling and alone else ""
        lines.append(
            f"{len(run.data.stored)} columns of {_rows(run)} in {counted(len(p.views), 'view')}: "
            f"{how_many}{groups}{rest}."
        )
    else:
        sizes = p.views[0].representative.sizes
        n = min(LARGEST, len(sizes))
        most = f"the {n} largest hold {percent(sizes[:n].sum() / run.n_rows)} of the rows" if n < len(sizes) else ""
        lines.append(f"{counted(len(sizes), 'cluster')} in {_rows(run)}{': ' * bool(most)}{most}.")
    lines += outcome.sentences(p.outcome)
    if p.one_population and not (p.links and p.links.sure) and not agreement.contradicted(p.summaries, p.agreements):
        lines.append(INDEPENDENT)
    else:
        lines += links.sentences(p.links)
    name = "n_views" if run.several else "n_clusters"
    k = p.scalars.get(name)
    if k is not None and not k.fixed and k.n_draws > 1:
        what = "view" if run.several else "cluster"
        low, high = round(k.low), round(k.high)
        lines.append(
            f"Nearly all draws have {counted(low, what)}."
            if low == high
            else f"The draws have {low:,} to {high:,} {what}s (nine in ten of them)."
        )
    if p.heldout_averaged is not None:
        lines.append(
            f"Held-out rows score {p.heldout_averaged:.3f} nats a row (higher is better): compare runs on this table."
        )
    elif "heldout_lpd" in p.scalars:  # averages begin after run.burn_in, later than an early look
        lines.append(f"Held-out rows score {p.scalars['heldout_lpd'].mean:.3f} nats a row in each draw, on average.")
    return lines


def _chains(p: RunSummary, several: bool) -> list[str]:
    if p.agreement is None:
        return []
    lines = answers.answer(p.agreement, p.summaries, p.of_rows)[: 2 if p.of_rows else 1] if several else []
    lines = lines or ["One chain only: another might find something else."]
    lines = [*lines, f"Settled? {sentence(tables.settled(p).removesuffix('.'))}"]
    return [*lines, *(words for measure, words in MEASURES.items() if any(measure in line for line in lines))]


def _ask(p: RunSummary, best: Chain | None) -> list[Command]:
    """Give commands for questions about the table itself. best: the only chain to use."""
    columns = [column for column in p.run.data.stored if column.kind != "survival" and not column.part_of]
    names = [name for view in p.views for name in view.names if name in {column.name for column in columns}]
    if len(columns) < 2 or not names or p.outcome:
        return []
    where = str(best.folder if best else p.run.chains[0].home)
    commands = [("see what predicts a column", shlex.join(["mpibayes", "query", where, "predictors", names[0]]))]
    if best is None and any(column.n_missing for column in columns):
        copies = ["--copies", str(p.n_kept)] if p.n_kept < COPIES else []
        command = shlex.join(["mpibayes", "complete", where, *copies, "-o", "copies"])
        commands.append(("write copies of the table without missing cells", command))
    return commands


def _next(p: RunSummary, sound: str) -> tuple[list[str], list[Command]]:
    named = sound != BAD and (group_words.natural(p) or not _climbs(p))
    groups, export = group_words.use_them(p) if named else ([], [])
    best = None if p.predicts or sound != DOUBT else p.best
    usable = GOOD if sound != BAD and p.predicts else sound
    use, score = use_it(p.run, usable, best)
    known = (AVERAGES, PREDICTIONS, NO_AVERAGES)
    ask = _ask(p, best) if use else []
    steps = [*groups, *use, *(step for step in p.advice.steps if not (use and step in known))]
    return steps, [*export, *score, *ask, *p.advice.commands]
