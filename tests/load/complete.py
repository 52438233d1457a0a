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
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, Final

from msgspec import Struct

from tests.controlplane.processes import free_port
from tests.load import cluster, report
from tests.load.bench import Connection, answers, running, wait_for, write_kubeconfig
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


class Served(Struct, frozen=True):
    """A Homeport that runs."""

    connection: Connection
    pid: int


@contextmanager
def homeport(profile: Mapping[str, Any], sizes: Sizes) -> Iterator[Served]:
    """With one profile, beside an API server with furnished nodes and pods."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        apiserver, port = free_port(), free_port()
        numbers = (apiserver, sizes.nodes, sizes.pods, 2 * _WARM_UP + 3 * sizes.calls, 1, _KNOWN)
        stack.enter_context(running("tests.load.apiserver", *map(str, numbers)))
        wait_for(lambda: answers(apiserver))
        config = folder / "homeport.yaml"
        head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration", "dueBindWait": "0s"}
        config.write_text(json.dumps({**head, "profiles": [{"schedulerName": "default-scheduler", **profile}]}))
        kubeconfig = write_kubeconfig(folder, apiserver)
        process = stack.enter_context(running("tests.load.observed", str(port), str(kubeconfig), str(config)))
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(process.pid, {max(cores)})
        stack.callback(os.sched_setaffinity, 0, cores)
        os.sched_setaffinity(0, {min(cores)})
        wait_for(lambda: answers(port, "/readyz"))
        yield Served(stack.enter_context(Connection(port)), process.pid)


def known_workloads(served: Served, sizes: Sizes) -> dict[str, Any]:
    """Pods of workloads that were judged before: the whole cluster, a sample, scores of the sample, a bind."""
    names = [cluster.node_name(number) for number in range(sizes.nodes)]
    order = random.Random(sizes.calls)
    for number in range(_KNOWN):
        pod = cluster.furnish(cluster.waiting_pod(number, _KNOWN))
        _timed(served, "filter", pod, names)
        for start in range(0, len(names), _SAMPLE):
            _timed(served, "prioritize", pod, names[start : start + _SAMPLE])
    some: dict[str, list[float]] = {"filter of 500": [], "prioritize of 500": []}
    every: list[float] = []
    turns = _WARM_UP + sizes.calls
    for number, asked in enumerate(_prepared(range(turns), names, order, _SAMPLE)):
        took, left = _timed_body(served, "filter", asked.body)
        again, _ = _timed(served, "prioritize", asked.pod, left["NodeNames"])
        if number >= _WARM_UP:
            some["filter of 500"].append(took)
            some["prioritize of 500"].append(again)
        _bind_somewhere(served, asked)
    for number, asked in enumerate(_prepared(range(turns, 2 * turns), names, order, len(names))):
        took, _ = _timed_body(served, "filter", asked.body)
        if number >= _WARM_UP:
            every.append(took)
        _bind_somewhere(served, asked)
    return {f"{what}, µs": round(median(each), 1) for what, each in {"filter of all": every, **some}.items()}


class _Asked(Struct, frozen=True):
    """The bodies of one turn, made before it: a client that works for milliseconds between its calls would find the
    processor asleep, and measure that. ``own`` is the pod that is bound, ``pod`` one of a known workload.
    """

    pod: Mapping[str, Any]
    own: Mapping[str, Any]
    body: bytes
    by_own: bytes


def _prepared(numbers: Iterable[int], names: Sequence[str], order: random.Random, size: int) -> Iterator[_Asked]:
    """Turns that ask about ``size`` nodes, and bind the waiting pods of these numbers. Made some at a time."""
    left = iter(numbers)
    while turns := [_turn(number, names, order, size) for number in islice(left, _AHEAD)]:
        yield from turns


def _turn(number: int, names: Sequence[str], order: random.Random, size: int) -> _Asked:
    pod, own = (cluster.furnish(cluster.waiting_pod(it, _KNOWN)) for it in (number % _KNOWN, number))
    asked, others = (order.sample(names, min(it, len(names))) for it in (size, _SAMPLE))
    return _Asked(pod, own, _body(pod, asked), _body(own, others))


def _bind_somewhere(served: Served, asked: _Asked) -> None:
    _bind(served, asked.own, _timed_body(served, "filter", asked.by_own)[1]["NodeNames"])


def binds(served: Served, sizes: Sizes) -> dict[str, Any]:
    """One after another, each to a node that passed before the others of its turn, one a workload, were bound."""
    names = [cluster.node_name(number) for number in range(sizes.nodes)]
    order, spent = random.Random(sizes.nodes), 0.0
    first = 2 * (_WARM_UP + sizes.calls)
    for start in range(first, first + sizes.calls, _KNOWN):
        pods = [
            cluster.furnish(cluster.waiting_pod(it, _KNOWN))
            for it in range(start, min(start + _KNOWN, first + sizes.calls))
        ]
        asked = [(pod, _places(served, pod, order.sample(names, min(_SAMPLE, len(names))))) for pod in pods]
        before = cpu_seconds(served.pid)
        for pod, places in asked:
            _bind(served, pod, places)
        spent += cpu_seconds(served.pid) - before
    return {"bind, processor ms": round(spent * 1000 / sizes.calls, 3)}


def new_workloads(served: Served, sizes: Sizes) -> dict[str, Any]:
    """Pods as there were none: the first call of all nodes, and the longest step of the event loop meanwhile."""
    names = [cluster.node_name(number) for number in range(sizes.nodes)]
    took, pauses = [], []
    for number in range(_NEW_WORKLOADS):
        pod = cluster.furnish(cluster.pending_pod(number * 3 % cluster.WORKLOADS, f"new-{number}"))
        pod["metadata"]["labels"]["track"] = f"track-{number}"
        pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": f"{300 + number}m", "memory": "300Mi"}
        pod["spec"]["nodeSelector"] = {"kubernetes.io/os": "linux"}
        pod["spec"]["tolerations"] = [{"key": f"key-{number}", "operator": "Exists"}]
        served.connection.get("/bench/pauses")
        took.append(_timed(served, "filter", pod, names)[0] / 1000)
        pauses.append(json.loads(served.connection.get("/bench/pauses"))["cpu_ms"])
    return {"first filter of all, ms": round(median(took), 1), "longest step, ms": max(pauses)}


def _body(pod: Mapping[str, Any], names: Sequence[str]) -> bytes:
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}, separators=(",", ":")).encode()


def _timed(served: Served, verb: str, pod: Mapping[str, Any], names: Sequence[str]) -> tuple[float, Any]:
    """Microseconds, and the answer."""
    return _timed_body(served, verb, _body(pod, names))


def _timed_body(served: Served, verb: str, body: bytes) -> tuple[float, Any]:
    began = time.perf_counter()
    answer = served.connection.post(f"/lean/{verb}", body)
    took = (time.perf_counter() - began) * 1e6
    return took, json.loads(answer)


def _places(served: Served, pod: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    found: list[str] = _timed(served, "filter", pod, names)[1]["NodeNames"]
    return found


def _bind(served: Served, pod: Mapping[str, Any], places: Sequence[str]) -> None:
    """To the first that will do: where plugins are asked at bind alone, filter may have let through what they refuse.

    Raises ``RuntimeError`` if none does.
    """
    meta, error = pod["metadata"], "there is no place"
    for place in places[:_TRIES]:
        named = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": place}
        error = json.loads(served.connection.post("/bind", json.dumps(named).encode())).get("Error")
        if not error:
            return
    raise RuntimeError(error)


def measure(sizes: Sizes) -> dict[str, Any]:
    found = {}
    for name, profile in PROFILES.items():
        with homeport(profile, sizes) as served:
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
