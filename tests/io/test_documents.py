"""TOML and JSON from outside: within the limits a document, beyond them one message, and soon."""

import json
import time

import pytest

from mpibayes.errors import CheckpointError, ConfigError, DataError
from mpibayes.hpc.config.load import load
from mpibayes.hpc.run.identity import PROVENANCE, RESOLVED, read_provenance, read_resolved, write_provenance
from mpibayes.hpc.run.status import read_status
from mpibayes.io.documents import MOST_LEVELS, MOST_PARTS, TooMuch, json_value, toml
from mpibayes.io.schema import read_schema

DEEP = "[" * 5000 + "]" * 5000
DIGITS = "9" * 10_000
LONG_KEY = ".".join("a" * 50_000)
BEYOND = {
    "deep lists": (f"run.shards = {DEEP}", "lists and tables within each other more than 32 deep"),
    "deep tables": ("run.x = " + "{a = " * 400 + "1" + "}" * 400, "more than 32 deep"),
    "deep, yet parsed": ("run.x = " + "[" * 40 + "]" * 40, "more than 32 deep"),
    "digits": (f"\nrun.shards = {DIGITS}", ":2: a whole number of more than 300 digits"),
    "hexadecimal digits": (f"run.shards = 0x{'f' * 10_000}", "run.shards: a whole number of more than 300 digits"),
    "parts of a key": (f"\n{LONG_KEY} = 1", ":2: a key of 50,000 parts; expected 32 at most"),
    "parts of a section": (f"[{LONG_KEY}]", ":1: a key of 50,000 parts"),
    "quoted parts of a key": ('"a b" . ' * 50_000 + "a = 1", ":1: a key of 50,001 parts"),
}


@pytest.mark.parametrize("text, words", BEYOND.values(), ids=BEYOND)
def test_configurations_and_schemas_beyond_the_limits_have_one_message(tmp_path, text, words):
    path = tmp_path / "some.toml"
    path.write_text(text + "\n")
    began = time.monotonic()
    for read in (load, read_schema):
        with pytest.raises(ConfigError) as caught:
            read(path)
        message = str(caught.value).replace(" not a readable TOML file:", "")
        assert words in message and str(path) in message and len(message) < 500
    assert time.monotonic() - began < 2.0


@pytest.mark.parametrize("item, words", [
    (f"run.shards={DEEP}", "--set run.shards: lists and tables"),
    (f"run.shards={DIGITS}", "--set run.shards: a whole number of more than 300 digits"),
    (f"{LONG_KEY}=1", "a key of 50,000 parts"),
    ("x" * 10_000, "expected key=value"),
    ("x" * 10_000 + "=1", "unknown key"),
])  # fmt: skip
def test_overrides_beyond_the_limits_have_one_message(tmp_path, item, words):
    (tmp_path / "run.toml").write_text('data.table = "t.h5"\n')
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "run.toml", [item])
    assert words in str(caught.value) and len(str(caught.value)) < 500


def test_what_is_within_the_limits_is_read():
    key = ".".join("a" * MOST_PARTS)
    nested = "[" * (MOST_LEVELS - 2) + "]" * (MOST_LEVELS - 2)
    assert toml(f"{key} = 1") and toml(f"b = {nested}\nc = '''\n{LONG_KEY}\n'''\n# {LONG_KEY}") is not None
    assert toml(f'"{LONG_KEY}" = {10**300}') == {LONG_KEY: 10**300}  # a name may have dots
    assert json_value(json.dumps({"a": [1, {"b": None}]})) == {"a": [1, {"b": None}]}


def test_a_long_word_in_braces_is_scanned_once(tmp_path):
    (tmp_path / "run.toml").write_text('data.table = "t.h5"\nmodel.concentration = {' + "a" * 200_000 + " = 1}\n")
    began = time.monotonic()
    with pytest.raises(ConfigError):
        load(tmp_path / "run.toml")
    assert time.monotonic() - began < 2.0


@pytest.mark.parametrize("text", [f'{{"cycle": {DEEP}}}', f'{{"cycle": {DIGITS}}}', DEEP, "[" * 100_000])
def test_files_of_a_run_that_were_edited_are_damaged(tmp_path, text):
    (tmp_path / "status.json").write_text(text)
    (tmp_path / PROVENANCE).write_text(text)
    (tmp_path / RESOLVED).write_text(f"x = {text}\n")
    with pytest.raises(DataError, match="damaged"):
        read_status(tmp_path)
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_provenance(tmp_path)
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_resolved(tmp_path)
    with pytest.raises(TooMuch):
        json_value(text)


@pytest.mark.parametrize("field", ["run", "table", "fingerprint", "starts", "checkpoints"])
@pytest.mark.parametrize("value", [None, 7, {"a": 1}])
def test_a_provenance_of_other_fields_is_damaged_though_its_checksum_is_right(tmp_path, field, value):
    record = {"run": "a", "table": "t.h5", "fingerprint": "b", "starts": [], "checkpoints": []}
    write_provenance(tmp_path, record)
    assert read_provenance(tmp_path)["run"] == "a"
    write_provenance(tmp_path, record | {field: value})
    with pytest.raises(CheckpointError, match="damaged, not the record of a run"):
        read_provenance(tmp_path)


def test_atoms_are_numbers(tmp_path):
    (tmp_path / "schema.toml").write_text('[columns.x]\nkind = "real"\natoms = [0, nan]\n')
    with pytest.raises(ConfigError, match="atoms: expected numbers, found nan"):
        read_schema(tmp_path / "schema.toml")
