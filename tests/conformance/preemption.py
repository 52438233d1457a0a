"""A topic about DefaultPreemption: who would have to go on each node, and which node is best.

Knows nothing of Homeport. Most nodes are refused by something that an eviction may cure: room, host ports, pods that
cannot stand one another, constraints of spreading. An eviction may also take away whom the pod has to be near. Some
profiles have a part of these filters only, so that each has the last word at times.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, Self

from tests.conformance import draft
from tests.conformance.draft import EPOCH, HARD, HOSTNAME, PLUGIN, RACK, REQUIRED, ZONE, Draft, Json, draw_traits

PREEMPTION: Final = "DefaultPreemption"

FILTERS: Final[Mapping[str, Sequence[str]]] = {
    "NodeUnschedulable": ("filter",),
    "TaintToleration": ("filter", "preScore", "score"),
    "NodePorts": ("preFilter", "filter"),
    "NodeResourcesFit": ("preFilter", "filter", "preScore", "score"),
    PLUGIN: ("preFilter", "filter", "preScore", "score"),
    "InterPodAffinity": ("preFilter", "filter", "preScore", "score"),
}
"""Whose filters refuse nodes, with their points, in the order in which kube-scheduler runs them by default."""

PRIORITIES: Final = (-(2**31), -10, 0, 0, 1, 10, 10, 100, 500, 2_000_001_000)
MOST_TIED: Final = 12
"""With more pods, no two of a node may have started together: up to so many Go's sort keeps equals in their order."""


class PreemptionDraft(Draft):
    """``tied``: some pods started together, or not at all. Otherwise each pod started at a time of its own.

    ``ported`` and ``opposed``: how likely a pod has a host port, and cannot stand others. ``drawn``: how likely the
    pending one has to be near others.
    """

    def __init__(self, random: Random) -> None:
        self.tied = random.random() < 0.4
        self.unstarted = random.choice((0.2, 0.2, 0.9))
        self.cordoned = random.choice((0, 0, 0.2))
        self.sizes = random.choice(((1, 2), (2, 4), (4, 16)))
        self.priorities = random.sample(PRIORITIES, random.choice((1, 2, 3, 6)))
        self.budgeted = random.choice((0, 0, 1, 2, 5))
        self.ported = random.choice((0, 0.1, 0.1, 0.5))
        self.opposed = random.choice((0, 0.1, 0.1, 0.4))
        self.drawn = random.choice((0, 0, 0.3))
        self.filters = list(FILTERS)
        if random.random() < 0.5:
            self.filters = [it for it in FILTERS if random.random() < 0.6] or ["InterPodAffinity"]
        self.started = 0
        traits = draw_traits(
            random,
            keyless=random.choice((0, 0, 0, 0.15)),
            tainted=random.choice((0, 0, 0.2)),
            affinity=0,
            pods_per_node=random.choice((2, 3, 4, 6)),
            crowding=random.choice((0, 1, 2)),
            nominated=random.choice((0, 0, 2)),
        )
        super().__init__(random, traits)

    # Nodes.

    def node(self, name: str) -> Json:
        found = super().node(name)
        room = {
            "cpu": str(self.random.choice(self.sizes)),
            "memory": "8Gi",
            "pods": str(self.random.choice((4, 8, 110))),
        }
        found["status"] = {"capacity": room, "allocatable": room}
        if self.chance(self.cordoned):
            found["spec"]["unschedulable"] = True
        return found

    def _node_count(self) -> int:
        return self.random.choice((1, 2, 3, 3, 4, 5, 6, 8))

    # Pods.

    def any_pod(self, name: str, namespace: str, labels: Mapping[str, str]) -> Json:
        pod = super().any_pod(name, namespace, labels)
        pod["spec"]["priority"] = self.random.choice(self.priorities)
        main = pod["spec"]["containers"][0]
        main["resources"] = {"requests": {"cpu": self.random.choice(("0", "100m", "400m", "1", "1500m"))}}
        if self.chance(self.ported):
            port = {"containerPort": 80, "hostPort": self.random.choice((80, 8080)), "protocol": "TCP"}
            if self.chance(0.3):
                port["hostIP"] = self.random.choice(("127.0.0.1", "10.0.0.1"))
            main["ports"] = [port]
        if self.chance(self.opposed):
            self._require(pod, "podAntiAffinity")
        return pod

    def _require(self, pod: Json, field: str) -> None:
        """A term about some pods: mostly those like the pending one."""
        peers = self._own() if self.chance(0.7) else {"matchLabels": {"app": self.random.choice(("web", "api"))}}
        term: Json = {"labelSelector": peers, "topologyKey": self.random.choice((HOSTNAME, HOSTNAME, ZONE, RACK))}
        if self.chance(0.2):
            term["namespaceSelector"] = {}
        pod["spec"].setdefault("affinity", {})[field] = {REQUIRED: [term]}

    def pending(self) -> Json:
        pod = super().pending()
        highest = max(self.priorities)
        pod["spec"]["priority"] = self.weighted({highest + 1: 12, highest: 4, min(self.priorities): 1})
        pod["spec"]["priority"] = min(pod["spec"]["priority"], 2_000_001_000)
        if self.chance(0.04):
            pod["spec"]["preemptionPolicy"] = "Never"
        elif self.chance(0.3):
            pod["spec"]["preemptionPolicy"] = "PreemptLowerPriority"
        if self.nodes and self.chance(0.2):
            pod["status"]["nominatedNodeName"] = self.node_name() if self.chance(0.9) else "gone"
        keys = self.random.choices((HOSTNAME, ZONE, RACK), (6, 3, 1), k=self.weighted({0: 1, 1: 12, 2: 3}))
        if self.chance(self.drawn):
            self._require(pod, "podAffinity")
        constraints = [self._crowded(key) for key in dict.fromkeys(keys)]
        if constraints:
            pod["spec"]["topologySpreadConstraints"] = constraints
        return pod

    def _crowded(self, key: str) -> Json:
        """One that refuses whoever comes to a node with a few peers."""
        found = self._constraint(key, HARD, self.selector() if self.chance(0.3) else self._own())
        if self.chance(0.7):
            found.update(maxSkew=self.random.choice((1, 1, 1, 2)), minDomains=9)
        return found

    def _own(self) -> Json:
        return self._maybe("matchLabels", {key: self.labels[key] for key in self.some(list(self.labels), 1, 1)})

    def populate(self) -> Self:
        super().populate()
        bound = [it for it in self.objects if it["kind"] == "Pod" and "nodeName" in it["spec"]]
        _part_ports(bound)
        crowd = Counter(pod["spec"]["nodeName"] for pod in bound)
        for pod in bound:
            self._begin(pod, together=self.tied and crowd[pod["spec"]["nodeName"]] <= MOST_TIED)
        self.objects += [self.budget(index) for index in range(self.budgeted)]
        self.random.shuffle(self.objects)
        return self

    def _begin(self, pod: Json, *, together: bool) -> None:
        """When it was started, and perhaps that it goes for another."""
        if not (together and self.chance(self.unstarted)):
            self.started += 0 if together and self.chance(0.4) else 1
            pod["status"]["startTime"] = self._time(self.started)
        if ("deletionTimestamp" in pod["metadata"] and self.chance(0.6)) or self.chance(0.05):
            pod["status"]["conditions"] = self._disrupted()

    def _time(self, seconds: int) -> str:
        """All different, in no order."""
        shuffled = seconds * 7919 % 86400
        return f"2025-12-{1 + seconds % 7:02}T{shuffled // 3600:02}:{shuffled // 60 % 60:02}:{shuffled % 60:02}Z"

    def _disrupted(self) -> list[Json]:
        found = {
            "type": self.weighted({"DisruptionTarget": 8, "Ready": 1}),
            "status": self.weighted({"True": 8, "False": 1}),
            "reason": self.weighted({"PreemptionByScheduler": 8, "EvictionByEvictionAPI": 2}),
            "lastTransitionTime": EPOCH,
        }
        other = {"type": "PodScheduled", "status": "True"}
        return [other, found] if self.chance(0.5) else [found]

    # Budgets.

    def budget(self, index: int) -> Json:
        namespace = self.other_namespace() if self.chance(0.1) else self.namespace
        spec: Json = self.random.choice(({"minAvailable": 1}, {"maxUnavailable": "25%"}, {"minAvailable": "50%"}))
        if self.chance(0.95):
            spec = {**spec, "selector": {} if self.chance(0.1) else self.selector()}
        allowed = self.random.choice((0, 0, 1, 1, 2, 5))
        status: Json = {"disruptionsAllowed": allowed, "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 4}
        if self.chance(0.2):
            names = [f"p{self.random.randrange(8)}" for _ in range(3)]
            status["disruptedPods"] = dict.fromkeys(names, EPOCH)
        found = self._object("policy/v1", "PodDisruptionBudget", f"b{index}", namespace, spec)
        return {**found, "status": status}

    # The profile, and what is asked.

    def profile(self, plugin_config: list[Json]) -> Json:
        names = [*self.filters, PREEMPTION, "PrioritySort", "DefaultBinder"]
        plugins: Json = {"multiPoint": {"disabled": [{"name": "*"}], "enabled": [{"name": name} for name in names]}}
        if self.chance(0.04):
            name = self.random.choice(self.filters)
            plugins[self.random.choice(FILTERS[name])] = {"disabled": [{"name": name}]}
        if self.chance(0.3):
            fields = {
                "minCandidateNodesPercentage": self.random.choice((0, 1, 50, 100)),
                "minCandidateNodesAbsolute": self.random.choice((1, 3, 500)),
            }
            args = dict(self.some(list(fields.items()), 1, 2))
            plugin_config = [*plugin_config, {"name": PREEMPTION, "args": args}]
        return {"schedulerName": draft.SCHEDULER, "plugins": plugins, "pluginConfig": plugin_config}

    def case(self, name: str) -> Json:
        names: list[Any] = [node["metadata"]["name"] for node in self.nodes]
        asked = names if self.chance(0.8) else self.some(names, 0, len(names))
        return {**super().case(name), "preempt": {"nodes": asked}}


def _part_ports(bound: Sequence[Json]) -> None:
    """No two pods of a node keep the same port: kube-scheduler forgets it with the first of them that leaves."""
    taken: set[tuple[str, str, int]] = set()
    for pod in bound:
        main = pod["spec"]["containers"][0]
        for port in main.get("ports", ()):
            key = (pod["spec"]["nodeName"], port.get("hostIP", "0.0.0.0"), port["hostPort"])
            if key in taken:
                del main["ports"]
            taken.add(key)


TOPICS: Final[Mapping[str, Callable[[Random], Draft]]] = {
    "preemption": lambda random: PreemptionDraft(random).populate()
}
