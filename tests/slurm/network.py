"""A private SLURM whose nodes appear as separate hosts: each slurmd has its own network, host name and mounts.

They are namespaces of this kernel, joined by a bridge: ranks of two nodes communicate by TCP and share no memory. Needs
root, and the commands `ip`, `nsenter` and `unshare`. File system, processors, clock and kernel are shared.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from tests.slurm.cluster import Cluster, _is, _pid

CONTROLLER = 254  # last number of its address


def lacking() -> str:
    """Reason why namespaces cannot be made here; "" if they can."""
    if programs := [name for name in ("ip", "nsenter", "unshare") if shutil.which(name) is None]:
        return f"{', '.join(programs)} not found"
    inside = "ip link add try0 type bridge && ip link add try1 type veth peer name try2"
    name = f"mb{os.getpid() % 100000}"
    for words in (
        ["unshare", "--net", "--uts", "--mount", "sh", "-c", inside],
        ["ip", "netns", "add", name],
        ["ip", "netns", "del", name],
    ):
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
        if done.returncode != 0:
            return f"{' '.join(words)}: {done.stderr.strip()}"
    return ""


class Network(Cluster):
    """Nodes n1, n2, ... at 10.X.0.1, 10.X.0.2, ..."""

    def __init__(self, folder: Path, nodes: int = 4, processors: int = 4):
        super().__init__(folder, nodes, processors)
        self.tag = f"mb{os.getpid() % 100000}"  # an interface's name has 15 characters at most
        self.subnet = f"10.{64 + os.getpid() % 128}.0"

    def space(self, i: int) -> str:
        return f"{self.tag}n{i}"

    def _configure(self) -> None:
        super()._configure()
        bridge = f"{self.tag}b"
        ip("link", "add", bridge, "type", "bridge")
        ip("addr", "add", f"{self.subnet}.{CONTROLLER}/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        for i in range(1, self.nodes + 1):
            space, cable = self.space(i), f"{self.tag}v{i}"
            ip("netns", "add", space)
            ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", cable, "master", bridge, "up")
            ip("-n", space, "addr", "add", f"{self.subnet}.{i}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")
        hosts = {"localhost": "127.0.0.1", socket.gethostname(): f"{self.subnet}.{CONTROLLER}"}
        hosts |= {f"n{i}": f"{self.subnet}.{i}" for i in range(1, self.nodes + 1)}
        (self.folder / "hosts").write_text("".join(f"{address} {name}\n" for name, address in hosts.items()))
        conf = self.folder / "slurm.conf"
        text = conf.read_text().replace(
            "SlurmctldHost=localhost(127.0.0.1)", f"SlurmctldHost={socket.gethostname()}({self.subnet}.{CONTROLLER})"
        )
        text = re.sub(
            r"NodeName=n(\d+) NodeHostname=localhost NodeAddr=127.0.0.1",
            rf"NodeName=n\1 NodeHostname=n\1 NodeAddr={self.subnet}.\1",
            text,
        )
        # under this host's name the controller would listen elsewhere; only the nodes can reach its addresses
        text = text.replace("KillWait=10\n", "KillWait=3\n")  # ranks that wait for a dead one do not end earlier
        conf.write_text(text.replace("CommunicationParameters=NoCtldInAddrAny,NoInAddrAny\n", ""))

    def start_node(self, i: int) -> None:
        """Start the slurmd of a node in its namespaces; it finds the other nodes by its own /etc/hosts."""
        script = f'hostname n{i} && mount --bind "{self.folder}/hosts" /etc/hosts && exec "$@"'
        self.run(
            "nsenter", f"--net=/run/netns/{self.space(i)}", "unshare", "--uts", "--mount", "sh", "-c", script, "sh",
            shutil.which("slurmd", path=self.env["PATH"]), "-c", "-N", f"n{i}", "-f", self.env["SLURM_CONF"],
        )  # fmt: skip

    def kill_node(self, i: int) -> None:
        """Kill everything on a node at once, slurmd first, as in a power failure. Its connections are reset."""
        slurmd = _pid(self.folder / f"slurmd.n{i}.pid")
        if _is(slurmd, "slurmd"):
            os.kill(slurmd, signal.SIGKILL)
        self._kill(i)

    def kill_ranks(self, i: int) -> None:
        """Kill only the ranks on a node."""
        self._kill(i, name="mpibayes")

    def _kill(self, i: int, name: str | None = None) -> None:
        for pid in map(int, ip("netns", "pids", self.space(i), check=False).split()):
            if name is None or _is(pid, name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        super().close()
        for i in range(1, self.nodes + 1):
            self._kill(i)  # steps that outlived their slurmd
            ip("netns", "del", self.space(i), check=False)
        ip("link", "del", f"{self.tag}b", check=False)


def ip(*words: str, check: bool = True) -> str:
    done = subprocess.run(["ip", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0 or not check, f"ip {' '.join(words)}: {done.stderr}"
    return done.stdout
