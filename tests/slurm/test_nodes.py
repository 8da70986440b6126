"""The shipped script on several nodes that share no memory and no address, and on nodes that die.

In the end every run is, byte for byte, what one process gets that is never stopped.
"""

import json

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.thorough, pytest.mark.timeout(230)]

OFTEN = ("--set", "run.checkpoint_minutes=0.001")  # a checkpoint after every cycle or two


def hosts_of(place, out):
    """The host of each rank, by starts that began to work."""
    return [start["hosts"] for start in json.loads((place.folder / out / "provenance.json").read_text())["starts"]]


def let_it_have(place, job, nodes):
    """Let a job that waits start on so many nodes, a rank on each."""
    place.cluster.run("scontrol", "update", f"JobId={job}", f"NumNodes={nodes}-{nodes}", f"NumTasks={nodes}")


def test_four_nodes_then_two(place_of_four):
    """A job with each rank on a host of its own is requeued with fewer nodes, and so with fewer ranks."""
    place, cluster = place_of_four, place_of_four.cluster
    job = place.submit("-o", "runs/a", "--nodes", 4, "--ntasks-per-node", 1, *OFTEN)
    place.wait_until_it_works("runs/a", job)
    place.stop(job, 1, "--batch")
    let_it_have(place, job, 2)
    place.finish_soon("runs/a")
    assert cluster.wait_until_ended(job) == "COMPLETED"
    assert hosts_of(place, "runs/a") == [["n1", "n2", "n3", "n4"], ["n1", "n2"]]
    place.same_as_straight("runs/a")


@pytest.mark.parametrize("mpi, lost", [("pmi2", 1), ("mpirun", 2)])
def test_a_node_loses_its_power(place_of_four, mpi, lost):
    """Root and the batch script are on n1; that SLURM notices and requeues. Another one mpirun notices sooner, and the
    script finds that it does not answer."""
    place, cluster = place_of_four, place_of_four.cluster
    job = place.submit("-o", "runs/b", "--nodes", 4, "--ntasks-per-node", 1, "--mpi", mpi, *OFTEN)
    place.wait_until_it_works("runs/b", job)
    place.wait_for_a_checkpoint("runs/b")
    cluster.kill_node(lost)
    if lost == 1:  # as SlurmdTimeout would, which is a minute here, and five at most sites
        cluster.lose("n1")
    cluster.wait_for(lambda: cluster.restarts(job) == 1, what="the requeue")
    assert ("lost a node: back to the queue" in place.log("runs/b-*.log")) == (mpi == "mpirun")
    cluster.lose(f"n{lost}")  # if SLURM still waits for it
    let_it_have(place, job, 3)
    place.finish_soon("runs/b")
    cluster.hurry(job)
    assert cluster.wait_until_ended(job) == "COMPLETED"
    all_nodes = ["n1", "n2", "n3", "n4"]
    assert hosts_of(place, "runs/b") == [all_nodes, [node for node in all_nodes if node != f"n{lost}"]]
    place.same_as_straight("runs/b")


def test_a_rank_that_dies_on_a_node_that_lives_ends_the_job(place_of_four):
    """The job is not tried again: it would die again, for want of memory perhaps."""
    place, cluster = place_of_four, place_of_four.cluster
    job = place.submit("-o", "runs/c", "--nodes", 2, "--ntasks-per-node", 1)
    place.wait_until_it_works("runs/c", job)
    cluster.kill_ranks(2)
    assert cluster.wait_until_ended(job) == "FAILED"
    assert cluster.restarts(job) == 0 and "lost a node" not in place.log("runs/c-*.log")
