"""All columns of a view: the kinds of component together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import make_dataclass
from functools import cache, cached_property
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np

from mpibayes.hpc.components.component import Component
from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.kinds import KINDS
from mpibayes.hpc.components.statistics import NAMES, Statistics
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.io.rows import ARRAYS, Column

HANDS = 32  # most ranks that update columns

NOTHING = np.zeros(0)
NO_HYPER = {kind.hyper: np.zeros((0, *kind.hyper_form)) for kind in KINDS}  # of no columns
Part = list[slice]  # columns of each kind, in the order of KINDS: those of one rank, or all


class Prior(SimpleNamespace):
    """Component hyperparameters as the kernels read them, under the names of each kind's `prior`; met: see
    `Categorical.met`, in a sweep of a cycle."""

    met: np.ndarray | None = None


class Parameters(make_dataclass("Arrays", [array.name for kind in KINDS for array in kind.parameters])):
    """Component parameters of K clusters, as the kernels read them: arrays (rows of their axis, K); see each kind's
    `parameters` and `draw`."""


class Dealing:
    """Assignment of columns to the ranks that update them.

    starts: for each kind, in the order of KINDS, and each axis, (ranks + 1,) int64: rank r has the rows starts[axis][r]
    to starts[axis][r + 1] - 1. lengths: for each kind, the number of columns of each rank.
    """

    def __init__(self, kinds: Sequence[Component], columns: Sequence[np.ndarray]):
        pairs = zip(kinds, columns)
        self.starts = [{axis: cut[dealt] for axis, cut in kind.cuts.items()} for kind, dealt in pairs]
        cuts = [of["column"].tolist() for of in self.starts]
        self._parts = [[slice(cut[rank], cut[rank + 1]) for cut in cuts] for rank in range(len(cuts[0]) - 1)]
        self.lengths = [np.diff(cut).tolist() for cut in cuts]

    def part(self, rank: int) -> Part:
        return self._parts[rank]


@cache
def _without_columns(kind: type[Component]) -> tuple[Component, dict[str, np.ndarray]]:
    """A kind without columns, and its prior: the same in all views, which have most kinds so."""
    of = kind([], {}, {})
    return of, of.prior(of.start())


class Components:
    """The columns of a view by kind: `kinds`, in the order of KINDS, each also an attribute under its name.

    columns: mpibayes.io.rows.Column of every used column. priors: given keys by column name, see the kinds. joint:
    {"columns": names, "prior": given keys} of each block of jointly modelled columns, by block name.
    """

    categorical: Any  # one attribute per kind, each a `Component`
    normal: Any
    poisson: Any
    multinormal: Any
    survival: Any

    def __init__(
        self,
        columns: Sequence[Column],
        priors: Mapping[str, Mapping] | None = None,
        joint: Mapping[str, Mapping] | None = None,
    ):
        self.kinds: list[Component] = []
        ordered = sorted(columns, key=lambda c: c.index)
        for kind in KINDS:
            members = [c for stored in kind.stored for c in ordered if c.block == stored]
            self.kinds.append(kind(members, priors or {}, joint or {}) if members else _without_columns(kind)[0])
        vars(self).update({kind.name: kind for kind in self.kinds})
        self._present = [(place, kind) for place, kind in enumerate(self.kinds) if len(kind)]
        self._first = [[kind.members(c)[0].name for c in range(len(kind))] for _, kind in self._present]
        self.names = frozenset(name for names in self._first for name in names)
        self.everything: Part = [slice(0, len(kind)) for kind in self.kinds]
        # True if all statistics are integers, so that a part can be subtracted from the whole
        self.exact = all(kind.exact for _, kind in self._present)
        self._dealt: dict[int, Dealing] = {}
        self._none: tuple[Part, Parameters] | None = None
        absent = (_without_columns(type(kind))[1] for kind in self.kinds if not len(kind))
        self._absent_prior = {name: array for of in absent for name, array in of.items()}

    def kind_of(self, name: str) -> tuple[Any, int]:
        """Kind of a column, and its index there; a block goes by the name of its first column."""
        return next((kind, c) for kind in self.kinds for c in range(len(kind)) if kind.members(c)[0].name == name)

    @cached_property
    def row_bytes(self) -> int:
        """Approximate bytes of a copied row: its cells and 80 bytes of labels, ids and random words."""
        return 80 + sum(np.dtype(ARRAYS[c.block]).itemsize for kind in self.kinds for c in kind.columns)

    def start(self, concentration: float, discount: float) -> Hyper:
        return Hyper(concentration, discount, **{kind.hyper: kind.start() for kind in self.kinds})

    def by_column(self, hyper: Hyper) -> dict[str, np.ndarray]:
        """Hyperparameters of each column by name; a block goes by the name of its first column, and a column in a line
        has those of a normal column."""
        arrays = [(names, getattr(hyper, kind.hyper)) for (_, kind), names in zip(self._present, self._first)]
        of = {name: row for names, array in arrays for name, row in zip(names, array)}
        return of | {line.name: line.as_normal(of[line.name]) for line in self.multinormal.lines}

    def hyper(self, concentration: float, discount: float, of_column: Mapping[str, np.ndarray]) -> Hyper:
        """Assemble the hyperparameters from those of each column; inverts `by_column`."""
        lines = {line.name: line.of_normal(of_column[line.name]) for line in self.multinormal.lines}
        arrays, of_column = {}, {**of_column, **lines}
        for (_, kind), names in zip(self._present, self._first):
            rows = [of_column[name] for name in names]
            arrays[kind.hyper] = np.array(rows, np.float64).reshape(len(kind), *kind.hyper_form)
        return Hyper(concentration, discount, **arrays)

    def prior(self, hyper: Hyper) -> Prior:
        arrays = self._absent_prior.copy()
        for _, kind in self._present:
            arrays |= kind.prior(getattr(hyper, kind.hyper))
        return Prior(**arrays)

    def union(self, a: Statistics, b: Statistics) -> Statistics:
        """Statistics of the unions of clusters of `a` and `b`, pair by pair; one of them may have one cluster."""
        longer = a if len(a) >= len(b) else b
        arrays = {**vars(longer), "size": a.size + b.size}
        for _, kind in self._present:
            arrays.update(zip(NAMES[kind.name], kind.merge(a.of(kind), b.of(kind))))
        return Statistics(**arrays)

    def deal(self, n_ranks: int) -> Dealing:
        """Deal consecutive columns to ranks, about evenly by the cost of their update.

        At most 32 ranks, far apart, get columns: beyond that the widest column sets the pace, and messages only add
        cost.
        """
        if n_ranks in self._dealt:
            return self._dealt[n_ranks]
        hands = min(n_ranks, HANDS)
        cost = np.concatenate([kind.cost for kind in self.kinds])
        middle = np.cumsum(cost) - 0.5 * cost
        rank = (middle * (hands / max(cost.sum(), 1.0))).astype(np.int64) * n_ranks // hands
        cuts = np.cumsum([0, *(len(kind) for kind in self.kinds)])
        each = [np.searchsorted(rank[a:b], np.arange(n_ranks + 1)) for a, b in pairwise(cuts)]
        return self._dealt.setdefault(n_ranks, Dealing(self.kinds, each))

    def log_marginal(self, hyper: Hyper, s: Statistics, part: Part) -> list[np.ndarray]:
        """Log marginal likelihood of a part's columns given the partition, one array per kind; without the 1 / x!."""
        by_kind = {kind.name: kind.log_marginal(*of) for kind, *of in self._each(hyper, s, part)}
        return [by_kind.get(kind.name, NOTHING) for kind in KINDS]

    def log_marginal_clusters(self, hyper: Hyper, s: Statistics) -> np.ndarray:
        """Log marginal likelihood of every cluster, summed over columns, (K,); without the 1 / x! of counts."""
        each = self._each(hyper, s, self.everything)
        return sum((kind.log_marginal_clusters(*of) for kind, *of, _ in each), np.zeros(len(s)))

    def log_marginal_unions(self, hyper: Hyper, s: Statistics, clusters: Sequence[int]) -> np.ndarray:
        """Log marginal likelihood of the union of each of `clusters` (N,) with every cluster, (N, K)."""
        k = len(s)
        one, two = np.repeat(np.asarray(clusters, np.intp), k), np.tile(np.arange(k), len(clusters))
        total = np.zeros((len(clusters), k))
        for kind, of, arrays, _ in self._each(hyper, s, self.everything):
            if kind is self.categorical:
                total = kind.log_marginal_unions(of, arrays, clusters) + total
            else:
                both = kind.merge(*([array.take(at, -1) for array in arrays] for at in (two, one)))
                total = kind.log_marginal_clusters(of, both).reshape(-1, k) + total
        return total

    def update(self, hyper: Hyper, s: Statistics, part: Part, key: Mapping[str, int]) -> dict[str, np.ndarray]:
        """Draw hyperparameters of a part's columns given the partition, parameters integrated out (docs/math.md 2.4).

        hyper and s cover all columns; the result has Hyper's names and the part's rows alone.
        """
        stream = Stream(purpose=Purpose.COMPONENTS, **key)
        return NO_HYPER | {kind.hyper: kind.update(*of, stream) for kind, *of in self._each(hyper, s, part)}

    def draw(
        self, hyper: Hyper, s: Statistics, part: Part, key: Mapping[str, int], purpose: Purpose = Purpose.PARAMETERS,
        met: np.ndarray | None = None,
    ) -> Parameters:  # fmt: skip
        """Draw component parameters of a part's columns in every cluster given its rows (docs/math.md 2.1, step 4).

        hyper and s cover all columns; only the part's rows of `hyper` matter. The result has the part's rows.
        met: of level rows, see `Categorical.met`.
        """
        stream, drawn = Stream(purpose=purpose, **key), {}
        for kind, *of, columns in self._each(hyper, s, part):
            if met is not None and kind is self.categorical:
                beta = self.categorical.pseudo_counts(of[0])
                drawn["table"] = self.categorical.draw_given(beta, *of[1], columns, stream, met)
            else:
                drawn.update(zip((array.name for array in kind.parameters), kind.draw(*of, columns, stream)))
        absent = (array for kind in self.kinds for array in kind.parameters if array.name not in drawn)
        return Parameters(**drawn, **{array.name: np.zeros((0, len(s)), array.dtype) for array in absent})

    def no_parameters(self, part: Part) -> Parameters:
        """Result of `draw` without clusters; the same object for the same part."""
        if self._none is None or self._none[0] is not part:
            each = [
                (array, kind.cuts[array.axis], of) for kind, of in zip(self.kinds, part) for array in kind.parameters
            ]
            none = (np.zeros((cut[of.stop] - cut[of.start], 0), array.dtype) for array, cut, of in each)
            self._none = part, Parameters(*none)
        return self._none[1]

    def _each(self, hyper: Hyper, s: Statistics, part: Part):
        """Yield every kind with columns in the part, its hyperparameters, its statistics, and these columns."""
        for place, kind in self._present:
            columns = part[place]
            if columns.stop > columns.start:
                yield kind, getattr(hyper, kind.hyper), s.of(kind), columns
