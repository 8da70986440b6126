"""The parts of a report's text as HTML: texts, facts and tables. Text from tables is made visible and escaped.

Styles are read back from rich's texts; cells of tables are texts or strings.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rich.columns import Columns
from rich.table import Table
from rich.text import Text

from mpibayes.hpc.report.document import Facts
from mpibayes.hpc.report.wide_table import WideTable
from mpibayes.text import visible

CLASSES = {"dim": "dim", "cyan": "name", "yellow": "warn"}


def escaped(text: object) -> str:
    """Escape a text from outside the program for use between tags or in an attribute; show unprintable characters."""
    return html.escape(visible(text))


def markup(part: Any) -> str:
    """HTML of a part of a report's text; "" if it is empty. Raises TypeError for a part that has no place on a page."""
    if isinstance(part, str):
        return f"<p>{escaped(part)}</p>" if part else ""
    if isinstance(part, Text):
        return words(part)
    if isinstance(part, Facts):
        lines = "".join(f"<dt>{escaped(key)}</dt><dd>{escaped(value)}</dd>" for key, value in part.lines)
        return f'<dl class="facts">{lines}</dl>'
    if isinstance(part, Table):
        return _table(part)
    if isinstance(part, WideTable):
        headings = [part.of, *(h for group in part.groups for h in group.headings)]
        rows = [[name, *(cell for group in part.groups for cell in group.rows[i])] for i, name in enumerate(part.names)]
        return grid(headings, rows, [False, *[True] * (len(headings) - 1)])
    if isinstance(part, Columns):
        return f"<ul>{''.join(f'<li>{inline(str(one))}</li>' for one in part.renderables)}</ul>"
    raise TypeError(f"a page has no {type(part).__name__}")


def words(text: Text) -> str:
    """HTML of a paragraph; its first line is a heading if it is bold."""
    first, *others = text.split("\n", allow_blank=True)
    lines = [inline(first), *map(inline, others)]
    if "bold" in str(text.style).split() and not any(_begins(span) for span in text.spans):
        rest = "".join(f"<p>{line}</p>" for line in lines[1:])
        return f"<h3>{lines[0]}</h3>{rest}"
    return f"<p>{'<br>'.join(lines)}</p>"


def _begins(span: Any) -> bool:
    return span.start == 0 and "not" in str(span.style).split()


def inline(text: Text | str) -> str:
    """HTML of a line of text with its styles as spans."""
    if isinstance(text, str):
        return escaped(text)
    ends = sorted({0, len(text.plain), *(min(x, len(text.plain)) for s in text.spans for x in (s.start, s.end))})
    pieces = []
    for start, end in pairwise(ends):
        styles = [str(s.style) for s in text.spans if s.start <= start and s.end >= end]
        pieces.append(_span(text.plain[start:end], " ".join([str(text.style or ""), *styles])))
    return "".join(pieces)


def _span(text: str, style: str) -> str:
    styles = style.split()
    names = [name for word, name in CLASSES.items() if word in styles]
    if "bold" in styles and "not" not in styles:
        names.append("strong")
    return f'<span class="{" ".join(names)}">{escaped(text)}</span>' if names else escaped(text)


def _table(part: Table) -> str:
    columns = [list(column.cells) for column in part.columns]
    headings = [column.header for column in part.columns]
    right = [column.justify == "right" for column in part.columns]
    return grid(headings if part.show_header else [], list(zip(*columns)), right, part.caption)


def grid(headings: Sequence[Any], rows: Sequence[Sequence[Any]], right: Sequence[bool], caption: Any = None) -> str:
    """HTML of a table that scrolls sideways if it is wide; the first column heads the rows. right: numeric columns."""
    if not rows:
        return ""
    look = [' class="num"' if is_right else "" for is_right in right]
    head = "".join(f'<th scope="col"{c}>{inline(h)}</th>' for h, c in zip(headings, look))
    body = []
    for first, *others in rows:
        cells = "".join(f"<td{c}>{inline(cell)}</td>" for cell, c in zip(others, look[1:]))
        body.append(f'<tr><th scope="row"{look[0]}>{inline(first)}</th>{cells}</tr>')
    below = f"<p class='dim'>{inline(caption)}</p>" if caption else ""
    head = f"<thead><tr>{head}</tr></thead>" if head else ""
    return f'<div class="wide" tabindex="0"><table>{head}<tbody>{"".join(body)}</tbody></table></div>{below}'
