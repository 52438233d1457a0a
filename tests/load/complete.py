"""What a profile of all of kube-scheduler's plugins costs, beside one of spreading and homes alone.

    python -m tests.load.complete
    python -m tests.load.complete --nodes 200 --pods 1000 --calls 20    # to try the harness

Three services, one after the other, in a cluster whose pods and nodes have what all plugins read: the presets
``delegated`` and ``complete``, and ``delegated`` with ``bindRecheck``. In each, pods are filtered, scored and bound one
after another, so that whatever is kept is out of date by a node each time. Nobody waits for binds that are due: most
pods here are judged and never bound. Microseconds at the client; pauses of the
event loop in processor time; a bind in processor time. Prints JSON, and a table on standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from statistics import median
from typing import Any, Final

from msgspec import Struct

from tests.load import cluster, report
from tests.load.bench import Connection, Served, homeport
from tests.load.shop import Json, asked
from tests.load.usage import cpu_seconds, resident_megabytes

RECHECKED: Final = ("NodeResourcesFit", "NodePorts", "InterPodAffinity", "NodeUnschedulable", "TaintToleration")
PROFILES: Final[Mapping[str, Mapping[str, Any]]] = {
    "delegated": {"preset": "delegated"},
    "recheck": {"preset": "delegated", "bindRecheck": RECHECKED},
    "complete": {"preset": "complete"},
}
_SAMPLE: Final = 500
_WARM_UP: Final = 20
_NEW_WORKLOADS: Final = 10
_TRIES: Final = 10
_AHEAD: Final = 50
_KNOWN: Final = 10
"""Workloads whose nodes have all been judged and scored before. The pods that are bound are of these, too."""


class Sizes(Struct, frozen=True):
    """``calls``: pods that are filtered, scored and bound."""

    nodes: int
    pods: int
    calls: int


class Service:
    """A Homeport, called over one connection from another core."""

    def __init__(self, served: Served, connection: Connection) -> None:
        self.pid = served.pid
        self.longest_pause = served.longest_pause
        self._connection = connection

    def post(self, path: str, body: bytes) -> Any:
        return json.loads(self._connection.post(path, body))

    def timed(self, verb: str, body: bytes) -> tuple[float, Any]:
        """Return the microseconds of a call, and its answer."""
        began = time.perf_counter()
        answer = self._connection.post(f"/lean/{verb}", body)
        return (time.perf_counter() - began) * 1e6, json.loads(answer)


@contextmanager
def service(profile: Mapping[str, Any], sizes: Sizes) -> Iterator[Service]:
    """Start a Homeport with one profile, beside an API server with furnished nodes and pods."""
    head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration", "expectedBindWait": "0s"}
    numbers = (sizes.nodes, sizes.pods, 2 * _WARM_UP + 3 * sizes.calls, 1, _KNOWN)
    cores = os.sched_getaffinity(0)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
        json.dump({**head, "profiles": [{"schedulerName": "default-scheduler", **profile}]}, config)
        config.flush()
        with homeport(*numbers, config=config.name, observed=True) as served, Connection(served.port) as connection:
            os.sched_setaffinity(served.pid, {max(cores)})
            os.sched_setaffinity(0, {min(cores)})
            try:
                yield Service(served, connection)
            finally:
                os.sched_setaffinity(0, cores)


def known_workloads(served: Service, sizes: Sizes) -> dict[str, Any]:
    """Pods of workloads that were judged before: the whole cluster, a sample, scores of the sample, a bind."""
    names = [cluster.node_name(number) for number in range(sizes.nodes)]
    order = random.Random(sizes.calls)
    for number in range(_KNOWN):
        pod = cluster.furnish(cluster.waiting_pod(number, _KNOWN))
        served.timed("filter", asked(pod, names))
        for start in range(0, len(names), _SAMPLE):
            served.timed("prioritize", asked(pod, names[start : start + _SAMPLE]))
    some: dict[str, list[float]] = {"filter of 500": [], "prioritize of 500": []}
    every: list[float] = []
    turns = _WARM_UP + sizes.calls
    for number, turn in enumerate(_prepared(range(turns), names, order, _SAMPLE)):
        took, left = served.timed("filter", turn.body)
        again, _ = served.timed("prioritize", asked(turn.pod, left["NodeNames"]))
        if number >= _WARM_UP:
            some["filter of 500"].append(took)
            some["prioritize of 500"].append(again)
        _bind(served, turn.own, _places(served, turn.by_own))
    for number, turn in enumerate(_prepared(range(turns, 2 * turns), names, order, len(names))):
        took, _ = served.timed("filter", turn.body)
        if number >= _WARM_UP:
            every.append(took)
        _bind(served, turn.own, _places(served, turn.by_own))
    return {f"{what}, µs": round(median(each), 1) for what, each in {"filter of all": every, **some}.items()}


class _Turn(Struct, frozen=True):
    """The bodies of one turn, made before it: a client that works for milliseconds between its calls would find the
    processor asleep, and measure that. ``own`` is the pod that is bound, ``pod`` one of a known workload.
    """

    pod: Json
    own: Json
    body: bytes
    by_own: bytes


def _prepared(numbers: Iterable[int], names: Sequence[str], order: random.Random, size: int) -> Iterator[_Turn]:
    """Turns that ask about ``size`` nodes, and bind the waiting pods of these numbers. Made some at a time."""
    left = iter(numbers)
    while turns := [_turn(number, names, order, size) for number in islice(left, _AHEAD)]:
        yield from turns


def _turn(number: int, names: Sequence[str], order: random.Random, size: int) -> _Turn:
    pod, own = (cluster.furnish(cluster.waiting_pod(it, _KNOWN)) for it in (number % _KNOWN, number))
    some, others = (order.sample(names, min(it, len(names))) for it in (size, _SAMPLE))
    return _Turn(pod, own, asked(pod, some), asked(own, others))


def binds(served: Service, sizes: Sizes) -> dict[str, Any]:
    """One after another, each to a node that passed before the others of its turn, one a workload, were bound."""
    names = [cluster.node_name(number) for number in range(sizes.nodes)]
    order, spent = random.Random(sizes.nodes), 0.0
    first = 2 * (_WARM_UP + sizes.calls)
    for start in range(first, first + sizes.calls, _KNOWN):
        pods = [
            cluster.furnish(cluster.waiting_pod(it, _KNOWN))
            for it in range(start, min(start + _KNOWN, first + sizes.calls))
        ]
        samples = (order.sample(names, min(_SAMPLE, len(names))) for _ in pods)
        placed = [(pod, _places(served, asked(pod, some))) for pod, some in zip(pods, samples, strict=True)]
        before = cpu_seconds(served.pid)
        for pod, places in placed:
            _bind(served, pod, places)
        spent += cpu_seconds(served.pid) - before
    return {"bind, processor ms": round(spent * 1000 / sizes.calls, 3)}


def new_workloads(served: Service, sizes: Sizes) -> dict[str, Any]:
    """Pods as there were none: the first call of all nodes, and the longest step of the event loop meanwhile."""
    names = [cluster.node_name(number) for number in range(sizes.nodes)]
    took, pauses = [], []
    for number in range(_NEW_WORKLOADS):
        pod = cluster.furnish(cluster.pending_pod(number * 3 % cluster.WORKLOADS, f"new-{number}"))
        pod["metadata"]["labels"]["track"] = f"track-{number}"
        pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": f"{300 + number}m", "memory": "300Mi"}
        pod["spec"]["nodeSelector"] = {"kubernetes.io/os": "linux"}
        pod["spec"]["tolerations"] = [{"key": f"key-{number}", "operator": "Exists"}]
        served.longest_pause()
        took.append(served.timed("filter", asked(pod, names))[0] / 1000)
        pauses.append(served.longest_pause()["cpu_ms"])
    return {"first filter of all, ms": round(median(took), 1), "longest step, ms": max(pauses)}


def _places(served: Service, body: bytes) -> list[str]:
    found: list[str] = served.post("/lean/filter", body)["NodeNames"]
    return found


def _bind(served: Service, pod: Mapping[str, Any], places: Sequence[str]) -> None:
    """To the first that will do: where plugins are asked at bind alone, filter may have let through what they refuse.

    Raises ``RuntimeError`` if none does.
    """
    meta, error = pod["metadata"], "there is no place"
    for place in places[:_TRIES]:
        named = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": place}
        error = served.post("/bind", json.dumps(named).encode()).get("Error")
        if not error:
            return
    raise RuntimeError(error)


def measure(sizes: Sizes) -> dict[str, Any]:
    found = {}
    for name, profile in PROFILES.items():
        with service(profile, sizes) as served:
            found[name] = {
                **known_workloads(served, sizes),
                **binds(served, sizes),
                **new_workloads(served, sizes),
                "memory, MB": round(resident_megabytes(served.pid)),
            }
    return found


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.load.complete", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--calls", type=int, default=500)
    given = parser.parse_args()
    found = measure(Sizes(given.nodes, given.pods, given.calls))
    columns = list(found)
    rows = [(what, *(found[it][what] for it in columns)) for what in found[columns[0]]]
    report.table(("", *columns), rows)
    report.publish({"machine": report.machine(), "complete": found})


if __name__ == "__main__":
    main()
