"""Topics of the plugins for volumes: zones, restrictions, limits, binding, and all of them together.

Knows nothing of Homeport. Objects are mostly such as fit one another, and then spoilt a little: a claim that is lost, a
volume that is gone, a class without a binding mode, a size just above what there is.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from tests.conformance.draft import REGION, ZONE, Draft, Json
from tests.conformance.per_node import CORDON, POINTS, TAINTS, NodeDraft

ZONES: Final = "VolumeZone"
RESTRICTIONS: Final = "VolumeRestrictions"
LIMITS: Final = "NodeVolumeLimits"
BINDING: Final = "VolumeBinding"

OF_VOLUMES: Final[Mapping[str, tuple[str, ...]]] = {
    RESTRICTIONS: ("preFilter", "filter"),
    LIMITS: ("preFilter", "filter"),
    BINDING: ("preFilter", "filter", "preScore", "score"),
    ZONES: ("preFilter", "filter"),
}
"""In the order kube-scheduler runs them by default; each after those of ``per_node`` but PodTopologySpread."""

BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
MIGRATED: Final = "storage.alpha.kubernetes.io/migrated-plugins"

NOW: Final = "now"
LATER: Final = "later"
STATIC: Final = "static"
REGIONAL: Final = "regional"
COUNTED: Final = "counted"
OLD: Final = "old"
MODELESS: Final = "modeless"
NO_CLASS: Final = "no-such-class"
ODD_CLASS: Final = ""

DRIVERS: Final = ("a.example.com", "b.example.com")
CAPACITY_DRIVER: Final = "capacity.example.com"
EBS: Final = "ebs.csi.aws.com"
GCE: Final = "pd.csi.storage.gke.io"
SHIPPED: Final = (
    "kubernetes.io/aws-ebs",
    "kubernetes.io/gce-pd",
    "kubernetes.io/azure-disk",
    "kubernetes.io/cinder",
    "kubernetes.io/portworx-volume",
)
SIZES: Final = ("1Gi", "1536Mi", "2Gi", "2.5Gi", "3G", "4Gi", "5000000000", "8Gi")
MODES: Final = ("ReadWriteOnce", "ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany")


class VolumeDraft(NodeDraft):
    """Some nodes with labels of zones, old and new; classes, claims and volumes; and ``plugins`` alone.

    ``sound``: how likely a claim is bound to a volume that is there.
    """

    def __init__(self, random: Random, *plugins: str, odd: float = 0.04, sound: float = 0.85) -> None:
        self.sound = sound
        self.old_labels = random.choice((0, 0, 0.3, 0.6))
        self.names = random.choice((1, 2, 3))
        self.reading = random.choice((0, 0.3, 0.8))
        self.made = 0
        self.at_points = odd
        super().__init__(random, *plugins, odd=0)
        self.objects += self.classes()

    # Nodes.

    def _node_count(self) -> int:
        """Hardly ever so few that all must fare alike."""
        found = super()._node_count()
        return found if self.chance(0.1) else max(found, 3)

    def _node_labels(self, name: str) -> Json:
        labels = super()._node_labels(name)
        if ZONE not in labels and self.chance(0.6):
            labels[ZONE] = f"t{self.random.randrange(3)}"
        for new, old in ((ZONE, BETA_ZONE), (REGION, BETA_REGION)):
            if new in labels and self.chance(self.old_labels):
                labels[old] = labels[new] if self.chance(0.8) else self._domain(new, name)
                if self.chance(0.5):
                    del labels[new]
        return labels

    def _domain(self, key: str, name: str) -> str:
        """Never one zone alone."""
        return super()._domain(key, name) if key != ZONE else f"t{self.random.randrange(max(2, self.traits.domains))}"

    def _taint(self) -> Json:
        return {**super()._taint(), "effect": "PreferNoSchedule"} if self.chance(0.7) else super()._taint()

    # Classes, claims and volumes.

    def classes(self) -> list[Json]:
        found = [
            self.storage_class(NOW, DRIVERS[0], "Immediate"),
            self.storage_class(LATER, DRIVERS[0]),
            self.storage_class(STATIC, "kubernetes.io/no-provisioner"),
            self.storage_class(REGIONAL, DRIVERS[1], allowedTopologies=self.topologies()),
            self.storage_class(COUNTED, CAPACITY_DRIVER),
            self.storage_class(OLD, self.random.choice((*SHIPPED, "kubernetes.io/vsphere-volume"))),
        ]
        if self.chance(0.1):
            found.append(self.storage_class(MODELESS, DRIVERS[0], ""))
        return found

    def storage_class(self, name: str, provisioner: str, mode: str = "WaitForFirstConsumer", **more: Any) -> Json:
        found = self.unspaced("storage.k8s.io/v1", "StorageClass", name)
        return {**found, "provisioner": provisioner, **self._maybe("volumeBindingMode", mode), **more}

    def topologies(self) -> list[Json]:
        """Terms without an overlap that the API server would refuse: each has another zone."""
        zones = self.some(("t0", "t1", "t2"), 1, 2)
        regions = [{"key": REGION, "values": self.some(("t0", "t1"), 1, 2)}] if self.chance(0.3) else []
        return [{"matchLabelExpressions": [{"key": ZONE, "values": [zone]}, *regions]} for zone in zones]

    def unspaced(self, api: str, kind: str, name: str) -> Json:
        return {
            "apiVersion": api,
            "kind": kind,
            "metadata": {"name": name, "uid": f"{kind}-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"},
        }

    def claim(self, name: str, namespace: str, class_name: str | None = NOW, **spec: Any) -> Json:
        """A claim that nothing has been done for."""
        found = self._object("v1", "PersistentVolumeClaim", name, namespace, {})
        found["metadata"]["uid"] = f"pvc-{namespace}-{name}"
        found["spec"] = {
            "accessModes": [self.random.choice(MODES)],
            "resources": {"requests": {"storage": self.random.choice(SIZES)}},
            "volumeMode": "Filesystem",
            **({} if class_name is None else {"storageClassName": class_name}),
            **spec,
        }
        found["status"] = {"phase": "Pending"}
        return found

    def volume(self, name: str, class_name: str = NOW, **spec: Any) -> Json:
        """A volume of a CSI driver that nobody has claimed."""
        found = self.unspaced("v1", "PersistentVolume", name)
        found["spec"] = {
            "accessModes": ["ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany"],
            "capacity": {"storage": "8Gi"},
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": class_name,
            "volumeMode": "Filesystem",
            **spec,
        }
        if not self._sources() & spec.keys():
            found["spec"]["csi"] = {"driver": DRIVERS[0], "volumeHandle": f"handle-{name}"}
        found["status"] = {"phase": "Available"}
        return found

    @staticmethod
    def _sources() -> set[str]:
        return {"csi", "gcePersistentDisk", "awsElasticBlockStore", "azureDisk", "cinder", "portworxVolume", "nfs"}

    def bound(self, claim: Json, volume: Json) -> None:
        """Bind both, as the controller does."""
        metadata = claim["metadata"]
        metadata.setdefault("annotations", {})[COMPLETED] = "yes"
        claim["spec"]["volumeName"] = volume["metadata"]["name"]
        claim["status"]["phase"] = "Bound"
        reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
        volume["spec"]["claimRef"] = {**reference, **{key: metadata[key] for key in ("namespace", "name", "uid")}}
        volume["status"]["phase"] = "Bound"

    def number(self) -> int:
        self.made += 1
        return self.made

    # Volumes of pods.

    def mount(self, pod: Json, **source: Any) -> None:
        volumes = pod["spec"].setdefault("volumes", [])
        volumes.append({"name": f"v{len(volumes)}", **source})

    def mount_claim(self, pod: Json, name: str) -> None:
        self.mount(pod, persistentVolumeClaim={"claimName": name, **self._maybe("readOnly", self.chance(0.1))})

    def mount_other(self, pod: Json) -> None:
        """What has nothing to do with where a pod runs."""
        name = self.random.choice(("emptyDir", "configMap", "secret"))
        self.mount(pod, **{name: {"emptyDir": {}, "configMap": {"name": "c"}, "secret": {"secretName": "s"}}[name]})

    def mount_ephemeral(self, pod: Json, class_name: str = LATER) -> str:
        """A volume whose claim is made for the pod; returns the claim's name."""
        number = len(pod["spec"].setdefault("volumes", []))
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": class_name,
            "volumeMode": "Filesystem",
        }
        self.mount(pod, ephemeral={"volumeClaimTemplate": {"spec": spec}})
        return f"{pod['metadata']['name']}-v{number}"

    def mount_disk(self, pod: Json) -> None:
        name = f"disk-{self.random.randrange(self.names)}"
        read_only = self._maybe("readOnly", self.chance(self.reading))
        match self.random.choice(("gce", "ebs", "iscsi", "rbd")):
            case "gce":
                self.mount(pod, gcePersistentDisk={"pdName": name, **read_only})
            case "ebs":
                self.mount(pod, awsElasticBlockStore={"volumeID": name, **read_only})
            case "iscsi":
                iqn = f"iqn.2026-01.com.example:{name}"
                source = {"targetPortal": "10.0.0.1:3260", "iqn": iqn, "lun": self.random.randrange(2)}
                self.mount(pod, iscsi={**source, **read_only})
            case "rbd":
                monitors = self.some(("10.0.0.1", "10.0.0.2", "10.0.0.3"), 1, 2)
                pool = self.random.choice(("rbd", "rbd", "fast"))
                self.mount(pod, rbd={"monitors": monitors, "image": name, "pool": pool, **read_only})

    def owned_by(self, claim: Json, pod: Json) -> None:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        claim["metadata"]["ownerReferences"] = [{**owner, "controller": True, "blockOwnerDeletion": True}]

    def running(self) -> list[Json]:
        return [it for it in self.objects if it["kind"] == "Pod" and it["spec"].get("nodeName")]

    # The profile.

    def profile(self, plugin_config: list[Json]) -> Json:
        found = super().profile(plugin_config)
        points = {**POINTS, **OF_VOLUMES}
        while self.chance(self.at_points):
            point = self.random.choice(sorted({point for name in self.plugins for point in points[name]}))
            found["plugins"][point] = self._at_point([name for name in self.plugins if point in points[name]])
        return found


def _beside(random: Random, plugin: str) -> tuple[str, ...]:
    """Mostly alone, else beside some that look at one node."""
    names = [CORDON, TAINTS] if random.random() < 0.4 else []
    return tuple(sorted((*names, plugin), key=[*POINTS, *OF_VOLUMES].index))


class ZoneDraft(VolumeDraft):
    """Claims bound to volumes with labels of zones and regions."""

    def __init__(self, random: Random) -> None:
        super().__init__(random, *_beside(random, ZONES), sound=0.95)
        for _ in range(self.weighted({0: 1, 1: 60, 2: 25, 3: 10, 5: 4})):
            self.add()
        self.populate()

    def add(self) -> None:
        number = self.number()
        if self.chance(0.1):
            self.mount_other(self.pod)
        if self.chance(0.03):
            self.mount_ephemeral(self.pod)
            return
        name = f"claim-{number}"
        self.mount_claim(self.pod, name)
        if not self.chance(self.sound):
            self.spoilt(name)
            return
        claim = self.claim(name, self.namespace)
        if self.chance(0.06):
            claim["spec"]["storageClassName"] = LATER
            self.objects.append(claim)
            return
        volume = self.volume(f"pv-{number}")
        volume["metadata"].update(self._maybe("labels", self.labels_of_zones()))
        self.bound(claim, volume)
        self.objects += [claim, volume]

    def labels_of_zones(self) -> Json:
        """Mostly those of some node, or of several."""
        found: Json = {}
        for key in self.random.sample(
            (ZONE, ZONE, ZONE, BETA_ZONE, REGION, BETA_REGION), self.weighted({0: 5, 1: 80, 2: 15})
        ):
            of_node = {BETA_ZONE: ZONE, BETA_REGION: REGION}.get(key, key)
            known = sorted({it["metadata"].get("labels", {}).get(of_node, "t0") for it in self.nodes} | {"t1"})
            values = [it or "t0" for it in self.some(known, 1, self.random.choice((1, 1, 2)))]
            found[key] = self.weighted({"__": 20, "____": 1, "-": 1}).join(values)
        return {**found, **self._maybe("disk", self.random.choice(("", "ssd")))}

    def spoilt(self, name: str) -> None:
        number = self.number()
        form = self.random.choice(
            ("no claim", "elsewhere", "no volume", "classless", "no class", "now", "modeless", "old")
        )
        claim = self.claim(name, self.namespace)
        if form == "no claim":
            return
        if form == "elsewhere":
            claim = self.claim(name, self.other_namespace())
        elif form == "no volume":
            self.bound(claim, self.volume(f"gone-{number}"))
        elif form == "old":
            claim["metadata"]["annotations"] = {BETA_CLASS: self.random.choice((LATER, NOW, NO_CLASS))}
        else:
            names = {"classless": None, "no class": NO_CLASS, "now": NOW, "modeless": MODELESS}
            claim = self.claim(name, self.namespace, names[form])
        self.objects.append(claim)


class RestrictionDraft(VolumeDraft):
    """Disks in pods themselves, few names for many pods; and claims of which one pod alone may have the volume."""

    def __init__(self, random: Random, *plugins: str) -> None:
        self.with_claims = random.random() < 0.15
        super().__init__(random, *(plugins or _beside(random, RESTRICTIONS)))
        for namespace in (self.namespace, self.other_namespace()):
            for index in range(4):
                if self.chance(0.97):
                    self.objects.append(self.claim_of_one(f"one-{index}", namespace))
        self.populate()
        pods = [it for it in self.objects if it["kind"] == "Pod"]
        for pod in (self.pod, *pods):
            self.mount_some(pod)

    def claim_of_one(self, name: str, namespace: str) -> Json:
        claim = self.claim(name, namespace)
        if self.chance(0.4):
            claim["spec"]["accessModes"] = ["ReadWriteOncePod"]
        return claim

    def mount_some(self, pod: Json) -> None:
        mine = pod is self.pod
        disks = 0.3 if self.with_claims else 0.9
        for _ in range(self.weighted({0: 1, 1: 24, 2: 8, 3: 2} if mine else {0: 3, 1: 10, 2: 6})):
            if self.chance(0.05):
                self.mount_other(pod)
            elif self.chance(disks):
                self.mount_disk(pod)
            elif mine or self.chance(0.6):
                self.mount_claim(pod, f"one-{self.random.randrange(4)}")
        if mine and self.chance(0.02):
            self.mount_claim(pod, "no-such-claim")
        if self.chance(0.05):
            self.mount_ephemeral(pod)


class LimitDraft(VolumeDraft):
    """Nodes that take few volumes; pods that share some, and VolumeAttachments of what no pod has."""

    def __init__(self, random: Random, *plugins: str) -> None:
        super().__init__(random, *(plugins or _beside(random, LIMITS)))
        self.untold = random.choice((0, 0, 0.1, 0.4))
        self.most = random.choice((1, 2, 4, 8))
        self.objects += [it for node in self.nodes if (it := self.csi_node(node["metadata"]["name"]))]
        self.shared = [self.stored(f"shared-{index}") for index in range(self.random.randint(1, 4))]
        self.populate()
        for pod in self.running():
            for _ in range(self.weighted({0: 4, 1: 8, 2: 4, 3: 1})):
                self.mount_any(pod)
        for _ in range(self.weighted({1: 12, 2: 8, 3: 4, 4: 1})):
            self.mount_any(self.pod)
        if self.chance(0.02):
            self.mount_claim(self.pod, "no-such-claim")
        self.attach()

    def csi_node(self, name: str) -> Json | None:
        if self.chance(self.untold):
            return None
        found = self.unspaced("storage.k8s.io/v1", "CSINode", name)
        found["metadata"]["annotations"] = {MIGRATED: ",".join(SHIPPED)}
        names = self.some((*DRIVERS, EBS, GCE, "disk.csi.azure.com", "pxd.portworx.com"), 2, 6)
        found["spec"] = {"drivers": [self.driver(driver, name) for driver in (DRIVERS[0], *names)]}
        found["spec"]["drivers"] = list({it["name"]: it for it in found["spec"]["drivers"]}.values())
        return found

    def driver(self, name: str, node: str) -> Json:
        limit = {} if self.chance(0.15) else {"allocatable": {"count": self.random.randint(0, self.most)}}
        return {"name": name, "nodeID": f"id-{node}", "topologyKeys": None, **limit}

    def stored(self, name: str) -> str:
        """A claim that pods of the namespace may share."""
        self.add_claim(name, self.namespace)
        return name

    def add_claim(self, name: str, namespace: str) -> Json:
        claim = self.claim(name, namespace)
        self.objects.append(claim)
        form = self.weighted({"csi": 70, "in-tree": 12, "later": 12, "old": 4, "no class": 1, "gone": 3})
        if form in ("later", "old"):
            claim["spec"]["storageClassName"] = {"later": LATER, "old": OLD}[form]
        elif form == "no class":
            del claim["spec"]["storageClassName"]
        elif form == "gone":
            self.bound(claim, self.volume(f"gone-{self.number()}"))
        else:
            number = self.number()
            source = self.csi_source(number) if form == "csi" else self.in_tree_source()
            volume = self.volume(f"pv-{number}", **source)
            self.bound(claim, volume)
            self.objects.append(volume)
        return claim

    def csi_source(self, number: int) -> Json:
        """Two PersistentVolumes may be the same volume."""
        handle = self.random.choice((f"handle-{number}", f"handle-{number}", "handle-1"))
        return {"csi": {"driver": self.random.choice((*DRIVERS, EBS)), "volumeHandle": handle}}

    def in_tree_source(self) -> Json:
        name = f"disk-{self.random.randrange(6)}"
        return self.random.choice(
            (
                {"gcePersistentDisk": {"pdName": name}},
                {"awsElasticBlockStore": {"volumeID": self.random.choice((f"vol-{name}", f"aws://t0/vol-{name}"))}},
                {"awsElasticBlockStore": {"volumeID": "aws://t0/strange"}},
                {"azureDisk": {"diskName": name, "diskURI": self.uri(name), "kind": "Managed"}},
                {"cinder": {"volumeID": name}},
                {"portworxVolume": {"volumeID": name}},
                {"nfs": {"server": "nfs.example.com", "path": f"/{name}"}},
            )
        )

    @staticmethod
    def uri(name: str) -> str:
        return f"/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/{name}"

    def mount_any(self, pod: Json) -> None:
        namespace = pod["metadata"]["namespace"]
        match self.weighted({"own": 50, "shared": 20, "in-line": 14, "ephemeral": 8, "missing": 1, "other": 3}):
            case "own":
                name = f"claim-{self.number()}"
                self.add_claim(name, namespace)
                self.mount_claim(pod, name)
            case "shared":
                self.mount_claim(pod, self.random.choice(self.shared))
                if namespace != self.namespace and self.chance(0.5):
                    pod["metadata"].update(namespace=self.namespace)
            case "in-line":
                self.mount_in_line(pod)
            case "ephemeral":
                claim = self.claim(self.mount_ephemeral(pod), namespace, LATER)
                if self.chance(0.97):
                    self.owned_by(claim, pod)
                if self.chance(0.97):
                    self.objects.append(claim)
            case "missing":
                if pod is not self.pod:
                    self.mount_claim(pod, f"missing-{self.number()}")
            case _:
                self.mount_other(pod)

    def mount_in_line(self, pod: Json) -> None:
        source = self.in_tree_source()
        if "azureDisk" in source and self.chance(0.05):
            source["azureDisk"].update(kind="Dedicated", diskURI="https://a.example.com/vhds/disk.vhd")
        if source.get("awsElasticBlockStore", {}).get("volumeID") == "aws://t0/strange" and self.chance(0.9):
            source = {"vsphereVolume": {"volumePath": "[store] disk.vmdk"}}
        self.mount(pod, **source)

    def attach(self) -> None:
        volumes = [it for it in self.objects if it["kind"] == "PersistentVolume"]
        for node in self.nodes:
            for volume in self.some(volumes, 0, self.random.choice((0, 1, 3))):
                found = self.unspaced("storage.k8s.io/v1", "VolumeAttachment", f"attachment-{self.number()}")
                attacher = volume["spec"].get("csi", {}).get("driver", DRIVERS[0])
                if self.chance(0.1):
                    attacher = self.random.choice(DRIVERS)
                name = volume["metadata"]["name"] if self.chance(0.95) else "no-such-volume"
                source = {"persistentVolumeName": name}
                found["spec"] = {"attacher": attacher, "nodeName": node["metadata"]["name"], "source": source}
                self.objects.append(found)


class BindingDraft(VolumeDraft):
    """Claims that are bound, wait, or should not wait; volumes that are free, kept or taken; room to make more.

    Sizes of free volumes of one class differ: which of two equal ones is taken kube-scheduler leaves to chance.
    """

    def __init__(self, random: Random, *plugins: str) -> None:
        super().__init__(random, *(plugins or _beside(random, BINDING)))
        self.free: dict[str, int] = {}
        self.add_room()
        for node in self.nodes:
            if self.chance(0.7):
                self.objects.append(self.csi_node(node["metadata"]["name"]))
        for _ in range(self.weighted({1: 18, 2: 7, 3: 2, 5: 1})):
            self.add(self.pod)
        for _ in range(self.random.choice((1, 2, 4, 8))):
            self.objects.append(self.free_volume(self.random.choice((LATER, STATIC, STATIC, REGIONAL))))
        if self.chance(0.05):
            self.mount_other(self.pod)
        self.populate()

    def csi_node(self, name: str) -> Json:
        found = self.unspaced("storage.k8s.io/v1", "CSINode", name)
        migrated = self.some(SHIPPED, 0, len(SHIPPED))
        found["metadata"].update(self._maybe("annotations", {MIGRATED: ",".join(migrated)} if migrated else {}))
        found["spec"] = {"drivers": []}
        return found

    def add_room(self) -> None:
        driver = self.unspaced("storage.k8s.io/v1", "CSIDriver", CAPACITY_DRIVER)
        driver["spec"] = {"attachRequired": True, "storageCapacity": self.chance(0.9)}
        if self.chance(0.95):
            self.objects.append(driver)
        for _ in range(self.random.choice((2, 3, 4, 6))):
            found = self._object("storage.k8s.io/v1", "CSIStorageCapacity", f"room-{self.number()}", "default", {})
            del found["spec"]
            found["storageClassName"] = COUNTED if self.chance(0.9) else LATER
            if self.chance(0.95):
                found["nodeTopology"] = self.topology()
            if self.chance(0.9):
                found["capacity"] = self.random.choice(("0", *SIZES))
            if self.chance(0.3):
                found["maximumVolumeSize"] = self.random.choice(SIZES)
            self.objects.append(found)

    def topology(self) -> Json:
        form = self.weighted({"zone": 12, "expression": 5, "everywhere": 1})
        if form == "expression":
            return {"matchExpressions": [self._expression_of_node()]}
        return {} if form == "everywhere" else {"matchLabels": {ZONE: self.random.choice(("t0", "t1", "t2"))}}

    def _expression_of_node(self) -> Json:
        operator = self.random.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        key, pool = self.random.choice(((ZONE, ("t0", "t1", "t2")), ("disk", ("ssd", "hdd", "nvme"))))
        return self._with_values(key, operator, pool)

    def affinity(self) -> Json:
        """Node affinity of a volume: mostly a zone or a host."""
        if self.chance(0.07):
            return {}
        node: Json = self.random.choice(self.nodes)["metadata"] if self.nodes else {"name": "n0"}
        labels = node.get("labels") or {ZONE: "t0"}
        key = self.random.choice(
            [it for it in (ZONE, BETA_ZONE, "kubernetes.io/hostname", "disk") if it in labels] or [ZONE]
        )
        values = list(dict.fromkeys((labels.get(key, "t0"), *self.some(("t0", "t1", "ssd"), 0, 1))))
        terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]
        if self.chance(0.3):
            terms.append({"matchExpressions": [self._node_expression() for _ in range(self.random.choice((1, 1, 2)))]})
        if self.chance(0.05):
            terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node["name"]]}]}]
        return {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}

    def free_volume(self, class_name: str) -> Json:
        number = self.number()
        count = self.free[class_name] = self.free.get(class_name, 0) + 1
        sizes = [f"{gigas}Gi" for gigas in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)]
        volume = self.volume(f"pv-{number}", class_name, **self.affinity())
        volume["spec"]["capacity"] = {"storage": sizes[(5 * count) % len(sizes)]}
        volume["metadata"]["labels"] = {"tier": self.random.choice(("gold", "tin"))}
        if self.chance(0.2):
            volume["spec"]["accessModes"] = self.some(("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"), 1, 2)
        if self.chance(0.05):
            volume["spec"]["volumeMode"] = "Block"
        if self.chance(0.05):
            volume["spec"]["volumeAttributesClassName"] = "fast"
        if self.chance(0.05):
            volume["status"]["phase"] = self.random.choice(("Released", "Pending", "Failed"))
        if self.chance(0.04):
            volume["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
        if self.chance(0.05):
            volume["metadata"]["annotations"] = {BETA_CLASS: self.random.choice((STATIC, "other"))}
            volume["spec"]["capacity"] = {"storage": f"{16 + number}Gi"}
        if self.chance(0.08):
            other = {"name": "somebody-else", "namespace": self.namespace, "uid": "else"}
            volume["spec"]["claimRef"] = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **other}
        return volume

    def add(self, pod: Json) -> None:
        """A claim, and what it needs."""
        form = self.weighted(
            {"bound": 30, "static": 26, "later": 10, "regional": 12, "counted": 18, "in-tree": 10, "spoilt": 3}
        )
        own = form in ("later", "counted", "bound") and self.chance(0.15)
        name = self.mount_ephemeral(pod) if own else f"claim-{self.number()}"
        claim = self.claim(name, pod["metadata"]["namespace"])
        if own and self.chance(0.97):
            self.owned_by(claim, pod)
        if not own:
            self.mount_claim(pod, name)
            if self.chance(0.02):
                self.mount_claim(pod, name)
        if form == "spoilt":
            self.spoil(claim)
            return
        if self.chance(0.99):
            self.objects.append(claim)
        if form in ("bound", "in-tree"):
            self.bind(claim, in_tree=form == "in-tree")
            return
        claim["spec"]["storageClassName"] = form
        if form in ("static", "later"):
            self.ask(claim)
        if self.nodes and self.chance(0.07):
            node = self.node_name() if self.chance(0.9) else "gone"
            claim["metadata"]["annotations"] = {SELECTED_NODE: node}

    def bind(self, claim: Json, *, in_tree: bool) -> None:
        volume = self.volume(f"pv-{self.number()}", **(self.in_tree() if in_tree else {}), **self.affinity())
        if in_tree or self.chance(0.2):
            zones = self.random.choice(("t0", "t1", "t0__t1", "us-east-a", "us-east-a__us-east-b"))
            volume["metadata"]["labels"] = {self.random.choice((ZONE, BETA_ZONE)): zones}
        self.bound(claim, volume)
        if self.chance(0.98):
            self.objects.append(volume)

    def ask(self, claim: Json) -> None:
        """Something more of the volume; or there is one that is kept for it."""
        if self.chance(0.3):
            claim["spec"]["selector"] = {"matchLabels": {"tier": self.random.choice(("gold", "tin"))}}
        if self.chance(0.04):
            claim["spec"]["volumeMode"] = "Block"
        if self.chance(0.04):
            claim["spec"]["volumeAttributesClassName"] = "fast"
        if self.chance(0.1):
            claim["spec"]["accessModes"] = self.some(("ReadWriteOnce", "ReadOnlyMany"), 1, 2)
        class_name = claim["spec"]["storageClassName"]
        for _ in range(self.random.choice((0, 1, 2, 3))):
            self.objects.append(self.free_volume(class_name))
        if self.chance(0.12):
            kept = self.free_volume(class_name)
            metadata = claim["metadata"]
            uid = self.random.choice(({}, {"uid": metadata["uid"]}, {"uid": "another"}))
            reference = {"name": metadata["name"], "namespace": metadata["namespace"], **uid}
            kept["spec"]["claimRef"] = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **reference}
            self.objects.append(kept)

    def in_tree(self) -> Json:
        name = f"disk-{self.number()}"
        uri = f"/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/{name}"
        return self.random.choice(
            (
                {"gcePersistentDisk": {"pdName": name}},
                {"awsElasticBlockStore": {"volumeID": self.random.choice((f"vol-{name}", "aws://t0/strange"))}},
                {"azureDisk": {"diskName": name, "diskURI": uri, "kind": "Managed"}},
                {"cinder": {"volumeID": name}},
                {"portworxVolume": {"volumeID": name}},
                {"nfs": {"server": "nfs.example.com", "path": f"/{name}"}},
            )
        )

    def spoil(self, claim: Json) -> None:
        form = self.random.choice(("lost", "gone", "deleted", "now", "classless", "no class", "modeless", "prebound"))
        metadata, spec = claim["metadata"], claim["spec"]
        if form == "lost":
            spec["volumeName"] = "pv-lost"
            claim["status"]["phase"] = "Lost"
        elif form == "deleted":
            metadata.update(deletionTimestamp="2026-01-02T00:00:00Z", finalizers=["kubernetes.io/pvc-protection"])
        elif form == "classless":
            del spec["storageClassName"]
        elif form == "prebound":
            spec.update(storageClassName=LATER, volumeName="pv-wanted")
        elif form != "gone":
            spec["storageClassName"] = {"now": NOW, "no class": NO_CLASS, "modeless": MODELESS}[form]
        if form != "gone":
            self.objects.append(claim)


class TogetherDraft(BindingDraft):
    """All four beside TaintToleration: who rejects first. Other pods have disks and claims, too."""

    def __init__(self, random: Random) -> None:
        super().__init__(random, TAINTS, *OF_VOLUMES)
        for pod in self.running():
            for _ in range(self.random.choice((0, 1, 2))):
                if self.chance(0.3):
                    self.mount_disk(pod)
                    continue
                claim = self.claim(f"claim-{self.number()}", pod["metadata"]["namespace"])
                self.objects.append(claim)
                self.mount_claim(pod, claim["metadata"]["name"])
                self.bind(claim, in_tree=self.chance(0.1))
        if self.chance(0.3):
            self.mount_disk(self.pod)
        for claim in self.objects:
            if claim["kind"] == "PersistentVolumeClaim" and self.chance(0.05):
                claim["spec"]["accessModes"] = ["ReadWriteOncePod"]

    def csi_node(self, name: str) -> Json:
        found = super().csi_node(name)
        found["metadata"]["annotations"] = {MIGRATED: ",".join(SHIPPED)}
        limits = {driver: self.random.randint(0, 4) for driver in self.some((*DRIVERS, EBS), 1, 3)}
        found["spec"]["drivers"] = [
            {"name": driver, "nodeID": f"id-{name}", "topologyKeys": None, "allocatable": {"count": count}}
            for driver, count in limits.items()
        ]
        return found


TOPICS: Final[Mapping[str, Callable[[Random], Draft]]] = {
    "zones": ZoneDraft,
    "restrictions": RestrictionDraft,
    "limits": LimitDraft,
    "binding": BindingDraft,
    "volumes": TogetherDraft,
}
