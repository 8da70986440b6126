"""The outcome in the report: effect of each cluster of the representative partition against all rows, and the global
coefficients, each with a posterior interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpibayes.hpc.crosscat.draws import Posterior
from mpibayes.hpc.crosscat.report import outcome_scores
from mpibayes.hpc.crosscat.report.outcome_scores import Scores, scores_of, without_clusters
from mpibayes.hpc.crosscat.summaries.outcomes import Outcomes
from mpibayes.hpc.crosscat.summaries.partitions import contingency
from mpibayes.hpc.crosscat.summaries.representative import Representative
from mpibayes.hpc.posterior.chains import evenly
from mpibayes.hpc.report.document import PAGE, Field, Section, Table, on_page, on_paper
from mpibayes.text import enumerated, number

DRAWS, LISTED = 1_000, 30
POINTS = (0.05, 0.5, 0.95)
NORMAL_95 = 1.6449
LEAST = 0.02


@dataclass(frozen=True)
class Effects:
    """Effects at POINTS of their draws, of C linear predictors: of a softmax those of all levels but the first, else 1.
    of_clusters (R, C, 3): eta of a cluster minus that of all rows, at the mean of the slopes' predictors; of_covariates
    (C, D, 3): coefficients. names, against: of the covariates' predictors. observed (R + 1, C): mean outcome of the
    rows with an outcome, or share of the level, of all rows last (NaN without any); known (R + 1,): number of these
    rows. scale: posterior median, of a numeric outcome; else NaN.
    plain (C, D, 3): coefficients of a regression without clusters, at the same points. apart: predictors that are not
    columns of the clusters' view and whose mean differs between clusters. scores: None if no row is held out. view:
    place of the clusters' view among the representative views; share: of the draws in which the outcome is there."""

    of: Outcomes
    of_clusters: np.ndarray
    of_covariates: np.ndarray
    names: Sequence[str]
    against: Sequence[str]
    observed: np.ndarray
    known: np.ndarray
    scale: float
    plain: np.ndarray
    apart: Sequence[str]
    scores: Scores | None
    view: int = 0
    share: float = 1.0

    @property
    def ratio(self) -> bool:
        """True if effects are shown as ratios."""
        return self.of.columns.likelihood.ratio

    @property
    def levels(self) -> list[tuple[str, ...]]:
        """Level of each linear predictor of a softmax, in a tuple; else one empty tuple."""
        return [(level,) for level in self.of.columns.eta_levels] or [()]

    def shown(self, effects: np.ndarray) -> np.ndarray:
        """Return effects as ratios, or in units of the table."""
        return np.exp(effects) if self.ratio else effects * self.of.columns.centre_and_unit[1]


def effects_of(run: Posterior, views: Sequence[Representative]) -> Effects | None:
    """Return the effects in the clusters of the representative view that has the outcome in most draws, averaged over
    its rows' clusters in each draw; None without an outcome or a draw after burn-in."""
    of, kept = run.outcomes, evenly(run.kept(), DRAWS)
    if of is None or not kept:
        return None
    view, share = _view(run, kept, views)
    r = views[view]
    answers, clusters, covariates, scale = of.answers, [], [], []
    v = np.concatenate([[1.0], answers.u.mean(axis=0, dtype=np.float64)])
    for _, draw in run.states(kept):
        state, together = of.state(draw), contingency(r.labels, draw.labels[draw.outcome_view])
        eta = np.stack([state.law.own(state.theta, c) @ v for c in range(of.columns.n_eta)], axis=1)
        of_all = together.sum(axis=0) @ eta / together.sum()
        clusters.append(together @ eta / together.sum(axis=1)[:, None] - of_all)
        covariates.append(state.beta.reshape(of.columns.n_eta, -1))
        scale.append(state.law.scale if of.columns.likelihood.has_scale else np.nan)
    known = ~np.isnan(answers.y)
    n = np.bincount(r.labels[known], minlength=len(r.sizes))
    total = np.stack([np.bincount(r.labels[known], y, len(r.sizes)) for y in _averaged(of, answers.y[known])], axis=1)
    total, count = np.concatenate([total, total.sum(axis=0)[None]]), np.append(n, n.sum())
    design = of.columns.covariates
    return Effects(
        of, _points(clusters), _points(covariates), design.names, design.references,
        total / np.where(count > 0, count, np.nan)[:, None], count, float(np.median(scale)),
        _plain(of), _apart(of, r), scores_of(run, kept), view, share,
    )  # fmt: skip


def _view(run: Posterior, kept: Sequence[tuple[int, int]], views: Sequence[Representative]) -> tuple[int, float]:
    """Return `Effects.view` and `Effects.share`."""
    if len(views) == 1 and not run.several:
        return 0, 1.0
    votes, n = np.zeros(len(views)), 0
    for _, draw in run.states(kept):
        votes += [r.of.nearest_view(draw) == draw.outcome_view for r in views]
        n += 1
    best = int(votes.argmax())
    return best, float(votes[best] / n)


def _averaged(of: Outcomes, y: np.ndarray) -> list[np.ndarray]:
    """Return the numbers (n,) of rows whose averages are `Effects.observed`, one array each."""
    if of.columns.likelihood.of_levels:
        return [(y == c + 1.0).astype(np.float64) for c in range(of.columns.n_eta)]
    return [(y + 1.0) / 2.0 if of.columns.likelihood.of_classes else of.recorded(y)]


def _plain(of: Outcomes) -> np.ndarray:
    """Return `Effects.plain`."""
    plain, n, c = without_clusters(of), of.columns.covariates.n_predictors, of.columns.n_eta
    if plain is None:
        return np.full((c, n, len(POINTS)), np.nan)
    at, error = (x.reshape(c, -1)[:, -n or x.size :, None] for x in (plain.coefficients, plain.errors))
    return at + error * np.array([-NORMAL_95, 0.0, NORMAL_95])


def _apart(of: Outcomes, r: Representative) -> list[str]:
    """Return `Effects.apart`: predictors whose variance clusters explain to more than LEAST, corrected for chance."""
    names, mine = [], set(r.of.names)
    for design, x in ((of.columns.slopes, of.answers.u), (of.columns.covariates, of.answers.w)):
        for term in design.terms:
            shares = [_explained(x[:, j], r.labels) for j in range(term.first, term.first + term.width)]
            if term.column.name not in mine and max(shares) > LEAST:
                names.append(term.column.name)
    return names


def _explained(x: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of the variance of x (n,) that is between clusters, less its expectation under unrelated
    labels."""
    size = np.bincount(labels)
    mean = np.bincount(labels, x) / size
    n, k, total = len(x), len(size), float(np.var(x, dtype=np.float64))
    if total == 0.0 or n <= k:
        return 0.0
    within = total - float(size @ (mean - x.mean(dtype=np.float64)) ** 2) / n
    return 1.0 - within / (n - k) * (n - 1) / total


def _points(draws: Sequence[np.ndarray]) -> np.ndarray:
    return np.moveaxis(np.quantile(np.array(draws), POINTS, axis=0), 0, -1)


def _or_none(x: float) -> float | None:
    return None if np.isnan(x) else float(x)


def warnings_of(e: Effects | None) -> list[str]:
    """Return warnings of predictors that should be columns of the clusters' view."""
    if e is None:
        return []
    stored = {c.name for c in e.of.run.data.stored}
    unused, elsewhere = ([name for name in e.apart if (name in stored) == there] for there in (False, True))
    takes = "coefficients take a part of the clusters' effect"
    made = []
    for names, one, more, what in (
        (unused, "is no column of the mixture", "are no columns of the mixture", f"{takes}; leave out use = false"),
        (elsewhere, "is in another view", "are in other views", takes),
    ):
        many = len(names) > 1
        which = f"the covariate{'s' * many} {enumerated(names)} differ{'' if many else 's'} between clusters"
        made += [f"{which}, and {more if many else one}: {what}"] if names else []
    return made


def sentences(e: Effects | None) -> list[str]:
    """Return a sentence about the outcome and its effects, for the verdict."""
    if e is None:
        return []
    likelihood, middle = e.of.columns.likelihood, e.shown(e.of_clusters[:, :, 1])
    if len(middle) < 2:
        return [f"The outcome is {e.of.name} ({likelihood.name})."]
    which = f" of levels against {e.of.columns.column.levels[0]}," if likelihood.of_levels else ""
    ends = f"from {number(middle.min())} to {number(middle.max())}"
    return [
        f"The outcome is {e.of.name} ({likelihood.name}): {likelihood.effect}s{which} of clusters against all rows are "
        f"{ends}."
    ]


def section(e: Effects, lines: Sequence[Any], where: str = "") -> Section:
    """Return the outcome's section. lines: of the representative partition's clusters; where: words on their view."""
    likelihood, name = e.of.columns.likelihood, e.of.name
    column, levels = e.of.columns.column, e.levels
    what = f"probability of {column.levels[1]}" if likelihood.of_classes else "mean"
    which = f" of each level against {column.levels[0]}," if likelihood.of_levels else ""
    words = where + (
        f"{name}: the {likelihood.effect}{which} of each cluster against all rows, with the same covariates: median "
        "and 90 % interval over draws, whose clusters are matched by the rows of the representative partition."
    )
    level = [Field("level", "text", f"of {name}, against {column.levels[0]}")] if likelihood.of_levels else []
    if likelihood.of_levels or likelihood.of_times:
        what = f"share {'of the level' if likelihood.of_levels else 'with the event'}"
    numbered = Field("#", "whole", "number, the largest first")
    of_rows = Field("rows", "whole", "with an outcome"), Field("observed", "number", f"{what} in these rows")
    effect = [
        Field(likelihood.effect, "number", "50 % point of its draws"), Field("5 %", "number"), Field("95 %", "number"),
    ]  # fmt: skip
    rows = []
    for line in lines[:LISTED]:
        k = line.number - 1
        for c, of in enumerate(levels):
            low, middle, high = e.shown(e.of_clusters[k, c]).tolist()
            known = int(e.known[k]), _or_none(e.observed[k, c])
            rows.append([line.number, line.name, *of, *known, middle, low, high])
    for c, of in enumerate(levels):
        rows.append([None, "all rows", *of, int(e.known[-1]), _or_none(e.observed[-1, c]), None, None, None])
    fields = [numbered, Field("cluster"), *level, *of_rows, *effect]
    clusters = Table("line", fields, rows, most=(LISTED + 1) * len(levels))
    parts = [[on_page(words), on_paper(words), clusters]]
    if len(e.names):
        unit = ", of numbers by a standard deviation" if e.of.columns.keys.standardise else ""
        global_words = (
            f"Global coefficients: the {likelihood.effect} of each covariate within clusters{unit}; and that of a "
            "regression on the covariates, without clusters."
        )
        each, plain = e.shown(e.of_covariates), e.shown(e.plain)
        lines_of = [
            [covariate, against, *of, *map(float, each[c, j, [1, 0, 2]]), *map(float, plain[c, j, [1, 0, 2]])]
            for j, (covariate, against) in enumerate(zip(e.names, e.against))
            for c, of in enumerate(levels)
        ]
        beside = [
            Field("without clusters", "number", "by a regression on the covariates"),
            Field("its 5 %", "number", on=PAGE), Field("its 95 %", "number", on=PAGE),
        ]  # fmt: skip
        against = Field("against", "text", "the level that it is compared with")
        fields = [Field("covariate"), against, *level, *effect, *beside]
        table = Table("coefficient", fields, lines_of)
        parts.append([on_page(global_words), on_paper(global_words), table])
    if e.scores is not None:
        parts += outcome_scores.parts(e.scores)
    return Section("outcome", f"Outcome: {name}", parts)


def numbers(e: Effects) -> dict[str, Any]:
    """Return the effects for summary.json."""

    def three(x: np.ndarray) -> dict[str, float]:
        return dict(zip(("q05", "q50", "q95"), e.shown(x).tolist()))

    def of_each(made: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the numbers of the only linear predictor, or of a softmax by level."""
        return {level: of for (level,), of in zip(e.levels, made)} if e.of.columns.likelihood.of_levels else made[0]

    def of_covariates(effects: np.ndarray) -> dict[str, Any]:
        return of_each([{name: three(x) for name, x in zip(e.names, of)} for of in effects])

    return {
        "column": e.of.name,
        "likelihood": e.of.columns.likelihood.name,
        "effect": e.of.columns.likelihood.effect,
        "clusters": [
            of_each([three(x) | {"observed": _or_none(o)} for x, o in zip(effects, observed)])
            for effects, observed in zip(e.of_clusters, e.observed)
        ],
        "covariates": of_covariates(e.of_covariates),
        "without_clusters": of_covariates(e.plain),
        "heldout": None if e.scores is None else outcome_scores.numbers(e.scores),
        "scale": _or_none(e.scale),
    }
