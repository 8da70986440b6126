"""The report of a run of any family, with what questions to the run add: pairs of columns that it weakens, linked
pairs as tables of conditional distributions, and what is new since the last rows came to its table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mpibayes.errors import ConfigError
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.registry import report_of
from mpibayes.hpc.report.document import Section
from mpibayes.hpc.report.tables import Report
from mpibayes.hpc.results.linked_tables import linked_tables
from mpibayes.hpc.results.since_rows import add_since
from mpibayes.hpc.results.weak_pairs import WeakPairs, look

DRAWS = 20  # that are asked
BEFORE = "columns", "sizes", "chains", "about"  # sections that new ones come before


def asked_report(run: Any) -> Report:
    """Make the report of an opened run. Raises what `hpc.report.report.report` does."""
    made = report_of(run.chains[0].config.kind)(run)
    add_since(made, run)
    try:
        asking = Asking.of_run(run, DRAWS)
        weak = look(asking)
    except ConfigError:  # no draws, or a model that cannot be asked, of which its own report says so
        return made
    tables = linked_tables(asking, made.linked)
    if weak is not None:
        _add_pairs(made, weak)
    if tables:
        sections = made.sections
        made.sections = lambda: [replace(s, parts=[*s.parts, *tables]) if s.name == "links" else s for s in sections()]
    return made


def _add_pairs(made: Report, weak: WeakPairs) -> None:
    findings = made.findings()
    groupings = findings.groupings if findings is not None else ()
    weak = replace(weak, n_clusters=max((g.n_clusters for g in groupings if not g.slight), default=0))
    sections, parts = made.sections, made.parts
    section = Section("pairs", "Pairs that the run weakens", weak.parts())
    made.sections = lambda: _inserted(sections(), section)
    made.parts = lambda: [*parts(), "", *weak.text()]
    made.verdict = replace(made.verdict, next=[*made.verdict.next, *weak.advice()])
    made.document["pairs"] = weak.document()


def _inserted(sections: Sequence[Section], new: Section) -> list[Section]:
    at = next((i for i, s in enumerate(sections) if s.name in BEFORE), len(sections))
    return [*sections[:at], new, *sections[at:]]
