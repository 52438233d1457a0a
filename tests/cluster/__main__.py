"""Prepares what a cluster needs, then runs the stories on one, in namespaces of their own.

make cluster-test                           # as root; installs Debian packages, and says which
make cluster-test ONLY='drain or rollout'   # the stories whose names match, as with pytest -k
python -m tests.cluster --shell             # a shell beside a cluster instead: $KUBECONFIG, kubectl, helm
"""

import argparse
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests import debian
from tests.cluster import cgroups, image, images
from tests.controlplane import binaries, tools

ARCHIVES_VARIABLE: Final = "CLUSTER_ARCHIVES"
STORIES: Final = Path(__file__).parent
_ENDS_WITH_ME: Final = ("setpriv", "--pdeathsig=KILL")
_NAMESPACES: Final = ("unshare", "--net", "--mount", "--pid", "--cgroup", "--fork", "--mount-proc", "--kill-child=KILL")


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Say how long a part took."""
    started = time.monotonic()
    yield
    print(f"==> {name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


def _require_root() -> None:
    if os.geteuid() != 0:
        raise debian.PackagesError("namespaces, containerd and kubelet need root: run make cluster-test as root")


def prepare() -> list[Path]:
    """Everything that needs a network: packages, programs, images. Returns the archives of the images."""
    with stage("Debian packages"):
        _require_root()
        debian.install(debian.CLUSTER)
    with stage("programs"):
        binaries.build(whole=True)
        for release in images.SCHEDULERS:
            binaries.build(release)
        for name in tools.HELM:
            tools.helm(name)
    with stage("images"):
        return images.prepare()


def main() -> int:
    """Prepare, then become the process that holds the namespaces."""
    parser = argparse.ArgumentParser("python -m tests.cluster", description="Play the stories on a whole cluster.")
    parser.add_argument("--shell", action="store_true", help="start a cluster and a shell beside it")
    arguments, rest = parser.parse_known_args()
    try:
        archives = prepare()
        if not arguments.shell and not rest:
            with stage("unit tests in the image"):
                images.run_unit_tests()
    except (debian.PackagesError, binaries.BuildError, image.ImageError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    named = [str(STORIES)] if not any(Path(word).exists() for word in rest) else []
    stories = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *named, *rest]
    played = [sys.executable, "-m", "tests.cluster.shell", *rest] if arguments.shell else stories
    environment = {**os.environ, ARCHIVES_VARIABLE: os.pathsep.join(map(str, archives))}
    with stage("stories"):
        return run_inside([sys.executable, "-m", "tests.cluster.inside", *played], environment)


def run_inside(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """The exit code of a command that is process 1 of new namespaces; nothing of it is left afterwards."""
    cgroups.remove_left_over()
    name = f"{cgroups.PREFIX}{secrets.token_hex(4)}"
    entered = cgroups.enter_command(cgroups.make(name), [*_ENDS_WITH_ME, *_NAMESPACES, *command])
    with tempfile.TemporaryDirectory(prefix="homeport-cluster-") as folder:
        running = subprocess.Popen(entered, env={**environment, "TMPDIR": folder})
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C reaches the stories too, which end the cluster in order
        signal.signal(signal.SIGTERM, lambda *_: running.kill())
        try:
            return running.wait()
        finally:
            running.kill()
            cgroups.remove(name)


if __name__ == "__main__":
    sys.exit(main())
