"""The program's sampler on tiny tables, from starts that are exact draws."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import replace

import numpy as np

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.data.rows import Carve, in_blocks
from mpibayes.hpc.parallel import shards
from mpibayes.io.table import table_from_arrays
from tests.exact.compare import Verdict, by_looks, judge_history
from tests.exact.enumerate import Grids, Posterior, column_values, draw_prior_partition

VECTOR = ("kappa", "nu", "variance")
KEYS = {"real": ("mean", "kappa", "nu", "variance"), "count": ("shape", "rate"), "vector": VECTOR}
KEYS["survival"] = KEYS["count"]
STRIDE = 1000  # cycle numbers from one replicate to the next: streams are keyed by cycle, so replicates are independent


class MovesAlone(Mixture):
    """The program's split and merge moves without its sweeps."""

    def cycle(self):
        self.cycles += 1
        return self._info(0.0, self._split_and_merge())


def sampler(comm, case, n_shards, seed, opening="one", priors=None, kind=Mixture, **settings) -> Mixture:
    """The program's mixture of a case.  `priors` and `settings` override the case's fixed hyperparameters.

    Only sweeps, unless `split_merge` gives the number of cycles between rounds of split and merge moves.
    """
    priors = priors or case.priors
    columns, rows, blocks = table_of(case, priors)
    settings = {
        "blocks": blocks,
        "concentration": case.concentration,
        "discount": case.discount,
        "sweeps_per_cycle": 1,
        "split_merge": 0,
        **settings,
    }
    return kind(
        comm,
        columns,
        lambda start, stop: rows.take(np.arange(start, stop)),
        case.n_rows,
        Settings(seed=seed, shards=n_shards, opening=opening, priors=priors, **settings),
    )


def table_of(case, priors):
    """(columns, rows, blocks) of a case, in the form loaded by a run."""
    given, blocks = [], {}
    for column in case.columns:
        (name, kind, _, levels), values = column, column_values(column)
        if kind == "vector":
            given += [(part, "real", values[:, d], None) for d, part in enumerate(levels)]
            blocks[name] = {"columns": levels, "prior": priors[name]}
        else:
            given.append((name, kind, values, levels))
    columns, rows = table_from_arrays(given)
    columns = tuple(with_cuts(c, priors) for c in columns)
    return in_blocks(columns, blocks), Carve(columns, blocks)(rows), blocks


def with_cuts(column, priors):
    """A survival column with the case's cuts instead of those inferred from its few events."""
    return replace(column, ends=tuple(priors[column.name]["cuts"])) if column.kind == "survival" else column


def place(mixture: Mixture, labels: np.ndarray, cycles: int, hyper=None) -> None:
    """Put the chain at labels (in row order, on every rank) after `cycles` cycles."""
    labels = np.unique(labels, return_inverse=True)[1]
    cut = shards.bounds(mixture.n_rows, mixture.n_shards)
    view = mixture.view
    view.resume(lambda i: labels[cut[i] : cut[i + 1]], int(labels.max()) + 1, view.hyper if hyper is None else hyper)
    mixture.resume(cycles)


def replicates(mixture: Mixture, starts, cycles: int, record, hypers=None, first: int = 0) -> list | None:
    """Run `cycles` cycles from each of `starts`; return a list of record(mixture, labels) for each on root, None
    elsewhere.

    first: number of the first of these replicates, which selects its streams."""
    out = []
    for r, labels in enumerate(starts):
        place(mixture, labels, (first + r) * STRIDE, None if hypers is None else hypers[r])
        seen = []
        for _ in range(cycles):
            mixture.cycle()
            now = mixture.view.labels()
            if mixture.comm.rank == 0:
                seen.append(record(mixture, now))
        out.append(seen)
    return out if mixture.comm.rank == 0 else None


def partition_history(mixture: Mixture, posterior: Posterior, n_replicates: int, cycles: int, seed: int):
    """Partition numbers (replicates, cycles) on root from exact starts; None elsewhere."""
    starts = posterior.draw(np.random.Generator(np.random.Philox(seed)), n_replicates)
    labels = replicates(mixture, starts, cycles, lambda _, z: z)
    return None if labels is None else posterior.index(np.array(labels))


def verdict(
    mixture: Mixture, posterior: Posterior, n_replicates: int, cycles: int, seed: int, level: float, looks: int = 1
) -> Verdict | None:
    """Compare partitions after cycles from exact starts with the posterior; None off root. looks: `by_looks`."""
    starts = posterior.draw(np.random.Generator(np.random.Philox(seed)), n_replicates)

    def judged(labels):
        return judge_history(posterior.index(np.array(labels)), posterior, level)

    return by_looks(
        lambda a, b: replicates(mixture, starts[a:b], cycles, lambda _, z: z, first=a), judged, n_replicates, looks
    )


def prior_history(mixture: Mixture, concentration: float, discount: float, n_replicates: int, cycles: int, seed: int):
    """Numbers of clusters (replicates, cycles) without likelihood, from restaurant draws; None off root."""
    generator = np.random.Generator(np.random.Philox(seed))
    out = []
    for r in range(n_replicates):
        start = draw_prior_partition(mixture.n_rows, concentration, discount, generator)
        place(mixture, start, r * STRIDE)
        out.append([mixture.cycle().n_clusters for _ in range(cycles)])
    return np.array(out) if mixture.comm.rank == 0 else None


def prior_case(n_rows: int, concentration: float, discount: float):
    """A table of n_rows whose single column is ignored (likelihood=False)."""
    from tests.exact.enumerate import Case

    column = ("c", "categorical", (0, 1) * (n_rows // 2) + (0,) * (n_rows % 2), ("u", "v"))
    return Case(f"prior{n_rows}", (column,), {"c": {"dirichlet": (0.5, 0.5)}}, concentration, discount)


def digest(mixture: Mixture, starts, cycles: int, hypers=None) -> str | None:
    """sha256 of labels and hyperparameters after every cycle from each start, on root."""
    total = hashlib.sha256()

    def feed(m, labels):
        total.update(labels.tobytes())
        for value in vars(m.view.hyper).values():
            total.update(np.ascontiguousarray(value, dtype=np.float64).tobytes())

    done = replicates(mixture, starts, cycles, feed, hypers)
    return None if done is None else total.hexdigest()


# ---- grids: the joint law with hyperparameters -----------------------------------------------------------------------


class Joint:
    """A case with grids for its hyperparameters, in the forms of the enumeration and of the program.

    grids: concentration and discount lists; columns[name]: {"grid": [...]} and perhaps {"base": [...]} for a
    categorical column, or a list or number for each hyperparameter of a real or count column; {"dirichlet": [...]}
    fixes a categorical column's prior.
    """

    def __init__(self, case, concentration, discount, columns):
        self.case, self.settings, self.priors = case, {"concentration": concentration, "discount": discount}, columns
        self.points = tuple((float(a), float(d)) for a in concentration for d in discount)
        self.column_points = {}
        for column in case.columns:
            name, kind, _, levels = column
            given = columns[name]
            if "dirichlet" in given:
                points = (given,)
            elif kind == "categorical":
                base = np.array(given.get("base", np.ones(len(levels))))
                points = tuple({"dirichlet": tuple((m * base).tolist())} for m in given["grid"])
            elif kind == "vector":
                keys, axes = VECTOR, [np.atleast_1d(given[key]) for key in VECTOR]
                grid = zip(*(g.ravel() for g in np.meshgrid(*axes)))
                points = tuple({**dict(zip(keys, map(float, v))), "mean": given["mean"]} for v in grid)
            else:
                keys, axes = KEYS[kind], [np.atleast_1d(given[key]) for key in KEYS[kind]]
                points = tuple(dict(zip(keys, map(float, v))) for v in zip(*(g.ravel() for g in np.meshgrid(*axes))))
                points = tuple({**point, "cuts": given["cuts"]} if kind == "survival" else point for point in points)
            self.column_points[name] = points

    @functools.cached_property
    def posterior(self) -> Posterior:
        """The enumeration, made on demand: every process that shares the tests imports every case."""
        weights = {name: (p, np.zeros(len(p))) for name, p in self.column_points.items()}
        return Posterior(self.case, Grids((self.points, np.zeros(len(self.points))), weights))

    def sampler(self, comm, n_shards, seed, opening="one", **settings) -> Mixture:
        return sampler(comm, self.case, n_shards, seed, opening, self.priors, **self.settings, **settings)

    def index_of(self, mixture: Mixture) -> tuple[int, ...]:
        """Indices of the chain's current grid points: (alpha, d), then each column in the case's order."""
        h = mixture.view.hyper
        out = [nearest(self.points, (h.concentration, h.discount))]
        at = dict.fromkeys(("categorical", *KEYS), 0)
        for name, kind, *_ in self.case.columns:
            i, points = at[kind], self.column_points[name]
            at[kind] += 1
            if len(points) == 1:
                out.append(0)
            elif kind == "categorical":
                base = self.priors[name].get("base", [1.0])
                out.append(nearest([(p["dirichlet"][0] / base[0],) for p in points], (h.dirichlet[i],)))
            elif kind == "vector":
                out.append(nearest([[p[k] for k in VECTOR] for p in points], h.wishart[i]))
            else:
                value = {"real": h.normal, "count": h.gamma, "survival": h.hazard}[kind][i]
                out.append(nearest([[p[k] for k in KEYS[kind]] for p in points], value))
        return tuple(out)

    def draw(self, generator, size: int, template):
        """Exact joint draws: labels (size, N) and the program's hyperparameters for each."""
        post = self.posterior
        which = generator.choice(len(post.p), size=size, p=post.p / post.p.sum())
        hypers = []
        for b in which:
            a = generator.choice(len(self.points), p=post.process[:, b] / post.process[:, b].sum())
            blocks = {kind: [] for kind in ("categorical", *KEYS)}
            for name, kind, *_ in self.case.columns:
                table = post.columns[name][:, b]
                point = self.column_points[name][generator.choice(len(table), p=table / table.sum())]
                if kind == "categorical":  # the program keeps the multiplier of the given base, or of ones
                    blocks[kind].append(1.0 if "dirichlet" in self.priors[name] else point["dirichlet"][0])
                else:
                    blocks[kind].append([point[k] for k in KEYS[kind]])
            hypers.append(
                replace(
                    template,
                    concentration=self.points[a][0],
                    discount=self.points[a][1],
                    dirichlet=np.array(blocks["categorical"], dtype=float),
                    normal=np.array(blocks["real"], dtype=float).reshape(-1, 4),
                    gamma=np.array(blocks["count"], dtype=float).reshape(-1, 2),
                    wishart=np.array(blocks["vector"], dtype=float).reshape(-1, 3),
                    hazard=np.array(blocks["survival"], dtype=float).reshape(-1, 2),
                )
            )
        return post.partitions[which], hypers

    def history(self, mixture: Mixture, n_replicates: int, cycles: int, seed: int):
        """(partition numbers (R, T), grid points (R, T, 1 + columns)) on root, None elsewhere."""
        starts, hypers = self.draw(np.random.Generator(np.random.Philox(seed)), n_replicates, mixture.view.hyper)
        seen = replicates(mixture, starts, cycles, self.record, hypers)
        return None if seen is None else self.numbers(seen)

    def record(self, mixture: Mixture, labels):
        return labels, self.index_of(mixture)

    def numbers(self, seen):
        """Partition numbers and grid points of records, as `history` returns them."""
        labels = np.array([[z for z, _ in run] for run in seen])
        return self.posterior.index(labels), np.array([[g for _, g in run] for run in seen])

    def verdicts(self, mixture: Mixture, n_replicates: int, cycles: int, seed: int, level: float, looks: int):
        """`judge` of a history on one rank. looks: `by_looks`."""
        starts, hypers = self.draw(np.random.Generator(np.random.Philox(seed)), n_replicates, mixture.view.hyper)

        def more(first, last):
            return replicates(mixture, starts[first:last], cycles, self.record, hypers[first:last], first)

        return by_looks(more, lambda seen: self.judge(self.numbers(seen), level), n_replicates, looks)

    def judge(self, history, level):
        """Verdicts on the joint distribution of the partition with (alpha, d), and with each column's prior; they share
        the level."""
        from tests.exact.compare import judge_joint

        index, points = history
        tables = [self.posterior.process, *(self.posterior.columns[c[0]] for c in self.case.columns)]
        share = level / len(tables)
        each = enumerate(tables)
        return Verdicts(judge_joint(index, points[..., i], table, self.posterior, share) for i, table in each)


class Verdicts(list):
    """Verdicts that share a level."""

    @property
    def passed(self) -> bool:
        return all(verdict.passed for verdict in self)


def nearest(points, value) -> int:
    """Index of the grid point equal to `value`; AssertionError if the chain left the grid."""
    distance = np.abs(np.asarray(points, dtype=float) - np.asarray(value, dtype=float)).max(axis=1)
    assert distance.min() < 1e-9, f"{value} is not on the grid {points}"
    return int(distance.argmin())
