"""A private, real SLURM on this machine: munged, slurmctld and some slurmd, on the loopback address, in one folder.

The nodes are only names: `n1`, `n2`, ... are processes on this host, and their processors are numbers in a file.
Everything that jobs see is SLURM's own: queue, steps, signals, requeue, arrays, dependencies, nodes that go down. It
uses no cgroups and no services of the system, so it works in a container, as root and as a user.

    with Cluster(folder) as cluster:
        job = cluster.submit("script.sbatch")
        cluster.wait_for(lambda: cluster.state(job) == "COMPLETED")
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"))
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")
READY_S = 60.0
PROCESSES = Path("/proc")

CONFIGURATION = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
# a requeued job waits as long as its old credential lives: two minutes if not said otherwise
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
TmpFS={folder}/tmp.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
MailProg=/bin/true
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobRequeue=1
ReturnToService=2
PropagateResourceLimits=NONE
SlurmdTimeout=60
KillWait=10
FirstJobId={first_job}
MinJobAge=3600
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0,sched_min_interval=0
"""


def missing() -> list[str]:
    """Programs needed by a cluster that this machine lacks."""
    return [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]


class Cluster:
    """Starts on entry; on exit ends all its jobs and processes and leaves no file.

    folder: made here; its path must be short, since it holds Unix sockets.
    """

    def __init__(self, folder: Path, nodes: int = 2, processors: int = 4):
        self.folder, self.nodes, self.processors = Path(folder), nodes, processors
        self.env = {**os.environ, "PATH": PATH, "SLURM_CONF": str(self.folder / "slurm.conf")}
        for name in [n for n in self.env if n.startswith(("SLURM_", "SBATCH_", "PMI")) and n != "SLURM_CONF"]:
            del self.env[name]  # the tests may themselves run in a job

    def __enter__(self) -> Cluster:
        self.folder.mkdir(mode=0o755)
        try:
            self._configure()
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error) -> None:
        self.close()

    # --- starting and ending ------------------------------------------------------------------------------------------

    def _configure(self) -> None:
        import pwd

        ports = _free_ports(self.nodes + 1)
        # MPICH names its shared memory after the job: leftovers of an earlier cluster's killed job must not be
        # reused.
        first_job = 1000 + int.from_bytes(os.urandom(2), "big") * 100
        user = pwd.getpwuid(os.getuid()).pw_name
        text = CONFIGURATION.format(folder=self.folder, user=user, controller_port=ports[0], first_job=first_job)
        for i, port in enumerate(ports[1:], 1):
            text += (
                f"NodeName=n{i} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs={self.processors} "
                "RealMemory=4000 State=UNKNOWN\n"
            )
            (self.folder / f"spool.n{i}").mkdir()
            (self.folder / f"tmp.n{i}").mkdir(mode=0o777)  # one each: PMIx steps of two nodes collide in a shared one
        text += f"PartitionName=test Nodes=n[1-{self.nodes}] Default=YES DefaultTime=10 State=UP\n"
        (self.folder / "state").mkdir()
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "cgroup.conf").write_text("")  # newer daemons look for it
        version = re.search(r"(\d+)\.", self.run("slurmd", "-V"))
        if version and int(version.group(1)) >= 23:
            (self.folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))

    def _start(self) -> None:
        at = self.folder
        self.run(
            "munged", "--force", "--num-threads=2", f"--key-file={at}/munge.key", f"--socket={at}/munge.socket",
            f"--pid-file={at}/munged.pid", f"--log-file={at}/munged.log", f"--seed-file={at}/munge.seed",
        )  # fmt: skip
        self.run("slurmctld", "-c", "-i", "-f", self.env["SLURM_CONF"])
        for i in range(1, self.nodes + 1):
            self.start_node(i)
        self.wait_for(lambda: self.idle() == self.nodes, READY_S, "the nodes to be ready")

    def start_node(self, i: int) -> None:
        self.run("slurmd", "-c", "-N", f"n{i}", "-f", self.env["SLURM_CONF"])

    def close(self) -> None:
        """End all processes, first the jobs, then the daemons by their pid files, and remove the folder."""
        with contextlib.suppress(Exception):
            for job in set(self.run("squeue", "-h", "-o", "%A").split()):
                self.run("scancel", "--full", "--signal=KILL", job)
                self.run("scancel", job)
            self.wait_for(lambda: not self.run("squeue", "-h"), 20)
        daemons = [*self.folder.glob("slurm*.pid"), *self.folder.glob("munged.pid")]
        running = {pid: path.name.split(".")[0] for path in daemons if (pid := _pid(path))}  # remove the files first
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in [pid for pid, name in running.items() if _is(pid, name)]:
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
            until = time.monotonic() + 5.0
            while any(_is(*each) for each in running.items()) and time.monotonic() < until:
                time.sleep(0.1)
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- commands -----------------------------------------------------------------------------------------------------

    def run(self, *words, cwd=None, check: bool = True) -> str:
        """Run a command and return its output. With `check`, a failure is an AssertionError that shows it."""
        done = subprocess.run(
            [shutil.which(str(words[0]), path=PATH) or str(words[0]), *map(str, words[1:])],
            cwd=cwd, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0 or not check, f"{' '.join(map(str, words))}: {done.stdout}"
        return done.stdout.strip()

    def submit(self, *words, cwd=None) -> str:
        """Submit with these words to sbatch; return the job's number."""
        return self.run("sbatch", "--parsable", *words, cwd=cwd).splitlines()[-1].split(";")[0]

    def field(self, job: str, name: str) -> str:
        """A field of `scontrol show job`, such as JobState or Restarts; empty if absent."""
        result = re.search(rf"(?:^|\s){name}=(\S*)", self.run("scontrol", "show", "job", job, check=False))
        return result.group(1) if result else ""

    def state(self, job: str) -> str:
        return self.field(job, "JobState")

    def restarts(self, job: str) -> int:
        return int(self.field(job, "Restarts") or 0)

    def hurry(self, job: str) -> None:
        """Let a requeued job start soon. SLURM waits until its old credential expires, which is longer than necessary:
        a node only refuses a credential from the second in which the last start ended there, or older.
        """
        self.wait_for(lambda: self.state(job) != "COMPLETING", what=f"job {job} to be back in the queue")
        self.run("scontrol", "update", f"JobId={job}", "StartTime=now+2", check=False)  # it may be running by now

    def idle(self) -> int:
        """Number of nodes that could take a job."""
        states = self.run("sinfo", "-h", "-N", "-o", "%t", check=False).split()
        return sum(state in ("idle", "mix", "alloc", "comp") for state in states)

    def lose(self, node: str) -> None:
        """Take a node away from the jobs that run on it."""
        self.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")

    def is_gone(self, node: str, job: str) -> bool:
        """True if no step of a job is left on a node; its batch script is one. A node that receives a job of which it
        still has a step is drained: "Duplicate jobid". The step's process outlives its socket.
        """
        sockets = list((self.folder / f"spool.{node}").glob(f"{node}_{job}.*"))
        return not sockets and not any(
            _title(path).startswith(f"slurmstepd: [{job}.") for path in PROCESSES.glob("[0-9]*")
        )

    def bring_back(self, node: str) -> None:
        """Bring a node back; one that is reachable again may have come back by itself."""
        self.run("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
        self.wait_for(lambda: self.idle() == self.nodes, 60, f"node {node}")

    def restore(self) -> None:
        """Start the nodes that have no slurmd and bring back those that are down, whatever a test ended with."""
        for i in range(1, self.nodes + 1):
            if not _is(_pid(self.folder / f"slurmd.n{i}.pid"), "slurmd"):
                self.start_node(i)
        for i in range(1, self.nodes + 1):
            self.run("scontrol", "update", f"NodeName=n{i}", "State=RESUME", check=False)  # refused for an idle one
        self.wait_for(lambda: self.idle() == self.nodes, 60, "all nodes")

    def wait_for(self, holds: Callable[[], object], seconds: float = 120.0, what: str = "the condition"):
        """Wait for a condition and return its value; AssertionError at the limit, with the state of the queue."""
        until = time.monotonic() + seconds
        while not (result := holds()):
            if time.monotonic() > until:
                queue = self.run("scontrol", "show", "job", check=False)
                raise AssertionError(f"waited {seconds:g} s for {what}\n{queue}")
            time.sleep(0.2)
        return result

    def wait_until_ended(self, job: str, seconds: float = 150.0) -> str:
        """Wait until a job is neither pending nor running; return its last state."""
        going = {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "REQUEUED"}
        return self.wait_for(
            lambda: (state := self.state(job)) not in going and state, seconds, f"the end of job {job}"
        )


def _free_ports(n: int) -> list[int]:
    """Ports without a listener."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]


def _pid(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


def _title(process: Path) -> str:
    """Command line of a process, empty if it has ended."""
    try:
        return (process / "cmdline").read_text(errors="replace")
    except OSError:
        return ""


def _is(pid: int, name: str) -> bool:
    """True if this process runs and has this name; the number may have been reused, or be a zombie's."""
    try:
        result = re.search(r"\((.*)\) (\S)", Path(f"/proc/{pid}/stat").read_text())
    except OSError:
        return False
    return result[1] == name and result[2] not in "XZ"
