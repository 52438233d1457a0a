"""How long one pod, of whatever shape the API server stores, keeps the event loop from others, at 5,000 nodes.

    python -m tests.load.hostile
    python -m tests.load.hostile --nodes 300 --pods 1000 --only constraints    # to try the harness

For each shape and verb: the longest step of the loop (what runs between two waits) and all of them together, first and
again, in milliseconds of processor time of the loop's thread; what was answered; and how much memory the process took.
Prints JSON, and a table on standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import httpx
from fastapi import FastAPI

from app.kube.core_decoding import decode_pod
from app.kube.pod_decoding import MOST_CONSTRAINTS
from tests.load import cluster, report
from tests.load.shop import Json, Shop, constraint
from tests.load.shop import node as node_of
from tests.load.usage import resident_megabytes

MOST: Final = 1_400_000
"""Bytes of a pod that an API server with its usual limits stores."""


def base(**spec: Any) -> Json:
    made = cluster.pending_pod(7)
    made["spec"]["topologySpreadConstraints"] = []
    made["spec"].update(spec)
    return made


def pairs(count: int, prefix: str = "k") -> dict[str, str]:
    return {f"{prefix}{number}": f"v{number}" for number in range(count)}


def one(selector: Json | None = None, **more: Any) -> Json:
    return constraint(cluster.HOST_KEY, selector or {"matchLabels": {"app": "app-7"}}, **more)


def constraints(count: int, **more: Any) -> list[Json]:
    """Over keys of their own: the API server takes each key once for hard ones and once for soft ones."""
    return [constraint(f"key-{number}", {"matchLabels": {"app": "app-7"}}, **more) for number in range(count)]


def terms(count: int) -> Json:
    """An affinity that no node meets before its last term."""
    odd = [
        {"matchExpressions": [{"key": cluster.HOST_KEY, "operator": "Exists"}, {"key": f"k{it}", "operator": "Exists"}]}
        for it in range(count)
    ]
    last = {"matchExpressions": [{"key": cluster.ZONE_KEY, "operator": "Exists"}]}
    return required([*odd, last])


def required(found: list[Json]) -> Json:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": found}}}


def tolerations(count: int) -> list[Json]:
    return [{"key": f"k{number}", "operator": "Exists"} for number in range(count)]


def labelled(count: int, spread: list[Json]) -> Json:
    made = base(topologySpreadConstraints=spread)
    made["metadata"]["labels"].update(pairs(count))
    return made


def owned(count: int) -> Json:
    made = base(topologySpreadConstraints=[one()])
    made["metadata"]["ownerReferences"] += [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": f"n{number}", "uid": f"u{number}"} for number in range(count)
    ]
    return made


def requirements(count: int) -> Json:
    """A selector that every pod meets only after all of it was looked at."""
    return {"matchExpressions": [{"key": f"k{number}", "operator": "DoesNotExist"} for number in range(count)]}


def values(count: int) -> Json:
    return {"matchExpressions": [{"key": "app", "operator": "In", "values": [f"app-{it}" for it in range(count)]}]}


def revisions(count: int) -> Json:
    made = base(topologySpreadConstraints=[one(matchLabelKeys=[f"k{number}" for number in range(count)])])
    made["metadata"]["labels"].update(pairs(count))
    return made


def judged(most: int) -> dict[str, Callable[[], Json]]:
    """As much as is read of a pod, by shape. ``most``: constraints."""
    keys = [f"shared-{number}" for number in range(most)]
    host = {"matchLabels": {"app": "app-7"}}
    return {
        "constraints, keys of no node": lambda: base(topologySpreadConstraints=constraints(most)),
        "constraints, keys of all nodes": lambda: base(
            topologySpreadConstraints=[constraint(key, host) for key in keys]
        ),
        "soft constraints, keys of all nodes": lambda: base(
            topologySpreadConstraints=[constraint(key, host, hard=False) for key in keys]
        ),
        "requirements of a selector": lambda: base(topologySpreadConstraints=[one(requirements(1300))]),
        "values of a selector": lambda: base(topologySpreadConstraints=[one(values(5000))]),
        "terms of an affinity": lambda: base(affinity=terms(450), topologySpreadConstraints=[one()]),
        "requirements of an affinity": lambda: base(
            affinity=required([requirements(1300)]), topologySpreadConstraints=[one()]
        ),
        "tolerations": lambda: base(
            tolerations=tolerations(1500), topologySpreadConstraints=[one(nodeTaintsPolicy="Honor")]
        ),
        "labels": lambda: labelled(3500, [one()]),
        "all of it": lambda: (
            labelled(3000, [constraint(key, host, nodeTaintsPolicy="Honor") for key in keys])
            | {
                "spec": {
                    **base()["spec"],
                    "affinity": terms(450),
                    "tolerations": tolerations(1500),
                    "topologySpreadConstraints": [
                        constraint(key, requirements(1000 // most), nodeTaintsPolicy="Honor") for key in keys
                    ],
                }
            }
        ),
    }


def stored() -> dict[str, Callable[[], Json]]:
    """Far more than is read: what the API server stores."""
    return {
        "4,500 constraints": lambda: base(topologySpreadConstraints=constraints(4500)),
        "1,500 constraints, large selectors": lambda: base(
            topologySpreadConstraints=[constraint(f"key-{it}", requirements(18)) for it in range(1500)]
        ),
        "20,000 values": lambda: base(topologySpreadConstraints=[one(values(20_000))]),
        "20,000 requirements": lambda: base(topologySpreadConstraints=[one(requirements(20_000))]),
        "20,000 matchLabelKeys": lambda: revisions(20_000),
        "20,000 nodeSelectorTerms": lambda: base(affinity=terms(12_000), topologySpreadConstraints=[one()]),
        "20,000 nodeSelectorTerms, no constraint": lambda: base(affinity=terms(12_000)),
        "50,000 tolerations": lambda: base(
            tolerations=tolerations(35_000), topologySpreadConstraints=[one(nodeTaintsPolicy="Honor")]
        ),
        "60,000 labels": lambda: labelled(60_000, [one()]),
        "60,000 labels, no constraint": lambda: labelled(60_000, []),
        "20,000 ownerReferences": lambda: owned(20_000),
        "50,000 schedulingGates": lambda: base(
            schedulingGates=[{"name": f"g{it}"} for it in range(50_000)], topologySpreadConstraints=[one()]
        ),
    }


class Steps:
    """Processor time of each step of the loop while it watches, in milliseconds."""

    def __init__(self) -> None:
        self.each: list[float] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        usual = asyncio.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            began = time.thread_time_ns()
            usual(handle)
            self.each.append((time.thread_time_ns() - began) / 1e6)

        gc.collect()
        setattr(asyncio.Handle, "_run", timed)  # noqa: B010  # the one place through which every step goes
        try:
            yield
        finally:
            setattr(asyncio.Handle, "_run", usual)  # noqa: B010  # as it was

    def told(self) -> dict[str, float]:
        return {"longest": round(max(self.each), 2), "total": round(sum(self.each), 1)}


def bodies(shop: Shop, made: Json) -> dict[str, tuple[str, bytes]]:
    """What is asked about the pod: path and body, by verb."""
    compact = {"separators": (",", ":")}
    names = shop.names()
    victims = {
        name: {"Pods": [{"UID": next(iter(info.pods))}], "NumPDBViolations": 0}
        for name, info in list(shop.picture.nodes.items())[:500]
        if info.pods
    }

    def named(count: int) -> bytes:
        asked = names[:: max(1, len(names) // count)][:count]
        return json.dumps({"Pod": made, "Nodes": None, "NodeNames": asked}, **compact).encode()  # type: ignore[arg-type]

    preempt = json.dumps({"Pod": made, "NodeNameToMetaVictims": victims}, **compact).encode()  # type: ignore[arg-type]
    meta = made["metadata"]
    binding = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": names[3]}
    return {
        "filter 500": ("/lean/filter", named(500)),
        "filter all": ("/filter", named(len(names))),
        "prioritize 500": ("/lean/prioritize", named(500)),
        "prioritize all": ("/prioritize", named(len(names))),
        "preempt 500": ("/preempt", preempt),
        "explain": ("/api/v1/explain", json.dumps({"pod": made}).encode()),
        "cycle": ("/api/v1/cycle", json.dumps({"pod": made}).encode()),
        "bind": ("/bind", json.dumps(binding).encode()),
    }


async def called(ask: Callable[[], Coroutine[Any, Any, httpx.Response]]) -> tuple[dict[str, float], str]:
    steps = Steps()
    with steps.watching():
        answer = await asyncio.create_task(ask())
    return steps.told(), f"{answer.status_code} {_outcome(answer.content)}"


def _outcome(body: bytes) -> str:
    found = json.loads(body)
    if isinstance(found, list):
        return f"{len(found)} scored"
    if "NodeNames" in found:
        reasons = set(found["FailedAndUnresolvableNodes"].values())
        return found["Error"] or f"{len(found['NodeNames'] or ())} pass; {' | '.join(sorted(reasons))}"
    if "NodeNameToMetaVictims" in found:
        return f"{len(found['NodeNameToMetaVictims'])} kept"
    return str(found.get("error") or found.get("Error") or found.get("message") or found.get("node") or "ok")[:150]


async def measured(shop: Shop, web: FastAPI, made: Json) -> dict[str, Any]:
    """The watch brings the pod, the verbs are asked about it, it is bound, and it goes."""
    raw = json.dumps(made).encode()
    before = resident_megabytes(os.getpid())
    began = time.thread_time_ns()
    pod = decode_pod(raw)
    shop.picture.upsert_pod(pod)
    event = (time.thread_time_ns() - began) / 1e6
    found: dict[str, Any] = {"bytes": len(raw), "event": {"longest": round(event, 2)}}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=web), base_url="http://bench", timeout=600
    ) as client:
        for verb, (path, body) in bodies(shop, made).items():
            ask = lambda path=path, body=body: client.post(path, content=body)  # noqa: E731
            first, said = await called(ask)
            again, _ = await called(ask) if verb != "bind" else (first, "")
            found[verb] = {**first, "again": again["longest"], "total again": again["total"], "said": said}
    shop.picture.delete_pod(pod.key, pod.uid)
    found["megabytes"] = round(resident_megabytes(os.getpid()) - before, 1)
    return found


def labelled_nodes(shop: Shop, most: int) -> None:
    """Every node has as many labels more, a third of which are its own alone."""

    for number in range(shop.nodes):
        made = cluster.node(number)
        own = {f"shared-{it}": f"v{number if it % 3 == 0 else number % (it + 2)}" for it in range(most)}
        made["metadata"]["labels"].update(own)
        shop.picture.upsert_node(node_of(made))


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.load.hostile", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--constraints", type=int, default=MOST_CONSTRAINTS)
    parser.add_argument("--only", default="", help="shapes whose name contains this")
    arguments = parser.parse_args()
    most = arguments.constraints
    shop = Shop(arguments.nodes, arguments.pods)
    labelled_nodes(shop, most)
    gc.collect()
    gc.freeze()
    web = shop._service.web()
    shapes: Mapping[str, Callable[[], Json]] = {**judged(most), **stored()}
    found: dict[str, Any] = {}
    for name, shape in shapes.items():
        if arguments.only in name:
            found[name] = asyncio.run(measured(shop, web, shape()))
            head = f"{name}, {found[name]['bytes']} bytes, {found[name]['megabytes']} MB"
            columns = ("longest", "again", "total", "total again", "said")
            verbs = {verb: it for verb, it in found[name].items() if isinstance(it, dict)}
            rows = [(verb, *(it.get(column, "") for column in columns)) for verb, it in verbs.items()]
            report.table((head, *columns), rows)
    report.publish({"machine": report.machine(), "hostile": found})


if __name__ == "__main__":
    main()
