"""Generates clusters in which topology spread rejects a pod on every node, and says which preemption is right.

The rules are those of kube-scheduler 1.36: PodTopologySpread (``Filter``, ``AddPod``, ``RemovePod``), DefaultPreemption
(``SelectVictimsOnNode``) and ``pickOneNodeForPreemption``. Those of ``preemption: Own`` are in ``docs/preemption.md``.
The module uses no code of Homeport.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Final

from tests.controlplane import objects
from tests.controlplane.client import Json
from tests.controlplane.objects import HOSTNAME_LABEL, ZONE_LABEL

PRIORITY: Final = 1000
PRIORITIES: Final = {-5: 2, 0: 4, 10: 4, 100: 4, PRIORITY: 1, 2000: 1}
"""Priorities of the pods on nodes, with their weights."""


@dataclass(frozen=True)
class CaseNode:
    """``closed``: tainted, so that it counts as a domain but takes no pod."""

    name: str
    zone: str
    closed: bool


@dataclass(frozen=True, eq=False)
class Resident:
    """Pod on a node. ``started``: minutes after the first possible start."""

    name: str
    node: str
    priority: int
    started: int
    labels: Mapping[str, str]
    terminating: bool = False


@dataclass(frozen=True)
class CaseBudget:
    """PodDisruptionBudget of the pods with ``labels``. ``outdated``: its status is not that of its generation."""

    name: str
    labels: Mapping[str, str]
    allowed: int
    outdated: bool


@dataclass(frozen=True)
class PreemptionCase:
    """Cluster in which a pod with ``PRIORITY``, these labels and these constraints is rejected on every node."""

    number: int
    labels: Mapping[str, str]
    nodes: Sequence[CaseNode]
    constraints: Sequence[Json]
    residents: Sequence[Resident]
    budgets: Sequence[CaseBudget]


Choices = Mapping[str, frozenset[str]]
"""Names of the victims by node. Several nodes are a tie; no node means that nothing is evicted."""


# Generation


def generate(seed: int) -> Iterator[PreemptionCase]:
    """Yield cases without end. In about one of ten, no eviction helps."""
    for number in count():
        random = Random(f"{seed}/{number}")
        hopeless = random.random() < 0.1
        while True:
            case = draw(random, number)
            if any(fits(case, node, ()) for node in case.nodes if not node.closed):
                continue
            if bool(choices(case)) != hopeless:
                yield case
                break


def draw(random: Random, number: int) -> PreemptionCase:
    zones = "abc"[: random.choice((2, 3))]
    names = [f"n{index}" for index in range(random.randint(3, 6))]
    closed = [random.random() < 0.3 for _ in names]
    closed[-1], closed[0] = True, False
    nodes = [CaseNode(*it) for it in zip(names, random.choices(zones, k=len(names)), closed, strict=True)]
    keys = random.choice(((ZONE_LABEL,), (HOSTNAME_LABEL,), (ZONE_LABEL, HOSTNAME_LABEL)))
    ending = 0.3 if random.random() < 0.12 else 0.0
    starts = random.choice((1, 6, 60))
    priorities = random.sample([*PRIORITIES], random.choice((2, 3, 6)))
    residents: list[Resident] = []
    for node in nodes:
        for _ in range(random.choice((0, 0, 1)) if node.closed else random.randint(1, 5)):
            priority = random.choices(priorities, [PRIORITIES[it] for it in priorities])[0]
            labels = {
                "app": random.choice(("web", "web", "web", "other")),
                "tier": random.choice(("front", "front", "back")),
                "guard": random.choice("xyz"),
            }
            name, started = f"p{len(residents)}", random.randrange(starts)
            residents.append(Resident(name, node.name, priority, started, labels, random.random() < ending))
    budgets = [draw_budget(random, f"b{index}") for index in range(random.choice((0, 0, 1, 1, 2)))]
    labels = {"app": "web" if random.random() < 0.9 else "other", "tier": "front"}
    constraints = [draw_constraint(random, key) for key in keys]
    return PreemptionCase(number, labels, nodes, constraints, residents, budgets)


def draw_constraint(random: Random, key: str) -> Json:
    more: Json = {"minDomains": random.choice((2, 4))} if random.random() < 0.1 else {}
    more |= {"nodeTaintsPolicy": "Honor"} if random.random() < 0.1 else {}
    labels = {"app": "web"} if random.random() < 0.8 else {"tier": "front"}
    return objects.spread(labels, topology_key=key, max_skew=random.choice((1, 1, 2, 3)), **more)


def draw_budget(random: Random, name: str) -> CaseBudget:
    labels = random.choice(({"guard": "x"}, {"guard": "y"}, {"app": "web"}, {"app": "other"}))
    return CaseBudget(name, labels, random.choice((0, 0, 1, 2, 3)), random.random() < 0.1)


# Rules


def matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return selector.items() <= labels.items()


def fits(case: PreemptionCase, place: CaseNode, removed: Collection[Resident]) -> bool:
    """Return whether the constraints pass the node without the removed pods.

    Terminating pods do not count. PodTopologySpread nevertheless subtracts them if they are removed.
    """
    by_name = {node.name: node for node in case.nodes}
    for constraint in case.constraints:
        zonal, honors = constraint["topologyKey"] == ZONE_LABEL, constraint.get("nodeTaintsPolicy") == "Honor"
        domains = {node.name: node.zone if zonal else node.name for node in case.nodes if not (node.closed and honors)}
        counts = Counter(dict.fromkeys(domains.values(), 0))
        selector = constraint["labelSelector"]["matchLabels"]
        for pod in case.residents:
            if matches(selector, pod.labels) and by_name[pod.node].name in domains:
                counts[domains[pod.node]] += (pod not in removed) - pod.terminating
        fewest = 0 if len(counts) < constraint.get("minDomains", 1) else min(counts.values())
        if counts[domains[place.name]] + matches(selector, case.labels) - fewest > constraint["maxSkew"]:
            return False
    return True


def violating(case: PreemptionCase, pods: Sequence[Resident], own: bool) -> set[Resident]:
    """Return the pods whose eviction violates a budget; if ``own``, also those that the Eviction API refuses."""
    left = {budget.name: budget.allowed for budget in case.budgets}
    refused: set[Resident] = set()
    for pod in pods:
        guards = [budget for budget in case.budgets if matches(budget.labels, pod.labels)]
        for budget in guards:
            left[budget.name] -= 1
        if any(left[budget.name] < 0 for budget in guards):
            refused.add(pod)
        if own and (len(guards) > 1 or any(budget.outdated for budget in guards)):
            refused.add(pod)
    return refused


def victims_on(case: PreemptionCase, place: CaseNode, own: bool) -> tuple[int, list[Resident]]:
    """Return the number of violations, and the victims, most important first."""
    lower = [it for it in case.residents if it.node == place.name and it.priority < PRIORITY]
    if own:
        lower = [it for it in lower if not it.terminating]
    lower.sort(key=lambda it: (-it.priority, it.started))
    removed = set(lower)
    if not lower or not fits(case, place, removed):
        return 0, []
    refused = violating(case, lower, own)
    for pod in sorted(lower, key=lambda it: it not in refused):
        if fits(case, place, removed - {pod}):
            removed.remove(pod)
    return len(removed & refused), [it for it in lower if it in removed]


def choices(case: PreemptionCase, own: bool = False) -> Choices:
    """Return the cheapest nodes with their victims, by the rules of DefaultPreemption; or by those of ``Own``.

    The victims are without those that are terminating already, which DefaultPreemption counts in the cost.
    """
    costs: dict[str, tuple[int, ...]] = {}
    victims: dict[str, frozenset[str]] = {}
    for place in case.nodes:
        violations, pods = (0, []) if place.closed else victims_on(case, place, own)
        if pods and not (own and violations):
            highest = pods[0].priority
            latest = -min(it.started for it in pods if it.priority == highest)
            costs[place.name] = (violations, highest, sum(it.priority + 2**31 for it in pods), len(pods), latest)
            victims[place.name] = frozenset(it.name for it in pods if not it.terminating)
    return {name: victims[name] for name in victims if costs[name] == min(costs.values())}


def violates(case: PreemptionCase, chosen: Choices) -> bool:
    """Return whether DefaultPreemption violates a budget on the nodes that it prefers."""
    return any(victims_on(case, place, own=False)[0] for place in case.nodes if place.name in chosen)
