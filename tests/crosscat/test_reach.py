"""Numbers of completed and synthetic tables are within the range of the table's: one column, and several that depend on
each other."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from mpibayes.hpc.components.product import Components
from mpibayes.hpc.crosscat.laws import reach
from mpibayes.hpc.data.events import Events, Known
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.io import recording
from mpibayes.io.rows import Column
from mpibayes.io.shape import Shape

LEVEL, CLUSTERS = 1e-4, 4000
AGE = Column("age", "real", "reals", 0, center=40.0, scale=20.0, minimum=0.0, maximum=100.0, resolution=1.0)
WAGES = replace(AGE, log=True, center=8.0, scale=1.5, maximum=90_000.0, atoms=(0.0,))
COLUMNS = {
    "ages": AGE,
    "ages of adults": replace(AGE, minimum=18.0),
    "wages with zeros": WAGES,
    "logarithms": replace(WAGES, minimum=12.0, atoms=(), resolution=0.01),
    "never positive": replace(AGE, center=-30.0, minimum=-80.0, maximum=0.0, resolution=0.5),
    "both signs": replace(AGE, center=0.0, minimum=-50.0, maximum=60.0, resolution=0.0),
    "shape": replace(AGE, center=0.0, scale=1.0, shape=Shape(20.0, 9.0, 0.5, 0.8)),
    "constant": replace(AGE, center=5.0, scale=1.0, minimum=5.0, maximum=5.0),
}
PARAMETERS, CELLS = (Stream(3, purpose, cycle=1) for purpose in (Purpose.COPY_PARAMETERS, Purpose.COPY_CELLS))
RIGHT = reach.range_of
AGAIN, IDS = replace(CELLS, sub=3), np.arange(CLUSTERS)


def law_of(column):
    """The law of so many clusters without a cell."""
    kind = Components([column]).normal
    s = tuple(np.zeros((1, CLUSTERS), dtype) for dtype in (np.int64, np.float64, np.float64))
    return kind.drawn(np.array([[column.center, 0.1, 1.0, 0.25 * column.scale**2]]), s, PARAMETERS)


def numbers_of(column, law, ids=IDS):
    """Numbers of the clusters before and after they are brought into the range, on the model's scale."""
    x = law.draw(0, np.zeros((len(ids), 0)), IDS[:0], np.zeros(1, np.intp), ids, CELLS, ids)[:, 0]
    return x, reach.drawn_again(law, 0, column, x, ids, AGAIN, ids)


def half_beyond(column):
    """A wrong range: longer by half its length at both ends."""
    low, high = RIGHT(column)
    beyond = 0.5 * (high - low)
    return (low - beyond, high + beyond) if beyond > 0.6 else (-np.inf, np.inf)


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_no_number_is_out_of_range(column, monkeypatch):
    law = law_of(column)

    def recorded():
        return recording.recorded(column, None, numbers_of(column, law)[1])

    least = column.minimum if column is not WAGES else column.resolution
    assert (recorded() >= least).all() and (recorded() <= column.maximum).all()
    monkeypatch.setattr(reach, "range_of", half_beyond)
    assert ((recorded() < column.minimum) | (recorded() > column.maximum)).mean() > 0.02


def one_cluster(location, scale):
    """The law of CLUSTERS equal clusters."""
    law = law_of(AGE)
    law.location[:], law.scale[:] = location, scale
    return law


@pytest.mark.parametrize("location, scale", [(5.0, 6.0), (97.0, 4.0), (1.0, 30.0), (60.0, 50.0)])
def test_a_cluster_at_an_end_keeps_its_mean(location, scale, monkeypatch):
    """The law is a truncated normal with the cluster's mean; twin: the cluster's normal, truncated."""
    low, high = reach.range_of(AGE)
    (before,) = reach._before_truncation(np.array([location]), np.array([scale]), low, high)
    right = stats.truncnorm((low - before) / scale, (high - before) / scale, before, scale)
    assert right.mean() == pytest.approx(location, abs=1e-6)
    _, x = numbers_of(AGE, one_cluster(location, scale))
    assert stats.kstest(x, right.cdf).pvalue > LEVEL
    assert abs(x.mean() - location) < 4.0 * right.std() / np.sqrt(CLUSTERS)
    monkeypatch.setattr(reach, "SLIGHT", np.inf)
    _, x = numbers_of(AGE, one_cluster(location, scale))
    assert abs(x.mean() - location) > 4.0 * right.std() / np.sqrt(CLUSTERS)
    assert stats.kstest(x, right.cdf).pvalue < LEVEL


def test_clusters_inside_are_left_alone():
    x, result = numbers_of(AGE, one_cluster(50.0, 8.0))
    assert (result == x).all()


def test_clusters_out_of_range_are_truncated():
    law = law_of(AGE)
    x, result = numbers_of(AGE, law)
    low, high = reach.range_of(AGE)
    far = ((x < low) | (x > high)) & ((law.location[0, :-1] < low) | (law.location[0, :-1] > high))
    assert np.abs(x).max() > 10_000.0 and 0.05 < far.mean() < 0.5
    first, last, p, ends = (
        stats.norm.cdf(y, law.location[0, :-1], law.scale[0, :-1]) for y in (low, high, result, np.clip(x, low, high))
    )
    far &= last - first > 1e-6  # beyond, distribution functions keep no digits
    first, length = first[far], (last - first)[far]
    assert stats.kstest((p[far] - first) / length, "uniform").pvalue > LEVEL
    assert stats.kstest((ends[far] - first) / length, "uniform").pvalue < LEVEL


def test_rows_are_drawn_by_their_ids():
    law = law_of(AGE)
    assert (numbers_of(AGE, law, IDS[1::3])[1] == numbers_of(AGE, law)[1][1::3]).all()


@pytest.mark.parametrize(
    "column, ends",
    [
        (AGE, (-0.4999, 100.4999)),
        (replace(AGE, resolution=0.0), (0.0, 100.0)),
        (COLUMNS["logarithms"], tuple(np.log([12.0 - 0.004999, 90_000.004999]))),
        (WAGES, (24.0 - 2.0 * np.log(90_000.4999), np.log(90_000.4999))),
        (replace(WAGES, center=1.0), (np.log(0.4999), np.log(90_000.4999))),
        (
            replace(WAGES, center=0.0, resolution=0.0, shape=Shape(8.0, 1.0, 0.0, 1.0)),
            (16.0 - 2.0 * np.log(9e4), 3.4076),
        ),
    ],
)
def test_the_range_is_on_the_scale_of_the_model(column, ends):
    assert reach.range_of(column) == pytest.approx(ends, abs=1e-4)


# --- columns that depend on each other --------------------------------------------------------------------------------

PAIR = [replace(AGE, name=name, resolution=0.0, minimum=0.0, maximum=most) for name, most in (("a", 2.0), ("b", 3.0))]


def rows_of(known, names, cluster, stream, ids):
    """Normal pairs with mean 1 and 0.5 and correlation 0.8, or the known cells."""
    z = np.column_stack([replace(stream, sub=sub).normals(ids) for sub in (1, 2)])
    x = {"a": 1.0 + z[:, 0], "b": 0.5 + 0.8 * z[:, 0] + 0.6 * z[:, 1]}
    for name, (events, which) in known.of.items():
        x[name] = np.where(which < len(events), np.append(events.low, 0.0)[which], x[name])
    return {name: x[name] for name in names}


def test_rows_of_dependent_columns_are_within_all_ranges():
    n, none = 20_000, np.zeros(20_000, np.intp)
    x = reach.rows_within(rows_of, PAIR, Known(n, {}), {"a", "b"}, none, CELLS, np.arange(n))
    assert all((x[c.name] >= 0.0).all() and (x[c.name] <= c.maximum).all() for c in PAIR)
    at = np.linspace(0.0, 2.0, 2001)
    density = (
        stats.norm.pdf(at - 1.0)
        * np.diff([stats.norm.cdf((end - 0.5 - 0.8 * (at - 1.0)) / 0.6) for end in (0.0, 3.0)], axis=0)[0]
    )
    below = np.append(0.0, np.cumsum(0.5 * (density[1:] + density[:-1])))

    def cdf(a):
        return np.interp(a, at, below / below[-1])

    assert stats.kstest(x["a"], cdf).pvalue > LEVEL
    alone = stats.truncnorm(-1.0, 1.0, 1.0).rvs(n, random_state=1)  # a by itself, as if b had no range
    assert stats.kstest(alone, cdf).pvalue < LEVEL
    raw = rows_of(Known(n, {}), {"a", "b"}, none, CELLS, np.arange(n))
    assert stats.kstest(np.clip(raw["a"], 0.0, 2.0), cdf).pvalue < LEVEL


def test_known_cells_stay_and_hopeless_rows_end():
    """A known cell beyond the range stays; a number that is never drawn within it is set to an end."""
    value = Events(PAIR[0], np.array([-1]), None, np.array([9.0]), np.array([9.0]))
    known, none = Known(3, {"a": (value, np.array([0, 1, 1]))}), np.zeros(3, np.intp)
    x = reach.rows_within(rows_of, PAIR, known, {"a", "b"}, none, CELLS, np.arange(3))
    assert x["a"][0] == 9.0 and (x["a"][1:] <= 2.0).all()
    far = [replace(c, minimum=50.0, maximum=60.0) for c in PAIR]
    x = reach.rows_within(rows_of, far, known, {"a", "b"}, none, CELLS, np.arange(3))
    assert x["a"].tolist() == [9.0, 50.0, 50.0] and (x["b"] == 50.0).all()
    x = reach.rows_within(rows_of, (), known, {"b"}, none, CELLS, np.arange(3))
    assert (x["b"] < 50.0).all()
