"""What do 1,000 refused pods cost while others arrive? Every bind wakes every one of them.

Real etcd, kube-apiserver and kube-scheduler, and a Homeport. Run as ``python -m tests.load.standing_refusals``; prints
one JSON object: a run without refused pods and one with them, on one control plane. Latency is from the moment a pod
is created to its Binding as a watch shows it. All run on the same processors: what kube-scheduler spends on its own
retries slows everybody down, so the shares of CPU tell more than the latencies.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from tests.controlplane import objects
from tests.controlplane.client import Client
from tests.controlplane.controlplane import ControlPlane, Scheduler
from tests.integration.service import HTTP, Homeport, scheduler_config
from tests.load.population import NODES, PODS, BoundWatch, Population
from tests.load.report import percentiles
from tests.load.usage import cpu_seconds

_ZONES: Final = ("zone-a", "zone-b", "zone-c")
_WORKERS: Final = 8
_SETTLE_SECONDS: Final = 120
_FIGURE: Final = re.compile(r"^(homeport_\w+?)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


def figures(homeport: Homeport) -> dict[str, float]:
    """The counters of interest, by name and labels."""
    text = HTTP.get(f"{homeport.url}/metrics").text
    return {f"{name}{{{labels or ''}}}": float(value) for name, labels, value in _FIGURE.findall(text)}


def large_node(number: int) -> dict[str, Any]:
    return objects.node(f"node-{number}", zone=_ZONES[number % 3], cpu="640", memory="2560Gi", pods="2000")


def refused_pod(number: int, workloads: int) -> dict[str, Any]:
    """A pod of one of some workloads that want more zones than there are: one in each zone, and no more."""
    labels = {"app": f"refused-{number % workloads}"}
    constraint = objects.spread(labels, minDomains=2 * len(_ZONES))
    return objects.pod(f"refused-{number}", labels=labels, spread_constraints=[constraint])


def arriving_pod(run: str, number: int) -> dict[str, Any]:
    labels = {"app": f"arriving-{number % 10}", "run": run}
    return objects.pod(f"{run}-{number}", labels=labels, spread_constraints=[objects.spread(labels)])


def create_at(client: Client, pods: Sequence[dict[str, Any]], rate: float) -> dict[str, float]:
    """Create ``rate`` pods a second, if the machine can; returns when each was sent."""
    sent: dict[str, float] = {}

    def create(number: int, pod: dict[str, Any]) -> None:
        time.sleep(max(0.0, started + number / rate - time.monotonic()))
        sent[pod["metadata"]["name"]] = time.perf_counter()
        client.create(pod)

    started = time.monotonic()
    with ThreadPoolExecutor(_WORKERS) as pool:
        list(pool.map(create, range(len(pods)), pods))
    return sent


def quiet(homeport: Homeport) -> None:
    """Until no call has come for a second."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    before = -1
    while time.monotonic() < deadline:
        now = sum(homeport.outcomes("filter").values())
        if now == before:
            return
        before = now
        time.sleep(1)


def measured(
    plane: ControlPlane, homeport: Homeport, scheduler: Scheduler, name: str, arrivals: int, rate: float
) -> dict[str, Any]:
    """Pods arrive; what it cost until all of them were bound."""
    watch = BoundWatch(Population(plane), f"run={name}", {})
    pids = {"homeport": homeport.pid, "kube_scheduler": scheduler.process.pid}
    spent = {process: cpu_seconds(pid) for process, pid in pids.items()}
    before, started = figures(homeport), time.monotonic()
    sent = create_at(plane.client, [arriving_pod(name, number) for number in range(arrivals)], rate)
    arrived = time.monotonic() - started
    plane.client.wait_for(lambda: sent.keys() <= watch.seen.keys(), timeout=600, what="all pods to be bound")
    took = time.monotonic() - started
    after = figures(homeport)
    watch.close()
    latencies = [(watch.seen[pod] - at) * 1e3 for pod, at in sent.items()]
    return {
        "arrivals": arrivals,
        "arrived_per_second": round(arrivals / arrived, 1),
        "seconds_until_all_bound": round(took, 2),
        "latency_ms": percentiles(latencies),
        "cpu_share": {process: round((cpu_seconds(pid) - spent[process]) / took, 3) for process, pid in pids.items()},
        **dict(_calls(before, after, took)),
    }


def _calls(before: Mapping[str, float], after: Mapping[str, float], seconds: float) -> Iterator[tuple[str, Any]]:
    def grown(key: str) -> float:
        return after.get(key, 0.0) - before.get(key, 0.0)

    refused = grown('homeport_requests_total{outcome="no_fit",verb="filter"}')
    spent = grown('homeport_request_duration_seconds_sum{verb="filter"}')
    calls = grown('homeport_request_duration_seconds_count{verb="filter"}')
    yield "filter_calls", int(calls)
    yield "refusals", int(refused)
    yield "refusals_per_second", round(refused / seconds, 1)
    yield "remembered", int(grown('homeport_refusal_answers_total{answer="remembered"}'))
    yield "computed", int(grown('homeport_refusal_answers_total{answer="computed"}'))
    yield "filter_mean_microseconds", round(spent / calls * 1e6, 1) if calls else None


def story(arguments: argparse.Namespace) -> dict[str, Any]:
    """Both runs on one control plane: first without refused pods, then with."""
    with ControlPlane() as plane, tempfile.TemporaryDirectory() as folder:
        population = Population(plane)
        population.create(NODES, map(large_node, range(arguments.nodes)))
        with Homeport(plane.kubeconfig, Path(folder)) as homeport:
            config = {**scheduler_config(homeport), "clientConnection": {"qps": 5000, "burst": 10000}}
            with plane.start_scheduler(config) as scheduler:
                run = (arguments.arrivals, arguments.rate)
                measured(plane, homeport, scheduler, "warm", 50, arguments.rate)
                without = measured(plane, homeport, scheduler, "alone", *run)
                refused = range(arguments.refused + len(_ZONES) * arguments.workloads)
                population.create(PODS, (refused_pod(number, arguments.workloads) for number in refused))
                quiet(homeport)
                beside = measured(plane, homeport, scheduler, "beside", *run)
    return {
        "nodes": arguments.nodes,
        "refused_pods": arguments.refused,
        "refused_workloads": arguments.workloads,
        "without_refused_pods": without,
        "with_refused_pods": beside,
        "latency_ratio_p50": round(beside["latency_ms"]["p50"] / without["latency_ms"]["p50"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--refused", type=int, default=1_000)
    parser.add_argument("--workloads", type=int, default=20)
    parser.add_argument("--arrivals", type=int, default=1_000)
    parser.add_argument("--rate", type=float, default=100.0)
    print(json.dumps(story(parser.parse_args()), indent=2))


if __name__ == "__main__":
    main()
