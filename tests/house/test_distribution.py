"""The distribution is complete and consistent: version, changelog, data of packages, the site's pages."""

import ast
import fnmatch
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import mpibayes
from mpibayes.hpc.registry import FAMILIES, ROOMS, keys_of

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = ("hpc", "io", "kernels", "slurm")


def said_in(path, pattern):
    """Group 1 of the first match of a pattern in a file."""
    return re.search(pattern, (ROOT / path).read_text(encoding="utf-8"), re.M)[1]


def test_one_version():
    """The program, the citation, and the newest part of the changelog have the same version."""
    assert re.fullmatch(r"\d+\.\d+\.\d+", mpibayes.__version__)
    assert said_in("CITATION.cff", r"^version: (\S+)$") == mpibayes.__version__
    assert said_in("CHANGELOG.md", r"^## (\d\S+)") == mpibayes.__version__


def test_readme_can_be_read():
    """README has at most 120 lines, the two commands, and one picture that loads quickly."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (picture,) = re.findall(r"^!\[.+\]\((\S+)\)$", text, re.M)
    assert text.count("\n") <= 120 and (ROOT / picture).stat().st_size < 150_000
    assert all(re.search(rf"^{command} ", text, re.M) for command in ("make demo", "make test"))


def test_shells_complete():
    """Complete the name of the program alone, as docs/install.md says."""
    given = {"_MPIBAYES_COMPLETE": "bash_complete", "COMP_WORDS": "mpibayes ex", "COMP_CWORD": "1"}
    code = "from mpibayes.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | given, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "plain,export\n" and not done.stderr


def test_files_beside_modules_are_packed():
    """A template, a header, a script: whatever lies in a package goes into the wheel; documents do not."""
    packed = PROJECT["tool"]["setuptools"]["package-data"]["*"]
    beside = [p for name in PACKAGES for p in (ROOT / name).rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    left_out = {p.suffix for p in beside if not any(fnmatch.fnmatch(p.name, one) for one in packed)}
    assert left_out <= {".py", ".so", ".md", ".c"}


def constants():
    """All texts of the program, those of f-strings with `...` for what is filled in."""
    for name in (*PACKAGES, "src/mpibayes"):
        for path in (ROOT / name).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    yield "...".join(v.value if isinstance(v, ast.Constant) else "" for v in node.values)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


def unknown_messages(page, texts):
    """Texts in the first column of the page's tables that the program does not have."""
    for line in re.findall(r"^\| (`.*?) \|", page, re.M):
        for message in re.findall(r"`([^`]+)`", line):
            if not all(part in texts for part in message.split("...")):
                yield message


def test_messages_are_the_program_s():
    page, texts = (ROOT / "docs" / "messages.md").read_text(encoding="utf-8"), "\n".join(constants())
    assert not list(unknown_messages(page, texts)) and page.count("\n| `") > 40
    assert list(unknown_messages("| `no program says this` | it means | do |", texts)) == ["no program says this"]


@pytest.fixture
def from_the_code(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import from_the_code

    return from_the_code


def test_every_key_is_on_the_page_of_keys(from_the_code):
    page = from_the_code.every_key()
    rows = set(re.findall(r"^\| `(\w+)` \| .+ \| .+ \| .+ \|$", page, re.M))
    for family in ROOMS:
        for section in (*keys_of(family).SECTIONS.values(), *keys_of(family).NAMED.values()):
            assert set(section.model_fields) <= rows
    assert all(f"`{family}`" in page for family in FAMILIES)


def test_every_command_is_on_the_page_of_commands(from_the_code):
    from mpibayes.hpc.cli import cli

    page = from_the_code.every_command()
    assert all(f"## `mpibayes {name}`" in page for name in cli.list_commands(None))
    assert all(f"## `mpibayes query {name}`" in page for name in cli.get_command(None, "query").commands)
    assert "\b" not in page
    assert cli.main(["simulate", "mixture", "-h"], standalone_mode=False) is not None  # the page leaves it as it was
