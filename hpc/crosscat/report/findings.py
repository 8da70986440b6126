"""Views, clusters and groups of a summary, in the form for comparison with other runs."""

from __future__ import annotations

from mpibayes.hpc.crosscat.report import groups
from mpibayes.hpc.crosscat.report.summarise import RunSummary
from mpibayes.hpc.crosscat.report.view_summary import ViewSummary
from mpibayes.hpc.report.findings import Findings, Grouping, GroupLevel


def findings(p: RunSummary) -> Findings | None:
    """Return a run's groupings; None if no draw of the labels was kept."""
    if not p.views:
        return None
    views = [_grouping(view) for view in p.views]
    if p.dependence is None:
        return Findings(views, views[0].columns)
    return Findings(views, p.dependence.names, p.dependence.share)


def _grouping(view: ViewSummary) -> Grouping:
    shown, level = groups.first(view.levels), None
    if shown is not None:
        of = shown.level
        level = GroupLevel(of.n, of.natural, of.usable, shown.labels, str(of), of.judged)
    return Grouping(view.number, view.names, view.representative.labels, level, view.slight)
