"""Print a hash of the kernels' results; test_isa.py runs it once for every instruction set."""

import hashlib

import numpy as np

from mpibayes.hpc.components.grid import Grids
from mpibayes.kernels import mixture
from mpibayes.kernels.common.machine import ISA
from mpibayes.kernels.mixture import scans, split, updates
from mpibayes.kernels.svi import factors, gaussian

from .tables import random_parameters, random_table
from .test_scans import counts_of, problem, shape_of
from .test_split import random_odds


def visit(rng, rows, z, held, tail, prior):
    """Random steps of a list, which move rows in and out of the tail."""
    remove, assign = rng.integers(-1, len(z), size=(2, 700)).astype(np.int32)
    assign[::3] = remove[::3]
    return mixture.sweep(rows, z, 2, 5, 2, 0, 0, held, tail, prior, remove=remove, assign=assign)


def global_update(rng):
    """Draws for all sizes of shape, and sums over columns with few and many rows in a cell."""
    key = {"seed": 3, "purpose": 5, "sub": 1, "cycle": 2, "chain": 0}
    yield updates.log_gammas(np.exp(rng.normal(0, 5, 999)), np.arange(999), **key)
    yield updates.normals(np.arange(999), **key)
    offsets = np.array([0, 3, 7, 40])
    beta = np.exp(rng.normal(size=40))
    levels = (rng.gamma(0.2, size=(40, 13)) * 3000).astype(np.int32)
    yield updates.draw_levels(levels, beta, offsets, 0, 3, **key)
    yield from updates.log_marginals(levels, beta, offsets, 0, 3)
    yield updates.grid_scores(levels, offsets, [2, 0], updates.Grid([0.1, 0.7, 3.0]), np.exp(rng.normal(size=40)))
    for f in (2, 4):
        n, hyper = rng.integers(0, 30, size=(4, 13)), np.exp(rng.normal(size=(4, f)))
        statistics = (n, rng.poisson(9.0 * n).astype(float)) if f == 2 else (n, *rng.gamma(2.0, size=(2, 4, 13)))
        yield from updates.number_marginals(statistics, hyper, 0, 4)
        grids = [Grids([np.exp(rng.normal(size=9 + c)) for c in range(4)]) for _ in range(f)]
        updates.draw_numbers(statistics, hyper, 0, 4, grids, rng.random((4, f)))
        yield hyper
    n, (x, xx), (u, uu, ux) = rng.integers(0, 30, 13), rng.gamma(2.0, size=(2, 13)), rng.gamma(2.0, size=(3, 3, 13))
    yield from updates.line_marginals(
        np.exp(rng.normal(size=(4, 3))), *np.exp(rng.normal(size=(2, 3))), 0.3, n, u, x, uu, 0.1 * ux, xx
    )
    yield updates.Shares([0.5, 0.05]).log_sums(levels, offsets, [3, 1])
    yield updates.grid_scores(levels, offsets, [2, 0], updates.Grid([0.1, 0.7, 3.0]))


def moves(rng):
    """Sides and counts scan after scan, for all widths of look-up and kinds of column; sides of a split and log q."""
    key = {"seed": 3, "purpose": 12, "sub": 1, "cycle": 2, "chain": 0}
    for kind in ("mixed", "levels of all widths"):
        *arguments, beta = problem(kind, 2500, 4, rng, large=0.6)
        packed, shape = scans.Packed(*arguments), shape_of(arguments[0][0][0], arguments[2])
        side = rng.random(len(packed.place)) < 0.5
        packed.set(side, rng.random(len(side)) < 0.1)
        packed.draw(**key)
        whole, one = counts_of(scans, shape, 4), counts_of(scans, shape, 4)
        packed.count(side | ~side, whole)
        packed.count(side, one)
        for scan in range(4):
            after = counts_of(scans, shape, 4)
            packed.scan(scan, beta, np.full(4, 3.0), np.full(4, 0.3) if scan < 2 else None, whole, one, None, after)
            yield from (packed.sides(), after.cells, after.sums)
            one = after
    rows, prior = random_table(rng, 700, levels8=(2, 3, 9) * 15, levels16=(300,), n_reals=5, n_tallies=3)
    z, odds = rng.integers(0, 6, 700).astype(np.int32), random_odds(rng, prior, 3, 0.3)
    group, given = np.array([0, 1, 1, 2, 2, -1], np.int32), np.array([-1, 0, 1, -1, -1, -1], np.int8)
    seeds = np.array([[1, 2], [3, 4], [5, 6]])
    yield from split.sides(rows, z, np.arange(700), group, given, seeds, odds, prior.offsets, **key)


def passes(rng):
    """Responsibilities of few and many components, and of rows that do not fill a block."""
    for k, d, n, spread in ((3, 2, 700, 1.0), (20, 9, 333, 6.0)):
        factor, sums = np.tril(rng.normal(size=(k, d, d))), np.zeros((2, k, 1 + d + d * (d + 1) // 2))
        x, mean, numbers = rng.normal(size=(n, d)), spread * rng.normal(size=(k, d)), rng.normal(size=n)
        total = gaussian.Pass(k, d)(x, None, numbers, mean, factor, rng.normal(size=k), sums)
        yield from (np.array(total), sums)


def factorizations(rng):
    """Users under ranks with and without specialised loops, with noise withheld in some."""
    for d, biased in ((5, False), (11, True), (4, True)):
        kernel, t, items = factors.Users(d, biased), d * (d + 1) // 2, 30
        lengths = rng.integers(0, 20, size=37)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        columns = rng.integers(items, size=starts[-1]).astype(np.int32)
        table = factors.rows(items, kernel.table_width)
        table[:] = rng.normal(size=table.shape) ** 2 / 20
        precision = np.eye(d)[np.tril_indices(d)] * 40.0
        sums, numbered = np.zeros((2, items, kernel.sums_width))
        moments, part = np.zeros((37, t + d)), np.concatenate([precision, rng.normal(size=d)])
        totals, held, _ = kernel(
            starts, None, columns, rng.normal(size=starts[-1]).astype(np.float32), table, part, 0.1, 1.3, sums, moments,
            numbers=30.0 * rng.normal(size=starts[-1]), numbered=numbered, effective=2.0,
        )  # fmt: skip
        assert 0 < held < 37
        yield from (totals, sums, numbered, moments)


def main():
    digest = hashlib.sha256()
    rng = np.random.default_rng(12)
    rows, prior = random_table(rng, 400, levels8=(2, 3, 9) * 15, levels16=(300,), n_reals=5, n_tallies=3)
    rows.tallies[:50] *= 1000.0
    for n_clusters in (3, 40, 150):
        held = mixture.Instantiated(**random_parameters(rng, prior, n_clusters, n_clusters, []))
        tail = mixture.Tail(prior, 30.0, 0.1, -2.0)
        z = np.full(400, -1, dtype=np.int32)
        for step in range(3):
            digest.update(
                b"%d" % mixture.sweep(rows, z, 2, 5, 0, step, 0, held if step == 1 else None, tail, prior)
                if step != 1
                else b""
            )
            digest.update(z.tobytes())
        for name in ("size", "levels", "real_n", "real_mean", "real_scatter", "tally_n", "tally_sum"):
            digest.update(np.ascontiguousarray(getattr(tail, name)).tobytes())
        digest.update(mixture.log_predictive_clusters(rows, tail).tobytes())
        digest.update(mixture.log_predictive(rows, tail).tobytes())
        both = np.full(400, -1, dtype=np.int32)
        tail = mixture.Tail(prior, 5.0, 0.0, -1.0)
        for step in range(2):
            mixture.sweep(rows, both, 2, 5, 1, step, 0, held, tail, prior)
            digest.update(both.tobytes())
        mixture.sweep(rows, z := np.full(400, -1, dtype=np.int32), 2, 5, 1, 7, 0, held, None, prior)
        digest.update(z.tobytes())
        digest.update(b"%d" % visit(rng, rows, both, held, tail, prior) + both.tobytes())
    for kind in ({"n_reals": 6, "same_nu": True}, {"n_reals": 6, "powers": True}, {"n_reals": 70, "powers": True}):
        rows, prior = random_table(rng, 300, missing=0.0, **kind)
        tail, z = mixture.Tail(prior, 2.0, 0.0, 0.0), np.full(300, -1, dtype=np.int32)
        for step in range(3):
            mixture.sweep(rows, z, 0, 1, 0, step, 0, None, tail, prior)
        rows.reals[::5] *= 1e30
        digest.update(z.tobytes() + mixture.log_predictive_clusters(rows, tail).tobytes())
    for missing in (0.0, 0.1):  # an empty tail's new cluster, which now and then is opened and closed again
        rows, prior = random_table(rng, 300, n_tallies=4, n_reals=2, missing=missing, large=True)
        held = mixture.Instantiated(**random_parameters(rng, prior, 20, 20, []))
        for log_weight in (-200.0, 0.0, 100.0):
            tail, z = mixture.Tail(prior, 1e-9, 0.0, log_weight), np.zeros(300, dtype=np.int32)
            for step in range(3):
                mixture.sweep(rows, z, 2, 5, 1, step, 0, held, tail, prior)
                digest.update(z.tobytes())
            digest.update(tail.count_scores.tobytes())
    for widths in ((2, 7), (1, 21, 4)):
        rows, prior = random_table(rng, 300, levels8=(3,), blocks=widths, scale=1.0)
        held = mixture.Instantiated(**random_parameters(rng, prior, 40, 40, []))
        tail, z = mixture.Tail(prior, 5.0, 0.1, -1.0), np.full(300, -1, dtype=np.int32)
        for step in range(3):
            mixture.sweep(rows, z, 2, 5, 1, step, 0, held, tail, prior)
            digest.update(z.tobytes() + np.ascontiguousarray(tail.vector_scatter).tobytes())
        digest.update(mixture.log_predictive_clusters(rows, tail).tobytes())
    for array in (*global_update(rng), *moves(rng), *passes(rng), *factorizations(rng)):
        digest.update(array.tobytes())
    print(ISA, digest.hexdigest())


if __name__ == "__main__":
    main()
