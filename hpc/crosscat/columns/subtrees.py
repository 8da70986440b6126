"""Scan of the columns where links are part of the state: a column changes views with its descendants (docs/math.md
2.9).

A column moves with its subtree to another view, where it gets a parent among the columns there or none, or to a new
view. Columns below it keep their parents. Auxiliary views are as in `scan`, and row labels are fixed. A scan that does
not cut moves whole trees, and so needs no evidence of absent links. A scan that cuts sums out the hyperparameters of
numeric columns (see `links.numbers`), and draws them at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.crosscat.columns.scan import AUXILIARY, Present, Rowwise, auxiliaries, of_views, scores
from mpibayes.hpc.crosscat.lines.evidence import number_evidence
from mpibayes.hpc.links.coding import Coding
from mpibayes.hpc.links.forest import ROOT, log_prior_of
from mpibayes.hpc.links.numbers import MOST_HYPER, Numbers
from mpibayes.hpc.links.scores import Evidence
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.io.rows import Rows
from mpibayes.kernels.common.functions import gammaln

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.chain import Mixture


class Body(NamedTuple):
    """Columns that move together. units: their units; columns: the linkable ones; root: the column that leaves its
    parent and may get another, or None; n_links: number of links between them."""

    units: list[int]
    columns: list[int]
    root: int | None
    n_links: int


class Option(NamedTuple):
    """A partition that a body may join, and the parent of its root there."""

    partition: int
    parent: int


class Scanned(NamedTuple):
    """Result of a scan. where: partition of each unit; partitions: views' first; parents (C,): of each column, as in
    `links.coding.Coding`; hyper: newly drawn hyperparameters, by column name."""

    where: list[int]
    partitions: list[Rowwise]
    parents: np.ndarray
    hyper: Mapping[str, np.ndarray]


def scan(chain: Mixture, cut: bool) -> Scanned:
    """Scan all columns once, in random order. Collective."""
    state = _Scan(chain, cut)
    visited: set[int] = set()
    for unit in state.stream.permutation(len(chain.units)).tolist():
        if unit not in visited:
            visited |= set() if cut else set(state.body(unit).units)
            state.draw(unit)
    return Scanned(state.where, state.partitions, state.all_parents(), state.hyper())


class _Scan:
    """State of a scan. Linkable columns are numbered: those with levels first, then the numeric ones. Partitions are
    numbered views first.

    where (U,): partition of each unit. parents (D,). kept: the auxiliary partitions. Scores, on root: unlinked (U, P),
    of a unit's columns that cannot be linked; own (D, P), of a column given its present parent; alone (D, P), of a
    column without a parent; below (D, D), of a column given each other column, under that one's partition. `alone` and
    `below` are filled only in scans that cut; numbers[p] then has the evidence of numeric columns under partition p.
    """

    def __init__(self, chain: Mixture, cut: bool):
        self.chain, self.comm, self.cut = chain, chain.comm, cut
        first, (self.concentration, self.discount) = chain.views[0], chain.process
        self.key = first.key(chain.cycles)
        self.stream = generator(purpose=Purpose.COLUMNS, **self.key)
        self.where, self.partitions, self.present = chain.view_of_unit, of_views(chain.views), Present.of(first)
        coding = chain.linking.coding
        levelled = chain.linking.unlinked([column.name for column in chain.columns]).categorical.columns
        names = [column.name for column in (*levelled, *(coding.plain[c] for c in coding.leaning))]
        self.names, self.n_levelled = names, len(levelled)
        place, home = {name: c for c, name in enumerate(names)}, coding.parent_of
        self.parents = np.array([place[home[name]] if name in home else ROOT for name in names], np.int64)
        self.at_first = self.parents.copy()
        self.columns_of = [[place[name] for name in unit if name in place] for unit in chain.units]
        self.unit_of = {c: u for u, columns in enumerate(self.columns_of) for c in columns}
        self.kept: list[int] = []
        self.n_fresh = 0
        unlinked = [[name for name in unit if name not in place] for unit in chain.units]
        self._groups = [*zip(names), *unlinked]
        self.numbers: list[Numbers] = []
        self.below = np.full((len(names), len(names)), -np.inf)
        self.unlinked, self.own, self.alone = (np.zeros((n, 0)) for n in (len(unlinked), len(names), len(names)))
        self._append(self.partitions)
        for column in range(len(names)) if cut else ():
            self._score_below(column)

    # --- scores; collective ------------------------------------------------------------------------------------------

    @cached_property
    def _plain(self) -> tuple[Coding, Components, Hyper, list[Rows]]:
        """Coding, components and hyperparameters of the linkable columns without links, and their cells per shard."""
        chain, subject, coding = self.chain, self.chain.subject(self.names), self.chain.linking.coding_of(self.names)
        plain = chain.linking.unlinked(self.names)
        hyper = plain.hyper(1.0, 0.0, subject.components.by_column(subject.hyper))
        return coding, plain, hyper, [coding.decoded(subject.cells(i)) for i in range(len(chain.shards))]

    @cached_property
    def evidence(self) -> Evidence:
        """Evidence of links between columns with levels."""
        coding, plain, hyper, rows = self._plain
        return Evidence(self.comm, coding.contexts, plain.categorical, hyper.dirichlet, rows)

    def _numbers_under(self, of: Rowwise) -> Numbers:
        (coding, plain, hyper, rows), n_shards = self._plain, self.chain.n_shards
        labelled = list(zip(rows, _int32(of.z)))
        return number_evidence(self.comm, coding, self.chain.priors, plain, hyper, labelled, of.n_labels, n_shards)

    def _append(self, more: Sequence[Rowwise]) -> None:
        """Score all columns under more partitions."""
        d, n = len(self.parents), self.n_levelled
        result = scores(self.comm, self.chain.views, self._groups, more)  # under the links at the start of the scan
        result = np.zeros((len(self._groups), len(more))) if result is None else result
        part, alone = result[:d], result[:d].copy()
        if self.cut:
            linked = np.flatnonzero(self.at_first[:n] != ROOT)
            for p, of in enumerate(more):
                if len(linked):
                    alone[linked, p] = self.evidence.alone(_int32(of.z), of.n_labels, linked)
                if d > n:
                    self.numbers.append(self._numbers_under(of))
                    alone[n:, p] = self.numbers[-1].under(ROOT, range(d - n))
            changed = self.parents != self.at_first
            changed[n:] = True
            live = range(len(self.partitions) - len(more), len(self.partitions))
            for column in np.flatnonzero(changed).tolist():
                part[column] = self._under_parent(column, live) if self.parents[column] != ROOT else alone[column]
        self.unlinked = np.concatenate([self.unlinked, result[d:]], axis=1)
        self.own = np.concatenate([self.own, part], axis=1)
        self.alone = np.concatenate([self.alone, alone], axis=1)

    def _under_parent(self, column: int, partitions: Sequence[int]) -> list[float]:
        parent, one, n = int(self.parents[column]), np.array([column]), self.n_levelled
        if column >= n:
            return [float(self.numbers[p].under(parent, [column - n])[0]) for p in partitions]
        of = (self.partitions[p] for p in partitions)
        return [float(self.evidence.under(parent, one_of.z, one_of.n_labels, one)[0]) for one_of in of]

    def _score_below(self, column: int) -> None:
        """Score other columns given this one as their parent, under its partition."""
        p, n = self.where[self.unit_of[column]], self.n_levelled
        if self.numbers:
            self.below[n:, column] = self.numbers[p].under(column, range(len(self.names) - n))
        if column < n:
            children, of = self.evidence.children(column), self.partitions[p]
            if len(children):
                self.below[children, column] = self.evidence.under(column, of.z, of.n_labels, children)

    def _refresh(self) -> None:
        """Add auxiliary partitions until there are AUXILIARY."""
        lacking = AUXILIARY - len(self.kept)
        if lacking:
            numbers = range(self.n_fresh, self.n_fresh + lacking)
            more = auxiliaries(self.comm, self.chain.views[0].law, self.present, self.key, numbers)
            self.kept += range(len(self.partitions), len(self.partitions) + lacking)
            self.n_fresh += lacking
            self.partitions += more
            self._append(more)

    # --- draws -------------------------------------------------------------------------------------------------------

    def body(self, unit: int) -> Body:
        """Return the columns that move with a unit."""
        columns = self.columns_of[unit]
        root = columns[0] if self.cut and len(columns) == 1 else None
        units = self._joined(unit, root)
        if root is not None and self.parents[root] != ROOT and self.unit_of[int(self.parents[root])] in units:
            root = None  # the parent moves too, joined through other columns of a unit
            units = self._joined(unit, root)
        columns = [c for u in units for c in self.columns_of[u]]
        n_links = sum(self.parents[c] != ROOT for c in columns if c != root)
        return Body(units, columns, root, n_links)

    def _joined(self, unit: int, root: int | None) -> list[int]:
        """Return the units linked with this one, directly or indirectly, without the link of `root` to its parent."""
        near: dict[int, set[int]] = {}
        for child, parent in enumerate(self.parents.tolist()):
            if parent != ROOT and child != root:
                a, b = self.unit_of[child], self.unit_of[parent]
                near.setdefault(a, set()).add(b)
                near.setdefault(b, set()).add(a)
        result = [unit]
        for u in result:  # `result` grows in the loop
            result += sorted(near.get(u, set()) - set(result))
        return result

    def draw(self, unit: int) -> None:
        """Draw the partition of a unit's body, and the parent of the body's root. Collective."""
        body, left = self.body(unit), self.where[unit]
        inside, before = set(body.units), None if body.root is None else self.parents[body.root]
        members: dict[int, list[int]] = {}
        for u, p in enumerate(self.where):
            if u not in inside:
                members.setdefault(p, []).append(u)
        self._refresh()
        if left not in members:  # a view that lost its last column becomes auxiliary, in place of a random other
            self.kept[int(self.stream.integers(AUXILIARY))] = left
        options, u = list(self._options(body, members)), self.stream.random()
        chosen = self._pick(body, members, options, u) if self.comm.rank == 0 else 0
        partition, parent = options[int(self.comm.share(chosen))]
        if partition not in members:
            self.kept.remove(partition)
        for part in body.units:
            self.where[part] = partition
        if body.root is not None:
            self.parents[body.root] = parent
            if parent != before:
                self._follow(body.root)
            if partition != left:
                for column in body.columns:
                    self._score_below(column)

    def _options(self, body: Body, members: dict[int, list[int]]) -> Iterator[Option]:
        for partition, units in members.items():
            yield Option(partition, ROOT)
            if body.root is not None:
                yield from (Option(partition, c) for u in units for c in self.columns_of[u])
        yield from (Option(partition, ROOT) for partition in self.kept)

    def _pick(self, body: Body, members: dict[int, list[int]], options: Sequence[Option], u: float) -> int:
        """Draw an option with the uniform number u; return its index. On root."""
        of = {partition: self._log_weights(body, members.get(partition), len(members)) for partition in
              {option.partition for option in options}}  # fmt: skip
        evidence = {partition: self._log_evidence(body, partition) for partition in of}
        weight = np.empty(len(options))
        for i, (partition, parent) in enumerate(options):
            weight[i] = of[partition][parent != ROOT] + evidence[partition]
            if body.root is not None:
                root = self.alone[body.root, partition] if parent == ROOT else self.below[body.root, parent]
                weight[i] += root
        below = np.cumsum(np.exp(weight - weight.max()))
        return min(int(np.searchsorted(below, u * below[-1], side="right")), len(weight) - 1)

    def _log_evidence(self, body: Body, partition: int) -> float:
        """Return the log evidence of a body, without its root, under a partition."""
        columns = [c for c in body.columns if c != body.root]
        return float(self.unlinked[body.units, partition].sum() + self.own[columns, partition].sum())

    def _log_weights(self, body: Body, units: list[int] | None, n_views: int) -> tuple[float, float]:
        """Return the log prior weights of moving a body to a partition without and with a given parent for its root.
        units: the partition's units; None: an auxiliary partition."""
        s, d = len(body.units), self.discount
        if units is None:
            new = self.concentration + n_views * d if n_views else 1.0
            log_views = np.log(new / AUXILIARY) + gammaln(s - d) - gammaln(1.0 - d)
            n, e = 0, 0
        else:
            log_views = gammaln(len(units) + s - d) - gammaln(len(units) - d)
            columns = [c for u in units for c in self.columns_of[u]]
            n, e = len(columns), int((self.parents[columns] != ROOT).sum())
        before, n, e = log_prior_of(n, e), n + len(body.columns), e + body.n_links
        last = log_prior_of(n, e + 1) - before if units is not None and body.root is not None and e + 1 < n else -np.inf
        return float(log_views + log_prior_of(n, e) - before), float(log_views + last)

    def _follow(self, column: int) -> None:
        """Score a column with its new parent, or without one, under all partitions. Collective."""
        live = sorted({*self.where, *self.kept})
        if self.parents[column] == ROOT:
            self.own[column] = self.alone[column]
        else:
            self.own[column, live] = self._under_parent(column, live)

    def all_parents(self) -> np.ndarray:
        """Return the parents of all columns of the table, (C,)."""
        place = {column.name: i for i, column in enumerate(self.chain.columns)}
        at = np.array([place[name] for name in self.names], np.int64)
        result = np.full(len(place), ROOT)
        result[at] = np.where(self.parents == ROOT, ROOT, at[self.parents])
        return result

    def hyper(self) -> dict[str, np.ndarray]:
        """Draw the hyperparameters of the linkable numeric columns given their parents and partitions, if the scores
        integrate them out. Collective."""
        if not self.numbers:
            return {}
        n, of = self.n_levelled, self.numbers[0]
        result, u = np.zeros((len(of), MOST_HYPER)), self.stream.random(len(of))
        if self.comm.rank == 0:
            where = [self.where[self.unit_of[n + c]] for c in range(len(of))]
            for p in set(where):
                columns = [c for c, at in enumerate(where) if at == p]
                result[columns] = self.numbers[p].draw(self.parents[n:], u, columns)[columns]
        self.comm.broadcast(result)
        return dict(zip(self.names[n:], of.forms(result)))


def _int32(labels: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [z.astype(np.int32, copy=False) for z in labels]
