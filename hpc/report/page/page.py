"""The page of a report, report.html: one file, which needs no network and whose script knows no family.

The template, the style and the script lie beside this file. Texts and tables are HTML already; the long tables,
matrices and traces are JSON, which the script renders on demand. The page's policy allows no request, and no script but
its own, identified by its hash: even if a name from a table were taken for a script, it would not run.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Sequence
from importlib.resources import files
from string import Template
from typing import Any
from urllib.parse import quote

from mpibayes import __version__
from mpibayes.errors import ConfigError
from mpibayes.hpc.posterior.chains import Chain
from mpibayes.hpc.report.document import (
    ASKED,
    BAD,
    DOUBT,
    GOOD,
    PAGE,
    Document,
    Figure,
    Link,
    Matrix,
    Section,
    Stops,
    Table,
    Traces,
    Verdict,
)
from mpibayes.hpc.report.page.markup import escaped, grid, markup
from mpibayes.hpc.report.page.pack import packed
from mpibayes.hpc.run.identity import RESOLVED, read_provenance
from mpibayes.io.files import read_regular, reading
from mpibayes.text import visible, visible_lines

MOST_SVG = 600_000  # letters; a larger picture is embedded as PNG
WIDTH = re.compile(r'<svg[^>]* width="([0-9.]+)pt"')  # original width, at which letters have their size
SIGN = {GOOD: "✓", DOUBT: "!", BAD: "✗"}


def page(document: Document) -> str:
    """The whole file, in UTF-8."""
    data: list[dict[str, Any]] = []
    sections = [*document.sections, *([_how(document.chains)] if document.chains else [])]
    sections = [section for section in sections if section.blocks(PAGE)]
    body = "".join(_section(section, data) for section in sections)
    script, style = (_own(name) for name in ("page.js", "page.css"))
    title = ", ".join(dict.fromkeys(str(c.home) for c in document.chains)) or "report"
    return Template(_own("page.html")).substitute(
        title=escaped(title), style=style, script=script, version=escaped(__version__),
        hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        verdict=_verdict(document.verdict),
        links="".join(f'<a href="#{s.name}">{escaped(s.title.split(":")[0])}</a>' for s in sections),
        body=body, data=as_json(data),
    )  # fmt: skip


def as_json(data: Any) -> str:
    """JSON that is safe inside a script element: no character begins a tag, a comment or an entity."""
    text = json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _own(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _command(line: str) -> str:
    """Write a command whose options, such as --groups, are never broken."""
    return " ".join(f"<span>{escaped(word)}</span>" for word in line.split(" "))


def _verdict(v: Verdict) -> str:
    answers = []
    for question, name in ASKED:
        html = "".join(f"<p>{escaped(sentence)}</p>" for sentence in getattr(v, name))
        if name == "next":
            html += "".join(f"<p>To {escaped(words)}:</p><pre>{_command(line)}</pre>" for words, line in v.commands)
        if html:
            answers.append(f'<div class="{name}"><h2>{question}</h2>{html}</div>')
    note = (
        f'<p class="approximation"><b>An approximation.</b> {escaped(v.approximation)}</p>' if v.approximation else ""
    )
    head = f'<p class="sound"><span aria-hidden="true">{SIGN[v.sound]}</span> {escaped(v)}</p>'
    body = f'{head}{note}<div class="answers">{"".join(answers)}</div>'
    return f'<section id="verdict" class="verdict {v.sound}">{body}</section>'


def _section(section: Section, data: list[dict[str, Any]]) -> str:
    parts = "".join(_part(part, section, data) for block in section.blocks(PAGE) for part in block)
    return f'<section id="{section.name}"><h2>{escaped(section.title)}</h2>{parts}</section>'


def _part(part: Any, section: Section, data: list[dict[str, Any]]) -> str:
    if isinstance(part, (Table, Matrix, Stops, Traces)):
        data.append({"id": f"{section.name}-{len(data)}", **packed(part)})
        return f'<div class="part" id="{section.name}-{len(data) - 1}"></div>'
    if isinstance(part, Figure):
        return _figure(part)
    if isinstance(part, Link):
        return f'<p><a href="{quote(os.fsencode(part.path))}">{escaped(part.words)}</a></p>'
    if isinstance(part, _Raw):
        return part
    return markup(part)


def _figure(figure: Figure) -> str:
    picture, label = figure.picture, escaped(figure.words)
    if picture.svg and len(picture.svg) <= MOST_SVG:
        image = _inline(picture.svg, re.sub(r"\W", "", figure.name), label)
    else:
        image = f'<img alt="{label}" src="data:image/png;base64,{base64.b64encode(picture).decode()}">'
    width = WIDTH.search(picture.svg)
    size = f' style="--drawn: {width[1]}pt"' if width else ""
    return f'<figure><div class="paper" tabindex="0"{size}>{image}</div><figcaption>{label}</figcaption></figure>'


def _inline(svg: str, name: str, label: str) -> str:
    """Embed matplotlib's SVG as an element: used identifiers get the picture's name as a prefix, others are dropped."""
    svg = svg[svg.index("<svg") :]
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', svg))
    svg = re.sub(r' id="([^"]*)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", svg)
    svg = re.sub(r"url\(#", f"url(#{name}-", svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\n\s*", "\n", svg)
    return svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def _how(chains: Sequence[Chain]) -> Section:
    """Section with the configuration, versions and hosts of the runs, from their directories."""
    return Section(
        "run", "How it was run", [_Raw("".join(_run(home) for home in dict.fromkeys(c.home for c in chains)))]
    )


class _Raw(str):
    """HTML made by this program, inserted unescaped."""


def _run(home: Any) -> str:
    record = read_provenance(home)
    rows = [(name, record[name]) for name in ("run", "fingerprint") if name in record]
    starts = [start for start in record.get("starts", []) if isinstance(start, dict)]
    names = list(dict.fromkeys(name for start in starts for name in start))
    listed = [[_plain(start.get(name, "")) for name in names] for start in starts]
    with reading(home / RESOLVED, ConfigError):
        settings = visible_lines(read_regular(home / RESOLVED).decode())
    head = "".join(f"<dt>{escaped(k)}</dt><dd>{escaped(v)}</dd>" for k, v in [("directory", home), *rows])
    return (
        f'<dl class="facts">{head}</dl>'
        + grid(names, listed, [False] * len(names))
        + f"<details><summary>{RESOLVED}</summary><pre>{escaped_lines(settings)}</pre></details>"
    )


def escaped_lines(text: str) -> str:
    return "\n".join(map(escaped, text.split("\n")))


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_plain(v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return visible(value)
