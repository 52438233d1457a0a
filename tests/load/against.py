"""Is this tree slower than another one? Calls to both alternate, so that whatever the machine does, it does to both.

    python -m tests.load.against ../before                 # a worktree of another commit, after its own `make setup`
    python -m tests.load.against ../before --calls 200 --nodes 200 --pods 2000

A ratio to an echo moves by a tenth from run to run: which core a process is put on is drawn anew each time. Here both
services have one core and the client another. Prints JSON, microseconds at the client (p50) and the ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.controlplane.processes import free_port
from tests.load.bench import (
    Connection,
    Workload,
    answers,
    passed_by_filter,
    running,
    wait_for,
    workloads,
    write_kubeconfig,
)

_WARM_UP: Final = 100
_LARGE: Final = 3
"""Of calls about many names so many times fewer are made."""


@contextmanager
def _serving(tree: Path, kubeconfig: Path) -> Iterator[int]:
    """The port of the Homeport of a tree, in its own environment."""
    port = free_port()
    python = tree.resolve() / ".venv" / "bin" / "python"
    command = [str(python), "-m", "homeport", "serve", "--log-level=error", f"--kubeconfig={kubeconfig}"]
    process = subprocess.Popen([*command, f"--port={port}"], cwd=tree, stdout=subprocess.DEVNULL)
    try:
        os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0))})
        wait_for(lambda: answers(port, "/readyz"))
        yield port
    finally:
        process.kill()
        process.wait()


def compare(workload: Workload, services: Mapping[str, Connection], calls: int) -> dict[str, float]:
    """Median microseconds of each, and the first one's by the last one's. Who is asked first changes each time."""
    bodies, names = workload.bodies(), list(services)
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(_WARM_UP + calls):
        for name in names if number % 2 else reversed(names):
            body = bodies[number % len(bodies)]
            if workload.after_filter:
                body = passed_by_filter(services[name], workload.verb, body)
            began = time.perf_counter()
            services[name].post(f"/{workload.verb}", body)
            times[name].append((time.perf_counter() - began) * 1e6)
    found = {name: round(statistics.median(each[_WARM_UP:]), 1) for name, each in times.items()}
    return {**found, "ratio": round(found[names[0]] / found[names[-1]], 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--calls", type=int, default=1_500)
    asked = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        apiserver = free_port()
        stack.enter_context(running("tests.load.apiserver", str(apiserver), str(asked.nodes), str(asked.pods)))
        wait_for(lambda: answers(apiserver))
        kubeconfig = write_kubeconfig(folder, apiserver)
        ports = {
            name: stack.enter_context(_serving(tree, kubeconfig))
            for name, tree in (("this", Path()), ("other", asked.other))
        }
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        services = {name: stack.enter_context(Connection(port)) for name, port in ports.items()}
        found = {
            it.name: compare(it, services, asked.calls if it.size < asked.nodes else asked.calls // _LARGE)
            for it in workloads()
            if it.size <= asked.nodes
        }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
