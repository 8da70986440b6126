"""News since the last rows were added to a run's table: how the new rows look to the run before, which columns moved,
and which clusters grew.

The run before has seen neither the new rows nor those that it held out: if the new rows were like the old, both would
have the same distribution of surprise, -log p of a row. Large tables are represented by evenly spaced samples of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mpibayes.hpc.comparison.in_columns import ROWS, InColumn, surprising_columns
from mpibayes.hpc.comparison.moved import (
    Moved,
    Share,
    moved_columns,
    moved_shares,
    new_in_words,
    share_in_words,
)
from mpibayes.hpc.comparison.paired import ERRORS, mean_of
from mpibayes.hpc.comparison.scores import log_mean
from mpibayes.hpc.posterior.chains import evenly
from mpibayes.hpc.report.document import Document, Facts, Figure, Section, on_paper
from mpibayes.hpc.report.tables import captioned, finite, plain_table
from mpibayes.io.rows import Column, Rows
from mpibayes.text import counted, percent

DRAWS, DRAWS_OF_CELLS = 20, 5  # most draws of the run before to average over, for rows and for single cells
FULL, FEWEST_ROWS = 1000, 100  # clusters up to which ROWS are judged cell by cell, and least such rows beyond
SCORED = 2000  # most rows scored, of a part and of the held-out rows
LOOKED_AT = 20_000  # most old, and most new rows for comparing columns
SHOWN = 12  # most columns, and clusters, in a table
HIGH = 0.99  # quantile of the old rows' surprise beyond which a row is odd
TITLE = "Since the last append"


@dataclass(frozen=True)
class Part:
    """Rows that were added together: their file, their number, and the surprise of a sample (n,), nats. unseen: number
    of the sample's cells with levels that the run before does not know."""

    name: str
    n_rows: int
    surprise: np.ndarray
    unseen: int = 0


@dataclass(frozen=True)
class Since:
    """home: directory of the run before, of n_before rows. of_old: description of the rows with surprise `old` (n,).
    names: of clusters and groups, by view, number of groups (0: none) and label."""

    home: str
    n_before: int
    counts_from: int
    of_old: str
    old: np.ndarray
    parts: Sequence[Part]
    columns: Sequence[Moved]
    n_columns: int
    in_columns: Sequence[InColumn]
    shares: Sequence[Share]
    names: Mapping[tuple[int, int, int], str]

    @property
    def n_new(self) -> int:
        return sum(part.n_rows for part in self.parts)

    def more(self, part: Part) -> tuple[float, float]:
        """Mean surprise of a part's rows beyond that of the old ones, nats per row, and its standard error."""
        (a, b), (c, d) = mean_of(self.old), mean_of(part.surprise)
        return c - a, float(np.hypot(b, d))

    def odd(self, part: Part) -> float:
        """Share of a part's rows that surprise more than all but 1 % of the old ones."""
        return float((part.surprise > np.quantile(self.old, HIGH)).mean())


def since(run: Any, before: Any, made: Document) -> Since:
    """Compare a run's new rows with those before. before: the earlier run, opened; made: the run's present report."""
    n_before, table = before.table.n_rows, run.table
    draws = list(before.draws(DRAWS))
    held = before.data.heldout
    old = held if held is not None else before.data.numbers_of(0, before.data.n_rows)
    of_old = "held-out rows" if held is not None else "rows that it was trained on"
    scores, _ = _surprise(run, before, draws, old)
    parts, first = [], 0
    for piece in table.pieces:
        if first >= n_before:
            surprise, unseen = _surprise(run, before, draws, np.arange(first, first + piece.n_rows))
            parts.append(Part(", ".join(piece.source.get("files", [piece.path.name])), piece.n_rows, surprise, unseen))
        first += piece.n_rows
    columns = run.data.stored
    lots = [_evenly(np.arange(*ends), LOOKED_AT) for ends in ((0, n_before), (n_before, table.n_rows))]
    moved = moved_columns(columns, *map(run.data.recorded_at, lots))
    n = _n_for_cells(made)
    new = _evenly(np.arange(n_before, table.n_rows), n)
    in_columns = _in_columns(run, before, _evenly(held, n), new) if held is not None else []
    shares, names = _shares(run, made, n_before)
    counts_from = max(c.burn_in for c in run.chains) + 1
    home = str(before.chains[0].home)
    return Since(home, n_before, counts_from, of_old, scores, parts, moved, len(columns), in_columns, shares, names)


def _n_for_cells(made: Document) -> int:
    """Return the number of rows of each sample whose cells are judged: fewer where clusters are many, since each row is
    scored under all of them, column by column."""
    groupings = made.findings.groupings if made.findings is not None else ()
    n_clusters = max((g.n_clusters for g in groupings), default=1)
    return max(FEWEST_ROWS, min(ROWS, ROWS * FULL // n_clusters))


def _evenly(numbers: np.ndarray, most: int) -> np.ndarray:
    return np.array(evenly(numbers, most), np.int64)


def _surprise(run: Any, before: Any, draws: Sequence[Any], numbers: np.ndarray) -> tuple[np.ndarray, int]:
    """Surprise of a sample of these rows, and the number of its cells with levels that the run before lacks: the
    surprise of a level that none of its N rows had is log(N + 1)."""
    numbers = _evenly(numbers, SCORED)
    rows, unseen = as_before(run.data.recorded_at(numbers), run.data.stored, before.data.stored)
    n_unseen = sum(unseen.values(), np.zeros(len(rows), np.int64))
    surprise = -log_mean(draws, before.data.as_modelled(rows, numbers)) + n_unseen * np.log(before.data.n_rows + 1.0)
    return surprise, int(n_unseen.sum())


def _in_columns(run: Any, before: Any, *lots: np.ndarray) -> list[InColumn]:
    now, then = run.data.stored, before.data.stored
    (old, _), (new, unseen) = (as_before(run.data.recorded_at(numbers), now, then) for numbers in lots)
    return surprising_columns(before, DRAWS_OF_CELLS, old, new, unseen)


def as_before(rows: Rows, now: Sequence[Column], then: Sequence[Column]) -> tuple[Rows, dict[str, np.ndarray]]:
    """Recode rows with the levels of the earlier table, new levels as missing; also return the cells concerned, (n,)
    bool by column."""
    result, unseen = Rows.empty(then, len(rows)), {}
    for a, b in zip(now, then, strict=True):
        cells = getattr(rows, a.block)[:, a.index]
        if b.levels:
            gone = cells >= len(b.levels)
            unseen[b.name] = gone & (cells != a.blank)
            cells = np.where(gone, b.blank, cells)
        getattr(result, b.block)[:, b.index] = cells
    return result, unseen


def _shares(run: Any, made: Document, n_before: int) -> tuple[list[Share], dict[tuple[int, int, int], str]]:
    """Clusters and groups of the report whose share changed, largest change first; and their names."""
    findings = made.findings
    if findings is None:
        return [], {}
    new = run.data.numbers_of(0, run.data.n_rows) >= n_before
    if new.all() or not new.any():
        return [], {}
    several, shares, names = "views" in made.numbers, [], {}
    for view in findings.groupings:
        if view.slight:
            continue
        v, level = view.number if several else 0, view.usable_level
        shares += moved_shares(view.labels, new, v)
        shares += [] if level is None else moved_shares(level.labels, new, v, level.n)
        of = next((d for d in made.numbers.get("views", ()) if d["view"] == v), {}) if several else made.numbers
        names |= {(v, 0, c["cluster"] - 1): c["name"] for c in of.get("clusters", ())}
        names |= {(v, at["groups"], g["group"] - 1): g["name"] for at in of.get("levels", ()) for g in at["found"]}
    return sorted(shares, key=lambda s: -abs(s.now - s.before)), names


# --- in a report ------------------------------------------------------------------------------------------------------


def headline(s: Since) -> str:
    """Sentence for the verdict."""
    now = np.concatenate([part.surprise for part in s.parts])
    whole = Part("", s.n_new, now)
    more, error = s.more(whole)
    if not abs(more) > ERRORS * error:
        like = f"surprise the run of the {s.n_before:,} before as much as its {s.of_old}"
    else:
        like = f"surprise the run of the {s.n_before:,} before {abs(more):.2f} nats a row "
        like += f"{'more' if more > 0 else 'less'} than its {s.of_old}"
    moved = f"{len(s.columns)} of {counted(s.n_columns, 'column')} moved" if s.columns else "no column moved"
    return f"The last append added {counted(s.n_new, 'row')}, which {like}; {moved}."


def words(s: Since) -> list[Any]:
    """Text and tables of the section."""
    from mpibayes.terminal import Text

    facts = [
        ("the run before", f"of {s.n_before:,} rows, in {s.home}; draws count again from cycle {s.counts_from}"),
        *([("clusters", "; ".join(_in_words(s, of) for of in s.shares[:3]))] if s.shares else []),
    ]
    title = on_paper(Text(TITLE, style="bold"))
    return [[title, headline(s), Facts("", facts)], _of_parts(s), *_of_cells(s), *_of_columns(s), *_of_shares(s)]


def _in_words(s: Since, share: Share) -> str:
    return share_in_words(share, s.names.get((share.view, share.groups, share.label), ""))


def _of_parts(s: Since) -> Any:
    table = plain_table("surprise, nats a row", "rows", "median", "mean", "beyond the old", "error", "odd", "")
    mean, _ = mean_of(s.old)
    table.add_row(s.of_old, "", f"{np.median(s.old):.2f}", f"{mean:.2f}", "", "", percent(1.0 - HIGH), "")
    for part in s.parts:
        more, error = s.more(part)
        note = f"{counted(part.unseen, 'cell')} of new levels" if part.unseen else ""
        table.add_row(
            part.name, f"{part.n_rows:,}", f"{np.median(part.surprise):.2f}", f"{mean_of(part.surprise)[0]:.2f}",
            f"{more:+.2f}", f"{error:.2f}", percent(s.odd(part)), note,
        )  # fmt: skip
    return captioned(table, f"odd: rows that surprise more than all but {percent(1 - HIGH)} of the {s.of_old}")


def _of_cells(s: Since) -> list[Any]:
    more = [c for c in s.in_columns if c.more > 0.0]
    less = [c for c in reversed(s.in_columns) if c.more <= 0.0]
    return [_of_some_cells(s, columns, word) for columns, word in ((more, "more"), (less, "less")) if columns]


def _of_some_cells(s: Since, columns: Sequence[InColumn], word: str) -> Any:
    table = plain_table(f"columns that surprise {word}", "before", "new rows", word, "error")
    for c in columns[:SHOWN]:
        table.add_row(c.name, f"{c.before:.2f}", f"{c.now:.2f}", f"{abs(c.more):.2f}", f"{c.error:.2f}")
    left = len(columns) - SHOWN
    words = f"surprise of a cell given the rest of its row, nats; before: of {s.of_old}"
    return captioned(table, words + f"; {counted(left, 'more column')}" * (left > 0))


def _of_columns(s: Since) -> list[Any]:
    if not s.columns:
        return []
    table = plain_table("columns that moved", "distance", "")
    for moved in s.columns[:SHOWN]:
        new = f"; new: {new_in_words(moved.new)}" if moved.new else ""
        table.add_row(moved.name, f"{moved.distance:.3f}", moved.words + new)
    left = len(s.columns) - SHOWN
    words = "distance: share of the rows that would have to change" + (f"; {left:,} more moved" * (left > 0))
    return [captioned(table, words)]


def _of_shares(s: Since) -> list[Any]:
    if not s.shares:
        return []
    table = plain_table("clusters that grew or shrank", "before", "new rows", "rows", "")
    for share in s.shares[:SHOWN]:
        text = _in_words(s, share)
        cut = next(at for verb in (" is new:", " grew from", " shrank from") if (at := text.rfind(verb)) > 0)
        note = "new" if share.is_new else "grew" if share.now > share.before else "shrank"
        table.add_row(text[:cut], percent(share.before), percent(share.now), f"{share.rows:,}", note)
    return [table]


def add(made: Document, s: Since) -> None:
    """Add a section, figures and numbers to a report."""
    from mpibayes.hpc.comparison.figures import in_columns, surprises

    picture = surprises(s.of_old, s.old, [(part.name, part.surprise) for part in s.parts])
    label = "Surprise of the new rows, by part, and of held-out rows of the run before"
    figures = [Figure("since.png", picture, label)]
    if s.in_columns:
        bars = in_columns([(c.name, c.more, c.error) for c in s.in_columns[:SHOWN]], s.of_old)
        figures.append(
            Figure("since-columns.png", bars, "Columns in which the new rows surprise the run before more, or less")
        )
    made.add(Section("since", TITLE, words(s)), [made.sections[0].name], *figures)
    made.verdict = replace(made.verdict, found=[*made.verdict.found, headline(s)])
    made.numbers["since"] = document(s)


def document(s: Since) -> dict[str, Any]:
    """Entry of summary.json."""
    parts = []
    for part in s.parts:
        more, error = s.more(part)
        parts.append({
            "files": part.name, "rows": part.n_rows, "scored": len(part.surprise),
            "mean_surprise": float(part.surprise.mean()), "beyond_the_old": more, "standard_error": finite(error),
            "odd": s.odd(part), "cells_of_new_levels": part.unseen,
        })  # fmt: skip
    return {
        "run_before": s.home, "rows_before": s.n_before, "rows_came": s.n_new, "draws_count_from": s.counts_from,
        "old": {"of": s.of_old, "scored": len(s.old), "mean_surprise": float(s.old.mean())},
        "parts": parts,
        "surprising_columns": [
            {"column": c.name, "before": c.before, "now": c.now, "more": c.more, "standard_error": c.error}
            for c in s.in_columns
        ],
        "columns": [
            {"column": m.name, "distance": m.distance, "text": m.words, "new_levels": list(m.new)} for m in s.columns
        ],
        "clusters": [{**vars(share), "new": share.is_new, "text": _in_words(s, share)} for share in s.shares],
    }  # fmt: skip
