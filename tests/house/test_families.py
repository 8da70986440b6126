"""Every family in the registry has every door of `hpc/family.py`, with the protocol's names and arguments."""

import importlib
import inspect
import re
import types
import typing
from pathlib import Path

import pytest

from mpibayes.hpc import family as doors
from mpibayes.hpc import registry
from mpibayes.hpc.config import keys as shared
from mpibayes.hpc.config.section import Section

HPC = Path(__file__).parents[2] / "hpc"
FAMILIES = pytest.mark.parametrize("family", registry.FAMILIES)


def chain_of(family):
    """The class that a family's `chain` says it returns."""
    room = inspect.getmodule(registry.family_of(family))
    return getattr(room, inspect.signature(registry.family_of(family).chain).return_annotation)


def predictive_of(family):
    """Class of a run's draws."""
    return importlib.import_module(f"mpibayes.hpc.{registry.ROOMS[family]}.predictive").Predictive


DOORS = {
    "keys": (registry.keys_of, doors.Keys),
    "rules": (registry.rules_of, doors.Rules),
    "family": (registry.family_of, doors.Family),
    "chain": (chain_of, doors.Chain),
    "draws": (registry.posterior_of, doors.Posterior),
    "predictive": (predictive_of, doors.Predictive),
    "predict": (registry.forecast_of, doors.Forecast),
    "exports": (registry.exports_of, doors.Exports),
    "query": (registry.queries_of, doors.Queries),
    "check": (registry.check_of, doors.Check),
}


MISSING = object()


def members(protocol):
    """Members of a protocol by name: its functions, and None for any other member."""
    functions = {
        name: member
        for name, member in vars(protocol).items()
        if isinstance(member, types.FunctionType | staticmethod) and member.__module__ == protocol.__module__
    }
    return dict.fromkeys(protocol.__annotations__) | functions


def arguments(function, of_a_class):
    """Each argument but `self`, as `name`, `name=` where there is a default, or `*name`."""
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
            found, wanted = arguments(given, inspect.isclass(thing)), arguments(asked, True)
            if found != wanted:
                words.append(f"{name} takes {found}, expected {wanted}")
    return words


def is_set(thing, name):
    """True if a class, or one that it extends, sets an attribute of its objects."""
    classes = [base for base in getattr(thing, "__mro__", ()) if base is not object]
    return any(re.search(rf"self\.{name}\b[^=\n]*=[^=]", inspect.getsource(base)) for base in classes)


@FAMILIES
@pytest.mark.parametrize("door", DOORS)
def test_doors(family, door):
    find, protocol = DOORS[door]
    assert lacking(find(family), protocol) == []


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
    for common, own in ((shared.SECTIONS, keys.SECTIONS), (shared.NAMED, keys.NAMED)):
        assert all(issubclass(own[name], section) for name, section in common.items())
        assert all(issubclass(section, Section) for section in own.values())
    assert list(keys.SECTIONS)[:2] == ["data", "model"] and list(keys.SECTIONS)[-2:] == ["run", "output"]
    assert family in typing.get_args(keys.SECTIONS["model"].model_fields["family"].annotation)


def test_a_room_for_each_name_and_one_default():
    assert registry.DEFAULT in registry.FAMILIES
    expected = "no such family; expected one of auto, mixture, crosscat, regression"
    with pytest.raises(registry.ConfigError, match=expected):
        registry.keys_of("mixtures")


def test_only_the_registry_looks_at_a_name():
    """Everything that depends on the family is behind one of the registry's doors."""
    pattern = re.compile(r"family *(==|!=|\bin\b)")
    found = [
        f"{path.relative_to(HPC)}:{number}"
        for path in sorted(HPC.rglob("*.py"))
        if path.name != "registry.py"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []
    assert all(map(pattern.search, ['if family == "mixture"', "model.family != x", "family in FAMILIES"]))


def test_a_wrong_door_is_seen():
    """Each of these lacks something of the protocol."""

    class Wrong:
        like = None

        def __init__(self, run, source, draws=None, probabilities=False, impute=False):
            self.batch = 3

        def __call__(self, rows, row): ...

    assert lacking(Wrong, doors.Forecast) == [
        "may_lack is missing",
        "n_draws is missing",
        "__init__ takes ['run', 'source', 'draws=', 'probabilities=', 'impute='], "
        "expected ['run', 'source', 'draws', 'probabilities', 'impute', 'complete', 'groups=']",
        "prepare is missing",
        "__call__ takes ['rows', 'row'], expected ['rows', 'first_row']",
    ]
    assert lacking(types.ModuleType("empty"), doors.Check) == ["memory is missing", "findings is missing"]
