"""The program's sampler on tiny tables: starts at exact draws, and wrong versions of the program's code.

Each `wrong` context replaces one function of the program and restores it; each breaks one rule of the cycle, so that
the test that accepts the program must reject the broken version.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from dataclasses import replace
from unittest import mock

import numpy as np

from mpibayes.hpc.crosscat import sweep as shard_step
from mpibayes.hpc.crosscat import update as global_update
from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.moves import alike as informed_moves
from mpibayes.hpc.crosscat.moves import by_level as level_moves
from mpibayes.hpc.crosscat.moves import grouping
from mpibayes.hpc.crosscat.moves import launched as guided_moves
from mpibayes.hpc.crosscat.moves import ledger as cluster_book
from mpibayes.hpc.crosscat.moves import round as split_merge
from mpibayes.hpc.crosscat.moves.ledger import Ledger
from mpibayes.hpc.data.rows import Carve, in_blocks
from mpibayes.hpc.parallel import collapse, shards
from mpibayes.io.table import table_from_arrays
from mpibayes.kernels import mixture as kernels
from mpibayes.kernels.mixture import twin, updates
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


# ---- wrong versions of the program -----------------------------------------------------------------------------------


def no_anchors():
    """Wrong: rows off the owner may enter every instantiated cluster and none has to stay."""

    def zero(z, row0, seed, cycle, chain, owned, n_clusters):
        return np.zeros(n_clusters, np.uint64)  # below every priority, and no row's own

    return mock.patch.object(kernels, "anchors", zero)


def nothing_private():
    """Wrong: all occupied clusters are instantiated, also those private to the collapsed shard."""
    return mock.patch.object(collapse, "private_clusters", lambda size, owned: size == 0)


class _PlainTail(twin.Tail):
    """The kernels' plain twin, with the kernels' slot counts."""

    @property
    def size(self):
        return np.array([s.size for s in self.slots], dtype=np.int64)

    @property
    def levels(self):
        return np.array([s.levels for s in self.slots], dtype=np.int32).reshape(len(self.slots), -1).T

    @property
    def tally_n(self):
        return self._tallies(0).astype(np.int64)

    @property
    def tally_sum(self):
        return self._tallies(1)

    def _tallies(self, field):
        result = [[tally[field] for tally in s.tallies] for s in self.slots]
        return np.array(result, dtype=np.float64).reshape(len(self.slots), -1).T


class _TailOverRows(_PlainTail):
    """The same with the tail's weights over N instead of M + alpha + K1 d."""

    n_all = 0

    def log_weights(self, row):
        known, new = super().log_weights(row)
        m = self.n_rows
        right = np.log(m + self.concentration) if m else np.log(self.concentration)
        shift = right - np.log(self.n_all)
        return [k + shift for k in known], new + shift


@contextlib.contextmanager
def plain_kernels(tail=_PlainTail):
    """The program on the kernels' plain Python twins."""
    with (
        mock.patch.object(kernels, "Tail", tail),
        mock.patch.object(kernels, "Instantiated", twin.Instantiated),
        mock.patch.object(kernels, "sweep", twin.sweep),
    ):
        yield


def tail_over_rows(n_rows: int):
    """Wrong: the collapsed tail is normalised by the number of all rows."""
    return plain_kernels(type("TailOver", (_TailOverRows,), {"n_all": n_rows}))


def heavy_new_cluster():
    """Wrong: beside an empty tail a new cluster has exp(1/2) times its weight."""
    right, make = shard_step.Step._tail, kernels.Tail

    def heavier(prior, concentration, discount, log_weight, capacity):
        return make(prior, concentration, discount, log_weight + 0.5, capacity=capacity)

    def _tail(self, shard, z, mine):
        with mock.patch.object(kernels, "Tail", make if len(mine) else heavier):
            return right(self, shard, z, mine)

    return mock.patch.object(shard_step.Step, "_tail", _tail)


def hypers_after_weights():
    """Wrong: (alpha, d) is drawn from p(. | z) after w, keeping w_*."""
    right = global_update.Update.run

    def run(self, comm, hyper, partition, key, learn=True):
        new = self.draw_process(hyper, partition, key)  # from a stream with a key: the same on every rank
        old = mock.patch.object(global_update.Update, "draw_process", lambda *_: (hyper.concentration, hyper.discount))
        with old:
            shared = right(self, comm, hyper, partition, key, learn)
        concentration, discount = shared.hyper.concentration, shared.hyper.discount = new
        shared.weights.concentration, shared.weights.discount = new
        shared.weights.tail_concentration = concentration + len(shared.weights.log_weight) * discount
        return shared

    return mock.patch.object(global_update.Update, "run", run)


# ---- split and merge moves: parts of a round, and wrong versions of them ---------------------------------------------


@contextlib.contextmanager
def constants(paired=grouping.PAIRED, **values):
    """Set other constants of the moves (SCANS, SUBSET, INFORMED, INFORMED_SPLITS, ...); paired: that of the
    grouping."""
    with mock.patch.object(grouping, "PAIRED", paired), contextlib.ExitStack() as changed:
        for name, value in values.items():
            of = next(module for module in (guided_moves, informed_moves, level_moves) if hasattr(module, name))
            changed.enter_context(mock.patch.object(of, name, value))
        grouping._log_z.cache_clear()
        try:
            yield
        finally:
            grouping._log_z.cache_clear()


def guided_alone(**values):
    return constants(INFORMED=0, BY_LEVEL=0, **values)


def informed_alone(**values):
    return one_kind_alone(informed_moves.informed, **values)


@contextlib.contextmanager
def one_kind_alone(moves, **values):
    with constants(**values), mock.patch.object(split_merge, "KINDS", [moves]):
        yield


def without_q():
    """Wrong: the probability of the proposed sides is left out."""
    right = guided_moves._propose

    def propose(self, *arguments):
        labels, log_q = right(self, *arguments)
        return labels, None if log_q is None else 0.0 * log_q

    return mock.patch.object(guided_moves, "_propose", propose)


def q_of_root_alone():
    """Wrong: the probability of the proposed sides omits the other ranks' rows."""
    return _changed_q(lambda self, log_q: log_q if self.comm.rank == 0 else 0.0 * log_q)


def _changed_q(change):
    right = Ledger.sides

    def sides(self, *arguments):
        labels, log_q = right(self, *arguments)
        return labels, change(self, log_q)

    return mock.patch.object(Ledger, "sides", sides)


def scored_without_base():
    """Wrong: multipliers of pseudo-counts are scored as if all levels had the same base."""
    right = updates.grid_scores
    return mock.patch.object(updates, "grid_scores", lambda *of: right(*of[:4]))


def without_grouping():
    """Wrong: the probability of the grouping is left out."""
    return mock.patch.object(grouping, "log_probability", lambda n_clusters, n_pairs: 0.0)


def without_seeds():
    """Wrong: the seeds' probability is left out: m (m - 1) / (2 m_a m_b). For guided moves only."""
    right = Ledger.log_parts

    def log_parts(self, one, two, both):
        return right(self, one, two, both) - np.log(both.size * (both.size - 1.0) / (2.0 * one.size * two.size))

    return mock.patch.object(Ledger, "log_parts", log_parts)


def clusters_of_the_start():
    """Wrong: the prior's factor alpha + K d uses the K at the start of the round, for every group. For guided moves
    only."""
    right = Ledger.log_opening
    return mock.patch.object(Ledger, "log_opening", lambda self, n_before: right(self, self.n_labels))


def launch_from_the_split():
    """Wrong: the launch of a pair starts from its present clusters. For one shard."""
    right = guided_moves._seeded

    def seeded(z, ids, group, seeds, *more):
        label, cluster = right(z, ids, group, seeds, *more), dict(zip(ids.tolist(), z.tolist()))
        for g, (i, j) in enumerate(seeds.tolist()):
            if cluster[i] != cluster[j]:
                label[z == cluster[i]], label[z == cluster[j]] = 2 * g, 2 * g + 1
        return label

    return mock.patch.object(guided_moves, "_seeded", seeded)


def order_of_labels():
    """Wrong: groups are accepted in the order of the drawn grouping, that of labels."""
    return mock.patch.object(guided_moves, "_order", lambda seeds: np.flatnonzero(seeds[:, 0] >= 0))


def without_urn():
    """Wrong: the probability of the urn split is left out."""
    return mock.patch.object(informed_moves, "_log_urn", lambda m_a, m_b: 0.0)


def urn_twice_at_first():
    """Wrong: before the rest has sides, a merge is rejected if twice the log probability of the urn would reject it."""
    recall, all_sides = informed_moves._recall, informed_moves._all_sides

    def doubled(*arguments):
        recalled = recall(*arguments)
        return recalled._replace(log_urn=2.0 * recalled.log_urn)

    def right_after(ledger, pair, recalled, step):
        return all_sides(ledger, pair, recalled._replace(log_urn=0.5 * recalled.log_urn), step)

    return mock.patch.multiple(informed_moves, _recall=doubled, _all_sides=right_after)


def without_q_of_the_rest():
    """Wrong: informed steps leave out the probability of the sides of rows that are not recalled."""
    return _changed_q(lambda self, log_q: 0.0 * log_q)


def odds_from_all_rows():
    """Wrong: an informed step draws the rest from odds shaped by all present sides, not only the recalled ones.

    For one shard. A split, which has no present sides, is proposed as it is.
    """
    right = Ledger.total

    def total(self, labelled, k):
        (rows, z), now = next(iter(labelled)), self.z[0]
        if k == 2 and (z >= 0).any() and (clusters := np.unique(now[z >= 0])).size == 2:
            first = now[np.isin(now, clusters)][0]
            z = np.where(np.isin(now, clusters), now != first, -1).astype(np.int32)
        return right(self, [(rows, z)], k)

    return mock.patch.object(Ledger, "total", total)


def _choices(log_choice):
    """Informed steps with another probability of the chosen partner, (N,), by log weights (N, K) and partners (N,)."""
    changed = contextlib.ExitStack()
    for module in (cluster_book, informed_moves):
        changed.enter_context(mock.patch.object(module, "log_choice", log_choice))
    return changed


def without_choice():
    """Wrong: the probability of the partner chosen for an informed merge is left out."""
    return _choices(lambda weights, chosen: np.zeros(len(chosen)))


def uniform_choice():
    """Wrong: the partner of an informed merge is scored as if chosen uniformly."""
    return _choices(lambda weights, chosen: np.full(len(chosen), -np.log(weights.shape[1] - 1.0)))


def choice_of_one_side():
    """Wrong: an informed merge is scored as if proposed only from the cluster chosen first."""

    def one_side(a, b):
        return a

    one_side.reduce = np.logaddexp.reduce
    return mock.patch.object(np, "logaddexp", one_side)
