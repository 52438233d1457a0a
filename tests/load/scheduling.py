"""How many pods a second does a stock kube-scheduler place with Homeport, and how many with its in-tree plugin?

    python -m tests.load.scheduling --label short
    python -m tests.load.scheduling --matching zone-hard/5000-nodes,zone-soft/5000-nodes
    python -m tests.load.scheduling --systems in-tree,homeport,at-most,complete,pick --matching 1000-nodes --rounds 3
    python -m tests.load.scheduling --matching zone-hard --scale 0.02 --rounds 1    # to try the harness

Runs on a real etcd, kube-apiserver and kube-scheduler on loopback. All pods are there before a scheduler starts; what
is measured begins when a tenth of them is bound and ends with the last. Runs of the systems alternate, each with
fresh processes, and what counts is the ratio within a round. Every run also checks that all pods were placed and that
hard constraints hold, and tells how even the pods of all constraints stand. Prints JSON, and tables on standard error.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from tests.controlplane import objects
from tests.controlplane.controlplane import ControlPlane, Scheduler
from tests.load import report
from tests.load.population import NODES, PODS, BoundWatch, Population
from tests.load.quiet import Probe
from tests.load.systems import SYSTEMS, Running
from tests.load.usage import cpu_seconds
from tests.load.workload import SELECTED, Case, Constraint, chosen, load

ZONES: Final = ("zone-a", "zone-b", "zone-c", "zone-d")
"""As many as divide the numbers of nodes, so that existing pods break no constraint."""

MEASURED: Final = {"bench": "measured"}
SELECTOR: Final = "bench=measured"
APISERVER_FLAGS: Final = ("--delete-collection-workers=8",)
IN_TREE: Final = "in-tree"
_HOMEPORT: Final = "homeport"


class Evenness(Struct, frozen=True):
    """How even the pods of a constraint stand at the end.

    ``skew``: how far the fullest domain is ahead of the emptiest · ``above``: how many pods the domains have
    beyond an even share, rounded up, by the number of pods that were placed.
    """

    skew: int
    above: float


class Run(Struct, frozen=True):
    """One system, once. ``cpu_ms``: by process, for a pod. ``wrong``: constraints that are broken. ``even``: by
    topology key.

    ``before_the_tail``: pods a second until 95 % are bound. A pod that is sent back waits seconds for its next turn.
    """

    pods_per_second: float
    before_the_tail: float
    unplaced: int
    attempts: Mapping[str, int]
    cpu_ms: Mapping[str, float | None]
    wrong: Sequence[str]
    even: Mapping[str, Evenness] = {}


def node_name(number: int) -> str:
    return f"node-{number:05d}"


def zone_of(node: str) -> str:
    """Nodes go round the zones."""
    return ZONES[int(node.rpartition("-")[2]) % len(ZONES)]


def nodes(count: int, cpu: str) -> Iterator[dict[str, Any]]:
    """Yield nodes like those of scheduler_perf, with this number of CPUs."""
    for name in map(node_name, range(count)):
        yield objects.node(name, zone=zone_of(name), cpu=cpu, memory="32Gi")


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

    def __init__(self, plane: ControlPlane, folder: Path, nodes_there: int, pods_there: int, *, cpu: str = "4") -> None:
        self._plane = plane
        self._folder = folder
        self._nodes = nodes_there
        self._existing = Counter(node_name(number % nodes_there) for number in range(pods_there))
        self._population = Population(plane)
        began = time.monotonic()
        self._population.create(NODES, nodes(nodes_there, cpu))
        self._population.create(PODS, existing(pods_there, nodes_there))
        report.say(f"{nodes_there} nodes and {pods_there} pods made in {time.monotonic() - began:.0f} s")

    def run(self, case: Case, system: str) -> Run:
        """Place the pods of a case once, and take them away again."""
        size = case.size
        self._population.create(PODS, measured(size.measured, case.workload.constraints))
        try:
            return self._timed(case, system)
        finally:
            self._population.delete(PODS, SELECTOR)

    def _timed(self, case: Case, system: str) -> Run:
        size = case.size
        marks = Marks()
        warm = max(1, size.measured // 10)
        watch = BoundWatch(self._population, SELECTOR, {warm: marks.take, size.measured: marks.take})
        try:
            with SYSTEMS[system](self._plane, self._folder, size.percentage_of_nodes_to_score) as running:
                marks.watch(running, lambda: len(watch.seen))
                bound = watch.wait(size.measured)
                marks.take(bound)
                attempts = _attempts(running.scheduler)
        finally:
            watch.close()
        placed = self._population.nodes_of(PODS, SELECTOR)
        counted = list(watch.seen.values())[warm - 1 : bound]
        even = self._evenness(case.workload.constraints, [node for node in placed.values() if node])
        return Run(
            pods_per_second=_rate(counted),
            before_the_tail=_rate(counted[: len(counted) * 95 // 100]),
            unplaced=sum(not node for node in placed.values()),
            attempts=attempts,
            cpu_ms=marks.cpu_ms(),
            wrong=broken(case.workload.constraints, even),
            even=even,
        )

    def _evenness(self, constraints: Sequence[Constraint], placed: Sequence[str]) -> dict[str, Evenness]:
        """``placed``: the node of each measured pod that has one."""
        found = {}
        for key in (it.topology_key for it in constraints):
            domain: Callable[[str], str] = zone_of if key == objects.ZONE_LABEL else str
            counts = {domain(name): 0 for name in map(node_name, range(self._nodes))}
            for name in (*self._existing.elements(), *placed):
                counts[domain(name)] += 1
            found[key] = evenness(counts, len(placed))
        return found


def evenness(counts: Mapping[str, int], placed: int) -> Evenness:
    """Of the pods by domain, ``placed`` of them in this run."""
    share = ceil(sum(counts.values()) / len(counts))
    above = sum(max(0, it - share) for it in counts.values())
    return Evenness(max(counts.values()) - min(counts.values()), round(above / placed, 4) if placed else 0.0)


def broken(constraints: Iterable[Constraint], even: Mapping[str, Evenness]) -> list[str]:
    """Hard constraints that do not hold: no speed makes up for one."""
    return [
        f"{it.topology_key}: skew {even[it.topology_key].skew} over {it.max_skew}"
        for it in constraints
        if it.when_unsatisfiable == "DoNotSchedule" and even[it.topology_key].skew > it.max_skew
    ]


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
            self._taken.append((bound, {name: cpu_seconds(pid) for name, pid in self._pids.items()}))

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


def compared(case: Case, runs: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    """What is reported of a case."""
    ratios = {name: ratios_to_in_tree(runs, name) for name in runs if name != IN_TREE}
    size = case.size
    return {
        "workload": case.name,
        "nodes": size.nodes,
        "existing": size.existing,
        "measured": size.measured,
        "percentageOfNodesToScore": size.percentage_of_nodes_to_score,
        "target": size.target,
        "ratio": _median(ratios.get(_HOMEPORT, ())),
        "ratios": ratios.get(_HOMEPORT, []),
        "systems": {
            name: {**_summary(found), "ratio": _median(ratios.get(name, ())), "ratios": ratios.get(name, [])}
            for name, found in runs.items()
        },
    }


def ratios_to_in_tree(runs: Mapping[str, Sequence[Run]], name: str) -> list[float]:
    """Of each round, by the in-tree plugin's pods a second."""
    pairs = zip(runs.get(IN_TREE, ()), runs[name], strict=False)
    return [round(ours.pods_per_second / theirs.pods_per_second, 2) for theirs, ours in pairs if theirs.pods_per_second]


def _summary(runs: Sequence[Run]) -> dict[str, Any]:
    return {
        "pods_per_second": median(run.pods_per_second for run in runs),
        "before_the_tail": median(run.before_the_tail for run in runs),
        "every_run": [run.pods_per_second for run in runs],
        "unplaced": sum(run.unplaced for run in runs),
        "broken": [text for run in runs for text in run.wrong],
        "attempts": {key: sum(run.attempts.get(key, 0) for run in runs) for key in sorted(_keys(runs))},
        "cpu_ms_per_pod": {name: _median(run.cpu_ms[name] for run in runs) for name in runs[0].cpu_ms},
        "even": {
            key: {
                "skew": _median(run.even[key].skew for run in runs),
                "above": round(median(run.even[key].above for run in runs), 4),
            }
            for key in runs[0].even
        },
    }


def _median(values: Iterable[float | None]) -> float | None:
    known = [it for it in values if it is not None]
    return round(median(known), 2) if known else None


def _keys(runs: Sequence[Run]) -> set[str]:
    return {key for run in runs for key in run.attempts}


def measure_case(bench: Bench, case: Case, systems: Sequence[str], rounds: int, probe: Probe) -> dict[str, Any]:
    """Every second round the other way about: what one run leaves to the next is shared fairly.

    ``probe`` looks at the machine before each run.
    """
    runs: dict[str, list[Run]] = {name: [] for name in systems}
    for number in range(rounds):
        for name in systems if number % 2 == 0 else reversed(systems):
            probe.take()
            run = bench.run(case, name)
            runs[name].append(run)
            report.say(f"{case.name}: {name} {run.pods_per_second} pods/s, {run.unplaced} unplaced {list(run.wrong)}")
    return compared(case, runs)


def measure(cases: Sequence[Case], systems: Sequence[str], rounds: int, probe: Probe) -> list[dict[str, Any]]:
    """All cases, those that share a cluster in one."""
    found = []
    for (nodes_there, pods_there), group in groupby(cases, Case.environment):
        with ControlPlane(apiserver_flags=APISERVER_FLAGS) as plane, tempfile.TemporaryDirectory() as folder:
            bench = Bench(plane, Path(folder), nodes_there, pods_there)
            found += [measure_case(bench, case, systems, rounds, probe) for case in group]
    return found


def show(found: Sequence[Mapping[str, Any]], systems: Sequence[str]) -> None:
    """Three tables: pods a second; processor time; how even the pods stand."""
    others = [name for name in systems if name != IN_TREE]
    report.table(
        ("workload", *(f"{name} pods/s" for name in systems), *(f"{name} ratio" for name in others), "target"),
        [
            (
                it["workload"],
                *(it["systems"][name]["pods_per_second"] for name in systems),
                *(it["systems"][name]["ratio"] for name in others),
                it["target"],
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
    report.table(
        ("how even", "system", "topology key", "skew", "share above"),
        [
            (it["workload"], name, key, even["skew"], even["above"])
            for it in found
            for name in systems
            for key, even in it["systems"][name]["even"].items()
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.load.scheduling", description=__doc__)
    parser.add_argument("--label", default="", help="only sizes with this label")
    parser.add_argument("--matching", default="", help="only cases with one of these, parted by commas, in their name")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each system; default: %(default)s")
    parser.add_argument("--scale", type=float, default=1, help="size of everything; below 1 only to try the harness")
    parser.add_argument("--part", type=float, default=1, help="of the measured pods; default: all")
    parser.add_argument(
        "--systems", default=f"{IN_TREE},{_HOMEPORT}", help=f"of {', '.join(SYSTEMS)}; default: %(default)s"
    )
    arguments = parser.parse_args()
    systems = arguments.systems.split(",")
    cases = chosen(load("scheduling"), label=arguments.label, matching=arguments.matching, scale=arguments.scale)
    cases = [Case(it.workload, replace(it.size, measured=round(it.size.measured * arguments.part))) for it in cases]
    probe = Probe()
    found = measure(cases, systems, arguments.rounds, probe)
    show(found, systems)
    beside = {"machine": report.machine(), "quiet": probe.as_json(), "rounds": arguments.rounds}
    report.publish({**beside, "scheduling": found})


if __name__ == "__main__":
    main()
