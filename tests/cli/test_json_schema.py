"""The JSON schema of the configuration agrees with the program: `mpibayes schema --json`, and where it is written."""

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import jsonschema
import pytest
from pydantic import ValidationError

from mpibayes.errors import ConfigError
from mpibayes.hpc import registry
from mpibayes.hpc.config.json_schema import NAME, configuration, header, schema_text, written
from mpibayes.hpc.config.load import load
from mpibayes.hpc.config.places import merge, parse_override, times_as_text
from mpibayes.hpc.config.resolved import resolved_toml
from mpibayes.io import documents
from tests.run.every_key import CONFIG, cases_of

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = configuration()
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)
EXAMPLES = sorted(path for path in (ROOT / "examples").rglob("*.toml") if path.name != "schema.toml")
# Each is offered to every key; the program and the schema have to agree on it.
PROBES = [
    True, -1, 0, 1, 2, 50, 10**7, 10**12, -0.5, 0.3, 1.5, 1e7 + 0.5, 1e150, 1e200, float("inf"), "", "none", "auto",
    "learn", "all", "x", "3h50m", [], [1], [0.5, 2], [2, 0], [0.5] * 1001, ["a"], ["a", "b"], [[2, 0.1], [10, 1.0]], {},
    {"gamma": [1, 1]}, {"gamma": [1, 1], "points": 3}, {"gamma": [1]}, {"gamma": [1, 1], "points": 101},
    {"inverse_gamma": [2, 1]}, {"dirichlet": [1]}, {"grid": [1, 2]}, {"shape": 1, "rate": 2}, {"shape": 1, "rate": -2},
    {"mean": 0, "kappa": 1, "nu": 1, "variance": 1}, {"kappa": 1}, {"y": [0.5, 2, 0.3, 0.8]}, {"y": [0.5, 2, 0.3]},
    {"unknown": 1},
]  # fmt: skip


def document(text, overrides=()):
    """The document that `load` checks, of a file with these overrides."""
    tree = documents.toml(text)
    for item in overrides:
        merge(tree, parse_override(item), lambda: {"columns", "blocks"})
    return times_as_text(tree)


def messages(tree):
    return [error.message for error in VALIDATOR.iter_errors(tree)]


def test_it_is_a_schema_of_draft_7():
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert json.loads(schema_text()) == SCHEMA


def test_the_kept_schema_is_that_of_the_sections():
    assert schema_text() == written(), "python -m mpibayes.hpc.config.json_schema writes it anew"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_are_valid(path):
    load(path)
    assert messages(document(path.read_text())) == []


@pytest.mark.quick("crosscat", "ibp", "regression", "svi lda")
@pytest.mark.parametrize("kind", CONFIG)
def test_every_value_of_every_key_is_valid(tmp_path, kind):
    """Texts that the program takes, and what it writes of them with every default."""
    path = tmp_path / "run.toml"
    path.write_text(CONFIG[kind])
    for case in cases_of(kind):
        config = load(path, case)
        assert messages(document(CONFIG[kind], case)) == [], case
        assert messages(document(resolved_toml(config))) == [], case


def test_keys_of_earlier_versions_are_valid(tmp_path):
    text = '[data]\ntable = "a.h5"\n[anneal]\nstrata = "clusters"'
    path = tmp_path / "run.toml"
    path.write_text(text)
    load(path)
    assert messages(document(text)) == []


WRONG = [
    "seed = 1",
    "[data]\nheldout = 0.1",
    "[data]\ntable = 3",
    '[data]\ntable = "a.h5"\n[runs]\nseed = 1',
    '[data]\ntable = "a.h5"\n[run]\nsede = 1',
    '[data]\ntable = "a.h5"\n[run]\nseed = "one"',
    '[data]\ntable = "a.h5"\n[run]\ncycles = 0',
    '[data]\ntable = "a.h5"\n[run]\nuntil = "bored"',
    '[data]\ntable = "a.h5"\n[run]\nmax_time = "soon"',
    '[data]\ntable = "a.h5"\n[model]\nfamily = "mixtures"',
    '[data]\ntable = "a.h5"\n[model]\nfamily = "mixture"\ntopics = 3',
    '[data]\ntable = "a.h5"\n[regression]\nresponse = "y"',
    '[data]\ntable = "a.h5"\n[model]\nfamily = "regression"\nlikelihood = "logistic"',
    '[data]\ntable = "a.h5"\n[model]\nfamily = "svi"\nlikelihood = "lda"\ncomponents = 3',
    '[data]\ntable = "a.h5"\n[model]\nfamily = "svi"\ntopics = 3',
    '[data]\ntable = "a.h5"\n[columns]\nage = true',
    '[data]\ntable = "a.h5"\n[columns.age]\nused = true',
    '[data]\ntable = "a.h5"\n[columns.age]\nprior = {dirichlet = []}',
    '[data]\ntable = "a.h5"\n[blocks.body]\ncolumns = ["height"]',
]


@pytest.mark.parametrize("text", WRONG)
def test_the_wrong_is_refused_by_both(tmp_path, text):
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(ConfigError):
        load(path)
    assert messages(document(text)) != []


def words_in(annotation):
    """The texts that a type names one by one."""
    inner = get_args(annotation)
    return [word for word in inner if isinstance(word, str)] + [word for one in inner for word in words_in(one)]


def is_refused(section, key, value):
    """True if the program refuses this value of a key."""
    try:
        section.model_validate({key: copy.deepcopy(value)})
    except ValidationError as error:
        return any(problem["loc"][0] == key for problem in error.errors())
    return False


@pytest.mark.parametrize("room", SCHEMA["definitions"])
def test_the_program_and_the_schema_agree_on_values(room):
    """Both refuse a probe of a key, or neither does."""
    doors = registry.keys_of(next(kind for kind in registry.ROOMS if registry.ROOMS[kind] == room))
    parts = SCHEMA["definitions"][room]["properties"]
    places = [(name, of, parts[name]) for name, of in doors.SECTIONS.items()]
    places += [(name, of, parts[name]["additionalProperties"]) for name, of in doors.NAMED.items()]
    differing = []
    for name, section, schema in places:
        assert list(schema["properties"]) == [*section.model_fields, *section.retired]
        for key in section.model_fields:
            of = schema["properties"][key]
            valid = jsonschema.Draft7Validator(of).is_valid
            probes = [*PROBES, *words_in(section.model_fields[key].annotation)]
            refused = [is_refused(section, key, probe) for probe in probes]
            assert not all(refused) and any(refused), f"{name}.{key}: the probes cannot tell"
            differing += [(name, key, probe) for probe, no in zip(probes, refused) if no == valid(probe)]
    assert differing == []


def test_a_run_has_the_schema_that_its_settings_name(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"{n % 3},{n}\n" for n in range(60)))
    command = [sys.executable, "-m", "mpibayes", "run", "a.csv", "-o", "my runs", "--ranks", "1"]
    command += ["--set", "run.cycles=2", "--set", "run.until=cycles", "--set", "run.chains=1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "my runs"
    assert (run / NAME).read_text() == schema_text()
    assert header() in (run / "config.resolved.toml").read_text()
    assert header(f"./my%20runs/{NAME}") in (tmp_path / "my runs.toml").read_text()
    for path in (run / "config.resolved.toml", tmp_path / "my runs.toml"):
        assert messages(document(path.read_text())) == []


def test_the_command_writes_it():
    def printed(*options):
        words = [sys.executable, "-m", "mpibayes", "schema", *options]
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout

    assert printed("--json") == schema_text()
    text = printed()
    assert text.count("family = ") == len(SCHEMA["definitions"]) and "# svi lda\n\n[data]\n" in text
