"""Small words of messages."""

import math

import pytest

from mpibayes.text import counted, every, factor, import_again


def test_one_and_many():
    assert [counted(n, "row") for n in (0, 1, 2, 12_000)] == ["0 rows", "1 row", "2 rows", "12,000 rows"]
    assert [counted(n, "class", "classes") for n in (1, 3)] == ["1 class", "3 classes"]
    assert [every(n) for n in (1, 4)] == ["every cycle", "every 4 cycles"]


def test_a_name_with_a_blank_is_quoted_for_the_shell():
    assert import_again("zip code", "categorical").endswith("--kind 'zip code=categorical' --force")


@pytest.mark.parametrize(
    "times, text", [(1.0, "1"), (1.00321, "1.0032"), (1.08, "1.080"), (1.1, "1.1"), (1.7, "1.7"), (12.0, "12")]
)
def test_a_factor_near_one_is_not_one(times, text):
    assert factor(math.log(187.0), math.log(times)) == f"187 ×/÷ {text}"
