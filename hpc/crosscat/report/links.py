"""Links of a mixture in its report: pairs of columns that stay dependent inside clusters, with their certainty and the
gain in predicting one from the other (docs/links.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
from scipy.special import gammaln

from mpibayes.hpc.components.normal import START
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.crosscat.draws import Posterior
from mpibayes.hpc.crosscat.lines.evidence import child_evidence
from mpibayes.hpc.crosscat.lines.moments import line_moments
from mpibayes.hpc.links.bins import bounds
from mpibayes.hpc.links.coding import Coding
from mpibayes.hpc.links.forest import ROOT
from mpibayes.hpc.links.lines import Lines
from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.posterior.chains import Chain
from mpibayes.hpc.report.document import PAGE, Field, Figure, Section, Table
from mpibayes.hpc.report.drawing import INK, cut, plot, shortened, styled
from mpibayes.io import generations
from mpibayes.io.draws import FOLDER
from mpibayes.io.recording import levels, recorded
from mpibayes.io.rows import Column, Rows
from mpibayes.io.segments import read_blocks
from mpibayes.text import counted, percent

SURE = 0.9  # share of a chain's draws in which a sure pair is linked
SHOWN = 40  # most pairs shown
MOST = 0.5  # share of all draws above which a pair is linked in most
LEAST = 0.1  # share of all draws below which linked pairs are left out
PRIOR = 0.5  # pseudo-count of a level in a pair's gain
LETTERS = 32
TINY = 1e-300
OFTEN = 0.05  # least share of the rows of a level used as an example
AT_ONCE = 1 << 24  # counts of pairs in memory together


@dataclass(frozen=True)
class LinkedPair:
    """Two columns, linked in a share of the draws. child, parent: as in most draws. by_chain: share in each chain.
    gain: nats per row by which the parent improves prediction of the child within clusters. example: a phrase. line:
    True if the child is a number."""

    child: str
    parent: str
    share: float
    by_chain: Sequence[float]
    gain: float
    example: str
    line: bool = False

    @property
    def sure(self) -> str:
        """Number of chains in which the link is sure, in words."""
        n, every = sum(share >= SURE for share in self.by_chain), len(self.by_chain)
        if n == every:
            return "all chains" if every > 1 else "yes"
        return f"{n} of {every} chains" if n else "no"


@dataclass(frozen=True)
class Links:
    """Linked pairs, the largest gains first. n_draws: of all chains together. whole: the table's column of each column,
    which may be the atoms' part of it."""

    pairs: Sequence[LinkedPair]
    n_draws: int
    whole: Mapping[str, str] = field(default_factory=dict)

    @property
    def often(self) -> list[tuple[str, str]]:
        """Pairs (child, parent) linked in most draws."""
        return [(pair.child, pair.parent) for pair in self.pairs if pair.share > MOST]

    @property
    def of_table(self) -> list[tuple[str, str]]:
        """Pairs linked in most draws as columns of the table, except those whose child is a number."""
        often = [pair for pair in self.pairs if pair.share > MOST and not pair.line]
        return [(self.whole[pair.child], self.whole[pair.parent]) for pair in often]

    @property
    def sure(self) -> list[LinkedPair]:
        """Pairs that are sure in every chain."""
        return [pair for pair in self.pairs if min(pair.by_chain) >= SURE]


def links_of(run: Posterior, views: Sequence[tuple[Sequence[str], np.ndarray]]) -> Links | None:
    """Return the links of a run; None if its configuration excludes links. views: names of the table's columns, and the
    partition (N,) for the gains of pairs whose child is one of these columns."""
    if not has_links(run.chains):
        return None
    each = [_parents(chain) for chain in run.chains]
    columns, shares = run.columns, [_shares(parents, run.columns) for parents in each if len(parents)]
    if not shares:
        return Links([], 0)
    directed = np.mean(shares, axis=0)
    together = directed + directed.T
    pairs = [(i, j) for i, j in combinations(range(len(columns)), 2) if together[i, j] >= LEAST]
    pairs = sorted(pairs, key=lambda p: -together[p])[:SHOWN]
    pairs = [(i, j) if directed[i, j] >= directed[j, i] else (j, i) for i, j in pairs]  # child and parent
    gains: dict[tuple[int, int], tuple[float, str]] = {}
    for names, labels in views:
        part = [(c, p) for c, p in pairs if (columns[c].part_of or columns[c].name) in set(names)]
        of_levels = [pair for pair in part if columns[pair[0]].levels]
        gains |= zip(of_levels, _gains(run, labels, [(columns[c], columns[p]) for c, p in of_levels]))
        of_numbers = [pair for pair in part if not columns[pair[0]].levels]
        in_lines = [pair for pair in of_numbers if not columns[pair[1]].levels]
        gains |= zip(in_lines, _gains_of_lines(run, labels, [(columns[c], columns[p]) for c, p in in_lines]))
        others = [pair for pair in of_numbers if columns[pair[1]].levels]
        gains |= zip(others, _gains_of_children(run, labels, [(columns[c], columns[p]) for c, p in others]))
    result = [
        LinkedPair(
            columns[c].name,
            columns[p].name,
            float(together[c, p]),
            [float(s[c, p] + s[p, c]) for s in shares],
            *gains[c, p],
            not columns[c].levels,
        )
        for c, p in pairs
    ]
    result, whole = sorted(result, key=lambda pair: -pair.gain), {c.name: c.part_of or c.name for c in columns}
    return Links(result, sum(map(len, each)), whole)


def has_links(chains: Sequence[Chain]) -> bool:
    """True if columns may be linked."""
    model = chains[0].config.model
    return model.likelihood and model.parents != "none"


def _parents(chain: Chain) -> np.ndarray:
    """Read the parents of all columns in a chain's kept draws after burn-in, (draws, C)."""
    kept = generations.kept(chain.folder, FOLDER)
    blocks = [block["links"] for block in read_blocks(chain.folder / FOLDER, ("links",), chain.burn_in, kept)]
    return np.concatenate(blocks).astype(np.int64) if blocks else np.zeros((0, 0), np.int64)


def _shares(parents: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
    """Return the share of draws in which column i depends on column j, (C, C)."""
    result = (parents[:, :, None] == np.arange(len(columns))).mean(axis=0)
    place = {column.name: c for c, column in enumerate(columns)}
    for c, column in enumerate(columns):
        if column.second:
            result[c, place[column.second]] = 1.0
    return result


def _gains(run: Posterior, labels: np.ndarray, pairs: Sequence[tuple[Column, Column]]) -> list[tuple[float, str]]:
    """Return gain and example of each (child, parent), by passes over the table, each for as many pairs as fit."""
    contexts = run.contexts
    coding = Coding(run.columns, np.full(len(run.columns), ROOT), contexts)
    place = {column.name: i for i, column in enumerate(run.columns)}
    k = int(labels.max()) + 1
    sizes = [(k, int(contexts[p.name].max()) + 1, len(c.levels) + 1) for c, p in pairs]
    result: list[tuple[float, str]] = []
    while len(result) < len(pairs):  # as many at once as fit in memory
        first, total = len(result), np.cumsum([np.prod(size) for size in sizes[len(result) :]])
        subset = slice(first, first + max(1, int(np.searchsorted(total, AT_ONCE, side="right"))))
        counts = [np.zeros(np.prod(size), np.int64) for size in sizes[subset]]
        for start, rows in run.slices():
            z = labels[start : start + len(rows)].astype(np.int64)
            for (child, parent), count, (_, n, v) in zip(pairs[subset], counts, sizes[subset]):
                x, u = getattr(rows, child.block)[:, child.index], coding.context(place[parent.name], rows)
                seen = u >= 0
                count += np.bincount((z[seen] * n + u[seen]) * v + x[seen], minlength=len(count))
        for (child, parent), count, size in zip(pairs[subset], counts, sizes[subset]):
            cells = count.reshape(size)[..., :-1]  # (K, U, V)
            gain = (_evidence(cells.reshape(-1, cells.shape[-1])) - _evidence(cells.sum(axis=1))) / max(run.n_rows, 1)
            result.append((gain, _example(child, parent, contexts[parent.name], cells.sum(axis=0))))
    return result


def _gains_of_lines(
    run: Posterior, labels: np.ndarray, pairs: Sequence[tuple[Column, Column]]
) -> list[tuple[float, str]]:
    """Return gains and examples of pairs of numbers, from the rows with both: the example is the correlation within
    clusters."""
    if not pairs:
        return []
    k, result = int(labels.max()) + 1, []
    every = [(rows, labels[start : start + len(rows)].astype(np.int32)) for start, rows in run.slices()]
    for pair in pairs:
        moments = line_moments(serial(), pair, every, k, len(every))
        hyper = np.array([(c.center, *START[1:3], START[3] * c.scale**2) for c in pair])
        lines, of = Lines(pair, moments, {}, hyper), moments.products.sum(axis=2)
        words = f"correlation {of[0, 1] / max(np.sqrt(of[0, 0] * of[1, 1]), TINY):.2f} within clusters"
        result.append((float(lines.under[0, 1] - lines.alone[0]) / max(moments.n.sum(), 1.0), words))
    return result


def _gains_of_children(
    run: Posterior, labels: np.ndarray, pairs: Sequence[tuple[Column, Column]]
) -> list[tuple[float, str]]:
    """Return gains and examples of numbers that depend on columns with levels: the example is means of the number."""
    if not pairs:
        return []
    names, parents = {child.name for child, _ in pairs}, {parent.name for _, parent in pairs}
    columns = [replace(c, child=c.name in names) for c in run.columns]
    contexts = {name: of for name, of in run.contexts.items() if name in parents}
    coding, plain = Coding(columns, np.full(len(columns), ROOT), contexts), Components(columns)
    every = [(rows, labels[start : start + len(rows)].astype(np.int32)) for start, rows in run.slices()]
    k, hyper = int(labels.max()) + 1, plain.start(1.0, 0.0)
    score, alone = child_evidence(serial(), coding, plain, hyper, every, k, len(every)).scores()
    row, at = ({c.name: i for i, c in enumerate(of)} for of in (
        [columns[c] for c in coding.children], plain.categorical.columns))  # fmt: skip
    result = []
    for child, parent in pairs:
        c, j = row[child.name], at[parent.name]
        gain = float(score[c, j] - alone[c]) / max(run.n_rows, 1)
        result.append((gain, _means(child, parent, [rows for rows, _ in every])))
    return result


def _means(child: Column, parent: Column, rows: Sequence[Rows]) -> str:
    """Describe the greatest and least mean of a number by level of its parent, among levels of many rows."""
    x = np.concatenate([getattr(part, child.block)[:, child.index] for part in rows])
    u = np.concatenate([getattr(part, parent.block)[:, parent.index] for part in rows]).astype(np.intp)
    x = recorded(child, None, x) if child.kind == "real" else x
    there = ~np.isnan(x) & (u < len(parent.levels))
    n = np.bincount(u[there], minlength=len(parent.levels))
    often = np.flatnonzero(n >= OFTEN * max(n.sum(), 1))
    if not len(often):
        return ""
    mean = np.bincount(u[there], x[there], minlength=len(n)) / np.maximum(n, 1)
    ends = often[np.argmax(mean[often])], often[np.argmin(mean[often])]
    each = [f"{_number(mean[v])} where {cut(parent.name)} is {cut(parent.levels[v])}" for v in dict.fromkeys(ends)]
    return f"mean {', '.join(each)}"


def _number(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 1000.0 else f"{x:.3g}"


def _evidence(n: np.ndarray) -> float:
    """Return the log marginal likelihood of counts (groups, V), with Dirichlet(PRIOR) in each group."""
    v = n.shape[1]
    of_groups = (
        gammaln(v * PRIOR) - gammaln(v * PRIOR + n.sum(axis=1)) + (gammaln(PRIOR + n) - gammaln(PRIOR)).sum(axis=1)
    )
    return float(of_groups.sum())


def _example(child: Column, parent: Column, contexts: np.ndarray, n: np.ndarray) -> str:
    """Describe the levels of parent and child whose joint count exceeds independence the most. n (U, V): counts."""
    rows, everywhere = n.sum(axis=1, keepdims=True), n.sum(axis=0) / max(n.sum(), 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        more = np.where(n > 0, n - rows * everywhere, 0.0)
    more[np.bincount(contexts, minlength=len(n)) > 1] = 0.0  # the rest of many levels has no name
    u, v = np.unravel_index(int(more.argmax()), n.shape)
    if more[u, v] <= 0:
        return ""
    where = f"{cut(parent.name)} is {_in_words(parent, int(np.flatnonzero(contexts == u)[0]))}"
    return f"{cut(child.levels[v])} in {percent(n[u, v] / rows[u, 0])} where {where}, {percent(everywhere[v])} of all"


def _in_words(parent: Column, level: int) -> str:
    """Describe a level of a parent, or an atom or bin of a number."""
    if parent.levels:
        return cut(parent.levels[level])
    if level < len(parent.atoms):
        return levels(parent)[level]
    low, high = (end[level - len(parent.atoms)] for end in bounds(parent))
    if not np.isfinite(high):
        return f"above {low:.6g}" if parent.kind == "real" else f"{low:.6g} or more"
    return f"{low:.6g} to {high:.6g}" if np.isfinite(low) else f"up to {high:.6g}"


def sentences(links: Links | None) -> list[str]:
    """Return the verdict's sentences about links."""
    if links is None:
        return []
    sure = links.sure
    if not sure:
        return ["No pair of columns is sure to stay linked inside clusters."]
    named = ", ".join(f"{cut(p.child)} with {cut(p.parent)}" for p in sure[:3])
    more = f" and {len(sure) - 3:,} more" if len(sure) > 3 else ""
    stay = "pairs of columns stay" if len(sure) > 1 else "pair of columns stays"
    return [f"Inside clusters {len(sure):,} {stay} linked: {named}{more}."]


def section(links: Links, figures: Sequence[Figure]) -> Section:
    """Return the section on pairs of columns that stay dependent inside clusters."""
    fields = (
        Field("column", "text"), Field("depends on", "text", "its parent, in most draws"),
        Field("draws", "share", "in which the two are linked, either way"),
        Field("sure in", "text", f"chains with the link in at least {percent(SURE)} of the draws"),
        Field("gain, nats", "number", "a row, of the column's cells within clusters"), Field("for example", "text"),
    )  # fmt: skip
    rows = [[pair.child, pair.parent, pair.share, pair.sure, pair.gain, pair.example] for pair in links.pairs]
    words = (
        "These columns depend on each other inside clusters, in the same way in all clusters; clusters describe what "
        "rows have in common beyond that. A link has no causal direction. "
        f"Shares are of {counted(links.n_draws, 'draw')}."
    )
    return Section("links", "Linked columns", [words, Table("pair", fields, rows), *figures], PAGE)


@styled
def forest_picture(links: Links):
    """Draw linked columns as indented lists, each column below its parent in most draws. The width of a line shows the
    share of the draws."""
    children: dict[str, list[LinkedPair]] = {}
    for pair in links.pairs:
        if pair.share > MOST:
            children.setdefault(pair.parent, []).append(pair)
    leaning = {pair.child for of in children.values() for pair in of}
    places: list[tuple[int, str, float, int]] = []  # depth, name, share, line of the parent

    def put(name: str, depth: int, share: float, above: int) -> None:
        line = len(places)
        places.append((depth, name, share, above))
        if name in (place[1] for place in places[:line]):
            return  # majorities may form a cycle
        for pair in children.get(name, []):
            put(pair.child, depth + 1, pair.share, line)

    for name in children:
        if name not in leaning:
            put(name, 0, 0.0, -1)
    figure = plot(6.5, 0.6 + 0.24 * max(len(places), 1))
    axes = figure.add_subplot()
    axes.axis("off")
    axes.grid(visible=False)
    for line, (depth, name, share, above) in enumerate(places):
        if above >= 0:
            x = depth - 0.75
            axes.plot(
                [x, x, depth - 0.1], [above + 0.35, line, line], color=INK, lw=3.0 * share - 0.5, solid_capstyle="butt"
            )
        axes.text(depth, line, shortened(name, LETTERS), va="center", fontsize=8.5)
    axes.set(xlim=(-0.1, max((p[0] for p in places), default=0) + 3.0), ylim=(max(len(places), 1) - 0.4, -0.6))
    axes.set_title("Links in most draws: each column below its parent", loc="left", fontsize=10)
    return figure
