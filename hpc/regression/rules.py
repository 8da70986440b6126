"""Rules between the keys of a regression's configuration."""

from __future__ import annotations

from collections.abc import Mapping

from mpibayes.hpc.config.against_table import nearest_column
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.config.keys import Data
from mpibayes.hpc.config.places import Report, bare, shown
from mpibayes.hpc.config.section import Section
from mpibayes.hpc.regression.keys import Firefly, Model, Regression
from mpibayes.hpc.regression.likelihoods import LIKELIHOODS
from mpibayes.io.rows import Column


def rules(sections: Mapping[str, Section], named: Mapping[str, Mapping[str, Section]], report: Report) -> None:
    """Report violations that involve several keys. Sections that are invalid by themselves are absent here."""
    regression = sections.get("regression")
    if regression is None:
        return
    if isinstance(regression.predictors, tuple) and regression.response in regression.predictors:
        report.add(("regression", "predictors"), f"{shown(regression.response)} is the response itself")
    if "run" in sections and sections["run"].until == "settled":
        report.add(("run", "until"), 'got "settled", which is for mixtures; take it out, or set run.until = "cycles"')
    if "data" in sections:
        _heldout_rules(regression, sections["data"], report)
    if "firefly" in sections and regression.prior == "flat" and sections["firefly"].init == "prior":
        report.add(("firefly", "init"), 'got "prior", but a flat prior has no draws; use "laplace" or "map"')
    if "model" in sections:
        for (section, key), because in without_effect(sections).items():
            if key in regression.model_fields_set:
                report.add((section, key), f"given, but {because} has none; take it out")
        if "firefly" in sections:
            _bound_rules(sections["model"], sections["firefly"], report)


def _heldout_rules(regression: Regression, data: Data, report: Report) -> None:
    for key in ("prior_scale", "scale"):
        if getattr(regression, key) == "heldout" and not data.heldout:
            report.add(("regression", key), '"heldout" needs rows to choose by: set data.heldout, for example to 0.1')


def _bound_rules(model: Model, firefly: Firefly, report: Report) -> None:
    if firefly.xi != "auto" and (LIKELIHOODS[model.likelihood].untuned_at is None or firefly.bounds != "untuned"):
        because = f'firefly.bounds = "{firefly.bounds}" with model.likelihood = "{model.likelihood}"'
        what = 'has no use for it; take it out, or set bounds = "untuned" (logistic and student-t)'
        report.add(("firefly", "xi"), f"given, but {because} {what}")


def without_effect(sections: Mapping[str, Section]) -> dict[tuple[str, str], str]:
    """Return the keys without effect, each with the setting that causes it."""
    model, regression = sections["model"], sections["regression"]
    idle = {}
    if not LIKELIHOODS[model.likelihood].has_scale:
        because = f'model.likelihood = "{model.likelihood}"'
        idle |= {("regression", key): because for key in ("degrees_of_freedom", "scale")}
    if not regression.intercept:
        idle["regression", "intercept_scale"] = "regression.intercept = false"
    if regression.predictors == ():
        idle["regression", "prior_scale"] = "regression.predictors = []"
    if regression.prior == "flat":
        idle |= {("regression", key): 'regression.prior = "flat"' for key in ("prior_scale", "intercept_scale")}
    return idle


def against_table(config: Config, columns: Mapping[str, Column], report: Report) -> None:
    """Report a response and predictors that the table lacks, or that do not suit the likelihood.

    The design checks their cells (`design.Design.of`).
    """
    regression, used = config.of(Regression), [name for name in columns if name not in config.unused]

    def column(key: str, name: str) -> Column | None:
        if name not in columns:
            report.add(("regression", key), f"the table has no column {shown(name)}; {nearest_column(name, used)}")
        elif name in config.unused:
            report.add(("regression", key), f"{shown(name)} has use = false in [columns.{bare(name)}]")
        return columns.get(name)

    response = column("response", regression.response)
    if response is not None:
        for problem in LIKELIHOODS[config.of(Model).likelihood].response_problems(response):
            report.add(("regression", "response"), problem)
    if regression.predictors != "all":
        for name in regression.predictors:
            column("predictors", name)
