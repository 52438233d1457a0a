"""The Debian packages that a cluster with nodes needs; whatever is missing is installed, which is said before."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

PROGRAMS: Final[Mapping[str, str]] = {
    "buildah": "buildah",
    "containerd": "containerd",
    "ip": "iproute2",
    "iptables": "iptables",
    "mmdebstrap": "mmdebstrap",
    "podman": "podman",
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "runc": "runc",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}
"""Programs by the package that brings them."""

CNI: Final = "/usr/lib/cni/bridge"
CNI_PACKAGE: Final = "containernetworking-plugins"


class PackagesError(Exception):
    """A cluster cannot be started on this machine; the message says what it lacks."""


def install() -> None:
    """Install what is missing; `PackagesError` without root, without apt, or when apt fails."""
    if os.geteuid() != 0:
        raise PackagesError("namespaces, containerd and kubelet need root: run make cluster-test as root")
    missing = missing_packages()
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise PackagesError(f"there is no apt-get; install what these Debian packages bring: {', '.join(missing)}")
    print(f"installing Debian packages: {' '.join(missing)}", file=sys.stderr, flush=True)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "--yes", "--no-install-recommends", *missing]):
        done = subprocess.run(["apt-get", "-qq", *command], env=quiet, stdout=sys.stderr, check=False)
        if done.returncode:
            raise PackagesError(f"apt-get {command[0]} ended with {done.returncode}")


def missing_packages() -> list[str]:
    """The packages of which something is not there."""
    missing = {package for program, package in PROGRAMS.items() if not shutil.which(program)}
    if not Path(CNI).exists():
        missing.add(CNI_PACKAGE)
    return sorted(missing)
