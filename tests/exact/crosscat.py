"""Cross-categorized tiny tables with known posterior, and the program's sampler on them: starts at exact draws, and
verdicts on the results."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.parallel import shards
from mpibayes.hpc.parallel.comm import serial, world
from tests.exact import production
from tests.exact.compare import by_looks, judge, seed
from tests.exact.cross import CrossCase, Posterior
from tests.exact.enumerate import NAN, Case

STRIDE = 1000
GRIDS = {"view_concentration": (0.3, 3.0), "view_discount": (0.0, 0.5), "concentration": (0.4, 2.0)}
GRIDS |= {"discount": (0.0, 0.6)}


@dataclass(frozen=True)
class Setup:
    """Columns of a table as in `Case`, with uniform grids (see `CrossCase`), and the same in the program's form. The
    posterior is computed once."""

    columns: tuple
    process: dict
    priors: dict
    points: dict  # of each column's prior
    found: list = field(default_factory=list)

    @property
    def case(self) -> Case:
        return Case("", self.columns, self.priors, 1.0, 0.0)

    @property
    def posterior(self) -> Posterior:
        if not self.found:
            grids = {name: np.atleast_1d(given) for name, given in self.process.items()}
            even = [
                tuple((a, d) for a in grids[of + "concentration"].tolist() for d in grids[of + "discount"].tolist())
                for of in ("view_", "")
            ]
            self.found.append(Posterior(CrossCase(self.case, *even, self.points)))
        return self.found[0]

    @property
    def units(self) -> list[tuple[str, ...]]:
        """Names of the columns that stay together, column by column of the case."""
        return [levels if kind == "vector" else (name,) for name, kind, _, levels in self.columns]

    def values(self, column: int) -> list[np.ndarray]:
        """Values used by the program at each point of a column's prior; none for a column with a single point."""
        name, kind, *_ = self.columns[column]
        points = self.points[name]
        if len(points) == 1:
            return []
        if kind == "categorical":
            return [np.array(point["dirichlet"][0]) for point in points]
        return [np.array([point[key] for key in production.KEYS[kind]]) for point in points]


def fixed(view_concentration=1.0, view_discount=0.0, concentration=1.0, discount=0.0) -> dict:
    return {
        "view_concentration": view_concentration,
        "view_discount": view_discount,
        "concentration": concentration,
        "discount": discount,
    }


def given(columns, priors, process) -> Setup:
    """Setup with fixed priors."""
    return Setup(columns, process, priors, {name: (prior,) for name, prior in priors.items()})


FAIR, REAL = {"dirichlet": (0.3, 0.3)}, {"mean": 0.1, "kappa": 0.3, "nu": 2.0, "variance": 0.3}
HALF, SHARP = {"dirichlet": (0.5, 0.5)}, {"dirichlet": (0.05, 0.05, 0.05)}
BINARY = ("no", "yes")
QUANTILES = -np.log1p(-(np.arange(1, 42) - 0.5) / 41)
CASES = {
    "cc4x3": given(
        tuple(
            (name, "categorical", cells, BINARY)
            for name, cells in zip("abc", [(0, 0, 1, 1), (0, 0, 1, 1), (1, 0, 1, 0)])
        ),
        dict.fromkeys("abc", HALF),
        fixed(),
    ),
    "mixed": Setup(
        (
            ("a", "categorical", (0, 1, -1, 1), BINARY),
            ("x", "real", (-1.2, 0.9, 1.4, NAN), None),
            ("n", "count", (0.0, 4.0, NAN, 3.0), None),
        ),
        {name: list(points) for name, points in GRIDS.items()},
        {
            "a": {"grid": [0.2, 2.0]},
            "x": {"mean": 0.1, "kappa": 0.3, "nu": 2.0, "variance": [0.2, 1.5]},
            "n": {"shape": 1.3, "rate": 0.4},
        },
        {
            "a": tuple({"dirichlet": (m, m)} for m in (0.2, 2.0)),
            "x": tuple({"mean": 0.1, "kappa": 0.3, "nu": 2.0, "variance": v} for v in (0.2, 1.5)),
            "n": ({"shape": 1.3, "rate": 0.4},),
        },
    ),
    # with the quantiles of Gamma(1, 1) at (i - 1/2) / 41
    "quantiles": given(
        (
            ("a", "categorical", (0, 0, 1, 1), BINARY),
            ("b", "categorical", (0, 1, 1, -1), BINARY),
            ("x", "real", (-1.2, 0.9, 1.4, NAN), None),
        ),
        {**dict.fromkeys("ab", FAIR), "x": REAL},
        fixed(QUANTILES, 0.0, QUANTILES, 0.0),
    ),
    # two columns that each want a view: treatment of a view without columns matters most
    "sharp": given(
        (
            ("a", "categorical", (0, 0, 1, 1, 2), ("r", "s", "t")),
            ("b", "categorical", (0, 1, 0, 1, 2), ("r", "s", "t")),
        ),
        dict.fromkeys("ab", SHARP),
        fixed(),
    ),
    # four columns on three rows, two of them real: the sides of columns matter
    "four": given(
        (
            ("a", "categorical", (0, 1, 1), BINARY),
            ("b", "categorical", (0, 1, 1), BINARY),
            ("x", "real", (-1.2, 0.9, 1.4), None),
            ("y", "real", (0.3, -2.0, NAN), None),
        ),
        {**dict.fromkeys("ab", FAIR), **dict.fromkeys("xy", REAL)},
        fixed(0.7, 0.4, 0.6, 0.5),
    ),
    # few states, for matrices: three units on two rows, one of them a block; two on three rows; and two on two
    "three": given(
        (
            ("a", "categorical", (0, 1), BINARY),
            ("x", "real", (-1.2, 0.3), None),
            ("g", "vector", ((-1.9, 0.2), (1.7, 1.5)), ("g0", "g1")),
        ),
        {"a": FAIR, "x": REAL, "g": {"mean": (0.1, 0.5), "kappa": 0.3, "nu": 2.5, "variance": 0.3}},
        fixed(0.7, 0.4, 0.6, 0.5),
    ),
    "two": given(
        (("a", "categorical", (0, 0, 1), BINARY), ("x", "real", (-1.2, 0.9, NAN), None)),
        {"a": FAIR, "x": REAL},
        fixed(0.7, 0.4, 0.6, 0.5),
    ),
    "least": given(
        (("a", "categorical", (0, 1), BINARY), ("x", "real", (-1.2, -0.9), None)),
        {"a": FAIR, "x": REAL},
        fixed(0.7, 0.4, 0.6, 0.5),
    ),
    # grids for all hyperparameters, discounts, a block of two columns, and missing cells
    "block": Setup(
        (
            ("a", "categorical", (0, 1, -1), BINARY),
            ("x", "real", (-1.2, NAN, 1.4), None),
            ("g", "vector", ((-1.9, 0.2), (1.7, 1.5), (NAN, NAN)), ("g0", "g1")),
        ),
        {name: list(points) for name, points in GRIDS.items()},
        {
            "a": {"grid": [0.2, 2.0]},
            "x": {"mean": 0.1, "kappa": [0.1, 1.0], "nu": 2.0, "variance": [0.2, 1.5]},
            "g": {"mean": (0.1, 0.5), "kappa": [0.1, 1.0], "nu": 2.5, "variance": [0.1, 1.0]},
        },
        {
            "a": tuple({"dirichlet": (m, m)} for m in (0.2, 2.0)),
            "x": tuple({"mean": 0.1, "kappa": k, "nu": 2.0, "variance": v} for k in (0.1, 1.0) for v in (0.2, 1.5)),
            "g": tuple(
                {"mean": (0.1, 0.5), "kappa": k, "nu": 2.5, "variance": v} for k in (0.1, 1.0) for v in (0.1, 1.0)
            ),
        },
    ),
}


def sampler(comm, name, n_shards, default_seed, kind=Mixture, **settings):
    setup = CASES[name]
    columns, rows, blocks = production.table_of(setup.case, setup.priors)
    part = {"split_merge": 0, "column_moves": 1, "priors": setup.priors, "blocks": blocks, "shards": n_shards}
    settings = Settings(seed=seed(default_seed), **{**part, **setup.process, **settings})
    return kind(comm, columns, lambda a, b: rows.take(np.arange(a, b)), len(rows), settings)


def place(mixture, units, views, labels, cycles, hypers=()):
    """Put the chain at a state: the view of each unit of columns, and the labels (U, N) of each, on every rank. hypers:
    of each unit, None: unchanged."""
    views, labels = list(views), np.asarray(labels)
    of_view = [[u for u, v in enumerate(views) if v == view] for view in range(max(views) + 1)]
    names = [{name for u in part for name in units[u]} for part in of_view]
    mixture.arrange([[c.name for c in mixture.columns if c.name in part] for part in names])
    cut = shards.bounds(mixture.n_rows, mixture.n_shards)
    given = {names[0]: value for names, value in zip(units, hypers) if value is not None}
    for view, part in zip(mixture.views, of_view):
        z = np.unique(labels[part[0]], return_inverse=True)[1]
        of_column = view.components.by_column(view.hyper) | given
        hyper = view.components.hyper(view.hyper.concentration, view.hyper.discount, of_column)
        view.resume(lambda i, z=z: z[cut[i] : cut[i + 1]], int(z.max()) + 1, hyper)
    mixture.resume(cycles)


def state(mixture, units):
    """(view of each unit, labels of each) on root; None elsewhere. Collective."""
    labels = [view.labels() for view in mixture.views]
    if mixture.comm.rank:
        return None
    where = {name: v for v, view in enumerate(mixture.views) for name in view.columns}
    return [where[names[0]] for names in units], [labels[where[names[0]]].tolist() for names in units]


def require_the_same_bits(name: str, at: int, cycles: int = 8, **settings) -> None:
    """Compare views and labels after each of some cycles from one view of one cluster, on ranks and on one process."""

    def bits(comm):
        mixture = sampler(comm, name, 3, at, **settings)
        mixture.start("one")
        return [mixture.cycle() and state(mixture, CASES[name].units) for _ in range(cycles)]

    result = bits(world())
    if world().rank == 0:
        assert result == bits(serial())
        assert len({tuple(views) for views, _ in result}) > 1  # a view opened


def hypers_of(mixture, units):
    """Hyperparameters of each unit of columns, by the program's names."""
    result = {name: of for view in mixture.views for name, of in view.components.by_column(view.hyper).items()}
    return [result[names[0]] for names in units]


def verdict(comm, name, n_shards, n_replicates, default_seed, cycles, level, looks=1, **settings):
    """Compare the program with the enumeration, from exact draws of views, labels and the columns' hyperparameters;
    None off root. Concentrations and discounts are redrawn from all else before they are used: they need no start.
    looks: `by_looks`.
    """
    setup = CASES[name]
    exact, units, points = setup.posterior, setup.units, Points(setup)
    mixture = sampler(comm, name, n_shards, default_seed, **settings)
    generator = np.random.default_rng(seed(default_seed) + 1)
    starts = generator.choice(len(exact.p), n_replicates, p=exact.p / exact.p.sum())
    events, table = exact.summaries()
    expected = np.concatenate([table @ exact.p, points.expected])

    def replicate(r, s):
        """(state, points) after each cycle."""
        labels = exact.partitions[exact.rows[s]]
        place(mixture, units, exact.views[s].tolist(), labels, r * STRIDE, points.draw(s, generator))
        return [mixture.cycle() and (state(mixture, units), points.at(hypers_of(mixture, units)))
                for _ in range(cycles)]  # fmt: skip

    def more(first, last):
        seen = [replicate(r, starts[r]) for r in range(first, last)]
        return None if comm.rank else seen

    def judged(seen):
        index = np.array([[exact.number(*result) for result, _ in run] for run in seen])
        at = np.array([[at for _, at in run] for run in seen])
        happened = np.concatenate([table.T[index], at], axis=2)
        return judge(index[:, -1], exact.p, [*events, *points.events], happened.mean(axis=1), expected, level)

    return by_looks(more, judged, n_replicates, looks)


class Points:
    """Points of the columns' priors that have several. `events`: each point of each column; `expected`: their
    probabilities."""

    def __init__(self, setup: Setup):
        self.values = [setup.values(c) for c in range(len(setup.columns))]
        self.law = [setup.posterior.points(c) for c in range(len(setup.columns))]
        free = [c for c, values in enumerate(self.values) if values]
        self.events = [f"point {i} of column {c}" for c in free for i in range(len(self.values[c]))]
        self.expected = np.concatenate([np.zeros(0), *(setup.posterior.p @ self.law[c] for c in free)])

    def draw(self, number: int, generator) -> list:
        """Hyperparameters of each column given a state."""
        return [
            values[generator.choice(len(values), p=law[number])] if values else None
            for values, law in zip(self.values, self.law)
        ]

    def at(self, hypers) -> list[float]:
        """Indicators of the events, 0 or 1."""
        return [
            float(np.allclose(value, part)) for values, part in zip(self.values, hypers) if values for value in values
        ]
