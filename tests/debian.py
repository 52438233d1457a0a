"""Debian packages that some tests need. Missing packages are installed, and named before that."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

CLUSTER: Final[Mapping[str, str]] = {
    "/usr/lib/cni/bridge": "containernetworking-plugins",
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
"""Programs of the cluster with kubelets, by name or path, with the package of each."""

CHROMIUM: Final = "/usr/bin/chromium"
BROWSER: Final[Mapping[str, str]] = {CHROMIUM: "chromium"}
"""The browser in which the page is tested."""


class PackagesError(Exception):
    """Packages are missing and cannot be installed here. The message names them."""


def install(programs: Mapping[str, str]) -> None:
    """Install the packages of missing programs. Raises ``PackagesError`` without root, without apt, or if apt fails."""
    missing = missing_packages(programs)
    if not missing:
        return
    names = " ".join(missing)
    if os.geteuid() != 0:
        raise PackagesError(f"install these Debian packages, or run this as root: {names}")
    if not shutil.which("apt-get"):
        raise PackagesError(f"apt-get does not exist; install what these Debian packages contain: {names}")
    print(f"installing Debian packages: {names}", file=sys.stderr, flush=True)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "--yes", "--no-install-recommends", *missing]):
        done = subprocess.run(["apt-get", "-qq", *command], env=quiet, stdout=sys.stderr, check=False)
        if done.returncode:
            raise PackagesError(f"apt-get {command[0]} ended with {done.returncode}")


def missing_packages(programs: Mapping[str, str]) -> list[str]:
    """Return the sorted names of packages whose program does not exist."""
    return sorted({package for program, package in programs.items() if not _exists(program)})


def _exists(program: str) -> bool:
    return Path(program).exists() if "/" in program else shutil.which(program) is not None


def main() -> int:
    """Install what the browser tests need. The exit code is 1 if that fails."""
    try:
        install(BROWSER)
    except PackagesError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
