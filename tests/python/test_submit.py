"""`mpibayes.submit` and its handle without SLURM: scripts stand in for its commands, a file for its memory of the job.

tests/slurm/test_from_python.py has the real ones.
"""

import json
import os
import shutil

import pandas as pd
import pytest

import mpibayes as mb
from mpibayes.hpc.python import job as handles
from mpibayes.hpc.slurm import batch_script
from tests.query.runs import people, write_csv

FEW = {"cycles": 4, "chains": 1, "burn_in": 1, "until_settled": False, "family": "mixture"}


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Programs that answer as SLURM's do. `says` sets the fields of the job; without any SLURM has forgotten it."""
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(batch_script, "_has_mpich_wheel", lambda: False)

    def program(name, text):
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)

    class Slurm:
        calls = tools / "calls"

        def says(self, **fields):
            words = " ".join(f"{name}={value}" for name, value in fields.items())
            answer = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"
            program("scontrol", f"echo 'JobId=77 JobName=a {words}'" if fields else answer)

    program("sbatch", "echo 77")
    program("scancel", f'echo "$@" >> {Slurm.calls}')
    Slurm.program = staticmethod(program)
    Slurm().says(JobState="PENDING", Reason="Resources", NodeList="(null)", ExitCode="0:0", StartTime="Unknown")
    return Slurm()


@pytest.fixture
def job(slurm, tmp_path):
    return mb.submit(write_csv(tmp_path / "people.csv", people(40)), tmp_path / "a", nodes=2, **FEW)


def test_data_and_settings_are_those_of_fit(slurm, tmp_path, capsys):
    """A DataFrame is imported first; the script runs the configuration that `fit` would have made."""
    frame = pd.DataFrame(people(40))
    job = mb.submit(
        frame, tmp_path / "a", nodes=2, ntasks_per_node=3, time="90m", partition="long", mpi="pmix",
        setup=["module load x"], sbatch=["--qos=y"], kinds={"age": "real"}, config={"run.shards": 6}, **FEW,
    )  # fmt: skip
    text = (tmp_path / "a.sbatch").read_text()
    for line in (
        "#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=3", "#SBATCH --time=01:30:00", "#SBATCH --partition=long",
        "#SBATCH --qos=y", "module load x", "launch=(srun --kill-on-bad-exit=1 --mpi=pmix)",
    ):  # fmt: skip
        assert f"\n{line}\n" in text
    given = next(line for line in text.splitlines() if line.startswith("set -- "))
    assert f"{tmp_path}/a.toml {tmp_path}/a " in given and "run.shards=6" in given and "run.cycles=4" in given
    assert {"a.parquet", "a.h5", "a.toml", "a.job.json"} <= set(os.listdir(tmp_path))
    assert job.number == "77" and job.log == tmp_path / "a-77.log"


@pytest.mark.thorough
def test_fit_goes_on_with_what_was_submitted(slurm, tmp_path):
    frame = pd.DataFrame(people(40))
    job = mb.submit(frame, tmp_path / "a", kinds={"age": "real"}, **FEW)
    mb.fit(frame, tmp_path / "a", kinds={"age": "real"}, progress=False, **FEW)
    assert isinstance(job.open().trace, pd.DataFrame) and len(job.open().trace) == 4
    assert len(mb.submitted(tmp_path / "a").open(draws=3).trace) == 4


def test_idle_ranks_are_a_warning_in_words_of_python(slurm, tmp_path, capsys):
    mb.submit(write_csv(tmp_path / "people.csv", people(40)), ntasks_per_node=3, **FEW)
    out = capsys.readouterr().out
    assert "warning: 3 ranks, but 1 shard" in out and "(run.shards, nodes=, ntasks_per_node=)" in out
    assert "note: column" in out and "unordered=" in out, "those of the import, too"
    assert mb.submitted(tmp_path / "runs" / "people").number == "77"


def test_where_it_stands(job, slurm, tmp_path):
    assert job.status().state == "pending" and "job 77: pending (Resources)" in repr(job)
    slurm.says(JobState="RUNNING", Reason="None", NodeList="n[1-2]", Restarts=1, ExitCode="0:0")
    assert str(job.status()) == "job 77: running (on n[1-2], 1 restart)" and str(tmp_path / "a") in repr(job)
    slurm.says(JobState="NODE_FAIL", ExitCode="0:9")
    assert str(job.status()) == "job 77: failed (NODE_FAIL, signal 9)"
    slurm.program("scontrol", "echo Unable to contact slurm controller >&2; exit 1")
    assert "Unable to contact" in repr(job), "a notebook shows it all the same"
    with pytest.raises(mb.ConfigError, match="does not answer about job 77"):
        job.status()


def test_waiting_has_an_end(job, slurm, monkeypatch):
    monkeypatch.setattr(handles, "FIRST_LOOK_S", 0.02)
    with pytest.raises(TimeoutError, match=r"job 77: pending \(Resources\), after 0.1 s"):
        job.wait(0.1)
    slurm.says(JobState="COMPLETED", ExitCode="0:0")
    assert job.wait(0.1, progress=False) is job
    slurm.program("scontrol", "echo Unable to contact slurm controller >&2; exit 1")
    with pytest.raises(TimeoutError, match="does not answer"):
        job.wait(0.1)


@pytest.mark.parametrize(
    "fields, kind, words",
    [
        ({"JobState": "FAILED", "ExitCode": "3:0"}, mb.DataError, r"failed \(exit code 3\); see the causes"),
        ({"JobState": "FAILED", "ExitCode": "2:0"}, mb.ConfigError, r"failed \(exit code 2\)"),
        ({"JobState": "FAILED", "ExitCode": "137:0"}, mb.MpibayesError, r"failed \(exit code 137\)"),
        ({"JobState": "FAILED", "ExitCode": "75:0"}, mb.MpibayesError, r"stopped \(exit code 75\); submit it again"),
        ({"JobState": "OUT_OF_MEMORY", "ExitCode": "0:125"}, mb.MpibayesError, "OUT_OF_MEMORY, signal 125"),
        ({"JobState": "CANCELLED", "ExitCode": "0:15"}, mb.MpibayesError, "job 77: cancelled; submit it again"),
        ({}, mb.MpibayesError, "SLURM has forgotten it"),
    ],
)
def test_the_end_of_a_job_that_failed(job, slurm, fields, kind, words):
    slurm.says(**fields)
    with pytest.raises(kind, match=words) as caught:
        job.wait(5, progress=False)
    assert type(caught.value) is kind and f"it has no log ({job.log})" in str(caught.value)
    job.log.write_text("".join(f"line {i}\n" for i in range(100)) + "mpibayes: error: table.h5: no such file\n")
    with pytest.raises(kind, match=r"the end of .*a-77\.log:") as caught:
        job.wait(5, progress=False)
    assert caught.value.problems[-1].endswith("table.h5: no such file") and len(caught.value.problems) == 15


def test_what_the_run_recorded_counts_once_slurm_has_forgotten(job, slurm, tmp_path):
    (tmp_path / "a").mkdir()
    slurm.says()
    for state, number, expected in (
        ("finished", "77", "finished"), ("failed", "77", "failed"), ("finished", "76", "unknown"),
        ("running", "77", "unknown"),
    ):  # fmt: skip
        (tmp_path / "a" / "status.json").write_text(json.dumps({"state": state, "job": number}))
        assert job.status().state == expected


def test_a_chain_of_jobs_is_followed(slurm, tmp_path):
    job = mb.submit(write_csv(tmp_path / "people.csv", people(40)), tmp_path / "a", chain=True, **FEW)
    assert json.loads((tmp_path / "a.job.json").read_text())["chain"] is True
    slurm.program(
        "scontrol",
        'case $4 in 77) echo JobId=77 JobState=FAILED ExitCode=75:0;; *) echo "JobId=$4 JobState=PENDING";; esac',
    )
    assert job.number == "77" and job.status().state == "stopped", "no log names a next one"
    job.log.write_text("job 78 continues when this one has ended; to stop the chain: scancel 77 78\n")
    job = mb.submitted(tmp_path / "a")
    assert job.number == "78" and job.status().state == "pending" and job.log == tmp_path / "a-78.log"
    job.log.write_text("job 79 continues when this one has ended\n")
    job.cancel()
    assert slurm.calls.read_text() == "78 79\n"


def test_cancelling_what_is_over_is_no_error(job, slurm):
    slurm.program("scancel", "echo 'scancel: error: Kill job error on job id 77: Invalid job id specified' >&2; exit 1")
    job.cancel()
    slurm.program("scancel", "echo 'scancel: error: Access/permission denied' >&2; exit 1")
    with pytest.raises(mb.ConfigError, match="could not end job 77") as caught:
        job.cancel()
    assert "permission denied" in str(caught.value)


@pytest.mark.parametrize(
    "words, message",
    [
        ({"time": "90"}, "time = 90: minutes or seconds?"),
        ({"time": "30s"}, "time=: 30 seconds are too short"),
        ({"nodes": 0}, "nodes = 0: expected a whole number"),
        ({"mpi": "pmi3"}, "mpi = 'pmi3': expected one of pmix"),
        ({"setup": "module load x"}, r"expected a list of lines, \['module load x'\]"),
        ({"sbatch": ["qos=long"]}, "with its dashes"),
        ({"config": {"run.cyles": 3}}, "did you mean run.cycles"),
        ({"directory": "nothing/../a\\b"}, "has a backslash"),
    ],
)
def test_what_is_refused(slurm, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    source = write_csv(tmp_path / "people.csv", people(40))
    with pytest.raises(mb.ConfigError, match=message):
        mb.submit(source, **{"directory": "a", **FEW, **words})
    assert not (tmp_path / "a.job.json").exists()


def test_places_that_cannot_be(slurm, tmp_path):
    source = write_csv(tmp_path / "people.csv", people(40))
    mb.import_table(source, tmp_path / "people.h5")
    config = tmp_path / "run.toml"
    config.write_text('[data]\ntable = "people.h5"\n[run]\ncycles = 4\n')
    with pytest.raises(mb.ConfigError, match="directory: name one that all nodes see"):
        mb.submit(pd.DataFrame(people(40)))
    (tmp_path / "file").touch()
    with pytest.raises(mb.ConfigError, match=r"file.*cannot be"):  # permissions do not bind root, so: no directory
        mb.submit(config, tmp_path / "file" / "a")
    with pytest.raises(mb.ConfigError, match="no job was submitted for it"):
        mb.submitted(tmp_path / "a")
    (tmp_path / "a.job.json").write_text('{"job": "77", "array": "1-4"}')
    with pytest.raises(mb.ConfigError, match="job 77 is an array"):
        mb.submitted(tmp_path / "a")


def test_another_file_of_the_same_name(slurm, job, tmp_path):
    """No advice to start over, which a job that is requeued would do each time."""
    slurm.says(JobState="COMPLETED", ExitCode="0:0")
    with pytest.raises(mb.ConfigError, match=r"it has changed since then. Choose another directory with directory=$"):
        mb.submit(write_csv(tmp_path / "people.csv", people(41)), tmp_path / "a", **FEW)
    (tmp_path / "a.h5").unlink()
    with pytest.raises(mb.ConfigError, match=r"is gone; choose another directory with directory=$"):
        mb.submit(write_csv(tmp_path / "people.csv", people(40)), tmp_path / "a", **FEW)


def test_words_of_sbatch_and_a_host_without_it(slurm, tmp_path, monkeypatch):
    source = write_csv(tmp_path / "people.csv", people(40))
    slurm.program("sbatch", "echo 'sbatch: error: invalid partition specified: long' >&2; exit 1")
    with pytest.raises(mb.ConfigError, match="sbatch refused") as caught:
        mb.submit(source, tmp_path / "a", partition="long", **FEW)
    assert "invalid partition specified: long" in str(caught.value) and not (tmp_path / "a.job.json").exists()
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(mb.ConfigError, match=r"there is no sbatch here; submit from a login node of the cluster$"):
        mb.submit(source, tmp_path / "b", **FEW)
    assert not (tmp_path / "b.h5").exists(), "nothing was imported in vain"
