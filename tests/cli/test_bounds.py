"""Every number that a configuration takes has bounds, and a message that names key, value and bound."""

import functools

import pytest

from mpibayes.errors import ConfigError
from mpibayes.hpc import registry
from mpibayes.hpc.config.load import load

CHOICE = {  # what chooses a kind of model, with what it needs besides
    "auto": "",
    "mixture": 'model.family = "mixture"\n',
    "crosscat": 'model.family = "crosscat"\n',
    "ibp": 'model.family = "ibp"\n',
    "regression": 'model.family = "regression"\nmodel.likelihood = "logistic"\nregression.response = "y"\n',
    "svi": 'model.family = "svi"\n',
    "svi lda": 'model.family = "svi"\nmodel.likelihood = "lda"\n',
    "svi factorization": 'model.family = "svi"\nmodel.likelihood = "factorization"\n',
}


def sections(kind):
    keys = registry.keys_of(kind)
    return {**keys.SECTIONS, **keys.NAMED}


def numbers(node, definitions):
    """The parts of a key's JSON schema that are numbers."""
    if "$ref" in node:
        yield from numbers(definitions[node["$ref"].rpartition("/")[2]], definitions)
    if node.get("type") in ("integer", "number"):
        yield node
    within = [*node.get("anyOf", ()), *node.get("prefixItems", ()), *node.get("properties", {}).values()]
    for part in [*within, *(node[name] for name in ("items",) if isinstance(node.get(name), dict))]:
        yield from numbers(part, definitions)


@functools.cache
def numeric():
    """(kind, section, key), with the parts that are numbers, of every key that has such parts."""
    keys = {}
    for kind in registry.ROOMS:
        for section, of in sections(kind).items():
            schema = of.model_json_schema()
            for key, node in schema["properties"].items():
                if parts := list(numbers(node, schema.get("$defs", {}))):
                    keys[kind, section, key] = parts
    return keys


def test_no_number_of_any_section_is_without_bounds():
    assert len(numeric()) > 100 and set(CHOICE) == set(registry.ROOMS)
    for case, parts in numeric().items():
        for number in parts:
            assert {"maximum", "exclusiveMaximum"} & set(number), case
            assert {"minimum", "exclusiveMinimum"} & set(number), case


@pytest.mark.thorough
@pytest.mark.parametrize("value", ["1" + "0" * 299, "1e300", "-1e300", "inf", "nan"])
def test_a_number_beyond_all_bounds_has_one_message(tmp_path, value):
    shown = {"1e300": "1e+300", "-1e300": "-1e+300"}.get(value, value[:60])
    for kind, section, key in numeric():
        if section in ("columns", "blocks"):
            continue
        (tmp_path / "run.toml").write_text(f'data.table = "t.h5"\n{CHOICE[kind]}{section}.{key} = {value}\n')
        with pytest.raises(ConfigError) as caught:
            load(tmp_path / "run.toml")
        (problem,) = (p for p in caught.value.problems if f": {section}.{key}: " in p)
        assert f": {section}.{key}: got {shown}" in problem and "expected " in problem, problem


@pytest.mark.parametrize("key, value, expected", [
    ("run.shards", "1000000000000", '"auto" or a whole number from 1 to 65,536'),
    ("run.cycles", "1000000001", "a whole number from 1 to 1,000,000,000"),
    ("run.chains", "1001", "a whole number from 1 to 1,000"),
    ("run.max_time", '"4000d"', "up to 3650 days"),
    ("run.checkpoint_minutes", "1e6", "a number above 0, at most 525,600 (a year)"),
    ("output.thin", "1000000001", "a whole number from 1 to 1,000,000,000"),
    ("model.concentration", "1e10", "at most 1e9"),
    ("sampler.view_moves", "10001", "a whole number from 0 to 10,000"),
])  # fmt: skip
def test_the_message_has_the_bound(tmp_path, key, value, expected):
    (tmp_path / "run.toml").write_text('data.table = "t.h5"\nmodel.family = "crosscat"\n')
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "run.toml", [f"{key}={value}"])
    (problem,) = caught.value.problems
    assert problem.startswith(f"--set {key}: got {value}".replace("1e6", "1000000.0").replace("1e10", "10000000000.0"))
    assert expected in problem
