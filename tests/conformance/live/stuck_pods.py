"""Generated pods that no node takes, each with nodes of its own.

A stuck pod depends on its seed and number alone. One or two causes keep it waiting: nodes that are cordoned or tainted,
too large a request, a label that nodes lack, skew, too few domains, a home elsewhere. Each node has one of the causes
that concern nodes, seldom both.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

from tests.controlplane import objects
from tests.controlplane.client import Json

ON_NODES: Final = ("cordon", "taint", "request", "affinity")
"""Causes that concern single nodes."""

CAUSES: Final = (*ON_NODES, "skew", "minDomains", "home")
HOME: Final = "homeport.dev/home"
POLICY: Final = "homeport.dev/policy"
CORDON_TAINT: Final = objects.taint("node.kubernetes.io/unschedulable")
NODE_CPU: Final = 4
_ON_PODS: Final = frozenset(CAUSES) - frozenset(ON_NODES)
_WANTED: Final = {"disk": "ssd"}


class StuckPod:
    """``name``: begins the names of all its objects. ``causes``: why it waits. ``nodes``, ``residents``: what to create
    before it. ``machine``: its VirtualMachine; ``None`` if no machine owns it. ``fields``: those of the pod, as the
    builders of pods take them.
    """

    def __init__(self, seed: int, number: int) -> None:
        self._random = Random(f"stuck-{seed}-{number}")
        self.name = f"s{seed}-{number}"
        draw = self._random
        self.causes = tuple(draw.sample(CAUSES, draw.choice((1, 1, 2, 2, 2))))
        self._on_nodes = [it for it in self.causes if it in ON_NODES]
        self._labels = {"app": self.name}
        self._zones = [f"zone-{letter}" for letter in "abcd"[: draw.randint(2, 4)]]
        self._blocked = draw.choice(self._zones)
        self.nodes = [
            self._node(f"{self.name}-{zone[-1]}{number}", zone)
            for zone in self._zones
            for number in range(draw.randint(1, 3))
        ]
        self.machine = self._machine() if "home" in self.causes else None
        self.residents = self._residents()
        self.fields = self._fields()

    def _node(self, name: str, zone: str) -> Json:
        """A node with a cause if causes concern all nodes, or those of the zone that the constraint leaves."""
        draw = self._random
        everywhere = not {*self.causes} & _ON_PODS
        causes: Sequence[str] = ()
        if everywhere or ("skew" in self.causes and zone == self._blocked):
            causes = self._on_nodes or [draw.choice(ON_NODES)]
            causes = causes if draw.random() < 0.1 else [draw.choice(causes)]
        elif draw.random() < 0.4:
            causes = self._on_nodes[:1]
        return self._node_with(causes, name, zone)

    def _node_with(self, causes: Sequence[str], name: str, zone: str) -> Json:
        draw = self._random
        cordoned = "cordon" in causes
        taints = [CORDON_TAINT] if cordoned and draw.random() < 0.5 else []
        if "taint" in causes:
            effect = draw.choice(("NoSchedule", "NoExecute"))
            taints.append(objects.taint("example.com/for", draw.choice(("", "batch")), effect))
        if draw.random() < 0.1:
            taints.append(objects.taint("example.com/busy", effect="PreferNoSchedule"))
        cpu = draw.choice(("900m", "1", "1500m")) if "request" in causes else str(NODE_CPU)
        labels = {} if "affinity" in causes else _WANTED
        return objects.node(name, zone=zone, cpu=cpu, labels=labels, taints=taints, unschedulable=cordoned)

    def _machine(self) -> Json:
        """A machine whose home is cordoned, full or gone."""
        draw = self._random
        home, machine = draw.choice(self.nodes), objects.virtual_machine(self.name)
        policy = draw.choice(("hard", "grace"))
        name = home["metadata"]["name"]
        match draw.choice(("cordoned", "full", "gone")):
            case "cordoned":
                home["spec"]["unschedulable"] = True
            case "full":
                home["status"]["allocatable"]["cpu"] = home["status"]["capacity"]["cpu"] = "500m"
            case _:
                name = f"{self.name}-gone"
        machine["metadata"]["annotations"] = {HOME: name, POLICY: policy}
        return machine

    def _residents(self) -> list[Json]:
        """Pods that the constraint counts: in all zones for too few domains, else in all but the blocked one."""
        draw = self._random
        counted: list[str] = []
        if {"skew", "minDomains"} & {*self.causes}:
            for zone in self._zones:
                if "minDomains" in self.causes or zone != self._blocked:
                    counted += draw.choices(self._names_in(zone), k=draw.randint(1, 2))
        requests = draw.choice(({}, {"cpu": "100m"}, {"cpu": "1500m", "memory": "2Gi"}))
        return [
            objects.pod(f"{self.name}-r{number}", labels=self._labels, node_name=node, requests=requests)
            for number, node in enumerate(counted)
        ]

    def _names_in(self, zone: str) -> list[str]:
        return [it["metadata"]["name"] for it in self.nodes if it["metadata"]["labels"][objects.ZONE_LABEL] == zone]

    def _fields(self) -> dict[str, Any]:
        """Fields of the pod, as the builders of pods take them."""
        draw = self._random
        fields: dict[str, Any] = {"labels": self._labels, "requests": {"cpu": "2", "memory": "1Gi"}}
        if "request" in self.causes and draw.random() < 0.3:
            fields["requests"] = draw.choice(({"cpu": "2", "memory": "33Gi"}, {"memory": "40000M", "cpu": "500m"}))
        if self._lacks_labels or draw.random() < 0.3:
            if draw.random() < 0.5:
                fields["node_selector"] = _WANTED
            else:
                values = {"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}
                required = {"nodeSelectorTerms": [{"matchExpressions": [values]}]}
                fields["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        if draw.random() < 0.2:
            fields["tolerations"] = [objects.toleration("example.com/other")]
        fields["spread_constraints"] = self._constraints()
        return fields

    def _constraints(self) -> list[Json]:
        draw = self._random
        if not {"skew", "minDomains"} & {*self.causes}:
            return []
        more: dict[str, Any] = {}
        if "minDomains" in self.causes:
            more["minDomains"] = len(self._zones) + draw.randint(1, 2)
        if self._lacks_labels or draw.random() < 0.3:
            more["nodeAffinityPolicy"] = "Ignore"  # else a zone without the label is no domain
        if draw.random() < 0.15:
            more["nodeTaintsPolicy"] = "Honor"
        constraints = [objects.spread(self._labels, max_skew=draw.choice((1, 1, 1, 2)), **more)]
        if draw.random() < 0.3:
            host = objects.spread(self._labels, topology_key=objects.HOSTNAME_LABEL, max_skew=draw.choice((1, 2)))
            constraints.insert(draw.randint(0, 1), host)
        return constraints

    @property
    def _lacks_labels(self) -> bool:
        return any(not _WANTED.items() <= it["metadata"]["labels"].items() for it in self.nodes)

    def make(self, owner: Json | None) -> Json:
        """Return the pod. ``owner``: the created VirtualMachineInstance of its machine, if it has one."""
        if owner is None:
            return objects.pod(self.name, **self.fields)
        return objects.launcher_pod(owner, **self.fields)
