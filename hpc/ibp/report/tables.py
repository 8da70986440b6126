"""The text of the report of an Indian buffet process."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibayes.hpc.ibp.keys import Data, Report, Sampler
from mpibayes.hpc.ibp.report.summarise import RunSummary
from mpibayes.hpc.ibp.scalars import COMMON, SCALARS
from mpibayes.hpc.report.tables import (
    fixed,
    head,
    means,
    not_started,
    plain_table,
    scalar_table,
    sds,
    shards,
    span,
    states,
    warnings_in_words,
)
from mpibayes.hpc.report.wide_table import Group, WideTable, chain_table
from mpibayes.hpc.scalar import named
from mpibayes.text import counted, number, percent, took, visible

SHOWN_FEATURES = 30  # of the most rows
TOLD = 5  # columns that are named for a feature, those of the largest loadings
SHOWN_COLUMNS = 60  # of the table of loadings; of more columns the picture and loadings.csv
MANY_COUNTS = 12  # numbers of features whose probability is listed
AVERAGES = {
    "heldout_lpd_averaged": ("held-out, averaged", "log of the mean density, nats a row"),
    "heldout_cell_lpd_averaged": ("held-out cells, averaged", "log of the mean density, nats a cell"),
    "heldout_cell_rmse": ("held-out cells, RMSE", "standard deviations of the column"),
}


def parts(p: RunSummary) -> list[Any]:
    """Parts of the printed report, in order."""
    shown = [head(p.run.chains, about(p)), "", scalar_lines(p), "", counts(p)]
    if p.warnings:
        shown += ["", warnings_in_words(p.warnings)]
    if len(p.chains) > 1:
        shown += ["", chain_lines(p)]
    if p.representative is not None:
        shown += ["", *_features(p)]
        if p.features:
            shown += ["", combination_lines(p), "", *together(p)]
            if p.run.likelihood:
                shown += ["", *_loadings(p)]
    return shown


def about(p: RunSummary) -> list[tuple[str, str]]:
    run, config = p.run, p.run.chains[0].config
    rows = counted(run.n_rows, "training row")
    if run.data.heldout is not None:
        rows += f", {len(run.data.heldout):,} held out"
    elif config.heldout_path is not None:
        rows += f"; held-out rows from {config.heldout_path}"
    lines = [("table", str(run.table.path)), ("rows", rows), ("model", _model(p))]
    held = config.of(Data).heldout_cells
    if held is not None and run.likelihood:
        lines.append(("", f"{percent(held)} of their cells, drawn for each by itself, held out"))
    missing = sum(c.n_missing for c in run.cells.columns)
    if missing:
        cells = run.table.n_rows * len(run.cells)
        words = f"{missing:,} cells, {percent(missing / cells)}, drawn anew in every cycle given the others"
        lines.append(("missing", words))
    several = f", {len(p.chains)} chains" if len(p.chains) > 1 else ""
    planned = span([c.config.run.cycles for c in run.chains])
    lines += [
        ("cycles", f"{span([c.cycles for c in p.chains])} of {planned}{several}, {states(run.chains)}"),
        *not_started(run.chains),
        ("time", f"{took(sum(c.seconds for c in p.chains))}{' of all chains' if several else ''} in cycles"),
    ]
    left_out = span([c.burn_in for c in p.chains], "cycle")
    lines.append(("burn-in", f"{left_out} left out; {counted(p.n_kept, 'draw')} of the features kept after it"))
    opening = config.of(Sampler).opening
    law, how = "posterior" if run.likelihood else "prior", f"{shards(config)}, opening = {opening}"
    lines.append(("exact", f"every cycle leaves the {law} invariant, on any number of ranks ({how})"))
    lines.append(("settled", f"{p.settled}. {p.settled.meaning}" if p.settled.meaning else str(p.settled)))
    lines.append(("features", verdict(p)))
    return lines


def verdict(p: RunSummary) -> str:
    """Number of features, in words, apart from those that come and go."""
    mode, share = most_likely(p.common)
    if p.common_rows == 1:
        return f"{mode} in {percent(share)} of the draws"
    words = f"{mode} that at least {p.common_rows:,} rows ({percent(COMMON)}) have, in {percent(share)} of the draws"
    least, most = (min(p.counts), max(p.counts))
    return words if p.counts == p.common else f"{words}; {span([least, most])} with rarer ones, which come and go"


def most_likely(counts: dict[int, float]) -> tuple[int, float]:
    """The most frequent number, and its share."""
    return max(counts.items(), key=lambda item: item[1])


def _model(p: RunSummary) -> str:
    run = p.run
    if not run.likelihood:
        return "the prior on features: cells were ignored (model.likelihood = false)"
    units = "centred and divided by their standard deviations" if run.standardise else "as they are in the table"
    noise = "one noise for all" if run.noise == "shared" else "a noise for each"
    return f"linear-Gaussian features of {counted(len(run.cells), 'column')}, {units}; {noise}"


def scalar_lines(p: RunSummary) -> Any:
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


def counts(p: RunSummary) -> Any:
    """P(K | table), around the most probable numbers; of common features too, where there are others."""
    rows = {"share of the draws": p.counts}
    if p.counts != p.common:
        rows = {"share of the draws, all": p.counts, f"those of {p.common_rows:,} rows or more": p.common}
    likely = sorted({k for counts in rows.values() for k in sorted(counts, key=counts.get)[-MANY_COUNTS:]})
    groups = [Group((str(k),), [(percent(c[k]) if k in c else "",) for c in rows.values()]) for k in likely]
    return WideTable(list(rows), groups, "features")


def chain_lines(p: RunSummary) -> Any:
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


def _features(p: RunSummary) -> list[Any]:
    """A line a feature of the representative draw."""
    from mpibayes.terminal import Text

    r, names = p.representative, [c.name for c in p.run.cells.columns]
    words = f"Features of the representative draw (cycle {r.draw.cycle:,} of {p.run.chains[r.chain].folder}): "
    title = Text(words, style="bold")
    rest = f"{counted(len(r.draw), 'feature')}; the other draws differ from it in {number(r.loss)} features a row"
    title.append(rest, style="not bold")
    table, shown = plain_table("feature", "rows", "share", "in draws", "same rows", ""), 0 if _as_pictures(p) else TOLD
    for line in p.features[:SHOWN_FEATURES]:
        most = np.argsort(-np.abs(line.loadings / p.run.cells.scale), kind="stable")[:shown] if names else ()
        loadings = ", ".join(f"{visible(names[d])} {line.loadings[d]:+.3g}" for d in most)
        table.add_row(
            str(line.number), f"{line.rows:,}", percent(line.share), percent(line.stability),
            percent(line.alike) if np.isfinite(line.alike) else "-", Text(loadings),
        )  # fmt: skip
    left = len(p.features) - SHOWN_FEATURES
    more = [f"and {counted(left, 'feature')} of fewer rows"] if left > 0 else []
    return [title, table, *more]


def combination_lines(p: RunSummary) -> Any:
    table = plain_table("rows with exactly these features", "rows", "share")
    for c in p.combinations:
        table.add_row(" ".join(map(str, c.features)) or "none", f"{c.rows:,}", percent(c.rows / p.run.n_rows))
    return table


def together(p: RunSummary) -> list[Any]:
    """Pairs of common features that rows have together more often, or more seldom, than if they had nothing to do with
    each other."""
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
    """True if the columns are pixels, whose names say little."""
    return p.run.chains[0].config.of(Report).image is not None


def _to_error(value: float, error: float) -> tuple[str, str]:
    """A number and its standard deviation, with two figures of the latter."""
    digits = int(np.clip(1 - np.floor(np.log10(error)), 0, 9)) if error > 0.0 else 3
    return fixed(value, digits), fixed(error, digits)


def _loadings(p: RunSummary) -> list[Any]:
    cells, features = p.run.cells, p.features[:SHOWN_FEATURES]
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
