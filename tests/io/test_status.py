"""The status of a run, from any node: alive, silent, died, finished, never started."""

import io
import json
import os
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from rich.console import Console

from mpibayes.errors import CheckpointError, ConfigError, DataError
from mpibayes.hpc.run.identity import write_provenance, write_resolved
from mpibayes.hpc.run.lock import place
from mpibayes.hpc.run.status import liveness, read_status, show_status, write_status
from mpibayes.io.files import chain_directories
from mpibayes.io.finished import FOLDER, Finished
from mpibayes.text import duration

STATUS = {
    "state": "running",
    "family": "mixture",
    "cycle": 400,
    "cycles": 1600,
    "n_clusters": 37,
    "log_joint": -12345678.25,
    "concentration": 1.84,
    "discount": 0.0,
    "moved_fraction": 0.031,
    "heldout_lpd": -42.125,
    "seconds_per_cycle": 0.82,
    "rows_per_second": 218989.0,
    "eta_s": 984.0,
    "elapsed_s": 11100.0,
    "last_checkpoint": 380,
    "ranks": 2,
    "shards": 4,
    "host": "node17",
    "pid": 4242,
    "message": "",
}


def ago(**span):
    return (datetime.now(UTC) - timedelta(**span)).isoformat(timespec="seconds")


def shown(directory, as_json=False):
    console = Console(file=io.StringIO(), width=120)
    show_status(directory, as_json, console)
    return console.file.getvalue()


def test_round_trip(tmp_path):
    numbers = {"log_joint": np.float64(-1.5), "heldout_lpd": float("nan"), "n_clusters": np.int64(3)}
    write_status(tmp_path, STATUS | numbers)
    status = read_status(tmp_path)
    assert status["log_joint"] == -1.5 and status["heldout_lpd"] is None and status["n_clusters"] == 3
    assert datetime.fromisoformat(status["updated"]).tzinfo is not None
    assert os.listdir(tmp_path) == ["status.json"]


def test_what_people_see(tmp_path):
    write_status(tmp_path, STATUS)
    text = shown(tmp_path)
    expected = ["running", "400 of 1600 (25.0 %)", "0.82 s a cycle, 218,989 rows a second", "16 min 24 s", "3 h 5 min"]
    expected += ["37", "-12345678", "3.10%", "-42.125 a row", "cycle 380", "2 ranks, 4 shards, node17, process 4242"]
    for words in expected:
        assert words in text, words
    assert "message" not in text


def test_rows_are_told_while_they_come_in(tmp_path):
    write_status(tmp_path, STATUS | {"active_rows": 12_345, "rows": 180_000})
    assert "12,345 of 180,000 are in; no draws count yet" in shown(tmp_path)
    assert json.loads(shown(tmp_path, as_json=True))["active_rows"] == 12_345
    write_status(tmp_path, STATUS | {"active_rows": 180_000, "rows": 180_000})
    assert "180,000" not in shown(tmp_path)


def test_a_run_that_has_just_started_has_gaps(tmp_path):
    write_status(tmp_path, {"state": "running", "cycle": None, "cycles": 100, "eta_s": None})
    assert "running" in shown(tmp_path)


def test_alive_silent_and_died(tmp_path):
    here = {"host": socket.gethostname(), "place": place()}
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    cases = [
        (STATUS | {"updated": ago(minutes=1)}, True, "running"),
        (STATUS | {"updated": ago(hours=2, minutes=3)}, False, "silent for 2 h 3 min: it may have died on node17"),
        (STATUS | {"updated": ago(hours=2), "seconds_per_cycle": 3600.0}, True, "running"),
        (STATUS | here | {"updated": ago(hours=2), "pid": os.getpid()}, True, "running"),
        (STATUS | here | {"updated": ago(seconds=5), "pid": child.pid}, False, f"died: process {child.pid} is gone"),
        (STATUS | here | {"place": "another boot", "updated": ago(seconds=5), "pid": child.pid}, True, "running"),
        (STATUS | here | {"started": 1, "updated": ago(seconds=5), "pid": os.getpid()}, False, "died"),
        (STATUS | {"updated": ago(minutes=-9)}, True, "from now, by the clock of node17, which is ahead of"),
        (STATUS | {"updated": "nonsense"}, None, "unknown whether"),
        (STATUS | here | {"state": "waiting", "updated": ago(hours=2), "pid": os.getpid()}, True, "waiting"),
        (STATUS | here | {"state": "waiting", "pid": child.pid}, False, f"died: process {child.pid} is gone"),
        (STATUS | {"state": "waiting", "updated": ago(hours=2)}, None, "state waiting cycle"),
        (STATUS | {"state": "searching", "updated": ago(hours=2)}, None, "state searching cycle"),
        (STATUS | here | {"state": "searching", "pid": os.getpid()}, True, "state searching cycle"),
        (STATUS | here | {"state": "searching", "pid": child.pid}, False, f"died: process {child.pid} is gone"),
        (STATUS | {"state": "finished", "updated": ago(days=9)}, False, "finished"),
        (STATUS | {"state": "stopped", "updated": ago(days=9)}, False, "9 d 0 h ago"),
    ]
    for status, alive, words in cases:
        assert liveness(status)[0] is alive, status
        write_status(tmp_path, status)
        assert words in " ".join(shown(tmp_path).split())
        result = json.loads(shown(tmp_path, as_json=True))
        assert result["alive"] is alive and result["cycle"] == 400 and result["directory"] == str(tmp_path)


def test_a_chain_that_died_says_where_it_goes_on(tmp_path):
    """From a checkpoint, after the searches that it had finished, or from the beginning."""
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    here = {"place": place(), "pid": child.pid, "message": "initial search 2 of 3 (since 08:12:30)"}
    write_status(tmp_path, STATUS | here)
    assert "the same command continues from the last checkpoint" in " ".join(shown(tmp_path).split())
    write_status(tmp_path, STATUS | here | {"state": "searching", "last_checkpoint": 0})
    text = " ".join(shown(tmp_path).split())
    assert "the same command starts it anew" in text and "search 2 of 3" not in text
    Finished(tmp_path / FOLDER, "run-1").put("0", {})
    assert "starts it again; 1 finished search is kept" in " ".join(shown(tmp_path).split())


def test_chains_that_wait_and_chains_that_have_not_begun(tmp_path):
    """One that waits and whose process is gone says no more what it waits for."""
    write_provenance(tmp_path, {"run": "a", "table": "t.h5", "fingerprint": "f", "starts": []})
    write_resolved(tmp_path, "[run]\nchains = 3\n")
    for n in (1, 2):
        (tmp_path / f"chain-{n}").mkdir()
    here = {"place": place(), "pid": os.getpid(), "state": "waiting", "message": "for the other chains"}
    write_status(tmp_path / "chain-1", STATUS | here)
    write_status(tmp_path / "chain-2", STATUS | here | {"started": 1})
    lines = shown(tmp_path).splitlines()
    assert "chain-1: waits for the other chains" in lines and not any(line.startswith("chain-2:") for line in lines)
    states = [row["state"] for row in json.loads(shown(tmp_path, as_json=True))["chains"]]
    assert states == ["waiting", "waiting", "not started"] and "chain-3  not started" in " ".join(lines)


def test_several_chains(tmp_path):
    for n in (1, 2, 10):
        (tmp_path / f"chain-{n}").mkdir()
    with pytest.raises(ConfigError, match="none of its 3 chains has started"):
        show_status(tmp_path)
    write_status(tmp_path / "chain-1", STATUS | {"state": "finished", "cycle": 1600})
    write_status(tmp_path / "chain-2", STATUS | {"message": "checkpoint 360 was damaged"})
    lines = shown(tmp_path).splitlines()
    assert "finished" in lines[2] and "400 of 1600" in lines[3] and "not started" in lines[4] and "chain-10" in lines[4]
    assert "chain-2: checkpoint 360 was damaged" in lines[5]
    result = json.loads(shown(tmp_path, as_json=True))["chains"]
    assert [row["state"] for row in result] == ["finished", "running", "not started"]


def test_refusals(tmp_path):
    with pytest.raises(ConfigError, match="there is no such directory"):
        show_status(tmp_path / "absent")
    with pytest.raises(ConfigError, match="no run was started in this directory"):
        show_status(tmp_path)
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "config.resolved.toml").write_text("")
    assert "not started" in shown(tmp_path / "begun") and "no chain has begun" in shown(tmp_path / "begun")
    for text in ("{", "", "[1]"):
        (tmp_path / "status.json").write_text(text)
        with pytest.raises(DataError, match=r"status\.json: damaged"):
            show_status(tmp_path)
    with pytest.raises(CheckpointError, match=r"status\.json: cannot be written: No such file"):
        write_status(tmp_path / "absent", STATUS)


def test_duration():
    spans = [None, 0.4, 59, 61, 3599, 3661, 86400 + 7300]
    assert [duration(s, words=True) for s in spans] == [
        "-",
        "0 s",
        "59 s",
        "1 min 1 s",
        "59 min 59 s",
        "1 h 1 min",
        "1 d 2 h",
    ]


@pytest.mark.parametrize("field, value", [
    ("cycle", "400"), ("cycles", [1]), ("rows", 1.5), ("ranks", {}), ("rows_per_second", "fast"), ("eta_s", [1]),
    ("seconds_per_cycle", True), ("family", ["mixture"]), ("state", {}), ("updated", 7), ("active_rows", "many"),
])  # fmt: skip
def test_fields_of_another_type_are_damage(tmp_path, field, value):
    (tmp_path / "status.json").write_text(json.dumps(STATUS | {field: value}))
    with pytest.raises(DataError, match=f"damaged: {field} should be a"):
        show_status(tmp_path)


@pytest.mark.parametrize("updated", ["0001-01-01T00:00:00", "9999-12-31T23:59:59", "yesterday"])
def test_a_time_at_the_edge_of_the_calendar_is_no_failure(tmp_path, updated):
    extreme = {"updated": updated, "eta_s": 1e308, "elapsed_s": 10**300, "log_joint": 10**300, "pid": 10**300}
    (tmp_path / "status.json").write_text(json.dumps(STATUS | extreme))
    assert "cycle 380" in shown(tmp_path)


def test_a_table_in_the_place_of_a_run_is_answered_with_the_run_made_from_it(tmp_path):
    (tmp_path / "people.csv").write_text("a\n1\n")
    with pytest.raises(ConfigError, match=r"people\.csv: this is a file\. Expected .*`mpibayes run`\)\."):
        chain_directories(tmp_path / "people.csv")
    (tmp_path / "runs" / "people").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r", such as .*runs/people\."):
        chain_directories(tmp_path / "people.csv")
