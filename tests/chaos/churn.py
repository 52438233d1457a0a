"""Kubelet, disruption controller, owners and users of the scenario ``preemptions``."""

from __future__ import annotations

import heapq
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Final

from tests.chaos.arena import Arena
from tests.chaos.checker import Event, Json
from tests.chaos.victims import NEVER_EVICT, PREEMPTING, healthy, name_of, node_of, priority
from tests.chaos.waves import STOCK
from tests.controlplane import objects
from tests.controlplane.client import RESOURCES, ApiError

NODES: Final = 9
OPEN: Final = ("zone-a", "zone-b")
LOW: Final = "low"
PRIORITIES: Final = {LOW: 10, "middle": 100, "high": 1000, "highest": 2000}
HIGHER: Final = ("middle", "high", "high", "high", "highest")
"""Priority classes of the pods that preempt, as often as they are drawn."""

_GRACE_SECONDS: Final = 30
_LONGEST_TERMINATION: Final = 3.0
_LONGEST_START: Final = 0.3
_SHARE_PAST_CONSTRAINTS: Final = 0.15
_SHARE_NEVER_EVICTED: Final = 0.05
_SMALLEST_SHARE: Final = 0.2
_LARGEST_SHARE: Final = 0.5
"""Shares of a group's places that pods of higher priority take."""

_SHARE_BEYOND: Final = 0.05
_MOST_WAITING: Final = 2
"""Maximum number of pods of one kind that wait in a group before no further one is created."""

_CHURN_SECONDS: Final = 0.03
_BUDGET_SECONDS: Final = 0.1
_EXPECTED: Final = (404, 409, 429)
"""Refusals that a client meets under churn: the pod is gone, was written, or is guarded."""


@dataclass(frozen=True, slots=True)
class Group:
    """Pods with the same hard constraints. ``places``: number of pods that these allow in the open zones."""

    name: str
    keys: Sequence[str]
    skew: int
    is_guarded: bool

    @property
    def places(self) -> int:
        domains = len(OPEN) if objects.ZONE_LABEL in self.keys else NODES // 3 * len(OPEN)
        return self.skew * domains

    def pod(self, name: str, priority_class: str, scheduler: str, **fields: Any) -> Json:
        labels = {"app": self.name}
        spread = [objects.spread(labels, topology_key=key, max_skew=self.skew) for key in self.keys]
        pod = objects.pod(
            name,
            labels={**labels, "tier": LOW if priority_class == LOW else "high"},
            scheduler_name=scheduler,
            priority_class_name=priority_class,
            spread_constraints=spread,
            **fields,
        )
        pod["spec"]["terminationGracePeriodSeconds"] = _GRACE_SECONDS
        return pod

    def budget(self) -> Json:
        labels = {"app": self.name, "tier": LOW}
        return objects.pod_disruption_budget(self.name, labels, min_available=max(1, self.places // 3))


ZONE, HOST = objects.ZONE_LABEL, objects.HOSTNAME_LABEL
_KINDS: Final[Sequence[tuple[Sequence[str], int]]] = (
    ((ZONE,), 3),
    ((HOST,), 1),
    ((ZONE, HOST), 3),
    ((ZONE,), 4),
    ((HOST,), 2),
    ((ZONE, HOST), 4),
)
GROUPS: Final = tuple(
    Group(f"group-{number}", *_KINDS[number % len(_KINDS)], is_guarded=number % 4 == 0) for number in range(24)
)


@dataclass(order=True)
class _Due:
    at: float
    number: int
    act: Callable[[], object] = field(compare=False)


class Cluster:
    """Kubelet, disruption controller, owners and users of one arena.

    ``preempted``: pods that were bound to the node to which Homeport had nominated them.
    """

    def __init__(self, arena: Arena, seed: int) -> None:
        self.arena = arena
        self.client = arena.plane.client
        self.chance = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.preempted: set[str] = set()
        self.nominated = threading.Event()
        self._due: list[_Due] = []
        self._numbers = count()
        self._seen: dict[str, set[str]] = {"run": set(), "end": set()}
        self._changed = threading.Condition()
        self._nodes = [it for it in arena.nodes if it.startswith(OPEN)]

    def create(self, group: Group, priority_class: str, **fields: Any) -> None:
        number = next(self._numbers)
        pod = group.pod(f"{priority_class}-{number}", priority_class, STOCK[number % len(STOCK)], **fields)
        self._try(lambda: self.client.create(pod))
        self.done[f"created {priority_class}"] += 1

    def create_low(self, group: Group) -> None:
        """Create a pod of low priority. Some are bound at once, past the constraints, and some are never evicted."""
        fields: dict[str, Any] = {}
        if self.chance.random() < _SHARE_PAST_CONSTRAINTS:
            fields["node_name"] = self.chance.choice(self._nodes)
        if self.chance.random() < _SHARE_NEVER_EVICTED:
            fields["annotations"] = {NEVER_EVICT: "true"}
        self.create(group, LOW, **fields)

    # kubelet and owners

    def see(self, event: Event) -> None:
        """Schedule what follows from a change of a pod."""
        if event.kind != "Pod" or event.change == "DELETED" or not node_of(event.found):
            if PREEMPTING in (event.found["metadata"].get("annotations") or {}):
                self.nominated.set()
            return
        pod, name = event.found, name_of(event.found)
        if (pod["metadata"].get("annotations") or {}).get(PREEMPTING) == node_of(pod):
            self.preempted.add(name)
        if "deletionTimestamp" in pod["metadata"]:
            if self._is_new("end", name):
                self._after(self.chance.uniform(0, _LONGEST_TERMINATION), lambda: self.client.delete("Pod", name))
                if pod["spec"]["priorityClassName"] == LOW:
                    group = next(it for it in GROUPS if it.name == pod["metadata"]["labels"]["app"])
                    self._after(self.chance.uniform(0, 1), lambda: self._replace(group))
        elif self._is_new("run", name):
            self._after(self.chance.uniform(0, _LONGEST_START), lambda: self._run(name))

    def _is_new(self, what: str, name: str) -> bool:
        is_new = name not in self._seen[what]
        self._seen[what].add(name)
        return is_new

    def _replace(self, group: Group) -> None:
        if len(self._pods(group, is_low=True, is_waiting=True)) < _MOST_WAITING:
            self.create_low(group)

    def _run(self, name: str) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ready = [{"type": "Ready", "status": "True", "lastTransitionTime": now}]
        self.client.patch_status("Pod", name, {"phase": "Running", "startTime": now, "conditions": ready})

    def _after(self, seconds: float, act: Callable[[], object]) -> None:
        with self._changed:
            heapq.heappush(self._due, _Due(time.monotonic() + seconds, next(self._numbers), act))
            self._changed.notify()

    def work(self, over: threading.Event) -> None:
        """Do what is scheduled, each at its time."""
        while not over.is_set():
            with self._changed:
                left = self._due[0].at - time.monotonic() if self._due else _BUDGET_SECONDS
                if left > 0:
                    self._changed.wait(min(left, _BUDGET_SECONDS))
                    continue
                due = heapq.heappop(self._due)
            self._try(due.act)

    def _try(self, act: Callable[[], object]) -> bool:
        try:
            act()
        except ApiError as error:
            if error.status not in _EXPECTED:
                raise
            return False
        return True

    # disruption controller

    def update_budgets(self, over: threading.Event) -> None:
        """Write the status of each budget, again and again."""
        while not over.wait(self.chance.uniform(0, 2 * _BUDGET_SECONDS)):
            for budget in self.client.list("PodDisruptionBudget", "default"):
                self._try(partial(self._update_budget, budget))

    def _update_budget(self, budget: Json) -> None:
        """Write the status, as the controller does, if it changes and nobody wrote the budget meanwhile."""
        pods = {name_of(it): it for it in self.arena.observer.pods()}
        before = budget.get("status", {})
        disrupted = {
            name: at
            for name, at in (before.get("disruptedPods") or {}).items()
            if name in pods and "deletionTimestamp" not in pods[name]["metadata"]
        }
        current = healthy(budget, (it for name, it in pods.items() if name not in disrupted))
        desired = budget["spec"]["minAvailable"]
        status = {
            "observedGeneration": budget["metadata"]["generation"],
            "currentHealthy": current,
            "desiredHealthy": desired,
            "expectedPods": current + len(disrupted),
            "disruptionsAllowed": max(0, current - desired),
            **({"disruptedPods": disrupted} if disrupted else {}),
        }
        if status != {key: it for key, it in before.items() if key != "conditions"}:
            path = RESOURCES["PodDisruptionBudget"].path("default", name_of(budget), "status")
            self.client.request("PUT", path, {**budget, "status": status})

    # users

    def churn(self, over: threading.Event) -> None:
        """Create and delete pods at random."""
        acts = {self._arrive: 8, self._arrive_low: 4, self._finish: 8, self._finish_low: 1, self._give_up: 1}
        while not over.wait(self.chance.expovariate(1 / _CHURN_SECONDS)):
            [act] = self.chance.choices([*acts], [*acts.values()])
            act(self.chance.choice(GROUPS))

    def _pods(self, group: Group, *, is_low: bool, is_waiting: bool) -> list[Json]:
        return [
            it
            for it in self.arena.observer.pods()
            if it["metadata"]["labels"]["app"] == group.name
            and (priority(it) == PRIORITIES[LOW]) == is_low
            and bool(node_of(it)) != is_waiting
            and "deletionTimestamp" not in it["metadata"]
        ]

    def _arrive(self, group: Group) -> None:
        """Create a pod of a higher priority. Most come only if other pods of higher priority left places."""
        bound = self._pods(group, is_low=False, is_waiting=False)
        is_full = len(bound) > group.places * _LARGEST_SHARE and self.chance.random() > _SHARE_BEYOND
        if not is_full and len(self._pods(group, is_low=False, is_waiting=True)) < _MOST_WAITING:
            self.create(group, self.chance.choice(HIGHER))

    def _arrive_low(self, group: Group) -> None:
        self._replace(group)

    def _finish(self, group: Group) -> None:
        bound = self._pods(group, is_low=False, is_waiting=False)
        if len(bound) > group.places * _SMALLEST_SHARE:
            name = name_of(self.chance.choice(bound))
            self._try(lambda: self.client.delete("Pod", name, grace_seconds=self.chance.choice((0, _GRACE_SECONDS))))
            self.done["deleted higher"] += 1

    def _finish_low(self, group: Group) -> None:
        """Evict a pod, so that its budget is respected and another client competes for the budget."""
        if bound := self._pods(group, is_low=True, is_waiting=False):
            name = name_of(self.chance.choice(bound))
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
            path = RESOURCES["Pod"].path("default", name, "eviction")
            if self._try(lambda: self.client.request("POST", path, eviction)):
                self.done["evicted by users"] += 1

    def _give_up(self, group: Group) -> None:
        waiting = self._pods(group, is_low=False, is_waiting=True)
        if len(waiting) == _MOST_WAITING:
            name = name_of(self.chance.choice(waiting))
            self._try(lambda: self.client.delete("Pod", name))
            self.done["deleted higher that waited"] += 1
