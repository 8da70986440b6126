"""Every kind of column has the same shape, so that whatever loops over kinds needs to know none of them."""

import inspect
import itertools

import numpy as np
import pytest

from mpibayes.hpc.components.component import Component
from mpibayes.hpc.components.hyper import Hyper, join
from mpibayes.hpc.components.kinds import KINDS
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.data.rows import Carve, in_blocks
from mpibayes.io.rows import ARRAYS
from mpibayes.io.table import table_from_arrays
from mpibayes.kernels import mixture as kernels

METHODS = ["__init__", "__len__", *(name for name in vars(Component) if not name.startswith("_"))]
DATA = list(Component.__annotations__)
KEY = {"seed": 1, "cycle": 2, "chain": 0}
JOINT = {"pair": {"columns": ("u", "v")}, "triple": {"columns": ("w", "x", "y")}}


def arguments(function) -> list[str]:
    """Annotations of the arguments; kinds name their hyperparameters themselves."""
    return [str(p.annotation) for p in inspect.signature(function).parameters.values()]


def differs(kind) -> str:
    """Differences of `kind` from a Component: members that it lacks, or has with other arguments."""
    made = kind([], {}, {})
    lacking = [name for name in (*DATA, *METHODS) if not hasattr(made, name)]
    other = [
        name
        for name in METHODS
        if name not in lacking and arguments(getattr(kind, name)) != arguments(getattr(Component, name))
    ]
    return f"lacks {lacking}, other arguments: {other}" if lacking or other else ""


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_a_component(kind):
    assert differs(kind) == ""


def test_a_kind_of_another_shape_is_seen():
    class NoDraw(KINDS[1]):
        draw = property()

    class Ranged(KINDS[1]):
        def log_marginal(self, normal, s, first: int, last: int): ...

    assert "lacks ['draw']" in differs(NoDraw) and "other arguments: ['log_marginal']" in differs(Ranged)


def test_names_and_streams_are_nobody_elses():
    """A draw's attempts are counted from 2^32 on in the sub-stream: all sub-streams stay below."""
    names = [a.name for kind in KINDS for a in (*kind.statistics, *kind.parameters)]
    names += [kind.hyper for kind in KINDS] + ["size"]
    assert len(set(names)) == len(names) and len({kind.name for kind in KINDS}) == len(KINDS)
    assert sorted(stored for kind in KINDS for stored in kind.stored) == sorted(ARRAYS)
    for one, other in itertools.combinations(KINDS, 2):
        assert not {*one.substreams[:1000]} & {*other.substreams[:1000]}
    assert all(kind.substreams[0] >= 0 and kind.substreams[-1] < 2**32 for kind in KINDS)


def view():
    g = np.random.default_rng(1)
    reals = [(name, "real", g.normal(size=30), None) for name in "zuvwxy"]
    codes = [(f"c{v}", "categorical", g.integers(v, size=30), tuple(map(str, range(v)))) for v in (2, 4, 300)]
    counts = [(name, "count", g.poisson(3.0, 30).astype(float), None) for name in "mn"]
    times = [("t", "survival", g.choice([-1.0, 1.0], 30) * g.exponential(size=30), None)]
    columns, rows = table_from_arrays([*reals, *codes, *counts, *times])
    components = Components(in_blocks(columns, JOINT), {}, JOINT)
    return components, Carve(columns, JOINT)(rows), g.integers(3, size=30).astype(np.int32)


def test_arrays_are_as_a_kind_says():
    components, rows, z = view()
    hyper, offsets = components.start(1.0, 0.0), components.categorical.offsets
    s = Statistics(*kernels.accumulate(rows, z, 3, offsets))
    drawn = components.draw(hyper, s, components.everything, KEY)
    assert [len(kind) for kind in components.kinds] == [3, 1, 2, 2, 1]
    for kind in components.kinds:
        assert getattr(hyper, kind.hyper).shape == (len(kind), *kind.hyper_form)
        for arrays, of in ((kind.statistics, s), (kind.parameters, drawn)):
            for array in arrays:
                result, cuts = getattr(of, array.name), kind.cuts[array.axis]
                assert result.shape == (cuts[-1], 3) and result.dtype == array.dtype and len(cuts) == len(kind) + 1
        odds = kind.side_odds(getattr(hyper, kind.hyper), s.take([0, 1, 2, 0]).of(kind))
        assert odds.shape == (2, *kind.odds_form) and odds.dtype == kind.odds[1] and odds.flags.c_contiguous


def test_moments_are_those_of_each_column_by_itself():
    components, rows, z = view()
    s = Statistics(*kernels.accumulate(rows, z, 3, components.categorical.offsets))
    for kind in components.kinds:
        if kind.measured:
            n, mean, scatter = kind.cell_moments(s.of(kind))
            for i, column in enumerate(sorted(kind.columns, key=lambda c: c.index)):
                x = getattr(rows, column.block)[:, column.index]
                each = [x[z == k] for k in range(3)]
                assert n[i].tolist() == [len(part) for part in each]
                np.testing.assert_allclose(mean[i], [part.mean() for part in each])
                np.testing.assert_allclose(scatter[i], [len(part) * part.var() for part in each])


def test_a_given_prior_is_taken():
    """A kind reads the keys that it says it has."""
    columns, _ = table_from_arrays([("c", "boolean", [0, 1], None), ("r", "real", [0.0, 2.0], None)])
    columns += table_from_arrays([("n", "count", [1.0, 4.0], None)])[0]
    columns += in_blocks(table_from_arrays([("t", "survival", [1.0, -4.0], None)])[0], {})
    for kind, form in ((k, form) for k in KINDS for form in k.prior_forms if not form[0].grid):
        part = next(column for column in columns if column.block in kind.stored)
        text = {key.name: [3.0, 5.0] if key.by_level else 2.0 + i for i, key in enumerate(form)}
        made, given = kind([part], {part.name: text}, {}), np.hstack(list(text.values()))
        assert made.prior(made.start())[kind.hyper].ravel()[: len(given)].tolist() == given.tolist()


@pytest.mark.parametrize("rank", range(3))
def test_a_part_is_drawn_as_in_the_whole(rank):
    """A rank's draws of its columns are the same rows of the draws of all columns."""
    components, rows, z = view()
    hyper, everything = components.start(1.0, 0.0), components.everything
    s = Statistics(*kernels.accumulate(rows, z, 3, components.categorical.offsets))
    dealing = components.deal(3)
    part = dealing.part(rank)
    for kind, columns, ours, whole in zip(
        components.kinds, part, components.log_marginal(hyper, s, part), components.log_marginal(hyper, s, everything)
    ):
        np.testing.assert_array_equal(ours, whole[columns], err_msg=kind.name)
    learned = components.update(hyper, s, everything, KEY)
    ours, whole = (components.draw(hyper, s, of, KEY) for of in (part, everything))
    for kind, columns, starts in zip(components.kinds, part, dealing.starts):
        np.testing.assert_array_equal(components.update(hyper, s, part, KEY)[kind.hyper], learned[kind.hyper][columns])
        for array in kind.parameters:
            at = slice(*starts[array.axis][rank : rank + 2])
            np.testing.assert_array_equal(getattr(ours, array.name), getattr(whole, array.name)[at])


def test_clusters_joined_are_the_clusters_of_the_rows_together():
    components, rows, z = view()
    offsets = components.categorical.offsets
    s = Statistics(*kernels.accumulate(rows, z, 3, offsets))
    both = components.union(s.take([0]), s.take([1, 2]))
    for k in (0, 1):
        label = np.where((z == 0) | (z == k + 1), 0, -1).astype(np.int32)
        whole = Statistics(*kernels.accumulate(rows, label, 1, offsets))
        for name, array in vars(whole).items():
            ours = getattr(both.take([k]), name)
            assert ours.dtype == array.dtype, name
            np.testing.assert_allclose(ours, array, rtol=1e-10, atol=1e-10, err_msg=name)


def test_hyperparameters_travel_with_their_columns():
    """Taken apart into two views and joined again, in another order, every column has its own."""
    components, *_ = view()
    hyper = components.start(2.0, 0.5)
    rest = {"categorical": [0, 2], "normal": [], "poisson": [0], "multinormal": [1], "survival": [0]}
    gone = {"categorical": [1], "normal": [0], "poisson": [1], "multinormal": [0], "survival": []}
    one, other = hyper.take(rest), hyper.take(gone)
    assert (one.concentration, one.discount) == (2.0, 0.5) and one.normal.shape == (0, 4)
    both = join([one, other])
    assert both.dirichlet.tolist() == hyper.dirichlet[[0, 2, 1]].tolist()
    back = both.take({kind: np.argsort([*rest[kind], *gone[kind]]) for kind in rest})
    for kind in KINDS:
        np.testing.assert_array_equal(getattr(back, kind.hyper), getattr(hyper, kind.hyper), err_msg=kind.name)
    assert all(len(getattr(hyper.take({}), kind.hyper)) == 0 for kind in KINDS)
    assert Hyper(1.0, 0.0).wishart.shape == (0, 3)
