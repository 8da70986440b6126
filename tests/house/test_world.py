"""The suite under mpirun is one job: the ranks find each other, through the program's own communicator."""

import os

import pytest

from mpibayes.hpc.parallel.comm import world


@pytest.mark.mpi
def test_ranks_find_each_other():
    comm = world()
    launched = int(os.environ.get("PMI_SIZE") or os.environ.get("OMPI_COMM_WORLD_SIZE") or 1)
    assert comm.size == launched
    assert comm.collect(comm.rank) == list(range(comm.size))
    assert comm.share("root's word" if comm.rank == 0 else None) == "root's word"
