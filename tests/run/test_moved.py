"""A run whose directory is moved away while it goes on ends with a message, and makes nothing under the old name."""

import pytest

from mpibayes.errors import CheckpointError
from mpibayes.io import checkpoint
from mpibayes.io.files import make_directory
from mpibayes.io.segments import Segments
from tests.conftest import exit_code
from tests.run.test_no_hang import faulty

BEFORE = """
def moves(function):
    def first(*words, **named):
        if rank == 0 and os.path.exists("out"):
            os.rename("out", "away")
        time.sleep(0.5 * (rank == 1))  # until it is gone
        return function(*words, **named)
    return first
"""
MOMENTS = {
    "a cycle": "from mpibayes.hpc.crosscat.chain import Mixture as of; of.cycle = moves(of.cycle)",
    "the parts of a checkpoint": "from mpibayes.io import checkpoint as of; of.write_part = moves(of.write_part)",
    "the draft of a checkpoint": "from mpibayes.io import checkpoint as of; of._draft = moves(of._draft)",
    "the start of the trace": "from mpibayes.hpc.run import chain_run as of; of.TraceWriter = moves(of.TraceWriter)",
    "the log": "from mpibayes.hpc.run import chain_run as of; of.Progress = moves(of.Progress)",
    "the last status": "from mpibayes.hpc.run import chain_run as of; of.merge = moves(of.merge)",
    "an internal error": "from mpibayes.hpc.run import chain_run as of\n"
    "def wrong(*words): raise RuntimeError('boom')\nof.merge = moves(wrong)",
}


@pytest.mark.quick("2-the log")
@pytest.mark.parametrize("chains, moment", [(2 - i % 2, moment) for i, moment in enumerate(MOMENTS)])
def test_nothing_is_made_under_the_old_name(place, chains, moment):
    done = faulty(place, BEFORE + MOMENTS[moment], "out", "--set", f"run.chains={chains}", ranks=2)
    assert (place / "away").exists() and not (place / "out").exists(), done.stdout + done.stderr
    if moment == "an internal error":
        assert exit_code(done) == 70
    else:
        assert done.returncode == 4 and done.stderr.count("mpibayes: error") == 1, done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_what_a_run_has_in_its_directory_is_made_in_no_new_one(tmp_path):
    gone = tmp_path / "gone"
    with pytest.raises(FileNotFoundError):
        make_directory(gone / "a" / "b", within=gone)
    for make in (
        lambda: checkpoint.begin(gone / "checkpoints", 3),
        lambda: checkpoint.write_part(gone / "checkpoints" / "000000003-ab.tmp", 0, {0: {}}),
        lambda: Segments(gone / "trace", "mpibayes-trace", 1),
    ):
        with pytest.raises(CheckpointError, match="No such file or directory"):
            make()
    assert not gone.exists()
    gone.mkdir()
    make_directory(gone / "a" / "b", within=gone)
    assert (gone / "a" / "b").is_dir()
