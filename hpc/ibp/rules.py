"""Rules between the keys of the configuration of an Indian buffet process, and between keys and table."""

from __future__ import annotations

from collections.abc import Mapping

from mpibayes.hpc.config.config import Config
from mpibayes.hpc.config.places import Report, bare
from mpibayes.hpc.config.section import Section
from mpibayes.hpc.ibp import keys
from mpibayes.io.rows import NUMERIC, Column
from mpibayes.text import counted, import_again

OF_CELLS = ("noise_sd", "feature_sd", "noise", "standardise")  # keys of [model] about the table's cells


def rules(sections: Mapping[str, Section], named: Mapping[str, Mapping[str, Section]], report: Report) -> None:
    """Report violations that involve several keys. Sections that are invalid by themselves are absent here."""
    if "run" in sections and sections["run"].until == "settled" and sections["run"].chains == 1:
        report.add(("run", "until"), '"settled" compares chains; set run.chains = 2 or more, or run.until = "cycles"')
    if "model" in sections:
        for (section, key), because in without_effect(sections).items():
            if key in sections["model"].model_fields_set and section == "model":
                report.add((section, key), f"given, but {because} has no use for it; take it out")
        model = sections["model"]
        if model.noise == "column" and isinstance(model.noise_sd, float):
            what = f'"column" learns the noise of each column, but model.noise_sd = {model.noise_sd:g} fixes it'
            report.add(("model", "noise"), f'{what}; take noise_sd out, or set noise = "shared"')


def without_effect(sections: Mapping[str, Section]) -> dict[tuple[str, str], str]:
    """Return the keys without effect, each with the setting that causes it."""
    if sections["model"].likelihood:
        return {}
    idle = {("model", key): "model.likelihood = false" for key in OF_CELLS}
    return idle | dict.fromkeys((("data", "heldout_cells"), ("report", "image")), "model.likelihood = false")


def against_table(config: Config, columns: Mapping[str, Column], report: Report) -> None:
    """Report columns that cannot have loadings, and a picture whose pixels do not match the number of columns."""
    if not config.of(keys.Model).likelihood:
        return
    used = [column for name, column in columns.items() if name not in config.unused]
    for column in used:
        key, leave = ("columns", column.name), f"set columns.{bare(column.name)}.use = false"
        if column.kind not in NUMERIC:
            what = f"is {column.kind}, and features are of real and count columns; {leave}"
            report.add(key, f"{what}, or, if it has numbers, {import_again(column.name, 'real')}")
        elif column.minimum == column.maximum:
            report.add(key, f"is constant, which says nothing of features; {leave}")
    image = config.of(keys.Report).image
    if image is not None and image[0] * image[1] != len(used):
        what = f"{image[0]} x {image[1]} pixels are {image[0] * image[1]}, and {counted(len(used), 'column')} are used"
        report.add(("report", "image"), what)
