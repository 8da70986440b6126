"""What holds between the keys of a regression's configuration."""

from __future__ import annotations

from collections.abc import Mapping

from mpibayes.hpc.config.config import Config
from mpibayes.hpc.config.keys import Data
from mpibayes.hpc.config.places import Report, shown
from mpibayes.hpc.config.section import Section
from mpibayes.hpc.regression.keys import Firefly, Model, Regression
from mpibayes.hpc.regression.likelihoods import LIKELIHOODS
from mpibayes.io.table import Column


def rules(sections: Mapping[str, Section], named: Mapping[str, Mapping[str, Section]], report: Report) -> None:
    """Reports what no key alone can say. Sections that are not valid in themselves are missing here."""
    regression = sections.get("regression")
    if regression is None:
        return
    if isinstance(regression.predictors, tuple) and regression.response in regression.predictors:
        report.add(("regression", "predictors"), f"{shown(regression.response)} is the response itself")
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
        report.add(("firefly", "xi"), "is for untuned bounds of logistic and student-t; take it out")


def without_effect(sections: Mapping[str, Section]) -> dict[tuple[str, str], str]:
    """Keys that have no effect, each with the setting that makes it so."""
    model, regression = sections["model"], sections["regression"]
    idle = {}
    if not LIKELIHOODS[model.likelihood].has_scale:
        because = f'model.likelihood = "{model.likelihood}"'
        idle |= {("regression", key): because for key in ("degrees_of_freedom", "scale")}
    if regression.prior == "flat":
        idle["regression", "prior_scale"] = 'regression.prior = "flat"'
    return idle


def against_table(config: Config, columns: Mapping[str, Column], report: Report) -> None:
    """The design finds what does not fit, together with the table's cells (`design.Design.of`)."""
