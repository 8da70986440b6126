"""The report of a comparison: its text, its page and summary.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpibayes.hpc.comparison import words
from mpibayes.hpc.comparison.comparison import Comparison, Side
from mpibayes.hpc.comparison.paired import Difference
from mpibayes.hpc.config.resolved import or_unset
from mpibayes.hpc.report.document import (
    ASKED,
    DOUBT,
    GOOD,
    PAGE,
    Document,
    Facts,
    Field,
    Figure,
    Link,
    Section,
    Table,
    Verdict,
    on_page,
    on_paper,
)  # fmt: skip
from mpibayes.hpc.report.tables import captioned, commands_in_words, finite, fixed, plain_table
from mpibayes.text import counted, enumerated, percent

BROWSED = 20_000  # rows on the page
PAIRS = 100  # pairs of columns in tables and summary.json


def make(c: Comparison, folders: Sequence[str]) -> Document:
    """Make the report. folders: for each run, the folder of its own report beside that of the comparison."""
    figures, pages = _figures(c), [f"{folder}/report.html" for folder in folders]
    v = verdict(c)
    return Document(
        [chain for s in c.sides for chain in s.run.chains], v, sections(c, v, pages, figures),
        _machine(c, pages), [_table(c)], figures, subject="",
        beside=dict(zip(folders, (side.made for side in c.sides))),
    )  # fmt: skip


def verdict(c: Comparison) -> Verdict:
    """The answer, how reliable it is, and what to do."""
    steps, commands = words.next_steps(c)
    decided = c.scores is not None and c.scores.next.decided
    sound = GOOD if decided and not words.doubtful(c) and not c.scores.next.hangs_on_one_row else DOUBT
    result = [*words.of_scores(c), *c.columns.notes, *words.of_groupings(c)]
    return Verdict(result, words.of_chains(c), steps, sound, words.approximations(c), commands, words.headline(c))


# --- sections ---------------------------------------------------------------------------------------------------------


def _about(c: Comparison) -> list[tuple[str, str]]:
    lines = [(side.name, ", ".join(side.homes)) for side in c.sides]
    lines.append(("table", str(c.sides[0].run.table.path)))
    if c.scores is not None:
        left = f"; {counted(c.scores.left_out, 'row')} without a score in some run left out" * bool(c.scores.left_out)
        lines.append(("scored", f"{c.scores.values.shape[1]:,} {c.rows.words}{left}"))
        lines.append(("±", "the standard error of the mean difference, paired by row"))
    return lines


def _table(c: Comparison) -> Any:
    """A line for each run, best first."""
    table = plain_table("run", "model", "held-out", "below the best", "views", "clusters", "groups to use")
    for name in (1, 6):
        table.columns[name].justify, table.columns[name].no_wrap = "left", False
    order = c.scores.ranking if c.scores is not None else range(len(c.sides))
    for r in order:
        table.add_row(*_line(c, r))
    if c.scores is not None:
        captioned(table, "held-out: log of the mean density over draws, nats a row")
    return table


def _line(c: Comparison, r: int) -> list[str]:
    side, f = c.sides[r], c.findings[r]
    scores = words.summary_line(c.scores, r) if c.scores is not None else ("-", "-")
    views, clusters = "-", "-"
    if f is not None:
        views = f"{len(f.groupings):,}"
        clusters = enumerated([f"{g.n_clusters:,}" for g in f.groupings if not g.slight][:6]) or "-"
    return [side.name, words.model_in_words(side), *scores, views, clusters, words.groups_in_words(f)]


def _settings(c: Comparison) -> Any:
    table = plain_table("setting", *(side.name for side in c.sides))
    for column in table.columns:
        column.justify, column.no_wrap = "left", False
    for key, values in c.settings:
        table.add_row(key, *(or_unset(value) for value in values))
    return table


def _views(c: Comparison) -> list[Any]:
    tables = []
    for (first, other), pair in c.pairs.items():
        names = c.sides[first].name, c.sides[other].name
        table = plain_table(*names, "columns of both", "clusters alike", "groups alike")
        table.columns[1].justify = "left"
        for v in pair.views:
            both = [name for name in v.first.columns if name in set(v.second.columns)]
            numbers = [f"view {g.number}: {counted(g.n_clusters, 'cluster')}" for g in (v.first, v.second)]
            table.add_row(*numbers, f"{len(both):,}", fixed(v.clusters, 2), fixed(v.groups, 2))
        rows = counted(pair.n_rows, "training row")
        tables.append(captioned(table, f"alike: adjusted Rand index on the {rows} of both, 1: the same"))
    return tables


def _columns(c: Comparison) -> list[Any]:
    tables = []
    for (first, other), pair in c.pairs.items():
        table = plain_table("columns", c.sides[first].name, c.sides[other].name)
        for t in (pair.columns or ())[:PAIRS]:
            table.add_row(" and ".join(t.columns), percent(t.first), percent(t.second))
        tables.append(captioned(table, "share of the draws in which they share a view"))
    return tables


def sections(c: Comparison, v: Verdict, pages: Sequence[str], figures: Sequence[Figure]) -> list[Section]:
    """Sections in order. On paper they include the verdict, with which the page and the terminal begin."""
    answers = [_titled(title, getattr(v, name)) for title, name in ASKED if name != "warnings"]
    made = [
        Section("runs", "The runs", [
            on_paper(Facts(f"{v.headline}.", _about(c))), _table(c), on_page(Facts("", _about(c)), *_links(c, pages)),
            *answers, on_paper(*commands_in_words(v.commands)),
        ])
    ]  # fmt: skip
    if c.scores is not None:
        made.append(Section("rows", "Row by row", [*figures, _rows(c)], PAGE))
    views = [_titled("Views that are nearest to each other", [], table) for table in _views(c)]
    columns = [_titled("Columns that share a view in one run only", [], table) for table in _columns(c)]
    made.append(Section("groups", "Views, clusters and groups", [*views, *columns]))
    made.append(Section("each", "Each run's own verdict", [_by_itself(side) for side in c.sides]))
    settings = _titled("Settings that differ", [], _settings(c))
    return [*made, Section("settings", "Settings that differ", [settings])]


def _titled(title: str, sentences: Sequence[str], *tables: Any) -> list[Any]:
    """Sentences below a title, on paper alone, and tables, which get the title on paper; nothing if both are empty."""
    from mpibayes.terminal import Text

    shown = [table for table in tables if table.row_count]
    if not (sentences or shown):
        return []
    return [on_paper(Text(title, style="bold"), *map(Text, sentences)), *shown]


def _links(c: Comparison, pages: Sequence[str]) -> list[Link]:
    return [Link(f"{side.name}: its own page", path) for side, path in zip(c.sides, pages)]


def _by_itself(side: Side) -> list[Any]:
    from mpibayes.terminal import Text

    sentences = map(Text, side.made.verdict.found)
    titles = on_paper(Text(f"{side.name} says", style="bold")), on_page(Text(side.name, style="bold"))
    return [*titles, *sentences] if side.made.verdict.found else []


def _rows(c: Comparison) -> Table:
    """Table of the rows furthest from the mean difference, furthest first, at most BROWSED."""
    s, d = c.scores, c.scores.gaps
    order = np.argsort(-np.abs(d - d.mean()), kind="stable")[:BROWSED]
    names = [c.sides[r].name for r in s.ranking]
    where = "of the table" if c.rows.path is None else "of the file"
    fields = [
        Field("row", "whole", f"{where}, from 1"), Field("difference", "number", f"{names[0]} less {names[1]}, nats"),
        *(Field(name, "number", "log score, nats") for name in names),
    ]  # fmt: skip
    rows = [[int(s.number[i]) + 1, float(d[i]), *(float(x) for x in s.values[s.ranking, i])] for i in order]
    return Table("row", fields, rows, caption=f"of {len(d):,}, those furthest from the mean difference first")


def _figures(c: Comparison) -> list[Figure]:
    if c.scores is None:
        return []
    from mpibayes.hpc.comparison.figures import differences

    best, second = (c.sides[r].name for r in c.scores.ranking[:2])
    label = f"Held-out rows by how much better {best} predicts them than {second}; the band is two standard errors"
    return [Figure("differences.png", differences(c.scores.gaps, c.scores.next, best, second), label)]


# --- summary.json -----------------------------------------------------------------------------------------------------


def _machine(c: Comparison, pages: Sequence[str]) -> dict[str, Any]:
    """Contents of summary.json; missing numbers are null."""
    table = c.sides[0].run.table
    document: dict[str, Any] = {
        "format": "mpibayes-comparison",
        "version": 1,
        "table": {"path": str(table.path), "fingerprint": table.fingerprint},
        "headline": words.headline(c),
        "runs": [_machine_run(c, r, page) for r, page in enumerate(pages)],
        "settings": {key: [or_unset(value) for value in values] for key, values in c.settings},
        "columns": list(c.columns.names),
        "response": c.columns.response,
        "notes": list(c.columns.notes),
        "not_comparable": c.refused.why if c.refused is not None else None,
        "pairs": [
            {
                "runs": [c.sides[first].name, c.sides[other].name],
                "training_rows": pair.n_rows,
                "views": [
                    {
                        "views": [v.first.number, v.second.number],
                        "adjusted_rand": {"clusters": finite(v.clusters), "groups": finite(v.groups)},
                    }
                    for v in pair.views
                ],
                "together_in_one": [
                    {"columns": list(t.columns), "share": [t.first, t.second]} for t in (pair.columns or ())[:PAIRS]
                ],
            }
            for (first, other), pair in c.pairs.items()
        ],
    }
    if c.scores is not None:
        document["rows"] = {
            "scored": int(c.scores.values.shape[1]), "left_out": c.scores.left_out,
            "file": None if c.rows.path is None else str(c.rows.path),
        }  # fmt: skip
        document["ranking"] = [c.sides[r].name for r in c.scores.ranking]
    return document


def _machine_run(c: Comparison, r: int, page: str) -> dict[str, Any]:
    side, f = c.sides[r], c.findings[r]
    v = side.made.verdict
    document: dict[str, Any] = {
        "name": side.name,
        "directories": list(side.homes),
        "chains": [str(chain.folder) for chain in side.run.chains],
        "family": side.model,
        "page": page,
        "verdict": str(v),
        "found": list(v.found),
    }
    if c.scores is not None:
        document["heldout"] = float(c.scores.values[r].mean())
        document["below_best"] = _machine_difference(c.scores.below[r])
    if f is not None:
        document["views"] = [
            {
                "view": g.number, "columns": list(g.columns), "clusters": g.n_clusters,
                "level": None if g.level is None else {
                    "groups": g.level.n, "natural": g.level.natural, "usable": g.level.usable, "text": g.level.words,
                },
            }
            for g in f.groupings
        ]  # fmt: skip
    return document


def _machine_difference(d: Difference | None) -> dict[str, Any] | None:
    if d is None:
        return None
    return {"mean": d.mean, "standard_error": finite(d.error), "share_better": d.better, "decided": d.decided}
