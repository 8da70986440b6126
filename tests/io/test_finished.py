"""Finished parts of a long step come back to their owner, whole or not at all."""

import os

import numpy as np
import pytest

from mpibayes.errors import CheckpointError
from mpibayes.io.finished import FOLDER, Finished, n_finished

ARRAYS = {"sizes": np.arange(5), "scores": np.array([-1.5, np.nan]), "none": np.zeros((0, 3)), "n": np.array(2)}


def test_a_part_comes_back_to_its_owner_alone(tmp_path):
    mine, other = (Finished(tmp_path / FOLDER, owner) for owner in ("run-1 0.1", "run-2 0.1"))
    assert mine.get("0") is None and n_finished(tmp_path) == 0
    mine.put("0", ARRAYS)
    result = mine.get("0")
    assert result.keys() == ARRAYS.keys() and n_finished(tmp_path) == 1
    for name, array in ARRAYS.items():
        assert result[name].dtype == array.dtype and np.array_equal(result[name], array, equal_nan=name == "scores")
    assert other.get("0") is None and mine.get("1") is None
    mine.clear()
    mine.clear()
    assert not os.listdir(tmp_path) and mine.get("0") is None


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-9], lambda b: b"", lambda b: b[:99] + b"?" + b[100:], lambda b: b[9:]]
)
def test_a_damaged_part_is_computed_again(tmp_path, damage):
    parts = Finished(tmp_path / FOLDER, "run-1")
    parts.put("0", ARRAYS)
    file = tmp_path / FOLDER / "0.h5"
    file.write_bytes(damage(file.read_bytes()))
    assert parts.get("0") is None
    parts.put("0", ARRAYS)
    assert parts.get("0") is not None


def test_other_files_in_the_folder_are_no_finished_parts(tmp_path):
    Finished(tmp_path / FOLDER, "run-1").put("0", ARRAYS)
    (tmp_path / FOLDER / "1.h5").write_bytes((tmp_path / FOLDER / "0.h5").read_bytes()[:-9])
    (tmp_path / FOLDER / "mine.h5").write_text("a table")
    (tmp_path / FOLDER / "2.h5").mkdir()
    assert n_finished(tmp_path) == 1


def test_a_disk_that_fails_costs_only_time_and_a_lost_directory_ends_the_run(tmp_path):
    Finished(tmp_path / "moved" / FOLDER, "run-1").put("0", ARRAYS)
    assert not os.listdir(tmp_path)

    def lost():
        raise CheckpointError("taken over")

    with pytest.raises(CheckpointError):
        Finished(tmp_path / FOLDER, "run-1", lost).put("0", ARRAYS)
    assert not os.listdir(tmp_path)
