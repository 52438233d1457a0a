"""Judges whether nodes had room for what was bound to them. As ``checker``, it imports nothing of the product.

A node is overbooked once its pods ask for more of a resource than is allocatable there; a host port is taken twice
once two of its pods have it; anti-affinity is broken once a pod shares a domain with one that it, or that other one,
keeps away from. Pods count from their binding until they are finished or gone, terminating ones too.

Judged is every binding, in the order in which the API server accepted them. A decision is taken a moment before, and
what is bound in that moment only ever makes it stricter; what goes away meanwhile made the decision stricter than the
judgement. So no allowance is needed: each binding must hold by itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from tests.chaos.checker import FINISHED, Event, Json, UnsupportedHistory, ordered

PODS: Final = "pods"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
EVERY_ADDRESS: Final = "0.0.0.0"  # of a host port: on all addresses of the node
_SUFFIXES: Final = {
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate(("m", "", "k", "M", "G", "T"), start=-1)},
    **{suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti"), start=1)},
}
_NOT_JUDGED: Final = ("initContainers", "overhead", "resources")
_NOT_JUDGED_OF_TERM: Final = ("namespaces", "namespaceSelector", "matchLabelKeys", "mismatchLabelKeys")


@dataclass(frozen=True, slots=True)
class Broken:
    """``revision``: of the binding. ``what``: of the node or the other pod, for a person."""

    revision: int
    pod: str
    node: str
    what: str


@dataclass(slots=True)
class RoomJudgement:
    """Bindings that broke something, by what they broke."""

    binds: int = 0
    overbooked: list[Broken] = field(default_factory=list)
    ports: list[Broken] = field(default_factory=list)
    apart: list[Broken] = field(default_factory=list)

    @property
    def every(self) -> list[Broken]:
        return sorted((*self.overbooked, *self.ports, *self.apart), key=lambda it: it.revision)

    @property
    def nodes(self) -> set[str]:
        """Names of the nodes that were overbooked at any time."""
        return {it.node for it in self.overbooked}


def slim(spec: Mapping[str, Any]) -> Json:
    """Of a pod's spec what is judged here of its containers."""
    kept: list[Json] = []
    for container in spec.get("containers") or ():
        requests = (container.get("resources") or {}).get("requests")
        judged = {"resources": {"requests": requests} if requests else None, "ports": container.get("ports")}
        kept.append({key: it for key, it in judged.items() if it})
    return {"containers": [it for it in kept if it]} if any(kept) else {}


def judge_room(history: Iterable[Event]) -> RoomJudgement:
    """Judge every binding. Raises ``UnsupportedHistory``."""
    judgement = RoomJudgement()
    nodes: dict[str, Json] = {}
    placed: dict[str, dict[str, Json]] = defaultdict(dict)
    where: dict[str, str] = {}
    for event in ordered(history):
        if event.kind == "Node":
            nodes[event.found["metadata"]["name"]] = event.found
        if event.kind != "Pod":
            continue
        pod, node = event.found, str(event.found["spec"].get("nodeName") or "")
        if event.change == "DELETED" or (pod.get("status") or {}).get("phase") in FINISHED:
            placed[where.pop(event.uid, "")].pop(event.uid, None)
        elif node and event.uid not in where:
            judgement.binds += 1
            others = {name: [*pods.values()] for name, pods in placed.items() if pods}
            _judge(event, nodes, others, judgement)
            where[event.uid] = node
            placed[node][event.uid] = pod
        elif node:
            placed[node][event.uid] = pod
    return judgement


def _judge(
    event: Event, nodes: Mapping[str, Json], placed: Mapping[str, Sequence[Json]], judgement: RoomJudgement
) -> None:
    pod, node = event.found, str(event.found["spec"]["nodeName"])
    if found := [it for it in _NOT_JUDGED if pod["spec"].get(it)]:
        raise UnsupportedHistory(f"{_name(pod)} has {', '.join(found)}")

    def broken(what: str) -> Broken:
        return Broken(event.revision, _name(pod), node, what)

    here = placed.get(node, ())
    judgement.overbooked += map(broken, _beyond(pod, nodes[node], here))
    judgement.ports += map(broken, _taken(pod, here))
    judgement.apart += map(broken, _too_near(pod, node, nodes, placed))


def _beyond(pod: Json, node: Json, here: Iterable[Json]) -> Iterator[str]:
    """Each resource that the pod asks for and that is asked for beyond what is there."""
    asked = requested(pod)
    total = Counter(asked)
    for other in here:
        total.update(requested(other))
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    for resource in sorted(asked):
        if total[resource] > (limit := quantity(allocatable.get(resource, "0"))):
            yield f"{resource}: {total[resource]} of {limit}"


def requested(pod: Json) -> Counter[str]:
    """What a pod of plain containers asks for, by resource, itself as one of the node's ``pods``."""
    found: Counter[str] = Counter()
    for container in pod["spec"].get("containers") or ():
        for resource, asked in ((container.get("resources") or {}).get("requests") or {}).items():
            found[resource] += quantity(asked)  # type: ignore[assignment]  # a Counter takes any number
    found[PODS] += 1
    return found


def quantity(text: str) -> Decimal:
    """A quantity in the forms that the scenarios use: ``4``, ``500m``, ``2Gi``."""
    digits = text.rstrip("".join(_SUFFIXES))
    return Decimal(digits) * _SUFFIXES[text.removeprefix(digits)]


def _taken(pod: Json, here: Iterable[Json]) -> Iterator[str]:
    for other in here:
        for port in _ports(pod):
            for taken in _ports(other):
                if port[:2] == taken[:2] and (EVERY_ADDRESS in (port[2], taken[2]) or port[2] == taken[2]):
                    yield f"{port[0]}/{port[1]}, also of {_name(other)}"


def _ports(pod: Json) -> Iterator[tuple[str, int, str]]:
    """Protocol, number and address of each host port."""
    for container in pod["spec"].get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("hostPort"):
                yield port.get("protocol") or "TCP", port["hostPort"], port.get("hostIP") or EVERY_ADDRESS


def _too_near(pod: Json, node: str, nodes: Mapping[str, Json], placed: Mapping[str, Sequence[Json]]) -> Iterator[str]:
    """Each pod in a domain that this one, or that one, keeps for itself."""

    def shared(term: Json, name: str) -> bool:
        here, there = (nodes[it]["metadata"]["labels"].get(term["topologyKey"]) for it in (node, name))
        return here is not None and here == there

    for name, pods in placed.items():
        for other in pods:
            if any(shared(term, name) for term in (*_kept_away(pod, other), *_kept_away(other, pod))):
                yield f"{_name(other)} on {name}"


def _kept_away(pod: Json, other: Json) -> Iterator[Json]:
    """Those of the pod's required anti-affinity terms that are about the other."""
    affinity = (pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
    for term in affinity.get(REQUIRED) or ():
        if found := [it for it in _NOT_JUDGED_OF_TERM if term.get(it) is not None]:
            raise UnsupportedHistory(f"{_name(pod)} has an anti-affinity term with {', '.join(found)}")
        if pod["metadata"]["namespace"] == other["metadata"]["namespace"] and _selects(term, other):
            yield term


def _selects(term: Json, other: Json) -> bool:
    selector, labels = term.get("labelSelector"), other["metadata"].get("labels") or {}
    if selector is None:
        return False
    if any(it["operator"] != "In" for it in selector.get("matchExpressions") or ()):
        raise UnsupportedHistory(f"{_name(other)} is selected by more than In")
    wanted = (selector.get("matchLabels") or {}).items()
    return wanted <= labels.items() and all(
        labels.get(it["key"]) in it["values"] for it in selector.get("matchExpressions") or ()
    )


def _name(found: Json) -> str:
    return f"{found['metadata']['namespace']}/{found['metadata']['name']}"
