"""Rules between the keys of the configuration of a factorization, and between keys and table."""

from __future__ import annotations

from collections.abc import Mapping

from mpibayes.hpc.config.config import Config
from mpibayes.hpc.config.places import Report
from mpibayes.hpc.config.section import Section
from mpibayes.hpc.svi import rules as svi
from mpibayes.io.sparse import SparseTable


def rules(sections: Mapping[str, Section], named: Mapping[str, Mapping[str, Section]], report: Report) -> None:
    """Report violations that involve several keys. Sections that are invalid by themselves are absent here."""
    svi.common_rules(sections, report)
    if "step" not in sections:
        return
    step = sections["step"]
    if step.users == "stepped" and step.batch != "all":
        report.add(("step", "batch"), 'expected "all": with step.users = "stepped" every user takes every step')
    if step.noise == "none" and step.count == "all":
        report.add(("step", "count"), 'given, but step.noise = "none" has no use for it; take it out')


def without_effect(sections: Mapping[str, Section]) -> dict[tuple[str, str], str]:
    """Return the keys without effect, each with the setting that causes it."""
    step, idle = sections["step"], {("run", "burn_in"): 'model.family = "svi"', ("data", "unseen"): "a sparse table"}
    if step.noise == "none":
        idle |= {("step", key): 'step.noise = "none"' for key in ("effective", "guard", "count")}
    if step.rate == 1.0 and step.noise == "none":
        idle[("step", "users")] = "step.rate = 1.0"
    if step.batch != "all" or step.rate != 1.0 or step.noise != "none":
        idle[("step", "tolerance")] = "the noise of a step"
    return idle


def against_sparse(config: Config, table: SparseTable, report: Report) -> None:
    """Report ratings without information."""
    if table.minimum == table.maximum:
        report.add(("data", "table"), f"all ratings are {table.minimum:g}, which says nothing of factors")
