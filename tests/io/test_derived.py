"""Notes on columns that seem to be made of others: coarser ones, and products with a column of two values."""

import numpy as np
import pytest

from tests.io.importing import imported

N = 600
G = np.random.default_rng(20261130)
MONTH, URBAN, SCHOOL = G.integers(1, 13, N), G.integers(0, 2, N), G.integers(0, 17, N)
OTHERS = {
    "x": G.standard_normal(N).round(3),
    "coin": G.integers(0, 2, N),
    "kind": np.array(list("abc"))[G.integers(0, 3, N)],
}


def notes_of(tmp_path, **columns):
    notes = imported(tmp_path, {name: list(map(str, cells)) for name, cells in columns.items()}).notes
    return [note for note in notes if "made so" in note]


def test_a_coarser_column_is_asked_about(tmp_path):
    [note] = notes_of(tmp_path, month=MONTH, half=np.where(MONTH > 6, "second", "first"), x=OTHERS["x"])
    assert note == (
        "column 'half' is known from 'month' in all rows looked at; if it was made so, --drop half: views and groups "
        "may show little else"
    )


def test_the_nearest_of_several_finer_columns(tmp_path):
    """The region is known from the country, the continent from the region."""
    country = G.integers(0, 30, N)
    columns = {"country": country, "region": country // 3, "continent": country // 9, "x": OTHERS["x"]}
    [note] = notes_of(tmp_path, **{name: [f"{name[:3]}{c}" for c in cells] for name, cells in columns.items()})
    assert "'region' is known from 'country'; 'continent' is known from 'region'" in note
    assert note.endswith("--drop region,continent: views and groups may show little else")


WORDS = np.array(list("abcd"))[SCHOOL % 4]


DAY = np.sort(G.choice(2_000, N, replace=False)) + np.datetime64("2009-03-01")
INCOME = np.r_[np.full(N // 4, 0.0), G.lognormal(10, 1, N - N // 4).round(2)]


@pytest.mark.parametrize(
    ("fine", "part"),
    [(DAY, DAY.astype("datetime64[Y]")), (INCOME, np.where(INCOME > 0, "earns", "none")), (INCOME, INCOME // 40_000)],
    ids=["year of a date", "none or some", "bands"],
)
def test_a_part_of_a_number_s_range(tmp_path, fine, part):
    """It is asked about, unless a row lies on the other side of a bound, or two rows of one number have two parts."""
    order = G.permutation(N)
    [note] = notes_of(tmp_path, fine=fine[order], part=part[order], x=OTHERS["x"])
    assert note.startswith("column 'part' is known from 'fine' in all rows looked at; if it was made so, --drop part")
    by_size = np.argsort(fine, kind="stable")
    for a, b in ((0, -1), (0, N // 4 - 1)):
        wrong = part.copy()
        wrong[by_size[[a, b]]] = part[by_size[[b, a]]]
        if (wrong != part).any():
            assert not notes_of(tmp_path, fine=fine[order], part=wrong[order], x=OTHERS["x"])


@pytest.mark.parametrize("other", [SCHOOL, OTHERS["coin"], WORDS], ids=["number", "0/1", "words"])
def test_a_product_with_a_column_of_two_values(tmp_path, other):
    """Zero, or another constant, where the column has its other value."""
    product = np.where(URBAN == 1, other, other[np.argmax(URBAN == 1)] if other.dtype.kind == "U" else 0)
    [note] = notes_of(tmp_path, urban=URBAN, other=other, x=OTHERS["x"], product=product)
    assert note.startswith("column 'product' repeats 'other' where 'urban' is '1' in all rows looked at")


def test_columns_that_follow_from_no_other(tmp_path):
    """Independent ones; one that differs in a row; and one of which chance decides, as few rows have each value."""
    gaps = np.where(MONTH > 6, MONTH.astype(str), "")
    assert not notes_of(tmp_path, month=gaps, half=MONTH > 6, x=OTHERS["x"])  # a gap that tells something
    half = np.where(MONTH > 6, "second", "first")
    half[np.argmax(MONTH == 12)] = "first"
    half[np.argmax(MONTH == 1)] = "second"
    assert not notes_of(tmp_path, month=MONTH, half=half, urban=URBAN, school=SCHOOL, **OTHERS)
    few = np.arange(60) // 2
    coin = G.integers(0, 2, 60)
    coin[:40] = coin[few[:40]]  # 20 pairs of rows are alike
    assert not notes_of(tmp_path, few=np.r_[few[:40], 100 + np.arange(20)], coin=coin, x=OTHERS["x"][:60])
