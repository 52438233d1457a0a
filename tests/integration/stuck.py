"""Kinds of pods that wait for ever, each on nodes of its own and under a schedulerName of its own.

A kind is set up for a side: ``stock`` for kube-scheduler alone, any other name for one that asks Homeport. All kinds of
all sides stand in one idle cluster.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from tests.controlplane import objects
from tests.controlplane.client import Client

STOCK: Final = "stock"
HELD: Final = "held"
_WORKERS: Final = 8
_HOME: Final = "homeport.dev/home"
_GROUP: Final = "example.com/group"
_ENTRY: Final = "[homeport.plugins]\nholds = tests.integration.holds:HOLDS\n"
_METADATA: Final = "Metadata-Version: 2.1\nName: holds\nVersion: 1\n"


class Stage:
    """Nodes and pods of one kind and side. Zone c has one node, the others ``wide`` each."""

    def __init__(self, client: Client, side: str, kind: str, pods: int, wide: int) -> None:
        self.client = client
        self.group = f"{side}-{kind}"
        self.stock = side == STOCK
        self.labels = {"app": self.group}
        self.names = [f"{self.group}-p{number}" for number in range(pods)]
        self.home = self.node_name("c")
        self._wide = wide

    def node_name(self, zone: str, number: int = 0) -> str:
        return f"{self.group}-{zone}{number}"

    def make_nodes(self, **third: Any) -> None:
        """Make the nodes; ``third`` are fields of the one in zone c."""
        for zone in "abc":
            for number in range(1 if zone == "c" else self._wide):
                more = third if zone == "c" else {}
                name = self.node_name(zone, number)
                self.client.create(
                    objects.node(name, zone=f"zone-{zone}", cpu="4", labels={_GROUP: self.group}, **more)
                )

    def run(self, zone: str, **fields: Any) -> None:
        """Make a pod that runs on the first node of a zone."""
        fields = {"labels": self.labels, **fields}
        name = f"{self.group}-runs-{zone}-{'-'.join(fields['labels'].values())[-8:]}"
        self.client.create(objects.pod(name, node_name=self.node_name(zone), **fields))

    def peers(self) -> None:
        """Make one peer in zone a and one in b: with a skew of 1 the next pod goes to zone c."""
        for zone in "ab":
            self.run(zone)

    def fill(self) -> None:
        """Leave no CPU on the node of zone c."""
        self.run("c", labels={"app": "filler"}, requests={"cpu": "4"})

    def fields(self, *, spread: bool = True, **more: Any) -> dict[str, Any]:
        """Fields of a pod that waits."""
        constraints = [objects.spread(self.labels)] if spread else []
        selector = {_GROUP: self.group, **more.pop("node_selector", {})}
        return {
            "scheduler_name": self.group,
            "requests": {"cpu": "1"},
            "spread_constraints": constraints,
            "node_selector": selector,
            **more,
        }

    def wait(self, **fields: Any) -> None:
        """Make the pods that wait, without an owner."""
        for name in self.names:
            self.client.create(objects.pod(name, labels=self.labels, **fields))

    def wait_at_home(self, home: str) -> None:
        """Make machines with a home; for stock kube-scheduler pods that require the node."""
        terms = [{"matchExpressions": [{"key": objects.HOSTNAME_LABEL, "operator": "In", "values": [home]}]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        if self.stock:
            self.wait(**self.fields(spread=False, affinity={"nodeAffinity": required}))
        else:
            self.machines({_HOME: home}, **self.fields(spread=False))

    def machines(self, annotations: Mapping[str, str], **fields: Any) -> None:
        """Make the pods that wait, each of a machine of its own."""
        for name in self.names:
            machine = objects.virtual_machine(name)
            machine["metadata"]["annotations"] = dict(annotations)
            uid = self.client.create(machine)["metadata"]["uid"]
            instance = self.client.create(objects.virtual_machine_instance(name, uid))
            self.client.create(objects.launcher_pod(instance, labels=self.labels, **fields))


def _full(stage: Stage) -> None:
    stage.make_nodes()
    stage.peers()
    stage.fill()


def zone_full(stage: Stage) -> None:
    _full(stage)
    stage.wait(**stage.fields())


def zone_full_replica_set(stage: Stage) -> None:
    _full(stage)
    owner = stage.client.create(objects.replica_set(stage.group, labels=stage.labels, replicas=len(stage.names)))
    for pod in objects.replica_set_pods(owner, len(stage.names), **stage.fields()):
        stage.client.create(pod)


def zone_full_jobs(stage: Stage) -> None:
    _full(stage)
    for name in stage.names:
        owner = objects.owner_reference_to("batch/v1", "Job", name, f"uid-of-{name}")
        stage.client.create(objects.pod(name, labels=stage.labels, owners=[owner], **stage.fields()))


def zone_full_machines(stage: Stage) -> None:
    _full(stage)
    stage.machines({}, **stage.fields())


def zone_cordoned(stage: Stage) -> None:
    stage.make_nodes(unschedulable=True)
    stage.peers()
    stage.wait(**stage.fields())


def port_taken(stage: Stage) -> None:
    containers = [{"name": "main", "image": objects.PAUSE_IMAGE, "ports": [{"containerPort": 80, "hostPort": 80}]}]
    stage.make_nodes()
    stage.peers()
    stage.run("c", labels={"app": "port"}, containers=containers)
    stage.wait(**stage.fields(containers=containers))


def volume_elsewhere(stage: Stage) -> None:
    stage.make_nodes()
    stage.peers()
    for name in stage.names:
        volume, claim = objects.bound_claim(name)
        values = {"key": objects.HOSTNAME_LABEL, "operator": "In", "values": [stage.node_name("a")]}
        volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [values]}]}}
        made = stage.client.create(claim)
        volume["spec"]["claimRef"]["uid"] = made["metadata"]["uid"]
        stage.client.create(volume)
        stage.client.patch_status("PersistentVolume", volume["metadata"]["name"], {"phase": "Bound"}, namespace="")
        stage.client.patch_status("PersistentVolumeClaim", name, {"phase": "Bound"})
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        stage.client.create(objects.pod(name, labels=stage.labels, **stage.fields(volumes=volumes)))


def too_few_domains(stage: Stage) -> None:
    stage.make_nodes()
    stage.peers()
    stage.run("c")
    constraint = objects.spread(stage.labels, minDomains=9)
    stage.wait(**{**stage.fields(), "spread_constraints": [constraint]})


def home_full(stage: Stage) -> None:
    stage.make_nodes()
    stage.fill()
    stage.wait_at_home(stage.home)


def home_cordoned(stage: Stage) -> None:
    stage.make_nodes(unschedulable=True)
    stage.wait_at_home(stage.home)


def home_gone(stage: Stage) -> None:
    stage.make_nodes()
    stage.wait_at_home(f"{stage.group}-gone")


def no_cpu(stage: Stage) -> None:
    stage.make_nodes()
    stage.wait(**{**stage.fields(), "requests": {"cpu": "64"}})


def foe_on_each_node(stage: Stage) -> None:
    foes = {"labelSelector": {"matchLabels": {"foe": stage.group}}, "topologyKey": objects.ZONE_LABEL}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [foes]}}
    stage.make_nodes()
    for zone in "abc":
        stage.run(zone, labels={"foe": stage.group})
    stage.wait(**stage.fields(affinity=affinity))


def no_such_label(stage: Stage) -> None:
    stage.make_nodes()
    stage.wait(**stage.fields(node_selector={"disk": "none"}))


def held_at_permit(stage: Stage) -> None:
    stage.make_nodes()
    if not stage.stock:
        stage.wait(**stage.fields(spread=False))


class Kind(NamedTuple):
    """``make`` stages it. ``stock`` and ``ours``: attempts for each pod without Homeport and with it.

    kube-scheduler counts an attempt that succeeds when the pod is bound, so that of a held pod is not counted. The
    second attempt with Homeport follows kube-scheduler's own write of the pod's condition, after a first refusal by an
    extender.
    """

    title: str
    make: Callable[[Stage], None]
    stock: int = 1
    ours: int = 2


KINDS: Final[Mapping[str, Kind]] = {
    "zone-full": Kind("zone full, pods without an owner", zone_full),
    "zone-full-set": Kind("zone full, pods of a ReplicaSet", zone_full_replica_set),
    "zone-full-jobs": Kind("zone full, pods of Jobs", zone_full_jobs),
    "zone-full-machines": Kind("zone full, machines", zone_full_machines),
    "zone-cordoned": Kind("zone cordoned", zone_cordoned),
    "port-taken": Kind("host port of the zone taken", port_taken),
    "volume-elsewhere": Kind("volume in another zone", volume_elsewhere),
    "too-few-domains": Kind("too few zones", too_few_domains),
    "home-full": Kind("home full", home_full),
    "home-cordoned": Kind("home cordoned", home_cordoned),
    "home-gone": Kind("home gone", home_gone),
    "no-cpu": Kind("no CPU anywhere", no_cpu, ours=1),
    "foes": Kind("anti-affinity to a pod on each node", foe_on_each_node, ours=1),
    "no-label": Kind("no node with the label", no_such_label, ours=1),
    HELD: Kind("held at Permit", held_at_permit, stock=0, ours=0),
}


def groups(side: str) -> dict[str, Kind]:
    """Return the kinds of a side by schedulerName."""
    return {f"{side}-{name}": kind for name, kind in KINDS.items()}


def make(client: Client, sides: Iterable[str], pods: int, wide: int = 1, kinds: Iterable[str] = KINDS) -> None:
    """Make kinds for all sides."""
    stages = [(KINDS[name].make, Stage(client, side, name, pods, wide)) for side in sides for name in kinds]
    with ThreadPoolExecutor(_WORKERS) as pool:
        list(pool.map(lambda it: it[0](it[1]), stages))


def profiles(config: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return a KubeSchedulerConfiguration with its one profile under several names."""
    (profile,) = config.get("profiles", [{}])
    return {**config, "profiles": [{**profile, "schedulerName": name} for name in names]}


def homeport_settings(folder: Path, side: str, **settings: Any) -> tuple[str, dict[str, str]]:
    """Return a flag and variables with which a Homeport serves all names, and holds pods of one kind at Permit."""
    about = folder / "holds-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(_METADATA)
    (about / "entry_points.txt").write_text(_ENTRY)
    holding = {"schedulerName": f"{side}-{HELD}", "plugins": {"multiPoint": {"enabled": [{"name": "Holds"}]}}}
    head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}
    file = folder / "homeport.yaml"
    file.write_text(yaml.safe_dump({**head, "profiles": [{"schedulerName": "*"}, holding], **settings}))
    return f"--config={file}", {"PYTHONPATH": str(folder)}


def clear(client: Client) -> None:
    """Delete claims and volumes, which `Client.clear` leaves."""
    for kind in ("PersistentVolumeClaim", "PersistentVolume"):
        for found in client.list(kind, "default"):
            client.delete(kind, found["metadata"]["name"])
