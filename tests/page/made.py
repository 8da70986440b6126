"""Reports made without a run: of any size, with any names."""

import numpy as np
from rich.table import Table as Grid

from mpibayes.hpc.report.document import (
    BAD,
    Details,
    Document,
    Facts,
    Field,
    Levels,
    Matrix,
    Numbers,
    Section,
    Stops,
    Table,
    Verdict,
)
from mpibayes.hpc.report.wide_table import Group, WideTable
from mpibayes.terminal import Text

HOSTILE = [
    "<script>window.owned=1</script>", "</script><script>window.owned=1</script>", "<!--", "<!--<script>", "]]>",
    "<img src=x onerror=window.owned=1>", "\"' onfocus=window.owned=1 autofocus x='", "&lt;b&gt;&amp;#60;",
    "\u202egnissim\u2066", "\u2028\u2029\x00\x1b[2J", "$title ${data}", "{{ 7*7 }}", "\\u003cb\\u003e",
    "javascript:owned=1",
]  # fmt: skip


def report(n_clusters=12, n_columns=10, n_numeric=3, levels=5, names=()):
    """A report with all kinds of parts. names: of the first columns, levels and clusters."""
    g = np.random.default_rng(1)
    called = [*names, *(f"column {i}" for i in range(len(names), n_columns))][:n_columns]
    overall = g.dirichlet(np.ones(levels), n_columns)
    apart = g.exponential(0.5, (n_columns, n_clusters))
    kinds = [[*names, *(f"level {v}" for v in range(levels))][:levels] for _ in called]
    columns = [
        Numbers(name, (0.0, 2.0), g.normal(size=n_clusters), g.exponential(size=n_clusters), apart[i])
        if i >= n_columns - n_numeric
        else Levels(
            name, kinds[i], overall[i], g.dirichlet(np.ones(levels), n_clusters), apart[i],
            g.random(n_clusters) / 3 if i == 0 else None, 0.2 if i == 0 else 0.0,
        )
        for i, name in enumerate(called)
    ]  # fmt: skip
    sizes = np.sort(g.integers(10, 1000, n_clusters))[::-1]
    titles = [*names, *(f"cluster of {k}" for k in range(n_clusters))][:n_clusters]
    rows = [[k + 1, titles[k], int(n), float(n / sizes.sum()), (-1.0, 0.5 * k, float(k))] for k, n in enumerate(sizes)]
    rows[-1][3] = float("nan")
    fields = (
        Field("#", "whole"), Field("cluster", "text", titles[0]), Field("rows", "whole"), Field("share", "share"),
        Field("range", "interval"),
    )  # fmt: skip
    share = np.tril(g.random((n_columns, n_columns)))
    share = np.maximum(share, share.T)
    grid = Grid("name", "n", box=None)
    grid.add_row(Text(titles[0]), "1")
    text = Text(f"Heading {titles[0]}", style="bold")
    text.line(titles[-1], style="not bold dim").append(" and more", style="cyan")
    texts = ["", "plain " + titles[0], text, grid, Facts("title", [("key " + titles[0], titles[0])])]
    texts.append(WideTable(titles[:3], [Group(("a", "b"), [("1", "2")] * len(titles[:3]))], titles[0]))
    verdict = Verdict(
        [f"Found {titles[0]}."], ["No."], ["Next."], BAD, f"Of {titles[0]}.", [(titles[0], titles[-1])],
        warnings=[f"Beware of {titles[0]}."],
    )  # fmt: skip
    few = [Table("group", fields, rows[:n], Details(columns, "nats"), titles[:n]) for n in (2, 3, n_clusters)]
    words = [f"{len(table.rows)} groups {titles[0]}" for table in few]
    stops = Stops("Groups", words, words, few, ["bad", "good", "doubt"], 1)
    sections = [
        Section("clusters", "Clusters", [Table("cluster", fields, rows, Details(columns, "nats"), titles, titles[0])]),
        Section("views", f"Views: {titles[0]}", [Matrix(called, share, [n_columns // 2, n_columns], titles[0])]),
        Section("texts", "Texts", texts),
        Section("groups", "Groups", [stops]),
    ]
    return Document([], verdict, sections, {})
