"""The program's chain of features on tiny tables: starts at exact draws, and wrong versions of its code.

As in production.py for mixtures. Each `wrong` context breaks one rule of docs/math.md 7.1 and restores it; rules inside
a sweep are broken in the kernels' plain twin, which itself is exact (`plain_kernels`).
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from math import inf, log
from unittest import mock

import numpy as np
import scipy

from mpibayes.hpc.ibp import chain as program
from mpibayes.hpc.ibp import update
from mpibayes.hpc.ibp.chain import Buffet
from mpibayes.hpc.ibp.state import Settings
from mpibayes.hpc.parallel import collapse
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.kernels.ibp import twin
from tests.exact.compare import Verdict, by_looks, judge
from tests.exact.ibp import CASES, Law, draw_prior, harmonic, log_rates

STRIDE = 1000  # cycle numbers from one replicate to the next: streams are keyed by cycle, so replicates are independent
LAWS: dict[str, Law] = {}


def law(name: str) -> Law:
    """Exact distribution of a case, computed once."""
    if name not in LAWS:
        LAWS[name] = Law(CASES[name])
    return LAWS[name]


def chain(comm, case, n_shards, seed, opening="one", sweeps=1, **settings) -> Buffet:
    settings = {"moves": 0} | {**case.settings, "opening": opening, "sweeps_per_cycle": sweeps, **settings}
    n, d = case.x.shape
    return Buffet(comm, lambda a, b: case.x[a:b], n, d, Settings(seed=seed, shards=n_shards, **settings))


def cells(buffet: Buffet) -> np.ndarray:
    """Table with its missing cells as currently drawn, float64 (N, D), on every rank."""
    mine = [shard.rows.x[:, : buffet.n_columns].astype(np.float64) for shard in buffet.shards]
    ranks = buffet.comm.collect(np.concatenate(mine or [np.zeros((0, buffet.n_columns))]))
    return np.concatenate(ranks)


def replicates(buffet: Buffet, starts, cycles: int, record, first: int = 0) -> list | None:
    """Run `cycles` cycles from each (features, hyper, cells); return lists of record(features, hyper, cells) on root.

    first: number of the first of these replicates, which selects its streams."""
    out = []
    for r, (features, hyper, filled) in enumerate(starts, first):
        buffet.place(features, hyper, filled, r * STRIDE)
        seen = []
        for _ in range(cycles):
            buffet.cycle()
            now, table = buffet.features(), cells(buffet)
            if buffet.comm.rank == 0:
                seen.append(record(now, buffet.hyper, table))
        out.append(seen)
    return out if buffet.comm.rank == 0 else None


def verdict(
    comm, name, n_shards, opening, sweeps, n_replicates, cycles, seed, level, looks=1, **settings
) -> Verdict | None:
    """Compare the program with the enumeration; None off root. looks: `by_looks`. settings: override the case's."""
    exact = law(name)
    starts = exact.draw(np.random.Generator(np.random.Philox(seed + 1)), n_replicates)
    buffet = chain(comm, exact.case, n_shards, seed, opening, sweeps, **settings)

    def judged(seen):
        final = np.array([run[-1][0] for run in seen])
        means = np.array([[events for _, events in run] for run in seen]).mean(axis=1)
        return judge(final, exact.p, exact.names, means, exact.expected, level)

    return by_looks(lambda a, b: replicates(buffet, starts[a:b], cycles, exact.look, a), judged, n_replicates, looks)


def digest(buffet: Buffet, starts, cycles: int) -> str | None:
    """sha256 of features, hyperparameters and filled cells after every cycle from each start, on root."""
    total = hashlib.sha256()

    def feed(features, hyper, table):
        total.update(features.tobytes() + table.tobytes() + hyper.noise_sd.tobytes())
        total.update(np.array([hyper.alpha, hyper.c, hyper.feature_sd]).tobytes())

    done = replicates(buffet, starts, cycles, feed)
    return None if done is None else total.hexdigest()


# --- without likelihood -----------------------------------------------------------------------------------------------


def prior_events(n: int, alpha: float, c: float):
    """(names, probabilities, seen(sizes) -> bool array): K, and the number of features with each number of owners.

    K ~ Poisson(alpha H); features with m owners ~ Poisson(alpha C(n, m) exp(log_rates[m])), independent over m.
    """
    m = np.arange(n + 1)
    rates = alpha * np.exp(log_rates(n, c) + scipy.stats.binom(n, 0.5).logpmf(m) + n * np.log(2.0))
    assert abs(rates.sum() - alpha * harmonic(n, c)) < 1e-8 * rates.sum()
    edges = sorted({1, 2, 3, *np.geomspace(4, n + 1, 6).astype(int).tolist(), n, n + 1})
    bands = [(0, n + 1), *itertools.pairwise(edges)]
    names, p, tests = [], [], []
    for low, high in bands:
        mean = rates[low:high].sum()
        for most in sorted({int(v) for v in scipy.stats.poisson(mean).ppf([0.15, 0.5, 0.85])}):
            names.append(f"{low} to {high - 1} owners: at most {most}")
            p.append(scipy.stats.poisson(mean).cdf(most))
            tests.append((low, high, most))

    def seen(sizes):
        return np.array([((sizes >= low) & (sizes < high)).sum() <= most for low, high, most in tests])

    return names, np.array(p), seen


def prior_verdict(comm, n, alpha, c, n_shards, opening, n_replicates, cycles, seed, level, sweeps=1) -> Verdict | None:
    """Verdict on whether features without likelihood have the buffet's distribution; None off root."""
    names, p, seen = prior_events(n, alpha, c)
    settings = Settings(
        seed=seed, shards=n_shards, alpha=alpha, c=c, opening=opening, likelihood=False, sweeps_per_cycle=sweeps
    )
    buffet = Buffet(comm, lambda a, b: np.zeros((b - a, 1)), n, 1, settings)
    g = np.random.Generator(np.random.Philox(seed + 1))
    means, final = [], []
    for r in range(n_replicates):
        buffet.place(draw_prior(n, alpha, c, g), cycles=r * STRIDE)
        events = []
        for _ in range(cycles):
            buffet.cycle()
            sizes = buffet.totals.owned[buffet.totals.owned > 0]
            events.append(seen(sizes))
        means.append(np.mean(events, axis=0))
        final.append(len(sizes))
    if comm.rank != 0:
        return None
    k = scipy.stats.poisson(alpha * harmonic(n, c))
    law_of_k = k.pmf(np.arange(int(k.isf(1e-12)) + max(final) + 2))
    return judge(np.array(final), law_of_k, names, np.array(means), p, level)


# --- wrong versions of the program ------------------------------------------------------------------------------------


def no_anchors():
    """Wrong: rows off the collapsed shard may take and leave every instantiated feature."""
    right = Buffet._anchors

    def _anchors(self, key, at, owner):
        return {i: np.zeros_like(least) for i, least in right(self, key, at, owner).items()}

    return mock.patch.object(Buffet, "_anchors", _anchors)


def nothing_private():
    """Wrong: all features are instantiated, also those private to the collapsed shard."""
    return mock.patch.object(collapse, "private_clusters", lambda size, owned: size == 0)


def weights_as_printed():
    """Wrong: weights from Beta(N - m, m + c)."""
    return mock.patch.object(update, "weight_shapes", lambda m, n, c: (np.maximum(n - m, 1e-3), m + c))


def weights_without_concentration():
    """Wrong: weights from Beta(m, N - m)."""
    return mock.patch.object(update, "weight_shapes", lambda m, n, c: (m, np.maximum(n - m, 1e-3)))


def hyperparameters_last():
    """Wrong: new hyperparameters, given only the features, after weights and loadings drawn with the old ones."""
    right, weigh = update.learn, Buffet._weights
    before = {}

    def learn(settings, totals, n, hyper, law, scale):
        before["c"] = hyper.c
        key = {"seed": int(scale.integers(2**62)), "purpose": Purpose.LOADINGS}
        return right(settings, totals, n, hyper, law, scale)[0], update.loadings(totals, hyper, generator(**key))

    def weights(self, key, private):
        new, self.hyper.c = self.hyper.c, before["c"]
        result = weigh(self, key, private)
        self.hyper.c = new
        return result

    stack = contextlib.ExitStack()
    stack.enter_context(mock.patch.object(update, "learn", learn))
    stack.enter_context(mock.patch.object(Buffet, "_weights", weights))
    return stack


def variances_last():
    """Wrong: new variances after loadings drawn with the old ones, but given other loadings."""
    right = update.learn

    def learn(settings, totals, n, hyper, law, scale):
        key = {"seed": int(scale.integers(2**62)), "purpose": Purpose.LOADINGS}
        kept = update.loadings(totals, hyper, generator(**key))
        return right(settings, totals, n, hyper, law, scale)[0], kept

    return mock.patch.object(update, "learn", learn)


@contextlib.contextmanager
def plain_kernels(tail=twin.Tail, features=twin.Features):
    """The program on the kernels' plain Python twins."""
    with (
        mock.patch.object(program, "Rows", twin.Rows),
        mock.patch.object(program, "Features", features),
        mock.patch.object(program, "Tail", tail),
    ):
        yield


class _OwnRowCounted(twin.Tail):
    """Wrong: odds m : N - m, the row itself counted."""

    def owners(self, k):
        return super().owners(k) + int(self.z[k])

    def log_odds(self, m):
        return log(m / (self.n_all - m)) if m < self.n_all else inf

    def __init__(self, rows, features, owned, n_rows, *others):
        super().__init__(rows, features, owned, n_rows, *others)
        self.n_all = n_rows


class _OddsWithoutConcentration(twin.Tail):
    """Wrong: odds m : N - m, the row not counted: right only for c = 1."""

    def __init__(self, rows, features, owned, n_rows, *others):
        super().__init__(rows, features, owned, n_rows, *others)
        self.others = n_rows


class _BirthsAdded(twin.Tail):
    """Wrong: new features are added to the row's own, which are never removed."""

    def after(self, born):
        return self.n_alone + born


class _FixedOrder(twin.Tail):
    """Wrong: shared features are visited in stored order, new ones last."""

    def order(self, n):
        return 0


class _TailIgnored(twin.Tail):
    """Wrong: the tail is ignored when instantiated features are drawn."""

    def given_the_others(self):
        mean, variance = super().given_the_others()
        return (mean, variance) if self.inside else (0.0 * mean, 1.0)

    inside = False

    def leave(self, residual, i):
        self.inside = True
        super().leave(residual, i)
        self.inside = False


class _ExchangedByCells(twin.Features):
    """Wrong: alike features are exchanged by the likelihood of the cells only."""

    def log_score(self, x, z, variance):
        return twin.log_normal(x - z @ self.loadings, variance, len(x))


def own_row_counted():
    return plain_kernels(_OwnRowCounted)


def odds_without_concentration():
    return plain_kernels(_OddsWithoutConcentration)


def births_added():
    return plain_kernels(_BirthsAdded)


def fixed_order():
    return plain_kernels(_FixedOrder)


def tail_ignored():
    return plain_kernels(_TailIgnored)


def exchanged_by_cells():
    return plain_kernels(features=_ExchangedByCells)
