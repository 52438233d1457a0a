"""A cluster and a shell beside it, to look around: the cluster ends with the shell."""

import os
import subprocess
import sys
from pathlib import Path

from tests.cluster.__main__ import ARCHIVES_VARIABLE
from tests.cluster.cluster import Cluster
from tests.controlplane import binaries, tools


def main() -> int:
    """The exit code of the shell, or of the command that was given."""
    with Cluster([Path(part) for part in os.environ[ARCHIVES_VARIABLE].split(os.pathsep)]) as cluster:
        folders = (binaries.binary("kubectl").parent, tools.helm("helm-3").parent)
        path = os.pathsep.join([*map(str, folders), os.environ["PATH"]])
        return subprocess.run(
            sys.argv[1:] or ["bash"], env={**cluster.environment(), "PATH": path}, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
