"""`mpibayes.submit` and its handle with a real queue; the rest of what they do is in tests/python/test_submit.py."""

import subprocess
import sys

import pytest

import mpibayes as mb
from tests.slurm.conftest import ENDLESS

pytestmark = [pytest.mark.slurm, pytest.mark.thorough, pytest.mark.timeout(230)]

# Another session, as a notebook after its restart.
AGAIN = """
import sys, mpibayes as mb
job = mb.submitted("runs/a")
print(job)
print(len(job.wait(120, progress=False).open().trace))
"""


@pytest.fixture
def here(place, monkeypatch):
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, place.cluster.env[name])
    monkeypatch.chdir(place.folder)
    return place


def submit(here, **words):
    job = mb.submit("run.toml", "runs/a", nodes=2, ntasks_per_node=1, **words)
    here.jobs.append(job.number)
    return job


def test_a_run_is_watched_cancelled_and_finished_from_another_session(here):
    job = submit(here)
    assert here.cluster.state(job.number) in ("PENDING", "RUNNING")
    with pytest.raises(mb.ConfigError, match=f"job {job.number} of this run is in the queue"):
        submit(here)
    here.wait_until_it_works("runs/a", job.number)
    assert job.status().state == "running" and f"/{ENDLESS}" in repr(job)
    with pytest.raises(TimeoutError, match=r"running \(on n\[1-2\]\)"):
        job.wait(0.5)
    mb.submitted("runs/a").cancel()
    with pytest.raises(mb.MpibayesError, match="cancelled; submit it again") as caught:
        job.wait(60)
    assert any("CANCELLED" in line for line in caught.value.problems)
    here.set_cycles(here.last_checkpoint("runs/a") + 6)
    after = submit(here)
    done = subprocess.run([sys.executable, "-c", AGAIN], cwd=here.folder, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    assert f"job {after.number}: " in done.stdout
    assert int(done.stdout.splitlines()[-1]) == len(after.open().trace) < ENDLESS
    after.cancel()  # it is over


def test_what_fails_in_the_job_fails_here(here):
    with pytest.raises(mb.ConfigError, match="sbatch refused") as caught:
        submit(here, partition="nowhere")
    assert "invalid partition specified: nowhere" in str(caught.value)
    job = submit(here, setup=["mv table.h5 elsewhere.h5"])
    with pytest.raises(mb.DataError, match=rf"job {job.number}: failed \(exit code 3\)") as caught:
        job.wait(60)
    assert "table.h5: no such file" in str(caught.value)
    assert job.status().state == "failed"
