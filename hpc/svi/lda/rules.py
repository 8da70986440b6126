"""Rules between the keys of the configuration of latent Dirichlet allocation, and between keys and sparse table."""

from __future__ import annotations

from collections.abc import Mapping

from mpibayes.hpc.config.config import Config
from mpibayes.hpc.config.places import Report
from mpibayes.hpc.config.section import Section
from mpibayes.hpc.svi import rules as svi
from mpibayes.hpc.svi.lda import keys
from mpibayes.hpc.svi.lda.local import SAMPLED
from mpibayes.io.sparse import SparseTable


def rules(sections: Mapping[str, Section], named: Mapping[str, Mapping[str, Section]], report: Report) -> None:
    """Report violations that involve several keys. Sections that are invalid by themselves are absent here."""
    svi.rules(sections, named, report)
    if "data" in sections and isinstance(sections["data"].heldout, str):
        report.add(("data", "heldout"), "got a file, expected a fraction: a share of the table's documents is held out")
    if "model" in sections and "step" in sections:
        step = sections["step"]
        if sections["model"].learn_alpha and step.local in ("linear", "cvb0", SAMPLED):
            what = f'it is learned from the local step "vb" alone, and step.local = "{step.local}" has none'
            report.add(("model", "learn_alpha"), what)


def without_effect(sections: Mapping[str, Section]) -> dict[tuple[str, str], str]:
    """Return the keys without effect, each with the setting that causes it."""
    step, idle = sections["step"], {("run", "burn_in"): 'model.likelihood = "lda"'}
    if step.noise == "none":
        idle |= {("step", key): 'step.noise = "none"' for key in ("effective", "guard")}
    elif step.noise == "positive":
        idle[("step", "guard")] = 'step.noise = "positive"'
    if step.local not in ("auto", *(name for name in keys.LOCAL if "then" in name)):
        idle[("step", "switch")] = f'step.local = "{step.local}"'
    if step.local == SAMPLED:
        idle |= {("step", key): f'step.local = "{SAMPLED}"' for key in ("tolerance", "iterations", "warm")}
    elif step.local != "auto":
        idle[("step", "sweeps")] = f'step.local = "{step.local}"'
    return idle


def against_sparse(config: Config, table: SparseTable, report: Report) -> None:
    """Report a sparse table that does not hold counts."""
    if not table.whole:
        what = f"its values are not counts: they go from {table.minimum:g} to {table.maximum:g}"
        report.add(("model", "likelihood"), f'{what}; "lda" is about whole numbers of words, 0 or more')
    elif table.total < 1:
        report.add(("model", "likelihood"), "the table has no words: all counts are 0")
