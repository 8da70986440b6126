"""A chain that had a checkpoint, and one that never had."""

import functools
import itertools
import json
import shutil

import pytest

from mpibayes.hpc.run import directory as run_directory
from mpibayes.hpc.run import identity as records
from mpibayes.hpc.run import lock
from mpibayes.hpc.run.clock import Clock
from mpibayes.io import checkpoint, draws, files, trace
from tests.faults.cases import exports, mpibayes
from tests.faults.small import TEXT, done, half_way, start
from tests.io.test_segments import count_rows

CHAINS = pytest.mark.parametrize("chains", [1, 2])


@pytest.fixture(scope="module")
def halves(tmp_path_factory):
    """`halves(folder, chains)`: a run half-way in `folder`, which is made once and copied."""

    @functools.cache
    def made(chains):
        text = TEXT.replace("[run]\n", f"[run]\nchains = {chains}\n") if chains > 1 else TEXT
        return half_way(tmp_path_factory.mktemp("half-way") / "place", text)

    return lambda folder, chains=1: shutil.copytree(made(chains), folder)


def places(folder, chains):
    return [folder / "run"] if chains == 1 else [folder / "run" / f"chain-{i + 1}" for i in range(chains)]


@pytest.mark.thorough
@CHAINS
def test_a_chain_that_lost_its_checkpoints_and_its_status_is_refused(halves, tmp_path, chains):
    """The run started again, and dropped its trace without a warning."""
    place = halves(tmp_path / "place", chains)
    last = places(place, chains)[-1]
    whole = tmp_path / "whole"
    shutil.copytree(last, whole)
    shutil.rmtree(last / "checkpoints")
    (last / "status.json").unlink()
    for _ in range(2):
        code, text = start(place)
        assert code == 4 and f"{last / 'checkpoints'}: empty, but the chain had a checkpoint" in text, text
        assert "--fresh" in text
    assert count_rows(last / "trace") == 8 and count_rows(last / "labels") == 4
    shutil.copytree(whole / "checkpoints", last / "checkpoints")
    done(start(place))


@CHAINS
def test_a_chain_whose_folders_are_all_gone_starts_anew(halves, tmp_path, chains):
    """Nothing is lost by that."""
    place = halves(tmp_path / "place", chains)
    last = places(place, chains)[-1]
    for name in ("checkpoints", "trace", "labels"):
        shutil.rmtree(last / name)
    (last / "status.json").unlink()
    done(start(place))


@pytest.mark.thorough
def test_a_run_that_ended_before_its_first_checkpoint_goes_on(halves, tmp_path, monkeypatch):
    """Full buffers are written before it, and so is the trace that belongs to it."""
    place = halves(tmp_path / "place")
    done(start(place))
    expected = exports(place / "run", tmp_path / "exported")
    shutil.rmtree(place / "run")
    with monkeypatch.context() as patch:
        patch.setattr(trace, "BUFFERED", 300)
        patch.setattr(checkpoint.os, "rename", lambda *paths: (_ for _ in ()).throw(OSError(5, "no")))
        code, text = start(place)
    assert code == 4 and "cannot be written" in text
    assert count_rows(place / "run" / "trace") == 12 and not list((place / "run" / "checkpoints").iterdir())
    (place / "run" / "status.json").unlink()
    done(start(place))
    assert exports(place / "run", tmp_path / "exported") == expected


def test_a_run_that_was_killed_before_it_noted_its_checkpoint_goes_on_and_notes_it(halves, tmp_path):
    from mpibayes.hpc.run import identity as records

    place = halves(tmp_path / "place")
    record = records.read_provenance(place / "run")
    assert record.pop("checkpoints") == [0]
    records.write_provenance(place / "run", record)
    done(start(place))
    assert records.read_provenance(place / "run")["checkpoints"] == [0]


def test_an_owner_that_thaws_changes_nothing(tmp_path, monkeypatch):
    """Its buffers are full, and are written between two checkpoints."""
    monkeypatch.setattr(trace, "BUFFERED", 1)
    monkeypatch.setattr(draws, "BUFFERED", 1)
    place = half_way(tmp_path / "place")
    run, cycles, left = place / "run", [], {}

    def cycle_took(self, seconds):
        cycles.append(seconds)
        if len(cycles) == 2:  # frozen for a moment
            owner = json.loads((run / lock.NAME).read_text())
            (run / lock.NAME).write_text(json.dumps(owner | {"token": "another", "pid": 4711}))
            left.update({p: p.read_bytes() for p in run.rglob("*") if p.is_file() and p.name != "run.log"})

    monkeypatch.setattr(Clock, "cycle_took", cycle_took)
    code, text = mpibayes("run", place / "run.toml", "-o", run)
    assert code == 4 and "was taken over by process 4711" in text, text
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file() and p.name != "run.log"} == left


@pytest.mark.thorough
@CHAINS
def test_every_directory_of_a_run_is_on_disk_in_its_parent(tmp_path, monkeypatch, chains):
    events = []
    mkdir, sync = files.Path.mkdir, files.sync_directory

    def made(path, *arguments, **options):
        mkdir(path, *arguments, **options)
        events.append(path)

    def synced(path):
        events.append(("synced", path))
        sync(path)

    monkeypatch.setattr(files.Path, "mkdir", made)
    monkeypatch.setattr(files, "sync_directory", synced)
    half_way(tmp_path / "place", TEXT.replace("[run]\n", f"[run]\nchains = {chains}\n"))
    names = {"run", "checkpoints", "trace", "labels", "logs"} | ({"chain-1", "chain-2"} if chains == 2 else set())
    result = set()
    for event, then in itertools.pairwise(events):
        if isinstance(event, files.Path) and event.suffix != ".tmp" and event.name != "place":
            assert then == ("synced", event.parent), event
            result.add(event.name)
    assert result == names


def taken_over(folder):
    """Take over, as if another run had found this one dead."""
    (folder / lock.NAME).write_text(json.dumps({"host": "elsewhere", "token": "other"}))


@pytest.mark.parametrize("when", ["new_name", "resolved_toml", "record_start", "write_training_rows"])
def test_a_run_that_was_frozen_at_its_start_writes_nothing(halves, tmp_path, monkeypatch, when):
    """The run overwrote the name of the one that had taken over, whose checkpoints then were another run's."""
    place = halves(tmp_path / "place")
    first = when in ("new_name", "resolved_toml")
    if first:
        shutil.rmtree(place / "run")
    module = {"new_name": records}.get(when, run_directory)
    freeze = getattr(module, when)
    before = {}

    def thaw(*words, **more):
        before.update(contents(place / "run"))
        taken_over(place / "run")
        return freeze(*words, **more)

    monkeypatch.setattr(module, when, thaw)
    code, text = start(place, "--set", "run.cycles=12")
    assert code == 4 and "writes nothing more" in text, text
    after = contents(place / "run")
    assert {name: data for name, data in after.items() if name != lock.NAME} == {
        name: data for name, data in before.items() if name != lock.NAME
    }


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_fresh_leaves_a_run_that_has_taken_over_where_it_is(halves, tmp_path, monkeypatch):
    place = halves(tmp_path / "place")
    take = lock.Lock.take

    def thaw(self, folder):
        take(self, folder)
        taken_over(folder)

    monkeypatch.setattr(lock.Lock, "take", thaw)
    code, text = start(place, "--fresh")
    assert code == 4 and "writes nothing more" in text, text
    assert not (place / "run.old-1").exists() and count_rows(place / "run" / "trace") == 8


@pytest.mark.thorough
@pytest.mark.parametrize("dangling", [False, True])
def test_a_run_directory_that_is_a_link(halves, tmp_path, dangling):
    place = halves(tmp_path / "place")
    (place / "run").rename(tmp_path / "elsewhere")
    (place / "run").symlink_to(tmp_path / "elsewhere")
    if dangling:
        shutil.rmtree(tmp_path / "elsewhere")
    done(start(place))
    done(start(place, "--fresh"))
    assert (place / "run").is_symlink() and count_rows(place / "run" / "trace") == 12


def test_what_a_killed_writer_left_is_removed(halves, tmp_path):
    place = halves(tmp_path / "place")
    left = [place / "run" / name for name in ("status.json", "trace/seg-000000001-000000004.h5", "config.toml")]
    left = [path.with_name(f"{path.name}.0123456789abcdef.tmp") for path in left]
    report = place / "run" / "trace.h5.0123456789abcdef.tmp"  # which may be writing it now
    for path in (*left, report):
        path.write_text("half")
    done(start(place))
    assert not any(path.exists() for path in left) and report.exists()
