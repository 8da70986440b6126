"""Benchmarks run by hand, so a name that moved would be noticed late: what they import exists."""

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def absent(source):
    """Dotted names that a source imports from the package, and that are not there."""
    result = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("mpibayes"):
            continue
        for name in [alias.name for alias in node.names]:
            try:
                if not hasattr(importlib.import_module(node.module), name):
                    importlib.import_module(f"{node.module}.{name}")
            except ModuleNotFoundError:
                result.append(f"{node.module}.{name}")
    return result


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda path: path.stem)
def test_imports(path):
    assert not absent(path.read_text(encoding="utf-8"))


def test_a_name_that_is_gone_is_seen():
    assert absent("from mpibayes.hpc.data.events import Known, gone") == ["mpibayes.hpc.data.events.gone"]
    assert absent("from mpibayes.hpc.gone import x\nfrom mpibayes.hpc import data") == ["mpibayes.hpc.gone.x"]
