"""Certificates that change under load: calls of a Go client, half of them on connections of their own.

After each change of the server's pair or the client's, in turn, both are used by the connections that follow.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.certificates import Authority
from tests.controlplane.binaries import program
from tests.controlplane.processes import free_port
from tests.served import started

SOURCES: Final = Path(__file__).parent / "caller"
ROOT: Final = Path(__file__).parents[2]
EVERY_SECONDS: Final = 1.05
"""Homeport looks once a second."""


def caller() -> Path:
    """The Go client, built if it is not there."""
    digest = hashlib.sha256(b"".join(it.read_bytes() for it in sorted(SOURCES.glob("*.go")))).hexdigest()[:12]
    return program(SOURCES, f"caller-{digest}")


@contextmanager
def served_over_tls(folder: Path) -> Iterator[tuple[str, Authority]]:
    """Serve the sample cluster's verbs over TLS; yield their address and the issuer of its certificates."""
    authority, pages = Authority(folder), free_port()
    certificate, key = authority.issue("server", "127.0.0.1")
    authority.issue("scheduler", "scheduler.example")
    flags = {
        "cluster": ROOT / "examples" / "sample-cluster.yaml",
        "tls-cert-file": certificate,
        "tls-private-key-file": key,
        "client-ca-file": authority.file,
        "allowed-names": "scheduler.example",
        "operator-port": pages,
        "operator-tls": "false",
    }
    with started(folder, *(f"--{name}={value}" for name, value in flags.items()), ready_at=pages) as (_, http):
        yield f"https://127.0.0.1:{http.base_url.port}", authority


def measured(rotations: int) -> dict[str, Any]:
    """What became of the calls, and how many pairs the service has read."""
    executable = caller()
    with tempfile.TemporaryDirectory() as name, served_over_tls(Path(name)) as (verbs, authority):
        flags = {
            "url": f"{verbs}/lean/filter",
            "body": ROOT / "examples" / "requests" / "filter-home.json",
            "want": "node-b2",
            "ca": authority.file,
            "cert": Path(name) / "scheduler.crt",
            "key": Path(name) / "scheduler.key",
            "seconds": rotations * EVERY_SECONDS + 2,
        }
        command = [str(executable), *(f"-{key}={value}" for key, value in flags.items())]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as calling:
            for number in range(rotations):
                time.sleep(EVERY_SECONDS)
                if number % 2:
                    authority.issue("scheduler", "scheduler.example")
                else:
                    authority.issue("server", "127.0.0.1")
            told, _ = calling.communicate()
        read = (Path(name) / "homeport.log").read_text().count("certificates read")
    found = json.loads(told)
    return {"pairs_read": read, **found}
