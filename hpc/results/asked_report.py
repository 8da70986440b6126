"""The report of a run of any family, extended by the answers to queries: pairs of columns that the run weakens, linked
pairs as tables of conditional distributions, notes of the table's import, and what is new since the last append."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mpibayes.errors import ConfigError
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.registry import report_of
from mpibayes.hpc.report.document import Document, Section, on_page
from mpibayes.hpc.results.linked_tables import linked_tables
from mpibayes.hpc.results.of_import import add_import_notes
from mpibayes.hpc.results.since_rows import add_since
from mpibayes.hpc.results.weak_pairs import look

DRAWS = 20  # draws used for the answers
BEFORE = "columns", "sizes", "chains", "about"  # new sections come before these


def asked_report(run: Any) -> Document:
    """Make the report of an opened run. Raises the same errors as `hpc.results.report.report`."""
    made = report_of(run.chains[0].config.kind)(run)
    add_since(made, run)
    add_import_notes(made, run.table.source)
    try:
        asking = Asking.of_run(run, DRAWS)
        weak = look(asking)
    except ConfigError:  # no draws, or a model without queries, as its own report says
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
