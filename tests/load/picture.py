"""What events and the worst constraints cost, in this process: 5,000 nodes, 150,000 pods, 3,000 constraints alive.

    python -m tests.load.picture
    python -m tests.load.picture --nodes 200 --pods 2000 --constraints 50    # to try the harness

Every figure is microseconds of processor time of one call, with a plain figure beside it measured in turns with it: the
same events on a picture on which no constraint is alive, or the same question once its counts are kept. Prints JSON,
and a table on standard error.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import Any, Final

from app.kube.core_decoding import decode_pod
from app.kube.core_v1 import Pod
from app.kube.kinds import SERVICES
from tests.load import cluster, report
from tests.load.shop import Shop, app, asked, constraint, pending, pending_json
from tests.load.shop import node as node_of
from tests.load.shop import pod as pod_of

_REPEATS: Final = 7

Calls = Sequence[Callable[[], object]]


def microseconds(call: Callable[[], object]) -> float:
    began = time.thread_time_ns()
    call()
    return (time.thread_time_ns() - began) / 1000


def each(calls: Calls) -> float:
    """Median of a single call, where each may be made only once."""
    return round(median(microseconds(call) for call in calls), 2)


def kept(call: Callable[[], object], times: int = 50) -> float:
    """The same question again and again."""
    call()
    return each([call] * times)


def in_turns(ours: Callable[[], float], plain: Callable[[], float]) -> dict[str, float]:
    """Both, one after the other, several times: a noisy machine is noisy for both."""
    pairs = [(ours(), plain()) for _ in range(_REPEATS)]
    found, beside = (round(median(side), 2) for side in zip(*pairs, strict=True))
    ratio = median(one / other for one, other in pairs if other)
    return {"us": found, "plain_us": beside, "ratio": round(ratio, 2)}


# Events


def keep_constraints(shop: Shop, count: int) -> int:
    """Bring constraints to life by asking: over zones and hosts in turn, of every workload, with selectors in variants.

    Returns how many domain counts are kept then.
    """
    for number in range(count):
        workload = number % cluster.WORKLOADS
        variant = number // cluster.WORKLOADS
        key = (cluster.ZONE_KEY, cluster.HOST_KEY)[variant % 2]
        others = {"key": "team", "operator": "NotIn", "values": [f"nobody-{variant // 2}"]}
        selector = {**app(workload), "matchExpressions": [others]}
        shop.filter(pending(workload, constraint(key, selector)), shop.sample()[:10])
    return shop.picture.counts.statistics()["domains"]["entries"]


def pod_events(shop: Shop, count: int = 500) -> dict[str, float]:
    """µs each of pods that come, turn ready, move on (deleted), on a picture as it is; it is the same afterwards."""
    made = [cluster.pod(shop.pods + number * 7, shop.nodes) for number in range(count)]
    came = [pod_of(it) for it in made]
    for it in made:
        it["status"]["phase"] = "Running"
        it["metadata"]["resourceVersion"] = str(10_000_000)
        it["metadata"]["annotations"]["example.com/seen"] = "yes"
    changed = [pod_of(it) for it in made]
    for it in made:
        it["metadata"]["resourceVersion"] = str(10_000_001)
        it["metadata"]["labels"]["team"] = "moved"
    relabelled = [pod_of(it) for it in made]
    picture = shop.picture
    return {
        "add": each([partial(picture.upsert_pod, pod) for pod in came]),
        "update": each([partial(picture.upsert_pod, pod) for pod in changed]),
        "relabel": each([partial(picture.upsert_pod, pod) for pod in relabelled]),
        "delete": each([partial(picture.delete_pod, pod.key, pod.uid) for pod in came]),
    }


def decoding(shop: Shop, count: int = 500) -> float:
    """µs to read a pod event of 4 KB: paid whatever is kept."""
    raw = [json.dumps(cluster.pod(number, shop.nodes)).encode() for number in range(count)]
    return each([partial(decode_pod, body) for body in raw])


def node_flaps(shop: Shop, count: int = 100) -> float:
    """µs of a node that changes its zone, and back."""
    found = []
    for number in range(count):
        home = cluster.node(number % shop.nodes)
        away = cluster.node(number % shop.nodes)
        away["metadata"]["labels"][cluster.ZONE_KEY] = "zone-flap"
        found += [microseconds(partial(shop.picture.upsert_node, node_of(made))) for made in (away, home)]
    return round(median(found), 2)


def events(busy: Shop, quiet: Shop) -> dict[str, Any]:
    """Pod events on a picture with constraints alive and on one with none, in turns."""
    rounds = [(pod_events(busy), pod_events(quiet)) for _ in range(_REPEATS)]
    found = {}
    for kind in rounds[0][0]:
        ours, plain = median(it[kind] for it, _ in rounds), median(it[kind] for _, it in rounds)
        found[f"pod {kind}"] = {"us": ours, "plain_us": plain, "ratio": round(ours / plain, 2)}
    found["node changes its zone"] = in_turns(partial(node_flaps, busy), partial(node_flaps, quiet))
    found["decode a pod of 4 KB"] = {"us": decoding(busy)}
    return found


# Questions


def questions(shop: Shop) -> dict[str, Any]:
    """Each worst case, cold where it can be cold, beside the same question once its counts are kept."""
    return {**never_seen(shop), **hostname(shop), **rollouts(shop), **preemption(shop)}


def never_seen(shop: Shop) -> dict[str, Any]:
    """A selector and a topology nobody asked about: counted anew over all pods of the namespace, then kept."""
    sample = shop.sample()
    fresh = iter(range(10_000))

    def cold(key: str) -> float:
        others = {"key": "team", "operator": "NotIn", "values": [f"never-{next(fresh)}"]}
        pod = pending(3, constraint(key, {**app(3), "matchExpressions": [others]}))
        return microseconds(partial(shop.filter, pod, sample))

    def warm(key: str) -> float:
        return kept(partial(shop.filter, pending(3, constraint(key, app(3))), sample))

    return {
        f"filter {len(sample)} names, a constraint never seen, {what}": in_turns(partial(cold, key), partial(warm, key))
        for what, key in (("zone", cluster.ZONE_KEY), ("host", cluster.HOST_KEY))
    }


def hostname(shop: Shop) -> dict[str, Any]:
    """As many domains as nodes, against three."""
    sample, every = shop.sample(), shop.names()
    found = {}
    for count, names in ((len(sample), sample), (len(every), every)):
        for verb, ask in (("filter", shop.filter), ("prioritize", shop.score)):
            hard = verb == "filter"
            hosts = pending(5, constraint(cluster.HOST_KEY, app(5), hard=hard, skew=1))
            zones = pending(5, constraint(cluster.ZONE_KEY, app(5), hard=hard, skew=1))
            found[f"{verb} {count} names, {shop.nodes} domains against 3"] = in_turns(
                partial(kept, partial(ask, hosts, names)), partial(kept, partial(ask, zones, names))
            )
    return found


def rollouts(shop: Shop) -> dict[str, Any]:
    """``matchLabelKeys``: every revision is a selector of its own, cold at its first pod."""
    sample = shop.sample()
    revisions = iter(range(10_000))

    def of(revision: str) -> Pod:
        spread = constraint(cluster.ZONE_KEY, app(9), matchLabelKeys=["pod-template-hash"])
        return pending(9, spread, labels={"pod-template-hash": revision})

    def cold() -> float:
        return microseconds(partial(shop.filter, of(f"new-{next(revisions)}"), sample))

    name = f"filter {len(sample)} names, first pod of a revision"
    return {name: in_turns(cold, partial(kept, partial(shop.filter, of("old"), sample)))}


def preemption(shop: Shop) -> dict[str, Any]:
    """Every node a candidate with one victim, against a filter of the same nodes; both from body to answer."""
    made = pending_json(11, constraint(cluster.ZONE_KEY, app(11), skew=1))
    victims = {
        name: {"Pods": [{"UID": uid} for uid in list(info.pods)[:1]], "NumPDBViolations": 0}
        for name, info in shop.picture.nodes.items()
    }
    candidates = {name: found for name, found in victims.items() if found["Pods"]}
    preempt = json.dumps({"Pod": made, "NodeNameToMetaVictims": candidates}, separators=(",", ":")).encode()
    names = asked(made, list(candidates))
    return {
        f"preempt, {len(candidates)} candidates, against filter": in_turns(
            partial(microseconds, partial(shop.call, "preempt", preempt)),
            partial(kept, partial(shop.call, "filter", names), 10),
        )
    }


def checking(shop: Shop) -> dict[str, Any]:
    """What one turn of a check takes others, at most, and all of them together."""
    took: list[float] = []
    began = time.thread_time_ns()
    for _ in shop.picture.checking():
        ended = time.thread_time_ns()
        took.append((ended - began) / 1000)
        began = ended
    return {"check, its longest step": {"us": round(max(took), 2)}, "check, all of it": {"us": round(sum(took), 2)}}


def one_service(nodes: int, selected: int) -> dict[str, Any]:
    """The default constraints of a pod whose Service selects most of a namespace: prioritize and the events."""
    shop = Shop(nodes, 0)
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "all", "namespace": "team-1", "uid": "service", "resourceVersion": "1"},
        "spec": {"selector": {"team": "team-1"}},
    }
    shop.picture.others.upsert(SERVICES, SERVICES.decode(json.dumps(service).encode()))
    for number in range(selected):
        made = cluster.pod(1 + number * 20, nodes)
        made["spec"]["topologySpreadConstraints"] = []
        made["metadata"].update(name=f"selected-{number}", uid=f"selected-{number}")
        made["metadata"]["labels"]["pod"] = f"{number}"
        shop.picture.upsert_pod(pod_of(made))
    pod = pending(1)
    sample = shop.sample()
    gc.collect()
    gc.freeze()  # as a service does
    cold = microseconds(partial(shop.score, pod, sample))
    again = kept(partial(shop.score, pod, sample))
    found = {f"prioritize {len(sample)} names, a Service of {selected} pods": _beside(cold, again)}
    return {**found, "  the same once it is kept": {"us": again}}


def _beside(ours: float, plain: float) -> dict[str, float]:
    return {"us": round(ours, 2), "plain_us": plain, "ratio": round(ours / plain, 2)}


def measure(nodes: int, pods: int, constraints: int) -> dict[str, Any]:
    gc.disable()
    quiet, busy = Shop(nodes, pods), Shop(nodes, pods)
    alive = keep_constraints(busy, constraints)
    gc.freeze()
    gc.enable()
    return {
        "nodes": nodes,
        "pods": pods,
        "constraints alive": alive,
        "events": events(busy, quiet),
        "questions": {**questions(busy), **checking(busy), **one_service(nodes, pods // 3)},
    }


def show(found: dict[str, Any]) -> None:
    def rows(part: str) -> Iterator[tuple[object, ...]]:
        for name, it in found[part].items():
            yield name, it["us"], it.get("plain_us"), it.get("ratio")

    report.table((f"{found['constraints alive']} constraints alive", "µs", "with none", "ratio"), list(rows("events")))
    report.table(("question", "µs", "plain", "ratio"), list(rows("questions")))


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.load.picture", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--constraints", type=int, default=3_000)
    arguments = parser.parse_args()
    found = measure(arguments.nodes, arguments.pods, arguments.constraints)
    show(found)
    report.publish({"machine": report.machine(), "picture": found})


if __name__ == "__main__":
    main()
