"""Report of a regression's posterior."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.hpc.posterior.scalars import ENOUGH_ESS, ENOUGH_R_HAT, r_hat_in_words
from mpibayes.hpc.regression.draws import Posterior
from mpibayes.hpc.regression.report import coefficient_tables, mixing, numbers, tables
from mpibayes.hpc.regression.report.coefficient_tables import near
from mpibayes.hpc.regression.report.coefficients import centred
from mpibayes.hpc.regression.report.scoring import ClassScores
from mpibayes.hpc.regression.report.summarise import RunSummary, summarise_run
from mpibayes.hpc.regression.scalars import SCALARS
from mpibayes.hpc.report.document import BAD, DOUBT, GOOD, Document, Figure, Section, Verdict, drawn
from mpibayes.hpc.report.tables import about_section, chains_section, fixed, sentence, use_it, warned
from mpibayes.text import counted, percent


def make(run: Posterior) -> Document:
    """See `report.report`."""
    p = summarise_run(run)
    figures, lines = _figures(p), numbers.coefficients(p)
    return Document(
        run.chains, verdict(p), sections(p, figures), numbers.numbers(p, lines),
        [coefficient_tables.standing_out(p)], figures, {"coefficients.csv": numbers.csv(lines)},
    )  # fmt: skip


def verdict(p: RunSummary) -> Verdict:
    """Verdict: the result, whether the chains agree, and what to do next."""
    ess, r_hat = p.shown.ess_bulk, p.shown.r_hat
    known = np.isfinite(r_hat).any() and np.isfinite(ess).any()
    several = len(p.chains) > 1
    if mixing.contradicted(len(p.chains), r_hat) or _contradicted(p):
        sound = BAD
    else:
        sound = GOOD if known and not p.warnings else DOUBT
    chains = ["There are too few draws to say."]
    if known:
        agree = np.nanmax(r_hat) <= ENOUGH_R_HAT
        who = f"{len(p.chains)} chains" if several else "The halves of the one chain"
        least = f"R-hat is at most {r_hat_in_words(np.nanmax(r_hat))}"
        enough = f"at least {fixed(np.nanmin(ess), 0)} effective draws of each coefficient"
        chains = [f"{'Yes' if agree else 'No'}: {who}; {least}, with {enough} ({ENOUGH_ESS:.0f} are wanted)."]
    if p.importance is not None and p.importance.trusted:
        agrees = "agrees" if p.importance.agrees else "does not agree"
        chains.append(f"A second opinion, by importance sampling, {agrees} with them.")
    steps, commands = use_it(p.run, sound)
    steps = steps or ["Look at the coefficients, and at the held-out rows."]
    return Verdict(_found(p), chains, steps, sound, commands=commands, warnings=warned(p.warnings))


def _contradicted(p: RunSummary) -> bool:
    return p.importance is not None and p.importance.trusted and not p.importance.agrees


def _found(p: RunSummary) -> list[str]:
    design = p.run.design
    away = p.shown.away_from_zero.reshape(design.n_classes, -1)[:, int(design.intercept) :]
    m = p.run.likelihood
    sentences = [
        sentence(
            f"{m.title} regression of {design.response} on {counted(p.n_rows, 'row')}: {m.in_words(design.classes)}"
        )
    ]
    if away.size:
        sentences.append(
            f"The 5 to 95 % interval excludes 0 for {away.sum():,} of {counted(away.size, 'coefficient')}."
        )
    s = p.scores
    if isinstance(s, ClassScores):
        sentences.append(
            f"Of {s.n_rows:,} held-out rows {percent(s.correct.value)} are predicted correctly; the most frequent "
            f"class alone would score {percent(s.by_frequency)}."
        )
    elif s is not None:
        error = s.squared.error / (2.0 * s.rmse) if s.rmse > 0 else 0.0
        sentences.append(
            f"Predictions of {s.n_rows:,} held-out rows are off by {near(s.rmse, error)} (root mean square); their own "
            f"mean is off by {near(s.rmse_of_mean, error)}."
        )
    return sentences


def sections(p: RunSummary, figures: Sequence[Figure]) -> list[Section]:
    """The sections, in order."""
    made = [coefficient_tables.section(p)]
    made[0] = Section(made[0].name, made[0].title, [*made[0].parts, *drawn(figures, "coefficients.png")])
    made += [coefficient_tables.section_in_units(p)] if p.original is not None else []
    if p.scores is not None:
        made.append(Section("heldout", "Held-out rows", [tables.score_lines(p), *drawn(figures, "heldout.png")]))
    more = [tables.chain_lines(p)] if len(p.chains) > 1 else []
    more += [tables.efficiency_lines(p), *tables.second_opinion(p), *drawn(figures, "mixing.png")]
    chains = chains_section(p.run.chains, SCALARS, p.warnings, [tables.scalar_lines(p)], more)
    return [*made, chains, about_section(p.run.chains, tables.about(p))]


def _figures(p: RunSummary) -> list[Figure]:
    from mpibayes.hpc.regression.report import figures

    run, design = p.run, p.run.design
    made = [Figure("trace.png", figures.trace(run.chains, p.n_rows))]
    pairs = list(zip(design.names, design.references))[int(design.intercept) :]
    names = [""] * design.intercept + [f"{name} against {level}" if level else name for name, level in pairs]
    if any(names):
        words = f"of {design.classes[1]} against {design.reference_class}; " if design.likelihood.odds else ""
        words += "mean, 5 to 95 %" + ("; numeric predictors in standard deviations" if design.standardise else "")
        words += "; less the mean over classes" if design.n_classes > 1 else ""
        if design.standardised_response:
            words += ", of the response as well"
        classes = design.classes if design.n_classes > 1 else ()
        picture = figures.forest(p.shown, names, classes, design.likelihood.coefficients_title, words)
        made.append(Figure("coefficients.png", picture, "The coefficients furthest from 0: mean, 5 to 95 %"))
    worst = np.argsort(np.nan_to_num(p.shown.ess_bulk, nan=-1.0), kind="stable")
    chosen = list(dict.fromkeys([*worst[:3].tolist(), int(worst[len(worst) // 2])]))
    draws = [centred(d).reshape(len(d), -1)[:, chosen] for d in run.coefficients()]
    picture = figures.mixing(draws, run.chains, [p.names[j] for j in chosen], [p.shown.ess_bulk[j] for j in chosen])
    words = "Draws and autocorrelation of the coefficients with the fewest effective draws"
    made.append(Figure("mixing.png", picture, words))
    if p.scores is not None:
        if isinstance(p.scores, ClassScores):
            picture = figures.calibration(p.scores, design.classes)
        else:
            picture = figures.places(p.scores, design.response)
        made.append(Figure("heldout.png", picture, "Held-out rows: how well the predictions are calibrated"))
    return made
