"""Time from the creation of a pod until it is bound, if pods are created one at a time.

    python -m tests.load.single_pods                                  # 1,000 nodes with 30 pods each, 20 pods a second
    python -m tests.load.single_pods --nodes 20 --fill 2 --seconds 3 --rounds 1    # to try the harness

The time begins before the request that creates the pod, and ends when a watch reports the pod bound. Within a round,
the systems take turns. Prints JSON, and a table on standard error.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from tests.controlplane.controlplane import ControlPlane
from tests.load import report
from tests.load.population import PODS, BoundWatch, Population
from tests.load.quiet import Probe
from tests.load.scheduling import APISERVER_FLAGS, SELECTOR, Bench, measured
from tests.load.systems import SYSTEMS
from tests.load.workload import Workload, load

_WARM_UP: Final = 40
"""Number of first pods that are not measured."""


def create_slowly(population: Population, workload: Workload, count: int, per_second: float) -> dict[str, float]:
    """Create pods at a steady rate. Return the time of each request, by the name of the pod."""
    connection = population.connect()
    began, created = time.perf_counter(), {}
    for number, pod in enumerate(measured(count, workload.constraints)):
        time.sleep(max(0.0, began + number / per_second - time.perf_counter()))
        created[pod["metadata"]["name"]] = time.perf_counter()
        population.request(connection, "POST", PODS, json.dumps(pod).encode())
    connection.close()
    return created


def latencies(
    population: Population, start: Callable[[], Any], workload: Workload, count: int, per_second: float
) -> list[float]:
    """Return the milliseconds from creation to bind of each pod. Raises ``RuntimeError`` if a pod is not bound."""
    watch = BoundWatch(population, SELECTOR, {})
    try:
        with start():
            created = create_slowly(population, workload, count, per_second)
            if watch.wait(count) < count:
                raise RuntimeError(f"{count - len(watch.seen)} of {count} pods were not bound")
    finally:
        watch.close()
        population.delete(PODS, SELECTOR)
    return [(watch.seen[name] - at) * 1000 for name, at in [*created.items()][_WARM_UP:]]


def compared(found: Mapping[str, Sequence[Mapping[str, float]]], base: str) -> dict[str, Any]:
    """Return the median of each percentile over the rounds, and its ratio to the first system."""
    medians = {
        name: {key: round(median(it[key] for it in rounds), 1) for key in ("p50", "p99")}
        for name, rounds in found.items()
    }
    return {
        name: {**its, **{f"{key} ratio": round(its[key] / medians[base][key], 2) for key in its}, "rounds": found[name]}
        for name, its in medians.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.load.single_pods", description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--fill", type=int, default=30, help="existing pods on each node; default: %(default)s")
    parser.add_argument("--per-second", type=float, default=20, help="pods created in a second; default: %(default)s")
    parser.add_argument("--seconds", type=float, default=60, help="duration of a run; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workloads", default="zone-hard,zone-soft")
    parser.add_argument("--systems", default="in-tree,homeport,pick", help=f"of {', '.join(SYSTEMS)}")
    given = parser.parse_args()
    systems, probe = given.systems.split(","), Probe()
    count = _WARM_UP + round(given.seconds * given.per_second)
    found: dict[str, Any] = {}
    with ControlPlane(apiserver_flags=APISERVER_FLAGS) as plane, tempfile.TemporaryDirectory() as folder:
        Bench(plane, Path(folder), given.nodes, given.nodes * given.fill, cpu="16")
        population = Population(plane)
        for workload in (it for it in load("scheduling") if it.name in given.workloads.split(",")):
            runs: dict[str, list[dict[str, float]]] = {name: [] for name in systems}
            for number in range(given.rounds):
                for name in systems if number % 2 == 0 else reversed(systems):
                    probe.take()
                    start = partial(SYSTEMS[name], plane, Path(folder), None)
                    times = latencies(population, start, workload, count, given.per_second)
                    runs[name].append(report.percentiles(times))
                    report.say(f"{workload.name}: {name} {runs[name][-1]} ms")
            found[workload.name] = compared(runs, systems[0])
    report.table(
        ("workload", "system", "p50, ms", "p99, ms", "p50 ratio", "p99 ratio"),
        [
            (workload, name, it["p50"], it["p99"], it["p50 ratio"], it["p99 ratio"])
            for workload, by_system in found.items()
            for name, it in by_system.items()
        ],
    )
    report.publish({"machine": report.machine(), "quiet": probe.as_json(), "single pods": found})


if __name__ == "__main__":
    main()
