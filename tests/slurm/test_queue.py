"""The shipped batch scripts in a real queue: signalled, requeued, chained, on lost nodes, with other numbers of ranks.

In the end every run is, byte for byte, what one process gets that is never stopped. The runs have no end until a test
gives them one, so no test depends on how fast the machine is.
"""

import re
from pathlib import Path

import pytest

from tests.run.conftest import config_text

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(230)]

OFTEN = ("--set", "run.checkpoint_minutes=0.001")  # a checkpoint after every cycle or two


@pytest.mark.thorough
def test_rounds_in_the_queue_and_other_numbers_of_ranks(place):
    """Signal, checkpoint, requeue, continue; 4 ranks on two nodes, then 3, then 2 on one node."""
    cluster = place.cluster
    asked = ("-o", "runs/a", "--nodes", 2, "--ntasks-per-node", 2, "--time", "20m")
    script = place.folder / "runs" / "a.sbatch"
    script.parent.mkdir()
    script.write_text(place.mpibayes("submit", "run.toml", *asked, "--dry-run").stdout)
    (place.folder / "ranks").write_text("4")
    launch = script.read_text().replace("launch=(srun ", 'launch=(srun --overcommit -n "$(cat ranks)" ')
    script.write_text(launch)
    job = cluster.submit(script, cwd=place.folder)
    place.jobs.append(job)

    place.wait_until_it_works("runs/a", job)
    assert place.status("runs/a")["ranks"] == 4
    place.stop(job, 1, "--batch")  # as before a time limit: the script alone gets the signal
    (place.folder / "ranks").write_text("3")
    place.wait_until_it_works("runs/a", job, 1)
    assert place.status("runs/a")["ranks"] == 3
    place.stop(job, 2)  # the ranks get the signal from SLURM itself
    (place.folder / "ranks").write_text("2")
    cluster.run("scontrol", "update", f"JobId={job}", "NumNodes=1-1", "NumTasks=2")
    cycles = place.finish_soon("runs/a")
    assert cluster.wait_until_ended(job) == "COMPLETED"
    assert cluster.field(job, "NumNodes") == "1"

    log = place.log("runs/a-*.log")
    assert [f"restart {n} of at most 50" in log for n in range(4)] == [True] * 3 + [False], log
    assert log.count("back to the queue") == 2 and log.count("stopped early (SIGUSR1)") == 2, log
    assert place.status("runs/a")["cycle"] == cycles and place.status("runs/a")["state"] == "finished"
    place.same_as_straight("runs/a")


@pytest.mark.thorough
def test_an_array_of_three_chains(place):
    """Each task has its seed and its directory, and only the task that was stopped is requeued."""
    cluster = place.cluster
    place.set_cycles(150)
    job = place.submit("-o", "runs/b", "--array", 3, "--ntasks-per-node", 2, "--set", f"run.cycles={10**6}")
    tasks = [f"{job}_{n}" for n in (1, 2, 3)]
    script = place.folder / "runs" / "b.sbatch"
    assert f"--set run.cycles={10**6}" in script.read_text()
    for n in (1, 2, 3):
        cluster.wait_for(
            lambda n=n: place.status(f"runs/b/seed-{n}").get("state") == "running", what=f"chain {n} to work"
        )
    place.stop(tasks[2], 1, "--batch")  # the last task has the number of the whole array
    assert [cluster.restarts(task) for task in tasks] == [0, 0, 1]
    place.wait_until_it_works("runs/b/seed-3", tasks[2], 1)
    for task in tasks:
        cluster.run("scancel", task)
    for task in tasks:
        assert cluster.wait_until_ended(task) == "CANCELLED"
    assert [cluster.restarts(task) for task in tasks] == [0, 0, 1], "a cancelled task is not requeued"

    cycles = max(place.status(f"runs/b/seed-{n}")["last_checkpoint"] for n in (1, 2, 3)) + 12
    job = place.submit("-o", "runs/b", "--array", 3, "--ntasks-per-node", 1, "--set", f"run.cycles={cycles}")
    assert "old-1" in " ".join(p.name for p in script.parent.iterdir())  # the first script was set aside
    for n in (1, 2, 3):
        assert cluster.wait_until_ended(f"{job}_{n}") == "COMPLETED", place.log("runs/b-*.log")
    place.same_as_straight("runs/b/seed-3", "--set", "run.seed=3", "--set", f"run.cycles={cycles}")
    done = place.mpibayes("report", *(f"runs/b/seed-{n}" for n in (1, 2, 3)), "-o", "report")
    assert done.returncode == 0, done.stderr


@pytest.mark.thorough
def test_a_chain_of_jobs(place):
    """Every job has its successor in the queue before it works; the last one calls its own off."""
    cluster = place.cluster
    job = first = place.submit("-o", "runs/c", "--chain", "--nodes", 2, "--ntasks-per-node", 1)
    for link in range(2):
        place.wait_until_it_works("runs/c", job, restarts=0)
        after = str(int(job) + 1)
        assert cluster.state(after) == "PENDING" and job in cluster.field(after, "Dependency")
        place.jobs.append(after)
        cluster.run("scancel", "--batch", "--signal=USR1", job)
        assert cluster.wait_until_ended(job) == "FAILED"
        assert cluster.field(job, "ExitCode") == "75:0"
        if link == 1:
            place.finish_soon("runs/c")
        job = after
    assert cluster.wait_until_ended(job) == "COMPLETED"
    assert cluster.wait_until_ended(str(int(job) + 1)) == "CANCELLED"
    assert f"to stop the chain: scancel {first} {int(first) + 1}" in place.log("runs/c-*.log")
    place.same_as_straight("runs/c")


@pytest.mark.thorough
def test_a_node_goes_down(place):
    """SLURM requeues the job, or fails it where that is forbidden; either way the run goes on where it was."""
    cluster = place.cluster
    job = place.submit("-o", "runs/d", "--nodes", 2, "--ntasks-per-node", 2)
    place.wait_until_it_works("runs/d", job)
    cluster.lose("n2")
    cluster.wait_for(lambda: cluster.restarts(job) == 1, what="the requeue")
    cluster.bring_back("n2")
    place.wait_until_it_works("runs/d", job, 1)
    cluster.run("scontrol", "update", f"JobId={job}", "Requeue=0")
    cluster.lose("n2")
    assert cluster.wait_until_ended(job) == "NODE_FAIL"
    cluster.bring_back("n2")
    cycles = place.finish_soon("runs/d")
    job = place.submit("-o", "runs/d", "--nodes", 2, "--ntasks-per-node", 2)
    assert cluster.wait_until_ended(job) == "COMPLETED"
    assert place.status("runs/d")["cycle"] == cycles
    place.same_as_straight("runs/d")


@pytest.mark.thorough
def test_the_only_node_of_a_job_goes_down(place):
    """The batch script and root are lost with it. The job waits for the node, and goes on from its checkpoint."""
    cluster = place.cluster
    job = place.submit("-o", "runs/h", "--ntasks-per-node", 2, "--sbatch=--nodelist=n2", *OFTEN)
    place.wait_until_it_works("runs/h", job)
    place.wait_for_a_checkpoint("runs/h")
    cluster.lose("n2")
    cluster.wait_for(lambda: cluster.restarts(job) == 1, what="the requeue")
    cluster.run("scontrol", "hold", job)  # the node was lost to the controller alone, and comes back by itself
    cluster.wait_for(lambda: cluster.is_gone("n2", job), what="the end of what ran there")
    kept, cycles = place.last_checkpoint("runs/h"), place.finish_soon("runs/h")
    cluster.bring_back("n2")
    cluster.run("scontrol", "release", job)
    cluster.hurry(job)
    assert cluster.wait_until_ended(job) == "COMPLETED"
    status = place.status("runs/h")
    assert (status["cycle"], status["restarts"], cluster.restarts(job)) == (cycles, 1, 1)
    assert re.search(rf"continues from cycle {kept}\b", place.log("runs/h-*.log"))
    place.same_as_straight("runs/h")


@pytest.mark.thorough
def test_four_requeues_of_one_job(place):
    """Requeue by turns from outside, which kills, and by a signal, after which the script requeues its own job."""
    cluster = place.cluster
    job = place.submit("-o", "runs/i", "--ntasks-per-node", 1, *OFTEN)
    for restart in range(1, 5):
        place.wait_until_it_works("runs/i", job, restart - 1)
        if restart % 2:
            cluster.run("scontrol", "requeue", job)
        else:
            place.stop(job, restart, "--batch")
        if restart == 4:
            cycles = place.finish_soon("runs/i")
        cluster.hurry(job)
    assert cluster.wait_until_ended(job) == "COMPLETED"
    status = place.status("runs/i")
    assert (status["cycle"], status["restarts"], cluster.restarts(job)) == (cycles, 4, 4)
    assert [f"restart {n} of at most 50" in place.log("runs/i-*.log") for n in range(6)] == [True] * 5 + [False]
    place.same_as_straight("runs/i")


@pytest.mark.thorough
@pytest.mark.parametrize("options", [(), ("--array", 1), ("--chain",)], ids=["run", "array", "chain"])
def test_odd_names(place, options):
    """A name has no words of sbatch, of the shell, or of the pattern of a log; the log lies where `submit` says."""
    odd = """-o $(touch PWNED) `touch PWNED` "it's" 50%j #x; é *"""
    (place.folder / f"{odd}.toml").write_text(config_text(shards=2, cycles=8))
    words = ("--out", f"runs/{odd}", "--account", odd, "--set", f"output.labels=2 # {odd}", *options)
    job = place.submit(*words, config=f"{odd}.toml")
    task = f"{job}_1" if "--array" in options else job
    assert place.cluster.wait_until_ended(task) == "COMPLETED"
    log = place.output.split("log:     ")[1].split("\n")[0].replace("_N.log", "_1.log")
    assert "continues when this one has ended" in Path(log).read_text() or "--chain" not in options
    assert place.status(f"runs/{odd}/seed-1" if "--array" in options else f"runs/{odd}")["state"] == "finished"
    assert not list(place.folder.rglob("PWNED"))
    expected = {f"{odd}.toml", "runs", "run.toml", "table.csv", "table.h5"}
    assert {path.name for path in place.folder.iterdir()} == expected
    assert {path.name for path in (place.folder / "runs").iterdir()} == {
        odd, f"{odd}.sbatch", f"{odd}.job.json", Path(log).name,
    }  # fmt: skip


@pytest.mark.thorough
def test_the_cap_of_restarts(place):
    """Exit code 75 at the cap ends the job, and says what to do."""
    cluster = place.cluster
    asked = ("-o", "runs/e", "--ntasks-per-node", 1, "--time", "20m")
    text = place.mpibayes("submit", "run.toml", *asked, "--dry-run").stdout
    (place.folder / "e.sbatch").write_text(text.replace("most_restarts=50", "most_restarts=1"))
    (place.folder / "runs").mkdir()
    job = cluster.submit("e.sbatch", cwd=place.folder)
    place.jobs.append(job)
    place.wait_until_it_works("runs/e", job)
    place.stop(job, 1, "--batch")
    place.wait_until_it_works("runs/e", job, 1)
    cluster.run("scancel", "--batch", "--signal=USR1", job)
    assert cluster.wait_until_ended(job) == "FAILED"
    assert cluster.field(job, "ExitCode") == "75:0" and cluster.restarts(job) == 1
    assert "stopped at a checkpoint after 1 restarts; submit again to continue" in place.log("runs/e-*.log")


@pytest.mark.thorough
@pytest.mark.parametrize("template", ["run", "chain"])
def test_no_other_exit_code_is_tried_again(place, template):
    """A configuration that is refused ends the job, and the chain."""
    cluster = place.cluster
    job = place.submit("-o", "runs/f", "--ntasks-per-node", 1, *(["--chain"] if template == "chain" else []))
    place.wait_until_it_works("runs/f", job)
    config = place.folder / "run.toml"
    config.write_text(config.read_text().replace("seed = 5", "seed = 6"))
    after = place.submit("-o", "runs/g", "--ntasks-per-node", 1, "--sbatch", f"--dependency=afterany:{job}")
    script = place.folder / "runs" / "g.sbatch"
    assert "dependency" in script.read_text()
    cluster.run("scancel", after)
    second = cluster.submit(place.folder / "runs" / "f.sbatch", cwd=place.folder)
    place.jobs.append(second)
    assert cluster.wait_until_ended(second) == "FAILED", place.log("runs/f-*.log")
    assert cluster.field(second, "ExitCode") == "2:0" and cluster.restarts(second) == 0
    if template == "chain":
        place.jobs.append(str(int(second) + 1))
        assert cluster.wait_until_ended(place.jobs[-1]) == "CANCELLED"
        place.jobs.append(str(int(job) + 1))
        cluster.run("scancel", place.jobs[-1])
