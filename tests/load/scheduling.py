"""How many pods a second does a stock kube-scheduler place with Homeport, and how many with its in-tree plugin?

    python -m tests.load.scheduling --label short
    python -m tests.load.scheduling --matching zone-hard/5000-nodes,zone-soft/5000-nodes
    python -m tests.load.scheduling --matching zone-hard --scale 0.02 --rounds 1    # to try the harness

Runs on a real etcd, kube-apiserver and kube-scheduler on loopback. All pods are there before a scheduler starts; what
is measured begins when a tenth of them is bound and ends with the last. Runs of the systems alternate, each with
fresh processes, and what counts is the ratio within a round. Every run also checks that all pods were placed and that
hard constraints hold. Prints JSON, and a table on standard error.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from tests.controlplane import objects
from tests.controlplane.controlplane import ControlPlane, Scheduler
from tests.integration.service import Homeport
from tests.load import report
from tests.load.counting import CountingProxy
from tests.load.population import BoundWatch, Population
from tests.load.systems import SYSTEMS, Running, with_homeport
from tests.load.usage import all_cpu_seconds
from tests.load.workload import SELECTED, Case, Constraint, chosen, load

NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/namespaces/default/pods"
ZONES: Final = ("zone-a", "zone-b", "zone-c", "zone-d")
"""As many as divide the numbers of nodes, so that existing pods break no constraint."""

MEASURED: Final = {"bench": "measured"}
_SELECTOR: Final = "bench=measured"
_APISERVER: Final = ("--delete-collection-workers=8",)
_COUNTED_PODS: Final = 200
_PAIR: Final = ("in-tree", "homeport")


class Run(Struct, frozen=True):
    """One system, once. ``cpu_ms``: by process, for a pod. ``wrong``: what a constraint that is broken says.

    ``before_the_tail``: pods a second until 95 % are bound. A pod that is sent back waits seconds for its next turn.
    """

    pods_per_second: float
    before_the_tail: float
    unplaced: int
    attempts: Mapping[str, int]
    cpu_ms: Mapping[str, float | None]
    wrong: Sequence[str]


def node_name(number: int) -> str:
    return f"node-{number:05d}"


def zone_of(node: str) -> str:
    """Nodes go round the zones."""
    return ZONES[int(node.rpartition("-")[2]) % len(ZONES)]


def nodes(count: int) -> Iterator[dict[str, Any]]:
    """Nodes as scheduler_perf has them."""
    for name in map(node_name, range(count)):
        yield objects.node(name, zone=zone_of(name), cpu="4", memory="32Gi")


def existing(count: int, among: int) -> Iterator[dict[str, Any]]:
    """Pods that are bound already, round the nodes."""
    for number in range(count):
        name = node_name(number % among)
        yield objects.pod(f"existing-{number}", labels=SELECTED, node_name=name, requests=_REQUESTS)


def measured(count: int, constraints: Sequence[Constraint]) -> Iterator[dict[str, Any]]:
    """Pods that wait."""
    spread = [it.as_json() for it in constraints]
    labels = {**SELECTED, **MEASURED}
    for number in range(count):
        yield objects.pod(f"measured-{number}", labels=labels, spread_constraints=spread, requests=_REQUESTS)


_REQUESTS: Final = {"cpu": "100m", "memory": "100Mi"}


class Bench:
    """One cluster and the cases that are measured in it."""

    def __init__(self, plane: ControlPlane, folder: Path, nodes_there: int, pods_there: int) -> None:
        self._plane = plane
        self._folder = folder
        self._nodes = nodes_there
        self._existing = Counter(node_name(number % nodes_there) for number in range(pods_there))
        self._population = Population(plane)
        began = time.monotonic()
        self._population.create(NODES, nodes(nodes_there))
        self._population.create(PODS, existing(pods_there, nodes_there))
        report.say(f"{nodes_there} nodes and {pods_there} pods made in {time.monotonic() - began:.0f} s")

    def run(self, case: Case, system: str) -> Run:
        """Place the pods of a case once, and take them away again."""
        size = case.size
        self._population.create(PODS, measured(size.measured, case.workload.constraints))
        try:
            return self._timed(case, system)
        finally:
            self._population.delete(PODS, _SELECTOR)

    def _timed(self, case: Case, system: str) -> Run:
        size = case.size
        marks = Marks()
        warm = max(1, size.measured // 10)
        watch = BoundWatch(self._population, PODS, _SELECTOR, {warm: marks.take, size.measured: marks.take})
        try:
            with SYSTEMS[system](self._plane, self._folder, size.percentage_of_nodes_to_score) as running:
                marks.watch(running, lambda: len(watch.times))
                bound = watch.wait(size.measured)
                marks.take(bound)
                attempts = _attempts(running.scheduler)
        finally:
            watch.close()
        placed = self._population.nodes_of(PODS, _SELECTOR)
        counted = watch.times[warm - 1 : bound]
        return Run(
            pods_per_second=_rate(counted),
            before_the_tail=_rate(counted[: len(counted) * 95 // 100]),
            unplaced=sum(not node for node in placed.values()),
            attempts=attempts,
            cpu_ms=marks.cpu_ms(),
            wrong=self._broken(case.workload.constraints, placed),
        )

    def _broken(self, constraints: Sequence[Constraint], placed: Mapping[str, str]) -> list[str]:
        """Hard constraints that do not hold now: no speed makes up for one."""
        counts = self._existing + Counter(node for node in placed.values() if node)
        wrong = []
        for constraint in constraints:
            domain: Callable[[str], str] = zone_of if constraint.topology_key == objects.ZONE_LABEL else str
            found = Counter({domain(name): 0 for name in map(node_name, range(self._nodes))})
            for name, count in counts.items():
                found[domain(name)] += count
            skew = max(found.values()) - min(found.values())
            if constraint.when_unsatisfiable == "DoNotSchedule" and skew > constraint.max_skew:
                wrong.append(f"{constraint.topology_key}: skew {skew} over {constraint.max_skew}")
        return wrong

    def names(self, case: Case) -> dict[str, Any]:
        """What goes over the wire for a pod, counted by a proxy in a run that is not timed."""
        size = case.size
        count = min(size.measured, _COUNTED_PODS)
        self._population.create(PODS, measured(count, case.workload.constraints))
        watch = BoundWatch(self._population, PODS, _SELECTOR, {})
        try:
            with (
                Homeport(self._plane.kubeconfig, self._folder, start_seconds=300) as extender,
                CountingProxy(extender.port) as proxy,
            ):
                sampling = size.percentage_of_nodes_to_score
                with with_homeport(self._plane, extender, sampling, at=proxy.url):
                    watch.wait(count)
                return proxy.per_call()
        finally:
            watch.close()
            self._population.delete(PODS, _SELECTOR)


class Marks:
    """Processor time at two moments, each with the number of pods bound by then.

    Pods may be bound before the processes are known. Then the first moment is when they are.
    """

    def __init__(self) -> None:
        self._pids: Mapping[str, int] = {}
        self._taken: list[tuple[int, dict[str, float]]] = []
        self._missed = False

    def watch(self, running: Running, bound: Callable[[], int]) -> None:
        self._pids = running.pids
        if self._missed:
            self.take(bound())

    def take(self, bound: int) -> None:
        self._missed = not self._pids
        if self._pids:
            self._taken.append((bound, all_cpu_seconds(self._pids)))

    def cpu_ms(self) -> dict[str, float | None]:
        """For a pod; unknown where none was bound in between."""
        (before, first), (after, last) = self._taken[0], self._taken[-1]
        pods = after - before
        return {name: round((last[name] - first[name]) * 1000 / pods, 2) if pods else None for name in first}


def _rate(times: Sequence[float]) -> float:
    return round((len(times) - 1) / (times[-1] - times[0]), 1) if len(times) > 1 else 0.0


def _attempts(scheduler: Scheduler) -> dict[str, int]:
    """Scheduling attempts by result: more than one for a pod is one that was sent back."""
    found = re.findall(
        r'^scheduler_schedule_attempts_total\{.*result="(\w+)".*\} (\S+)$', scheduler.metrics(), re.MULTILINE
    )
    return {result: int(float(count)) for result, count in found}


def compared(case: Case, runs: Mapping[str, Sequence[Run]], names: Mapping[str, Any]) -> dict[str, Any]:
    """What is reported of a case."""
    pairs = zip(*(runs[name] for name in _PAIR), strict=True) if set(_PAIR) <= runs.keys() else ()
    ratios = [
        round(ours.pods_per_second / theirs.pods_per_second, 2) for theirs, ours in pairs if theirs.pods_per_second
    ]
    size = case.size
    return {
        "workload": case.name,
        "nodes": size.nodes,
        "existing": size.existing,
        "measured": size.measured,
        "percentageOfNodesToScore": size.percentage_of_nodes_to_score,
        "target": size.target,
        "ratio": round(median(ratios), 2) if ratios else None,
        "ratios": ratios,
        "systems": {name: _summary(found) for name, found in runs.items()},
        "wire": dict(names),
    }


def _summary(runs: Sequence[Run]) -> dict[str, Any]:
    return {
        "pods_per_second": median(run.pods_per_second for run in runs),
        "before_the_tail": median(run.before_the_tail for run in runs),
        "every_run": [run.pods_per_second for run in runs],
        "unplaced": sum(run.unplaced for run in runs),
        "broken": [text for run in runs for text in run.wrong],
        "attempts": {key: sum(run.attempts.get(key, 0) for run in runs) for key in sorted(_keys(runs))},
        "cpu_ms_per_pod": {name: _median(run.cpu_ms[name] for run in runs) for name in runs[0].cpu_ms},
    }


def _median(values: Iterable[float | None]) -> float | None:
    known = [it for it in values if it is not None]
    return round(median(known), 2) if known else None


def _keys(runs: Sequence[Run]) -> set[str]:
    return {key for run in runs for key in run.attempts}


def measure_case(bench: Bench, case: Case, systems: Sequence[str], rounds: int) -> dict[str, Any]:
    """Every second round the other way about: what one run leaves to the next is shared fairly."""
    runs: dict[str, list[Run]] = {name: [] for name in systems}
    for number in range(rounds):
        for name in systems if number % 2 == 0 else reversed(systems):
            run = bench.run(case, name)
            runs[name].append(run)
            report.say(f"{case.name}: {name} {run.pods_per_second} pods/s, {run.unplaced} unplaced {list(run.wrong)}")
    return compared(case, runs, bench.names(case) if "homeport" in systems else {})


def measure(cases: Sequence[Case], systems: Sequence[str], rounds: int) -> list[dict[str, Any]]:
    """All cases, those that share a cluster in one."""
    found = []
    for (nodes_there, pods_there), group in groupby(cases, Case.environment):
        with ControlPlane(apiserver_flags=_APISERVER) as plane, tempfile.TemporaryDirectory() as folder:
            bench = Bench(plane, Path(folder), nodes_there, pods_there)
            found += [measure_case(bench, case, systems, rounds) for case in group]
    return found


def show(found: Sequence[Mapping[str, Any]], systems: Sequence[str]) -> None:
    """Two tables: pods a second and what was on the wire; processor time."""
    report.table(
        ("workload", *(f"{name} pods/s" for name in systems), "ratio", "target", "names asked", "passed", "scored"),
        [
            (
                it["workload"],
                *(it["systems"][name]["pods_per_second"] for name in systems),
                it["ratio"],
                it["target"],
                it["wire"].get("filter", {}).get("names asked"),
                it["wire"].get("filter", {}).get("names passed"),
                it["wire"].get("prioritize", {}).get("names scored"),
            )
            for it in found
        ],
    )
    processes = ("kube-scheduler", "extender", "kube-apiserver", "etcd")
    report.table(
        ("CPU ms a pod", "system", *processes, "unplaced", "sent back", "broken"),
        [
            (
                it["workload"],
                name,
                *(it["systems"][name]["cpu_ms_per_pod"].get(process) for process in processes),
                it["systems"][name]["unplaced"],
                sum(count for result, count in it["systems"][name]["attempts"].items() if result != "scheduled"),
                len(it["systems"][name]["broken"]),
            )
            for it in found
            for name in systems
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.load.scheduling", description=__doc__)
    parser.add_argument("--label", default="", help="only sizes with this label")
    parser.add_argument("--matching", default="", help="only cases with one of these, parted by commas, in their name")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each system; default: %(default)s")
    parser.add_argument("--scale", type=float, default=1, help="size of everything; below 1 only to try the harness")
    parser.add_argument("--part", type=float, default=1, help="of the measured pods; default: all")
    parser.add_argument("--systems", default=",".join(_PAIR), help=f"of {', '.join(SYSTEMS)}; default: %(default)s")
    parser.add_argument("--output", default="", help="also write the JSON to this file")
    arguments = parser.parse_args()
    systems = arguments.systems.split(",")
    cases = chosen(load("scheduling"), label=arguments.label, matching=arguments.matching, scale=arguments.scale)
    cases = [Case(it.workload, replace(it.size, measured=round(it.size.measured * arguments.part))) for it in cases]
    found = measure(cases, systems, arguments.rounds)
    show(found, systems)
    report.publish({"machine": report.machine(), "rounds": arguments.rounds, "scheduling": found}, arguments.output)


if __name__ == "__main__":
    main()
