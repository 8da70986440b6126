"""The documents are right about the repository: sections, links, files and papers exist, and prose fits its lines."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("hpc", "kernels", "io", "src", "tests", "benchmarks", "examples", "docs", "slurm")
CODE = {".py", ".pyx", ".h", ".c", ".cc"}
WIDTH = 100  # of a line of prose
MATH = (ROOT / "docs" / "math.md").read_text(encoding="utf-8")
KEPT = ROOT / "benchmarks" / "results" / "README.md"  # written by the benchmarks

SECTION = re.compile(r"^#{2,3} (\d(?:\.\d+)?) ", re.M)
PAPER = re.compile(r"([A-ZÉ][\w'-]+)(?:'s)?(?: et al\.?)?,? \(?((?:19|20)\d\d)\b")
NOT_PAPERS = {"The", "census"}  # "The 1990 census"


def files(suffixes):
    result = [p for name in FOLDERS for p in sorted((ROOT / name).rglob("*")) if p.suffix in suffixes]
    return [p for p in result if not any(parent.is_symlink() for parent in p.parents)]


def documents():
    return [*sorted(ROOT.glob("*.md")), *(p for p in files({".md"}) if p != KEPT)]


def outside_code(text):
    """(number, line) of a document's lines that are in no block of code."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, line


def anchors(path):
    """The anchors of a document's headings, as GitHub makes them."""
    heads = (line.lstrip("#") for _, line in outside_code(path.read_text(encoding="utf-8")) if line.startswith("#"))
    return {re.sub(r"[^\w\- ]", "", h.strip().lower()).replace(" ", "-") for h in heads}


def cited_sections(text):
    """Sections of docs/math.md that a text cites, as in "docs/math.md 2.1, step 6; 2.3"."""
    text = re.sub(r"\s*\n[\s*#]*", " ", text)
    for after in re.findall(r"docs/math\.md ([^:)]{1,40})", text):
        words = re.sub(r"steps? \d+( to \d+)?", "", re.split(r"\.\W|\.$", after)[0])
        yield from re.findall(r"(?<![\w.])\d(?:\.\d+)?(?![\w.])", words)


def long_lines(text):
    return [(n, len(line)) for n, line in outside_code(text) if len(line) > WIDTH and not line.lstrip().startswith("|")]


def missing_links(path, text):
    """Links to files or headings that are not there."""
    for target in re.findall(r"\]\(([^)\s]+)\)", "\n".join(line for _, line in outside_code(text))):
        if not re.match(r"\w+:", target):
            name, _, anchor = target.partition("#")
            place = (path.parent / name).resolve() if name else path
            if not place.exists() or (anchor and anchor not in anchors(place)):
                yield target


def missing_files(text):
    """Files of this repository that a text names in backquotes and that are not there."""
    for name in re.findall(rf"(?:{'|'.join(FOLDERS)})/[\w./-]*\w", " ".join(re.findall(r"`[^`\n]+`", text))):
        if not (ROOT / name).exists():
            yield name


def test_sections_that_are_cited_exist():
    sections = set(SECTION.findall(MATH))
    wrong = [
        f"{path.relative_to(ROOT)}: {cited}"
        for path in files(CODE | {".md"})
        if path != Path(__file__)
        for cited in cited_sections(path.read_text(encoding="utf-8"))
        if cited not in sections
    ]
    assert len(sections) > 30 and not wrong


def test_papers_that_are_cited_are_listed():
    """Find the last author named and the year in one entry of the references."""
    entries = re.split(r"\n\* ", re.split(r"\n## \d+ References", MATH)[1])
    wrong = set()
    for path in files(CODE):
        if path.relative_to(ROOT).parts[0] in ("hpc", "kernels", "io"):
            for author, year in PAPER.findall(path.read_text(encoding="utf-8")):
                author = author.removesuffix("'s")
                if author not in NOT_PAPERS and not any(author in e and year in e for e in entries):
                    wrong.add(f"{path.relative_to(ROOT)}: {author} {year}")
    assert not wrong


@pytest.mark.parametrize("path", documents(), ids=lambda p: str(p.relative_to(ROOT)))
def test_document(path):
    text = path.read_text(encoding="utf-8")
    assert not list(missing_links(path, text))
    assert not list(missing_files(text))
    assert not long_lines(text)


def test_what_is_wrong_is_found():
    assert list(cited_sections("(docs/math.md 2.1, step 6; 2.3)")) == ["2.1", "2.3"]
    assert list(cited_sections("docs/math.md 1.3 to\n * 1.6, 9.9 times")) == ["1.3", "1.6", "9.9"]
    assert list(cited_sections("docs/math.md 6.1. So do 2 steps")) == ["6.1"]
    assert long_lines("x" * 101 + "\n| " + "x" * 101 + "\n```\n" + "x" * 101 + "\n```\n") == [(1, 101)]
    readme = ROOT / "README.md"
    assert list(
        missing_links(readme, "[a](docs/no.md) [b](README.md#no-such-part) [c](docs/math.md#5-diagnostics)")
    ) == [
        "docs/no.md",
        "README.md#no-such-part",
    ]
    assert list(missing_files("`hpc/no.py` and `python benchmarks/no.py`, `hpc/family.py`")) == [
        "hpc/no.py",
        "benchmarks/no.py",
    ]
