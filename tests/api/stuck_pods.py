"""The ten stuck pods of docs/explain.md, each in a cluster of its own with two nodes in each of three zones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.builders import JsonObject
from tests.controlplane import objects

Create = Callable[[JsonObject], JsonObject]
"""Creates an object with its status, and returns it with a UID."""

NODES: Final = [f"node-{zone}{number}" for zone in "abc" for number in (1, 2)]
WEB: Final = {"app": "web"}
ZONE: Final = objects.ZONE_LABEL
SPREAD: Final = [objects.spread(WEB)]
CONFIG: Final[JsonObject] = {
    "apiVersion": "homeport.dev/v1alpha1",
    "kind": "HomeportConfiguration",
    "explain": "complete",
    "profiles": [{"schedulerName": "default-scheduler"}],
}


def nodes(create: Create, **zone_c: Any) -> None:
    """Create the nodes with 4 CPU each; ``zone_c``: fields of those in the third zone."""
    for name in NODES:
        more = zone_c if name[5] == "c" else {}
        create(objects.node(name, zone=f"eu-1{name[5]}", **{"cpu": "4", **more}))


def running(create: Create, **requests: str) -> None:
    """Create a pod of the workload in the first two zones."""
    for name in ("node-a1", "node-b1"):
        create(objects.pod(f"web-{name[5:]}", labels=WEB, node_name=name, requests=requests))


def too_large(create: Create) -> None:
    """Twelve CPUs are free, but at most three on one node."""
    nodes(create)
    for name in NODES:
        cpu = {"node-a2": "1", "node-c2": "3"}.get(name, "2")
        create(objects.pod(f"runs-{name[5:]}", node_name=name, requests={"cpu": cpu}))
    create(objects.pod("report", requests={"cpu": "4"}))


def cpu_and_skew(create: Create) -> None:
    nodes(create, cpu="1")
    running(create, cpu="1")
    create(objects.pod("log", node_name="node-b2", requests={"cpu": "1"}))
    create(objects.pod("web", labels=WEB, requests={"cpu": "2"}, spread_constraints=SPREAD))


def tainted_zone(create: Create) -> None:
    nodes(create, taints=[objects.taint("example.com/gpu", "yes")])
    running(create)
    create(objects.pod("web", labels=WEB, spread_constraints=SPREAD))


def too_few_domains(create: Create) -> None:
    nodes(create)
    for name in ("node-a1", "node-b1", "node-c1"):
        create(objects.pod(f"web-{name[5:]}", labels=WEB, node_name=name))
    create(objects.pod("web", labels=WEB, spread_constraints=[objects.spread(WEB, minDomains=4)]))


def contradiction(create: Create) -> None:
    """One constraint leaves zone c, the other the nodes outside of it."""
    for name in NODES:
        tier = {"tier": "new" if name[5] == "c" else "old"}
        create(objects.node(name, zone=f"eu-1{name[5]}", cpu="4", labels=tier))
    running(create)
    team = {"team": "shop"}
    create(objects.pod("cart", labels=team, node_name="node-c1"))
    both = [*SPREAD, objects.spread(team, topology_key="tier")]
    create(objects.pod("web", labels={**WEB, **team}, spread_constraints=both))


def volume_elsewhere(create: Create) -> None:
    nodes(create)
    running(create)
    volume, claim = objects.bound_claim("data")
    term = {"key": ZONE, "operator": "In", "values": ["eu-1a"]}
    volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}}
    volume["spec"]["claimRef"]["uid"] = create({**claim, "status": {"phase": "Bound"}})["metadata"]["uid"]
    create({**volume, "status": {"phase": "Bound"}})
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    create(objects.pod("web", labels=WEB, volumes=volumes, spread_constraints=SPREAD))


def cordoned_home(create: Create) -> None:
    for name in NODES:
        create(objects.node(name, zone=f"eu-1{name[5]}", cpu="4", unschedulable=name == "node-b2"))
    machine = objects.virtual_machine("db01")
    machine["metadata"]["annotations"] = {"homeport.dev/home": "node-b2", "homeport.dev/policy": "hard"}
    owner = create(machine)["metadata"]["uid"]
    create(objects.launcher_pod(create(objects.virtual_machine_instance("db01", owner)), suffix="x7k2p"))


def no_such_label(create: Create) -> None:
    nodes(create, labels={"disk": "ssd"})
    create(objects.pod("cache", node_selector={"disk": "sdd"}))


def gated(create: Create) -> None:
    nodes(create)
    create(objects.pod("batch", gates=["example.com/quota"]))


def foreign(create: Create) -> None:
    nodes(create)
    create(objects.pod("train", scheduler_name="volcano"))


STUCK: Final[Mapping[str, tuple[Callable[[Create], None], str]]] = {
    "No node has enough CPU": (too_large, "report"),
    "Not enough CPU, and too many pods in a zone": (cpu_and_skew, "web"),
    "A tainted zone": (tainted_zone, "web"),
    "More domains than there are": (too_few_domains, "web"),
    "Two constraints that contradict each other": (contradiction, "web"),
    "A volume in another zone": (volume_elsewhere, "web"),
    "A cordoned home": (cordoned_home, "virt-launcher-db01-x7k2p"),
    "A label that no node has": (no_such_label, "cache"),
    "A scheduling gate": (gated, "batch"),
    "A scheduler that does not exist": (foreign, "train"),
}
"""Creates the cluster of each section of the page, and the name of the pod that is stuck there."""
