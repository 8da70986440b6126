"""Small words of messages."""

from mpibayes.text import counted, every, import_again


def test_one_and_many():
    assert [counted(n, "row") for n in (0, 1, 2, 12_000)] == ["0 rows", "1 row", "2 rows", "12,000 rows"]
    assert [counted(n, "class", "classes") for n in (1, 3)] == ["1 class", "3 classes"]
    assert [every(n) for n in (1, 4)] == ["every cycle", "every 4 cycles"]


def test_a_name_with_a_blank_is_quoted_for_the_shell():
    assert import_again("zip code", "categorical").endswith("--kind 'zip code=categorical' --force")
