"""The report of a run of any family, with what questions to the run add: pairs of columns that it weakens, linked
pairs as tables of conditional distributions, and what is new since the last rows came to its table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mpibayes.errors import ConfigError
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.registry import report_of
from mpibayes.hpc.report.document import Document, Section, on_page
from mpibayes.hpc.results.linked_tables import linked_tables
from mpibayes.hpc.results.since_rows import add_since
from mpibayes.hpc.results.weak_pairs import look

DRAWS = 20  # that are asked
BEFORE = "columns", "sizes", "chains", "about"  # sections that new ones come before


def asked_report(run: Any) -> Document:
    """Make the report of an opened run. Raises what `hpc.results.report.report` does."""
    made = report_of(run.chains[0].config.kind)(run)
    add_since(made, run)
    try:
        asking = Asking.of_run(run, DRAWS)
        weak = look(asking)
    except ConfigError:  # no draws, or a model that cannot be asked, of which its own report says so
        return made
    tables = linked_tables(asking, made.linked)
    if weak is not None:
        groupings = made.findings.groupings if made.findings is not None else ()
        weak = replace(weak, n_clusters=max((g.n_clusters for g in groupings if not g.slight), default=0))
        made.add(Section("pairs", "Weakened pairs of columns", weak.parts()), BEFORE)
        made.verdict = replace(made.verdict, next=[*made.verdict.next, *weak.advice()])
        made.numbers["pairs"] = weak.document()
    if tables:
        made.sections = [
            replace(s, parts=[*s.parts, on_page(*tables)]) if s.name == "links" else s for s in made.sections
        ]
    return made
