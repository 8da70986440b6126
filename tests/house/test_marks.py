"""Variants of a test that `make test` runs: those that its mark `quick` names, each of which must exist.

And the order of tests among several processes."""

from types import SimpleNamespace

import pytest

from tests.conftest import mark_thorough, spread


class Item:
    """A collected variant of a test, as far as the marks go."""

    def __init__(self, variant, *names, **every):
        self.nodeid = f"test_x.py::test_x[{variant}]"
        self.marks = [pytest.mark.quick(*names, **every)] if names or every else []
        self.callspec = SimpleNamespace(id=variant)

    def get_closest_marker(self, name):
        return next((mark.mark for mark in self.marks if mark.name == name), None)

    add_marker = property(lambda self: self.marks.append)


def thorough(items, *words):
    mark_thorough(SimpleNamespace(args=words or ("tests",)), items)
    return [item.nodeid for item in items if item.get_closest_marker("thorough")]


def test_variants_that_are_not_named_are_thorough():
    items = [*(Item(variant, "a", "c") for variant in "abc"), Item("d")]
    assert thorough(items) == ["test_x.py::test_x[b]"]


def test_every_third_variant():
    items = [Item(variant, every=3) for variant in "abcde"]
    assert thorough(items) == [f"test_x.py::test_x[{variant}]" for variant in "bce"]


def test_a_name_without_a_variant_is_an_error():
    with pytest.raises(pytest.UsageError, match=r"test_x.py::test_x: no variant has the name d"):
        thorough([Item("a", "a", "d")])


def test_one_variant_can_be_asked_for_by_its_name():
    assert thorough([Item("b", "a")], "tests/test_x.py::test_x[b]") == ["test_x.py::test_x[b]"]


@pytest.mark.parametrize("ranks, kept", [(3, [1, 3]), ((2, 4), [1, 2, 4])])
def test_on_some_numbers_of_ranks_alone(ranks, kept):
    def is_kept(size):
        items = [Item("a", ranks=ranks)]
        mark_thorough(SimpleNamespace(args=["tests"]), items, size)
        return items[0].get_closest_marker("thorough") is None

    assert [size for size in range(1, 6) if is_kept(size)] == kept


def test_slow_tests_come_first_in_each_process():
    def item(path, number):
        return SimpleNamespace(nodeid=f"tests/{path}.py::test_{number}", get_closest_marker=lambda name: None)

    items = [item(path, i) for path in ("io/test_a", "run/test_b", "run/test_c", "cli/test_d") for i in range(5)]
    order = spread(items, 2)
    assert sorted(map(id, order)) == sorted(map(id, items))
    assert [one.nodeid.split("/")[1] for one in order] == ["run"] * 5 + ["io"] * 5 + ["run"] * 5 + ["cli"] * 5
