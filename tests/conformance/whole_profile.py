"""Topics of kube-scheduler's whole default profile: all plugins at once, other weights, plugins left out, nominations.

Knows nothing of Homeport. Each plugin has a little to refuse and to prefer, so that it matters who is asked first and
what the sums are; topics of single plugins draw their fields in depth.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final

from tests.conformance.draft import HARD, HOSTNAME, NAMESPACES, PREFERRED, REQUIRED, SCHEDULER, SOFT, ZONE, Json
from tests.conformance.per_node import NodeDraft

FILTERS: Final = (
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
)
SCORES: Final = (
    "TaintToleration",
    "NodeAffinity",
    "NodeResourcesFit",
    "PodTopologySpread",
    "InterPodAffinity",
    "NodeResourcesBalancedAllocation",
    "ImageLocality",
)
IMAGES: Final = ("registry.test/web:v1", "registry.test/db", "registry.test/big:2")
DEVICE: Final = "example.com/gpu"
STORAGE_CLASS: Final = "late"


class WholeDraft(NodeDraft):
    """``changed``: a profile with other weights, and plugins left out. ``nominations``: pods that are nominated."""

    def __init__(self, random: Random, *, changed: bool = False, nominations: int = 0) -> None:
        self.roomy = random.choice((0.2, 0.6, 0.9))
        self.terms = random.choice((0, 0.15, 0.4))
        self.volumes = random.choice((0, 0, 0.3))
        self.tainted = random.choice((0, 0.3, 1))
        self.changed = changed
        super().__init__(random, "NodeUnschedulable", "TaintToleration")
        self.claims: list[str] = []
        self._fill(self.pod)
        if self.chance(0.4):
            constraints = self.constraints({HARD: 2, SOFT: 3})
            self.pod["spec"]["topologySpreadConstraints"] = self.some(constraints, 1, 2)
        self.populate()
        for found in self.objects:
            if found["kind"] == "Pod":
                self._fill(found)
        for number in range(random.randint(1, nominations) if nominations and self.nodes else 0):
            pod = self.nominated(f"soon{number}")
            self._fill(pod)
            self.objects.append(pod)
        self.objects.extend(self._storage())
        self.objects.extend({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": it}} for it in NAMESPACES)

    def node(self, name: str) -> Json:
        found = super().node(name)
        room = {"cpu": "64", "memory": "256Gi", "pods": "110"} if self.chance(self.roomy) else self._little_room()
        found["status"] = {"capacity": dict(room), "allocatable": room}
        names = self.some(IMAGES, 0, 3)
        if names:
            size = self.random.choice((20, 200, 700, 2000)) << 20
            tagged = [it if ":" in it else f"{it}:latest" for it in names]
            found["status"]["images"] = [{"names": [it], "sizeBytes": size} for it in tagged]
        return found

    def _taints(self) -> list[Json]:
        return super()._taints() if self.chance(self.tainted) else []

    def _little_room(self) -> Json:
        room = {"cpu": self.random.choice(("1", "1500m", "4")), "memory": self.random.choice(("1Gi", "3Gi", "900M"))}
        if self.chance(0.4):
            room[DEVICE] = self.random.choice(("0", "1", "4"))
        return {**room, "pods": self.random.choice(("2", "4", "110"))}

    def _fill(self, pod: Json) -> None:
        """What a pod asks for, which ports it takes, whom it wants near, and what it mounts."""
        spec = pod["spec"]
        spec["containers"] = [self._container(number) for number in range(self.random.choice((1, 1, 2)))]
        if self.chance(0.15):
            first = self._container(9)
            spec["initContainers"] = [first]
        if self.chance(self.terms):
            spec["affinity"] = {**spec.get("affinity", {}), **self._pod_terms()}
        if self.chance(0.2):
            preference = {"weight": self.random.choice((1, 30, 100)), "preference": self._wish()}
            node = {**spec.get("affinity", {}).get("nodeAffinity", {}), PREFERRED: [preference]}
            spec["affinity"] = {**spec.get("affinity", {}), "nodeAffinity": node}
        if self.chance(self.volumes):
            space = pod["metadata"]["namespace"]
            claim = self.random.choice(("one", "two", "late"))
            self.claims.append(f"{space}/{claim}")
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]

    def _container(self, number: int) -> Json:
        found: Json = {"name": f"c{number}", "image": self.random.choice(IMAGES), "resources": {}}
        requests = {}
        if self.chance(0.7):
            requests["cpu"] = self.random.choice(("0", "100m", "500m", "1"))
        if self.chance(0.6):
            requests["memory"] = self.random.choice(("64Mi", "300M", "1Gi"))
        if self.chance(0.1):
            requests[DEVICE] = "1"
            found["resources"]["limits"] = {DEVICE: "1"}
        if requests:
            found["resources"]["requests"] = requests
        if number == 0 and self.chance(0.25):
            port = self.random.choice((8080, 8081))
            found["ports"] = [{"containerPort": port, "hostPort": port, "protocol": "TCP"}]
        return found

    def _wish(self) -> Json:
        return {"matchExpressions": [{"key": "disk", "operator": "In", "values": [self.random.choice(("ssd", "hdd"))]}]}

    def _pod_terms(self) -> Json:
        found: Json = {}
        for kind in self.some(("podAffinity", "podAntiAffinity"), 1, 2):
            term = {"topologyKey": self.random.choice((ZONE, HOSTNAME)), "labelSelector": self.selector()}
            if self.chance(0.2):
                term["namespaceSelector"] = {}
            if self.chance(0.4):
                found[kind] = {REQUIRED: [term]}
            else:
                weight = self.random.choice((1, 20, 100))
                found[kind] = {PREFERRED: [{"weight": weight, "podAffinityTerm": term}]}
        return found

    def _storage(self) -> list[Json]:
        """A class that binds late, and the claims that are named, most of them bound to a volume of some zone."""
        if not self.claims:
            return []
        made: list[Json] = [
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": STORAGE_CLASS, "uid": "class"},
                "provisioner": "disk.test",
                "reclaimPolicy": "Delete",
                "volumeBindingMode": "WaitForFirstConsumer",
            }
        ]
        for number, key in enumerate(dict.fromkeys(self.claims)):
            space, name = key.split("/")
            if not self.chance(0.9):
                continue
            bound = name != "late"
            made.append(self._claim(space, name, f"v{number}" if bound else ""))
            if bound:
                made.append(self._volume(f"v{number}", space, name))
        return made

    def _claim(self, space: str, name: str, volume: str) -> Json:
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": STORAGE_CLASS,
            "volumeMode": "Filesystem",
            **self._maybe("volumeName", volume),
        }
        meta: Json = {"name": name, "namespace": space, "uid": f"claim-{space}-{name}"}
        if volume:
            meta["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
        status = {"phase": "Bound" if volume else "Pending"}
        return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec, "status": status}

    def _volume(self, name: str, space: str, claim: str) -> Json:
        labels = {ZONE: f"t{self.random.randrange(3)}"} if self.chance(0.5) else {}
        spec: Json = {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "name": claim,
                "namespace": space,
                "uid": f"claim-{space}-{claim}",
            },
            "csi": {"driver": "disk.test", "volumeHandle": name},
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": STORAGE_CLASS,
            "volumeMode": "Filesystem",
        }
        if self.chance(0.3):
            wanted = {"key": ZONE, "operator": "In", "values": ["t0", "t1"]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}}
        meta = {"name": name, "uid": name, **self._maybe("labels", labels)}
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": meta,
            "spec": spec,
            "status": {"phase": "Bound"},
        }

    def case(self, name: str) -> Json:
        """Without a profile it is kube-scheduler's default one."""
        found = {"name": name, "objects": self.objects, "pod": self.pod}
        return {**found, "config": self._changed_profile()} if self.changed else found

    def _changed_profile(self) -> Json:
        plugins: Json = {}
        if self.chance(0.5):
            plugins["filter"] = {"disabled": _named(self.some(FILTERS, 1, 3))}
        left_out = self.some(SCORES, 0, 3)
        weighed = [it for it in self.some(SCORES, 1, 4) if it not in left_out]
        enabled = [{"name": it, "weight": self.random.choice((1, 2, 7, 100))} for it in weighed]
        plugins["score"] = {"disabled": _named([*left_out, *weighed]), "enabled": enabled}
        if self.chance(0.3):
            plugins["multiPoint"] = {"disabled": _named(self.some(("ImageLocality", "VolumeZone", "NodePorts"), 1, 1))}
            gone = {it["name"] for it in plugins["multiPoint"]["disabled"]}
            for point in plugins.values():
                if "enabled" in point:
                    point["enabled"] = [it for it in point["enabled"] if it["name"] not in gone]
        return {"schedulerName": SCHEDULER, "plugins": plugins}


def _named(names: Sequence[str]) -> list[Json]:
    return [{"name": it} for it in names]


TOPICS: Final[Mapping[str, Callable[[Random], WholeDraft]]] = {
    "default-profile": WholeDraft,
    "everything": lambda random: WholeDraft(random, changed=True),
    "default-nominated": lambda random: WholeDraft(random, nominations=6),
}
