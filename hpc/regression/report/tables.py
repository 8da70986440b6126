"""Tables and lines of a regression's report: the run, its sampling, held-out rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibayes.hpc.config.config import Config
from mpibayes.hpc.regression.keys import Firefly
from mpibayes.hpc.regression.report.coefficient_tables import near
from mpibayes.hpc.regression.report.scoring import ClassScores
from mpibayes.hpc.regression.report.summarise import RunSummary
from mpibayes.hpc.regression.scalars import SCALARS
from mpibayes.hpc.report.tables import (
    Lines,
    burn_in_in_words,
    cycles_in_words,
    fixed,
    heldout_in_words,
    means,
    plain_table,
    scalar_table,
    sds,
    shards,
    time_in_words,
)  # fmt: skip
from mpibayes.hpc.report.wide_table import chain_table
from mpibayes.hpc.scalar import named
from mpibayes.text import counted, every, number, percent, took

JUDGED = 100  # least number of log posterior values that R-hat needs
ENOUGH = 20  # least number of log posterior values that locate a chain


# --- what was run -----------------------------------------------------------------------------------------------------


def about(p: RunSummary) -> Lines:
    run, chains, config = p.run, p.run.chains, p.run.chains[0].config
    lines = [
        ("table", str(run.table.path)), ("model", _model(p)), ("predictors", _predictors(p)), ("rows", _rows(p)),
        ("prior", _prior(p)),
    ]  # fmt: skip
    lines += [("sampler", words) for words in dict.fromkeys(_sampler(c.config) for c in chains)]
    n_draws = sum(int((c.trace["cycle"] > c.burn_in).sum()) for c in chains)
    exact = max(min(c.config.burn_in, c.config.run.cycles) for c in chains) + 1
    words = f"from cycle {exact:,} on, after adaptation: every cycle leaves the posterior invariant, "
    kept = took(sum(c.kept_seconds for c in p.chains))
    return [
        *lines,
        *cycles_in_words(chains, [c.cycles for c in p.chains]),
        *burn_in_in_words([c.burn_in for c in p.chains], counted(n_draws, "draw")),
        *time_in_words([c.seconds for c in p.chains], f", {kept} of it after burn-in"),
        ("exact", words + f"on any number of ranks ({shards(config)})"),
    ]


def _model(p: RunSummary) -> str:
    design, s = p.run.design, p.run.settings
    m = p.run.likelihood
    words = f"{m.title} regression of {design.response}: {m.in_words(design.classes)}"
    if not m.has_scale:
        return words
    how = {"auto": "the most probable one", "heldout": "the best one on held-out rows"}.get(str(s.scale), "given")
    words += f" ({how})"
    return words + (f", that is {number(m.scale * design.scale)} in the table's units" if design.standardise else "")


def _predictors(p: RunSummary) -> str:
    design = p.run.design
    numeric = sum(t.numeric for t in design.terms)
    others = [t for t in design.terms if not t.numeric]
    kinds = []
    if numeric:
        standard = " (in standard deviations about their mean)" if design.standardise else ""
        kinds.append(f"{numeric:,} numeric{standard}")
    if others:
        levels = sum(len(t.column.levels) - 1 for t in others)
        kinds.append(f"{len(others):,} categorical ({counted(levels, 'level')}, each against its column's first)")
    if marks := sum(t.indicator for t in design.terms):
        kinds.append(f"{marks:,} that mark{'s' * (marks == 1)} missing cells")
    kinds.append("an intercept" if design.intercept else "no intercept")
    return f"{counted(len(design.terms), 'column')}: {', '.join(kinds)}; {counted(design.n_parameters, 'coefficient')}"


def _rows(p: RunSummary) -> str:
    rows = counted(p.n_rows, "training row")
    if p.n_rows < p.run.n_rows:
        rows += f" ({p.run.n_rows - p.n_rows:,} more were left out for their missing cells)"
    return rows + heldout_in_words(p.run)


def _prior(p: RunSummary) -> str:
    s = p.run.settings
    if s.prior == "flat":
        return "flat"
    kind = {"gaussian": "Gaussian, standard deviation", "laplace": "Laplace, scale"}[s.prior]
    chosen = ", chosen on held-out rows" if s.prior_scale == "heldout" else ""
    words = f"{kind} {number(p.run.prior_scale)}{chosen}"
    if not s.intercept:
        return words
    of_intercept = f"Gaussian, standard deviation {number(s.intercept_scale)}"
    return f"{words}; of the intercept {of_intercept}" if p.run.design.terms else of_intercept


def _sampler(config: Config) -> str:
    f = config.of(Firefly)
    steps = f" with {counted(f.leapfrog_steps, 'leapfrog step')}" if f.theta_update == "hmc" else ""
    update = f"{f.theta_update}{steps}"
    update += " in coordinates whitened by Laplace's approximation" if f.whiten else ""
    if f.bounds == "none":
        return f"every row in every step (firefly.bounds = none); {update}"
    untuned = "where all rows are alike" if f.xi == "auto" else f"at {f.xi:g}"
    touch = {"tuned": "at the posterior mode", "untuned": untuned}[f.bounds]
    words = f"Firefly Monte Carlo, bounds that touch {touch}, {f.z_update} updates of brightness; {update}"
    if f.refresh == "auto" and f.theta_update == "hmc" and f.whiten:
        return f"{words}; now and then a step on all rows"
    return f"{words}; a step on all rows {every(f.refresh)}" if f.refresh not in ("auto", 0) else words


# --- how it was sampled -----------------------------------------------------------------------------------------------


def scalar_lines(p: RunSummary) -> Any:
    summaries, remarks = dict(p.scalars), {}
    if "n_bright" in summaries:
        remarks["n_bright"] = f"{percent(summaries['n_bright'].mean / p.n_rows)} of the rows"
    if "log_posterior" in summaries and _all_rows(p):
        summaries.pop("lp", None)  # same as log_posterior
    elif "log_posterior" in summaries:
        remarks["log_posterior"] = f"in {summaries['log_posterior'].n_draws:,} of the draws"
    judged = [name for name in ("log_posterior", "lp", "n_bright") if name in summaries]
    judged = [name for name in judged if summaries[name].n_draws >= JUDGED]
    return scalar_table(SCALARS, summaries, remarks, unjudged=summaries.keys() - set(judged))


def _all_rows(p: RunSummary) -> bool:
    return p.run.chains[0].config.of(Firefly).bounds == "none"


def chain_lines(p: RunSummary) -> Any:
    seen = all("log_posterior" in c.scalars and c.scalars["log_posterior"].n_draws >= ENOUGH for c in p.chains)
    names = ("log_posterior" if seen else "lp", "acceptance_rate", "step_size", "n_bright")
    level, accepted, step, bright = (named(SCALARS)[name] for name in names)
    chains = [c.scalars for c in p.chains]
    return chain_table(
        {
            "chains": [c.name for c in p.chains],
            "cycles": [f"{c.cycles:,}" for c in p.chains],
            "time": [took(c.seconds) for c in p.chains],
            level.label: means(level, chains),
            "sd": sds(level, chains),
            accepted.label: means(accepted, chains),
            step.label: means(step, chains),
            bright.column: means(bright, chains),
            "queries": [f"{c.queries:,.0f}" for c in p.chains],
        }
    )


def efficiency_lines(p: RunSummary) -> Any:
    e = p.efficiency
    table = plain_table("effective draws (ESS, bulk)", "least", "median", "")
    of = f"of {len(p.theta):,} coefficients" if len(p.theta) > 1 else ""
    of += ", each less the mean of all classes" if p.run.design.n_classes > 1 else ""
    table.add_row(f"in {counted(e.cycles, 'cycle')} after burn-in", fixed(e.least, 0), fixed(e.median, 0), of)
    queries, theta = (
        sum(n * c.kept_cycles for n, c in zip(each, p.chains)) / max(e.cycles, 1)
        for each in ([c.queries for c in p.chains], [c.queries_theta for c in p.chains])
    )
    often = queries / p.n_rows
    share = f"{often:.2g} times all rows" if often >= 0.1 else f"{percent(often)} of all rows"
    pace = f"a cycle takes {1e6 * e.seconds / max(e.cycles, 1):,.0f} µs"
    looks = f"a cycle evaluates {queries:,.0f}, {theta:,.0f} for the coefficients; {share}"
    for words, cost, remark in (
        ("per 1,000 cycles", e.cycles / 1000, ""),
        ("per second", e.seconds, pace),
        ("per 1,000 likelihoods", e.queries / 1000, looks),
    ):
        table.add_row(words, *map(number, e.per(cost)), remark)
    return table


def second_opinion(p: RunSummary) -> list[Any]:
    from mpibayes.terminal import Text

    o = p.importance
    if o is None:
        return []
    text = Text("A second opinion, by Laplace importance sampling: ", style="bold")
    words = f"{o.n_draws:,} draws, {o.n_effective:,.0f} of them effective, Pareto k {o.pareto_k:.2f}. "
    if not o.possible:
        words += (
            f"The chain has too few effective draws ({o.chain_effective:.0f} of a coefficient) to be compared with it."
        )
    elif not o.trusted:
        words += "The normal approximation is too far from the posterior to be compared with the chain (k above 0.5)."
    else:
        verdict = "It agrees with the chain" if o.agrees else "It does not agree with the chain"
        words += (
            f"{verdict}: the means differ by at most {o.mean_gap:.1f} standard errors, the standard deviations by "
            f"{o.sd_gap:.1f}; sound chains exceed {o.by_chance:.1f} once in 1,000 reports."
        )
    text.append(words, style="not bold")
    return [text]


# --- held-out rows ----------------------------------------------------------------------------------------------------


def score_lines(p: RunSummary) -> Any:
    s = p.scores
    draws = f"mean over {counted(s.n_draws, 'draw')}"
    if isinstance(s, ClassScores):
        table = plain_table(f"{s.n_rows:,} held-out rows", draws, "", "posterior mean", "most frequent class")
        shares = s.by_class[s.by_class > 0] / s.by_class.sum()
        entropy = float(-(shares * np.log(shares)).sum())
        table.add_row(
            "accuracy", fixed(s.correct.value, 4), f"± {fixed(s.correct.error, 4)}", fixed(s.correct_at_mean.value, 4),
            fixed(s.by_frequency, 4),
        )  # fmt: skip
        table.add_row(
            "log loss, nats a row", fixed(-s.log_density.value, 4), f"± {fixed(s.log_density.error, 4)}",
            fixed(-s.at_mean.value, 4), fixed(entropy, 4),
        )  # fmt: skip
        return table
    table = plain_table(f"{s.n_rows:,} held-out rows", draws, "", "posterior mean", "their own mean")
    error = s.squared.error / (2.0 * s.rmse) if s.rmse > 0 else 0.0
    of_squares, of_sizes = near(error, error), near(s.absolute.error, s.absolute.error)
    table.add_row("root mean squared error", near(s.rmse, error), f"± {of_squares}", "", near(s.rmse_of_mean, error))
    table.add_row("mean absolute error", near(s.absolute.value, s.absolute.error), f"± {of_sizes}", "", "")
    table.add_row(
        "log predictive density, nats a row", fixed(s.log_density.value, 4), f"± {fixed(s.log_density.error, 4)}",
        fixed(s.at_mean.value, 4), "",
    )  # fmt: skip
    table.add_row("within their 90 % intervals", percent(s.covered.value), f"± {percent(s.covered.error)}", "", "")
    return table
