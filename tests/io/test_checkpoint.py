"""Checkpoints: complete or absent, damage named, the generation before used, a full disk survived."""

import json
import os
import pickle
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mpibayes.errors import CheckpointError
from mpibayes.io import checkpoint
from mpibayes.io.checkpoint import begin, commit, discard, write_part
from mpibayes.io.generations import latest, previous

SHARDS_OF_RANKS = {0: (0, 1), 2: (2,), 3: (3, 4, 5)}  # first shard -> shards of one rank


def arrays_of(shard, cycle):
    generator = np.random.Generator(np.random.Philox(key=[shard, cycle]))
    return {
        "labels": generator.integers(0, 9, 50 + shard).astype(np.int32),
        "statistics/levels": generator.integers(0, 9, (7, 3)).astype(np.int32),
        "statistics/mean": generator.normal(size=(2, 3)),
        "empty": np.zeros((0, 4)),
        "owned": np.array([True, False]),
        "words": np.array([2**64 - 1, 0], dtype=np.uint64),
    }


def write(folder, cycle, extra=None, ranks=SHARDS_OF_RANKS):
    draft = begin(folder, cycle)
    parts = [write_part(draft, first, {i: arrays_of(i, cycle) for i in part}) for first, part in ranks.items()]
    return commit(draft, parts, {"cycle": cycle, "beta": np.arange(3.0)} | (extra or {}))


def same(found, expected):
    assert set(found) == set(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype and np.array_equal(found[name], array), name


def flip(path, at=None):
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 0x10
    path.write_bytes(data)


def names(folder):
    return sorted(os.listdir(folder))


def test_round_trip_of_arrays_and_shared_values(tmp_path):
    values = {"alpha": 0.1 + 0.2, "tiny": 5e-324, "n": np.int64(7), "on": True, "text": "naïve", "none": None}
    values["list"] = [1, {"a": 2.5}]
    write(tmp_path, 400, values | {"inf": float("inf"), "grid": np.linspace(0, 1, 5), "scalar": np.array(3)})
    generation = latest(tmp_path)
    assert (generation.cycle, generation.n_shards, generation.warnings) == (400, 6, [])
    shared = generation.shared()
    assert {name: shared[name] for name in values} == values and shared["inf"] == float("inf")
    assert type(shared["n"]) is int and shared["scalar"] == 3 and np.array_equal(shared["grid"], np.linspace(0, 1, 5))
    for i in range(6):
        same(generation.shard(i), arrays_of(i, 400))
    with pytest.raises(CheckpointError, match="no shard 6"):
        generation.shard(6)


def test_nothing_yet_is_none(tmp_path):
    assert latest(tmp_path / "absent") is None
    begin(tmp_path, 10)
    assert latest(tmp_path) is None


def test_two_generations_are_kept_and_other_files_are_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "000000050-copy").mkdir()
    for cycle in (100, 200, 300, 400):
        write(tmp_path, cycle)
    assert names(tmp_path) == ["000000050-copy", "000000300", "000000400", "notes.txt"]


def test_left_overs_of_a_dead_run_are_replaced(tmp_path):
    write(tmp_path, 100)
    draft = begin(tmp_path, 200)
    write_part(draft, 0, {0: arrays_of(0, 1), 1: arrays_of(1, 1)})
    (draft / "part-00001.h5").write_bytes(b"of a run on other ranks")
    assert latest(tmp_path).cycle == 100
    write(tmp_path, 200)
    assert names(tmp_path) == ["000000100", "000000200"]
    assert "part-00001.h5" not in names(tmp_path / "000000200")
    same(latest(tmp_path).shard(0), arrays_of(0, 200))


def test_the_same_cycle_again_replaces_its_generation(tmp_path):
    write(tmp_path, 100)
    write(tmp_path, 100, {"beta": np.arange(5.0)})
    assert names(tmp_path) == ["000000100"]
    assert len(latest(tmp_path).shared()["beta"]) == 5


def test_a_generation_put_aside_is_found_when_its_replacement_never_came(tmp_path):
    write(tmp_path, 100)
    # where a kill between the two renames of `commit` leaves it
    (tmp_path / "000000100").rename(tmp_path / "000000100.old")
    assert latest(tmp_path).cycle == 100
    write(tmp_path, 200)
    write(tmp_path, 300)
    assert names(tmp_path) == ["000000200", "000000300"]


def test_ranks_without_shards_write_nothing(tmp_path):
    draft = begin(tmp_path, 1)
    assert write_part(draft, 0, {}) is None
    part = write_part(draft, 0, {0: arrays_of(0, 1)})
    commit(draft, [part, None], {})
    assert latest(tmp_path).n_shards == 1


def test_a_missing_or_doubled_shard_is_refused(tmp_path):
    draft = begin(tmp_path, 1)
    part = write_part(draft, 0, {0: arrays_of(0, 1), 2: arrays_of(2, 1)})
    for parts in ([part], [part, part]):
        with pytest.raises(ValueError, match="every shard once"):
            commit(draft, parts, {})


DAMAGE = {
    "bit in a part": (lambda d: flip(d / "part-00002.h5"), "part-00002.h5: damaged"),
    "part cut short": (lambda d: os.truncate(d / "part-00003.h5", 100), "part-00003.h5: has 100 bytes where"),
    "part missing": (lambda d: (d / "part-00000.h5").unlink(), "part-00000.h5: No such file"),
    "bit in shared": (lambda d: flip(d / "shared.h5"), "shared.h5: damaged"),
    "manifest missing": (lambda d: (d / "MANIFEST.json").unlink(), "MANIFEST.json: No such file"),
    "manifest cut short": (lambda d: os.truncate(d / "MANIFEST.json", 60), "MANIFEST.json: damaged"),
    "manifest empty": (lambda d: os.truncate(d / "MANIFEST.json", 0), "MANIFEST.json: damaged"),
    "directory renamed": (lambda d: d.rename(d.with_name("000000999")), "is of cycle 400"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_named_and_the_generation_before_is_used(tmp_path, kind):
    damage, words = DAMAGE[kind]
    write(tmp_path, 300)
    write(tmp_path, 400)
    damage(tmp_path / "000000400")
    generation = latest(tmp_path)
    assert generation.cycle == 300
    assert len(generation.warnings) == 1 and words in generation.warnings[0] and str(tmp_path) in generation.warnings[0]
    same(generation.shard(4), arrays_of(4, 300))


def test_a_flipped_bit_anywhere_in_a_manifest_is_noticed(tmp_path):
    write(tmp_path, 400, ranks={0: (0,)})
    path = tmp_path / "000000400" / "MANIFEST.json"
    good = path.read_bytes()
    for at in range(0, len(good), 3):
        flip(path, at)
        try:
            generation = latest(tmp_path)
        except CheckpointError:
            pass
        else:  # a blank that became another blank, say
            assert generation.manifest == json.loads(good)
        path.write_bytes(good)


def test_none_usable_is_an_error_that_lists_each(tmp_path):
    write(tmp_path, 300)
    write(tmp_path, 400)
    flip(tmp_path / "000000300" / "part-00000.h5")
    (tmp_path / "000000400" / "shared.h5").unlink()
    with pytest.raises(CheckpointError) as caught:
        latest(tmp_path)
    assert caught.value.exit_code == 4
    assert "000000300/part-00000.h5: damaged" in str(caught.value)
    assert "000000400/shared.h5: No such file" in str(caught.value)


@pytest.mark.parametrize(
    "version, words",
    [
        ("5", "format version 5; this program reads version 4$"),
        ("2", "format version 2; this program reads version 4. An older mpibayes wrote it: finish the run with that"),
        ('"2"', "format version '2'; this program reads version 4$"),
    ],
)
def test_another_version_is_not_read(tmp_path, version, words):
    write(tmp_path, 400)
    path = tmp_path / "000000400" / "MANIFEST.json"
    path.write_text(path.read_text().replace('"version": 4', f'"version": {version}'))
    with pytest.raises(CheckpointError, match=re.compile(words, re.MULTILINE)):
        latest(tmp_path)


def test_damage_that_one_rank_finds_leads_all_to_the_generation_before(tmp_path):
    """Verify as the run loop does: root looks at sizes, each rank verifies what it reads, all agree."""
    for cycle in (300, 400):
        write(tmp_path, cycle)
    flip(tmp_path / "000000400" / "part-00003.h5")
    generation = pickle.loads(pickle.dumps(latest(tmp_path, deep=False)))
    assert generation.cycle == 400
    problems = [generation.verify_part(i) for i in range(6)]
    assert problems[:3] == [None] * 3 and all("part-00003.h5: damaged" in text for text in problems[3:])
    with pytest.raises(CheckpointError, match=r"part-00003\.h5: damaged"):
        generation.shard(4)
    older = previous(generation, problems)
    assert older.cycle == 300 and len(older.warnings) == 1 and "part-00003.h5" in older.warnings[0]
    flip(tmp_path / "000000300" / "part-00000.h5")
    with pytest.raises(CheckpointError) as caught:
        previous(older, [older.verify_part(0)])
    assert "000000300/part-00000.h5" in str(caught.value) and "000000400/part-00003.h5" in str(caught.value)


def test_a_sound_mark_does_not_travel_to_another_process(tmp_path):
    write(tmp_path, 400)
    generation = latest(tmp_path)
    copy = pickle.loads(pickle.dumps(generation))
    flip(tmp_path / "000000400" / "part-00000.h5")
    assert generation.verify_part(0) is None and copy.verify_part(0) is not None


def test_going_back_and_on_removes_the_damaged_future(tmp_path):
    for cycle in (300, 400):
        write(tmp_path, cycle)
    flip(tmp_path / "000000400" / "part-00000.h5")
    write(tmp_path, 350)
    assert names(tmp_path) == ["000000300", "000000350"]


def disk_full(*_):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("when", [1, 2, 3, 4])
def test_a_failing_flush_at_any_file_keeps_the_generation_before(tmp_path, monkeypatch, when):
    write(tmp_path, 300, ranks={0: (0,)})
    calls = []

    def fsync(fd, real=os.fsync):
        calls.append(fd)
        disk_full() if len(calls) == when else real(fd)

    monkeypatch.setattr(checkpoint.os, "fsync", fsync)
    with pytest.raises(CheckpointError, match="cannot be written: No space left on device") as caught:
        draft = begin(tmp_path, 400)
        try:
            commit(draft, [write_part(draft, 0, {0: arrays_of(0, 400)})], {"beta": np.arange(3.0)})
        finally:
            discard(draft)  # what root does when a rank could not write its part
    monkeypatch.undo()
    assert caught.value.exit_code == 4 and str(tmp_path) in str(caught.value)
    assert names(tmp_path) == ["000000300"] and latest(tmp_path).cycle == 300


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("mounting a small file system needs root")
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount a small file system here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk(small_disk):
    write(small_disk, 300)
    for _ in range(3):  # and it stays usable, again and again
        draft = begin(small_disk, 400)
        with pytest.raises(CheckpointError, match=r"part-00000\.h5: cannot be written: No space left on device"):
            write_part(draft, 0, {0: {"labels": np.zeros(1 << 19, dtype=np.int32)}})
        discard(draft)
        assert names(small_disk) == ["000000300"] and latest(small_disk).cycle == 300
    draft = begin(small_disk, 400)
    part = write_part(draft, 0, {0: arrays_of(0, 400)})
    with pytest.raises(CheckpointError, match=r"shared\.h5: cannot be written: No space left on device"):
        commit(draft, [part], {"big": np.zeros(1 << 18)})
    assert names(small_disk) == ["000000300"]
    write(small_disk, 400)
    assert latest(small_disk).cycle == 400


def test_two_drafts_of_one_cycle_have_nothing_in_common(tmp_path):
    """A run that was frozen goes on with its draft while another that has taken over works on its own."""
    frozen = begin(tmp_path, 100)
    mine = begin(tmp_path, 100)
    part = write_part(mine, 0, {0: arrays_of(0, 100)})
    write_part(frozen, 0, {0: arrays_of(0, 100), 1: arrays_of(1, 100)})
    discard(frozen)
    commit(mine, [part], {"cycle": 100})
    assert names(tmp_path) == ["000000100"] and latest(tmp_path).n_shards == 1


def test_an_unwritable_place_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot be written: (Not a directory|File exists)"):
        begin(tmp_path / "file", 1)


def test_only_numbers_are_stored(tmp_path):
    draft = begin(tmp_path, 1)
    with pytest.raises(TypeError, match="names: a checkpoint holds arrays of numbers"):
        write_part(draft, 0, {0: {"names": np.array(["a"])}})
    with pytest.raises(TypeError, match="cannot hold ndarray inside a JSON value"):
        commit(draft, [write_part(draft, 0, {0: {}})], {"x": {"y": np.zeros(3)}})


def test_the_documented_reader_reads(tmp_path):
    """docs/files.md promises a reader of 40 lines that knows nothing but h5py."""
    code = (Path(__file__).parents[2] / "examples" / "checkpoint" / "read_checkpoint.py").read_text()
    assert len(code.splitlines()) < 50 and "mpibayes." not in code
    scope = {"__name__": "reader"}
    exec(code, scope)  # a program of ours
    write(tmp_path / "checkpoints", 400, {"concentration": 1.5})
    cycle, shared, shards = scope["read_checkpoint"](tmp_path)
    assert cycle == 400 and shared["concentration"] == 1.5 and np.array_equal(shared["beta"], np.arange(3.0))
    for i in range(6):
        same(shards[i], arrays_of(i, 400))
    flip(tmp_path / "checkpoints" / "000000400" / "part-00002.h5")
    with pytest.raises(ValueError, match=r"part-00002\.h5"):
        scope["read_checkpoint"](tmp_path)


# --- who lost the directory -------------------------------------------------------------------------------------------


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_who_lost_the_directory_completes_nothing_and_removes_nothing(tmp_path):
    """Whenever it is lost, there is a whole generation, and what is there stays."""

    ranks = SHARDS_OF_RANKS.items()

    def guard():
        nonlocal left
        left -= 1
        if left < 0:
            raise CheckpointError("taken over")

    for lost in range(20):
        folder = tmp_path / str(lost)
        write(folder, 100)
        write(folder, 200)
        before, left = contents(folder), lost
        try:
            draft = begin(folder, 300, guard)
            parts = [write_part(draft, first, {i: arrays_of(i, 300) for i in part}) for first, part in ranks]
            commit(draft, parts, {"cycle": 300}, guard=guard)
        except CheckpointError as error:
            assert str(error) == "taken over"
        else:
            break
        after = contents(folder)
        assert before.items() <= after.items()
        assert latest(folder).cycle == (300 if Path("000000300/MANIFEST.json") in after else 200)
    assert lost == 4 and names(folder) == ["000000200", "000000300"]  # begin, commit, its rename, and one removal
