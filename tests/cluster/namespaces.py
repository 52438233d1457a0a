"""Namespaces with an own network and own mounts: a node of the cluster, and what it takes to join them to a bridge.

This runs inside the namespaces that `python -m tests.cluster` made, where there is no network but loopback. All that is
made here is gone with them: links and mounts end with the last process inside, and what nodes write lies in memory.
"""

import subprocess
import time
from pathlib import Path
from typing import Final

from tests.controlplane.processes import Process, ProcessGroup

BRIDGE: Final = "nodes"
BRIDGE_ADDRESS: Final = "10.88.0.1"
"""Where the API server listens, and what is a router to the nodes."""

_IN_MEMORY: Final = ("/run", "/var/lib", "/var/log")
"""Folders in which containerd, CNI plugins and kubelet keep what they have; every node has its own."""

_PREPARE: Final = (
    "mount --make-rshared /",
    *(f"mount -t tmpfs -o mode=755 node {folder}" for folder in _IN_MEMORY),
    "ln -s /run /var/lib/run",
    "exec sleep infinity",
)


class NamespaceError(Exception):
    """A command that lays out namespaces failed; the message has its output."""


def command(*parts: str | Path) -> str:
    """What a command prints; `NamespaceError` when it fails."""
    done = subprocess.run([str(part) for part in parts], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NamespaceError(f"{' '.join(map(str, parts))} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def lay_out_bridge() -> None:
    """The link that joins all nodes; this side of it is the control plane's."""
    command("mount", "--make-rprivate", "/")
    command("ip", "link", "set", "lo", "up")
    command("ip", "link", "add", BRIDGE, "type", "bridge")
    command("ip", "addr", "add", f"{BRIDGE_ADDRESS}/24", "dev", BRIDGE)
    command("ip", "link", "set", BRIDGE, "up")
    command("ip", "route", "add", "default", "dev", BRIDGE)
    command("sysctl", "-qw", "net.ipv4.ip_forward=1")


class Node:
    """One node: a process that holds its namespaces, an address on the bridge, and a range for its pods."""

    def __init__(self, processes: ProcessGroup, name: str, number: int) -> None:
        """`number`: from 1 on; it is part of the addresses."""
        self.name = name
        self.address = f"10.88.0.{number + 1}"
        self.pods = f"10.244.{number}.0/24"
        self._processes = processes
        self._holder = processes.start(f"{name}-holder", ["unshare", "-n", "-m", "sh", "-ec", "\n".join(_PREPARE)])
        self._wait_prepared()
        self._join(f"link{number}")

    def _wait_prepared(self) -> None:
        """Until the shell has made the mounts and is gone: then `sleep` is what runs."""
        name = Path("/proc") / str(self._holder.pid) / "comm"
        deadline = time.monotonic() + 10
        while name.read_text().strip() != "sleep":
            if not self._holder.alive or time.monotonic() > deadline:
                raise NamespaceError(f"the namespaces of {self.name} were not made: {self._holder.log()}")
            time.sleep(0.02)

    def _join(self, link: str) -> None:
        command("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(self._holder.pid))
        command("ip", "link", "set", link, "master", BRIDGE, "up")
        command("ip", "route", "add", self.pods, "via", self.address, "onlink", "dev", BRIDGE)
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")
        self.run("ip", "route", "add", "default", "via", BRIDGE_ADDRESS)
        self.run("sysctl", "-qw", "net.ipv4.ip_forward=1")

    def inside(self, *parts: str | Path) -> list[str]:
        """A command line that runs a command on this node."""
        return ["nsenter", f"--target={self._holder.pid}", "--net", "--mount", *map(str, parts)]

    def run(self, *parts: str | Path) -> str:
        """What a command prints on this node."""
        return command(*self.inside(*parts))

    def start(self, name: str, *parts: str | Path) -> Process:
        """Start a component on this node; its log is `<node>-<name>.log`."""
        return self._processes.start(f"{self.name}-{name}", self.inside(*parts))
