"""The shipped batch scripts in a real queue: signalled, requeued, chained, on lost nodes, with other numbers of ranks.

In the end every run is, byte for byte, what one process gets that is never stopped. The runs have no end until a test
gives them one, so no test depends on how fast the machine is.
"""

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(180)]


def test_three_rounds_in_the_queue_and_other_numbers_of_ranks(place):
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
    place.wait_until_it_works("runs/a", job, 2)
    assert cluster.field(job, "NumNodes") == "1"
    place.stop(job, 3, "--batch")
    cycles = place.finish_soon("runs/a")
    assert cluster.wait_until_ended(job) == "COMPLETED"

    log = place.log("runs/a-*.log")
    assert [f"restart {n} of at most 50" in log for n in range(5)] == [True] * 4 + [False], log
    assert log.count("back to the queue") == 3 and log.count("stopped early (SIGUSR1)") == 3, log
    assert place.status("runs/a")["cycle"] == cycles and place.status("runs/a")["state"] == "finished"
    place.same_as_straight("runs/a")


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

    cycles = max(place.status(f"runs/b/seed-{n}")["last_checkpoint"] for n in (1, 2, 3)) + 5
    job = place.submit("-o", "runs/b", "--array", 3, "--ntasks-per-node", 1, "--set", f"run.cycles={cycles}")
    assert "old-1" in " ".join(p.name for p in script.parent.iterdir())  # the first script was set aside
    for n in (1, 2, 3):
        assert cluster.wait_until_ended(f"{job}_{n}") == "COMPLETED", place.log("runs/b-*.log")
    place.same_as_straight("runs/b/seed-3", "--set", "run.seed=3", "--set", f"run.cycles={cycles}")
    done = place.mpibayes("report", *(f"runs/b/seed-{n}" for n in (1, 2, 3)), "-o", "report")
    assert done.returncode == 0, done.stderr


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
