"""Report of the posterior of an Indian buffet process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpibayes.hpc.ibp.draws import Posterior
from mpibayes.hpc.ibp.keys import Data, Sampler
from mpibayes.hpc.ibp.keys import Report as ReportKeys
from mpibayes.hpc.ibp.report.numbers import csv, numbers
from mpibayes.hpc.ibp.report.summarise import FeatureLine, RunSummary, summarise
from mpibayes.hpc.ibp.scalars import COMMON, SCALARS
from mpibayes.hpc.posterior.scalars import r_hat_in_words
from mpibayes.hpc.report.document import (
    BAD,
    DOUBT,
    GOOD,
    Details,
    Document,
    Field,
    Figure,
    Numbers,
    Section,
    Table,
    Verdict,
    drawn,
    on_page,
    on_paper,
)  # fmt: skip
from mpibayes.hpc.report.tables import (
    Lines,
    about_section,
    burn_in_in_words,
    chains_section,
    cycles_in_words,
    fixed,
    means,
    plain_table,
    rows_in_words,
    scalar_table,
    sds,
    sentence,
    shards,
    time_in_words,
    use_it,
    warned,
)  # fmt: skip
from mpibayes.hpc.report.wide_table import Group, WideTable, chain_table
from mpibayes.hpc.scalar import named
from mpibayes.text import counted, number, percent, span, took, visible

TOP = 12  # features on the terminal
SHOWN = 30  # features on paper, most rows first
NAMED = 5  # columns named for a feature, largest loadings first
APART = 1.1  # R-hat of the log joint beyond which chains contradict each other
SHOWN_COLUMNS = 60  # most columns in the table of loadings; beyond, the picture and loadings.csv
MANY_COUNTS = 12  # most numbers of features listed with probabilities
EXAMPLES = 8  # reconstructed rows
AVERAGES = {
    "heldout_lpd_averaged": ("held-out, averaged", "log of the mean density, nats a row"),
    "heldout_cell_lpd_averaged": ("held-out cells, averaged", "log of the mean density, nats a cell"),
    "heldout_cell_rmse": ("held-out cells, RMSE", "standard deviations of the column"),
}
FIELDS = (
    Field("#", "whole"), Field("feature", "text", "its largest loadings, in the table's units"),
    Field("rows", "whole"), Field("share", "share", "of the rows"),
    Field("in draws", "share", "share of the draws that have a match"),
    Field("same rows", "share", "of the rows that have it or its match, those that have both"),
)  # fmt: skip


def make(run: Posterior) -> Document:
    """See `report.report`."""
    p = summarise(run)
    figures, features = _figures(p), _features(p)
    top = [features.brief(TOP, ("#", "rows", "share", "in draws", "feature"), "features of most rows")]
    return Document(
        run.chains, verdict(p), sections(p, features, figures), numbers(p), top if p.features else [], figures,
        {"loadings.csv": csv(p)} if p.features and run.likelihood else {},
    )  # fmt: skip


def verdict(p: RunSummary) -> Verdict:
    """Verdict: the result, whether the chains agree, and what to do next."""
    several, joint = len(p.chains) > 1, p.scalars.get("log_joint")
    r_hat = joint.r_hat if joint is not None else np.nan
    if contradicted(len(p.chains), r_hat):
        sound = BAD
    else:
        sound = GOOD if several and p.settled.settled and not p.warnings else DOUBT
    if several:
        agree = "too few draws to say" if not np.isfinite(r_hat) else "Yes" if r_hat <= APART else "No"
        chains = [f"{agree}: R-hat of the log joint of {len(p.chains)} chains is {r_hat_in_words(r_hat)}."]
    else:
        chains = ["One chain only, which cannot show that it is stuck."]
    chains.append(f"Settled? {sentence(str(p.settled))} {p.settled.meaning}".rstrip())
    steps = [] if several else ["Run more than one chain (run.chains = 2), so that they can be compared."]
    use, commands = use_it(p.run, sound)
    return Verdict(_found(p), chains, [*steps, *use], sound, commands=commands, warnings=warned(p.warnings))


def contradicted(n_chains: int, r_hat: float) -> bool:
    """True if the R-hat of the log joint shows that chains disagree."""
    return n_chains > 1 and r_hat > APART


def _found(p: RunSummary) -> list[str]:
    sentences = [] if p.run.likelihood else ["Draws of the prior: the cells were ignored (model.likelihood = false)."]
    sentences.append(
        f"Features of {counted(p.run.n_rows, 'row')} of {counted(len(p.run.cells), 'column')}: {_how_many(p)}."
    )
    for name, (label, words) in AVERAGES.items():
        if name in p.averaged:
            sentences.append(f"{label}: {p.averaged[name]:.3f} ({words}).")
    return [sentence(s.removesuffix(".")) for s in sentences]


def sections(p: RunSummary, features: Table, figures: Sequence[Figure]) -> list[Section]:
    """The sections, in order."""
    made, several = [], len(p.chains) > 1
    if p.representative is not None:
        loadings = [on_paper(*_loadings(p))] if p.features and p.run.likelihood else []
        made.append(
            Section("features", "Features", [[_title(p), features], *drawn(figures, "features.png"), *loadings])
        )
    if p.features:
        made.append(Section("rows", "Rows", [_combinations(p), *drawn(figures, "rows.png"), _together(p)]))
    words = on_page("How many features the draws have:")
    summary, more = [_scalars(p), [words, _counts(p)]], [_chains(p)] if several else []
    return [
        *made,
        chains_section(p.run.chains, SCALARS, p.warnings, summary, more),
        about_section(p.run.chains, _about(p)),
    ]


# --- what was run -----------------------------------------------------------------------------------------------------


def _about(p: RunSummary) -> Lines:
    run, config = p.run, p.run.chains[0].config
    lines = [("table", str(run.table.path)), ("rows", rows_in_words(run)), ("model", _model(p))]
    held = config.of(Data).heldout_cells
    if held is not None and run.likelihood:
        lines.append(("", f"{percent(held)} of their cells, drawn for each by itself, held out"))
    missing = sum(c.n_missing for c in run.cells.columns)
    if missing:
        cells = run.table.n_rows * len(run.cells)
        words = f"{missing:,} cells, {percent(missing / cells)}, drawn anew in every cycle given the others"
        lines.append(("missing", words))
    law, opening = "posterior" if run.likelihood else "prior", config.of(Sampler).opening
    how = f"{shards(config)}, opening = {opening}"
    return [
        *lines,
        *cycles_in_words(run.chains, [c.cycles for c in p.chains]),
        *time_in_words([c.seconds for c in p.chains]),
        *burn_in_in_words([c.burn_in for c in p.chains], f"{counted(p.n_kept, 'draw')} of the features"),
        ("exact", f"every cycle leaves the {law} invariant, on any number of ranks ({how})"),
        ("settled", f"{p.settled}. {p.settled.meaning}" if p.settled.meaning else str(p.settled)),
        ("features", _how_many(p)),
    ]


def _how_many(p: RunSummary) -> str:
    """Number of features, in words, without those that come and go."""
    mode, share = most_likely(p.common)
    if p.common_rows == 1:
        return f"{mode} in {percent(share)} of the draws"
    words = f"{mode} that at least {p.common_rows:,} rows ({percent(COMMON)}) have, in {percent(share)} of the draws"
    least, most = (min(p.counts), max(p.counts))
    return words if p.counts == p.common else f"{words}; {span([least, most])} with rarer ones, which come and go"


def most_likely(counts: dict[int, float]) -> tuple[int, float]:
    """Return the most frequent number, and its share."""
    return max(counts.items(), key=lambda item: item[1])


def _model(p: RunSummary) -> str:
    run = p.run
    if not run.likelihood:
        return "the prior on features: cells were ignored (model.likelihood = false)"
    units = "centred and divided by their standard deviations" if run.standardise else "as they are in the table"
    noise = "one noise for all" if run.noise == "shared" else "a noise for each"
    return f"linear-Gaussian features of {counted(len(run.cells), 'column')}, {units}; {noise}"


# --- how it was sampled -----------------------------------------------------------------------------------------------


def _scalars(p: RunSummary) -> Any:
    modes = {"n_features": p.counts, "common_features": p.common}
    remarks = {
        name: f"mode {mode} ({percent(share)})"
        for name, (mode, share) in ((name, most_likely(counts)) for name, counts in modes.items())
    }
    remarks["common_features"] += f"; of {p.common_rows:,} rows or more"
    if p.run.noise == "column":
        remarks["feature_sd"] = "over the noise of the column"
        remarks["noise_sd"] = "root of the columns' mean variance"
    table = scalar_table(SCALARS, p.scalars, remarks)
    for name, (label, words) in AVERAGES.items():
        if name in p.averaged:
            table.add_row(label, fixed(p.averaged[name], 3), *[""] * 5, words)
    return table


def _counts(p: RunSummary) -> Any:
    """Table of P(K | table), around the most probable numbers; for common features too, if there are others."""
    rows = {"share of the draws": p.counts}
    if p.counts != p.common:
        rows = {"share of the draws, all": p.counts, f"those of {p.common_rows:,} rows or more": p.common}
    likely = sorted({k for counts in rows.values() for k in sorted(counts, key=counts.get)[-MANY_COUNTS:]})
    groups = [Group((str(k),), [(percent(c[k]) if k in c else "",) for c in rows.values()]) for k in likely]
    return WideTable(list(rows), groups, "features")


def _chains(p: RunSummary) -> Any:
    of = named(SCALARS)
    chains = [c.scalars for c in p.chains]
    joint, k, common, each = (of[n] for n in ("log_joint", "n_features", "common_features", "features_of_row"))
    columns = {
        "chains": [c.name for c in p.chains], "cycles": [f"{c.cycles:,}" for c in p.chains],
        "time": [took(c.seconds) for c in p.chains], joint.column: means(joint, chains), "sd": sds(joint, chains),
        k.column: means(k, chains), common.column: means(common, chains), each.column: means(each, chains),
    }  # fmt: skip
    for name, heading in (("heldout_lpd_averaged", "held-out"), ("heldout_cell_lpd_averaged", "held-out cells")):
        if name in p.averaged:
            columns[heading] = [fixed(c.averaged.get(name, np.nan), 3) for c in p.chains]
    return chain_table(columns)


# --- features ---------------------------------------------------------------------------------------------------------


def _features(p: RunSummary) -> Table:
    """Table of the features of the representative draw."""
    rows = [[f.number, _named(p, f), f.rows, f.share, f.stability, f.alike] for f in p.features]
    details = None
    if p.run.likelihood and p.features:
        loadings, errors = (np.array([getattr(f, name) for f in p.features]) for name in ("loadings", "errors"))
        columns = [
            Numbers(c.name, (0.0, c.scale), loadings[:, d], errors[:, d], np.abs(loadings[:, d]) / c.scale)
            for d, c in enumerate(p.run.cells.columns)
        ]
        order = "how large the loading is, in standard deviations of the column"
        details = Details(columns, order, "0, with the column's standard deviation", "the loading, with its error")
    titles = [f"Feature {f.number} ({f.rows:,} rows, {percent(f.share)})" for f in p.features]
    return Table("feature", FIELDS, rows, details, titles, most=SHOWN, more="of fewer rows")


def _title(p: RunSummary) -> list[Any]:
    """Name the draw that the features come from."""
    from mpibayes.terminal import Text

    r = p.representative
    chain = p.run.chains[r.chain]
    words = f"Features of the representative draw (cycle {r.draw.cycle:,} of {chain.name})."
    words += " Choose one to see its loadings on all columns." if p.run.likelihood else ""
    title = Text(f"Features of the representative draw (cycle {r.draw.cycle:,} of {chain.folder}): ", style="bold")
    rest = f"{counted(len(r.draw), 'feature')}; the other draws differ from it in {number(r.loss)} features a row"
    return [on_page(words), on_paper(title.append(rest, style="not bold"))]


def _named(p: RunSummary, f: FeatureLine) -> str:
    """Name a feature by the columns of its largest loadings, or for pixels, whose names mean little, by its number."""
    if not p.run.likelihood or _as_pictures(p):
        return f"feature {f.number}"
    columns = p.run.cells.columns
    most = np.argsort(-np.abs(f.loadings / p.run.cells.scale), kind="stable")[:NAMED]
    return ", ".join(f"{columns[d].name} {f.loadings[d]:+.3g}" for d in most)


def _combinations(p: RunSummary) -> Any:
    table = plain_table("rows with exactly these features", "rows", "share")
    for c in p.combinations:
        table.add_row(" ".join(map(str, c.features)) or "none", f"{c.rows:,}", percent(c.rows / p.run.n_rows))
    return table


def _together(p: RunSummary) -> list[Any]:
    """List pairs of common features that rows share more often, or more rarely, than if they were independent."""
    shown, n = min(sum(f.rows >= p.common_rows for f in p.features), 12), p.run.n_rows
    if shown < 2:
        return []
    together = p.representative.draw.together
    expected = np.outer(together.diagonal(), together.diagonal()) / n
    groups = [
        Group((str(j + 1),), [(f"{together[i, j] / expected[i, j]:.2f}" if i != j else "",) for i in range(shown)])
        for j in range(shown)
    ]
    title = "Rows that have two features, over what chance would make of them"
    return [title, WideTable([str(i + 1) for i in range(shown)], groups, "feature")]


def _as_pictures(p: RunSummary) -> bool:
    """True if the columns are pixels, whose names mean little."""
    return p.run.chains[0].config.of(ReportKeys).image is not None


def _to_error(value: float, error: float) -> tuple[str, str]:
    """Format a number and its standard deviation, with two significant digits of the latter."""
    digits = int(np.clip(1 - np.floor(np.log10(error)), 0, 9)) if error > 0.0 else 3
    return fixed(value, digits), fixed(error, digits)


def _loadings(p: RunSummary) -> list[Any]:
    cells, features = p.run.cells, p.features[:SHOWN]
    if _as_pictures(p):
        return ["Loadings are in features.png as pictures, and in loadings.csv as numbers"]
    if len(cells) > SHOWN_COLUMNS:
        return [f"Loadings of {len(cells):,} columns are in loadings.csv, and in features.png"]
    noise = p.of_columns
    groups = [
        Group((f"feature {f.number}", "±"), [_to_error(a, e) for a, e in zip(f.loadings, f.errors)]) for f in features
    ]
    if noise is not None:
        groups.insert(0, Group(("noise",), [(f"{s:.3g}",) for s in noise]))
    about = " about the column's mean" if p.run.standardise else ""
    title = f"Loadings in the table's units{about}, mean and standard deviation given the draw"
    return [title, WideTable([visible(c.name) for c in cells.columns], groups, "column")]


# --- figures ----------------------------------------------------------------------------------------------------------


def _figures(p: RunSummary) -> list[Figure]:
    from mpibayes.hpc.ibp.report import figures

    run, made = p.run, [Figure("trace.png", figures.trace(p.run.chains))]
    if not (p.features and run.likelihood):
        return made
    words, image = "Features: share of the rows, and their loadings", run.chains[0].config.of(ReportKeys).image
    if image is None:
        names, scales = [c.name for c in run.cells.columns], np.array([c.scale for c in run.cells.columns])
        return [*made, Figure("features.png", figures.profiles(p.features, names, scales), words)]
    rebuilt = figures.rebuilt(*_examples(p), image)
    return [
        *made,
        Figure("features.png", figures.pictures(p.features, image), words),
        Figure("rows.png", rebuilt, "Rows, and below them what their features make of them"),
    ]


def _examples(p: RunSummary) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return example rows from all over the table in its units, NaN where a cell is missing; the sums of the loadings
    of their features in the representative draw; and their titles."""
    run, draw = p.run, p.representative.draw
    at = np.unique(np.linspace(0, run.n_rows - 1, EXAMPLES).astype(np.int64))
    rows, has = run.cells.of(run.data.rows_at(at)), draw.rows()[at]
    fitted = has @ draw.new_row().means
    numbers = at if run.data.training_rows is None else run.data.training_rows[at]
    titles = [
        f"row {n + 1:,}: {' '.join(str(k + 1) for k in np.flatnonzero(h)) or '-'}"
        for n, h in zip(numbers.tolist(), has)
    ]
    return (*(x * run.cells.scale + run.cells.center for x in (rows, fitted)), titles)
