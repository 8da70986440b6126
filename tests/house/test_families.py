"""Every kind of model in the registry has every door of `hpc/family.py` and `hpc/law.py`, with the protocol's names and
arguments, and callers use no other member of what these doors give."""

import ast
import importlib
import inspect
import re
import types
import typing
from pathlib import Path

import pytest

from mpibayes.hpc import family as doors
from mpibayes.hpc import law as laws
from mpibayes.hpc import registry
from mpibayes.hpc.config import keys as shared
from mpibayes.hpc.config.section import Section

HPC = Path(__file__).parents[2] / "hpc"
FAMILIES = pytest.mark.parametrize("family", registry.FAMILIES)
KINDS = pytest.mark.parametrize("kind", registry.ROOMS)


def chain_of(kind):
    """The class that a family's `chain` says it returns."""
    room = inspect.getmodule(registry.family_of(kind))
    return getattr(room, inspect.signature(registry.family_of(kind).chain).return_annotation)


def law_of(kind):
    """Class of a run's draws, or of an approximation."""
    return importlib.import_module(f"mpibayes.hpc.{registry.ROOMS[kind]}.law").Law


def sparse(kind):
    return registry.keys_of(kind).SECTIONS["model"].sparse


def has_answers(kind):
    return not registry.posterior_of(kind).no_questions


def given_by(law):
    """The class that a law's `given` says it returns."""
    return getattr(inspect.getmodule(law), inspect.signature(law.given).return_annotation)


def of_verb(kind, verb):
    """True if a kind's draws can be asked a verb."""
    return has_answers(kind) and verb not in registry.asked_of(kind).cannot


# door: how it is opened, its protocol, and of which kinds of model
DOORS = {
    "keys": (registry.keys_of, doors.Keys, None),
    "rules": (registry.rules_of, doors.TypedRules, lambda kind: not sparse(kind)),
    "rules of pairs": (registry.rules_of, doors.SparseRules, sparse),
    "family": (registry.family_of, doors.Family, None),
    "chain": (chain_of, doors.Chain, None),
    "draws": (registry.posterior_of, doors.Posterior, None),
    "draws of rows": (registry.posterior_of, doors.RowPosterior, lambda kind: not sparse(kind)),
    "density": (law_of, laws.Density, lambda kind: not sparse(kind)),
    "law": (law_of, laws.Law, has_answers),
    "given": (lambda kind: given_by(law_of(kind)), laws.Given, has_answers),
    "asked": (registry.asked_of, laws.Asked, has_answers),
    "joint law": (law_of, laws.JointLaw, lambda kind: of_verb(kind, "similarity")),
    "given a joint law": (
        lambda kind: given_by(law_of(kind)), laws.GivenJoint, lambda kind: of_verb(kind, "similarity"),
    ),
    "asked joint laws": (registry.asked_of, laws.AskedJoint, lambda kind: of_verb(kind, "similarity")),
    "asked clusters": (registry.asked_of, laws.AskedClusters, lambda kind: of_verb(kind, "complete")),
    "predict": (registry.forecast_of, doors.Forecast, lambda kind: not sparse(kind)),
    "predict pairs": (registry.forecast_of, doors.SparseForecast, sparse),
    "exports": (registry.exports_of, doors.Exports, None),
    "check": (registry.check_of, doors.Check, None),
}  # fmt: skip
OTHERS = {
    "crosscat.laws.completion.Completion": laws.Completion, "crosscat.laws.synthesis.Synthesis": laws.Synthesis,
    "crosscat.laws.view_law.ViewLaw": laws.View, "ibp.law.Law": laws.View,
}  # fmt: skip


MISSING = object()


def members(protocol):
    """Members of a protocol by name: its functions, and None for any other member."""
    result = {}
    for part in reversed([part for part in protocol.__mro__ if part not in typing.Protocol.__mro__]):
        result |= dict.fromkeys(part.__annotations__)
        for name, member in vars(part).items():
            if isinstance(member, types.FunctionType | staticmethod) and member.__module__ == part.__module__:
                result[name] = member
            elif isinstance(member, property):
                result[name] = None
    return result


def arguments(function, of_a_class):
    """Arguments but `self`, as `name`, `name=` where there is a default, or `*name`."""
    given = list(inspect.signature(getattr(function, "__func__", function)).parameters.values())
    given = given[of_a_class and not isinstance(function, staticmethod) :]
    return [str(p.replace(annotation=p.empty, default=p.empty)) + "=" * (p.default is not p.empty) for p in given]


def lacking(thing, protocol):
    """Members of a protocol that a class or a module lacks, or has with other arguments, in words."""
    words = []
    for name, asked in members(protocol).items():
        given = inspect.getattr_static(thing, name, MISSING)
        if given is MISSING and not (asked is None and is_set(thing, name)):
            words.append(f"{name} is missing")
        elif asked is not None:
            result, requested = arguments(given, inspect.isclass(thing)), arguments(asked, True)
            if result != requested:
                words.append(f"{name} takes {result}, expected {requested}")
    return words


def is_set(thing, name):
    """True if a class, or one that it extends, sets an attribute of its objects."""
    classes = [base for base in getattr(thing, "__mro__", ()) if base is not object]
    return any(re.search(rf"self\.{name}\b[^=\n]*=[^=]", inspect.getsource(base)) for base in classes)


@KINDS
def test_doors(kind):
    opened = {door: (find, protocol) for door, (find, protocol, of) in DOORS.items() if of is None or of(kind)}
    without = {door: words for door, (find, protocol) in opened.items() if (words := lacking(find(kind), protocol))}
    assert not without


def test_each_door_is_of_some_kinds():
    """Doors that no kind has would be tried in vain; those of svi and of sparse tables are among them."""
    kinds = {door: [kind for kind in registry.ROOMS if of is None or of(kind)] for door, (*_, of) in DOORS.items()}
    assert all(kinds.values())
    assert kinds["predict pairs"] == ["svi factorization", "svi lda"] and kinds["density"][-1] == "svi"
    assert kinds["asked joint laws"][-1] == "ibp" and kinds["asked"] == [*registry.FAMILIES[:-1]]


@pytest.mark.parametrize("place", OTHERS)
def test_what_doors_give(place):
    module, _, name = place.rpartition(".")
    assert lacking(getattr(importlib.import_module(f"mpibayes.hpc.{module}"), name), OTHERS[place]) == []


# --- what callers use -------------------------------------------------------------------------------------------------

CALLERS = ("query", "results", "synthetic", "comparison", "python")
# names of variables and attributes that hold such a thing, in the rooms of callers
HOLD = {
    "asked": laws.AskedClusters, "draw": laws.JointLaw, "law": laws.JointLaw, "completion": laws.Completion,
    "synthesis": laws.Synthesis, "run": doors.RowPosterior,
}  # fmt: skip
# where the name holds something else
ELSE = {
    "query/asking.py": {"run"}, "query/logp.py": {"asked"}, "results/synthesize.py": {"asked"},
    "results/predict.py": {"asked"}, "python": {"run"},
}  # fmt: skip


def uses(source):
    """(name, member) of each attribute of a variable, or of another attribute, of this name; `draws[d]` is a draw."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            value = node.value
            if isinstance(value, ast.Subscript) and getattr(value.value, "id", "") == "draws":
                yield "draw", node.attr
            elif isinstance(value, ast.Name):
                yield value.id, node.attr
            elif isinstance(value, ast.Attribute):
                yield value.attr, node.attr


def undeclared(source, elsewhere=()):
    return sorted(
        f"{name}.{member}"
        for name, member in set(uses(source))
        if name in HOLD and name not in elsewhere and member not in members(HOLD[name])
    )


def test_callers_use_what_is_declared():
    result = {}
    for room in CALLERS:
        for path in sorted((HPC / room).rglob("*.py")):
            place = str(path.relative_to(HPC))
            result[place] = undeclared(path.read_text(encoding="utf-8"), ELSE.get(place, ELSE.get(room, ())))
    assert {place: names for place, names in result.items() if names} == {}


def test_an_undeclared_member_is_seen():
    source = "asking.asked.left_in(known)\ndraws[d].given(known).log_p\ndraw.state\ncompletion.cells()\n"
    assert undeclared(source) == ["asked.left_in", "draw.state"]


@pytest.mark.parametrize("family", [f for f in registry.FAMILIES if "clusters" in registry.exports_of(f).FORMS])
def test_exports_of_clusters(family):
    assert lacking(registry.exports_of(family), doors.ClusterExports) == []


@FAMILIES
def test_report(family):
    (argument,) = inspect.signature(registry.report_of(family)).parameters.values()
    assert argument.default is argument.empty


@FAMILIES
def test_sections(family):
    """The shared sections are there, first and last as in any family, as they are or extended; and it has its name."""
    keys = registry.keys_of(family)
    for common, part in ((shared.SECTIONS, keys.SECTIONS), (shared.NAMED, keys.NAMED)):
        assert all(issubclass(part[name], section) for name, section in common.items())
        assert all(issubclass(section, Section) for section in part.values())
    assert list(keys.SECTIONS)[:2] == ["data", "model"] and list(keys.SECTIONS)[-2:] == ["run", "output"]
    assert family in typing.get_args(keys.SECTIONS["model"].model_fields["family"].annotation)


def test_a_room_for_each_name_and_one_default():
    assert registry.DEFAULT in registry.FAMILIES
    expected = "unknown family; expected one of auto, mixture, crosscat, regression"
    with pytest.raises(registry.ConfigError, match=expected):
        registry.keys_of("mixtures")


def test_only_the_registry_looks_at_a_name():
    """Everything that depends on the family is behind one of the registry's doors."""
    pattern = re.compile(r"family *(==|!=|\bin\b)")
    result = [
        f"{path.relative_to(HPC)}:{number}"
        for path in sorted(HPC.rglob("*.py"))
        if path.name != "registry.py"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line)
    ]
    assert result == []
    assert all(map(pattern.search, ['if family == "mixture"', "model.family != x", "family in FAMILIES"]))


def test_a_wrong_door_is_seen():
    """Classes that each lack something of the protocol."""

    class Wrong:
        like = None

        def __init__(self, run, source, draws=None):
            self.batch = 3

        def __call__(self, rows, row): ...

    assert lacking(Wrong, doors.Forecast) == [
        "cannot is missing",
        "__init__ takes ['run', 'source', 'draws='], expected ['run', 'request']",
        "prepare is missing",
        "may_lack is missing",
        "n_draws is missing",
        "__call__ takes ['rows', 'row'], expected ['rows', 'first_row']",
    ]
    assert lacking(types.ModuleType("empty"), doors.Check) == ["memory is missing", "findings is missing"]
