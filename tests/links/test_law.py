"""Trees of linked columns against sums over all cells: scores, columns given others, draws, rows left out."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.stats import chisquare

from mpibayes.hpc.components.categorical import Categorical
from mpibayes.hpc.data.events import Events, Known
from mpibayes.hpc.links import tree as trees
from mpibayes.hpc.links.coding import Coding
from mpibayes.hpc.links.law import TreeLaw
from mpibayes.hpc.links.linked import counted, linked
from mpibayes.hpc.links.tables import Table
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.io.rows import Column

K = 3
LEVELS = {"a": 3, "b": 2, "c": 4, "d": 2, "e": 3, "income (0)": 2}
PARENTS = {  # chain, star, and both, with a column by itself
    "chain": {"b": "a", "c": "b", "d": "c", "income (0)": "d"},
    "star": {"a": "c", "b": "c", "d": "c", "income (0)": "c"},
    "mixed": {"c": "a", "b": "c", "d": "c", "income (0)": "a", "e": "income (0)"},
    "two": {"a": "b", "e": "d", "income (0)": "d"},
}
CONTEXTS = {"a": [0, 1, 1], "b": [0, 1], "c": [1, 0, 1, 2], "d": [0, 1], "e": [0, 0, 0], "income (0)": [0, 1]}
NUMBER = Column("income", "real", "reals", 0, atoms=(0.0,))


def columns():
    every = [
        Column(n, "categorical", "codes8", i, tuple(map(str, range(v)))) for i, (n, v) in enumerate(LEVELS.items())
    ]
    return [replace(c, part_of="income") if c.name.startswith("income") else c for c in every]


class Case:
    """A forest with random counts of K clusters; probability of any row in every cluster, term by term."""

    def __init__(self, forest, seed=1):
        self.g = np.random.default_rng(seed)
        plain, names = columns(), list(LEVELS)
        parents = [names.index(PARENTS[forest][n]) if n in PARENTS[forest] else -1 for n in names]
        self.coding = Coding(plain, np.array(parents), {n: np.array(of) for n, of in CONTEXTS.items()})
        self.parents, self.kind = parents, Categorical(self.coding.columns, {}, {})
        self.multiplier = self.g.uniform(0.2, 2.0, len(self.kind))
        self.counts = self.g.integers(0, 6, (int(self.kind.offsets[-1]), K)).astype(np.int32)
        law = self.kind.predictive(self.multiplier, (self.counts,))
        self.p = {}  # by name (U, V, K + 1), in double precision
        pseudo = self.kind.pseudo_counts(self.multiplier)
        for c, column in enumerate(self.kind.columns):
            part = slice(self.kind.offsets[c], self.kind.offsets[c + 1])
            weight = np.append(self.counts[part], np.zeros((part.stop - part.start, 1)), axis=1) + pseudo[part, None]
            weight = weight.reshape(column.contexts, -1, K + 1)[:, :-1]
            self.p[column.name] = weight / weight.sum(axis=1, keepdims=True)
            assert np.allclose(self.p[column.name], law.in_contexts(c), rtol=1e-6)
        self.log_number = self.g.normal(-1.0, 0.7, (50, K + 1))
        self.laws, self._joints = [], {}
        for of in linked(self.coding, self.kind):
            tables = counted(self.kind, self.multiplier, self.counts, of)
            self.laws.append(TreeLaw(of, tables, self.numbers))

    def numbers(self, events):
        return self.log_number[events.low.astype(int)]

    def joint(self, tree):
        if tuple(tree) not in self._joints:
            self._joints[tuple(tree)] = self._joint(tree)
        return self._joints[tuple(tree)]

    def _joint(self, tree):
        """All combinations of levels of the columns of a tree, (R, columns), and their probabilities (R, K + 1)."""
        names = list(LEVELS)
        cells = np.array(list(product(*(range(LEVELS[names[c]]) for c in tree))))
        p = np.ones((len(cells), K + 1))
        for i, c in enumerate(tree):
            parent = self.parents[c]
            u = 0 if parent < 0 else np.array(CONTEXTS[names[parent]])[cells[:, tree.index(parent)]]
            p *= self.p[names[c]][u, cells[:, i]]
        return cells, p

    def summed(self, tree, shares):
        """Sum over all levels of the columns of a tree of shares {column: (V, K + 1)} times their probability."""
        cells, p = self.joint(tree)
        for c, share in shares.items():
            p = p * share[cells[:, tree.index(c)]]
        return p.sum(axis=0)

    def event(self, name, kind):
        """Events of a column, one for each row: shares (V, K + 1), and as `Events`."""
        column = next(c for c in self.coding.plain if c.name == name)
        n, plain = len(column.levels), NUMBER if name.startswith("income") else column
        share = np.zeros((n, K + 1))
        if plain is NUMBER:
            at = float(self.g.integers(50))
            if kind != "atom":
                share[-1] = np.exp(self.log_number[int(at)])
            if kind != "code":
                share[0] = 1.0
            blank = np.full(1, np.nan if kind == "atom" else at)
            sets = None if kind != "set" else np.ones((1, 1), bool)
            return share, Events(NUMBER, np.full(1, 0 if kind == "atom" else -1), sets, blank, blank)
        if kind != "set":
            code = int(self.g.integers(n))
            share[code] = 1.0
            return share, Events(plain, np.array([code]))
        chosen = self.g.permutation(n) < max(1, n - 1)
        share[chosen] = 1.0
        return share, Events(plain, np.array([-1]), chosen[None])


def known_rows(case, law, n=40, but=None, share=0.45):
    """Rows with random knowledge of each column but one: Known, and of each row the shares {column: (V, K + 1)}."""
    names, rows, of = list(LEVELS), [{} for _ in range(n)], {}
    for name, c in zip(law.names, law._of.plain):
        if c == but:
            continue
        by_set, events, which = case.g.random() < 0.4, [], []
        for row in rows:
            if case.g.random() < share:
                kind = "set" if by_set else str(case.g.choice(["code", "atom"]))
                of_levels, event = case.event(names[c], kind)
                row[c] = of_levels
                which.append(len(events))
                events.append(event)
            else:
                which.append(-1)
        if events:
            sets = np.concatenate([e.sets for e in events]) if by_set else None
            joined = (np.concatenate([getattr(e, f) for e in events]) for f in ("low", "high"))
            all_events = Events(events[0].column, np.concatenate([e.codes for e in events]), sets, *joined)
            of[name] = all_events, np.where(np.array(which) < 0, len(events), which)
    return Known(n, of), rows


FORESTS = pytest.mark.parametrize("forest", PARENTS)


@FORESTS
@pytest.mark.parametrize("seed", range(3))
def test_scores_are_sums_over_the_cells_that_nobody_knows(forest, seed):
    case = Case(forest, seed)
    for law in case.laws:
        known, rows = known_rows(case, law)
        exact = [np.log(case.summed(law._of.plain, shares)) for shares in rows]
        assert np.allclose(law.score(known), exact, atol=1e-10)


@FORESTS
def test_trees_are_of_the_linked_columns(forest):
    case, names = Case(forest), list(LEVELS)
    inside = sorted(names[c] for law in case.laws for c in law._of.plain)
    assert inside == sorted({*PARENTS[forest], *PARENTS[forest].values()})
    assert len(case.laws) == (2 if forest == "two" else 1)


@FORESTS
@pytest.mark.parametrize("seed", range(2))
def test_events_given_other_columns(forest, seed):
    case = Case(forest, seed)
    for law in case.laws:
        for name, c in zip(law.names, law._of.plain):
            known, rows = known_rows(case, law, 12, but=c)
            weight = case.g.random((12, K + 1))
            made = [case.event(list(LEVELS)[c], kind) for kind in ("code", "code", "code", "atom")]
            fields = ("codes", "low", "high")
            joined = {f: np.concatenate([getattr(e, f) for _, e in made]) for f in fields}
            events = Events(made[0][1].column, joined["codes"], None, joined["low"], joined["high"])
            result = law.averaged(events, weight, known)
            for i, shares in enumerate(rows):
                without = case.summed(law._of.plain, shares)
                exact = [weight[i] @ (case.summed(law._of.plain, {**shares, c: s}) / without) for s, _ in made]
                assert np.allclose(result[i], exact, atol=1e-10)
            one = Known(12, {name: (events, case.g.integers(0, 4, 12))})
            exact = [
                np.log(case.summed(law._of.plain, {**shares, c: made[w][0]}) / case.summed(law._of.plain, shares))
                for shares, w in zip(rows, one.of[name][1])
            ]
            assert np.allclose(law.given(one, known), exact, atol=1e-10)
            assert np.allclose(law.log_masses(events)[0], np.log(case.summed(law._of.plain, {c: made[0][0]})))


@FORESTS
def test_pairs_of_columns(forest):
    """The joint tables of events of two columns are those of scores."""
    case = Case(forest)
    for law in case.laws:
        weight = case.g.random(K + 1)
        made = {}
        for name, c in zip(law.names, law._of.plain):
            each = [case.event(list(LEVELS)[c], kind)[1] for kind in ("code", "atom", "code")]
            fields = (np.concatenate([getattr(e, f) for e in each]) for f in ("low", "high"))
            made[name] = Events(each[0].column, np.concatenate([e.codes for e in each]), None, *fields)
        for x in law.names:
            tables = {y: table for y, table, _ in law.joint(made[x], made, weight)}
            assert set(tables) == set(law.names) - {x}
            for y, table in tables.items():
                i, j = (at.ravel() for at in np.indices((3, 3)))
                score = law.score(Known(9, {x: (made[x], i), y: (made[y], j)}))
                assert np.allclose(table.ravel(), np.exp(score) @ weight, atol=1e-12)


@FORESTS
def test_rows_left_out_of_their_clusters(forest):
    """Probabilities are those of counts of the row's cluster that were made without it."""
    case = Case(forest)
    names = list(LEVELS)
    for law in case.laws:
        known, _ = known_rows(case, law, 20)
        known = Known(20, {n: of for n, of in known.of.items() if n != "income"})
        cluster = case.g.integers(0, K, 20)
        levels = np.column_stack([case.g.integers(0, LEVELS[names[c]], 20) for c in law._of.plain])
        levels[:, -1] = np.where(case.g.random(20) < 0.3, -1, levels[:, -1])  # of a leaf
        case.counts += 1  # so that a row can leave
        tables = counted(case.kind, case.multiplier, case.counts, law._of)
        result = TreeLaw(law._of, tables, case.numbers).left_out(known, cluster, levels)
        for i in range(20):
            fewer = case.counts.copy()
            row = dict(zip(law._of.plain, levels[i]))
            for j, c in enumerate(law._of.plain):
                parent, column = case.parents[c], law._of.column[j]
                u = 0 if parent < 0 else CONTEXTS[names[parent]][row[parent]]
                if row[c] >= 0:
                    fewer[case.kind.offsets[column] + u * (LEVELS[names[c]] + 1) + row[c], cluster[i]] -= 1
            part = counted(case.kind, case.multiplier, fewer, law._of)
            exact = TreeLaw(law._of, part, case.numbers).score(known.take(np.array([i])))[0, cluster[i]]
            assert np.isclose(result[i], exact, atol=1e-10)


def leaves(law):
    return [c for i, c in enumerate(law._of.plain) if i not in law._of.tree.parents]


def p_of_draws(case, law, n=10_000):
    """Chi-square test of the frequencies of rows, drawn given what is known of the leaves; rare rows together."""
    known, (shares,) = known_rows(case, law, 1, share=1.0)
    known = known.only([name for name, c in zip(law.names, law._of.plain) if c in leaves(law)])
    many, cluster = known.take(np.zeros(n, np.intp)), 1
    drawn, _ = law.draw(law.tables, many, law.names, np.full(n, cluster), Stream(1, Purpose.SIMULATED, 1), np.arange(n))
    cells, p = case.joint(law._of.plain)
    p = p[:, cluster]
    for c in leaves(law):
        p = p * shares[c][cells[:, law._of.plain.index(c)], cluster]
    p /= p.sum()
    result = np.column_stack([drawn[name] for name in law.names])
    times = (result[:, None, :] == cells).all(axis=2).sum(axis=0)
    assert (times[p == 0.0] == 0).all()
    often = n * p > 20
    pooled = [np.append(a[often], a[~often].sum()) for a in (times, n * p)]
    return chisquare(*(a[pooled[1] > 0.0] for a in pooled)).pvalue


@FORESTS
def test_draws_are_joint(forest):
    """A false alarm in 2,000 seeds: five trees, each in 10,000."""
    case = Case(forest, 5)
    for law in case.laws:
        assert p_of_draws(case, law) > 1e-4


def test_draws_that_look_at_parents_alone_are_rejected(monkeypatch):
    case = Case("mixed", 5)
    monkeypatch.setattr(trees.Messages, "below", lambda self, c, rows: None)
    assert p_of_draws(case, *case.laws) < 1e-20


def test_scores_that_leave_out_what_is_below_an_unknown_parent_are_rejected(monkeypatch):
    case = Case("mixed", 2)
    (law,) = case.laws
    known, rows = known_rows(case, law)
    exact = np.array([np.log(case.summed(law._of.plain, shares)) for shares in rows])
    monkeypatch.setattr(trees.Messages, "below", lambda self, c, rows: None)
    assert (np.abs(law.score(known) - exact).max(axis=1) > 0.01).mean() > 0.2


def test_long_chains_of_wide_columns_have_no_underflow():
    """A thousand columns in a chain, of which every other cell is known."""
    g, n = np.random.default_rng(3), 1000
    tree = trees.Tree([-1, *range(n - 1)], [np.arange(5)] * n)
    tables = [
        Table(g.integers(0, 3, (1 if c == 0 else 5, 5, 2)), np.full((1 if c == 0 else 5, 5), 0.1)) for c in range(n)
    ]
    levels = np.where(np.arange(n) % 2, g.integers(0, 5, (2, n)), -1)
    total = trees.Messages(tree, tables, trees.Evidence(levels), 3).total
    assert np.isfinite(total).all() and (total < -500).all()
