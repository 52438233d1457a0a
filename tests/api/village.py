"""A small cluster with many homes: some at home, some away, some that cannot be.

Four nodes, of which n2 is cordoned; machines in namespace ``machines``, and StatefulSet ``default/db`` with a home for
each ordinal.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, Unpack

import yaml

from app.config.profile import Profile
from app.kube.homes_v1alpha1 import API_VERSION, KIND, memory_name
from tests.builders import JsonObject, PodFields, controller, node_object, pod_object

MACHINES: Final = "machines"
OWNERS: Final = [
    {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "through": [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"}],
    },
    {"apiVersion": "apps/v1", "kind": "StatefulSet", "perOrdinal": True, "policy": "hard"},
]
CONFIG: Final = [{"name": "StickyNode", "args": {"owners": OWNERS}}]
DELEGATED: Final[JsonObject] = {"schedulerName": "default-scheduler", "pluginConfig": CONFIG}
COMPLETE: Final[JsonObject] = {"schedulerName": "full", "preset": "complete", "pluginConfig": CONFIG}
ROOM: Final[JsonObject] = {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}}
DISKS: Final = {"n1": "ssd", "n3": "ssd", "n4": "hdd"}
SINCE: Final = "2026-11-20T10:00:00Z"
ODD: Final = "Not A Node"


def owner(kind: str, name: str, api_version: str, **annotations: str) -> JsonObject:
    """An owner with its uid; ``home_3`` is the annotation ``homeport.dev/home.3``."""
    namespace = MACHINES if api_version.startswith("kubevirt") else "default"
    keys = {f"homeport.dev/{key.replace('_', '.')}": value for key, value in annotations.items()}
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{kind}-{name}", "annotations": keys}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": {}}


def machine(name: str, home: str = "", **pod: Unpack[PodFields]) -> list[JsonObject]:
    """A virtual machine; with a pod if anything is said of one."""
    virtual = owner("VirtualMachine", name, "kubevirt.io/v1", **({"home": home} if home else {}))
    if not pod:
        return [virtual]
    instance = owner("VirtualMachineInstance", name, "kubevirt.io/v1")
    instance["metadata"]["ownerReferences"] = [
        {**controller("VirtualMachine", name, api_version="kubevirt.io/v1"), "uid": f"uid-VirtualMachine-{name}"}
    ]
    by = controller("VirtualMachineInstance", name, api_version="kubevirt.io/v1")
    given: PodFields = {
        "namespace": MACHINES,
        "owner": {**by, "uid": f"uid-VirtualMachineInstance-{name}"},
        **pod,
    }
    return [virtual, instance, pod_object(f"launcher-{name}", **given)]


def idle(name: str, home: str, *, since: str) -> list[JsonObject]:
    """One that is stopped, and since when its home is not usable."""
    (virtual,) = machine(name, home)
    virtual["metadata"]["annotations"]["homeport.dev/home-since"] = since
    return [virtual]


def remembered(name: str, home: str, *, of: str = "VirtualMachine") -> JsonObject:
    """What is left of a machine that was deleted."""
    keeper = {"apiVersion": "kubevirt.io/v1", "kind": of, "name": name, "uid": f"uid-{of}-{name}"}
    metadata = {"name": memory_name(keeper["apiVersion"], of, name, ""), "namespace": MACHINES}
    spec = {"owner": keeper, "node": home, "since": SINCE}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def member(number: int, **fields: Unpack[PodFields]) -> JsonObject:
    """A pod of the StatefulSet."""
    given: PodFields = {"owner": {**controller("StatefulSet", "db"), "uid": "uid-StatefulSet-db"}, **fields}
    return pod_object(f"db-{number}", **given)


OBJECTS: Final = [
    *(node_object(name, labels={"disk": disk}, status=ROOM) for name, disk in DISKS.items()),
    node_object("n2", labels={"disk": "hdd"}, status=ROOM, unschedulable=True),
    *machine("db01", "n1", scheduler="default-scheduler"),
    *machine("mail01", "n1", node="n1", node_selector={"disk": "ssd"}),
    *machine("moved01", "n1", node="n3"),
    *idle("idle01", "n2", since=f"away {SINCE} n2"),
    *machine("lost01", "n9", scheduler="default-scheduler"),
    *machine("odd01", ODD),
    *machine("free01", node="n1"),
    remembered("gone01", "n3"),
    owner("StatefulSet", "db", "apps/v1", home_0="n1", home_2="n2", home_10="n3"),
    member(0, node="n1"),
    member(2, node="n1", labels={"app": "db"}),
]


def saved(folder: Path) -> Path:
    """The cluster as a file."""
    path = folder / "village.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": OBJECTS}))
    return path


def configured(folder: Path, *profiles: JsonObject) -> Path:
    """A configuration file that serves it."""
    path = folder / "homeport.yaml"
    head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}
    path.write_text(yaml.safe_dump({**head, "cluster": str(saved(folder)), "profiles": list(profiles)}))
    return path


def profiles(*found: JsonObject) -> tuple[Profile, ...]:
    return tuple(Profile.model_validate(it) for it in found)
