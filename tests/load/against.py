"""Is this tree slower than another one? Calls to both alternate, so that whatever the machine does, it does to both.

    python -m tests.load.against ../before                 # a worktree of another commit, after its own `make setup`
    python -m tests.load.against ../before --only lean_filter_500
    python -m tests.load.against ../before --calls 200 --nodes 200 --pods 2000

A ratio to an echo moves by a tenth from run to run: which core a process is put on is drawn anew each time. Here both
services have one core and the client another. Prints JSON: microseconds at the client (p50), those of a processor
that a call took each service (mean; of a prioritize together with the filter before it), and the ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from tests.controlplane.processes import free_port
from tests.load.bench import Connection, Workload, answers, api_server, passed_by_filter, wait_for, workloads
from tests.load.usage import processor_microseconds

_WARM_UP: Final = 100
_LARGE: Final = 3
"""Of calls about many names so many times fewer are made."""


@contextmanager
def _serving(tree: Path, kubeconfig: Path) -> Iterator[tuple[int, int]]:
    """The port of the Homeport of a tree, in its own environment, and its process."""
    port = free_port()
    python = tree.resolve() / ".venv" / "bin" / "python"
    command = [str(python), "-m", "homeport", "serve", "--log-level=error", f"--kubeconfig={kubeconfig}"]
    process = subprocess.Popen([*command, f"--port={port}"], cwd=tree, stdout=subprocess.DEVNULL)
    try:
        os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0))})
        wait_for(lambda: answers(port, "/readyz"))
        yield port, process.pid
    finally:
        process.kill()
        process.wait()


class _Service(Struct, frozen=True):
    """A connection to a service, and what its process has taken of a processor, in microseconds."""

    connection: Connection
    taken: Callable[[], float]


def compare(workload: Workload, services: Mapping[str, _Service], calls: int) -> dict[str, Any]:
    """What a call took each of them, and the first one's by the last one's. Who is asked first changes each time."""
    bodies, names = workload.bodies(), list(services)
    times: dict[str, list[float]] = {name: [] for name in names}
    before: dict[str, float] = {}
    for number in range(_WARM_UP + calls):
        if number == _WARM_UP:
            before = {name: service.taken() for name, service in services.items()}
        for name in names if number % 2 else reversed(names):
            body, service = bodies[number % len(bodies)], services[name]
            if workload.after_filter:
                body = passed_by_filter(service.connection, workload.verb, body)
            began = time.perf_counter()
            service.connection.post(f"/{workload.verb}", body)
            times[name].append((time.perf_counter() - began) * 1e6)
    return {
        "at_the_client": _with_ratio({name: statistics.median(each[_WARM_UP:]) for name, each in times.items()}),
        "processor": _with_ratio({name: (services[name].taken() - before[name]) / calls for name in names}),
    }


def _with_ratio(found: Mapping[str, float]) -> dict[str, float]:
    first, *_, last = found.values()
    return {**{name: round(each, 1) for name, each in found.items()}, "ratio": round(first / last, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--calls", type=int, default=1_500)
    parser.add_argument("--only", nargs="*", help="the names of workloads")
    asked = parser.parse_args()
    with ExitStack() as stack:
        _, kubeconfig = stack.enter_context(api_server(asked.nodes, asked.pods))
        started = {
            name: stack.enter_context(_serving(tree, kubeconfig))
            for name, tree in (("this", Path()), ("other", asked.other))
        }
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        services = {
            name: _Service(stack.enter_context(Connection(port)), partial(processor_microseconds, pid))
            for name, (port, pid) in started.items()
        }
        found = {
            it.name: compare(it, services, asked.calls if it.size < asked.nodes else asked.calls // _LARGE)
            for it in workloads()
            if it.size <= asked.nodes and it.name in (asked.only or (it.name,))
        }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
