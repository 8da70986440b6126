"""Rules between the keys of the configuration of variational inference, and between keys and table."""

from __future__ import annotations

from collections.abc import Mapping

from mpibayes.hpc.config.config import Config
from mpibayes.hpc.config.places import Report, bare
from mpibayes.hpc.config.section import Section
from mpibayes.hpc.svi import keys
from mpibayes.io.rows import NUMERIC, Column
from mpibayes.text import counted, import_again


def rules(sections: Mapping[str, Section], named: Mapping[str, Mapping[str, Section]], report: Report) -> None:
    """Report violations that involve several keys. Sections that are invalid by themselves are absent here."""
    common_rules(sections, report)
    step = sections.get("step")
    noisy = step is not None and step.noise != "none"
    if noisy and isinstance(step.effective, int) and isinstance(step.batch, int) and step.effective >= step.batch:
        what = f"got {step.effective}, but noise is added to a batch that is larger"
        report.add(("step", "effective"), f"{what}: expected less than step.batch = {step.batch}")


def common_rules(sections: Mapping[str, Section], report: Report) -> None:
    """Report violations of the rules common to all likelihoods."""
    if "run" in sections and sections["run"].until == "settled":
        what = '"settled" compares chains, but restarts of an approximation end in different places'
        report.add(("run", "until"), f'{what}; set run.until = "cycles"')
    if "step" not in sections:
        return
    step = sections["step"]
    if step.noise == "none":
        for key in ("effective", "guard"):
            if key in step.model_fields_set and getattr(step, key) not in (None, "shrink"):
                report.add(("step", key), 'given, but step.noise = "none" has no use for it; take it out')
    elif step.effective is None:
        report.add(
            ("step", "effective"),
            f'this key is required with step.noise = "{step.noise}": {keys_expected("effective")}',
        )


def keys_expected(name: str) -> str:
    """Expected values of a key of [step], in words."""
    return keys.Step.model_fields[name].json_schema_extra["expected"]


def without_effect(sections: Mapping[str, Section]) -> dict[tuple[str, str], str]:
    """Return the keys without effect, each with the setting that causes it."""
    step, idle = sections["step"], {("run", "burn_in"): 'model.family = "svi"'}
    if step.noise == "none":
        idle |= {("step", key): 'step.noise = "none"' for key in ("effective", "guard")}
    elif step.noise == "positive":
        idle[("step", "guard")] = 'step.noise = "positive"'
    if step.batch != "all" or step.rate != 1.0 or step.noise != "none":
        idle[("step", "tolerance")] = "the noise of a step"
    return idle


def against_table(config: Config, columns: Mapping[str, Column], report: Report) -> None:
    """Report columns that a Gaussian mixture cannot model, and too few degrees of freedom for them."""
    used = [column for name, column in columns.items() if name not in config.unused]
    for column in used:
        key, leave = ("columns", column.name), f"set columns.{bare(column.name)}.use = false"
        if column.kind not in NUMERIC:
            what = f"is {column.kind}, and Gaussian mixtures are of real and count columns; {leave}"
            report.add(key, f"{what}, or, if it has numbers, {import_again(column.name, 'real')}")
        elif column.n_missing:
            what = f"{counted(column.n_missing, 'cell')} missing, and full covariances need all cells of a row; {leave}"
            report.add(key, f"{what}, or take another family, which has missing cells")
        elif column.minimum == column.maximum:
            report.add(key, f"is constant, which says nothing of components; {leave}")
    degrees = config.of(keys.Model).degrees
    if degrees != "auto" and degrees <= len(used) - 1:
        what = f"got {degrees:g}, expected more than {len(used) - 1}: {counted(len(used), 'column')} are used"
        report.add(("model", "degrees"), what)
