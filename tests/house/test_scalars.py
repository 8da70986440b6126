"""A scalar of the trace is declared by its family, and nobody outside of families knows one by name."""

import ast
from pathlib import Path

import pytest

from mpibayes.hpc.registry import AUTO, ROOMS, scalars_of
from mpibayes.hpc.scalar import ACTIVE_ROWS, kinds, named, shown
from mpibayes.io.trace import KINDS

ROOT = Path(__file__).resolve().parents[2]
SHARED = ("io", "hpc/run", "hpc/posterior", "hpc/cli", "hpc/report", "hpc/results")
OF_EVERY_TRACE = {"seconds", ACTIVE_ROWS}
FAMILIES = sorted(set(ROOMS) - {AUTO})  # which is one of two of them
families = pytest.mark.parametrize("family", FAMILIES)


@families
def test_a_declaration_is_whole(family):
    scalars = scalars_of(family)
    names = [s.name for s in scalars]
    assert len(set(names)) == len(names) and names[-1] == "seconds" and kinds(scalars)["timing"] == ["seconds"]
    assert all(s.of in names for s in scalars if s.of)
    words = [s.log for s in scalars if s.log and not s.of]
    assert len(set(words)) == len(words)  # else a line of the log would keep one of two
    assert all(s.place for s in scalars if s.log or s.status or s.label)
    assert [s.place for s in shown(scalars)] == sorted(s.place for s in scalars if s.place)
    assert set(kinds(scalars)) == set(KINDS) and named(scalars).keys() == set(names)


def test_nobody_else_knows_a_scalar_by_name():
    known = {s.name for family in FAMILIES for s in scalars_of(family)} - OF_EVERY_TRACE
    result = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
        for folder in SHARED
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in known
    ]
    assert not result, "\n".join(result)
