"""Categories that are on a scale, and their order."""

import pytest

from mpibayes.io.order import in_order

SCALES = {
    "Likert": ["1", "2", "3", "4", "5"],
    "signed": ["-2", "-1", "0", "1", "2"],
    "ages": ["<18", "18-24", "25-34", "65+"],
    "words": ["under 18", "18 to 24", "25 to 64", "65 and over"],
    "incomes": ["$0-$9,999", "$10,000 - $19,999", "$20,000 or more"],
    "survey": ["lt $1000", "$1000 to 2999", "$3000 - 9999", "$10000 or more"],
    "mixed": ["0", "1-2", "3+"],
    "brackets": ["[0, 10)", "[10, 20)", "[20, 30)"],
}
NONE = {
    "words": ["blue", "green", "red"],
    "two": ["0", "1"],
    "leading zeros": ["01", "02", "03"],
    "far apart": ["10", "500", "9000"],
    "many": [str(i) for i in range(21)],
    "overlapping": ["0-10", "5-15", "10-20"],
    "a band and a word": ["0-10", "10-20", "unknown"],
}


@pytest.mark.parametrize("levels", SCALES.values(), ids=SCALES)
def test_scales(levels):
    places = list(range(len(levels)))
    assert in_order("answer", levels) == tuple(places)
    assert [levels[::-1][i] for i in in_order("answer", levels[::-1])] == levels


@pytest.mark.parametrize("levels", NONE.values(), ids=NONE)
def test_no_scale(levels):
    assert in_order("answer", levels) == ()


@pytest.mark.parametrize("name", ["zip", "Job code", "class", "region_id", "type", "policePrecinct", "site"])
def test_codes_by_their_name(name):
    assert in_order(name, ["1", "2", "3"]) == ()


@pytest.mark.parametrize("name", ["reward", "opposite", "real_estate"])
def test_names_that_only_end_like_places(name):
    assert in_order(name, ["1", "2", "3"]) == (0, 1, 2)
