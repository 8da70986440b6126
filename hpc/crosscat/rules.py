"""Rules between configuration keys of a mixture or cross-categorization, and between keys and table."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from mpibayes.hpc.config.against_table import nearest_column, some
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.config.places import Report, bare, shown
from mpibayes.hpc.config.section import Section
from mpibayes.hpc.crosscat import link_rules as links
from mpibayes.hpc.crosscat.given_priors import GAMMA_GRID, PRIORS, GammaPrior, prior_words, table_kinds
from mpibayes.hpc.crosscat.keys import OF_VIEWS, Block, Column, Model
from mpibayes.hpc.crosscat.sampler_keys import Anneal, Sampler, growing_schedule
from mpibayes.hpc.data.children import why_no_child
from mpibayes.hpc.data.lines import why_no_line
from mpibayes.hpc.outcome import rules as outcomes
from mpibayes.io import table
from mpibayes.text import counted, import_again


def rules(sections: Mapping[str, Section], named: Mapping[str, Mapping[str, Section]], report: Report) -> None:
    """Report violations that involve several keys. Invalid sections are absent from `sections`."""
    _block_rules(named["blocks"], named["columns"], report)
    if "run" in sections and sections["run"].until == "settled" and sections["run"].chains == 1:
        report.add(("run", "until"), '"settled" compares chains; set run.chains = 2 or more, or run.until = "cycles"')
    if {"model", "sampler"} <= sections.keys():
        _joint_rules(sections["model"], sections["sampler"], report)
        _view_rules(sections["model"], sections["sampler"], report)
    if "outcome" in sections:
        outcomes.between_keys(sections["outcome"], report)
        _outcome_rules(sections, named["columns"], report)
    if "model" in sections:
        links.between_keys(sections["model"], report)
    if {"model", "sampler", "anneal"} <= sections.keys():
        _start_rules(sections["model"], sections["sampler"], sections["anneal"], report)


def without_effect(sections: Mapping[str, Section]) -> dict[tuple[str, str], str]:
    """Return the keys that have no effect, each with the setting that disables it."""
    unused = _unused(sections["sampler"], sections["anneal"])
    model, idle = sections["model"], {("anneal", key): because for key, because in unused.items()}
    if model.plain or not model.likelihood:
        idle["model", "shapes"] = 'model.real = "as is"' if model.plain else "model.likelihood = false"
    if not model.likelihood:
        idle["model", "links"] = "model.likelihood = false"
    if model.links in ("auto", "none", "lines"):
        idle["model", "link_base"] = f"model.links = {shown(model.links)}"
    if model.links not in ("forest", "lines"):
        idle["sampler", "link_moves"] = f"model.links = {shown(model.links)}"
    if not model.has_views:
        because = f"model.family = {shown(model.family)}"
        idle |= {(section, key): because for section, keys in OF_VIEWS.items() for key in keys}
    return idle | outcomes.without_effect(sections["outcome"])


def against_table(config: Config, columns: Mapping[str, table.Column], report: Report) -> None:
    """Report priors and blocks that do not fit the table's columns."""
    _check_priors(config, columns, report)
    _check_blocks(config, columns, report)
    _check_shapes(config, columns, report)
    links.against_table(config, columns, report)
    _check_bins(config, columns, report)
    _check_lines(config, columns, report)
    _check_idle(config.of(Model), report)
    outcomes.against_table(config, columns, report)
    _check_children(config, columns, report)


# --- between keys -----------------------------------------------------------------------------------------------------


def _block_rules(blocks: Mapping[str, Block], columns: Mapping[str, Column], report: Report) -> None:
    """Report violations of the rules about blocks that need no table."""
    taken: dict[str, str] = {}
    for name, block in blocks.items():
        key, width = ("blocks", name, "columns"), len(block.columns)
        for c in dict.fromkeys(block.columns):
            if block.columns.count(c) > 1:
                report.add(key, f"{shown(c)} is listed twice")
            if c in taken:
                report.add(key, f"{shown(c)} is in block {shown(taken[c])} too; a column can be in one block")
            taken.setdefault(c, name)
            settings = columns.get(c)
            if settings is not None and not settings.use:
                report.add(key, f"{shown(c)} has use = false in [columns.{bare(c)}]; take one of the two out")
            elif settings is not None and settings.prior is not None:
                report.add(key, f"{shown(c)} has a prior in [columns.{bare(c)}]; the block has one for all its columns")
        prior, key = block.prior, ("blocks", name, "prior")
        if prior is None:
            continue
        nu = prior.nu if isinstance(prior.nu, tuple) else () if prior.nu is None else (prior.nu,)
        if any(v <= width - 1 for v in nu):
            report.add((*key, "nu"), f"got {shown(prior.nu)}, expected above {width - 1} for {width} columns")
        if prior.mean is not None and len(prior.mean) != width:
            what = f"got {counted(len(prior.mean), 'number')}, expected {width}, one a column"
            report.add((*key, "mean"), what)


def _joint_rules(model: Model, sampler: Sampler, report: Report) -> None:
    """Report violations of the rules between two keys of [model] and [sampler]."""
    concentration, discount = model.concentration, model.discount
    _least_rule("concentration", concentration, "discount", discount, report)
    if isinstance(concentration, GammaPrior) and discount != 0:
        what = "the gamma prior (Escobar and West) is for discount = 0"
        report.add(("model", "concentration"), f'{what}; here use "learn" or {GAMMA_GRID}, or set discount = 0')
    if sampler.opening == "all" and discount != 0:
        report.add(
            ("sampler", "opening"),
            '"all" is exact for discount = 0 alone; use "one" or "auto", or set model.discount = 0',
        )
    if sampler.init == "labels" and sampler.init_labels is None:
        report.add(
            ("sampler", "init"), '"labels" needs sampler.init_labels, the path of a labels file or of a run directory'
        )
    if sampler.init != "labels" and sampler.init_labels is not None:
        report.add(
            ("sampler", "init_labels"), f'given, but init is "{sampler.init}"; set sampler.init = "labels" to use it'
        )


def _least_rule(name: str, alpha: object, of: str, discount: object, report: Report) -> None:
    """Report a fixed concentration that is not above -d for every possible discount d."""
    least = 0.0 if discount == "learn" else min(discount) if isinstance(discount, tuple) else discount
    if isinstance(alpha, float) and alpha <= -least:
        why = f"above -{of} = {-least}" if isinstance(discount, float) else f"above {0.0 - least:g}, as {of} is learned"
        report.add(("model", name), f"got {alpha}, expected a number {why}")


def _asks_for_links(model: Model) -> str:
    """Name the key that asks for links; "" where none does."""
    if model.links != "auto":
        return "" if model.links == "none" else "links"
    return "" if isinstance(model.lines, str) else "lines"


def _outcome_rules(sections: Mapping[str, Section], columns: Mapping[str, Section], report: Report) -> None:
    """Report settings that an outcome excludes. columns: the sections of columns."""
    name = sections["outcome"].column
    if name is None:
        return
    if name in columns and columns[name].prior is not None:
        what = f"given, but {shown(name)} is the outcome, whose law is in [outcome]; take it out"
        report.add(("columns", name, "prior"), what)
    model, sampler = sections.get("model"), sections.get("sampler")
    if model is not None and ((learned := _asks_for_links(model)) or not model.likelihood):
        key = learned or "likelihood"
        report.add(("model", key), f"{shown(getattr(model, key))} cannot be combined with an outcome; take it out")
    if sampler is not None and sampler.opening == "all":
        report.add(("sampler", "opening"), '"all" cannot be combined with an outcome; take it out')


def _view_rules(model: Model, sampler: Sampler, report: Report) -> None:
    """Report violations of the rules about several views."""
    if not model.has_views:
        for section, names in (("model", model), ("sampler", sampler)):
            for key in (key for key in OF_VIEWS[section] if key in names.model_fields_set):
                what = f"given, but model.family = {shown(model.family)} has one view"
                report.add((section, key), f'{what}; set model.family = "crosscat" to use it, or take it out')
        return
    if model.needs_views and isinstance(model.concentration, GammaPrior):
        what = "views that split and merge have no gamma prior of the concentration but on a grid"
        report.add(("model", "concentration"), f'{what}; use {GAMMA_GRID}, "learn" or a number')
    _least_rule("view_concentration", model.view_concentration, "view_discount", model.view_discount, report)


def _unused(sampler: Sampler, anneal: Anneal) -> dict[str, str]:
    """Return the keys of [anneal] that have no effect, each with the setting that disables it."""
    if sampler.strategy != "anneal":
        return dict.fromkeys(Anneal.model_fields, f'sampler.strategy = "{sampler.strategy}"')
    because = f"anneal.schedule = {shown(anneal.schedule)}"
    none = [] if anneal.schedule in ("linear", "geometric") else ["passes"]
    none += [] if anneal.schedule == "seconds" else ["seconds"]
    none += [] if growing_schedule(sampler, anneal) else ["start_rows"]
    return dict.fromkeys(none, because)


def _start_rules(model: Model, sampler: Sampler, anneal: Anneal, report: Report) -> None:
    """Report violations of the rules between the keys of a chain's start."""
    fixed = {"sequential+gibbs": "sequential", "prior+gibbs": "prior"}.get(sampler.strategy)
    if fixed is not None and sampler.init not in ("auto", fixed):
        report.add(
            ("sampler", "init"),
            f'got "{sampler.init}", but sampler.strategy = "{sampler.strategy}" says how the chain starts; '
            'take one of the two keys out, or use strategy = "auto" or "anneal" with this init',
        )
    unused = _unused(sampler, anneal)
    for key in unused:
        if key not in anneal.model_fields_set or getattr(anneal, key) is None:
            continue
        if sampler.strategy != "anneal":
            cure = 'set sampler.strategy = "anneal" to use it, or take it out'
        else:
            cure = 'set anneal.schedule = "seconds" to use it, or take it out' if key == "seconds" else "take it out"
        report.add(("anneal", key), f"given, but {unused[key]} has no use for it; {cure}")
    if "seconds" not in unused and anneal.seconds is None:
        report.add(
            ("anneal", "schedule"), '"seconds" needs anneal.seconds, the time until all rows are in: "10m", or 600'
        )


# --- against the table ------------------------------------------------------------------------------------------------


def _check_priors(config: Config, by_name: Mapping[str, table.Column], report: Report) -> None:
    for name, settings in config.columns.items():
        key, column = ("columns", name), by_name.get(name)
        if settings.prior is None or column is None:
            continue
        fitting = next(kind for kind in PRIORS.values() if column.kind in table_kinds(kind))
        given = PRIORS[type(settings.prior)]
        if given is not fitting:
            got = shown(settings.prior.model_dump())
            what = f"got {got}, but the column is {column.kind}; expected {prior_words(fitting)}"
            report.add((*key, "prior"), f"{what}, or {import_again(name, table_kinds(given)[0])}")
            continue
        by_level = {key.name for form in fitting.prior_forms for key in form if key.by_level}
        for numbers in (getattr(settings.prior, key) for key in type(settings.prior).model_fields if key in by_level):
            if len(numbers) != len(column.levels):
                n, levels = len(numbers), list(column.levels)
                what = f"got {counted(n, 'number')}, expected {len(levels)}, one for each level in the table's order"
                report.add((*key, "prior"), f"{what}: {some(levels)}")


def _check_blocks(config: Config, by_name: Mapping[str, table.Column], report: Report) -> None:
    for name, block in config.blocks.items():
        key = ("blocks", name, "columns")
        fit = [c for c, column in by_name.items() if column.kind == "real" and c not in config.unused]
        for c in block.columns:
            if c not in by_name:
                report.add(key, f"the table has no column {shown(c)}; {nearest_column(c, fit)}")
            elif by_name[c].kind != "real":
                what = f"column {shown(c)} is {by_name[c].kind}, expected real ones: {some(fit) or 'there are none'}"
                report.add(key, f"{what}; if it has numbers, {import_again(c, 'real')}")


def _check_shapes(config: Config, by_name: Mapping[str, table.Column], report: Report) -> None:
    joint = {c for block in config.blocks.values() for c in block.columns}
    for name in config.model.shaped:
        column, settings = by_name.get(name), config.columns.get(name)
        if column is None:
            what = f"the table has no column {shown(name)}; {nearest_column(name, list(by_name))}"
        elif column.kind != "real":
            what = f"column {shown(name)} is {column.kind}; expected real ones, take it out"
        elif name in joint:
            what = f"column {shown(name)} is in a block, whose columns are modelled as they are; take it out of one"
        elif settings is not None and settings.prior is not None:
            what = (
                f"column {shown(name)} has a prior in its own units in [columns.{bare(name)}]; take one of the two out"
            )
        else:
            continue
        report.add(("model", "shapes"), what)


def _check_bins(config: Config, by_name: Mapping[str, table.Column], report: Report) -> None:
    """Report cuts of columns that cannot be cut, and cuts that do not ascend."""
    given, joint = config.of(Model).bins, {c for block in config.blocks.values() for c in block.columns}
    numbers = [c for c, column in by_name.items() if c not in config.unused and column.kind in ("real", "count")]
    for name, cuts in {}.items() if isinstance(given, str) else given.items():
        key, column = ("model", "bins"), by_name.get(name)
        if name not in numbers:
            what = f"the run has no column of numbers {shown(name)}; {nearest_column(name, numbers)}"
            report.add(key, what)
        elif any(a >= b for a, b in pairwise(cuts)):
            report.add(key, f"the cuts of {shown(name)} have to ascend")
        elif column.n_missing:
            report.add(
                key, f"column {shown(name)} lacks {counted(column.n_missing, 'cell')}; a parent must have none missing"
            )
        elif name in joint:
            report.add(key, f"column {shown(name)} is in a block; no column depends on it")
        elif name in (*config.of(Model).lined, *config.of(Model).born):
            where = "lines" if name in config.of(Model).lined else "children"
            report.add(key, f"column {shown(name)} is in model.{where}, too; no column depends on its bins then")
        elif column.resolution and config.of(Model).real == "recorded" and not report.begun:
            _check_between(name, cuts, column.resolution, report)


def _check_between(name: str, cuts: Sequence[float], step: float, report: Report) -> None:
    """Report cuts within the interval that a recorded value represents: its rows would be split by chance."""
    for cut in cuts:
        place = cut / step - 0.5
        if abs(place - round(place)) > 1e-6:
            low, high = ((math.floor(place) + i + 0.5) * step for i in (0, 1))
            what = f"a cut of {shown(name)} has to lie halfway between values, which are recorded in steps of {step:g}"
            report.add(("model", "bins"), f"{what}: give {low:.10g} or {high:.10g}, not {cut:.10g}")


def _check_lines(config: Config, by_name: Mapping[str, table.Column], report: Report) -> None:
    """Report columns that cannot be in lines: listed columns, and numeric columns linked with numeric ones."""
    with_levels = {name: bool(column.levels) for name, column in by_name.items() if name not in config.unused}
    of_numbers = [pair for pair in config.of(Model).pairs if not any(map(with_levels.get, pair))]
    linked = {name for pair in of_numbers for name in pair if set(pair) <= with_levels.keys()}
    what = "numeric columns that depend on each other are real, without atoms, in no block", "is in a line", "a number"
    _check_numbers("lines", linked, why_no_line, what, config, by_name, report)


def _check_idle(model: Model, report: Report) -> None:
    """Report columns for links that links = "auto" does not learn."""
    for key in ("bins", "children"):
        if model.links == "auto" and not isinstance(getattr(model, key), str):
            report.add(("model", key), 'has no effect with links = "auto"; add links = "forest", or take it out')


def _check_children(config: Config, by_name: Mapping[str, table.Column], report: Report) -> None:
    """Report listed or linked numeric columns that cannot depend on categorical columns."""
    model = config.of(Model)
    with_levels = {name: bool(column.levels) for name, column in by_name.items() if name not in config.unused}
    linked = {child for child, parent in model.pairs if with_levels.get(parent) and with_levels.get(child) is False}
    fit = "a number that depends on a categorical column is real or a count, without atoms, in no block"
    what = fit, "depends on another", "a categorical column"
    _check_numbers("children", linked, why_no_child, what, config, by_name, report)


def _check_numbers(
    name_of_key: str, linked: Collection[str], why_not: Callable[[table.Column], str], what: tuple[str, str, str],
    config: Config, by_name: Mapping[str, table.Column], report: Report,
) -> None:  # fmt: skip
    """Report numeric columns that cannot be in a list of [model], or be linked like columns in it. what: words for the
    columns that can, for what a column in the list does, and for what it is linked with."""
    model, (fit, does, with_what) = config.of(Model), what
    used = {c: column for c, column in by_name.items() if c not in config.unused}
    joint = {c for block in config.blocks.values() for c in block.columns}
    given = getattr(model, name_of_key)
    binned = {parent: child for child, parent in model.pairs if child in used and used[child].levels}
    listed = () if isinstance(given, str) else given
    for name in sorted({*linked, *listed}):
        key = ("model", "links" if name in linked else name_of_key)
        if name not in used or used[name].levels:
            numbers = [c for c, column in used.items() if not column.levels]
            report.add(key, f"the run has no column of numbers {shown(name)}; {nearest_column(name, numbers)}")
            continue
        why = "is in a block" if name in joint else ""
        why = why or why_not(replace(used[name], atoms=()) if model.plain else used[name])
        if why:
            report.add(key, f"column {shown(name)} {why}; {fit}. Take it out")
        elif name in binned:
            text = f"column {shown(name)} {does}, so that {shown(binned[name])} cannot depend on its bins"
            report.add(("model", "links"), f"{text}; take one of the two out")
        elif name in linked and (given == "none" or (listed and name not in listed)):
            text = f"column {shown(name)} is linked with {with_what} in model.links; add it here"
            report.add(("model", name_of_key), text)
