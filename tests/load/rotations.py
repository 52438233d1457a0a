"""Certificates that change under load: calls of a Go client, half of them on connections of their own.

    python -m tests.load.rotations                    # 1,000 changes, 18 minutes
    python -m tests.load.rotations --rotations 10

After each change of the server's pair or the client's, in turn, both are used by the connections that follow. Prints
JSON; exit code 1 if a call failed, or if the service did not read its pairs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from tests.certificates import Authority
from tests.controlplane.binaries import program
from tests.controlplane.processes import ProcessGroup, free_port

SOURCES: Final = Path(__file__).parent / "caller"
ROOT: Final = Path(__file__).parents[2]
EVERY_SECONDS: Final = 1.05
"""Homeport looks once a second."""

_START_SECONDS: Final = 60
_MOST_OF_THEM: Final = 0.95
"""Two that come within one look, on a busy machine, are read as one."""


def caller() -> Path:
    """The Go client, built if it is not there."""
    digest = hashlib.sha256(b"".join(it.read_bytes() for it in sorted(SOURCES.glob("*.go")))).hexdigest()[:12]
    return program(SOURCES, f"caller-{digest}")


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, Authority]]:
    """The sample cluster's verbs over TLS: where they are, and who issues the certificates in ``folder``."""
    authority, group = Authority(folder), ProcessGroup(folder)
    certificate, key = authority.issue("server", "127.0.0.1")
    authority.issue("scheduler", "scheduler.example")
    verbs, pages = free_port(), free_port()
    flags = {
        "cluster": ROOT / "examples" / "sample-cluster.yaml",
        "port": verbs,
        "tls-cert-file": certificate,
        "tls-private-key-file": key,
        "client-ca-file": authority.file,
        "allowed-names": "scheduler.example",
        "operator-port": pages,
        "operator-tls": "false",
    }
    command = [sys.executable, "-m", "homeport", "serve", *(f"--{name}={value}" for name, value in flags.items())]
    try:
        operator = f"http://127.0.0.1:{pages}"
        group.start("homeport", command).wait_ready(lambda: _is_ready(operator), _START_SECONDS)
        yield f"https://127.0.0.1:{verbs}", authority
    finally:
        group.close()


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", trust_env=False).is_success
    except httpx.TransportError:
        return False


def measured(rotations: int, *, every: float = EVERY_SECONDS) -> dict[str, Any]:
    """What became of the calls, and how many pairs the service has read."""
    executable = caller()
    with tempfile.TemporaryDirectory() as name, served(Path(name)) as (verbs, authority):
        flags = {
            "url": f"{verbs}/lean/filter",
            "body": ROOT / "examples" / "requests" / "filter-home.json",
            "want": "node-b2",
            "ca": authority.file,
            "cert": Path(name) / "scheduler.crt",
            "key": Path(name) / "scheduler.key",
            "seconds": rotations * every + 2,
        }
        command = [str(executable), *(f"-{key}={value}" for key, value in flags.items())]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as calling:
            for number in range(rotations):
                time.sleep(every)
                if number % 2:
                    authority.issue("scheduler", "scheduler.example")
                else:
                    authority.issue("server", "127.0.0.1")
            told, _ = calling.communicate()
        read = (Path(name) / "homeport.log").read_text().count("certificates read")
    found = json.loads(told)
    return {"rotations": rotations, "pairs_read": read, "pairs_of_the_server": (rotations + 1) // 2, **found}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.load.rotations", description=__doc__)
    parser.add_argument("--rotations", type=int, default=1000, help="default: %(default)s")
    found = measured(parser.parse_args(arguments).rotations)
    print(json.dumps(found, indent=2))
    return int(bool(found["failed"]) or found["pairs_read"] < _MOST_OF_THEM * found["pairs_of_the_server"])


if __name__ == "__main__":
    sys.exit(main())
