"""Summaries on cases that can be worked out by hand or by brute force."""

import numpy as np
import pytest
from scipy.stats import entropy

from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.report import profiles, traits
from mpibayes.hpc.crosscat.report.telling import shared_of
from mpibayes.hpc.crosscat.summaries.partitions import (
    by_size,
    contingency,
    jaccard,
    nearest,
    ordered_sizes,
    typical,
    variations,
)
from mpibayes.hpc.crosscat.summaries.representative import Compared, _chosen
from mpibayes.hpc.crosscat.summaries.tallies import cuts as cuts_of
from mpibayes.hpc.posterior.scalars import MOST_R_HAT, mixing_warnings, r_hat_in_words, summary_of
from mpibayes.hpc.posterior.similarity import similarity
from mpibayes.io.table import table_from_arrays
from mpibayes.kernels import mixture as kernels
from mpibayes.text import number, percent, spread, took
from tests.crosscat.report.runs import planted


def variation(a, b):
    """Variation of information of two partitions by its definition H(a | b) + H(b | a)."""
    joint = np.array([[np.mean((a == i) & (b == j)) for j in np.unique(b)] for i in np.unique(a)])
    return 2 * entropy(joint.ravel()) - entropy(joint.sum(axis=0)) - entropy(joint.sum(axis=1))


def test_variations_are_those_of_the_definition():
    g = np.random.default_rng(1)
    partitions = g.integers(0, 4, (7, 30))
    expected = np.array([[variation(a, b) for b in partitions] for a in partitions])
    assert variations(partitions) == pytest.approx(expected, abs=1e-12)


def pairs_together(z):
    """Mask of the pairs of rows in one cluster."""
    return (z[:, None] == z)[np.triu_indices(len(z), 1)]


def test_similarity_against_its_definition():
    """Rand's index counts pairs; adjusted, it is (index - mean) / (1 - mean) under random labels of the same sizes."""
    g = np.random.default_rng(2)
    for _ in range(20):
        a, b = g.integers(0, 5, 40), g.integers(0, 3, 40)
        b[:25] = a[:25]
        ari, vi = similarity(a, b)
        x, y = pairs_together(a), pairs_together(b)
        index, p, q = np.mean(x == y), x.mean(), y.mean()
        mean = p * q + (1 - p) * (1 - q)
        assert ari == pytest.approx((index - mean) / (1 - mean), abs=1e-12)
        assert vi == pytest.approx(variation(a, b), abs=1e-12)
        assert similarity(b, g.permutation(5)[a]) == pytest.approx((ari, vi), abs=1e-12)


@pytest.mark.parametrize(
    "a, b, ari, vi",
    [
        ([0, 0, 1, 1], [1, 1, 0, 0], 1, 0),
        ([0, 0, 1, 1], [0, 0, 1, 2], 4 / 7, np.log(2) / 2),
        ([0, 0, 1, 1], [0, 1, 0, 1], -1 / 2, 2 * np.log(2)),
        ([0, 0, 0, 0], [0, 1, 2, 3], 0, np.log(4)),
        ([0, 0, 0, 0], [0, 0, 1, 1], 0, np.log(2)),
        ([0, 0, 0], [0, 0, 0], 1, 0),
        ([0, 1, 2], [2, 0, 1], 1, 0),
        ([0], [0], 1, 0),
    ],
)
def test_similarity_by_hand(a, b, ari, vi):
    assert similarity(np.array(a, np.int32), np.array(b, np.int32)) == pytest.approx((ari, vi), abs=1e-12)


def test_many_clusters_are_told_apart():
    """Codes of pairs of clusters go far beyond 32 bits' worth."""
    z = np.arange(70_000, dtype=np.int32)
    assert similarity(z, z[::-1].copy()) == pytest.approx((1, 0), abs=1e-9)


def test_the_representative_is_the_partition_most_draws_agree_with():
    truth = np.repeat([0, 1, 2], 20)
    g = np.random.default_rng(2)
    draws = []
    for _ in range(9):
        z = truth.copy()
        moved = g.choice(60, 3, replace=False)
        z[moved] = (z[moved] + 1) % 3
        draws.append(g.permutation(3)[z])  # every draw numbers its clusters in its own way
    draws.insert(4, truth)
    assert np.argmin(variations(np.stack(draws)).mean(axis=1)) == 4
    draws += [np.zeros(60, int), np.arange(60)]
    farthest = np.argmax(variations(np.stack(draws)).mean(axis=1))
    assert farthest in (10, 11)  # one cluster, or a cluster for every row


def test_relabelling_a_draw_changes_no_summary():
    g = np.random.default_rng(3)
    partitions = g.integers(0, 5, (6, 200))
    other = partitions.copy()
    other[2] = g.permutation(5)[other[2]]
    assert variations(other) == pytest.approx(variations(partitions), abs=1e-12)
    one, two = (jaccard(contingency(p[0], p[2])) for p in (partitions, other))
    assert one == pytest.approx(two)
    assert np.array_equal(by_size(partitions[2]), by_size(other[2]))


def test_jaccard():
    a = np.array([0, 0, 0, 0, 1, 1])
    b = np.array([2, 2, 2, 0, 0, 0])
    assert jaccard(contingency(a, b)) == pytest.approx([3 / 4, 2 / 3])


def test_by_size_orders_clusters():
    assert by_size(np.array([0, 1, 1, 2, 2, 3, 3, 3])).tolist() == [3, 1, 1, 2, 2, 0, 0, 0]


def test_ordered_sizes():
    assert ordered_sizes([np.array([1, 5, 2]), np.array([8])], 3).tolist() == [[5, 2, 1], [8, 0, 0]]


def test_scalar_summary_of_independent_draws():
    """False alarm about 1e-4: ESS of 4 x 1000 independent normal draws is far above 1000, R-hat below 1.01."""
    chains = list(np.random.default_rng(4).normal(3.0, 2.0, (4, 1000)))
    s = summary_of(chains)
    assert s.ess > 2000 and s.r_hat < 1.01 and not mixing_warnings({"K": s})
    assert s.mean == pytest.approx(3.0, abs=0.15) and s.sd == pytest.approx(2.0, abs=0.15)
    assert s.low == pytest.approx(3.0 - 2 * 1.645, abs=0.4)
    few = [summary_of(list(np.random.default_rng(i).normal(size=(2, 8)))) for i in range(20)]
    assert max(of.ess for of in few) == 16.0  # not the 19 that the estimate may come to


def test_scalar_summary_sees_trouble():
    g = np.random.default_rng(5)
    walk = summary_of([np.cumsum(g.normal(size=400))])
    warnings = mixing_warnings({"K": walk})
    assert "ESS): K " in warnings[0] and "R-hat above 1.01: K " in warnings[1] and "run.cycles" in warnings[-1]
    apart = summary_of([g.normal(size=400), 5.0 + g.normal(size=400)])
    assert apart.r_hat > 1.5
    still = summary_of([np.full(50, 35.0), np.full(50, 39.0)])
    assert still.r_hat == MOST_R_HAT and "K > 100" in mixing_warnings({"K": still})[1]
    assert [r_hat_in_words(x) for x in (1.0034, 2.29e15, np.nan)] == ["1.003", "> 100", "-"]
    fixed = summary_of([np.full(50, 0.25)])
    assert fixed.fixed and fixed.sd == 0 and not mixing_warnings({"alpha": fixed})
    assert "too few draws" in mixing_warnings({"K": summary_of([np.arange(3.0)])})[0]
    assert summary_of([np.full(9, np.nan)]).n_draws == 0


def profiles_of(columns, rows, z):
    """Profiles of the clusters of z, with what report takes from the table."""
    components = Components(columns)
    prior = components.prior(components.start(1.0, 0.0))
    k = int(z.max()) + 1
    s = Statistics(*kernels.accumulate(rows, z.astype(np.int32), k, prior.offsets))
    numbers = {}
    for c in columns:
        if not c.levels:
            x = getattr(rows, c.block)[:, c.index]
            cuts = cuts_of(c, x)
            cells = [x[(z == j) & ~np.isnan(x)] for j in range(k)]
            numbers[c.name] = profiles.Numbers(
                np.stack([np.bincount(np.searchsorted(cuts, y), minlength=len(cuts) + 1) for y in cells], axis=1),
                np.array([y.mean() for y in cells]), np.array([((y - y.mean()) ** 2).sum() for y in cells]),
            )  # fmt: skip
    return components, prior, s, profiles.profiles(components, prior, s, np.arange(k), numbers)


@pytest.fixture(scope="module")
def profiled():
    given, z = planted(n=3000, seed=7)
    columns, rows = table_from_arrays(given)
    return profiles_of(columns, rows, z)


def test_characterisation_finds_the_planted_columns(profiled):
    *_, made = profiled
    named = [[t.column for t in traits.traits_of(made, k)] for k in range(3)]
    assert {"colour", "flag"} <= set(named[0])
    assert {"height", "colour", "flag"} <= set(named[1])
    assert {"visits", "income", "colour"} <= set(named[2])
    assert not any("noise" in n or "dust" in n for n in named)
    best = sorted(made, key=lambda c: -c.information)
    assert {c.name for c in best[-2:]} == {"noise", "dust"}


def test_phrases_are_for_people(profiled):
    *_, made = profiled
    text = {t.column: str(t) for t in traits.traits_of(made, 1)}
    assert text["colour"].startswith("colour = green 9") and "(overall 2" in text["colour"]
    assert text["height"].startswith("height 60.") and " ± 5.0 (overall 18 ± 28)" in text["height"]
    assert text["flag"].startswith("flag = yes 9")
    text = {t.column: str(t) for t in traits.traits_of(made, 2)}
    assert text["income"].startswith("income missing 9") and text["visits"].startswith("visits 25")


def test_divergence_of_a_categorical_column_is_exact(profiled):
    components, prior, s, made = profiled
    c = next(i for i, column in enumerate(components.categorical.columns) if column.name == "flag")  # no missing cell
    rows = slice(prior.offsets[c], prior.offsets[c + 1] - 1)
    p = s.levels[rows] + prior.dirichlet[rows, None]
    p = p / p.sum(axis=0)
    q = p @ (s.size / s.size.sum())
    expected = [entropy(p[:, k], q) for k in range(3)]
    flag = next(column for column in made if column.name == "flag")
    assert flag.divergence == pytest.approx(expected, abs=1e-12)
    assert flag.information == pytest.approx((s.size / s.size.sum() * expected).sum(), abs=1e-12)


def test_divergence_of_a_number_is_near_the_integral():
    """Normal clusters: the integral on a fine grid. Intervals lose a little of it (data processing)."""
    g = np.random.default_rng(6)
    z = np.repeat([0, 1, 2], [20_000, 8_000, 2_000])
    mean, sd = np.array([0.0, 3.0, 0.0]), np.array([1.0, 1.0, 0.2])
    columns, rows = table_from_arrays([("x", "real", g.normal(mean[z], sd[z]), None)])
    *_, (made,) = profiles_of(columns, rows, z)
    x = np.linspace(-8, 11, 20_001)
    p = np.exp(-0.5 * ((x - mean[:, None]) / sd[:, None]) ** 2) / sd[:, None]
    p /= p.sum(axis=1, keepdims=True)
    exact = (p * np.log(np.maximum(p, 1e-300) / ((np.bincount(z) / len(z)) @ p))).sum(axis=1)
    assert np.all(made.divergence <= exact + 0.01) and made.divergence == pytest.approx(exact, rel=0.1)


def test_small_clusters_of_noise_are_not_characterised():
    """20 rows in about 10 intervals: without the correction for small samples every column would be telling."""
    g = np.random.default_rng(10)
    z = np.repeat(np.arange(41), [4000, *[20] * 40])
    columns, rows = table_from_arrays([("x", "real", g.normal(size=len(z)), None)])
    *_, (made,) = profiles_of(columns, rows, z)
    assert np.median(made.divergence[1:]) < traits.MIN_DIVERGENCE


def test_clusters_that_share_a_repeated_value_do_not_differ():
    """Two clusters of zeros, large and small, have predictives of other widths; a reader sees no difference."""
    z = np.repeat([0, 1, 2], [4000, 30, 200])
    x = np.zeros(len(z))
    x[z == 2] = np.random.default_rng(8).gamma(2.0, 3000.0, 200)
    columns, rows = table_from_arrays([("gains", "real", x, None)])
    *_, (made,) = profiles_of(columns, rows, z)
    assert made.divergence[1] < traits.MIN_DIVERGENCE < made.divergence[2]


def test_columns_that_tell_the_same_story_are_named_once():
    g = np.random.default_rng(9)
    a = g.integers(0, 6, 5000)
    z = (a >= 3).astype(int)
    codes = {"detail": a, "group": a // 3, "part": a % 3 // 2, "other": g.integers(0, 6, 5000)}
    shared = shared_of(codes, z)
    assert shared("group", "detail") == (1.0, 1.0)
    assert shared("detail", "group") == pytest.approx((0.0, 1.0))  # the group is the cluster, and says all there is
    three = np.log(3) - np.log(2) * 2 / 3
    assert shared("part", "detail")[0] == pytest.approx(1.0, abs=0.01)
    assert shared("detail", "part") == pytest.approx((three / np.log(3), 0.0), abs=0.02)
    assert shared("other", "detail")[0] < 0.01
    columns, rows = table_from_arrays([("detail", "categorical", a, None), ("part", "categorical", a, None)])
    *_, made = profiles_of(columns, rows, z)
    assert len(traits.traits_of(made, 0)) == 2
    assert len(traits.traits_of(made, 0, shared)) == 1


def test_columns_are_chosen_by_what_they_add():
    """Four near twins tell the large clusters apart, one weak column the two small ones: the picture has that early."""
    g = np.random.default_rng(3)
    z = np.repeat([0, 1, 2, 3], [2000, 2000, 100, 100])
    twin = np.where(g.random(len(z)) < 0.9, (z > 0) * 1 + (z > 1), g.integers(0, 3, len(z)))
    columns = [(f"twin{i}", np.where(g.random(len(z)) < 0.995, twin, g.integers(0, 3, len(z)))) for i in range(4)]
    columns.append(("rare", g.random(len(z)) < np.array([0.5, 0.5, 0.1, 0.9])[z]))
    columns.append(("noise", g.integers(0, 3, len(z))))
    given = [(name, "categorical", np.asarray(x, np.int64), None) for name, x in columns]
    *_, made = profiles_of(*table_from_arrays(given), z)
    chosen = [c.name for c in traits.picture(made, shared_of(dict(columns), z))]
    assert [name.rstrip("0123") for name in chosen[:2]] == ["twin", "rare"] and "noise" not in chosen
    assert sum(name.startswith("twin") for name in chosen) == 1
    assert [t.column for t in traits.traits_of(made, 3, shared_of(dict(columns), z))][1:2] == ["rare"]
    by_information = sorted(made, key=lambda c: -c.information)
    assert all(c.name.startswith("twin") for c in by_information[:4])  # what a choice column by column would show


def test_what_a_cluster_lacks_is_said():
    p = np.array([0.001, 0.2, 0.2, 0.2, 0.2, 0.199])
    q = np.array([0.5, 0.1, 0.1, 0.1, 0.1, 0.1])
    assert traits.telling_levels(p, q) == [0]
    assert traits.telling_levels(np.array([0.1, 0.45, 0.45]), np.array([0.6, 0.2, 0.2])) == [1, 2]
    assert traits.telling_levels(np.array([0.9, 0.1]), np.array([0.5, 0.5])) == [0]


def test_two_levels_that_share_a_cluster_are_both_named():
    """Two species of three in one group: the larger half alone would be half of the truth."""
    third = np.full(3, 1 / 3)
    assert traits.telling_levels(np.array([0.51, 0.48, 0.01]), third) == [0, 1]
    assert traits.telling_levels(np.array([0.7, 0.295, 0.005]), np.array([0.44, 0.2, 0.36])) == [0, 1]
    assert traits.telling_levels(np.array([0.7, 0.15, 0.15]), third) == [0]


@pytest.mark.parametrize(
    "x, text",
    [
        (0, "0 %"),
        (0.00001, "<0.01 %"),
        (0.0003, "0.03 %"),
        (0.071, "7.1 %"),
        (0.24, "24 %"),
        (0.997, "99.7 %"),
        (1, "100 %"),
    ],
)
def test_percent(x, text):
    assert percent(x) == text


@pytest.mark.parametrize(
    "x, text",
    [
        (0, "0"),
        (8.14, "8.1"),
        (34.25, "34.2"),
        (1204.4, "1,204"),
        (7.04e7, "70.4 million"),
        (9.997e8, "1e+09"),
        (0.0419, "0.042"),
        (-3.0, "-3"),
    ],
)
def test_number(x, text):
    assert number(x) == text


@pytest.mark.parametrize("x, text", [(0.084, "0.084s"), (4.52, "4.5s"), (9.97, "10s"), (312, "5m12s")])
def test_took(x, text):
    assert took(x) == text


@pytest.mark.parametrize(
    "m, s, text",
    [
        (8.13, 4.96, "8.1 ± 5.0"),
        (34.2, 22.4, "34 ± 22"),
        (0, 0, "0 throughout"),
        (6729, 5230, "6729 ± 5230"),
        (15.4e6, 25.1e6, "15 ± 25 million"),
        (51.999, 0.036, "52.00 ± 0.04"),
    ],
)
def test_spread(m, s, text):
    assert spread(m, s) == text


def spread_out(n_draws=40, n_rows=270, seed=3):
    """Draws of a posterior without a partition to find: K clusters, 61 to 170 of them, each row in any."""
    g = np.random.default_rng(seed)
    counts = np.linspace(61, 170, n_draws).astype(int)
    labels = [np.unique(np.append(np.arange(k), g.integers(0, k, n_rows - k)), return_inverse=True)[1] for k in counts]
    return np.array(labels), counts


def test_the_representative_partition_has_a_typical_number_of_clusters():
    """Among draws of small clusters the one with the most has the least expected variation of information: their joint
    entropy is that of single rows, whatever they are."""
    labels, counts = spread_out()
    compared = Compared(np.zeros(40), np.arange(40), labels, variations(labels))
    assert nearest(np.arange(40), compared.distances) == 39  # the cause: 170 clusters stand for 61 to 170
    best, among = _chosen(compared, counts, (70.0, 120.0))
    assert 70 <= counts[best] <= 120 and among == (70, 120)
    losses = compared.distances.mean(axis=1)
    assert losses[best] == losses[(counts >= 70) & (counts <= 120)].min()
    best, among = _chosen(compared, counts, None)  # of these draws themselves
    low, high = np.round(np.quantile(counts, (0.05, 0.95)))
    assert low <= counts[best] <= high and among == (low, high)


def test_a_draw_without_the_view_does_not_represent_it():
    """Two chains have other views; the second has fewer clusters, and its draws are nearer to one another."""
    g = np.random.default_rng(1)
    labels = np.array([g.integers(0, 20, 200) for _ in range(10)] + [np.repeat([0, 1], 100)] * 10)
    compared = Compared(np.repeat([0, 1], 10), np.arange(20), labels, variations(labels))
    counts = np.repeat([20, 2], 10)
    assert _chosen(compared, counts, None)[0] >= 10
    best, among = _chosen(compared, counts, None, np.arange(10))
    assert best < 10 and among is None
    assert best == nearest(np.arange(10), compared.distances)


def test_a_typical_draw_that_is_nearest_is_chosen_as_before():
    labels, counts = spread_out()
    compared = Compared(np.zeros(40), np.arange(40), labels, variations(labels))
    assert _chosen(compared, counts, (61.0, 170.0)) == (39, None)
    assert typical(np.array([3, 5, 9]), 4, 6).tolist() == [1]
    assert typical(np.array([3, 5, 9]), 6, 7).tolist() == [1]  # none is: those that come nearest
    assert typical(np.array([3, 5, 9]), 1, 2).tolist() == [0]
