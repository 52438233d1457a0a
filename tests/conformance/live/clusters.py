"""Clusters as people run them, and pods that come one after the other: what prioritize and whole profiles are tried on.

A cluster depends on its seed alone. Zones are uneven, nodes differ in size, taints and labels; apps differ in what they
request and prefer, so that the scheduler's own plugins disagree with spreading, and with one another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, Final, TypeAlias

from tests.controlplane import objects

Json: TypeAlias = dict[str, Any]

SIZES: Final = (("8", "32Gi"), ("16", "64Gi"), ("16", "128Gi"), ("32", "128Gi"))
REQUESTS: Final[tuple[Mapping[str, str], ...]] = (
    {},
    {"cpu": "100m", "memory": "128Mi"},
    {"cpu": "500m", "memory": "1Gi"},
    {"cpu": "1", "memory": "512Mi"},
    {"cpu": "250m", "memory": "4Gi"},
    {"cpu": "2", "memory": "4Gi"},
)
HARD: Final[objects.WhenUnsatisfiable] = "DoNotSchedule"
SOFT: Final[objects.WhenUnsatisfiable] = "ScheduleAnyway"


class SmallCluster:
    """Some nodes, some apps, and pods of theirs that are there already."""

    def __init__(self, seed: int, schedule_by: str) -> None:
        self._random = Random(f"cluster-{seed}")
        self._seed = seed
        self._schedule_by = schedule_by
        zones = [f"zone-{letter}" for letter in "abcd"[: self._random.randint(2, 4)]]
        self.nodes = [
            self._node(f"t{seed}-{zone[-1]}{number}", zone)
            for zone in zones
            for number in range(self._random.randint(1, 9))
        ]
        self._apps = [self._app(f"app-{number}") for number in range(self._random.randint(2, 5))]
        self.residents = [self._resident(number) for number in range(self._random.randint(0, 3 * len(self.nodes)))]

    def _node(self, name: str, zone: str) -> Json:
        cpu, memory = self._random.choice(SIZES)
        labels = {"disk": self._random.choice(("ssd", "hdd"))}
        taints = [objects.taint("busy", effect="PreferNoSchedule")] if self._random.random() < 0.15 else []
        return objects.node(name, zone=zone, cpu=cpu, memory=memory, labels=labels, taints=taints)

    def _app(self, name: str) -> Json:
        """The fields of its pods."""
        labels = {"app": name}
        host, zone = objects.HOSTNAME_LABEL, objects.ZONE_LABEL
        skew = self._random.choice((1, 1, 2, 5))
        forms: tuple[tuple[tuple[str, objects.WhenUnsatisfiable], ...], ...] = (
            ((zone, SOFT), (host, SOFT)),
            ((zone, SOFT),),
            ((host, SOFT),),
            ((zone, HARD), (host, SOFT)),
        )
        form = self._random.choice(forms)
        app: Json = {
            "labels": labels,
            "requests": self._random.choice(REQUESTS),
            "spread_constraints": [
                objects.spread(labels, topology_key=key, when=when, max_skew=skew) for key, when in form
            ],
        }
        if self._random.random() < 0.4:
            app["affinity"] = {"nodeAffinity": self._preferred_nodes()}
        return app

    def _resident(self, number: int) -> Json:
        """A pod that was there before, on any node: nothing has spread it."""
        fields = {**self._random.choice(self._apps), "requests": self._random.choice(REQUESTS)}
        home = self._random.choice(self.nodes)["metadata"]["name"]
        return objects.pod(f"t{self._seed}-resident-{number}", node_name=home, **fields)

    def _preferred_nodes(self) -> Json:
        wanted = {"key": "disk", "operator": "In", "values": ["ssd"]}
        term = {"weight": self._random.choice((1, 50, 100)), "preference": {"matchExpressions": [wanted]}}
        return {"preferredDuringSchedulingIgnoredDuringExecution": [term]}

    def pods(self, count: int) -> Iterator[Json]:
        """Pods that come in any order of the apps."""
        for number in range(count):
            name = f"t{self._seed}-{number}"
            yield objects.pod(name, scheduler_name=self._schedule_by, **self._random.choice(self._apps))


class BusyCluster(SmallCluster):
    """One in which most plugins of kube-scheduler's default profile have something to say: nodes are cordoned, tainted
    and nearly full, and pods ask for ports, devices, neighbours and nodes of their own.
    """

    def _node(self, name: str, zone: str) -> Json:
        found = super()._node(name, zone)
        draw = self._random.random
        spec, status = found["spec"], found["status"]
        if draw() < 0.1:
            spec["unschedulable"] = True
        if draw() < 0.2:
            effect = self._random.choice(("NoSchedule", "PreferNoSchedule"))
            spec["taints"].append(objects.taint("dedicated", self._random.choice("ab"), effect))
        if draw() < 0.3:
            size = {"cpu": "3", "memory": "6Gi", "pods": self._random.choice(("4", "110")), "example.com/gpu": "2"}
            status["capacity"] = {**status["capacity"], **size}
            status["allocatable"] = dict(status["capacity"])
        count = self._random.randint(0, 3)
        images = self._random.sample(("db:1", "web:1", "registry.example/big:2"), count)
        status["images"] = [{"names": [it], "sizeBytes": self._random.choice((50, 300, 900)) << 20} for it in images]
        return found

    def _app(self, name: str) -> Json:
        app = super()._app(name)
        draw, labels = self._random.random, app["labels"]
        affinity: Json = dict(app.get("affinity", {}))
        if draw() < 0.3:
            affinity["podAntiAffinity"] = self._apart(labels)
        if draw() < 0.25:
            affinity["podAffinity"] = self._together(f"app-{self._random.randrange(3)}")
        if affinity:
            app["affinity"] = affinity
        if draw() < 0.3:
            app["tolerations"] = [objects.toleration("dedicated", self._random.choice(("", "a")))]
        if draw() < 0.2:
            app["node_selector"] = {"disk": self._random.choice(("ssd", "hdd"))}
        if draw() < 0.6:
            app["containers"] = [self._container(app.pop("requests"))]
        return app

    def _container(self, requests: Mapping[str, str]) -> Json:
        asked = dict(requests)
        if self._random.random() < 0.3:
            asked["example.com/gpu"] = "1"
        resources = {"requests": asked, "limits": {key: it for key, it in asked.items() if "/" in key}}
        image = self._random.choice(("db:1", "web:1", "registry.example/big:2"))
        ports = [{"containerPort": 80, "hostPort": self._random.choice((8080, 8081))}]
        return {"name": "main", "image": image, "resources": resources, "ports": ports[self._random.randrange(2) :]}

    def _apart(self, labels: Mapping[str, str]) -> Json:
        key = self._random.choice((objects.HOSTNAME_LABEL, objects.HOSTNAME_LABEL, objects.ZONE_LABEL))
        term = {"topologyKey": key, "labelSelector": {"matchLabels": dict(labels)}}
        if self._random.random() < 0.5:
            return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 40, "podAffinityTerm": term}]}

    def _together(self, app: str) -> Json:
        term = {"topologyKey": objects.ZONE_LABEL, "labelSelector": {"matchLabels": {"app": app}}}
        if self._random.random() < 0.4:
            return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 60, "podAffinityTerm": term}]}

    def _resident(self, number: int) -> Json:
        found = super()._resident(number)
        if "containers" in found["spec"]:
            found["spec"]["containers"] = [self._container(self._random.choice(REQUESTS))]
        return found
