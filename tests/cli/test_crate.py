"""`mpibayes export RUN --to crate`: an RO-Crate that its own library reads, the same bytes each time."""

import hashlib
import json
import subprocess
import sys
import zipfile

import pytest
from rocrate.rocrate import ROCrate

from mpibayes.hpc.cli import main
from mpibayes.hpc.config.json_schema import NAME as SCHEMA
from mpibayes.hpc.results.crate import METADATA

GIVEN = ["config.toml", SCHEMA]
MADE = ["config.resolved.toml", "provenance.json"]
REPORT = ["report/a picture #1.png", "report/report.html"]


def export(*words):
    return main(["export", *words, "--to", "crate"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with `run`, which has a report."""
    place = tmp_path_factory.mktemp("crate")
    (place / "a.csv").write_text("x,y\n" + "".join(f"{n % 3},{n}\n" for n in range(60)))
    settings = ("run.cycles=2", "run.until=cycles", "run.chains=1")
    changes = [word for setting in settings for word in ("--set", setting)]
    words = [sys.executable, "-m", "mpibayes", "run", "a.csv", "-o", "run", "--ranks", "1", *changes]
    subprocess.run(words, cwd=place, capture_output=True, timeout=100, check=True)
    (place / "run" / "report").mkdir()
    for name in REPORT:
        (place / "run" / name).write_bytes(name.encode())
    (place / "run" / "report" / "half.png.0123456789abcdef.tmp").write_bytes(b"half")
    return place


@pytest.fixture(scope="module")
def crate(folder):
    assert export(str(folder / "run"), "-o", str(folder / "run.zip")) == 0
    return folder / "run.zip"


@pytest.mark.thorough
def test_the_library_reads_it(crate, folder):
    result = ROCrate(crate)
    provenance = json.loads((folder / "run" / "provenance.json").read_text())
    assert provenance["run"] in result.name and result.root_dataset["conformsTo"].id.endswith("/process/0.5")
    assert result.metadata.id == METADATA and result.version == "1.1"
    for required in ("name", "description", "datePublished", "license"):
        assert result.root_dataset[required]
    parts = {part["name"]: part for part in result.root_dataset["hasPart"]}
    assert sorted(parts) == sorted(GIVEN + MADE + REPORT)
    for name, part in parts.items():
        content = (folder / "run" / name).read_bytes()
        assert part["sha256"] == hashlib.sha256(content).hexdigest() and part["contentSize"] == str(len(content))
    action = result.root_dataset["mentions"]
    assert action.type == "CreateAction" and action["instrument"]["softwareVersion"]
    table, *given = action["object"]
    assert table["identifier"] == f"sha256:{provenance['fingerprint']}" and [e["name"] for e in given] == GIVEN
    assert sorted(entity["name"] for entity in action["result"]) == sorted(MADE + REPORT)


def test_every_reference_is_to_an_entity_and_every_file_is_there(crate, folder):
    with zipfile.ZipFile(crate) as archive:
        document = json.loads(archive.read(METADATA))
        assert archive.namelist() == [METADATA, *GIVEN, *MADE, *REPORT]
        for name in archive.namelist()[1:]:
            assert archive.read(name) == (folder / "run" / name).read_bytes()
    ids = [entity["@id"] for entity in document["@graph"]]
    assert len(set(ids)) == len(ids)

    def referred(value):
        if isinstance(value, dict):
            return [value["@id"]]
        return [place for item in value for place in referred(item)] if isinstance(value, list) else []

    places = {place for entity in document["@graph"] for value in entity.values() for place in referred(value)}
    assert places - set(ids) == {"https://w3id.org/ro/crate/1.1"}


def test_the_same_run_gives_the_same_bytes_and_replaces_its_own_alone(crate, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    first = crate.read_bytes()
    assert export("run", "-o", "run.zip") == 0
    assert crate.read_bytes() == first
    assert export("run") == 0
    assert (folder / "run" / "crate.zip").read_bytes() == first
    with zipfile.ZipFile(folder / "other.zip", "w") as archive:
        archive.writestr(METADATA, "{}")
    other = (folder / "other.zip").read_bytes()
    assert export("run", "-o", "other.zip") == 2 and "--force" in capsys.readouterr().err
    assert (folder / "other.zip").read_bytes() == other
    assert not list(folder.glob("*.tmp"))


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["run", "run"], 2, "a crate is of one run"),
        (["run", "-o", "-"], 2, "cannot go to standard output"),
        (["."], 2, "no run was started"),
        (["missing"], 2, "no run was started"),
        (["run", "-o", "run/provenance.json", "--force"], 2, "belongs to the run"),
        (["run", "-o", "nowhere/a.zip"], 2, "cannot be written"),
        (["run", "-o", "a.zip", "--id", "x"], 2, "--to clusters"),
    ],
)
def test_mistakes(folder, monkeypatch, capsys, words, code, message):
    monkeypatch.chdir(folder)
    assert export(*words) == code
    printed = capsys.readouterr()
    assert printed.out == "" and message in printed.err


def test_a_changed_provenance_is_refused(folder, tmp_path, capsys):
    place = tmp_path / "run"
    place.mkdir()
    for name in GIVEN + MADE:
        (place / name).write_bytes((folder / "run" / name).read_bytes())
    record = place / "provenance.json"
    record.write_text(record.read_text().replace('"ranks": 1', '"ranks": 2'))
    assert export(str(place), "-o", str(tmp_path / "a.zip")) == 4
    assert "damaged" in capsys.readouterr().err and not (tmp_path / "a.zip").exists()
