"""The program's sampler on a tiny table with links in views, started at exact draws, and wrong versions of its code."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from unittest import mock

import numpy as np
from scipy.special import gammaln

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.columns import subtrees
from mpibayes.hpc.parallel import shards
from mpibayes.io.table import table_from_arrays
from tests.exact.compare import Verdict, by_looks, judge
from tests.exact.production import STRIDE
from tests.links.enumerate_views import BOTH, CHILD, LINE, REAL, ViewsPosterior


def sampler(comm, law: ViewsPosterior, n_shards: int, seed: int, kind=Mixture, **settings) -> Mixture:
    """The program's chain of the law's table; columns move and links are drawn in every cycle."""
    given, priors = [], {}
    for c, (cells, n) in enumerate(law.columns):
        levelled = (n or 0) > 0
        levels = tuple(f"v{v}" for v in range(n)) if levelled else ()
        given.append((f"c{c}", "categorical" if levelled else "real", np.array(cells), levels))
        priors[f"c{c}"] = {"grid": law.betas} if levelled else REAL
        if (n or 0) < 0:
            priors[f"c{c}"] = REAL | {"variance": list(law.variances)}
    columns, rows = table_from_arrays(given)
    columns = [
        replace(column, line=n in (LINE, BOTH), child=n in (CHILD, BOTH))
        for column, (_, n) in zip(columns, law.columns)
    ]
    settings = {"links": "forest", "link_moves": 1, "column_moves": 1, "split_merge": 0, "view_moves": 0, **settings}
    process = {
        "concentration": law.law_of_rows[0], "discount": law.law_of_rows[1],
        "view_concentration": law.law_of_views[0], "view_discount": law.law_of_views[1],
    }  # fmt: skip
    settings = Settings(seed=seed, shards=n_shards, priors=priors, **{**process, **settings})
    return kind(comm, columns, lambda a, b: rows.take(np.arange(a, b)), len(rows), settings)


def put(mixture: Mixture, law: ViewsPosterior, s: int, cycles: int, generator) -> None:
    """Put the chain at a state of the law after `cycles` cycles, with pseudo-counts drawn given it."""
    views, by, parents = law.views[s].tolist(), law.by[s], law.parents[s]
    if mixture.settings.links == "forest":
        mixture.linking.link(np.full(len(parents), -1))
    mixture.arrange([[f"c{c}" for c, v in enumerate(views) if v == view] for view in range(max(views) + 1)])
    mixture.linking.link(parents)
    cut, drawn = shards.bounds(mixture.n_rows, mixture.n_shards), law.draw_hyper(s, generator)
    for view in mixture.views:
        z = law.partitions[by[int(view.columns[0][1:])]]
        of_column = view.components.by_column(view.hyper)
        of_column |= {name: drawn[int(name[1:])] for name in view.columns if int(name[1:]) in drawn}
        hyper = view.components.hyper(view.hyper.concentration, view.hyper.discount, of_column)
        view.resume(lambda i, z=z: z[cut[i] : cut[i + 1]], int(z.max()) + 1, hyper)
    mixture.resume(cycles)


def state(mixture: Mixture, law: ViewsPosterior) -> int | None:
    """Number of the chain's state, on root. Collective."""
    labels = [view.labels() for view in mixture.views]
    if mixture.comm.rank:
        return None
    where = {name: v for v, view in enumerate(mixture.views) for name in view.columns}
    views = [where[f"c{c}"] for c in range(len(law.columns))]
    return law.number(views, [labels[v].tolist() for v in views], mixture.linking.coding.parents.tolist())


def history(mixture: Mixture, law: ViewsPosterior, first: int, starts, cycles: int, seed: int) -> list | None:
    """Numbers of states (replicates, cycles) from these starts, on root; None elsewhere."""
    out = []
    for r, start in enumerate(starts, first):
        put(mixture, law, int(start), r * STRIDE, np.random.default_rng([seed, r]))
        out.append([mixture.cycle() and state(mixture, law) for _ in range(cycles)])
    return None if mixture.comm.rank else out


def verdict(comm, law, n_shards, n_replicates, seed, cycles, level, looks=1, **settings) -> Verdict | None:
    """Compare the program with the enumeration, from exact draws; None off root."""
    mixture = sampler(comm, law, n_shards, seed, **settings)
    starts = np.random.default_rng(seed + 1).choice(len(law.p), n_replicates, p=law.p / law.p.sum())
    names, table = law.summaries

    def more(first, last):
        return history(mixture, law, first, starts[first:last], cycles, seed)

    def judged(found):
        found = np.array(found)
        means = table[:, found].mean(axis=2).T
        return judge(found[:, -1], law.p, names, means, table @ law.p, level)

    return by_looks(more, judged, n_replicates, looks)


# ---- wrong twins -----------------------------------------------------------------------------------------------------


def _weights(change):
    right = subtrees._Scan._log_weights

    def wrong(self, body, units, n_views):
        return change(self, body, units, *right(self, body, units, n_views))

    return mock.patch.object(subtrees._Scan, "_log_weights", wrong)


@contextlib.contextmanager
def a_share_for_a_parent():
    """Wrong: each of the D parents of a view has 1 / D of the weight of none."""

    def change(self, body, units, none, parent):
        n = sum(len(self.columns_of[u]) for u in units or ())
        return none, none - np.log(n) if n and np.isfinite(parent) else parent

    with _weights(change):
        yield


@contextlib.contextmanager
def weight_of_a_single_column():
    """Wrong: a subtree has the weight of one column among the views."""

    def change(self, body, units, none, parent):
        s, d = len(body.units), self.discount
        m = len(units) if units is not None else 0
        right = gammaln(m + s - d) - gammaln(m - d) if m else gammaln(s - d) - gammaln(1.0 - d)
        more = (np.log(m - d) if m else 0.0) - right
        return none + more, parent + more

    with _weights(change):
        yield


@contextlib.contextmanager
def numbers_by_the_first_partition():
    """Wrong: numbers that may depend on others are scored by the rows of the first view, not of their own."""
    right = subtrees._Scan._numbers_under
    with mock.patch.object(subtrees._Scan, "_numbers_under", lambda self, of: right(self, self.partitions[0])):
        yield
