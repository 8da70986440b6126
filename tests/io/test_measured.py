"""Recording of real columns, found from their values: steps, atoms, sentinels, scales, codes."""

import numpy as np
import pytest
from scipy.special import ndtri

from mpibayes.io.ingest import import_table
from mpibayes.io.measured import MOST_VALUES, Histogram, in_words, missing_codes, recording, slips

G = np.random.Generator(np.random.Philox(7))
NORMAL = 40 + 12 * G.standard_normal(3000)


def found(*parts, batches=1):
    h = Histogram()
    for part in np.array_split(np.concatenate([np.atleast_1d(p) for p in parts]).astype(float), batches):
        h.add(*np.unique(part, return_counts=True))
    return recording(h)


@pytest.mark.parametrize(
    "values, resolution",
    [
        (np.round(NORMAL), 1.0),
        (np.round(NORMAL, 1), 0.1),
        (np.round(NORMAL * 50) * 1000, 1000.0),
        (np.round(NORMAL * 4) / 4, 0.25),
        (np.round(NORMAL / 5) * 5, 5.0),
        (np.round(NORMAL / 12) * 12, 12.0),
        (np.r_[np.round(NORMAL / 5) * 5, 41.0], 1.0),  # heaped, but one value knows better
        (np.r_[np.round(NORMAL, 1), 41.2345678], 0.1),  # one of 3,000 does not count
        (np.r_[np.round(NORMAL, 2), np.repeat(40.0, 9000)], 0.01),  # nor does a value that most cells have
        (NORMAL, 0.0),
        (NORMAL / 3e7, 0.0),
        (np.round(NORMAL) / 3, 1 / 3),
        (np.float32(NORMAL).astype(float), 0.0),
        (np.zeros(10), 0.0),
    ],
)
def test_resolution(values, resolution):
    assert found(values).resolution == pytest.approx(resolution, rel=1e-6)


FAHRENHEIT, INCHES = np.round(NORMAL), np.round(NORMAL / 4 + 57)


@pytest.mark.parametrize(
    "values, resolution",
    [
        (np.round(FAHRENHEIT / 1.8 - 32 / 1.8, 1), 5 / 9),
        (np.trunc((FAHRENHEIT - 12) / 0.18 + 0.5) / 10, 5 / 9),  # negative ones were rounded up
        (np.round(INCHES * 2.54, 1), 2.54),
        (np.round(INCHES * 28.35), 28.35),
        (np.r_[np.round(FAHRENHEIT / 1.8, 1), np.round(NORMAL[:300] / 1.8, 1)], 0.1),  # a tenth on another scale
        (np.r_[np.round(NORMAL / 5) * 5, np.round(NORMAL)[:100]], 1.0),  # heaped at fives
        (np.r_[np.round(NORMAL / 10) * 10, np.round(NORMAL / 5)[:600] * 5, np.round(NORMAL)[:100]], 1.0),
        (np.repeat(G.permutation(1000)[:100], 20), 1.0),  # few of the values that are possible, by chance
        (np.repeat(np.round(np.geomspace(10, 3000, 120)), 20), 1.0),
    ],
)
def test_steps_that_were_rounded(values, resolution):
    """Values on another scale: the finer step would make atoms of most of them."""
    r = found(values)
    assert r.resolution == pytest.approx(resolution, rel=3e-3)
    assert not r.atoms or resolution in (0.1, 1.0)


def test_atoms_stand_out_of_their_neighbours():
    gains = np.round(np.exp(7 + G.standard_normal(400)))
    r = found(np.zeros(5000), gains, np.repeat(99999.0, 25))
    assert r.atoms == (0.0, 99999.0) and r.suspects == (99999.0,) and not r.log and r.resolution == 1.0
    assert in_words(r) == "in steps of 1; 0, 99999 are values of their own"
    assert found(np.zeros(5000), gains).log  # without an atom at the maximum
    assert found(np.round(NORMAL)).atoms == ()  # every age has 2 % of the cells, and so have its neighbours
    assert found(np.round(NORMAL, 1), np.repeat(40.0, 50)).atoms == ()  # 50 of 3,050 are less than 2 %
    assert found(np.round(NORMAL, 1), np.repeat(40.0, 100)).atoms == (40.0,)


def test_sentinels():
    assert found(NORMAL.round(1), np.repeat(-999.0, 5)).suspects == (-999.0,)
    assert found(NORMAL.round(1), np.repeat(-999.0, 4)).suspects == ()  # too few to tell
    r = found(np.abs(NORMAL).round() + 20, np.zeros(6), np.repeat(999.0, 8))
    assert r.suspects == r.atoms == (0.0, 999.0)


def test_scale():
    wide = np.exp(3 + 1.5 * G.standard_normal(2000))
    assert found(wide).log and found(wide.round(3), np.zeros(300)).log
    z = ndtri((np.arange(2000) + 0.5) / 2000)
    assert found(np.exp(3 + 0.62 * z)).log and not found(np.exp(3 + 0.48 * z)).log  # an order of magnitude, or less
    assert not found(np.exp(3 + 0.3 * G.standard_normal(2000))).log  # spans too little
    assert not found(1 + 14 * G.random(2000)).log  # is not skewed
    assert not found(wide - 1).log  # some are negative
    assert not found(NORMAL).log


@pytest.mark.parametrize("n, asked", [(0, False), (1, True), (7, True), (40, False)])
def test_rare_zeros_among_numbers_for_a_log_scale(tmp_path, n, asked):
    """They are asked about; none is fine, and many are an atom."""
    towns = np.exp(7 + 2 * ndtri((np.arange(400) + 0.5) / 400)).round() + 3
    for name, others, note in (("towns", towns, asked), ("heights", NORMAL[:400].round() + 50, False)):
        cells = G.permutation(np.r_[others, np.zeros(n)])
        (tmp_path / "x.csv").write_text(f"{name},y\n" + "\n".join(f"{x:.0f},{i % 3}" for i, x in enumerate(cells)))
        summary = import_table(tmp_path / "x.csv", tmp_path / "t.h5", overwrite=True)
        assert any(f"column '{name}': a few zeros" in text for text in summary.notes) is note


def test_a_few_zeros_beside_atoms():
    """They are an atom if they keep the others from a log scale."""
    savings = np.exp(9 + 1.5 * G.standard_normal(2000)).round(2)
    heaped = np.repeat([5000.0, 10000.0], 100)
    assert found(savings, heaped).log and found(savings, heaped).atoms == (5000.0, 10000.0)
    for n in (1, 30):
        r = found(savings, heaped, np.zeros(n))
        assert r.log and r.atoms == (0.0, 5000.0, 10000.0) and not r.suspects
    heights = np.repeat([42.5], 200)
    assert found(NORMAL, heights, 0.0).atoms == (42.5,)


def test_few_values_are_categories():
    ratios = np.unique([i / j for i in range(1, 12) for j in range(1, 12)])
    assert found(np.repeat(ratios, 12)).few and not found(np.repeat(ratios, 9)).few
    assert found(np.repeat(np.arange(20) / 2, 10)).few
    assert not found(np.repeat(np.arange(21) / 2, 10)).few and not found(np.repeat(np.arange(20) / 2, 9)).few


def test_codes_are_rougher_than_measurements():
    codes = G.choice(60, p=G.dirichlet(np.full(60, 0.7)), size=12_000) + 1
    ages = np.clip(np.round(NORMAL), 0, 90)
    heaped = np.r_[ages, np.repeat([20.0, 30.0, 40.0, 50.0], 60)]
    assert found(codes).roughness > 50 and found(ages).roughness < 4 and found(heaped).roughness < 8


def test_many_values_in_batches():
    """Beyond MOST_VALUES a sample of the rare ones is enough, and what is common is never lost."""
    many = np.round(1e6 * G.random(60_000), 1)
    r = found(np.r_[many, np.zeros(4000)], batches=30)
    h = Histogram()
    for part in np.array_split(np.r_[many, np.zeros(4000)], 30):
        h.add(*np.unique(part, return_counts=True))
    h.merge()
    assert len(h.values) <= MOST_VALUES and not h.whole and h.n == 64_000
    assert r.resolution == pytest.approx(0.1) and r.atoms == (0.0,)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_number_far_from_all_others_may_be_a_slip(sign):
    latitudes = 48.8 + 0.1 * G.random(300)

    def of(*others):
        h = Histogram()
        h.add(*np.unique(np.r_[sign * latitudes, others], return_counts=True))
        return slips(h)

    assert of() == of(sign * 49.7) == () and of(sign * 8.856) == (sign * 8.856,)
    assert of(*sign * np.array([8.856, 8.857])) == tuple(sorted(sign * np.array([8.856, 8.857])))
    assert of(*[sign * 8.856] * 4) == (), "a value of its own"
    heavy = np.sort(1.0 / G.random((300, 500)), axis=1)
    wrong = np.mean([gap > 10 * rest for gap, rest in np.c_[heavy[:, -1] - heavy[:, -2], heavy[:, -2] - heavy[:, 0]]])
    assert 0.0 < wrong < 0.2, "the heaviest tails, of a Pareto law of index 1, are taken for slips in one column of ten"


def test_what_is_given_is_not_asked():
    h = Histogram()
    h.add(*np.unique(np.r_[NORMAL.round(1), np.zeros(500)], return_counts=True))
    assert recording(h, resolution=0.0, atoms=(), log=False) == recording(h, 0.0, (), False)
    r = recording(h, resolution=0.5)
    assert r.resolution == 0.5 and r.atoms == (0.0,)


@pytest.mark.parametrize(
    "others, codes",
    [
        (range(1, 6), [-99]),
        (range(1, 6), [-8, -9]),
        (range(1, 5), [9]),
        ((0, 1), [9]),
        ((1, 2), [8, 9]),
        (range(1, 8), [99]),
        (range(0, 11), [88, 99]),
        (range(0, 11), [998, 999]),
        (range(1, 6), [-9, 99]),
    ],
)
def test_codes_of_missing_answers(tmp_path, others, codes):
    values, cells = np.array(sorted([*others, *codes]), float), np.full(len([*others, *codes]), 20)
    cells[np.isin(values, codes)] = 5
    assert missing_codes(values, cells) == tuple(sorted(codes))
    answers = np.repeat(values.astype(int), cells)
    (tmp_path / "a.csv").write_text("q,x\n" + "".join(f"{a},{i % 4}.5\n" for i, a in enumerate([*answers, ""])))
    summary = import_table(tmp_path / "a.csv", tmp_path / "a.h5")
    [warning] = [w for w in summary.warnings if "far from all other values" in w]
    reported = warning.split("[columns.")[1].replace("]: ", "]\n", 1)
    (tmp_path / "s.toml").write_text(f"[columns.{reported}\n")  # as the message says
    again = import_table(tmp_path / "a.csv", tmp_path / "b.h5", schema=tmp_path / "s.toml")
    assert again.columns[0].n_missing == 5 * len(codes) + 1 and not again.warnings


@pytest.mark.parametrize(
    "values",
    [
        [*range(1, 10)],  # a scale that ends at 9
        [4, 6, 8],
        [0, 1, 2, 3, 10],
        [-1, 0, 1],
        [-2, -1, 1, 2],
        [-3, -2, -1],
        [1, 2, 3, 5, 9],
        [0, 10, 20, 99, 100],
        [1975, 1976, 1980],
    ],
)
def test_what_is_no_code_of_a_missing_answer(values):
    assert missing_codes(np.array(values, float), np.full(len(values), 20)) == ()


def test_a_code_of_most_cells_or_of_few_is_an_answer():
    assert missing_codes(np.array([-99.0, 1, 2]), np.array([4, 20, 20])) == ()
    assert missing_codes(np.array([-99.0, 1, 2]), np.array([90, 20, 20])) == ()
