"""The configuration: a TOML file and `--set key=value`, checked whole, as one frozen object.

All mistakes are reported together, each with its file, line, key, what was expected and the nearest valid key. Paths
are relative to the configuration file. The keys themselves are in `schema.py`.
"""

from __future__ import annotations

import datetime
import difflib
import math
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mpibayes.errors import ConfigError
from mpibayes.hpc.config.schema import (
    CYCLES_OF_REGRESSION,
    INNER,
    NAMED,
    OF_MIXTURES,
    OF_REGRESSIONS,
    SECTIONS,
    Anneal,
    BlockSettings,
    ColumnSettings,
    Data,
    DirichletPrior,
    Firefly,
    Model,
    NormalPrior,
    Output,
    RatePrior,
    Regression,
    Run,
    Sampler,
    expected,
    parse_duration,
)
from mpibayes.io.files import read_regular, reason
from mpibayes.text import counted, import_again, is_unicode, toml_string, visible

__all__ = [
    "Config", "as_dict", "check_columns", "continued", "difference", "growing_schedule", "load", "parse_duration",
    "resolved_toml",
]  # fmt: skip

# These change how long and how often, not what is sampled: a run may be continued with other values.
MAY_CHANGE = ("run.cycles", "run.checkpoint_minutes", "run.max_time")
# "auto" in these is decided once, at the first start, and holds when the run is continued.
FROZEN = ("run.burn_in", "run.shards", "sampler.opening", "sampler.init", "anneal.start_rows")

PRIOR_OF_KIND = {"categorical": DirichletPrior, "boolean": DirichletPrior, "real": NormalPrior, "count": RatePrior}
PRIOR_WORDS = {
    DirichletPrior: "{dirichlet = [...]}",
    NormalPrior: "{mean, kappa, nu, variance}",
    RatePrior: "{shape, rate}",
}


@dataclass(frozen=True)
class Config:
    """A checked configuration. `path` is the file, `text` its content, `overrides` the --set arguments."""

    data: Data
    model: Model
    columns: dict[str, ColumnSettings]
    sampler: Sampler
    anneal: Anneal
    regression: Regression
    firefly: Firefly
    run: Run
    output: Output
    path: Path
    text: str = ""
    overrides: tuple[str, ...] = ()
    lines: dict[tuple[str, ...], int] = field(default_factory=dict, repr=False)
    blocks: dict[str, BlockSettings] = field(default_factory=dict)

    @property
    def table(self) -> Path:
        return self.resolve(self.data.table)

    @property
    def heldout_fraction(self) -> float | None:
        return self.data.heldout if isinstance(self.data.heldout, float) else None

    @property
    def heldout_path(self) -> Path | None:
        return self.resolve(self.data.heldout) if isinstance(self.data.heldout, str) else None

    @property
    def init_labels_path(self) -> Path | None:
        return None if self.sampler.init_labels is None else self.resolve(self.sampler.init_labels)

    @property
    def concentration(self) -> str | float | dict[str, tuple[float, float]]:
        """ "learn", a number, or {"gamma": (shape, rate)}."""
        given = self.model.concentration
        return given if isinstance(given, str | float) else given.model_dump()

    @property
    def burn_in(self) -> int:
        """Cycles left out of summaries. "auto" is decided at the first start (`strategy.burn_in`)."""
        return self.run.cycles // 5 if self.run.burn_in == "auto" else self.run.burn_in

    @property
    def priors(self) -> dict[str, dict[str, Any]]:
        """Given (fixed) priors by column name, each a dictionary with the keys of the configuration."""
        return {name: c.prior.model_dump() for name, c in self.columns.items() if c.prior is not None}

    @property
    def joint(self) -> dict[str, dict[str, Any]]:
        """Blocks of columns that are modelled jointly, by name: {"columns": names, "prior": what of it is given}."""
        return {name: block.model_dump() for name, block in self.blocks.items()}

    @property
    def unused(self) -> frozenset[str]:
        """Columns that the configuration leaves out of the model."""
        return frozenset(name for name, c in self.columns.items() if not c.use)

    def resolve(self, path: str) -> Path:
        """An absolute path; relative ones start at the folder of the configuration file."""
        try:
            place = (self.path.absolute().parent / Path(path).expanduser()).resolve()
        except (ValueError, RuntimeError, OSError) as error:  # a NUL, a user without a home, a name beyond all limits
            raise ConfigError(f"{self.path}: {toml_string(path)} cannot be a path: {error}") from None
        if not is_unicode(str(place)):
            raise ConfigError(f"{place}: the path is not UTF-8, as what a run writes of it has to be; rename it")
        return place

    def where(self, key: tuple[str, ...]) -> str:
        """`run.toml:12: run.seed`, or `--set run.seed` where the command line gave it."""
        return _where(self.path, self.lines, _set_paths(self.overrides), key)


# --- loading ----------------------------------------------------------------------------------------------------------


def load(path: str | Path, overrides: Iterable[str] = ()) -> Config:
    """Read and check a configuration; ConfigError (exit 2) lists every problem at once."""
    path, overrides = Path(path), tuple(overrides)
    text = _read(path)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, line = str(error), 1
        found = re.search(r"\s*\(at line (\d+), column (\d+)\)", message)
        if found:
            line = int(found[1])
            message = message.replace(found[0], f" (column {found[2]})")
        elif "at end of document" in message:
            line = text.count("\n") + 1
        raise ConfigError(f"{path}:{line}: not valid TOML: {message}") from None

    problems: list[str] = []
    set_keys: set[tuple[str, ...]] = set()
    for item in overrides:
        try:
            change = _parse_override(item)
        except ValueError as error:
            problems.append(str(error))
            continue
        set_keys |= set(_leaves(change))
        _merge(document, change)

    lines = _line_numbers(text)
    report = _Report(path, lines, set_keys, problems)
    document = _times_as_text(document)
    _find_unknown(document, report)
    sections = {name: _validate(section, document.get(name, {}), (name,), report) for name, section in SECTIONS.items()}
    columns, blocks = (
        {name: _validate(of, given, (kind, name), report) for name, given in _table(document.get(kind, {})).items()}
        for kind, of in NAMED.items()
    )
    _block_rules({name: block for name, block in blocks.items() if block}, columns, sections["model"], report)
    if not problems:
        _family_rules(sections, columns, document, report)
        _joint_rules(sections["model"], sections["sampler"], report)
        _start_rules(sections["model"], sections["sampler"], sections["anneal"], report)
    if problems:
        many = f"{len(problems)} problems" if len(problems) > 1 else "one problem"
        raise ConfigError(f"{path}: {many} in the configuration", problems)
    if sections["model"].family != "mixture" and "cycles" not in sections["run"].model_fields_set:
        sections["run"] = sections["run"].model_copy(update={"cycles": CYCLES_OF_REGRESSION})
    config = Config(**sections, columns=columns, blocks=blocks, path=path, text=text, overrides=overrides, lines=lines)
    _ = config.table, config.heldout_path, config.init_labels_path  # a text that is no path is told now
    return config


def _read(path: Path) -> str:
    try:
        return read_regular(path, pipe=True).decode("utf-8").replace("\r\n", "\n")
    except FileNotFoundError:
        near = difflib.get_close_matches(
            path.name, [p.name for p in path.parent.glob("*.toml")] if path.parent.is_dir() else [], 1
        )
        hint = f"; did you mean {path.parent / near[0]}?" if near else ""
        raise ConfigError(f"{path}: there is no such configuration file{hint}") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: this is a folder; a configuration (TOML) file was expected") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start}); a configuration is a TOML file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {reason(error)}") from None


class _Report:
    """Collects problems with the place they come from."""

    def __init__(self, path, lines, set_keys, problems):
        self.path, self.lines, self.set_keys, self.problems = path, lines, set_keys, problems

    def add(self, key: tuple[str, ...], what: str) -> None:
        self.problems.append(f"{_where(self.path, self.lines, self.set_keys, key)}: {what}")


def _where(path, lines, set_keys, key) -> str:
    for length in range(len(key), 0, -1):
        if any(given[:length] == key[:length] for given in set_keys) and length > 1:
            return f"--set {_dotted(key)}"
        if key[:length] in lines:
            return f"{path}:{lines[key[:length]]}: {_dotted(key)}"
    return f"{path}: {_dotted(key)}"


def _dotted(key: Sequence[str]) -> str:
    return ".".join(_bare(part) for part in key)


def _bare(part: str) -> str:
    return part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else toml_string(part)


def _parse_override(item: str) -> dict[str, Any]:
    """`run.seed=3` as {"run": {"seed": 3}}; a value that is no TOML is a text."""
    key, equals, value = item.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"--set {item}: expected key=value, for example --set run.seed=3")
    value = value.strip()
    try:
        change = tomllib.loads(f"{key} = {value}")
        if _has_time(change):  # 02:00:00 is a time of day in TOML, and a length of time here
            raise tomllib.TOMLDecodeError
        return change
    except tomllib.TOMLDecodeError:
        pass
    try:
        return tomllib.loads(f"{key} = {toml_string(value)}")
    except tomllib.TOMLDecodeError:
        raise ValueError(f"--set {item}: {key.strip()!r} is not a key such as run.seed or columns.age.use") from None


def _has_time(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_time(item) for item in value.values())
    return isinstance(value, datetime.date | datetime.time)


def _times_as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _times_as_text(item) for key, item in value.items()}
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else value


def _set_paths(overrides: Iterable[str]) -> set[tuple[str, ...]]:
    return {leaf for item in overrides for leaf in _leaves(_parse_override(item))}


def _leaves(tree: Any, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if isinstance(tree, dict) and tree and len(above) < 3:
        return [leaf for key, item in tree.items() for leaf in _leaves(item, (*above, key))]
    return [above]


def _merge(document: dict[str, Any], change: dict[str, Any]) -> None:
    """Puts `change` over `document`: sections and columns are merged, the value of a key is replaced whole."""
    for section, keys in change.items():
        if not (isinstance(keys, dict) and isinstance(document.get(section), dict)):
            document[section] = keys
            continue
        for key, value in keys.items():
            old = document[section].get(key)
            if section in NAMED and isinstance(value, dict) and isinstance(old, dict):
                old.update(value)
            else:
                document[section][key] = value


_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""  # of a dotted key: bare, or in quotes


def _line_numbers(text: str) -> dict[tuple[str, ...], int]:
    """Line of each section and key. A scan of the text, not a parser: it reads what people write, one key a line."""
    lines: dict[tuple[str, ...], int] = {}
    section: tuple[str, ...] = ()
    for number, line in enumerate(text.split("\n"), 1):
        header = re.match(r"\s*\[\[?([^\[\]]+)\]\]?\s*(#.*)?$", line)
        assignment = re.match(rf"\s*({_PART}(?:\s*\.\s*{_PART})*)\s*=", line)
        if header:
            section = _path_of(header[1]) or section
            lines.setdefault(section, number)
        elif assignment:
            key = (*section, *_path_of(assignment[1]))
            lines.setdefault(key, number)
            inline = re.match(r"[^=]*=\s*\{(.*)\}", line)
            for name in re.findall(r"([A-Za-z0-9_-]+)\s*=", inline[1]) if inline else ():
                lines.setdefault((*key, name), number)
    return lines


def _path_of(dotted: str) -> tuple[str, ...]:
    try:
        tree: Any = tomllib.loads(f"{dotted} = 0")
    except tomllib.TOMLDecodeError:
        return ()
    path = []
    while isinstance(tree, dict):
        (key, tree), *_ = tree.items()
        path.append(key)
    return tuple(path)


# --- checking ---------------------------------------------------------------------------------------------------------


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _find_unknown(document: dict[str, Any], report: _Report) -> None:
    """Reports keys and sections that do not exist, and takes them out."""
    names = [*SECTIONS, *NAMED]
    for name in list(document):
        if name not in names:
            what = "section" if isinstance(document[name], dict) else "key"
            report.add((name,), f"unknown {what}{_nearest((name,))}")
            del document[name]
        elif not isinstance(document[name], dict):
            report.add((name,), f"expected a section [{name}], got {_shown(document[name])}")
            document[name] = {}
    for name, section in SECTIONS.items():
        for key in [k for k in _table(document.get(name)) if k not in section.model_fields]:
            report.add((name, key), f"unknown key{_nearest((name, key))}")
            del document[name][key]
    for kind, section in NAMED.items():
        given = _table(document.get(kind))
        for name in list(given):
            if not isinstance(given[name], dict):
                report.add((kind, name), f"expected a section [{kind}.{_bare(name)}], got {_shown(given[name])}")
                del given[name]
                continue
            _take_out_unknown(given[name], section, (kind, name), f"a {kind[:-1]}", report)
            for (outer, key), inner in INNER.items():
                if outer == kind:
                    _take_out_unknown(_table(given[name].get(key)), inner, (kind, name, key), f"a {key} here", report)


def _take_out_unknown(given: dict[str, Any], section: type, above: tuple[str, ...], what: str, report: _Report) -> None:
    known = list(section.model_fields)
    for key in [k for k in given if k not in known]:
        near = difflib.get_close_matches(key, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"{what} has {', '.join(known[:-1])} and {known[-1]}"
        report.add((*above, key), f"unknown key; {hint}")
        del given[key]


def _nearest(key: tuple[str, ...]) -> str:
    """The valid key nearest to an unknown one: in its own section, by its name in another, or a like-named section."""
    if len(key) == 1:
        near = difflib.get_close_matches(key[0], [*SECTIONS, *NAMED], 1, 0.6)
        if near:
            return f"; did you mean [{near[0]}]?"
        homes = [f"{name}.{key[0]}" for name, section in SECTIONS.items() if key[0] in section.model_fields]
        return f"; did you mean {homes[0]}?" if homes else f"; sections are {', '.join([*SECTIONS, *NAMED])}"
    own = SECTIONS[key[0]].model_fields
    near = difflib.get_close_matches(key[1], own, 1, 0.6)
    homes = [f"{name}.{key[1]}" for name, section in SECTIONS.items() if key[1] in section.model_fields]
    if homes:
        return f"; did you mean {homes[0]}?"
    if near:
        return f"; did you mean {key[0]}.{near[0]}?"
    everywhere = {f: f"{name}.{f}" for name, section in SECTIONS.items() for f in section.model_fields}
    near = difflib.get_close_matches(key[1], everywhere, 1, 0.7)
    return f"; did you mean {everywhere[near[0]]}?" if near else f"; [{key[0]}] has {', '.join(own)}"


def _validate(section: type, given: Any, above: tuple[str, ...], report: _Report) -> Any:
    """The section, or None with its problems reported: one for each key, in the words of the schema."""
    try:
        return section.model_validate(_table(given))
    except ValidationError as error:
        seen = set()
        for problem in error.errors():
            within = problem["loc"][: 2 if (above[0], problem["loc"][0]) in INNER else 1]
            key = (*above, *map(str, within))
            if key in seen:
                continue
            seen.add(key)
            if problem["type"] == "missing" and len(problem["loc"]) == 1:
                if any(line.endswith(f"; did you mean {_dotted(key)}?") for line in report.problems):
                    continue  # it is there under a misspelt name, which has been reported
                report.add(key, f"this key is required: {expected(key)}")
            else:
                got = given
                for step in within:
                    got = got.get(step)
                report.add(key, f"got {_shown(got)}, expected {expected(key)}")
        return None


def _shown(value: Any) -> str:
    text = _toml(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _has_use(family: str, section: str, key: str) -> bool:
    """Whether a model of this family looks at a key."""
    others = OF_REGRESSIONS if family == "mixture" else OF_MIXTURES
    return section not in others and f"{section}.{key}" not in others


def _idle(model: Model, regression: Regression) -> dict[str, str]:
    """Keys of [regression] that have no effect, each with the setting that makes it so."""
    idle = {}
    if model.family not in ("mixture", "student-t"):
        idle |= dict.fromkeys(("degrees_of_freedom", "scale"), f'model.family = "{model.family}"')
    if regression.prior == "flat":
        idle["prior_scale"] = 'regression.prior = "flat"'
    return idle


def _family_rules(sections: dict[str, Any], columns: dict[str, ColumnSettings], document, report: _Report) -> None:
    """Rules about what belongs to a mixture, and what to a regression."""
    family, regression, firefly = sections["model"].family, sections["regression"], sections["firefly"]
    for name in SECTIONS:
        for key in _table(document.get(name)):
            if not _has_use(family, name, key):
                report.add((name, key), f'given, but model.family = "{family}" has no use for it; take it out')
    if family == "mixture":
        return
    report_prior = [name for name, c in columns.items() if c.prior is not None]
    for name in report_prior:
        report.add(("columns", name, "prior"), f'is for mixtures; model.family = "{family}" has regression.prior')
    if regression.response is None:
        report.add(("regression", "response"), f'model.family = "{family}" needs the name of the column it explains')
    if isinstance(regression.predictors, tuple) and regression.response in regression.predictors:
        report.add(("regression", "predictors"), f"{_shown(regression.response)} is the response itself")
    wants_heldout = {"prior_scale": regression.prior_scale, "scale": regression.scale}
    for key in (key for key, value in wants_heldout.items() if value == "heldout" and not sections["data"].heldout):
        report.add(("regression", key), '"heldout" needs rows to choose by: set data.heldout, for example to 0.1')
    if regression.prior == "flat" and firefly.init == "prior":
        report.add(("firefly", "init"), 'got "prior", but a flat prior has no draws; use "laplace" or "map"')
    for key, because in _idle(sections["model"], regression).items():
        if key in regression.model_fields_set:
            report.add(("regression", key), f"given, but {because} has none; take it out")
    if firefly.xi != "auto" and (family == "softmax" or firefly.bounds != "untuned"):
        report.add(("firefly", "xi"), "is for untuned bounds of logistic and student-t; take it out")


def _block_rules(blocks: dict[str, BlockSettings], columns: dict[str, Any], model: Model | None, report) -> None:
    """Rules about blocks of columns that need no table. Of columns, and of the model, None is what has mistakes."""
    taken: dict[str, str] = {}
    for name, block in blocks.items():
        key, width = ("blocks", name, "columns"), len(block.columns)
        if model is not None and model.family != "mixture":
            report.add(("blocks", name), f'is for mixtures; model.family = "{model.family}" has no use for it')
        for c in dict.fromkeys(block.columns):
            if block.columns.count(c) > 1:
                report.add(key, f"{_shown(c)} is listed twice")
            if c in taken:
                report.add(key, f"{_shown(c)} is in block {_shown(taken[c])} too; a column can be in one block")
            taken.setdefault(c, name)
            settings = columns.get(c)
            if settings is not None and not settings.use:
                report.add(key, f"{_shown(c)} has use = false in [columns.{_bare(c)}]; take one of the two out")
            elif settings is not None and settings.prior is not None:
                report.add(
                    key, f"{_shown(c)} has a prior in [columns.{_bare(c)}]; the block has one for all its columns"
                )
        prior, key = block.prior, ("blocks", name, "prior")
        if prior is None:
            continue
        nu = prior.nu if isinstance(prior.nu, tuple) else () if prior.nu is None else (prior.nu,)
        if any(v <= width - 1 for v in nu):
            report.add((*key, "nu"), f"got {_shown(prior.nu)}, expected above {width - 1} for {width} columns")
        if prior.mean is not None and len(prior.mean) != width:
            what = f"got {counted(len(prior.mean), 'number')}, expected {width}, one a column"
            report.add((*key, "mean"), what)


def _joint_rules(model: Model, sampler: Sampler, report: _Report) -> None:
    """Rules that tie two keys together."""
    concentration, discount = model.concentration, model.discount
    if isinstance(concentration, float):
        if discount == "learn" and concentration <= 0:
            report.add(
                ("model", "concentration"), f'got {concentration}, expected a number above 0 where discount = "learn"'
            )
        elif discount != "learn" and concentration <= -discount:
            report.add(
                ("model", "concentration"), f"got {concentration}, expected a number above -discount = {-discount}"
            )
    elif concentration != "learn" and discount != 0:
        report.add(
            ("model", "concentration"),
            'the gamma prior (Escobar and West) is for discount = 0; here use "learn", or set discount = 0',
        )
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


def growing_schedule(sampler: Sampler, anneal: Anneal) -> bool:
    """Whether the chain starts from a subsample that grows."""
    return sampler.strategy == "anneal" and anneal.schedule not in ("constant", "sequential")


def _unused(sampler: Sampler, anneal: Anneal) -> dict[str, str]:
    """Keys of [anneal] that have no effect, each with the setting that makes it so."""
    if sampler.strategy != "anneal":
        return dict.fromkeys(Anneal.model_fields, f'sampler.strategy = "{sampler.strategy}"')
    because = f"anneal.schedule = {_shown(anneal.schedule)}"
    none = [] if anneal.schedule in ("linear", "geometric") else ["passes"]
    none += [] if anneal.schedule == "seconds" else ["seconds"]
    none += [] if growing_schedule(sampler, anneal) else ["start_rows", "strata"]
    return dict.fromkeys(none, because)


def _start_rules(model: Model, sampler: Sampler, anneal: Anneal, report: _Report) -> None:
    """Rules that tie the keys together that say how a chain starts."""
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
    if "strata" not in unused and anneal.strata == "clusters" and not model.likelihood:
        report.add(("anneal", "strata"), '"clusters" needs model.likelihood = true: without cells there are none')


def check_columns(config: Config, columns: Sequence[Any], n_rows: int) -> None:
    """Hold [columns.NAME] and [blocks.NAME] against the table's columns (`io.rows.Column`); ConfigError lists all that
    does not fit.

    Columns whose numbers the arithmetic cannot hold are refused too, since [columns.NAME] can leave them out.
    """
    by_name = {column.name: column for column in columns}
    report = _Report(config.path, config.lines, _set_paths(config.overrides), [])
    for name, settings in config.columns.items():
        key = ("columns", name)
        column = by_name.get(name)
        if column is None:
            report.add(key, f"the table has no such column; {_nearest_column(name, list(by_name))}")
            continue
        if settings.prior is None:
            continue
        wanted = PRIOR_OF_KIND[column.kind]
        if type(settings.prior) is not wanted:
            got = PRIOR_WORDS[type(settings.prior)]
            what = f"got {got}, but the column is {column.kind}; expected {PRIOR_WORDS[wanted]}"
            kind = next(k for k, prior in PRIOR_OF_KIND.items() if prior is type(settings.prior))
            report.add((*key, "prior"), f"{what}, or {import_again(name, kind)}")
        elif wanted is DirichletPrior and len(settings.prior.dirichlet) != len(column.levels):
            n, levels = len(settings.prior.dirichlet), list(column.levels)
            what = f"got {counted(n, 'number')}, expected {len(levels)}, one for each level in the table's order"
            report.add((*key, "prior"), f"{what}: {_some(levels)}")
    for name, block in config.blocks.items():
        key = ("blocks", name, "columns")
        fit = [c for c, column in by_name.items() if column.kind == "real" and c not in config.unused]
        for c in block.columns:
            if c not in by_name:
                report.add(key, f"the table has no column {_shown(c)}; {_nearest_column(c, fit)}")
            elif by_name[c].kind != "real":
                what = f"column {_shown(c)} is {by_name[c].kind}, expected real ones: {_some(fit) or 'there are none'}"
                report.add(key, f"{what}; if it has numbers, {import_again(c, 'real')}")
    _check_strata(config, by_name, report)
    for column in columns:
        key = ("columns", column.name)
        if column.name in config.unused:
            continue
        if column.kind == "count" and column.center * (n_rows - column.n_missing) >= 2.0**53:
            report.add(
                key,
                "the sum of its counts is 2^53 or more, too large to be exact; "
                f"{import_again(column.name, 'real')}, or set use = false",
            )
        if column.kind == "real" and not (1e-150 < column.scale < 1e150 and abs(column.center) < 1e150):
            report.add(
                key, "its numbers are too large or too small for double precision; scale them, or set use = false"
            )
    if columns and all(column.name in config.unused for column in columns) and not report.problems:
        report.add(("columns",), "every column has use = false, so that nothing is left to model")
    if report.problems:
        raise ConfigError(f"{config.path}: the configuration does not fit the table {config.table}", report.problems)


def _nearest_column(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, 1, 0.6) or [n for n in names if n.lower() == name.lower()]
    return f"did you mean {near[0]}?" if near else f"it has {_some(names)}"


def _check_strata(config: Config, by_name: dict[str, Any], report: _Report) -> None:
    strata = config.anneal.strata
    if strata in ("none", "clusters"):
        return
    fit = [name for name, column in by_name.items() if column.kind in ("categorical", "boolean")]
    expect = f'expected "none", "clusters", or one of {_some(fit)}' if fit else 'expected "none" or "clusters"'
    if strata not in by_name:
        near = difflib.get_close_matches(strata, [*fit, "none", "clusters"], 1, 0.6)
        near = near or [name for name in fit if name.lower() == strata.lower()]
        hint = f"did you mean {near[0]}?" if near else expect
        report.add(("anneal", "strata"), f"the table has no column {_shown(strata)}; {hint}")
    elif strata not in fit:
        cure = import_again(strata, "categorical")
        report.add(("anneal", "strata"), f"column {strata} is {by_name[strata].kind}; {expect}, or {cure}")


def _some(names: list[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


# --- writing and comparing --------------------------------------------------------------------------------------------


def as_dict(config: Config) -> dict[str, Any]:
    """Every key with its value, as plain nested dictionaries; absolute paths; what is not set or used is left out."""
    family = config.model.family
    document = {}
    for name in SECTIONS:
        given = getattr(config, name).model_dump(exclude_none=True)
        used = {key: value for key, value in given.items() if _has_use(family, name, key)}
        if used:
            document[name] = used
    document["data"]["table"] = str(config.table)
    if config.heldout_path:
        document["data"]["heldout"] = str(config.heldout_path)
    if family == "mixture" and config.init_labels_path:
        document["sampler"]["init_labels"] = str(config.init_labels_path)
    for section, key in _without_effect(config):
        document[section].pop(key, None)
    for kind in NAMED:
        document[kind] = {name: c.model_dump(exclude_none=True) for name, c in getattr(config, kind).items()}
    for block in document["blocks"].values():
        block["prior"] = _default_prior(block) | block.get("prior", {})
    return document


def _default_prior(block: dict[str, Any]) -> dict[str, Any]:
    """What is taken of a block's prior where nothing is given; the mean is not in it, being the table's."""
    from mpibayes.hpc.components.multinormal import default_grids

    return {key: grid.tolist() for key, grid in default_grids(len(block["columns"])).items()}


def _without_effect(config: Config) -> dict[tuple[str, str], str]:
    """Keys that nothing looks at with this configuration's other keys, each with the setting that makes it so."""
    if config.model.family == "mixture":
        return {("anneal", key): because for key, because in _unused(config.sampler, config.anneal).items()}
    return {("regression", key): because for key, because in _idle(config.model, config.regression).items()}


def continued(config: Config, old: dict[str, Any]) -> Config:
    """The configuration of a run that goes on: what "auto" meant at the first start (in `old`) still holds."""
    for key in FROZEN:
        section, name = key.split(".")
        before = _table(old.get(section)).get(name)
        if getattr(getattr(config, section), name) == "auto" and before not in (None, "auto"):
            config = replace(config, **{section: getattr(config, section).model_copy(update={name: before})})
    return config


def difference(old: dict[str, Any], new: dict[str, Any], same_table: bool = False) -> list[str]:
    """What forbids continuing a run with another configuration: one line for each key that changes the statistics.

    `old` and `new` are `as_dict(config)` or the parsed config.resolved.toml. With `same_table` (the fingerprints agree)
    the table's path may differ: a file that was moved is the same data. A new "auto" takes what it meant at first.
    """
    before, after = _flat(old), _flat(new)
    lines = []
    for key in sorted(before.keys() | after.keys()):
        if key in MAY_CHANGE or (key == "data.table" and same_table):
            continue
        was, now = before.get(key), after.get(key)
        if was == now or (key in FROZEN and now == "auto"):
            continue
        lines.append(f"{key}: was {_or_unset(was)}, is now {_or_unset(now)}")
    return lines


def _or_unset(value: Any) -> str:
    return "not set" if value is None else _shown(value)


def _flat(document: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, section in SECTIONS.items():
        for key, info in section.model_fields.items():
            default = None if info.is_required() else info.default
            flat[f"{name}.{key}"] = _plain(_table(document.get(name)).get(key, default))
    for name, given in _table(document.get("columns")).items():
        if given.get("prior") is not None:
            flat[f"columns.{_bare(name)}.prior"] = _plain(given["prior"])
        if not given.get("use", True):
            flat[f"columns.{_bare(name)}.use"] = False
    for name, given in _table(document.get("blocks")).items():
        flat[f"blocks.{_bare(name)}.columns"] = _plain(given["columns"])
        default = _default_prior(given)
        prior = {k: v for k, v in _plain(given.get("prior", {})).items() if not _same_grid(v, default.get(k))}
        if prior:
            flat[f"blocks.{_bare(name)}.prior"] = prior
    return flat


def _same_grid(a: Any, b: Any) -> bool:
    """Another NumPy may round the points of a default grid in another way."""
    return isinstance(a, list) and isinstance(b, list) and len(a) == len(b) and all(map(math.isclose, a, b))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def resolved_toml(config: Config, actual: dict[str, Any] | None = None) -> str:
    """The whole configuration as TOML, each key with its value and a line of explanation; `load` reads it back.

    `actual` replaces values by key, e.g. {"run.shards": 4, "sampler.opening": "all"}: what "auto" came to. run.burn_in
    is always written as the number it came to.
    """
    actual = {"run.burn_in": config.burn_in, **(actual or {})}
    document, unused = as_dict(config), _without_effect(config)
    out = [
        f"# Every key and its value, as mpibayes understood {visible(config.path.name)}"
        + (" and --set." if config.overrides else ".")
    ]
    for name, section in SECTIONS.items():
        if name not in document:
            continue
        out += ["", f"[{name}]"]
        for key, info in section.model_fields.items():
            if not _has_use(config.model.family, name, key):
                continue
            value = actual.get(f"{name}.{key}", document[name].get(key))
            # TOML has no null, so a key that is not set is a comment.
            blank = f"not used: {unused[name, key]}" if (name, key) in unused else "not set"
            text = f"# {key} = ({blank})" if value is None else f"{key} = {_toml(value)}"
            out.append(f"{text}  # {info.description}")
    for kind, section in NAMED.items():
        for name, given in document[kind].items():
            out += ["", f"[{kind}.{_bare(name)}]"]
            for key, info in section.model_fields.items():
                if key in given:
                    out.append(f"{key} = {_toml(given[key])}  # {info.description}")
    return "\n".join(out) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_bare(str(key))} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return str(value)
    return toml_string(str(value))
