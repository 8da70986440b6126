"""Pairs of columns that a run weakens (`hpc/synthetic/pairs.py`), for its report, with the lines of a configuration
that would link them, or put numbers in a block."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mpibayes.hpc.law import LINES, MOST_LEVELS
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.report.document import Facts, Field, Table, on_page
from mpibayes.hpc.report.drawing import cut
from mpibayes.hpc.results.selective import selective
from mpibayes.hpc.synthetic import pairs
from mpibayes.hpc.synthetic.pairs import STRONG, PairCheck
from mpibayes.text import counted, enumerated, toml_string

NAMED = 8  # most pairs in a line of links
MANY, TOGETHER = 8, 0.8  # least clusters, and least correlation of two numbers, for advising lines or a block
WIDEST = 16  # most columns of an advised block: its cost grows with their square (docs/blocks.md)
ROWS = 10_000  # approximate number of rows for correlations
SHOWN, LISTED = 20, 200  # pairs in the text, and on the page and in summary.json
FIELDS = (
    Field("column", "text", brief=cut), Field("other", "text", brief=cut),
    Field("table, nats", "number", "mutual information in rows of the table", digits=3),
    Field("run, nats", "number", "in as many rows drawn from the run", digits=3),
    Field("weaker, nats", "number", digits=3),
)  # fmt: skip
MAY_LINK = Field("can be linked", "text", "by model.links, either way")


def look(asking: Asking) -> WeakPairs | None:
    """Look briefly for pairs that a run weakens; None for a model or a table without pairs. Raises ConfigError."""
    columns = asking.columns
    if "pairs" in asking.asked.cannot or len(pairs.complete(columns)) < 2:
        return None
    return WeakPairs(asking, pairs.check(asking, columns, briefly=True))


def weakened(asking: Asking, completed: Collection[str], calibrated: bool) -> list[str]:
    """Notes for tables in which some columns are completed: pairs that contain one of these, are weakened, and could be
    linked, and pairs that bias their shares. calibrated: True if those of columns with few levels are calibrated.
    Collective. Raises ConfigError."""
    weak = look(asking)
    if weak is None:
        return []
    named = [pair for pair in weak.strong if set(pair) & set(completed)]
    levels = {column.name for column in asking.columns if 0 < len(column.levels) <= MOST_LEVELS}
    biased = selective(asking, weak.found, set(completed) - levels if calibrated else completed)
    to_calibrate = any(pair[0] in levels for pair in biased)
    notes = []
    if named:
        notes.append(
            "pairs of columns are weaker in the run than in the table, and so in completed cells: "
            f"{enumerated_pairs(named)}; a run with {weak.keys} under [model] keeps them (docs/imputation.md)"
        )
    if biased:
        named = [pair for pair in biased if weak.nameable(pair)]
        notes.append(
            f"{enumerated_pairs(biased)}: the second column predicts which cells of the first are missing, and the run "
            "weakens the pair, so that completed shares and means are biased towards those of the observed cells"
            + ("; calibrate the copies (--calibrate, calibrate=True; docs/imputation.md)" if to_calibrate else "")
            + (f"; {'or ' * to_calibrate}link by name {enumerated_pairs(named)} (docs/imputation.md)" if named else "")
        )
    return notes


@dataclass(frozen=True)
class WeakPairs:
    """Pairs that a run weakens, in words and tables. n_clusters: in the view with most clusters."""

    asking: Asking
    found: PairCheck
    n_clusters: int = 0

    @property
    def strong(self) -> list[tuple[str, str]]:
        """Strongly weakened pairs that links could carry, for a run without links or with lines alone."""
        if not self.asking.asked.link_keys:
            return []
        return [pair for pair in (self.found.pairs[i] for i in self.found.clear(STRONG)) if self._linkable(pair)]

    @cached_property
    def blocks(self) -> list[list[str]]:
        """Groups of numbers that vary together while a view has many clusters: each would be a block. Groups that may
        all be in lines are listed only if the run weakens a pair of them: lines carry the others already."""
        columns = self.asking.named(list(self.asking.asked.joinable))
        if len(columns) < 2 or self.n_clusters < MANY:
            return []
        rows = self.asking.sample(ROWS)
        x = np.column_stack([getattr(rows, c.block)[:, c.index] for c in columns])
        with np.errstate(invalid="ignore", divide="ignore"):
            r = np.nan_to_num(np.abs(np.corrcoef(x, rowvar=False)))
        one, other = np.triu_indices(len(columns), 1)
        near = np.argsort(-r[one, other], kind="stable")[: np.count_nonzero(r[one, other] >= TOGETHER)]
        result = groups([(columns[one[i]].name, columns[other[i]].name) for i in near], WIDEST)
        weaker = [set(self.found.pairs[i]) for i in self.found.clear()]
        return [block for block in result if not self._lined(block) or any(pair <= set(block) for pair in weaker)]

    def _lined(self, names: Collection[str]) -> bool:
        return all(self.asking.asked.joint.get(name) == LINES for name in names)

    def _linkable(self, pair: tuple[str, str]) -> bool:
        one, other = pair
        return self.asking.asked.may_lean(one, other) or self.asking.asked.may_lean(other, one)

    def nameable(self, pair: tuple[str, str]) -> bool:
        """True if a link between two columns may be named: the parent needs levels."""
        asked = self.asking.asked
        has_links = asked.linked or asked.link_keys or asked.line_keys
        return bool(has_links) and any(column.levels for column in self.asking.named(list(pair)))

    def advice(self) -> list[str]:
        """Sentences for the verdict that say what to do."""
        sentences = []
        if self.strong:
            sentences.append(
                f"Completed and synthetic tables weaken pairs of columns such as {enumerated_pairs(self.strong)}. A "
                f"run with {self.keys} under [model] lets columns depend on each other inside clusters."
            )
        more = self.asking.asked.line_keys
        for block in self.blocks[:1]:
            how = "of which linear links carry only a part" if self._lined(block) else "which clusters can only imitate"
            sentences.append(
                f"The numbers {enumerated(list(map(cut, block)))} vary together, {how}. "
                f"A run with {_as_lines(more) + ' under [model], or with ' if more else ''}a block of them describes "
                "it inside clusters, and may need fewer of them."
            )
        return sentences

    @property
    def keys(self) -> str:
        """Configuration keys that let columns be linked."""
        return _as_lines(self.asking.asked.link_keys)

    def words(self) -> str:
        f = self.found
        of = f"{counted(f.n_rows, 'row')} of the table and as many from each of {counted(len(f.drawn), 'draw')}"
        left = f"; {counted(f.left_out, 'column')} of this wide table were not examined" if f.left_out else ""
        if not f.judged:
            return f"{counted(len(f.drawn), 'draw')}: too few to say which pairs of columns the run weakens."
        clear = len(f.clear())
        if not clear:
            return (
                f"None of the {counted(f.n_all, 'pair')} of columns is clearly less dependent in simulated rows than "
                f"in the table ({of}{left})."
            )
        return (
            f"{counted(clear, 'pair')} of {f.n_all:,} {'depends' if clear == 1 else 'depend'} on each other less in "
            f"simulated rows than in the table ({of}{left}). In completed and synthetic tables, and where "
            "one column is predicted from the other, such a pair is too weak."
        )

    def parts(self) -> list[Any]:
        """Parts of the report's section. A page does not show the titles of facts."""
        remedy = [[on_page(f"{x.title}:"), x] if isinstance(x, Facts) else x for x in self._remedy()]
        return [self.words(), *remedy, *([self._table()] if len(self.found.clear()) else [])]

    def _remedy(self) -> list[Any]:
        """Explain how to link the pairs, or why they remain in spite of links."""
        strong, asked, blocks = self.strong, self.asking.asked, self.blocks
        remedy: list[Any] = []
        if strong:
            named = ", ".join(f"[{toml_string(a)}, {toml_string(b)}]" for a, b in forest(strong, asked.may_lean))
            lines = [("learned", self.keys), ("or by name", f"links = [{named}]")]
            remedy.append(Facts("To link columns, under [model] in a new run", lines))
        if blocks:
            names = [f"numbers{i}" if len(blocks) > 1 else "numbers" for i in range(1, 1 + len(blocks))]
            columns = [f"columns = [{', '.join(map(toml_string, block))}]" for block in blocks]
            lines = [(f"[blocks.{name}]", of) for name, of in zip(names, columns)]
            if asked.line_keys:
                lines.append(("or as links, under [model]", _as_lines(asked.line_keys)))
            remedy.append(Facts("To model numbers together, in a new run (docs/blocks.md)", lines))
        if not remedy and asked.linked and len(self.found.clear()):
            return [
                "These remain although columns are linked: a column learns one parent, and not all kinds of column "
                "have any."
            ]
        return remedy

    def _table(self) -> Table:
        f, linkable = self.found, bool(self.asking.asked.link_keys)
        rows = []
        for i in f.clear()[:LISTED]:
            row = [*f.pairs[i], f.table[i], f.run[i], f.weaker[i]]
            rows.append([*row, "yes" if self._linkable(f.pairs[i]) else "no"] if linkable else row)
        return Table("pair", [*FIELDS, MAY_LINK] if linkable else FIELDS, rows, most=SHOWN, more="more in summary.json")

    def document(self) -> dict[str, Any]:
        """Entry of summary.json."""
        f = self.found
        weaker = [
            {"columns": list(f.pairs[i]), "table": float(f.table[i]), "run": float(f.run[i])}
            for i in f.clear()[:LISTED]
        ]
        return {"looked_at": f.n_all, "rows": f.n_rows, "draws": len(f.drawn), "judged": f.judged, "weaker": weaker}


def _as_lines(keys: Mapping[str, str]) -> str:
    return " and ".join(f"{key} = {toml_string(value)}" for key, value in keys.items())


def enumerated_pairs(named: Sequence[tuple[str, str]], most: int = 2) -> str:
    """Name the first pairs: "A with B, C with D and 3 more"."""
    words = ", ".join(f"{cut(a)} with {cut(b)}" for a, b in named[:most])
    return words + (f" and {len(named) - most:,} more" if len(named) > most else "")


def forest(strong: Sequence[tuple[str, str]], may_lean: Callable[[str, str], bool]) -> list[tuple[str, str]]:
    """(child, parent) of pairs that can be links together, earlier pairs first: each column has at most one parent,
    without cycles."""
    return list(_leaning(strong, may_lean))[:NAMED]


def groups(pairs: Sequence[tuple[str, str]], most: int) -> list[list[str]]:
    """Connected columns, in groups of at most `most`, in the order of the pairs."""
    of: dict[str, list[str]] = {}
    for one, other in pairs:
        a, b = of.get(one, [one]), of.get(other, [other])
        if a is not b and len(a) + len(b) <= most:
            joined = [*a, *b]
            of |= dict.fromkeys(joined, joined)
    return list({id(group): group for group in of.values()}.values())


def _leaning(strong: Sequence[tuple[str, str]], may_lean: Callable[[str, str], bool]) -> Iterator[tuple[str, str]]:
    tree: dict[str, set[str]] = {}  # each column's connected component
    children: set[str] = set()
    for pair in strong:
        one, other = (tree.get(name, {name}) for name in pair)
        ways = [(a, b) for a, b in (pair, pair[::-1]) if a not in children and may_lean(a, b)]
        if ways and one is not other:
            joined = one | other
            tree |= dict.fromkeys(joined, joined)
            children.add(ways[0][0])
            yield ways[0]
