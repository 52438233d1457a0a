"""Builds the Go oracle of a Kubernetes release, once, beside the control plane's binaries.

    python -m tests.conformance.oracle                       # for the default release; prints where it is
    python -m tests.conformance.oracle --kubernetes 1.35.4

Its sources are `oracle/*.go`. They are copied into the throw-away module that the control plane is built in, so that
module and build cache are shared: after the control plane it takes some 20 seconds, without it minutes.
"""

import argparse
import hashlib
import sys
from pathlib import Path
from typing import Final

from tests.controlplane.binaries import DEFAULT_KUBERNETES, RELEASES, BuildError, program

SOURCES: Final = Path(__file__).parent / "oracle"


def revision() -> str:
    """Tells one state of the sources from another."""
    digest = hashlib.sha256()
    for source in sorted(SOURCES.glob("*.go")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def oracle(kubernetes: str = DEFAULT_KUBERNETES) -> Path:
    """The executable for the sources as they are now; built if it is not there. Raises `BuildError`."""
    return program(SOURCES, f"oracle-{revision()}", kubernetes)


def main() -> int:
    """Build and print the path."""
    parser = argparse.ArgumentParser("python -m tests.conformance.oracle", description="Build the Go oracle.")
    parser.add_argument("--kubernetes", choices=list(RELEASES), default=DEFAULT_KUBERNETES, help="default: %(default)s")
    try:
        sys.stdout.write(f"{oracle(parser.parse_args().kubernetes)}\n")
    except (BuildError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
