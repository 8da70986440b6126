"""Docstrings begin with a verb or a noun phrase: a reader should not have to look for the noun."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("hpc", "io", "src", "kernels", "tests")
WORDS = r"\s*(What|Of|Whether|Those)\b"
QUOTED = re.compile(rf"""["']{WORDS}""")  # in a module without one there is nothing to parse
OPENING = re.compile(rf"""^\s*[rR]?\"{{3}}{WORDS}""")  # Cython's docstrings are found line by line


def indirect(source, cython=False):
    """Line numbers of docstrings that begin with one of these words, in the source of a module."""
    if cython:
        return [n for n, line in enumerate(source.splitlines(), 1) if OPENING.match(line)]
    if not QUOTED.search(source):
        return []
    bodies = [node.body for node in ast.walk(ast.parse(source)) if isinstance(getattr(node, "body", None), list)]
    texts = [line.value for body in bodies for line in body if isinstance(line, ast.Expr)]
    return sorted(
        text.lineno
        for text in texts
        if isinstance(text, ast.Constant) and isinstance(text.value, str) and re.match(WORDS, text.value)
    )


def test_docstrings_name_the_thing():
    files = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py*")) if path.suffix in (".py", ".pyx")]
    assert len(files) > 600
    result = {path: indirect(path.read_text(encoding="utf-8"), path.suffix == ".pyx") for path in files}
    assert [f"{path.relative_to(ROOT)}:{line}" for path, lines in result.items() for line in lines] == []


@pytest.mark.parametrize("cython", [False, True])
@pytest.mark.parametrize("word", ["What", "Of", "Whether", "Those"])
def test_indirect_docstrings_are_found(word, cython):
    text = f'"""{word} is kept."""\nclass A:\n    """{word} rows."""\n    def f():\n        """Whatever."""\n'
    assert indirect(text, cython) == [1, 3]
