"""One private SLURM for all tests of this folder, and runs that end on request."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import launch
from tests.run.conftest import config_text, exported
from tests.slurm import network as network_module
from tests.slurm.cluster import Cluster, missing

ENDLESS = 1_000_000
LIBRARY = "from mpi4py import MPI; print(MPI.Get_library_version())"


def require_slurm() -> None:
    if lacking := missing():
        pytest.skip(f"no SLURM to start: {', '.join(lacking)} not found")
    if "Open MPI" in launch([sys.executable, "-c", LIBRARY]).stdout:
        pytest.skip("the SLURM of these tests starts programs by PMI-2, and Open MPI needs PMIx: make MPI=mpich")


@pytest.fixture(scope="session")
def cluster():
    require_slurm()
    folder = Path(tempfile.gettempdir()) / f"mpibayes-slurm-{os.getpid()}"  # short, since it holds sockets
    with Cluster(folder) as started:
        yield started


@pytest.fixture(scope="session")
def network():
    """Four nodes, each with its own network."""
    require_slurm()
    if why := network_module.lacking():
        pytest.skip(f"no namespaces for the nodes: {why}")
    with network_module.Network(Path(tempfile.gettempdir()) / f"mpibayes-nodes-{os.getpid()}", nodes=4) as started:
        yield started


class Place:
    """A folder with a table and run.toml, and operations of the tests on it."""

    def __init__(self, folder: Path, cluster: Cluster):
        self.folder, self.cluster = folder, cluster
        self.jobs: list[str] = []
        self.output = ""  # output of the last `mpibayes submit`

    def mpibayes(self, *words, env=None):
        return launch([sys.executable, "-m", "mpibayes", *words], cwd=self.folder, env=env)

    def submit(self, *words, config: str = "run.toml") -> str:
        """Run `mpibayes submit words... -- config`; return the job's number."""
        done = self.mpibayes("submit", *words, "--", config, env=self.cluster.env)
        assert done.returncode == 0, done.stderr
        self.output = done.stdout
        self.jobs.append(done.stdout.split("job ")[1].split(":")[0])
        return self.jobs[-1]

    def set_cycles(self, cycles: int) -> None:
        (self.folder / "run.toml").write_text(config_text(shards=4, cycles=cycles))

    def finish_soon(self, out: str, more: int = 12) -> int:
        """Let a run whose job waits in the queue end some cycles after its last checkpoint; return the number of
        cycles."""
        cycles = self.last_checkpoint(out) + more
        self.set_cycles(cycles)
        return cycles

    def status(self, out: str) -> dict:
        try:
            return json.loads((self.folder / out / "status.json").read_text())
        except FileNotFoundError:
            return {}

    def last_checkpoint(self, out: str) -> int:
        """Cycle of the newest complete generation; a killed start may not have written its status, and may have left a
        generation that it was writing."""
        result = (self.folder / out / "checkpoints").glob("*/MANIFEST.json")
        return max((int(name) for path in result if (name := path.parent.name).isdigit()), default=0)

    def wait_for_a_checkpoint(self, out: str) -> None:
        """Wait until there is a checkpoint beyond the initial state."""
        self.cluster.wait_for(lambda: self.last_checkpoint(out) > 0, what=f"a checkpoint of {out}")

    def log(self, pattern: str) -> str:
        return "".join(path.read_text() for path in sorted(self.folder.glob(pattern)))

    def wait_until_it_works(self, out: str, job: str, restarts: int = 0) -> None:
        """Wait until this start of the job has set up its chain, and a little longer."""
        self.cluster.wait_for(
            lambda: (
                self.cluster.restarts(job) == restarts
                and self.cluster.state(job) == "RUNNING"
                and self.status(out).get("state") == "running"
                and self.status(out).get("restarts", restarts) == restarts
            ),
            what=f"job {job}, restart {restarts}, to work in {out}",
        )

    def stop(self, job: str, restarts: int, *how) -> None:
        """Send USR1, and wait until the job is back in the queue."""
        self.cluster.run("scancel", *how, "--signal=USR1", job)
        self.cluster.wait_for(lambda: self.cluster.restarts(job) == restarts, what=f"restart {restarts} of job {job}")

    def same_as_straight(self, out: str, *words) -> None:
        """Check that trace and labels of the run equal those of one uninterrupted process, byte for byte."""
        done = self.mpibayes("run", "run.toml", "-o", "straight", *words)
        assert done.returncode == 0, done.stderr
        mine, straight = exported(self.folder, out), exported(self.folder, "straight")
        assert mine[0].count(b"\n") > 10 and mine[1]
        assert mine == straight


@pytest.fixture
def place(cluster, tmp_path):
    yield from place_on(cluster, tmp_path)


@pytest.fixture
def place_of_four(network, tmp_path):
    try:
        yield from place_on(network, tmp_path)
    finally:
        network.restore()


def place_on(cluster: Cluster, tmp_path: Path) -> Iterator[Place]:
    """Yield a place in a folder whose name has a blank, as users' folders may have."""
    folder = tmp_path / "my runs"
    folder.mkdir()
    rng = np.random.default_rng(3)
    kind = rng.integers(4, size=400)
    colour = np.array(list("rgb"))[(kind + (rng.random(400) < 0.2)) % 3]
    size = rng.normal(3.0 * kind, 1.0)
    lines = [f"{c},{s:.4f},{n}" for c, s, n in zip(colour, size, rng.poisson(1 + 4 * kind))]
    (folder / "table.csv").write_text("\n".join(["colour,size,n", *lines, ""]))
    at = Place(folder, cluster)
    at.set_cycles(ENDLESS)
    done = at.mpibayes("import", "table.csv", "table.h5")
    assert done.returncode == 0, done.stderr
    yield at
    print(at.log("runs/*.log"))  # shown with a failure
    for job in at.jobs:
        cluster.run("scancel", job, check=False)
    cluster.wait_for(lambda: not cluster.run("squeue", "-h"), 60, "an empty queue")
    shutil.rmtree(folder, ignore_errors=True)
